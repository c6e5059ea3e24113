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
        let story = path.split_once("scenarios/").and_then(|(_, file)| file.strip_suffix(".txt"));
        if story.is_some_and(|name| name.chars().count() > MAX_NAME) {
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
