//! Random clusters, and processes that end at random times while Azure continues.

use proptest::prelude::*;
use simulator_models::arm::topology::{
    Cluster, Frontend, InboundNat, NodeGroup, NodeKind, Service, UpgradePolicy,
};
use simulator_models::arm::{Durations, Settings};

use super::world::{End, World};
use crate::apply::Outcome;
use crate::inventory::Membership;

fn services() -> impl Strategy<Value = Vec<Service>> {
    let external = any::<bool>()
        .prop_map(|is_static| Service { frontend: Frontend::External { is_static, is_v6: false }, port: 80 });
    let internal = any::<bool>().prop_map(|_| Service::internal(None));
    prop::collection::vec(prop_oneof![external, internal], 1..6)
}

fn clusters() -> impl Strategy<Value = Cluster> {
    let kind = prop_oneof![
        Just(NodeKind::AvailabilitySet),
        Just(NodeKind::ScaleSet(UpgradePolicy::Manual)),
        Just(NodeKind::ScaleSet(UpgradePolicy::Automatic)),
    ];
    (kind, 1..4_u32, services(), any::<bool>(), any::<bool>()).prop_map(
        |(kind, count, services, has_nat, probe)| {
            let has_external =
                services.iter().any(|service| matches!(service.frontend, Frontend::External { .. }));
            let is_set = matches!(kind, NodeKind::ScaleSet(_));
            let inbound_nat = match (has_nat && has_external, is_set) {
                (false, _) => InboundNat::Absent,
                (true, true) => InboundNat::Pools,
                (true, false) => InboundNat::Rules,
            };
            Cluster {
                nodes: vec![NodeGroup::new("nodes", kind, count)],
                services,
                inbound_nat,
                health_probe: probe && is_set && has_external,
                ..Cluster::default()
            }
        },
    )
}

proptest! {
    // Each case is several migrations.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.div_ceil(8).min(250),
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_cluster_keeps_its_addresses_through_crashes(
        cluster in clusters(),
        crashes in prop::collection::vec(1..40_usize, 0..6),
        takes_time in any::<bool>(),
        seed in any::<u64>(),
        by_address in any::<bool>(),
    ) {
        let durations = takes_time.then(Durations::default);
        let settings = Settings { quotas: None, durations, seed, ..Settings::default() };
        let Ok(arm) = cluster.build(settings) else { return Ok(()) };
        let mut world = World::new(arm);
        world.accept_all();
        if by_address {
            world.membership = Membership::NodeIp;
        }
        let before = world.frontends();
        prop_assert_eq!(world.plan().blockers, []);
        for crash in crashes {
            let end = world.run(crash);
            prop_assert!(matches!(end, End::Crashed | End::Finished(Outcome::Done)), "{:?}", end);
        }
        prop_assert_eq!(world.finish(), Outcome::Done);
        world.await_operations();
        prop_assert_eq!(world.frontends(), before);
        prop_assert_eq!(world.arm.check_references(), Ok(()));
        prop_assert_eq!(world.arm.restarts(), 0);
        prop_assert_eq!(world.skus().into_iter().collect::<Vec<_>>(), vec!["Standard".to_owned()]);
        prop_assert_eq!(world.finish(), Outcome::Done);
        prop_assert_eq!(&world.writes, &Vec::new());
    }
}
