//! GET of one object and LIST, with the semantics of resourceVersion, limit and continue.

use std::sync::Arc;

use serde_json::Value;

use super::KubeModel;
use super::request::{Query, Reply, Target};
use super::resource::Resource;
use super::selector::Selector;
use super::status::Failure;
use super::store::{Key, Snapshot, Store};

/// The state that a list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListVersion {
    Newest,
    /// The state in the cache.
    Any,
    NotOlderThan(u64),
    Exactly(u64),
}

/// Returns the objects of one list, by namespace and name.
pub(super) fn state_of<'a>(
    store: &'a Store,
    resource: Resource,
    namespace: Option<&str>,
    selector: &Selector,
    rv: u64,
) -> Option<Vec<(&'a Key, &'a Arc<Snapshot>)>> {
    let selected = |key: &Key, object: &Snapshot| {
        namespace.is_none_or(|wanted| wanted == key.0) && selector.matches(&key.1, &key.0, object)
    };
    if rv >= store.rv {
        let objects = store.table(resource).objects.iter();
        return Some(objects.filter(|(key, object)| selected(key, object)).collect());
    }
    let state = store.at(resource, rv)?;
    Some(state.into_iter().filter(|(key, object)| selected(key, object)).collect())
}

impl KubeModel {
    pub(super) fn read_one(
        &self,
        target: &Target,
        name: &str,
        query: &Query,
        now_us: u64,
    ) -> Result<Reply, Failure> {
        let facts = target.resource.facts();
        let key = (target.namespace.clone().unwrap_or_default(), name.to_owned());
        let missing = || Failure::not_found(facts, name);
        let wanted = match query.number("resourceVersion")? {
            None => ListVersion::Newest,
            Some(0) => ListVersion::Any,
            Some(rv) => ListVersion::NotOlderThan(rv),
        };
        let rv = self.resolve(wanted, now_us)?;
        let object = if rv >= self.store.rv {
            self.store.object(target.resource, &key)
        } else {
            let state = self.store.at(target.resource, rv);
            state.and_then(|state| state.get(&key).copied())
        };
        let body = object.map(|object| object.body_as(target.resource).into_owned());
        Ok(Reply::json(200, body.ok_or_else(missing)?))
    }

    pub(super) fn list_many(
        &mut self,
        target: &Target,
        query: &Query,
        now_us: u64,
    ) -> Result<Reply, Failure> {
        let selector = Selector::parse(query, target.resource)?;
        let token = query.text("continue");
        let limit = query.number("limit")?.unwrap_or(0);
        let wanted = wanted(query, limit)?;
        let (rv, after) = if token.is_empty() {
            (self.resolve(wanted, now_us)?, None)
        } else {
            let (rv, after) = read_token(token)?;
            if rv < self.store.horizon || rv > self.store.rv {
                return Err(Failure::continue_expired());
            }
            (rv, Some(after))
        };
        let expired = || match after {
            Some(_) => Failure::continue_expired(),
            None => Failure::expired(rv, self.store.horizon),
        };
        let namespace = target.namespace.as_deref();
        let mut items =
            state_of(&self.store, target.resource, namespace, &selector, rv).ok_or_else(expired)?;
        if self.faults.hidden.contains(&target.resource) {
            items.clear();
            *self.fault_effects.hidden.entry(target.resource).or_default() += 1;
        }
        if let Some(after) = &after {
            items.retain(|(key, _)| *key > after);
        }
        // A cached list is complete: the limit does not apply to resourceVersion 0.
        let limit = if wanted == ListVersion::Any && after.is_none() { 0 } else { limit };
        let mut rest = None;
        if limit > 0 && u64::try_from(items.len()).is_ok_and(|count| count > limit) {
            let limit = usize::try_from(limit).expect("less than a length");
            let left = items.len() - limit;
            items.truncate(limit);
            let last = items.last().map(|(key, _)| *key);
            let counted = selector.selects_all().then_some(left);
            rest = last.map(|key| (write_token(rv, key), counted));
        }
        Ok(Reply::json(200, render(target.resource, rv, rest, &items)))
    }

