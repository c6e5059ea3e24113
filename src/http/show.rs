//! Views as answers: one spelling of each thing for the whole admin API. The descriptions of fields are those of the
//! OpenAPI document.

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

/// Shows views as of one moment.
pub(super) struct Show {
    pub(super) clock: Clock,
    pub(super) now: Now,
}

impl Show {
    /// How long ago a moment was.
    pub(super) fn age(&self, at: Now) -> Seconds {
        Seconds(self.now.since(at).as_secs_f64())
    }

    /// How old a snapshot is; `None` before the first.
    pub(super) fn snapshot_age(&self, snapshot: &Snapshot) -> SnapshotAge {
        SnapshotAge((snapshot.at > Now::ZERO).then(|| self.age(snapshot.at).0))
    }

    /// How long ago a noted time was; 0 where it is in the future by our clock.
    fn wall_age(&self, at: Wall) -> Seconds {
        let micros = self.clock.wall_at(self.now).as_micros().saturating_sub(at.as_micros());
        Seconds(std::time::Duration::from_micros(u64::try_from(micros).unwrap_or(0)).as_secs_f64())
    }

    /// A moment as operators write it.
    pub(super) fn time(&self, at: Now) -> Option<Time> {
        wall(self.clock.wall_at(at))
    }

    /// How long it is until a moment; 0 once it has passed.
    pub(super) fn until(&self, at: Now) -> Seconds {
        Seconds(at.since(self.now).as_secs_f64())
    }
}

/// A noted time, as operators write it.
pub(super) fn wall(at: Wall) -> Option<Time> {
    jiff::Timestamp::from_microsecond(at.as_micros()).ok().map(|time| Time(format!("{time:.3}")))
}

/// What operators wish, as far as it has been read.
fn wished(snapshot: &Snapshot) -> Option<&OperatorPolicy> {
    snapshot.policy.as_ref()?.policy.as_deref()
}

/// The pause that the operator has made, behind one of the things that pause a pool.
pub(super) fn pause<'a>(snapshot: &'a Snapshot, pool: &PoolId, by: &PausedBy) -> Option<&'a Pause> {
    wished(snapshot)?.pause_of(pool, by)
}

/// A family in words.
pub(super) fn family(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}
