//! Between the pools' sources and the client: which resources each source needs, and what follows for it from what is
//! known of them (X2-X4).
//!
//! It owns what is watched, and one fact for each source: what is assigned, that nothing was ever known, or that what
//! was in use is dropped, and what operators are to be told beside it. What is sent and what is valid is the client's to
//! know; what a pool makes of an assignment is [`super::membership`]'s, and whether it may be emptied is for the guards.

#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::client::{Told, UpdateId, Watcher};
use model::level::Provenance;
use model::machine::{Machine, Now};
use model::xds::facts::{Key, Kind};
use model::xds::name::Name;
use model::xds::source::{Fault, Held, SourceFact};
use view::{View, Watched};

/// What the sources are told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// The id by which the control plane knows us.
    pub node_id: Arc<str>,
}

/// What the sources can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// All sources that are configured.
    Wanted(BTreeSet<Name>),
    /// What the client has told in one step, by the id of the update. What is for watchers that are gone is passed
    /// over.
    Told(UpdateId, Vec<Told>),
}

/// What the sources can say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Out {
    /// To the client: a watcher subscribes to a resource.
    Watch(Key, Watcher),
    /// To the client: a watcher unsubscribes from it.
    Unwatch(Key, Watcher),
    /// To the client: the update is recorded where the facts that were said before this one are.
    Processed(UpdateId),
    /// What is known of a source, if it is not what was said last.
    Fact(Name, SourceFact),
    /// A source is not configured any more.
    Gone(Name),
}

/// The sources of all pools, and the resources that are watched for them (X2).
#[derive(Debug)]
pub struct Sources {
    node_id: Arc<str>,
    sources: BTreeMap<Name, Source>,
    watched: BTreeMap<Key, Watched>,
    /// The last watcher's number. Each time that a resource is watched there is another watcher, so that news of an
    /// earlier time which are still on their way are not taken for news of this one.
    watchers: u64,
}

/// A source.
#[derive(Debug, Default)]
struct Source {
    /// The endpoints that are in use, or that are to be as soon as they are there.
    used: Option<Arc<str>>,
    held: Held,
    /// How that has come (G1).
    provenance: Provenance,
    /// What is watched for it.
    needs: BTreeSet<Key>,
    /// What was said of it last.
    told: Option<SourceFact>,
}

/// One step: what comes of it, and what is perhaps not needed any more.
struct Turn<'a> {
    out: &'a mut Vec<Out>,
    loose: BTreeSet<Key>,
}

/// What follows for a source from what is known.
struct Judgement {
    used: Option<Arc<str>>,
    held: Held,
    needs: BTreeSet<Key>,
    /// Why what is asked for is not there.
    fault: Option<Fault>,
    /// What is wrong beside what is in use.
    ambient: Vec<Fault>,
}

impl Sources {
    /// Without a source.
    #[must_use]
    pub fn new(params: Params) -> Sources {
        Sources { node_id: params.node_id, sources: BTreeMap::new(), watched: BTreeMap::new(), watchers: 0 }
    }

    /// What is known of each source.
    pub fn facts(&self) -> impl Iterator<Item = (&Name, &SourceFact)> {
        self.sources.iter().filter_map(|(name, source)| Some((name, source.told.as_ref()?)))
    }

    fn on_wanted(&mut self, wanted: BTreeSet<Name>, turn: &mut Turn<'_>) {
        let gone: Vec<Name> = self.sources.keys().filter(|name| !wanted.contains(*name)).cloned().collect();
        for name in wanted {
            if !self.sources.contains_key(&name) {
                self.sources.insert(name.clone(), Source::default());
                self.settle(&name, turn);
            }
        }
        for name in gone {
            self.need(&name, BTreeSet::new(), turn);
            self.sources.remove(&name);
            turn.out.push(Out::Gone(name));
        }
    }

    fn on_told(&mut self, news: Vec<Told>, turn: &mut Turn<'_>) {
        let mut concerned = BTreeSet::new();
        for told in news {
            let current = |watched: &&mut Watched| watched.watcher == told.watcher;
            if let Some(watched) = self.watched.get_mut(&told.key).filter(current) {
                watched.view.hear(&told.key, told.news);
                concerned.extend(watched.users.iter().cloned());
            }
        }
        concerned.iter().for_each(|name| self.settle(name, turn));
    }

    /// Draws the conclusions for one source.
    fn settle(&mut self, name: &Name, turn: &mut Turn<'_>) {
        let Some(source) = self.sources.get(name) else { return };
        let Judgement { used, held, needs, fault, ambient } = self.judge(name, source);
        let provenance = self.provenance(name, source, used.as_ref(), &held);
        let fact = SourceFact::new(&held, provenance, fault, ambient, &self.node_id);
        self.need(name, needs, turn);
        let Some(source) = self.sources.get_mut(name) else { return };
        source.used = used;
        source.held = held;
        source.provenance = provenance;
        if source.told.as_ref() != Some(&fact) {
            source.told = Some(fact.clone());
            turn.out.push(Out::Fact(name.clone(), fact));
        }
    }

    /// How what a source holds now has come (G1): the first that it ever held as a first list, also where others have held
    /// it before; else as its endpoints came, and as its cluster did where that names others than before.
    fn provenance(&self, name: &Name, source: &Source, used: Option<&Arc<str>>, held: &Held) -> Provenance {
        if source.held == *held {
            return source.provenance;
        }
        if source.held == Held::Nothing {
            return Provenance::FirstList;
        }
        let endpoints = used.and_then(|used| self.endpoints(used).provenance());
        let cluster = match name {
            Name::Cluster(cluster) if source.used.as_ref() != used => {
                self.view(&Key::new(Kind::Cluster, Arc::clone(cluster))).provenance()
            }
            Name::Cluster(_) | Name::Endpoints(_) => None,
        };
        endpoints.max(cluster).unwrap_or_default()
    }

