//! Splits lists into pages. The order is fixed, and each page continues after the last entry of the previous one, even
//! if entries were added or removed in between.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use super::values::SnapshotAge;

/// A page as clients receive it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listing<T> {
    pub(super) snapshot_age_seconds: SnapshotAge,
    /// The entries of this page.
    pub(super) items: Vec<T>,
    /// The parameter `after` of the next page. Null: there is none.
    pub(super) next: Option<String>,
    /// The number of entries of all pages.
    pub(super) total: usize,
}

/// A page.
pub(super) struct Page<'a, K, T> {
    /// Its entries.
    pub(super) items: Vec<&'a Arc<T>>,
    /// The entry after which the next page begins, if there is one.
    pub(super) next: Option<&'a K>,
    /// The number of entries of all pages.
    pub(super) total: usize,
}

/// Returns the first `limit` entries after `after` that match. Visits each entry once, and does not sort.
pub(super) fn page<'a, K: Ord, T>(
    all: &'a BTreeMap<K, Arc<T>>,
    after: Option<&K>,
    limit: usize,
    matches: impl Fn(&T) -> bool,
) -> Page<'a, K, T> {
    let start = after.map_or(Bound::Unbounded, Bound::Excluded);
    let before = after.map_or(0, |after| all.range(..=after).filter(|(_, item)| matches(item)).count());
    let mut matching = all.range((start, Bound::Unbounded)).filter(|(_, item)| matches(item));
    let items: Vec<_> = matching.by_ref().take(limit).collect();
    let more = matching.count();
    let next = items.last().filter(|_| more > 0).map(|(key, _)| *key);
    let total = before + items.len() + more;
    Page { items: items.into_iter().map(|(_, item)| item).collect(), next, total }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: u32) -> BTreeMap<u32, Arc<u32>> {
        (0..count).map(|number| (number, Arc::new(number))).collect()
    }

    /// Returns the entries of all pages, and the number of pages.
    fn walk(
        all: &BTreeMap<u32, Arc<u32>>,
        limit: usize,
        matches: impl Fn(&u32) -> bool,
    ) -> (Vec<u32>, usize) {
        let (mut walked, mut pages, mut after) = (Vec::new(), 0, None);
        loop {
            let page = page(all, after.as_ref(), limit, &matches);
            assert!(page.items.len() <= limit);
            assert_eq!(page.total, all.values().filter(|number| matches(number)).count());
            walked.extend(page.items.iter().map(|item| ***item));
            pages += 1;
            after = page.next.copied();
            if after.is_none() {
                return (walked, pages);
            }
        }
    }

    #[test]
    fn h3_pages_hold_every_entry_once_and_in_order() {
        let all = numbers(1_000);
        assert_eq!(walk(&all, 7, |_| true), ((0..1_000).collect(), 143));
        assert_eq!(walk(&all, 1_000, |_| true).1, 1, "a full last page is followed by none");
        let even: Vec<u32> = (0..1_000).step_by(2).collect();
        assert_eq!(walk(&all, 100, |number| number % 2 == 0), (even, 5));
        assert_eq!(walk(&all, 3, |_| false), (Vec::new(), 1));
        assert_eq!(walk(&numbers(0), 3, |_| true), (Vec::new(), 1));
    }

    #[test]
    fn h3_a_page_continues_after_an_entry_that_is_gone() {
        let mut all = numbers(10);
        let next = page(&all, None, 4, |_| true).next.copied();
        assert_eq!(next, Some(3));
        all.remove(&3);
        let items: Vec<u32> =
            page(&all, next.as_ref(), 4, |_| true).items.iter().map(|item| ***item).collect();
        assert_eq!(items, [4, 5, 6, 7]);
    }
}
