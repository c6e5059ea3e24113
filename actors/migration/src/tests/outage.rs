//! The time without a path from frontends to nodes, on the simulated clock.

use simulator_models::arm::Durations;
use simulator_models::arm::topology::{Cluster, NodeGroup, NodeKind, Service, UpgradePolicy};
use simulator_models::arm::{Latency, Settings};

use super::world::World;
use crate::apply::Outcome;

/// Returns constant durations of operations, so that only the order and the number of calls matter.
fn steady() -> Durations {
    let seconds = |seconds: u64| Latency::Fixed { us: seconds * 1_000_000 };
    Durations {
        basic_load_balancer: seconds(75),
        standard_load_balancer: seconds(15),
        public_ip: seconds(15),
        scale_set: seconds(10),
        instance: seconds(30),
        other: seconds(10),
    }
}

/// Returns the seconds during which not every frontend served.
fn outage(kind: NodeKind, services: usize) -> u64 {
    let all =
        (0..services).map(|at| if at % 10 == 9 { Service::internal(None) } else { Service::external(false) });
    let cluster = Cluster {
        nodes: vec![NodeGroup::new("nodes", kind, 3)],
        services: all.collect(),
        standard_public_ip_limit: Some(1_000),
        ..Cluster::default()
    };
    let settings = Settings { durations: Some(steady()), ..Settings::default() };
    let mut world = World::new(cluster.build(settings).expect("Azure takes the cluster"));
    world.accept_all();
    world.watch_some();
    let full = world.serving.last().map_or(0, |(_, count)| *count);
    assert!(full > 0, "frontends serve at the start");
    assert_eq!(world.finish(), Outcome::Done);
    world.await_operations();
    let ends = |at: usize| world.serving.get(at + 1).map_or(world.now, |(at, _)| *at);
    let spans = world.serving.iter().enumerate().filter(|(_, (_, count))| *count < full);
    let (begins, last) =
        spans.fold((u64::MAX, 0), |(first, last), (at, (begin, _))| (first.min(*begin), last.max(ends(at))));
    assert_eq!(world.serving.last().map(|(_, count)| *count), Some(full), "all serve again");
    last.saturating_sub(begins) / 1_000_000
}

#[test]
fn m1_the_outage_does_not_grow_with_the_number_of_services() {
    for kind in [NodeKind::ScaleSet(UpgradePolicy::Manual), NodeKind::AvailabilitySet] {
        let [one, fifty, many] = [1, 50, 500].map(|services| outage(kind, services));
        assert!(one > 60, "{kind:?}: deleting a Basic load balancer takes longer than {one} s");
        for more in [fifty, many] {
            assert!(
                more * 100 <= one * 120,
                "{kind:?}: {one} s with one Service, {fifty} with 50, {many} with 500"
            );
        }
    }
}
