//! Finds known secrets in every encoding: plain, percent-encoded, with JSON or HTML escapes in any mixture, and in
//! base64. It also finds parts of them, because a peer may cut a secret that it repeats.

use super::SecretMatches;
use super::escape::{decode_byte, is_escape};
use super::part::{Blocks, SHORTEST};

/// The longest encoding of one byte, as in `\u002b`, in bytes.
const MAX_ENCODING: usize = 6;

/// The secrets, and the bytes that they may begin with.
#[derive(Default)]
pub(super) struct Needles {
    all: Vec<Vec<u8>>,
    /// For the first two bytes of a text, one bit of 65536: set if a secret may begin with them. Empty without
    /// secrets.
    starts: Vec<u64>,
    /// The first byte of each secret.
    firsts: Vec<u8>,
    parts: Blocks,
}

impl Needles {
    /// Creates the set, without empty secrets.
    pub(super) fn new<'s>(secrets: impl IntoIterator<Item = &'s str>) -> Needles {
        let mut needles = Needles::default();
        for secret in secrets {
            needles.add(secret.as_bytes());
        }
        needles
    }

    /// Adds a secret.
    pub(super) fn add(&mut self, secret: &[u8]) {
        let Some(&first) = secret.first() else { return };
        if self.starts.is_empty() {
            self.starts = vec![0; 1 << 10];
        }
        // The second byte may be the start of an escape.
        let second = secret.get(1).copied();
        for next in 0..=u8::MAX {
            if second.is_none_or(|second| second == next || is_escape(next) || second == b' ' && next == b'+')
            {
                self.start_with(first, next);
                if first == b' ' {
                    self.start_with(b'+', next);
                }
            }
        }
        if !self.firsts.contains(&first) {
            self.firsts.push(first);
        }
        if !self.all.iter().any(|other| other == secret) {
            self.parts.add(self.all.len(), secret);
            self.all.push(secret.to_vec());
        }
    }

    /// Adds the base64 forms of a secret, at each offset within a longer text, as in `user:secret`.
    pub(super) fn add_in_base64(&mut self, secret: &[u8]) {
        for shift in 0..3 {
            let bytes: Vec<u8> = vec![0; shift].into_iter().chain(secret.iter().copied()).collect();
            // The first and last letters may also encode bits of other bytes.
            let (from, to) = ((shift * 8).div_ceil(6), bytes.len() * 8 / 6);
            for last in [b"+/", b"-_"] {
                let letters = base64(&bytes, *last);
                self.add(letters.get(from..to).unwrap_or_default());
            }
        }
    }

    fn start_with(&mut self, first: u8, next: u8) {
        let pair = usize::from(first) << 8 | usize::from(next);
        self.starts[pair >> 6] |= 1 << (pair & 63);
    }

    fn may_start(&self, text: &[u8], at: usize) -> bool {
        let (first, next) = (text[at], text.get(at + 1).copied().unwrap_or_default());
        let pair = usize::from(first) << 8 | usize::from(next);
        let is_escaped = || decode_byte(text, at).is_some_and(|(byte, _)| self.firsts.contains(&byte));
        self.starts[pair >> 6] >> (pair & 63) & 1 == 1 || is_escape(first) && is_escaped()
    }

    /// Returns how far a secret that begins in a text may extend beyond its end, in bytes.
    pub(super) fn reach(&self) -> usize {
        let longest = self.all.iter().map(Vec::len).max().unwrap_or_default();
        longest.saturating_mul(MAX_ENCODING)
    }

    /// Finds the secrets in the text.
    pub(super) fn find(&self, text: &str, found: &mut SecretMatches) {
        if self.all.is_empty() {
            return;
        }
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let here = self.may_start(bytes, at);
            let end = here.then(|| self.all.iter().filter_map(|one| end_of(one, bytes, at)).max()).flatten();
            match end.map(|end| text.floor_char_boundary(end)) {
                Some(end) if end > at => {
                    found.push(at..end);
                    at = end;
                }
                Some(_) | None => at += 1,
            }
        }
        self.parts.find(&self.all, text, found);
    }
}

/// Returns the end of the secret that begins at `start`, or of its longest part there, if the part is long enough.
fn end_of(secret: &[u8], text: &[u8], start: usize) -> Option<usize> {
    // A secret that looks like an escape is compared literally.
    if text[start..].starts_with(secret) {
        return Some(start + secret.len());
    }
    let (mut at, mut same) = (start, 0);
    for byte in secret {
        let Some((read, end)) = decode_byte(text, at) else { break };
        if read != *byte && !(*byte == b' ' && text[at] == b'+') {
            // A byte that looks like an escape may be plain.
            if text[at] != *byte {
                break;
            }
            at += 1;
        } else {
            at = end;
        }
        same += 1;
    }
    (same == secret.len() || same >= SHORTEST).then_some(at)
}

fn base64(bytes: &[u8], last: [u8; 2]) -> Vec<u8> {
    let mut letters = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    let (mut held, mut bits) = (0_u32, 0_u32);
    let mut letter = |six: u32| match u8::try_from(six & 63).expect("six bits") {
        six @ 0..=25 => letters.push(b'A' + six),
        six @ 26..=51 => letters.push(b'a' + six - 26),
        six @ 52..=61 => letters.push(b'0' + six - 52),
        six => letters.push(last[usize::from(six) - 62]),
    };
    for byte in bytes {
        held = held << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 6 {
            bits -= 6;
            letter(held >> bits);
        }
        held &= 63;
    }
    if bits > 0 {
        letter(held << (6 - bits));
    }
    letters
}
