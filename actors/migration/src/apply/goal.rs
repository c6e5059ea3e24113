//! Goals of single objects. A goal is evaluated by the live body of its object and the journal alone. So it does not
//! matter which process began to work on it, or how far that process came.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::call::Call;
use crate::inventory::{Frontend, Inventory};
use crate::json::{id, is_basic, items, object, provisioning, text};
use crate::members::{MemberKind, RemovedReferences, attached, detached, put_body};
use crate::resource_id::ResourceId;
use crate::target::{PrivateAddress, completed, missing, settings, without};
use crate::work::{Address, AddressFate, Work, by_address, by_interface};

/// Goal for one object.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Goal {
    /// The existence and the SKU of a load balancer are known.
    Inspect(ResourceId),
    /// A public address is static.
    Static(ResourceId),
    /// A Basic load balancer has the settings on which the plan is based.
    Unchanged(ResourceId),
    /// A node does not refer to the load balancers and addresses that are removed.
    Detach(MemberKind, ResourceId),
    /// The instances of a scale set are known.
    Instances(ResourceId),
    /// A Basic load balancer does not exist.
    Delete(ResourceId),
    /// A private address of this target is free.
    Free(usize, PrivateAddress),
    /// A target exists.
    Build(usize),
    /// A public address is Standard.
    Upgrade(ResourceId),
    /// The pools of a load balancer name their members by address.
    Convert(ResourceId),
    /// A node refers to everything that replaces the removed resources.
    Attach(MemberKind, ResourceId),
}

/// Evaluation of a live body against a goal.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Evaluation {
    /// The goal is reached.
    Reached,
    /// This call brings the object nearer to its goal.
    Write(Call),
    /// The goal must wait, for this reason.
    Wait(String),
    /// The goal cannot be reached, for this reason.
    Never(String),
}

/// Inputs of the evaluation of goals, besides the live body.
pub(super) struct Context<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) work: &'a Work,
    pub(super) removed_references: &'a RemovedReferences,
    /// Frontends of each target that cannot be built now.
    pub(super) unavailable: &'a dyn Fn(usize) -> BTreeSet<String>,
    /// Targets that are not created now.
    pub(super) omitted: &'a dyn Fn() -> BTreeSet<ResourceId>,
    /// True if a Basic load balancer was deleted.
    pub(super) past_return: bool,
}

impl Goal {
    /// Returns the call that reads the object.
    pub(super) fn read(&self, work: &Work) -> Call {
        match self {
            Goal::Inspect(id)
            | Goal::Static(id)
            | Goal::Unchanged(id)
            | Goal::Detach(_, id)
            | Goal::Delete(id)
            | Goal::Upgrade(id)
            | Goal::Convert(id)
            | Goal::Attach(_, id) => Call::get(id),
            Goal::Instances(id) => Call::get(&id.child_list("virtualMachines")),
            Goal::Free(_, address) => {
                let network =
                    address.subnet.up_to("virtualNetworks").unwrap_or_else(|| address.subnet.clone());
                let check = network.child_list("CheckIPAddressAvailability");
                Call::get_with(&check, &format!("ipAddress={}", address.address))
            }
            Goal::Build(target) => Call::get(&work.targets[*target].id),
        }
    }

    /// Returns the object, for operators.
    pub(super) fn object(&self, work: &Work) -> String {
        match self {
            Goal::Inspect(id)
            | Goal::Static(id)
            | Goal::Unchanged(id)
            | Goal::Detach(_, id)
            | Goal::Instances(id)
            | Goal::Delete(id)
            | Goal::Upgrade(id)
            | Goal::Convert(id)
            | Goal::Attach(_, id) => id.to_string(),
            Goal::Free(_, address) => format!("{} in {}", address.address, address.subnet.name()),
            Goal::Build(target) => work.targets[*target].id.to_string(),
        }
    }

    /// Returns the node that the goal changes.
    pub(super) fn node(&self) -> Option<&ResourceId> {
        match self {
            Goal::Detach(_, id) | Goal::Attach(_, id) => Some(id),
            Goal::Inspect(_)
            | Goal::Static(_)
            | Goal::Unchanged(_)
            | Goal::Instances(_)
            | Goal::Delete(_)
            | Goal::Free(..)
            | Goal::Build(_)
            | Goal::Upgrade(_)
            | Goal::Convert(_) => None,
        }
    }

