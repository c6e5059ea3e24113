//! Tests that render control planes, their resources and their sources from small snapshots. The JSON must match the
//! OpenAPI document.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::test::TestRequest;
use actors::clock::Clock;
use model::ids::{LbName, PoolName, ServiceKey, ServiceUid};
use model::level::{Provenance, Source};
use model::machine::{Now, Wall};
use model::sample::PoolState;
use model::view::PoolView;
use model::xds::assignment::Priority;
use model::xds::cache::{CacheState, Cached, Reason, Rejected};
use model::xds::cluster::Cluster;
use model::xds::dump::Dump;
use model::xds::dump::XdsView;
use model::xds::facts::Code;
use model::xds::source::{Assigned, Note};
use pool_testing::views;
use serde_json::{Value, json};

use super::*;

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";

/// Returns 14 November 2023, 22:13:20 UTC.
fn at() -> Wall {
    Wall::from_micros(1_700_000_000_000_000)
}

fn cached(value: Content) -> Cached<Content> {
    Cached { value, raw: None, version: "7".into(), updated: at(), provenance: Provenance::Watch }
}

/// Returns endpoints of two priorities. The first priority has one endpoint of each health.
fn assignment() -> LoadAssignment {
    let address = |third: u8, last: u8| IpAddr::from([10, 0, third, last]);
    let first = [
        (address(0, 1), EndpointHealth::Healthy),
        (address(0, 2), EndpointHealth::Degraded),
        (address(0, 3), EndpointHealth::Draining),
        (address(0, 4), EndpointHealth::Unhealthy),
    ];
    let second = [(address(1, 1), EndpointHealth::Healthy)];
    let priorities = vec![
        Priority { addresses: first.into(), weighted: false },
        Priority { addresses: second.into(), weighted: false },
    ];
    LoadAssignment { priorities, ..LoadAssignment::default() }
}

/// Returns the error of a resource whose newest version is refused.
fn refused() -> Error {
    let rejected = Rejected { version: "8".into(), at: at(), raw: None };
    let (reason, code) = (Reason::Nack, Code::InvalidArgument);
    Error { reason, code, message: "invalid resource: no port".into(), rejected: Some(rejected) }
}

/// Returns the error of a resource that was not received in time.
fn late() -> Error {
    let (reason, code) = (Reason::Timer, Code::Unavailable);
    Error { reason, code, message: "was not received within 30 s".into(), rejected: None }
}

fn dumped(
    key: ResourceKey,
    state: ResourceState,
    in_use: Option<Content>,
    error: Option<Error>,
) -> ResourceDump {
    ResourceDump { key, state, cached: in_use.map(cached), error, watchers: 1 }
}

fn cluster(name: &str) -> ResourceKey {
    ResourceKey::new(ResourceKind::Cluster, name)
}

fn endpoints(name: &str) -> ResourceKey {
    ResourceKey::new(ResourceKind::Endpoints, name)
}

/// Returns resources in several states, in the order of their keys.
fn dumps() -> Vec<ResourceDump> {
    let web = Content::Cluster(Cluster { eds_name: "shop/web".into() });
    let shop = Content::Endpoints(assignment());
    vec![
        dumped(cluster("api"), ResourceState::Requested, None, None),
        dumped(cluster("web"), ResourceState::Acked, Some(web), None),
        dumped(endpoints("late"), ResourceState::Timeout, None, Some(late())),
        dumped(endpoints("shop/web"), ResourceState::Nacked, Some(shop), Some(refused())),
    ]
}

fn server(uri: &str, is_used: bool, failure: Option<&str>) -> ServerDump {
    let is_connected = is_used && failure.is_none();
    ServerDump { uri: uri.into(), is_used, is_connected, failure: failure.map(Arc::from), cut: None }
}

fn name(text: &str) -> Name {
    Name::parse(text).expect("it names a source")
}

fn fault(resource: Option<ResourceKey>, reason: Reason, message: &str) -> Fault {
    Fault { resource, reason, message: message.into() }
}

