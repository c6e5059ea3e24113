//! Reports data errors to operators: each condition once when it begins, and once more in each term and after a pause
//! (D6, E1). A paused Service gets no reports, as in a mode that only observes (G6).

use std::sync::Arc;

use super::cache::ServiceEntry;
use super::data_errors::DataErrors;
use super::part::ServiceParts;
use super::{Informer, Out};
use model::ids::{Epoch, ServiceKey};
use model::machine::Now;
use model::object::ServiceObject;
use model::policy::OperatorPolicy;
use model::report::{Condition, Ended, EventKind, Report, ServiceRef, Subject};

impl ServiceEntry {
    /// Records the current data errors.
    pub(super) fn record_data_errors(&mut self, computed: &ServiceParts) {
        let service = self.service.as_ref().map(|(service, _)| &service.uid);
        let lasts = service == self.published.as_ref().map(|published| &published.uid);
        let reported = lasts && self.data_errors.as_ref().is_some_and(|data_errors| data_errors.reported);
        self.data_errors = computed.errors.first().map(|example| DataErrors {
            endpoints: computed.affected,
            example: Arc::clone(example),
            reported,
        });
    }

    /// Returns true if the Service of this entry is paused, by the policy or by its annotation.
    fn is_paused(&self, policy: &OperatorPolicy) -> bool {
        let paused = |service: &ServiceObject| service.paused || policy.services.contains_key(&service.key);
        self.service.as_ref().is_some_and(|(service, _)| paused(service))
    }

    /// Returns the report of the Service's data errors, unless they were reported already. A pause marks them as not
    /// reported, so that they are reported when the pause ends.
    fn unreported_data_errors(&mut self, policy: &OperatorPolicy) -> Option<Report> {
        let paused = self.is_paused(policy);
        let subject = self.subject()?;
        let data_errors = self.data_errors.as_mut()?;
        if std::mem::replace(&mut data_errors.reported, !paused) || paused {
            return None;
        }
        let what = EventKind::DataError {
            endpoints: data_errors.endpoints,
            example: Arc::clone(&data_errors.example),
        };
        Some(Report { subjects: vec![subject], what, note: None })
    }

    /// Returns the Service, as the subject of an event.
    fn subject(&self) -> Option<Subject> {
        let (service, _) = self.service.as_ref()?;
        Some(Subject::Service(ServiceRef { key: service.key.clone(), uid: service.uid.clone() }))
    }
}

impl Informer {
    /// Starts a term. Another client may read its Events, or an earlier report was dropped. Therefore lasting
    /// conditions are reported once more at the end of the turn, after all earlier inputs are processed.
    pub(super) fn on_reporting(&mut self, now: Now, term: Option<Epoch>) {
        if std::mem::replace(&mut self.reporting, term) == term || term.is_none() {
            return;
        }
        self.undecodables.mark_unreported();
        self.reported.clear();
        for data_errors in self.cache.entries.values_mut().filter_map(|entry| entry.data_errors.as_mut()) {
            data_errors.reported = false;
        }
        self.report_all = true;
        self.cache.due.get_or_insert(now);
    }

    /// Replaces the operator's policy.
    pub(super) fn on_policy(&mut self, now: Now, policy: Arc<OperatorPolicy>) {
        let before = std::mem::replace(&mut self.policy, policy);
        if !before.services.keys().eq(self.policy.services.keys()) {
            self.report_all = true;
            self.cache.due.get_or_insert(now);
        }
    }

    /// Reports the data errors of one Service, if they are new.
    pub(super) fn report_data_errors(&mut self, key: &ServiceKey, out: &mut Vec<Out>) {
        if self.reporting.is_some()
            && let Some(entry) = self.cache.entries.get_mut(key)
        {
            let report = entry.unreported_data_errors(&self.policy);
            self.reported.extend(
                report
                    .iter()
                    .flat_map(|report| &report.subjects)
                    .cloned()
                    .map(|subject| (key.clone(), subject)),
            );
            out.extend(report.map(Out::Report));
        }
    }

    /// Ends the reported data errors of one Service, if they no longer hold. A pause ends them too.
    pub(super) fn end_data_errors(&mut self, key: &ServiceKey, out: &mut Vec<Out>) {
        let Some(subject) = self.reported.get(key) else { return };
        let entry = self.cache.entries.get(key).filter(|entry| !entry.is_paused(&self.policy));
        let holds = entry
            .is_some_and(|entry| entry.data_errors.is_some() && entry.subject().as_ref() == Some(subject));
        if !holds {
            let subject = self.reported.remove(key);
            out.push(Out::Ended(Ended { condition: Condition::DataError, subject }));
        }
    }

    /// Reports the conditions that began since the last turn and, at the start of a term, all that last.
    pub(super) fn report_conditions(&mut self, out: &mut Vec<Out>) {
        if self.reporting.is_none() {
            return;
        }
        if self.report_all {
            let reported: Vec<ServiceKey> = self.reported.keys().cloned().collect();
            reported.iter().for_each(|key| self.end_data_errors(key, out));
        }
        let (entries, policy) = (&self.cache.entries, &self.policy);
        let paused = |key: &ServiceKey| entries.get(key).is_some_and(|entry| entry.is_paused(policy));
        let over = self.undecodables.take_ended(&self.cache, paused);
        out.extend(over.into_iter().map(|over| Out::Ended(Ended::of(over))));
        out.extend(
            self.undecodables
                .reports(&self.cache, self.resources.drops(), paused)
                .into_iter()
                .map(Out::Report),
        );
        if std::mem::take(&mut self.report_all) {
            let affected = self.cache.entries.iter().filter(|(_, entry)| entry.data_errors.is_some());
            let affected: Vec<ServiceKey> = affected.map(|(key, _)| key.clone()).collect();
            affected.iter().for_each(|key| self.report_data_errors(key, out));
        }
    }

    /// Returns true if every condition that must be reported was reported.
    pub(super) fn has_reported(&self) -> bool {
        let mut entries = self.cache.entries.values();
        let is_reported = |entry: &ServiceEntry| {
            entry.is_paused(&self.policy)
                || entry.data_errors.as_ref().is_none_or(|data_errors| data_errors.reported)
        };
        let paused =
            |key: &ServiceKey| self.cache.entries.get(key).is_some_and(|entry| entry.is_paused(&self.policy));
        self.reporting.is_none()
            || (self.undecodables.are_reported(&self.cache, paused) && entries.all(is_reported))
    }
}
