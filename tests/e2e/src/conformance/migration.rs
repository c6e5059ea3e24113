//! Questions about the migration from Basic to Standard load balancers. Azure has retired Basic load balancers, so some
//! questions need an existing one, and some need virtual machines: these are not answered here.

use anyhow::ensure;
use arm::RawAnswer;
use serde_json::{Value, json};

use super::pools::interface;
use super::stage::Stage;
use super::{Finding, How, Question, answered, open, question};
use crate::azure::{describe, is_unknown, operation};

const NEEDS_BASIC: &str = "it needs an existing Basic load balancer; Azure creates none since 2025-09-30";
const NEEDS_SCALE_SET: &str = "it needs a scale set with instances, which this suite does not create";

const fn needs(name: &'static str, about: &'static str, what: &'static str) -> Question {
    Question { name, about, how: How::Needs(what) }
}

pub(super) const QUESTIONS: [Question; 16] = [
    needs(
        "basic-delete-instances",
        "Does the DELETE of a Basic load balancer fail when only instances refer to it?",
        NEEDS_SCALE_SET,
    ),
    needs(
        "basic-delete-interfaces",
        "Does the DELETE of a Basic load balancer succeed while network interfaces refer to it?",
        NEEDS_BASIC,
    ),
    question!(
        "basic-load-balancer",
        "How is the creation of a Basic load balancer answered?",
        basic_load_balancer
    ),
    question!("basic-address", "How is the creation of a Basic public address answered?", basic_address),
    needs(
        "basic-static",
        "Can an attached Basic address change from Dynamic to Static, and how long does the PUT of its SKU take?",
        NEEDS_BASIC,
    ),
    needs(
        "upgraded-address",
        "Which zones and DDoS settings has an address after its upgrade to Standard?",
        NEEDS_BASIC,
    ),
    question!("sku-change", "How is the change of a load balancer's or address's SKU answered?", sku_change),
    question!(
        "private-address",
        "Is a private address free immediately after its load balancer is deleted?",
        private_address
    ),
    question!("basic-ipv6", "How is a static Basic IPv6 address answered?", basic_ipv6),
    needs(
        "instance-put",
        "Does Azure accept a PUT of the network alone for a deallocated, protected or outdated instance?",
        NEEDS_SCALE_SET,
    ),
    needs(
        "upgrade-policy",
        "Does a PUT of a scale set's network alone restart instances under Automatic or Rolling?",
        NEEDS_SCALE_SET,
    ),
    needs("egress-in-the-gap", "Which egress do nodes have between two load balancers?", NEEDS_SCALE_SET),
    question!(
        "address-etag",
        "When does an address's etag change while its load balancer is deleted?",
        address_etag
    ),
    question!(
        "migrate-to-ip-based",
        "How does migrateToIpBased convert a pool of network interfaces?",
        migrate_to_ip_based
    ),
    needs(
        "nat-gateway-delay",
        "Can a NAT gateway be attached as soon as the last Basic resource has left the subnet?",
        NEEDS_BASIC,
    ),
    needs(
        "address-swap",
        "Does the swap of public addresses work from a Basic to a Standard load balancer?",
        NEEDS_BASIC,
    ),
];

/// Returns the finding from the creation of a resource, which is deleted at the end.
fn creation(answer: &RawAnswer) -> anyhow::Result<Finding> {
    if is_unknown(answer) {
        return open("this server has no such resources");
    }
    if answer.status < 300 {
        answered(format!("it is created: HTTP {}", answer.status))
    } else {
        answered(format!("it is refused: {}", describe(answer)))
    }
}

async fn basic_load_balancer(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let body = json!({ "location": stage.azure.location, "sku": { "name": "Basic" }, "properties": {
        "backendAddressPools": [{ "name": "pool" }],
    } });
    creation(&stage.try_create(&format!("loadBalancers/{}-basic", stage.name), body).await?)
}

fn address(stage: &Stage<'_>, sku: &str, method: &str, version: &str) -> Value {
    json!({ "location": stage.azure.location, "sku": { "name": sku }, "properties": {
        "publicIPAllocationMethod": method, "publicIPAddressVersion": version,
    } })
}

async fn basic_address(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let body = address(stage, "Basic", "Dynamic", "IPv4");
    creation(&stage.try_create(&format!("publicIPAddresses/{}-basic", stage.name), body).await?)
}

async fn basic_ipv6(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let body = address(stage, "Basic", "Static", "IPv6");
    creation(&stage.try_create(&format!("publicIPAddresses/{}-basic-ipv6", stage.name), body).await?)
}

