//! Expected members and admin states of small clusters.

use serde_json::json;
use simulator_models::arm::{self, PoolSpec};
use simulator_models::kube;
use simulator_models::kube::build::{self, Endpoint};

use super::*;
use crate::azure::Azure;

fn cluster() -> KubeModel {
    let mut cluster = KubeModel::new(kube::Settings::default());
    let nodes = [("n1", "10.0.0.1", "fd00::1"), ("n2", "10.0.0.2", "fd00::2"), ("n3", "10.0.0.3", "fd00::3")];
    let nodes = nodes.map(|(name, v4, v6)| build::node(name, &[v4, v6], &[], true, &[]));
    let first = [Endpoint::ready("n1"), Endpoint::draining("n2")];
    let second = [Endpoint::starting("n3"), Endpoint { node: None, ..Endpoint::ready("n1") }];
    let rest = [
        build::service("Shop", "web", &[80], &[Family::V4, Family::V6]),
        build::endpoint_slice("Shop", "web", 0, &first, Family::V4),
        build::endpoint_slice("Shop", "web", 1, &second, Family::V4),
        build::endpoint_slice("Shop", "web", 0, &second, Family::V6),
    ];
    for object in nodes.into_iter().chain(rest) {
        cluster.apply(object, 0).expect("the model accepts the objects of the builders");
    }
    cluster
}

fn ips(texts: &[&str]) -> BTreeSet<IpAddr> {
    texts.iter().map(|text| text.parse().expect("an address")).collect()
}

