//! POST, PUT, PATCH and DELETE, with optimistic locking, finalizers and the no-op rule.

use serde_json::{Map, Value, json};

use super::KubeModel;
use super::events;
use super::object::{self, Scope, finalizers, meta};
use super::patch;
use super::request::{Query, Reply, Request, Target};
use super::resource::{Facts, Resource};
use super::status::Failure;
use super::store::Key;
use super::validate;

impl KubeModel {
    pub(super) fn create(
        &mut self,
        target: &Target,
        query: &Query,
        request: &Request,
        now_us: u64,
    ) -> Result<Reply, Failure> {
        let facts = target.resource.facts();
        if facts.namespaced && target.namespace.is_none() || target.name.is_some() {
            return Err(Failure::method_not_allowed());
        }
        let dry = dry_run(query)?;
        let mut new = body_of(request, target)?;
        if !meta(&new, "resourceVersion").is_empty() {
            return Err(Failure::unexplained("resourceVersion should not be set on objects to be created"));
        }
        if meta(&new, "name").is_empty() {
            let stem = meta(&new, "generateName").to_owned();
            if stem.is_empty() {
                let detail = "Required value: name or generateName is required";
                return Err(Failure::invalid(facts, "", "metadata.name", detail));
            }
            new["metadata"]["name"] = format!("{stem}{}", self.numbers.suffix()).into();
        }
        // The server assigns the identity; a client cannot choose it.
        if let Some(metadata) = new["metadata"].as_object_mut() {
            metadata.shift_remove("uid");
            metadata.shift_remove("creationTimestamp");
            metadata.shift_remove("deletionTimestamp");
            metadata.shift_remove("deletionGracePeriodSeconds");
        }
        initial_status(target.resource, &mut new);
        validate::check(target.resource, &new)?;
        let key = object::key_of(&new, facts);
        if facts.namespaced && !self.namespace_exists(&key.0) {
            return Err(Failure::not_found(Resource::Namespaces.facts(), &key.0));
        }
        if self.store.object(target.resource, &key).is_some() {
            return Err(Failure::already_exists(facts, &key.1));
        }
        Ok(answer(201, &self.insert(target.resource, key, new, dry, now_us)))
    }

    /// Stores a new object under a free key, and returns the object that was (or would have been) stored.
    pub(super) fn insert(
        &mut self,
        resource: Resource,
        key: Key,
        new: Value,
        dry: bool,
        now_us: u64,
    ) -> Value {
        let (uid, created) = (self.numbers.uid(), self.wall_time(now_us));
        let mut stamped = events::filled(resource, object::stamp_new(new, resource, uid, created));
        if dry {
            if let Some(metadata) = stamped["metadata"].as_object_mut() {
                metadata.shift_remove("resourceVersion");
            }
            return stamped;
        }
        self.changed();
        self.store.put(resource, key, stamped, now_us)
    }

