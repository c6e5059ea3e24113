//! Leadership, the shared Lease and the pauses of operators in the admin API.

use model::machine::Now;
use model::operator_request::Scope;
use model::policy;
use model::view::{LeadershipView, PolicyView, SharedLeaseView};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::enums;
use super::super::values::{Seconds, Time};
use super::{Show, wall};

/// The remedy for a pause that cannot be read.
const UNREADABLE: &str = "correct or remove this key of the ConfigMap that has the namespace and name of the \
                          controller's Lease";

/// Leadership.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Leadership<'a> {
    /// The identity of this process.
    identity: &'a str,
    /// The role of this process.
    role: enums::Role,
    /// How long it has had the role, in seconds.
    role_seconds: Seconds,
    /// The holder of the controller's own Lease, as last seen. Null: none, or unknown.
    holder: Option<&'a str>,
    /// The current term, or the last one.
    term: u64,
    /// How long leadership lasts without another renewal, in seconds. Null: it does not lead, or there is no other replica.
    certain_for_seconds: Option<Seconds>,
    /// The last error, until a request succeeds.
    last_error: Option<&'a str>,
}

/// The Lease that the controller shares with the cloud-controller-manager.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SharedLease<'a> {
    /// The state of the Lease in this process.
    state: enums::SharedLeaseState,
    /// How long it has been in that state, in seconds.
    state_seconds: Seconds,
    /// The holder, as last seen.
    holder: Option<&'a str>,
    /// The kind of the holder.
    holder_kind: enums::LeaseHolderKind,
    /// How long this process has seen it held by this holder, in seconds. Null: no client holds it.
    holder_seconds: Option<Seconds>,
    /// When the state ends at the latest, in seconds. Null: unknown.
    ends_in_seconds: Option<Seconds>,
    /// How long a write has waited for it, in seconds. Null: none waits.
    wanted_seconds: Option<Seconds>,
    /// The last error, until a request succeeds.
    last_error: Option<&'a str>,
}

/// The pauses in the controller's ConfigMap.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pauses<'a> {
    /// Null: they have not been read yet.
    items: Option<Vec<Pause<'a>>>,
    /// The keys that look like pauses and cannot be read.
    unreadable: Vec<Unreadable<'a>>,
    /// Whether a new leader waits for them.
    leader_waits: bool,
    /// The last error, until a request succeeds.
    last_error: Option<&'a str>,
}

/// A pause.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pause<'a> {
    /// The scope.
    scope: enums::PauseScope,
    /// The pool or the Service. Null: everything.
    target: Option<String>,
    /// When it was set. Null: it has no readable time.
    since: Option<Time>,
    /// How long ago that was, in seconds.
    age_seconds: Option<Seconds>,
    /// Who set it. Null: it has no name.
    by: Option<&'a str>,
    /// The reason.
    reason: Option<&'a str>,
}

/// A key of the controller's ConfigMap that cannot be read.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Unreadable<'a> {
    /// The key.
    pub(in crate::http) key: &'a str,
    /// Why it cannot be read.
    pub(in crate::http) why: &'static str,
    /// What to do.
    pub(in crate::http) remedy: &'static str,
}

impl Show {
    /// Returns the leadership of this process.
    pub(super) fn leadership<'a>(&self, leadership: &'a LeadershipView) -> Leadership<'a> {
        Leadership {
            identity: &leadership.identity,
            role: enums::Role(leadership.role),
            role_seconds: self.age(leadership.since),
            holder: leadership.holder.as_deref(),
            term: leadership.epoch.0,
            certain_for_seconds: leadership.until.filter(|at| *at != Now::NEVER).map(|at| self.until(at)),
            last_error: leadership.last_error.as_deref(),
        }
    }

    /// Returns the state of the shared Lease.
    pub(super) fn shared_lease<'a>(&self, lease: &'a SharedLeaseView) -> SharedLease<'a> {
        SharedLease {
            state: enums::SharedLeaseState(lease.state),
            state_seconds: self.age(lease.since),
            holder: lease.holder.as_deref(),
            holder_kind: enums::LeaseHolderKind(lease.holder_kind.as_str()),
            holder_seconds: lease.held_since.map(|at| self.age(at)),
            ends_in_seconds: lease.until.filter(|at| *at != Now::NEVER).map(|at| self.until(at)),
            wanted_seconds: lease.wanted_since.map(|at| self.age(at)),
            last_error: lease.last_error.as_deref(),
        }
    }

    /// Returns the pauses of operators.
    pub(super) fn policy<'a>(&self, view: &'a PolicyView) -> Pauses<'a> {
        let PolicyView { mode: _, policy, unreadable, leader_waits, last_error } = view;
        let items = policy.as_ref().map(|policy| policy.pauses().map(|(of, pause)| self.pause(&of, pause)));
        let unreadable = unreadable.iter().map(|(key, why)| Unreadable { key, why, remedy: UNREADABLE });
        Pauses {
            items: items.map(Iterator::collect),
            unreadable: unreadable.collect(),
            leader_waits: *leader_waits,
            last_error: last_error.as_deref(),
        }
    }

    fn pause<'a>(&self, of: &Scope, pause: &'a policy::Pause) -> Pause<'a> {
        let (scope, target) = match of {
            Scope::Everything => ("everything", None),
            Scope::Pool(pool) => ("pool", Some(pool.to_string())),
            Scope::Service(key) => ("service", Some(key.to_string())),
            Scope::Node(name) => ("node", Some(name.to_string())),
        };
        Pause {
            scope: enums::PauseScope(scope),
            target,
            since: pause.since.and_then(wall),
            age_seconds: pause.since.map(|since| self.wall_age(since)),
            by: pause.by.as_deref(),
            reason: pause.reason.as_deref(),
        }
    }
}