#[test]
fn d4_each_family_has_the_nodes_of_its_own_slices() {
    let wanted = expected_pools(&cluster());
    assert_eq!(wanted.keys().collect::<Vec<_>>(), ["shop-web", "shop-web-ipv6"]);
    let v4 = &wanted["shop-web"];
    assert_eq!(v4.required, ips(&["10.0.0.1", "10.0.0.3"]));
    assert_eq!(v4.allowed, ips(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
    assert_eq!(wanted["shop-web-ipv6"].required, ips(&["fd00::3"]));
    assert_eq!(wanted["shop-web-ipv6"].allowed, ips(&["fd00::3"]));
}

#[test]
fn d4_further_addresses_of_a_node_are_allowed() {
    let mut cluster = cluster();
    let node = build::node("n1", &["10.0.0.1", "fd00::1", "10.0.0.11"], &[], true, &[]);
    cluster.apply(node, 0).expect("a node");
    let v4 = &expected_pools(&cluster)["shop-web"];
    assert_eq!(v4.required, ips(&["10.0.0.1", "10.0.0.3"]));
    assert_eq!(v4.allowed, ips(&["10.0.0.1", "10.0.0.11", "10.0.0.2", "10.0.0.3"]));
}

#[test]
fn d1_services_without_local_traffic_have_no_pool() {
    let mut cluster = cluster();
    let mut service = build::service("Shop", "web", &[80], &[Family::V4]);
    service["spec"]["externalTrafficPolicy"] = json!("Cluster");
    cluster.apply(service, 0).expect("a Service");
    assert!(expected_pools(&cluster).is_empty());
}

#[test]
fn a_pool_is_wrong_with_a_missing_or_unwanted_member() {
    let wanted = expected_pools(&cluster());
    let mut wanted: BTreeMap<String, ExpectedPool> =
        wanted.into_iter().filter(|(name, _)| name == "shop-web").collect();
    let wrong_pools = |members: &[&str], wanted: &BTreeMap<String, ExpectedPool>| {
        let mut azure = ArmModel::new(arm::Settings::default());
        let members = members.iter().map(|ip| (format!("n-{ip}"), (*ip).to_owned())).collect();
        azure.add_pool("LB", "Shop-Web", &PoolSpec { members, ..PoolSpec::default() });
        azure.add_pool("LB", "kubernetes", &PoolSpec::default());
        wrong_pools(&azure, wanted)
    };
    assert_eq!(wrong_pools(&["10.0.0.1", "10.0.0.3"], &wanted), []);
    assert_eq!(wrong_pools(&["10.0.0.3", "10.0.0.2", "10.0.0.1"], &wanted), []);
    let [wrong] = &wrong_pools(&["10.0.0.1", "10.0.0.9"], &wanted)[..] else {
        panic!("one pool out of sync")
    };
    assert_eq!((wrong.load_balancer.as_str(), wrong.pool.as_str()), ("LB", "Shop-Web"));
    assert_eq!(wrong.missing, ["10.0.0.3".parse::<IpAddr>().expect("an address")]);
    assert_eq!(wrong.unwanted, ["10.0.0.9".parse::<IpAddr>().expect("an address")]);

    wanted.insert("shop-gone".to_owned(), ExpectedPool::default());
    let [nowhere] = &wrong_pools(&["10.0.0.1", "10.0.0.3"], &wanted)[..] else {
        panic!("one pool out of sync")
    };
    assert_eq!((nowhere.load_balancer.as_str(), nowhere.pool.as_str()), ("", "shop-gone"));
}

#[test]
fn d5_excluded_nodes_do_not_count_with_others() {
    let labelled = |node: &str, ip: &str, label: (&str, &str)| build::node(node, &[ip], &[label], true, &[]);
    let excluded = [
        ("node.kubernetes.io/exclude-from-external-load-balancers", ""),
        ("node-role.kubernetes.io/control-plane", ""),
        ("kubernetes.azure.com/managed", "false"),
    ];
    for label in excluded {
        let mut cluster = cluster();
        cluster.apply(labelled("n1", "10.0.0.1", label), 0).expect("a node");
        let wanted = expected_pools(&cluster);
        assert_eq!(wanted["shop-web"].required, ips(&["10.0.0.3"]), "{label:?}");
        assert_eq!(wanted["shop-web"].allowed, ips(&["10.0.0.2", "10.0.0.3"]), "{label:?}");
        for (node, ip) in [("n2", "10.0.0.2"), ("n3", "10.0.0.3")] {
            cluster.apply(labelled(node, ip, label), 0).expect("a node");
        }
        let wanted = expected_pools(&cluster);
        assert_eq!(wanted["shop-web"].required, ips(&[]), "{label:?}");
        assert!(
            wanted["shop-web"].is_met_by(&ips(&["10.0.0.1", "10.0.0.2"])),
            "D6: the pool keeps its members"
        );
    }
    let mut cluster = cluster();
    cluster.apply(labelled("n1", "10.0.0.1", ("kubernetes.azure.com/managed", "true")), 0).expect("a node");
    assert_eq!(expected_pools(&cluster)["shop-web"].required, ips(&["10.0.0.1", "10.0.0.3"]));
}

#[test]
fn d5_nodes_about_to_be_deleted_count_where_no_other_is() {
    let taint = [("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule")];
    let mut cluster = cluster();
    cluster.apply(build::node("n1", &["10.0.0.1"], &[], true, &taint), 0).expect("a node");
    let v4 = expected_pools(&cluster).remove("shop-web").expect("a pool");
    assert_eq!((v4.required, v4.allowed), (ips(&["10.0.0.3"]), ips(&["10.0.0.1", "10.0.0.2", "10.0.0.3"])));
    cluster.apply(build::node("n3", &["10.0.0.3"], &[], true, &taint), 0).expect("a node");
    assert_eq!(expected_pools(&cluster)["shop-web"].required, ips(&["10.0.0.1", "10.0.0.3"]));
}

#[test]
fn n1_an_entry_is_down_where_its_node_has_one_of_three_taints() {
    let taints = [
        ("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute"),
        ("node.cloudprovider.kubernetes.io/shutdown", "", "NoSchedule"),
        ("cloudprovider.azure.microsoft.com/draining", "spot-eviction", "PreferNoSchedule"),
    ];
    let others = [
        ("cloudprovider.azure.microsoft.com/draining", "upgrade", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "", "NoSchedule"),
    ];
    let states = |taints: &[(&str, &str, &str)]| {
        let mut cluster = cluster();
        let tainted = build::node("n1", &["10.0.0.1", "fd00::1"], &[], true, taints);
        cluster.apply(tainted, 0).expect("a node");
        States::of(&cluster)
    };
    let mut azure = ArmModel::new(arm::Settings::default());
    let members = ["10.0.0.1", "10.0.0.2", "10.0.0.9"].map(|ip| (format!("n-{ip}"), ip.to_owned())).to_vec();
    for pool in ["Shop-Web", "aksOutboundBackendPool"] {
        azure.add_pool("LB", pool, &PoolSpec { members: members.clone(), ..PoolSpec::default() });
    }
    let azure = Azure::new(azure);
    for taint in taints {
        let wrong = azure.wrong_entries(&states(&[taint]));
        let [wrong] = &wrong[..] else { panic!("one wrong entry: {wrong:?}") };
        assert_eq!((wrong.load_balancer.as_str(), wrong.pool.as_str()), ("LB", "Shop-Web"));
        assert_eq!((wrong.ip.to_string().as_str(), wrong.state.as_str()), ("10.0.0.1", "None"), "{taint:?}");
    }
    assert_eq!(azure.wrong_entries(&states(&others)), []);
    let has_mismatch = |is_down, others| mismatch_of(is_down, others).is_some();
    assert!(
        has_mismatch(true, None)
            && !has_mismatch(true, Some(Others::Set))
            && has_mismatch(true, Some(Others::TakenBack))
    );
    assert!(
        !has_mismatch(false, None)
            && !has_mismatch(false, Some(Others::Set))
            && has_mismatch(false, Some(Others::TakenBack))
    );
}

#[test]
fn n4_an_address_shared_with_a_tainted_node_is_not_checked() {
    let mut cluster = cluster();
    let taint = ("node.kubernetes.io/out-of-service", "", "NoExecute");
    cluster.apply(build::node("n9", &["10.0.0.2"], &[], false, &[taint]), 0).expect("a node");
    let states = States::of(&cluster);
    assert_eq!((states.down, states.open.len()), (ips(&[]), 5), "n2 has it too");
}
