//! Terms: when one may begin, what counts at its start, and what is allowed in it (docs/design/nodes.md, N4; W8, G6).

use std::sync::Arc;

use super::records::Record;
use super::{AdminState, Out, Role};
use model::config_map::ConfigMapAnswer;
use model::ids::{CallId, Epoch, NodeUid, PoolId};
use model::machine::Now;
use model::policy::OperatorPolicy;

impl AdminState {
    /// Returns whether this process leads in the opened term, and no newer one has begun.
    pub(super) fn leads(&self) -> bool {
        self.open.is_some() && self.leads == self.open && self.confirmed <= self.open
    }

    /// Returns whether new work may begin: this process leads, and the policy allows it (G6).
    pub(super) fn acts(&self) -> bool {
        let lets = |policy: &Arc<OperatorPolicy>| !policy.only_observes();
        self.leads() && self.policy_term >= self.open && self.policy.as_ref().is_some_and(lets)
    }

    /// Returns whether the key that switches the admin state off exists.
    pub(super) fn is_switched_off(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.admin_state_off)
    }

    /// Returns whether signals count.
    pub(super) fn signals_count(&self) -> bool {
        match self.params.role {
            Role::On => !self.is_switched_off(),
            Role::Off | Role::Silent => false,
        }
    }

    /// Returns the term that may begin: the Directory is ready for it, and the nodes and records are known.
    pub(super) fn may_begin(&self) -> Option<Epoch> {
        let knows = |epoch: &Epoch| self.confirmed >= Some(*epoch) && self.records.read_for() >= Some(*epoch);
        self.opening.filter(knows)
    }

    pub(super) fn on_config_map(
        &mut self,
        now: Now,
        call: CallId,
        answer: ConfigMapAnswer,
        out: &mut Vec<Out>,
    ) {
        let found = self.records.on_answer(now, call, answer, out);
        let leads = self.leads();
        for record in found.into_iter().filter(|_| leads) {
            self.read(&record);
            self.nodes.on_record_found(now, &record);
            self.restart_work(now, record.uid.clone());
            let uid = record.uid.clone();
            self.records.adopt(record);
            self.record_fact(&uid);
        }
        self.changed = true;
    }

    /// Adds the current fact to the record. The node may have changed since the record was written, before this
    /// process saw it.
    fn record_fact(&mut self, uid: &NodeUid) {
        if let Some(fact) = self.nodes.fact(uid) {
            self.records.update_facts(uid, fact);
        }
    }

    /// Applies a record that says that the taint of its node is ours.
    fn read(&mut self, record: &Record) {
        if record.taint_ours {
            self.notices.on_read(&record.uid);
        }
    }

    /// Starts a term. Updates of an earlier term may be lost, and other processes may have written records that this
    /// one did not see.
    pub(super) fn begin(&mut self, now: Now, epoch: Epoch, out: &mut Vec<Out>) {
        self.opening = None;
        self.open = Some(epoch);
        self.updates.clear();
        self.dirty.extend(self.pools.ids().cloned());
        let (pools, excluded) = (&self.pools, &self.params.excluded);
        self.records.begin(|record| {
            let backends = record.backends().collect();
            let is_ours = |pool: &PoolId| !record.foreign.holds(pool) && !excluded.contains(&pool.pool);
            pools.downs(&backends).any(|(pool, _)| is_ours(pool))
        });
        self.notices.begin();
        let records: Vec<Record> = self.records.all().cloned().collect();
        records.iter().for_each(|record| self.read(record));
        let begun = self.nodes.begin(now, &self.records);
        for uid in &begun.before {
            self.drop_work(now, uid);
        }
        for uid in begun.after {
            self.restart_work(now, uid);
        }
        self.apply_notices(now);
        for Record { uid, .. } in &records {
            self.records.record_taint(uid, self.notices.is_ours(uid));
            self.record_fact(uid);
        }
        self.changed = true;
        self.send_set(out);
        out.push(Out::Opened(epoch));
    }
}
