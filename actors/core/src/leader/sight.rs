//! What is known of our own Lease, by locally observed times (design.md W8).

use std::sync::Arc;
use std::time::Duration;

use crate::lease::{GateTimes, LeaseFacts};
use crate::machine::Now;

use super::Times;
use super::contest::RELEASED_FOR;

/// The longest hold of somebody else that is believed: ours last 45 s, and a number that a person wrote must not keep
/// everybody out for ever.
const LONGEST_HOLD: Duration = Duration::from_secs(15 * 60);

/// What is known of the Lease.
#[derive(Debug)]
pub(super) struct Sight {
    identity: Arc<str>,
    state: State,
    /// Until when the last PUT of a holder that did not let go may still arrive, but for that of the holder whom
    /// `state` names.
    danger_until: Now,
    /// Whether it has been seen in a state that is not of our making: then somebody may have led before.
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

/// A hold of somebody else.
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
    /// Nobody knows: look.
    Unknown,
    /// It does not exist: create it.
    Absent,
    /// It can be taken now, or is ours.
    Free(Arc<LeaseFacts>),
    /// Somebody else holds it until this moment.
    Held(Arc<LeaseFacts>, Now),
}

impl Sight {
    /// Nothing is known yet by this process.
    pub(super) fn new(identity: Arc<str>) -> Sight {
        Sight { identity, state: State::Unknown, danger_until: Now::ZERO, had_a_holder: false }
    }

    /// Whether what is known is certainly older than this state. `resourceVersion`s of one resource compare as
    /// numbers; where one is no number, nothing is certain. Neither the transitions nor the times that are noted in a
    /// Lease tell: a person may set them back, and clocks differ.
    pub(super) fn is_older_than(&self, facts: &LeaseFacts) -> bool {
        match &self.state {
            State::Unknown | State::Absent => true,
            State::Seen(before, _) => before.version.is_older_than(&facts.version),
        }
    }

    /// Takes in a state that was read, that a write of ours has made, or that is newer than the known one.
    pub(super) fn seen(&mut self, now: Now, facts: Arc<LeaseFacts>, times: Times) {
        let known = match &self.state {
            State::Seen(before, _) => before.version == facts.version,
            State::Unknown | State::Absent => false,
        };
        if known {
            return;
        }
        // Only a release as we write it says that its holder has ended all it did; whoever else empties a Lease does
        // not know.
        if facts.holder.is_some() || facts.duration != Some(RELEASED_FOR) {
            self.outlived_by_another(&facts, times);
        }
        self.had_a_holder |= facts.holder.as_ref() != Some(&self.identity);
        self.state = State::Seen(facts, now);
    }

    /// It is not there, whoever held it.
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

    /// From when on no PUT of anybody who held it before can arrive any more; the Lease is ours.
    pub(super) fn quiet_at(&self) -> Now {
        self.danger_until
    }

    /// Whether anybody else may have held it before.
    pub(super) fn has_had_a_holder(&self) -> bool {
        self.had_a_holder
    }

    /// The transitions that are noted in it.
    pub(super) fn transitions(&self) -> u64 {
        match &self.state {
            State::Unknown | State::Absent => 0,
            State::Seen(facts, _) => facts.transitions,
        }
    }

    /// The gate times that are noted in it.
    pub(super) fn gates(&self) -> GateTimes {
        match &self.state {
            State::Unknown | State::Absent => GateTimes::default(),
            State::Seen(facts, _) => facts.gates,
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
