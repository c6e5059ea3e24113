//! Views as JSON: one spelling of each thing for the whole admin API.

use std::collections::BTreeSet;
use std::net::IpAddr;

use actors::clock::Clock;
use pool_core::assignment::Held;
use pool_core::level::{Provenance, Source};
use pool_core::machine::Now;
use pool_core::sample::GateClass;
use pool_core::view::{
    GateView, LaneView, LbView, LeadershipView, PoolView, ServiceView, SharedLeaseView, Snapshot, SourceView,
    StartsView,
};
use serde_json::{Value, json};

/// Shows views as of one moment.
pub(super) struct Show {
    pub(super) clock: Clock,
    pub(super) now: Now,
}

impl Show {
    /// How long ago a moment was, in seconds.
    pub(super) fn age(&self, at: Now) -> f64 {
        self.now.since(at).as_secs_f64()
    }

    /// How old a snapshot is, in seconds; `None` before the first.
    pub(super) fn snapshot_age(&self, snapshot: &Snapshot) -> Option<f64> {
        (snapshot.at > Now::ZERO).then(|| self.age(snapshot.at))
    }

    /// A moment as people write it.
    fn time(&self, at: Now) -> Option<String> {
        let micros = self.clock.wall_at(at).as_micros();
        jiff::Timestamp::from_microsecond(micros).ok().map(|time| format!("{time:.3}"))
    }

    /// How long it is until a moment, in seconds; 0 once it has passed.
    fn until(&self, at: Now) -> f64 {
        at.since(self.now).as_secs_f64()
    }

    /// A pool in a list.
    pub(super) fn pool_line(&self, pool: &PoolView) -> Value {
        json!({
            "loadBalancer": pool.pool.lb.as_str(),
            "backendPool": pool.pool.pool.as_str(),
            "state": pool.state.as_str(),
            "stateSeconds": self.age(pool.since),
            "services": pool.services.values().map(ToString::to_string).collect::<Vec<_>>(),
            "required": pool.level.required.len(),
            "observed": pool.observed.as_ref().map(BTreeSet::len),
            "waitingSeconds": pool.waiting_since.map(|at| self.age(at)),
            "nextInSeconds": pool.next_at.map(|at| self.until(at)),
            "lastError": pool.last_error,
            "held": pool.held.as_ref().map(|held| self.held(held)),
        })
    }

    /// A pool with all that is known of it.
    pub(super) fn pool(&self, pool: &PoolView) -> Value {
        let missing =
            pool.observed.as_ref().map(|seen| pool.level.missing(seen).copied().collect::<Vec<_>>());
        let surplus =
            pool.observed.as_ref().map(|seen| pool.level.surplus(seen).copied().collect::<Vec<_>>());
        let mut shown = self.pool_line(pool);
        let more = json!({
            "family": match pool.family {
                pool_core::ids::Family::V4 => "IPv4",
                pool_core::ids::Family::V6 => "IPv6",
            },
            "source": match &pool.source {
                Source::Kubernetes => "kubernetes".to_owned(),
                Source::Xds(name) => name.to_string(),
            },
            "provenance": provenance(pool.provenance),
            "members": {
                "required": pool.level.required.iter()
                    .map(|(ip, member)| json!({ "ip": ip, "name": member.name.as_str(), "nodeReady": member.node_ready }))
                    .collect::<Vec<_>>(),
                "tolerated": ips(&pool.level.tolerated),
                "observed": pool.observed.as_ref().map(ips),
                "missing": missing,
                "mustGo": surplus,
            },
            "observedAt": pool.observed_at.and_then(|at| self.time(at)),
            "attempt": pool.attempt.map(|id| id.to_string()),
            "retries": pool.retries.iter()
                .map(|(uid, counts)| (uid.to_string(), json!(counts)))
                .collect::<serde_json::Map<_, _>>(),
            "lastAttempt": pool.last_end.map(|(end, at)| json!({ "outcome": end.as_str(), "at": self.time(at) })),
            "wouldChange": pool.withheld.as_ref()
                .map(|(added, removed)| json!({ "add": ips(added), "remove": ips(removed) })),
            "lostWrites": pool.lost_writes,
        });
        if let (Some(shown), Value::Object(more)) = (shown.as_object_mut(), more) {
            shown.extend(more);
        }
        shown
    }

