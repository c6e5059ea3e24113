//! The PUTs of a story: what ARM's listener has recorded of them, one after another.

use std::collections::BTreeSet;
use std::net::IpAddr;

use simulator::models::arm::Method;
use simulator::{Azure, Exchange, Journal, Owner};

use crate::support::azure::members;

/// A PUT of a pool as it arrived.
#[derive(Clone, Debug)]
pub struct Put {
    /// When it arrived, in microseconds of the fakes' clock.
    pub at_us: u64,
    /// When its answer was due.
    pub ended_us: u64,
    /// The load balancer, in lower case.
    pub load_balancer: String,
    /// The pool, in lower case.
    pub pool: String,
    /// The addresses in its body; `None` when that has no array of them.
    pub members: Option<BTreeSet<IpAddr>>,
    /// The status of its answer; 0 when there was none.
    pub status: u16,
    /// The body as it came.
    pub body: String,
    /// Whether the story has spoken of it.
    pub told: bool,
}

/// The journal of one story.
pub struct Recorder {
    journal: Journal,
    heard: usize,
}

impl Recorder {
    /// Records what this ARM hears from now on.
    pub async fn start(azure: &Owner<Azure>) -> Self {
        Self { journal: azure.ask(|azure, _| azure.wire.record()).await, heard: 0 }
    }

    /// The next PUT that has arrived and was not taken yet.
    pub fn next(&mut self) -> Option<Put> {
        let exchanges = self.journal.borrow();
        let mut new = exchanges.iter().enumerate().skip(self.heard);
        let next = new.find(|(_, exchange)| exchange.request.method == Method::Put);
        self.heard = next.map_or(exchanges.len(), |(place, _)| place + 1);
        next.map(|(_, exchange)| put(exchange))
    }
}

fn put(exchange: &Exchange) -> Put {
    let pool = exchange.pool().unwrap_or_else(|| panic!("a PUT of no pool: {:?}", exchange.request));
    Put {
        at_us: exchange.arrived_us,
        ended_us: exchange.ended_us.expect("no story holds an answer back"),
        load_balancer: pool.load_balancer,
        pool: pool.pool,
        members: members(exchange),
        status: exchange.status.unwrap_or(0),
        body: String::from_utf8_lossy(&exchange.request.body).into_owned(),
        told: false,
    }
}
