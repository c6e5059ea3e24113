//! The rules of the house that a compiler does not know: layout, architecture invariants, words. It reads the sources
//! as text and needs nothing but the standard library.

mod english;
mod names;
mod rules;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The most lines of code in a file; tests, blank lines and comments do not count.
const MAX_FILE: usize = 500;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns every file of the workspace with one of these endings, by its path from the root.
pub fn files(endings: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the workspace can be read").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() {
                if name != "target" && name != ".git" && name != ".tools" {
                    folders.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                let shown = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
                found.insert(shown, fs::read_to_string(&path).unwrap_or_default());
            }
        }
    }
    assert!(!found.is_empty(), "no file with {endings:?} was found");
    found
}

/// Returns whether a file holds nothing but tests.
pub fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part == "tests") || path.ends_with("/tests.rs")
}

/// Returns a source file up to its unit tests. Those in a file of their own are named anywhere, and end nothing.
pub fn before_tests(text: &str) -> &str {
    const MODULE: &str = "\n#[cfg(test)]\nmod ";
    let opens = |at: &usize| text[at + MODULE.len()..].lines().next().is_some_and(|line| line.ends_with('{'));
    let begin = text.match_indices(MODULE).map(|(at, _)| at).find(opens);
    &text[..begin.unwrap_or(text.len())]
}

fn fail_if_any(rule: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{rule}:\n  {}", offences.join("\n  "));
}

#[test]
fn the_core_does_no_io_and_knows_no_clock() {
    let forbidden = [
        "std::fs",
        "std::net::Tcp",
        "std::net::Udp",
        "std::thread",
        "std::process",
        "std::env",
        "Instant::now",
        "SystemTime",
        "HashMap",
        "HashSet",
        "async fn",
        ".await",
        "println!",
        "rand::",
    ];
    let mut offences = Vec::new();
    for (path, text) in files(&[".rs"]) {
        let decides = path.starts_with("actors/core/") && path.contains("/src/")
            || path.starts_with("actors/migration/src");
        if decides && !is_test(&path) {
            let code: Vec<&str> =
                before_tests(&text).lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            for word in forbidden {
                if code.iter().any(|line| mentions(line, word)) {
                    offences.push(format!("{path}: {word}"));
                }
            }
        }
    }
    fail_if_any("actors/core and actors/migration decide and do nothing else", &offences);
}

/// Output passes through one function per destination that escapes it: no foreign text reaches a terminal, log or
/// response without it.
#[test]
fn output_is_escaped_in_one_place() {
    let ways = [
        ("stdout().", "src/cli.rs"),
        ("stderr().write", "src/cli.rs"),
        ("std::io::stderr())", "src/telemetry.rs"),
        ("body(document.to_string", ""),
        ("body(body.to_string", ""),
    ];
    let mut offences = Vec::new();
    for (path, text) in files(&[".rs"]) {
        let is_ours =
            path.starts_with("src/") || path.starts_with("actors/") || path.starts_with("config/src/");
        for (way, folder) in ways {
            if is_ours && !is_test(&path) && path != folder && before_tests(&text).contains(way) {
                offences.push(format!("{path}: {way}"));
            }
        }
    }
    fail_if_any(
        "text is printed only by cli::say, cli::tell, the log and http::problem::printable",
        &offences,
    );
}

/// Azure is written by `Client::execute`, with a permit; only the conformance suite sends requests as they stand.
#[test]
fn only_the_conformance_suite_sends_raw_requests() {
    let word = ["Raw", "Client"].concat();
    let places = ["actors/arm/src/", "tests/e2e/src/"];
    let named = files(&[".rs"]).into_iter().filter(|(_, text)| text.contains(&word)).map(|(path, _)| path);
    let (allowed, offences): (Vec<String>, Vec<String>) =
        named.partition(|path| places.iter().any(|folder| path.starts_with(folder)));
    assert!(!allowed.is_empty(), "no file names {word}: this test looks for the wrong name");
    fail_if_any("the product has no raw client", &offences);
}

/// Returns whether a line has a word by itself, not as a part of a longer name.
fn mentions(line: &str, word: &str) -> bool {
    let named = |end: Option<char>, letter: Option<char>| {
        let of_a_name = |c: char| c.is_alphanumeric() || c == '_';
        end.is_some_and(of_a_name) && letter.is_some_and(of_a_name)
    };
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (line[..at].chars().next_back(), line[at + word.len()..].chars().next());
        !named(word.chars().next(), before) && !named(word.chars().next_back(), after)
    })
}

/// The crates of machines: they know only `model` and `mechanisms`, and no other machine.
const MACHINES: [&str; 6] = ["sources", "pools", "writer", "nodes", "coordination", "reporting"];

