//! Another client's changes that are undone again and again, and how long they are left alone (docs/design/writer.md,
//! W11); with it the count and the back-off of whatever should not happen often, which lost writes share (W2).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use model::level::{Keeps, Level};
use model::machine::Now;

/// The longest of every doubling delay.
pub(super) const LONGEST_DELAY: Duration = Duration::from_secs(600);

/// Three times within this span are too often (W2, W11).
const WITHIN: Duration = Duration::from_secs(600);
const ALLOWED: usize = 3;
const FIRST_DELAY: Duration = Duration::from_secs(60);

/// How far apart a missing member is restored, from the end of one write to the next try.
const RESTORED_APART: Duration = Duration::from_secs(60);

/// Doubles a delay, up to the longest.
pub(super) fn doubled(delay: Duration) -> Duration {
    delay.saturating_mul(2).min(LONGEST_DELAY)
}

/// Something that should not happen often.
#[derive(Default, Debug)]
pub(super) struct Repeats {
    recent: VecDeque<Now>,
    delay: Option<Duration>,
}

impl Repeats {
    /// Counts one. The third within ten minutes, and each further one until it has been calm for as long after the
    /// last back-off, says how long to back off.
    pub fn count(&mut self, now: Now) -> Option<Duration> {
        let calm_after = WITHIN.saturating_add(self.delay.unwrap_or_default());
        if self.recent.back().is_none_or(|at| now.since(*at) > calm_after) {
            self.recent.clear();
            self.delay = None;
        }
        if self.recent.len() == ALLOWED {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        let often =
            self.recent.len() == ALLOWED && self.recent.front().is_some_and(|at| now.since(*at) <= WITHIN);
        if !often && self.delay.is_none() {
            return None;
        }
        let delay = self.delay.map_or(FIRST_DELAY, doubled);
        self.delay = Some(delay);
        Some(delay)
    }
}

/// What another client has changed in the pool, and how often that was undone.
#[derive(Default, Debug)]
pub(super) struct Contention {
    /// Members found as drift that must go: removed by us before, or never ours.
    foreign: BTreeSet<IpAddr>,
    /// Required members that were found missing as drift.
    missing: BTreeSet<IpAddr>,
    undone: Repeats,
    /// The end of the back-off from undoing.
    left_until: Now,
    /// When each member was last restored, if that is less than a minute ago.
    restored: BTreeMap<IpAddr, Now>,
}

/// A fight: a back-off from undoing begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fight {
    /// How many members were undone when it began.
    pub members: usize,
    /// How long what another client adds is left.
    pub left_for: Duration,
}

impl Contention {
    /// Takes in a difference found as drift; gives the moment from which it may be set right. What is missing
    /// decides, where something is: it is not held back by what another client adds, and the first of several
    /// members whose time has come brings all of them back. Where only admin states differ nothing is to be left.
    pub fn found(&mut self, level: &Level, members: &BTreeSet<IpAddr>) -> Now {
        let is_contended = |ip: &&IpAddr| !level.other_family.contains(*ip);
        self.foreign = level.surplus(members).filter(is_contended).copied().collect();
        self.missing = level.missing(members).copied().collect();
        let may_be_restored =
            |ip: &IpAddr| self.restored.get(ip).map_or(Now::ZERO, |at| at.plus(RESTORED_APART));
        let left_until = if self.foreign.is_empty() { Now::ZERO } else { self.left_until };
        self.missing.iter().map(may_be_restored).min().unwrap_or(left_until)
    }

    /// Forgets what is not, or no longer, another client's: it has left the pool, or a Service asks for it.
    pub fn keep_current(&mut self, level: &Level, members: &BTreeSet<IpAddr>) {
        let is_contended = |ip: &IpAddr| !level.allows(ip) && !level.other_family.contains(ip);
        self.foreign.retain(|ip| members.contains(ip) && is_contended(ip));
    }

    /// Takes in what a write changed; says whether a back-off from undoing begins.
    pub fn written(
        &mut self,
        now: Now,
        added: &BTreeSet<IpAddr>,
        removed: &BTreeSet<IpAddr>,
    ) -> Option<Fight> {
        self.restored.retain(|_, at| at.plus(RESTORED_APART) > now);
        self.restored.extend(self.missing.intersection(added).map(|ip| (*ip, now)));
        self.missing.clear();
        let members = self.foreign.intersection(removed).count();
        self.foreign.retain(|ip| !removed.contains(ip));
        if members == 0 {
            return None;
        }
        let left_for = self.undone.count(now)?;
        self.left_until = now.plus(left_for);
        Some(Fight { members, left_for })
    }

    /// The level that leaves alone what another client has added, while we back off from undoing it; `None`: the
    /// level itself holds. A pool whose last members are kept is left to that (G2): what another client adds must
    /// not count as a member that lets them go.
    pub fn loosened(&self, now: Now, level: &Level) -> Option<Level> {
        if self.left_until <= now || (level.keeps != Keeps::Nothing && level.required.is_empty()) {
            return None;
        }
        let left: Vec<IpAddr> = self.foreign.iter().filter(|ip| !level.allows(ip)).copied().collect();
        if left.is_empty() {
            return None;
        }
        let mut loosened = level.clone();
        loosened.tolerated.extend(left);
        Some(loosened)
    }

    /// The end of the back-off from undoing.
    pub fn left_until(&self) -> Now {
        self.left_until
    }
}
