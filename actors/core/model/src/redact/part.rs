//! Finds parts of secrets: a peer may repeat a secret without its start, its end, or both.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use super::SecretMatches;
use super::escape::{decode_byte, is_escape};

/// The minimum length of a part that counts as the secret, in bytes.
pub(super) const SHORTEST: usize = 16;

/// The length of a block, in bytes. Each part of [`SHORTEST`] bytes contains a whole block.
const BLOCK: usize = 8;

/// The number of bits of the filter, as a power of two. With the 10,000 blocks of many tokens, one position of a text
/// in 25 passes by chance.
const FILTER_BITS: u32 = 18;

/// Position of a block: the number of its secret, and its offset there.
type Place = (usize, usize);

/// The blocks of secrets. Each secret is divided into blocks; the rest at its end is left out.
#[derive(Default)]
pub(super) struct Blocks {
    places: BTreeMap<u64, Vec<Place>>,
    /// One bit for several blocks: set if one of them may exist. Empty without blocks.
    filter: Vec<u64>,
}

/// A text after decoding.
struct Decoded<'t> {
    bytes: Cow<'t, [u8]>,
    /// The start of each byte in the text, and the end of the last one; `None`: the same as in `bytes`.
    starts: Option<Vec<usize>>,
}

impl Blocks {
    /// Adds the secret with this number.
    pub(super) fn add(&mut self, number: usize, secret: &[u8]) {
        if secret.len() < SHORTEST {
            return;
        }
        if self.filter.is_empty() {
            self.filter = vec![0; 1 << (FILTER_BITS - 6)];
        }
        for (at, bytes) in secret.chunks_exact(BLOCK).enumerate() {
            let block = bytes.iter().fold(0, |block, byte| block << 8 | u64::from(*byte));
            self.places.entry(block).or_default().push((number, at * BLOCK));
            let (word, bit) = position(block);
            self.filter[word] |= bit;
        }
    }

    /// Finds parts of these secrets in the text, both as written and decoded.
    pub(super) fn find(&self, secrets: &[Vec<u8>], text: &str, found: &mut SecretMatches) {
        if self.places.is_empty() {
            return;
        }
        let decoded = Decoded::of(text);
        if decoded.starts.is_some() {
            self.find_in(
                secrets,
                text,
                &Decoded { bytes: Cow::Borrowed(text.as_bytes()), starts: None },
                found,
            );
        }
        self.find_in(secrets, text, &decoded, found);
    }

    fn find_in(&self, secrets: &[Vec<u8>], text: &str, decoded: &Decoded<'_>, found: &mut SecretMatches) {
        let bytes = &*decoded.bytes;
        let (mut block, mut free) = (0_u64, 0);
        for (index, byte) in bytes.iter().enumerate() {
            block = block << 8 | u64::from(*byte);
            let (word, bit) = position(block);
            if index + 1 < free + BLOCK || self.filter[word] & bit == 0 {
                continue;
            }
            let at = index + 1 - BLOCK;
            let mut longest = 0..0;
            for (number, offset) in self.places.get(&block).into_iter().flatten() {
                let part = part_around(bytes, at, &secrets[*number], *offset, free);
                found.visited_bytes(part.len());
                longest = if part.len() > longest.len() { part } else { longest };
            }
            if longest.len() >= SHORTEST {
                free = longest.end;
                let (start, end) = (decoded.in_text(longest.start), decoded.in_text(longest.end));
                found.push(text.floor_char_boundary(start)..text.ceil_char_boundary(end));
            }
        }
    }
}

/// Returns the bit of a block in the filter.
fn position(block: u64) -> (usize, u64) {
    // Fibonacci hashing: the upper bits depend on all bytes.
    let hash = block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - FILTER_BITS);
    (usize::try_from(hash >> 6).expect("a few bits"), 1 << (hash & 63))
}

/// Returns the longest range around a block that is equal in text and secret. The block is at `at` in the text and at
/// `offset` in the secret.
fn part_around(bytes: &[u8], at: usize, secret: &[u8], offset: usize, free: usize) -> Range<usize> {
    let before = bytes[free..at].iter().rev().zip(secret[..offset].iter().rev());
    let behind = bytes[at..].iter().zip(&secret[offset..]);
    let before = before.take_while(|(read, known)| read == known).count();
    let behind = behind.take_while(|(read, known)| read == known).count();
    at - before..at + behind
}

