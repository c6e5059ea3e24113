//! The machine that reads everything in scope. Each resource determines what must be read next: pools name their
//! members, and members name their load balancers, subnets and addresses. The survey ends when everything that is named
//! has been read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mechanisms::backoff::Backoff;
use model::machine::{Machine, Now};
use serde_json::Value;

use super::scope::{Scope, balancers_of};
use super::{Cluster, Inventory, Listed, ReadResult};
use crate::call::{Call, CallOutcome, Reply, classify};
use crate::json::{id, items, text};
use crate::members::{MemberKind, configurations};
use crate::resource_id::ResourceId;

/// Maximum number of concurrent calls.
const AT_ONCE: usize = 16;
/// Maximum number of tries of a call; the machine waits before each further try.
const TRIES: u32 = 6;
const DELAYS: Backoff = Backoff(&[
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(30),
]);

/// The number of a call; its reply has the same one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CallId(pub u64);

/// Something to read.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Want {
    Resource(ResourceId),
    List(ResourceId),
}

/// A call without an answer so far.
struct PendingCall {
    want: Want,
    tries: u32,
    /// The items of earlier pages.
    items: Vec<Value>,
    /// The next page.
    next: Option<String>,
}

/// Reads everything in scope.
pub struct Survey {
    inventory: Inventory,
    pending: BTreeMap<CallId, PendingCall>,
    waiting: Vec<(Now, PendingCall)>,
    known: BTreeSet<Want>,
    last: u64,
    done: bool,
}

/// Inputs of the machine.
#[derive(Clone, Debug)]
pub enum SurveyIn {
    /// Start the survey.
    Start,
    /// The answer to a call, or the reason why there is none.
    Answer(CallId, Result<Reply, String>),
}

/// Outputs of the machine.
#[derive(Clone, Debug)]
pub enum SurveyOut {
    /// Make this call.
    Call(CallId, Call),
    /// Everything was read.
    Done(Box<Inventory>),
}

impl Survey {
    /// Returns a survey of this cluster.
    #[must_use]
    pub fn new(cluster: Cluster) -> Survey {
        Survey {
            inventory: Inventory::of(cluster),
            pending: BTreeMap::new(),
            waiting: Vec::new(),
            known: BTreeSet::new(),
            last: 0,
            done: false,
        }
    }

    /// Returns the number of resources and lists that were read, and the number that are known to be needed.
    #[must_use]
    pub fn progress(&self) -> (usize, usize) {
        (self.inventory.resources.len() + self.inventory.lists.len(), self.known.len())
    }

    /// Requests the resources that are newly known to be needed, or ends the survey.
    fn proceed(&mut self, now: Now, out: &mut Vec<SurveyOut>) {
        if self.done {
            return;
        }
        if self.pending.is_empty() && self.waiting.is_empty() {
            let new: Vec<Want> =
                wanted(&self.inventory).into_iter().filter(|want| self.known.insert(want.clone())).collect();
            if new.is_empty() {
                self.done = true;
                out.push(SurveyOut::Done(Box::new(self.inventory.clone())));
                return;
            }
            let fresh = |want| (now, PendingCall { want, tries: 0, items: Vec::new(), next: None });
            self.waiting.extend(new.into_iter().map(fresh));
        }
        self.send(now, out);
    }

    fn send(&mut self, now: Now, out: &mut Vec<SurveyOut>) {
        while self.pending.len() < AT_ONCE {
            let Some(at) = self.waiting.iter().position(|(due, _)| *due <= now) else { return };
            let (_, mut pending) = self.waiting.remove(at);
            pending.tries += 1;
            self.last += 1;
            let id = CallId(self.last);
            out.push(SurveyOut::Call(id, pending.call()));
            self.pending.insert(id, pending);
        }
    }

