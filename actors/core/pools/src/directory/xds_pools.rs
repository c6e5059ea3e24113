//! The pools that are filled from xDS sources: their configuration, the state of their sources, and what each source
//! asks of its pool (X2, X3, X4). Guards and delays apply as in a Service's pool.
//!
//! A source takes the place of a Service: its fact has one part, of the pool's family, and the name of the source in
//! place of the Service's name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::conditions::{SourceChange, SourceCondition};
use super::guard_inputs::Owners;
use super::mapping::BalancerPool;
use super::pool_inputs::{Ownership, SourceInputs};
use super::{Directory, Out};
use crate::membership::{self, Failover, address_name};
use model::arm::{AdminState, LbFacts, Provisioning};
use model::error::NotManageable;
use model::ids::{Family, LbName, NodeName, PoolId, ServiceKey, ServiceUid, of_balancer};
use model::level::{DrainingAddresses, Provenance, Source, SourceAdminStates, States};
use model::machine::Now;
use model::proof;
use model::report::{Condition, Ended};
use model::services::{Part, Parts, RequiredNode, ServiceFact};
use model::view::Candidacy;
use model::xds::assignment::LoadAssignment;
use model::xds::diagnostic::Diagnostic;
use model::xds::name::Name;
use model::xds::source::{Assigned, SourceFact};

/// Time for which a write that sets a Down may still be sent after the source changed: an attempt begins with the level
/// of its time.
const SEND_WINDOW: Duration = Duration::from_secs(60);

/// A pool that is filled from a source, as configured (`pools`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    /// The pool.
    pub pool: PoolId,
    /// The source of its members.
    pub source: Name,
    /// The family of its members.
    pub family: Family,
    /// The membership settings.
    pub membership: membership::Params,
}

/// All listed pools, and the state of their sources.
#[derive(Default)]
pub(super) struct XdsPools {
    pools: BTreeMap<PoolId, ListedPool>,
    sources: BTreeMap<Name, KnownSource>,
    /// The sources with facts on which the Directory has not acted (A3).
    fresh: BTreeSet<Name>,
    /// Addresses whose admin state is set because their node leaves service (N4).
    draining_nodes: Arc<DrainingAddresses>,
}

/// One listed pool.
struct ListedPool {
    source: Name,
    family: Family,
    failover: Failover,
    /// Maximum number of members.
    max_members: usize,
    /// The most doubtful provenance among the source's facts that no computed level includes yet (G1).
    pending_provenance: Option<Provenance>,
    /// When the pool was last observed.
    seen_at: Now,
    /// The members asked for since then, and at the evaluation before: they may have been written.
    asked: BTreeSet<IpAddr>,
    /// The members asked for at the last evaluation.
    last: BTreeSet<IpAddr>,
    /// Addresses that are, or will be, Down because of the source: their Down is ours. The value is the time since when
    /// the source no longer asks for it; `None` while it does.
    ours: BTreeMap<IpAddr, Option<Now>>,
    /// The admin states that the source sets; empty for a pool that is not filled. `None`: not known.
    admin_states: Option<Arc<SourceAdminStates>>,
    admin_states_changed: bool,
}

/// The state of one source.
struct KnownSource {
    fact: SourceFact,
    /// Increases with every change of the assigned endpoints (A3).
    revision: u64,
    /// When the endpoints last changed; excludes the first assignment, which reflects old changes.
    changed: Option<Now>,
    condition: SourceCondition,
}

impl XdsPools {
    /// Creates the listed pools.
    pub(super) fn new(listings: &[Listing]) -> XdsPools {
        let entry = |listing: &Listing| ListedPool {
            source: listing.source.clone(),
            family: listing.family,
            failover: Failover::new(listing.family, listing.membership),
            max_members: listing.membership.limits.members,
            pending_provenance: None,
            seen_at: Now::ZERO,
            asked: BTreeSet::new(),
            last: BTreeSet::new(),
            ours: BTreeMap::new(),
            admin_states: None,
            admin_states_changed: false,
        };
        let pools = listings.iter().map(|listing| (listing.pool.clone(), entry(listing)));
        XdsPools {
            pools: pools.collect(),
            sources: BTreeMap::new(),
            fresh: BTreeSet::new(),
            draining_nodes: Arc::default(),
        }
    }

