//! Objects, their one resourceVersion, and the bounded history for watches and stale reads.
//!
//! An object is serialised once per write, as the watch line of that write; lists, reads and all watchers share those
//! bytes. Only a group that shows the objects of another group serialises them again. The history is a ring per kind,
//! bounded in events and bytes.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::events;
use super::resource::{Facts, Resource};

/// Namespace (empty for cluster-scoped kinds) and name.
pub(super) type Key = (String, String);

/// Kind of a change of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    pub fn word(self) -> &'static str {
        match self {
            Change::Added => "ADDED",
            Change::Modified => "MODIFIED",
            Change::Deleted => "DELETED",
        }
    }
}

/// One version of one object, serialised.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    line: Arc<[u8]>,
    start: usize,
    labels: BTreeMap<String, String>,
    fields: Vec<String>,
}

impl Snapshot {
    fn new(change: Change, object: &Value, facts: &Facts) -> Snapshot {
        let mut line = line_head(change.word());
        let start = line.len();
        serde_json::to_writer(&mut line, object).expect("a JSON value with string keys serialises");
        line.extend_from_slice(b"}\n");
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let labels = labels.into_iter().flatten();
        Snapshot {
            line: line.into(),
            start,
            labels: labels.map(|(key, value)| (key.clone(), text_of(value))).collect(),
            fields: facts.selectable.iter().map(|path| field_of(object, path)).collect(),
        }
    }

    /// Returns the decoded object. Objects are stored only as bytes, because they take ten times the memory when
    /// decoded.
    pub fn value(&self) -> Value {
        serde_json::from_slice(self.body()).expect("the store wrote it")
    }

    /// Returns the decoded object in the form of this kind.
    pub fn value_as(&self, resource: Resource) -> Value {
        events::shown(resource, self.value())
    }

    /// Returns the object as JSON.
    pub fn body(&self) -> &[u8] {
        &self.line[self.start..self.line.len() - 2]
    }

    /// Returns the object as JSON in the form of this kind.
    pub fn body_as(&self, resource: Resource) -> Cow<'_, [u8]> {
        if resource.is_stored_as_itself() {
            Cow::Borrowed(self.body())
        } else {
            Cow::Owned(self.value_as(resource).to_string().into_bytes())
        }
    }

    /// Returns the whole watch line of the write that created this version.
    pub fn line(&self) -> Arc<[u8]> {
        Arc::clone(&self.line)
    }

    /// Returns a watch line of this type with this version, in the form of this kind.
    pub fn line_as(&self, change: Change, resource: Resource) -> Arc<[u8]> {
        let mut line = line_head(change.word());
        if resource.is_stored_as_itself() && self.line.starts_with(&line) {
            return self.line();
        }
        line.extend_from_slice(&self.body_as(resource));
        line.extend_from_slice(b"}\n");
        line.into()
    }

    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    pub fn field(&self, index: usize) -> &str {
        self.fields.get(index).map_or("", String::as_str)
    }
}

fn line_head(word: &str) -> Vec<u8> {
    format!(r#"{{"type":"{word}","object":"#).into_bytes()
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(
        || {
            if value.is_null() { String::new() } else { value.to_string() }
        },
        str::to_owned,
    )
}

fn field_of(object: &Value, path: &str) -> String {
    let mut at = object;
    for part in path.split('.') {
        at = at.get(part).unwrap_or(&Value::Null);
    }
    // The event field `source` selects by its component; an unset boolean field counts as false.
    match (path, at) {
        ("source", source) => text_of(source.get("component").unwrap_or(&Value::Null)),
        ("spec.unschedulable", Value::Null) => "false".to_owned(),
        (_, other) => text_of(other),
    }
}

/// One write in the history of a kind.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub rv: u64,
    pub at_us: u64,
    pub change: Change,
    pub key: Key,
    pub now: Arc<Snapshot>,
    pub before: Option<Arc<Snapshot>>,
}

/// One kind's objects and history.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    pub objects: BTreeMap<Key, Arc<Snapshot>>,
    ring: VecDeque<Event>,
    ring_bytes: usize,
    /// The ring contains every write after this resourceVersion.
    pub retained_from: u64,
}

impl Table {
    /// Returns the writes after `rv`, oldest first.
    pub fn after(&self, rv: u64) -> impl Iterator<Item = &Event> {
        let start = self.ring.partition_point(|event| event.rv <= rv);
        self.ring.range(start..)
    }
}

/// Everything that survives in etcd, and the cached history.
#[derive(Debug, Clone)]
pub(super) struct Store {
    tables: Vec<Table>,
    /// The newest resourceVersion.
    pub rv: u64,
    /// New watches and exact reads before this resourceVersion are answered 410.
    pub horizon: u64,
    max_events: usize,
    max_bytes: usize,
}

