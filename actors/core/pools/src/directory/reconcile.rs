//! One turn: computes the level of every dirty pool, evaluates all of them together, and only then sends the changed
//! levels (G4). No level is sent before that evaluation, so that a burst of removals in one turn does not slip
//! through.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::gauges::GaugeReasons;
use super::pool::{self, RemovalPolicy};
use super::pool_inputs::{Ownership, PoolInputs, Unproven};
use super::xds_pools::XdsPools;
use super::{Directory, Out};
use model::assignment::Observation;
use model::ids::{PoolId, ServiceUid};
use model::machine::Now;
use model::report::{Condition, Ended, EventKind, Report, Subject};
use model::sample::Metric;
use model::services::ServiceFact;
use model::view::{Candidacy, ExcludedNodeView, GuardsView, ServiceView, StoppedView};

/// A pool's state before its level was computed.
struct Before {
    counted: GaugeReasons,
    refusal: Option<Unproven>,
    deadline: Option<Now>,
    read_from: Option<Now>,
}

impl Directory {
    /// Computes, evaluates and sends everything that is dirty.
    pub(super) fn reconcile(&mut self, now: Now, out: &mut Vec<Out>) {
        let mut computed: BTreeSet<PoolId> = BTreeSet::new();
        for id in std::mem::take(&mut self.dirty.pools) {
            if self.compute(now, &id, out) {
                computed.insert(id);
            }
        }
        if self.is_running() {
            self.listed.clear_fresh();
        }
        if self.params.guards.judges() && self.breaker.evaluate(now) {
            let others: Vec<PoolId> =
                self.pools.keys().filter(|id| !computed.contains(id)).cloned().collect();
            for id in others {
                if self.compute(now, &id, out) {
                    computed.insert(id);
                }
            }
            // These pools may lose more now than when their levels were last computed.
            self.breaker.evaluate(now);
        }
        let removal_policy = RemovalPolicy {
            breaker: self.breaker.tripped().is_some(),
            add_only: self.policy.is_add_only(),
            observes: self.params.guards.only_observes(),
        };
        for id in &computed {
            self.send(now, id, removal_policy, out);
        }
    }

    fn before(&self, id: &PoolId) -> Before {
        let pool = self.pools.get(id);
        Before {
            counted: pool.map(pool::Pool::gauge_reasons).unwrap_or_default(),
            refusal: pool.and_then(pool::Pool::refused).cloned(),
            deadline: pool.and_then(|pool| pool.deadline),
            read_from: pool.and_then(|pool| pool.read_from),
        }
    }

    /// Computes one pool again. Returns whether its level is to be sent; a pool without a level is finished at once.
    fn compute(&mut self, now: Now, id: &PoolId, out: &mut Vec<Out>) -> bool {
        #[cfg(test)]
        {
            self.computed_levels += 1;
        }
        let unseen = self.dirty.unseen.remove(id);
        let balancer = self.balancers.get(&id.lb).filter(|_| !self.cluster_pools.contains(&id.pool));
        let found = balancer.and_then(|balancer| Some((balancer.pools.get(&id.pool)?, balancer.began)));
        let ownership = match (balancer, found) {
            (None, _) => Ownership::Nobody,
            (Some(balancer), None) => self.listed.ownership_of_absent(id, balancer.facts.is_some()),
            (Some(_), Some((seen, at))) => {
                match self.listed.ownership(now, id, seen, at, self.reporting.is_some()) {
                    Some(ownership) => ownership,
                    None => pool::ownership(&id.pool, seen, self.services.candidate_owners(&seen.rules)),
                }
            }
        };
        if found.is_none() {
            self.listed.not_found(id, self.balancers.contains_key(&id.lb));
        }
        if let Some(states) = self.listed.take_admin_states(id) {
            out.push(Out::SourceAdminStates(id.clone(), states));
        }
        match ownership {
            Ownership::Nobody if !self.pools.contains_key(id) => return false,
            Ownership::Nobody | Ownership::Refused(..) | Ownership::Proven(..) => {}
        }
        let before = self.before(id);
        keep_doubts(&mut self.listed, id, self.pools.get(id), &ownership);
        match (ownership, found) {
            (Ownership::Nobody, _) | (Ownership::Proven(..), None) => {
                let term = self.term;
                self.pools.entry(id.clone()).or_default().retire(term, out);
            }
            (Ownership::Refused(reason, owners), _) => {
                let term = self.term;
                let paused = self.is_refused_paused(id, &owners);
                let services = owners.iter().map(|(uid, fact)| (uid.clone(), fact.key.clone())).collect();
                let note = self.listed.note(id);
                let refusal = Unproven { reason, services, note, paused };
                self.pools.entry(id.clone()).or_default().refuse(term, refusal, out);
            }
            (Ownership::Proven(family, owners, listed), Some((seen, observed_at))) => {
                let paused = self.paused(id, family, &owners);
                let pool = self.pools.entry(id.clone()).or_default();
                let pass_on = unseen || pool.assignment().is_none();
                let facts = || Observation { began: observed_at, facts: Arc::clone(&seen.facts) };
                let observation = pass_on.then(facts);
                let inputs = PoolInputs {
                    now,
                    term: self.term,
                    params: &self.params,
                    seen,
                    family,
                    owners,
                    listed,
                    read_asked: self.second_read.in_force(),
                    paused,
                    add_only: self.policy.is_add_only(),
                    stopped: self.breaker.tripped(),
                };
                let size = pool.compute(id, &inputs, observation);
                self.breaker.record(now, id, size);
                return true;
            }
        }
        self.breaker.forget(id);
        self.finish(now, id, before, out);
        false
    }

