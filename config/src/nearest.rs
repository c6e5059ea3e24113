//! What a misspelt key or word probably means, by edit distance. Case does not count.

use strsim::damerau_levenshtein;

/// The longest text that is compared, in characters; longer ones are cut.
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

/// The nearest candidate, if `written` is probably a misspelling of it: at most a third of the characters differ, or one
/// is the beginning of the other.
pub(crate) fn resembling<'a>(
    written: &str,
    candidates: impl IntoIterator<Item = &'a str> + Clone,
) -> Option<&'a str> {
    let misspelt = within(written, candidates.clone(), |length| (length / 3).max(1));
    misspelt.or_else(|| candidates.into_iter().find(|candidate| begins(written, candidate)))
}

/// Whether one text begins with the other, of which three characters are enough.
fn begins(left: &str, right: &str) -> bool {
    let (left, right) = (left.to_ascii_lowercase(), right.to_ascii_lowercase());
    left.len().min(right.len()) >= 3 && (left.starts_with(&right) || right.starts_with(&left))
}

/// The candidate of which `written` is a misspelling: at most a sixth of the characters differ, and four. Similar keys of
/// other programs do not count.
pub(crate) fn misspelling_of<'a>(
    written: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    within(written, candidates, |length| (length / 6).clamp(1, 4))
}

/// The nearest candidate, if no more edits lead to it than its length allows.
fn within<'a>(
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

/// How many characters have to be inserted, removed, replaced or swapped with their neighbour.
pub(crate) fn distance(left: &str, right: &str) -> usize {
    let cut = |text: &str| text.chars().take(MAX_COMPARED).collect::<String>().to_ascii_lowercase();
    damerau_levenshtein(&cut(left), &cut(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c1_only_what_resembles_is_a_misspelling() {
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
    fn c1_a_key_in_the_wrong_section_finds_its_right_place() {
        let candidates = ["batching.quietPeriod", "batching.maxDelay", "members.add"];
        assert_eq!(nearest("quietPeriod", candidates), Some("batching.quietPeriod"));
        assert_eq!(nearest("members.maxDelai", candidates), Some("batching.maxDelay"));
        assert_eq!(nearest("member.ad", candidates), Some("members.add"));
    }
}
