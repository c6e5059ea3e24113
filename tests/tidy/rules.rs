//! The rules of the contract: each rule that code, tests or documents cite has one anchor in `docs/design`
//! (docs/design/README.md).

use std::collections::{BTreeMap, BTreeSet};

use super::{fail_if_any, files};

/// The letters of rules. Digits follow: one or two.
const LETTERS: &[u8] = b"ACDEGHMNQSWXZ";

/// The folder of the contract.
const PAGES: &str = "docs/design/";

/// Files by their paths from the root.
type Files = BTreeMap<String, String>;

/// Returns everything that may cite a rule: sources, documents and scenarios.
fn sources() -> Files {
    let mut found = files(&[".rs", ".md", ".txt"]);
    found.retain(|path, _| !path.ends_with(".txt") || path.contains("scenarios/"));
    found
}

/// Returns whether this is the id of a rule, and nothing more.
fn is_id(text: &str) -> bool {
    let mut bytes = text.bytes();
    let has_letter = bytes.next().is_some_and(|letter| LETTERS.contains(&letter));
    has_letter && (1..=2).contains(&bytes.len()) && bytes.all(|byte| byte.is_ascii_digit())
}

/// Returns the ids in a text. A part of a longer name, number, path or encoded URL is no id. An id may end a range,
/// such as that of the rules of the queue.
fn cited(text: &str) -> BTreeSet<String> {
    let bytes = text.as_bytes();
    let at = |position: usize| bytes.get(position).copied().unwrap_or(b' ');
    let before = |position: usize, back: usize| position.checked_sub(back).map_or(b' ', at);
    let begins = |start: usize| match before(start, 1) {
        b'-' => before(start, 2).is_ascii_digit(),
        b'_' | b'%' | b'/' | b'\\' | b'.' | b'#' => false,
        byte => !byte.is_ascii_alphanumeric(),
    };
    let mut found = BTreeSet::new();
    for (start, letter) in text.bytes().enumerate() {
        if !LETTERS.contains(&letter) || !begins(start) {
            continue;
        }
        let digits = bytes.iter().skip(start + 1).take_while(|byte| byte.is_ascii_digit()).count();
        let end = start + 1 + digits;
        let goes_on = match at(end) {
            b'.' => at(end + 1).is_ascii_digit(),
            byte => byte.is_ascii_alphanumeric() || byte == b'_',
        };
        if (1..=2).contains(&digits) && !goes_on {
            found.extend(text.get(start..end).map(str::to_owned));
        }
    }
    found
}

/// Returns the id at the start of the name of a test or of a scenario's file.
fn id_of_name(name: &str) -> Option<String> {
    let (id, _) = name.split_once('_')?;
    let is_lower = !id.bytes().any(|byte| byte.is_ascii_uppercase());
    Some(id.to_ascii_uppercase()).filter(|id| is_lower && is_id(id))
}

/// Returns the ids in the names of tests, and in the name of the file.
fn named(path: &str, text: &str) -> BTreeSet<String> {
    let file = path.rsplit('/').next().into_iter();
    let functions = text.split("fn ").skip(1);
    file.chain(functions).filter_map(id_of_name).collect()
}

/// Returns the pages on which each rule is defined, with one entry for each anchor.
fn anchors(sources: &Files) -> BTreeMap<String, Vec<&str>> {
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (path, text) in sources.iter().filter(|(path, _)| path.starts_with(PAGES)) {
        for anchor in text.split("<a id=\"").skip(1) {
            let id = anchor.split('"').next().unwrap_or_default().to_ascii_uppercase();
            if is_id(&id) {
                found.entry(id).or_default().push(path);
            }
        }
    }
    found
}

/// Returns a text without the marks of its comments and without line breaks.
fn joined(text: &str) -> String {
    let content = |line: &str| line.trim_start().trim_start_matches(['/', '!']).trim().to_owned();
    text.lines().map(content).collect::<Vec<_>>().join(" ")
}

/// Returns the pages of the contract that a text mentions, each with the rest of the text.
fn pages_in(text: &str) -> impl Iterator<Item = (String, &str)> {
    text.split(PAGES).skip(1).filter_map(|rest| {
        let name = rest.split(".md").next().filter(|name| name.len() < rest.len())?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
        is_name.then(|| (format!("{PAGES}{name}.md"), &rest[name.len() + ".md".len()..]))
    })
}

