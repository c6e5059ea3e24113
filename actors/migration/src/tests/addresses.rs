//! Private addresses that another client takes during the outage.

use std::net::IpAddr;

use simulator_models::arm::topology::{Cluster, NodeGroup, NodeKind, Service, Topology};

use super::apply::check;
use super::world::{End, World, quick};
use crate::apply::{Outcome, Stage};

const INTERNAL: &str = "kubernetes-internal";
const SECOND_US: u64 = 1_000_000;

/// Returns the frontends of the internal load balancer, with their addresses.
fn internal(world: &World) -> Vec<(String, IpAddr)> {
    let all = world.frontends().into_iter().filter(|((lb, _), _)| lb == INTERNAL);
    all.map(|((_, name), address)| (name, address.parse().unwrap())).collect()
}

/// Returns the network interface that uses an address.
fn rival(world: &World, address: IpAddr) -> String {
    let name = format!("rival-{}", address.to_string().replace('.', "-"));
    let id = world.arm.ids().into_iter().find(|id| id.ends_with(&name));
    id.unwrap_or_else(|| {
        let group = world.cluster().resource_group;
        format!("{group}/providers/Microsoft.Network/networkInterfaces/{name}")
    })
}

/// Returns a world whose only internal address another client takes when it is free.
fn taken() -> (World, IpAddr) {
    let mut world = World::of(Topology::AvailabilitySet);
    let (_, address) = internal(&world)[0].clone();
    world.arm.plan_address_taker(address, 0);
    (world, address)
}

fn lacking(outcome: Outcome) -> Vec<String> {
    match outcome {
        Outcome::Incomplete(problems) => problems,
        Outcome::Done | Outcome::Stopped(_) => panic!("{outcome:?}"),
    }
}

#[test]
fn a_taken_private_address_is_named_and_retried() {
    let mut world = World::of(Topology::AvailabilitySet);
    let internal = world.frontends().into_iter().find(|((lb, _), _)| lb == "kubernetes-internal").unwrap();
    let ((_, name), address) = internal;
    world.arm.plan_address_taker(address.parse().unwrap(), 0);
    let Outcome::Incomplete(problems) = world.finish() else { panic!("the taken address was not detected") };
    assert_eq!(problems.len(), 1);
    assert!(problems[0].contains(&name) && problems[0].contains(&address), "{problems:?}");
    let public = world.frontends().into_keys().find(|(lb, _)| lb == "kubernetes").unwrap();
    assert!(world.arm.frontend_serves("kubernetes", &public.1));
    assert!(!world.frontends().contains_key(&("kubernetes-internal".to_owned(), name)));
}

#[test]
fn a_frontend_is_created_when_its_address_is_free_again() {
    let (before, address) = taken();
    let mut world = before.clone();
    // The address becomes free while the process waits for it.
    world.leaves_in = Some((Stage::Retake, rival(&world, address)));
    assert_eq!(world.finish(), Outcome::Done);
    check(&before, &mut world, "it is freed in time");

    let mut world = before.clone();
    assert_eq!(lacking(world.finish()).len(), 1);
    world.delete(&rival(&world, address));
    assert_eq!(world.finish(), Outcome::Done);
    check(&before, &mut world, "it is freed later");
    assert_eq!(world.finish(), Outcome::Done);
    assert_eq!(world.writes, []);
}

#[test]
fn a_crash_after_any_call_with_a_taken_address_is_continued() {
    let (mut before, address) = taken();
    before.is_impatient = true;
    let mut straight = before.clone();
    lacking(straight.finish());
    let calls = straight.calls;
    for crash in straight.changes.into_iter().filter(|crash| *crash < calls) {
        let what = format!("a crash after call {crash} of {calls}");
        let mut world = before.clone();
        assert_eq!(world.run(crash), End::Crashed, "{what}");
        assert_eq!(lacking(world.finish()).len(), 1, "{what}");
        world.delete(&rival(&world, address));
        assert_eq!(world.finish(), Outcome::Done, "{what}");
        check(&before, &mut world, &what);
    }
}

#[test]
fn an_address_taken_after_the_check_delays_no_other() {
    let cluster = Cluster {
        nodes: vec![NodeGroup::new("agents", NodeKind::AvailabilitySet, 2)],
        services: vec![
            Service::external(true),
            Service::internal(None),
            Service::internal(None),
            Service::internal(None),
        ],
        ..Cluster::default()
    };
    let mut world = World::new(cluster.build(quick()).unwrap());
    let all = internal(&world);
    // During the check of the first address, another client takes the second.
    world.arm.plan_address_taker(all[0].1, 0);
    world.arm.plan_address_taker(all[1].1, 5 * SECOND_US);
    let problems = lacking(world.finish());
    assert_eq!(problems.len(), 2, "{problems:?}");
    world.await_operations();
    assert_eq!(internal(&world), [all[2].clone()]);
    assert!(world.arm.frontend_serves(INTERNAL, &all[2].0));
}

#[test]
fn the_wait_for_an_address_can_end_early() {
    let (before, _) = taken();
    let lasts = |mut world: World| {
        let begin = world.now;
        assert_eq!(lacking(world.finish()).len(), 1);
        (world.now - begin) / SECOND_US
    };
    assert!(lasts(before.clone()) > 300, "the process waits for it");
    let mut impatient = before.clone();
    impatient.is_impatient = true;
    assert!(lasts(impatient) < 60);
    let mut stopped = before;
    stopped.stops_in = Some(Stage::Retake);
    assert!(lasts(stopped) < 60);
}
