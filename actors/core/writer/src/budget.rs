//! Limits the rate of calls: token buckets for reads and writes (docs/design/writer.md, W9).
//!
//! A bucket holds at most the allowance of five minutes and refills continuously, so that no five minutes see more
//! than twice the allowance. A quota 429 halves the allowance, down to a tenth of the configured one; it recovers by
//! a twentieth of that per minute. The remaining calls that ARM reports for all clients lower the bucket: it then
//! holds at most half of that number, and the ceiling rises again as the bucket refills.
//!
//! The last fifth of a bucket is a reserve, in whole calls, so that the smallest budgets have none. Grants of
//! membership need calls beyond the reserve, of reads and of writes. Verification and discovery never use it. It is
//! left for grants of admin state and for the reads of writes that have begun, because a Down waits for those anyway.
//!
//! The rates of the cloud configuration are further buckets for all calls, without reserve and never lowered. The
//! order of calls is decided in [`super::in_flight`].

use std::time::Duration;

use model::blocked::{Blocked, BlockedUntil};
use model::machine::Now;
use model::sample::GateClass;

use super::RateLimit;

/// The whole configured allowance, in millionths.
const WHOLE: i128 = 1_000_000;

/// The smallest share that 429s leave: a tenth.
const LEAST: i128 = WHOLE / 10;

/// The step by which the share recovers: a twentieth.
const RISE: i128 = WHOLE / 20;

/// Interval between these steps.
const RISE_INTERVAL: Duration = Duration::from_secs(60);

/// Parts of a token. In one microsecond, a bucket gains as many parts as millionths of calls are allowed in five
/// minutes. All arithmetic is therefore exact.
const TOKEN: i128 = 300_000_000 * WHOLE;

/// Divisor of the reserve for admin state: a fifth of a bucket.
const RESERVE: i128 = 5;

/// Share of the read budget that discovery may use: two fifths (D3).
const DISCOVERY: (u32, u32) = (2, 5);

/// Longest interval between a pool's attempts, when only the reserve of writes is left (Q2).
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// Lowest configurable rate of reads per second (W9).
const LEAST_READS: f64 = 10.0;

/// Lowest configurable rate per second: one call in five minutes, so that nothing waits forever.
const LEAST_RATE: f64 = 1.0 / 300.0;

/// Upper bound of any configured rate per second.
const MAX_RATE: f64 = 1_000_000.0;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Parts gained per microsecond, at the full share.
    fill: i128,
    /// Capacity in parts, at the full share.
    holds: i128,
    /// Allowed share, in millionths.
    share: i128,
    /// Time at which the share was last halved.
    halved: Option<Now>,
    /// Time of the next recovery step. `None`: the share is full.
    rises: Option<Now>,
    /// Ceiling from ARM's remaining calls, in parts. It rises as the bucket refills. `None`: no ceiling.
    ceiling: Option<i128>,
    /// Content at `at`, in parts. Negative: in debt.
    parts: i128,
    at: Now,
}

/// Whether a call may use the reserve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReserveUse {
    /// The call may use the reserve.
    Urgent,
    /// The call leaves the reserve.
    Ordinary,
}

impl Bucket {
    fn full(fill: i128, holds: i128) -> Bucket {
        Bucket {
            fill,
            holds,
            share: WHOLE,
            halved: None,
            rises: None,
            ceiling: None,
            parts: holds,
            at: Now::ZERO,
        }
    }

    /// Creates a full bucket for this number of calls in five minutes.
    fn of(calls: u32) -> Bucket {
        Bucket::full(i128::from(calls) * WHOLE, i128::from(calls) * TOKEN)
    }

