//! Properties of all requests and of all sequences of writes.

use proptest::prelude::*;
use serde_json::Value;
use simulator_models::arm::{
    ArmModel, ConcurrentWrite, Latency, Method, Reply, Request, Settings, UnfinishedWrite, Visibility,
};

use crate::support::{SECOND, asynchronous, get, holding, json_of, model, path, pool_path, request, text};

fn methods() -> impl Strategy<Value = Method> {
    let all = ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "BREW"];
    prop::sample::select(all.map(Method::parse).to_vec())
}

/// Returns almost valid paths, and arbitrary bytes.
fn paths() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "subscriptions",
        "00000000-0000-0000-0000-000000000000",
        "resourceGroups",
        "rg",
        "providers",
        "Microsoft.Network",
        "loadBalancers",
        "lb",
        "backendAddressPools",
        "a",
        "locations",
        "operations",
        "operationResults",
        "%",
        "%zz",
        "%C3%28",
        "",
    ]);
    let wild = prop::collection::vec(pieces, 0..10).prop_map(|pieces| {
        format!("/{}?api-version=2025-05-01&$skipToken=99999999999999999999", pieces.join("/"))
    });
    prop_oneof![
        any::<String>(),
        wild,
        Just(pool_path("lb", "a")),
        Just(path("lb")),
        Just(path("lb/backendAddressPools")),
        any::<String>().prop_map(|pool| pool_path("lb", &pool)),
    ]
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    let names = prop::sample::select(vec![
        "properties",
        "loadBalancerBackendAddresses",
        "name",
        "ipAddress",
        "virtualNetwork",
        "syncMode",
        "adminState",
    ]);
    let json = leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names.clone(), inner), 0..5)
                .prop_map(|pairs| pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Value>()),
        ]
    });
    prop_oneof![any::<Vec<u8>>(), json.prop_map(|value| value.to_string().into_bytes())]
}

fn headers() -> impl Strategy<Value = Vec<(String, String)>> {
    let names = vec!["If-Match", "Authorization", "x-ms-client-request-id", "x-ms-correlation-request-id"];
    prop::collection::vec((prop::sample::select(names).prop_map(str::to_owned), any::<String>()), 0..3)
}

/// One step of a client.
#[derive(Clone, Debug)]
enum Step {
    Put { pool: usize, members: Vec<u8> },
    ForeignPut { pool: usize, members: Vec<u8> },
    ForeignLoadBalancerPut,
    Delete { pool: usize },
    Wait { us: u64 },
}

const POOLS: [&str; 3] = ["a", "b", "new"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let members = || prop::collection::btree_set(0..6_u8, 0..4).prop_map(|set| set.into_iter().collect());
    let pool = || 0..POOLS.len();
    let step = prop_oneof![
        4 => (pool(), members()).prop_map(|(pool, members)| Step::Put { pool, members }),
        1 => (pool(), members()).prop_map(|(pool, members)| Step::ForeignPut { pool, members }),
        1 => Just(Step::ForeignLoadBalancerPut),
        1 => pool().prop_map(|pool| Step::Delete { pool }),
        3 => (0..8 * SECOND).prop_map(|us| Step::Wait { us }),
    ];
    prop::collection::vec(step, 1..40)
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let conflict = prop_oneof![
        Just(ConcurrentWrite::Refuse),
        Just(ConcurrentWrite::Supersede),
        Just(ConcurrentWrite::Mixed { supersede: 0.5 }),
    ];
    (conflict, any::<[bool; 3]>(), any::<u64>(), prop_oneof![Just(0.0), Just(0.3)]).prop_map(
        |(concurrent_write, [asynchronous, at_once, reverted], seed, silent_loss)| Settings {
            seed,
            concurrent_write,
            silent_loss,
            operation: asynchronous.then_some(Latency::LogNormal { median_us: SECOND, p95_us: 9 * SECOND }),
            visibility: if at_once { Visibility::AtOnce } else { Visibility::AtEnd },
            unfinished_write: if reverted { UnfinishedWrite::Reverted } else { UnfinishedWrite::Kept },
            ..Settings::default()
        },
    )
}

fn ips_of(members: &[u8]) -> Vec<String> {
    members.iter().map(|n| format!("10.9.0.{n}")).collect()
}

