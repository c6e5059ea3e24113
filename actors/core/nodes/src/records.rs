//! The record of a node before its first Down, as the text of a key of our ConfigMap. It shows a successor which
//! Downs are ours, and which existed before (docs/design/nodes.md, N4).
//!
//! A key is `down.` and the UID of the node. Unknown lines survive when a record is written again. An unreadable
//! record makes no Down ours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::arm::Backend;
use model::config_map::{ConfigMapFacts, Text, Value};
use model::ids::{InstanceId, LbName, NodeName, NodeUid, PoolId, PoolName};
use model::machine::{Now, Wall};

/// Prefix of the keys of records.
const PREFIX: &str = "down.";
/// Longest UID that can be part of a key.
const MAX_UID: usize = 100;
/// Largest size of one record in bytes.
pub(super) const MAX_RECORD_BYTES: usize = 16 * 1024;
/// Largest size of all records in bytes, of the mebibyte that a ConfigMap may have.
pub(super) const MAX_OF_ALL: usize = 384 * 1024;
/// Number of exceptions that are written by name. Further ones take less room.
const NAMED: usize = 8;
/// Number of hexadecimal digits of an exception that is not written by name.
const DIGITS: usize = 12;
/// Length of the line with the time, as the port writes it.
const SINCE: usize = "\nsince: 2006-01-02T15:04:05.000000Z\n".len();

/// The record of a node (N4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// Name of the node.
    pub(crate) node: NodeName,
    /// UID of the node.
    pub(super) uid: NodeUid,
    /// Addresses that it has had since the record was made.
    pub(super) ips: BTreeSet<IpAddr>,
    /// Its virtual machine.
    pub(super) instance: Option<InstanceId>,
    /// Time since which it has a signal.
    pub(super) since: Now,
    /// Pools in which its Down is not ours.
    pub(super) foreign: Exceptions,
    /// Whether it has a taint of ours (N1).
    pub(super) taint_ours: bool,
    /// Lines that this version does not know.
    pub(super) rest: Vec<Arc<str>>,
}

/// Pools in which a Down is not ours.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Exceptions {
    named: BTreeSet<PoolId>,
    short: BTreeSet<u64>,
}

impl Exceptions {
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty() && self.short.is_empty()
    }

    /// Returns whether this pool is an exception.
    #[must_use]
    pub(super) fn holds(&self, pool: &PoolId) -> bool {
        self.named.contains(pool) || self.short.contains(&short(pool))
    }

    pub(super) fn add(&mut self, pool: &PoolId) {
        if self.holds(pool) {
            return;
        }
        if self.named.len() < NAMED && is_plain(pool.lb.as_str()) && is_plain(pool.pool.as_str()) {
            self.named.insert(pool.clone());
        } else {
            self.short.insert(short(pool));
        }
    }

    /// Removes this pool.
    pub(crate) fn end(&mut self, pool: &PoolId) {
        self.named.remove(pool);
        self.short.remove(&short(pool));
    }

    /// Returns the words in which the exceptions are written.
    fn words(&self) -> impl Iterator<Item = String> + '_ {
        let named = self.named.iter().map(PoolId::to_string);
        named.chain(self.short.iter().map(|short| format!("#{short:0DIGITS$x}")))
    }

    /// Adds the exception in a word. Returns whether it can be read.
    fn read(&mut self, word: &str) -> bool {
        if let Some(digits) = word.strip_prefix('#') {
            let is_short = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let Some(short) = u64::from_str_radix(digits, 16).ok().filter(|_| is_short) else { return false };
            self.short.insert(short);
            return true;
        }
        let Some((lb, pool)) = word.split_once('/') else { return false };
        let plain = is_plain(lb) && is_plain(pool);
        if plain {
            self.named.insert(PoolId::new(LbName::new(lb), PoolName::new(pool)));
        }
        plain
    }
}

/// Returns whether a name can be written in a line of names. All names that Azure allows can.
fn is_plain(name: &str) -> bool {
    let breaks = |c: char| c == '/' || c.is_whitespace() || c.is_control();
    !name.is_empty() && !name.starts_with('#') && !name.contains(breaks)
}

/// Returns a hash of 12 hexadecimal digits for a pool, independent of the case of its names: FNV-1a of 64 bits,
/// folded.
fn short(pool: &PoolId) -> u64 {
    let bytes = pool.lb.folded().bytes().chain([b'/']).chain(pool.pool.folded().bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash >> 48) ^ (hash & 0xffff_ffff_ffff)
}

/// Returns the records in a state of our ConfigMap that was observed now, and the unreadable keys with the reason.
#[must_use]
pub(crate) fn of(facts: &ConfigMapFacts, now: Now) -> (Vec<Record>, BTreeMap<Arc<str>, &'static str>) {
    let (mut records, mut unreadable) = (Vec::new(), BTreeMap::new());
    for (key, text) in &facts.data {
        match Record::read(key, text, facts.read, now) {
            None => {}
            Some(Ok(record)) => records.push(record),
            Some(Err(why)) => drop(unreadable.insert(Arc::clone(key), why)),
        }
    }
    for key in facts.binary.iter().filter(|key| key.starts_with(PREFIX)) {
        unreadable.insert(Arc::clone(key), "its value is not text");
    }
    (records, unreadable)
}

