//! Pools by interface become pools by address.

use simulator_models::arm::topology::{Cluster, NodeGroup, NodeKind, Service, Topology, UpgradePolicy};
use simulator_models::arm::{Settings, Sku};

use super::world::{End, World, quick};
use crate::apply::Outcome;
use crate::inventory::{Membership, Purpose};
use crate::plan::{PoolsPlan, Reason};

fn worlds() -> Vec<World> {
    let set = |policy| Cluster {
        sku: Sku::Standard,
        nodes: vec![NodeGroup::new("workers", NodeKind::ScaleSet(policy), 3)],
        services: vec![Service::external(true), Service::internal(None)],
        ..Cluster::default()
    };
    let machines = Cluster {
        nodes: vec![NodeGroup::new("agents", NodeKind::AvailabilitySet, 2)],
        ..set(UpgradePolicy::Manual)
    };
    let all = [set(UpgradePolicy::Manual), set(UpgradePolicy::Automatic), machines];
    // Each address appears a second after the previous one.
    let settings = Settings { ip_migration_us: 1_000_000, ..quick() };
    all.iter()
        .map(|cluster| {
            let mut world = World::new(cluster.build(settings.clone()).expect("Azure takes the cluster"));
            (world.purpose, world.membership) = (Purpose::IpPools, Membership::NodeIp);
            world
        })
        .collect()
}

fn check(before: &World, after: &mut World, what: &str) {
    after.await_operations();
    assert_eq!(after.frontends(), before.frontends(), "{what}");
    let inventory = after.survey();
    assert_eq!(PoolsPlan::of(&inventory).pools, Vec::<String>::new(), "{what}");
    for (lb, frontend) in before.frontends().into_keys() {
        assert!(after.arm.frontend_serves(&lb, &frontend), "{what}: {lb} {frontend}");
    }
    let ids = after.arm.ids().into_iter().filter(|id| !id.contains("loadBalancers"));
    for id in ids {
        let body = after.arm.json(&id).unwrap_or_default().to_string();
        assert!(!body.contains("backendAddressPools/kubernetes"), "{what}: {id} refers to a pool");
    }
}

#[test]
fn pools_get_members_by_address_and_nodes_are_detached() {
    for before in worlds() {
        let mut world = before.clone();
        let plan = PoolsPlan::of(&world.survey());
        assert_eq!((plan.pools.len(), plan.blockers.len()), (2, 0), "{plan}");
        assert_eq!(world.finish(), Outcome::Done);
        check(&before, &mut world, "without a crash");
        assert_eq!(world.finish(), Outcome::Done);
        assert_eq!(world.writes, []);
    }
}

#[test]
fn a_crash_after_any_call_leads_to_the_same_end() {
    for before in worlds() {
        let mut straight = before.clone();
        assert_eq!(straight.finish(), Outcome::Done);
        straight.await_operations();
        let calls = straight.calls;
        for crash in straight.changes.into_iter().filter(|crash| *crash < calls) {
            let mut world = before.clone();
            assert_eq!(world.run(crash), End::Crashed);
            assert_eq!(world.finish(), Outcome::Done, "after call {crash}");
            check(&before, &mut world, &format!("after call {crash}"));
        }
    }
}

#[test]
fn basic_load_balancers_and_another_configuration_are_refused() {
    let mut world = World::of(Topology::AvailabilitySet);
    world.purpose = Purpose::IpPools;
    let reasons = |world: &mut World| -> Vec<Reason> {
        PoolsPlan::of(&world.survey()).blockers.iter().map(|blocker| blocker.reason).collect()
    };
    assert_eq!(reasons(&mut world), [Reason::MixedSku, Reason::MixedSku]);
    let mut world = worlds().remove(0);
    world.membership = Membership::NodeIpConfiguration;
    assert_eq!(reasons(&mut world), [Reason::Configuration]);
}
