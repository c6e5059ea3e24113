//! Effective values: what is in force, where it came from, and how that is shown. Secrets have no content here.

use std::fmt::Write as _;
use std::time::Duration;

use secrecy::SecretString;

use crate::duration;

/// What stands in the place of a secret wherever values are shown.
pub const REDACTED: &str = "<redacted>";

/// One value in a form that may be shown to any client.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// A number.
    Decimal(f64),
    /// True or false.
    Switch(bool),
    /// A duration, shown with its unit.
    Duration(Duration),
    /// Texts in order.
    List(Vec<String>),
    /// Maps of texts in order, and their keys in the order in which they are told.
    Maps(Vec<Vec<(&'static str, String)>>),
    /// A secret that is set; its content is not here.
    Secret,
    /// Nothing is set and nothing takes its place.
    Absent,
}

/// Where an effective value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is not set.
    Default,
    /// It is not set, and it follows from `compatibility: upstream` (C2).
    Compatibility,
    /// The configuration file.
    File,
    /// The Secret that was laid over the cloud configuration's file, or stands in its place.
    Secret,
    /// The named environment variable.
    Environment(String),
}

impl Origin {
    fn text(&self) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::Compatibility => "compatibility".to_owned(),
            Self::File => "file".to_owned(),
            Self::Secret => "secret".to_owned(),
            Self::Environment(name) => format!("environment {name}"),
        }
    }
}

/// One key with the value that is in force.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveValue {
    /// The key's full path, segments joined with dots.
    pub path: String,
    /// The value in force.
    pub value: Value,
    /// Where it came from.
    pub origin: Origin,
}

impl EffectiveValue {
    pub(crate) fn new(path: impl Into<String>, value: Value, origin: Origin) -> Self {
        Self { path: path.into(), value, origin }
    }
}

impl Value {
    /// The value as YAML (and JSON) writes it in one line.
    pub(crate) fn yaml(&self) -> String {
        match self {
            Self::Text(text) => yaml_text(text),
            Self::Whole(number) => number.to_string(),
            Self::Decimal(number) => format!("{number:?}"),
            Self::Switch(on) => on.to_string(),
            Self::Duration(length) => duration::render(*length),
            Self::List(items) => {
                format!("[{}]", items.iter().map(|item| yaml_text(item)).collect::<Vec<_>>().join(", "))
            }
            Self::Maps(items) => {
                let pair = |(key, text): &(&str, String)| format!("{key}: {}", yaml_text(text));
                let map = |pairs: &Vec<_>| pairs.iter().map(pair).collect::<Vec<_>>().join(", ");
                let maps: Vec<String> = items.iter().map(|pairs| format!("{{{}}}", map(pairs))).collect();
                format!("[{}]", maps.join(", "))
            }
            Self::Secret => yaml_text(REDACTED),
            Self::Absent => "null".to_owned(),
        }
    }
}

/// Plain where no YAML reader can take it for something else, in double quotes otherwise.
pub(crate) fn yaml_text(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/') && text.chars().all(safe);
    let ambiguous = crate::document::as_switch(text).is_some() || text.eq_ignore_ascii_case("null");
    if word && !ambiguous {
        text.to_owned()
    } else {
        serde_json::to_string(text).expect("text always serialises")
    }
}

/// Nested YAML of values whose paths share prefixes; each line ends with the value's origin.
pub(crate) fn render_section(title: &str, values: &[EffectiveValue]) -> String {
    let mut out = format!("{title}:\n");
    let mut above: Vec<&str> = Vec::new();
    for entry in values {
        let mut segments: Vec<&str> = entry.path.split('.').collect();
        let leaf = segments.pop().unwrap_or_default();
        let shared = above.iter().zip(&segments).take_while(|(a, b)| a == b).count();
        for (depth, segment) in segments.iter().enumerate().skip(shared) {
            out.push_str(&format!("{:indent$}{segment}:\n", "", indent = 2 * (depth + 1)));
        }
        let indent = 2 * (segments.len() + 1);
        writeln!(out, "{:indent$}{leaf}: {}  # {}", "", entry.value.yaml(), entry.origin.text())
            .expect("writing to a String cannot fail");
        above = segments;
    }
    out
}

/// Turns a value that was read into one that may be shown.
pub(crate) trait Show {
    /// The value without its secrets.
    fn show(&self) -> Value;
}

impl Show for String {
    fn show(&self) -> Value {
        Value::Text(self.clone())
    }
}

impl Show for SecretString {
    fn show(&self) -> Value {
        Value::Secret
    }
}

impl Show for bool {
    fn show(&self) -> Value {
        Value::Switch(*self)
    }
}

impl Show for i64 {
    fn show(&self) -> Value {
        Value::Whole(*self)
    }
}

impl Show for f64 {
    fn show(&self) -> Value {
        Value::Decimal(*self)
    }
}
