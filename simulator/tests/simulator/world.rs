//! Worlds and their changes.

use std::collections::{BTreeMap, BTreeSet};

use simulator::models::kube::build::Family;
use simulator::{
    CLUSTER_NAME, Change, Churn, Fakes, FileOptions, Files, Pattern, Phase, Settings, Size, World,
    expected_pools, vnet_id, wrong_pools,
};

const SIZE: Size = Size { services: 40, load_balancers: 3, nodes: 12, endpoints: 3, dual_stack: true };

fn churn(seed: u64) -> (World, Churn) {
    let pattern = Pattern::Churn { rate: 100.0, duration_us: 10_000_000 };
    (World::new(SIZE, seed), Churn::new(pattern, seed))
}

fn play(seed: u64) -> (World, Vec<Change>) {
    let (mut world, mut churn) = churn(seed);
    let mut changes = Vec::new();
    while churn.next_due_us(&world).is_some() {
        changes.extend(churn.make(&mut world));
    }
    (world, changes)
}

#[test]
fn churn_is_the_same_for_the_same_seed_and_another_for_another() {
    let (world, changes) = play(1);
    let (again, same) = play(1);
    assert_eq!((world.services(), &changes), (again.services(), &same));
    let (_, other) = play(2);
    assert_ne!(changes, other);
}

#[test]
fn churn_keeps_a_living_pod_of_each_service() {
    let (mut world, mut churn) = churn(3);
    let (mut replaced, mut sizes) = (0, BTreeSet::new());
    for _ in 0..1_000 {
        let before = world.services().to_vec();
        let change = churn.make(&mut world).expect("a change");
        for (index, (old, new)) in before.iter().zip(world.services()).enumerate() {
            let touched = |slice| index == change.service && slice == change.slice;
            for slice in (0..new.slices).filter(|slice| !touched(*slice)) {
                let pods = |service: &simulator::Service| {
                    service.pods.iter().filter(|pod| pod.slice == slice).cloned().collect::<Vec<_>>()
                };
                assert_eq!(pods(old), pods(new), "slice {slice} of service {index}");
            }
        }
        let service = &world.services()[change.service];
        assert_ne!(before[change.service].pods, service.pods);
        assert!(service.pods.iter().any(|pod| pod.phase != Phase::Terminating), "{service:?}");
        replaced += usize::from(service.pods.iter().any(|pod| pod.replaces.is_some()));
        sizes.insert(service.pods.len());
    }
    assert!(replaced > 100, "{replaced}");
    assert!(sizes.len() > 3, "services scale up and down: {sizes:?}");
}

#[test]
fn changes_are_due_evenly_over_the_whole_duration() {
    let (mut world, mut churn) = churn(1);
    assert_eq!(churn.total(&world), 1_000);
    let mut due = Vec::new();
    while let Some(at) = churn.next_due_us(&world) {
        due.push(at);
        churn.make(&mut world);
    }
    assert_eq!((due[0], due[1], due[999], due.len()), (0, 10_000, 9_990_000, 1_000));
}

#[test]
fn z2_recreate_removes_all_pods_before_new_ones_start() {
    let mut world = World::new(SIZE, 5);
    let pattern = Pattern::Recreate { within_us: 10_000_000, step_us: 1_000_000 };
    let mut churn = Churn::new(pattern, 5).planned(&world);
    let old: BTreeMap<usize, BTreeSet<u64>> = world.services().iter().map(serials).enumerate().collect();
    let mut changes: BTreeMap<usize, Vec<(u64, usize, BTreeSet<Phase>)>> = BTreeMap::new();
    while let Some(at) = churn.next_due_us(&world) {
        let change = churn.make(&mut world).expect("a change");
        let service = &world.services()[change.service];
        let phases = service.pods.iter().map(|pod| pod.phase).collect();
        changes.entry(change.service).or_default().push((at, change.slice, phases));
    }
    assert_eq!((changes.len(), churn.made()), (SIZE.services, churn.total(&world)));
    for (index, changes) in changes {
        let service = &world.services()[index];
        let steps = [vec![Phase::Terminating], vec![], vec![Phase::Starting], vec![Phase::Ready]];
        for (step, phases) in steps.into_iter().enumerate() {
            let here = &changes[step * service.slices..(step + 1) * service.slices];
            let slices: Vec<usize> = here.iter().map(|(_, slice, _)| *slice).collect();
            assert_eq!(slices, (0..service.slices).collect::<Vec<_>>(), "every slice is written");
            assert!(here.iter().all(|(at, _, _)| *at == changes[0].0 + step as u64 * 1_000_000));
            assert_eq!(here[0].2, BTreeSet::from_iter(phases), "step {step} of Service {index}");
        }
        assert_eq!(service.pods.len(), SIZE.endpoints);
        assert!(serials(service).is_disjoint(&old[&index]), "all are new");
    }
}

