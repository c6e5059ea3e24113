//! Effect of admin state and health probe on a member.

use serde_json::json;
use simulator_models::arm::{ArmModel, Flows, PoolSpec, Settings, Traffic};

use crate::support::{model, put};

/// Creates a model with the pool `a` of `lb`. Its only member has this admin state, and its rule has a probe or none.
fn member(settings: Settings, state: &str, with_probe: bool) -> ArmModel {
    let mut model = model(settings);
    model.add_rule("lb", "rule", "a", with_probe);
    let member = json!({"name": "n", "properties": {"ipAddress": "10.0.0.1", "adminState": state}});
    let body = json!({"properties": {"loadBalancerBackendAddresses": [member]}});
    assert_eq!(put(&mut model, "lb", "a", &body, 0).status, 200);
    model
}

fn served(model: &ArmModel, healthy: bool) -> (bool, Flows) {
    let Traffic { new_connections, existing } =
        model.traffic("LB", "A", "10.0.0.1", healthy).expect("the member");
    (new_connections, existing)
}

#[test]
fn z1_up_ignores_the_probe_down_wins_and_none_leaves_it() {
    for (state, well, ill) in [("Up", true, true), ("Down", false, false), ("None", true, false)] {
        let model = member(Settings::default(), state, true);
        assert_eq!(served(&model, true), (well, Flows::Kept), "{state}");
        assert_eq!(served(&model, false), (ill, Flows::Kept), "{state}");
    }
}

#[test]
fn z1_whether_down_resets_flows_is_a_setting() {
    let settings = Settings { down_resets_flows: true, ..Settings::default() };
    assert_eq!(served(&member(settings.clone(), "Down", true), true), (false, Flows::Reset));
    assert_eq!(served(&member(settings, "None", true), false), (false, Flows::Kept));
}

#[test]
fn z1_admin_state_has_no_effect_without_a_probe() {
    assert_eq!(served(&member(Settings::default(), "Down", false), false), (true, Flows::Kept));
    assert_eq!(member(Settings::default(), "Down", false).traffic("lb", "a", "10.9.9.9", true), None);
}

#[test]
fn z1_down_wins_over_the_probe_on_network_interfaces_too() {
    let mut model = ArmModel::new(Settings::default());
    let instances = vec!["vmss/0".to_owned(), "vmss/1".to_owned()];
    model.add_pool("lb", "nic", &PoolSpec { instances, ..PoolSpec::default() });
    model.add_rule("lb", "rule", "nic", true);
    let mut body = model.pool_json("lb", "nic").expect("nic is there");
    body["properties"]["loadBalancerBackendAddresses"][0]["properties"]["adminState"] = json!("Down");
    assert_eq!(put(&mut model, "lb", "nic", &body, 0).status, 200);
    let interfaces: Vec<String> = model
        .members("lb", "nic")
        .expect("nic is there")
        .into_iter()
        .filter_map(|member| member.network_interface)
        .collect();
    let served = |at: usize, healthy: bool| {
        let traffic = model.traffic("lb", "nic", &interfaces[at], healthy).expect("the member");
        (traffic.new_connections, traffic.existing)
    };
    assert_eq!((served(0, true), served(0, false)), ((false, Flows::Kept), (false, Flows::Kept)));
    assert_eq!((served(1, true), served(1, false)), ((true, Flows::Kept), (false, Flows::Kept)));
}