/// Returns three sources: one that never sent anything, one whose assignment was dropped, and one that is used despite
/// an error.
fn sources() -> BTreeMap<Name, SourceFact> {
    let node = || Note::Node("pools".into());
    let lost = fault(None, Reason::Connectivity, "xDS server one:1: refused");
    let invalid = fault(Some(endpoints("shop/web")), Reason::Nack, "invalid resource: no port");
    let never =
        SourceFact { assigned: Assigned::Unknown(Some(lost)), provenance: Provenance::Watch, note: node() };
    let given_up = SourceFact {
        assigned: Assigned::Dropped(invalid.clone()),
        provenance: Provenance::Watch,
        note: node(),
    };
    let assigned = Assigned::Usable(Arc::new(assignment()));
    let used = SourceFact { assigned, provenance: Provenance::Watch, note: Note::Errors(vec![invalid]) };
    [(name("eds:late"), never), (name("eds:shop/web"), given_up), (name("cluster:web"), used)].into()
}

/// Returns a pool as the configuration shows it.
fn configured(lb: &str, pool: &str, source: &str) -> Value {
    json!({ "loadBalancer": lb, "backendPool": pool, "source": source, "family": "IPv4" })
}

/// Returns the pools of each source.
fn listed() -> Listed {
    let pool = |lb: &str, pool: &str| PoolId::new(LbName::new(lb), PoolName::new(pool));
    let web = [pool("edge", "web"), pool("Edge", "Again")].into();
    [(name("cluster:web"), web), (name("eds:late"), [pool("edge", "late")].into())].into()
}

/// Returns a pool with an xDS source.
fn pool() -> PoolView {
    let diagnostics = [
        model::xds::diagnostic::Diagnostic::WeightsIgnored,
        model::xds::diagnostic::Diagnostic::PriorityUsed(1),
    ]
    .into();
    let id = PoolId::new(LbName::new("edge"), PoolName::new("web"));
    PoolView {
        source: Source::Xds { name: name("cluster:web"), note: "xDS node id: pools".into(), diagnostics },
        services: [(ServiceUid::new("cluster:web"), ServiceKey::of_source("cluster:web"))].into(),
        ..views::pool(id, PoolState::InSync)
    }
}

fn snapshot() -> Snapshot {
    let servers = vec![
        server("one:1", true, Some("xDS server one:1: refused")),
        ServerDump { cut: Some("reset".into()), ..server("two:2", true, None) },
        server("three:3", false, None),
    ];
    let dump = Dump { servers, resources: dumps() };
    let view = XdsView { node_id: "pools".into(), dump, sources: sources() };
    let pool = pool();
    Snapshot {
        at: Now::from_millis(99_500),
        pools: [(pool.pool.clone(), Arc::new(pool))].into(),
        xds: Some(Arc::new(view)),
        ..Snapshot::default()
    }
}

fn show() -> Show {
    Show { clock: Clock::start(), now: Now::ZERO.plus(Duration::from_secs(100)) }
}

fn asked(query: &str) -> Result<ResourceFilter, QueryError> {
    let uri = format!("/api/v1/resources{query}");
    ResourceFilter::of(&TestRequest::with_uri(&uri).to_http_request())
}

fn answered(query: &str, snapshot: &Snapshot) -> Value {
    let asked = asked(query).unwrap_or_else(|wrong| panic!("{query}: {wrong:?}"));
    json!(answer(snapshot, &show(), &asked, &listed()))
}

/// Returns the names of the listed entries.
fn names(list: &Value, field: &str) -> Vec<String> {
    let all = list.as_array().expect("a list").iter();
    all.map(|one| one[field].as_str().expect("a name").to_owned()).collect()
}

/// Requires that this value matches the schema of this name in the OpenAPI document, without additional fields.
fn fits(schema: &str, found: &Value) {
    let api = crate::http::openapi_document();
    let whole = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "components": api["components"],
        "$ref": format!("#/components/schemas/{schema}"),
    });
    let validator = jsonschema::validator_for(&whole).expect("a good schema");
    let wrong: Vec<String> =
        validator.iter_errors(found).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{found:#}");
}