    /// Records that a pool does not exist, or that its load balancer was not `read`, so that nothing about it is known
    /// yet.
    pub(super) fn not_found(&mut self, id: &PoolId, read: bool) {
        if let Some(entry) = self.pools.get_mut(id) {
            entry.set_admin_states(read.then(SourceAdminStates::default));
        }
    }

    /// Returns the admin states that the source of a pool sets, if they changed since the last call.
    pub(super) fn take_admin_states(&mut self, id: &PoolId) -> Option<Option<Arc<SourceAdminStates>>> {
        let entry = self.pools.get_mut(id)?;
        std::mem::take(&mut entry.admin_states_changed).then(|| entry.admin_states.clone())
    }

    /// Keeps the doubts about a released pool, so that they apply when it is evaluated again (G1).
    pub(super) fn keep_doubts(&mut self, id: &PoolId) {
        if let Some(entry) = self.pools.get_mut(id) {
            entry.pending_provenance = entry.pending_provenance.max(Some(Provenance::Relist));
        }
    }

    /// Marks all facts of sources as processed.
    pub(super) fn clear_fresh(&mut self) {
        self.fresh.clear();
    }

    /// Returns whether a pool is filled from a source.
    pub(super) fn has(&self, id: &PoolId) -> bool {
        self.pools.contains_key(id)
    }

    /// Returns the text that accompanies every report of the pool, if its source is known (X4).
    pub(super) fn note(&self, id: &PoolId) -> Option<Arc<str>> {
        let entry = self.pools.get(id)?;
        let known = self.sources.get(&entry.source)?;
        Some(note(&known.fact))
    }

    /// Returns the listed pools on this load balancer.
    pub(super) fn on<'a>(&'a self, lb: &'a LbName) -> impl Iterator<Item = &'a PoolId> {
        of_balancer(&self.pools, lb).map(|(id, _)| id)
    }

    /// Returns the ownership of a pool that was not found on its load balancer: a listed one is refused (D2, X2).
    pub(super) fn ownership_of_absent(&self, id: &PoolId, has_balancer: bool) -> Ownership {
        let Some((PoolId { lb, .. }, entry)) = self.pools.get_key_value(id) else { return Ownership::Nobody };
        let lb = lb.clone();
        let reason = if has_balancer {
            NotManageable::PoolNotFound { lb }
        } else {
            NotManageable::LoadBalancerNotFound { lb }
        };
        Ownership::Refused(reason, entry.owners(Part::default(), None))
    }

