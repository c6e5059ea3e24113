//! Text that is safe for a terminal, a text log and a web page. It moves no cursor, changes no text direction, hides
//! nothing and starts no new line. Unprintable characters are shown as in `\u{1b}`.

use std::borrow::Cow;
use std::fmt;

use super::{REDACTED, cut, without_sent};

/// The start of an escape for an unprintable character.
pub(super) const ESCAPE: &str = "\\u{";

/// Text that is safe to display. Only this module creates it; it contains no recently sent tokens.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Printable(String);

impl Printable {
    /// Returns the text as one line, with escaped line breaks.
    #[must_use]
    pub fn line(text: &str) -> Printable {
        Printable::of(text, false)
    }

    /// Returns the text as one line of at most `longest` bytes.
    #[must_use]
    pub fn line_within(text: &str, longest: usize) -> Printable {
        let mut line = Printable::line(text);
        if line.0.len() > longest {
            cut(&mut line.0, longest);
        }
        line
    }

    /// Returns the given lines, each with a line end.
    #[must_use]
    pub fn joined(lines: impl IntoIterator<Item = Printable>) -> Printable {
        let mut all = String::new();
        for Printable(line) in lines {
            all.push_str(&line);
            all.push('\n');
        }
        Printable(all)
    }

    /// Returns a document of several lines, in which foreign parts are already one printable line each. Each `\n` is
    /// kept.
    #[must_use]
    pub fn lines(text: &str) -> Printable {
        Printable::of(text, true)
    }

    /// Returns a JSON document with the same content, with unprintable characters as JSON escapes. A string value
    /// with a recently sent token is redacted as a whole; names and numbers stay, so that the document stays valid.
    /// Line breaks occur only between strings, and are kept.
    #[must_use]
    pub fn json(document: &str) -> Printable {
        let document = values_without_sent(document);
        let mut out = String::with_capacity(document.len());
        for c in document.chars() {
            if c == '\n' || is_printable(c) {
                out.push(c);
            } else {
                out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
            }
        }
        Printable(out)
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn of(text: &str, keeps_lines: bool) -> Printable {
        let text = without_sent(text);
        let mut out = String::with_capacity(text.len());
        push(&text, keeps_lines, &mut out);
        Printable(out)
    }
}

impl fmt::Display for Printable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Returns the JSON document with each string value redacted that contains a recently sent token.
fn values_without_sent(document: &str) -> Cow<'_, str> {
    if let Cow::Borrowed(_) = without_sent(document) {
        return Cow::Borrowed(document);
    }
    let mut out = String::with_capacity(document.len());
    let mut rest = document;
    while let Some(start) = rest.find('"') {
        let end = start + string_length(&rest[start..]);
        let (string, after) = (&rest[start..end], &rest[end..]);
        let is_name = after.trim_start().starts_with(':');
        out.push_str(&rest[..start]);
        match without_sent(string) {
            Cow::Owned(_) if !is_name => out.extend(["\"", REDACTED, "\""]),
            Cow::Owned(_) | Cow::Borrowed(_) => out.push_str(string),
        }
        rest = after;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Returns the length of the JSON string at the start of a text, in bytes, including its quotation marks.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    end.map_or(text.len(), |at| at + 2)
}

/// Appends the text with unprintable characters escaped.
pub(super) fn push(text: &str, keeps_lines: bool, out: &mut String) {
    let mut shown = 0;
    for (at, c) in text.char_indices().filter(|(_, c)| !is_printable(*c)) {
        if !(keeps_lines && c == '\n') {
            out.push_str(&text[shown..at]);
            out.extend(c.escape_unicode());
            shown = at + c.len_utf8();
        }
    }
    out.push_str(&text[shown..]);
}

/// Returns whether a character is printable. Controls, line and paragraph separators, direction marks and invisible
/// characters are not: names that differ only in one of them look the same. The two joiners (U+200C, U+200D) are
/// printable, because they are part of the spelling of words.
fn is_printable(c: char) -> bool {
    !(c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180b}'..='\u{180f}' | '\u{200b}'
            | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}' | '\u{e0100}'..='\u{e01ef}'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::{Recipient, record_sent_token, safe_line};

