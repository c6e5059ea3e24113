//! Names that can be read and searched for: of tests, and of the types of the core (CONTRIBUTING.md, "Names").

use std::collections::BTreeMap;

use super::{before_tests, fail_if_any, files, is_test};

/// Maximum number of characters in the name of a test, or of any other function.
const MAX_NAME: usize = 70;

/// The types that every machine has.
const OF_EACH_MACHINE: [&str; 3] = ["In", "Out", "Params"];

/// Other names that several modules of the core still share, with the number of modules. This list can only shrink:
/// give a new type a unique name.
const SHARED: &[(&str, usize)] = &[("AdminState", 2), ("Done", 2), ("Effect", 2), ("Failure", 2)];

/// Returns the names that follow this keyword in a line of code.
fn declared<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(keyword)?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(&rest[..end]).filter(|name| !name.is_empty())
}

/// Returns the name of the type that a line exports from its module.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(") ")?.1,
        None => rest.strip_prefix(' ')?,
    };
    ["struct ", "enum ", "trait ", "type ", "union "].into_iter().find_map(|keyword| declared(rest, keyword))
}

#[test]
fn names_of_tests_are_short() {
    let mut offences = Vec::new();
    for (path, text) in files(&[".rs"]) {
        for (number, line) in text.lines().enumerate() {
            let names = line.split("fn ").skip(1).filter_map(|rest| declared(rest, ""));
            for name in names.filter(|name| name.chars().count() > MAX_NAME) {
                offences.push(format!("{path}:{}: {name}", number + 1));
            }
        }
    }
    // A scenario is a test with the name of its file.
    for path in files(&[".txt"]).into_keys() {
        let scenario = path.split_once("scenarios/").and_then(|(_, file)| file.strip_suffix(".txt"));
        if scenario.is_some_and(|name| name.chars().count() > MAX_NAME) {
            offences.push(path);
        }
    }
    fail_if_any("a name has at most 70 characters; its module carries the rule", &offences);
}

#[test]
fn types_of_the_core_have_unique_names() {
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in files(&[".rs"]) {
        if path.starts_with("actors/core/") && path.contains("/src/") && !is_test(&path) {
            for name in before_tests(&text).lines().filter_map(public_type) {
                modules.entry(name.to_owned()).or_default().push(path.clone());
            }
        }
    }
    modules.retain(|name, paths| paths.len() > 1 && !OF_EACH_MACHINE.contains(&name.as_str()));
    let known: BTreeMap<&str, usize> = SHARED.iter().copied().collect();
    let mut offences = Vec::new();
    for (name, paths) in &modules {
        if paths.len() > known.get(name.as_str()).copied().unwrap_or_default() {
            offences.push(format!("{name}: {}", paths.join(", ")));
        }
    }
    fail_if_any("qualify the name (LeasePhase), or name what it is", &offences);
    let is_stale = |(name, count): &&(&str, usize)| modules.get(*name).map_or(0, Vec::len) < *count;
    let stale: Vec<String> = SHARED.iter().filter(is_stale).map(|entry| format!("{entry:?}")).collect();
    fail_if_any("fewer modules share these names: shorten the list", &stale);
}

#[test]
fn types_are_recognised_in_lines() {
    assert_eq!(public_type("pub(super) enum Phase {"), Some("Phase"));
    assert_eq!(public_type("    pub struct Pool<T>(T);"), Some("Pool"));
    assert_eq!(public_type("pub(in crate::writer) type Heard = u8;"), Some("Heard"));
    assert_eq!(public_type("struct Pool;"), None);
    assert_eq!(public_type("pub fn enum_of() {}"), None);
}

/// Words that no name has, in small letters, and their replacements. `english.rs` bans most of them in prose.
const BANNED: [(&str, &str); 24] = [
    ("nobody", "none, no_holder, unused"),
    ("nobodys", "unknown"),
    ("somebody", "other_client"),
    ("anybody", "any_client"),
    ("everybody", "all"),
    ("whoever", "the component or client that"),
    ("stranger", "other, foreign"),
    ("strangers", "others, foreign"),
    ("namesake", "same_name"),
    ("knob", "setting"),
    ("knobs", "settings"),
    ("remarks", "diagnostics"),
    ("left_out", "excluded (nodes), omitted"),
    ("let_go", "release"),
    ("lets_go", "releases"),
    ("set_back", "rollback"),
    ("in_vain", "without_effect"),
    ("lay_over", "merge"),
    ("patience", "timeout"),
    ("heeded", "applied"),
    ("mood", "behaviour"),
    ("wishes", "expected_members"),
    ("no_pin", "not_in_restore"),
    ("fights", "contentions"),
];

/// What declares a name.
const KEYWORDS: [&str; 10] =
    ["fn ", "struct ", "enum ", "trait ", "type ", "const ", "static ", "mod ", "let mut ", "let "];

/// Returns the words of a name, each between two `_`.
fn words(name: &str) -> String {
    let mut words = "_".to_owned();
    let mut is_after_small = false;
    for character in name.chars() {
        if is_after_small && character.is_ascii_uppercase() {
            words.push('_');
        }
        is_after_small = character.is_ascii_lowercase();
        words.push(character.to_ascii_lowercase());
    }
    words + "_"
}

/// Returns the names that a line declares in Rust, and the alerts, Events and metrics that it names.
fn names(line: &str, is_rust: bool) -> Vec<&str> {
    let code = line.split("//").next().filter(|_| is_rust).unwrap_or_default();
    let declared_here =
        |keyword: &'static str| code.split(keyword).skip(1).filter_map(|rest| declared(rest, ""));
    let mut names: Vec<&str> = KEYWORDS.into_iter().flat_map(declared_here).collect();
    for prefix in ["BackendPool", "backend_pool_controller_"] {
        names.extend(line.match_indices(prefix).filter_map(|(at, _)| declared(&line[at..], "")));
    }
    names
}

#[test]
fn names_have_no_banned_words() {
    let mut offences = Vec::new();
    for (path, text) in files(&[".rs", ".yaml", ".json", ".md"]) {
        for (number, line) in
            text.lines().enumerate().filter(|_| !path.starts_with("tests/tidy/") && path != "CHANGELOG.md")
        {
            for name in names(line, path.ends_with(".rs")) {
                let words = words(name);
                for (banned, instead) in
                    BANNED.iter().filter(|(banned, _)| words.contains(&format!("_{banned}_")))
                {
                    offences.push(format!("{path}:{}: {name}: instead of {banned}: {instead}", number + 1));
                }
            }
        }
    }
    fail_if_any("a reader stops at these words in names", &offences);
}

#[test]
fn names_are_split_into_words() {
    assert_eq!(words("SetBack"), "_set_back_");
    assert_eq!(words("MAX_KNOBS"), "_max_knobs_");
    assert_eq!(names("let mut one = Two::three(); // fn four", true), ["one", "mut"]);
    assert_eq!(names("  alert: BackendPoolHeld", false), ["BackendPoolHeld"]);
}
