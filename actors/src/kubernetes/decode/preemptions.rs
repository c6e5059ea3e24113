//! Decodes Events that announce evictions (N1), and the times in such a notice, wherever it appears.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use model::ids::{EventKey, NodeName, NodeUid};
use model::object::{NotBefore, PreemptionObject};
use model::signals;
use serde::Deserialize;

use super::{Meta, named, safe_text, time, unreadable, version, wall_of};

/// Reason of these Events.
const REASON: &str = "PreemptScheduled";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    involved_object: Involved<'a>,
    #[serde(borrow, default)]
    reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    first_timestamp: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    last_timestamp: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    event_time: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    series: Option<Series<'a>>,
}

#[derive(Deserialize, Default)]
struct Involved<'a> {
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Series<'a> {
    #[serde(borrow, default)]
    last_observed_time: Option<Cow<'a, str>>,
}

impl Raw<'_> {
    /// Returns when the eviction was last observed. Old writers set `lastTimestamp`, new ones `series`; a single
    /// event of a new writer has only `eventTime`. The creation time counts only if the Event has none of these.
    fn at(&self) -> Option<Timestamp> {
        let observed = self.series.as_ref().and_then(|series| series.last_observed_time.as_deref());
        let (last, first) = (self.last_timestamp.as_deref(), self.first_timestamp.as_deref());
        let times = [last, observed, self.event_time.as_deref(), first];
        times.into_iter().filter_map(time).max().or_else(|| time(self.metadata.created()))
    }
}

/// Decodes an Event about a node with the reason `PreemptScheduled`. `wall` is the time of arrival by the API
/// server's clock.
pub(super) fn preemption(object: &[u8], wall: Timestamp) -> Result<PreemptionObject, Arc<str>> {
    let raw: Raw<'_> = serde_json::from_slice(object).map_err(unreadable)?;
    let (meta, about) = (&raw.metadata, &raw.involved_object);
    let name = named(meta)?;
    if meta.namespace.is_empty() {
        return Err(Arc::from("metadata.namespace is missing"));
    }
    if about.kind != "Node" || about.name.is_empty() {
        return Err(Arc::from("involvedObject names no Node"));
    }
    if raw.reason.as_deref() != Some(REASON) {
        return Err(Arc::from("reason is not PreemptScheduled"));
    }
    let message = raw.message.as_deref().unwrap_or_default();
    let at = raw.at();
    // Node-problem-detectors write the node's name instead of its uid, in the same case or in another one.
    let uid = Some(&*about.uid).filter(|uid| !uid.is_empty() && !uid.eq_ignore_ascii_case(&about.name));
    Ok(PreemptionObject {
        key: EventKey { namespace: Arc::from(&*meta.namespace), name: Arc::from(name) },
        resource_version: version(&meta.resource_version),
        // Names of Nodes are lowercase. Some senders use the name of the virtual machine, which may have capitals.
        node: NodeName::new(about.name.to_ascii_lowercase()),
        uid: uid.map(NodeUid::new),
        at: at.map(wall_of),
        age: at.map(|at| age(at, wall)),
        not_before: not_before(message, wall),
        message: safe_text(message),
    })
}

/// Returns the age of a time at arrival. A time in the future counts as now, because clocks differ.
pub(super) fn age(at: Timestamp, wall: Timestamp) -> Duration {
    Duration::try_from(wall.duration_since(at)).unwrap_or_default()
}

/// Returns the earliest time of the eviction, by the date in a message.
pub(super) fn not_before(message: &str, wall: Timestamp) -> Option<NotBefore> {
    let at = Timestamp::from_microsecond(signals::not_before(message)?.as_micros()).ok()?;
    let ahead = at.duration_since(wall);
    Some(match Duration::try_from(ahead) {
        Ok(ahead) => NotBefore::In(ahead),
        Err(_) => NotBefore::Ago(ahead.unsigned_abs()),
    })
}
