//! The registry on tokio's paused clock, with the real machines of pools and slow receivers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::arm::{PoolFacts, Provisioning};
use model::assignment::{Assignment, Observation, Share};
use model::ids::{AddressName, Epoch, Family, LbName, PoolName, ServiceKey, ServiceUid};
use model::level::{Level, Member, Provenance, Source};
use model::machine::Now;
use pools::{directory, queue};

use super::*;
use crate::shell::tests::address_book_of_sinks;

fn pool() -> PoolId {
    PoolId::new(LbName::new("lb"), PoolName::new("shop-web"))
}

/// Returns an assignment of the Directory: one member, or no owner.
fn assigned(owned: bool) -> Delivery {
    let ip = std::net::IpAddr::from([10, 0, 0, 1]);
    let member = Member { name: AddressName::new("n1"), node_ready: true };
    let share = Share {
        key: ServiceKey::new("shop", "web"),
        revision: 0,
        required: BTreeSet::from([ip]),
        tolerated: BTreeSet::new(),
        triggered: None,
        read: None,
    };
    let required = if owned { BTreeMap::from([(ip, member)]) } else { BTreeMap::new() };
    let assignment = Assignment {
        epoch: Epoch(1),
        opened: Now::ZERO,
        pool: pool(),
        family: Family::V4,
        source: Source::Kubernetes,
        services: owned.then(|| (ServiceUid::new("uid"), share)).into_iter().collect(),
        level: Level { required, ..Level::default() },
        provenance: Provenance::Watch,
        paused: [].into(),
        would_hold: None,
        overruled: None,
        held: None,
    };
    Delivery::Pool(pool(), PoolMessage::In(In::Assigned(Arc::new(assignment))))
}

/// Returns an observation of an empty pool.
fn observed_empty(began: Now) -> Delivery {
    let facts = PoolFacts {
        id: pool(),
        entries: Vec::new(),
        rules: Vec::new(),
        outbound_rule: false,
        inbound_nat_rule: false,
        nic_backed: false,
        sync_automatic: false,
        network: None,
        etag: None,
        provisioning: Provisioning::Succeeded,
    };
    let observation = Observation { began, facts: Arc::new(facts) };
    Delivery::Pool(pool(), PoolMessage::In(In::Observed(observation)))
}

/// Returns the name of a message from the pool to the writer.
fn message_to_writer(delivery: &Delivery) -> Option<&'static str> {
    if let Delivery::Writer(writer::In::MembershipDue(..)) = delivery {
        Some("due")
    } else if let Delivery::Writer(writer::In::Withdraw(_)) = delivery {
        Some("withdrawn")
    } else {
        None
    }
}

#[actix::test]
async fn a3_a_successor_of_a_pool_starts_after_its_predecessor() {
    tokio::time::pause();
    let clock = Clock::of_runtime();
    let (address_book, mut receiver) = address_book_of_sinks(Duration::from_secs(1));
    let params = queue::Params::upstream(Duration::ZERO, 3);
    let pools = Pools::new(params, clock, address_book).start();
    let mut received = Vec::new();
    for round in 0..3 {
        pools.send(Deliver(vec![assigned(true), observed_empty(clock.now())])).await.expect("it lives");
        // The writer is busy with the first message while the pool is released, forgotten, and assigned again.
        while received.len() < 2 * round + 1 {
            received.extend(message_to_writer(&receiver.recv().await.expect("the pool is due")));
        }
        pools.send(Deliver(vec![assigned(false)])).await.expect("it lives");
        loop {
            let delivery = receiver.recv().await.expect("the pool retires");
            received.extend(message_to_writer(&delivery));
            if matches!(delivery, Delivery::Directory(directory::In::Retired(_))) {
                break;
            }
        }
        let forget = Delivery::Pool(pool(), PoolMessage::Forget);
        pools.send(Deliver(vec![forget])).await.expect("it lives");
    }
    while received.len() < 6 {
        received.extend(message_to_writer(&receiver.recv().await.expect("all outputs are delivered")));
    }
    assert_eq!(received, ["due", "withdrawn"].repeat(3));
}
