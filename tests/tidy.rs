//! House rules that a compiler cannot check: layout, architecture invariants, words. The tests read the sources as text
//! and need only the standard library.

mod cycles;
mod english;
mod names;
mod rules;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of lines of code in a file; tests, blank lines and comments do not count.
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

/// Returns whether a file contains only tests.
pub fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part == "tests") || path.ends_with("/tests.rs")
}

/// Returns a source file up to its unit tests. A `mod tests;` with its own file ends nothing.
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

/// Azure is written by `Client::execute`, with a permit; only the conformance suite sends raw requests.
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

/// Returns whether a line contains a whole word.
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

/// A package of the workspace.
struct Package {
    name: String,
    manifest: String,
}

/// Returns the members of the workspace besides the root package, by their folders.
fn members() -> BTreeMap<String, Package> {
    let manifest_of = |folder: &str| {
        fs::read_to_string(root().join(folder).join("Cargo.toml")).expect("each member has a manifest")
    };
    let workspace = manifest_of("");
    let list = workspace.split_once("\nmembers = [").and_then(|(_, rest)| rest.split_once(']'));
    let folders = list.expect("the workspace lists its members").0.split(',');
    let folders = folders.map(|folder| folder.trim().trim_matches('"')).filter(|folder| !folder.is_empty());
    let package = |folder: &str| {
        let manifest = manifest_of(folder);
        let name =
            manifest.lines().find_map(|line| line.strip_prefix("name = ")).expect("a package has a name");
        Package { name: name.trim_matches('"').to_owned(), manifest }
    };
    folders.map(|folder| (folder.to_owned(), package(folder))).collect()
}

/// Returns whether a member is a crate of machines: these know only `model` and `mechanisms`, and no other machine.
fn has_machines(folder: &str) -> bool {
    let name = folder.strip_prefix("actors/core/");
    name.is_some_and(|name| !["mechanisms", "model", "testing"].contains(&name))
}

/// Packages of the workspace that a package may depend on, except those of machines: for its code, and for its tests
/// only.
const ARROWS: &[(&str, &[&str], &[&str])] = &[
    ("actors/core/model", &[], &["pool-testing"]),
    ("actors/core/mechanisms", &["model"], &["pool-testing"]),
    ("actors/core/testing", &["model"], &[]),
    ("actors/proxy", &["model"], &[]),
    ("actors/arm", &["model", "proxy"], &["writer"]),
    ("actors/migration", &["mechanisms", "model"], &["simulator-models"]),
    ("actors/xds", &["model", "proxy"], &["sources"]),
    ("config", &[], &[]),
    ("simulator/models", &[], &[]),
    ("simulator", &["config", "simulator-models"], &[]),
    ("tests/e2e", &["arm", "config", "model", "simulator"], &[]),
    (".config/features", &[], &[]),
];

#[test]
fn dependencies_point_one_way() {
    let members = members();
    let machines =
        members.iter().filter(|(folder, _)| has_machines(folder)).map(|(_, package)| &*package.name);
    let core: Vec<&str> = machines.chain(["mechanisms", "model"]).collect();
    let shell: Vec<&str> = core.iter().chain(&["pool-core", "arm", "xds"]).copied().collect();
    let ours: Vec<&str> = members.values().map(|package| &*package.name).collect();
    let mut offences = Vec::new();
    for (folder, Package { manifest, .. }) in &members {
        let arrows = ARROWS.iter().find(|(member, ..)| member == folder);
        let (may, tests_may): (&[&str], &[&str]) = match (&**folder, arrows) {
            (_, Some((_, may, tests_may))) => (may, tests_may),
            ("actors/core", None) => (&core, &["pool-testing", "simulator-models"]),
            ("actors", None) => (&shell, &["simulator"]),
            _ if has_machines(folder) => (&["mechanisms", "model"], &["pool-testing"]),
            _ => {
                offences.push(format!("{folder} is new: say what it may depend on"));
                continue;
            }
        };
        // A dependency for features only: it has no code.
        let is_ours = |name: &&String| ours.contains(&name.as_str()) && *name != "workspace-features";
        let all = dependencies(manifest, false);
        let of_tests = dependencies(manifest, true);
        let wrong = all.iter().filter(is_ours).filter(|name| !may.contains(&name.as_str()));
        let allowed_in_tests =
            |name: &&String| may.contains(&name.as_str()) || tests_may.contains(&name.as_str());
        let wrong_in_tests = of_tests.iter().filter(is_ours).filter(|name| !allowed_in_tests(name));
        let is_decided = folder.starts_with("actors/core") && folder != "actors/core/testing";
        let foreign = all.iter().filter(|name| !is_ours(name) && is_decided && *name != "thiserror");
        let named = wrong.chain(foreign).chain(wrong_in_tests);
        offences.extend(named.map(|name| format!("{folder} depends on {name}")));
    }
    fail_if_any("architecture invariant", &offences);
}

#[test]
fn the_simulation_runs_optimised_machines() {
    let manifest = fs::read_to_string(root().join(".config/worlds.toml")).expect("a file of the workspace");
    let core = members().into_iter().filter(|(folder, _)| folder.starts_with("actors/core"));
    let missing: Vec<String> = core
        .filter(|(folder, _)| folder != "actors/core/testing")
        .map(|(_, package)| format!("[profile.dev.package.{}]", package.name))
        .filter(|section| !manifest.contains(section))
        .collect();
    fail_if_any("a crate of the core that .config/worlds.toml does not optimise", &missing);
}

/// Returns the dependencies in a manifest: those of tests, or all others, including those of single targets.
fn dependencies(manifest: &str, of_tests: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut counts = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            counts = line.ends_with("dependencies]") && line.contains("dev-dependencies") == of_tests;
        } else if counts && !line.trim().is_empty() && !line.starts_with('#') {
            found.extend(line.split(['.', '=', ' ']).next().map(str::to_owned));
        }
    }
    found
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
fn there_are_no_todos_and_no_ignored_tests() {
    // Concatenated, so that this file does not contain the words.
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
            // These files wait for real processes, with a deadline.
            if path != "tests/support.rs" && path != "tests/e2e/src/wait.rs" {
                offences.push(path);
            }
        }
    }
    fail_if_any("tests own the clock", &offences);
}

/// The seeds of `src/a/b.rs` are read from `proptest-regressions/a/b.txt` beside that `src`, and from nowhere else.
#[test]
fn seeds_are_where_their_property_tests_read_them() {
    let sources = files(&[".rs"]);
    let has_reader = |path: &str| {
        let (package, name) = path.split_once("proptest-regressions/").expect("a path of seeds");
        let source = sources.get(&format!("{package}src/{}.rs", name.trim_end_matches(".txt")));
        source.is_some_and(|text| text.contains("proptest! {"))
    };
    let seeds = files(&[".txt"]).into_keys().filter(|path| path.contains("proptest-regressions/"));
    let offences: Vec<String> = seeds.filter(|path| !has_reader(path)).collect();
    fail_if_any("no property test uses these seeds", &offences);
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
    fail_if_any("remove these words", &offences);
}
