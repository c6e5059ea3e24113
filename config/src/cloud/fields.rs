//! Typed, case-insensitive access to one map of the cloud configuration (C1). Accepts the values that the
//! cloud-controller-manager accepts, refuses those that it refuses or that YAML reads differently, and collects all
//! problems.

use secrecy::SecretString;

use crate::document::{Content, Entry, Node, as_boolean, looks_numeric};
use crate::problem::{Location, Mismatch, Problem};

/// One map, its path, and the list that receives its problems.
pub(crate) struct Fields<'a> {
    file: &'a str,
    prefix: String,
    entries: &'a [Entry],
    problems: &'a mut Vec<Problem>,
}

impl<'a> Fields<'a> {
    /// Creates a reader of this map; `prefix` is its path: empty, or ending with a dot.
    pub(crate) fn new(
        file: &'a str,
        prefix: impl Into<String>,
        entries: &'a [Entry],
        problems: &'a mut Vec<Problem>,
    ) -> Self {
        Self { file, prefix: prefix.into(), entries, problems }
    }

    /// Reads text, or an unquoted whole number, which both readers accept as text. Empty text counts as absent.
    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        self.read(key, false, text_of).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// Reads text that problems do not repeat. Empty text counts as absent.
    pub(crate) fn secret(&mut self, key: &str) -> Option<SecretString> {
        self.read(key, true, text_of).filter(|text| !text.is_empty()).map(SecretString::from)
    }

    /// Reads an unquoted boolean.
    pub(crate) fn boolean(&mut self, key: &str) -> Option<bool> {
        self.read(key, false, |node| {
            node.plain_text()
                .and_then(as_boolean)
                .ok_or_else(|| Mismatch::new("true or false", "write true or false, without quotes"))
        })
    }

    /// Reads an unquoted decimal whole number.
    pub(crate) fn integer(&mut self, key: &str) -> Option<i64> {
        self.read(key, false, |node| {
            node.plain_text().filter(|text| is_integer(text)).and_then(|text| text.parse().ok()).ok_or_else(
                || Mismatch::new("a whole number", "write a whole number of at most 64 bits, without quotes"),
            )
        })
    }

    /// Reads an unquoted, finite decimal number of 0 or more.
    pub(crate) fn decimal(&mut self, key: &str) -> Option<f64> {
        self.read(key, false, |node| {
            let decimal = |text: &&str| text.starts_with(|c: char| c.is_ascii_digit());
            node.plain_text()
                .filter(decimal)
                .and_then(|text| text.parse::<f64>().ok())
                .filter(|number| number.is_finite())
                .ok_or_else(|| Mismatch::new("a number of 0 or more", "write a number, without quotes"))
        })
    }

    /// Reads a map.
    pub(crate) fn map(&mut self, key: &str) -> Option<&'a [Entry]> {
        self.read(key, false, |node| match &node.content {
            Content::Map(entries) => Ok(entries.as_slice()),
            Content::List(_) | Content::Scalar { .. } => {
                Err(Mismatch::new("a map", "write `key: value` pairs"))
            }
        })
    }

    /// Reads a list.
    pub(crate) fn list(&mut self, key: &str) -> Option<&'a [Node]> {
        self.read(key, false, |node| match &node.content {
            Content::List(items) => Ok(items.as_slice()),
            Content::Map(_) | Content::Scalar { .. } => {
                Err(Mismatch::new("a list", "write a list, also for one entry"))
            }
        })
    }

    /// Adds a problem with the value of `key`, which was readable.
    pub(crate) fn refuse(&mut self, key: &str, mismatch: Mismatch) {
        let node = self.matching(key).first().map(|entry| &entry.value);
        let problem = self.problem(key, node, false, mismatch);
        self.problems.push(problem);
    }

    /// Returns whether `key` already has a problem.
    pub(crate) fn is_refused(&self, key: &str) -> bool {
        let path = self.path(key);
        self.problems.iter().any(|problem| problem.field == path)
    }

    /// Returns the path of `key`, as problems name it.
    pub(crate) fn path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Returns the location of `key`.
    pub(crate) fn location(&self, key: &str) -> Location {
        self.matching(key)
            .first()
            .map_or_else(|| Location::File(self.file.to_owned()), |entry| self.line(entry, entry.value.line))
    }

    fn line(&self, entry: &Entry, line: usize) -> Location {
        Location::Line(entry.document.as_deref().unwrap_or(self.file).to_owned(), line)
    }

    /// Returns the document that `key` comes from.
    pub(crate) fn document(&self, key: &str) -> &'a str {
        self.matching(key).first().and_then(|entry| entry.document.as_deref()).unwrap_or(self.file)
    }

    fn matching(&self, key: &str) -> Vec<&'a Entry> {
        self.entries.iter().filter(|entry| entry.key.eq_ignore_ascii_case(key)).collect()
    }

    fn read<T>(
        &mut self,
        key: &str,
        secret: bool,
        convert: impl FnOnce(&'a Node) -> Result<T, Mismatch>,
    ) -> Option<T> {
        let entry = match self.matching(key).as_slice() {
            [] => return None,
            [entry] => *entry,
            several => {
                let spelled: Vec<String> =
                    several.iter().map(|entry| format!("{} (line {})", entry.key, entry.line)).collect();
                let problem = Problem {
                    location: self.line(several[1], several[1].line),
                    field: self.path(key),
                    found: spelled.join(" and "),
                    expected: "the key once".to_owned(),
                    remedy: "remove all but one; keys are case-insensitive".to_owned(),
                };
                self.problems.push(problem);
                return None;
            }
        };
        if entry.value.is_null() {
            return None;
        }
        match convert(&entry.value) {
            Ok(value) => Some(value),
            Err(mismatch) => {
                let problem = self.problem(key, Some(&entry.value), secret, mismatch);
                self.problems.push(problem);
                None
            }
        }
    }

    fn problem(&self, key: &str, node: Option<&Node>, secret: bool, mismatch: Mismatch) -> Problem {
        let described = node.map_or_else(
            || "nothing".to_owned(),
            |node| {
                if secret { node.describe_hidden() } else { node.describe() }
            },
        );
        Problem {
            location: self.location(key),
            field: self.path(key),
            found: mismatch.found.unwrap_or(described),
            expected: mismatch.expected,
            remedy: mismatch.remedy,
        }
    }
}

fn text_of(node: &Node) -> Result<&str, Mismatch> {
    let text = node.text().ok_or_else(|| Mismatch::new("text", "write one value in double quotes"))?;
    let plain = node.plain_text().is_some();
    if plain && !is_integer(text) && (as_boolean(text).is_some() || looks_numeric(text)) {
        return Err(Mismatch::new("text", "put the value in double quotes"));
    }
    Ok(text)
}

/// Returns whether text is a decimal whole number in the spelling that all YAML readers read as the same number.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty()
        && digits.chars().all(|c| c.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'))
}
