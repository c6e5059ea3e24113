//! For any writes in any order, both sides of every reference agree, and the same history has the same end.

use proptest::prelude::*;
use serde_json::{Value, json};
use simulator_models::arm::topology::Topology;
use simulator_models::arm::{ArmModel, Durations, Method, Reply, Settings};

use crate::azure::{compute, leave, network, of_instance, of_interface, of_scale_set};
use crate::support::{SECOND, request};

/// One write. Numbers select among existing resources.
#[derive(Clone, Debug)]
enum Step {
    PublicIp { at: usize, sku: &'static str, method: &'static str },
    DeleteBalancer { at: usize },
    PutBalancer { at: usize, sku: &'static str, keeps_pools: bool },
    Leave { at: usize },
    Join { at: usize, balancer: usize },
    Upgrade,
    Resize { count: u64 },
    Delete { at: usize },
    ByAddress { at: usize },
    Wait { seconds: u64 },
}

const BALANCERS: [&str; 3] = ["kubernetes", "kubernetes-internal", "kubernetes-new"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let sku = || prop::sample::select(vec!["Basic", "Standard"]);
    let step = prop_oneof![
        2 => (0..8_usize, sku(), prop::sample::select(vec!["Static", "Dynamic"]))
            .prop_map(|(at, sku, method)| Step::PublicIp { at, sku, method }),
        2 => (0..3_usize).prop_map(|at| Step::DeleteBalancer { at }),
        2 => (0..3_usize, sku(), any::<bool>())
            .prop_map(|(at, sku, keeps_pools)| Step::PutBalancer { at, sku, keeps_pools }),
        4 => (0..8_usize).prop_map(|at| Step::Leave { at }),
        4 => (0..8_usize, 0..3_usize).prop_map(|(at, balancer)| Step::Join { at, balancer }),
        1 => Just(Step::Upgrade),
        1 => (0..4_u64).prop_map(|count| Step::Resize { count }),
        1 => (0..20_usize).prop_map(|at| Step::Delete { at }),
        1 => (0..3_usize).prop_map(|at| Step::ByAddress { at }),
        3 => (0..90_u64).prop_map(|seconds| Step::Wait { seconds }),
    ];
    prop::collection::vec(step, 1..40)
}

fn send(model: &mut ArmModel, method: Method, id: &str, body: &Value, now: u64) -> u16 {
    let path = format!("{id}?api-version=2025-05-01");
    match model.handle(&request(method, &path, &[], &body.to_string()), now) {
        Reply::Answer(answer) => answer.status,
        Reply::Lost { .. } | Reply::Refused => 0,
    }
}

/// Returns the ids of resources with IP configurations; the model of a flexible scale set has none.
fn members(model: &ArmModel) -> Vec<String> {
    let all = model.ids().into_iter().filter(|id| !id.ends_with("/virtualMachineScaleSets/flex"));
    all.filter(|id| id.contains("/networkInterfaces/") || id.contains("/virtualMachineScaleSets/")).collect()
}

fn configuration<'a>(id: &str, body: &'a mut Value) -> &'a mut Value {
    if id.contains("/networkInterfaces/") {
        of_interface(body)
    } else if id.contains("/virtualMachines/") {
        of_instance(body)
    } else {
        of_scale_set(body)
    }
}

