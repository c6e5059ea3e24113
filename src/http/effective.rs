//! The configuration in force, as `check-config` prints it (C1, H3): each key with its value and the origin of the
//! value. Secrets are redacted.

use config::{Config, EffectiveValue, Origin, REDACTED};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, ObjectBuilder, Schema, Type};

use super::enums::{self, ValueSet as _};

/// The configuration without the content of secrets, so that any client may see it.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The cloud configuration.
    pub(super) cloud: Vec<Setting>,
    /// controller.yaml.
    pub(super) controller: Vec<Setting>,
    /// The Azure identity that follows from both files and the environment.
    pub(super) identity: Vec<Setting>,
}

/// A key of the configuration.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(super) struct Setting {
    /// The key's full path.
    key: String,
    #[schema(schema_with = value_schema)]
    value: Value,
    /// The origin of the value.
    origin: enums::Origin,
    /// The environment variable, where it comes from one.
    variable: Option<String>,
}

impl Effective {
    /// Returns the settings of a configuration. They do not change while the process runs.
    #[must_use]
    pub fn of(config: &Config) -> Effective {
        let section = |values: &[EffectiveValue]| values.iter().map(setting).collect();
        Effective {
            cloud: section(config.effective_cloud()),
            controller: section(config.effective_controller()),
            identity: section(config.effective_identity()),
        }
    }
}

fn setting(effective: &EffectiveValue) -> Setting {
    let (origin, variable) = match &effective.origin {
        Origin::Default => ("default", None),
        Origin::Compatibility => ("compatibility", None),
        Origin::File => ("file", None),
        Origin::Secret => ("secret", None),
        Origin::Environment(name) => ("environment", Some(name.clone())),
    };
    Setting {
        key: effective.path.clone(),
        value: value(&effective.value),
        origin: enums::Origin(origin),
        variable,
    }
}

/// Returns the schema of a value: a string, number, boolean or null, or a list of strings or pools.
fn value_schema() -> RefOr<Schema> {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let family = enums::one_of(&enums::Family::all(), "The family of its members.");
    let pool = [
        ("loadBalancer", text().description(Some("Its load balancer.")).into()),
        ("backendPool", text().description(Some("Its name.")).into()),
        ("source", text().description(Some("What it is filled from: `eds:…` or `cluster:…`.")).into()),
        ("family", family),
    ];
    let pool =
        pool.into_iter().fold(ObjectBuilder::new(), |object, (key, schema)| object.property(key, schema));
    let pool = pool.description(Some("A pool that is configured to be filled from a control plane."));
    let list = ArrayBuilder::new().items(AnyOfBuilder::new().item(text()).item(pool));
    let plain = [Type::String, Type::Number, Type::Boolean, Type::Null];
    let plain = plain.into_iter().map(|of| ObjectBuilder::new().schema_type(of));
    let description =
        "The value in force; durations have their unit, secrets no content, and null is nothing.";
    plain.fold(AnyOfBuilder::new(), AnyOfBuilder::item).item(list).description(Some(description)).into()
}

fn value(value: &config::Value) -> Value {
    match value {
        config::Value::Text(text) => json!(text),
        config::Value::Integer(number) => json!(number),
        config::Value::Decimal(number) => json!(number),
        config::Value::Boolean(on) => json!(on),
        config::Value::Duration(length) => json!(config::render_duration(*length)),
        config::Value::List(items) => json!(items),
        config::Value::Maps(items) => items.iter().map(|pairs| map(pairs)).collect(),
        config::Value::Secret => json!(REDACTED),
        config::Value::Absent => Value::Null,
    }
}

/// Returns a map of texts as a JSON object with its keys in the same order.
fn map(pairs: &[(&'static str, String)]) -> Value {
    let pairs = pairs.iter().map(|(key, text)| ((*key).to_owned(), json!(text)));
    Value::Object(pairs.collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn h3_values_are_shown_as_configured_and_secrets_redacted() {
        for (millis, text) in [
            (0, "0s"),
            (500, "500ms"),
            (1_500, "1500ms"),
            (2_000, "2s"),
            (90_000, "90s"),
            (600_000, "10m"),
            (7_200_000, "2h"),
        ] {
            assert_eq!(value(&config::Value::Duration(Duration::from_millis(millis))), text);
        }
        assert_eq!(value(&config::Value::Secret), REDACTED);
        assert_eq!(value(&config::Value::Absent), Value::Null);
        assert_eq!(value(&config::Value::List(vec!["a".to_owned()])), json!(["a"]));
        let maps = vec![vec![("loadBalancer", "lb".to_owned()), ("backendPool", "pool".to_owned())]];
        let expected = json!([{ "loadBalancer": "lb", "backendPool": "pool" }]);
        assert_eq!(value(&config::Value::Maps(maps)), expected);
        let variable = "POOL_CONTROLLER_MODE".to_owned();
        let effective = EffectiveValue {
            path: "mode".to_owned(),
            value: config::Value::Text("observe".to_owned()),
            origin: Origin::Environment(variable.clone()),
        };
        let expected =
            json!({ "key": "mode", "value": "observe", "origin": "environment", "variable": variable });
        assert_eq!(serde_json::to_value(setting(&effective)).expect("JSON"), expected);
    }
}
