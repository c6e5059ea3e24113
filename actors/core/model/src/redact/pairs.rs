//! Finds secrets after their names: headers, forms, JSON, YAML, connection strings, and dumps of any of them.

use std::ops::Range;

use super::{REDACTED, SecretMatches};

/// How a name marks the value after it as a secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KeyKind {
    /// A header, whose value is the rest of its line.
    Header,
    /// A key whose value is always a secret.
    Secret,
    /// A word that operators use too; only with a colon it marks a secret.
    CommonWord,
}

impl KeyKind {
    /// Returns the kind of a name, regardless of its case and of how it joins words.
    fn of(key: &str) -> Option<KeyKind> {
        const HEADERS: [&str; 3] = ["authorization", "authorizationauxiliary", "cookie"];
        const SECRETS: [&str; 16] = [
            "clientsecret",
            "password",
            "passwd",
            "passphrase",
            "pwd",
            "accesstoken",
            "refreshtoken",
            "idtoken",
            "authtoken",
            "assertion",
            "apikey",
            "accountkey",
            "accesskey",
            "privatekey",
            "clientkeydata",
            "identityheader",
        ];
        const WORDS: [&str; 7] =
            ["token", "secret", "sig", "signature", "bearer", "credential", "credentials"];
        let key: String = key.chars().filter(|c| !matches!(c, '-' | '_')).collect();
        let key = key.to_ascii_lowercase();
        let ends_with = |names: &[&str]| names.iter().any(|name| key.ends_with(name));
        if ends_with(&HEADERS) {
            Some(KeyKind::Header)
        } else if ends_with(&SECRETS) {
            Some(KeyKind::Secret)
        } else if ends_with(&WORDS[..2]) || WORDS.contains(&key.as_str()) {
            Some(KeyKind::CommonWord)
        } else {
            None
        }
    }
}

/// Finds the values of such pairs.
pub(super) fn find(text: &str, found: &mut SecretMatches) {
    let mut from = 0;
    while let Some(at) = text[from..].find([':', '=']).map(|at| from + at) {
        from = at + 1;
        let Some((name, quoted)) = name_before(&text[..at]) else { continue };
        // Ruby's => and Go's := consist of two characters.
        let rest = text[from..].trim_start_matches(['=', '>', ':']);
        let is_colon = text.as_bytes()[at] == b':' && rest.len() == text.len() - from;
        let value = value_of(rest, name, quoted, is_colon);
        let start = text.len() - rest.len();
        found.visited_bytes(value.end);
        if value.is_empty() {
            continue;
        }
        // Any text may follow this replacement, whichever program wrote it.
        if rest[value.clone()] == *REDACTED {
            from = start + value.end;
            continue;
        }
        // A value without quotation marks may end in a name, which has a secret of its own.
        let is_bare = !rest[..value.start].ends_with(['"', '\'', '[', '{']);
        let last = rest[value.clone()].rfind([':', '=']).map(|at| value.start + at);
        let last = last.filter(|at| is_bare || at + 1 == value.end);
        found.push(start + value.start..start + value.end);
        from = start + last.unwrap_or(value.end);
    }
}

/// Returns the kind of the name at the end of a text, and whether it is quoted.
fn name_before(text: &str) -> Option<(KeyKind, bool)> {
    let text = text.trim_end_matches([' ', '\t']);
    let bare = text.strip_suffix(['"', '\'']);
    let key = bare.map_or(text, |bare| bare.trim_end_matches('\\'));
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let start = key.trim_end_matches(is_of_key).len();
    Some((KeyKind::of(&key[start..])?, bare.is_some()))
}

/// Returns the range of the value after a separator. A colon with a space may belong to a sentence.
fn value_of(text: &str, name: KeyKind, quoted: bool, is_colon: bool) -> Range<usize> {
    let start = text.len() - text.trim_start_matches([' ', '\t']).len();
    let is_loose = is_colon && start > 0;
    let value = &text[start..];
    if let Some(inside) = value.strip_prefix(['[', '{']) {
        let begin = start + 1;
        return begin..begin + end_of_brackets(inside).unwrap_or(inside.len());
    }
    if let Some(inside) = in_quotes(value) {
        return start + inside.start..start + inside.end;
    }
    let length = match name {
        // Commas and brackets may separate its words, except in an unquoted JSON value.
        KeyKind::Header if quoted => end_of_literal(value).or_else(|| end_of_line(value)),
        KeyKind::Secret | KeyKind::CommonWord if quoted => {
            value.find(|c: char| c.is_whitespace() || matches!(c, ',' | '}' | ']'))
        }
        KeyKind::Header => end_of_line(value),
        KeyKind::Secret if is_loose => end_of_line(value),
        KeyKind::CommonWord if is_loose && is_prose(value) => Some(0),
        KeyKind::Secret | KeyKind::CommonWord => value.find(ends_word),
    };
    start..start + length.unwrap_or(value.len())
}

