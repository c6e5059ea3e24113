//! Requests about our ConfigMap (A4): each is sent immediately, takes a bounded time, and has one answer. The
//! machines interpret its keys. Unknown fields survive a replacement.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use model::arm::Document;
use model::config_map::{
    ConfigMapAnswer, ConfigMapEdit, ConfigMapFacts, ConfigMapRequest, Text, Value as EditValue,
};
use model::machine::Wall;
use model::object::{RequestFailure, ResourceVersion};
use serde_json::{Map, Value, json};

use super::object_api::{Kind, NamespacedName, ObjectApi, ObjectResponse};
use crate::azure::Effects;
use crate::clock::Clock;

/// Maximum tries of [`store_entry`] while other clients write at the same time.
const MAX_TRIES: usize = 5;
/// Prefix of the line of an entry that has the entry's start time.
const SINCE: &str = "since:";

/// A ConfigMap as the API server sent it, or a new one.
struct ConfigMapDocument(Map<String, Value>);

/// Carries out requests about our ConfigMap.
#[derive(Clone)]
pub(super) struct ConfigMapClient {
    pub(super) api: ObjectApi,
    pub(super) clock: Clock,
}

impl ConfigMapClient {
    /// Sends one request; every failure is an answer too.
    pub(super) async fn send(&self, request: ConfigMapRequest) -> ConfigMapAnswer {
        self.try_send(request).await.unwrap_or_else(ConfigMapAnswer::Failed)
    }

    async fn try_send(&self, request: ConfigMapRequest) -> Result<ConfigMapAnswer, RequestFailure> {
        let response = match request {
            ConfigMapRequest::Get => self.api.read().await,
            ConfigMapRequest::Create(edit) => {
                let new = ConfigMapDocument::new(&self.api.name);
                self.api.create(new.edited(&edit, self.clock)).await
            }
            ConfigMapRequest::Replace(current, edit) => {
                let document = current.document.get::<ConfigMapDocument>();
                let document = document.ok_or_else(|| self.api.foreign())?;
                self.api.replace(document.edited(&edit, self.clock)).await
            }
            ConfigMapRequest::Watch(..) => {
                Err(RequestFailure::Other(Arc::from("a ConfigMap is not watched")))
            }
        };
        match response? {
            ObjectResponse::Object(value) => {
                let facts = facts(value, self.clock).map_err(|reason| self.api.unusable(reason))?;
                Ok(ConfigMapAnswer::Seen(Arc::new(facts)))
            }
            ObjectResponse::Absent => Ok(ConfigMapAnswer::Absent),
            ObjectResponse::Conflict => Ok(ConfigMapAnswer::Conflict),
        }
    }
}

/// Sends one request about a ConfigMap, for a command; every failure is an answer too.
pub async fn send_config_map_request(
    client: Client,
    name: NamespacedName,
    clock: Clock,
    request: ConfigMapRequest,
) -> ConfigMapAnswer {
    let api = ObjectApi { client, effects: Effects::Carried, kind: Kind::ConfigMap, name };
    ConfigMapClient { api, clock }.send(request).await
}

/// An entry that a command stores in our ConfigMap.
#[derive(Clone, Debug)]
pub struct ConfigMapEntry {
    /// Prefix of its key; keys with this prefix sort by age.
    pub prefix: &'static str,
    /// The rest of its key.
    pub name: String,
    /// The value.
    pub text: String,
    /// Maximum number of entries with this prefix, including this one: a full ConfigMap has no room for the records of
    /// nodes (N4).
    pub max_entries: usize,
}

impl ConfigMapEntry {
    /// Returns its key.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}{}", self.prefix, self.name)
    }

    /// Returns the edit that adds it to the existing keys.
    fn edit(&self, existing: &BTreeMap<Arc<str>, Text>) -> ConfigMapEdit {
        let key: Arc<str> = Arc::from(self.key());
        let with_prefix =
            existing.keys().rev().filter(|other| other.starts_with(self.prefix) && **other != key);
        ConfigMapEdit {
            remove: with_prefix.skip(self.max_entries.saturating_sub(1)).cloned().collect(),
            set: BTreeMap::from([(key, EditValue::Text(Arc::from(self.text.as_str())))]),
        }
    }
}

