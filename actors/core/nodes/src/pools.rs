//! The known entries of all pools, and what each pool lacks for a draining set (docs/design/nodes.md, N2, N4; D3).
//!
//! Admin states that the writer has read or written count immediately. An observation whose GET began before that is
//! ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::arm::{AdminState, Backend, PoolFacts};
use model::draining::{AdminUrgency, Draining};
use model::ids::{LbName, NodeUid, PoolId, of_balancer};
use model::level::SourceAdminStates;
use model::load_balancers::LbObservation;
use model::machine::Now;

/// The admin states that a pool lacks: the nodes, and whether each must go Down or be restored.
pub(super) type MissingAdminStates = BTreeMap<NodeUid, AdminUrgency>;

/// Returns the urgency of the most urgent admin state that a pool lacks. `None`: it lacks nothing.
#[must_use]
pub(super) fn urgency(missing: &MissingAdminStates) -> Option<AdminUrgency> {
    missing.values().min().copied()
}

/// The observed pools of all managed load balancers.
#[derive(Debug, Default)]
pub(super) struct Pools {
    pools: BTreeMap<PoolId, Pool>,
    /// The pools that have an entry for each backend: the inverse of [`Pool::entries`].
    pools_by_backend: BTreeMap<Backend, BTreeSet<PoolId>>,
    /// The admin states that the sources of pools set, where they are known (X2).
    source_states: BTreeMap<PoolId, Arc<SourceAdminStates>>,
}

#[derive(Debug, Default)]
struct Pool {
    /// The last known state. `None`: not known, or absent.
    facts: Option<Arc<PoolFacts>>,
    /// Entries by backend. Those in doubt count as in service.
    entries: Vec<(Backend, AdminState)>,
    /// Whether `entries` has any in doubt, and differs from `facts`.
    doubted: bool,
    /// Time of the entries: of the GET, or at which the writer knew or doubted them.
    as_of: Now,
    /// Newest set that was carried out in a dry run, which changes nothing.
    withheld: Option<u64>,
}

fn is_among(ips: &BTreeSet<IpAddr>, backend: &Backend) -> bool {
    match backend {
        Backend::Address(ip) => ips.contains(ip),
        Backend::Instance(_) => false,
    }
}

fn entries_of(facts: Option<&PoolFacts>) -> Vec<(Backend, AdminState)> {
    let entries = facts.into_iter().flat_map(|facts| &facts.entries);
    let mut entries: Vec<(Backend, AdminState)> =
        entries.filter_map(|entry| Some((entry.backend()?, entry.admin_state))).collect();
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    entries
}

/// Adds a pool to the index of these backends.
fn add_to_index(
    pools_by_backend: &mut BTreeMap<Backend, BTreeSet<PoolId>>,
    id: &PoolId,
    backends: impl IntoIterator<Item = Backend>,
) {
    for backend in backends {
        pools_by_backend.entry(backend).or_default().insert(id.clone());
    }
}

/// Removes a pool from the index of this backend, for which it has no entry any more.
fn remove_from_index(
    pools_by_backend: &mut BTreeMap<Backend, BTreeSet<PoolId>>,
    id: &PoolId,
    backend: &Backend,
) {
    if let Some(pools) = pools_by_backend.get_mut(backend) {
        pools.remove(id);
        if pools.is_empty() {
            pools_by_backend.remove(backend);
        }
    }
}

impl Pool {
    /// Returns the entries of this backend: one, unless another client has made several.
    fn of(&self, backend: &Backend) -> &[(Backend, AdminState)] {
        let from = self.entries.partition_point(|(other, _)| other < backend);
        let long = self.entries[from..].partition_point(|(other, _)| other == backend);
        &self.entries[from..from + long]
    }