impl Decoded<'_> {
    fn of(text: &str) -> Decoded<'_> {
        let raw = text.as_bytes();
        if !raw.iter().any(|byte| is_escape(*byte)) {
            return Decoded { bytes: Cow::Borrowed(raw), starts: None };
        }
        let (mut bytes, mut starts) = (Vec::with_capacity(raw.len()), Vec::with_capacity(raw.len() + 1));
        let mut at = 0;
        while let Some((byte, end)) = decode_byte(raw, at) {
            bytes.push(byte);
            starts.push(at);
            at = end;
        }
        starts.push(raw.len());
        Decoded { bytes: Cow::Owned(bytes), starts: Some(starts) }
    }

    fn in_text(&self, at: usize) -> usize {
        self.starts.as_ref().map_or(at, |starts| starts[at])
    }
}

#[cfg(test)]
mod tests {
    use super::super::needle::Needles;
    use super::super::{REDACTED, without};
    use super::*;

    const TOKEN: &str = "eyJhbGciOi.J9-abcdefghijklmnopq/rstuvwxyz+ABCDEFGHIJKLMNOPQ_RSTUVWXYZ==";
    const IN_BASE64: [&str; 2] = [
        "ZXlKaGJHY2lPaS5KOS1hYmNkZWZnaGlqa2xtbm9wcS9yc3R1dnd4eXorQUJDREVGR0hJSktMTU5PUFFfUlNUVVZXWFlaPT0=",
        "OmV5SmhiR2NpT2kuSjktYWJjZGVmZ2hpamtsbW5vcHEvcnN0dXZ3eHl6K0FCQ0RFRkdISUpLTE1OT1BRX1JTVFVWV1hZWj09",
    ];

    fn needles() -> Needles {
        let mut needles = Needles::default();
        for token in [TOKEN, "another-secret-of-somebody"] {
            needles.add(token.as_bytes());
            needles.add_in_base64(token.as_bytes());
        }
        needles
    }

    fn shown(needles: &Needles, text: &str) -> String {
        let mut found = SecretMatches::default();
        needles.find(text, &mut found);
        without(text, found.ranges).into_owned()
    }

    #[test]
    fn c1_each_part_of_16_bytes_or_more_is_found() {
        let needles = needles();
        for secret in [TOKEN, &IN_BASE64[0][..94], &IN_BASE64[1][2..95]] {
            for length in SHORTEST..=secret.len() {
                for start in 0..=secret.len() - length {
                    let part = &secret[start..start + length];
                    for (before, behind) in [("", ""), ("<", ">"), ("\u{e4}%", "\u{e4}\\")] {
                        let expected = format!("{before}{REDACTED}{behind}");
                        assert_eq!(shown(&needles, &format!("{before}{part}{behind}")), expected, "{part}");
                    }
                }
            }
        }
    }

    #[test]
    fn c1_a_shorter_part_stays() {
        let needles = needles();
        for start in 0..=TOKEN.len() - 15 {
            let text = format!("<{}>", &TOKEN[start..start + 15]);
            assert_eq!(shown(&needles, &text), text);
        }
    }

    #[test]
    fn c1_a_part_is_found_in_each_encoding() {
        let needles = needles();
        for part in [
            r"opq\/rstuvwxyz\u002BABCDEFGHIJ",
            "opq%2Frstuvwxyz%2bABCDEFGHIJ",
            "opq&#x2F;rstuvwxyz&#43;ABCDEFGHIJ",
            r"opq\\\/rstuvwxyz\\u002BABCDEFGHIJ",
            "\\u006fpq/rstuvwxyz+ABC%44EFGHIJ",
        ] {
            assert_eq!(shown(&needles, &format!("[{part}]")), format!("[{REDACTED}]"), "{part}");
        }
    }

    #[test]
    fn c1_two_parts_are_two_secrets() {
        let (first, second) = (&TOKEN[3..30], &TOKEN[25..60]);
        let text = format!("{first}{second}, {second} and another-secret-of-some");
        assert_eq!(shown(&needles(), &text), format!("{REDACTED}, {REDACTED} and {REDACTED}"));
    }

    #[test]
    fn c1_a_hostile_text_causes_little_work() {
        let needles = needles();
        for piece in [&TOKEN[..15], &TOKEN[8..23], &TOKEN[8..16], "=", "%"] {
            let text = piece.repeat((64 << 10) / piece.len());
            let mut found = SecretMatches::default();
            needles.find(&text, &mut found);
            assert!(found.visited_bytes <= 4 * text.len(), "{piece}: {}", found.visited_bytes);
        }
    }
}
