//! Finds the end of a request's head, piece by piece, and looks at each byte once.

/// The position of the next byte in a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum HeadEnd {
    /// Before the request line; empty lines there are ignored (RFC 9112, 2.2).
    #[default]
    Before,
    /// In a line that is not empty.
    Line,
    /// At the start of a line.
    Start,
    /// After a carriage return at the start of a line.
    Return,
}

impl HeadEnd {
    /// Returns how many of the next bytes belong to the head, if it ends within them. A byte that no head may contain
    /// is an end too: the parser refuses it.
    pub(super) fn search(&mut self, bytes: &[u8]) -> Option<usize> {
        for (index, byte) in bytes.iter().enumerate() {
            *self = match (*self, byte) {
                (HeadEnd::Before, b'\r' | b'\n') => HeadEnd::Before,
                (HeadEnd::Line, b'\n') => HeadEnd::Start,
                (HeadEnd::Start, b'\r') => HeadEnd::Return,
                (HeadEnd::Start | HeadEnd::Return, b'\n') | (_, ..=8 | 11 | 12 | 14..=31 | 127) => {
                    return Some(index + 1);
                }
                (HeadEnd::Before | HeadEnd::Line | HeadEnd::Start | HeadEnd::Return, _) => HeadEnd::Line,
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the end of the head in this text, which is read in two pieces.
    fn end(text: &str, cut: usize) -> Option<usize> {
        let mut end = HeadEnd::default();
        let (first, second) = text.as_bytes().split_at(cut);
        end.search(first).or_else(|| Some(first.len() + end.search(second)?))
    }

    #[test]
    fn h1_the_end_of_a_head_is_found_wherever_it_is_cut() {
        for (head, behind) in [
            ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", "\r\n\r\nbody"),
            ("\r\n\r\n\nGET / HTTP/1.1\r\nhost: a\tb\r\n\r\n", ""),
            ("GET / HTTP/1.1\nhost: a\n\n", "x\n\n"),
            ("GET / HTTP/1.1\r\nhost: a\n\r\n", "GET"),
            ("GET /\u{0}", "x\r\n\r\n"),
            ("\u{16}", "\u{3}\u{1}"),
        ] {
            let text = format!("{head}{behind}");
            for cut in 0..=text.len() {
                assert_eq!(end(&text, cut), Some(head.len()), "{text:?} at {cut}");
            }
            for cut in 0..head.len() {
                assert_eq!(end(&head[..head.len() - 1], cut.min(head.len() - 1)), None, "{head:?}");
            }
        }
    }
}
