//! How many members one pool had, and how many it is left with.

use std::collections::VecDeque;
use std::time::Duration;

use model::ids::PoolId;
use model::machine::Now;

/// With how far back a pool is compared.
pub(in crate::directory) const BACK: Duration = Duration::from_secs(300);
/// What a pool that had nothing is given is what it had when it has stood for this time.
const STANDS: Duration = Duration::from_secs(30);
/// Changes within this time count as one.
pub(super) const GRAIN: Duration = Duration::from_secs(10);

/// How many members a pool is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::directory) struct Size {
    /// How many it would be left with: those that only stay for a while included.
    pub(in crate::directory) left: usize,
    /// How many it has lost or would lose for causes that count, five minutes back.
    pub(in crate::directory) lost: usize,
    /// How many it is asked to have.
    pub(in crate::directory) asked: usize,
    /// How many of those that may be in it would go now for causes that count.
    pub(in crate::directory) going: usize,
    /// How many were seen in it.
    pub(in crate::directory) seen: usize,
    /// When the GET that saw them began.
    pub(in crate::directory) seen_at: Now,
    /// How many may be in it: some may have been written since.
    pub(in crate::directory) present: usize,
    /// Whether operators keep it from being written.
    pub(in crate::directory) paused: Paused,
    /// Whether all that goes does so by a configured wish (X3).
    pub(in crate::directory) by_wish: bool,
}

/// Whether operators keep a pool from being written (G6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::directory) enum Paused {
    /// They do not.
    No,
    /// As every other pool.
    WithAll,
    /// By itself, or with its Service.
    Alone,
}

/// How many members one pool had.
pub(super) struct History {
    /// The number of members five minutes ago, unless removals are stopped, or the operator or the end of a pause has
    /// set it.
    base: usize,
    /// The members that an empty pool has received, and since when, once they have lasted for [`STANDS`]. Kept for five
    /// minutes.
    stood: Option<(Now, usize)>,
    /// From when on how many; in order.
    pub(super) later: VecDeque<(Now, usize)>,
    size: Size,
    /// Since when it is not paused any more, until it has been seen after that.
    resumed: Option<Now>,
    /// Whether the operator has released what it holds back: what it is left with is what it had.
    let_go: bool,
    /// What it was compared with until the operator let go, and when what was released was last seen in it.
    released: Option<(Now, usize)>,
    /// Whether the breaker counts what it is to lose although it is paused: it was counted before that.
    counted: bool,
}

/// What one pool is of all that is counted.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Weight {
    /// Whether it counts.
    pub(super) counts: bool,
    /// Whether it is to have less than half of what it had.
    pub(super) shrunk: bool,
    /// The same, and it would lose something now.
    pub(super) loses: bool,
}

impl Paused {
    fn is_any(self) -> bool {
        match self {
            Paused::No => false,
            Paused::WithAll | Paused::Alone => true,
        }
    }
}

impl History {
    /// One that begins with what is found.
    pub(super) fn new(size: Size) -> History {
        History {
            base: size.seen,
            stood: None,
            later: VecDeque::new(),
            size,
            resumed: None,
            let_go: false,
            released: None,
            counted: false,
        }
    }

    /// How many it had last.
    pub(super) fn newest(&self) -> usize {
        self.later.back().map_or(self.base, |(_, had)| *had)
    }

    /// The number of members that the pool is compared with.
    fn baseline(&self) -> usize {
        self.base.max(self.stood.map_or(0, |(_, had)| had))
    }

    pub(super) fn is_shrunk(&self) -> bool {
        self.is_little(self.size.left)
    }

    /// Whether so many are less than half of what it had, and less than half of these and what it has lost for causes that
    /// count: members that came since make up for those that were lost otherwise.
    fn is_little(&self, members: usize) -> bool {
        2 * members < self.baseline() && members < self.size.lost
    }

    /// What it is of all that is counted. A pool that is paused by itself loses nothing more, but what is gone is gone.
    /// One member that takes the place of another is no loss.
    pub(super) fn weight(&self) -> Weight {
        let is_gone = self.is_little(self.size.seen);
        let counts = self.size.paused != Paused::Alone || self.counted || is_gone;
        let shrunk = counts && self.is_shrunk();
        let Size { left, going, seen, .. } = self.size;
        let loses = going > 0 && (left < self.newest() || 2 * left < seen);
        Weight { counts, shrunk, loses: shrunk && loses }
    }