    /// A removal that is held back.
    pub(super) fn held(&self, held: &Held) -> Value {
        json!({
            "reason": held.reason.as_str(),
            "seconds": self.age(held.since),
            "endsInSeconds": held.until.map(|at| self.until(at)),
            "members": ips(&held.members),
        })
    }

    /// A Service.
    pub(super) fn service(&self, service: &ServiceView) -> Value {
        json!({
            "namespace": &*service.key.namespace,
            "name": &*service.key.name,
            "uid": service.uid.as_str(),
            "candidacy": service.candidacy.as_str(),
            "paused": service.paused,
            "endpointSlices": service.slices,
            "endpoints": service.endpoints,
            "dataErrors": service.data_errors,
            "pools": service.pools.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "notManageable": service.not_manageable.iter()
                .map(|(pool, why)| json!({ "pool": pool.to_string(), "reason": why.label().0, "detail": why.to_string() }))
                .collect::<Vec<_>>(),
        })
    }

    /// A source of facts.
    pub(super) fn source(&self, source: &SourceView) -> Value {
        json!({
            "kind": source.kind.resource(),
            "phase": source.phase,
            "synced": source.synced,
            "objects": source.objects,
            "heardSeconds": source.heard_at.map(|at| self.age(at)),
            "lastError": source.last_error,
        })
    }

    /// A load balancer.
    pub(super) fn lb(&self, lb: &LbView) -> Value {
        json!({
            "name": lb.lb.as_str(),
            "exists": lb.exists,
            "readSeconds": lb.read_at.map(|at| self.age(at)),
            "pools": lb.pools,
            "lastError": lb.last_error,
        })
    }

    /// A lane.
    pub(super) fn lane(&self, lane: &LaneView) -> Value {
        json!({
            "loadBalancer": lane.lb.as_str(),
            "writing": lane.writing.as_ref().map(|(pool, phase, since)| json!({
                "pool": pool.to_string(), "phase": phase, "seconds": self.age(*since),
            })),
            "waiting": lane.waiting.iter().map(|(pool, class, since)| json!({
                "pool": pool.to_string(), "class": class, "seconds": self.age(*since),
            })).collect::<Vec<_>>(),
            "closedForSeconds": lane.closed_until.map(|at| self.until(at)),
            "blockedBy": lane.blocked_by,
        })
    }

    /// Who leads.
    pub(super) fn leadership(&self, leadership: &LeadershipView) -> Value {
        json!({
            "identity": leadership.identity,
            "role": leadership.role,
            "roleSeconds": self.age(leadership.since),
            "holder": leadership.holder,
            "term": leadership.epoch.0,
            "certainForSeconds": leadership.until.filter(|at| *at != Now::NEVER).map(|at| self.until(at)),
            "lastError": leadership.last_error,
        })
    }

    /// The note of this start.
    pub(super) fn starts(&self, starts: &StartsView) -> Value {
        json!({
            "phase": starts.phase,
            "endsInSeconds": starts.until.map(|at| self.until(at)),
            "notes": starts.notes,
            "noted": starts.noted,
            "lastError": starts.last_error,
        })
    }

    /// The shared Lease.
    pub(super) fn shared_lease(&self, lease: &SharedLeaseView) -> Value {
        json!({
            "state": lease.state,
            "stateSeconds": self.age(lease.since),
            "holder": lease.holder,
            "whose": lease.whose.as_str(),
            "holderSeconds": lease.held_since.map(|at| self.age(at)),
            "endsInSeconds": lease.until.filter(|at| *at != Now::NEVER).map(|at| self.until(at)),
            "wantedSeconds": lease.wanted_since.map(|at| self.age(at)),
            "lastError": lease.last_error,
        })
    }

    /// A gate with its budget.
    pub(super) fn gate(&self, class: GateClass, gate: &GateView) -> Value {
        json!({
            "class": class.as_str(),
            "closedForSeconds": gate.closed_until.map(|at| self.until(at)),
            "budgetLeft": gate.tokens,
            "budget": gate.capacity,
        })
    }
}

fn ips(all: &BTreeSet<IpAddr>) -> Vec<&IpAddr> {
    all.iter().collect()
}

fn provenance(provenance: Provenance) -> &'static str {
    match provenance {
        Provenance::Watch => "watch",
        Provenance::Reconnect => "reconnect",
        Provenance::Relist => "relist",
        Provenance::FirstList => "first_list",
    }
}