    fn on_answer(&mut self, now: Now, id: CallId, answer: Result<Reply, String>) {
        let Some(mut pending) = self.pending.remove(&id) else { return };
        match classify(answer) {
            CallOutcome::Done(reply) => {
                if let Want::List(_) = pending.want {
                    pending.items.extend(items(&reply.body["value"]).iter().cloned());
                    let next = text(&reply.body["nextLink"]);
                    if !next.is_empty() {
                        pending.next = Some(next.to_owned());
                        pending.tries = 0;
                        self.waiting.push((now, pending));
                        return;
                    }
                }
                self.read(pending, reply.body);
            }
            CallOutcome::NotFound => match pending.want {
                Want::Resource(id) => drop(self.inventory.resources.insert(id, ReadResult::Absent)),
                Want::List(id) => drop(self.inventory.lists.insert(id, Listed::Items(Vec::new()))),
            },
            CallOutcome::Retriable { after, .. } if pending.tries < TRIES => {
                let delay = after.unwrap_or_default().max(DELAYS.delay(pending.tries - 1));
                self.waiting.push((now.plus(delay), pending));
            }
            CallOutcome::Retriable { reason, .. }
            | CallOutcome::Refused(reason)
            | CallOutcome::InUse { reason, .. } => {
                self.cannot_be_read(pending.want, reason);
            }
            CallOutcome::PreconditionFailed => {
                self.cannot_be_read(pending.want, "the answer to a read was 412".to_owned())
            }
        }
    }

    fn read(&mut self, pending: PendingCall, body: Value) {
        match pending.want {
            Want::Resource(id) => drop(self.inventory.resources.insert(id, ReadResult::Body(body))),
            Want::List(list) => {
                for item in &pending.items {
                    // Locks and quotas are not resources.
                    let member = id(item).filter(|id| MemberKind::of(id).is_some());
                    if let Some(member) = member {
                        self.known.insert(Want::Resource(member.clone()));
                        self.inventory.resources.insert(member, ReadResult::Body(item.clone()));
                    }
                }
                self.inventory.lists.insert(list, Listed::Items(pending.items));
            }
        }
    }

    fn cannot_be_read(&mut self, want: Want, reason: String) {
        match want {
            Want::Resource(id) => drop(self.inventory.resources.insert(id, ReadResult::Unreadable(reason))),
            Want::List(id) => drop(self.inventory.lists.insert(id, Listed::Unreadable(reason))),
        }
    }
}

impl PendingCall {
    fn call(&self) -> Call {
        match (&self.next, &self.want) {
            (Some(next), _) => Call::follow(next.clone()),
            (None, Want::List(id)) if MemberKind::of(&id.child_list("0")) == Some(MemberKind::Instance) => {
                Call::get_with(id, "$expand=instanceView")
            }
            // Of the subscription's locks, only those on the subscription itself are needed.
            (None, Want::List(id))
                if id.name().eq_ignore_ascii_case("locks") && id.resource_group().is_none() =>
            {
                Call::get_with(id, "$filter=atScope()")
            }
            (None, Want::List(id) | Want::Resource(id)) => Call::get(id),
        }
    }
}

impl Machine for Survey {
    type In = SurveyIn;
    type Out = SurveyOut;