    /// Returns the ownership of a listed pool as observed at time `at`; `None` if it is not listed. `leads` is true
    /// while this process knows the admin state of nodes.
    pub(super) fn ownership(
        &mut self,
        now: Now,
        id: &PoolId,
        seen: &BalancerPool,
        at: Now,
        leads: bool,
    ) -> Option<Ownership> {
        let entry = self.pools.get_mut(id)?;
        if let Err(reason) = proof::prove_listed(&seen.facts) {
            entry.set_admin_states(Some(SourceAdminStates::default()));
            return Some(Ownership::Refused(reason, entry.owners(Part::default(), None)));
        }
        // A pool of an unknown source stays as it is (X3).
        let Some(known) = self.sources.get(&entry.source) else {
            entry.set_admin_states(None);
            return Some(Ownership::Nobody);
        };
        let nothing = LoadAssignment::default();
        let assignment = match &known.fact.assigned {
            Assigned::Unknown(_) => {
                entry.set_admin_states(None);
                return Some(Ownership::Nobody);
            }
            Assigned::Usable(assignment) => assignment.as_ref(),
            Assigned::Dropped(_) => &nothing,
        };
        let mut membership = entry.failover.members(now, assignment);
        entry.make_room(&mut membership, seen, at);
        let part = part(&membership, assignment, known.fact.stands());
        let states = entry.states(now, id, &membership, seen, at, &self.draining_nodes);
        let foreign = entry.foreign_downs(id, &part, seen, &self.draining_nodes);
        membership.diagnostics.extend(foreign.filter(|_| leads));
        let inputs = SourceInputs {
            source: Source::Xds {
                name: entry.source.clone(),
                note: note(&known.fact),
                diagnostics: membership.diagnostics,
            },
            states,
            max_members: entry.max_members,
            is_dropped: is_dropped(&known.fact),
            stands: known.fact.stands(),
            deadline: entry.failover.deadline().filter(|at| *at > now),
        };
        let pending_provenance = entry.pending_provenance.take();
        let mut owners = entry.owners(part, Some(known));
        for fact in owners.values_mut() {
            let provenance = fact.provenance.max(pending_provenance.unwrap_or_default());
            Arc::make_mut(fact).provenance = provenance;
        }
        Some(Ownership::Proven(entry.family, owners, Some(inputs)))
    }
}

/// Returns the members of a pool in the form of a Service's part. If none of the endpoints is usable, the pool does
/// not count as empty, unless all of them drain (D6). It does not count as empty either if the empty assignment is
/// not current (G2).
fn part(membership: &membership::PoolMembership, assignment: &LoadAssignment, stands: bool) -> Part {
    let is_said = if assignment.has_endpoints {
        assignment.only_drains && !membership.draining.is_empty()
    } else {
        true
    };
    let required =
        |ip: &IpAddr| (*ip, RequiredNode { name: NodeName::new(address_name(*ip).shared()), ready: true });
    Part {
        required: membership.members.iter().map(required).collect(),
        tolerated: membership.draining.clone(),
        unusable: membership.members.is_empty() && !(is_said && stands),
        slices: 1,
        // The endpoints count even if none of them is usable.
        endpoints: (membership.members.len() + membership.draining.len())
            .max(usize::from(assignment.has_endpoints)),
        ..Part::default()
    }
}

fn is_dropped(fact: &SourceFact) -> bool {
    match fact.assigned {
        Assigned::Unknown(_) | Assigned::Usable(_) => false,
        Assigned::Dropped(_) => true,
    }
}

/// Returns the text that accompanies a source in every report and view: why none of it is used, and other errors.
fn note(fact: &SourceFact) -> Arc<str> {
    Arc::from(match fact.error() {
        Some(error) => format!("{error}; {}", fact.note),
        None => fact.note.to_string(),
    })
}

/// Returns the members of a pool that were observed Down.
fn downs(seen: &BalancerPool) -> BTreeSet<IpAddr> {
    let down = seen.facts.entries.iter().filter(|entry| entry.admin_state == AdminState::Down);
    down.filter_map(|entry| entry.ip).collect()
}

impl ListedPool {
    /// Returns what the source asks of the pool, in the form of a Service's fact.
    fn owners(&self, part: Part, known: Option<&KnownSource>) -> Owners {
        let name = self.source.to_string();
        let uid = ServiceUid::new(name.as_str());
        let fact = ServiceFact {
            key: ServiceKey::of_source(&name),
            uid: uid.clone(),
            candidacy: Candidacy::Candidate,
            paused: false,
            internal: false,
            exposure: 0,
            endpoints: part.endpoints,
            parts: Parts::of(self.family, part),
            slices: 1,
            data_errors: Vec::new(),
            resource: None,
            revision: known.map_or(0, |known| known.revision),
            provenance: known.map_or(Provenance::Watch, |known| known.fact.provenance),
            triggered: known.and_then(|known| known.changed),
            read: None,
        };
        Owners::from([(uid, Arc::new(fact))])
    }

