//! The steps in order, and an estimate of the outage.

use serde::{Deserialize, Serialize};

use super::Replacement;
use crate::inventory::{Frontend, Inventory, Scope};
use crate::json::text;
use crate::members::MemberKind;
use crate::resource_id::ResourceId;
use crate::target::Target;
use crate::work::{AddressFate, Work};

/// Number of instances of scale sets that are written concurrently, for the estimate.
const INSTANCES_AT_ONCE: u64 = 50;

/// One step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Description of the step.
    pub title: String,
    /// The objects, by id.
    pub objects: Vec<String>,
    /// True if frontends have no path to a node during this step.
    pub outage: bool,
    /// True if it can be undone.
    pub can_be_undone: bool,
}

/// Estimated time for which frontends have no path to a node, in seconds, from published times of Azure's operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outage {
    /// At best.
    pub least_seconds: u64,
    /// At worst, if every call succeeds.
    pub most_seconds: u64,
}

/// Returns the load balancers that are deleted and those that replace them.
pub(super) fn replacements(inventory: &Inventory, work: &Work) -> Vec<Replacement> {
    let scope = Scope::of(inventory);
    let ip = |frontend: &Frontend<'_>| match &frontend.public {
        Some(public) => {
            let body = inventory.body(public);
            body.map(|body| text(&body["properties"]["ipAddress"]).to_owned()).unwrap_or_default()
        }
        None => frontend.private.map(|private| private.to_string()).unwrap_or_default(),
    };
    let of = |basic: &ResourceId| Replacement {
        basic: basic.to_string(),
        standard: work
            .targets
            .iter()
            .find(|target| target.from.contains(basic))
            .map(|target| target.id.to_string()),
        addresses: scope
            .frontends(inventory)
            .filter(|frontend| frontend.load_balancer == basic)
            .map(|it| ip(&it))
            .collect(),
    };
    work.basic.iter().map(of).collect()
}

/// Returns the steps, in order, without those that have no objects.
pub(super) fn steps(work: &Work) -> Vec<Step> {
    let of_kind = |kind| work.members.iter().filter(move |(_, member)| member.kind == kind).map(|(id, _)| id);
    let with_fate =
        |fate| work.addresses.iter().filter(move |(_, address)| address.fate == fate).map(|(id, _)| id);
    let dynamic = with_fate(AddressFate::Kept).filter(|id| {
        let method = &work.addresses[*id].body["properties"]["publicIPAllocationMethod"];
        !text(method).eq_ignore_ascii_case("Static")
    });
    let balancers = |internal: bool| {
        work.targets
            .iter()
            .filter(move |target| target.public.is_empty() == internal)
            .map(|target: &Target| &target.id)
    };
    let all = [
        step("Make public addresses static", dynamic, false, true),
        step(
            "Detach the models of scale sets, and then each instance",
            of_kind(MemberKind::Model),
            true,
            true,
        ),
        step(
            "Detach the network interfaces of virtual machines",
            of_kind(MemberKind::NetworkInterface),
            true,
            true,
        ),
        step("Delete the Basic load balancers", &work.basic, true, false),
        step(
            "Create the internal Standard load balancers, with the same private addresses",
            balancers(true),
            true,
            true,
        ),
        step("Raise public addresses to the SKU Standard", with_fate(AddressFate::Kept), true, false),
        step("Replace public addresses that cannot be kept", with_fate(AddressFate::Replaced), true, false),
        step(
            "Create the public Standard load balancers, with the same public addresses",
            balancers(false),
            true,
            true,
        ),
        step(
            "Attach the nodes: models first, then instances and network interfaces",
            attached(work),
            true,
            true,
        ),
        step(
            "Read everything back and compare it with the plan",
            work.targets.iter().map(|target| &target.id),
            false,
            true,
        ),
    ];
    all.into_iter().filter(|step| !step.objects.is_empty()).collect()
}

fn attached(work: &Work) -> impl Iterator<Item = &ResourceId> {
    let changes =
        work.members.iter().filter(|(_, member)| !member.attachments.is_empty() || member.probe.is_some());
    changes.map(|(id, _)| id)
}

fn step<'a>(
    title: &str,
    objects: impl IntoIterator<Item = &'a ResourceId>,
    outage: bool,
    can_be_undone: bool,
) -> Step {
    let objects = objects.into_iter().map(ToString::to_string).collect();
    Step { title: title.to_owned(), objects, outage, can_be_undone }
}

/// Returns the expected outage. It depends on the number of instances, and not on the number of Services.
pub(super) fn outage(work: &Work) -> Outage {
    if work.basic.is_empty() {
        return Outage::default();
    }
    let has_scale_sets = work.scale_sets().next().is_some();
    let rounds = |instances: u64| instances.div_ceil(INSTANCES_AT_ONCE).max(1);
    let by_instance = if has_scale_sets { rounds(work.instances) } else { 0 };
    let attaches = attached(work).next().is_some();
    let (detach, attach) = (by_instance, if attaches { by_instance } else { 0 });
    Outage {
        least_seconds: 10 * detach + 60 + 10 + 10 + 10 * attach,
        most_seconds: 70 * detach + 90 + 30 + 30 + 70 * attach,
    }
}

/// Returns the changes that cannot be undone.
pub(super) fn irreversible(work: &Work) -> Vec<String> {
    let mut all = Vec::new();
    if !work.basic.is_empty() {
        all.push("Azure creates no Basic load balancer any more: the deletion is final.".to_owned());
    }
    if !work.addresses.is_empty() {
        all.push("A public address does not return to the SKU Basic.".to_owned());
    }
    if work.addresses.values().any(|address| address.fate == AddressFate::Replaced) {
        all.push("An address that is replaced is lost.".to_owned());
    }
    if work.targets.iter().any(|target| !target.private.is_empty()) {
        all.push(
            "Between the deletion and the creation of an internal load balancer its private addresses are free. If something \
             else in the subnet takes one, it is lost."
                .to_owned(),
        );
    }
    all
}