    const HOSTILE: &str = "a\u{1b}[2J\u{7}\u{7f}\u{9b}\u{202e}b\u{2066}\u{200b}\u{feff}\u{e0041}\u{61c}c";
    const SHOWN: &str =
        "a\\u{1b}[2J\\u{7}\\u{7f}\\u{9b}\\u{202e}b\\u{2066}\\u{200b}\\u{feff}\\u{e0041}\\u{61c}c";

    #[test]
    fn unprintable_characters_are_escaped() {
        assert_eq!(Printable::line(HOSTILE).as_str(), SHOWN);
        assert_eq!(safe_line(HOSTILE, &[], 200), SHOWN);
        assert_eq!(Printable::line("a\nb\r\u{2028}").as_str(), "a\\u{a}b\\u{d}\\u{2028}");
        assert_eq!(Printable::lines("a\nb\r\n").as_str(), "a\nb\\u{d}\n");
    }

    #[test]
    fn invisible_characters_are_escaped() {
        for c in [
            '\u{34f}',
            '\u{115f}',
            '\u{1160}',
            '\u{180b}',
            '\u{180e}',
            '\u{180f}',
            '\u{3164}',
            '\u{fe00}',
            '\u{fe0f}',
            '\u{ffa0}',
            '\u{1d173}',
            '\u{1d17a}',
            '\u{e0100}',
            '\u{e01ef}',
        ] {
            assert_eq!(Printable::line(&format!("a{c}b")).as_str(), format!("a{}b", c.escape_unicode()));
        }
    }

    #[test]
    fn joined_lines_keep_their_number() {
        let lines = ["a\nb", "", HOSTILE].map(Printable::line);
        assert_eq!(Printable::joined(lines).as_str(), format!("a\\u{{a}}b\n\n{SHOWN}\n"));
    }

    #[test]
    fn json_is_the_same_document_with_escapes() {
        let document = "{\n  \"x\": \"a\\u001b\\n\u{7f}\u{9b}\u{202e}\u{feff}\u{e0041}\u{e4}\"\n}";
        let shown = Printable::json(document);
        let expected = "{\n  \"x\": \"a\\u001b\\n\\u007f\\u009b\\u202e\\ufeff\\udb40\\udc41\u{e4}\"\n}";
        assert_eq!(shown.as_str(), expected);
        assert_eq!(Printable::lines(expected), shown);
    }

    #[test]
    fn letters_of_all_languages_and_quotation_marks_stay() {
        for text in
            ["\u{e4}\u{4e2d}\u{5d0}\u{627} \"\u{201e}x\u{201c}\" \\", "\u{645}\u{200c}\u{646}", "\u{1f512}"]
        {
            assert_eq!(Printable::line(text).as_str(), text);
            assert_eq!(safe_line(text, &[], 90), text);
        }
    }

    #[test]
    fn the_limit_counts_shown_bytes_and_cuts_no_escape() {
        for longest in 3..60 {
            for line in
                [safe_line(HOSTILE, &[], longest), Printable::line_within(HOSTILE, longest).to_string()]
            {
                assert!(line.len() <= longest, "{longest}: {line}");
                assert_eq!(line.matches(ESCAPE).count(), line.matches('}').count(), "{longest}: {line}");
            }
        }
    }

    #[test]
    fn c1_printable_text_has_no_sent_token() {
        record_sent_token(&Recipient::Authority, "planted-for-terminals");
        assert_eq!(Printable::lines("x planted-for-terminals\n").as_str(), "x <redacted>\n");
    }

    #[test]
    fn c1_json_without_a_sent_token_is_the_same_document() {
        record_sent_token(&Recipient::Proxy("json".into()), "91827364554637281900");
        let document = concat!(
            "{\n \"91827364554637281900\" : 91827364554637281900,\n",
            " \"a\": [\"x \\\" 91827364554637281900\\\\\", \"\", \"y\"]\n}",
        );
        let shown = Printable::json(document);
        let expected = document.replacen("\"x \\\" 91827364554637281900\\\\\"", "\"<redacted>\"", 1);
        assert_eq!(shown.as_str(), expected);
    }
}
