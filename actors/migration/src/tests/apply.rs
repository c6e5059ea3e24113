//! Migrations against the simulated Azure Resource Manager.

use std::collections::BTreeSet;

use simulator_models::arm::topology::Topology;

use super::world::{End, World, quick};
use crate::apply::{Outcome, Stage};
use crate::call::Method;
use crate::inventory::{Listed, Membership};
use crate::journal::Journal;
use crate::members::{Configuration, MemberKind, configurations, health_probe};
use crate::plan::Reason;
use crate::resource_id::ResourceId;

/// The clusters that can be migrated, the last ones only with the operator's acceptance.
const MIGRATED: [Topology; 14] = [
    Topology::AvailabilitySet,
    Topology::ScaleSetManual,
    Topology::ScaleSetAutomatic,
    Topology::ScaleSetEmpty,
    Topology::Standalone,
    Topology::InternalStatic,
    Topology::ExternalDynamic,
    Topology::ExternalAndInternal,
    Topology::NatRules,
    Topology::NatPools,
    Topology::HealthProbe,
    Topology::InstancePublicIp,
    Topology::Ipv6,
    Topology::ScaleSetPublicIp,
];

/// Returns the references of a model, an instance or an interface; none for other resources.
fn references(world: &World, id: &ResourceId) -> BTreeSet<ResourceId> {
    let Some(kind) = MemberKind::of(id) else { return BTreeSet::new() };
    let body = world.body(id);
    let all = configurations(kind, &body);
    let addresses = all.iter().filter_map(Configuration::public_address);
    all.iter().flat_map(Configuration::references).chain(addresses).chain(health_probe(&body)).collect()
}

/// Checks that every migration ends in the expected state.
pub(super) fn check(before: &World, after: &mut World, what: &str) {
    after.await_operations();
    assert_eq!(after.arm.check_references(), Ok(()), "{what}");
    assert_eq!(after.skus().into_iter().collect::<Vec<_>>(), ["Standard"], "{what}");
    let (then, now) = (before.frontends(), after.frontends());
    for (frontend, address) in &then {
        let is_accepted = before.accepted.contains(address);
        assert!(now.contains_key(frontend), "{what}: {frontend:?} is lost");
        assert!(
            is_accepted || now[frontend] == *address,
            "{what}: {frontend:?} {address} {:?}",
            now[frontend]
        );
        let (lb, name) = frontend;
        let served = before.arm.frontend_serves(lb, name);
        assert!(!served || after.arm.frontend_serves(lb, name), "{what}: {frontend:?} serves no traffic");
    }
    for id in before.arm.ids().into_iter().map(ResourceId::new) {
        assert!(references(after, &id).is_superset(&references(before, &id)), "{what}: {id} lost references");
    }
    assert_eq!(after.arm.restarts(), 0, "{what}: an instance was restarted");
}

#[test]
fn s3_each_topology_is_migrated_with_its_addresses() {
    for topology in MIGRATED {
        let before = World::of(topology);
        let mut world = before.clone();
        assert_eq!(world.plan().blockers, [], "{topology:?}");
        assert_eq!(world.finish(), Outcome::Done, "{topology:?}");
        check(&before, &mut world, &topology.name());
    }
}

#[test]
fn m2_the_journal_is_stored_before_the_first_change() {
    for topology in MIGRATED {
        let mut world = World::of(topology);
        let before = world.state();
        assert_eq!(world.run(1), End::Crashed);
        let journal = Journal::read(world.stored.as_ref().unwrap()).unwrap();
        assert_eq!((world.writes.len(), world.state()), (0, before), "{topology:?}");
        assert!(!journal.inventory.resources.is_empty() && !journal.done);
    }
}

#[test]
fn a_second_run_changes_nothing() {
    for topology in MIGRATED {
        let mut world = World::of(topology);
        assert_eq!(world.finish(), Outcome::Done);
        let state = world.state();
        assert_eq!(world.finish(), Outcome::Done, "{topology:?}");
        assert_eq!(world.writes, [], "{topology:?}");
        world.stored = None;
        assert!(world.plan().is_empty(), "{topology:?}");
        assert_eq!(world.state(), state, "{topology:?}");
    }
}

