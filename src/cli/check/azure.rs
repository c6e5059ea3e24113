//! Checks ARM by reads only: endpoint, token, load balancers, clock, permissions and locks.

use std::collections::BTreeMap;
use std::sync::Arc;

use actors::clock::Clock;
use arm::{Client, Query, QueryResult};
use config::{Config, Identity, Login};
use model::arm::{Failure, FailureKind, RetryAfter};
use model::ids::LbName;
use serde_json::Value;

use super::access::{self, Grants, Lock};
use super::clocks::{self, Exchange};
use super::finding::{Check, Findings};
use crate::cli::api_server::http_date;
use crate::cli::observe::named;
use crate::cli::remedy;
use crate::wiring::params;

/// Maximum pages of one list that are read.
const MAX_PAGES: usize = 50;

/// Runs all checks of ARM; returns the number of managed load balancers that were read.
pub(super) async fn check_azure(
    client: &Client,
    config: &Config,
    clock: Clock,
    findings: &mut Findings,
) -> Option<usize> {
    endpoints(config, findings);
    let balancers = load_balancers(client, config, clock, findings).await?;
    let cloud = &config.cloud;
    let (subscription, group) = (cloud.network_subscription(), cloud.load_balancer_resource_group());
    let group = format!("/subscriptions/{subscription}/resourceGroups/{group}");
    // Permissions on a single load balancer are listed only there.
    let scopes = if balancers.is_empty() { vec![group.clone()] } else { balancers.clone() };
    permissions(client, &scopes, findings).await;
    network(client, config, findings).await;
    locks(client, &group, &balancers, findings).await;
    Some(balancers.len())
}

fn endpoints(config: &Config, findings: &mut Findings) {
    let arm = config.cloud.arm_endpoint();
    let tokens = match (&config.identity, &config.login) {
        (Identity::Anonymous, _) => "without tokens".to_owned(),
        (Identity::Managed(_), _) => "tokens come from the instance metadata service".to_owned(),
        (
            Identity::WorkloadIdentity { .. }
            | Identity::ClientSecret { .. }
            | Identity::ClientCertificate { .. },
            Login::Known { authority_host, .. },
        ) => format!("tokens come from {authority_host}"),
        (
            Identity::WorkloadIdentity { .. }
            | Identity::ClientSecret { .. }
            | Identity::ClientCertificate { .. },
            Login::Metadata { document, authority_host, .. },
        ) => match authority_host {
            Some(host) => format!("tokens come from {host}, for the audience in {document}"),
            None => format!("tokens come from the endpoint in {document}"),
        },
    };
    findings.ok(Check::Endpoints, format!("ARM is {arm}; {tokens}"));
}

