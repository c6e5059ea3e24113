//! The second read that resolves what is in doubt (G1, G2): when it is asked for, and what it resolves.
//!
//! There is one at a time. It is asked for when the oldest doubt that holds something back is 30 s old, at most once in
//! 30 s, and never when nothing is held back for it. It resolves what had been doubted for 30 s when it was asked for.

use std::collections::BTreeSet;

use super::{Directory, Out};
use model::guard::DOUBTFUL_FOR;
use model::ids::{PoolId, ReadId};
use model::machine::Now;
use model::sample::Metric;

/// The second reads, and which pools wait for one.
#[derive(Default)]
pub(super) struct SecondRead {
    /// From when on a read helps each pool that holds something back.
    wanted: BTreeSet<(Now, PoolId)>,
    /// The newest that was asked for, and when.
    asked: Option<(ReadId, Now)>,
    /// Whether it is under way.
    under_way: bool,
    /// When the newest that is in force was asked for.
    in_force: Option<Now>,
}

impl SecondRead {
    /// When a pool wants one, before and now.
    pub(super) fn wants(&mut self, id: &PoolId, before: Option<Now>, now: Option<Now>) {
        if before == now {
            return;
        }
        if let Some(at) = before {
            self.wanted.remove(&(at, id.clone()));
        }
        if let Some(at) = now {
            self.wanted.insert((at, id.clone()));
        }
    }

    /// When the next is to be asked for.
    pub(super) fn deadline(&self) -> Option<Now> {
        let (first, _) = self.wanted.first().filter(|_| !self.under_way)?;
        let apart = self.asked.map(|(_, at)| at.plus(DOUBTFUL_FOR));
        Some(apart.map_or(*first, |apart| apart.max(*first)))
    }

    /// Asks for the next when it is time.
    pub(super) fn ask(&mut self, now: Now) -> Option<ReadId> {
        self.deadline().filter(|at| *at <= now)?;
        let read = ReadId(self.asked.map_or(1, |(ReadId(last), _)| last + 1));
        (self.asked, self.under_way) = (Some((read, now)), true);
        Some(read)
    }

    /// Since when the newest one is under way.
    pub(super) fn under_way(&self) -> Option<Now> {
        self.asked.map(|(_, at)| at).filter(|_| self.under_way)
    }

    /// When the newest that is in force was asked for: it resolves what had been doubted for long enough then.
    pub(super) fn in_force(&self) -> Option<Now> {
        self.in_force
    }

    /// One has been made. Tells whether it was expected.
    fn made(&mut self, read: ReadId) -> bool {
        match self.asked {
            Some((asked, at)) if asked == read && self.under_way => {
                (self.in_force, self.under_way) = (Some(at), false);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Which pools want one, and from when on; for the invariants.
    #[cfg(test)]
    pub(super) fn wanted(&self) -> &BTreeSet<(Now, PoolId)> {
        &self.wanted
    }
}

impl Directory {
    /// What was in doubt and has not come back is certain now: every pool that waited is worked out again.
    pub(super) fn on_reread(&mut self, now: Now, read: ReadId, out: &mut Vec<Out>) {
        if !self.second_read.made(read) {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return;
        }
        for (_, id) in &self.second_read.wanted {
            self.dirty.pool(now, id.clone());
        }
    }
}
