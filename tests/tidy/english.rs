//! Words that documents, comments and texts do not use, because a reader who is not a native speaker stops at them
//! (CONTRIBUTING.md, "English"). Code, such as a name or a literal of one word, is not checked.

use super::{fail_if_any, files};

/// Banned words, in lower case, and their replacements.
const BANNED: [(&str, &str); 33] = [
    ("let go", "release"),
    ("lets go", "releases"),
    ("letting go", "releasing"),
    ("heeded", "applied, respected"),
    ("in vain", "without effect"),
    ("so manieth", "n-th"),
    ("passed over", "ignored, skipped"),
    ("stands behind", "waits for"),
    ("asked again by itself", "retried automatically"),
    ("is had", "is found, is obtained, is available"),
    ("are had", "are found, are obtained, are available"),
    ("was had", "was found, was obtained, was available"),
    ("were had", "were found, were obtained, were available"),
    ("be had", "be found, be obtained, be available"),
    ("whoever", "the component, the client or the operator that"),
    ("whomever", "the component, the client or the operator that"),
    ("nobody", "no component, no client; or say what is not done"),
    ("nobody's", "without an owner"),
    ("somebody", "another client, the operator, a user"),
    ("somebody's", "another client's"),
    ("anybody", "any client, any component"),
    ("anybody's", "any client's"),
    ("everybody", "all clients, all components"),
    ("everybody's", "that of all"),
    ("a person", "the operator"),
    ("a person's", "the operator's"),
    ("persons", "operators, users"),
    ("for ever", "forever, always"),
    ("anew", "again"),
    ("so-manieth", "n-th"),
    ("stand in the way", "prevent, block"),
    ("stands in the way", "prevents, blocks"),
    ("stood in the way", "prevented, blocked"),
];

/// This file, which must name the words.
const LIST: &str = "tests/tidy/english.rs";

/// Placeholder for characters that are not prose.
const CODE: char = '\0';

/// A copy of a text in which everything but prose is [`CODE`]. White space stays, so that lines keep their numbers.
struct Mask {
    text: Vec<char>,
    prose: Vec<char>,
}

impl Mask {
    fn new(text: &str) -> Self {
        let text: Vec<char> = text.chars().collect();
        let prose = text.iter().map(|c| if c.is_whitespace() { *c } else { CODE }).collect();
        Self { text, prose }
    }

    fn keep(&mut self, from: usize, to: usize) {
        self.prose[from..to].copy_from_slice(&self.text[from..to]);
    }

    fn hide(&mut self, from: usize, to: usize) {
        for character in &mut self.prose[from..to] {
            *character = if character.is_whitespace() { *character } else { CODE };
        }
    }

    /// Returns the next position of this text, or the end.
    fn find(&self, wanted: &str, from: usize) -> usize {
        let wanted: Vec<char> = wanted.chars().collect();
        let rest = self.text.get(from..).unwrap_or_default();
        rest.windows(wanted.len()).position(|here| here == wanted).map_or(self.text.len(), |at| from + at)
    }

    fn is_at(&self, wanted: &str, at: usize) -> bool {
        self.text[at..].iter().copied().take(wanted.len()).eq(wanted.chars())
    }

    /// Keeps the content of a literal that has more than one word and is no line of a scenario.
    fn literal(&mut self, from: usize, to: usize) {
        let content: String = self.text[from..to].iter().collect();
        let is_story = content.starts_with("at ") && content[3..].starts_with(|c: char| c.is_ascii_digit());
        if content.contains(char::is_whitespace) && !is_story {
            self.keep(from, to);
        }
    }

    /// Returns the comments and literals of Rust.
    fn rust(mut self) -> Self {
        let mut at = 0;
        while at < self.text.len() {
            let is_in_a_name = at > 0 && (self.text[at - 1].is_alphanumeric() || self.text[at - 1] == '_');
            if self.is_at("//", at) {
                let end = self.find("\n", at);
                let marks = self.text[at..end].iter().take_while(|c| matches!(c, '/' | '!')).count();
                // The marks become white space, so that a sentence continues in the next line.
                self.prose[at..at + marks].fill(' ');
                self.keep(at + marks, end);
                at = end;
            } else if let Some(hashes) = self.raw(at).filter(|_| !is_in_a_name) {
                let begin = self.find("\"", at) + 1;
                let end = self.find(&format!("\"{}", "#".repeat(hashes)), begin);
                self.literal(begin, end);
                at = end + 1 + hashes;
            } else if self.text[at] == '"' {
                let mut end = at + 1;
                while end < self.text.len() && self.text[end] != '"' {
                    end += if self.text[end] == '\\' { 2 } else { 1 };
                }
                self.literal(at + 1, end.min(self.text.len()));
                at = end + 1;
            } else if self.text[at] == '\'' {
                at += self.character(at);
            } else {
                at += 1;
            }
        }
        self
    }

    /// Returns the number of `#` of the raw literal that begins here.
    fn raw(&self, at: usize) -> Option<usize> {
        let begin = if self.is_at("br", at) { at + 2 } else { at + 1 };
        let begins = self.text[at] == 'r' || begin == at + 2;
        let hashes = self.text.iter().skip(begin).take_while(|c| **c == '#').count();
        (begins && self.text.get(begin + hashes) == Some(&'"')).then_some(hashes)
    }

