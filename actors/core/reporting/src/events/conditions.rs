//! Reports of conditions that the API server has not accepted yet (E1).

use std::collections::BTreeMap;

use super::correlator::{NewEvent, SeriesKey};
use model::report::{Condition, Ended, Subject};

/// A value for each condition and each of its subjects.
type ByCondition<T> = BTreeMap<Condition, BTreeMap<Subject, T>>;

/// The newest report of each lasting condition that the API server has not accepted.
#[derive(Default, Debug)]
pub(super) struct OutstandingReports(ByCondition<SeriesKey>);

impl OutstandingReports {
    /// Records the newest report of a condition; an older report of it is outdated.
    pub(super) fn began(&mut self, key: &SeriesKey) {
        if let Some(condition) = &key.class.condition {
            let subjects = self.0.entry(condition.clone()).or_default();
            subjects.insert(key.class.subject.clone(), key.clone());
        }
    }

    /// Reports whether this series holds the newest report of a lasting condition, and was not accepted.
    pub(super) fn holds(&self, key: &SeriesKey) -> bool {
        let subjects = key.class.condition.as_ref().and_then(|condition| self.0.get(condition));
        subjects.and_then(|subjects| subjects.get(&key.class.subject)) == Some(key)
    }

    /// Records that the API server accepted the newest report in this series.
    pub(super) fn accepted(&mut self, key: &SeriesKey) {
        if self.holds(key)
            && let Some(condition) = &key.class.condition
        {
            remove(&mut self.0, condition, Some(&key.class.subject));
        }
    }

    /// Drops an ended condition.
    pub(super) fn ended(&mut self, ended: &Ended) {
        remove(&mut self.0, &ended.condition, ended.subject.as_ref());
    }

    /// Drops everything: lasting conditions are reported again when that is permitted.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the series of all reports.
    pub(super) fn keys(&self) -> impl Iterator<Item = &SeriesKey> {
        self.0.values().flat_map(BTreeMap::values)
    }
}

/// The newest report of each condition that arrived before the emitter knew the term of the report.
#[derive(Default, Debug)]
pub(super) struct EarlyReports(ByCondition<NewEvent>);

impl EarlyReports {
    /// Keeps a report until it may be posted.
    pub(super) fn keep(&mut self, event: NewEvent) {
        if let Some(condition) = &event.class.condition {
            self.0.entry(condition.clone()).or_default().insert(event.class.subject.clone(), event);
        }
    }

    /// Drops an ended condition.
    pub(super) fn ended(&mut self, ended: &Ended) {
        remove(&mut self.0, &ended.condition, ended.subject.as_ref());
    }

    /// Removes and returns the reports for these subjects.
    pub(super) fn take(&mut self, of: impl Fn(&Subject) -> bool) -> Vec<NewEvent> {
        let mut taken = Vec::new();
        for subjects in self.0.values_mut() {
            taken.extend(subjects.extract_if(.., |subject, _| of(subject)).map(|(_, event)| event));
        }
        self.0.retain(|_, subjects| !subjects.is_empty());
        taken
    }
}

/// Removes the values of a condition for this subject, or for all of them.
fn remove<T>(all: &mut ByCondition<T>, condition: &Condition, subject: Option<&Subject>) {
    match (subject, all.get_mut(condition)) {
        (Some(subject), Some(subjects)) => {
            subjects.remove(subject);
            if subjects.is_empty() {
                all.remove(condition);
            }
        }
        (None, Some(_)) => drop(all.remove(condition)),
        (_, None) => {}
    }
}
