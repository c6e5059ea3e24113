//! Follows the sources of pools on xDS control planes (docs/design/model-and-mechanisms.md, A2; X2): one owner of the
//! client, which speaks the protocol and holds the resource cache, and of what the sources make of what it tells.
//!
//! Streams are a driver's. What pools get of a source is the Directory's business; it hears of each source as a level,
//! so that what was told counts as recorded as soon as it is said: what waits for the Directory is replaced by what is
//! newer, and no pool, and no write to Azure, keeps the next message from being read.

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

/// How often what is known is shown at most.
const SHOWN_EVERY: Duration = Duration::from_millis(250);

/// What it is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// The servers, and the waits between what is asked of them.
    pub client: client::Params,
    /// The id by which control planes know us.
    pub node_id: Arc<str>,
    /// The sources of the pools that are configured. Without any, no server is ever asked.
    pub sources: BTreeSet<Name>,
}

/// What the driver is to do, and what it says.
use model::xds::stream::{Call, Heard, XdsMetric};

/// What it can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// The process begins: from now on the sources are followed.
    Start,
    /// Something has happened on a stream.
    Heard(Heard),
    /// All streams are to be closed, and nothing is to follow.
    Shutdown,
}

/// What it can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the driver.
    Call(Call),
    /// To the Directory: what is known of a source.
    Fact(Name, SourceFact),
    /// To the board: all that is known.
    View(Arc<XdsView>),
    /// To the metrics.
    Metric(XdsMetric),
}

/// Follows the sources of pools on xDS control planes.
#[derive(Debug)]
pub struct XdsSource {
    client: Client,
    sources: Sources,
    node_id: Arc<str>,
    /// What is followed from the start on.
    wanted: BTreeSet<Name>,
    /// When it is shown next what has changed.
    show_at: Option<Now>,
    shown: Option<Now>,
}

/// What one part is to be told because of what the other has said.
enum Errand {
    Client(client::In),
    Sources(sources::In),
}

impl XdsSource {
    /// One that follows these sources from its start on.
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

    /// Has both parts hear these, and all that follows from them.
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
                            // The sources are those of the configuration, for as long as the process lives.
                            sources::Out::Gone(_) => {}
                        }
                    }
                }
            }
        }
        self.stale(now);
    }

    /// What is shown may not be what is known any more.
    fn stale(&mut self, now: Now) {
        let earliest = self.shown.map_or(now, |shown| shown.plus(SHOWN_EVERY).max(now));
        self.show_at.get_or_insert(earliest);
    }

    fn view(&self) -> XdsView {
        let facts = self.sources.facts().map(|(name, fact)| (name.clone(), fact.clone()));
        XdsView { node_id: Arc::clone(&self.node_id), dump: self.client.dump(), sources: facts.collect() }
    }
}

/// Sorts what the client has said: what watchers are told at one time the sources hear together.
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
            // Where nothing is wanted there is nothing to show either.
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
