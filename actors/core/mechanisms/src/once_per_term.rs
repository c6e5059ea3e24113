//! Reports of lasting conditions: each once in a term, and its end once (docs/design/reporting.md, E1).

use std::collections::BTreeSet;

/// The conditions that were reported in this term. `K` names a condition or its subject.
#[derive(Clone, Debug)]
pub struct OncePerTerm<K> {
    /// Conditions that were reported in this term, and are not reported again.
    reported: BTreeSet<K>,
    /// The reports whose conditions still hold.
    open: BTreeSet<K>,
}

impl<K> Default for OncePerTerm<K> {
    fn default() -> OncePerTerm<K> {
        OncePerTerm { reported: BTreeSet::new(), open: BTreeSet::new() }
    }
}

impl<K: Clone + Ord> OncePerTerm<K> {
    /// Begins a term, in which everything is reported once more.
    pub fn clear(&mut self) {
        *self = OncePerTerm::default();
    }

    /// Returns true if a condition that holds must be reported, and marks it as reported.
    pub fn report(&mut self, key: &K) -> bool {
        let is_new = self.reported.insert(key.clone());
        if is_new {
            self.open.insert(key.clone());
        }
        is_new
    }

    /// Removes and returns the reports whose conditions do not hold any more.
    pub fn end(&mut self, holds: impl Fn(&K) -> bool) -> impl Iterator<Item = K> {
        self.open.extract_if(.., move |key| !holds(key))
    }

    /// Returns true if nothing was reported.
    pub fn is_empty(&self) -> bool {
        self.reported.is_empty()
    }

    /// Keeps only these as reported. What is left out may be reported once more; its open report stays open.
    pub fn retain(&mut self, keeps: impl Fn(&K) -> bool) {
        self.reported.retain(keeps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e1_a_condition_is_reported_once_in_a_term_and_its_end_once() {
        let mut reports = OncePerTerm::default();
        assert!(reports.report(&1) && reports.report(&2) && !reports.report(&1));
        assert_eq!(reports.end(|key| *key == 2).collect::<Vec<_>>(), [1]);
        assert!(!reports.report(&1), "it begins once more in the same term");
        assert_eq!(reports.end(|_| false).collect::<Vec<_>>(), [2], "the second time was not reported");
        reports.clear();
        assert!(reports.report(&1));
    }

    #[test]
    fn e1_the_end_of_a_condition_ends_its_open_report() {
        let mut reports = OncePerTerm::default();
        assert!(reports.report(&1));
        reports.retain(|_| false);
        assert!(reports.report(&1));
        reports.retain(|_| false);
        assert_eq!(reports.end(|_| false).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn e1_the_reports_of_a_term_do_not_end_in_the_next_one() {
        let mut reports = OncePerTerm::default();
        assert!(reports.report(&1));
        reports.clear();
        assert_eq!(reports.end(|_| false).count(), 0);
    }
}
