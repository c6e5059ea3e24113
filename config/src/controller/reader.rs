//! Reads one controller.yaml and its environment overrides by the key table. The value of a key comes from the
//! environment variable, else from the file, else it is the default. A key without a value in the file is refused.

use std::collections::BTreeMap;
use std::time::Duration;

use super::setting::Setting;
use super::{DefaultValue, KEYS, Key, SECTIONS, environment_name};
use crate::document::{Content, Entry, Node, quoted};
use crate::duration;
use crate::nearest::{distance, nearest};
use crate::problem::{Fault, Location, Mismatch, Problem, WHOLE_FILE, Warning};
use crate::value::{EffectiveValue, Origin};

/// Maximum unknown keys that are reported individually.
const MAX_UNKNOWN: usize = 20;

/// Maximum `retryInterval` that follows from the cloud configuration (Q2).
pub(crate) const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// The values of the document, the problems found so far, and the values in force.
pub(crate) struct Reader<'a> {
    file: &'a str,
    env: &'a BTreeMap<String, String>,
    update_interval: Duration,
    leaves: BTreeMap<String, Node>,
    unknown: usize,
    /// Problems with refused values.
    pub(crate) problems: Vec<Problem>,
    /// The values in force, in the order of the table.
    pub(crate) effective: Vec<EffectiveValue>,
}

impl<'a> Reader<'a> {
    /// Sorts the document's values by key, and reports unknown and repeated keys. `update_interval` is that of the
    /// cloud configuration.
    pub(crate) fn new(
        file: &'a str,
        root: Option<&Node>,
        env: &'a BTreeMap<String, String>,
        update_interval: Duration,
    ) -> Self {
        let mut reader = Self {
            file,
            env,
            update_interval,
            leaves: BTreeMap::new(),
            unknown: 0,
            problems: Vec::new(),
            effective: Vec::new(),
        };
        match root.map(|node| (node, &node.content)) {
            None => {}
            Some((_, Content::Map(entries))) => reader.collect("", entries),
            Some((node, Content::List(_) | Content::Scalar { .. })) => {
                let mismatch =
                    Mismatch::new("a map of settings", "write `key: value` pairs; see the reference");
                reader.refuse(reader.line(node.line), WHOLE_FILE, node.describe(), mismatch);
            }
        }
        if let Some(more) = reader.unknown.checked_sub(MAX_UNKNOWN).filter(|more| *more > 0) {
            let mismatch = Mismatch::new("known keys", "check that this is the right file");
            let location = Location::File(file.to_owned());
            reader.refuse(location, WHOLE_FILE, format!("{more} more unknown keys"), mismatch);
        }
        reader
    }

    /// Returns the value of one key; a refused value becomes a problem, and the default is returned.
    pub(crate) fn setting<T: Setting>(&mut self, path: &'static str, rule: &T::Rule) -> T {
        let key = KEYS.iter().find(|key| key.path == path).expect("the macro declares every key it reads");
        let (value, origin) =
            self.overridden(key, rule).or_else(|| self.written(key, rule)).unwrap_or_else(|| {
                let (text, origin) = self.default_of(key.default);
                let node = Self::default_node::<T>(&text).expect("the defaults of the table are YAML");
                let value = T::read(&node, rule).ok();
                (value.expect("the defaults of the table are valid"), origin)
            });
        self.effective.push(EffectiveValue::new(path, value.to_value(), origin));
        value
    }

    /// Returns warnings about environment variables whose names resemble that of a key.
    pub(crate) fn misspelt_variables(&self) -> Vec<Warning> {
        let names: Vec<String> = KEYS.iter().map(Key::environment).collect();
        let unknown = self.env.keys().filter(|name| !names.contains(name));
        let prefix = environment_name("");
        unknown
            .filter(|name| name.starts_with(&prefix))
            .filter_map(|name| {
                nearest(name, names.iter().map(String::as_str)).map(|suggestion| (name, suggestion))
            })
            .filter(|(name, suggestion)| distance(name, suggestion) <= 3)
            .map(|(name, suggestion)| Warning {
                location: Location::Environment(name.clone()),
                field: name.clone(),
                message: format!("ignored, because no key has this name; did you mean {suggestion}"),
            })
            .collect()
    }

    fn default_of(&self, default: DefaultValue) -> (String, Origin) {
        match default {
            DefaultValue::Fixed(text) => (text.to_owned(), Origin::Default),
            DefaultValue::UpdateInterval => {
                (duration::render(self.update_interval.min(MAX_RETRY_INTERVAL)), Origin::Default)
            }
        }
    }

    fn default_node<T: Setting>(text: &str) -> Result<Node, Mismatch> {
        T::from_text(text).map(|node| match node {
            Node { content: Content::Scalar { .. }, line } => {
                Node { line, content: Content::Scalar { text: text.to_owned(), plain: !text.is_empty() } }
            }
            node => node,
        })
    }