async fn sku_change(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let body = json!({ "location": stage.azure.location, "sku": { "name": "Standard" }, "properties": {} });
    let path = format!("loadBalancers/{}-sku", stage.name);
    let made = stage.try_create(&path, body.clone()).await?;
    ensure!(made.status < 300, "a load balancer without frontends is created: {}", describe(&made));
    let mut changed = body;
    changed["sku"]["name"] = json!("Basic");
    let answer = stage.azure.put(&stage.azure.id(&path), changed).await?;
    if answer.status < 300 {
        stage.azure.end(&answer).await?;
    }
    let sku = stage.azure.get(&stage.azure.id(&path)).await?.body["sku"]["name"].clone();
    let mut text = format!("load balancer Standard to Basic: {}, and the GET shows {sku}", describe(&answer));
    if stage.has_addresses {
        let path = format!("publicIPAddresses/{}-sku", stage.name);
        let made = stage.try_create(&path, address(stage, "Standard", "Static", "IPv4")).await?;
        ensure!(made.status < 300, "an address is created: {}", describe(&made));
        let answer =
            stage.azure.put(&stage.azure.id(&path), address(stage, "Basic", "Static", "IPv4")).await?;
        if answer.status < 300 {
            stage.azure.end(&answer).await?;
        }
        text.push_str(&format!("; address Standard to Basic: {}", describe(&answer)));
    }
    answered(text)
}

async fn private_address(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    if !stage.has_networks {
        return open("this server has no virtual networks");
    }
    let (path, ip) = (format!("loadBalancers/{}-internal", stage.name), "10.254.0.250");
    let body = json!({ "location": stage.azure.location, "sku": { "name": "Standard" }, "properties": {
        "frontendIPConfigurations": [{ "name": "frontend", "properties": {
            "subnet": { "id": stage.subnet() }, "privateIPAddress": ip, "privateIPAllocationMethod": "Static",
        } }],
    } });
    let made = stage.try_create(&path, body.clone()).await?;
    ensure!(made.status < 300, "an internal load balancer is created: {}", describe(&made));
    stage.remove(&stage.azure.id(&path)).await?;
    let check = format!("{}/CheckIPAddressAvailability?ipAddress={ip}", stage.network());
    let available = stage.azure.get(&check).await?.body["available"].clone();
    let again = stage.try_create(&path, body).await?;
    answered(format!(
        "right after the delete CheckIPAddressAvailability says available: {available}, and the same load balancer: {}",
        describe(&again)
    ))
}

async fn address_etag(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    if !stage.has_addresses {
        return open("this server has no public addresses");
    }
    let (path, load_balancer) =
        (format!("publicIPAddresses/{}-etag", stage.name), format!("loadBalancers/{}-etag", stage.name));
    let id = stage.azure.id(&path);
    let made = stage.try_create(&path, address(stage, "Standard", "Static", "IPv4")).await?;
    ensure!(made.status < 300, "an address is created: {}", describe(&made));
    let body = json!({ "location": stage.azure.location, "sku": { "name": "Standard" }, "properties": {
        "frontendIPConfigurations": [{ "name": "frontend", "properties": { "publicIPAddress": { "id": id } } }],
    } });
    let made = stage.try_create(&load_balancer, body).await?;
    ensure!(made.status < 300, "a load balancer is created: {}", describe(&made));
    let etag = async || anyhow::Ok(stage.azure.get(&id).await?.body["etag"].clone());
    let attached = etag().await?;
    let answer = stage.azure.delete(&stage.azure.id(&load_balancer)).await?;
    ensure!(answer.status < 300, "DELETE of a load balancer: {}", describe(&answer));
    let accepted = etag().await?;
    stage.azure.end(&answer).await?;
    let ended = etag().await?;
    answered(match (attached == accepted, accepted == ended) {
        (true, true) => "it does not change",
        (true, false) => "after the answer to the DELETE, at the end of its operation at the latest",
        (false, true) => "with the answer to the DELETE",
        (false, false) => "with the answer to the DELETE, and once more until the end of its operation",
    })
}

async fn migrate_to_ip_based(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    if interface(stage).await?.is_none() {
        return open("this server has no network interfaces");
    }
    let target = format!("{}/migrateToIpBased", stage.load_balancer());
    let answer = stage.azure.post(&target, json!({ "pools": ["interfaces"] })).await?;
    if is_unknown(&answer) {
        return open("this server has no such request");
    }
    if answer.status >= 300 {
        return answered(format!("it is refused: {}", describe(&answer)));
    }
    let with = if operation(&answer).is_some() { "with" } else { "without" };
    stage.azure.end(&answer).await?;
    stage.at_rest().await?;
    let pool = stage.read("interfaces").await?;
    let count = |field: &str| pool["properties"][field].as_array().map_or(0, Vec::len);
    answered(format!(
        "HTTP {} {with} the address of an operation, {}; afterwards the pool has {} network interfaces and {} addresses",
        answer.status,
        answer.body,
        count("backendIPConfigurations"),
        count("loadBalancerBackendAddresses")
    ))
}