/// Returns the ids of the managed load balancers that exist; `None` if ARM does not answer.
async fn load_balancers(
    client: &Client,
    config: &Config,
    clock: Clock,
    findings: &mut Findings,
) -> Option<Vec<String>> {
    let names: Vec<String> = params::load_balancers(config).iter().map(ToString::to_string).collect();
    let (mut existing, mut absent, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    let mut last_not_found: Option<Failure> = None;
    for (number, name) in names.iter().enumerate() {
        let sent = clock.wall();
        let QueryResult { text, date } = client.query(&Query::LoadBalancer(LbName::new(name.as_str()))).await;
        if number == 0 && !token(config, text.as_ref().err(), findings) {
            return None;
        }
        if number == 0 {
            let exchange = Exchange { sent, received: clock.wall() };
            let means = "tokens seem expired or not yet valid, and dates in Retry-After are misinterpreted";
            let date = date.as_deref().and_then(http_date);
            clocks::check_clock(Check::ArmClock, "ARM", exchange, date, means, findings);
        }
        match text {
            Ok(text) => match Balancer::of(name, &text) {
                Some(balancer) => {
                    existing.push(balancer.description);
                    ids.push(balancer.id);
                }
                None => unreadable(name, &undecodable("it is not a load balancer"), findings),
            },
            Err(failure) if failure.kind == FailureKind::Status(404) && failure.code.is_some() => {
                absent.push(name.as_str());
                last_not_found = Some(failure);
            }
            Err(failure) => unreadable(name, &failure, findings),
        }
    }
    report_balancers(config, &existing, &absent, last_not_found.as_ref(), findings);
    Some(ids)
}

/// Reports whether ARM accepts the token, and returns whether it answers.
fn token(config: &Config, failure: Option<&Failure>, findings: &mut Findings) -> bool {
    let identity = config.identity.name();
    let reason = failure.map(ToString::to_string).unwrap_or_default();
    let means = "no load balancer can be read or written";
    match failure.map(|failure| failure.kind) {
        Some(FailureKind::Credential) => {
            let what = format!("no token for the identity {identity}: {reason}");
            let remedy = "check the identity's ids, its secret, certificate or token file, and the network to the token \
                          endpoint (see endpoints)";
            findings.problem(Check::Token, what, means, remedy);
            false
        }
        Some(FailureKind::Status(401)) => {
            let what = format!("ARM refuses the token of the identity {identity}: {reason}");
            let remedy = "check that the tenant is the subscription's, and that cloud or resourceManagerEndpoint name the \
                          subscription's cloud";
            findings.problem(Check::Token, what, means, remedy);
            false
        }
        Some(
            FailureKind::NotConnected | FailureKind::Connection | FailureKind::Timeout | FailureKind::Refused,
        ) => {
            let what = format!("ARM at {} does not answer: {reason}", config.cloud.arm_endpoint());
            let remedy = "check resourceManagerEndpoint, the proxy variables, firewalls and name resolution";
            findings.problem(Check::Token, what, means, remedy);
            false
        }
        None
        | Some(
            FailureKind::Status(_)
            | FailureKind::Undecodable(_)
            | FailureKind::Operation
            | FailureKind::PermitExpired
            | FailureKind::GateClosed,
        ) => {
            findings.ok(Check::Token, format!("ARM answers the identity {identity}"));
            true
        }
    }
}

fn unreadable(name: &str, reason: &Failure, findings: &mut Findings) {
    let means = "its pools are not written";
    let remedy =
        remedy::of_read(reason, "grant Microsoft.Network/loadBalancers/read on it or on its resource group");
    let what = format!("load balancer {name} cannot be read: {reason}");
    findings.problem(Check::LoadBalancers, what, means, remedy);
}

fn report_balancers(
    config: &Config,
    existing: &[String],
    absent: &[&str],
    not_found: Option<&Failure>,
    findings: &mut Findings,
) {
    let (group, subscription) =
        (config.cloud.load_balancer_resource_group(), config.cloud.network_subscription());
    let absent = absent.join(", ");
    if !existing.is_empty() {
        let rest = if absent.is_empty() { String::new() } else { format!("; absent: {absent}") };
        return findings.ok(Check::LoadBalancers, format!("{}{rest}", existing.join(", ")));
    }
    let Some(not_found) = not_found else { return };
    let what = format!(
        "no managed load balancer exists: {absent} were not found in resource group {group} of subscription \
         {subscription}: {not_found}"
    );
    let means = "there is no pool to write";
    let remedy = "check loadBalancerResourceGroup, resourceGroup, networkResourceSubscriptionID, loadBalancerName, \
                  multipleStandardLoadBalancerConfigurations and clusterName; none if no Service has a load balancer yet";
    match not_found.code.as_deref() {
        Some("ResourceGroupNotFound" | "SubscriptionNotFound") => {
            findings.problem(Check::LoadBalancers, what, means, remedy);
        }
        Some(_) | None => findings.warning(Check::LoadBalancers, what, means, remedy),
    }
}

/// A load balancer that exists.
struct Balancer {
    id: String,
    description: String,
}

impl Balancer {
    fn of(name: &str, text: &str) -> Option<Balancer> {
        let body: Value = serde_json::from_str(text).ok()?;
        let id = body["id"].as_str()?.to_owned();
        let pools = body["properties"]["backendAddressPools"].as_array().map_or(0, Vec::len);
        let state = body["properties"]["provisioningState"].as_str().unwrap_or("unknown");
        let state =
            if state.eq_ignore_ascii_case("Succeeded") { String::new() } else { format!(", {state}") };
        Some(Balancer { id, description: format!("{name} ({pools} pools{state})") })
    }
}

async fn permissions(client: &Client, scopes: &[String], findings: &mut Findings) {
    let mut missing: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for scope in scopes {
        let grants = match list(client, Query::Permissions(scope.clone())).await {
            Ok(entries) => Grants::of(&entries),
            Err(failure) => return unknown(Check::Permissions, &failure, "permissions", findings),
        };
        for need in access::NEEDS.iter().filter(|need| !grants.allow(need.action)) {
            missing.entry(need.action).or_default().push(scope.clone());
        }
    }
    for need in &access::NEEDS {
        let Some(scopes) = missing.get(need.action) else { continue };
        let what = format!("the identity may not {} on {}", need.action, named(scopes.clone()));
        let remedy = "assign a role with this action, such as Network Contributor, on the resource group";
        if need.vital {
            findings.problem(Check::Permissions, what, need.without, remedy);
        } else {
            findings.warning(Check::Permissions, what, need.without, remedy);
        }
    }
    if missing.is_empty() {
        let what =
            format!("the identity has all {} permissions on {} scopes", access::NEEDS.len(), scopes.len());
        findings.ok(Check::Permissions, what);
    }
}

async fn network(client: &Client, config: &Config, findings: &mut Findings) {
    let check = Check::NetworkPermissions;
    let Some(network) = config.cloud.vnet_id() else {
        return findings.ok(check, "vnetName is not set: pools keep their virtual networks");
    };
    match list(client, Query::Permissions(network.clone())).await {
        Ok(entries) if Grants::of(&entries).allow(access::JOIN) => {
            findings.ok(check, format!("the identity may join load balancers to {network}"));
        }
        Ok(_) => {
            let what = format!("the identity may not {} on {network}", access::JOIN);
            let means = "Azure refuses every PUT of a pool with addresses in that network (LinkedAuthorizationFailed)";
            let remedy =
                "assign a role with this action, such as Network Contributor, on the virtual network";
            findings.problem(check, what, means, remedy);
        }
        Err(failure) => unknown(check, &failure, "permissions", findings),
    }
}

async fn locks(client: &Client, group: &str, balancers: &[String], findings: &mut Findings) {
    let mut locks = Vec::new();
    for query in [Query::Locks(group.to_owned()), Query::LocksAbove(group.to_owned())] {
        match list(client, query).await {
            Ok(entries) => locks.extend(entries.iter().filter_map(Lock::of)),
            Err(failure) => return unknown(Check::Locks, &failure, "locks", findings),
        }
    }
    locks.sort();
    locks.dedup();
    let blocks_writes = |lock: &&Lock| {
        let of_balancer = |id: &String| lock.is_above(id) || lock.is_within(id);
        lock.is_read_only() && (lock.is_above(group) || balancers.iter().any(of_balancer))
    };
    let read_only: Vec<&Lock> = locks.iter().filter(blocks_writes).collect();
    for lock in &read_only {
        let what = format!("the lock {} on {} is ReadOnly", lock.name, lock.scope);
        let means = "Azure refuses every write there and below with 409 ScopeLocked";
        findings.problem(Check::Locks, what, means, "delete the lock, or make it CanNotDelete");
    }
    if read_only.is_empty() {
        findings.ok(Check::Locks, format!("no lock of {} forbids writes of pools", locks.len()));
    }
}

fn unknown(check: Check, failure: &Failure, what: &str, findings: &mut Findings) {
    let means = "the check could not determine whether pools can be written";
    let grant = format!("grant Microsoft.Authorization/{what}/read, or check it in the portal");
    let remedy = remedy::of_read(failure, &grant);
    findings.warning(check, format!("{what} cannot be listed: {failure}"), means, remedy);
}

/// Returns the failure for a successful answer with unexpected content.
fn undecodable(reason: &str) -> Failure {
    Failure {
        kind: FailureKind::Undecodable(200),
        code: None,
        inner_codes: Vec::new(),
        message: Arc::from(reason),
        retry_after: RetryAfter::Absent,
        correlation_id: None,
    }
}

/// Returns the entries of all pages of a list; fails if any page is missing.
async fn list(client: &Client, first: Query) -> Result<Vec<Value>, Failure> {
    let (mut entries, mut next) = (Vec::new(), Some(first));
    for _ in 0..MAX_PAGES {
        let Some(query) = next.take() else { break };
        let text = client.query(&query).await.text?;
        let (more, link) = page(&text).ok_or_else(|| undecodable("it is not a list"))?;
        entries.extend(more);
        next = link.map(Query::Next);
        if next.is_none() {
            return Ok(entries);
        }
    }
    Err(undecodable("it has too many pages"))
}

/// Returns the entries of one page, and the address of the next one.
fn page(text: &str) -> Option<(Vec<Value>, Option<String>)> {
    let mut page: Value = serde_json::from_str(text).ok()?;
    let Value::Array(entries) = page.get_mut("value")?.take() else { return None };
    let next = page["nextLink"].as_str().filter(|link| !link.is_empty());
    Some((entries, next.map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_no_list_is_not_an_empty_one() {
        for text in ["", "<html>", "[]", "{}", r#"{"value":{}}"#, r#"{"value":null}"#] {
            assert_eq!(page(text), None, "{text}");
        }
        assert_eq!(page(r#"{"value":[],"nextLink":""}"#), Some((Vec::new(), None)));
        let next = Some("https://arm/next".to_owned());
        assert_eq!(
            page(r#"{"value":[1],"nextLink":"https://arm/next"}"#),
            Some((vec![Value::from(1)], next))
        );
    }
}