    /// Returns the entries whose required state may change with this set. The lookup iterates over the smaller side.
    fn affected_by<'a>(&'a self, set: &'a Draining) -> Vec<&'a (Backend, AdminState)> {
        let affected = set.addresses.len() + set.restorable.len();
        if self.entries.len() <= affected {
            let is_concerned =
                |backend: &Backend| set.addresses.contains_key(backend) || set.restorable.contains(backend);
            return self.entries.iter().filter(|(backend, _)| is_concerned(backend)).collect();
        }
        let backends: BTreeSet<&Backend> = set.addresses.keys().chain(&set.restorable).collect();
        backends.into_iter().flat_map(|backend| self.of(backend)).collect()
    }

    /// Applies the pool at this time. Returns the previous entries if they have changed.
    fn apply(&mut self, at: Now, facts: Option<&Arc<PoolFacts>>) -> Option<Vec<(Backend, AdminState)>> {
        if at < self.as_of {
            return None;
        }
        self.as_of = at;
        let before = self.facts.as_deref().map(|facts| &facts.entries);
        let is_same = !self.doubted && before == facts.map(|facts| &facts.entries);
        self.facts = facts.cloned();
        if is_same {
            return None;
        }
        let entries = entries_of(facts.map(Arc::as_ref));
        self.doubted = false;
        let before = std::mem::replace(&mut self.entries, entries);
        (before != self.entries).then_some(before)
    }

    /// Counts these backends as in service. Returns those that had no entry.
    fn doubt(&mut self, at: Now, backends: BTreeSet<Backend>) -> Vec<Backend> {
        self.as_of = self.as_of.max(at);
        self.doubted = true;
        let mut new = Vec::new();
        for backend in backends {
            let from = self.entries.partition_point(|(other, _)| *other < backend);
            let known = self.entries[from..].iter_mut().take_while(|(other, _)| *other == backend);
            let known = known.map(|(_, of)| *of = AdminState::None).count();
            if known == 0 {
                new.push(backend.clone());
                self.entries.insert(from, (backend, AdminState::None));
            }
        }
        new
    }
}

impl Pools {
    /// Applies an observation. Returns the pools that it changes.
    pub(super) fn observe(&mut self, seen: &LbObservation) -> BTreeSet<PoolId> {
        let facts = seen.facts.iter().flat_map(|facts| &facts.pools);
        let facts: BTreeMap<&PoolId, &Arc<PoolFacts>> = facts.map(|pool| (&pool.id, pool)).collect();
        let known = self.of(&seen.lb).cloned().collect::<Vec<PoolId>>();
        let gone = known.iter().filter(|id| !facts.contains_key(id)).map(|id| (id, None));
        let seen_now = facts.iter().map(|(id, pool)| (*id, Some(*pool)));
        let mut news = BTreeSet::new();
        for (id, facts) in gone.chain(seen_now) {
            if self.apply(id, seen.began, facts) {
                news.insert(id.clone());
            }
        }
        let is_over = |pool: &Pool| pool.facts.is_none() && pool.as_of <= seen.began;
        let over = of_balancer(&self.pools, &seen.lb).filter(|(_, pool)| is_over(pool));
        for id in over.map(|(id, _)| id.clone()).collect::<Vec<PoolId>>() {
            self.pools.remove(&id);
        }
        news
    }

    /// Applies a pool as a GET that began at this time shows it, or as the writer knows it then. Returns whether its
    /// entries have changed. If a newer state is known, nothing changes.
    pub(super) fn apply(&mut self, id: &PoolId, at: Now, facts: Option<&Arc<PoolFacts>>) -> bool {
        let pool = self.pools.entry(id.clone()).or_default();
        let Some(before) = pool.apply(at, facts) else { return false };
        let after: Vec<Backend> = pool.entries.iter().map(|(backend, _)| backend.clone()).collect();
        for (backend, _) in before {
            remove_from_index(&mut self.pools_by_backend, id, &backend);
        }
        add_to_index(&mut self.pools_by_backend, id, after);
        true
    }

    /// Applies that these backends may be in service in a pool since this time.
    pub(super) fn doubt(&mut self, id: &PoolId, at: Now, backends: BTreeSet<Backend>) {
        if !backends.is_empty() {
            let new = self.pools.entry(id.clone()).or_default().doubt(at, backends);
            add_to_index(&mut self.pools_by_backend, id, new);
        }
    }

