//! One managed load balancer: its last known state, and when it is read next (D3).

use std::sync::Arc;
use std::time::Duration;

use model::arm::LbFacts;
use model::ids::LbName;
use model::machine::Now;
use model::view::LbView;

/// Delay before a failed read is repeated: first and longest; it doubles in between.
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_MOST: Duration = Duration::from_secs(60);
/// The minimum interval between reads of a load balancer that are caused by a 404 on one of its pools, or by an
/// internal Service if the load balancer is absent.
const ON_DEMAND_INTERVAL: Duration = Duration::from_secs(5);
/// The interval between reads of an absent load balancer that only internal Services use, while none waits for it.
const ABSENT_INTERVAL: Duration = Duration::from_secs(600);

/// A managed load balancer.
pub(super) struct ManagedBalancer {
    pub(super) name: LbName,
    /// The result of the last successful read; `None` also when the load balancer does not exist.
    pub(super) facts: Option<Arc<LbFacts>>,
    exists: Option<bool>,
    /// When the last successful read was answered, and when it began.
    read_at: Option<Now>,
    read_began: Option<Now>,
    last_error: Option<Arc<str>>,
    /// Whether only internal Services use it.
    internal: bool,
    /// The interval between regular reads.
    interval: Duration,
    /// When the next regular read is due.
    regular: Now,
    /// When an extra read was requested; one read answers all requests made before it began.
    requested: Option<Now>,
    retry: Option<Retry>,
    /// Whether the last read failed late.
    unresponsive: bool,
    /// The last time at which a 404 or an internal Service was allowed to cause a read.
    last_on_demand: Option<Now>,
}

/// The repetition of a failed read.
struct Retry {
    at: Now,
    after: Duration,
}

impl ManagedBalancer {
    /// Creates a load balancer whose state is unknown and for which no read is requested.
    pub(super) fn new(name: LbName, interval: Duration, internal: bool) -> ManagedBalancer {
        ManagedBalancer {
            name,
            facts: None,
            exists: None,
            read_at: None,
            read_began: None,
            last_error: None,
            internal,
            interval,
            regular: Now::NEVER,
            requested: None,
            retry: None,
            unresponsive: false,
            last_on_demand: None,
        }
    }

    /// Sets the time of the load balancer on the grid of regular reads.
    pub(super) fn set_regular(&mut self, regular: Now) {
        self.regular = regular;
    }

    /// Returns whether the load balancer is absent and only internal Services use it.
    pub(super) fn is_absent_internal(&self) -> bool {
        self.internal && self.exists == Some(false)
    }

    /// Returns whether the last read of the load balancer failed late, and could have delayed other reads.
    pub(super) fn is_unresponsive(&self) -> bool {
        self.unresponsive
    }

    /// Returns when the load balancer is read next. After a failure, this is the time of the retry, whatever requests
    /// the read.
    pub(super) fn next_at(&self) -> Now {
        match &self.retry {
            Some(retry) => retry.at,
            None => self.requested.map_or(self.regular, |requested| requested.min(self.regular)),
        }
    }

    /// Requests a read at this moment.
    pub(super) fn request(&mut self, at: Now) {
        self.requested = Some(self.requested.map_or(at, |requested| requested.min(at)));
    }

    /// Requests a read now, even where a failed one would be repeated later.
    pub(super) fn request_now(&mut self, now: Now) {
        self.request(now);
        if let Some(retry) = &mut self.retry {
            retry.at = retry.at.min(now);
        }
    }

    /// Requests a read now, at most once per 5 s, because one of its pools answered 404 or an internal Service could
    /// use it.
    pub(super) fn request_rate_limited(&mut self, now: Now) {
        let at = match self.last_on_demand {
            None => now,
            Some(last) if now < last => last,
            Some(last) => now.max(last.plus(ON_DEMAND_INTERVAL)),
        };
        self.last_on_demand = Some(at);
        self.request(at);
    }

    /// Returns whether the due read can be skipped: it is a regular one, and the load balancer was found absent less
    /// than ten minutes ago.
    pub(super) fn may_skip_read(&self, now: Now) -> bool {
        let is_asked = self.retry.is_some() || self.requested.is_some_and(|requested| requested <= now);
        let every = ABSENT_INTERVAL.saturating_sub(self.interval);
        self.is_absent_internal() && !is_asked && self.read_at.is_some_and(|read| now < read.plus(every))
    }

    /// Begins a read, which serves all requests made until now.
    pub(super) fn begin(&mut self, now: Now) {
        self.requested = self.requested.filter(|requested| *requested > now);
        if self.regular <= now {
            self.regular_after(now);
        }
    }

    /// Sets the next regular read to the first grid time after `moment`.
    pub(super) fn regular_after(&mut self, moment: Now) {
        let interval = i128::try_from(self.interval.as_micros()).unwrap_or(i128::MAX).max(1);
        let behind = i128::from(moment.as_micros()) + 1;
        let ahead = (i128::from(self.regular.as_micros()) - behind).rem_euclid(interval);
        self.regular = Now::from_micros(u64::try_from(behind + ahead).unwrap_or(u64::MAX));
    }

    /// Records the result of a read that began then; `None`: the load balancer does not exist.
    pub(super) fn record_read(&mut self, now: Now, began: Now, facts: Option<Arc<LbFacts>>) {
        self.exists = Some(facts.is_some());
        self.facts = facts;
        self.read_at = Some(now);
        self.read_began = Some(began);
        self.last_error = None;
        self.retry = None;
        self.unresponsive = false;
    }

    /// Records a failed read, perhaps a late one. Keeps the last known state.
    pub(super) fn record_failure(&mut self, now: Now, error: Arc<str>, late: bool) {
        self.last_error = Some(error);
        self.unresponsive = late;
        let after = match &self.retry {
            None => RETRY_FIRST,
            Some(retry) => (retry.after * 2).min(RETRY_MOST),
        };
        self.retry = Some(Retry { at: now.plus(after), after });
    }

    /// Returns the view of the load balancer.
    pub(super) fn view(&self) -> LbView {
        LbView {
            lb: self.name.clone(),
            exists: self.exists,
            read_at: self.read_at,
            read_began: self.read_began,
            pools: self.facts.as_ref().map_or(0, |facts| facts.pools.len()),
            last_error: self.last_error.clone(),
        }
    }
}
