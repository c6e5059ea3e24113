//! `pools` (X2): the list of backend pools that are filled from an xDS control plane. Checks each entry by itself. The
//! check against the pools of the whole cluster needs the cluster's name and is in `load`; Discovery checks whether a
//! pool may be written.

use std::collections::BTreeMap;

use serde_json::{Value as Schema, json};

use super::setting::{AnyValue, IpFamily, Setting};
use crate::document::{self, Content, Entry, Node, quoted};
use crate::nearest::nearest;
use crate::problem::{Fault, Mismatch};
use crate::value::Value;

/// The keys of an entry.
const KEYS: [&str; 4] = ["loadBalancer", "backendPool", "source", "family"];
/// Maximum faults of the list that are reported individually.
const MAX_FAULTS: usize = 20;
/// Maximum length of the name of a load balancer or backend pool, in characters.
const MAX_NAME: usize = 80;
/// Suffix of the names of IPv6 pools; case does not count.
const IPV6_SUFFIX: &str = "-ipv6";

const EXAMPLE: &str = "{loadBalancer: kubernetes, backendPool: web, source: \"eds:web\"}";

/// A backend pool that is filled from an xDS control plane (X2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPool {
    /// The load balancer's name as written; case does not count.
    pub load_balancer: String,
    /// The backend pool's name as written; case does not count.
    pub backend_pool: String,
    /// The source as written: `eds:<name>` or `cluster:<name>`, with a name that is neither empty nor `*`.
    pub source: String,
    /// The IP family of its members.
    pub family: IpFamily,
}

/// Pools in the order of the file, each once.
impl Setting for Vec<ListedPool> {
    type Rule = AnyValue;
    type Refusal = Vec<Fault>;

    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Self::Refusal> {
        let Content::List(items) = &node.content else {
            let remedy = format!("write a list such as [{EXAMPLE}], or [] for none");
            return Err(Mismatch::new(Self::expected(rule), remedy).into());
        };
        let mut reader = Reader::default();
        let pools: Vec<ListedPool> =
            items.iter().enumerate().filter_map(|(index, item)| reader.pool(index, item)).collect();
        if reader.faults.is_empty() { Ok(pools) } else { Err(truncated(reader.faults)) }
    }

    fn expected(_rule: &Self::Rule) -> String {
        "a list of maps with loadBalancer, backendPool, source and, if need be, family".to_owned()
    }

    fn schema(rule: &Self::Rule) -> Schema {
        let name = <String as Setting>::schema(&MAX_NAME);
        json!({ "type": "array", "items": {
            "type": "object",
            "additionalProperties": false,
            "required": ["loadBalancer", "backendPool", "source"],
            "properties": {
                "loadBalancer": name,
                "backendPool": name,
                "source": {
                    "if": { "type": "string", "pattern": "^(eds|cluster):[^ ]" },
                    "else": { "const": "eds:<name> or cluster:<name>" },
                },
                "family": IpFamily::schema(rule),
            },
        } })
    }

    fn to_value(&self) -> Value {
        let pairs = |pool: &ListedPool| {
            let ListedPool { load_balancer, backend_pool, source, family } = pool;
            let texts = [load_balancer, backend_pool, source, family.as_str()];
            KEYS.into_iter().zip(texts.map(str::to_owned)).collect()
        };
        Value::Maps(self.iter().map(pairs).collect())
    }

    fn from_text(text: &str) -> Result<Node, Mismatch> {
        if text.trim().is_empty() {
            return Ok(Node { line: 1, content: Content::List(Vec::new()) });
        }
        match document::parse("", text.as_bytes()) {
            Ok(node) => Ok(node.unwrap_or_else(|| Node::plain(text))),
            Err(problem) => Err(Mismatch {
                found: Some(problem.found),
                expected: Self::expected(&AnyValue),
                remedy: format!("write it as in one line of YAML or JSON, such as [{EXAMPLE}]"),
            }),
        }
    }
}

/// Truncates the list of faults, and adds the number of further ones.
fn truncated(mut faults: Vec<Fault>) -> Vec<Fault> {
    let more = faults.len().saturating_sub(MAX_FAULTS);
    if more > 0 {
        faults.truncate(MAX_FAULTS);
        let expected = <Vec<ListedPool> as Setting>::expected(&AnyValue);
        let summary =
            Mismatch::new(expected, "correct the others first, and look for what they have in common");
        let summary = Mismatch { found: Some(format!("{more} more mistakes")), ..summary };
        faults.extend(Vec::from(summary));
    }
    faults
}

/// State of reading the list.
#[derive(Default)]
struct Reader {
    faults: Vec<Fault>,
    /// Index of the entry of each pool, by load balancer and pool in lower case.
    indexes: BTreeMap<(String, String), usize>,
}