    fn overridden<T: Setting>(&mut self, key: &Key, rule: &T::Rule) -> Option<(T, Origin)> {
        let name = key.environment();
        let text = self.env.get(&name)?;
        let location = |_| Location::Environment(name.clone());
        let node = match Self::default_node::<T>(text) {
            Ok(node) => node,
            Err(mismatch) => {
                self.refuse_faults(location, key.path, &Node::plain(text), mismatch);
                return None;
            }
        };
        match T::read(&node, rule) {
            Ok(value) => Some((value, Origin::Environment(name))),
            Err(refusal) => {
                self.refuse_faults(location, key.path, &node, refusal);
                None
            }
        }
    }

    fn written<T: Setting>(&mut self, key: &Key, rule: &T::Rule) -> Option<(T, Origin)> {
        let node = self.leaves.remove(key.path)?;
        if node.is_null() {
            // A written key without a value is an error: a template that rendered nothing must not select the default.
            let may_be_removed = match key.default {
                DefaultValue::Fixed(default) => T::may_suggest(default),
                DefaultValue::UpdateInterval => true,
            };
            let mismatch = if may_be_removed {
                Mismatch::new("a value", "write one, or remove the key to use its default")
            } else {
                Mismatch::new(T::expected(rule), "write the one that you mean")
            };
            self.refuse(self.line(node.line), key.path, node.describe(), mismatch);
            return None;
        }
        match T::read(&node, rule) {
            Ok(value) => Some((value, Origin::File)),
            Err(refusal) => {
                let file = self.file;
                let location = |line| Location::Line(file.to_owned(), line);
                self.refuse_faults(location, key.path, &node, refusal);
                None
            }
        }
    }

    fn collect(&mut self, prefix: &str, entries: &[Entry]) {
        for (index, entry) in entries.iter().enumerate() {
            let path = format!("{prefix}{}", entry.key);
            let line = self.line(entry.line);
            if let Some(first) = entries[..index].iter().find(|other| other.key == entry.key) {
                let found = format!("the key on line {} and on line {}", first.line, entry.line);
                self.refuse(line, &path, found, Mismatch::new("the key once", "remove one of them"));
                continue;
            }
            let nested = entry.key.contains('.');
            if !nested && KEYS.iter().any(|key| key.path == path) {
                self.leaves.insert(path, entry.value.clone());
            } else if !nested && SECTIONS.iter().any(|section| section.path == path) {
                match &entry.value.content {
                    Content::Map(entries) => self.collect(&format!("{path}."), entries),
                    Content::Scalar { .. } if entry.value.is_null() => {}
                    Content::Scalar { .. } | Content::List(_) => {
                        let mismatch =
                            Mismatch::new("a map of settings", "indent the section's keys below it");
                        self.refuse(line, &path, entry.value.describe(), mismatch);
                    }
                }
            } else {
                self.unknown_key(line, &path);
            }
        }
    }

    fn unknown_key(&mut self, line: Location, path: &str) {
        self.unknown += 1;
        if self.unknown > MAX_UNKNOWN {
            return;
        }
        let known = KEYS.iter().map(|key| key.path).chain(SECTIONS.iter().map(|section| section.path));
        let suggestion = nearest(path, known).unwrap_or_default();
        let remedy = match suggestion.rsplit_once('.') {
            Some((section, key)) => {
                let sections: Vec<String> = section.rsplit('.').map(|name| format!("`{name}:`")).collect();
                format!("the nearest is {suggestion}: write `{key}` below {}", sections.join(" below "))
            }
            None => format!("the nearest is {suggestion}"),
        };
        let found = format!("the unknown key {}", quoted(path));
        self.refuse(line, path, found, Mismatch::new("a known key", remedy));
    }

    fn line(&self, line: usize) -> Location {
        Location::Line(self.file.to_owned(), line)
    }

    /// Adds the problems of a refused value or of its parts; `location` returns the location of a line.
    fn refuse_faults(
        &mut self,
        location: impl Fn(usize) -> Location,
        path: &str,
        node: &Node,
        refusal: impl Into<Vec<Fault>>,
    ) {
        for Fault { part, line, mismatch } in refusal.into() {
            let location = location(line.unwrap_or(node.line));
            self.refuse(location, &format!("{path}{part}"), node.describe(), mismatch);
        }
    }

    fn refuse(&mut self, location: Location, field: &str, found: String, mismatch: Mismatch) {
        let Mismatch { found: special, expected, remedy } = mismatch;
        let found = special.unwrap_or(found);
        self.problems.push(Problem { location, field: field.to_owned(), found, expected, remedy });
    }
}
