//! Why a Service is, or is not, in its pools, in one sentence: the most important thing first.

use pool_core::assignment::HeldReason;
use pool_core::ids::PoolId;
use pool_core::sample::PoolState;
use pool_core::view::{Candidacy, PoolView, ServiceView, Snapshot};

/// The sentence.
pub(super) fn verdict(service: &ServiceView, snapshot: &Snapshot) -> String {
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
    let wrong = service.pools.iter().find_map(|id| about(id, snapshot));
    let said = wrong.unwrap_or_else(|| "right: every pool of it is as it should be".to_owned());
    match service.data_errors.first() {
        None => said,
        Some(first) => format!("{said}; but not every endpoint has a usable node: {first}"),
    }
}

/// Why it is no candidate (D1).
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

/// What there is to say about one pool; nothing when it is right.
fn about(id: &PoolId, snapshot: &Snapshot) -> Option<String> {
    let Some(pool) = snapshot.pools.get(id) else {
        return Some(format!("pool {id} has not been looked at yet"));
    };
    if let Some(held) = pool.held.as_ref().filter(|_| pool.state != PoolState::Quarantined) {
        let why = match held.reason {
            HeldReason::EmptyConfirm => {
                "until it is certain that the Service has no endpoints (guards.emptyConfirm)"
            }
            HeldReason::NoUsableNode => {
                "because it has endpoints and none of their nodes is usable, or one of its slices or nodes cannot be read"
            }
            HeldReason::LastMember => {
                "because it has endpoints that do not count, and none of their nodes is in the pool"
            }
        };
        return Some(format!("pool {id}: a removal is held back ({}), {why}", held.reason.as_str()));
    }
    of_state(pool).map(|said| format!("pool {id} {said}"))
}

fn of_state(pool: &PoolView) -> Option<String> {
    let said = match pool.state {
        PoolState::Right => return None,
        PoolState::Unknown => "has not been seen since the last change",
        PoolState::Waiting if pool.withheld.is_some() => "would be changed; this is a dry run",
        PoolState::Waiting => "waits for its changes to become due",
        PoolState::Due => "waits for its load balancer",
        PoolState::Attempting => "is being written",
        PoolState::Parked => "waits until Azure may be asked again",
        PoolState::Paused => {
            "is compared and not written: a Service of it has the annotation azure-backend-pool-controller.io/pause"
        }
        PoolState::Failed => "was not written",
        PoolState::Quarantined => {
            "is quarantined for an error of the controller: report it, and restart the controller to try again"
        }
    };
    Some(
        pool.last_error
            .as_ref()
            .map_or_else(|| said.to_owned(), |error| format!("{said}; last error: {error}")),
    )
}

#[cfg(test)]
mod tests;
