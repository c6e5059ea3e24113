//! For any inputs, the model neither panics nor stops working.

use proptest::prelude::*;
use serde_json::{Value, json};
use simulator_models::ccm::{Answer, Call, Ccm, In, Settings};
use simulator_models::kube::build::{self, Endpoint, Family};

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~]{0,12}".prop_map(Value::from),
        Just(json!("2026-11-20T00:00:00.000001Z")),
        Just(json!("9999-12-31T23:59:59+00:00")),
        Just(json!("Succeeded")),
    ];
    let names = prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "properties",
        "name",
        "namespace",
        "annotations",
        "holderIdentity",
        "renewTime",
        "leaseDurationSeconds",
        "backendAddressPools",
        "loadBalancingRules",
        "frontendIPConfigurations",
        "loadBalancerBackendAddresses",
        "backendAddressPool",
        "id",
        "ipAddress",
        "error",
        "details",
        "code",
        "endpoints",
        "nodeName",
        "addresses",
        "finalizers",
        "type",
    ]);
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names.clone(), inner), 0..6).prop_map(|entries| {
                let entries = entries.into_iter().map(|(name, value)| (name.to_owned(), value));
                Value::Object(entries.collect())
            }),
        ]
    })
}

fn answers() -> impl Strategy<Value = Answer> {
    let status = prop::sample::select(vec![
        0u16, 100, 200, 200, 200, 200, 201, 202, 204, 301, 400, 401, 403, 404, 408, 409, 410, 412, 422, 429,
        500, 503, 999,
    ]);
    let header = prop_oneof![
        Just(None),
        "[0-9]{1,22}".prop_map(|seconds| Some(("Retry-After".to_owned(), seconds))),
        "[ -~]{0,20}".prop_map(|text| Some(("retry-after".to_owned(), text))),
        "[ -~]{0,30}".prop_map(|url| Some(("Azure-AsyncOperation".to_owned(), url))),
        Just(Some(("azure-asyncoperation".to_owned(), "https://arm/operations/x?s=1".to_owned()))),
    ];
    let body = prop_oneof![
        8 => values().prop_map(|value| value.to_string().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    let arrived = (status, prop::option::of(header), body).prop_map(|(status, header, body)| {
        Answer::Arrived { status, headers: header.flatten().into_iter().collect(), body }
    });
    prop_oneof![1 => Just(Answer::Lost), 9 => arrived]
}

/// Answers of a correct Lease server, so that the runs continue beyond the lock.
fn honest(call: &Call) -> Option<Answer> {
    let body = match &call.body {
        Some(body) => body.to_string(),
        None => r#"{"metadata":{"name":"aks-managed-resource-locker"},"spec":{}}"#.to_owned(),
    };
    call.path_and_query.contains("/leases").then(|| Answer::Arrived {
        status: 200,
        headers: Vec::new(),
        body: body.into_bytes(),
    })
}

fn facts() -> impl Strategy<Value = In> {
    let balancer = prop::sample::select(vec!["lb", "LB", "other", "", "a/b?c"]);
    let service = ("[a-c]", balancer.clone(), any::<[bool; 4]>()).prop_map(|(name, lb, flags)| {
        let [dual, cluster, deleting, renewed] = flags;
        let families: &[Family] = if dual { &[Family::V4, Family::V6] } else { &[Family::V4] };
        let mut object = build::service("demo", &name, &[80], families);
        if cluster {
            object["spec"]["externalTrafficPolicy"] = "Cluster".into();
        }
        if deleting {
            object["metadata"]["deletionTimestamp"] = "2026-11-20T00:00:00Z".into();
        }
        if renewed {
            object["metadata"]["uid"] = "another".into();
        }
        In::Service { object, load_balancer: lb.to_owned() }
    });
    let nodes = prop::collection::vec("n[1-3]", 0..4);
    let slice = ("[a-c]", 0..3usize, nodes).prop_map(|(name, index, nodes)| {
        let endpoints: Vec<Endpoint> = nodes.iter().map(|node| Endpoint::ready(node)).collect();
        In::Slice(build::endpoint_slice("demo", &name, index, &endpoints, Family::V4))
    });
    let shutdown = ("node.cloudprovider.kubernetes.io/shutdown", "", "NoSchedule");
    let node = ("n[1-3]", 1..5u8, any::<[bool; 2]>()).prop_map(move |(name, last, [ready, tainted])| {
        let listed = [shutdown];
        let taints: &[(&str, &str, &str)] = if tainted { &listed } else { &[] };
        let ips = [format!("10.0.0.{last}"), format!("fd00::{last}")];
        In::Node(build::node(&name, &[&ips[0], &ips[1]], &[], ready, taints))
    });
    prop_oneof![
        4 => service,
        4 => slice,
        3 => node,
        1 => "[a-c]".prop_map(|name| In::ServiceGone { namespace: "demo".to_owned(), name }),
        1 => "n[1-3]".prop_map(|name| In::NodeGone { name }),
        1 => ("n[1-3]", any::<bool>()).prop_map(|(node, stopped)| In::Machine { node, stopped }),
        1 => (values(), balancer).prop_map(|(object, lb)| In::Service { object, load_balancer: lb.to_owned() }),
        1 => values().prop_map(In::Slice),
        1 => values().prop_map(In::Node),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    (any::<u64>(), any::<i64>(), any::<[bool; 3]>(), 0..1_001u64).prop_map(|(seed, skew_us, flags, share)| {
        let [updater, cached, drops_unknown_fields] = flags;
        Settings {
            seed,
            skew_us,
            updater,
            drops_unknown_fields,
            cache_us: u64::from(cached) * 120_000_000,
            crash_per_mille: share / 20,
            linger_per_mille: share,
            linger_us: share * 1_000,
            resync_us: Some(10_000_000),
            lifecycle_us: cached.then_some(5_000_000),
            ..Settings::default()
        }
    })
}

proptest! {
    #[test]
    fn z1_no_answer_or_object_causes_a_panic_or_stall(
        settings in settings(),
        inputs in prop::collection::vec(facts(), 1..12),
        answers in prop::collection::vec((answers(), any::<bool>()), 1..120),
    ) {
        let mut ccm = Ccm::new(settings);
        let (mut now, mut open) = (0, Vec::<Call>::new());
        let mut inputs = inputs.into_iter();
        for (answer, lies) in answers {
            if let Some(input) = inputs.next() {
                ccm.step(now, input, &mut open);
            }
            if open.is_empty() {
                let deadline = ccm.deadline().expect("there is always a next moment");
                prop_assert!(deadline >= now || ccm.is_up());
                now = now.max(deadline);
                ccm.tick(now, &mut open);
                prop_assert!(ccm.deadline().is_some_and(|next| next > now), "time would stop");
                continue;
            }
            let call = open.remove(0);
            let answer = if lies { answer } else { honest(&call).unwrap_or(answer) };
            now += 1_000;
            ccm.step(now, In::Answer(call.id, answer.clone()), &mut open);
            // A second answer to the same call is counted and changes nothing.
            let (late, before) = (ccm.counters().late_answers, open.len());
            ccm.step(now, In::Answer(call.id, answer), &mut open);
            prop_assert_eq!((ccm.counters().late_answers, open.len()), (late + 1, before));
            prop_assert!(ccm.is_up() || !ccm.holds_lock());
        }
    }
}