#[test]
fn h3_a_resource_has_its_used_and_its_refused_version() {
    let shown = answered("", &snapshot());
    assert_eq!((&shown["nodeId"], &shown["snapshotAgeSeconds"]), (&json!("pools"), &json!(0.5)));
    let expected = json!({
        "type": ENDPOINTS,
        "name": "shop/web",
        "state": "NACKED",
        "cacheState": "nacked_but_cached",
        "version": "7",
        "updatedAt": "2023-11-14T22:13:20.000Z",
        "watchers": 1,
        "edsName": null,
        "addresses": { "priorities": 2, "healthy": 2, "degraded": 1, "draining": 1, "out": 1 },
        "error": {
            "reason": "nack",
            "message": "invalid resource: no port",
            "version": "8",
            "at": "2023-11-14T22:13:20.000Z",
        },
    });
    assert_eq!(shown["items"][3], expected);
    let expected = json!({
        "type": CLUSTER,
        "name": "web",
        "state": "ACKED",
        "cacheState": "acked",
        "version": "7",
        "updatedAt": "2023-11-14T22:13:20.000Z",
        "watchers": 1,
        "edsName": "shop/web",
        "addresses": null,
        "error": null,
    });
    assert_eq!(shown["items"][1], expected);
    let late = &shown["items"][2];
    assert_eq!(
        (&late["state"], &late["cacheState"], &late["version"], &late["updatedAt"], &late["addresses"]),
        (&json!("TIMEOUT"), &json!("timeout"), &Value::Null, &Value::Null, &Value::Null)
    );
    let error = json!({
        "reason": "timer", "message": "was not received within 30 s", "version": null, "at": null,
    });
    assert_eq!(late["error"], error, "nothing came that could have a version");
}

#[test]
fn h3_servers_are_shown_in_the_order_of_preference() {
    let shown = answered("", &snapshot());
    let expected = json!([
        { "uri": "one:1", "used": true, "connected": false, "failure": "xDS server one:1: refused", "cut": null },
        { "uri": "two:2", "used": true, "connected": true, "failure": null, "cut": "reset" },
        { "uri": "three:3", "used": false, "connected": false, "failure": null, "cut": null },
    ]);
    assert_eq!(shown["servers"], expected);
}

#[test]
fn x4_a_source_has_the_endpoints_of_its_pools_and_its_error() {
    let shown = answered("", &snapshot());
    let invalid = json!({
        "resource": { "type": ENDPOINTS, "name": "shop/web" },
        "reason": "nack",
        "message": "invalid resource: no port",
    });
    let lost = json!({
        "resource": null, "reason": "connectivity", "message": "xDS server one:1: refused",
    });
    let expected = json!([
        {
            "source": "eds:late",
            "assigned": "unknown",
            "error": lost,
            "ambientErrors": [],
            "note": "xDS node id: pools",
            "pools": [{ "loadBalancer": "edge", "backendPool": "late", "state": null, "notManageable": null }],
        },
        {
            "source": "eds:shop/web",
            "assigned": "dropped",
            "error": invalid,
            "ambientErrors": [],
            "note": "xDS node id: pools",
            "pools": [],
        },
        {
            "source": "cluster:web",
            "assigned": "usable",
            "error": null,
            "ambientErrors": [invalid],
            "note": format!("{ENDPOINTS} shop/web: invalid resource: no port"),
            "pools": [
                { "loadBalancer": "Edge", "backendPool": "Again", "state": null, "notManageable": null },
                { "loadBalancer": "edge", "backendPool": "web", "state": "in_sync", "notManageable": null },
            ],
        },
    ]);
    assert_eq!(shown["sources"], expected);
    assert!(Code::ALL.iter().all(|code| !shown.to_string().contains(code.as_str())), "{shown}");
}

#[test]
fn h3_without_pools_of_a_control_plane_the_lists_are_empty() {
    let shown = answered("", &Snapshot::default());
    let expected = json!({
        "snapshotAgeSeconds": null, "nodeId": null, "servers": [], "items": [], "next": null, "total": 0,
        "sources": [],
    });
    assert_eq!(shown, expected);
    fits("Resources", &shown);
}

#[test]
fn h3_resources_page_once_each_in_a_stable_order() {
    let all = names(&answered("", &snapshot())["items"], "name");
    assert_eq!(all, ["api", "web", "late", "shop/web"]);
    for limit in 1..=all.len() {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let page = answered(&format!("?limit={limit}{after}"), &snapshot());
            assert_eq!(page["total"], all.len());
            let items = names(&page["items"], "name");
            assert!(!items.is_empty() && items.len() <= limit, "{page}");
            seen.extend(items);
            match page["next"].as_str() {
                Some(next) => after = format!("&after={}", next.replace('/', "%2F")),
                None => break,
            }
        }
        assert_eq!(seen, all, "{limit}");
    }
    let mut fewer = snapshot();
    let next = answered("?limit=2", &fewer)["next"].as_str().expect("there is more").to_owned();
    assert_eq!(next, format!("{CLUSTER}/web"));
    let mut view = XdsView::clone(fewer.xds.as_deref().expect("a view"));
    view.dump.resources.retain(|resource| *resource.key.name != *"web");
    fewer.xds = Some(Arc::new(view));
    let page = answered(&format!("?after={}", next.replace('/', "%2F")), &fewer);
    assert_eq!(names(&page["items"], "name"), ["late", "shop/web"], "it goes on though that one is gone");
}

