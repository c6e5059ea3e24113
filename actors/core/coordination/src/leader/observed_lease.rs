//! The known state of our own Lease, by locally observed times (docs/design/coordination.md, W8).

use std::sync::Arc;
use std::time::Duration;

use model::lease::{GateTimes, LeaseFacts, OutOfSyncTimes};
use model::machine::Now;
use model::object::ResourceVersion;

use super::{StorageRollback, Times};

/// Longest hold of another process that is respected. Ours last 45 s, and a value written by the operator must not keep
/// all replicas out permanently.
const MAX_HOLD: Duration = Duration::from_secs(15 * 60);
/// The duration in a Lease without a holder: the least that the API permits. It distinguishes our release from an
/// emptied Lease.
pub(super) const RELEASED_FOR: Duration = Duration::from_secs(1);

/// The known state of the Lease.
#[derive(Debug)]
pub(super) struct ObservedLease {
    identity: Arc<str>,
    state: LeaseState,
    /// The last observed version, kept when the Lease is gone.
    last: ResourceVersion,
    /// The highest number of transitions recorded in it.
    transitions: u64,
    /// Until when the last PUT of a holder that did not release may still arrive; excludes the holder in `state`.
    last_put_until: Now,
    /// Whether it was observed in a state that this process did not make: then another replica may have led before.
    had_other_writer: bool,
}

#[derive(Debug)]
enum LeaseState {
    /// Unknown or outdated.
    Unknown,
    /// The Lease does not exist.
    Absent,
    /// The content, and when it was first observed.
    Known(Arc<LeaseFacts>, Now),
}

/// Returns whether two states of a Lease describe the same hold.
fn is_same_hold(one: &LeaseFacts, other: &LeaseFacts) -> bool {
    one.holder == other.holder && one.duration == other.duration && one.transitions == other.transitions
}

/// A hold of another process.
struct ForeignHold {
    first_seen: Now,
    lasts: Duration,
}

impl ForeignHold {
    fn expires(&self) -> Now {
        self.first_seen.plus(self.lasts)
    }
}

/// The state of the Lease for a process that needs it.
pub(super) enum LeaseAvailability {
    /// Unknown: the Lease must be read.
    Unknown,
    /// The Lease does not exist and can be created.
    Absent,
    /// The Lease can be taken now, or is ours.
    Free(Arc<LeaseFacts>),
    /// Another process holds the Lease until this moment.
    Held(Arc<LeaseFacts>, Now),
}

impl ObservedLease {
    /// Creates an unknown state.
    pub(super) fn new(identity: Arc<str>) -> ObservedLease {
        ObservedLease {
            identity,
            state: LeaseState::Unknown,
            last: ResourceVersion::default(),
            transitions: 0,
            last_put_until: Now::ZERO,
            had_other_writer: false,
        }
    }

    /// Returns whether the known state is certainly older than this one. `resourceVersion`s of one resource compare
    /// as numbers. If one of them is not a number, nothing is certain. The transitions and times in a Lease prove
    /// nothing: the operator may set them back, and clocks differ.
    pub(super) fn is_older_than(&self, facts: &LeaseFacts) -> bool {
        match &self.state {
            LeaseState::Unknown | LeaseState::Absent => true,
            LeaseState::Known(before, _) => before.version.is_older_than(&facts.version),
        }
    }

    /// Returns `Some` if this state, which was read or made by our write, proves that the storage was restored.
    ///
    /// A read returns most recent data. Our own Lease is written every few seconds, so no other object proves it
    /// sooner. A Lease that was not in the backup is created again, also with an older version than the last one.
    pub(super) fn rollback(&self, facts: &LeaseFacts) -> Option<StorageRollback> {
        let is_another = match &self.state {
            // One version of an object has one content; but a restored storage may reach the same version again.
            LeaseState::Known(before, _) => before.version == facts.version && !is_same_hold(before, facts),
            LeaseState::Unknown | LeaseState::Absent => false,
        };
        (is_another || facts.version.is_older_than(&self.last))
            .then(|| StorageRollback { known: self.last.clone(), read: facts.version.clone() })
    }