    /// Sends the computed level of one pool.
    fn send(&mut self, now: Now, id: &PoolId, removal_policy: RemovalPolicy, out: &mut Vec<Out>) {
        let before = self.before(id);
        if let Some(pool) = self.pools.get_mut(id) {
            pool.send(id, now, removal_policy, out);
        }
        self.finish(now, id, before, out);
    }

    /// Updates all indexes of a pool to its current state.
    fn finish(&mut self, now: Now, id: &PoolId, before: Before, out: &mut Vec<Out>) {
        let Some(pool) = self.pools.get_mut(id) else {
            return;
        };
        if self.reporting.is_some() {
            pool.report(id, out);
        }
        if before.deadline != pool.deadline {
            if let Some(at) = before.deadline {
                self.timers.remove(&(at, id.clone()));
            }
            if let Some(at) = pool.deadline {
                self.timers.insert((at, id.clone()));
            }
        }
        self.second_read.set_needed_from(id, before.read_from, pool.read_from);
        let reason = |refusal: Option<&Unproven>| refusal.map(|refusal| refusal.reason.clone());
        if self.listed.has(id) && reason(before.refusal.as_ref()) != reason(pool.refused()) {
            out.push(Out::Refused(id.clone(), reason(pool.refused())));
        }
        if before.refusal.as_ref() != pool.refused() {
            let refusals = before.refusal.iter().chain(pool.refused());
            let concerned: Vec<ServiceUid> =
                refusals.flat_map(|refusal| refusal.services.keys()).cloned().collect();
            concerned.into_iter().for_each(|uid| self.dirty.service(now, uid));
        }
        self.gauges.move_pool(before.counted, pool.gauge_reasons());
        if pool.is_over() {
            self.pools.remove(id);
        }
    }

    /// Reports that removals are stopped, or that the stop has ended.
    pub(super) fn report_breaker(&mut self, out: &mut Vec<Out>) {
        let (pools, of) = self.breaker.counted();
        let enforced = !self.params.guards.only_observes();
        if self.is_running()
            && let Some(tripped) = self.breaker.take_change()
        {
            out.push(Out::Metric(Metric::RemovalBreaker(tripped && enforced)));
        }
        if self.breaker.take_due_end() {
            out.push(Out::Ended(Ended::of(Condition::RemovalsStopped)));
        }
        if self.reporting.is_some() && self.breaker.take_due_report() {
            let what = EventKind::RemovalsStopped { pools, of, enforced };
            out.push(Out::Report(Report { subjects: vec![Subject::Controller], what, note: None }));
        }
    }

    /// Publishes the view of the guards if it changed.
    pub(super) fn publish_guards(&mut self, out: &mut Vec<Out>) {
        let (pools, of) = self.breaker.counted();
        let stopped = self.breaker.tripped().map(|since| StoppedView { since, pools, of });
        let reading_since = self.second_read.in_flight();
        let view = GuardsView { mode: self.params.guards, stopped, reading_since };
        if self.is_running() {
            out.extend(self.published.update(view).map(Out::Guards));
        }
    }

    /// Publishes the view of one Service if it changed.
    pub(super) fn publish_service(&mut self, uid: ServiceUid, out: &mut Vec<Out>) {
        let pools = self.pools_of(&uid);
        let running = self.is_running();
        let Some(entry) = self.services.get_mut(&uid) else {
            return;
        };
        entry.fresh &= !running;
        let fact = &entry.fact;
        let refused = |id: PoolId| {
            let reason = self.pools.get(&id)?.refused()?.reason.clone();
            Some((id, reason))
        };
        let candidate = fact.candidacy == Candidacy::Candidate;
        let wanted = fact.candidacy != Candidacy::NotLoadBalancer || !pools.is_empty();
        let view = wanted.then(|| {
            Arc::new(ServiceView {
                key: fact.key.clone(),
                uid: uid.clone(),
                candidacy: fact.candidacy,
                paused: fact.paused,
                slices: fact.slices,
                endpoints: fact.endpoints,
                data_errors: fact.data_errors.clone(),
                resource: fact.resource.clone(),
                excluded: excluded(fact),
                pools: pools.iter().cloned().collect(),
                not_manageable: pools.into_iter().filter(|_| candidate).filter_map(refused).collect(),
            })
        });
        if let Some(view) = entry.published.update(view) {
            let key = fact.key.clone();
            out.push(Out::Service(uid, key, view));
        }
    }
}

/// Returns the nodes with endpoints of a Service that are excluded from one of its pools.
fn excluded(fact: &ServiceFact) -> Vec<ExcludedNodeView> {
    let all = fact.parts.iter().flat_map(|(family, part)| {
        part.excluded.iter().map(move |(node, of)| ExcludedNodeView {
            node: node.clone(),
            family,
            ips: of.ips.clone(),
            why: of.why,
        })
    });
    let mut all: Vec<ExcludedNodeView> = all.collect();
    all.sort_unstable();
    all.truncate(ServiceView::MAX_EXCLUDED_NODES);
    all
}

/// Keeps the doubts about a listed pool that is released, so that they still apply when the pool is proven ours again
/// (G1).
fn keep_doubts(listed: &mut XdsPools, id: &PoolId, pool: Option<&pool::Pool>, ownership: &Ownership) {
    match ownership {
        Ownership::Proven(..) => {}
        Ownership::Nobody | Ownership::Refused(..) => {
            if pool.is_some_and(pool::Pool::is_doubted) {
                listed.keep_doubts(id);
            }
        }
    }
}
