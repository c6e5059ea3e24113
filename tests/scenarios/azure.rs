//! The PUTs of a scenario, from ARM's journal, one after another.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;
use simulator::models::arm::Method;
use simulator::{Azure, Exchange, Journal, Owner};

use super::world::split_pool;
use crate::support::azure::members;

/// A received PUT of a pool.
#[derive(Clone, Debug)]
pub struct Put {
    /// Time at which it arrived, in microseconds of the fakes' clock.
    pub at_us: u64,
    /// Time at which its answer was sent.
    pub ended_us: u64,
    /// The load balancer, in lower case.
    pub load_balancer: String,
    /// The pool, in lower case.
    pub pool: String,
    /// The addresses in its body; `None` if the body has no array of them.
    pub members: Option<BTreeSet<IpAddr>>,
    /// The entries in its body.
    pub entries: Vec<Entry>,
    /// The status of its answer; 0 if there was none.
    pub status: u16,
    /// The received body.
    pub body: String,
    /// True if an `expect` has listed it.
    pub matched: bool,
}

/// An entry of a pool.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its address, if any.
    pub ip: Option<IpAddr>,
    /// True if its admin state is `Down`.
    pub down: bool,
}

impl Put {
    /// Returns whether it is of this pool: `shop-web`, or `lb-2/shop-web`.
    pub fn is_of(&self, pool: &str) -> bool {
        let (load_balancer, pool) = split_pool(pool);
        let is_there = load_balancer.is_none_or(|name| self.load_balancer == name.to_lowercase());
        is_there && self.pool == pool.to_lowercase()
    }
}

/// The journal of one scenario.
pub struct Recorder {
    journal: Journal,
    taken: usize,
}

impl Recorder {
    /// Records the requests to this ARM from now on.
    pub async fn start(azure: &Owner<Azure>) -> Self {
        Self { journal: azure.ask(|azure, _| azure.wire.record()).await, taken: 0 }
    }

    /// Returns the next received PUT.
    pub fn next(&mut self) -> Option<Put> {
        let exchanges = self.journal.borrow();
        let mut new = exchanges.iter().enumerate().skip(self.taken);
        let next = new.find(|(_, exchange)| exchange.request.method == Method::Put);
        self.taken = next.map_or(exchanges.len(), |(index, _)| index + 1);
        next.map(|(_, exchange)| put(exchange))
    }
}

fn put(exchange: &Exchange) -> Put {
    let pool = exchange.pool().unwrap_or_else(|| panic!("a PUT of no pool: {:?}", exchange.request));
    Put {
        at_us: exchange.arrived_us,
        ended_us: exchange.ended_us.expect("no scenario delays an answer"),
        load_balancer: pool.load_balancer,
        pool: pool.pool,
        members: members(exchange),
        entries: entries(&exchange.request.body),
        status: exchange.status.unwrap_or(0),
        body: String::from_utf8_lossy(&exchange.request.body).into_owned(),
        matched: false,
    }
}

fn entries(body: &[u8]) -> Vec<Entry> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let listed = body["properties"]["loadBalancerBackendAddresses"].as_array();
    let entry = |entry: &Value| {
        let properties = &entry["properties"];
        Entry {
            name: entry["name"].as_str().unwrap_or_default().to_owned(),
            ip: properties["ipAddress"].as_str().and_then(|ip| ip.parse().ok()),
            down: properties["adminState"] == "Down",
        }
    };
    listed.into_iter().flatten().map(entry).collect()
}