    pub(super) fn replace(
        &mut self,
        target: &Target,
        name: &str,
        query: &Query,
        request: &Request,
        now_us: u64,
    ) -> Result<Reply, Failure> {
        let facts = target.resource.facts();
        let dry = dry_run(query)?;
        let new = body_of(request, target)?;
        let given = meta(&new, "name");
        if given.is_empty() {
            return Err(Failure::bad_request("name must be provided"));
        }
        if given != name {
            return Err(Failure::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        let key = object::key_of(&new, facts);
        let Some(old) = self.store.value(target.resource, &key) else {
            return self.create_by_put(target, key, new, dry, now_us);
        };
        let version = meta(&new, "resourceVersion");
        if version.is_empty() && !facts.unconditional_update {
            let detail = "Invalid value: 0: must be specified for an update";
            return Err(Failure::invalid(facts, name, "metadata.resourceVersion", detail));
        }
        self.update(target, key, &old, new, dry, now_us)
    }

    fn create_by_put(
        &mut self,
        target: &Target,
        key: Key,
        mut new: Value,
        dry: bool,
        now_us: u64,
    ) -> Result<Reply, Failure> {
        let facts = target.resource.facts();
        if !facts.create_on_update || target.status {
            return Err(Failure::not_found(facts, &key.1));
        }
        check_uid(facts, &key.1, meta(&new, "uid"), "")?;
        if facts.namespaced && !self.namespace_exists(&key.0) {
            return Err(Failure::not_found(Resource::Namespaces.facts(), &key.0));
        }
        initial_status(target.resource, &mut new);
        validate::check(target.resource, &new)?;
        Ok(answer(201, &self.insert(target.resource, key, new, dry, now_us)))
    }

    pub(super) fn patch(
        &mut self,
        target: &Target,
        name: &str,
        query: &Query,
        request: &Request,
        now_us: u64,
    ) -> Result<Reply, Failure> {
        let facts = target.resource.facts();
        let dry = dry_run(query)?;
        let key = (target.namespace.clone().unwrap_or_default(), name.to_owned());
        let Some(old) = self.store.value(target.resource, &key) else {
            return Err(Failure::not_found(facts, name));
        };
        let new = patch::apply(&request.content_type(), &request.body, &old)?;
        if !new.is_object() || !new.get("metadata").is_some_and(Value::is_object) {
            return Err(Failure::patch_refused());
        }
        if object::key_of(&new, facts) != key {
            let detail = "Invalid value: field is immutable";
            return Err(Failure::invalid(facts, name, "metadata.name", detail));
        }
        self.update(target, key, &old, new, dry, now_us)
    }

    /// Returns the common part of PUT and PATCH, after old and new are known.
    fn update(
        &mut self,
        target: &Target,
        key: Key,
        old: &Value,
        new: Value,
        dry: bool,
        now_us: u64,
    ) -> Result<Reply, Failure> {
        let facts = target.resource.facts();
        check_uid(facts, &key.1, meta(&new, "uid"), meta(old, "uid"))?;
        let version = meta(&new, "resourceVersion");
        if !version.is_empty() && version.parse::<u64>().is_err() {
            let detail = "Invalid value: must be an unsigned integer";
            return Err(Failure::invalid(facts, &key.1, "metadata.resourceVersion", detail));
        }
        if !version.is_empty() && version != "0" && version != meta(old, "resourceVersion") {
            return Err(Failure::modified(facts, &key.1));
        }
        let scope = if target.status { Scope::Status } else { Scope::Main };
        let next = object::successor(old, new, target.resource, scope);
        validate::check(target.resource, &next)?;
        if dry {
            return Ok(answer(200, &next));
        }
        Ok(answer(200, &self.store_next(target.resource, key, old, next, now_us)))
    }

    /// Writes a successor unless it changes nothing; removing the last finalizer completes a deletion.
    pub(super) fn store_next(
        &mut self,
        resource: Resource,
        key: Key,
        old: &Value,
        next: Value,
        now_us: u64,
    ) -> Value {
        let next = events::filled(resource, next);
        let dying = !meta(&next, "deletionTimestamp").is_empty() && finalizers(&next) == 0;
        if *old == next && !dying {
            return next;
        }
        self.changed();
        if dying {
            self.store.remove(resource, &key, now_us);
            return next;
        }
        self.store.put(resource, key, next, now_us)
    }

    pub(super) fn delete_one(
        &mut self,
        target: &Target,
        name: &str,
        query: &Query,
        request: &Request,
        now_us: u64,
    ) -> Result<Reply, Failure> {
        let facts = target.resource.facts();
        let dry = dry_run(query)?;
        let options: Value = if request.body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&request.body)
                .map_err(|error| Failure::bad_request(format!("error decoding DeleteOptions: {error}")))?
        };
        let key = (target.namespace.clone().unwrap_or_default(), name.to_owned());
        let Some(old) = self.store.value(target.resource, &key) else {
            return Err(Failure::not_found(facts, name));
        };
        let wanted = |field: &str| options["preconditions"][field].as_str().unwrap_or_default();
        check_uid(facts, name, wanted("uid"), meta(&old, "uid"))?;
        let (version, current) = (wanted("resourceVersion"), meta(&old, "resourceVersion"));
        if !version.is_empty() && version != current {
            let detail = format!(
                "Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: {current}"
            );
            return Err(Failure::conflict(facts, name, &detail));
        }
        let gone = finalizers(&old) == 0;
        if !dry {
            self.remove(target.resource, &key, now_us);
        }
        if !gone || facts.returns_deleted {
            let shown = if gone || dry { old } else { self.stored(target.resource, &key) };
            return Ok(answer(200, &shown));
        }
        let mut details = json!({"name": name});
        if !facts.group.is_empty() {
            details["group"] = facts.group.into();
        }
        details["kind"] = facts.plural.into();
        details["uid"] = meta(&old, "uid").into();
        Ok(answer(
            200,
            &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": details}),
        ))
    }