#[test]
fn dependencies_point_one_way() {
    let below = ["mechanisms", "model"];
    let core: Vec<&str> = MACHINES.iter().chain(&below).copied().collect();
    let shell: Vec<&str> = core.iter().chain(&["pool-core", "arm", "xds"]).copied().collect();
    let mut allowed: Vec<(String, &[&str])> = vec![
        ("actors/core".to_owned(), &core),
        ("actors/core/model".to_owned(), &[]),
        ("actors/core/mechanisms".to_owned(), &["model"]),
        ("actors/core/testing".to_owned(), &[]),
        ("actors/proxy".to_owned(), &["model"]),
        ("actors/arm".to_owned(), &["model", "proxy"]),
        ("actors/migration".to_owned(), &below),
        ("actors/xds".to_owned(), &["model", "proxy"]),
        ("actors".to_owned(), &shell),
        ("config".to_owned(), &[]),
        ("simulator/models".to_owned(), &[]),
        ("simulator".to_owned(), &["config", "simulator-models"]),
        ("tests/e2e".to_owned(), &["arm", "config", "model", "simulator"]),
    ];
    allowed.extend(MACHINES.map(|name| (format!("actors/core/{name}"), &below[..])));
    let others = ["actors", "arm", "config", "e2e", "migration", "pool-core", "pool-testing", "proxy"];
    let ours: Vec<&str> =
        core.iter().chain(&others).chain(&["simulator", "simulator-models", "xds"]).copied().collect();
    let mut offences = Vec::new();
    for (member, may) in allowed {
        let manifest =
            fs::read_to_string(root().join(&member).join("Cargo.toml")).expect("each member has a manifest");
        for dependency in section(&manifest, "[dependencies]") {
            let is_ours = ours.contains(&dependency.as_str());
            if is_ours && !may.contains(&dependency.as_str()) {
                offences.push(format!("{member} depends on {dependency}"));
            }
            let is_allowed = is_ours || dependency == "thiserror" || member == "actors/core/testing";
            if member.starts_with("actors/core") && !is_allowed {
                offences.push(format!("{member} depends on {dependency}"));
            }
        }
    }
    fail_if_any("architecture invariant", &offences);
}

#[test]
fn worlds_are_played_by_optimised_machines() {
    let manifest = fs::read_to_string(root().join(".config/worlds.toml")).expect("a file of the workspace");
    let crates = MACHINES.iter().chain(&["mechanisms", "model", "pool-core"]);
    let missing: Vec<String> = crates
        .map(|name| format!("[profile.dev.package.{name}]"))
        .filter(|section| !manifest.contains(section))
        .collect();
    fail_if_any("a crate of the core that .config/worlds.toml does not optimise", &missing);
}

/// Returns the names in one section of a manifest.
fn section(manifest: &str, head: &str) -> Vec<String> {
    let lines = manifest.lines().skip_while(|line| line.trim() != head).skip(1);
    lines
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split(['.', '=', ' ']).next().map(str::to_owned))
        .collect()
}

#[test]
fn files_are_small_or_have_a_reason() {
    let mut offences = Vec::new();
    for (path, text) in files(&[".rs"]) {
        let lines = before_tests(&text).lines().map(str::trim);
        let code = lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
        let says_why =
            text.lines().take_while(|line| line.starts_with("//!")).any(|line| line.contains("500 lines"));
        if code > MAX_FILE && !is_test(&path) && !says_why {
            offences.push(format!("{path}: {code} lines of code"));
        }
    }
    fail_if_any("split it, or say why not in its module doc", &offences);
}

#[test]
fn files_are_named_for_what_they_own() {
    let banned =
        ["mod.rs", "utils.rs", "util.rs", "helpers.rs", "helper.rs", "common.rs", "types.rs", "manager.rs"];
    let offences: Vec<String> = files(&[".rs"])
        .into_keys()
        .filter(|path| {
            Path::new(path).file_name().is_some_and(|name| banned.iter().any(|word| name == *word))
        })
        .collect();
    fail_if_any("no such names", &offences);
}

#[test]
fn every_module_has_a_description() {
    let offences: Vec<String> = files(&[".rs"])
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(path, _)| path)
        .collect();
    fail_if_any("a module starts with //!", &offences);
}

#[test]
fn nothing_is_left_for_later_or_switched_off() {
    // Put together here, so that this file does not contain what it looks for.
    let words = [
        ["TO", "DO"],
        ["FIX", "ME"],
        ["XX", "X"],
        ["#[igno", "re"],
        ["#[all", "ow("],
        ["#![deny(war", "nings)]"],
    ];
    let mut offences = Vec::new();
    for (path, text) in files(&[".rs"]) {
        for word in words.map(|parts| parts.concat()) {
            if text.lines().any(|line| line.contains(&word) && !line.contains("allowed")) {
                offences.push(format!("{path}: {word}"));
            }
        }
    }
    fail_if_any("not in this repository", &offences);
}

#[test]
fn tests_do_not_sleep() {
    let mut offences = Vec::new();
    for (path, text) in files(&[".rs"]) {
        let paused = text.contains("start_paused = true") || text.contains("time::pause()");
        if is_test(&path) && !paused && (text.contains("thread::sleep(") || text.contains("time::sleep(")) {
            // The places that wait for real processes, with a deadline.
            if path != "tests/support.rs" && path != "tests/e2e/src/wait.rs" {
                offences.push(path);
            }
        }
    }
    fail_if_any("tests own the clock", &offences);
}

#[test]
fn the_repository_speaks_of_the_product_alone() {
    let words = [
        ["/wo", "rk/"],
        ["help", "er-"],
        ["registry", ".npmjs"],
        ["proxy.", "golang"],
        ["static.", "crates.io"],
    ];
    let mut offences = Vec::new();
    for (path, text) in
        files(&[".rs", ".md", ".toml", ".yaml", ".yml", ".json", "run", "tools", "Dockerfile"])
    {
        for word in words.map(|parts| parts.concat()) {
            if text.contains(&word) {
                offences.push(format!("{path}: {word}"));
            }
        }
    }
    fail_if_any("say it without that", &offences);
}
