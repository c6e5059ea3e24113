//! Checks the API server, its clock, both Leases, and our ConfigMap.

use actors::clock::Clock;
use actors::kubernetes::{LeaseNames, NamespacedName, deployment_named};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use writer::FOREIGN_HOLD;

use super::clocks::{self, Exchange};
use super::finding::{Check, Findings};
use super::{notes, rights};
use crate::cli::api_server::ApiServer;

/// The holder identity of the cloud-controller-manager in the shared Lease.
const CLOUD_CONTROLLER_MANAGER: &str = "cloud-controller-manager";

/// The effect of an API server that does not answer.
pub(super) const UNREACHABLE: &str = "the controller cannot read the cluster, so it writes nothing";

/// Runs all checks of Kubernetes; returns whether the API server answers.
pub(super) async fn check_kubernetes(
    server: &ApiServer,
    leases: &LeaseNames,
    clock: Clock,
    findings: &mut Findings,
) -> bool {
    let sent = clock.wall();
    let version = match server.get("/version").await {
        Ok(answer) if answer.status.is_success() => answer,
        Ok(answer) => {
            let what = format!("the API server refuses the request: {}", answer.failure_text());
            let remedy = "check the user, its token or certificate of the kubeconfig's current-context";
            findings.problem(Check::ApiServer, what, UNREACHABLE, remedy);
            return false;
        }
        Err(reason) => {
            let what = format!("the API server does not answer: {reason}");
            let remedy =
                "check --kubeconfig, its current-context, and the network between here and the API server";
            findings.problem(Check::ApiServer, what, UNREACHABLE, remedy);
            return false;
        }
    };
    let exchange = Exchange { sent, received: clock.wall() };
    let git_version = version.body["gitVersion"].as_str().unwrap_or("of an unknown version");
    findings.ok(Check::ApiServer, format!("Kubernetes {git_version} answers"));
    let means = "machines with different clocks read the times in both Leases: a valid hold may seem expired, and two \
                 clients may write at the same time";
    clocks::check_clock(Check::ApiServerClock, "the API server", exchange, version.date, means, findings);
    let deployment = deployment_named(|name| std::env::var(name).ok());
    let objects = rights::Objects { leases, deployment: deployment.as_ref() };
    rights::check_rights(server, &objects, findings).await;
    shared_lease(server, &leases.shared, clock, findings).await;
    own_objects(server, &leases.own, clock, findings).await;
    true
}

async fn shared_lease(server: &ApiServer, name: &NamespacedName, clock: Clock, findings: &mut Findings) {
    let check = Check::SharedLease;
    let means = "concurrent writes of the cloud-controller-manager and this controller to one load balancer may be lost";
    let lease = match read(server, &lease_path(name)).await {
        Ok(Some(lease)) => lease,
        Ok(None) => {
            let what =
                format!("the Lease {name} does not exist: no cloud-controller-manager has taken it yet");
            let remedy = "none in a new cluster, because the controller creates it; otherwise check lease.namespace and \
                          lease.name, and that this cloud-controller-manager takes the Lease before it writes";
            return findings.warning(check, what, means, remedy);
        }
        Err(reason) => {
            let what = format!("the Lease {name} cannot be read: {reason}");
            return findings.warning(check, what, "its holder is not known", "see the finding about rights");
        }
    };
    let duration = SignedDuration::try_from(FOREIGN_HOLD).expect("minutes");
    let holder = Holder::of(&lease, clock.wall(), Some(duration));
    let component = reporting::events::COMPONENT;
    match &holder {
        None => findings.ok(check, format!("no process holds the Lease {name}")),
        Some(Holder { holder, state, .. })
            if holder.eq_ignore_ascii_case(CLOUD_CONTROLLER_MANAGER)
                || holder.eq_ignore_ascii_case(component) =>
        {
            findings.ok(check, format!("{holder} holds the Lease {name}, {state}"));
        }
        Some(Holder { holder, state, expired }) => {
            let what = format!("the unknown client {holder:?} holds the Lease {name}, {state}");
            let remedy = "find out which client that is; AKS's own components may take the Lease for a while";
            let means = if *expired {
                "nothing: the hold has expired"
            } else {
                "nothing is written until that hold ends"
            };
            findings.warning(check, what, means, remedy);
        }
    }
}

async fn own_objects(server: &ApiServer, name: &NamespacedName, clock: Clock, findings: &mut Findings) {
    let config_map = format!("/api/v1/namespaces/{}/configmaps/{}", name.namespace, name.name);
    let (lease, config_map) = match (read(server, &lease_path(name)).await, read(server, &config_map).await) {
        (Ok(lease), Ok(config_map)) => (lease, config_map),
        (Err(reason), _) | (_, Err(reason)) => {
            let what = format!("the controller's Lease or ConfigMap {name} cannot be read: {reason}");
            let means = "the check could not determine whether a controller is already running";
            return findings.warning(Check::OwnObjects, what, means, "see the finding about rights");
        }
    };
    let leader = lease.and_then(|lease| Holder::of(&lease, clock.wall(), None));
    let leads = match leader {
        None => "no controller leads".to_owned(),
        Some(Holder { holder, state, .. }) => format!("{holder} leads, {state}"),
    };
    findings.ok(Check::OwnObjects, format!("{name}: {leads}"));
    if let Some(config_map) = config_map {
        notes::check_notes(config_map, name, clock, findings);
    }
}

fn lease_path(name: &NamespacedName) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}", name.namespace, name.name)
}

/// Reads an object; `None` if it does not exist.
async fn read(server: &ApiServer, path: &str) -> Result<Option<Value>, String> {
    let answer = server.get(path).await?;
    match answer.status {
        StatusCode::NOT_FOUND => Ok(None),
        status if status.is_success() => Ok(Some(answer.body)),
        _ => Err(answer.failure_text()),
    }
}

/// The holder of a Lease.
struct Holder {
    holder: String,
    /// Description of its last renewal.
    state: String,
    expired: bool,
}

impl Holder {
    fn of(lease: &Value, now: Timestamp, duration: Option<SignedDuration>) -> Option<Holder> {
        let spec = &lease["spec"];
        let holder = spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?.to_owned();
        let seconds = spec["leaseDurationSeconds"].as_i64().unwrap_or(0);
        let duration = duration.unwrap_or(SignedDuration::from_secs(seconds));
        let renewed: Option<Timestamp> = spec["renewTime"].as_str().and_then(|time| time.parse().ok());
        let Some(renewed) = renewed else {
            return Some(Holder { holder, state: "without a time of renewal".to_owned(), expired: true });
        };
        let age = renewed.duration_until(now);
        let expired = age > duration;
        let validity = if expired { "expired" } else { "in force" };
        Some(Holder { holder, state: format!("renewed {} s ago, {validity}", age.as_secs()), expired })
    }
}
