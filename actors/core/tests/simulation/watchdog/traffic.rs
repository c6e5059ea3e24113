//! The number of calls compared with budgets (W9) and throttle gates (W6), by the true answers of ARM.

use std::collections::BTreeMap;
use std::time::Duration;

use model::sample::GateClass;

use crate::process::Settings;

/// Time for which ARM's answer may take to reach the per-try policy: a slow edge, a slow machine.
const TOLD_US: u64 = 12_000_000;
/// Clock difference over the longest closing of a gate.
const CLOCKS_US: u64 = 50_000;
/// Number of writes that may be sent at one moment after waiting for different things.
const TOGETHER: u64 = 4;
const FIVE_MINUTES_US: u64 = 300_000_000;

/// A bucket of calls, in millionths of a call.
#[derive(Clone, Debug)]
struct Bucket {
    /// Calls per five minutes.
    calls: u64,
    /// Capacity, in millionths.
    most: u64,
    parts: u64,
    at: u64,
}

impl Bucket {
    fn new(now: u64, calls: u64, at_once: u64) -> Bucket {
        Bucket { calls, most: at_once * 1_000_000, parts: at_once * 1_000_000, at: now }
    }

    fn take(&mut self, now: u64) -> bool {
        let gained = (now - self.at).saturating_mul(self.calls) / (FIVE_MINUTES_US / 1_000_000);
        self.parts = (self.parts + gained).min(self.most);
        self.at = now;
        let enough = self.parts >= 1_000_000;
        self.parts = self.parts.saturating_sub(1_000_000);
        enough
    }
}

/// Calls and answers of one process.
pub struct Sender {
    buckets: BTreeMap<GateClass, Vec<Bucket>>,
    closed: BTreeMap<GateClass, (u64, u64)>,
}

impl Sender {
    /// Creates one without calls.
    pub fn new(now: u64, settings: &Settings) -> Sender {
        let bucket = |calls: u32| Bucket::new(now, u64::from(calls), u64::from(calls));
        // Polls and reads about operations are allowed on credit, so reads have a margin.
        let reads = vec![bucket(settings.reads_per_5_minutes + 30)];
        // So have writes that are repeated because another client has written, twice for each load balancer.
        let replays = 2 * u32::try_from(settings.balancers).unwrap_or(0);
        let mut writes = vec![bucket(settings.writes_per_5_minutes + replays)];
        // Calls that have their token may be sent together.
        writes.extend(settings.rate_limit.map(|limit| {
            let at_once = u64::from(limit.writes_at_once) + TOGETHER;
            Bucket::new(now, (limit.writes_per_second * 300.0).ceil() as u64, at_once)
        }));
        let buckets = [(GateClass::Reads, reads), (GateClass::Writes, writes)];
        Sender { buckets: buckets.into(), closed: BTreeMap::new() }
    }

    /// Records that ARM's 429 about a class reaches the process.
    pub fn throttled(&mut self, now: u64, class: GateClass, span: Duration) {
        let until = now + u64::try_from(span.as_micros()).unwrap_or(0);
        let closure = self.closed.entry(class).or_insert((now, until));
        if now > closure.1 || until > closure.1 {
            *closure = (now, until);
        }
    }

    /// Checks a request when it is sent.
    ///
    /// # Errors
    /// A violation.
    pub fn sends(&mut self, now: u64, class: GateClass) -> Result<(), String> {
        if let Some((at, until)) = self.closed.get(&class)
            && *at + TOLD_US < now
            && now + CLOCKS_US < *until
        {
            return Err(format!(
                "W6: a call of {class:?} at {now}, and ARM's answer at {at} forbids it before {until}"
            ));
        }
        let buckets = self.buckets.get_mut(&class).expect("both classes have one");
        if buckets.iter_mut().all(|bucket| bucket.take(now)) {
            Ok(())
        } else {
            Err(format!("W9: more calls of {class:?} than the budget has: {buckets:?}"))
        }
    }

    /// Returns when ARM last closed a class, and until when.
    pub fn throttled_until(&self, class: GateClass) -> Option<(u64, u64)> {
        self.closed.get(&class).copied()
    }
}
