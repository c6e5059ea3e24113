//! GET, PUT, PATCH, DELETE and lists of resources other than load balancers. `prepare` and `scale_set` implement the
//! differences between types.

use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::durations::TimedWrite;
use super::operation::{End, Operation};
use super::render;
use super::resource_type::{Part, Provider, ResourcePath, ResourceType};
use super::resources::{Body, Etag, ProviderState, Resource, Task, Work, last};
use super::rules::Rule;
use super::settings::UnfinishedWrite;
use super::store::key;
use super::validate;
use super::write::PlannedFailure;
use super::{ArmModel, Call, Method};

/// Top-level fields that no PUT sets.
const TOP_READ_ONLY: [&str; 7] = ["id", "name", "type", "etag", "properties", "instanceId", "kind"];

/// One PUT.
pub(super) struct ResourcePut<'a> {
    pub(super) path: &'a ResourcePath,
    pub(super) body: Map<String, Value>,
    pub(super) if_match: Option<&'a str>,
    pub(super) api_version: &'a str,
    pub(super) answered_at: u64,
    pub(super) planned_failure: PlannedFailure,
}

impl ArmModel {
    pub(super) fn answer_resource(
        &mut self,
        call: &Call,
        path: &ResourcePath,
        planned_failure: PlannedFailure,
    ) -> Answer {
        match (&path.part, call.request.method) {
            (Part::One, Method::Get) => self.read_resource(path),
            (Part::One, Method::Put) => self.put_requested(call, path, planned_failure),
            (Part::One, Method::Patch) => self.patch_resource(call, path),
            (Part::One, Method::Delete) => self.delete_resource(call, path, planned_failure),
            (Part::List, Method::Get) => self.list_resources(call, path),
            (Part::Action(action), Method::Get) => self.get_below(call, path, action),
            (Part::Action(action), Method::Post) if action == "manualupgrade" => {
                self.upgrade_by_hand(call, path, planned_failure)
            }
            (
                Part::One | Part::List | Part::Action(_),
                Method::Head | Method::Put | Method::Post | Method::Patch | Method::Delete | Method::Other,
            ) => method_not_supported(),
        }
    }

    pub(super) fn resource_id(&self, path: &ResourcePath) -> String {
        path.kind.id(&self.settings.resource_group_id(), &path.names)
    }

    fn read_resource(&self, path: &ResourcePath) -> Answer {
        let id = self.resource_id(path);
        if let Some((parent, list)) = path.kind.embedded_in() {
            let parent_id = parent.id(&self.settings.resource_group_id(), &path.names[..1]);
            let Some(parent) = self.resources.get(&parent_id) else {
                return self.resource_not_found(&parent_id);
            };
            let shown = self.show(parent);
            let all = shown["properties"][list].as_array();
            let found = all.into_iter().flatten().find(|one| is_named(one, last(&id)));
            return found.map_or_else(|| Answer::not_found(&id), |one| Answer::json(200, render::text(one)));
        }
        if path.kind == ResourceType::ScaleSetVm && last(&id).parse::<u64>().is_err() {
            return instance_is_no_number();
        }
        match self.resources.get(&id) {
            Some(found) => Answer::json(200, render::text(&self.show(found))).with("ETag", found.etag.text()),
            None => self.resource_not_found(&id),
        }
    }

    fn list_resources(&self, call: &Call, path: &ResourcePath) -> Answer {
        if !path.names.is_empty() {
            return self.list_below(path);
        }
        let wanted =
            call.target.query("$filter").and_then(|filter| filter.split('\'').nth(3)).map(str::to_owned);
        let in_set = |resource: &Resource| match &wanted {
            Some(set) => {
                let own = super::resources::link(&resource.body.properties, "virtualMachineScaleSet");
                own.is_some_and(|own| key(own) == key(set))
            }
            None => true,
        };
        let all: Vec<Value> =
            self.resources.of(path.kind).filter(|one| in_set(one)).map(|one| self.show(one)).collect();
        let group = match &call.target.resource_group {
            Some(_) => self.settings.resource_group_id(),
            None => format!("/subscriptions/{}", self.settings.subscription),
        };
        let list = format!("{group}/providers/{}", path.kind.name());
        self.paged(call, &list, &all)
    }

