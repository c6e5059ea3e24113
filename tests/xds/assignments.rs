//! Invalid assignments, and diagnostics about valid assignments that a pool cannot apply exactly (X2).

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus::Nacked;
use envoy_types::pb::google::protobuf::Any;
use serde_json::Value;
use simulator::control_plane::{Endpoint, HealthStatus, Kind, Locality, endpoints};

use super::stage::{Plan, control_plane, endpoints_at, locality, server};

const BEFORE: &str = "10.9.0.1";
const GOOD: &str = "10.1.0.1";

/// Returns this many healthy endpoints.
fn many(count: u32) -> Locality {
    let address = |n: u32| format!("10.8.{}.{}", n / 250, n % 250 + 1);
    let endpoints = (0..count).map(|n| Endpoint::at(&address(n), 8080)).collect();
    Locality { endpoints, ..Locality::of([]) }
}

/// Returns an endpoint with this weight.
fn weighted(address: &str, weight: u32) -> Endpoint {
    Endpoint { weight: Some(weight), ..Endpoint::at(address, 8080) }
}

fn of(endpoints: Vec<Endpoint>) -> Locality {
    Locality { endpoints, ..Locality::of([]) }
}

/// Returns invalid assignments, and the text about each.
fn invalid() -> [(&'static str, Any, &'static str); 4] {
    let twice = Locality::of([("10.1.0.2", 8080), ("10.1.0.3", 8080), ("10.1.0.2", 8080)]);
    [
        ("crowded", endpoints("crowded", [many(1001)]), "are 1001 healthy IPv4 addresses of priority 0"),
        ("twice", endpoints("twice", [twice]), "10.1.0.2:8080 is a duplicate"),
        (
            "weightless",
            endpoints("weightless", [of(vec![weighted("10.1.0.2", 0)])]),
            "is 0 and must be at least 1",
        ),
        ("named", endpoints_at("named", &["web.test"]), "is not an IP address"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_x3_an_invalid_assignment_is_explained_without_a_write() {
    let plane = control_plane().await;
    let mut plan = Plan::new().await;
    for (name, assignment, _) in invalid() {
        plane.set(Kind::Endpoints, name, endpoints_at(name, &[GOOD])).await;
        let fresh = format!("never-{name}");
        // The same without an earlier state.
        plane.set(Kind::Endpoints, &fresh, renamed(&assignment, &fresh)).await;
        plan = plan.pool(name, &format!("eds:{name}"), &[BEFORE]).await;
        plan = plan.pool(&fresh, &format!("eds:{fresh}"), &[BEFORE]).await;
    }
    let env = plan.start(&[server(&plane, &[])]).await;
    for (name, assignment, words) in invalid() {
        env.wait_for_members(name, &[GOOD]).await;
        plane.set(Kind::Endpoints, name, assignment).await;
        for name in [name, &format!("never-{name}")] {
            let shown = env.wait_for_csds_state(name, Nacked).await;
            let (_, details) = shown.error.expect("an error");
            assert!(details.contains(words), "{name}: {details}");
        }
        env.wait_for_note(name, words).await;
        let nack = |request: &simulator::control_plane::RecordedRequest| {
            request.error.as_ref().is_some_and(|error| error.message.contains(words))
        };
        plane.wait_until(|journal| journal.iter().any(nack)).await.expect("the control plane gets a NACK");
    }
    env.flush_writes().await;
    for (name, ..) in invalid() {
        env.assert_members_and_puts(name, &[GOOD], 1).await;
        env.assert_members_and_puts(&format!("never-{name}"), &[BEFORE], 0).await;
    }
    env.assert_no_logged_errors();
}

/// Returns the assignment under another name.
fn renamed(assignment: &Any, name: &str) -> Any {
    use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
    use prost::Message as _;
    let mut message = ClusterLoadAssignment::decode(&assignment.value[..]).expect("it is one");
    message.cluster_name = name.to_owned();
    simulator::control_plane::packed(Kind::Endpoints, &message)
}

/// Returns valid assignments, the resulting members of a pool, and the expected diagnostic.
fn with_diagnostics() -> [(&'static str, Any, Vec<String>, Option<&'static str>); 4] {
    let of_members = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<String>>();
    let skipped = Locality { weight: Some(0), ..Locality::of([("10.1.0.2", 8080)]) };
    let more = Endpoint { additional: vec![("10.1.0.2".to_owned(), 8080)], ..Endpoint::at(GOOD, 8080) };
    let mut full = many(1000);
    let all: Vec<String> = full.endpoints.iter().map(|endpoint| endpoint.address.clone()).collect();
    full.endpoints.push(Endpoint { health: HealthStatus::Draining, ..Endpoint::at("10.1.0.2", 8080) });
    [
        (
            "weighted",
            endpoints("weighted", [of(vec![weighted(GOOD, 1), weighted("10.1.0.2", 3)])]),
            of_members(&[GOOD, "10.1.0.2"]),
            Some("weights_ignored"),
        ),
        (
            "skipped",
            endpoints(
                "skipped",
                [Locality::of([(GOOD, 8080)]), Locality { zone: Some("zone-2".to_owned()), ..skipped }],
            ),
            of_members(&[GOOD]),
            Some("localities_skipped"),
        ),
        ("more", endpoints("more", [of(vec![more])]), of_members(&[GOOD]), Some("alternatives_ignored")),
        // An absent draining endpoint is never added, so the limit does not matter.
        ("full", endpoints("full", [full]), all, None),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_remark_exists_while_a_limit_of_a_pool_is_exceeded() {
    let plane = control_plane().await;
    let mut plan = Plan::new().await;
    for (name, assignment, ..) in with_diagnostics() {
        plane.set(Kind::Endpoints, name, assignment).await;
        plan = plan.pool(name, &format!("eds:{name}"), &[BEFORE]).await;
    }
    plane.set(Kind::Endpoints, "nothing", endpoints_at("nothing", &[GOOD])).await;
    let env = plan.pool("nothing", "eds:nothing", &[BEFORE]).await.start(&[server(&plane, &[])]).await;
    env.wait_for_members("nothing", &[GOOD]).await;
    let unhealthy = locality(0, &[(GOOD, HealthStatus::Unhealthy), ("10.1.0.2", HealthStatus::Timeout)]);
    plane.set(Kind::Endpoints, "nothing", endpoints("nothing", [unhealthy])).await;

    let has_diagnostic = |pool: &Value, reason: Option<&str>| {
        let diagnostics = pool["diagnostics"].as_array().cloned().unwrap_or_default();
        diagnostics.iter().map(|diagnostic| diagnostic["reason"].as_str()).eq(reason.into_iter().map(Some))
    };
    for (name, _, members, reason) in with_diagnostics() {
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        env.wait_for_members(name, &members).await;
        let pool = env.wait_for_pool(name, |pool| has_diagnostic(pool, reason)).await;
        let is_said =
            |diagnostic: &Value| diagnostic["detail"].as_str().is_some_and(|detail| !detail.is_empty());
        assert!(
            pool["diagnostics"].as_array().is_none_or(|diagnostics| diagnostics.iter().all(is_said)),
            "{pool}"
        );
        assert_eq!(pool["note"], super::stage::NODE_NOTE, "it is no error: {pool}");
    }
    env.wait_for_pool("nothing", |pool| {
        has_diagnostic(pool, Some("nothing_usable")) && pool["held"].is_object()
    })
    .await;
    env.flush_writes().await;
    env.assert_members_and_puts("nothing", &[GOOD], 1).await;
    for (name, ..) in with_diagnostics() {
        assert_eq!(env.puts(name).await, 1, "{name}");
    }

    for name in with_diagnostics().map(|(name, ..)| name).into_iter().chain(["nothing"]) {
        plane.set(Kind::Endpoints, name, endpoints_at(name, &[GOOD])).await;
        env.wait_for_pool(name, |pool| pool["diagnostics"].as_array().is_none_or(Vec::is_empty)).await;
    }
    env.assert_no_logged_errors();
}
