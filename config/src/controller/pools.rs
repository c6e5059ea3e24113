//! `pools` (X2): the list of backend pools that are filled from an xDS control plane. Owns the shape of its entries and
//! what is wrong with each of them; that none is a pool of the cluster as a whole is judged where the cluster's name is
//! known, and whether a pool may be written where load balancers are read.

use std::collections::BTreeMap;

use serde_json::{Value as Schema, json};

use super::setting::{AnyValue, IpFamily, Setting};
use crate::document::{self, Content, Entry, Node, quoted};
use crate::nearest::nearest;
use crate::problem::{Fault, Mismatch};
use crate::value::Value;

/// The keys of an entry.
const KEYS: [&str; 4] = ["loadBalancer", "backendPool", "source", "family"];
/// The most faults of the list that are reported one by one.
const MAX_FAULTS: usize = 20;
/// The longest name of a load balancer or backend pool, in characters.
const MAX_NAME: usize = 80;
/// How the names of IPv6 pools end, whatever their case.
const IPV6_ENDING: &str = "-ipv6";

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
    /// Of which family its members are.
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
        if reader.faults.is_empty() { Ok(pools) } else { Err(bounded(reader.faults)) }
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

    fn show(&self) -> Value {
        let shown = |pool: &ListedPool| {
            let ListedPool { load_balancer, backend_pool, source, family } = pool;
            let texts = [load_balancer, backend_pool, source, family.as_str()];
            KEYS.into_iter().zip(texts.map(str::to_owned)).collect()
        };
        Value::Maps(self.iter().map(shown).collect())
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

/// The first faults, and how many more there are.
fn bounded(mut faults: Vec<Fault>) -> Vec<Fault> {
    let more = faults.len().saturating_sub(MAX_FAULTS);
    if more > 0 {
        faults.truncate(MAX_FAULTS);
        let expected = <Vec<ListedPool> as Setting>::expected(&AnyValue);
        let told = Mismatch::new(expected, "correct the others first, and look for what they have in common");
        let told = Mismatch { found: Some(format!("{more} more mistakes")), ..told };
        faults.extend(Vec::from(told));
    }
    faults
}

/// What was found so far.
#[derive(Default)]
struct Reader {
    faults: Vec<Fault>,
    /// Which entry names a pool, by load balancer and pool in lower case.
    named: BTreeMap<(String, String), usize>,
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
        self.unknown_and_repeated(index, entries);
        let fields = Fields { index, line: item.line, entries };
        let load_balancer = self.name(&fields, "loadBalancer", "the load balancer's name");
        let backend_pool =
            self.name(&fields, "backendPool", "the backend pool's name, without its load balancer");
        let source = self.source(&fields);
        let family = self.family(&fields, backend_pool.as_deref());
        let (load_balancer, backend_pool) = (load_balancer?, backend_pool?);
        self.once(&fields, &load_balancer, &backend_pool)?;
        Some(ListedPool { load_balancer, backend_pool, source: source?, family: family? })
    }

    fn unknown_and_repeated(&mut self, index: usize, entries: &[Entry]) {
        for (at, entry) in entries.iter().enumerate() {
            let part = format!("[{index}].{}", entry.key);
            if let Some(first) = entries[..at].iter().find(|other| other.key == entry.key) {
                let found = format!("the key on line {} and on line {}", first.line, entry.line);
                self.refuse(part, entry.line, found, Mismatch::new("the key once", "remove one of them"));
            } else if !KEYS.contains(&entry.key.as_str()) {
                let meant = nearest(&entry.key, KEYS).unwrap_or_default();
                let found = format!("the unknown key {}", quoted(&entry.key));
                let mismatch = Mismatch::new("a known key", format!("the nearest is {meant}"));
                self.refuse(part, entry.line, found, mismatch);
            }
        }
    }

    fn name(&mut self, fields: &Fields<'_>, key: &str, what: &str) -> Option<String> {
        let expected = format!(
            "a name of 1 to {MAX_NAME} letters, digits, `_`, `.` and `-`, with a letter or digit first and a letter, \
             digit or `_` last"
        );
        let (node, mismatch) = (fields.get(key), Mismatch::new(expected, format!("write {what}")));
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
                bare if bare != name => "remove the space around the name, which would be a part of it",
                _ => return text.map(str::to_owned),
            },
            Some(_) | None => {
                "write eds: and the name of the endpoints, or cluster: and the name of the cluster that means them"
            }
        };
        self.refuse_field(fields, "source", Mismatch::new("eds:<name> or cluster:<name>", remedy))
    }

    /// What is written, else what the pool's name says.
    fn family(&mut self, fields: &Fields<'_>, backend_pool: Option<&str>) -> Option<IpFamily> {
        let Some(node) = fields.get("family") else { return backend_pool.map(usual_family) };
        if node.is_null() {
            let mismatch = Mismatch::new("a value", "write one, or remove the key to have its default");
            return self.refuse_field(fields, "family", mismatch);
        }
        match IpFamily::read(node, &AnyValue) {
            Ok(family) => Some(family),
            Err(mismatch) => self.refuse_field(fields, "family", mismatch),
        }
    }

    /// Notes who names the pool; `None` where another entry does.
    fn once(&mut self, fields: &Fields<'_>, load_balancer: &str, backend_pool: &str) -> Option<()> {
        let pool = (load_balancer.to_ascii_lowercase(), backend_pool.to_ascii_lowercase());
        let first = *self.named.entry(pool).or_insert(fields.index);
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
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    name.len() <= MAX_NAME
        && name.chars().all(inside)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

fn usual_family(backend_pool: &str) -> IpFamily {
    if backend_pool.to_ascii_lowercase().ends_with(IPV6_ENDING) { IpFamily::V6 } else { IpFamily::V4 }
}
