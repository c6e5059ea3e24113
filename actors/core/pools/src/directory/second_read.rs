//! The second read that resolves doubts (G1, G2): when it is requested, and what it resolves.
//!
//! There is at most one at a time. It is requested when the oldest doubt that holds something back is 30 s old, at most
//! once in 30 s, and only while something is held back. It resolves the doubts that were 30 s old when it was
//! requested.

use std::collections::BTreeSet;

use super::{Directory, Out};
use model::guard::DOUBTFUL_FOR;
use model::ids::{PoolId, ReadId};
use model::machine::Now;
use model::sample::Metric;

/// The second reads, and the pools that wait for one.
#[derive(Default)]
pub(super) struct SecondRead {
    /// The earliest time at which a read helps, for each pool that holds something back.
    needed: BTreeSet<(Now, PoolId)>,
    /// The newest request and its time.
    requested: Option<(ReadId, Now)>,
    /// Whether that read is in flight.
    in_flight: bool,
    /// When the newest read in force was requested.
    in_force: Option<Now>,
}

impl SecondRead {
    /// Updates the time from which a pool needs a second read.
    pub(super) fn set_needed_from(&mut self, id: &PoolId, before: Option<Now>, now: Option<Now>) {
        if before == now {
            return;
        }
        if let Some(at) = before {
            self.needed.remove(&(at, id.clone()));
        }
        if let Some(at) = now {
            self.needed.insert((at, id.clone()));
        }
    }

    /// Returns when the next read is to be requested.
    pub(super) fn deadline(&self) -> Option<Now> {
        let (first, _) = self.needed.first().filter(|_| !self.in_flight)?;
        let apart = self.requested.map(|(_, at)| at.plus(DOUBTFUL_FOR));
        Some(apart.map_or(*first, |apart| apart.max(*first)))
    }

    /// Requests the next read when it is due.
    pub(super) fn request_due(&mut self, now: Now) -> Option<ReadId> {
        self.deadline().filter(|at| *at <= now)?;
        let read = ReadId(self.requested.map_or(1, |(ReadId(last), _)| last + 1));
        (self.requested, self.in_flight) = (Some((read, now)), true);
        Some(read)
    }

    /// Returns since when a read is in flight.
    pub(super) fn in_flight(&self) -> Option<Now> {
        self.requested.map(|(_, at)| at).filter(|_| self.in_flight)
    }

    /// Returns when the newest read in force was requested: it resolves the doubts that were old enough then.
    pub(super) fn in_force(&self) -> Option<Now> {
        self.in_force
    }

    /// Records that a read is complete. Returns whether it was expected.
    fn complete(&mut self, read: ReadId) -> bool {
        match self.requested {
            Some((requested, at)) if requested == read && self.in_flight => {
                (self.in_force, self.in_flight) = (Some(at), false);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Returns the pools that need a second read, for checks of invariants.
    #[cfg(test)]
    pub(super) fn needed(&self) -> &BTreeSet<(Now, PoolId)> {
        &self.needed
    }
}

impl Directory {
    /// Computes every waiting pool again: doubtful removals that the read confirmed are certain now.
    pub(super) fn on_reread(&mut self, now: Now, read: ReadId, out: &mut Vec<Out>) {
        if !self.second_read.complete(read) {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return;
        }
        for (_, id) in &self.second_read.needed {
            self.dirty.pool(now, id.clone());
        }
    }
}
