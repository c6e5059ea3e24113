//! Publishes a value only when it changes (docs/design/model-and-mechanisms.md).

/// The value that was last published.
#[derive(Clone, Debug)]
pub struct Published<V>(Option<V>);

impl<V> Default for Published<V> {
    fn default() -> Published<V> {
        Published(None)
    }
}

impl<V: Clone + PartialEq> Published<V> {
    /// Creates the record of a receiver that assumes this value before anything is published.
    pub fn assumed(value: V) -> Published<V> {
        Published(Some(value))
    }

    /// Returns the value that was last published or is assumed.
    pub fn last(&self) -> Option<&V> {
        self.0.as_ref()
    }

    /// Returns the value if it must be published, because it differs from the last one.
    #[must_use]
    pub fn update(&mut self, value: V) -> Option<V> {
        if self.0.as_ref() == Some(&value) {
            return None;
        }
        self.0 = Some(value.clone());
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_and_each_change_are_published() {
        let mut published = Published::default();
        assert_eq!(published.last(), None);
        let updates = [7, 7, 8, 8, 7].map(|value| published.update(value));
        assert_eq!(updates, [Some(7), None, Some(8), None, Some(7)]);
        assert_eq!(published.last(), Some(&7));
    }

    #[test]
    fn a_value_that_the_receiver_assumes_is_not_published() {
        let mut published = Published::assumed(0);
        let updates = [0, 1, 0].map(|value| published.update(value));
        assert_eq!(updates, [None, Some(1), Some(0)]);
    }
}