    /// Evaluates the goal by the live body, which is `None` if the object does not exist.
    pub(super) fn evaluate(&self, live: Option<&Value>, context: &Context<'_>) -> Evaluation {
        if let Some(body) = live
            && self.waits_for_operations()
            && let state = provisioning(body)
            && matches!(state.as_str(), "updating" | "creating" | "deleting" | "migrating")
        {
            return Evaluation::Wait(format!("its provisioning state is {state}"));
        }
        match self {
            Goal::Inspect(_) | Goal::Instances(_) => Evaluation::Reached,
            Goal::Static(id) => make_static(id, live, context),
            Goal::Unchanged(id) => unchanged(id, live, context),
            Goal::Detach(kind, id) => detach(*kind, id, live, context),
            Goal::Delete(id) => match live {
                Some(body) if is_basic(body) => Evaluation::Write(Call::delete(id)),
                Some(_) | None => Evaluation::Reached,
            },
            Goal::Free(..) => match live.map(|body| body["available"].as_bool()) {
                Some(Some(true)) => Evaluation::Reached,
                Some(Some(false) | None) | None => Evaluation::Wait(
                    "the address is in use by something else, which the subnet's ipConfigurations name"
                        .to_owned(),
                ),
            },
            Goal::Build(target) => build(*target, live, context),
            Goal::Upgrade(id) => match context.work.addresses.get(id) {
                Some(address) => match address.fate {
                    AddressFate::Kept => upgrade(id, address, live),
                    AddressFate::Replaced => replace(id, address, live),
                },
                None => Evaluation::Reached,
            },
            Goal::Convert(id) => convert(id, live, context),
            Goal::Attach(kind, id) => attach(*kind, id, live, context),
        }
    }

    fn waits_for_operations(&self) -> bool {
        match self {
            Goal::Inspect(_) | Goal::Instances(_) | Goal::Free(..) => false,
            Goal::Static(_)
            | Goal::Unchanged(_)
            | Goal::Detach(..)
            | Goal::Delete(_)
            | Goal::Build(_)
            | Goal::Upgrade(_)
            | Goal::Convert(_)
            | Goal::Attach(..) => true,
        }
    }
}

fn etag(live: &Value) -> Option<String> {
    Some(text(&live["etag"])).filter(|etag| !etag.is_empty()).map(str::to_owned)
}

fn has_failed(live: &Value) -> bool {
    matches!(provisioning(live).as_str(), "failed" | "canceled")
}

fn make_static(id: &ResourceId, live: Option<&Value>, context: &Context<'_>) -> Evaluation {
    let Some(address) = context.work.addresses.get(id) else { return Evaluation::Reached };
    let Some(live) = live else {
        return match address.fate {
            AddressFate::Kept => Evaluation::Never("the public address does not exist any more".to_owned()),
            AddressFate::Replaced => Evaluation::Reached,
        };
    };
    match address.fate {
        // Azure refuses static Basic addresses of IPv6.
        AddressFate::Replaced => Evaluation::Reached,
        AddressFate::Kept => match changed_address(address, live) {
            Some(never) => never,
            None if text(&live["properties"]["publicIPAllocationMethod"]).eq_ignore_ascii_case("Static") => {
                Evaluation::Reached
            }
            None => {
                let mut body = writable(live);
                body["properties"]["publicIPAllocationMethod"] = json!("Static");
                Evaluation::Write(Call::put(id, body, etag(live)))
            }
        },
    }
}

/// Returns a failure if the public address differs from that in the journal.
fn changed_address(address: &Address, live: &Value) -> Option<Evaluation> {
    let ip = text(&live["properties"]["ipAddress"]).parse().ok();
    (address.ip.is_some() && ip != address.ip).then(|| {
        let shown = ip.map_or_else(|| "none".to_owned(), |ip| ip.to_string());
        Evaluation::Never(format!(
            "its address was {}, and is {shown} now",
            address.ip.map_or(String::new(), |ip| ip.to_string())
        ))
    })
}

/// Returns a public address without the fields that Azure computes.
fn writable(live: &Value) -> Value {
    let mut body = live.clone();
    let properties = object(&mut body, "properties");
    for key in ["provisioningState", "resourceGuid", "ipConfiguration", "natGateway"] {
        properties.remove(key);
    }
    body
}

fn upgrade(id: &ResourceId, address: &Address, live: Option<&Value>) -> Evaluation {
    let Some(live) = live else {
        return Evaluation::Never("the public address does not exist any more".to_owned());
    };
    if let Some(never) = changed_address(address, live) {
        return never;
    }
    if !is_basic(live) && !has_failed(live) {
        return Evaluation::Reached;
    }
    if let Some(user) = crate::json::id(&live["properties"]["ipConfiguration"]).filter(|_| is_basic(live)) {
        return Evaluation::Wait(format!("it is still attached to {user}"));
    }
    let mut body = writable(live);
    body["sku"] = json!({ "name": "Standard", "tier": "Regional" });
    let properties = object(&mut body, "properties");
    properties.insert("publicIPAllocationMethod".to_owned(), json!("Static"));
    Evaluation::Write(Call::put(id, body, etag(live)))
}

