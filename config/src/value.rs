//! Effective values, their origins, and their rendering. Secrets are redacted.

use std::fmt::Write as _;
use std::time::Duration;

use secrecy::SecretString;

use crate::duration;

/// Placeholder of secrets.
pub const REDACTED: &str = "<redacted>";

/// A value without secrets, which any client may see.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number.
    Decimal(f64),
    /// True or false.
    Boolean(bool),
    /// A duration, shown with its unit.
    Duration(Duration),
    /// Texts in order.
    List(Vec<String>),
    /// Maps of texts in order, each with its keys in the order of rendering.
    Maps(Vec<Vec<(&'static str, String)>>),
    /// A secret that is set, without its content.
    Secret,
    /// No value and no default.
    Absent,
}

/// Origin of an effective value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default.
    Default,
    /// The default of `compatibility: upstream` (C2).
    Compatibility,
    /// The configuration file.
    File,
    /// The Secret that was merged into the cloud configuration's file, or replaces it.
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
    /// Its origin.
    pub origin: Origin,
}

impl EffectiveValue {
    pub(crate) fn new(path: impl Into<String>, value: Value, origin: Origin) -> Self {
        Self { path: path.into(), value, origin }
    }
}

impl Value {
    /// Renders the value as one line of YAML (and JSON).
    pub(crate) fn yaml(&self) -> String {
        match self {
            Self::Text(text) => yaml_text(text),
            Self::Integer(number) => number.to_string(),
            Self::Decimal(number) => format!("{number:?}"),
            Self::Boolean(on) => on.to_string(),
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

/// Renders text as YAML: plain if every YAML reader reads it as text, in double quotes otherwise.
pub(crate) fn yaml_text(text: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let is_word =
        text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/') && text.chars().all(is_safe);
    let is_ambiguous = crate::document::as_boolean(text).is_some() || text.eq_ignore_ascii_case("null");
    if is_word && !is_ambiguous {
        text.to_owned()
    } else {
        serde_json::to_string(text).expect("text always serialises")
    }
}

/// Renders values as nested YAML; each line ends with the value's origin.
pub(crate) fn render_section(title: &str, values: &[EffectiveValue]) -> String {
    let mut out = format!("{title}:\n");
    let mut open_sections: Vec<&str> = Vec::new();
    for entry in values {
        let mut segments: Vec<&str> = entry.path.split('.').collect();
        let leaf = segments.pop().unwrap_or_default();
        let shared = open_sections.iter().zip(&segments).take_while(|(a, b)| a == b).count();
        for (depth, segment) in segments.iter().enumerate().skip(shared) {
            out.push_str(&format!("{:indent$}{segment}:\n", "", indent = 2 * (depth + 1)));
        }
        let indent = 2 * (segments.len() + 1);
        writeln!(out, "{:indent$}{leaf}: {}  # {}", "", entry.value.yaml(), entry.origin.text())
            .expect("writing to a String cannot fail");
        open_sections = segments;
    }
    out
}

/// Conversion of a configured value to one without secrets.
pub(crate) trait ToValue {
    /// Returns the value without its secrets.
    fn to_value(&self) -> Value;
}

impl ToValue for String {
    fn to_value(&self) -> Value {
        Value::Text(self.clone())
    }
}

impl ToValue for SecretString {
    fn to_value(&self) -> Value {
        Value::Secret
    }
}

impl ToValue for bool {
    fn to_value(&self) -> Value {
        Value::Boolean(*self)
    }
}

impl ToValue for i64 {
    fn to_value(&self) -> Value {
        Value::Integer(*self)
    }
}

impl ToValue for f64 {
    fn to_value(&self) -> Value {
        Value::Decimal(*self)
    }
}