    fn judge(&self, name: &Name, source: &Source) -> Judgement {
        let mut judgement = Judgement {
            used: None,
            held: source.held.clone(),
            needs: BTreeSet::new(),
            fault: None,
            ambient: Vec::new(),
        };
        // What was in use and is not to be any more counts, also where something else is named at the same time.
        if let Some(View::Failed(fault)) = source.used.as_ref().map(|used| self.endpoints(used)) {
            judgement.held.lose(fault);
        }
        let Some(named) = self.named(name, &mut judgement) else { return judgement };
        // What is in use stays until what is named now can take its place.
        let former = source.used.clone().filter(|used| {
            self.endpoints(used).assignment().is_some() && self.endpoints(&named).assignment().is_none()
        });
        let used = former.unwrap_or_else(|| Arc::clone(&named));
        match self.endpoints(&used) {
            View::Waiting => {}
            View::Good { ambient, .. } => judgement.ambient.extend(ambient.clone()),
            View::Failed(fault) => judgement.fail(fault),
        }
        if let Some(assignment) = self.endpoints(&used).assignment() {
            judgement.held = Held::Assignment(Arc::clone(assignment));
        }
        if used != named {
            judgement.ambient.extend(self.endpoints(&named).fault().cloned());
        }
        judgement.needs.extend([&used, &named].map(|name| Key::new(Kind::Endpoints, Arc::clone(name))));
        judgement.used = Some(used);
        judgement
    }

    /// The endpoints that a source names, itself or by its cluster.
    fn named(&self, name: &Name, judgement: &mut Judgement) -> Option<Arc<str>> {
        let cluster = match name {
            Name::Endpoints(endpoints) => return Some(Arc::clone(endpoints)),
            Name::Cluster(cluster) => Key::new(Kind::Cluster, Arc::clone(cluster)),
        };
        let view = self.view(&cluster);
        judgement.needs.insert(cluster);
        match view {
            View::Waiting => {}
            View::Good { ambient, .. } => judgement.ambient.extend(ambient.clone()),
            View::Failed(fault) => judgement.fail(fault),
        }
        view.named().cloned()
    }

    /// What is known of a resource; of one that is not watched: nothing.
    fn view(&self, key: &Key) -> &View {
        self.watched.get(key).map_or(&View::Waiting, |watched| &watched.view)
    }

    fn endpoints(&self, name: &Arc<str>) -> &View {
        self.view(&Key::new(Kind::Endpoints, Arc::clone(name)))
    }

    /// From now on these are watched for a source.
    fn need(&mut self, name: &Name, needs: BTreeSet<Key>, turn: &mut Turn<'_>) {
        let Some(source) = self.sources.get_mut(name) else { return };
        let before = std::mem::replace(&mut source.needs, needs.clone());
        for key in needs.difference(&before) {
            if !self.watched.contains_key(key) {
                self.watchers += 1;
                let watcher = Watcher(self.watchers);
                self.watched.insert(key.clone(), Watched::new(watcher));
                turn.out.push(Out::Watch(key.clone(), watcher));
            }
            if let Some(watched) = self.watched.get_mut(key) {
                watched.users.insert(name.clone());
            }
        }
        for key in before.difference(&needs) {
            if let Some(watched) = self.watched.get_mut(key) {
                watched.users.remove(name);
            }
            turn.loose.insert(key.clone());
        }
    }

    /// What is not needed is released, after all else is watched: a client without any watcher ends its stream.
    fn end_turn(&mut self, turn: Turn<'_>) {
        let Turn { out, loose } = turn;
        for key in loose {
            if let Some(watched) = self.watched.remove(&key) {
                if watched.users.is_empty() {
                    out.push(Out::Unwatch(key, watched.watcher));
                } else {
                    self.watched.insert(key, watched);
                }
            }
        }
        debug_assert_eq!(self.check(), Ok(()));
    }

    /// The invariants of the sources.
    fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let needs =
            self.sources.iter().flat_map(|(name, source)| source.needs.iter().map(move |key| (key, name)));
        let needs: BTreeSet<(&Key, &Name)> = needs.collect();
        let users = self.watched.iter();
        let users = users.flat_map(|(key, watched)| watched.users.iter().map(move |name| (key, name)));
        rule(users.eq(needs), "what is watched is not what is needed")?;
        let is_used = |watched: &Watched| !watched.users.is_empty() && watched.watcher.0 <= self.watchers;
        rule(self.watched.values().all(is_used), "something is watched without a user")?;
        for source in self.sources.values() {
            let there = source.used.as_ref().and_then(|used| self.endpoints(used).assignment());
            let held = source.held.assignment();
            rule(held == there, "a source uses something else than what is known")?;
            rule(source.told.is_some(), "nothing was said of a source")?;
        }
        Ok(())
    }
}

impl Judgement {
    /// What is asked for is not available.
    fn fail(&mut self, fault: &Fault) {
        self.held.lose(fault);
        self.fault = Some(fault.clone());
    }
}

impl Machine for Sources {
    type In = In;
    type Out = Out;

    fn step(&mut self, _now: Now, input: In, out: &mut Vec<Out>) {
        let mut turn = Turn { out, loose: BTreeSet::new() };
        match input {
            In::Wanted(wanted) => {
                self.on_wanted(wanted, &mut turn);
                self.end_turn(turn);
            }
            In::Told(update, news) => {
                self.on_told(news, &mut turn);
                self.end_turn(turn);
                out.push(Out::Processed(update));
            }
        }
    }

    fn deadline(&self) -> Option<Now> {
        None
    }

    fn tick(&mut self, _now: Now, _out: &mut Vec<Out>) {}
}