    /// Deletes like the server: immediately, or by deletionTimestamp while finalizers remain. A namespace includes
    /// its contents; owned objects stay (the model has no garbage collector).
    pub(super) fn remove(&mut self, resource: Resource, key: &Key, now_us: u64) -> bool {
        let Some(old) = self.store.value(resource, key) else {
            return false;
        };
        self.changed();
        if finalizers(&old) > 0 {
            if meta(&old, "deletionTimestamp").is_empty() {
                let mut next = old;
                let metadata = &mut next["metadata"];
                metadata["deletionTimestamp"] = self.wall_time(now_us).into();
                metadata["deletionGracePeriodSeconds"] = 0.into();
                if let Some(generation) = metadata.get("generation").and_then(Value::as_u64) {
                    metadata["generation"] = (generation + 1).into();
                }
                if let Value::Object(next) = next {
                    self.store.put(resource, key.clone(), object::ordered(next, resource.facts()), now_us);
                }
            }
            return true;
        }
        self.store.remove(resource, key, now_us);
        if resource == Resource::Namespaces {
            self.empty_namespace(&key.1, now_us);
        }
        true
    }

    fn empty_namespace(&mut self, namespace: &str, now_us: u64) {
        self.implied_namespaces.remove(namespace);
        for resource in Resource::ALL.into_iter().filter(|resource| resource.facts().namespaced) {
            let keys = self.store.table(resource).objects.keys();
            let inside: Vec<Key> = keys.filter(|key| key.0 == namespace).cloned().collect();
            for key in inside {
                self.store.remove(resource, &key, now_us);
            }
        }
    }

    fn namespace_exists(&self, name: &str) -> bool {
        self.implied_namespaces.contains(name)
            || self.store.object(Resource::Namespaces, &(String::new(), name.to_owned())).is_some()
    }

    fn stored(&self, resource: Resource, key: &Key) -> Value {
        self.store.value(resource, key).unwrap_or_default()
    }
}

fn answer(status: u16, object: &Value) -> Reply {
    Reply::json(status, object.to_string().into_bytes())
}

fn dry_run(query: &Query) -> Result<bool, Failure> {
    match query.text("dryRun") {
        "" => Ok(false),
        "All" => Ok(true),
        other => Err(Failure::bad_request(format!(
            "dryRun: Unsupported value: \"{other}\": supported values: \"All\""
        ))),
    }
}

fn check_uid(facts: &Facts, name: &str, wanted: &str, current: &str) -> Result<(), Failure> {
    if wanted.is_empty() || wanted == current {
        return Ok(());
    }
    let detail = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {current}");
    Err(Failure::conflict(facts, name, &detail))
}

/// Decodes a whole object of the target's kind and sets its namespace.
fn body_of(request: &Request, target: &Target) -> Result<Value, Failure> {
    let facts = target.resource.facts();
    if !matches!(request.content_type().as_str(), "" | "application/json") {
        return Err(Failure::unsupported_media("application/json"));
    }
    let body: Value = serde_json::from_slice(&request.body).map_err(|error| {
        Failure::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
    })?;
    let Value::Object(mut body) = body else {
        return Err(Failure::bad_request("couldn't get version/kind; json parse error: not an object"));
    };
    let text = |key: &str| body.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    let expected = facts.api_version();
    if !kind.is_empty() && kind != facts.kind || !api_version.is_empty() && api_version != expected {
        return Err(Failure::bad_request(format!(
            "{kind} in version \"{api_version}\" cannot be handled as a {}: no kind \"{kind}\" is registered for \
             version \"{expected}\"",
            facts.kind
        )));
    }
    let mut metadata = match body.get("metadata") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(metadata)) => metadata.clone(),
        Some(_) => return Err(Failure::bad_request("metadata is not an object")),
    };
    if let Some(namespace) = &target.namespace {
        let given = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
        if !given.is_empty() && given != namespace {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        metadata.insert("namespace".to_owned(), namespace.as_str().into());
    }
    body.insert("metadata".to_owned(), Value::Object(metadata));
    Ok(object::ordered(body, facts))
}

fn initial_status(resource: Resource, new: &mut Value) {
    match resource {
        Resource::Services => new["status"] = json!({"loadBalancer": {}}),
        Resource::Namespaces => new["status"] = json!({"phase": "Active"}),
        Resource::Nodes
        | Resource::Events
        | Resource::ConfigMaps
        | Resource::Secrets
        | Resource::EndpointSlices
        | Resource::Leases
        | Resource::EventsV1 => {}
    }
}
