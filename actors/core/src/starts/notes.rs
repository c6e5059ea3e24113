//! What a state of our ConfigMap says about starts: which notes count, and which are too old to (design.md A4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::config_map::{ConfigMapFacts, Text};
use crate::machine::Wall;

/// What the keys of notes begin with.
const PREFIX: &str = "start.";
/// A note that is older, or as far in the future, counts for nothing and is struck.
const COUNTS_FOR: Duration = Duration::from_secs(3_600);
/// So many notes of our own name make a start passive.
const OF_OUR_NAME: usize = 3;
/// So many notes of any name do.
const OF_ANY_NAME: usize = 9;
/// Of what the storage was set back to, notes that are this young were made since: it is heard of within seconds.
const MADE_SINCE: Duration = Duration::from_secs(60);
/// The most notes that are kept besides our own; the oldest of more are struck.
const MOST: usize = 50;
/// The longest name in a key, in characters: a key has 253 at most.
const LONGEST_NAME: usize = 200;

/// The key of a process's note: letters, digits, `-`, `_` and `.` alone, as the API asks.
pub(super) fn key(identity: &str) -> Arc<str> {
    let (name, unique) = identity.rsplit_once('_').unwrap_or((identity, ""));
    let plain = |text: &str, most: usize| -> String {
        let letters = text.chars().take(most);
        letters.map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '-' }).collect()
    };
    // 6 + 200 + 1 + 40 are less than 253.
    format!("{PREFIX}{}_{}", plain(name, LONGEST_NAME), plain(unique, 40)).into()
}

/// Of whom a note is; `None`: the key is none of a note.
fn name(key: &str) -> Option<&str> {
    let identity = key.strip_prefix(PREFIX)?;
    Some(identity.rsplit_once('_').map_or(identity, |(name, _)| name))
}

fn is_young(time: Wall, read: Wall) -> bool {
    u128::from(read.as_micros().abs_diff(time.as_micros())) <= COUNTS_FOR.as_micros()
}

/// The notes that count in a state, besides our own, and when they were made.
#[derive(Clone, Debug, Default)]
pub(super) struct Counting {
    of_our_name: BTreeMap<Arc<str>, Wall>,
    of_any_name: BTreeMap<Arc<str>, Wall>,
}

/// Why a start is passive: notes, and how many of them it takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Reason {
    notes: BTreeMap<Arc<str>, Wall>,
    needed: usize,
}

/// Which notes count.
pub(super) fn counting(facts: &ConfigMapFacts, ours: &str) -> Counting {
    let mut counting = Counting::default();
    for (key, text) in facts.data.iter().filter(|(key, _)| &***key != ours) {
        if let (Some(of), Some(time)) = (name(key), text.time.filter(|time| is_young(*time, facts.read))) {
            if Some(of) == name(ours) {
                counting.of_our_name.insert(Arc::clone(key), time);
            }
            counting.of_any_name.insert(Arc::clone(key), time);
        }
    }
    counting
}

impl Counting {
    /// How many of them people are told of: those of our own name, or of any name where only those are too many.
    pub(super) fn told(&self) -> usize {
        if self.of_our_name.len() < OF_OUR_NAME && self.of_any_name.len() >= OF_ANY_NAME {
            self.of_any_name.len()
        } else {
            self.of_our_name.len()
        }
    }

    /// Why the start is passive, if it is to be.
    pub(super) fn reason(self) -> Option<Reason> {
        let of_our_name = Reason { notes: self.of_our_name, needed: OF_OUR_NAME };
        let of_any_name = Reason { notes: self.of_any_name, needed: OF_ANY_NAME };
        [of_our_name, of_any_name].into_iter().find(|reason| reason.notes.len() >= reason.needed)
    }
}

/// For which process the next start would be passive by the notes of a state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outlook {
    /// The names of processes that would start passive, and how many notes count for each.
    pub names: BTreeMap<Arc<str>, usize>,
    /// How many notes count of all, where they are so many that a process of any name would start passive.
    pub all: Option<usize>,
}

/// What the notes of a state mean for the starts that follow (A4).
pub(super) fn outlook(facts: &ConfigMapFacts) -> Outlook {
    let all = counting(facts, "").of_any_name;
    let mut names: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for name in all.keys().filter_map(|key| name(key)) {
        *names.entry(Arc::from(name)).or_default() += 1;
    }
    names.retain(|_, notes| *notes >= OF_OUR_NAME);
    Outlook { names, all: Some(all.len()).filter(|notes| *notes >= OF_ANY_NAME) }
}

impl Reason {
    /// Whether enough of the notes are left. Those that only grew old are not gone, whoever has struck them.
    pub(super) fn stands(&self, facts: &ConfigMapFacts) -> bool {
        let left =
            |(key, time): &(&Arc<str>, &Wall)| facts.data.contains_key(*key) || !is_young(**time, facts.read);
        self.notes.iter().filter(left).count() >= self.needed
    }
}

/// The notes that nobody needs: too old to count, unreadable, or the oldest of too many.
pub(super) fn needless(facts: &ConfigMapFacts, ours: &str) -> BTreeSet<Arc<str>> {
    let notes = facts.data.iter().filter(|(key, _)| name(key).is_some() && &***key != ours);
    let young = |text: &Text| text.time.filter(|time| is_young(*time, facts.read));
    let mut by_age: Vec<_> = notes.map(|(key, text)| (young(text), key)).collect();
    // The youngest first; what counts for nothing last.
    by_age.sort_by(|one, other| other.cmp(one));
    let needless = by_age.into_iter().enumerate().filter(|(at, (time, _))| *at >= MOST || time.is_none());
    needless.map(|(_, (_, key))| Arc::clone(key)).collect()
}

/// The notes that have come back, when the storage was set back shortly before: all but those that are so new that they
/// were made since.
pub(super) fn restored(facts: &ConfigMapFacts, ours: &str) -> BTreeSet<Arc<str>> {
    let notes = facts.data.iter().filter(|(key, _)| name(key).is_some() && &***key != ours);
    let is_new = |text: &Text| {
        let age = |time: Wall| facts.read.as_micros().abs_diff(time.as_micros());
        text.time.is_some_and(|time| u128::from(age(time)) <= MADE_SINCE.as_micros())
    };
    notes.filter(|(_, text)| !is_new(text)).map(|(key, _)| Arc::clone(key)).collect()
}
