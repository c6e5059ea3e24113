//! Clusters for the migration: the model accepts them, references between resources agree on both sides, and each
//! frontend has backends if its cluster has nodes in the pools.

use serde_json::Value;
use simulator_models::arm::topology::{Frontend, LOAD_BALANCER, Topology, frontend_name, public_ip_name};
use simulator_models::arm::{Settings, Sku};

use crate::support::{GROUP, text};

fn network(rest: &str) -> String {
    format!("{GROUP}/providers/Microsoft.Network/{rest}")
}

#[test]
fn every_topology_is_accepted_and_its_references_agree() {
    for topology in Topology::ALL {
        let model = topology.build(Settings::default());
        assert_eq!(model.check_references(), Ok(()), "{}", topology.name());
        let cluster = topology.cluster();
        for (at, service) in cluster.services.iter().enumerate() {
            let (suffix, address) = match &service.frontend {
                Frontend::External { .. } => ("", Some(public_ip_name(at))),
                Frontend::Internal { .. } => ("-internal", None),
            };
            let serves = model.frontend_serves(&format!("{LOAD_BALANCER}{suffix}"), &frontend_name(at));
            let has_members = cluster.nodes.iter().any(|group| group.in_pools && group.count > 0);
            assert_eq!(serves, has_members, "{} {at}", topology.name());
            if let Some(name) = address {
                let shown =
                    model.json(&network(&format!("publicIPAddresses/{name}"))).expect("it was seeded");
                let user = text(&shown, "/properties/ipConfiguration/id");
                let wanted =
                    format!("loadBalancers/{LOAD_BALANCER}/frontendIPConfigurations/{}", frontend_name(at));
                assert_eq!(user, network(&wanted), "{}", topology.name());
            }
        }
    }
}

#[test]
fn a_pool_shows_the_interfaces_and_instances_that_joined_it() {
    for (topology, count) in
        [(Topology::AvailabilitySet, 3), (Topology::ScaleSetManual, 3), (Topology::ScaleSetEmpty, 0)]
    {
        let model = topology.build(Settings::default());
        let lb = model.json(&network("loadBalancers/kubernetes")).expect("it was seeded");
        let pool = &lb["properties"]["backendAddressPools"][0]["properties"];
        let members = pool["backendIPConfigurations"].as_array().map_or(0, Vec::len);
        assert_eq!(members, count, "{}", topology.name());
        assert_eq!(lb["sku"]["name"], Value::from(Sku::Basic.name()));
    }
}
