//! Scale sets: the model and its instances have separate references. The upgrade policy determines when an instance
//! follows the model.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::addresses::{AddressRequester, next_public_address, text};
use super::answer::Answer;
use super::interfaces::Writer;
use super::resource_type::{Provider, ResourcePath, ResourceType};
use super::resources::{
    Body, Etag, IpConfiguration, ProviderState, Resource, Task, Work, ip_configurations, link,
};
use super::rules::Rule;
use super::store::{Sku, key};
use super::write::PlannedFailure;
use super::{ArmModel, Call};

const PROFILE: &str = "virtualMachineProfile";
const NETWORK: &str = "networkProfile";
const INSTANCE_NETWORK: &str = "networkProfileConfiguration";

impl ArmModel {
    /// Prepares the body of a scale set. Omitted sections stay unchanged. A change outside of the network requires a
    /// restart of the instances.
    pub(super) fn prepare_scale_set(
        &mut self,
        id: &str,
        existing: Option<&Resource>,
        body: &mut Body,
        provider_state: &mut ProviderState,
    ) -> Result<(), Answer> {
        if let Some(known) = existing {
            keep_omitted(&mut body.top, &known.body.top);
            keep_omitted(&mut body.properties, &known.body.properties);
            if let (Some(Value::Object(profile)), Some(Value::Object(before))) =
                (body.properties.get_mut(PROFILE), known.body.properties.get(PROFILE))
            {
                keep_omitted(profile, before);
            }
            check_address_skus(id, known, body)?;
            if restart_part(&known.body) != restart_part(body) {
                provider_state.restart_change += 1;
            }
        }
        body.properties.entry("orchestrationMode").or_insert("Uniform".into());
        self.check_configurations(&Writer { kind: ResourceType::ScaleSet, id, body })
    }

    pub(super) fn prepare_instance(
        &mut self,
        id: &str,
        existing: Option<&Resource>,
        body: &mut Body,
        provider_state: &mut ProviderState,
    ) -> Result<(), Answer> {
        body.properties.shift_remove(NETWORK);
        if let Some(known) = existing {
            keep_omitted(&mut body.top, &known.body.top);
            keep_omitted(&mut body.properties, &known.body.properties);
            check_address_skus(id, known, body)?;
        }
        self.check_configurations(&Writer { kind: ResourceType::ScaleSetVm, id, body })?;
        self.address_instance(id, body, provider_state)
    }

    /// Assigns addresses to the IP configurations of an instance; existing ones keep theirs.
    fn address_instance(
        &mut self,
        id: &str,
        body: &Body,
        provider_state: &mut ProviderState,
    ) -> Result<(), Answer> {
        let configurations = ip_configurations(ResourceType::ScaleSetVm, body);
        let paths: BTreeSet<String> = configurations.iter().map(IpConfiguration::path).collect();
        provider_state.addresses.retain(|path, _| paths.contains(path));
        let mut given = std::collections::BTreeMap::new();
        for one in &configurations {
            let own = one.id(id);
            let earlier = provider_state.addresses.get(&one.path()).map(String::as_str);
            let address = self.private_address(
                &AddressRequester { id: &own, owner: id },
                one.properties,
                earlier,
                &given,
            )?;
            if let Ok(parsed) = address.parse() {
                given.insert(parsed, own);
            }
            provider_state.addresses.insert(one.path(), address);
            if !one.properties.contains_key("publicIPAddressConfiguration") {
                provider_state.public_addresses.remove(&one.path());
            } else {
                let given = &mut self.public_addresses;
                provider_state
                    .public_addresses
                    .entry(one.path())
                    .or_insert_with(|| next_public_address(given, false));
            }
        }
        Ok(())
    }