impl Reader {
    fn pool(&mut self, index: usize, item: &Node) -> Option<ListedPool> {
        let Content::Map(entries) = &item.content else {
            let mismatch = Mismatch::new(
                "a map with loadBalancer, backendPool and source",
                format!("write it like {EXAMPLE}"),
            );
            self.refuse(format!("[{index}]"), item.line, item.describe(), mismatch);
            return None;
        };
        self.check_keys(index, entries);
        let fields = Fields { index, line: item.line, entries };
        let load_balancer = self.name(&fields, "loadBalancer", "the load balancer's name");
        let backend_pool =
            self.name(&fields, "backendPool", "the backend pool's name, without its load balancer");
        let source = self.source(&fields);
        let family = self.family(&fields, backend_pool.as_deref());
        let (load_balancer, backend_pool) = (load_balancer?, backend_pool?);
        self.require_unique(&fields, &load_balancer, &backend_pool)?;
        Some(ListedPool { load_balancer, backend_pool, source: source?, family: family? })
    }

    fn check_keys(&mut self, index: usize, entries: &[Entry]) {
        for (at, entry) in entries.iter().enumerate() {
            let part = format!("[{index}].{}", entry.key);
            if let Some(first) = entries[..at].iter().find(|other| other.key == entry.key) {
                let found = format!("the key on line {} and on line {}", first.line, entry.line);
                self.refuse(part, entry.line, found, Mismatch::new("the key once", "remove one of them"));
            } else if !KEYS.contains(&entry.key.as_str()) {
                let suggestion = nearest(&entry.key, KEYS).unwrap_or_default();
                let found = format!("the unknown key {}", quoted(&entry.key));
                let mismatch = Mismatch::new("a known key", format!("the nearest is {suggestion}"));
                self.refuse(part, entry.line, found, mismatch);
            }
        }
    }

    fn name(&mut self, fields: &Fields<'_>, key: &str, description: &str) -> Option<String> {
        let expected = format!(
            "a name of 1 to {MAX_NAME} letters, digits, `_`, `.` and `-`, with a letter or digit first and a letter, \
             digit or `_` last"
        );
        let (node, mismatch) = (fields.get(key), Mismatch::new(expected, format!("write {description}")));
        match node.and_then(Node::text).filter(|name| is_allowed(name)) {
            Some(name) => Some(name.to_owned()),
            None => self.refuse_field(fields, key, mismatch),
        }
    }

    fn source(&mut self, fields: &Fields<'_>) -> Option<String> {
        let text = fields.get("source").and_then(Node::text);
        let remedy = match text.and_then(|text| text.split_once(':')) {
            Some(("eds" | "cluster", name)) => match name.trim() {
                "" => "add the resource's name",
                "*" => "name one resource; control planes take * for all of them",
                trimmed if trimmed != name => "remove the space around the name, which would be a part of it",
                _ => return text.map(str::to_owned),
            },
            Some(_) | None => {
                "write eds: and the name of the endpoints, or cluster: and the name of the cluster that refers to them"
            }
        };
        self.refuse_field(fields, "source", Mismatch::new("eds:<name> or cluster:<name>", remedy))
    }

    /// Returns the configured family, or the one that follows from the pool's name.
    fn family(&mut self, fields: &Fields<'_>, backend_pool: Option<&str>) -> Option<IpFamily> {
        let Some(node) = fields.get("family") else { return backend_pool.map(default_family) };
        if node.is_null() {
            let mismatch = Mismatch::new("a value", "write one, or remove the key to use its default");
            return self.refuse_field(fields, "family", mismatch);
        }
        match IpFamily::read(node, &AnyValue) {
            Ok(family) => Some(family),
            Err(mismatch) => self.refuse_field(fields, "family", mismatch),
        }
    }

    /// Records the entry of a pool; returns `None`, with a fault, if another entry names the same pool.
    fn require_unique(&mut self, fields: &Fields<'_>, load_balancer: &str, backend_pool: &str) -> Option<()> {
        let pool = (load_balancer.to_ascii_lowercase(), backend_pool.to_ascii_lowercase());
        let first = *self.indexes.entry(pool).or_insert(fields.index);
        if first == fields.index {
            return Some(());
        }
        let found = format!("{load_balancer}/{backend_pool}, which pools[{first}] names too");
        let mismatch = Mismatch::new("each backend pool once, whatever its case", "remove one of the two");
        self.refuse_field(fields, "backendPool", Mismatch { found: Some(found), ..mismatch })
    }

    fn refuse_field<T>(&mut self, fields: &Fields<'_>, key: &str, mismatch: Mismatch) -> Option<T> {
        let node = fields.get(key);
        let found = node.map_or_else(|| "nothing".to_owned(), Node::describe);
        self.refuse(
            format!("[{}].{key}", fields.index),
            node.map_or(fields.line, |node| node.line),
            found,
            mismatch,
        );
        None
    }

    fn refuse(&mut self, part: String, line: usize, found: String, mismatch: Mismatch) {
        let found = mismatch.found.or(Some(found));
        self.faults.push(Fault { part, line: Some(line), mismatch: Mismatch { found, ..mismatch } });
    }
}

/// One entry of the list.
struct Fields<'a> {
    index: usize,
    line: usize,
    entries: &'a [Entry],
}

impl Fields<'_> {
    fn get(&self, key: &str) -> Option<&Node> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }
}

fn is_allowed(name: &str) -> bool {
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    name.len() <= MAX_NAME
        && name.chars().all(is_name_char)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

fn default_family(backend_pool: &str) -> IpFamily {
    if backend_pool.to_ascii_lowercase().ends_with(IPV6_SUFFIX) { IpFamily::V6 } else { IpFamily::V4 }
}
