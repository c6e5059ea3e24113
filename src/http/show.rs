//! Converts views to answers of the admin API, so that each object has the same form in all answers. The doc comments
//! of fields are the descriptions in the OpenAPI document.

mod lanes;
mod leadership;
mod pools;
mod services;
mod status;

use actors::clock::Clock;
use model::assignment::PausedBy;
use model::ids::{Family, PoolId};
use model::machine::{Now, Wall};
use model::policy::{OperatorPolicy, Pause};
use model::view::{Snapshot, admin_state_word};

use super::values::{Seconds, SnapshotAge, Time};
pub(super) use lanes::Lane;
pub(super) use leadership::Unreadable;
pub(super) use pools::{Guards, HeldLine, Pool, PoolLine, differs};
pub(super) use services::{NotManageable, OneService, ServiceLine};
pub(super) use status::Status;

/// Converts views to answers, with the times relative to `now`.
pub(super) struct Show {
    pub(super) clock: Clock,
    pub(super) now: Now,
}

impl Show {
    /// Returns the time since a moment.
    pub(super) fn age(&self, at: Now) -> Seconds {
        Seconds(self.now.since(at).as_secs_f64())
    }

    /// Returns the age of a snapshot; null before the first.
    pub(super) fn snapshot_age(&self, snapshot: &Snapshot) -> SnapshotAge {
        SnapshotAge((snapshot.at > Now::ZERO).then(|| self.age(snapshot.at).0))
    }

    /// Returns the time since a recorded wall-clock time; 0 if the time is in the future of our clock.
    fn wall_age(&self, at: Wall) -> Seconds {
        let micros = self.clock.wall_at(self.now).as_micros().saturating_sub(at.as_micros());
        Seconds(std::time::Duration::from_micros(u64::try_from(micros).unwrap_or(0)).as_secs_f64())
    }

    /// Returns a moment as wall-clock time in RFC 3339.
    pub(super) fn time(&self, at: Now) -> Option<Time> {
        wall(self.clock.wall_at(at))
    }

    /// Returns the time until a moment; 0 once it has passed.
    pub(super) fn until(&self, at: Now) -> Seconds {
        Seconds(at.since(self.now).as_secs_f64())
    }
}

/// Returns a wall-clock time in RFC 3339.
pub(super) fn wall(at: Wall) -> Option<Time> {
    jiff::Timestamp::from_microsecond(at.as_micros()).ok().map(|time| Time(format!("{time:.3}")))
}

/// Returns the operator policy, if it has been read.
fn wished(snapshot: &Snapshot) -> Option<&OperatorPolicy> {
    snapshot.policy.as_ref()?.policy.as_deref()
}

/// Returns the operator's pause from which `by` follows, if there is one.
pub(super) fn pause<'a>(snapshot: &'a Snapshot, pool: &PoolId, by: &PausedBy) -> Option<&'a Pause> {
    wished(snapshot)?.pause_of(pool, by)
}

/// Returns the name of an IP family.
pub(super) fn family(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}
