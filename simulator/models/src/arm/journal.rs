//! Log of requests and answers, for tests and reports.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Method;
use super::path::Route;
use super::store::key;

/// Subject of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// GET of a load balancer.
    LoadBalancerGet,
    /// GET of a list of load balancers.
    LoadBalancerList,
    /// GET of a pool.
    PoolGet,
    /// GET of a list of pools.
    PoolList,
    /// PUT of a pool.
    PoolPut,
    /// DELETE of a pool.
    PoolDelete,
    /// GET of an operation or of its result.
    Poll,
    /// A pool write of another client: through [`super::ArmModel::foreign_put`], or with the user agent of the
    /// cloud-controller-manager.
    ForeignPoolPut,
    /// A write of a load balancer, which only other clients make.
    ForeignLoadBalancerPut,
    /// Anything else.
    Other,
}

impl Kind {
    pub(crate) fn of(method: Method, route: &Route) -> Self {
        match (method, route) {
            (Method::Get, Route::LoadBalancers) => Self::LoadBalancerList,
            (Method::Get, Route::LoadBalancer { .. }) => Self::LoadBalancerGet,
            (Method::Get, Route::Pools { .. }) => Self::PoolList,
            (Method::Get, Route::Pool { .. }) => Self::PoolGet,
            (Method::Get, Route::Operation { .. } | Route::OperationResult { .. }) => Self::Poll,
            (Method::Put, Route::Pool { .. }) => Self::PoolPut,
            (Method::Put, Route::LoadBalancer { .. }) => Self::ForeignLoadBalancerPut,
            (Method::Delete, Route::Pool { .. }) => Self::PoolDelete,
            (
                Method::Get
                | Method::Head
                | Method::Put
                | Method::Post
                | Method::Patch
                | Method::Delete
                | Method::Other,
                Route::Permissions
                | Route::Locks { .. }
                | Route::LoadBalancers
                | Route::LoadBalancer { .. }
                | Route::Pools { .. }
                | Route::Pool { .. }
                | Route::Operation { .. }
                | Route::OperationResult { .. }
                | Route::LoadBalancerAction { .. }
                | Route::Resource(_)
                | Route::ResourceGroup
                | Route::Usages
                | Route::Elsewhere,
            ) => Self::Other,
        }
    }

    /// Returns the kind of the same request by another client.
    pub(crate) fn of_other_client(self) -> Self {
        match self {
            Self::PoolPut => Self::ForeignPoolPut,
            Self::LoadBalancerGet
            | Self::LoadBalancerList
            | Self::PoolGet
            | Self::PoolList
            | Self::PoolDelete
            | Self::Poll
            | Self::ForeignPoolPut
            | Self::ForeignLoadBalancerPut
            | Self::Other => self,
        }
    }
}

/// One request and its answer.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// Arrival time, in microseconds.
    pub started_us: u64,
    /// Time at which its answer is due, in microseconds.
    pub ended_us: u64,
    /// Method.
    pub method: Method,
    /// Subject.
    pub kind: Kind,
    /// Load balancer that it names.
    pub load_balancer: Option<Arc<str>>,
    /// Pool that it names.
    pub pool: Option<Arc<str>>,
    /// Status of the answer; 0 if the connection was dropped.
    pub status: u16,
    /// Error code of the answer.
    pub code: Option<Cow<'static, str>>,
    /// True if the cloud-controller-manager sent it (by its user agent) or the model itself made it.
    pub foreign: bool,
}

