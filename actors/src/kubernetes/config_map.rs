//! Requests about our ConfigMap (A4): each is sent at once, takes a bounded time, and has one answer. What its keys
//! mean is the machines' to judge; what nobody here knows of it survives a replacement.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use jiff::Timestamp;
use kube::Client;
use pool_core::arm::Document;
use pool_core::config_map::{
    ConfigMapAnswer, ConfigMapAsk, ConfigMapEdit, ConfigMapFacts, ConfigMapFailure, Text, Value as Written,
};
use pool_core::machine::Wall;
use pool_core::object::ResourceVersion;
use serde_json::{Map, Value, json};

use super::Place;
use super::exchange::exchange;
use super::follow::{escaped, status_text};
use crate::azure::Effects;
use crate::clock::Clock;

/// How long a request may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A ConfigMap as the API server has sent it, or one that is to be created.
struct ConfigMapDocument(Map<String, Value>);

/// Carries out requests about our ConfigMap.
#[derive(Clone)]
pub(super) struct Requests {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) effects: Effects,
    pub(super) place: Place,
}

impl Requests {
    /// Carries out one request; every failure is an answer too.
    pub(super) async fn carry_out(&self, ask: ConfigMapAsk) -> ConfigMapAnswer {
        let done = tokio::time::timeout(ANSWER_WITHIN, self.attempt(ask)).await;
        let done = done.unwrap_or_else(|_| Err(other("the API server did not answer within 5 s")));
        done.unwrap_or_else(ConfigMapAnswer::Failed)
    }

    async fn attempt(&self, ask: ConfigMapAsk) -> Result<ConfigMapAnswer, ConfigMapFailure> {
        match ask {
            ConfigMapAsk::Get => {
                let (status, body) = self.exchange(Method::GET, self.object(), Vec::new()).await?;
                match status {
                    StatusCode::NOT_FOUND => Ok(ConfigMapAnswer::Absent),
                    _ => self.judge(status, &body),
                }
            }
            ConfigMapAsk::Create(edit) => {
                let body = ConfigMapDocument::new(&self.place).edited(&edit, self.clock);
                self.write(Method::POST, self.collection(), body).await
            }
            ConfigMapAsk::Replace(seen, edit) => {
                let document = seen.document.get::<ConfigMapDocument>();
                let document = document
                    .ok_or_else(|| other("the document of the ConfigMap was not read by this port"))?;
                self.write(Method::PUT, self.object(), document.edited(&edit, self.clock)).await
            }
        }
    }

    fn collection(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", escaped(&self.place.namespace))
    }

    fn object(&self) -> String {
        format!("{}/{}", self.collection(), escaped(&self.place.name))
    }

    async fn write(
        &self,
        method: Method,
        path: String,
        body: Vec<u8>,
    ) -> Result<ConfigMapAnswer, ConfigMapFailure> {
        match self.effects {
            Effects::Carried => {}
            // The machines do not ask; this is the last place where it can be made certain (C4).
            Effects::Withheld => return Err(other("a dry run writes no ConfigMap")),
        }
        let creates = method == Method::POST;
        let (status, body) = self.exchange(method, path, body).await?;
        match status {
            StatusCode::CONFLICT => Ok(ConfigMapAnswer::Conflict),
            // Of a creation it says that there is no such namespace.
            StatusCode::NOT_FOUND if !creates => Ok(ConfigMapAnswer::Absent),
            _ => self.judge(status, &body),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: String,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Vec<u8>), ConfigMapFailure> {
        exchange(&self.client, method, path, body).await.map_err(|why| other(&why))
    }

    fn judge(&self, status: StatusCode, body: &[u8]) -> Result<ConfigMapAnswer, ConfigMapFailure> {
        if status.is_success() {
            let value = serde_json::from_slice(body).map_err(|error| other(&error.to_string()))?;
            let facts =
                facts(value, self.clock).map_err(|why| other(&format!("ConfigMap {}: {why}", self.place)))?;
            return Ok(ConfigMapAnswer::Seen(Arc::new(facts)));
        }
        let said = status_text(status, body);
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(ConfigMapFailure::Denied(Arc::from(said)))
            }
            _ => Err(other(&said)),
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

fn other(why: &str) -> ConfigMapFailure {
    ConfigMapFailure::Other(Arc::from(why))
}

#[cfg(test)]
mod tests;
