//! Decodes one byte of a text that may be percent-encoded, or escaped as in JSON or HTML, in any mixture.

/// The maximum number of backslashes before a letter: JSON in JSON in JSON has seven.
const MAX_BACKSLASHES: usize = 7;

pub(super) fn is_escape(byte: u8) -> bool {
    matches!(byte, b'%' | b'\\' | b'&')
}

/// Returns the byte that is encoded at `at`, and the position after it.
pub(super) fn decode_byte(text: &[u8], at: usize) -> Option<(u8, usize)> {
    let rest = text.get(at..)?;
    let plain = (*rest.first()?, at + 1);
    let read = match rest {
        [b'%', ..] => rest.get(1..3).and_then(hex).map(|byte| (byte, at + 3)),
        // JSON in JSON has more backslashes.
        [b'\\', ..] => {
            let run = rest.iter().take(MAX_BACKSLASHES).take_while(|byte| **byte == b'\\');
            let letter = at + run.count();
            match text.get(letter) {
                Some(b'u') => {
                    let digits = text.get(letter + 1..letter + 5).filter(|digits| digits.starts_with(b"00"));
                    digits.and_then(|digits| hex(&digits[2..])).map(|byte| (byte, letter + 5))
                }
                Some(b't') => Some((b'\t', letter + 1)),
                Some(b'n') => Some((b'\n', letter + 1)),
                // An escaped backslash follows another backslash.
                Some(b'"' | b'/') => Some((text[letter], letter + 1)),
                Some(_) | None => rest.starts_with(b"\\\\").then_some((b'\\', at + 2)),
            }
        }
        [b'&', b'#', digits @ ..] => of_html(digits).map(|(byte, length)| (byte, at + 2 + length)),
        [b'&', b'a', b'm', b'p', b';', ..] => Some((b'&', at + 5)),
        _ => None,
    };
    Some(read.unwrap_or(plain))
}

fn hex(digits: &[u8]) -> Option<u8> {
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u8::from_str_radix(digits, 16).ok()
}

/// Returns the byte that `43;` or `x2b;` encodes, and the length of that text.
fn of_html(digits: &[u8]) -> Option<(u8, usize)> {
    let length = digits.iter().take(4).position(|byte| *byte == b';')?;
    let byte = match &digits[..length] {
        [b'x' | b'X', digits @ ..] => hex(digits),
        digits => std::str::from_utf8(digits).ok()?.parse().ok(),
    };
    Some((byte?, length + 1))
}
