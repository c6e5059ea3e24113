//! Contention with another client whose changes we undo again and again, and how long they are left alone
//! (docs/design/writer.md, W11). Lost writes share its counting and back-off of repeated events (W2).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use model::level::{Level, SurplusPolicy};
use model::machine::Now;

/// Upper limit of every doubling delay.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(600);

/// Period within which three times are too many (W2, W11).
const CONTENTION_WINDOW: Duration = Duration::from_secs(600);
const ALLOWED: usize = 3;
const FIRST_DELAY: Duration = Duration::from_secs(60);

/// Minimum time between two restorations of a member, from the end of one write to the next try.
const RESTORED_APART: Duration = Duration::from_secs(60);

/// Doubles a delay, up to the limit.
pub(super) fn doubled(delay: Duration) -> Duration {
    delay.saturating_mul(2).min(MAX_DELAY)
}

/// Counts an event that should be rare.
#[derive(Default, Debug)]
pub(super) struct RepeatCounter {
    recent: VecDeque<Now>,
    delay: Option<Duration>,
}

impl RepeatCounter {
    /// Counts one event. Returns the back-off from the third event within ten minutes on, and for each further event.
    /// The count starts again when no event occurs for ten minutes plus the last back-off.
    pub fn count(&mut self, now: Now) -> Option<Duration> {
        let calm_after = CONTENTION_WINDOW.saturating_add(self.delay.unwrap_or_default());
        if self.recent.back().is_none_or(|at| now.since(*at) > calm_after) {
            self.recent.clear();
            self.delay = None;
        }
        if self.recent.len() == ALLOWED {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        let often = self.recent.len() == ALLOWED
            && self.recent.front().is_some_and(|at| now.since(*at) <= CONTENTION_WINDOW);
        if !often && self.delay.is_none() {
            return None;
        }
        let delay = self.delay.map_or(FIRST_DELAY, doubled);
        self.delay = Some(delay);
        Some(delay)
    }
}

/// The changes of another client, and how often we undid them.
#[derive(Default, Debug)]
pub(super) struct Contention {
    /// Members found as drift that must go: removed by us before, or never ours.
    foreign: BTreeSet<IpAddr>,
    /// Required members found missing as drift.
    missing: BTreeSet<IpAddr>,
    undone: RepeatCounter,
    /// The end of the back-off from undoing.
    backoff_until: Now,
    /// The last restoration of each member, if it was less than a minute ago.
    restored: BTreeMap<IpAddr, Now>,
}

/// The begin of a back-off from undoing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ContentionBackoff {
    /// Number of members whose addition was undone last.
    pub members: usize,
    /// Time for which the additions of another client stay.
    pub left_for: Duration,
}

impl Contention {
    /// Records a difference found as drift, and returns when it may be corrected. If members are missing, they decide:
    /// additions of another client do not delay them, and the first member that is due brings all of them back. A
    /// difference of admin states alone is never left.
    pub fn record_drift(&mut self, level: &Level, members: &BTreeSet<IpAddr>) -> Now {
        let is_contended = |ip: &&IpAddr| !level.other_family.contains(*ip);
        self.foreign = level.surplus(members).filter(is_contended).copied().collect();
        self.missing = level.missing(members).copied().collect();
        let may_be_restored =
            |ip: &IpAddr| self.restored.get(ip).map_or(Now::ZERO, |at| at.plus(RESTORED_APART));
        let backoff_until = if self.foreign.is_empty() { Now::ZERO } else { self.backoff_until };
        self.missing.iter().map(may_be_restored).min().unwrap_or(backoff_until)
    }

    /// Drops members that are no longer another client's: they left the pool, or a Service asks for them.
    pub fn keep_current(&mut self, level: &Level, members: &BTreeSet<IpAddr>) {
        let is_contended = |ip: &IpAddr| !level.allows(ip) && !level.other_family.contains(ip);
        self.foreign.retain(|ip| members.contains(ip) && is_contended(ip));
    }

    /// Records the changes of a write. Returns the back-off from undoing, if one begins.
    pub fn record_write(
        &mut self,
        now: Now,
        added: &BTreeSet<IpAddr>,
        removed: &BTreeSet<IpAddr>,
    ) -> Option<ContentionBackoff> {
        self.restored.retain(|_, at| at.plus(RESTORED_APART) > now);
        self.restored.extend(self.missing.intersection(added).map(|ip| (*ip, now)));
        self.missing.clear();
        let members = self.foreign.intersection(removed).count();
        self.foreign.retain(|ip| !removed.contains(ip));
        if members == 0 {
            return None;
        }
        let left_for = self.undone.count(now)?;
        self.backoff_until = now.plus(left_for);
        Some(ContentionBackoff { members, left_for })
    }

    /// Returns the level that keeps another client's additions during a back-off; `None`: the level itself applies. A
    /// pool whose last members are kept has no such level (G2): another client's additions must not count as members
    /// that permit the removal of the last ones.
    pub fn relaxed(&self, now: Now, level: &Level) -> Option<Level> {
        if self.backoff_until <= now || (level.keeps != SurplusPolicy::RemoveAll && level.required.is_empty())
        {
            return None;
        }
        let left: Vec<IpAddr> = self.foreign.iter().filter(|ip| !level.allows(ip)).copied().collect();
        if left.is_empty() {
            return None;
        }
        let mut relaxed = level.clone();
        relaxed.tolerated.extend(left);
        Some(relaxed)
    }

    /// Returns the end of the back-off from undoing.
    pub fn backoff_until(&self) -> Now {
        self.backoff_until
    }
}
