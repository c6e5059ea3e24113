//! Removes secrets from foreign text (C1). The API server, ARM and the login endpoint have not been seen to repeat a
//! secret. A proxy or another program in their place may repeat anything, including the headers of the request. Both
//! ports and the commands pass foreign text through this module where it enters the program. Therefore logs, API,
//! events, errors and command output contain no secrets.
//!
//! Recently sent tokens are known ([`record_sent_token`]), and some callers know further secrets. These are found in
//! every encoding, and so is each part of 16 bytes or more. Other secrets are recognised by their form: the text
//! after `Authorization`, `Bearer`, `password` and the like, JSON web tokens, bootstrap tokens, private keys, and
//! user, password and query of URLs. In doubt, more is removed.

mod escape;
mod find;
mod needle;
mod pairs;
mod part;
mod printable;
mod recent_tokens;

use std::borrow::Cow;
use std::error::Error;
use std::ops::Range;

use needle::Needles;
pub use printable::Printable;
pub use recent_tokens::{Recipient, record_sent_token};

/// The replacement of a secret.
pub const REDACTED: &str = "<redacted>";

/// The number of bytes of a text that are searched. Longer texts are cut there.
pub const MAX_TEXT: usize = 64 << 10;

/// Marks the end of a text that was cut.
const CUT: &str = "\u{2026}";

/// Returns an error with all its sources, outermost first, without repetitions. The result still contains secrets.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut all = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !all.contains(&more) {
            all.push_str(": ");
            all.push_str(&more);
        }
        next = source.source();
    }
    all
}

/// Returns the text without secrets.
#[must_use]
pub fn redacted(text: &str) -> Cow<'_, str> {
    redacted_of(text, &[])
}

/// Returns the text without secrets, including the `known` ones, in every position and encoding.
#[must_use]
pub fn redacted_of<'t>(text: &'t str, known: &[&str]) -> Cow<'t, str> {
    without(text, secrets_in(text, text, known).ranges)
}

/// Returns the start of a text, up to [`MAX_TEXT`], without secrets and without the `known` ones; and whether it was
/// cut.
#[must_use]
pub fn start_redacted_of<'t>(text: &'t str, known: &[&str]) -> (Cow<'t, str>, bool) {
    let (start, is_cut) = bounded(text);
    (without(start, secrets_in(start, text, known).ranges), is_cut)
}

/// The secrets found in a text, and the work that the search took.
#[derive(Default, Debug)]
struct SecretMatches {
    ranges: Vec<Range<usize>>,
    /// Number of bytes that searches visited without continuing where the last step ended. A malicious text must not
    /// make them visit the same bytes again and again.
    visited_bytes: usize,
}

impl SecretMatches {
    fn push(&mut self, range: Range<usize>) {
        self.ranges.push(range);
    }

    fn visited_bytes(&mut self, bytes: usize) {
        self.visited_bytes = self.visited_bytes.saturating_add(bytes);
    }
}

/// Returns the positions of secrets in `text`, which is the start of `whole` or all of it.
fn secrets_in(text: &str, whole: &str, known: &[&str]) -> SecretMatches {
    let mut found = SecretMatches::default();
    let sent = recent_tokens::recent();
    let known = Needles::new(known.iter().copied());
    for needles in sent.iter().map(|recent| &recent.needles).chain([&known]) {
        // A secret may extend beyond the end.
        let reach = text.len().saturating_add(needles.reach()).min(whole.len());
        needles.find(&whole[..whole.floor_char_boundary(reach)], &mut found);
    }
    found.ranges.retain(|range| range.start < text.len());
    found.ranges.iter_mut().for_each(|range| range.end = range.end.min(text.len()));
    find::private_keys(text, &mut found);
    pairs::find(text, &mut found);
    find::credentials(text, &mut found);
    find::tokens(text, &mut found);
    find::parts_of_addresses(text, &mut found);
    found
}

/// Returns the text without recently sent tokens.
fn without_sent(text: &str) -> Cow<'_, str> {
    let mut found = SecretMatches::default();
    if let Some(recent) = recent_tokens::recent() {
        recent.needles.find(text, &mut found);
    }
    without(text, found.ranges)
}

/// Returns the text as one printable line of at most `longest` bytes, without secrets and without those in `known`.
/// The secrets are removed before the text is cut, because half a secret would not be recognised.
#[must_use]
pub fn safe_line(text: &str, known: &[&str], longest: usize) -> String {
    let (text, mut is_cut) = start_redacted_of(text, known);
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        printable::push(word, false, &mut line);
        if line.len() > longest {
            is_cut = true;
            break;
        }
    }
    if is_cut {
        cut(&mut line, longest);
    }
    line
}

/// Cuts the line to at most `longest` bytes with an ellipsis, never within an escape.
fn cut(line: &mut String, longest: usize) {
    line.truncate(line.floor_char_boundary(longest.saturating_sub(CUT.len())));
    if let Some(begun) = line.rfind(printable::ESCAPE).filter(|begun| !line[*begun..].contains('}')) {
        line.truncate(begun);
    }
    line.push_str(CUT);
}

/// Returns the part of the text that is searched, up to the end of a word, and whether it was cut.
fn bounded(text: &str) -> (&str, bool) {
    if text.len() <= MAX_TEXT {
        return (text, false);
    }
    let start = &text[..text.floor_char_boundary(MAX_TEXT)];
    let end = start.rfind(char::is_whitespace).unwrap_or(0);
    (&start[..end], true)
}

/// Returns the text without the given ranges.
fn without(text: &str, mut found: Vec<Range<usize>>) -> Cow<'_, str> {
    found.retain(|range| !range.is_empty());
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    found.sort_by_key(|range| (range.start, range.end));
    let mut out = String::with_capacity(text.len());
    let (mut kept, mut hidden) = (0, 0);
    for Range { start, end } in found {
        if start > hidden || hidden == 0 {
            out.push_str(&text[kept..start]);
            out.push_str(REDACTED);
        }
        hidden = hidden.max(end);
        kept = hidden;
    }
    out.push_str(&text[kept..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests;
