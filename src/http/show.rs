//! Views as JSON: one spelling of each thing for the whole admin API.

use std::collections::BTreeSet;
use std::net::IpAddr;

use actors::clock::Clock;
use model::assignment::{Held, PausedBy};
use model::ids::{Family, PoolId};
use model::level::Source;
use model::machine::{Now, Wall};
use model::operator_request::Scope;
use model::policy::{OperatorPolicy, Pause};
use model::sample::GateClass;
use model::view::{
    Candidacy, GateView, GuardsView, LaneView, LastAttempt, LbView, LeadershipView, LeftOutView, PolicyView,
    PoolView, ResourceView, ServiceView, SharedLeaseView, Snapshot, SourceView, WouldChange,
    admin_state_word,
};
use model::write_record::{MemberList, Trigger, WriteRecord};
use serde_json::{Value, json};

use super::verdict::why;

/// How many of the pools that are out of sync `status` shows.
const MOST_OUT_OF_SYNC: usize = 10;

/// Whether a pool is out of sync, or would be changed if it were not only compared.
pub(super) fn differs(pool: &PoolView) -> bool {
    pool.late_since().is_some() || pool.would_change().is_some()
}

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

    /// How long ago a noted time was, in seconds; 0 where it is in the future by our clock.
    fn wall_age(&self, at: Wall) -> f64 {
        let micros = self.clock.wall_at(self.now).as_micros().saturating_sub(at.as_micros());
        std::time::Duration::from_micros(u64::try_from(micros).unwrap_or(0)).as_secs_f64()
    }

    /// A moment as operators write it.
    pub(super) fn time(&self, at: Now) -> Option<String> {
        wall(self.clock.wall_at(at))
    }

    /// How long it is until a moment, in seconds; 0 once it has passed.
    pub(super) fn until(&self, at: Now) -> f64 {
        at.since(self.now).as_secs_f64()
    }

    /// How many pools that are to be written are out of sync, and those that have been for longest; behind them pools that
    /// are only compared and would be changed.
    pub(super) fn out_of_sync(&self, snapshot: &Snapshot) -> Value {
        let late = || snapshot.pools.values().filter(|pool| pool.late_since().is_some());
        let longest = late().min_by_key(|pool| pool.late_since());
        let mut all: Vec<&PoolView> =
            snapshot.pools.values().map(|pool| &**pool).filter(|pool| differs(pool)).collect();
        all.sort_by_key(|pool| {
            (pool.late_since().is_none(), pool.out_of_sync.map_or(Now::NEVER, |out| out.since), &pool.pool)
        });
        json!({
            "pools": late().count(),
            "longest": longest.map(|pool| pool.pool.to_string()),
            "longestSeconds": longest.and_then(|pool| pool.late_since()).map(|at| self.age(at)),
            "longestAtLeast": longest.and_then(|pool| pool.out_of_sync).is_some_and(|out| out.at_least),
            "items": all.into_iter().take(MOST_OUT_OF_SYNC)
                .map(|pool| self.pool_line(pool, snapshot))
                .collect::<Vec<_>>(),
        })
    }

    /// A pool in a list.
    pub(super) fn pool_line(&self, pool: &PoolView, snapshot: &Snapshot) -> Value {
        json!({
            "loadBalancer": pool.pool.lb.as_str(),
            "backendPool": pool.pool.pool.as_str(),
            "state": pool.state.as_str(),
            "stateSeconds": self.age(pool.since),
            "services": services(pool),
            "source": filled_from(&pool.source),
            "required": pool.level.required.len(),
            "observed": pool.observed.as_ref().map(BTreeSet::len),
            "waitingSeconds": pool.waiting_since.map(|at| self.age(at)),
            "outOfSyncSince": pool.out_of_sync.and_then(|out| self.time(out.since)),
            "outOfSyncSeconds": pool.out_of_sync.map(|out| self.age(out.since)),
            "provisioningFailed": pool.provisioning_failed,
            "outOfSyncAtLeast": pool.out_of_sync.is_some_and(|out| out.at_least),
            "nextInSeconds": pool.next_at.map(|at| self.until(at)),
            "lastError": pool.last_error,
            "why": why(pool, snapshot, self),
            "held": pool.held.as_ref().map(|held| self.held(held)),
            "wouldHold": pool.would_hold.as_ref().map(|held| self.held(held)),
        })
    }

    /// A pool with all that is known of it.
    pub(super) fn pool(&self, pool: &PoolView, snapshot: &Snapshot) -> Value {
        let (missing, surplus) = pool.difference().unzip();
        let mut shown = self.pool_line(pool, snapshot);
        let more = json!({
            "family": family(pool.family),
            "leftOut": snapshot.left_out_of(pool).into_iter().map(left_out).collect::<Vec<_>>(),
            "note": pool.source.note(),
            "remarks": remarks(&pool.source),
            "provenance": pool.provenance.as_str(),
            "members": {
                "required": pool.level.required.iter()
                    .map(|(ip, member)| json!({ "ip": ip, "name": member.name.as_str(), "nodeReady": member.node_ready }))
                    .collect::<Vec<_>>(),
                "tolerated": ips(&pool.level.tolerated),
                "observed": pool.observed.as_ref().map(ips),
                "adminStates": pool.observed.as_ref().map(|observed| admin_states(pool, observed)),
                "missing": missing,
                "mustGo": surplus,
            },
            "observedAt": pool.observed_at.and_then(|at| self.time(at)),
            "attempt": pool.attempt.map(|id| id.to_string()),
            "retries": pool.retries.iter()
                .map(|(uid, counts)| (uid.to_string(), json!(counts)))
                .collect::<serde_json::Map<_, _>>(),
            "lastAttempt": pool.last_end.as_ref().map(|last| self.last_attempt(last)),
            "wouldChange": pool.would_change().as_ref()
                .map(|(added, removed)| json!({ "add": ips(added), "remove": ips(removed) })),
            "lostWrites": pool.lost_writes,
            "pausedBy": pool.paused.iter()
                .map(|by| paused_by(by, None, pause(snapshot, &pool.pool, by)))
                .collect::<Vec<_>>(),
        });
        if let (Some(shown), Value::Object(more)) = (shown.as_object_mut(), more) {
            shown.extend(more);
        }
        shown
    }

    /// How the last attempt of a pool ended, and what it changed.
    fn last_attempt(&self, last: &LastAttempt) -> Value {
        let LastAttempt { end, at, record } = last;
        let unknown = WriteRecord::default();
        let WriteRecord { trigger, services, added, removed, down, restored, correlation_id } =
            record.as_deref().unwrap_or(&unknown);
        json!({
            "outcome": end.as_str(),
            "at": self.time(*at),
            "trigger": trigger.map(Trigger::as_str),
            "services": services.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "added": members(added),
            "removed": members(removed),
            "down": members(down),
            "restored": members(restored),
            "correlationId": correlation_id,
        })
    }

    /// A removal that is held back.
    pub(super) fn held(&self, held: &Held) -> Value {
        json!({
            "reason": held.reason.as_str(),
            "seconds": self.age(held.since),
            "waitsFor": held.waits.as_str(),
            "endsInSeconds": held.waits.earliest().map(|at| self.until(at)),
            "members": ips(&held.members),
        })
    }

    /// A pool with a removal that is, or would be, held back.
    pub(super) fn held_line(&self, pool: &PoolView) -> Value {
        json!({
            "loadBalancer": pool.pool.lb.as_str(),
            "backendPool": pool.pool.pool.as_str(),
            "services": services(pool),
            "source": filled_from(&pool.source),
            "held": pool.held.as_ref().map(|held| self.held(held)),
            "wouldHold": pool.would_hold.as_ref().map(|held| self.held(held)),
        })
    }

    /// The guards.
    pub(super) fn guards(&self, guards: &GuardsView) -> Value {
        json!({
            "mode": guards.mode.as_str(),
            "removalsStopped": guards.stopped.map(|stopped| json!({
                "seconds": self.age(stopped.since),
                "pools": stopped.pools,
                "of": stopped.of,
            })),
            "secondReadSeconds": guards.reading_since.map(|at| self.age(at)),
        })
    }

    /// A Service.
    pub(super) fn service(&self, service: &ServiceView, snapshot: &Snapshot) -> Value {
        let paused_by = service_paused_by(service, snapshot);
        json!({
            "namespace": &*service.key.namespace,
            "name": &*service.key.name,
            "uid": service.uid.as_str(),
            "candidacy": service.candidacy.as_str(),
            "paused": !paused_by.is_empty(),
            "pausedBy": paused_by,
            "endpointSlices": service.slices,
            "endpoints": service.endpoints,
            "dataErrors": service.data_errors,
            "resource": service.resource.as_ref().map(resource),
            "leftOut": service.left_out.iter().map(left_out).collect::<Vec<_>>(),
            "pools": service.pools.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "notManageable": service.not_manageable.iter()
                .map(|(pool, why)| json!({ "pool": pool.to_string(), "reason": why.label().0, "detail": why.to_string() }))
                .collect::<Vec<_>>(),
        })
    }

    /// What is only compared, in sums.
    pub(super) fn would_change(&self, sums: WouldChange) -> Value {
        let WouldChange { compared, unseen, pools, add, remove, held_pools, held_members } = sums;
        json!({
            "compared": compared,
            "unseen": unseen,
            "pools": pools,
            "add": add,
            "remove": remove,
            "held": { "pools": held_pools, "members": held_members },
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
            "notFollowedSeconds": source.stale_since.map(|at| self.age(at)),
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

    /// What operators wish.
    pub(super) fn policy(&self, view: &PolicyView) -> Value {
        let PolicyView { mode: _, policy, unreadable, term_waits, last_error } = view;
        let one = |of: &Scope, pause: &Pause| {
            let (scope, target) = match of {
                Scope::Everything => ("everything", None),
                Scope::Pool(pool) => ("pool", Some(pool.to_string())),
                Scope::Service(key) => ("service", Some(key.to_string())),
                Scope::Node(name) => ("node", Some(name.to_string())),
            };
            json!({
                "scope": scope,
                "target": target,
                "since": pause.since.and_then(wall),
                "ageSeconds": pause.since.map(|since| self.wall_age(since)),
                "by": pause.by,
                "reason": pause.reason,
            })
        };
        let items = policy
            .as_ref()
            .map(|policy| policy.pauses().map(|(scope, pause)| one(&scope, pause)).collect::<Vec<_>>());
        let remedy = "correct or remove this key of the ConfigMap that is named like our Lease";
        json!({
            "items": items,
            "unreadable": unreadable.iter()
                .map(|(key, why)| json!({ "key": key, "why": why, "remedy": remedy }))
                .collect::<Vec<_>>(),
            "termWaits": term_waits,
            "lastError": last_error,
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

/// A noted time, as operators write it.
pub(super) fn wall(at: Wall) -> Option<String> {
    jiff::Timestamp::from_microsecond(at.as_micros()).ok().map(|time| format!("{time:.3}"))
}

/// What operators wish, as far as it has been read.
fn wished(snapshot: &Snapshot) -> Option<&OperatorPolicy> {
    snapshot.policy.as_ref()?.policy.as_deref()
}

/// The pause that the operator has made, behind one of the things that pause a pool.
pub(super) fn pause<'a>(snapshot: &'a Snapshot, pool: &PoolId, by: &PausedBy) -> Option<&'a Pause> {
    wished(snapshot)?.pause_of(pool, by)
}

/// One of the things that pause a pool or a Service: what it is of, and who has made it, where the operator has.
fn paused_by(by: &PausedBy, pool: Option<&PoolId>, pause: Option<&Pause>) -> Value {
    let target = by.service().map(ToString::to_string).or_else(|| pool.map(ToString::to_string));
    json!({
        "scope": by.as_str(),
        "target": target,
        "by": pause.and_then(|pause| pause.by.as_deref()),
        "since": pause.and_then(|pause| pause.since).and_then(wall),
        "reason": pause.and_then(|pause| pause.reason.as_deref()),
    })
}

/// All that keeps a Service from being written, in any of its pools.
fn service_paused_by(service: &ServiceView, snapshot: &Snapshot) -> Vec<Value> {
    let policy = wished(snapshot);
    let mut all: BTreeSet<(PausedBy, Option<&PoolId>)> = BTreeSet::new();
    if service.paused {
        all.insert((PausedBy::Annotation(service.key.clone()), None));
    }
    if policy.is_some_and(|policy| policy.services.contains_key(&service.key)) {
        all.insert((PausedBy::Service(service.key.clone()), None));
    }
    let stopped_by = policy.and_then(OperatorPolicy::stopped_by);
    all.extend(stopped_by.filter(|_| service.candidacy == Candidacy::Candidate).map(|by| (by, None)));
    for view in service.pools.iter().filter_map(|pool| snapshot.pools.get(pool)) {
        let named = |by: &PausedBy| (*by == PausedBy::Pool).then_some(&view.pool);
        all.extend(view.paused.iter().map(|by| (by.clone(), named(by))));
    }
    let pause = |by: &PausedBy, pool: Option<&PoolId>| {
        service.pools.first().and_then(|first| policy?.pause_of(pool.unwrap_or(first), by))
    };
    all.iter().map(|(by, pool)| paused_by(by, *pool, pause(by, *pool))).collect()
}

fn ips(all: &BTreeSet<IpAddr>) -> Vec<&IpAddr> {
    all.iter().collect()
}

/// The Services of a pool; one that is filled from an xDS source has none.
fn services(pool: &PoolView) -> Vec<String> {
    pool.services.values().filter(|key| key.is_service()).map(ToString::to_string).collect()
}

/// What a pool gets its members from.
fn filled_from(source: &Source) -> String {
    match source {
        Source::Kubernetes => "kubernetes".to_owned(),
        Source::Xds { name, .. } => name.to_string(),
    }
}

/// What there is to know of how the members of a pool were chosen; `None` where they come from Services.
fn remarks(source: &Source) -> Option<Vec<Value>> {
    let remarks = match source {
        Source::Kubernetes => return None,
        Source::Xds { remarks, .. } => remarks,
    };
    Some(
        remarks
            .iter()
            .map(|remark| json!({ "reason": remark.as_str(), "detail": remark.to_string() }))
            .collect(),
    )
}

/// A node with endpoints of a Service that is left out of a pool of it.
fn left_out(of: &LeftOutView) -> Value {
    json!({
        "node": of.node.as_str(),
        "family": family(of.family),
        "rule": of.why.as_str(),
        "detail": of.why.to_string(),
    })
}

/// The admin state of each member.
fn admin_states(pool: &PoolView, observed: &BTreeSet<IpAddr>) -> Value {
    let states = observed.iter().filter_map(|ip| Some((ip.to_string(), pool.admin_state(ip)?)));
    states.map(|(ip, state)| (ip, json!(admin_state_word(state)))).collect::<serde_json::Map<_, _>>().into()
}

/// A family in words.
pub(super) fn family(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

/// What is known of a Service's EndpointSlices, in the words of `/api/v1/resources`.
fn resource(resource: &ResourceView) -> Value {
    json!({
        "state": resource.state.as_str(),
        "cacheState": resource.state.cache_state(resource.is_cached).as_str(),
        "error": resource.error.as_ref()
            .map(|(reason, message)| json!({ "reason": reason.as_str(), "message": message })),
    })
}

/// Members that a write changes: how many, and the first of them.
fn members(list: &MemberList) -> Value {
    let MemberList { count, named } = list;
    let named = named.iter().map(|member| {
        json!({
            "node": (!member.node.is_empty()).then_some(&member.node),
            "address": member.backend.as_ref().map(ToString::to_string),
        })
    });
    json!({ "count": count, "members": named.collect::<Vec<_>>() })
}
