//! A deterministic model of kube-apiserver as this product uses it (docs/design/surface.md, Z1).
//!
//! Owns objects, their one resourceVersion, watch history and faults; plain data, without clock, IO or randomness.
//! The HTTP wrapper owns sockets: it passes each request to [`KubeModel::handle`], and for a watch polls
//! [`KubeModel::poll_watch`] whenever [`KubeModel::revision`] has changed or [`KubeModel::watch_deadline`] has
//! passed. Scenarios and the model of the cloud-controller-manager write through [`KubeModel::apply`] and
//! [`KubeModel::delete`].
//!
//! Not modelled: authentication and RBAC, managedFields and server-side apply, defaulting, schema validation beyond
//! `validate`, garbage collection, set-based selectors, deletion of collections, protobuf, and the expiry of events
//! after an hour. Any token is accepted, and access reviews allow everything, except for a few users with their own
//! rules. `forbid` refuses whole kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Value, json};

pub mod build;
mod discovery;
mod events;
mod faults;
mod object;
mod patch;
mod reads;
mod request;
mod resource;
mod selector;
mod status;
mod store;
mod validate;
mod watch;
mod writes;

pub use faults::{FaultEffects, StreamingLists};
pub use object::rfc3339;
pub use request::{Reply, Request, WatchId};
pub use resource::Resource;

use faults::{Faults, Throttle};
use object::{Numbers, Scope, key_of, meta};
use request::{Target, split};
use status::Failure;
use store::{Change, Key, Store};
use watch::Watch;

/// Settings of a model at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Seed of uids, generated names and watch lifetimes.
    pub seed: u64,
    /// Wall-clock seconds since 1970 at `now_us` = 0.
    pub epoch_s: u64,
    /// Microseconds between bookmarks of one watch.
    pub bookmark_every_us: u64,
    /// Minimum lifetime in microseconds of a watch without `timeoutSeconds` (`--min-request-timeout`); the maximum is
    /// twice that.
    pub watch_timeout_us: u64,
    /// History kept per kind, in writes.
    pub history_events: usize,
    /// History kept per kind, in bytes of serialised objects.
    pub history_bytes: usize,
    /// Version in `/version`.
    pub git_version: String,
    /// User in 403 answers.
    pub user: String,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 1,
            epoch_s: 1_795_132_800,
            bookmark_every_us: 60_000_000,
            watch_timeout_us: 1_800_000_000,
            history_events: 10_000,
            history_bytes: 32 << 20,
            git_version: "v1.36.2".to_owned(),
            user: "system:serviceaccount:kube-system:azure-backend-pool-controller".to_owned(),
        }
    }
}

/// Reasons why a direct write failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Not a JSON object with metadata.
    NotAnObject,
    /// apiVersion and kind are not served by the model.
    UnknownKind,
    /// No name, or no namespace where one is needed.
    NoName,
    /// A recorded event has an unknown type, or its resourceVersion is not newer than the model's.
    NotNewer,
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Refused::NotAnObject => "not a json object with metadata",
            Refused::UnknownKind => "apiVersion and kind are not served",
            Refused::NoName => "name or namespace is missing",
            Refused::NotNewer => "not a recorded change with a newer resourceVersion",
        })
    }
}

impl std::error::Error for Refused {}

/// The model of one kube-apiserver with its etcd.
#[derive(Debug, Clone)]
pub struct KubeModel {
    settings: Settings,
    store: Store,
    watches: BTreeMap<WatchId, Watch>,
    next_watch: u64,
    numbers: Numbers,
    faults: Faults,
    fault_effects: FaultEffects,
    /// Namespaces that scenarios write into without creating them.
    implied_namespaces: BTreeSet<String>,
    revision: u64,
}

