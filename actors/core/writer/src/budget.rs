//! How many calls may be made: token buckets for reads and writes (docs/design/writer.md, W9).
//!
//! A bucket holds what is allowed for five minutes and is filled continuously, so that no five minutes see more than
//! twice that. What is allowed moves: a quota 429 halves it, down to a tenth of what is configured, and it comes back
//! by a twentieth of that per minute. What ARM says is left for all clients lowers what a bucket holds: at no moment
//! does it hold more than half of that, and both grow from there as the bucket fills.
//!
//! The last fifth of what a bucket can hold is a reserve, in whole calls, so that the smallest budgets have none.
//! Membership is granted only with calls beyond it, of reads as of writes, and neither verification nor discovery
//! uses it. Left are the grants of admin state, and the reads of what has begun: a Down waits for those anyway.
//!
//! The rates of the cloud configuration are further buckets, without reserve and never lowered, that all calls wait
//! for. Which call goes first is [`super::calls`]' business.

use std::time::Duration;

use model::machine::Now;
use model::sample::GateClass;

use super::RateLimit;

/// The whole of what is configured, in millionths: what is allowed is counted in them.
const WHOLE: i128 = 1_000_000;

/// The least share that 429s leave: a tenth.
const LEAST: i128 = WHOLE / 10;

/// By how much the share rises at a time: a twentieth.
const RISE: i128 = WHOLE / 20;

/// How often it rises.
const RISE_EVERY: Duration = Duration::from_secs(60);

/// The parts of a token: one microsecond fills as many of them as millionths of calls are allowed in five minutes,
/// so that all arithmetic is exact.
const TOKEN: i128 = 300_000_000 * WHOLE;

/// The share of a bucket that is kept for admin state: a fifth.
const RESERVE: i128 = 5;

/// The share of the read budget that discovery may use: two fifths (D3).
const DISCOVERY: (u32, u32) = (2, 5);

/// What the interval between a pool's attempts grows to as the writes fall to their reserve (Q2).
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);

/// The least that a configured rate of reads may be, per second (W9).
const LEAST_READS: f64 = 10.0;

/// The least that any configured rate may be, per second: one call in five minutes, so that nothing waits forever.
const LEAST_RATE: f64 = 1.0 / 300.0;

/// The most that any configured rate counts as, per second.
const MOST_RATE: f64 = 1_000_000.0;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// The parts that a microsecond fills, at the whole share.
    fill: i128,
    /// The parts that it holds at most, at the whole share.
    holds: i128,
    /// What is allowed of that, in millionths.
    share: i128,
    /// When the share was last halved.
    halved: Option<Now>,
    /// When it rises next; `None`: it is whole.
    rises: Option<Now>,
    /// What ARM's word leaves room for, in parts; it grows as the bucket fills. `None`: as much as is allowed.
    ceiling: Option<i128>,
    /// What it held at `at`, in parts; negative: in debt.
    parts: i128,
    at: Now,
}