    /// Limits the draining members to the available room; those that are, or may be, in the pool stay first.
    fn make_room(&mut self, membership: &mut membership::PoolMembership, seen: &BalancerPool, at: Now) {
        if self.seen_at < at {
            (self.seen_at, self.asked) = (at, std::mem::take(&mut self.last));
        }
        let there = |ip: &IpAddr| self.asked.contains(ip) || seen.members.contains(ip);
        membership.make_room(self.max_members, there);
        self.asked.extend(&membership.members);
        self.last.clone_from(&membership.members);
    }

    /// Returns the admin states that the source requests. A Down on an address that the source calls draining counts
    /// as ours, even if it existed before this process. When the address is in service again, the Down is lifted. The
    /// address stops counting as ours once a read at rest shows that the Down is gone. A Down that another client
    /// sets later stays (N4). An address of a node that leaves service stays Down until the node is back. If the node
    /// is gone and the source still assigns the address, the Down is lifted here (N4).
    fn states(
        &mut self,
        now: Now,
        id: &PoolId,
        membership: &membership::PoolMembership,
        seen: &BalancerPool,
        at: Now,
        draining_nodes: &DrainingAddresses,
    ) -> States {
        let membership::PoolMembership { members, draining, drains, diagnostics: _ } = membership;
        let down = downs(seen);
        let is_at_rest = match seen.facts.provisioning {
            Provisioning::Updating => false,
            Provisioning::Succeeded | Provisioning::Failed | Provisioning::Unknown => true,
        };
        self.ours.extend(draining.iter().chain(drains.intersection(&down)).map(|ip| (*ip, None)));
        self.ours.retain(|ip, ended| {
            if drains.contains(ip) {
                return true;
            }
            let ended = *ended.get_or_insert(now);
            down.contains(ip) || !is_at_rest || at < ended.plus(SEND_WINDOW)
        });
        // A draining address that is not Down by us is not lifted before it is in service again.
        let ours = self.ours.keys().filter(|ip| draining.contains(ip) || !drains.contains(ip));
        self.set_admin_states(Some(SourceAdminStates {
            down: draining.clone(),
            ours: ours.copied().collect(),
        }));
        let comes_back = |ip: &&IpAddr| members.contains(*ip) && !draining_nodes.down.contains(ip);
        let outlived = draining_nodes.outlived.iter().filter(|(pool, _)| pool == id).map(|(_, ip)| ip);
        let lifted = self.ours.keys().chain(outlived).filter(comes_back).copied().collect();
        States { down: draining.clone(), lifted }
    }

    /// Returns a diagnostic for required members that are Down although nothing here asks for it. They get no traffic;
    /// the client that set the Down must end it (N4).
    fn foreign_downs(
        &self,
        id: &PoolId,
        part: &Part,
        seen: &BalancerPool,
        draining_nodes: &DrainingAddresses,
    ) -> Option<Diagnostic> {
        let is_ours = |ip: &IpAddr| {
            self.ours.contains_key(ip)
                || draining_nodes.down.contains(ip)
                || draining_nodes.restored.contains(ip)
                || draining_nodes.outlived.contains(&(id.clone(), *ip))
        };
        let foreign = downs(seen).iter().filter(|ip| part.required.contains_key(ip) && !is_ours(ip)).count();
        (foreign > 0).then_some(Diagnostic::ForeignDown(foreign))
    }

    fn set_admin_states(&mut self, admin_states: Option<SourceAdminStates>) {
        if self.admin_states.as_deref() != admin_states.as_ref() {
            (self.admin_states, self.admin_states_changed) = (admin_states.map(Arc::new), true);
        }
    }
}