    fn step(&mut self, now: Now, input: SurveyIn, out: &mut Vec<SurveyOut>) {
        match input {
            SurveyIn::Start => {}
            SurveyIn::Answer(id, answer) => self.on_answer(now, id, answer),
        }
        self.proceed(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        let is_full = self.pending.len() >= AT_ONCE;
        self.waiting.iter().map(|(due, _)| *due).min().filter(|_| !is_full)
    }

    fn tick(&mut self, now: Now, out: &mut Vec<SurveyOut>) {
        self.proceed(now, out);
    }
}

/// Returns everything that is needed, according to the resources that were read so far.
fn wanted(inventory: &Inventory) -> BTreeSet<Want> {
    let cluster = &inventory.cluster;
    let scope = Scope::of(inventory);
    let mut wanted = PendingReads::default();
    wanted.list(cluster.resource_group.child_list("providers/Microsoft.Compute/virtualMachineScaleSets"));
    for name in &cluster.load_balancers {
        for name in [name.clone(), format!("{name}-internal")] {
            let balancers = "providers/Microsoft.Network/loadBalancers";
            wanted.resource(cluster.load_balancer_group.child(balancers, &name));
        }
    }
    for machine in cluster.nodes.iter().filter(|node| !node.excluded).filter_map(|node| node.machine.as_ref())
    {
        wanted.resource(machine.up_to("virtualMachineScaleSets").unwrap_or_else(|| machine.clone()));
    }
    for scale_set in &scope.scale_sets {
        wanted.resource(scale_set.clone());
        wanted.list(scale_set.child_list("virtualMachines"));
    }
    for interface in scope.interfaces.iter().cloned().chain(scope.machines(inventory)) {
        wanted.resource(interface);
    }
    for (_, machine) in inventory.of_kind("virtualmachines") {
        wanted.all(id(&machine["properties"]["availabilitySet"]));
    }
    for (_, set) in inventory.of_kind("availabilitysets") {
        wanted.all(crate::json::ids(&set["properties"]["virtualMachines"]));
    }
    for frontend in scope.frontends(inventory) {
        wanted.all(frontend.public);
        wanted.all(frontend.subnet);
    }
    for (_, kind, body) in scope.members(inventory) {
        wanted.all(balancers_of(kind, body));
        for configuration in configurations(kind, body) {
            wanted.all(configuration.public_address());
            wanted.all(configuration.subnet());
        }
        wanted.all(security_groups(kind, body));
    }
    for (_, subnet) in inventory.of_kind("subnets") {
        wanted.all(id(&subnet["properties"]["networkSecurityGroup"]));
        wanted.all(id(&subnet["properties"]["routeTable"]));
    }
    wanted.about_groups(inventory, &scope);
    wanted.0
}

/// Returns the network security groups of the node itself, without those of its subnets.
pub(crate) fn security_groups(kind: MemberKind, body: &Value) -> Vec<ResourceId> {
    match kind {
        MemberKind::NetworkInterface => id(&body["properties"]["networkSecurityGroup"]).into_iter().collect(),
        MemberKind::Model | MemberKind::Instance => {
            let profile = match kind {
                MemberKind::Model => &body["properties"]["virtualMachineProfile"]["networkProfile"],
                MemberKind::NetworkInterface | MemberKind::Instance => {
                    &body["properties"]["networkProfileConfiguration"]
                }
            };
            let interfaces = items(&profile["networkInterfaceConfigurations"]);
            interfaces
                .iter()
                .filter_map(|interface| id(&interface["properties"]["networkSecurityGroup"]))
                .collect()
        }
    }
}

#[derive(Default)]
struct PendingReads(BTreeSet<Want>);

impl PendingReads {
    fn resource(&mut self, id: ResourceId) {
        self.0.insert(Want::Resource(id));
    }

    fn all(&mut self, ids: impl IntoIterator<Item = ResourceId>) {
        self.0.extend(ids.into_iter().map(Want::Resource));
    }

    fn list(&mut self, id: ResourceId) {
        self.0.insert(Want::List(id));
    }

    /// Adds locks, permissions, tags and quotas.
    fn about_groups(&mut self, inventory: &Inventory, scope: &Scope) {
        let cluster = &inventory.cluster;
        let mut groups: BTreeSet<ResourceId> =
            scope.changing().filter_map(ResourceId::resource_group).collect();
        groups.extend([cluster.resource_group.clone(), cluster.load_balancer_group.clone()]);
        for group in groups {
            let subscription = group.up_to("subscriptions");
            self.0.extend(
                subscription.map(|all| Want::List(all.child_list("providers/Microsoft.Authorization/locks"))),
            );
            self.list(group.child_list("providers/Microsoft.Authorization/locks"));
            self.list(group.child_list("providers/Microsoft.Authorization/permissions"));
            self.resource(group);
        }
        for lb in &scope.load_balancers {
            let location = inventory.body(lb).map(|body| text(&body["location"]).to_owned());
            if let (Some(location), Some(subscription)) = (location, lb.up_to("subscriptions")) {
                self.list(
                    subscription
                        .child("providers/Microsoft.Network/locations", &location)
                        .child_list("usages"),
                );
            }
        }
    }
}
