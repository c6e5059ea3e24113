//! Properties: nothing panics, watches report exactly what happened, and list-then-watch yields the final state.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;
use simulator_models::kube::build::{Endpoint, Family, endpoint_slice};
use simulator_models::kube::{KubeModel, Request, Resource, Settings};

use super::{Server, decode, version_of};

/// One step of a history: slice `index` gets `nodes` endpoints, or is deleted for `None`.
#[derive(Debug, Clone)]
struct Step {
    index: usize,
    nodes: Option<u8>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..5_usize, prop::option::weighted(0.75, 0..4_u8));
    prop::collection::vec(step.prop_map(|(index, nodes)| Step { index, nodes }), 1..40)
}

fn take(model: &mut KubeModel, step: &Step) {
    let nodes: Vec<Endpoint> =
        (0..step.nodes.unwrap_or(0)).map(|number| Endpoint::ready(&format!("n{number}"))).collect();
    let slice = endpoint_slice("demo", "web", step.index, &nodes, Family::V4);
    if step.nodes.is_some() {
        model.apply(slice, 0).expect("a slice");
    } else {
        let name = slice["metadata"]["name"].as_str().expect("a name");
        model.delete(Resource::EndpointSlices, "demo", name, 0);
    }
}

type State = BTreeMap<String, Value>;

fn state_of(model: &KubeModel) -> State {
    let slices = model.list(Resource::EndpointSlices);
    slices.map(|slice| (slice["metadata"]["uid"].to_string(), slice)).collect()
}

/// Applies events like an informer; the version of each must be newer than the one before.
fn follow(state: &mut State, events: &[Value], mut newest: u64) -> Result<u64, TestCaseError> {
    for event in events {
        let object = event["object"].clone();
        prop_assert!(version_of(&object) > newest, "events come in order");
        newest = version_of(&object);
        let id = object["metadata"]["uid"].to_string();
        match event["type"].as_str() {
            Some("ADDED") => prop_assert!(state.insert(id, object).is_none(), "an added object is new"),
            Some("MODIFIED") => {
                prop_assert!(state.insert(id, object).is_some(), "a modified object is known")
            }
            Some("DELETED") => prop_assert!(state.remove(&id).is_some(), "a deleted object is known"),
            other => prop_assert!(false, "unexpected event {other:?}"),
        }
    }
    Ok(newest)
}

proptest! {
    #[test]
    fn z1_a_watch_shows_exactly_the_changes_after_its_version(history in steps()) {
        let mut server = Server::new();
        let mut states = vec![(server.model.resource_version(), State::new())];
        for step in &history {
            take(&mut server.model, step);
            states.push((server.model.resource_version(), state_of(&server.model)));
        }
        let last = state_of(&server.model);
        for (rv, state) in states {
            let mut state = state;
            let (_, events) = server.watch(&format!("{}?watch=1&resourceVersion={rv}", super::SLICES));
            let changes = server.model.resource_version() - rv;
            prop_assert_eq!(u64::try_from(events.len()).expect("a count"), changes, "each change once");
            follow(&mut state, &events, rv)?;
            prop_assert_eq!(&state, &last);
        }
    }

    #[test]
    fn z1_list_then_watch_and_streaming_list_equal_the_final_state(
        before in steps(),
        after in steps(),
        limit in 1..4_u8,
    ) {
        let mut server = Server::new();
        before.iter().for_each(|step| take(&mut server.model, step));
        let mut listed = State::new();
        let mut token = String::new();
        let mut remaining = after.iter();
        let rv = loop {
            let (status, page) = server.get(&format!("{}?limit={limit}&continue={token}", super::SLICES));
            prop_assert_eq!(status, 200);
            for item in page["items"].as_array().into_iter().flatten() {
                let mut item = item.clone();
                item["kind"] = "EndpointSlice".into();
                item["apiVersion"] = "discovery.k8s.io/v1".into();
                listed.insert(item["metadata"]["uid"].to_string(), item);
            }
            if let Some(step) = remaining.next() {
                take(&mut server.model, step);
            }
            token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if token.is_empty() {
                break version_of(&page);
            }
        };
        let (watch, first) = server.watch(&format!("{}?watch=1&resourceVersion={rv}", super::SLICES));
        let newest = follow(&mut listed, &first, rv)?;
        let stream = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let (streaming, initial) = server.watch(&format!("{}?{stream}", super::SLICES));
        let initial = initial.iter().map(|event| &event["object"]);
        let mut streamed: State =
            initial.map(|object| (object["metadata"]["uid"].to_string(), object.clone())).collect();
        let start = server.model.resource_version();
        remaining.for_each(|step| take(&mut server.model, step));
        let events = server.poll(watch);
        follow(&mut listed, &events, newest)?;
        let events = server.poll(streaming);
        follow(&mut streamed, &events, start)?;
        prop_assert_eq!(&listed, &state_of(&server.model));
        prop_assert_eq!(&streamed, &state_of(&server.model));
    }

    #[test]
    fn z1_a_lagging_watch_shows_the_same_changes_in_order(
        history in steps(),
        lag in 0..5_000_u64,
        pause in 1..2_000_u64,
    ) {
        let mut server = Server::new();
        server.model.lag(lag);
        let rv = server.model.resource_version();
        let (watch, mut events) = server.watch(&format!("{}?watch=1&resourceVersion={rv}", super::SLICES));
        for step in &history {
            server.now += pause;
            take_at(&mut server, step);
            events.extend(server.poll(watch));
        }
        server.now += lag;
        events.extend(server.poll(watch));
        let mut state = State::new();
        follow(&mut state, &events, rv)?;
        prop_assert_eq!(state, state_of(&server.model));
    }

    #[test]
    fn z1_a_rollback_restores_the_state_of_its_version(history in steps(), back in any::<prop::sample::Index>()) {
        let mut server = Server::new();
        let mut states = vec![(server.model.resource_version(), State::new())];
        for step in &history {
            take(&mut server.model, step);
            states.push((server.model.resource_version(), state_of(&server.model)));
        }
        let (rv, state) = back.get(&states);
        prop_assert!(server.model.rollback(*rv));
        prop_assert_eq!(server.model.resource_version(), *rv);
        prop_assert_eq!(&state_of(&server.model), state);
    }

    #[test]
    fn z1_no_bytes_cause_a_panic(
        method in prop::sample::select(vec!["GET", "POST", "PUT", "PATCH", "DELETE", "BREW"]),
        path in path(),
        kind in prop::sample::select(vec![
            "application/json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
            "application/json-patch+json",
            "",
        ]),
        body in body(),
    ) {
        let mut server = Server::new();
        server.slice(0, &["n1"]);
        server.service("web");
        let mut request = Request::new(method, &path);
        request.headers.push(("Content-Type".to_owned(), kind.to_owned()));
        request.body = body.clone();
        let watches = server.model.open_watches().len();
        server.handle(&request);
        for (watch, _, _) in server.model.open_watches() {
            server.model.poll_watch(watch, 1_000_000_000);
        }
        prop_assert!(server.model.open_watches().len() <= watches + 1);
        let replayed = server.model.replay(&body, 0);
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        let applied = server.model.apply(value, 0);
        prop_assert!(replayed.is_err() || applied.is_err(), "an event is not an object");
        let (status, list) = server.get("/apis/discovery.k8s.io/v1/endpointslices");
        prop_assert!(status == 200 && list["items"].is_array(), "and it still serves");
    }
}

