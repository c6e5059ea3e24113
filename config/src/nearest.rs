//! Suggests corrections of misspelt keys and words, by edit distance. Case does not count.

use strsim::damerau_levenshtein;

/// Maximum length of compared texts, in characters; longer ones are truncated.
const MAX_COMPARED: usize = 64;

/// Returns the candidate nearest to `path`: by the whole path, or by its last segment if only the section is wrong. Of
/// equal candidates, returns the first; `None` only without candidates.
pub(crate) fn nearest<'a>(path: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates.into_iter().min_by_key(|candidate| {
        let path_distance = distance(path, candidate);
        let leaf_distance = distance(last_segment(path), last_segment(candidate)) + 1;
        path_distance.min(leaf_distance)
    })
}

/// Returns the nearest candidate if `written` is probably a misspelling of it: at most a third of the characters
/// differ, or one is a prefix of the other.
pub(crate) fn resembling<'a>(
    written: &str,
    candidates: impl IntoIterator<Item = &'a str> + Clone,
) -> Option<&'a str> {
    let misspelt = nearest_within(written, candidates.clone(), |length| (length / 3).max(1));
    misspelt.or_else(|| candidates.into_iter().find(|candidate| is_prefix_of_other(written, candidate)))
}

/// Returns whether one text of at least three characters is a prefix of the other.
fn is_prefix_of_other(left: &str, right: &str) -> bool {
    let (left, right) = (left.to_ascii_lowercase(), right.to_ascii_lowercase());
    left.len().min(right.len()) >= 3 && (left.starts_with(&right) || right.starts_with(&left))
}

/// Returns the candidate that `written` misspells: at most a sixth of the characters differ, and at most four. The
/// limit is strict because the file has similar keys of other programs.
pub(crate) fn misspelling_of<'a>(
    written: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    nearest_within(written, candidates, |length| (length / 6).clamp(1, 4))
}

/// Returns the nearest candidate if its distance is within the limit for its length.
fn nearest_within<'a>(
    written: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    allowed: impl Fn(usize) -> usize,
) -> Option<&'a str> {
    let edits = candidates.into_iter().map(|candidate| (distance(written, candidate), candidate));
    let (edits, nearest) = edits.min_by_key(|(edits, _)| *edits)?;
    (edits <= allowed(nearest.chars().count())).then_some(nearest)
}

fn last_segment(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Returns the edit distance: the number of characters to insert, remove, replace or swap with their neighbour.
pub(crate) fn distance(left: &str, right: &str) -> usize {
    let cut = |text: &str| text.chars().take(MAX_COMPARED).collect::<String>().to_ascii_lowercase();
    damerau_levenshtein(&cut(left), &cut(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c1_only_similar_texts_are_misspellings() {
        let words = ["observe", "add-only", "enforce"];
        let rows = [
            ("observ", Some("observe")),
            ("addonly", Some("add-only")),
            ("EnFORCE", Some("enforce")),
            ("obsevre", Some("observe")),
            ("observation", None),
            ("obs", Some("observe")),
            ("add-only-please", Some("add-only")),
            ("en", None),
            ("foo", None),
            ("dry-run", None),
            ("", None),
        ];
        for (written, expected) in rows {
            assert_eq!(resembling(written, words), expected, "{written}");
        }
    }

    #[test]
    fn c1_a_key_in_the_wrong_section_finds_the_right_one() {
        let candidates = ["batching.quietPeriod", "batching.maxDelay", "members.add"];
        assert_eq!(nearest("quietPeriod", candidates), Some("batching.quietPeriod"));
        assert_eq!(nearest("members.maxDelai", candidates), Some("batching.maxDelay"));
        assert_eq!(nearest("member.ad", candidates), Some("members.add"));
    }
}
