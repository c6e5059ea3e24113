//! The reports of conditions that the API server has not accepted yet (E1).

use std::collections::BTreeMap;

use super::correlator::{Key, News};
use model::report::{Condition, Ended, Subject};

/// Something about each condition, for each of its subjects.
type ByCondition<T> = BTreeMap<Condition, BTreeMap<Subject, T>>;

/// The newest report of each condition that holds, while the API server has not accepted it.
#[derive(Default, Debug)]
pub(super) struct Outstanding(ByCondition<Key>);

impl Outstanding {
    /// A condition was reported in this series; an older report of it is outdated.
    pub(super) fn began(&mut self, key: &Key) {
        if let Some(condition) = &key.kin.condition {
            let subjects = self.0.entry(condition.clone()).or_default();
            subjects.insert(key.kin.subject.clone(), key.clone());
        }
    }

    /// Whether the newest report of a condition that holds is in this series, and was not accepted.
    pub(super) fn holds(&self, key: &Key) -> bool {
        let subjects = key.kin.condition.as_ref().and_then(|condition| self.0.get(condition));
        subjects.and_then(|subjects| subjects.get(&key.kin.subject)) == Some(key)
    }

    /// The API server has accepted the newest report in this series.
    pub(super) fn accepted(&mut self, key: &Key) {
        if self.holds(key)
            && let Some(condition) = &key.kin.condition
        {
            remove(&mut self.0, condition, Some(&key.kin.subject));
        }
    }

    /// A condition holds no longer.
    pub(super) fn ended(&mut self, ended: &Ended) {
        remove(&mut self.0, &ended.condition, ended.subject.as_ref());
    }

    /// Nothing is posted again: what holds is reported again when that may be told.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The series of all of them.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.values().flat_map(BTreeMap::values)
    }
}

/// The newest report of each condition that came before the emitter heard of the term in which it is told.
#[derive(Default, Debug)]
pub(super) struct Early(ByCondition<News>);

impl Early {
    /// Keeps a report until it may be told.
    pub(super) fn keep(&mut self, news: News) {
        if let Some(condition) = &news.kin.condition {
            self.0.entry(condition.clone()).or_default().insert(news.kin.subject.clone(), news);
        }
    }

    /// A condition holds no longer.
    pub(super) fn ended(&mut self, ended: &Ended) {
        remove(&mut self.0, &ended.condition, ended.subject.as_ref());
    }

    /// Takes out what these subjects are to be told.
    pub(super) fn take(&mut self, of: impl Fn(&Subject) -> bool) -> Vec<News> {
        let mut taken = Vec::new();
        for subjects in self.0.values_mut() {
            taken.extend(subjects.extract_if(.., |subject, _| of(subject)).map(|(_, news)| news));
        }
        self.0.retain(|_, subjects| !subjects.is_empty());
        taken
    }
}

/// Removes what there is about a condition for this subject, or for all of them.
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