    /// Adjusts the number of instances to the capacity after a write of the model, and updates those that follow
    /// automatically.
    pub(super) fn adjust_scale_set(&mut self, id: &str) {
        let Some(set) = self.resources.get(id).cloned() else { return };
        if text(&set.body.properties, "orchestrationMode") == Some("Flexible") {
            return;
        }
        let capacity = set.body.top.get("sku").and_then(|sku| sku.get("capacity")?.as_u64()).unwrap_or(0);
        let present: Vec<String> =
            self.resources.instances(id).into_iter().map(|one| one.id.clone()).collect();
        let count = present.len() as u64;
        for surplus in present.iter().skip(usize::try_from(capacity).unwrap_or(usize::MAX)) {
            self.resources.remove(surplus);
        }
        let highest = present.iter().filter_map(|id| super::resources::last(id).parse::<u64>().ok()).max();
        for number in
            (0..capacity.saturating_sub(count)).map(|at| at + highest.map_or(0, |highest| highest + 1))
        {
            self.add_instance(&set, number);
        }
        let mode = set.body.properties.get("upgradePolicy").and_then(|policy| policy.get("mode")?.as_str());
        if matches!(mode, Some("Automatic" | "Rolling")) {
            let all = self.resources.instances(id).into_iter().map(Resource::key).collect();
            self.upgrade(id, &all);
        }
    }

    fn add_instance(&mut self, set: &Resource, number: u64) {
        let id = format!("{}/virtualMachines/{number}", set.id);
        let mut body = Body::default();
        body.top.insert("location".to_owned(), self.settings.location.clone().into());
        body.top.insert("sku".to_owned(), set.body.top.get("sku").cloned().unwrap_or(Value::Null));
        body.properties.insert(INSTANCE_NETWORK.to_owned(), network_of(set));
        let mut provider_state =
            ProviderState { restart_change: set.provider_state.restart_change, ..ProviderState::default() };
        // A subnet without free addresses leaves the scale set smaller than its capacity, as in Azure.
        if self.address_instance(&id, &body, &mut provider_state).is_err() {
            return;
        }
        let guid = self.identities.guid();
        let kind = ResourceType::ScaleSetVm;
        self.resources.insert(Resource {
            kind,
            id,
            body,
            etag: Etag::Number(1),
            guid,
            failed: false,
            running: None,
            provider_state,
        });
    }

    /// Updates instances to the model, except those that are protected from actions of their scale set.
    pub(super) fn upgrade(&mut self, set: &str, instances: &BTreeSet<String>) {
        let Some(set) = self.resources.get(set).cloned() else { return };
        for id in instances {
            let Some(instance) = self.resources.get(id).cloned() else { continue };
            if is_protected(&instance) || self.is_latest(&instance, &set) {
                continue;
            }
            let mut body = instance.body.clone();
            body.properties.insert(INSTANCE_NETWORK.to_owned(), network_of(&set));
            let mut provider_state = instance.provider_state.clone();
            if provider_state.restart_change != set.provider_state.restart_change {
                provider_state.restart_change = set.provider_state.restart_change;
                self.restarts += 1;
            }
            if self.address_instance(&instance.id, &body, &mut provider_state).is_err() {
                continue;
            }
            if let Some(known) = self.resources.get_mut(id) {
                (known.body, known.provider_state) = (body, provider_state);
                if let Etag::Number(number) = known.etag {
                    known.etag = Etag::Number(number + 1);
                }
            }
        }
    }

    /// Returns whether an instance matches the model.
    pub(super) fn is_latest(&self, instance: &Resource, set: &Resource) -> bool {
        let network = instance.body.properties.get(INSTANCE_NETWORK);
        instance.provider_state.restart_change == set.provider_state.restart_change
            && network == Some(&network_of(set))
    }

