//! Sources of facts, load balancers, lanes and gates in the admin API.

use model::sample::GateClass;
use model::view::{GateView, LaneView, LbView, SourceView};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::enums;
use super::super::values::Seconds;
use super::Show;

/// A kind of Kubernetes objects that the controller watches.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Source<'a> {
    /// The kind.
    kind: enums::SourceKind,
    /// The state of its watcher.
    phase: &'static str,
    /// Whether the first list is complete.
    synced: bool,
    /// Number of known objects.
    objects: usize,
    /// How long ago the last line of a watch or list arrived, in seconds. Null: none has.
    heard_seconds: Option<Seconds>,
    /// How long no watch of this kind has delivered changes, in seconds. Null while one does.
    not_followed_seconds: Option<Seconds>,
    /// The last error, until a request succeeds.
    last_error: Option<&'a str>,
}

/// A load balancer, as it was last read.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LoadBalancer<'a> {
    /// Its name.
    name: &'a str,
    /// Whether it exists. Null: it was not read yet.
    exists: Option<bool>,
    /// How long ago it was last read, in seconds.
    read_seconds: Option<Seconds>,
    /// Number of its backend pools.
    pools: usize,
    /// The last error, until a read succeeds.
    last_error: Option<&'a str>,
}

/// The serial order of writes on one load balancer.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Lane<'a> {
    /// The load balancer.
    load_balancer: &'a str,
    /// The pool that is being written. Null: none is.
    writing: Option<LaneWriting>,
    /// The pools that wait, in the order in which they would be granted.
    waiting: Vec<LaneWaiting>,
    /// Why it starts no write now, other than those of admin states alone. Null: it is open.
    blocked_by: Option<enums::BlockedBy>,
    /// When it opens, in seconds. Null: it is open, or unknown.
    blocked_for_seconds: Option<Seconds>,
    /// The fault for which its writes wait, with `breaker`. Null: there is none.
    fault: Option<&'a str>,
}

/// A pool that is being written.
#[derive(Serialize, ToSchema)]
pub(super) struct LaneWriting {
    /// The pool.
    pool: String,
    /// The phase of the write.
    phase: &'static str,
    /// How long it has been, in seconds.
    seconds: Seconds,
}

/// A pool that waits to be written.
#[derive(Serialize, ToSchema)]
pub(super) struct LaneWaiting {
    /// The pool.
    pool: String,
    /// The kind of the pending write.
    class: &'static str,
    /// How long it has waited, in seconds.
    seconds: Seconds,
}

/// The throttle gate and the budget of a request class to Azure.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gate {
    /// The request class.
    class: enums::GateClass,
    /// Why no write starts: `throttled` or `budget`. Null: one may.
    blocked_by: Option<enums::BlockedBy>,
    /// How long that lasts, in seconds. Null: one may start.
    blocked_for_seconds: Option<Seconds>,
    /// Number of requests that may be sent now.
    budget_left: f64,
    /// The maximum number of requests that may be sent in a burst.
    #[schema(minimum = 0)]
    budget: f64,
}

impl Show {
    /// Returns the source of one kind of Kubernetes objects.
    pub(super) fn source<'a>(&self, source: &'a SourceView) -> Source<'a> {
        Source {
            kind: enums::SourceKind(source.kind.resource()),
            phase: source.phase,
            synced: source.synced,
            objects: source.objects,
            heard_seconds: source.heard_at.map(|at| self.age(at)),
            not_followed_seconds: source.stale_since.map(|at| self.age(at)),
            last_error: source.last_error.as_deref(),
        }
    }

    /// Returns a load balancer, as it was last read.
    pub(super) fn lb<'a>(&self, lb: &'a LbView) -> LoadBalancer<'a> {
        LoadBalancer {
            name: lb.lb.as_str(),
            exists: lb.exists,
            read_seconds: lb.read_at.map(|at| self.age(at)),
            pools: lb.pools,
            last_error: lb.last_error.as_deref(),
        }
    }

    /// Returns a lane with its current write and the pools that wait.
    pub(in crate::http) fn lane<'a>(&self, lane: &'a LaneView) -> Lane<'a> {
        let waiting = lane.waiting.iter().map(|waiting| LaneWaiting {
            pool: waiting.pool.to_string(),
            class: waiting.class,
            seconds: self.age(waiting.since),
        });
        let blocked = lane.blocked();
        Lane {
            load_balancer: lane.lb.as_str(),
            writing: lane.writing.as_ref().map(|(pool, phase, since)| LaneWriting {
                pool: pool.to_string(),
                phase,
                seconds: self.age(*since),
            }),
            waiting: waiting.collect(),
            blocked_by: blocked.map(|blocked| enums::BlockedBy(blocked.why.as_str())),
            blocked_for_seconds: blocked.and_then(|blocked| blocked.until).map(|at| self.until(at)),
            fault: lane.fault.as_deref(),
        }
    }

    /// Returns a gate with its budget.
    pub(super) fn gate(&self, class: GateClass, gate: &GateView) -> Gate {
        let blocked = gate.blocked.filter(|blocked| blocked.applies(self.now));
        Gate {
            class: enums::GateClass(class.as_str()),
            blocked_by: blocked.map(|blocked| enums::BlockedBy(blocked.why.as_str())),
            blocked_for_seconds: blocked.and_then(|blocked| blocked.until).map(|at| self.until(at)),
            budget_left: gate.tokens,
            budget: gate.capacity,
        }
    }
}