/// Returns the size in bytes of the records of a state with their keys, including unreadable ones.
#[must_use]
pub(super) fn size_of(facts: &ConfigMapFacts) -> usize {
    let records = facts.data.iter().filter(|(key, _)| key.starts_with(PREFIX));
    records.map(|(key, text)| key.len() + text.text.len()).sum()
}

/// Returns the key of the record of this node. `None`: its UID cannot be part of a key.
#[must_use]
pub(super) fn key(uid: &NodeUid) -> Option<Arc<str>> {
    is_uid(uid.as_str()).then(|| Arc::from(format!("{PREFIX}{uid}")))
}

fn is_uid(uid: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    (1..=MAX_UID).contains(&uid.len()) && uid.chars().all(fits)
}

impl Record {
    /// Returns whether both contain the same facts of the node, apart from the time and unknown lines.
    #[must_use]
    pub(super) fn has_same_facts(&self, other: &Record) -> bool {
        let Record { node, uid, ips, instance, since: _, foreign, taint_ours, rest: _ } = self;
        (node, uid, ips, instance) == (&other.node, &other.uid, &other.ips, &other.instance)
            && (foreign, taint_ours) == (&other.foreign, &other.taint_ours)
    }

    /// Returns whether the node has or had this backend.
    #[must_use]
    pub(super) fn has(&self, backend: &Backend) -> bool {
        match backend {
            Backend::Address(ip) => self.ips.contains(ip),
            Backend::Instance(instance) => self.instance.as_ref() == Some(instance),
        }
    }

    /// Returns the backends of the node's entries.
    pub(super) fn backends(&self) -> impl Iterator<Item = Backend> + '_ {
        let instance = self.instance.iter().cloned().map(Backend::Instance);
        self.ips.iter().copied().map(Backend::Address).chain(instance)
    }

    /// Returns the text of the record.
    #[must_use]
    pub(super) fn written(&self) -> Value {
        let mut head = self.node.as_str().to_owned();
        let mut line = |name: &str, words: Vec<String>| {
            if !words.is_empty() {
                head.push_str(&format!("\n{name} {}", words.join(" ")));
            }
        };
        line("ips:", self.ips.iter().map(IpAddr::to_string).collect());
        line("instance:", self.instance.iter().map(InstanceId::to_string).collect());
        line("foreign:", self.foreign.words().collect());
        let ours = self.taint_ours.then_some("taint: ours\n");
        let rest = self.rest.iter().flat_map(|line| [&**line, "\n"]);
        let tail: String = ours.into_iter().chain(rest).collect();
        Value::Since { head: head.into(), at: self.since, tail: tail.into() }
    }

    /// Returns the approximate size in bytes, with its key.
    #[must_use]
    pub(super) fn size(&self) -> usize {
        let text = match self.written() {
            Value::Text(text) => text.len(),
            Value::Time(_) => SINCE,
            Value::Since { head, at: _, tail } => head.len() + SINCE + tail.len(),
        };
        PREFIX.len() + self.uid.as_str().len() + text
    }

    /// Reads the record in a key of a ConfigMap that was read at `read`. `None`: not a record of ours.
    ///
    /// A time that cannot be read, or lies in the future, becomes that of the reading.
    #[must_use]
    pub(super) fn read(key: &str, text: &Text, read: Wall, now: Now) -> Option<Result<Record, &'static str>> {
        let uid = key.strip_prefix(PREFIX)?;
        if !is_uid(uid) {
            return Some(Err("what follows in the key is not the UID of a node"));
        }
        let mut lines = text.text.lines().map(str::trim).filter(|line| !line.is_empty());
        let Some(node) = lines.next() else { return Some(Err("it names no node")) };
        let ago = text.time.map_or(0, |time| read.as_micros().saturating_sub(time.as_micros()));
        let ago = std::time::Duration::from_micros(u64::try_from(ago).unwrap_or(0));
        let mut record = Record {
            node: NodeName::new(node),
            uid: NodeUid::new(uid),
            ips: BTreeSet::new(),
            instance: None,
            since: now.minus(ago),
            foreign: Exceptions::default(),
            taint_ours: false,
            rest: Vec::new(),
        };
        let broken = lines.find_map(|line| record.parse_line(line).err());
        Some(broken.map_or(Ok(record), Err))
    }

    fn parse_line(&mut self, line: &str) -> Result<(), &'static str> {
        if let Some(ips) = line.strip_prefix("ips:") {
            for word in ips.split_whitespace() {
                self.ips.insert(word.parse().map_err(|_| "a word of the line `ips:` is not an address")?);
            }
        } else if let Some(instance) = line.strip_prefix("instance:") {
            self.instance = Some(instance.trim()).filter(|name| !name.is_empty()).map(InstanceId::new);
        } else if let Some(foreign) = line.strip_prefix("foreign:") {
            // An exception that is not understood could be any pool.
            if !foreign.split_whitespace().all(|word| self.foreign.read(word)) {
                return Err("a word of the line `foreign:` is not a pool");
            }
        } else if line == "taint: ours" {
            self.taint_ours = true;
        } else if !line.starts_with("since:") {
            self.rest.push(line.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