    /// Returns the resourceVersion whose state is the answer.
    fn resolve(&self, wanted: ListVersion, now_us: u64) -> Result<u64, Failure> {
        let newest = self.store.rv;
        let visible = self.store.visible(now_us, self.faults.lag_us);
        let future = |rv: u64| {
            if rv > newest { Err(Failure::too_large_version(rv, newest)) } else { Ok(rv) }
        };
        match wanted {
            ListVersion::Newest => Ok(newest),
            ListVersion::Any => Ok(visible),
            ListVersion::NotOlderThan(rv) => future(rv).map(|rv| rv.max(visible)),
            ListVersion::Exactly(rv) if rv < self.store.horizon => {
                Err(Failure::expired(rv, self.store.horizon))
            }
            ListVersion::Exactly(rv) => future(rv),
        }
    }
}

fn wanted(query: &Query, limit: u64) -> Result<ListVersion, Failure> {
    let invalid = |field: &str, detail: &str| Err(Failure::invalid_options(field, detail));
    if query.flag("sendInitialEvents") {
        return invalid("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list");
    }
    let rv = query.number("resourceVersion")?;
    let continues = !query.text("continue").is_empty();
    let field = "resourceVersionMatch";
    match (query.text(field), rv) {
        ("", None) => Ok(ListVersion::Newest),
        ("", Some(0)) => Ok(ListVersion::Any),
        ("", Some(_)) if continues => {
            Err(Failure::bad_request("specifying resource version is not allowed when using continue"))
        }
        ("", Some(rv)) if limit > 0 => Ok(ListVersion::Exactly(rv)),
        ("", Some(rv)) => Ok(ListVersion::NotOlderThan(rv)),
        (_, None) => {
            invalid(field, "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided")
        }
        (_, Some(_)) if continues => {
            invalid(field, "Forbidden: resourceVersionMatch is forbidden when continue is provided")
        }
        ("Exact", Some(0)) => {
            invalid(field, "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
        }
        ("Exact", Some(rv)) => Ok(ListVersion::Exactly(rv)),
        ("NotOlderThan", Some(0)) => Ok(ListVersion::Any),
        ("NotOlderThan", Some(rv)) => Ok(ListVersion::NotOlderThan(rv)),
        (_, Some(_)) => {
            invalid(field, "Unsupported value: supported values: \"Exact\", \"NotOlderThan\", \"\"")
        }
    }
}

/// Returns a list as JSON. Its items have neither kind nor apiVersion, as in typed lists of the real server.
fn render(
    resource: Resource,
    rv: u64,
    rest: Option<(String, Option<usize>)>,
    items: &[(&Key, &Arc<Snapshot>)],
) -> Vec<u8> {
    let facts = resource.facts();
    let head = facts.head();
    let size: usize = items.iter().map(|(_, object)| object.body().len() + 1).sum();
    let mut body = Vec::with_capacity(size + 256);
    let mut metadata = serde_json::Map::new();
    metadata.insert("resourceVersion".to_owned(), rv.to_string().into());
    if let Some((token, left)) = rest {
        metadata.insert("continue".to_owned(), token.into());
        if let Some(left) = left {
            metadata.insert("remainingItemCount".to_owned(), left.into());
        }
    }
    let metadata = Value::Object(metadata);
    let start = format!(
        "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
        facts.kind,
        facts.api_version()
    );
    body.extend_from_slice(start.as_bytes());
    for (index, (_, object)) in items.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        let object = object.body_as(resource);
        match object.strip_prefix(head.as_bytes()) {
            Some(fields) => {
                body.push(b'{');
                body.extend_from_slice(fields);
            }
            None => body.extend_from_slice(&object),
        }
    }
    body.extend_from_slice(b"]}\n");
    body
}

/// Returns a continue token, which is opaque to clients: the snapshot's resourceVersion and the last key, in
/// hexadecimal.
fn write_token(rv: u64, (namespace, name): &Key) -> String {
    format!("{rv}/{namespace}/{name}").bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn read_token(token: &str) -> Result<(u64, Key), Failure> {
    let refused = || Failure::bad_request("continue key is not valid: malformed");
    let pairs = token.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()))
        .collect();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(refused)?;
    let mut parts = text.splitn(3, '/');
    let rv = parts.next().and_then(|rv| rv.parse().ok()).ok_or_else(refused)?;
    match (parts.next(), parts.next()) {
        (Some(namespace), Some(name)) => Ok((rv, (namespace.to_owned(), name.to_owned()))),
        _ => Err(refused()),
    }
}
