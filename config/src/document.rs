//! Parses YAML or JSON to a small tree with the text as written, whether it was quoted, and its line. JSON is read as a
//! subset of YAML, as in the cloud-controller-manager. Plain scalars stay text (`y` stays `y`); typed readers convert
//! them. Errors never quote the input, which may contain secrets.

use std::sync::Arc;

use serde_saphyr::budget::{EnforcingPolicy, check_yaml_budget};
use serde_saphyr::granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Tag};

use crate::problem::{Location, Problem, WHOLE_FILE};
use crate::source::MAX_FILE_BYTES;

/// Maximum nesting of maps and lists.
const MAX_DEPTH: usize = 32;
/// Maximum number of keys, values, maps and lists.
const MAX_NODES: usize = 50_000;
/// Maximum length of the part of a value that a problem repeats, in characters.
const MAX_SHOWN: usize = 60;

/// One value of a document. Without `Debug`: it may hold a secret.
#[derive(Clone)]
pub(crate) struct Node {
    /// The line on which the value starts, from 1.
    pub(crate) line: usize,
    /// The value itself.
    pub(crate) content: Content,
}

/// Content of a value.
#[derive(Clone)]
pub(crate) enum Content {
    /// Text as written (escapes resolved); `plain` when it was not quoted.
    Scalar { text: String, plain: bool },
    /// A list.
    List(Vec<Node>),
    /// A map in the order of the file; duplicate keys are kept for the reader to refuse.
    Map(Vec<Entry>),
}

/// One key of a map with its value.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: usize,
    /// The document that it comes from, if it was merged into another one.
    pub(crate) document: Option<Arc<str>>,
    pub(crate) value: Node,
}

impl Node {
    /// Creates an unquoted scalar that does not come from a file.
    pub(crate) fn plain(text: &str) -> Self {
        Self { line: 1, content: Content::Scalar { text: text.to_owned(), plain: true } }
    }

    /// Returns the text of an unquoted scalar that is not null.
    pub(crate) fn plain_text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar { text, plain: true } if !is_null(text) => Some(text),
            Content::Scalar { .. } | Content::List(_) | Content::Map(_) => None,
        }
    }

    /// Returns the text of any scalar that is not null.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar { text, plain } if !(*plain && is_null(text)) => Some(text),
            Content::Scalar { .. } | Content::List(_) | Content::Map(_) => None,
        }
    }

    /// Returns whether the value is null.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar { text, plain: true } if is_null(text))
    }

    /// Describes the value, for a problem.
    pub(crate) fn describe(&self) -> String {
        match &self.content {
            Content::Scalar { text, plain: true } if is_null(text) => "nothing".to_owned(),
            Content::Scalar { text, plain: true } if looks_numeric(text) => {
                format!("the number {}", shortened(text))
            }
            Content::Scalar { text, plain: true } if as_boolean(text).is_some() => {
                format!("the switch {text}")
            }
            Content::Scalar { text, .. } => format!("the text {}", quoted(text)),
            Content::List(_) => "a list".to_owned(),
            Content::Map(_) => "a map".to_owned(),
        }
    }

    /// Describes the kind of the value, for a secret key.
    pub(crate) fn describe_hidden(&self) -> String {
        match &self.content {
            Content::Scalar { .. } => "a value that is not shown here".to_owned(),
            Content::List(_) => "a list".to_owned(),
            Content::Map(_) => "a map".to_owned(),
        }
    }
}

/// Returns text in double quotes, escaped and shortened, for a problem.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text))
}

fn shortened(text: &str) -> String {
    let mut excerpt: String = text.chars().take(MAX_SHOWN).collect();
    if excerpt.len() < text.len() {
        excerpt.push('…');
    }
    excerpt
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Parses an unquoted YAML 1.1 boolean, as the cloud-controller-manager's reader does.
pub(crate) fn as_boolean(text: &str) -> Option<bool> {
    let lower = text.to_ascii_lowercase();
    let mut title = lower.clone();
    if let Some(first) = title.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let spelled = text == lower || text == title || text == text.to_ascii_uppercase();
    match lower.as_str() {
        "true" | "yes" | "on" | "y" if spelled => Some(true),
        "false" | "no" | "off" | "n" if spelled => Some(false),
        _ => None,
    }
}

/// Returns whether any YAML reader reads the unquoted text as a number.
pub(crate) fn looks_numeric(text: &str) -> bool {
    let digits = text.replace('_', "");
    let unsigned = digits.trim_start_matches(['+', '-']);
    let radix = ["0x", "0o", "0b"].iter().any(|prefix| {
        unsigned
            .strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_hexdigit()))
    });
    let special = matches!(unsigned.to_ascii_lowercase().as_str(), ".inf" | ".nan");
    let decimal =
        unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') && unsigned.parse::<f64>().is_ok();
    radix || special || decimal
}