    /// Returns the length of the character literal or lifetime mark that begins here.
    fn character(&self, at: usize) -> usize {
        let escaped = self.text.get(at + 1) == Some(&'\\');
        let close = if escaped { self.find("'", at + 3) } else { at + 2 };
        if self.text.get(close) == Some(&'\'') { close + 1 - at } else { 1 }
    }

    /// Returns the prose of another file: without the lines of a scenario, and without quoted single words.
    fn other(mut self, is_story: bool) -> Self {
        self.keep(0, self.text.len());
        self = self.without('`', '`');
        let mut from = 0;
        while from < self.text.len() {
            let to = self.find("\n", from);
            let is_comment = self.text[from..to].first() == Some(&'#');
            if is_story && !is_comment {
                self.hide(from, to);
            }
            let quotes: Vec<usize> = (from..to).filter(|at| self.prose[*at] == '"').collect();
            for pair in quotes.windows(2) {
                if !self.text[pair[0]..pair[1]].contains(&' ') {
                    self.hide(pair[0], pair[1]);
                }
            }
            from = to + 1;
        }
        self
    }

    /// Hides text between marks, such as code in a sentence. A mark that is not closed before the next code hides
    /// nothing.
    fn without(mut self, open: char, close: char) -> Self {
        let mut at = 0;
        while at < self.prose.len() {
            let rest = &self.prose[at + 1..];
            let end = (self.prose[at] == open)
                .then(|| rest.iter().position(|c| *c == close || *c == CODE))
                .flatten()
                .filter(|end| rest[*end] == close);
            if let Some(end) = end {
                self.hide(at, at + end + 2);
                at += end + 1;
            }
            at += 1;
        }
        self
    }

    /// Returns the words with their lines, and an empty word wherever a phrase ends.
    fn words(&self) -> Vec<(usize, String)> {
        let (mut words, mut line) = (vec![(1, String::new())], 1);
        let mut is_open = false;
        for c in &self.prose {
            if c.is_alphanumeric() || matches!(c, '-' | '_' | '\'' | '/') {
                if !is_open {
                    words.push((line, String::new()));
                }
                is_open = true;
                words.last_mut().expect("it has one").1.extend(c.to_lowercase());
            } else {
                is_open = false;
                if !c.is_whitespace() {
                    words.push((line, String::new()));
                }
                line += usize::from(*c == '\n');
            }
        }
        words
    }
}

/// Returns the banned words in a text: the line, the words, and their replacement.
fn found(path: &str, text: &str) -> Vec<String> {
    // Most texts have no banned word, and masking a text takes time.
    let small = text.to_lowercase();
    let has = |(banned, _): &&(&str, &str)| banned.split(' ').all(|word| small.contains(word));
    let possible: Vec<&(&str, &str)> = BANNED.iter().filter(has).collect();
    if possible.is_empty() {
        return Vec::new();
    }
    let mask = Mask::new(text);
    let mask = if path.ends_with(".rs") { mask.rust() } else { mask.other(path.contains("scenarios/")) };
    let words = mask.without('`', '`').without('{', '}').words();
    let mut found = Vec::new();
    for (banned, instead) in possible {
        let phrase: Vec<&str> = banned.split(' ').collect();
        for character in words.windows(phrase.len()) {
            if character.iter().map(|(_, word)| word.as_str()).eq(phrase.iter().copied()) {
                found.push(format!("{path}:{}: \"{banned}\"; write: {instead}", character[0].0));
            }
        }
    }
    found
}

#[test]
fn texts_are_plain_english() {
    let kinds =
        [".rs", ".md", ".txt", ".yaml", ".yml", ".toml", ".json", ".tpl", "Makefile", "Dockerfile", "run"];
    let texts = files(&kinds).into_iter().filter(|(path, _)| path != LIST);
    let offences: Vec<String> = texts.flat_map(|(path, text)| found(&path, &text)).collect();
    fail_if_any("a reader who is not a native speaker stops here", &offences);
}

#[test]
fn banned_words_are_found_in_prose_alone() {
    let lines = |path: &str, text: &str| {
        let found = found(path, text);
        let line = |text: &String| text.split(':').nth(1).and_then(|line| line.parse::<usize>().ok());
        found.iter().filter_map(line).collect::<Vec<_>>()
    };
    for (text, expected) in [
        ("let nobody = 1; // Nobody waits.", vec![1]),
        ("fn f() {}\n    /// It is let go\n    /// of, whatever.", vec![2]),
        ("say(\"for whoever asks\");", vec![1]),
        ("say(r#\"\"anew\" it begins\"#); // anew", vec![1, 1]),
        ("let c = '\"'; let nobody = \"one\"; let d: &'a str = 'x'; // ok", vec![]),
        ("put(\"nobody\"); put(\"at 5s expect nobody here\"); put(\"{nobody} is free\");", vec![]),
        ("// The word `nobody`, and somebody-else, and nobody_waits.", vec![]),
        ("//! One\n//!\n\nfn let_go() {}\n// of anything", vec![]),
    ] {
        assert_eq!(lines("a.rs", text), expected, "{text}");
    }
    assert_eq!(lines("a.md", "One.\n\nA token cannot\nbe had. `anew`\n\n```\nanew\n```\n"), [4]);
    assert_eq!(lines("tests/scenarios/a.txt", "# anew\nexpect PUT web nobody\n"), [1]);
    assert_eq!(lines("a.json", "{ \"enum\": [\"nobody\", \"us\"], \"text\": \"of nobody\" }\n"), [1]);
}