    /// Lists the children of one resource: instances of a scale set, subnets or security rules.
    fn list_below(&self, path: &ResourcePath) -> Answer {
        let group = self.settings.resource_group_id();
        let value: Vec<Value> = match path.kind.embedded_in() {
            Some((parent, list)) => {
                let parent = parent.id(&group, &path.names);
                let Some(parent) = self.resources.get(&parent) else {
                    return self.resource_not_found(&parent);
                };
                self.show(parent)["properties"][list].as_array().cloned().unwrap_or_default()
            }
            None => {
                let parent = ResourceType::ScaleSet.id(&group, &path.names);
                if self.resources.get(&parent).is_none() {
                    return self.resource_not_found(&parent);
                }
                self.resources.instances(&parent).into_iter().map(|one| self.show(one)).collect()
            }
        };
        Answer::json(200, json!({ "value": value }).to_string().into_bytes())
    }

    fn put_requested(&mut self, call: &Call, path: &ResourcePath, planned_failure: PlannedFailure) -> Answer {
        let body = match validate::object(&call.request.body) {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let put = ResourcePut {
            path,
            body,
            if_match: call.request.header("If-Match").filter(|_| self.settings.enforce_if_match),
            api_version: call.target.query("api-version").unwrap_or_default(),
            answered_at: call.answered_at,
            planned_failure,
        };
        self.put_resource(put).unwrap_or_else(|refusal| refusal)
    }

    pub(super) fn put_resource(&mut self, put: ResourcePut) -> Result<Answer, Answer> {
        if put.path.kind.embedded_in().is_some() {
            return self.put_embedded(put);
        }
        let id = self.resource_id(put.path);
        let existing = self.resources.get(&id).cloned();
        let id = existing.as_ref().map_or(id, |known| known.id.clone());
        self.check_put(&put, &id, existing.as_ref())?;
        let mut body = read_body(put.body)?;
        if let Some(known) = &existing
            && let Some(location) = known.body.top.get("location")
        {
            body.top.insert("location".to_owned(), location.clone());
        } else if put.path.kind != ResourceType::ScaleSetVm && !body.top.contains_key("location") {
            let message = "The location property is required for this definition.";
            return Err(Answer::gateway(400, "LocationRequired", message));
        }
        let mut provider_state =
            existing.as_ref().map(|known| known.provider_state.clone()).unwrap_or_default();
        self.prepare(&id, put.path.kind, existing.as_ref(), &mut body, &mut provider_state)?;
        let at_rest = existing.as_ref().is_some_and(|known| !known.failed);
        let is_same = existing
            .as_ref()
            .is_some_and(|known| known.body == body && known.provider_state == provider_state);
        if is_same && at_rest {
            self.journal.counters.unchanged += 1;
            if put.path.kind.provider() == Provider::Network {
                return Ok(self.unchanged_resource(&id, put.path.kind, put.api_version));
            }
        } else {
            self.journal.counters.applied += 1;
        }
        Ok(self.apply_put(
            Change { id, kind: put.path.kind, existing, body, provider_state, is_same },
            (put.answered_at, put.api_version),
            put.planned_failure,
        ))
    }

    fn check_put(&self, put: &ResourcePut, id: &str, existing: Option<&Resource>) -> Result<(), Answer> {
        if let Some(name) = put.body.get("name").and_then(Value::as_str)
            && put.path.kind != ResourceType::ScaleSetVm
            && key(name) != key(last(id))
        {
            let message = format!(
                "The provided resource name '{name}' did not match the name in the Url '{}'.",
                last(id)
            );
            return Err(Answer::gateway(400, "MismatchingResourceName", &message));
        }
        validate::check_name(last(id))?;
        if put.path.kind == ResourceType::ScaleSetVm {
            if last(id).parse::<u64>().is_err() {
                return Err(instance_is_no_number());
            }
            if existing.is_none() {
                return Err(self.resource_not_found(id));
            }
        }
        self.check_etag(put.if_match, id, existing)?;
        match existing {
            Some(known) => self.check_at_rest(known),
            None => Ok(()),
        }
    }

    fn check_etag(&self, given: Option<&str>, id: &str, existing: Option<&Resource>) -> Result<(), Answer> {
        let Some(given) = given.map(str::trim) else { return Ok(()) };
        let Some(existing) = existing.filter(|known| given != "*" && known.etag.text() != given) else {
            return Ok(());
        };
        match existing.etag {
            Etag::Weak(actual) => {
                let weak = given.starts_with("W/");
                let given =
                    if weak { given.to_owned() } else { format!("W/\"{}\"", given.trim_matches('"')) };
                if given == existing.etag.text() {
                    return Ok(());
                }
                Err(Answer::etag_mismatch(&given, actual, id))
            }
            Etag::Number(_) => {
                let quoted = format!("\"{}\"", given.trim_matches('"'));
                if quoted == existing.etag.text() {
                    return Ok(());
                }
                let message = format!(
                    "Etag provided in if-match header {quoted} does not match etag {} of resource.",
                    existing.etag.text()
                );
                Err(Answer::flat(412, "PreconditionFailed", &message))
            }
        }
    }

    /// Refuses a write of a resource with a running operation; a scale set's operation blocks its instances too.
    pub(super) fn check_at_rest(&self, resource: &Resource) -> Result<(), Answer> {
        let set = resource
            .id
            .split("/virtualMachines/")
            .next()
            .filter(|_| resource.kind == ResourceType::ScaleSetVm);
        let own = std::iter::once(resource).chain(set.and_then(|set| self.resources.get(set)));
        let busy = own.filter_map(|one| one.running.as_ref().map(|work| (one, work))).next();
        let Some((busy, work)) = busy else { return Ok(()) };
        match resource.kind.provider() {
            Provider::Network => {
                let operation = format!("Put{}Operation", last(&resource.kind.name()));
                Err(Answer::locked(&operation, work.id, &busy.id, self.settings.lock_retry_after_s)
                    .with("Retry-After", self.settings.lock_retry_after_s.to_string()))
            }
            Provider::Compute => {
                let message = format!(
                    "Operation is not allowed on {} because an operation on {} is in progress.",
                    resource.id, busy.id
                );
                Err(Rule::OperationRuns.refuse(&message))
            }
        }
    }

    fn unchanged_resource(&mut self, id: &str, kind: ResourceType, api_version: &str) -> Answer {
        let Some(found) = self.resources.get(id) else { return self.resource_not_found(id) };
        let mut answer = Answer::json(200, render::text(&self.show(found)));
        if kind.provider() == Provider::Compute {
            answer = answer.with("ETag", found.etag.text());
        }
        if self.time_of_kind(found).is_none() {
            return answer;
        }
        let owner = found.key();
        let now = self.now;
        self.with_ended_operation(answer, &owner, kind.provider(), (now, api_version))
    }

    fn apply_put(
        &mut self,
        change: Change,
        (answered_at, api_version): (u64, &str),
        planned_failure: PlannedFailure,
    ) -> Answer {
        let Change { id, kind, existing, body, provider_state, is_same } = change;
        let created = existing.is_none();
        let etag = match (kind.provider(), existing.as_ref().map(|known| known.etag)) {
            // Recorded: the compute provider starts an operation even for the current state, and keeps the etag.
            (Provider::Compute, Some(Etag::Number(number))) => Etag::Number(number + u64::from(!is_same)),
            (Provider::Compute, Some(Etag::Weak(_)) | None) => Etag::Number(1),
            (Provider::Network, _) => Etag::Weak(self.identities.guid()),
        };
        let guid = existing.as_ref().map_or_else(|| self.identities.guid(), |known| known.guid);
        let before = existing.map(|known| known.body);
        self.resources.insert(Resource {
            kind,
            id: id.clone(),
            body,
            etag,
            guid,
            failed: false,
            running: None,
            provider_state,
        });
        let task = if created { Task::Create } else { Task::Update };
        let status = if created { 201 } else { 200 };
        let work = Work { id: self.operation_id(), task, before };
        self.run(&id, work, answered_at, planned_failure, |model, started| {
            let Some(found) = model.resources.get(&id) else { return Answer::empty(status) };
            let mut body = model.show(found);
            if kind == ResourceType::PublicIpAddress && created && started.is_some() {
                // Recorded: a new public IP reports Updating, and not Creating.
                body["properties"]["provisioningState"] = "Updating".into();
            }
            let mut answer = Answer::json(status, render::text(&body));
            if kind.provider() == Provider::Compute {
                answer = answer.with("ETag", found.etag.text());
            }
            match started {
                Some(operation) => model.asynchronous_of(kind.provider(), answer, operation, api_version),
                None => answer,
            }
        })
    }

    /// Applies a change to a resource: immediately, or by an operation if this type of write takes time.
    pub(super) fn run(
        &mut self,
        id: &str,
        work: Work,
        answered_at: u64,
        planned_failure: PlannedFailure,
        answer: impl FnOnce(&Self, Option<super::random::Guid>) -> Answer,
    ) -> Answer {
        let duration = self.resources.get(id).and_then(|found| self.time_of_kind(found));
        let (operation, owner) = (work.id, key(id));
        if let Some(found) = self.resources.get_mut(id) {
            found.running = Some(work);
        }
        let Some(duration) = duration else {
            self.complete_resource(&owner, operation, &End::Succeeded);
            return answer(self, None);
        };
        let planned = self.planned_end(planned_failure);
        let ends_at = self.operation_end(answered_at, duration);
        let provider = self.resources.get(id).map_or(Provider::Network, |found| found.kind.provider());
        let record = Operation { owner, provider, ends_at, planned, ended: None };
        self.operations.start(operation, record, self.now);
        self.follow_references();
        answer(self, Some(operation))
    }

    pub(super) fn operation_id(&mut self) -> super::random::Guid {
        self.identities.guid()
    }

    fn time_of_kind(&self, resource: &Resource) -> Option<super::settings::Latency> {
        if !resource.kind.is_long_running() {
            return None;
        }
        let write = match resource.kind {
            ResourceType::PublicIpAddress => TimedWrite::PublicIp,
            ResourceType::ScaleSet => TimedWrite::ScaleSet,
            ResourceType::ScaleSetVm => TimedWrite::Instance,
            ResourceType::NetworkInterface
            | ResourceType::VirtualNetwork
            | ResourceType::Subnet
            | ResourceType::NetworkSecurityGroup
            | ResourceType::SecurityRule
            | ResourceType::NatGateway
            | ResourceType::RouteTable
            | ResourceType::AvailabilitySet
            | ResourceType::VirtualMachine => TimedWrite::Other,
        };
        self.settings.time_of(write)
    }

    /// Ends the operation of a resource.
    pub(super) fn complete_resource(&mut self, owner: &str, id: super::random::Guid, end: &End) {
        let Some(resource) = self.resources.get_mut(owner) else { return };
        let Some(work) = resource.running.take_if(|work| work.id == id) else { return };
        let succeeded = *end == End::Succeeded;
        resource.failed = !succeeded;
        let is_scale_set = resource.kind == ResourceType::ScaleSet;
        if !succeeded {
            let reverted = match self.settings.unfinished_write {
                UnfinishedWrite::Reverted => work.before,
                UnfinishedWrite::Kept => None,
            };
            if let Some(before) = reverted {
                resource.body = before;
            }
        } else if work.task == Task::Delete {
            self.remove_resource(owner);
        } else if let Task::Upgrade(instances) = work.task {
            self.upgrade(owner, &instances);
        } else if is_scale_set {
            self.adjust_scale_set(owner);
        }
        self.follow_references();
    }

    fn patch_resource(&mut self, call: &Call, path: &ResourcePath) -> Answer {
        let id = self.resource_id(path);
        let tags = match validate::object(&call.request.body).map(|mut body| body.shift_remove("tags")) {
            Ok(tags) => tags.unwrap_or_else(|| json!({})),
            Err(refusal) => return refusal,
        };
        let etag = Etag::Weak(self.identities.guid());
        let Some(found) = self.resources.get_mut(&id) else { return self.resource_not_found(&id) };
        found.body.top.insert("tags".to_owned(), tags);
        found.etag = match found.etag {
            Etag::Weak(_) => etag,
            Etag::Number(number) => Etag::Number(number + 1),
        };
        let shown = self.resources.get(&id).map(|found| self.show(found));
        Answer::json(200, render::text(&shown))
    }

    /// Returns the gateway's answer for a missing resource. The gateway knows all resources.
    pub(super) fn resource_not_found(&self, id: &str) -> Answer {
        let group = &self.settings.resource_group;
        let named = id.split("/providers/").nth(1).unwrap_or(id);
        let message = format!(
            "The Resource '{named}' under resource group '{group}' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix"
        );
        Answer::gateway(404, "ResourceNotFound", &message)
    }
}

/// A PUT that has passed all checks.
struct Change {
    id: String,
    kind: ResourceType,
    existing: Option<Resource>,
    body: Body,
    provider_state: ProviderState,
    /// True if the PUT requests the current state.
    is_same: bool,
}

fn read_body(mut top: Map<String, Value>) -> Result<Body, Answer> {
    let properties = match top.shift_remove("properties") {
        Some(Value::Object(properties)) => properties,
        None | Some(Value::Null) => Map::new(),
        Some(_) => return Err(validate::malformed("The properties of a resource must be an object.")),
    };
    top.retain(|name, value| !TOP_READ_ONLY.contains(&name.as_str()) && !value.is_null());
    Ok(Body { top, properties })
}

pub(super) fn is_named(value: &Value, name: &str) -> bool {
    value.get("name").and_then(Value::as_str).is_some_and(|known| key(known) == key(name))
}

pub(super) fn method_not_supported() -> Answer {
    Answer::gateway(405, "HttpMethodNotSupported", "The requested resource does not support this method.")
}

fn instance_is_no_number() -> Answer {
    let message = "Virtual Machine Scale Set VM instanceId must be a number.";
    let error = json!({"error": {"code": "InvalidParameter", "message": message, "target": "instanceId"}});
    let mut answer = Answer::json(400, error.to_string().into_bytes());
    answer.code = Some("InvalidParameter".into());
    answer
}