#[test]
fn h3_resources_are_filtered_by_type_state_and_name() {
    let listed = |query: &str| names(&answered(query, &snapshot())["items"], "name");
    assert_eq!(listed(&format!("?type={CLUSTER}")), ["api", "web"]);
    assert_eq!(listed(&format!("?type={ENDPOINTS}&contains=WEB")), ["shop/web"]);
    assert_eq!(listed("?state=REQUESTED"), ["api"]);
    assert_eq!(listed("?contains=web"), ["web", "shop/web"]);
    assert!(listed("?state=ACKED&contains=shop").is_empty());
    let page = answered("?contains=web&limit=1", &snapshot());
    assert_eq!(page["next"], format!("{CLUSTER}/web"), "what is left out begins no page");
    assert_eq!(answered("?contains=late&limit=1", &snapshot())["next"], Value::Null);
    let sources = names(&answered("?contains=WEB&state=TIMEOUT", &snapshot())["sources"], "source");
    assert_eq!(sources, ["eds:shop/web", "cluster:web"], "sources are left over by their names alone");
}

#[test]
fn h3_a_wrong_parameter_is_named_with_its_valid_values() {
    let states = "one of REQUESTED, DOES_NOT_EXIST, ACKED, NACKED, RECEIVED_ERROR, TIMEOUT";
    for (query, wrong) in [
        ("?state=acked", QueryError::new("state", "acked", states)),
        ("?type=Cluster", QueryError::new("type", "Cluster", &format!("one of {CLUSTER}, {ENDPOINTS}"))),
        ("?after=nonsense", QueryError::new("after", "nonsense", "the `next` of a page")),
        ("?after=Cluster%2Fweb", QueryError::new("after", "Cluster/web", "the `next` of a page")),
        ("?limit=0", QueryError::new("limit", "0", "a whole number from 1 to 1000")),
    ] {
        assert_eq!(asked(query).err(), Some(wrong), "{query}");
    }
    assert!(asked("?colour=red").is_err() && asked("?state=ACKED&state=ACKED").is_err());
}

#[test]
fn h3_each_state_matches_the_openapi_document() {
    fits("Resources", &answered("", &snapshot()));
    let mut view = XdsView::clone(snapshot().xds.as_deref().expect("a view"));
    let mut seen = BTreeSet::new();
    for (state, is_cached) in ResourceState::ALL.into_iter().flat_map(|state| [(state, false), (state, true)])
    {
        let in_use = is_cached.then(|| Content::Endpoints(assignment()));
        let resource = dumped(endpoints("shop/web"), state, in_use, Some(refused()));
        seen.insert(resource.cache_state());
        view.dump.resources = vec![resource];
        let one = Snapshot { xds: Some(Arc::new(view.clone())), ..Snapshot::default() };
        fits("Resources", &answered("", &one));
    }
    assert_eq!(seen, CacheState::ALL.into());
    for reason in [Reason::Connectivity, Reason::Nack, Reason::Deleted, Reason::Timer, Reason::Reported] {
        let fact = SourceFact {
            assigned: Assigned::Unknown(Some(fault(None, reason, "it is so"))),
            provenance: Provenance::Watch,
            note: Note::Node("pools".into()),
        };
        view.sources = [(name("eds:late"), fact)].into();
        let one = Snapshot { xds: Some(Arc::new(view.clone())), ..Snapshot::default() };
        fits("Resources", &answered("", &one));
    }
}

#[test]
fn x4_a_pool_of_a_source_has_the_source_and_its_state() {
    let snapshot = snapshot();
    let pool = pool();
    let shown = json!(show().pool(&pool, &snapshot));
    assert_eq!((&shown["source"], &shown["services"]), (&json!("cluster:web"), &json!([])));
    assert_eq!(shown["note"], "xDS node id: pools");
    let expected = json!([
        { "reason": "priority_used", "detail": "endpoints of priority 1 are used" },
        { "reason": "weights_ignored", "detail": "weights are ignored, because a backend pool has none" },
    ]);
    assert_eq!(shown["diagnostics"], expected);
    fits("Pool", &shown);
    let pools = [configured("edge", "web", "cluster:web")];
    fits("Setting", &json!({ "key": "pools", "value": pools, "origin": "file", "variable": null }));
}
