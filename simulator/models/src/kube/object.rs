//! The fields that the server writes into objects: order of fields, uid, times, generation, generated names.

use serde_json::{Map, Value, json};

use super::resource::{Facts, Resource};
use super::store::Key;

/// A deterministic stream of numbers (splitmix64), for uids and generated names.
#[derive(Debug, Clone)]
pub(super) struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub fn uid(&mut self) -> String {
        uid_of(self.next(), self.next())
    }

    /// Returns five characters of the real server's alphabet for `generateName`.
    pub fn suffix(&mut self) -> String {
        suffix_of(self.next())
    }
}

pub(super) fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub(super) fn suffix_of(number: u64) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rest = number;
    let mut suffix = String::new();
    for _ in 0..5 {
        let index = usize::try_from(rest % 27).expect("a remainder of 27 fits");
        suffix.push(char::from(ALPHABET[index]));
        rest /= 27;
    }
    suffix
}

/// Returns a version 4 UUID from two numbers.
pub(super) fn uid_of(high: u64, low: u64) -> String {
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        (low >> 48) & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}

/// Formats seconds since 1970 like the server: `2026-11-20T04:37:27Z`.
pub fn rfc3339(epoch_seconds: u64) -> String {
    let (days, seconds) = (epoch_seconds / 86_400, epoch_seconds % 86_400);
    // Howard Hinnant's days-to-civil, for days after 1970.
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns the string at a key of `metadata`, or an empty one.
pub(super) fn meta<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get("metadata").and_then(|metadata| metadata.get(key)).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn key_of(object: &Value, facts: &Facts) -> Key {
    let namespace = if facts.namespaced { meta(object, "namespace") } else { "" };
    (namespace.to_owned(), meta(object, "name").to_owned())
}

pub(super) fn finalizers(object: &Value) -> usize {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).map_or(0, Vec::len)
}

/// Returns the object with kind, apiVersion and metadata first and in the server's order.
pub(super) fn ordered(object: Map<String, Value>, facts: &Facts) -> Value {
    const FIRST: [&str; 12] = [
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
    ];
    let mut metadata = match object.get("metadata") {
        Some(Value::Object(metadata)) => metadata.clone(),
        Some(_) | None => Map::new(),
    };
    let mut sorted = Map::new();
    for key in FIRST {
        match metadata.shift_remove(key) {
            None | Some(Value::Null) => {}
            Some(value) => {
                sorted.insert(key.to_owned(), value);
            }
        }
    }
    sorted.extend(metadata);
    let mut out = Map::new();
    out.insert("kind".to_owned(), facts.kind.into());
    out.insert("apiVersion".to_owned(), facts.api_version().into());
    out.insert("metadata".to_owned(), Value::Object(sorted));
    out.extend(
        object.into_iter().filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion" | "metadata")),
    );
    Value::Object(out)
}

/// Adds the server's fields to a new object; given `uid` and `created` are kept.
pub(super) fn stamp_new(object: Value, resource: Resource, uid: String, created: String) -> Value {
    let facts = resource.facts();
    let Value::Object(mut object) = object else {
        return object;
    };
    let mut metadata = object.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for (key, value) in [("uid", uid), ("creationTimestamp", created)] {
        if metadata.get(key).and_then(Value::as_str).is_none_or(str::is_empty) {
            metadata.insert(key.to_owned(), value.into());
        }
    }
    // Placeholders keep the order; the store sets the number.
    metadata.insert("resourceVersion".to_owned(), "".into());
    metadata.shift_remove("generation");
    if facts.counts_generation {
        metadata.insert("generation".to_owned(), 1.into());
    }
    if !facts.namespaced {
        metadata.shift_remove("namespace");
    }
    object.insert("metadata".to_owned(), Value::Object(metadata));
    ordered(object, facts)
}

/// The part of an object that a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The main path: `status` stays unchanged if the kind has a status path.
    Main,
    /// `/status`: everything but `status` stays unchanged.
    Status,
    /// Everything, for scenarios.
    Everything,
}

/// Returns the version that follows `old` after a client's write of `new`.
pub(super) fn successor(old: &Value, new: Value, resource: Resource, scope: Scope) -> Value {
    let facts = resource.facts();
    let mut next = match (scope, facts.has_status) {
        (Scope::Status, _) => {
            let mut base = old.clone();
            set_or_remove(&mut base, "status", new.get("status").cloned());
            base
        }
        (Scope::Main, true) => {
            let mut base = new;
            set_or_remove(&mut base, "status", old.get("status").cloned());
            base
        }
        (Scope::Main, false) | (Scope::Everything, _) => new,
    };
    if !next.get("metadata").is_some_and(Value::is_object) {
        next["metadata"] = json!({});
    }
    let retained = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ];
    let metadata = &mut next["metadata"];
    for key in retained {
        set_or_remove(metadata, key, old["metadata"].get(key).cloned());
    }
    if facts.counts_generation && spec_of(old) != spec_of(&next) {
        let generation = old["metadata"]["generation"].as_u64().unwrap_or(0);
        next["metadata"]["generation"] = (generation + 1).into();
    }
    let Value::Object(object) = next else { return next };
    ordered(object, facts)
}

fn set_or_remove(object: &mut Value, key: &str, value: Option<Value>) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    match value {
        Some(value) => {
            object.insert(key.to_owned(), value);
        }
        None => {
            object.shift_remove(key);
        }
    }
}

fn spec_of(object: &Value) -> Vec<(&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    let mut rest: Vec<_> = fields
        .filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status" | "kind" | "apiVersion"))
        .collect();
    rest.sort_by_key(|(key, _)| key.as_str());
    rest
}
