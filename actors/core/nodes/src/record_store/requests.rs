//! What is asked about our ConfigMap: it is read for each term, and what is wanted is written (docs/design/nodes.md,
//! N4; A4). How that is asked, one request at a time, is [`ConfigMapClient`](mechanisms::config_map_client::Errand)'s business.
//!
//! The first write of several goes by the state that was seen last. It fails where another client has written since,
//! and the ConfigMap is read again. A write without an answer may be carried out late, as long as no other write came
//! first: what it removes does not count as kept until it was written again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::RecordStore;
use super::state::{Change, State};
use crate::{Keeping, Out, Record};
use mechanisms::config_map_client::{ConfigMapNews, ConfigMapRead, ConfigMapRequest, Failed};
use model::config_map::{ConfigMapAnswer, ConfigMapEdit};
use model::ids::{CallId, Epoch, NodeUid};
use model::machine::{Now, earliest, step_of};
use model::object::ResourceVersion;
use model::sample::Metric;

/// How long after a failed request the next is made; the last one repeats. A node that serves no traffic waits for it.
const RETRY_AFTER: [Duration; 7] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1_600),
    Duration::from_millis(3_200),
    Duration::from_secs(5),
];
/// The same after a request that was denied: rights do not change within seconds.
const RETRY_DENIED: Duration = Duration::from_secs(15);
/// How often it is looked at while there are records: the operator may have taken one away, or made room for one.
const RECHECK_EVERY: Duration = Duration::from_secs(60);
/// After how many failures in a row operators are told.
const TOLD_AFTER: u32 = 3;

/// How long a write may still be carried out of which nothing was heard.
const LOST_FOR: Duration = Duration::from_secs(120);

/// A write of which nothing was heard.
#[derive(Debug)]
pub(super) struct Lost {
    /// The state that it replaces; `None`: there was no ConfigMap.
    base: Option<ResourceVersion>,
    removes: BTreeSet<Arc<str>>,
    until: Now,
}

/// The last write.
#[derive(Debug, Default)]
pub(super) struct Sent {
    base: Option<ResourceVersion>,
    edit: ConfigMapEdit,
    records: BTreeMap<NodeUid, Record>,
}

impl Sent {
    /// What was written of this node does not count any more.
    pub(super) fn forget(&mut self, uid: &NodeUid) {
        self.records.remove(uid);
    }

    /// Whether a change repeats any of it.
    fn is_repeated_by(&self, edit: &ConfigMapEdit) -> bool {
        let sets = edit.set.iter().any(|(key, value)| self.edit.set.get(key) == Some(value));
        sets || edit.remove.iter().any(|key| self.edit.remove.contains(key))
    }
}

impl RecordStore {
    /// A term begins: the ConfigMap is to be read after this moment.
    pub(crate) fn confirm(&mut self, now: Now, epoch: Epoch) {
        if self.asked_for >= Some(epoch) {
            return;
        }
        self.asked_for = Some(epoch);
        match self.keeping {
            Keeping::ConfigMap => self.errand.look_anew(now),
            Keeping::Nothing => self.read_for = self.asked_for,
        }
    }

    /// The newest term for which it was read.
    pub(crate) fn read_for(&self) -> Option<Epoch> {
        self.read_for
    }

    /// When something is to be done.
    pub(crate) fn deadline(&self) -> Option<Now> {
        earliest(self.errand.deadline(), self.recheck)
    }

    /// What is to be told of requests that have failed several times in a row.
    pub(crate) fn take_failure(&mut self) -> Option<Arc<str>> {
        self.failure.take()
    }

    /// Asks for what time and the last input allow; nothing is written where no machine `acts`.
    pub(crate) fn advance(&mut self, now: Now, acts: bool, out: &mut Vec<Out>) {
        if !self.writes() {
            return;
        }
        self.lost.take_if(|lost| lost.until <= now);
        if let Some(failed) = self.errand.overdue(now) {
            self.on_failed(now, &failed);
        }
        let reads = self.asked_for > self.read_for;
        if acts {
            if self.recheck.take_if(|at| *at <= now).is_some() {
                self.errand.hurry(now);
            }
            let again = self.recheck.unwrap_or(now.plus(RECHECK_EVERY));
            self.recheck = (!self.wanted.is_empty() || self.lost.is_some()).then_some(again);
            self.write(now, out);
        } else {
            self.recheck = None;
            if !reads && self.errand.asked().is_none() && !self.errand.is_idle() {
                self.errand.stop();
            }
        }
        if let Some((call, ask)) = self.errand.look(now, self.asked_for) {
            out.push(Out::ConfigMap(call, ask));
        }
    }

