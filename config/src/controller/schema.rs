//! The JSON Schema of controller.yaml, for the chart's values: every key with its type, words and numbers, and no other
//! key. Ranges of durations, and what several keys together get wrong, are left to the reader.

use serde_json::{Value as Schema, json};

use super::{KEYS, Key, SECTIONS};

/// The schema of controller.yaml as a whole.
#[must_use]
pub fn schema() -> Schema {
    section("")
}

/// The schema of the section with this path; "" is the whole.
fn section(path: &str) -> Schema {
    let keys = KEYS.iter().filter_map(|key| Some((name_in(path, key.path)?, explained(key))));
    let sections =
        SECTIONS.iter().filter_map(|inner| Some((name_in(path, inner.path)?, section(inner.path))));
    let properties: serde_json::Map<String, Schema> =
        keys.chain(sections).map(|(name, schema)| (name.to_owned(), schema)).collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

/// The schema of a key. For a text that does not match, Helm prints the regular expression; with `else`, it prints in
/// words what belongs there. Those very words also pass here, and the reader rejects them.
fn explained(key: &Key) -> Schema {
    let schema = (key.schema)();
    if schema["type"] != "string" {
        return schema;
    }
    json!({ "if": schema, "else": { "const": (key.expected)() } })
}

/// The name that a path has in a section; `None` if it is not in it, or in a section within.
fn name_in<'a>(section: &str, path: &'a str) -> Option<&'a str> {
    let rest = match section {
        "" => path,
        section => path.strip_prefix(section)?.strip_prefix('.')?,
    };
    (!rest.contains('.')).then_some(rest)
}
