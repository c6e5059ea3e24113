//! Decodes Nodes: addresses, taints, readiness, the labels that may leave the node out of pools (D5), its virtual
//! machine (N2), and the condition that announces an eviction (N1).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use model::ids::{InstanceId, NodeName, NodeUid};
use model::object::{NodeMarks, NodeObject, Preempt, Taint};
use model::signals::says_preempt;
use serde::Deserialize;

use super::preemptions::{age, not_before};
use super::{Meta, named, safe_text, time, unreadable, version, wall_of};

/// Type of the condition that means an eviction and nothing else.
const PREEMPTION: &str = "PreemptionScheduled";

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    spec: Spec<'a>,
    #[serde(borrow, default)]
    status: Status<'a>,
}

#[derive(Deserialize, Default)]
struct Spec<'a> {
    #[serde(borrow, default)]
    taints: Option<Vec<RawTaint<'a>>>,
    #[serde(borrow, default, rename = "providerID")]
    provider_id: Option<Cow<'a, str>>,
}

#[derive(Deserialize, Default)]
struct Status<'a> {
    #[serde(borrow, default)]
    addresses: Option<Vec<Address<'a>>>,
    #[serde(borrow, default)]
    conditions: Option<Vec<Condition<'a>>>,
}

#[derive(Deserialize)]
struct Address<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    address: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    status: Cow<'a, str>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    last_transition_time: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct RawTaint<'a> {
    #[serde(borrow, default)]
    key: Cow<'a, str>,
    #[serde(borrow, default)]
    value: Cow<'a, str>,
    #[serde(borrow, default)]
    effect: Cow<'a, str>,
}

impl RawTaint<'_> {
    fn owned(&self) -> Taint {
        Taint { key: Arc::from(&*self.key), value: Arc::from(&*self.value), effect: Arc::from(&*self.effect) }
    }
}

/// Decodes a Node. `wall` is the time of arrival by the API server's clock.
pub(super) fn node(object: &[u8], wall: Timestamp) -> Result<NodeObject, Arc<str>> {
    let raw: Raw<'_> = serde_json::from_slice(object).map_err(unreadable)?;
    let meta = &raw.metadata;
    let name = named(meta)?;
    let addresses = raw.status.addresses.unwrap_or_default();
    let internal = addresses.iter().filter(|address| address.kind == "InternalIP");
    let internal_ips: Vec<IpAddr> = internal.filter_map(|address| address.address.parse().ok()).collect();
    let mut conditions = raw.status.conditions.unwrap_or_default();
    conditions.retain(|condition| condition.status == "True");
    Ok(NodeObject {
        name: NodeName::new(name),
        uid: NodeUid::new(&*meta.uid),
        resource_version: version(&meta.resource_version),
        internal_ips,
        marks: marks(meta.labels.as_ref()),
        ready: conditions.iter().any(|condition| condition.kind == "Ready"),
        taints: raw.spec.taints.unwrap_or_default().iter().map(RawTaint::owned).collect(),
        instance: raw.spec.provider_id.as_deref().and_then(InstanceId::of_provider_id),
        created: time(meta.created()).map(wall_of),
        preempt: preempt(&conditions, wall),
    })
}

/// Returns the newest eviction notice among the conditions that are True. Conditions whose message announces the
/// eviction take precedence.
fn preempt(conditions: &[Condition<'_>], wall: Timestamp) -> Option<Preempt> {
    let notices = conditions.iter().filter_map(|condition| {
        let message = condition.message.as_deref().unwrap_or_default();
        let is_in_message = says_preempt(message);
        let at = time(condition.last_transition_time.as_deref());
        (is_in_message || condition.kind == PREEMPTION).then_some(((is_in_message, at), message))
    });
    let ((_, at), message) = notices.max_by_key(|(rank, _)| *rank)?;
    Some(Preempt {
        at: at.map(wall_of),
        age: at.map(|at| age(at, wall)),
        not_before: not_before(message, wall),
        message: safe_text(message),
    })
}

/// Returns the labels that may leave a node out of pools.
fn marks(labels: Option<&BTreeMap<String, String>>) -> NodeMarks {
    let label = |key: &str| labels.and_then(|labels| labels.get(key));
    NodeMarks {
        excluded: label("node.kubernetes.io/exclude-from-external-load-balancers").is_some(),
        unmanaged: label("kubernetes.azure.com/managed")
            .is_some_and(|value| value.eq_ignore_ascii_case("false")),
        control_plane: label("node-role.kubernetes.io/control-plane").is_some()
            || label("node-role.kubernetes.io/master").is_some(),
    }
}
