//! Questions about the fields that a pool accepts, keeps and refuses.

use std::collections::BTreeSet;

use anyhow::ensure;
use serde_json::{Value, json};

use super::stage::{Stage, addresses};
use super::{Finding, Question, answered, open, question, turns};
use crate::azure::{describe, is_unknown, operation};

pub(super) const QUESTIONS: [Question; 8] = [
    question!("if-match", "Is If-Match enforced on pools?", if_match),
    question!("unchanged-write", "How is a PUT answered that changes nothing?", unchanged),
    question!("echo", "Which fields of a pool and of its addresses are echoed?", echo),
    question!(
        "absent-array",
        "Which members remain after a PUT without an array of addresses?",
        absent_array
    ),
    question!("most-addresses", "Is a pool of more than 1000 addresses refused?", most_addresses),
    question!(
        "down-beside-outbound-rule",
        "Is adminState Down accepted in a pool that an outbound rule uses?",
        down_outbound
    ),
    question!("nic-admin-state", "Is adminState Down accepted in a NIC-based pool?", down_interfaces),
    question!("delete", "How is the DELETE of a pool answered?", delete),
];

async fn if_match(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    stage.write("first", stage.members(&[&stage.fresh()])).await?;
    stage.at_rest().await?;
    let stale = "W/\"00000000-0000-0000-0000-000000000000\"";
    let body = stage.members(&[&stage.fresh()]);
    let answer = stage.azure.put_if_match(&stage.pool("first"), body, stale).await?;
    if answer.status == 412 {
        return turns("enforceIfMatch", true, format!("yes: {}", describe(&answer)));
    }
    stage.azure.done("the write with a wrong etag", &answer).await?;
    turns("enforceIfMatch", false, format!("no: a wrong etag is answered HTTP {}", answer.status))
}

async fn unchanged(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let body = stage.members(&[&stage.fresh()]);
    stage.write("first", body.clone()).await?;
    let before = stage.at_rest().await?["etag"].clone();
    let answer = stage.write("first", body).await?;
    let after = stage.at_rest().await?["etag"].clone();
    let state = &answer.body["properties"]["provisioningState"];
    let with = if operation(&answer).is_some() { "with" } else { "without" };
    let etag = if before == after { "the same etag" } else { "another etag" };
    answered(format!(
        "HTTP {}, {state}, {with} the address of an operation, {etag} afterwards",
        answer.status
    ))
}

