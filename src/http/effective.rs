//! The configuration that is in force, as `check-config` prints it (C1, H3): each key with its value and where that came
//! from. Secrets have no content here.

use config::{Config, EffectiveValue, Origin, REDACTED};
use serde_json::{Value, json};

/// The configuration, in a form that may be shown to any client.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The cloud configuration.
    pub(super) cloud: Value,
    /// Our own, controller.yaml.
    pub(super) controller: Value,
    /// How it signs in, by both and the environment.
    pub(super) identity: Value,
}

impl Effective {
    /// What may be shown of a configuration. It does not change while the process runs.
    #[must_use]
    pub fn of(config: &Config) -> Effective {
        let section = |values: &[EffectiveValue]| -> Value { values.iter().map(shown).collect() };
        Effective {
            cloud: section(config.effective_cloud()),
            controller: section(config.effective_controller()),
            identity: section(config.effective_identity()),
        }
    }
}

fn shown(one: &EffectiveValue) -> Value {
    let (origin, variable) = match &one.origin {
        Origin::Default => ("default", None),
        Origin::Compatibility => ("compatibility", None),
        Origin::File => ("file", None),
        Origin::Secret => ("secret", None),
        Origin::Environment(name) => ("environment", Some(name)),
    };
    json!({ "key": one.path, "value": value(&one.value), "origin": origin, "variable": variable })
}

fn value(value: &config::Value) -> Value {
    match value {
        config::Value::Text(text) => json!(text),
        config::Value::Whole(number) => json!(number),
        config::Value::Decimal(number) => json!(number),
        config::Value::Switch(on) => json!(on),
        config::Value::Duration(length) => json!(config::render_duration(*length)),
        config::Value::List(items) => json!(items),
        config::Value::Maps(items) => items.iter().map(|pairs| map(pairs)).collect(),
        config::Value::Secret => json!(REDACTED),
        config::Value::Absent => Value::Null,
    }
}

/// One map of texts, in its order.
fn map(pairs: &[(&'static str, String)]) -> Value {
    let pairs = pairs.iter().map(|(key, text)| ((*key).to_owned(), json!(text)));
    Value::Object(pairs.collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn h3_values_are_shown_as_they_are_configured_and_secrets_without_content() {
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
        let one = EffectiveValue {
            path: "mode".to_owned(),
            value: config::Value::Text("observe".to_owned()),
            origin: Origin::Environment(variable.clone()),
        };
        let expected =
            json!({ "key": "mode", "value": "observe", "origin": "environment", "variable": variable });
        assert_eq!(shown(&one), expected);
    }
}