    /// Creates a full bucket for this rate per second and this burst, which is at least one.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the rate is clamped before, and its fraction rounded"
    )]
    fn of_rate(per_second: f64, at_once: u32) -> Bucket {
        #[expect(clippy::cast_precision_loss, reason = "a million is exact")]
        let whole = WHOLE as f64;
        let per_second =
            if per_second.is_nan() { LEAST_RATE } else { per_second.clamp(LEAST_RATE, MAX_RATE) };
        Bucket::full((per_second * 300.0 * whole).round() as i128, i128::from(at_once.max(1)) * TOKEN)
    }

    /// Returns the parts gained per microsecond, at the current share.
    fn rate(&self) -> i128 {
        self.fill * self.share / WHOLE
    }

    /// Returns the allowance in parts: at least one call, if any is configured.
    fn allowed(&self) -> i128 {
        (self.holds * self.share / WHOLE).max(self.holds.min(TOKEN))
    }

    /// Returns the current capacity in parts.
    fn limit(&self) -> i128 {
        self.ceiling.unwrap_or(i128::MAX).min(self.allowed())
    }

    fn reserve(&self) -> i128 {
        self.limit() / (RESERVE * TOKEN) * TOKEN
    }

    /// Returns the content that the bucket must have for a call.
    fn needed(&self, claim: ReserveUse) -> i128 {
        match claim {
            ReserveUse::Urgent => TOKEN,
            ReserveUse::Ordinary => TOKEN + self.reserve(),
        }
    }

    /// Returns the bucket as it will be at `now`, without further calls.
    fn at_time(&self, now: Now) -> Bucket {
        let mut bucket = *self;
        while let Some(rises) = bucket.rises.filter(|rises| *rises <= now) {
            bucket.fill_until(rises);
            bucket.share = (bucket.share + RISE).min(WHOLE);
            bucket.rises = (bucket.share < WHOLE).then(|| rises.plus(RISE_INTERVAL));
        }
        bucket.fill_until(now);
        bucket
    }

    fn fill_until(&mut self, now: Now) {
        let elapsed = i128::from(now.as_micros().saturating_sub(self.at.as_micros()));
        let filled = elapsed * self.rate();
        let allowed = self.allowed();
        self.parts = (self.parts + filled).min(allowed);
        self.ceiling = self.ceiling.map(|ceiling| ceiling + filled).filter(|ceiling| *ceiling < allowed);
        self.at = self.at.max(now);
    }

    fn has_one(&self, now: Now, claim: ReserveUse) -> bool {
        let bucket = self.at_time(now);
        bucket.parts >= bucket.needed(claim)
    }

    fn add(&mut self, now: Now, tokens: i128) {
        *self = self.at_time(now);
        self.parts = (self.parts + tokens * TOKEN).min(self.limit());
    }

    /// Returns the time at which the bucket allows a call. `None`: never.
    fn ready_at(&self, now: Now, claim: ReserveUse) -> Option<Now> {
        let mut bucket = self.at_time(now);
        loop {
            let missing = bucket.needed(claim) - bucket.parts;
            if missing <= 0 {
                return Some(bucket.at);
            }
            let rate = bucket.rate();
            if rate == 0 {
                return None;
            }
            let micros = (missing + rate - 1) / rate;
            let filled = bucket.at.plus(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)));
            let next = bucket.rises.map_or(filled, |rises| rises.min(filled));
            if next <= bucket.at {
                return None;
            }
            bucket = bucket.at_time(next);
        }
    }

    /// Halves the share after a quota 429 for a call that began at `began`. Calls that had begun at the last halving
    /// do not count: they met the same limit.
    fn halve(&mut self, now: Now, began: Now) {
        if self.halved.is_some_and(|at| began <= at) {
            return;
        }
        *self = self.at_time(now);
        self.share = (self.share / 2).max(LEAST);
        self.halved = Some(now);
        self.rises = Some(now.plus(RISE_INTERVAL));
        self.parts = self.parts.min(self.limit());
    }

    /// Lowers the ceiling to half of the parts that are left for all clients.
    fn lower(&mut self, now: Now, left: i128) {
        *self = self.at_time(now);
        self.ceiling = Some(left / 2).filter(|ceiling| *ceiling < self.allowed());
        self.parts = self.parts.min(self.limit());
    }
}

/// The purpose of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BudgetPurpose {
    /// Grant of a write of membership alone: a read and a write.
    Membership,
    /// Grant of a write with an admin part: a read and a write.
    Admin,
    /// Read of a write that has begun, or probe of a lane in doubt.
    Begun,
    /// Read that verifies a write.
    Verify,
    /// Read of Discovery.
    Discovery,
}

