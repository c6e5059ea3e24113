//! The present and former number of members of one pool.

use std::collections::VecDeque;
use std::time::Duration;

use model::ids::PoolId;
use model::machine::Now;

/// The age of the state with which a pool is compared.
pub(in crate::directory) const LOOKBACK: Duration = Duration::from_secs(300);
/// Time after which the members that an empty pool received become its baseline.
const STEADY_AFTER: Duration = Duration::from_secs(30);
/// Changes within this time count as one.
pub(super) const MERGE_WINDOW: Duration = Duration::from_secs(10);

/// The number of members that a pool is to have, with the facts for the comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::directory) struct PoolSize {
    /// Number of members that would be left, including those that stay only for a while.
    pub(in crate::directory) left: usize,
    /// Number of members that the pool lost or would lose for causes that count, within five minutes.
    pub(in crate::directory) lost: usize,
    /// Number of required members.
    pub(in crate::directory) asked: usize,
    /// Number of members, of those that may be in the pool, that would go now for causes that count.
    pub(in crate::directory) going: usize,
    /// Number of observed members.
    pub(in crate::directory) seen: usize,
    /// Time at which the GET began that observed them.
    pub(in crate::directory) seen_at: Now,
    /// Number of members that may be in the pool: some may have been written since.
    pub(in crate::directory) present: usize,
    /// Whether the operator paused the pool.
    pub(in crate::directory) paused: PauseScope,
    /// Whether the configuration asks for all removals (X3).
    pub(in crate::directory) by_config: bool,
}

/// Whether the operator paused a pool (G6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::directory) enum PauseScope {
    /// The pool is not paused.
    No,
    /// Paused together with every other pool.
    WithAll,
    /// Paused alone, or with its Service.
    Alone,
}

/// The former number of members of one pool.
pub(super) struct History {
    /// The number of members five minutes ago, unless removals are stopped, or the operator or the end of a pause has
    /// set it.
    base: usize,
    /// The members that an empty pool has received, and since when, once they have lasted for [`STEADY_AFTER`]. Kept
    /// for five minutes.
    steady: Option<(Now, usize)>,
    /// Later numbers, each with the time from which it applies, in order.
    pub(super) later: VecDeque<(Now, usize)>,
    size: PoolSize,
    /// When the pause ended, until a later read observes the pool.
    resumed: Option<Now>,
    /// Whether the operator released the held removals: the members that remain then become the baseline.
    guard_released: bool,
    /// The last time at which a released member was observed, and the baseline before the release.
    released: Option<(Now, usize)>,
    /// Whether the breaker counts the pool although it is paused: it was counted before the pause.
    counted: bool,
}

/// How one pool counts in the tally.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TallyEntry {
    /// Whether the pool counts.
    pub(super) counts: bool,
    /// Whether the pool counts and is left with less than half of its baseline.
    pub(super) shrunk: bool,
    /// Whether it is `shrunk` and would lose members now.
    pub(super) loses: bool,
}

impl PauseScope {
    fn is_any(self) -> bool {
        match self {
            PauseScope::No => false,
            PauseScope::WithAll | PauseScope::Alone => true,
        }
    }
}

impl History {
    /// Creates a history that begins with the observed members.
    pub(super) fn new(size: PoolSize) -> History {
        History {
            base: size.seen,
            steady: None,
            later: VecDeque::new(),
            size,
            resumed: None,
            guard_released: false,
            released: None,
            counted: false,
        }
    }

    /// Returns the newest number of members.
    pub(super) fn newest(&self) -> usize {
        self.later.back().map_or(self.base, |(_, had)| *had)
    }

    /// Returns the number of members with which the pool is compared.
    fn baseline(&self) -> usize {
        self.base.max(self.steady.map_or(0, |(_, had)| had))
    }

    pub(super) fn is_shrunk(&self) -> bool {
        self.is_little(self.size.left)
    }

    /// Returns whether this many members are less than half of the baseline, and fewer than the losses that count:
    /// members that were added since compensate for losses that do not count.
    fn is_little(&self, members: usize) -> bool {
        2 * members < self.baseline() && members < self.size.lost
    }

    /// Returns how the pool counts in the tally. A pool that is paused alone loses nothing more, but members already
    /// gone still count. A member that replaces another is not a loss.
    pub(super) fn weight(&self) -> TallyEntry {
        let is_gone = self.is_little(self.size.seen);
        let counts = self.size.paused != PauseScope::Alone || self.counted || is_gone;
        let shrunk = counts && self.is_shrunk();
        let PoolSize { left, going, seen, .. } = self.size;
        let loses = going > 0 && (left < self.newest() || 2 * left < seen);
        TallyEntry { counts, shrunk, loses: shrunk && loses }
    }