/// A crash after a read equals a crash after the previous change, because reads change nothing.
#[test]
fn a_crash_after_any_call_leads_to_the_same_end() {
    for topology in MIGRATED {
        let before = World::of(topology);
        let mut straight = before.clone();
        assert_eq!(straight.finish(), Outcome::Done);
        straight.await_operations();
        let (calls, wanted) = (straight.calls, straight.state());
        for crash in straight.changes.into_iter().filter(|crash| *crash < calls) {
            let what = format!("{topology:?} with a crash after call {crash} of {calls}");
            let mut world = before.clone();
            assert_eq!(world.run(crash), End::Crashed, "{what}");
            assert_eq!(world.finish(), Outcome::Done, "{what}");
            check(&before, &mut world, &what);
            // An address that cannot be kept differs in each run.
            if world.accepted.iter().all(|accepted| !accepted.contains(':'))
                && topology != Topology::ScaleSetPublicIp
            {
                assert_eq!(world.state(), wanted, "{what}");
            }
        }
    }
}

#[test]
fn pools_by_address_need_no_scale_set_write_at_the_end() {
    for topology in [Topology::ScaleSetManual, Topology::AvailabilitySet] {
        let mut world = World::of(topology);
        world.membership = Membership::NodeIp;
        assert_eq!(world.finish(), Outcome::Done);
        let deletion = world.writes.iter().rposition(|(method, _)| *method == Method::Delete).unwrap();
        let later = &world.writes[deletion..];
        assert!(later.iter().all(|(_, path)| !path.contains("Microsoft.Compute")), "{later:?}");
        world.await_operations();
        let lb = world
            .cluster()
            .load_balancer_group
            .child("providers/Microsoft.Network/loadBalancers", "kubernetes");
        let pool = &world.body(&lb)["properties"]["backendAddressPools"][0]["properties"];
        assert_eq!(pool["loadBalancerBackendAddresses"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn clusters_that_azure_would_refuse_are_blocked() {
    for (topology, reason) in [
        (Topology::LockedDelete, Reason::Locked),
        (Topology::LockedReadOnly, Reason::Locked),
        (Topology::QuotaExhausted, Reason::Quota),
        (Topology::Aks, Reason::ManagedByAks),
    ] {
        let blockers = World::of(topology).plan().blockers;
        assert!(blockers.iter().any(|blocker| blocker.reason == reason), "{topology:?}: {blockers:?}");
    }
    assert!(World::new(Topology::StandardInterfaces.build(quick())).plan().is_empty());
}

#[test]
fn nothing_is_deleted_before_nodes_are_detached() {
    for topology in MIGRATED {
        let mut world = World::of(topology);
        assert_eq!(world.finish(), Outcome::Done);
        let first = world.writes.iter().position(|(method, _)| *method == Method::Delete).unwrap();
        let (before, after) = world.writes.split_at(first);
        assert!(before.iter().all(|(_, path)| !path.contains("loadBalancers")), "{topology:?}");
        let detached = |kind: &str| before.iter().any(|(_, path)| path.contains(kind));
        let attached = |kind: &str| after.iter().any(|(_, path)| path.contains(kind));
        for kind in ["virtualMachineScaleSets", "networkInterfaces"] {
            assert_eq!(detached(kind), attached(kind), "{topology:?} {kind}");
        }
    }
}

#[test]
fn a_scale_set_named_only_in_an_error_is_detached() {
    let mut world = World::of(Topology::ScaleSetEmpty);
    let mut inventory = world.survey();
    inventory.resources.retain(|id, _| id.kind() != "virtualmachinescalesets");
    inventory.lists.retain(|id, _| id.name() != "virtualMachineScaleSets");
    world.stored = Some(Journal::begun(inventory).text());
    assert_eq!(world.finish(), Outcome::Done);
    assert_eq!(world.skus().into_iter().collect::<Vec<_>>(), ["Standard"]);
    // Its body was stored before the change.
    assert!(world.stored.unwrap().contains("virtualMachineScaleSets/workers"));
}

#[test]
fn a_change_after_the_plan_stops_before_the_outage() {
    let mut world = World::of(Topology::AvailabilitySet);
    assert_eq!(world.run(1), End::Crashed);
    let group = world.cluster().load_balancer_group;
    let lb = group.child("providers/Microsoft.Network/loadBalancers", "kubernetes");
    let mut body = world.body(&lb);
    body["properties"]["loadBalancingRules"][0]["properties"]["idleTimeoutInMinutes"] = serde_json::json!(30);
    world.arm.seed(lb.as_str(), &body).unwrap();
    let Outcome::Stopped(guide) = world.finish() else { panic!("it continues") };
    assert_eq!((guide.stage, guide.past_return), (Stage::Compare, false));
    assert!(guide.lines().iter().any(|line| line.contains("Traffic was not interrupted")));
    assert!(world.arm.frontend_serves("kubernetes", &world.frontends().keys().next().unwrap().1));
    // A new plan can be applied.
    assert!(Journal::read(world.stored.as_ref().unwrap()).unwrap().done);
    world.stored = None;
    assert_eq!(world.finish(), Outcome::Done);
}

/// Returns the world after a crash at the first change that is not about a public address.
fn crashed_in_the_outage(before: &World) -> World {
    let is_detached =
        |world: &World| world.writes.iter().any(|(_, path)| !path.contains("publicIPAddresses"));
    let crashed = (1..).map(|calls| {
        let mut world = before.clone();
        assert_eq!(world.run(calls), End::Crashed);
        world
    });
    crashed.into_iter().find(is_detached).expect("a migration changes nodes")
}

#[test]
fn the_journal_records_the_outage_before_it_begins() {
    for topology in MIGRATED {
        let mut world = crashed_in_the_outage(&World::of(topology));
        assert!(Journal::read(world.stored.as_ref().unwrap()).unwrap().outage, "{topology:?}");
        assert_eq!(world.finish(), Outcome::Done, "{topology:?}");
    }
}

#[test]
fn an_abandoned_migration_that_continues_is_not_complete() {
    let mut world = World::of(Topology::AvailabilitySet);
    assert_eq!(world.run(1), End::Crashed);
    let mut journal = Journal::read(world.stored.as_ref().unwrap()).unwrap();
    journal.done = true;
    world.stored = Some(journal.text());
    let mut world = crashed_in_the_outage(&world);
    assert!(!Journal::read(world.stored.as_ref().unwrap()).unwrap().done);
    assert_eq!(world.finish(), Outcome::Done);
}

#[test]
fn a_refusal_before_the_deletion_leaves_a_way_back() {
    let mut world = World::of(Topology::ScaleSetManual);
    assert_eq!(world.run(1), End::Crashed);
    let group = world.cluster().resource_group.to_string();
    world.arm.reconfigure(|settings| {
        let lock = simulator_models::arm::Lock {
            name: "late".to_owned(),
            level: "CanNotDelete".to_owned(),
            scope: group,
        };
        settings.locks.push(lock);
    });
    let Outcome::Stopped(guide) = world.finish() else { panic!("the lock had no effect") };
    assert!(guide.problems.iter().any(|problem| problem.contains("ScopeLocked")), "{guide:?}");
    world.arm.reconfigure(|settings| settings.locks.clear());
    assert_eq!(world.finish(), Outcome::Done);
}

#[test]
fn w8_nothing_is_written_while_the_lease_is_lost() {
    for topology in [Topology::ScaleSetManual, Topology::ExternalAndInternal] {
        let before = World::of(topology);
        let mut world = before.clone();
        world.loses_lease = true;
        assert_eq!(world.finish(), Outcome::Done, "{topology:?}");
        check(&before, &mut world, &topology.name());
    }
}

#[test]
fn m7_a_failed_interface_is_repaired_by_a_write() {
    let mut world = World::of(Topology::AvailabilitySet);
    assert_eq!(world.run(1), End::Crashed);
    let nic = world.arm.ids().into_iter().find(|id| id.contains("networkInterfaces")).unwrap();
    world.arm.fail_resource(&nic);
    assert_eq!(world.finish(), Outcome::Done);
    assert_eq!(world.arm.json(&nic).unwrap()["properties"]["provisioningState"], "Succeeded");
}

#[test]
fn a_later_instance_is_migrated_and_in_the_journal() {
    let mut world = World::of(Topology::ScaleSetManual);
    assert_eq!(world.run(1), End::Crashed);
    let mut journal = Journal::read(world.stored.as_ref().unwrap()).unwrap();
    // The journal was stored before this instance existed.
    journal.inventory.resources.retain(|id, _| !id.as_str().ends_with("/virtualMachines/2"));
    for listed in journal.inventory.lists.values_mut() {
        if let Listed::Items(items) = listed {
            items.retain(|item| item["id"].as_str().is_none_or(|id| !id.ends_with("/virtualMachines/2")));
        }
    }
    world.stored = Some(Journal::begun(journal.inventory).text());
    assert_eq!(world.finish(), Outcome::Done);
    let journal = Journal::read(world.stored.as_ref().unwrap()).unwrap();
    assert_eq!(journal.later.len(), 1);
    assert!(journal.done);
}