    /// Applies a dry run's finished write of this pool. The pool counts as lacking nothing up to this generation.
    pub(super) fn withheld(&mut self, id: &PoolId, generation: u64) {
        let pool = self.pools.entry(id.clone()).or_default();
        pool.withheld = pool.withheld.max(Some(generation));
    }

    /// Applies the admin states that the source of a pool sets. `None`: not known.
    pub(super) fn set_source_states(&mut self, id: &PoolId, states: Option<Arc<SourceAdminStates>>) {
        match states {
            Some(states) => drop(self.source_states.insert(id.clone(), states)),
            None => drop(self.source_states.remove(id)),
        }
    }

    /// Returns whether the admin states of a pool's source are known.
    pub(super) fn knows_source(&self, id: &PoolId) -> bool {
        self.source_states.contains_key(id)
    }

    /// Returns whether a Down in a pool is ours because its source sets, or has set it.
    pub(super) fn is_claimed(&self, id: &PoolId, backend: &Backend) -> bool {
        self.source_states.get(id).is_some_and(|states| is_among(&states.ours, backend))
    }

    /// Returns whether all of these Downs in a pool are ours because its source sets, or has set them.
    pub(super) fn accounts_for(&self, id: &PoolId, mut downs: impl Iterator<Item = Backend>) -> bool {
        downs.all(|backend| self.is_claimed(id, &backend))
    }

    /// Returns whether the source of a pool requires a Down.
    pub(super) fn requires_down(&self, id: &PoolId, backend: &Backend) -> bool {
        self.source_states.get(id).is_some_and(|states| is_among(&states.down, backend))
    }

    /// Returns all Downs that sources require.
    pub(super) fn required_downs(&self) -> impl Iterator<Item = (&PoolId, Backend)> {
        self.source_states
            .iter()
            .flat_map(|(id, states)| states.down.iter().map(move |ip| (id, Backend::from(*ip))))
    }

    /// Applies a write that found the pool absent. If a newer state is known, nothing changes.
    pub(super) fn absent(&mut self, at: Now, id: &PoolId) {
        if self.pools.get(id).is_some_and(|pool| at < pool.as_of) {
            return;
        }
        let before = self.pools.insert(id.clone(), Pool { as_of: at, ..Pool::default() });
        for (backend, _) in before.into_iter().flat_map(|pool| pool.entries) {
            remove_from_index(&mut self.pools_by_backend, id, &backend);
        }
    }

    /// Returns the admin states that a pool lacks for this set. `restores` maps each Down that may be restored to its
    /// node.
    #[must_use]
    pub(super) fn missing(
        &self,
        id: &PoolId,
        set: &Draining,
        restores: &BTreeMap<Backend, NodeUid>,
    ) -> MissingAdminStates {
        let mut missing = MissingAdminStates::new();
        let Some(pool) = self.pools.get(id).filter(|pool| pool.withheld < Some(set.generation)) else {
            return missing;
        };
        for (backend, state) in pool.affected_by(set) {
            let of = match set.wants_of(id, backend, *state) {
                Some(AdminState::Down) => (set.addresses.get(backend), AdminUrgency::Down),
                Some(AdminState::None) => (restores.get(backend), AdminUrgency::Restore),
                Some(AdminState::Up | AdminState::Unknown) | None => continue,
            };
            if let (Some(uid), urgency) = of {
                let known = missing.entry(uid.clone()).or_insert(urgency);
                *known = (*known).min(urgency);
            }
        }
        missing
    }