/// Whether a call may use the reserve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Claim {
    /// It may.
    Urgent,
    /// It leaves it.
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

    /// Full, for so many calls in five minutes.
    fn of(calls: u32) -> Bucket {
        Bucket::full(i128::from(calls) * WHOLE, i128::from(calls) * TOKEN)
    }

    /// Full, for so many calls per second over time and so many at once, at least one.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the rate is clamped before, and its fraction rounded"
    )]
    fn of_rate(per_second: f64, at_once: u32) -> Bucket {
        #[expect(clippy::cast_precision_loss, reason = "a million is exact")]
        let whole = WHOLE as f64;
        let per_second =
            if per_second.is_nan() { LEAST_RATE } else { per_second.clamp(LEAST_RATE, MOST_RATE) };
        Bucket::full((per_second * 300.0 * whole).round() as i128, i128::from(at_once.max(1)) * TOKEN)
    }

    /// The parts that a microsecond fills now.
    fn rate(&self) -> i128 {
        self.fill * self.share / WHOLE
    }

    /// What is allowed, in parts; a call at a time always, where any is configured.
    fn allowed(&self) -> i128 {
        (self.holds * self.share / WHOLE).max(self.holds.min(TOKEN))
    }

    /// The most that it can hold now, in parts.
    fn limit(&self) -> i128 {
        self.ceiling.unwrap_or(i128::MAX).min(self.allowed())
    }

    fn reserve(&self) -> i128 {
        self.limit() / (RESERVE * TOKEN) * TOKEN
    }

    /// What it must hold for a call.
    fn needed(&self, claim: Claim) -> i128 {
        match claim {
            Claim::Urgent => TOKEN,
            Claim::Ordinary => TOKEN + self.reserve(),
        }
    }

    /// It as it is at a moment, if nothing happens until then.
    fn brought_to(&self, now: Now) -> Bucket {
        let mut bucket = *self;
        while let Some(rises) = bucket.rises.filter(|rises| *rises <= now) {
            bucket.fill_until(rises);
            bucket.share = (bucket.share + RISE).min(WHOLE);
            bucket.rises = (bucket.share < WHOLE).then(|| rises.plus(RISE_EVERY));
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

    fn has_one(&self, now: Now, claim: Claim) -> bool {
        let bucket = self.brought_to(now);
        bucket.parts >= bucket.needed(claim)
    }

    fn add(&mut self, now: Now, tokens: i128) {
        *self = self.brought_to(now);
        self.parts = (self.parts + tokens * TOKEN).min(self.limit());
    }

    /// When it holds enough for a call; `None`: never.
    fn ready_at(&self, now: Now, claim: Claim) -> Option<Now> {
        let mut bucket = self.brought_to(now);
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
            bucket = bucket.brought_to(next);
        }
    }

    /// ARM refused a call that began at a moment because of a quota. Calls that had begun when the share was last
    /// halved tell nothing new: they all met the same wall.
    fn halve(&mut self, now: Now, began: Now) {
        if self.halved.is_some_and(|at| began <= at) {
            return;
        }
        *self = self.brought_to(now);
        self.share = (self.share / 2).max(LEAST);
        self.halved = Some(now);
        self.rises = Some(now.plus(RISE_EVERY));
        self.parts = self.parts.min(self.limit());
    }

    /// ARM says how many parts are left for all clients: it holds half of them at most.
    fn lower(&mut self, now: Now, left: i128) {
        *self = self.brought_to(now);
        self.ceiling = Some(left / 2).filter(|ceiling| *ceiling < self.allowed());
        self.parts = self.parts.min(self.limit());
    }
}

/// What calls are made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Need {
    /// The grant of a write of membership alone: a read and a write.
    Membership,
    /// The grant of a write with an admin part: a read and a write.
    Admin,
    /// A read of a write that has begun, or that opens its lane again.
    Begun,
    /// A read that verifies a write.
    Verify,
    /// A read of discovery's.
    Discovery,
}

impl Need {
    /// Whether a call of the class is among the calls: each has a read, a grant a write as well.
    fn spends(self, class: GateClass) -> bool {
        match class {
            GateClass::Reads => true,
            GateClass::Writes => match self {
                Need::Membership | Need::Admin => true,
                Need::Begun | Need::Verify | Need::Discovery => false,
            },
        }
    }
}

/// The buckets of one verb class.
#[derive(Clone, Debug)]
struct Purse {
    budget: Bucket,
    /// The rate of the cloud configuration.
    rate: Option<Bucket>,
}

/// The budgets of both verb classes, and discovery's part of the reads.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    reads: Purse,
    writes: Purse,
    discovery: Bucket,
}

impl Budget {
    /// Full buckets for so many reads and writes in five minutes, and for the rates of the cloud configuration.
    pub(super) fn new(reads: u32, writes: u32, rates: Option<RateLimit>) -> Budget {
        let (part, whole) = DISCOVERY;
        let discovery = (reads / whole * part + reads % whole * part / whole).max(reads.min(1));
        let of_reads =
            |limit: RateLimit| Bucket::of_rate(limit.reads_per_second.max(LEAST_READS), limit.reads_at_once);
        let of_writes = |limit: RateLimit| Bucket::of_rate(limit.writes_per_second, limit.writes_at_once);
        Budget {
            reads: Purse { budget: Bucket::of(reads), rate: rates.map(of_reads) },
            writes: Purse { budget: Bucket::of(writes), rate: rates.map(of_writes) },
            discovery: Bucket::of(discovery),
        }
    }

    fn purse(&self, class: GateClass) -> &Purse {
        match class {
            GateClass::Reads => &self.reads,
            GateClass::Writes => &self.writes,
        }
    }

    fn purse_mut(&mut self, class: GateClass) -> &mut Purse {
        match class {
            GateClass::Reads => &mut self.reads,
            GateClass::Writes => &mut self.writes,
        }
    }

