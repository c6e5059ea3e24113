//! Requests about our ConfigMap: it is read for each term, and desired changes are written (docs/design/nodes.md, N4;
//! A4). [`ObjectClient`](mechanisms::object_client::ObjectClient) makes them, one at a time.
//!
//! The first of several writes replaces the last observed state. It fails if another client has written since, and
//! the ConfigMap is read again. An unanswered write may be carried out late, unless another write comes first. A
//! record that it removes does not count as confirmed until it is written again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::RecordStore;
use super::state::{RecordChange, RecordsState};
use crate::{Out, Record, RecordStorage};
use mechanisms::backoff::Backoff;
use mechanisms::object_client::{Reply, SentRequest};
use model::config_map::{ConfigMapAnswer, ConfigMapEdit, ConfigMapFacts};
use model::ids::{CallId, Epoch, NodeUid};
use model::machine::{Now, earliest};
use model::object::{RequestFailure, ResourceVersion};
use model::sample::Metric;

/// Delays after failed requests. The last one repeats. A node without traffic waits meanwhile.
const RETRY_AFTER: Backoff = Backoff(&[
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1_600),
    Duration::from_millis(3_200),
    Duration::from_secs(5),
]);
/// Delay after a denied request: permissions do not change within seconds.
const RETRY_DENIED: Duration = Duration::from_secs(15);
/// Interval of checks while there are records: the operator may have removed one, or made room for one.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Number of consecutive failures after which they are reported.
const REPORT_AFTER: u32 = 3;

/// Time for which an unanswered write may still be carried out.
const LOST_FOR: Duration = Duration::from_secs(120);

/// An unanswered write.
#[derive(Debug)]
pub(super) struct UnansweredWrite {
    /// The state that it replaces. `None`: there was no ConfigMap.
    base: Option<ResourceVersion>,
    removes: BTreeSet<Arc<str>>,
    until: Now,
}

/// The last write.
#[derive(Debug, Default)]
pub(super) struct LastWrite {
    base: Option<ResourceVersion>,
    edit: ConfigMapEdit,
    records: BTreeMap<NodeUid, Record>,
}

impl LastWrite {
    /// Drops the written record of this node.
    pub(super) fn forget(&mut self, uid: &NodeUid) {
        self.records.remove(uid);
    }

    /// Returns whether an edit repeats any part of this write.
    fn is_repeated_by(&self, edit: &ConfigMapEdit) -> bool {
        let sets = edit.set.iter().any(|(key, value)| self.edit.set.get(key) == Some(value));
        sets || edit.remove.iter().any(|key| self.edit.remove.contains(key))
    }
}

impl RecordStore {
    /// Starts a term: the ConfigMap must be read after this time.
    pub(crate) fn confirm(&mut self, now: Now, epoch: Epoch) {
        if self.term_to_read >= Some(epoch) {
            return;
        }
        self.term_to_read = Some(epoch);
        match self.storage {
            RecordStorage::ConfigMap => self.client.reread(now),
            RecordStorage::Nothing => self.read_for = self.term_to_read,
        }
    }

    /// Returns the newest term for which the ConfigMap was read.
    pub(crate) fn read_for(&self) -> Option<Epoch> {
        self.read_for
    }

    /// Returns the time of the next change without input.
    pub(crate) fn deadline(&self) -> Option<Now> {
        earliest(self.client.deadline(), self.recheck)
    }

    /// Takes the error of several consecutive failed requests.
    pub(crate) fn take_failure(&mut self) -> Option<Arc<str>> {
        self.failure.take()
    }

    /// Makes the requests that are due. Writes nothing unless `acts`.
    pub(crate) fn reconcile(&mut self, now: Now, acts: bool, out: &mut Vec<Out>) {
        if !self.writes() {
            return;
        }
        self.lost.take_if(|lost| lost.until <= now);
        if let Some((request, failure)) = self.client.take_overdue(now) {
            self.on_failed(now, request.writes, failure);
        }
        let reads = self.term_to_read > self.read_for;
        if acts {
            if self.recheck.take_if(|at| *at <= now).is_some() {
                self.client.hurry(now);
            }
            let again = self.recheck.unwrap_or(now.plus(RECHECK_INTERVAL));
            self.recheck = (!self.desired.is_empty() || self.lost.is_some()).then_some(again);
            self.write(now, out);
        } else {
            self.recheck = None;
            if !reads && self.client.in_flight().is_none() && !self.client.is_idle() {
                self.client.stop();
            }
        }
        if self.client.is_due(now) {
            let (call, request) = self.client.read(now, self.term_to_read);
            out.push(Out::ConfigMap(call, request));
        }
    }