/// Returns the wrong mentions of pages in one file: the pages do not exist, or do not have the rules that are cited
/// with them.
fn wrong_pages(
    path: &str,
    text: &str,
    sources: &Files,
    anchors: &BTreeMap<String, Vec<&str>>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (page, rest) in pages_in(text) {
        if !sources.contains_key(&page) {
            wrong.push(format!("{path}: {page} does not exist"));
            continue;
        }
        let ids = rest.strip_prefix(", ").map(|ids| ids.split([')', ';', ':']).next().unwrap_or_default());
        let link = rest.strip_prefix('#').map(|anchor| {
            let end = anchor.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(anchor.len());
            anchor[..end].to_ascii_uppercase()
        });
        let linked = link.filter(|id| is_id(id));
        for id in cited(ids.unwrap_or_default()).into_iter().chain(linked) {
            if !anchors.get(&id).is_some_and(|pages| pages.contains(&page.as_str())) {
                wrong.push(format!("{path}: {page} does not have {id}"));
            }
        }
    }
    wrong
}

/// Returns whether a text mentions the former name of the contract.
fn mentions_former_name(text: &str) -> bool {
    let name = ["design", ".md"].concat();
    let is_longer = |before: Option<char>| before.is_some_and(|c| c.is_alphanumeric() || "-_/".contains(c));
    text.match_indices(&name).any(|(position, _)| !is_longer(text[..position].chars().next_back()))
}

/// Returns the wrong citations of rules.
fn offences(sources: &Files) -> Vec<String> {
    let anchors = anchors(sources);
    let twice = anchors.iter().filter(|(_, pages)| pages.len() > 1);
    let mut offences: Vec<String> =
        twice.map(|(id, pages)| format!("{id} is defined in {pages:?}")).collect();
    for (path, text) in sources {
        let mut ids = cited(text);
        ids.extend(named(path, text));
        let unknown = ids.into_iter().filter(|id| !anchors.contains_key(id));
        offences.extend(unknown.map(|id| format!("{path}: {id}")));
        let text = joined(text);
        // Links within the folder begin with the name of a page.
        let text = if path.starts_with(PAGES) { text.replace("](", &["](", PAGES].concat()) } else { text };
        offences.extend(wrong_pages(path, &text, sources, &anchors));
        if mentions_former_name(&text) {
            offences.push(format!("{path}: the contract is the folder {PAGES}"));
        }
    }
    offences
}

#[test]
fn every_cited_rule_has_its_page() {
    fail_if_any("define the rule once in docs/design, or cite another one", &offences(&sources()));
}

#[test]
fn a_removed_rule_is_reported() {
    let mut sources = sources();
    let citing = ["actors/core/writer/src/lane.rs", "tests/scenarios/w4_bad_gateway.txt"];
    sources.retain(|path, _| path.starts_with(PAGES) || citing.contains(&path.as_str()));
    let with = |change: &dyn Fn(&mut Files)| {
        let mut changed = sources.clone();
        change(&mut changed);
        offences(&changed)
    };
    let page = [PAGES, "writer.md"].concat();
    let anchor = "<a id=\"w4\"></a>";
    let found = with(&|files| {
        let text = files.get_mut(&page).expect("the page exists");
        assert_eq!(text.matches(anchor).count(), 1);
        *text = text.replace(anchor, "");
    });
    let is_missed = |path: &&str| found.contains(&format!("{path}: W4"));
    assert!(citing.iter().all(is_missed), "{found:?}");

    let found = with(&|files| files.get_mut(&page).expect("the page exists").push_str(anchor));
    assert!(found.iter().any(|offence| offence.starts_with("W4 is defined in")), "{found:?}");

    for (text, expected) in [
        (["//! (", PAGES, "nowhere.md, W4)"].concat(), "nowhere.md does not exist"),
        (["//! (", PAGES, "nodes.md,\n//! N1, W4)"].concat(), "nodes.md does not have W4"),
        (["[retries](", PAGES, "nodes.md#w4)"].concat(), "nodes.md does not have W4"),
        (["// (design", ".md W4)"].concat(), "the contract is the folder docs/design/"),
        (["fn w", "99_a_rule_that_does_not_exist()"].concat(), "99"),
        (["// (W", "99)"].concat(), "99"),
    ] {
        let found = with(&|files| drop(files.insert("new.rs".to_owned(), text.clone())));
        let is_found = |offence: &String| offence.starts_with("new.rs: ") && offence.ends_with(expected);
        assert!(found.iter().any(is_found), "{text}: {found:?}");
    }
}

#[test]
fn ids_differ_from_names_and_numbers() {
    let ids = |text: &str| cited(text).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(ids("(W2, W4; Q1-Q8) as S0 says: A88's cache"), "A88 Q1 Q8 S0 W2 W4");
    assert_eq!(ids("[A-Z0-9] %A9 W123 xW1 W1x Standard_D4s_v3 E2E M86.0 a/D1 #D1 \u{e9}"), "");
    assert_eq!(id_of_name("w10_five_failures"), Some("W10".to_owned()));
    assert_eq!(id_of_name("e2e_variables"), None);
}