    /// The buckets that must have a call for it.
    fn buckets(&self, need: Need) -> impl Iterator<Item = (&Bucket, Claim)> + Clone {
        let (claim, discovery) = match need {
            Need::Membership | Need::Verify => (Claim::Ordinary, false),
            Need::Admin | Need::Begun => (Claim::Urgent, false),
            Need::Discovery => (Claim::Ordinary, true),
        };
        let purses = GateClass::ALL.map(|class| need.spends(class).then(|| self.purse(class)));
        let own = discovery.then_some((&self.discovery, Claim::Urgent));
        let budgets = purses.map(|purse| purse.map(|purse| (&purse.budget, claim)));
        let rates = purses.map(|purse| Some((purse?.rate.as_ref()?, Claim::Urgent)));
        budgets.into_iter().chain(rates).flatten().chain(own)
    }

    /// Whether the calls may be made.
    pub(super) fn allows(&self, now: Now, need: Need) -> bool {
        self.buckets(need).all(|(bucket, claim)| bucket.has_one(now, claim))
    }

    /// Whether the calls may be made once so many reads have been made before them.
    pub(super) fn allows_after(&self, now: Now, need: Need, reads: usize) -> bool {
        let mut left = self.clone();
        left.add(now, GateClass::Reads, -i128::try_from(reads).unwrap_or(i128::MAX));
        left.allows(now, need)
    }

    /// Which of the calls a rate of the cloud configuration keeps from being made now, the write before the read;
    /// `None`: no rate does, whether or not the budget does.
    pub(super) fn limited_by_rate(&self, now: Now, need: Need) -> Option<GateClass> {
        GateClass::ALL.into_iter().rev().find(|class| need.spends(*class) && self.lacks_rate(now, *class))
    }

    /// Whether a rate of the cloud configuration keeps a call of the class from being made now.
    pub(super) fn lacks_rate(&self, now: Now, class: GateClass) -> bool {
        self.purse(class).rate.as_ref().is_some_and(|rate| !rate.has_one(now, Claim::Urgent))
    }

    /// When the calls may be made, if nothing happens until then; `None`: never.
    pub(super) fn ready_at(&self, now: Now, need: Need) -> Option<Now> {
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

    /// When the class has a call for a write of membership; `None`: it has one now, or never will have.
    pub(super) fn short_until(&self, now: Now, class: GateClass) -> Option<Now> {
        let Purse { budget, rate } = self.purse(class);
        let of_rate = rate.as_ref().map_or(Some(now), |rate| rate.ready_at(now, Claim::Urgent));
        let at = budget.ready_at(now, Claim::Ordinary)?.max(of_rate?);
        (at > now).then_some(at)
    }

    /// Spends one call. It may leave a debt: what must be sent is sent, and what follows waits longer.
    pub(super) fn spend(&mut self, now: Now, class: GateClass) {
        self.add(now, class, -1);
    }

    /// Spends one read of discovery's.
    pub(super) fn spend_discovery(&mut self, now: Now) {
        self.add(now, GateClass::Reads, -1);
        self.discovery.add(now, -1);
    }

    /// Gives back a call that was set aside and not made.
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

    /// A quota 429 answered a call of the class that began at a moment: half of what was allowed is allowed.
    pub(super) fn throttled(&mut self, now: Now, class: GateClass, began: Now) {
        self.purse_mut(class).budget.halve(now, began);
        match class {
            GateClass::Reads => self.discovery.halve(now, began),
            GateClass::Writes => {}
        }
    }

    /// ARM says that so many calls of the class are left for all clients.
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

    /// How far apart a pool's attempts are to be at least, because less than half of the writes is left: from the
    /// configured interval up to a minute where only the reserve is. `None`: as far as is configured (Q2).
    pub(super) fn stretched(&self, now: Now, min_interval: Duration) -> Option<Duration> {
        let writes = self.writes.budget.brought_to(now);
        let (limit, left) = (writes.limit(), writes.parts.max(0));
        let more = LONGEST_INTERVAL.saturating_sub(min_interval);
        if more.is_zero() || (limit > 0 && left * 2 >= limit) {
            return None;
        }
        let (used, most) = (limit - left * 2, limit - writes.reserve() * 2);
        let micros = i128::try_from(more.as_micros()).unwrap_or(0);
        let added = if used >= most { micros } else { micros * used / most };
        Some(min_interval + Duration::from_micros(u64::try_from(added).unwrap_or(0)))
    }

    /// Whole and broken tokens of the class, and the most it can hold now; for operators.
    #[expect(clippy::cast_precision_loss, reason = "shown to the operator")]
    pub(super) fn shown(&self, now: Now, class: GateClass) -> (f64, f64) {
        let bucket = self.purse(class).budget.brought_to(now);
        let tokens = |parts: i128| parts.max(0) as f64 / TOKEN as f64;
        (tokens(bucket.parts), tokens(bucket.limit()))
    }
}