    /// Returns the pools in which one of these backends is Down.
    pub(super) fn downs<'a>(
        &'a self,
        backends: &'a BTreeSet<Backend>,
    ) -> impl Iterator<Item = (&'a PoolId, Backend)> + 'a {
        let downs = self.states_of(backends).filter(|(_, _, state)| *state == AdminState::Down);
        downs.map(|(id, backend, _)| (id, backend))
    }

    /// Returns the backends among these that are Down in this pool.
    pub(super) fn downs_in<'a>(
        &'a self,
        id: &PoolId,
        backends: &'a BTreeSet<Backend>,
    ) -> impl Iterator<Item = Backend> + 'a {
        let pool = self.pools.get(id).into_iter();
        let entries = pool.flat_map(|pool| backends.iter().flat_map(|backend| pool.of(backend)));
        entries.filter(|(_, state)| *state == AdminState::Down).map(|(backend, _)| backend.clone())
    }

    /// Returns the backends in this pool that are Down as this set requires.
    pub(super) fn required_downs_in(&self, id: &PoolId, set: &Draining) -> BTreeSet<Backend> {
        let pool = self.pools.get(id).into_iter();
        let entries = pool.flat_map(|pool| pool.affected_by(set));
        let downs = entries.filter(|(_, state)| *state == AdminState::Down).map(|(backend, _)| backend);
        downs.filter(|backend| set.would_set(id, backend)).cloned().collect()
    }

    /// Returns all entries of these backends.
    pub(super) fn states_of<'a>(
        &'a self,
        backends: &'a BTreeSet<Backend>,
    ) -> impl Iterator<Item = (&'a PoolId, Backend, AdminState)> + 'a {
        backends.iter().flat_map(move |backend| {
            let pools = self.with_backend(backend).filter_map(|id| Some((id, self.pools.get(id)?)));
            pools.flat_map(move |(id, pool)| {
                pool.of(backend).iter().map(move |(_, state)| (id, backend.clone(), *state))
            })
        })
    }

    /// Returns the Down entries of a load balancer.
    pub(super) fn downs_of<'a>(&'a self, lb: &'a LbName) -> impl Iterator<Item = (&'a PoolId, &'a Backend)> {
        of_balancer(&self.pools, lb).flat_map(|(id, pool)| {
            let downs = pool.entries.iter().filter(|(_, state)| *state == AdminState::Down);
            downs.map(move |(backend, _)| (id, backend))
        })
    }

    /// Returns the pools that have an entry for this backend.
    pub(super) fn with_backend(&self, backend: &Backend) -> impl Iterator<Item = &PoolId> {
        self.pools_by_backend.get(backend).into_iter().flatten()
    }

    /// Checks the invariants that hold between any two steps. Reads every entry.
    #[cfg(test)]
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let mut pools_by_backend: BTreeMap<Backend, BTreeSet<PoolId>> = BTreeMap::new();
        for (id, pool) in &self.pools {
            add_to_index(&mut pools_by_backend, id, pool.entries.iter().map(|(backend, _)| backend.clone()));
        }
        rule(pools_by_backend == self.pools_by_backend, "a pool is not found by its entries")
    }

    /// Returns all entries whose admin state is set.
    pub(super) fn set_states(&self) -> impl Iterator<Item = (&PoolId, Backend, AdminState)> {
        self.pools.iter().flat_map(|(id, pool)| {
            let is_set = |state: AdminState| match state {
                AdminState::Down | AdminState::Up => true,
                AdminState::None | AdminState::Unknown => false,
            };
            let entries = pool.entries.iter().filter(move |(_, state)| is_set(*state));
            entries.map(move |(backend, state)| (id, backend.clone(), *state))
        })
    }

    /// Returns whether nothing newer is known of the pool, so that an observation of this time is current.
    pub(super) fn is_as_seen(&self, id: &PoolId, began: Now) -> bool {
        self.pools.get(id).is_some_and(|pool| pool.as_of <= began)
    }

    /// Returns all known pools.
    pub(super) fn ids(&self) -> impl Iterator<Item = &PoolId> {
        self.pools.keys()
    }

    /// Returns the known pools of a load balancer.
    pub(super) fn of<'a>(&'a self, lb: &'a LbName) -> impl Iterator<Item = &'a PoolId> {
        of_balancer(&self.pools, lb).map(|(id, _)| id)
    }
}
