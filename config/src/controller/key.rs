//! One row of the key table, and the rule by which environment variables are named.

/// Every environment override begins with this.
const PREFIX: &str = "POOL_CONTROLLER_";

/// One key of controller.yaml.
#[derive(Debug)]
pub struct Key {
    /// The full path, segments joined with dots.
    pub path: &'static str,
    /// What it does, line by line.
    pub doc: &'static [&'static str],
    /// What belongs there.
    pub expected: fn() -> String,
    /// The same as JSON Schema, as far as that can tell it.
    pub schema: fn() -> serde_json::Value,
    /// What is in force when it is not set.
    pub default: DefaultValue,
    /// The first release that knew it.
    pub since: &'static str,
}

/// What is in force when a key is not set.
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
    /// What its keys are about, line by line.
    pub doc: &'static [&'static str],
}

impl Key {
    /// The environment variable that overrides the key.
    pub fn environment(&self) -> String {
        environment_name(self.path)
    }
}

/// The environment variable for a path: `batching.quietPeriod` is `POOL_CONTROLLER_BATCHING_QUIET_PERIOD`.
pub fn environment_name(path: &str) -> String {
    let mut name = PREFIX.to_owned();
    let mut previous = '.';
    for letter in path.chars() {
        let word_starts =
            letter.is_ascii_uppercase() || (letter.is_ascii_digit() && !previous.is_ascii_digit());
        if word_starts && previous != '.' {
            name.push('_');
        }
        name.push(if letter == '.' { '_' } else { letter.to_ascii_uppercase() });
        previous = letter;
    }
    name
}
