//! Why a pool that should change is not written now: one closed set of reasons for the pool's queue, the writer, the
//! verdict, the admin API and the metrics (docs/design/surface.md, H3).

use crate::machine::Now;

/// Why a pool is not written now. Of several reasons, the first one applies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Blocked {
    /// The process does not lead (W8).
    NotLeader,
    /// The pool is paused (D1, G6).
    Paused,
    /// Writes on its load balancer fail in the same way (W10).
    Breaker,
    /// ARM throttles (W6).
    Throttled,
    /// Its load balancer is busy with another pool (W1).
    LaneBusy,
    /// Another operation holds the lock of its load balancer (W2, W6).
    LaneLocked,
    /// It is unknown whether an operation runs on its load balancer (W4, W8).
    LaneInDoubt,
    /// The shared Lease is not held (W7).
    SharedLease,
    /// The budget has no call left (W9).
    Budget,
    /// ARM named a time before which a retry is useless (Q5).
    Parked,
    /// Another client's changes, or lost writes, are left for a while (W2, W11).
    Contention,
    /// The last attempt failed, and the pool is compared again later (Q6, Q8).
    AfterFailure,
    /// The interval since the last attempt or try is not over (Q2, W4).
    Interval,
    /// Further changes are awaited (Q2).
    Window,
    /// A guard holds back a removal; nothing else differs (G1-G6).
    Held,
}

impl Blocked {
    /// Every reason, the first one that applies first.
    pub const ALL: [Blocked; 15] = [
        Blocked::NotLeader,
        Blocked::Paused,
        Blocked::Breaker,
        Blocked::Throttled,
        Blocked::LaneBusy,
        Blocked::LaneLocked,
        Blocked::LaneInDoubt,
        Blocked::SharedLease,
        Blocked::Budget,
        Blocked::Parked,
        Blocked::Contention,
        Blocked::AfterFailure,
        Blocked::Interval,
        Blocked::Window,
        Blocked::Held,
    ];

    /// Returns the value in the admin API and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Blocked::NotLeader => "not_leader",
            Blocked::Paused => "paused",
            Blocked::Breaker => "breaker",
            Blocked::Throttled => "throttled",
            Blocked::LaneBusy => "lane_busy",
            Blocked::LaneLocked => "lane_locked",
            Blocked::LaneInDoubt => "lane_in_doubt",
            Blocked::SharedLease => "shared_lease",
            Blocked::Budget => "budget",
            Blocked::Parked => "parked",
            Blocked::Contention => "contention",
            Blocked::AfterFailure => "after_failure",
            Blocked::Interval => "interval",
            Blocked::Window => "window",
            Blocked::Held => "held",
        }
    }

    /// Returns the meaning, for the page and the documentation.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Blocked::NotLeader => "this replica does not lead, or has just taken over",
            Blocked::Paused => "the pool is compared and not written",
            Blocked::Breaker => "writes on its load balancer fail in the same way; one is tried at a time",
            Blocked::Throttled => "Azure throttles",
            Blocked::LaneBusy => "its load balancer is busy with another pool",
            Blocked::LaneLocked => "another operation runs on its load balancer",
            Blocked::LaneInDoubt => "the controller checks whether an operation runs on its load balancer",
            Blocked::SharedLease => "the shared Lease is not held",
            Blocked::Budget => "the request budget is spent",
            Blocked::Parked => "Azure named a time before which a retry is useless",
            Blocked::Contention => "another client changes the pool again and again, or Azure loses writes",
            Blocked::AfterFailure => "the last attempt failed; the pool is compared again later",
            Blocked::Interval => "the interval since the last attempt is not over",
            Blocked::Window => "further changes may join the same write",
            Blocked::Held => "a removal is held back",
        }
    }

    /// Returns this reason with an unknown end.
    #[must_use]
    pub fn open_ended(self) -> BlockedUntil {
        BlockedUntil { why: self, until: None }
    }

    /// Returns this reason with an end.
    #[must_use]
    pub fn until(self, until: Now) -> BlockedUntil {
        BlockedUntil { why: self, until: Some(until) }
    }
}

/// Why a pool is not written, and until when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockedUntil {
    /// The reason.
    pub why: Blocked,
    /// The earliest time at which the pool may go on; `None`: not known.
    pub until: Option<Now>,
}

impl BlockedUntil {
    /// Returns true if the reason still applies at `now`. A reason without a known end applies.
    #[must_use]
    pub fn applies(&self, now: Now) -> bool {
        self.until.is_none_or(|until| until > now)
    }

    /// Returns the first of several reasons; of equal ones, the one that ends last.
    #[must_use]
    pub fn first(all: impl IntoIterator<Item = BlockedUntil>) -> Option<BlockedUntil> {
        all.into_iter().min_by(|one, other| one.why.cmp(&other.why).then(other.until.cmp(&one.until)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h3_the_first_applicable_reason_is_named_with_its_end() {
        assert!(Blocked::ALL.is_sorted(), "the order of the enum decides");
        let at = Now::from_millis;
        let all =
            [Blocked::Budget.until(at(9)), Blocked::Throttled.until(at(3)), Blocked::Throttled.until(at(5))];
        assert_eq!(BlockedUntil::first(all), Some(Blocked::Throttled.until(at(5))));
        assert_eq!(BlockedUntil::first([]), None);
    }
}
