//! Events as client-go's recorder sends them: one POST, then a PATCH of the count for each repeat, limited by the
//! spam filter. Unlike client-go, it does not retry refused requests.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::call::Verb;
use super::facts::{Key, Service};
use super::wall;

/// Burst of events of one source about one object, and the interval at which one more is allowed, in microseconds.
const BURST: u64 = 25;
const REFILL_US: u64 = 300_000_000;

/// Component that reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// The service controller.
    Controller,
    /// The updater.
    Provider,
}

impl Source {
    fn word(self) -> &'static str {
        match self {
            Self::Controller => "service-controller",
            Self::Provider => "azure-cloud-provider",
        }
    }
}

/// Contents of an event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EventSpec {
    pub(super) source: Source,
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// A series of events: equal notes about one Service.
pub(super) type Series = (Key, String, EventSpec);

#[derive(Debug)]
struct Sent {
    name: String,
    count: u64,
    first: String,
}

/// The recorder.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    series: BTreeMap<Series, Sent>,
    /// Remaining tokens, and the time of their calculation.
    tokens: BTreeMap<(Key, Source), (u64, u64)>,
    names: u64,
}

/// A request of the recorder.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) series: Series,
    pub(super) verb: Verb,
    pub(super) path: String,
    pub(super) body: Value,
}

impl Recorder {
    /// Returns the request for this event; `None` if the spam filter stops it.
    pub(super) fn report(
        &mut self,
        service: &Service,
        spec: EventSpec,
        now: u64,
        wall_us: u64,
    ) -> Option<Message> {
        let key = service.key();
        if !self.admits((key.clone(), spec.source), now) {
            return None;
        }
        let series = (key, service.uid.clone(), spec);
        let path = format!("/api/v1/namespaces/{}/events", service.namespace);
        let time = wall::time(wall_us);
        if let Some(sent) = self.series.get_mut(&series) {
            sent.count += 1;
            let body = json!({"count": sent.count, "lastTimestamp": time, "firstTimestamp": sent.first,
                "message": series.2.message});
            let path = format!("{path}/{}", sent.name);
            return Some(Message { series, verb: Verb::Patch, path, body });
        }
        self.names += 1;
        let name = format!("{}.{:x}{:04x}", service.name, wall_us, self.names);
        let spec = &series.2;
        let body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": service.namespace},
            "involvedObject": {"kind": "Service", "namespace": service.namespace, "name": service.name,
                "uid": service.uid, "apiVersion": "v1", "resourceVersion": service.resource_version},
            "reason": spec.reason,
            "message": spec.message,
            "source": {"component": spec.source.word()},
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
            "type": if spec.warning { "Warning" } else { "Normal" },
            "eventTime": null,
            "reportingComponent": spec.source.word(),
            "reportingInstance": "",
        });
        self.series.insert(series.clone(), Sent { name, count: 1, first: time });
        Some(Message { series, verb: Verb::Post, path, body })
    }

    /// Forgets the event of a series that the server no longer has, or never received. The next repeat creates a new
    /// one.
    pub(super) fn lost(&mut self, series: &Series) {
        self.series.remove(series);
    }

    fn admits(&mut self, object: (Key, Source), now: u64) -> bool {
        let (tokens, since) = self.tokens.entry(object).or_insert((BURST, now));
        let gained = now.saturating_sub(*since) / REFILL_US;
        *since += gained * REFILL_US;
        *tokens = (*tokens + gained).min(BURST);
        let admitted = *tokens > 0;
        *tokens = tokens.saturating_sub(1);
        admitted
    }
}
