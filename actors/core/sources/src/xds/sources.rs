//! The sources of pools, between the client and the Directory: the resources that each source needs, and the
//! assignment that results from them (X2-X4).
//!
//! This machine owns the set of watched resources, and one fact and one note for operators for each source. The fact
//! is an assignment, or that none has ever been known, or that the last one is dropped. The client validates
//! resources. `pools::membership` selects members from an assignment, and the guards decide whether a pool may be
//! emptied.

#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::client::{UpdateId, WatcherId, WatcherNotice};
use mechanisms::published::Published;
use model::level::Provenance;
use model::machine::{Machine, Now};
use model::xds::facts::{ResourceKey, ResourceKind};
use model::xds::name::Name;
use model::xds::source::{Fault, HeldAssignment, SourceFact};
use view::{View, Watched};

/// Parameters of the sources, fixed at startup.
#[derive(Clone, Debug)]
pub struct Params {
    /// The node id by which the control plane identifies us.
    pub node_id: Arc<str>,
}

/// Inputs of the sources.
#[derive(Clone, Debug)]
pub enum In {
    /// All configured sources.
    SetSources(BTreeSet<Name>),
    /// The client's notices of one update. Notices to watchers that are gone are ignored.
    Notices(UpdateId, Vec<WatcherNotice>),
}

/// Outputs of the sources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Out {
    /// To the client: a watcher subscribes to a resource.
    Watch(ResourceKey, WatcherId),
    /// To the client: a watcher unsubscribes from it.
    Unwatch(ResourceKey, WatcherId),
    /// To the client: the update is processed once the facts sent before this message are processed.
    Processed(UpdateId),
    /// The state of a source, if it has changed.
    Fact(Name, SourceFact),
    /// A source is no longer configured.
    Gone(Name),
}

/// The sources of all pools, and the resources that are watched for them (X2).
#[derive(Debug)]
pub struct Sources {
    node_id: Arc<str>,
    sources: BTreeMap<Name, Source>,
    watched: BTreeMap<ResourceKey, Watched>,
    /// The number of the last watcher. Each new watch of a resource gets a new watcher, so that late notices of an
    /// earlier watch are not mistaken for notices of the current one.
    watchers: u64,
}

/// A source.
#[derive(Debug, Default)]
struct Source {
    /// The endpoints in use, or those that will be used as soon as they arrive.
    used: Option<Arc<str>>,
    held: HeldAssignment,
    /// Provenance of the assignment (G1).
    provenance: Provenance,
    /// The resources watched for it.
    needs: BTreeSet<ResourceKey>,
    /// The last published fact.
    published: Published<SourceFact>,
}

/// One step: its outputs, and the resources that may no longer be needed.
struct Turn<'a> {
    out: &'a mut Vec<Out>,
    unneeded: BTreeSet<ResourceKey>,
}

/// The state of a source that follows from its resources.
struct SourceState {
    used: Option<Arc<str>>,
    held: HeldAssignment,
    needs: BTreeSet<ResourceKey>,
    /// Reason why a requested resource is not available.
    fault: Option<Fault>,
    /// Errors beside the assignment in use.
    ambient: Vec<Fault>,
}

impl Sources {
    /// Creates the machine without sources.
    #[must_use]
    pub fn new(params: Params) -> Sources {
        Sources { node_id: params.node_id, sources: BTreeMap::new(), watched: BTreeMap::new(), watchers: 0 }
    }

    /// Returns the state of each source.
    pub fn facts(&self) -> impl Iterator<Item = (&Name, &SourceFact)> {
        self.sources.iter().filter_map(|(name, source)| Some((name, source.published.last()?)))
    }

    fn on_wanted(&mut self, wanted: BTreeSet<Name>, turn: &mut Turn<'_>) {
        let gone: Vec<Name> = self.sources.keys().filter(|name| !wanted.contains(*name)).cloned().collect();
        for name in wanted {
            if !self.sources.contains_key(&name) {
                self.sources.insert(name.clone(), Source::default());
                self.update_source(&name, turn);
            }
        }
        for name in gone {
            self.set_needs(&name, BTreeSet::new(), turn);
            self.sources.remove(&name);
            turn.out.push(Out::Gone(name));
        }
    }

    fn on_notices(&mut self, notices: Vec<WatcherNotice>, turn: &mut Turn<'_>) {
        let mut concerned = BTreeSet::new();
        for notice in notices {
            let current = |watched: &&mut Watched| watched.watcher == notice.watcher;
            if let Some(watched) = self.watched.get_mut(&notice.key).filter(current) {
                watched.view.apply(&notice.key, notice.change);
                concerned.extend(watched.users.iter().cloned());
            }
        }
        concerned.iter().for_each(|name| self.update_source(name, turn));
    }

    /// Updates the state of one source.
    fn update_source(&mut self, name: &Name, turn: &mut Turn<'_>) {
        let Some(source) = self.sources.get(name) else { return };
        let SourceState { used, held, needs, fault, ambient } = self.evaluate(name, source);
        let provenance = self.provenance(name, source, used.as_ref(), &held);
        let fact = SourceFact::new(&held, provenance, fault, ambient, &self.node_id);
        self.set_needs(name, needs, turn);
        let Some(source) = self.sources.get_mut(name) else { return };
        source.used = used;
        source.held = held;
        source.provenance = provenance;
        turn.out.extend(source.published.update(fact).map(|fact| Out::Fact(name.clone(), fact)));
    }

