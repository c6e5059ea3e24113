//! Searches for known secrets, and for secrets by their form.

use super::SecretMatches;

/// The shortest text that counts as a JSON web token, in bytes.
const SHORTEST_TOKEN: usize = 32;

/// The maximum number of base64 letters that are decoded, in whole groups of four. A user name ends within them.
const MAX_DECODED: usize = 512;

/// The words that follow "bearer" where operators write about bearer tokens, and the parameters of a server's
/// challenge.
const OF_BEARERS: [&str; 25] = [
    "token",
    "tokens",
    "auth",
    "authentication",
    "authenticator",
    "authorization",
    "credential",
    "credentials",
    "realm",
    "error",
    "error_description",
    "scope",
    "scheme",
    "header",
    "challenge",
    "and",
    "or",
    "is",
    "was",
    "in",
    "of",
    "from",
    "for",
    "to",
    "that",
];

/// Finds private keys as PEM. A key that was cut extends to the end of the text.
pub(super) fn private_keys(text: &str, found: &mut SecretMatches) {
    const BEGIN: &str = "-----BEGIN ";
    const END: &str = "-----END ";
    const DASHES: &str = "-----";
    let mut from = 0;
    while let Some(begin) = text[from..].find(BEGIN).map(|at| from + at) {
        let name = begin + BEGIN.len();
        let head = text[name..].find(DASHES).map_or(text.len(), |length| name + length);
        from = head;
        if text[name..head].contains("PRIVATE KEY") {
            let end = text[head..].find(END).map(|at| head + at + END.len());
            let end = end.and_then(|end| Some(end + text[end..].find(DASHES)? + DASHES.len()));
            from = end.unwrap_or(text.len());
            found.push(begin..from);
        }
    }
}

/// Finds the words after `Bearer` and `Basic`.
pub(super) fn credentials(text: &str, found: &mut SecretMatches) {
    let lower = text.to_ascii_lowercase();
    let is_opaque = |word: &str| !OF_BEARERS.iter().any(|it| word.eq_ignore_ascii_case(it));
    after(text, &lower, "bearer", is_opaque, found);
    // "Basic" is also an ordinary word, and a SKU of load balancers.
    after(text, &lower, "basic", is_user_and_password, found);
}

/// A run of letters that a credential may consist of, up to these ends in the text.
#[derive(Clone, Copy, Default)]
struct Run {
    end: usize,
    /// End without trailing dots, which belong to a sentence.
    word: usize,
    /// End without the padding of base64.
    bare: usize,
}

impl Run {
    fn at(text: &str, start: usize) -> Run {
        let run = &text[start..];
        let run = &run[..run.find(|c| !is_of_credential(c)).unwrap_or(run.len())];
        let word = run.trim_end_matches('.');
        let bare = word.trim_end_matches('=');
        Run { end: start + run.len(), word: start + word.len(), bare: start + bare.len() }
    }
}

fn after(text: &str, lower: &str, scheme: &str, is_secret: impl Fn(&str) -> bool, found: &mut SecretMatches) {
    let mut end = 0;
    // A run may contain the scheme many times, so its end is searched only once.
    let mut run = Run::default();
    for (at, _) in lower.match_indices(scheme) {
        if at < end || lower[..at].ends_with(|c: char| c.is_ascii_alphanumeric()) {
            continue;
        }
        let rest = &text[at + scheme.len()..];
        let start = ["%20", "=", ":", "+"].iter().find_map(|it| rest.strip_prefix(it));
        let start = start.unwrap_or_else(|| rest.trim_start());
        if start.len() == rest.len() {
            continue;
        }
        let start = text.len() - start.len();
        if start >= run.end {
            run = Run::at(text, start);
            found.visited_bytes(run.end - start);
        }
        let bare = &text[start..run.bare.max(start)];
        found.visited_bytes(bare.len().min(MAX_DECODED));
        if start < run.word && is_secret(bare) {
            end = run.word;
            found.push(start..end);
        }
    }
}

fn is_of_credential(c: char) -> bool {
    is_of_token(c) || matches!(c, '~' | '+' | '/' | '=' | '%' | '|')
}

/// Returns true if base64 encodes text with a colon, as in HTTP's basic authentication. Only the start of a long text
/// is decoded, because text of that length is not sent as base64 for any other reason.
fn is_user_and_password(word: &str) -> bool {
    let is_cut = word.len() > MAX_DECODED;
    let mut bytes = Vec::with_capacity(word.len().min(MAX_DECODED));
    let (mut held, mut bits) = (0_u32, 0_u32);
    for letter in word.bytes().take(MAX_DECODED) {
        let six = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return false,
        };
        held = (held << 6 | u32::from(six)) & 0xFFFF;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits & 0xFF).to_le_bytes()[0]);
        }
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => is_cut || text.contains(':'),
        // A character of several bytes may cross the end.
        Err(error) => is_cut && error.error_len().is_none(),
    }
}

/// Finds JSON web tokens, bootstrap tokens, and PEM in base64, as in a kubeconfig.
pub(super) fn tokens(text: &str, found: &mut SecretMatches) {
    let mut end = 0;
    for word in text.split_inclusive(|c: char| !is_of_token(c)) {
        let start = end;
        end += word.len();
        let word = word.trim_end_matches(|c: char| !is_of_token(c));
        match word.find("eyJ") {
            Some(at) if word.len() - at >= SHORTEST_TOKEN => found.push(start + at..start + word.len()),
            Some(_) | None => {}
        }
        let whole = word.trim_matches('.');
        if is_bootstrap_token(whole) {
            let start = start + word.len() - word.trim_start_matches('.').len();
            found.push(start..start + whole.len());
        }
    }
    let mut end = 0;
    while let Some(at) = text[end..].find("LS0tLS1CRUdJTi").map(|at| end + at) {
        end = text[at..].find(|c| !is_of_credential(c)).map_or(text.len(), |length| at + length);
        found.push(at..end);
    }
}

/// Returns true for six letters or digits, a dot, and sixteen more of them, unless it is the name of an Event.
fn is_bootstrap_token(word: &str) -> bool {
    let is_of_it = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    word.split_once('.').is_some_and(|(id, secret)| {
        id.len() == 6
            && secret.len() == 16
            && id.bytes().chain(secret.bytes()).all(is_of_it)
            && !is_time_of_event(secret)
    })
}

/// Returns true if sixteen letters or digits are the end of an Event's name: the time in nanoseconds since 1970 as a
/// hexadecimal number, from 2020 to 2043. About one in ten million secrets of bootstrap tokens looks like that,
/// because they use all letters. Each Event of an object with a name of six letters does.
fn is_time_of_event(word: &str) -> bool {
    const OF_2020: &str = "15e";
    word.starts_with('1') && word >= OF_2020 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(super) fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Finds users and passwords in URLs, and the queries of URLs, which may be signed.
pub(super) fn parts_of_addresses(text: &str, found: &mut SecretMatches) {
    let mut end = 0;
    while let Some(host) = text[end..].find("://").map(|at| end + at + 3) {
        end = text[host..].find(ends_address).map_or(text.len(), |length| host + length);
        let address = &text[host..end];
        let authority = &address[..address.find(['/', '?', '#']).unwrap_or(address.len())];
        if let Some(user) = authority.rfind('@') {
            found.push(host..host + user);
        }
        if let Some(query) = address.find('?') {
            found.push(host + query + 1..end);
        }
    }
}

fn ends_address(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | ')' | ']' | '}')
}