    /// Handles a POST `manualupgrade`: applies all changes of the model that the instances lack.
    pub(super) fn upgrade_by_hand(
        &mut self,
        call: &Call,
        path: &ResourcePath,
        planned_failure: PlannedFailure,
    ) -> Answer {
        let id = self.resource_id(path);
        if path.kind != ResourceType::ScaleSet {
            return super::requests::method_not_supported();
        }
        let Some(set) = self.resources.get(&id).cloned() else { return self.resource_not_found(&id) };
        let wanted: Vec<String> = match super::validate::object(&call.request.body) {
            Ok(body) => {
                let listed = body.get("instanceIds").and_then(Value::as_array);
                listed.into_iter().flatten().filter_map(|id| id.as_str().map(str::to_owned)).collect()
            }
            Err(refusal) => return refusal,
        };
        if let Err(refusal) = self.check_at_rest(&set) {
            return refusal;
        }
        let is_wanted = |name: &str| wanted.iter().any(|wanted| wanted == "*" || wanted == name);
        let all = self.resources.instances(&id);
        let missing = wanted.iter().find(|name| *name != "*" && !all.iter().any(|one| one.name() == *name));
        if let Some(missing) = missing {
            let message = format!(
                "The provided instanceId {missing} is not an active Virtual Machine Scale Set VM instanceId."
            );
            return Answer::flat(400, "InvalidParameter", &message);
        }
        let chosen = all.into_iter().filter(|one| is_wanted(one.name())).map(Resource::key).collect();
        let work = Work { id: self.operation_id(), task: Task::Upgrade(chosen), before: None };
        let version = call.target.query("api-version").unwrap_or_default().to_owned();
        self.run(&id, work, call.answered_at, planned_failure, |model, started| match started {
            Some(operation) => {
                let provider = Provider::Compute;
                let location = model.operation_url(provider, "operationResults", operation, &version);
                let answer = model.asynchronous_of(provider, Answer::empty(202), operation, &version);
                answer.with("Location", location)
            }
            None => Answer::empty(200),
        })
    }

    /// Returns the number of restarts of instances by upgrades.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.restarts
    }
}

/// Returns the part of the model that an instance copies: the interfaces.
fn network_of(set: &Resource) -> Value {
    let profile = set.body.properties.get(PROFILE).and_then(|profile| profile.get(NETWORK));
    let interfaces = profile.and_then(|profile| profile.get("networkInterfaceConfigurations"));
    json!({"networkInterfaceConfigurations": interfaces.cloned().unwrap_or_else(|| json!([]))})
}

/// Returns the part of a model that requires a restart: everything but the network.
fn restart_part(body: &Body) -> (Map<String, Value>, Option<Value>) {
    let mut profile = body.properties.get(PROFILE).and_then(Value::as_object).cloned().unwrap_or_default();
    profile.shift_remove(NETWORK);
    let size = body.top.get("sku").and_then(|sku| sku.get("name").cloned());
    (profile, size)
}

/// Keeps sections that a body omits.
fn keep_omitted(into: &mut Map<String, Value>, before: &Map<String, Value>) {
    for (name, value) in before {
        if !into.contains_key(name) {
            into.insert(name.clone(), value.clone());
        }
    }
}

/// Checks that the SKU of a public IP that belongs to instances does not change.
fn check_address_skus(id: &str, known: &Resource, body: &Body) -> Result<(), Answer> {
    let sku = |one: &IpConfiguration| {
        let own = one.properties.get("publicIPAddressConfiguration")?;
        Some(Sku::of(own.get("sku")).unwrap_or(Sku::Basic))
    };
    let before = ip_configurations(known.kind, &known.body);
    for one in ip_configurations(known.kind, body) {
        let earlier = before.iter().find(|known| known.path() == one.path()).and_then(sku);
        if let (Some(earlier), Some(now)) = (earlier, sku(&one))
            && earlier != now
        {
            let message =
                format!("SKU cannot be updated on public IP addresses of virtual machine scale set {id}.");
            return Err(Rule::ScaleSetPublicIpSku.refuse(&message));
        }
    }
    Ok(())
}

fn is_protected(instance: &Resource) -> bool {
    let policy = instance.body.properties.get("protectionPolicy");
    policy.is_some_and(|policy| policy.get("protectFromScaleSetActions") == Some(&Value::Bool(true)))
}

/// Returns the id of the virtual network of an IP configuration.
pub(super) fn network_of_subnet(configuration: &IpConfiguration) -> Option<String> {
    let subnet = link(configuration.properties, "subnet")?;
    let at = key(subnet).rfind("/subnets/")?;
    Some(subnet[..at].to_owned())
}