fn take_at(server: &mut Server, step: &Step) {
    let nodes: Vec<String> = (0..step.nodes.unwrap_or(1)).map(|number| format!("n{number}")).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    server.slice(step.index, &nodes);
}

fn path() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "/api/v1/namespaces/demo/services/web",
        "/api/v1/namespaces/demo/services/web/status",
        "/api/v1/namespaces/demo/services",
        "/api/v1/services",
        "/api/v1/nodes",
        "/api/v1/namespaces/default",
        "/api/v1/namespaces/default/events",
        "/apis/events.k8s.io/v1/namespaces/default/events",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    ]);
    let parameter = prop_oneof![
        "(watch|limit|continue|resourceVersion|timeoutSeconds|dryRun)=[0-9a-f]{0,20}",
        "(watch|sendInitialEvents|allowWatchBookmarks)=(1|true|false)",
        "resourceVersionMatch=(Exact|NotOlderThan)",
        "(labelSelector|fieldSelector)=\\PC{0,12}",
        "[a-z%=&+]{0,10}",
    ];
    let query = prop::collection::vec(parameter, 0..4).prop_map(|parts| parts.join("&"));
    prop_oneof![
        "\\PC{0,40}",
        "/(api|apis)/[a-z0-9./%]{0,40}",
        (known, query).prop_map(|(path, query)| format!("{path}?{query}")),
    ]
}

fn json_value() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "metadata",
        "name",
        "labels",
        "spec",
        "kind",
        "op",
        "path",
        "value",
        "uid",
        "finalizers",
        "taints",
        "resourceVersion",
        "$patch",
        "generateName",
        "annotations",
        "preconditions",
        "status",
        "type",
        "object",
    ]);
    let word = prop::sample::select(vec![
        "web",
        "Service",
        "v1",
        "add",
        "remove",
        "test",
        "replace",
        "",
        "/metadata",
        "/spec/ports/0",
        "7",
        "move",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        word.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        json_value().prop_map(|value| value.to_string().into_bytes()),
    ]
}

#[test]
fn z1_two_models_with_one_seed_and_one_history_are_equal() {
    let run = || {
        let mut server = Server::with(Settings { seed: 7, ..Settings::default() });
        let (watch, _) = server.watch("/api/v1/namespaces/demo/services?watch=1");
        for name in ["a", "b", "a"] {
            server.service(name);
            server.slice(0, &[name]);
        }
        decode(&server.model.poll_watch(watch, 0))
    };
    assert_eq!(run(), run());
}
