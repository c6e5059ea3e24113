//! The valid key nearest to a misspelt one, by edit distance.

/// The longest key that is compared, in characters; longer ones are cut.
const MAX_COMPARED: usize = 64;

/// The candidate nearest to `path`: by the whole path, or by its last segment when only the section is wrong.
/// The first of equals wins; `None` only without candidates.
pub(crate) fn nearest<'a>(path: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates.into_iter().min_by_key(|candidate| {
        let whole = distance(path, candidate);
        let leaf = distance(last_segment(path), last_segment(candidate)) + 1;
        whole.min(leaf)
    })
}

fn last_segment(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// How many characters have to be inserted, removed or replaced; case costs nothing.
pub(crate) fn distance(left: &str, right: &str) -> usize {
    let letters =
        |text: &str| text.chars().take(MAX_COMPARED).map(|c| c.to_ascii_lowercase()).collect::<Vec<_>>();
    let (left, right) = (letters(left), letters(right));
    let mut previous: Vec<usize> = (0..=right.len()).collect();
    for (row, l) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, r) in right.iter().enumerate() {
            let replaced = previous[column] + usize::from(l != r);
            current.push(replaced.min(previous[column + 1] + 1).min(current[column] + 1));
        }
        previous = current;
    }
    previous[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c1_the_edit_distance_counts_insertions_removals_and_replacements() {
        let rows = [
            ("", "", 0),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("quietperiod", "quietPeriod", 0),
            ("a", "b", 1),
        ];
        for (left, right, expected) in rows {
            assert_eq!(distance(left, right), expected, "{left} {right}");
            assert_eq!(distance(right, left), expected, "{right} {left}");
        }
    }

    #[test]
    fn c1_a_key_in_the_wrong_section_finds_its_right_place() {
        let candidates = ["batching.quietPeriod", "batching.maxDelay", "members.add"];
        assert_eq!(nearest("quietPeriod", candidates), Some("batching.quietPeriod"));
        assert_eq!(nearest("members.maxDelai", candidates), Some("batching.maxDelay"));
        assert_eq!(nearest("member.ad", candidates), Some("members.add"));
    }
}