    /// Records a state that was read, that our write made, or that is newer than the known one.
    pub(super) fn record(&mut self, now: Now, facts: Arc<LeaseFacts>, times: Times) {
        if let LeaseState::Known(before, _) = &self.state
            && before.version == facts.version
        {
            return;
        }
        // Only a release in the form that we write means that the holder has ended all its writes. Another client
        // that clears the holder does not know this.
        if facts.holder.is_some() || facts.duration != Some(RELEASED_FOR) {
            self.handle_successor(&facts, times);
        }
        self.had_other_writer |= facts.holder.as_ref() != Some(&self.identity);
        self.transitions = self.transitions.max(facts.transitions);
        self.last = facts.version.clone();
        self.state = LeaseState::Known(facts, now);
    }

    /// Records that the Lease does not exist, whichever process held it.
    pub(super) fn record_absent(&mut self, times: Times) {
        self.expect_late_put(times);
        self.state = LeaseState::Absent;
    }

    /// Handles a state other than a release. If the holder has changed, the former holder may not have released the
    /// Lease, and its last PUT may still arrive.
    fn handle_successor(&mut self, facts: &LeaseFacts, times: Times) {
        let same = match &self.state {
            LeaseState::Known(before, _) => before.holder == facts.holder,
            LeaseState::Unknown | LeaseState::Absent => true,
        };
        if !same {
            self.expect_late_put(times);
        }
    }

    /// Handles a holder that has gone without a release: its last PUT may still arrive for a while.
    fn expect_late_put(&mut self, times: Times) {
        if let Some(foreign) = self.foreign(times) {
            self.last_put_until = self.last_put_until.max(foreign.expires().plus(times.settle));
        }
    }

    fn foreign(&self, times: Times) -> Option<ForeignHold> {
        match &self.state {
            LeaseState::Unknown | LeaseState::Absent => None,
            LeaseState::Known(facts, first_seen) => {
                let holder = facts.holder.as_ref()?;
                let lasts = facts.duration.unwrap_or_default().clamp(times.lease_duration, MAX_HOLD);
                (*holder != self.identity).then_some(ForeignHold { first_seen: *first_seen, lasts })
            }
        }
    }

    /// Returns the state for a process that needs the Lease.
    pub(super) fn availability(&self, now: Now, times: Times) -> LeaseAvailability {
        match &self.state {
            LeaseState::Unknown => LeaseAvailability::Unknown,
            LeaseState::Absent => LeaseAvailability::Absent,
            LeaseState::Known(facts, _) => match self.foreign(times).map(|foreign| foreign.expires()) {
                Some(expires) if expires > now => LeaseAvailability::Held(Arc::clone(facts), expires),
                Some(_) | None => LeaseAvailability::Free(Arc::clone(facts)),
            },
        }
    }

    /// Returns the newest state if it names us as the holder.
    pub(super) fn ours(&self) -> Option<Arc<LeaseFacts>> {
        match &self.state {
            LeaseState::Unknown | LeaseState::Absent => None,
            LeaseState::Known(facts, _) => {
                (facts.holder.as_ref() == Some(&self.identity)).then(|| Arc::clone(facts))
            }
        }
    }

    /// Returns from when on no PUT of an earlier holder can arrive, given that the Lease is ours.
    pub(super) fn quiet_at(&self) -> Now {
        self.last_put_until
    }

    /// Returns whether another process may have held it before.
    pub(super) fn had_other_writer(&self) -> bool {
        self.had_other_writer
    }

    /// Returns a number of transitions that is at least the true one.
    pub(super) fn transitions(&self) -> u64 {
        self.transitions
    }

    /// Returns the recorded gate times.
    pub(super) fn gates(&self) -> GateTimes {
        match &self.state {
            LeaseState::Unknown | LeaseState::Absent => GateTimes::default(),
            LeaseState::Known(facts, _) => facts.gates,
        }
    }

    /// Returns the pools recorded as out of sync.
    pub(super) fn out_of_sync(&self) -> OutOfSyncTimes {
        match &self.state {
            LeaseState::Unknown | LeaseState::Absent => OutOfSyncTimes::default(),
            LeaseState::Known(facts, _) => Arc::clone(&facts.out_of_sync),
        }
    }

    /// Returns the holder.
    pub(super) fn holder(&self) -> Option<Arc<str>> {
        match &self.state {
            LeaseState::Unknown | LeaseState::Absent => None,
            LeaseState::Known(facts, _) => facts.holder.clone(),
        }
    }
}
