//! One managed load balancer: what is known of it, and when it is read next (D3).

use std::sync::Arc;
use std::time::Duration;

use crate::arm::LbFacts;
use crate::ids::LbName;
use crate::machine::Now;
use crate::view::LbView;

/// How long after a failed read the next one comes, first and at most; it doubles in between.
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_MOST: Duration = Duration::from_secs(60);
/// How often a 404 on a pool may cause a read of its load balancer.
const MISSING_EVERY: Duration = Duration::from_secs(5);

/// A managed load balancer.
pub(super) struct Balancer {
    /// Its name.
    pub(super) name: LbName,
    /// What the last successful read saw; `None` also when it does not exist.
    pub(super) facts: Option<Arc<LbFacts>>,
    exists: Option<bool>,
    read_at: Option<Now>,
    last_error: Option<Arc<str>>,
    /// Its place on the grid of regular reads.
    regular: Now,
    /// When an extra read was asked for; one read answers all who asked before it began.
    wanted: Option<Now>,
    retry: Option<Retry>,
    /// The newest moment at which a 404 was allowed to cause a read.
    missing: Option<Now>,
}

/// A read that failed is made again.
struct Retry {
    at: Now,
    after: Duration,
}

impl Balancer {
    /// One of which nothing is known and that nobody has asked to read.
    pub(super) fn new(name: LbName) -> Balancer {
        Balancer {
            name,
            facts: None,
            exists: None,
            read_at: None,
            last_error: None,
            regular: Now::NEVER,
            wanted: None,
            retry: None,
            missing: None,
        }
    }

    /// Sets its place on the grid of regular reads.
    pub(super) fn place(&mut self, regular: Now) {
        self.regular = regular;
    }

    /// When it is to be read next. After a failure that is the retry's moment, whoever else asks.
    pub(super) fn next_at(&self) -> Now {
        match &self.retry {
            Some(retry) => retry.at,
            None => self.wanted.map_or(self.regular, |wanted| wanted.min(self.regular)),
        }
    }

    /// Asks for a read at this moment.
    pub(super) fn want(&mut self, at: Now) {
        self.wanted = Some(self.wanted.map_or(at, |wanted| wanted.min(at)));
    }

    /// Asks for a read now, also where a failed one would be made again later.
    pub(super) fn want_at_once(&mut self, now: Now) {
        self.want(now);
        if let Some(retry) = &mut self.retry {
            retry.at = retry.at.min(now);
        }
    }

    /// Asks for a read because a pool of it answered 404: at once, but at most once per 5 s.
    pub(super) fn missing(&mut self, now: Now) {
        let at = match self.missing {
            None => now,
            Some(last) if now < last => last,
            Some(last) => now.max(last.plus(MISSING_EVERY)),
        };
        self.missing = Some(at);
        self.want(at);
    }

    /// A read of it begins, and serves all who asked for one until now.
    pub(super) fn begin(&mut self, now: Now, interval: Duration) {
        self.wanted = self.wanted.filter(|wanted| *wanted > now);
        if self.regular <= now {
            let micros = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX).max(1);
            let behind = now.as_micros().saturating_sub(self.regular.as_micros());
            let steps = (behind / micros).saturating_add(1);
            self.regular =
                Now::from_micros(self.regular.as_micros().saturating_add(steps.saturating_mul(micros)));
        }
    }

    /// A read told what it is; `None`: it does not exist.
    pub(super) fn seen(&mut self, now: Now, facts: Option<Arc<LbFacts>>) {
        self.exists = Some(facts.is_some());
        self.facts = facts;
        self.read_at = Some(now);
        self.last_error = None;
        self.retry = None;
    }

    /// A read failed; what was known stays.
    pub(super) fn failed(&mut self, now: Now, error: Arc<str>) {
        self.last_error = Some(error);
        let after = match &self.retry {
            None => RETRY_FIRST,
            Some(retry) => (retry.after * 2).min(RETRY_MOST),
        };
        self.retry = Some(Retry { at: now.plus(after), after });
    }

    /// What is shown of it.
    pub(super) fn view(&self) -> LbView {
        LbView {
            lb: self.name.clone(),
            exists: self.exists,
            read_at: self.read_at,
            pools: self.facts.as_ref().map_or(0, |facts| facts.pools.len()),
            last_error: self.last_error.clone(),
        }
    }
}