    /// While removals are stopped, pausing a pool that was counted does not end the stop.
    pub(super) fn count(&mut self, stopped: bool) {
        let counts = self.counted || self.size.paused != Paused::Alone;
        self.counted = stopped && counts && self.is_shrunk();
    }

    /// When time alone moves what it is compared with.
    pub(super) fn due(&self, id: &PoolId) -> Option<(Now, PoolId)> {
        let (first, _) = self.later.front()?;
        let old = first.plus(BACK);
        Some((self.stands().map_or(old, |(at, _)| at.plus(STANDS).min(old)), id.clone()))
    }

    /// The first members that an empty pool has received and that have lasted long enough, if there are none yet.
    fn stands(&self) -> Option<(Now, usize)> {
        if self.baseline() > 0 {
            return None;
        }
        let ends = self.later.iter().skip(1).map(|(at, _)| *at).chain([Now::NEVER]);
        let mut given = self.later.iter().copied().zip(ends);
        given.find(|((at, had), end)| *had > 0 && at.plus(STANDS) <= *end).map(|(given, _)| given)
    }

    /// Moves what it is compared with to what it had next.
    pub(super) fn grow_older(&mut self, now: Now) {
        if let Some((_, had)) = self.later.pop_front_if(|(at, _)| at.plus(BACK) <= now) {
            self.base = had;
        }
        self.stood = self.stood.filter(|(at, _)| now < at.plus(BACK));
        self.stood = self.stood.or_else(|| self.stands().filter(|(at, _)| at.plus(STANDS) <= now));
    }

    /// Takes in what a pool is to have from now on.
    pub(super) fn note(&mut self, now: Now, size: Size) {
        if self.size.paused.is_any() && !size.paused.is_any() {
            self.resumed = Some(now);
        }
        self.size = size;
        if let Some(resumed) = self.resumed {
            // What is in it may have been put there a moment ago, and may not have been seen yet.
            self.rebase(self.baseline().max(size.seen));
            self.resumed = Some(resumed).filter(|at| size.seen_at < *at);
        }
        if std::mem::take(&mut self.let_go) {
            self.set_apart(now);
        }
        if size.by_wish {
            // What has gone so is no loss that anything else would explain.
            self.rebase(self.baseline().min(size.present));
        }
        let last_seen = |at: Now| if size.seen > size.asked { now } else { at };
        self.released = self.released.map(|(at, before)| (last_seen(at), before));
        self.released = self.released.filter(|(at, _)| now < at.plus(BACK));
        if let Some((_, before)) = self.released {
            // What is asked for again and is still there was not released.
            self.base = self.base.max(before.min(size.asked).min(size.seen));
        }
        self.has(now, self.had());
    }

    /// How many it has, for all that is known. What it is asked to have counts once it was seen there, and what it is to
    /// lose until it is seen gone; what others have added it was never asked to have.
    fn had(&self) -> usize {
        let Size { asked, seen, present, paused, .. } = self.size;
        let newest = self.newest();
        match paused {
            Paused::No => asked.min(newest.max(seen)).max(newest.min(present)),
            Paused::WithAll | Paused::Alone => seen,
        }
    }

    /// Notes that it has so many from now on.
    fn has(&mut self, now: Now, members: usize) {
        if self.newest() == members {
            return;
        }
        match self.later.back_mut() {
            Some((at, last)) if now.since(*at) < GRAIN => *last = members,
            Some(_) | None => self.later.push_back((now, members)),
        }
        // Time may have stood still, and what is older will be passed over once it goes on.
        while self.later.get(1).is_some_and(|(at, _)| at.plus(BACK) <= now) {
            self.later.pop_front();
        }
    }

    /// Whether it loses something that counts now, or has lost most of it.
    pub(super) fn loses(&self) -> bool {
        self.is_shrunk() || self.size.going > 0
    }

    /// The operator releases what it is to lose now. What will go only later is not released.
    pub(super) fn release(&mut self, now: Now) {
        self.set_apart(now);
    }

    /// What it is asked to have now is what it had.
    fn set_apart(&mut self, now: Now) {
        let baseline = self.baseline();
        let before = self.released.map_or(baseline, |(_, before)| before.max(baseline));
        self.released = Some((now, before));
        self.rebase(self.size.asked.min(self.newest()));
    }

    /// The operator releases what its own guards hold back; what it is left with then is not known yet.
    pub(super) fn let_go(&mut self) {
        self.let_go = true;
    }

    /// It had this many, whatever it had.
    fn rebase(&mut self, had: usize) {
        self.base = had;
        self.stood = None;
        self.later.clear();
    }

    /// How many it is left with.
    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.size.left
    }
}
