//! The verdict about a Service: one sentence about why it is, or is not, in its pools. The most important reason comes
//! first.

mod waits;

use std::net::IpAddr;

use model::arm::AdminState;
use model::assignment::{Held, HeldReason, PausedBy};
use model::ids::{NodeName, PoolId};
use model::level::Member;
use model::sample::PoolState;
use model::view::{Candidacy, ExcludedNodeView, PoolView, ServiceView, Snapshot};

use super::show::{Show, family, pause, wall};

/// The reason of a verdict, most important first. Services are filtered and sorted by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum VerdictReason {
    /// A pool is not written because of an internal error.
    Quarantined,
    /// The last attempt for a pool has failed, or Azure reports a failed operation.
    Failed,
    /// The controller may not write a pool (D2).
    NotManageable,
    /// A pool is paused: it is compared, but not written.
    Paused,
    /// A pool lacks members, or a fault stops writes on its load balancer.
    MissingMembers,
    /// A removal is held back.
    Held,
    /// A pool is out of sync for any other reason.
    OutOfSync,
    /// No load-balancing rule was found yet.
    NoRule,
    /// Its pools are in sync, but a member is Down, a node is excluded, or an endpoint has no usable node.
    Incomplete,
    /// All its pools are in sync.
    InSync,
    /// The controller does not manage the Service.
    NotManaged,
}

impl VerdictReason {
    /// All reasons, most important first.
    pub(super) const ALL: [VerdictReason; 11] = [
        VerdictReason::Quarantined,
        VerdictReason::Failed,
        VerdictReason::NotManageable,
        VerdictReason::Paused,
        VerdictReason::MissingMembers,
        VerdictReason::Held,
        VerdictReason::OutOfSync,
        VerdictReason::NoRule,
        VerdictReason::Incomplete,
        VerdictReason::InSync,
        VerdictReason::NotManaged,
    ];

    /// Returns its name in the API.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            VerdictReason::Quarantined => "quarantined",
            VerdictReason::Failed => "failed",
            VerdictReason::NotManageable => "not_manageable",
            VerdictReason::Paused => "paused",
            VerdictReason::MissingMembers => "missing_members",
            VerdictReason::Held => "held",
            VerdictReason::OutOfSync => "out_of_sync",
            VerdictReason::NoRule => "no_rule",
            VerdictReason::Incomplete => "incomplete",
            VerdictReason::InSync => "in_sync",
            VerdictReason::NotManaged => "not_managed",
        }
    }
}

/// Returns the reason of the verdict about a Service. This is cheaper than the sentence.
pub(super) fn verdict_reason(service: &ServiceView, snapshot: &Snapshot) -> VerdictReason {
    if not_managed(service.candidacy).is_some() {
        return VerdictReason::NotManaged;
    }
    if is_not_manageable(service) {
        return VerdictReason::NotManageable;
    }
    if service.pools.is_empty() {
        return VerdictReason::NoRule;
    }
    let of_pool = |id| match snapshot.pools.get(id) {
        Some(pool) => reason_of(pool, snapshot),
        None => Some(VerdictReason::OutOfSync),
    };
    let worst = service.pools.iter().filter_map(of_pool).min();
    let is_whole = || {
        service.data_errors.is_empty() && service.excluded.is_empty() && down(service, snapshot).is_empty()
    };
    worst.unwrap_or_else(|| if is_whole() { VerdictReason::InSync } else { VerdictReason::Incomplete })
}

/// Returns whether a managed Service has a pool that the controller may not write.
pub(super) fn is_not_manageable(service: &ServiceView) -> bool {
    not_managed(service.candidacy).is_none() && !service.not_manageable.is_empty()
}

/// Returns why a pool is out of sync or holds a removal, in words. `None`: neither is the case.
pub(super) fn why(pool: &PoolView, snapshot: &Snapshot, show: &Show) -> Option<String> {
    let (_, said) = of_pool(pool, snapshot, show)?;
    Some(said.trim_start_matches([':', ' ']).to_owned())
}

/// Returns the verdict about a Service: one sentence.
pub(super) fn verdict(service: &ServiceView, snapshot: &Snapshot, show: &Show) -> String {
    if let Some(why) = not_managed(service.candidacy) {
        return format!("not managed: {why}");
    }
    if let Some((pool, why)) = service.not_manageable.first() {
        return format!("pool {pool} is not written: {why}");
    }
    if service.pools.is_empty() {
        let waiting = "not managed yet: no load-balancing rule of it was found on a managed load balancer; the \
                       cloud-controller-manager makes them";
        return waiting.to_owned();
    }
    let all = service.pools.iter().filter_map(|id| about(id, snapshot, show));
    let wrong = all.min_by_key(|(reason, _)| *reason).map(|(_, said)| said);
    let said = wrong.unwrap_or_else(|| "in sync: every pool matches its endpoints".to_owned());
    let said = said + &down(service, snapshot) + &excluded(service);
    match service.data_errors.first() {
        None => said,
        Some(first) => format!("{said}; but not every endpoint has a usable node: {first}"),
    }
}

