//! Requests about our ConfigMap (A4): each is sent at once, takes a bounded time, and has one answer. What its keys
//! mean is the machines' to judge; what nobody here knows of it survives a replacement.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use pool_core::arm::Document;
use pool_core::config_map::{
    ConfigMapAnswer, ConfigMapAsk, ConfigMapEdit, ConfigMapFacts, Text, Value as Written,
};
use pool_core::machine::Wall;
use pool_core::object::{RequestFailure, ResourceVersion};
use serde_json::{Map, Value, json};

use super::exchange::{Answered, Exchange, Place};
use crate::clock::Clock;

/// A ConfigMap as the API server has sent it, or one that is to be created.
struct ConfigMapDocument(Map<String, Value>);

/// Carries out requests about our ConfigMap.
#[derive(Clone)]
pub(super) struct Requests {
    pub(super) exchange: Exchange,
    pub(super) clock: Clock,
}

impl Requests {
    /// Carries out one request; every failure is an answer too.
    pub(super) async fn carry_out(&self, ask: ConfigMapAsk) -> ConfigMapAnswer {
        self.attempt(ask).await.unwrap_or_else(ConfigMapAnswer::Failed)
    }

    async fn attempt(&self, ask: ConfigMapAsk) -> Result<ConfigMapAnswer, RequestFailure> {
        let answered = match ask {
            ConfigMapAsk::Get => self.exchange.read().await,
            ConfigMapAsk::Create(edit) => {
                let new = ConfigMapDocument::new(&self.exchange.place);
                self.exchange.create(new.edited(&edit, self.clock)).await
            }
            ConfigMapAsk::Replace(seen, edit) => {
                let document = seen.document.get::<ConfigMapDocument>();
                let document = document.ok_or_else(|| self.exchange.foreign())?;
                self.exchange.replace(document.edited(&edit, self.clock)).await
            }
        };
        match answered? {
            Answered::Object(value) => {
                let facts = facts(value, self.clock).map_err(|why| self.exchange.unusable(why))?;
                Ok(ConfigMapAnswer::Seen(Arc::new(facts)))
            }
            Answered::Absent => Ok(ConfigMapAnswer::Absent),
            Answered::Conflict => Ok(ConfigMapAnswer::Conflict),
        }
    }
}

/// What a state of a ConfigMap says; only what cannot be understood at all is refused.
fn facts(value: Value, clock: Clock) -> Result<ConfigMapFacts, &'static str> {
    let Value::Object(document) = value else { return Err("expected an object") };
    let version = document.get("metadata").and_then(|metadata| metadata["resourceVersion"].as_str());
    let version = version.filter(|version| !version.is_empty());
    let version = ResourceVersion(version.ok_or("metadata.resourceVersion: expected a text")?.into());
    let text = |text: &str| {
        let time = text.parse::<Timestamp>().ok().map(|time| Wall::from_micros(time.as_microsecond()));
        Text { text: Arc::from(text), time }
    };
    let data: BTreeMap<Arc<str>, Text> = document
        .get("data")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((Arc::from(key.as_str()), text(value.as_str()?))))
        .collect();
    let read = Wall::from_micros(clock.wall().as_microsecond());
    Ok(ConfigMapFacts { data, read, version, document: Document::new(ConfigMapDocument(document)) })
}

impl ConfigMapDocument {
    /// One that does not exist yet.
    fn new(place: &Place) -> ConfigMapDocument {
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": &*place.name, "namespace": &*place.namespace },
        });
        let Value::Object(body) = body else { unreachable!("it is written as an object") };
        ConfigMapDocument(body)
    }

    /// The document with the edit carried out, as the body of a request.
    fn edited(&self, edit: &ConfigMapEdit, clock: Clock) -> Vec<u8> {
        let mut whole = self.0.clone();
        let data = whole.entry("data").or_insert(Value::Null);
        if !data.is_object() {
            *data = Value::Object(Map::new());
        }
        let data = data.as_object_mut().expect("it was made an object");
        for key in &edit.remove {
            data.shift_remove(&**key);
        }
        for (key, value) in &edit.set {
            let text = match value {
                Written::Text(text) => text.to_string(),
                Written::Time(at) => format!("{:.3}", clock.timestamp_of(*at)),
            };
            data.insert(key.to_string(), text.into());
        }
        Value::Object(whole).to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests;