    /// Writes what is not there as it is wanted, by the state that was seen last.
    fn write(&mut self, now: Now, out: &mut Vec<Out>) {
        if !self.differs || !self.errand.is_idle() {
            return;
        }
        let Some(state) = &self.state else {
            self.errand.look_at(now);
            return;
        };
        let Change { edit, records, refused } = state.change(&self.wanted, &self.leaving);
        self.differs = false;
        self.refused = refused;
        if edit.is_empty() {
            self.leaving.clear();
            self.errand.forget_setbacks();
            return;
        }
        if self.sent.is_repeated_by(&edit) {
            // Another client undoes it, or the server does not do it: not again immediately.
            self.sent = Sent::default();
            self.differs = true;
            self.state = None;
            self.errand.put_off(now, step_of(&RETRY_AFTER, self.errand.failures()));
            return;
        }
        let (base, facts) = (state.version().cloned(), state.facts().cloned());
        let (call, ask) = self.errand.write(now, self.asked_for, facts, edit.clone());
        self.sent = Sent { base, edit, records };
        // What becomes of it is not known until it is answered.
        self.state = None;
        out.push(Out::ConfigMap(call, ask));
    }

    /// Takes in the answer to the request that is under way; gives records that turned up and that this process has not
    /// made or misses.
    pub(crate) fn on_answer(
        &mut self,
        now: Now,
        call: CallId,
        answer: ConfigMapAnswer,
        out: &mut Vec<Out>,
    ) -> Vec<Record> {
        match self.errand.on_answer(now, call, answer) {
            ConfigMapNews::Unmatched => out.push(Out::Metric(Metric::UnmatchedAnswer)),
            ConfigMapNews::Forestalled => self.unsend(),
            ConfigMapNews::State(sight) => return self.on_state(now, sight),
            ConfigMapNews::Failed(failed) => self.on_failed(now, &failed),
        }
        Vec::new()
    }

    fn on_state(&mut self, now: Now, sight: ConfigMapRead<Option<Epoch>>) -> Vec<Record> {
        let mut state = State::of(now, sight.facts);
        // It replaces a state that is no more.
        self.lost.take_if(|lost| lost.base.as_ref() != state.version());
        if let Some(lost) = &self.lost {
            state.doubt(&lost.removes);
        }
        self.read_for = self.read_for.max(sight.when);
        self.unreadable.clone_from(state.unreadable());
        let mut found = Vec::new();
        for there in state.records() {
            let Some(wanted) = self.wanted.get(&there.uid) else {
                if !self.leaving.contains(&there.uid) {
                    found.push(there.clone());
                }
                continue;
            };
            // What was written, or what is wanted now: nothing else was made for this run of the node.
            let mut made = self.sent.records.get(&there.uid).into_iter().chain([wanted]);
            if let Some(made) = made.rfind(|made| state.holds(made)) {
                self.news |= self.kept.get(&there.uid).is_none_or(|known| !known.says_the_same(made));
                self.kept.insert(there.uid.clone(), made.clone());
            }
        }
        self.leaving.retain(|uid| state.record(uid).is_some());
        self.differs = !self.leaving.is_empty() || !self.wanted.values().all(|record| state.holds(record));
        match sight.what {
            ConfigMapRequest::Look => self.sent = Sent::default(),
            ConfigMapRequest::Write => {}
        }
        if !self.differs {
            self.errand.forget_setbacks();
        }
        self.state = Some(state);
        if self.asked_for > self.read_for {
            self.errand.look_at(now);
        }
        found
    }

    fn on_failed(&mut self, now: Now, failed: &Failed) {
        match failed.what {
            ConfigMapRequest::Look => {}
            ConfigMapRequest::Write => {
                let Sent { base, edit, .. } = &self.sent;
                let before = self.lost.take().filter(|lost| lost.base == *base);
                let mut removes = before.map(|lost| lost.removes).unwrap_or_default();
                removes.extend(edit.remove.iter().cloned());
                self.lost = Some(Lost { base: base.clone(), removes, until: now.plus(LOST_FOR) });
            }
        }
        self.unsend();
        let wait = if failed.denied { RETRY_DENIED } else { step_of(&RETRY_AFTER, self.errand.failures()) };
        self.errand.put_off(now, wait);
        if self.errand.failures() >= TOLD_AFTER {
            self.failure = Some(Arc::clone(&failed.why));
        }
    }

    /// It is not known what became of the last write, or it was not made.
    fn unsend(&mut self) {
        self.state = None;
        self.differs = true;
    }
}
