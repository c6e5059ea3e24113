//! The API server, its clock, the two Leases, and whether our ConfigMap can be read.

use actors::clock::Clock;
use actors::kubernetes::{Place, Places, deployment_named};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use writer::FOREIGN_HOLD;

use super::clocks::{self, Exchange};
use super::finding::{Check, Findings};
use super::{notes, rights};
use crate::cli::api_server::ApiServer;

/// What the cloud-controller-manager calls itself in the shared Lease.
const CLOUD_CONTROLLER_MANAGER: &str = "cloud-controller-manager";

/// What it means that the API server tells us nothing.
pub(super) const UNREACHABLE: &str = "nothing is known of the cluster, so nothing is written";

/// Looks at all of it; says whether the API server answers.
pub(super) async fn look(server: &ApiServer, places: &Places, clock: Clock, findings: &mut Findings) -> bool {
    let sent = clock.wall();
    let version = match server.get("/version").await {
        Ok(answer) if answer.status.is_success() => answer,
        Ok(answer) => {
            let what = format!("the API server refuses us: {}", answer.words());
            let remedy = "check the user, its token or certificate of the kubeconfig's current-context";
            findings.problem(Check::ApiServer, what, UNREACHABLE, remedy);
            return false;
        }
        Err(why) => {
            let what = format!("the API server does not answer: {why}");
            let remedy =
                "check --kubeconfig, its current-context, and the network between here and the API server";
            findings.problem(Check::ApiServer, what, UNREACHABLE, remedy);
            return false;
        }
    };
    let exchange = Exchange { sent, received: clock.wall() };
    let said = version.body["gitVersion"].as_str().unwrap_or("of an unknown version");
    findings.ok(Check::ApiServer, format!("Kubernetes {said} answers"));
    let means = "the times in both Leases are written by one machine and read by another: a hold may look expired that \
                 is not, and two may write at once";
    clocks::judge(Check::ApiServerClock, "the API server", exchange, version.date, means, findings);
    let deployment = deployment_named(|name| std::env::var(name).ok());
    let objects = rights::Objects { places, deployment: deployment.as_ref() };
    rights::look(server, &objects, findings).await;
    shared_lease(server, &places.shared, clock, findings).await;
    own_objects(server, &places.own, clock, findings).await;
    true
}

async fn shared_lease(server: &ApiServer, place: &Place, clock: Clock, findings: &mut Findings) {
    let check = Check::SharedLease;
    let means = "writes of the cloud-controller-manager and ours may meet on one load balancer, and one of them is lost";
    let lease = match read(server, &lease_path(place)).await {
        Ok(Some(lease)) => lease,
        Ok(None) => {
            let what =
                format!("the Lease {place} does not exist: no cloud-controller-manager has taken it yet");
            let remedy = "nothing in a new cluster, the controller creates it; else check lease.namespace and lease.name, \
                          and that the cloud-controller-manager is one that takes this Lease before it writes";
            return findings.warning(check, what, means, remedy);
        }
        Err(why) => {
            let what = format!("the Lease {place} cannot be read: {why}");
            return findings.warning(
                check,
                what,
                "it is not known who holds it",
                "see the finding about rights",
            );
        }
    };
    let lasts = SignedDuration::try_from(FOREIGN_HOLD).expect("minutes");
    let holder = Holder::of(&lease, clock.wall(), Some(lasts));
    let ours = reporting::events::COMPONENT;
    match &holder {
        None => findings.ok(check, format!("no process holds the Lease {place}")),
        Some(Holder { name, words, .. })
            if name.eq_ignore_ascii_case(CLOUD_CONTROLLER_MANAGER) || name.eq_ignore_ascii_case(ours) =>
        {
            findings.ok(check, format!("{name} holds the Lease {place}, {words}"));
        }
        Some(Holder { name, words, expired }) => {
            let what =
                format!("the Lease {place} is held by {name:?}, {words}, whom this controller does not know");
            let remedy = "find out who that is; AKS's own components may take it for a while";
            let means = if *expired {
                "nothing: the hold has expired"
            } else {
                "nothing is written until that hold ends"
            };
            findings.warning(check, what, means, remedy);
        }
    }
}

async fn own_objects(server: &ApiServer, place: &Place, clock: Clock, findings: &mut Findings) {
    let map = format!("/api/v1/namespaces/{}/configmaps/{}", place.namespace, place.name);
    let (lease, map) = match (read(server, &lease_path(place)).await, read(server, &map).await) {
        (Ok(lease), Ok(map)) => (lease, map),
        (Err(why), _) | (_, Err(why)) => {
            let what = format!("our own Lease or ConfigMap {place} cannot be read: {why}");
            let means = "it is not known whether a controller runs already";
            return findings.warning(Check::OwnObjects, what, means, "see the finding about rights");
        }
    };
    let leader = lease.and_then(|lease| Holder::of(&lease, clock.wall(), None));
    let leads = match leader {
        None => "no controller leads".to_owned(),
        Some(Holder { name, words, .. }) => format!("{name} leads, {words}"),
    };
    findings.ok(Check::OwnObjects, format!("{place}: {leads}"));
    if let Some(map) = map {
        notes::look(map, place, clock, findings);
    }
}

fn lease_path(place: &Place) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}", place.namespace, place.name)
}

/// An object; `None`: there is none.
async fn read(server: &ApiServer, path: &str) -> Result<Option<Value>, String> {
    let answer = server.get(path).await?;
    match answer.status {
        StatusCode::NOT_FOUND => Ok(None),
        status if status.is_success() => Ok(Some(answer.body)),
        _ => Err(answer.words()),
    }
}

/// Who holds a Lease.
struct Holder {
    name: String,
    /// Since when and whether still, in words.
    words: String,
    expired: bool,
}

impl Holder {
    fn of(lease: &Value, now: Timestamp, lasts: Option<SignedDuration>) -> Option<Holder> {
        let spec = &lease["spec"];
        let name = spec["holderIdentity"].as_str().filter(|name| !name.is_empty())?.to_owned();
        let seconds = spec["leaseDurationSeconds"].as_i64().unwrap_or(0);
        let lasts = lasts.unwrap_or(SignedDuration::from_secs(seconds));
        let renewed: Option<Timestamp> = spec["renewTime"].as_str().and_then(|time| time.parse().ok());
        let Some(renewed) = renewed else {
            return Some(Holder { name, words: "without a time of renewal".to_owned(), expired: true });
        };
        let age = renewed.duration_until(now);
        let expired = age > lasts;
        let end = if expired { "and so no longer" } else { "still" };
        Some(Holder { name, words: format!("renewed {} s ago, {end} in force", age.as_secs()), expired })
    }
}
