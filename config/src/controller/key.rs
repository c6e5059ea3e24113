//! One row of the key table, and the rule by which environment variables are named.

/// Prefix of every environment override.
const PREFIX: &str = "POOL_CONTROLLER_";

/// One key of controller.yaml.
#[derive(Debug)]
pub struct Key {
    /// The full path, segments joined with dots.
    pub path: &'static str,
    /// Documentation, line by line.
    pub doc: &'static [&'static str],
    /// Describes the permitted values.
    pub expected: fn() -> String,
    /// Returns the permitted values as JSON Schema, which may permit more than the reader does.
    pub schema: fn() -> serde_json::Value,
    /// Value if the key is not set.
    pub default: DefaultValue,
    /// First release with this key.
    pub since: &'static str,
}

/// The value of a key that is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// This text.
    Fixed(&'static str),
    /// `loadBalancerBackendPoolUpdateIntervalInSeconds` of the cloud configuration, at most 60 s (Q2).
    UpdateInterval,
}

/// One section of controller.yaml.
#[derive(Debug)]
pub struct Section {
    /// Its key.
    pub path: &'static str,
    /// Documentation, line by line.
    pub doc: &'static [&'static str],
}

impl Key {
    /// Returns the environment variable that overrides the key.
    pub fn environment(&self) -> String {
        environment_name(self.path)
    }
}

/// Returns the environment variable for a path: `batching.quietPeriod` is `POOL_CONTROLLER_BATCHING_QUIET_PERIOD`.
pub fn environment_name(path: &str) -> String {
    let mut name = PREFIX.to_owned();
    let mut previous = '.';
    for letter in path.chars() {
        let starts_word =
            letter.is_ascii_uppercase() || (letter.is_ascii_digit() && !previous.is_ascii_digit());
        if starts_word && previous != '.' {
            name.push('_');
        }
        name.push(if letter == '.' { '_' } else { letter.to_ascii_uppercase() });
        previous = letter;
    }
    name
}