impl Directory {
    /// Returns the part of a load balancer that is ours: on an unmanaged one, only the listed pools.
    pub(super) fn ours(&self, lb: &LbName, facts: Option<Arc<LbFacts>>) -> Option<Arc<LbFacts>> {
        let facts = facts?;
        if !self.params.only_listed.contains(lb) {
            return Some(facts);
        }
        Some(Arc::new(facts.only(|id| self.listed.has(id))))
    }

    /// Updates the state of a source, and computes its pools again; a changed note alone causes no write. Of facts that
    /// were not yet processed, the doubts of each pool and the oldest change are kept (G1, A3).
    pub(super) fn on_source(&mut self, now: Now, name: Name, fact: SourceFact) {
        let first = KnownSource {
            fact: fact.clone(),
            revision: 0,
            changed: None,
            condition: SourceCondition::default(),
        };
        let mut is_new = !self.listed.sources.contains_key(&name);
        let known = self.listed.sources.entry(name.clone()).or_insert(first);
        if known.fact.assigned != fact.assigned {
            let waits = !self.listed.fresh.insert(name.clone());
            let changed = known.fact.assignment().is_some().then_some(now);
            known.revision += 1;
            known.changed = known.changed.filter(|_| waits).or(changed);
            is_new = true;
        }
        // A fact that only adds to the known one keeps its provenance.
        let pending_provenance = Some(fact.provenance).filter(|_| is_new);
        known.fact = fact;
        self.dirty.since.get_or_insert(now);
        let running = self.is_running();
        for (id, entry) in self.listed.pools.iter_mut().filter(|(_, entry)| entry.source == name) {
            entry.pending_provenance = entry.pending_provenance.max(pending_provenance);
            if running {
                self.dirty.pool(now, id.clone());
            }
        }
    }

    /// Updates the nodes that leave service: other addresses of listed pools may have to be lifted (N4).
    pub(super) fn on_draining(&mut self, now: Now, draining_nodes: Arc<DrainingAddresses>) {
        self.listed.draining_nodes = draining_nodes;
        self.mark_listed_dirty(now);
    }

    /// Marks every listed pool as dirty.
    pub(super) fn mark_listed_dirty(&mut self, now: Now) {
        self.dirty.since.get_or_insert(now);
        if self.is_running() {
            for id in self.listed.pools.keys() {
                self.dirty.pool(now, id.clone());
            }
        }
    }

    /// Makes lasting conditions of sources due for a report again.
    pub(super) fn reset_source_reports(&mut self) {
        self.listed.sources.values_mut().for_each(|known| known.condition = SourceCondition::default());
    }

    /// Reports new and ended errors of sources, once each. Sources with the same error share one report.
    pub(super) fn report_sources(&mut self, out: &mut Vec<Out>) {
        if self.reporting.is_none() {
            return;
        }
        let mut changes: BTreeMap<SourceChange, BTreeSet<Name>> = BTreeMap::new();
        let mut left: BTreeSet<Arc<BTreeSet<Arc<str>>>> = BTreeSet::new();
        for (name, known) in &mut self.listed.sources {
            if let Some(new) = known.condition.change(&known.fact) {
                left.extend(known.condition.group.take());
                changes.entry(new).or_default().insert(name.clone());
            }
        }
        for (new, sources) in changes {
            let pools = self.listed.pools.values().filter(|entry| sources.contains(&entry.source)).count();
            let names: BTreeSet<Arc<str>> = sources.iter().map(|name| Arc::from(name.to_string())).collect();
            let group = new.is_failing().then(|| Arc::new(names.clone()));
            for name in &sources {
                if let Some(known) = self.listed.sources.get_mut(name) {
                    known.condition.group.clone_from(&group);
                }
            }
            out.push(Out::Report(new.report(names, pools)));
        }
        for group in left {
            let is_of_it = |known: &KnownSource| known.condition.group.as_ref() == Some(&group);
            if !self.listed.sources.values().any(is_of_it) {
                out.push(Out::Ended(Ended::of(Condition::SourcesFailing((*group).clone()))));
            }
        }
    }
}
