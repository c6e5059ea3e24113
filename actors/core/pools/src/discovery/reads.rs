//! The reads in flight, and the places that they take (D3).
//!
//! Up to 8 load balancers are read at once. Unresponsive ones, whose last read failed late, take at most 2 of the 8
//! places, and keep them until the read ends. Which load balancers hang is not known before they are read, and at the
//! start it may be most of them. Therefore any other read without an answer within 1 s gives up its place and
//! continues without one. The next read begins, and up to 64 reads are unanswered at once. A read that waits for a
//! gate or for the read budget (W6, W9) keeps its place, so that no more than 8 wait there.

use std::collections::BTreeMap;
use std::time::Duration;

use model::ids::CallId;
use model::machine::{Now, earliest};

/// Maximum number of load balancers that are read at once.
pub(super) const MAX_CONCURRENT_READS: usize = 8;
/// Maximum number of places for load balancers whose last read failed late.
pub(super) const MAX_UNRESPONSIVE_READS: usize = 2;
/// Maximum number of reads in flight, including those without a place: fewer than the 100 streams of an HTTP/2
/// connection to ARM, which writes share.
pub(super) const MAX_UNANSWERED: usize = 64;
/// Time after which a read without an answer is late, counted from when it was sent.
const LATE_AFTER: Duration = Duration::from_secs(1);
/// Time after which a read without an answer has failed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// The reads in flight.
#[derive(Default)]
pub(super) struct Reads {
    open: BTreeMap<CallId, PendingRead>,
    /// The id of the last request.
    last: u64,
}

/// One read in flight.
pub(super) struct PendingRead {
    /// The index of the load balancer.
    pub(super) balancer: usize,
    /// Whether the previous read of this load balancer failed late.
    unresponsive: bool,
    progress: Progress,
}

/// The progress of a read.
#[derive(Clone, Copy)]
enum Progress {
    /// Requested from the writer at this time.
    Requested(Now),
    /// Sent at this time, and not late.
    Sent(Now),
    /// Sent at this time, and late.
    Late(Now),
}

impl PendingRead {
    /// Returns whether the read is late, so that other reads do not wait for its answer.
    pub(super) fn is_late(&self) -> bool {
        match self.progress {
            Progress::Requested(_) | Progress::Sent(_) => false,
            Progress::Late(_) => true,
        }
    }

    /// Returns the error of a read without an answer.
    pub(super) fn unanswered(&self) -> &'static str {
        match self.progress {
            Progress::Requested(_) => {
                "not sent within 2 min: reads of Azure are throttled, or their budget is used up"
            }
            Progress::Sent(_) | Progress::Late(_) => "no answer within 2 min",
        }
    }

    fn has_place(&self) -> bool {
        self.unresponsive || !self.is_late()
    }

    fn ends(&self) -> Now {
        match self.progress {
            Progress::Requested(at) | Progress::Sent(at) | Progress::Late(at) => at.plus(REQUEST_TIMEOUT),
        }
    }

    fn late_at(&self) -> Option<Now> {
        match self.progress {
            Progress::Sent(at) => Some(at.plus(LATE_AFTER)),
            Progress::Requested(_) | Progress::Late(_) => None,
        }
    }
}

impl Reads {
    /// Returns whether a read may begin. `unresponsive`: the last read of this load balancer failed late.
    pub(super) fn has_room(&self, unresponsive: bool) -> bool {
        let taken = self.open.values().filter(|reading| reading.has_place()).count();
        let room = taken < MAX_CONCURRENT_READS && self.open.len() < MAX_UNANSWERED;
        room && (!unresponsive || self.unresponsive_count() < MAX_UNRESPONSIVE_READS)
    }

    /// Returns whether no read is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    fn unresponsive_count(&self) -> usize {
        self.open.values().filter(|reading| reading.unresponsive).count()
    }

    /// Begins a read and returns its id.
    pub(super) fn begin(&mut self, now: Now, balancer: usize, unresponsive: bool) -> CallId {
        self.last += 1;
        let call = CallId(self.last);
        self.open.insert(call, PendingRead { balancer, unresponsive, progress: Progress::Requested(now) });
        call
    }

    /// Records that the writer sent a read. Ignores a read that was given up in the meantime.
    pub(super) fn sent(&mut self, now: Now, call: CallId) {
        if let Some(reading) = self.open.get_mut(&call)
            && let Progress::Requested(_) = reading.progress
        {
            reading.progress = Progress::Sent(now);
        }
    }

    /// Removes and returns the read to which an answer belongs.
    pub(super) fn take(&mut self, call: CallId) -> Option<PendingRead> {
        self.open.remove(&call)
    }

    /// Removes and returns the reads that have timed out, and marks late ones.
    pub(super) fn expire(&mut self, now: Now) -> Vec<PendingRead> {
        for reading in self.open.values_mut() {
            if let Progress::Sent(at) = reading.progress
                && at.plus(LATE_AFTER) <= now
            {
                reading.progress = Progress::Late(at);
            }
        }
        self.open.extract_if(.., |_, reading| reading.ends() <= now).map(|(_, reading)| reading).collect()
    }

    /// Returns when time alone changes something.
    pub(super) fn deadline(&self) -> Option<Now> {
        let late = self.open.values().filter_map(PendingRead::late_at).min();
        earliest(late, self.open.values().map(PendingRead::ends).min())
    }

    /// Returns the load balancers with a read in flight.
    pub(super) fn balancers(&self) -> impl Iterator<Item = usize> + Clone {
        self.open.values().map(|reading| reading.balancer)
    }

    /// Checks the invariants: the limits of concurrent reads hold.
    pub(super) fn check(&self) -> bool {
        let taken = self.open.values().filter(|reading| reading.has_place()).count();
        taken <= MAX_CONCURRENT_READS
            && self.unresponsive_count() <= MAX_UNRESPONSIVE_READS
            && self.open.len() <= MAX_UNANSWERED
    }
}