impl KubeModel {
    /// Creates an empty cluster with the four standard namespaces.
    pub fn new(settings: Settings) -> KubeModel {
        let mut model = KubeModel {
            store: Store::new(settings.history_events.max(1), settings.history_bytes),
            watches: BTreeMap::new(),
            next_watch: 1,
            numbers: Numbers::new(settings.seed),
            faults: Faults::default(),
            fault_effects: FaultEffects::default(),
            implied_namespaces: BTreeSet::new(),
            revision: 0,
            settings,
        };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let namespace = json!({"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
            model.insert(Resource::Namespaces, (String::new(), name.to_owned()), namespace, false, 0);
        }
        model
    }

    /// Answers one request at `now_us`, microseconds on the caller's clock.
    pub fn handle(&mut self, request: &Request, now_us: u64) -> Reply {
        if self.faults.down {
            self.fault_effects.refused += 1;
            return Reply::Refused;
        }
        let mut reply = self.dispatch(request, now_us);
        if let Reply::Answer { after_us, .. } = &mut reply {
            *after_us = after_us.saturating_add(self.faults.slow_us);
            self.fault_effects.slowed += u64::from(self.faults.slow_us > 0);
        }
        reply
    }

    fn dispatch(&mut self, request: &Request, now_us: u64) -> Reply {
        let (segments, query) = split(&request.path_and_query);
        let health = matches!(segments.first().map(String::as_str), Some("readyz" | "livez" | "healthz"));
        if !health && let Some(refusal) = self.throttled() {
            return refusal;
        }
        if let Some(fixed) = self.answer_fixed(request, &segments) {
            return fixed;
        }
        let Some(target) = Target::parse(&segments) else {
            return Reply::text(404, "404 page not found\n");
        };
        if !request.accepts_json() {
            return Reply::failure(&Failure::not_acceptable());
        }
        let watching = query.flag("watch") && target.name.is_none() && request.method == "GET";
        let verb = verb_of(&request.method, &target, watching);
        let facts = target.resource.facts();
        if self.faults.forbidden.contains(&target.resource) {
            let (namespace, name) = (target.namespace.as_deref(), target.name.as_deref());
            return Reply::failure(&Failure::forbidden(
                facts,
                &self.settings.user,
                verb,
                namespace,
                name.unwrap_or_default(),
            ));
        }
        if watching {
            return match self.open_watch(&target, &query, now_us) {
                Ok(id) => Reply::Watch(id, self.poll_watch(id, now_us)),
                Err(failure) => Reply::failure(&failure),
            };
        }
        let answer = match (request.method.as_str(), target.name.as_deref()) {
            ("GET", Some(name)) => self.read_one(&target, name, &query, now_us),
            ("GET", None) => self.list_many(&target, &query, now_us),
            ("POST", _) => self.create(&target, &query, request, now_us),
            ("PUT", Some(name)) => self.replace(&target, name, &query, request, now_us),
            ("PATCH", Some(name)) => self.patch(&target, name, &query, request, now_us),
            ("DELETE", Some(name)) if !target.status => {
                self.delete_one(&target, name, &query, request, now_us)
            }
            (_, _) => Err(Failure::method_not_allowed()),
        };
        answer.unwrap_or_else(|failure| Reply::failure(&failure))
    }

    fn throttled(&mut self) -> Option<Reply> {
        let Throttle { left, retry_after_s } = self.faults.throttle.as_mut()?;
        *left = left.saturating_sub(1);
        self.fault_effects.throttled += 1;
        let retry_after = retry_after_s.to_string();
        if *left == 0 {
            self.faults.throttle = None;
        }
        let mut reply = Reply::text(429, "Too many requests, please try again later.\n");
        if let Reply::Answer { headers, .. } = &mut reply {
            headers.push(("retry-after".to_owned(), retry_after));
        }
        Some(reply)
    }

    /// Returns a number that changes whenever a watch may have something new or a setting was changed. If it is
    /// unchanged, only time has passed.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the newest resourceVersion.
    pub fn resource_version(&self) -> u64 {
        self.store.rv
    }

    /// Returns one object as stored; the namespace is empty for cluster-scoped kinds.
    pub fn get(&self, resource: Resource, namespace: &str, name: &str) -> Option<Value> {
        self.store.value(resource, &(namespace.to_owned(), name.to_owned()))
    }

    /// Returns all objects of a kind, by namespace and name, decoded one by one.
    pub fn list(&self, resource: Resource) -> impl Iterator<Item = Value> {
        self.store.table(resource).objects.values().map(move |object| object.value_as(resource))
    }

    /// Creates or replaces an object, including its status, without locking and validation, and returns its
    /// resourceVersion. A given `metadata.uid` is kept; if it differs from the stored one, the old object is deleted
    /// first. An equal object changes nothing.
    pub fn apply(&mut self, object: Value, now_us: u64) -> Result<u64, Refused> {
        let (resource, key) = identify(&object)?;
        self.implied_namespaces.insert(key.0.clone());
        let uid = meta(&object, "uid");
        let existing = self.store.value(resource, &key);
        let existing = existing.filter(|old| {
            let same = uid.is_empty() || uid == meta(old, "uid");
            if !same {
                self.store.remove(resource, &key, now_us);
            }
            same
        });
        let stored = match existing {
            None => self.insert(resource, key, object, false, now_us),
            Some(old) => {
                let next = object::successor(&old, object, resource, Scope::Everything);
                self.store_next(resource, key, &old, next, now_us)
            }
        };
        Ok(meta(&stored, "resourceVersion").parse().unwrap_or(self.store.rv))
    }

    /// Deletes an object like `kubectl delete`: finalizers delay it. Returns false if there is no such object.
    pub fn delete(&mut self, resource: Resource, namespace: &str, name: &str, now_us: u64) -> bool {
        self.remove(resource, &(namespace.to_owned(), name.to_owned()), now_us)
    }

    /// Applies one line of a recorded watch (`ADDED`, `MODIFIED`, `DELETED`) unchanged, with its resourceVersion;
    /// watches send it unchanged.
    pub fn replay(&mut self, line: &[u8], now_us: u64) -> Result<(), Refused> {
        let mut event: Value = serde_json::from_slice(line).map_err(|_| Refused::NotAnObject)?;
        let change = [Change::Added, Change::Modified, Change::Deleted]
            .into_iter()
            .find(|change| event["type"] == change.word())
            .ok_or(Refused::NotNewer)?;
        let object = event.get_mut("object").map(Value::take).unwrap_or_default();
        let (resource, key) = identify(&object)?;
        let rv: u64 = meta(&object, "resourceVersion").parse().map_err(|_| Refused::NotNewer)?;
        if rv <= self.store.rv {
            return Err(Refused::NotNewer);
        }
        self.implied_namespaces.insert(key.0.clone());
        self.store.write(resource, key, change, object, rv, now_us);
        self.changed();
        Ok(())
    }

    fn changed(&mut self) {
        self.revision += 1;
    }

    fn wall_time(&self, now_us: u64) -> String {
        rfc3339(self.settings.epoch_s.saturating_add(now_us / 1_000_000))
    }
}

fn identify(object: &Value) -> Result<(Resource, Key), Refused> {
    if !object.get("metadata").is_some_and(Value::is_object) {
        return Err(Refused::NotAnObject);
    }
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let resource = Resource::of_object(text("apiVersion"), text("kind")).ok_or(Refused::UnknownKind)?;
    let key = key_of(object, resource.facts());
    if key.1.is_empty() || resource.facts().namespaced && key.0.is_empty() {
        return Err(Refused::NoName);
    }
    Ok((resource, key))
}

fn verb_of(method: &str, target: &Target, watching: bool) -> &'static str {
    match (method, watching, target.name.is_some()) {
        (_, true, _) => "watch",
        ("GET", false, true) => "get",
        ("GET", false, false) => "list",
        ("POST", _, _) => "create",
        ("PUT", _, _) => "update",
        ("PATCH", _, _) => "patch",
        ("DELETE", _, true) => "delete",
        ("DELETE", _, false) => "deletecollection",
        (_, _, _) => "unknown",
    }
}