fn replace(id: &ResourceId, address: &Address, live: Option<&Value>) -> Evaluation {
    match live {
        Some(live) if !is_basic(live) => Evaluation::Reached,
        Some(live) => match crate::json::id(&live["properties"]["ipConfiguration"]) {
            Some(user) => Evaluation::Wait(format!("it is still attached to {user}")),
            None => Evaluation::Write(Call::delete(id)),
        },
        None => {
            let mut body = writable(&address.body);
            for key in ["etag", "zones"] {
                body.as_object_mut().into_iter().for_each(|body| drop(body.remove(key)));
            }
            body["sku"] = json!({ "name": "Standard", "tier": "Regional" });
            let properties = object(&mut body, "properties");
            properties.remove("ipAddress");
            properties.insert("publicIPAllocationMethod".to_owned(), json!("Static"));
            Evaluation::Write(Call::put(id, body, None))
        }
    }
}

fn unchanged(id: &ResourceId, live: Option<&Value>, context: &Context<'_>) -> Evaluation {
    let then = context.inventory.body(id).map(settings);
    match live {
        Some(live) if is_basic(live) && Some(settings(live)) != then && !context.past_return => {
            Evaluation::Never("it has changed since the plan was made: make a new plan".to_owned())
        }
        Some(_) | None => Evaluation::Reached,
    }
}

fn detach(kind: MemberKind, id: &ResourceId, live: Option<&Value>, context: &Context<'_>) -> Evaluation {
    // A deleted node refers to nothing.
    let Some(live) = live else { return Evaluation::Reached };
    match detached(kind, live, context.removed_references) {
        Some(edited) => Evaluation::Write(Call::put(id, put_body(kind, &edited), etag(live))),
        None if has_failed(live) => Evaluation::Write(Call::put(id, put_body(kind, live), etag(live))),
        None => Evaluation::Reached,
    }
}

fn attach(kind: MemberKind, id: &ResourceId, live: Option<&Value>, context: &Context<'_>) -> Evaluation {
    let (Some(live), Some(member)) = (live, context.work.member(id)) else { return Evaluation::Reached };
    let omitted = (context.omitted)();
    let is_there = |id: &ResourceId| !omitted.iter().any(|lb| id.below(lb).is_some());
    let mut attachments = Cow::Borrowed(&member.attachments);
    if !omitted.is_empty() {
        for attachment in attachments.to_mut() {
            attachment.repoint(|id| is_there(id).then(|| id.clone()));
        }
    }
    let probe = member.probe.as_ref().filter(|probe| is_there(probe));
    match attached(kind, live, &attachments, probe) {
        Some(edited) => Evaluation::Write(Call::put(id, put_body(kind, &edited), etag(live))),
        None if has_failed(live) => Evaluation::Write(Call::put(id, put_body(kind, live), etag(live))),
        None => Evaluation::Reached,
    }
}

fn build(target: usize, live: Option<&Value>, context: &Context<'_>) -> Evaluation {
    let target_index = target;
    let target = &context.work.targets[target_index];
    let wanted = without(&target.body, &(context.unavailable)(target_index));
    match live {
        // Azure refuses pools and rules without a frontend.
        _ if Frontend::all(&target.id, &wanted).next().is_none() => Evaluation::Reached,
        None => Evaluation::Write(Call::put(&target.id, wanted, None)),
        Some(live) if is_basic(live) => Evaluation::Never("a Basic load balancer has its name".to_owned()),
        Some(live) if missing(&wanted, live).is_empty() && !has_failed(live) => Evaluation::Reached,
        Some(live) => Evaluation::Write(Call::put(&target.id, completed(&wanted, live), etag(live))),
    }
}

fn convert(id: &ResourceId, live: Option<&Value>, context: &Context<'_>) -> Evaluation {
    let (Some(live), Some(wanted)) = (live, context.work.pools.get(id)) else {
        return Evaluation::Never("the load balancer does not exist any more".to_owned());
    };
    let pools = items(&live["properties"]["backendAddressPools"]);
    let ours = |name: &String| pools.iter().find(|pool| text(&pool["name"]).eq_ignore_ascii_case(name));
    let mut unconverted = Vec::new();
    for (name, count) in wanted {
        // A deleted pool has no members.
        let Some(pool) = ours(name) else { continue };
        match by_address(pool) {
            0 if by_interface(pool) > 0 => unconverted.push(name),
            there if there < *count => {
                return Evaluation::Wait(format!("pool {name} has {there} of {count} addresses"));
            }
            _ => {}
        }
    }
    if unconverted.is_empty() {
        return Evaluation::Reached;
    }
    Evaluation::Write(Call::post(&id.child_list("migrateToIpBased"), json!({ "pools": unconverted })))
}

/// Returns the instances of a page of a list.
pub(super) fn instances(page: &Value) -> impl Iterator<Item = ResourceId> + '_ {
    items(&page["value"]).iter().filter_map(id)
}