impl BudgetPurpose {
    /// Returns whether the calls include one of the class. Each has a read, and a grant has a write as well.
    fn spends(self, class: GateClass) -> bool {
        match class {
            GateClass::Reads => true,
            GateClass::Writes => match self {
                BudgetPurpose::Membership | BudgetPurpose::Admin => true,
                BudgetPurpose::Begun | BudgetPurpose::Verify | BudgetPurpose::Discovery => false,
            },
        }
    }
}

/// The buckets of one class of calls.
#[derive(Clone, Debug)]
struct ClassBudget {
    budget: Bucket,
    /// Rate limit of the cloud configuration.
    rate: Option<Bucket>,
}

/// The budgets of both classes, and discovery's share of the reads.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    reads: ClassBudget,
    writes: ClassBudget,
    discovery: Bucket,
}

impl Budget {
    /// Creates full buckets for these numbers of calls in five minutes, and for the rate limits of the cloud
    /// configuration.
    pub(super) fn new(reads: u32, writes: u32, rates: Option<RateLimit>) -> Budget {
        let (part, whole) = DISCOVERY;
        let discovery = (reads / whole * part + reads % whole * part / whole).max(reads.min(1));
        let of_reads =
            |limit: RateLimit| Bucket::of_rate(limit.reads_per_second.max(LEAST_READS), limit.reads_at_once);
        let of_writes = |limit: RateLimit| Bucket::of_rate(limit.writes_per_second, limit.writes_at_once);
        Budget {
            reads: ClassBudget { budget: Bucket::of(reads), rate: rates.map(of_reads) },
            writes: ClassBudget { budget: Bucket::of(writes), rate: rates.map(of_writes) },
            discovery: Bucket::of(discovery),
        }
    }

    fn purse(&self, class: GateClass) -> &ClassBudget {
        match class {
            GateClass::Reads => &self.reads,
            GateClass::Writes => &self.writes,
        }
    }

    fn purse_mut(&mut self, class: GateClass) -> &mut ClassBudget {
        match class {
            GateClass::Reads => &mut self.reads,
            GateClass::Writes => &mut self.writes,
        }
    }

    /// Returns the buckets that must allow the calls.
    fn buckets(&self, need: BudgetPurpose) -> impl Iterator<Item = (&Bucket, ReserveUse)> + Clone {
        let (claim, discovery) = match need {
            BudgetPurpose::Membership | BudgetPurpose::Verify => (ReserveUse::Ordinary, false),
            BudgetPurpose::Admin | BudgetPurpose::Begun => (ReserveUse::Urgent, false),
            BudgetPurpose::Discovery => (ReserveUse::Ordinary, true),
        };
        let purses = GateClass::ALL.map(|class| need.spends(class).then(|| self.purse(class)));
        let own = discovery.then_some((&self.discovery, ReserveUse::Urgent));
        let budgets = purses.map(|purse| purse.map(|purse| (&purse.budget, claim)));
        let rates = purses.map(|purse| Some((purse?.rate.as_ref()?, ReserveUse::Urgent)));
        budgets.into_iter().chain(rates).flatten().chain(own)
    }

    /// Returns whether the calls are allowed now.
    pub(super) fn allows(&self, now: Now, need: BudgetPurpose) -> bool {
        self.buckets(need).all(|(bucket, claim)| bucket.has_one(now, claim))
    }

    /// Returns whether the calls are allowed after this number of reads.
    pub(super) fn allows_after(&self, now: Now, need: BudgetPurpose, reads: usize) -> bool {
        let mut left = self.clone();
        left.add(now, GateClass::Reads, -i128::try_from(reads).unwrap_or(i128::MAX));
        left.allows(now, need)
    }

    /// Returns the class of the call that a rate limit of the cloud configuration delays, the write before the read.
    /// `None`: no rate limit delays a call, though the budget may.
    pub(super) fn limited_by_rate(&self, now: Now, need: BudgetPurpose) -> Option<GateClass> {
        GateClass::ALL.into_iter().rev().find(|class| need.spends(*class) && self.lacks_rate(now, *class))
    }

