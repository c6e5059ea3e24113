//! Follows the sources of pools on xDS control planes (docs/design/model-and-mechanisms.md, A2; X2). This machine owns
//! the client, which implements the protocol and holds the resource cache, and the sources, which derive assignments
//! from its notices.
//!
//! A driver handles the streams. The Directory decides what pools get of a source. It receives each source as a level,
//! so a notice counts as processed as soon as the facts are sent: a newer fact replaces one that waits for the
//! Directory. Therefore no pool, and no write to Azure, delays the reading of the next message.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::xds::client::{self, Client, WatcherNotice};
use crate::xds::sources::{self, Sources};
use model::machine::{Machine, Now, earliest};
use model::xds::dump::XdsView;
use model::xds::name::Name;
use model::xds::source::SourceFact;
use model::xds::stream::{DriverCall, StreamEvent, XdsMetric};

/// The minimum interval between published views.
const VIEW_INTERVAL: Duration = Duration::from_millis(250);

/// Parameters, fixed at startup.
#[derive(Clone, Debug)]
pub struct Params {
    /// The servers and the delays between requests.
    pub client: client::Params,
    /// The node id by which control planes identify us.
    pub node_id: Arc<str>,
    /// The configured sources of pools. Without any, no server is contacted.
    pub sources: BTreeSet<Name>,
}

/// Inputs of the machine.
#[derive(Clone, Debug)]
pub enum In {
    /// Start following the sources.
    Start,
    /// A message from the driver about a stream.
    StreamEvent(StreamEvent),
    /// Close all streams and do nothing more.
    Shutdown,
}

/// Outputs of the machine.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the driver: a call.
    Call(DriverCall),
    /// To the Directory: the state of a source.
    Fact(Name, SourceFact),
    /// To the snapshot: the state of all servers and sources.
    View(Arc<XdsView>),
    /// To the metrics recorder.
    Metric(XdsMetric),
}

/// Follows the sources of pools on xDS control planes.
#[derive(Debug)]
pub struct XdsSource {
    client: Client,
    sources: Sources,
    node_id: Arc<str>,
    /// The sources to follow from the start.
    wanted: BTreeSet<Name>,
    /// When the next view is due, after a change.
    publish_at: Option<Now>,
    published_at: Option<Now>,
}

/// A message from one part of the machine to the other.
enum PartInput {
    Client(client::In),
    Sources(sources::In),
}

impl XdsSource {
    /// Creates a machine that follows these sources once it is started.
    #[must_use]
    pub fn new(params: Params) -> XdsSource {
        let Params { client, node_id, sources } = params;
        XdsSource {
            client: Client::new(client),
            sources: Sources::new(sources::Params { node_id: Arc::clone(&node_id) }),
            node_id,
            wanted: sources,
            publish_at: None,
            published_at: None,
        }
    }

    /// Delivers these messages, and all that result from them.
    fn deliver(&mut self, now: Now, mut messages: VecDeque<PartInput>, out: &mut Vec<Out>) {
        while let Some(message) = messages.pop_front() {
            match message {
                PartInput::Client(input) => {
                    let mut outputs = Vec::new();
                    self.client.step(now, input, &mut outputs);
                    route_client_outputs(outputs, &mut messages, out);
                }
                PartInput::Sources(input) => {
                    let mut outputs = Vec::new();
                    self.sources.step(now, input, &mut outputs);
                    for outputs in outputs {
                        match outputs {
                            sources::Out::Watch(key, watcher) => {
                                messages.push_back(PartInput::Client(client::In::Watch(key, watcher)));
                            }
                            sources::Out::Unwatch(key, watcher) => {
                                messages.push_back(PartInput::Client(client::In::Unwatch(key, watcher)));
                            }
                            sources::Out::Processed(update) => {
                                messages.push_back(PartInput::Client(client::In::Processed(update)));
                            }
                            sources::Out::Fact(name, fact) => out.push(Out::Fact(name, fact)),
                            // The configured sources never change during the process.
                            sources::Out::Gone(_) => {}
                        }
                    }
                }
            }
        }
        self.plan_view(now);
    }

    /// Plans the next view, because the state may have changed.
    fn plan_view(&mut self, now: Now) {
        let earliest =
            self.published_at.map_or(now, |published_at| published_at.plus(VIEW_INTERVAL).max(now));
        self.publish_at.get_or_insert(earliest);
    }

    fn view(&self) -> XdsView {
        let facts = self.sources.facts().map(|(name, fact)| (name.clone(), fact.clone()));
        XdsView { node_id: Arc::clone(&self.node_id), dump: self.client.dump(), sources: facts.collect() }
    }
}

/// Routes the client's outputs. The sources get all notices of one update together.
fn route_client_outputs(outputs: Vec<client::Out>, messages: &mut VecDeque<PartInput>, out: &mut Vec<Out>) {
    let mut notices: Vec<WatcherNotice> = Vec::new();
    let mut newest = None;
    for outputs in outputs {
        match outputs {
            client::Out::Call(call) => out.push(Out::Call(call)),
            client::Out::Notice(update, notice) => {
                newest = newest.max(Some(update));
                notices.push(notice);
            }
            client::Out::Metric(sample) => out.push(Out::Metric(sample)),
        }
    }
    if let Some(update) = newest {
        messages.push_back(PartInput::Sources(sources::In::Notices(update, notices)));
    }
}

impl Machine for XdsSource {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        let message = match input {
            // Without sources there is nothing to show either.
            In::Start if self.wanted.is_empty() => return,
            In::Start => PartInput::Sources(sources::In::SetSources(self.wanted.clone())),
            In::StreamEvent(event) => PartInput::Client(client::In::StreamEvent(event)),
            In::Shutdown => PartInput::Client(client::In::Shutdown),
        };
        self.deliver(now, VecDeque::from([message]), out);
    }

    fn deadline(&self) -> Option<Now> {
        earliest(self.publish_at, self.client.deadline())
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.client.deadline().is_some_and(|at| at <= now) {
            let (mut outputs, mut messages) = (Vec::new(), VecDeque::new());
            self.client.tick(now, &mut outputs);
            route_client_outputs(outputs, &mut messages, out);
            self.deliver(now, messages, out);
        }
        if self.publish_at.is_some_and(|at| at <= now) {
            (self.publish_at, self.published_at) = (None, Some(now));
            out.push(Out::View(Arc::new(self.view())));
        }
    }
}