/// Returns the clause about required members that are Down (N2, N4), with the name of the first; empty if none is.
fn down(service: &ServiceView, snapshot: &Snapshot) -> String {
    let pools = service.pools.iter().filter_map(|id| snapshot.pools.get(id));
    let mut down = pools.flat_map(|pool| {
        let is_down = move |(ip, _): &(&IpAddr, &Member)| pool.admin_state(ip) == Some(AdminState::Down);
        pool.level.required.iter().filter(is_down).map(move |(ip, member)| (pool, ip, member))
    });
    let Some((pool, ip, member)) = down.next() else { return String::new() };
    let why = match snapshot.nodes.get(&NodeName::new(member.name.as_str())) {
        Some(node) if node.signals.is_empty() => "it is being restored".to_owned(),
        Some(node) => {
            let signals: Vec<&str> = node.signals.iter().map(|signal| signal.as_str()).collect();
            format!("it leaves service: {}", signals.join(", "))
        }
        None => "another client has set it Down, or the restored entry has not been read yet".to_owned(),
    };
    let more = match down.count() {
        0 => String::new(),
        more => format!("; {more} more required members are Down"),
    };
    let id = &pool.pool;
    format!(
        "; but member {} ({ip}) of pool {id} is Down and gets no new connections ({why}){more}",
        member.name
    )
}

/// Returns the clause about excluded nodes with endpoints of the Service (D4, D5): the first, and the number of others.
fn excluded(service: &ServiceView) -> String {
    let Some(ExcludedNodeView { node, family: of, ips: _, why }) = service.excluded.first() else {
        return String::new();
    };
    let more = match service.excluded.len() {
        1 => String::new(),
        ServiceView::MAX_EXCLUDED_NODES => "; many more are excluded".to_owned(),
        all => format!("; {} more are excluded", all - 1),
    };
    format!("; node {node} is excluded from its {} pool, because {why}{more}", family(*of))
}

/// Returns why a Service is not managed (D1), or `None` if it is a candidate.
fn not_managed(candidacy: Candidacy) -> Option<&'static str> {
    match candidacy {
        Candidacy::Candidate => None,
        Candidacy::NotLoadBalancer => Some("spec.type is not LoadBalancer"),
        Candidacy::NotMultiSlb => {
            Some("the cloud configuration has no multipleStandardLoadBalancerConfigurations")
        }
        Candidacy::NotLocal => Some("spec.externalTrafficPolicy is not Local"),
        Candidacy::Deleting => Some("it is being deleted"),
        Candidacy::NotSelected => Some("services.selector or services.namespaces leave it out"),
    }
}

/// Returns the reason and the clause about one pool. `None`: it is in sync, and no removal is held.
fn about(id: &PoolId, snapshot: &Snapshot, show: &Show) -> Option<(VerdictReason, String)> {
    let Some(pool) = snapshot.pools.get(id) else {
        return Some((VerdictReason::OutOfSync, format!("pool {id} has not been read yet")));
    };
    let (reason, said) = of_pool(pool, snapshot, show)?;
    Some((reason, format!("pool {id}{said}")))
}

/// Returns the same for a pool in the snapshot. The clause continues after the pool's name.
fn of_pool(pool: &PoolView, snapshot: &Snapshot, show: &Show) -> Option<(VerdictReason, String)> {
    let reason = reason_of(pool, snapshot)?;
    let said = match (of_state(pool, snapshot, show), pool.held.as_ref().map(held)) {
        (None, None) => return None,
        (None, Some(held)) => format!(": {held}"),
        (Some(said), None) => format!(" {said}"),
        // After an internal error, the held removal may be wrong too.
        (Some(said), Some(_)) if reason == VerdictReason::Quarantined => format!(" {said}"),
        (Some(said), Some(held)) if reason < VerdictReason::Held => format!(" {said}; besides, {held}"),
        (Some(said), Some(held)) => format!(": {held}; besides, it {said}"),
    };
    Some((reason, said))
}

/// Returns the most important reason of a pool. `None`: it is in sync, and no removal is held.
fn reason_of(pool: &PoolView, snapshot: &Snapshot) -> Option<VerdictReason> {
    let is_in_sync = pool.state == PoolState::InSync && !pool.provisioning_failed;
    let state = (!is_in_sync).then(|| rank(pool, snapshot));
    let held = pool.held.as_ref().map(|_| VerdictReason::Held);
    [state, held].into_iter().flatten().min()
}

fn held(held: &Held) -> String {
    let why = match held.reason {
        HeldReason::EmptyConfirm => {
            "until it is confirmed that the Service has no endpoints (guards.emptyConfirm)"
        }
        HeldReason::NoUsableNode => {
            "because it has endpoints and none of their nodes is usable, or one of its slices or nodes cannot be read"
        }
        HeldReason::LastMember => {
            "because it has endpoints that do not count, and none of their nodes is in the pool"
        }
        HeldReason::Fraction => {
            "until a second list confirms the removal of so many members (guards.maxRemovalFraction)"
        }
        HeldReason::Breaker => "because too many pools would lose most of their members at the same time",
        HeldReason::AddOnly => "because the mode add-only removes no member",
    };
    format!("a removal is held back ({}), {why}", held.reason.as_str())
}