    /// Writes the difference between the desired records and the last observed state.
    fn write(&mut self, now: Now, out: &mut Vec<Out>) {
        if !self.differs || !self.client.is_idle() {
            return;
        }
        let Some(state) = &self.state else {
            self.client.plan(now);
            return;
        };
        let RecordChange { edit, records, refused } = state.change(&self.desired, &self.removing);
        self.differs = false;
        self.refused = refused;
        if edit.is_empty() {
            self.removing.clear();
            self.client.forget_setbacks();
            return;
        }
        if self.sent.is_repeated_by(&edit) {
            // Another client reverts the edit, or the server drops it. The next try is delayed.
            self.sent = LastWrite::default();
            self.differs = true;
            self.state = None;
            self.client.put_off(now, RETRY_AFTER.delay(self.client.failures()));
            return;
        }
        let (base, facts) = (state.version().cloned(), state.facts().cloned());
        let (call, request) = self.client.write(now, self.term_to_read, facts, edit.clone());
        self.sent = LastWrite { base, edit, records };
        // The result is not known until the answer.
        self.state = None;
        out.push(Out::ConfigMap(call, request));
    }

    /// Applies the answer to the request in flight. Returns records that this process has neither made nor lost.
    pub(crate) fn on_answer(
        &mut self,
        now: Now,
        call: CallId,
        answer: ConfigMapAnswer,
        out: &mut Vec<Out>,
    ) -> Vec<Record> {
        let Some((request, reply)) = self.client.on_answer(now, call, answer) else {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return Vec::new();
        };
        match reply {
            Reply::State(facts) => return self.on_state(now, request, facts),
            Reply::Conflict | Reply::Unchanged => self.forget_write(),
            Reply::Failed(failure) => self.on_failed(now, request.writes, failure),
        }
        Vec::new()
    }

    fn on_state(
        &mut self,
        now: Now,
        request: SentRequest<Option<Epoch>>,
        facts: Option<Arc<ConfigMapFacts>>,
    ) -> Vec<Record> {
        let mut state = RecordsState::of(now, facts);
        // The state that the unanswered write replaces is no longer the newest, so the write fails.
        self.lost.take_if(|lost| lost.base.as_ref() != state.version());
        if let Some(lost) = &self.lost {
            state.mark_doubted(&lost.removes);
        }
        self.read_for = self.read_for.max(request.context);
        self.unreadable.clone_from(state.unreadable());
        let mut found = Vec::new();
        for there in state.records() {
            let Some(desired) = self.desired.get(&there.uid) else {
                if !self.removing.contains(&there.uid) {
                    found.push(there.clone());
                }
                continue;
            };
            // The record as written, or as desired now: no other record was made for this run of the node.
            let mut made = self.sent.records.get(&there.uid).into_iter().chain([desired]);
            if let Some(made) = made.rfind(|made| state.holds(made)) {
                self.has_changed |=
                    self.confirmed.get(&there.uid).is_none_or(|known| !known.has_same_facts(made));
                self.confirmed.insert(there.uid.clone(), made.clone());
            }
        }
        self.removing.retain(|uid| state.record(uid).is_some());
        self.differs = !self.removing.is_empty() || !self.desired.values().all(|record| state.holds(record));
        if !request.writes {
            self.sent = LastWrite::default();
        }
        if !self.differs {
            self.client.forget_setbacks();
        }
        self.state = Some(state);
        if self.term_to_read > self.read_for {
            self.client.plan(now);
        }
        found
    }

    fn on_failed(&mut self, now: Now, writes: bool, failure: RequestFailure) {
        if writes {
            let LastWrite { base, edit, .. } = &self.sent;
            let before = self.lost.take().filter(|lost| lost.base == *base);
            let mut removes = before.map(|lost| lost.removes).unwrap_or_default();
            removes.extend(edit.remove.iter().cloned());
            self.lost = Some(UnansweredWrite { base: base.clone(), removes, until: now.plus(LOST_FOR) });
        }
        self.forget_write();
        let wait = match &failure {
            RequestFailure::Denied(_) => RETRY_DENIED,
            RequestFailure::Other(_) => RETRY_AFTER.delay(self.client.failures()),
        };
        self.client.put_off(now, wait);
        if self.client.failures() >= REPORT_AFTER {
            self.failure = Some(failure.into_why());
        }
    }

    /// Forgets the known state, because the last write was not made or has an unknown result.
    fn forget_write(&mut self) {
        self.state = None;
        self.differs = true;
    }
}