    /// Returns the provenance of the assignment of a source (G1). The first assignment of a source counts as a first
    /// list, even if other sources have had it before. Later ones have the provenance of their endpoints, joined with
    /// that of the cluster if it names other endpoints than before.
    fn provenance(
        &self,
        name: &Name,
        source: &Source,
        used: Option<&Arc<str>>,
        held: &HeldAssignment,
    ) -> Provenance {
        if source.held == *held {
            return source.provenance;
        }
        if source.held == HeldAssignment::Nothing {
            return Provenance::FirstList;
        }
        let endpoints = used.and_then(|used| self.endpoints(used).provenance());
        let cluster = match name {
            Name::Cluster(cluster) if source.used.as_ref() != used => {
                self.view(&ResourceKey::new(ResourceKind::Cluster, Arc::clone(cluster))).provenance()
            }
            Name::Cluster(_) | Name::Endpoints(_) => None,
        };
        endpoints.max(cluster).unwrap_or_default()
    }

    fn evaluate(&self, name: &Name, source: &Source) -> SourceState {
        let mut state = SourceState {
            used: None,
            held: source.held.clone(),
            needs: BTreeSet::new(),
            fault: None,
            ambient: Vec::new(),
        };
        // The loss of the endpoints in use counts, even if the cluster names others at the same time.
        if let Some(View::Failed(fault)) = source.used.as_ref().map(|used| self.endpoints(used)) {
            state.held.lose(fault);
        }
        let Some(named) = self.named(name, &mut state) else { return state };
        // The endpoints in use stay until the newly named ones can replace them.
        let former = source.used.clone().filter(|used| {
            self.endpoints(used).assignment().is_some() && self.endpoints(&named).assignment().is_none()
        });
        let used = former.unwrap_or_else(|| Arc::clone(&named));
        match self.endpoints(&used) {
            View::Waiting => {}
            View::Good { ambient, .. } => state.ambient.extend(ambient.clone()),
            View::Failed(fault) => state.fail(fault),
        }
        if let Some(assignment) = self.endpoints(&used).assignment() {
            state.held = HeldAssignment::Assignment(Arc::clone(assignment));
        }
        if used != named {
            state.ambient.extend(self.endpoints(&named).fault().cloned());
        }
        state
            .needs
            .extend([&used, &named].map(|name| ResourceKey::new(ResourceKind::Endpoints, Arc::clone(name))));
        state.used = Some(used);
        state
    }

    /// Returns the endpoints that a source names, directly or by its cluster.
    fn named(&self, name: &Name, state: &mut SourceState) -> Option<Arc<str>> {
        let cluster = match name {
            Name::Endpoints(endpoints) => return Some(Arc::clone(endpoints)),
            Name::Cluster(cluster) => ResourceKey::new(ResourceKind::Cluster, Arc::clone(cluster)),
        };
        let view = self.view(&cluster);
        state.needs.insert(cluster);
        match view {
            View::Waiting => {}
            View::Good { ambient, .. } => state.ambient.extend(ambient.clone()),
            View::Failed(fault) => state.fail(fault),
        }
        view.named().cloned()
    }

    /// Returns the view of a resource; a resource that is not watched has no state.
    fn view(&self, key: &ResourceKey) -> &View {
        self.watched.get(key).map_or(&View::Waiting, |watched| &watched.view)
    }

    fn endpoints(&self, name: &Arc<str>) -> &View {
        self.view(&ResourceKey::new(ResourceKind::Endpoints, Arc::clone(name)))
    }

    /// Sets the resources that are watched for a source.
    fn set_needs(&mut self, name: &Name, needs: BTreeSet<ResourceKey>, turn: &mut Turn<'_>) {
        let Some(source) = self.sources.get_mut(name) else { return };
        let before = std::mem::replace(&mut source.needs, needs.clone());
        for key in needs.difference(&before) {
            if !self.watched.contains_key(key) {
                self.watchers += 1;
                let watcher = WatcherId(self.watchers);
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
            turn.unneeded.insert(key.clone());
        }
    }

    /// Unwatches unneeded resources after all new ones are watched, because a client without any watcher ends its
    /// stream.
    fn end_turn(&mut self, turn: Turn<'_>) {
        let Turn { out, unneeded } = turn;
        for key in unneeded {
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

    /// Checks the invariants of the sources.
    fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let needs =
            self.sources.iter().flat_map(|(name, source)| source.needs.iter().map(move |key| (key, name)));
        let needs: BTreeSet<(&ResourceKey, &Name)> = needs.collect();
        let users = self.watched.iter();
        let users = users.flat_map(|(key, watched)| watched.users.iter().map(move |name| (key, name)));
        rule(users.eq(needs), "what is watched is not what is needed")?;
        let is_used = |watched: &Watched| !watched.users.is_empty() && watched.watcher.0 <= self.watchers;
        rule(self.watched.values().all(is_used), "something is watched without a user")?;
        for source in self.sources.values() {
            let there = source.used.as_ref().and_then(|used| self.endpoints(used).assignment());
            let held = source.held.assignment();
            rule(held == there, "a source uses something else than what is known")?;
            rule(source.published.last().is_some(), "nothing was said of a source")?;
        }
        Ok(())
    }
}

impl SourceState {
    /// Handles that a requested resource is not available.
    fn fail(&mut self, fault: &Fault) {
        self.held.lose(fault);
        self.fault = Some(fault.clone());
    }
}

impl Machine for Sources {
    type In = In;
    type Out = Out;

    fn step(&mut self, _now: Now, input: In, out: &mut Vec<Out>) {
        let mut turn = Turn { out, unneeded: BTreeSet::new() };
        match input {
            In::SetSources(wanted) => {
                self.on_wanted(wanted, &mut turn);
                self.end_turn(turn);
            }
            In::Notices(update, notices) => {
                self.on_notices(notices, &mut turn);
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