/// Stores an entry in a ConfigMap, for a command. Creates a missing ConfigMap; keys without the prefix stay unchanged.
///
/// # Errors
/// The API server refuses or does not answer, or other clients write the ConfigMap on every try.
pub async fn store_entry(
    client: Client,
    name: NamespacedName,
    clock: Clock,
    entry: &ConfigMapEntry,
) -> Result<(), RequestFailure> {
    let api = ObjectApi { client, effects: Effects::Carried, kind: Kind::ConfigMap, name };
    let requests = ConfigMapClient { api, clock };
    for _ in 0..MAX_TRIES {
        let write = match requests.send(ConfigMapRequest::Get).await {
            ConfigMapAnswer::Seen(current) => {
                let edit = entry.edit(&current.data);
                ConfigMapRequest::Replace(current, edit)
            }
            ConfigMapAnswer::Absent => ConfigMapRequest::Create(entry.edit(&BTreeMap::new())),
            ConfigMapAnswer::Conflict | ConfigMapAnswer::Unchanged => continue,
            ConfigMapAnswer::Failed(reason) => return Err(reason),
        };
        match requests.send(write).await {
            ConfigMapAnswer::Seen(_) => return Ok(()),
            // Another client deleted or wrote it after the read.
            ConfigMapAnswer::Absent | ConfigMapAnswer::Conflict | ConfigMapAnswer::Unchanged => {}
            ConfigMapAnswer::Failed(reason) => return Err(reason),
        }
    }
    Err(RequestFailure::Other(Arc::from("another client wrote it each time")))
}

/// Returns the facts about a state of a ConfigMap; refuses only what cannot be understood at all.
///
/// # Errors
/// The value is not an object, or has no version.
pub fn facts(value: Value, clock: Clock) -> Result<ConfigMapFacts, &'static str> {
    let Value::Object(document) = value else { return Err("expected an object") };
    let version = document.get("metadata").and_then(|metadata| metadata["resourceVersion"].as_str());
    let version = version.filter(|version| !version.is_empty());
    let version = ResourceVersion(version.ok_or("metadata.resourceVersion: expected a text")?.into());
    let wall = |text: &str| {
        text.trim().parse::<Timestamp>().ok().map(|time| Wall::from_micros(time.as_microsecond()))
    };
    let text = |text: &str| {
        let since = || text.lines().find_map(|line| line.trim().strip_prefix(SINCE)).and_then(wall);
        Text { text: Arc::from(text), time: wall(text).or_else(since) }
    };
    let data: BTreeMap<Arc<str>, Text> = document
        .get("data")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((Arc::from(key.as_str()), text(value.as_str()?))))
        .collect();
    let binary = document.get("binaryData").and_then(Value::as_object).into_iter().flatten();
    let binary = binary.map(|(key, _)| Arc::from(key.as_str())).collect();
    let read = Wall::from_micros(clock.wall().as_microsecond());
    Ok(ConfigMapFacts { data, binary, read, version, document: Document::new(ConfigMapDocument(document)) })
}

impl ConfigMapDocument {
    /// Creates the document of a ConfigMap that does not exist yet.
    fn new(name: &NamespacedName) -> ConfigMapDocument {
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": &*name.name, "namespace": &*name.namespace },
        });
        let Value::Object(body) = body else { unreachable!("it is written as an object") };
        ConfigMapDocument(body)
    }

    /// Returns the edited document as the body of a request.
    fn edited(&self, edit: &ConfigMapEdit, clock: Clock) -> Vec<u8> {
        let mut document = self.0.clone();
        // A key is in one of the two maps.
        if let Some(binary) = document.get_mut("binaryData").and_then(Value::as_object_mut) {
            binary
                .retain(|key, _| !edit.remove.contains(key.as_str()) && !edit.set.contains_key(key.as_str()));
        }
        let data = document.entry("data").or_insert(Value::Null);
        if !data.is_object() {
            *data = Value::Object(Map::new());
        }
        let data = data.as_object_mut().expect("it was made an object");
        for key in &edit.remove {
            data.shift_remove(&**key);
        }
        for (key, value) in &edit.set {
            let text = match value {
                EditValue::Text(text) => text.to_string(),
                EditValue::Time(at) => format!("{:.3}", clock.timestamp_of(*at)),
                EditValue::Since { head, at, tail } => {
                    format!("{head}\n{SINCE} {:.6}\n{tail}", clock.timestamp_of(*at))
                }
            };
            data.insert(key.to_string(), text.into());
        }
        Value::Object(document).to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests;