/// Returns the end of a bracketed text, including nested brackets and quoted texts.
fn end_of_brackets(text: &str) -> Option<usize> {
    let (mut depth, mut backslashes, mut before) = (1_u32, 0_usize, b' ');
    let mut quoted: Option<(u8, usize)> = None;
    for (at, byte) in text.bytes().enumerate() {
        match (quoted, byte) {
            (_, b'\\') => {
                backslashes += 1;
                continue;
            }
            (Some((mark, of_mark)), _) => {
                quoted.take_if(|_| byte == mark && backslashes <= of_mark);
            }
            (None, b'"') => quoted = Some((byte, backslashes)),
            // Within a word, this mark is an apostrophe.
            (None, b'\'') if !before.is_ascii_alphanumeric() => quoted = Some((byte, backslashes)),
            (None, b'[' | b'{') => depth += 1,
            (None, b']' | b'}') => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            (None, _) => {}
        }
        (backslashes, before) = (0, byte);
    }
    None
}

/// Returns the end of a JSON value that is not a string.
fn end_of_literal(text: &str) -> Option<usize> {
    let literal = ["null", "true", "false"].into_iter().find(|literal| text.starts_with(literal))?;
    text[literal.len()..].trim_start().starts_with([',', '}', ']']).then_some(literal.len())
}

/// Returns the range between quotation marks; without a closing mark it extends to the end. The marks of JSON within
/// JSON have backslashes.
fn in_quotes(text: &str) -> Option<Range<usize>> {
    let bare = text.trim_start_matches('\\');
    let (backslashes, mark) = (text.len() - bare.len(), bare.chars().next()?);
    if !matches!(mark, '"' | '\'') {
        return None;
    }
    let start = backslashes + 1;
    let is_end = |at: usize| {
        let before = &text[start..start + at];
        before.len() - before.trim_end_matches('\\').len() <= backslashes
    };
    let end = text[start..].match_indices(mark).find(|(at, _)| is_end(*at));
    Some(
        start..end.map_or(text.len(), |(at, _)| {
            let before = &text[start..start + at];
            start + before.trim_end_matches('\\').len()
        }),
    )
}

/// Returns the end of a line, including an escaped line end within JSON.
fn end_of_line(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_end = |at: &usize| match bytes[*at] {
        b'\n' | b'\r' => true,
        b'\\' => matches!(bytes.get(*at + 1), Some(b'n' | b'r')),
        _ => false,
    };
    (0..bytes.len()).find(is_end)
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || matches!(c, '&' | ';' | '"' | '\'' | '<' | '>' | '\\')
}

/// Returns true if the text continues a sentence, or names the reason of a failure. A sentence continues if its next
/// word has only letters, and no capital but its first. Operators need the reason to fix the failure: a reason of the
/// API server, an HTTP status, or an error code of the login endpoint.
fn is_prose(text: &str) -> bool {
    const REASONS: [&str; 14] = [
        "AlreadyExists",
        "BadRequest",
        "EOF",
        "HTTP",
        "InternalError",
        "MethodNotAllowed",
        "NotAcceptable",
        "NotFound",
        "RequestEntityTooLarge",
        "ServerTimeout",
        "ServiceUnavailable",
        "StoreReadError",
        "TooManyRequests",
        "UnsupportedMediaType",
    ];
    const LENGTH_OF_STATUS: usize = 3;
    let word = text.split_whitespace().next().unwrap_or_default();
    let word = word.trim_end_matches([',', '.', ';', ':', ')']);
    if word.strip_prefix("AADSTS").is_some_and(|code| code.bytes().all(|byte| byte.is_ascii_digit())) {
        return true;
    }
    let is_status = word.len() == LENGTH_OF_STATUS && word.bytes().all(|byte| byte.is_ascii_digit());
    if is_status || REASONS.contains(&word) {
        return true;
    }
    let mut letters = word.chars();
    letters.next().is_none_or(|first| first.is_ascii_alphabetic()) && letters.all(|c| c.is_ascii_lowercase())
}