impl Store {
    pub fn new(max_events: usize, max_bytes: usize) -> Store {
        let tables = Resource::ALL.iter().map(|_| Table::default()).collect();
        Store { tables, rv: 1, horizon: 1, max_events, max_bytes }
    }

    pub fn table(&self, resource: Resource) -> &Table {
        &self.tables[resource.index()]
    }

    pub fn object(&self, resource: Resource, key: &Key) -> Option<&Arc<Snapshot>> {
        self.table(resource).objects.get(key)
    }

    /// Returns a decoded object in the form of this kind.
    pub fn value(&self, resource: Resource, key: &Key) -> Option<Value> {
        self.object(resource, key).map(|object| object.value_as(resource))
    }

    /// Writes a version of an object, assigns the next resourceVersion, and returns it.
    pub fn put(&mut self, resource: Resource, key: Key, value: Value, now_us: u64) -> Value {
        let exists = self.table(resource).objects.contains_key(&key);
        let change = if exists { Change::Modified } else { Change::Added };
        self.write(resource, key, change, value, self.rv + 1, now_us)
    }

    /// Removes an object, if it exists; its last version carries the resourceVersion of the removal.
    pub fn remove(&mut self, resource: Resource, key: &Key, now_us: u64) {
        if let Some(value) = self.value(resource, key) {
            self.write(resource, key.clone(), Change::Deleted, value, self.rv + 1, now_us);
        }
    }

    /// Writes with the caller's resourceVersion, which must be newer than all others.
    pub fn write(
        &mut self,
        resource: Resource,
        key: Key,
        change: Change,
        mut value: Value,
        rv: u64,
        at_us: u64,
    ) -> Value {
        debug_assert!(rv > self.rv, "resourceVersions only grow");
        self.rv = rv;
        value["metadata"]["resourceVersion"] = rv.to_string().into();
        let value = events::stored_form(resource, value);
        let now = Arc::new(Snapshot::new(change, &value, resource.stored_as().facts()));
        let table = &mut self.tables[resource.index()];
        let before = match change {
            Change::Added | Change::Modified => table.objects.insert(key.clone(), Arc::clone(&now)),
            Change::Deleted => table.objects.remove(&key),
        };
        table.ring_bytes += now.line.len();
        table.ring.push_back(Event { rv, at_us, change, key, now, before });
        while table.ring.len() > self.max_events || table.ring_bytes > self.max_bytes {
            let Some(gone) = table.ring.pop_front() else { break };
            table.ring_bytes -= gone.now.line.len();
            table.retained_from = gone.rv;
        }
        events::shown(resource, value)
    }

    /// Returns the newest resourceVersion at `now_us` in a cache that lags by `lag_us`.
    pub fn visible(&self, now_us: u64, lag_us: u64) -> u64 {
        if lag_us == 0 {
            return self.rv;
        }
        let hidden = self.tables.iter().filter_map(|table| next_hidden(&table.ring, now_us, lag_us));
        hidden.map(|event| event.rv - 1).min().unwrap_or(self.rv)
    }

    /// Returns the time at which the next write that is still hidden at `now_us` becomes visible.
    pub fn next_visible_at(&self, resource: Resource, now_us: u64, lag_us: u64) -> Option<u64> {
        let hidden = next_hidden(&self.table(resource).ring, now_us, lag_us)?;
        Some(hidden.at_us.saturating_add(lag_us))
    }

    /// Returns the objects of a kind as of `rv`; `None` if that state is no longer known.
    pub fn at(&self, resource: Resource, rv: u64) -> Option<BTreeMap<&Key, &Arc<Snapshot>>> {
        let table = self.table(resource);
        if rv < table.retained_from {
            return None;
        }
        let mut state: BTreeMap<&Key, &Arc<Snapshot>> = table.objects.iter().collect();
        let start = table.ring.partition_point(|event| event.rv <= rv);
        for event in table.ring.range(start..).rev() {
            match &event.before {
                Some(before) => state.insert(&event.key, before),
                None => state.remove(&event.key),
            };
        }
        Some(state)
    }

    /// Restores everything to its state at `to`, including the resourceVersion counter.
    pub fn rollback(&mut self, to: u64) -> bool {
        if to > self.rv || self.tables.iter().any(|table| to < table.retained_from) {
            return false;
        }
        for table in &mut self.tables {
            while table.ring.back().is_some_and(|event| event.rv > to) {
                let Some(event) = table.ring.pop_back() else { break };
                table.ring_bytes -= event.now.line.len();
                match event.before {
                    Some(before) => {
                        table.objects.insert(event.key, before);
                    }
                    None => {
                        table.objects.remove(&event.key);
                    }
                }
            }
        }
        self.rv = to;
        true
    }
}

fn next_hidden(ring: &VecDeque<Event>, now_us: u64, lag_us: u64) -> Option<&Event> {
    let visible = ring.partition_point(|event| event.at_us.saturating_add(lag_us) <= now_us);
    ring.get(visible)
}
