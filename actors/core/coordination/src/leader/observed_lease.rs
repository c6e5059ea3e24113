//! What is known of our own Lease, by locally observed times (docs/design/coordination.md, W8).

use std::sync::Arc;
use std::time::Duration;

use model::lease::{GateTimes, LeaseFacts, OutOfSyncTimes};
use model::machine::Now;
use model::object::ResourceVersion;

use super::requests::RELEASED_FOR;
use super::{SetBack, Times};

/// The longest hold of another client that is believed: ours last 45 s, and a number that the operator wrote must not keep
/// all replicas out forever.
const LONGEST_HOLD: Duration = Duration::from_secs(15 * 60);

/// What is known of the Lease.
#[derive(Debug)]
pub(super) struct ObservedLease {
    identity: Arc<str>,
    state: State,
    /// The version in which it was seen last, also where it is gone since.
    last: ResourceVersion,
    /// The most transitions that were noted in it.
    transitions: u64,
    /// Until when the last PUT of a holder that did not let go may still arrive, but for that of the holder whom
    /// `state` names.
    danger_until: Now,
    /// Whether it has been seen in a state that is not of our making: then another replica may have led before.
    had_a_holder: bool,
}

#[derive(Debug)]
enum State {
    /// Nothing is known, or what is known may be out of date.
    Unknown,
    /// It does not exist.
    Absent,
    /// It is as these facts say, and was first seen so at this moment.
    Seen(Arc<LeaseFacts>, Now),
}

/// Whether two states of a Lease tell the same of who holds it.
fn is_same_hold(one: &LeaseFacts, other: &LeaseFacts) -> bool {
    one.holder == other.holder && one.duration == other.duration && one.transitions == other.transitions
}

/// A hold of another client.
struct Foreign {
    first_seen: Now,
    lasts: Duration,
}

impl Foreign {
    fn expires(&self) -> Now {
        self.first_seen.plus(self.lasts)
    }
}

/// What the Lease means for a process that wants it.
pub(super) enum Chance {
    /// It is not known: look.
    Unknown,
    /// It does not exist: create it.
    Absent,
    /// It can be taken now, or is ours.
    Free(Arc<LeaseFacts>),
    /// Another client holds it until this moment.
    Held(Arc<LeaseFacts>, Now),
}

impl ObservedLease {
    /// Nothing is known yet by this process.
    pub(super) fn new(identity: Arc<str>) -> ObservedLease {
        ObservedLease {
            identity,
            state: State::Unknown,
            last: ResourceVersion::default(),
            transitions: 0,
            danger_until: Now::ZERO,
            had_a_holder: false,
        }
    }

    /// Whether what is known is certainly older than this state. `resourceVersion`s of one resource compare as
    /// numbers; where one is no number, nothing is certain. Neither the transitions nor the times that are noted in a
    /// Lease tell: the operator may set them back, and clocks differ.
    pub(super) fn is_older_than(&self, facts: &LeaseFacts) -> bool {
        match &self.state {
            State::Unknown | State::Absent => true,
            State::Seen(before, _) => before.version.is_older_than(&facts.version),
        }
    }

    /// What this state proves that was read, or that a write of ours has made: `Some` if the storage was set back.
    ///
    /// A read is answered with most recent data. Our own Lease is written every few seconds, so that no other object
    /// proves it sooner; and one that was not in the backup is made again with a version that is older than the last one
    /// too.
    pub(super) fn set_back(&self, facts: &LeaseFacts) -> Option<SetBack> {
        let is_another = match &self.state {
            // One version of an object is one state of it; but another past may come to the same version.
            State::Seen(before, _) => before.version == facts.version && !is_same_hold(before, facts),
            State::Unknown | State::Absent => false,
        };
        (is_another || facts.version.is_older_than(&self.last))
            .then(|| SetBack { known: self.last.clone(), read: facts.version.clone() })
    }