fn serials(service: &simulator::Service) -> BTreeSet<u64> {
    service.pods.iter().map(|pod| pod.serial).collect()
}

#[test]
fn b_a_burst_moves_the_pod_of_every_service_five_times() {
    let mut world = World::new(SIZE, 5);
    let mut churn = Churn::new(Pattern::Burst, 5);
    let (mut counts, mut last) = (BTreeMap::new(), 0);
    while let Some(at) = churn.next_due_us(&world) {
        let before: Vec<usize> =
            world.services().iter().flat_map(|s| s.pods.iter().map(|p| p.node)).collect();
        let change = churn.make(&mut world).expect("a change");
        let after: Vec<usize> = world.services().iter().flat_map(|s| s.pods.iter().map(|p| p.node)).collect();
        let moved = before.iter().zip(&after).filter(|(old, new)| old != new).count();
        assert_eq!((before.len(), moved), (after.len(), 1));
        *counts.entry(change.service).or_insert(0) += 1;
        last = at;
    }
    assert_eq!(counts.len(), SIZE.services);
    assert!(counts.values().all(|count| *count == 5) && last < 1_000_000, "{counts:?} {last}");
}

#[tokio::test]
async fn z2_a_world_begins_with_pools_in_sync_on_load_balancers() {
    let fakes = Fakes::start(Settings::default()).await.expect("a free port");
    let world = World::new(SIZE, 1);
    world.populate(&fakes, &vnet_id()).await;
    let wanted = fakes.cluster.ask(|cluster, _| expected_pools(&cluster.model)).await;
    assert_eq!(wanted.len(), SIZE.services * 2);
    assert!(wanted.values().all(|wanted| wanted.required.len() == SIZE.endpoints));
    let (wrong, pools) = fakes
        .azure
        .ask(move |azure, _| {
            let names = ["kubernetes", "lb-2", "lb-3"];
            let pools = names.map(|lb| azure.model.pools(lb).map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(azure.model.load_balancers().collect::<Vec<_>>(), names);
            assert_eq!((azure.convergence.pools(), azure.convergence.out_of_sync()), (wanted.len(), 0));
            (wrong_pools(&azure.model, &wanted), pools)
        })
        .await;
    assert_eq!(wrong, []);
    assert!(pools.iter().all(|pools| pools.iter().any(|pool| pool == CLUSTER_NAME)));
    assert_eq!(pools[0].len() + pools[1].len() + pools[2].len(), SIZE.services * 2 + 3);

    let service = &world.services()[4];
    let (_, pool) = world.pools(4).nth(1).expect("an IPv6 pool");
    assert_eq!((pool.load_balancer.as_str(), pool.pool.as_str()), ("lb-2", "team-000-web-00004-ipv6"));
    let rule = service.rule(Family::V6);
    assert_eq!((rule.find('-'), rule.ends_with("-TCP-80-IPv6")), (Some(32), true));
    let json = fakes.azure.ask(move |azure, _| azure.model.pool_json("lb-2", &pool.pool)).await;
    let json = json.expect("the pool");
    let rules = json["properties"]["loadBalancingRules"].to_string();
    assert!(rules.contains(&rule), "{rules}");
    assert_eq!(json["properties"]["virtualNetwork"]["id"], vnet_id());
    for address in json["properties"]["loadBalancerBackendAddresses"].as_array().expect("addresses") {
        let number: u16 =
            address["name"].as_str().expect("a name")["node-".len()..].parse().expect("a number");
        let expected = format!("fd00:10:224::{:x}", number + 4);
        assert_eq!(address["properties"]["ipAddress"], expected);
    }
    fakes.stop().await;
}

#[tokio::test]
async fn z2_the_files_name_the_fakes_and_every_load_balancer() {
    let fakes = Fakes::start(Settings::default()).await.expect("a free port");
    let world = World::new(SIZE, 1);
    let folder = tempfile::tempdir().expect("a folder");
    let options = FileOptions {
        health: ([127, 0, 0, 1], 18_080).into(),
        admin: ([127, 0, 0, 1], 18_081).into(),
        overlay: None,
    };
    let files = Files::write(folder.path(), &fakes, &world, &options).expect("a writable folder");
    let read = |path| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON")
    };
    assert_eq!(read(&files.kubeconfig)["clusters"][0]["cluster"]["server"], fakes.kubernetes_url);
    let cloud = read(&files.cloud_config);
    assert_eq!(cloud["resourceManagerEndpoint"], fakes.arm_url);
    let names = cloud["multipleStandardLoadBalancerConfigurations"].as_array().expect("a list");
    assert_eq!(names.iter().map(|entry| &entry["name"]).collect::<Vec<_>>(), ["kubernetes", "lb-2", "lb-3"]);
    let controller = read(&files.controller);
    assert_eq!(
        (&controller["identity"], &controller["http"]["adminListen"]),
        (&"anonymous".into(), &"127.0.0.1:18081".into())
    );
    fakes.stop().await;
}