/// Sums over all requests since the model began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// GETs of load balancers and of lists of them. This and the next four counters exclude other clients.
    pub load_balancer_gets: u64,
    /// GETs of pools and of lists of them.
    pub pool_gets: u64,
    /// PUTs of pools, with any answer.
    pub pool_puts: u64,
    /// DELETEs of pools.
    pub pool_deletes: u64,
    /// GETs of operations.
    pub polls: u64,
    /// Writes of another client.
    pub foreign_writes: u64,
    /// GETs of another client, including polls.
    pub foreign_reads: u64,
    /// Writes that changed something, including foreign ones.
    pub applied: u64,
    /// Writes that requested the current state.
    pub unchanged: u64,
    /// Writes that reported success and were lost.
    pub silently_lost: u64,
    /// Writes refused because another one ran on the load balancer.
    pub refused_by_lock: u64,
    /// Operations canceled by a later write.
    pub superseded: u64,
    /// Answered requests of any status, except those of other clients.
    pub answered: u64,
    /// Requests refused for a quota.
    pub throttled: u64,
    /// Requests that the network provider, not ARM, refused for a quota.
    pub throttled_by_provider: u64,
    /// Writes refused for their etag.
    pub etag_mismatches: u64,
    /// Writes answered from memory because of their client request id.
    pub replayed: u64,
    /// Connections dropped, before or after applying.
    pub dropped: u64,
    /// Operations that were planned to fail.
    pub planned_failures: u64,
    /// Largest number of concurrent pool PUTs on one load balancer.
    pub max_concurrent_puts: u64,
    /// Entries that were dropped because the log was full.
    pub log_overflow: u64,
}

/// The log and its sums.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    pub(crate) entries: Vec<LogEntry>,
    pub(crate) counters: Counters,
    in_flight: BTreeMap<String, InFlight>,
    /// The IPs that the last write of each pool removed, if another client made it, by the keys of load balancer and
    /// pool.
    taken: BTreeMap<(String, String), Vec<String>>,
    capacity: usize,
}

#[derive(Clone, Debug, Default)]
struct InFlight {
    ends: Vec<u64>,
    most: u64,
}

impl Journal {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    pub(crate) fn record(&mut self, entry: LogEntry) {
        let counters = &mut self.counters;
        match entry.kind {
            Kind::LoadBalancerGet | Kind::LoadBalancerList | Kind::PoolGet | Kind::PoolList | Kind::Poll
                if entry.foreign =>
            {
                counters.foreign_reads += 1;
            }
            Kind::PoolDelete if entry.foreign => counters.foreign_writes += 1,
            Kind::LoadBalancerGet | Kind::LoadBalancerList => counters.load_balancer_gets += 1,
            Kind::PoolGet | Kind::PoolList => counters.pool_gets += 1,
            Kind::PoolPut => {
                counters.pool_puts += 1;
                self.overlap(&entry);
            }
            Kind::PoolDelete => counters.pool_deletes += 1,
            Kind::Poll => counters.polls += 1,
            Kind::ForeignPoolPut | Kind::ForeignLoadBalancerPut => counters.foreign_writes += 1,
            Kind::Other => {}
        }
        if self.entries.len() < self.capacity {
            self.entries.push(entry);
        } else {
            self.counters.log_overflow += 1;
        }
    }

    fn overlap(&mut self, entry: &LogEntry) {
        let Some(name) = entry.load_balancer.as_deref() else {
            return;
        };
        let in_flight = self.in_flight.entry(key(name)).or_default();
        in_flight.ends.retain(|end| *end > entry.started_us);
        in_flight.ends.push(entry.ended_us);
        in_flight.most = in_flight.most.max(in_flight.ends.len() as u64);
        self.counters.max_concurrent_puts = self.counters.max_concurrent_puts.max(in_flight.most);
    }

    /// Records the IPs that another client's write removes from a pool; none for a write of the service under test.
    pub(crate) fn record_taken(&mut self, load_balancer: &str, pool: &str, ips: Vec<String>) {
        self.taken.insert((key(load_balancer), key(pool)), ips);
    }

    pub(crate) fn taken(&self, load_balancer: &str, pool: &str) -> &[String] {
        self.taken.get(&(key(load_balancer), key(pool))).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn max_concurrent_puts(&self, load_balancer: &str) -> u64 {
        self.in_flight.get(&key(load_balancer)).map_or(0, |in_flight| in_flight.most)
    }
}