    /// Takes in a state that was read, that a write of ours has made, or that is newer than the known one.
    pub(super) fn seen(&mut self, now: Now, facts: Arc<LeaseFacts>, times: Times) {
        if let State::Seen(before, _) = &self.state
            && before.version == facts.version
        {
            return;
        }
        // Only a release as we write it says that its holder has ended all it did; any other client that
        // empties a Lease does not know.
        if facts.holder.is_some() || facts.duration != Some(RELEASED_FOR) {
            self.outlived_by_another(&facts, times);
        }
        self.had_a_holder |= facts.holder.as_ref() != Some(&self.identity);
        self.transitions = self.transitions.max(facts.transitions);
        self.last = facts.version.clone();
        self.state = State::Seen(facts, now);
    }

    /// It does not exist, whichever client held it.
    pub(super) fn absent(&mut self, times: Times) {
        self.endangered(times);
        self.state = State::Absent;
    }

    /// A holder other than the one that was seen did not see it let go, unless it is the same one again.
    fn outlived_by_another(&mut self, facts: &LeaseFacts, times: Times) {
        let same = match &self.state {
            State::Seen(before, _) => before.holder == facts.holder,
            State::Unknown | State::Absent => true,
        };
        if !same {
            self.endangered(times);
        }
    }

    /// The holder that was seen has gone without letting go: its last PUT may still arrive for a while.
    fn endangered(&mut self, times: Times) {
        if let Some(foreign) = self.foreign(times) {
            self.danger_until = self.danger_until.max(foreign.expires().plus(times.settle));
        }
    }

    fn foreign(&self, times: Times) -> Option<Foreign> {
        match &self.state {
            State::Unknown | State::Absent => None,
            State::Seen(facts, first_seen) => {
                let holder = facts.holder.as_ref()?;
                let lasts = facts.duration.unwrap_or_default().clamp(times.duration, LONGEST_HOLD);
                (*holder != self.identity).then_some(Foreign { first_seen: *first_seen, lasts })
            }
        }
    }

    /// What it means for a process that wants it.
    pub(super) fn chance(&self, now: Now, times: Times) -> Chance {
        match &self.state {
            State::Unknown => Chance::Unknown,
            State::Absent => Chance::Absent,
            State::Seen(facts, _) => match self.foreign(times).map(|foreign| foreign.expires()) {
                Some(expires) if expires > now => Chance::Held(Arc::clone(facts), expires),
                Some(_) | None => Chance::Free(Arc::clone(facts)),
            },
        }
    }

    /// The newest state, when it names us as the holder.
    pub(super) fn ours(&self) -> Option<Arc<LeaseFacts>> {
        match &self.state {
            State::Unknown | State::Absent => None,
            State::Seen(facts, _) => {
                (facts.holder.as_ref() == Some(&self.identity)).then(|| Arc::clone(facts))
            }
        }
    }

    /// From when on no PUT of an earlier holder can arrive any more; the Lease is ours.
    pub(super) fn quiet_at(&self) -> Now {
        self.danger_until
    }

    /// Whether another client may have held it before.
    pub(super) fn has_had_a_holder(&self) -> bool {
        self.had_a_holder
    }

    /// At least as many transitions as there were.
    pub(super) fn transitions(&self) -> u64 {
        self.transitions
    }

    /// The gate times that are noted in it.
    pub(super) fn gates(&self) -> GateTimes {
        match &self.state {
            State::Unknown | State::Absent => GateTimes::default(),
            State::Seen(facts, _) => facts.gates,
        }
    }

    /// The pools that are noted in it as out of sync.
    pub(super) fn out_of_sync(&self) -> OutOfSyncTimes {
        match &self.state {
            State::Unknown | State::Absent => OutOfSyncTimes::default(),
            State::Seen(facts, _) => Arc::clone(&facts.out_of_sync),
        }
    }

    /// Who holds it.
    pub(super) fn holder(&self) -> Option<Arc<str>> {
        match &self.state {
            State::Unknown | State::Absent => None,
            State::Seen(facts, _) => facts.holder.clone(),
        }
    }
}