/// Describes the state of a pool, with the numbers of missing and surplus members. `None`: it is in sync.
fn of_state(pool: &PoolView, snapshot: &Snapshot, show: &Show) -> Option<String> {
    let said = match pool.state {
        PoolState::InSync if pool.provisioning_failed => {
            "has the required members, and Azure reports that its last operation there failed, so it may not use them; the \
             controller writes one pool of the load balancer again 10 minutes after that, and later at growing intervals"
                .to_owned()
        }
        PoolState::InSync => return None,
        PoolState::Unknown => "has not been seen since the last change".to_owned(),
        PoolState::Waiting if pool.withheld.is_some() => "would be changed; this is a dry run".to_owned(),
        PoolState::Waiting => match pool.blocked {
            Some(blocked) => waits::own(blocked, show),
            None => "waits for its changes to become due".to_owned(),
        },
        PoolState::Due => waits::due(pool, snapshot, show),
        PoolState::Attempting => waits::attempting(pool, snapshot, show),
        PoolState::Parked => match pool.blocked.and_then(|blocked| blocked.until) {
            Some(at) => format!("waits {} more until Azure may be called again", waits::span(show.until(at))),
            None => "waits until Azure may be called again".to_owned(),
        },
        PoolState::Paused => format!("is compared and not written: {}", paused(pool, snapshot)),
        PoolState::Failed => "was not written".to_owned(),
        PoolState::Quarantined => {
            "is not written any more because of an internal error: report it, and restart the controller to try again"
                .to_owned()
        }
    };
    let difference = difference(pool);
    Some(match (&pool.last_error, pool.state) {
        (None, _) => format!("{said}{difference}"),
        // The error, not the pause, is why it was not written.
        (Some(error), PoolState::Paused) => {
            format!("was not written; last error: {error}; now it {said}{difference}")
        }
        (Some(error), _) => format!("{said}{difference}; last error: {error}"),
    })
}

/// Returns the reason that follows from the state of a pool that is not in sync.
fn rank(pool: &PoolView, snapshot: &Snapshot) -> VerdictReason {
    match pool.state {
        PoolState::Quarantined => VerdictReason::Quarantined,
        PoolState::Failed => VerdictReason::Failed,
        PoolState::Unknown
        | PoolState::InSync
        | PoolState::Waiting
        | PoolState::Due
        | PoolState::Attempting
        | PoolState::Parked
        | PoolState::Paused
            if pool.last_error.is_some() || pool.provisioning_failed =>
        {
            VerdictReason::Failed
        }
        PoolState::Paused => VerdictReason::Paused,
        PoolState::Unknown
        | PoolState::InSync
        | PoolState::Waiting
        | PoolState::Due
        | PoolState::Attempting
        | PoolState::Parked => {
            let lacks = pool.deviation().is_some_and(|(missing, _)| !missing.is_empty());
            let blocked = snapshot.lanes.get(&pool.pool.lb).is_some_and(|lane| lane.fault.is_some());
            if lacks || blocked { VerdictReason::MissingMembers } else { VerdictReason::OutOfSync }
        }
    }
}

/// Returns the clause with the numbers of missing and surplus members; empty if they are not known to differ.
fn difference(pool: &PoolView) -> String {
    match pool.deviation() {
        None => String::new(),
        Some((missing, surplus)) => format!("; {} missing, {} surplus", missing.len(), surplus.len()),
    }
}

/// Describes all pauses of a pool. Each must end before the pool is written.
fn paused(pool: &PoolView, snapshot: &Snapshot) -> String {
    let one = |by: &PausedBy| match by {
        PausedBy::Mode => "the mode is observe".to_owned(),
        PausedBy::Everything => "everything is paused".to_owned(),
        PausedBy::NotInRestore => "other pools are being restored from a snapshot".to_owned(),
        PausedBy::Pool => "the pool is paused".to_owned(),
        PausedBy::Service(key) => format!("Service {key} is paused"),
        PausedBy::Annotation(key) => {
            format!("Service {key} has the annotation azure-backend-pool-controller.io/pause")
        }
    };
    let whose = |by: &PausedBy| {
        let Some(pause) = pause(snapshot, &pool.pool, by) else { return String::new() };
        let by = pause.by.as_ref().map(|by| format!("by {by}"));
        let since = pause.since.and_then(wall).map(|since| format!("since {since}"));
        let all: Vec<String> =
            [by, since, pause.reason.as_deref().map(str::to_owned)].into_iter().flatten().collect();
        if all.is_empty() { String::new() } else { format!(" ({})", all.join(", ")) }
    };
    let all: Vec<String> = pool.paused.iter().map(|by| one(by) + &whose(by)).collect();
    all.join(", and ")
}

#[cfg(test)]
mod tests;