fn take(model: &mut ArmModel, step: &Step, now: u64) -> Reply {
    let answer = |method, pool: usize, body: &str| request(method, &pool_path("lb", POOLS[pool]), &[], body);
    let request = match step {
        Step::Put { pool, members } => {
            let ips = ips_of(members);
            let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
            answer(Method::Put, *pool, &holding(&ips).to_string())
        }
        Step::Delete { pool } => answer(Method::Delete, *pool, ""),
        Step::ForeignPut { pool, members } => {
            let ips = ips_of(members);
            let members: Vec<(&str, &str)> = ips.iter().map(|ip| (ip.as_str(), ip.as_str())).collect();
            model.foreign_put("lb", POOLS[*pool], &members, now);
            request(Method::Get, &path("lb"), &[], "")
        }
        Step::ForeignLoadBalancerPut => {
            model.foreign_load_balancer_put("lb", now);
            request(Method::Get, &path("lb"), &[], "")
        }
        Step::Wait { .. } => request(Method::Get, &path("lb"), &[], ""),
    };
    model.handle(&request, now)
}

/// Invariants at every moment.
fn check(model: &mut ArmModel, now: u64) -> Result<(), TestCaseError> {
    let lb = json_of(&get(model, &path("lb"), now));
    let etag = text(&lb, "/etag");
    prop_assert_eq!(Some(etag.clone()), model.etag("lb"));
    let pools = lb["properties"]["backendAddressPools"].as_array().cloned().unwrap_or_default();
    let mut updating = 0;
    for pool in &pools {
        prop_assert_eq!(&text(pool, "/etag"), &etag);
        updating += usize::from(text(pool, "/properties/provisioningState") != "Succeeded");
        let alone = json_of(&get(model, &pool_path("lb", &text(pool, "/name")), now));
        prop_assert_eq!(pool, &alone);
    }
    prop_assert!(updating <= 1, "one operation at a time");
    let state = text(&lb, "/properties/provisioningState");
    prop_assert_eq!(state == "Updating", model.is_updating("lb"));
    prop_assert!(updating == 0 || model.is_updating("lb"));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn z1_no_request_causes_a_panic(
        requests in prop::collection::vec((methods(), paths(), headers(), bodies()), 1..8),
        token in any::<bool>(),
    ) {
        let mut model = model(Settings { require_bearer: token, ..asynchronous() });
        for (now, (method, path_and_query, headers, body)) in requests.into_iter().enumerate() {
            let reply = model.handle(&Request { method, path_and_query, headers, body }, now as u64);
            if let Reply::Answer(answer) = reply {
                prop_assert!((200..500).contains(&answer.status), "{}", answer.status);
            }
        }
    }

    #[test]
    fn z1_children_share_the_etag_of_their_parent(settings in any_settings(), steps in steps()) {
        let mut model = model(settings.clone());
        let mut twin = self::model(settings);
        let mut now = 0;
        for step in &steps {
            now += match step {
                Step::Wait { us } => *us,
                Step::Put { .. }
                | Step::ForeignPut { .. }
                | Step::ForeignLoadBalancerPut
                | Step::Delete { .. } => 1,
            };
            model.tick(now);
            let (etag, applied) = (model.etag("lb"), model.counters().applied);
            let reply = take(&mut model, step, now);
            let changed = model.counters().applied > applied;
            prop_assert_eq!(model.etag("lb") != etag, changed, "{:?} {:?}", step, reply);
            check(&mut model, now)?;
            take(&mut twin, step, now);
            check(&mut twin, now)?;
            prop_assert_eq!(twin.etag("lb"), model.etag("lb"), "the same seed gives the same history");
        }
        while let Some(end) = model.deadline() {
            model.tick(end);
        }
        prop_assert!(!model.is_updating("lb"));
    }

    #[test]
    fn z1_sequential_writes_of_a_client_are_read_back(
        writes in prop::collection::vec((0..POOLS.len(), prop::collection::btree_set(0..6_u8, 0..4)), 1..20),
        settings in any_settings(),
    ) {
        let mut model = model(Settings { silent_loss: 0.0, ..settings });
        let mut now = 0;
        for (pool, members) in writes {
            let members: Vec<u8> = members.into_iter().collect();
            let reply = take(&mut model, &Step::Put { pool, members: members.clone() }, now);
            prop_assert!(matches!(&reply, Reply::Answer(answer) if answer.status < 300), "{reply:?}");
            now = model.deadline().unwrap_or(now) + SECOND;
            model.tick(now);
            prop_assert_eq!(crate::support::ips(&model, "lb", POOLS[pool]), ips_of(&members));
        }
    }
}