    /// Returns whether a rate limit of the cloud configuration delays a call of the class.
    pub(super) fn lacks_rate(&self, now: Now, class: GateClass) -> bool {
        self.purse(class).rate.as_ref().is_some_and(|rate| !rate.has_one(now, ReserveUse::Urgent))
    }

    /// Returns the time at which the calls are allowed, without further calls. `None`: never.
    pub(super) fn ready_at(&self, now: Now, need: BudgetPurpose) -> Option<Now> {
        let mut at = now;
        loop {
            let mut ready = at;
            for (bucket, claim) in self.buckets(need) {
                ready = bucket.ready_at(ready, claim)?;
            }
            if ready == at {
                return Some(at);
            }
            at = ready;
        }
    }

    /// Returns the reason and its end, if the class does not allow a membership write now but will later.
    pub(super) fn blocked(&self, now: Now, class: GateClass) -> Option<BlockedUntil> {
        let ClassBudget { budget, rate } = self.purse(class);
        let of_rate = rate.as_ref().map_or(Some(now), |rate| rate.ready_at(now, ReserveUse::Urgent));
        let at = budget.ready_at(now, ReserveUse::Ordinary)?.max(of_rate?);
        (at > now).then(|| Blocked::Budget.until(at))
    }

    /// Spends one call, possibly into debt: necessary calls are sent, and later ones wait longer.
    pub(super) fn spend(&mut self, now: Now, class: GateClass) {
        self.add(now, class, -1);
    }

    /// Spends one read of Discovery.
    pub(super) fn spend_discovery(&mut self, now: Now) {
        self.add(now, GateClass::Reads, -1);
        self.discovery.add(now, -1);
    }

    /// Refunds a call that was paid for and not made.
    pub(super) fn refund(&mut self, now: Now, class: GateClass) {
        self.add(now, class, 1);
    }

    fn add(&mut self, now: Now, class: GateClass, tokens: i128) {
        let purse = self.purse_mut(class);
        purse.budget.add(now, tokens);
        if let Some(rate) = &mut purse.rate {
            rate.add(now, tokens);
        }
    }

    /// Halves the allowance of a class after a quota 429 for a call that began at `began`.
    pub(super) fn throttled(&mut self, now: Now, class: GateClass, began: Now) {
        self.purse_mut(class).budget.halve(now, began);
        match class {
            GateClass::Reads => self.discovery.halve(now, began),
            GateClass::Writes => {}
        }
    }

    /// Applies the number of calls that ARM reports as left for all clients.
    pub(super) fn headroom(&mut self, now: Now, class: GateClass, remaining: u32) {
        let left = i128::from(remaining) * TOKEN;
        self.purse_mut(class).budget.lower(now, left);
        match class {
            GateClass::Reads => {
                let (part, whole) = DISCOVERY;
                self.discovery.lower(now, left * i128::from(part) / i128::from(whole));
            }
            GateClass::Writes => {}
        }
    }

    /// Returns the shortest interval between a pool's attempts while less than half of the writes are left. It grows
    /// from the configured interval to one minute when only the reserve is left. `None`: the configured interval
    /// (Q2).
    pub(super) fn stretched(&self, now: Now, min_interval: Duration) -> Option<Duration> {
        let writes = self.writes.budget.at_time(now);
        let (limit, left) = (writes.limit(), writes.parts.max(0));
        let more = MAX_INTERVAL.saturating_sub(min_interval);
        if more.is_zero() || (limit > 0 && left * 2 >= limit) {
            return None;
        }
        let (used, most) = (limit - left * 2, limit - writes.reserve() * 2);
        let micros = i128::try_from(more.as_micros()).unwrap_or(0);
        let added = if used >= most { micros } else { micros * used / most };
        Some(min_interval + Duration::from_micros(u64::try_from(added).unwrap_or(0)))
    }

    /// Returns the tokens in the bucket of the class, and its current capacity, for operators.
    #[expect(clippy::cast_precision_loss, reason = "shown to the operator")]
    pub(super) fn shown(&self, now: Now, class: GateClass) -> (f64, f64) {
        let bucket = self.purse(class).budget.at_time(now);
        let tokens = |parts: i128| parts.max(0) as f64 / TOKEN as f64;
        (tokens(bucket.parts), tokens(bucket.limit()))
    }
}