/// Makes one write; returns its status.
fn take(model: &mut ArmModel, step: &Step, originals: &ArmModel, now: u64) -> u16 {
    let balancer = |at: usize| network(&format!("loadBalancers/{}", BALANCERS[at]));
    let chosen =
        |all: Vec<String>, at: usize| if all.is_empty() { None } else { all.get(at % all.len()).cloned() };
    match step {
        Step::PublicIp { at, sku, method } => {
            let all = model.ids().into_iter().filter(|id| id.contains("/publicIPAddresses/")).collect();
            let Some(id) = chosen(all, *at) else { return 0 };
            let mut body = model.json(&id).expect("it is there");
            body["sku"] = json!({ "name": sku });
            body["properties"]["publicIPAllocationMethod"] = (*method).into();
            send(model, Method::Put, &id, &body, now)
        }
        Step::DeleteBalancer { at } => send(model, Method::Delete, &balancer(*at), &Value::Null, now),
        Step::PutBalancer { at, sku, keeps_pools } => {
            let Some(mut body) = originals.json(&balancer(*at).replace("-new", "-internal")) else {
                return 0;
            };
            body["sku"] = json!({ "name": sku });
            body["name"] = BALANCERS[*at].into();
            for pool in body["properties"]["backendAddressPools"].as_array_mut().into_iter().flatten() {
                pool["properties"] = json!({});
            }
            if !keeps_pools {
                body["properties"]["loadBalancingRules"] = json!([]);
                body["properties"]["backendAddressPools"] = json!([]);
            }
            send(model, Method::Put, &balancer(*at), &body, now)
        }
        Step::Leave { at } => {
            let Some(id) = chosen(members(model), *at) else { return 0 };
            let mut body = model.json(&id).expect("it is there");
            leave(configuration(&id, &mut body));
            send(model, Method::Put, &id, &body, now)
        }
        Step::Join { at, balancer: joined } => {
            let Some(id) = chosen(members(model), *at) else { return 0 };
            let mut body = model.json(&id).expect("it is there");
            let pool = format!("{}/backendAddressPools/kubernetes", balancer(*joined));
            configuration(&id, &mut body)["properties"]["loadBalancerBackendAddressPools"] =
                json!([{ "id": pool }]);
            send(model, Method::Put, &id, &body, now)
        }
        Step::Upgrade => {
            let action = compute("virtualMachineScaleSets/workers/manualupgrade");
            send(model, Method::Post, &action, &json!({"instanceIds": ["*"]}), now)
        }
        Step::Resize { count } => {
            let id = compute("virtualMachineScaleSets/workers");
            let Some(mut body) = model.json(&id) else { return 0 };
            body["sku"]["capacity"] = (*count).into();
            send(model, Method::Put, &id, &body, now)
        }
        Step::Delete { at } => {
            let Some(id) = chosen(model.ids(), *at) else { return 0 };
            send(model, Method::Delete, &id, &Value::Null, now)
        }
        Step::ByAddress { at } => {
            let action = format!("{}/migrateToIpBased", balancer(*at));
            send(model, Method::Post, &action, &json!({"pools": ["kubernetes"]}), now)
        }
        Step::Wait { .. } => 0,
    }
}

fn topologies() -> impl Strategy<Value = Topology> {
    prop::sample::select(vec![
        Topology::AvailabilitySet,
        Topology::ScaleSetManual,
        Topology::ScaleSetAutomatic,
        Topology::Flexible,
        Topology::NatRules,
        Topology::NatPools,
        Topology::HealthProbe,
        Topology::Ipv6,
        Topology::InstancePublicIp,
        Topology::StandardInterfaces,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_writes_breaks_a_reference(
        topology in topologies(), takes_time in any::<bool>(), steps in steps(),
    ) {
        let durations = takes_time.then(Durations::default);
        let mut model = topology.build(Settings { durations, ..Settings::default() });
        let mut twin = model.clone();
        let originals = model.clone();
        let mut now = 0;
        for step in &steps {
            now += SECOND * match step {
                Step::Wait { seconds } => *seconds,
                Step::PublicIp { .. } | Step::DeleteBalancer { .. } | Step::PutBalancer { .. } | Step::Leave { .. }
                | Step::Join { .. } | Step::Upgrade | Step::Resize { .. } | Step::Delete { .. }
                | Step::ByAddress { .. } => 1,
            };
            model.tick(now);
            let status = take(&mut model, step, &originals, now);
            prop_assert!(status < 500, "{:?}: {}", step, status);
            prop_assert_eq!(model.check_references(), Ok(()), "{:?}: {}", step, status);
            twin.tick(now);
            prop_assert_eq!(take(&mut twin, step, &originals, now), status, "the same history");
        }
        while let Some(end) = model.deadline() {
            model.tick(end);
            prop_assert_eq!(model.check_references(), Ok(()), "at the end of an operation");
        }
        for id in model.ids() {
            let shown = model.json(&id).expect("it is there");
            let state = shown["properties"]["provisioningState"].as_str().unwrap_or("Succeeded");
            prop_assert_eq!(state, "Succeeded", "{}", id);
        }
    }
}