/// Returns the names in an object.
fn names(value: &Value) -> BTreeSet<&str> {
    value.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

async fn echo(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let ip = stage.fresh();
    let mut body = stage.members(&[&ip]);
    body["properties"]["drainPeriodInSeconds"] = json!(30);
    body["properties"]["loadBalancerBackendAddresses"][0]["name"] = json!("a-name-of-its-own");
    body["properties"]["loadBalancerBackendAddresses"][0]["properties"]["adminState"] = json!("None");
    stage.write("first", body).await?;
    stage.at_rest().await?;
    let pool = stage.read("first").await?;
    let member = &pool["properties"]["loadBalancerBackendAddresses"][0];
    ensure!(member.is_object(), "the pool has no member: {pool}");
    let resource = ["id", "etag", "type"].iter().all(|field| member[*field].is_string())
        && member["properties"]["provisioningState"].is_string();
    let text = format!(
        "pool {:?}, its properties {:?}; address {:?}, its properties {:?}, name {}",
        names(&pool),
        names(&pool["properties"]),
        names(member),
        names(&member["properties"]),
        member["name"]
    );
    turns("addressResourceFields", resource, text)
}

async fn absent_array(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let ip = stage.fresh();
    stage.write("first", stage.members(&[&ip])).await?;
    stage.at_rest().await?;
    let body = json!({ "properties": { "virtualNetwork": { "id": stage.network() } } });
    let answer = stage.azure.put(&stage.pool("first"), body).await?;
    if answer.status >= 300 {
        return answered(format!("the PUT is refused: {}", describe(&answer)));
    }
    stage.azure.done("the write without addresses", &answer).await?;
    stage.at_rest().await?;
    let left = addresses(&stage.read("first").await?).len();
    answered(if left == 0 { "they are removed" } else { "they stay" })
}

async fn most_addresses(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let ips: Vec<String> = (0..1001_u32).map(|n| format!("10.254.{}.{}", 1 + n / 250, 1 + n % 250)).collect();
    let body = stage.members(&ips.iter().map(String::as_str).collect::<Vec<_>>());
    let answer = stage.azure.put(&stage.pool("second"), body).await?;
    if answer.status >= 300 {
        return answered(format!("yes: {}", describe(&answer)));
    }
    stage.azure.done("the write of 1001 addresses", &answer).await?;
    stage.write("second", stage.members(&[])).await?;
    answered("no: 1001 addresses are accepted")
}

async fn down_outbound(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let ip = stage.fresh();
    stage.write("outbound", stage.members(&[&ip])).await?;
    stage.at_rest().await?;
    let mut body = stage.members(&[&ip]);
    body["properties"]["loadBalancerBackendAddresses"][0]["properties"]["adminState"] = json!("Down");
    let answer = stage.azure.put(&stage.pool("outbound"), body).await?;
    if answer.status >= 300 {
        let text =
            format!("no: {}; the simulated ARM accepts it and has no setting for that", describe(&answer));
        return answered(text);
    }
    stage.azure.done("the write of Down", &answer).await?;
    stage.at_rest().await?;
    let pool = stage.read("outbound").await?;
    let shown = &pool["properties"]["loadBalancerBackendAddresses"][0]["properties"]["adminState"];
    stage.write("outbound", stage.members(&[])).await?;
    answered(format!("yes: HTTP {}, and the GET shows {shown}", answer.status))
}

/// Creates a network interface in the pool `interfaces`; `None`: the server has none.
pub(super) async fn interface(stage: &Stage<'_>) -> anyhow::Result<Option<()>> {
    if !stage.has_networks {
        return Ok(None);
    }
    let body = json!({
        "location": stage.azure.location,
        "properties": { "ipConfigurations": [{ "name": "ipconfig", "properties": {
            "primary": true, "subnet": { "id": stage.subnet() },
            "loadBalancerBackendAddressPools": [{ "id": stage.pool("interfaces") }],
        } }] },
    });
    let made = stage.try_create(&format!("networkInterfaces/{}", stage.name), body).await?;
    if is_unknown(&made) {
        return Ok(None);
    }
    ensure!(made.status < 300, "the network interface is created: {}", describe(&made));
    stage.at_rest().await?;
    Ok(Some(()))
}

async fn down_interfaces(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    if interface(stage).await?.is_none() {
        return open("this server has no network interfaces");
    }
    let mut pool = stage.read("interfaces").await?;
    let member = &mut pool["properties"]["loadBalancerBackendAddresses"][0]["properties"];
    if !member.is_object() {
        return open("the pool does not list its network interface among its addresses");
    }
    member["adminState"] = json!("Down");
    let answer = stage.azure.put(&stage.pool("interfaces"), pool).await?;
    if answer.status >= 300 {
        return turns("nicAdminState", "refuse", format!("no: {}", describe(&answer)));
    }
    stage.azure.done("the write of Down", &answer).await?;
    stage.at_rest().await?;
    let pool = stage.read("interfaces").await?;
    let shown = &pool["properties"]["loadBalancerBackendAddresses"][0]["properties"]["adminState"];
    turns("nicAdminState", "allow", format!("yes: HTTP {}, and the GET shows {shown}", answer.status))
}

async fn delete(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let made = stage.azure.put(&stage.pool("deleted"), stage.members(&[])).await?;
    stage.azure.done("the pool is created", &made).await?;
    stage.at_rest().await?;
    let answer = stage.azure.delete(&stage.pool("deleted")).await?;
    ensure!(answer.status < 300, "DELETE of a pool: {}", describe(&answer));
    let headers = ["azure-asyncoperation", "location", "retry-after"];
    let there: Vec<&str> = headers.into_iter().filter(|name| answer.headers.contains_key(*name)).collect();
    stage.azure.end(&answer).await?;
    answered(format!("creation HTTP {}; deletion HTTP {} with {there:?}", made.status, answer.status))
}