    /// Keeps a counted pool in the count when it is paused while removals are stopped.
    pub(super) fn count(&mut self, stopped: bool) {
        let counts = self.counted || self.size.paused != PauseScope::Alone;
        self.counted = stopped && counts && self.is_shrunk();
    }

    /// Returns when time alone changes the baseline.
    pub(super) fn due(&self, id: &PoolId) -> Option<(Now, PoolId)> {
        let (first, _) = self.later.front()?;
        let old = first.plus(LOOKBACK);
        Some((self.first_steady().map_or(old, |(at, _)| at.plus(STEADY_AFTER).min(old)), id.clone()))
    }

    /// Returns the first members that an empty pool received and that have lasted long enough, if it has no baseline
    /// yet.
    fn first_steady(&self) -> Option<(Now, usize)> {
        if self.baseline() > 0 {
            return None;
        }
        let ends = self.later.iter().skip(1).map(|(at, _)| *at).chain([Now::NEVER]);
        let mut given = self.later.iter().copied().zip(ends);
        given.find(|((at, had), end)| *had > 0 && at.plus(STEADY_AFTER) <= *end).map(|(given, _)| given)
    }

    /// Moves the baseline on to the next recorded number.
    pub(super) fn advance(&mut self, now: Now) {
        if let Some((_, had)) = self.later.pop_front_if(|(at, _)| at.plus(LOOKBACK) <= now) {
            self.base = had;
        }
        self.steady = self.steady.filter(|(at, _)| now < at.plus(LOOKBACK));
        self.steady =
            self.steady.or_else(|| self.first_steady().filter(|(at, _)| at.plus(STEADY_AFTER) <= now));
    }

    /// Updates the members that a pool is to have from now on.
    pub(super) fn update(&mut self, now: Now, size: PoolSize) {
        if self.size.paused.is_any() && !size.paused.is_any() {
            self.resumed = Some(now);
        }
        self.size = size;
        if let Some(resumed) = self.resumed {
            // Members may have been restored a moment ago and not been observed yet.
            self.rebase(self.baseline().max(size.seen));
            self.resumed = Some(resumed).filter(|at| size.seen_at < *at);
        }
        if std::mem::take(&mut self.guard_released) {
            self.rebase_released(now);
        }
        if size.by_config {
            // A removal that the configuration asks for is not a loss.
            self.rebase(self.baseline().min(size.present));
        }
        let last_seen = |at: Now| if size.seen > size.asked { now } else { at };
        self.released = self.released.map(|(at, before)| (last_seen(at), before));
        self.released = self.released.filter(|(at, _)| now < at.plus(LOOKBACK));
        if let Some((_, before)) = self.released {
            // A member that is required again and still present was not released.
            self.base = self.base.max(before.min(size.asked).min(size.seen));
        }
        self.record(now, self.present_members());
    }

    /// Returns how many members the pool has, as far as known. A required member counts once it was observed, and a
    /// leaving one until it is observed gone. Members that other clients added never count.
    fn present_members(&self) -> usize {
        let PoolSize { asked, seen, present, paused, .. } = self.size;
        let newest = self.newest();
        match paused {
            PauseScope::No => asked.min(newest.max(seen)).max(newest.min(present)),
            PauseScope::WithAll | PauseScope::Alone => seen,
        }
    }

    /// Records the number of members from now on.
    fn record(&mut self, now: Now, members: usize) {
        if self.newest() == members {
            return;
        }
        match self.later.back_mut() {
            Some((at, last)) if now.since(*at) < MERGE_WINDOW => *last = members,
            Some(_) | None => self.later.push_back((now, members)),
        }
        // While the breaker is tripped, no entry becomes the baseline. Entries that are too old by now are dropped.
        while self.later.get(1).is_some_and(|(at, _)| at.plus(LOOKBACK) <= now) {
            self.later.pop_front();
        }
    }

    /// Returns whether the pool loses members that count now, or has lost most of them.
    pub(super) fn loses(&self) -> bool {
        self.is_shrunk() || self.size.going > 0
    }

    /// Releases the members that are due to leave now, on the operator's request. Later removals are not released.
    pub(super) fn release(&mut self, now: Now) {
        self.rebase_released(now);
    }

    /// Makes the currently required members the baseline.
    fn rebase_released(&mut self, now: Now) {
        let baseline = self.baseline();
        let before = self.released.map_or(baseline, |(_, before)| before.max(baseline));
        self.released = Some((now, before));
        self.rebase(self.size.asked.min(self.newest()));
    }

    /// Releases the removals that the pool's own guards hold back, on the operator's request. The number of remaining
    /// members is not known yet.
    pub(super) fn release_guard(&mut self) {
        self.guard_released = true;
    }

    /// Sets the baseline and drops the recorded numbers.
    fn rebase(&mut self, had: usize) {
        self.base = had;
        self.steady = None;
        self.later.clear();
    }

    /// Returns how many members the pool is left with.
    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.size.left
    }
}
