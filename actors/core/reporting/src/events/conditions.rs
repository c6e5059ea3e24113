//! Reports of conditions that the API server has not accepted yet (E1).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::correlator::{EventClass, NewEvent, SeriesKey};
use model::report::{Condition, Ended, Subject};

/// A value for each condition and each of its subjects. The subject is always present: a key without one sorts in front
/// of the keys of all subjects.
type ByCondition<T> = BTreeMap<(Condition, Option<Subject>), T>;

/// The newest report of each lasting condition that the API server has not accepted.
#[derive(Default, Debug)]
pub(super) struct OutstandingReports(ByCondition<Arc<SeriesKey>>);

impl OutstandingReports {
    /// Records the newest report of a condition; an older report of it is outdated.
    pub(super) fn began(&mut self, key: &Arc<SeriesKey>) {
        if let Some(condition) = key_of(&key.class) {
            self.0.insert(condition, Arc::clone(key));
        }
    }

    /// Returns whether this series holds the newest report of a lasting condition, and was not accepted.
    pub(super) fn holds(&self, key: &Arc<SeriesKey>) -> bool {
        key_of(&key.class).and_then(|condition| self.0.get(&condition)) == Some(key)
    }

    /// Records that the API server accepted the newest report in this series.
    pub(super) fn accepted(&mut self, key: &Arc<SeriesKey>) {
        if self.holds(key)
            && let Some(condition) = key_of(&key.class)
        {
            self.0.remove(&condition);
        }
    }

    /// Drops an ended condition.
    pub(super) fn ended(&mut self, ended: &Ended) {
        remove(&mut self.0, ended);
    }

    /// Drops the reports about these subjects: lasting conditions are reported again when that is permitted.
    pub(super) fn clear(&mut self, of: impl Fn(&Subject) -> bool) {
        self.0.retain(|_, key| !of(&key.class.subject));
    }

    /// Returns the series of all reports.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Arc<SeriesKey>> {
        self.0.values()
    }
}

/// The newest report of each condition that arrived before the emitter knew the term of the report.
#[derive(Default, Debug)]
pub(super) struct EarlyReports(ByCondition<NewEvent>);

impl EarlyReports {
    /// Keeps a report until it may be posted.
    pub(super) fn keep(&mut self, event: NewEvent) {
        if let Some(condition) = key_of(&event.class) {
            self.0.insert(condition, event);
        }
    }

    /// Drops an ended condition.
    pub(super) fn ended(&mut self, ended: &Ended) {
        remove(&mut self.0, ended);
    }

    /// Removes and returns the reports for these subjects.
    pub(super) fn take(&mut self, of: impl Fn(&Subject) -> bool) -> Vec<NewEvent> {
        self.0.extract_if(.., |_, event| of(&event.class.subject)).map(|(_, event)| event).collect()
    }
}

/// Returns the key of a lasting condition.
fn key_of(class: &EventClass) -> Option<(Condition, Option<Subject>)> {
    Some((class.condition.clone()?, Some(class.subject.clone())))
}

/// Removes the values of a condition for its subject, or for all of them.
fn remove<T>(all: &mut ByCondition<T>, ended: &Ended) {
    let first = (ended.condition.clone(), ended.subject.clone());
    if first.1.is_some() {
        all.remove(&first);
        return;
    }
    let values = all.range(first..).take_while(|((condition, _), _)| *condition == ended.condition);
    let keys: Vec<_> = values.map(|(key, _)| key.clone()).collect();
    for key in keys {
        all.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Severity;
    use model::ids::{NodeName, NodeUid};
    use model::object::Kind;

    fn event(condition: Condition, subject: Subject) -> NewEvent {
        let class =
            EventClass { subject, severity: Severity::Warning, reason: "Reason", condition: Some(condition) };
        NewEvent { class, message: "text".into() }
    }

    #[test]
    fn e1_a_condition_ends_for_one_subject_or_for_all() {
        let node = |name: &str| Subject::Node { name: NodeName::new(name), uid: NodeUid::new(name) };
        let conditions = [
            Condition::DataError,
            Condition::Undecodable(Kind::Nodes, "n".into()),
            Condition::AdminFailed,
            Condition::AdminHeld,
        ];
        let subjects = [node("a"), node("b"), Subject::Controller];
        let remaining = |subject: Option<Subject>| {
            let mut early = EarlyReports::default();
            for condition in &conditions {
                subjects.iter().for_each(|subject| early.keep(event(condition.clone(), subject.clone())));
            }
            early.ended(&Ended { condition: conditions[1].clone(), subject });
            let left = early.take(|_| true);
            let ended = left.iter().filter(|event| event.class.condition.as_ref() == Some(&conditions[1]));
            (ended.map(|event| event.class.subject.clone()).collect::<Vec<_>>(), left.len())
        };
        assert_eq!(remaining(Some(node("a"))), (vec![node("b"), Subject::Controller], 11));
        assert_eq!(remaining(None), (Vec::new(), 9));
    }
}