/// Parses one document; `None` if it is empty. Never panics, and refuses documents that would exhaust resources (depth,
/// size, aliases).
pub(crate) fn parse(file: &str, bytes: &[u8]) -> Result<Option<Node>, Box<Problem>> {
    let problem = |line: Option<usize>, found: String, expected: &str, remedy: &str| {
        let name = file.to_owned();
        Box::new(Problem {
            location: line
                .map_or_else(|| Location::File(name.clone()), |line| Location::Line(name.clone(), line)),
            field: WHOLE_FILE.to_owned(),
            found,
            expected: expected.to_owned(),
            remedy: remedy.to_owned(),
        })
    };
    if bytes.len() > MAX_FILE_BYTES {
        let expected = format!("at most {MAX_FILE_BYTES}");
        let found = format!("{} bytes", bytes.len());
        return Err(problem(None, found, &expected, "check that this is a configuration file"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        problem(Some(line), "bytes that are not UTF-8".to_owned(), "UTF-8 text", "save the file as UTF-8")
    })?;
    let malformed = |error: &ScanError| {
        let found = format!("a syntax error ({})", error.kind());
        problem(Some(error.marker().line()), found, "YAML or JSON", "correct the syntax at this line")
    };
    if !is_within_limits(text).map_err(|e| malformed(&e))? {
        let expected = format!(
            "one document without aliases, at most {MAX_DEPTH} levels deep and with at most {MAX_NODES} values"
        );
        let remedy = "write aliases out and make the document simpler";
        return Err(problem(None, "a document beyond the limits".to_owned(), &expected, remedy));
    }
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| malformed(&e))?;
        let line = span.start.line().max(1);
        builder.accept(event, line).map_err(|refusal| {
            let (found, expected, remedy) = refusal.texts();
            problem(Some(line), found.to_owned(), expected, remedy)
        })?;
    }
    Ok(builder.root.filter(|root| !root.is_null()))
}

/// Returns whether the document is within the limits of depth and size.
fn is_within_limits(text: &str) -> Result<bool, ScanError> {
    let budget = serde_saphyr::budget! {
        max_depth: MAX_DEPTH, flow_nesting_limit: MAX_DEPTH, max_nodes: MAX_NODES,
        max_events: 4 * MAX_NODES, max_documents: 2, max_aliases: 0,
    }
    .expect("the macro always gives a budget");
    match check_yaml_budget(text, budget, EnforcingPolicy::AllContent) {
        Ok(report) => Ok(report.breached.is_none()),
        Err(error) if *error.kind() == ErrorKind::RecursionLimitExceeded => Ok(false),
        Err(error) => Err(error),
    }
}

/// A construct that the tree does not support.
enum Refusal {
    Alias,
    ComplexKey,
    SecondDocument,
    Tag,
    Unknown,
}

impl Refusal {
    fn texts(&self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Alias => ("an alias", "the value itself", "write the value out"),
            Self::ComplexKey => ("a list or map as a key", "text as a key", "write a plain key"),
            Self::SecondDocument => ("a second document", "one document", "remove everything after `---`"),
            Self::Tag => ("a tag", "a value without a tag", "remove the tag"),
            Self::Unknown => ("an unusual construct", "maps, lists and values", "write it more simply"),
        }
    }
}

/// A map or list whose end has not been read yet.
enum Open {
    List { line: usize, items: Vec<Node> },
    Map { line: usize, entries: Vec<Entry>, key: Option<(String, usize)> },
}

/// Builds the tree from parser events with a stack of its own, so that depth costs no recursion.
#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    root: Option<Node>,
    documents: usize,
}

impl Builder {
    fn accept(&mut self, event: Event<'_>, line: usize) -> Result<(), Refusal> {
        match event {
            Event::Scalar(text, style, _, tag) => {
                let plain = style == ScalarStyle::Plain && !is_text_tag(tag.as_deref())?;
                let text = text.into_owned();
                self.add_node(Node { line, content: Content::Scalar { text, plain } })
            }
            Event::SequenceStart(_, _, tag) => {
                untagged(tag.as_deref())?;
                self.open.push(Open::List { line, items: Vec::new() });
                Ok(())
            }
            Event::MappingStart(_, _, tag) => {
                untagged(tag.as_deref())?;
                self.open.push(Open::Map { line, entries: Vec::new(), key: None });
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let node = match self.open.pop().expect("the parser balances starts and ends") {
                    Open::List { line, items } => Node { line, content: Content::List(items) },
                    Open::Map { line, entries, key: _ } => Node { line, content: Content::Map(entries) },
                };
                self.add_node(node)
            }
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 { Err(Refusal::SecondDocument) } else { Ok(()) }
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => Err(Refusal::Alias),
            Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentEnd
            | Event::Anchor(..)
            | Event::Comment(..) => Ok(()),
            // The parser's enum may grow.
            _ => Err(Refusal::Unknown),
        }
    }

    fn add_node(&mut self, node: Node) -> Result<(), Refusal> {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map { entries, key, .. }) => match key.take() {
                Some((key, line)) => entries.push(Entry { key, line, document: None, value: node }),
                None => match node.content {
                    Content::Scalar { text, .. } => *key = Some((text, node.line)),
                    Content::List(_) | Content::Map(_) => return Err(Refusal::ComplexKey),
                },
            },
        }
        Ok(())
    }
}

fn is_text_tag(tag: Option<&Tag>) -> Result<bool, Refusal> {
    match tag.map(Tag::core_suffix) {
        None => Ok(false),
        Some(Some("str")) => Ok(true),
        Some(_) => Err(Refusal::Tag),
    }
}

fn untagged(tag: Option<&Tag>) -> Result<(), Refusal> {
    tag.map_or(Ok(()), |_| Err(Refusal::Tag))
}
