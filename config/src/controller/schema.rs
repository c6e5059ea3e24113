//! The JSON Schema of controller.yaml, for the chart's values: every key with its type, permitted words and range of
//! numbers, and no other key. The reader checks ranges of durations and combinations of keys.

use serde_json::{Value as Schema, json};

use super::{KEYS, Key, SECTIONS};

/// Returns the schema of controller.yaml as a whole.
#[must_use]
pub fn schema() -> Schema {
    section("")
}

/// Returns the schema of the section with this path; "" is the whole.
fn section(path: &str) -> Schema {
    let keys = KEYS.iter().filter_map(|key| Some((name_in(path, key.path)?, explained(key))));
    let sections =
        SECTIONS.iter().filter_map(|inner| Some((name_in(path, inner.path)?, section(inner.path))));
    let properties: serde_json::Map<String, Schema> =
        keys.chain(sections).map(|(name, schema)| (name.to_owned(), schema)).collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

/// Returns the schema of a key. For a text that does not match, Helm would print the regular expression; with `else`,
/// it prints the description of permitted values. That description itself passes here; the reader rejects it.
fn explained(key: &Key) -> Schema {
    let schema = (key.schema)();
    if schema["type"] != "string" {
        return schema;
    }
    json!({ "if": schema, "else": { "const": (key.expected)() } })
}

/// Returns the name of a path in a section; `None` if it is not in the section, or in a nested one.
fn name_in<'a>(section: &str, path: &'a str) -> Option<&'a str> {
    let rest = match section {
        "" => path,
        section => path.strip_prefix(section)?.strip_prefix('.')?,
    };
    (!rest.contains('.')).then_some(rest)
}
