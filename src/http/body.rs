//! Bodies of operator requests: JSON objects. A key that the request does not have is an error.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use model::ids::{LbName, NodeName, PoolId, PoolName, ServiceKey};
use model::operator_request::Scope;
use serde_json::{Map, Value};

use super::problem::problem;

/// Maximum size of a body, in bytes: a few names and a reason.
const MAX_BODY: usize = 8 << 10;
/// Timeout of a client for its body.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Receives the body of an authorized request. Unauthorized clients cannot make this process wait for a body or store
/// it.
pub(super) async fn receive(payload: web::Payload) -> Result<web::Bytes, HttpResponse> {
    match tokio::time::timeout(BODY_TIMEOUT, payload.to_bytes_limited(MAX_BODY)).await {
        Ok(Ok(Ok(bytes))) => Ok(bytes),
        Ok(Ok(Err(error))) => Err(BodyError(format!("the body cannot be received: {error}")).into()),
        Ok(Err(_)) => {
            let detail = format!("the body is larger than {MAX_BODY} bytes; shorten the reason");
            Err(problem(StatusCode::PAYLOAD_TOO_LARGE, "body too large", &detail))
        }
        Err(_) => {
            let detail = format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs());
            Err(problem(StatusCode::REQUEST_TIMEOUT, "body too slow", &detail))
        }
    }
}

/// A parsed body.
#[derive(Debug)]
pub(super) struct Body(Map<String, Value>);

/// Description of what is wrong with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BodyError(String);

impl From<BodyError> for HttpResponse {
    fn from(BodyError(detail): BodyError) -> HttpResponse {
        problem(StatusCode::BAD_REQUEST, "invalid body", &detail)
    }
}

impl Body {
    /// Parses a body that may have the keys in `known`. An empty body counts as an empty object.
    pub(super) fn read(bytes: &web::Bytes, known: &[&str]) -> Result<Body, BodyError> {
        let document = if bytes.iter().all(u8::is_ascii_whitespace) {
            Value::Object(Map::new())
        } else {
            serde_json::from_slice(bytes)
                .map_err(|error| BodyError(format!("the body is not a JSON object: {error}")))?
        };
        let Value::Object(keys) = document else {
            return Err(BodyError("the body is not a JSON object".to_owned()));
        };
        match keys.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(Body(keys)),
            Some(key) => {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(BodyError(format!("{key}: unknown key; this request has {known}")))
            }
        }
    }

    /// Returns the text of a key; null counts as absent.
    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, BodyError> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(BodyError(format!("{key}: {other} is not a string"))),
        }
    }

    fn name(&self, key: &str) -> Result<&str, BodyError> {
        let is_name = |text: &&str| {
            !text.is_empty()
                && text.len() <= 253
                && !text.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control())
        };
        self.text(key)?.filter(is_name).ok_or_else(|| BodyError(format!("{key}: expected a name")))
    }

    /// Returns the text of a key that must be one of these values.
    pub(super) fn one_of(&self, key: &str, values: &[&'static str]) -> Result<&'static str, BodyError> {
        let text = self.text(key)?;
        let value = values.iter().find(|value| text == Some(value)).copied();
        value.ok_or_else(|| BodyError(format!("{key}: expected one of {}", values.join(", "))))
    }

    /// Parses the target of the request: `scope`, and the keys that name the target. `scopes` are the permitted scopes.
    pub(super) fn scope(&self, scopes: &[&'static str]) -> Result<Scope, BodyError> {
        let scope = self.one_of("scope", scopes)?;
        let names: &[&str] = match scope {
            "pool" => &["loadBalancer", "backendPool"],
            "service" => &["namespace", "name"],
            "node" => &["name"],
            _ => &[],
        };
        let all = ["loadBalancer", "backendPool", "namespace", "name"];
        if let Some(other) = all.iter().find(|key| !names.contains(key) && self.0.contains_key(**key)) {
            return Err(BodyError(format!("{other}: not allowed with the scope {scope}")));
        }
        Ok(match names {
            [lb, pool] if scope == "pool" => {
                Scope::Pool(PoolId::new(LbName::new(self.name(lb)?), PoolName::new(self.name(pool)?)))
            }
            [namespace, name] => Scope::Service(ServiceKey::new(self.name(namespace)?, self.name(name)?)),
            [name] => Scope::Node(NodeName::new(self.name(name)?)),
            _ => Scope::Everything,
        })
    }

    /// Returns the load balancer that the body names, if any.
    pub(super) fn load_balancer(&self) -> Result<Option<LbName>, BodyError> {
        if self.text("loadBalancer")?.is_none() {
            return Ok(None);
        }
        self.name("loadBalancer").map(|name| Some(LbName::new(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 6] = ["scope", "loadBalancer", "backendPool", "namespace", "name", "reason"];
    const SCOPES: [&str; 4] = ["everything", "pool", "service", "node"];

    fn scope(text: &'static str) -> Result<Scope, BodyError> {
        Body::read(&web::Bytes::from_static(text.as_bytes()), &KEYS)?.scope(&SCOPES)
    }

    #[test]
    fn h3_a_scope_is_read_with_the_names_that_belong_to_it() {
        assert_eq!(scope(r#"{"scope":"everything"}"#), Ok(Scope::Everything));
        let pool = PoolId::new(LbName::new("kubernetes"), PoolName::new("shop-web"));
        let text = r#"{"scope":"pool","loadBalancer":"kubernetes","backendPool":"shop-web"}"#;
        assert_eq!(scope(text), Ok(Scope::Pool(pool)));
        let text = r#"{"scope":"service","namespace":"shop","name":"web"}"#;
        assert_eq!(scope(text), Ok(Scope::Service(ServiceKey::new("shop", "web"))));
        assert_eq!(scope(r#"{"scope":"node","name":"node-1"}"#), Ok(Scope::Node(NodeName::new("node-1"))));
    }

    #[test]
    fn h3_a_wrong_body_is_refused_by_the_name_of_its_key() {
        for (text, named) in [
            ("", "scope:"),
            ("[]", "the body"),
            ("{", "the body"),
            (r#"{"scope":"all"}"#, "scope:"),
            (r#"{"scope":7}"#, "scope:"),
            (r#"{"scope":"pool","loadBalancer":"a"}"#, "backendPool:"),
            (r#"{"scope":"pool","loadBalancer":"a/b","backendPool":"c"}"#, "loadBalancer:"),
            (r#"{"scope":"everything","namespace":"a"}"#, "namespace:"),
            (r#"{"scope":"service","namespace":"a","name":"b","loadBalancer":"c"}"#, "loadBalancer:"),
            (r#"{"scope":"node"}"#, "name:"),
            (r#"{"scope":"node","namespace":"a","name":"b"}"#, "namespace:"),
            (r#"{"scope":"everything","name":"a"}"#, "name:"),
            (r#"{"scop":"everything"}"#, "scop:"),
        ] {
            let Err(BodyError(detail)) = scope(text) else { panic!("{text} is accepted") };
            assert!(detail.starts_with(named), "{text}: {detail}");
        }
    }
}
