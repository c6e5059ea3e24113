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

use crate::xds::client::{self, Client, Told};
use model::machine::{Machine, Now, earliest};
use model::xds::dump::XdsView;

use crate::xds::sources::{self, Sources};
use model::xds::name::Name;
use model::xds::source::SourceFact;

/// The minimum interval between published views.
const SHOWN_EVERY: Duration = Duration::from_millis(250);

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

use model::xds::stream::{Call, Heard, XdsMetric};

/// Inputs of the machine.
#[derive(Clone, Debug)]
pub enum In {
    /// Start following the sources.
    Start,
    /// A message from the driver about a stream.
    Heard(Heard),
    /// Close all streams and do nothing more.
    Shutdown,
}

/// Outputs of the machine.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the driver: a call.
    Call(Call),
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
    show_at: Option<Now>,
    shown: Option<Now>,
}

/// A message from one part of the machine to the other.
enum Errand {
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
            show_at: None,
            shown: None,
        }
    }

    /// Delivers these messages, and all that result from them.
    fn carry_out(&mut self, now: Now, mut errands: VecDeque<Errand>, out: &mut Vec<Out>) {
        while let Some(errand) = errands.pop_front() {
            match errand {
                Errand::Client(input) => {
                    let mut said = Vec::new();
                    self.client.step(now, input, &mut said);
                    take_in(said, &mut errands, out);
                }
                Errand::Sources(input) => {
                    let mut said = Vec::new();
                    self.sources.step(now, input, &mut said);
                    for said in said {
                        match said {
                            sources::Out::Watch(key, watcher) => {
                                errands.push_back(Errand::Client(client::In::Watch(key, watcher)));
                            }
                            sources::Out::Unwatch(key, watcher) => {
                                errands.push_back(Errand::Client(client::In::Unwatch(key, watcher)));
                            }
                            sources::Out::Processed(update) => {
                                errands.push_back(Errand::Client(client::In::Processed(update)));
                            }
                            sources::Out::Fact(name, fact) => out.push(Out::Fact(name, fact)),
                            // The configured sources never change during the process.
                            sources::Out::Gone(_) => {}
                        }
                    }
                }
            }
        }
        self.stale(now);
    }

    /// Plans the next view, because the state may have changed.
    fn stale(&mut self, now: Now) {
        let earliest = self.shown.map_or(now, |shown| shown.plus(SHOWN_EVERY).max(now));
        self.show_at.get_or_insert(earliest);
    }

    fn view(&self) -> XdsView {
        let facts = self.sources.facts().map(|(name, fact)| (name.clone(), fact.clone()));
        XdsView { node_id: Arc::clone(&self.node_id), dump: self.client.dump(), sources: facts.collect() }
    }
}

/// Routes the client's outputs. The sources get all notices of one update together.
fn take_in(said: Vec<client::Out>, errands: &mut VecDeque<Errand>, out: &mut Vec<Out>) {
    let mut news: Vec<Told> = Vec::new();
    let mut newest = None;
    for said in said {
        match said {
            client::Out::Call(call) => out.push(Out::Call(call)),
            client::Out::Notice(update, told) => {
                newest = newest.max(Some(update));
                news.push(told);
            }
            client::Out::Metric(sample) => out.push(Out::Metric(sample)),
        }
    }
    if let Some(update) = newest {
        errands.push_back(Errand::Sources(sources::In::Told(update, news)));
    }
}

impl Machine for XdsSource {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        let errand = match input {
            // Without sources there is nothing to show either.
            In::Start if self.wanted.is_empty() => return,
            In::Start => Errand::Sources(sources::In::Wanted(self.wanted.clone())),
            In::Heard(heard) => Errand::Client(client::In::Heard(heard)),
            In::Shutdown => Errand::Client(client::In::Shutdown),
        };
        self.carry_out(now, VecDeque::from([errand]), out);
    }

    fn deadline(&self) -> Option<Now> {
        earliest(self.show_at, self.client.deadline())
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.client.deadline().is_some_and(|at| at <= now) {
            let (mut said, mut errands) = (Vec::new(), VecDeque::new());
            self.client.tick(now, &mut said);
            take_in(said, &mut errands, out);
            self.carry_out(now, errands, out);
        }
        if self.show_at.is_some_and(|at| at <= now) {
            (self.show_at, self.shown) = (None, Some(now));
            out.push(Out::View(Arc::new(self.view())));
        }
    }
}
