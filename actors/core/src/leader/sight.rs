//! What is known of our own Lease, by locally observed times (docs/design/coordination.md, W8).

use std::sync::Arc;
use std::time::Duration;

use crate::lease::{GateTimes, LeaseFacts, OutOfSyncTimes};
use crate::machine::Now;
use crate::object::ResourceVersion;

use super::Times;
use super::contest::RELEASED_FOR;

/// The longest hold of another client that is believed: ours last 45 s, and a number that the operator wrote must not keep
/// all replicas out forever.
const LONGEST_HOLD: Duration = Duration::from_secs(15 * 60);

/// What is known of the Lease.
#[derive(Debug)]
pub(super) struct Sight {
    identity: Arc<str>,
    state: State,
    /// The version in which it was seen last, also where it is gone since.
    last: ResourceVersion,
    /// The most transitions that were noted in it, and one for each time that the storage was set back since.
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

/// What is new about a Lease that was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// Nothing, or no more than that it was renewed or released, is ours, or is seen for the first time.
    Usual,
    /// A term of another client has begun since it was seen last.
    TermOfAnother,
    /// It is certainly of another past than what was seen: older, or another state of the same version.
    Restored,
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

impl Sight {
    /// Nothing is known yet by this process.
    pub(super) fn new(identity: Arc<str>) -> Sight {
        Sight {
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

    /// Takes in a state that was read, that a write of ours has made, or that is newer than the known one.
    ///
    /// A read is answered with most recent data, so that proves that the storage was set back. Our own Lease is written
    /// every few seconds, so that no other object proves it sooner; and one that was not in the backup is made again with a
    /// version that is older than the last one too.
    pub(super) fn seen(&mut self, now: Now, facts: Arc<LeaseFacts>, times: Times) -> News {
        let restored = match &self.state {
            State::Seen(before, _) if before.version == facts.version => {
                if is_same_hold(before, &facts) {
                    return News::Usual;
                }
                // One version of an object is one state of it; but another past may come to the same version.
                true
            }
            State::Unknown | State::Absent | State::Seen(..) => facts.version.is_older_than(&self.last),
        };
        let news = match &self.state {
            State::Absent | State::Seen(..) if restored => News::Restored,
            State::Seen(before, _) if is_same_hold(before, &facts) => News::Usual,
            State::Absent | State::Seen(..) if self.is_of_another(&facts) => News::TermOfAnother,
            State::Unknown | State::Absent | State::Seen(..) => News::Usual,
        };
        // Only a release as we write it says that its holder has ended all it did; any other client that empties a
        // Lease does not know. And what is of another past says nothing of the holder that was seen.
        if restored {
            self.endangered(times);
        } else if facts.holder.is_some() || facts.duration != Some(RELEASED_FOR) {
            self.outlived_by_another(&facts, times);
        }
        self.had_a_holder |= facts.holder.as_ref() != Some(&self.identity);
        // Where it was set back, the next one does not count for more than those that were seen.
        self.transitions = self.transitions.saturating_add(u64::from(restored)).max(facts.transitions);
        self.last = facts.version.clone();
        self.state = State::Seen(facts, now);
        news
    }

    /// Whether another client holds it.
    fn is_of_another(&self, facts: &LeaseFacts) -> bool {
        facts.holder.as_ref().is_some_and(|holder| *holder != self.identity)
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
