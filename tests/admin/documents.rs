//! The documents are kept honest: what the sources declare and what the documents describe is the same.

use std::collections::BTreeSet;
use std::path::Path;

use pool_core::assignment::HeldReason;
use pool_core::sample::PoolState;

use crate::tidy;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands between quotation marks in a text.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

/// The first cells of a document's table rows, without their back-ticks: the section with this heading alone.
fn first_cells(document: &str, heading: &str) -> BTreeSet<String> {
    let section = document.split("\n## ").find(|section| section.starts_with(heading));
    let section = section.unwrap_or_else(|| panic!("there is no section {heading:?}"));
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    cells.map(|(cell, _)| cell.to_owned()).collect()
}

#[test]
fn every_event_reason_is_explained_and_no_other() {
    let words = read("actors/core/src/events/words.rs");
    let body = words.split_once("fn reason(").and_then(|(_, rest)| rest.split_once("\n}\n"));
    let (body, _) = body.expect("words.rs has the function reason");
    let said: BTreeSet<String> = quoted(body).map(str::to_owned).collect();
    assert!(said.len() >= 8, "{said:?}");
    assert_eq!(said, first_cells(&read("docs/errors.md"), "Events"));
}

#[test]
fn every_metric_is_explained_and_no_other() {
    let recorder = read("actors/src/recorder.rs");
    let constants =
        recorder.lines().filter(|line| line.starts_with("const ") && line.contains(": &str = \""));
    // The values of labels are constants too.
    let is_metric = |name: &&str| {
        name.starts_with("cloudprovider_azure_") || name.starts_with("backend_pool_controller_")
    };
    let declared: BTreeSet<String> =
        constants.flat_map(quoted).filter(is_metric).map(str::to_owned).collect();
    assert!(declared.len() >= 20, "{declared:?}");
    assert_eq!(declared, first_cells(&read("docs/metrics.md"), "Metrics"));
}

#[test]
fn every_reason_of_a_held_removal_and_every_state_is_explained_and_no_other() {
    let reasons: BTreeSet<String> = HeldReason::ALL.iter().map(|reason| reason.as_str().to_owned()).collect();
    assert_eq!(reasons, first_cells(&read("docs/errors.md"), "Held removals"));
    let states: BTreeSet<String> = PoolState::ALL.iter().map(|state| state.as_str().to_owned()).collect();
    assert_eq!(states, first_cells(&read("docs/admin-api.md"), "Fields of a pool"));
    let metrics = read("docs/metrics.md");
    let told = |word: &String| metrics.contains(&format!("`{word}`"));
    assert!(reasons.iter().chain(&states).all(told), "docs/metrics.md names each of them");
}

#[test]
fn every_role_and_every_state_of_the_shared_lease_is_explained_and_no_other() {
    let words = |file: &str, head: &str| -> BTreeSet<String> {
        let source = read(file);
        let body = source.split_once(head).and_then(|(_, rest)| rest.split_once("\n    }\n"));
        let (body, _) = body.unwrap_or_else(|| panic!("{file} has {head:?}"));
        quoted(body).map(str::to_owned).collect()
    };
    let mut said = words("actors/core/src/leader.rs", "let role = match");
    said.extend(words("actors/core/src/writer/lease/show.rs", "fn state("));
    assert_eq!(said, first_cells(&read("docs/admin-api.md"), "Fields of `status`"));
}

#[test]
fn every_route_is_explained_and_no_other() {
    for (source, method, heading) in [
        ("src/http/admin.rs", "get", "Admin API"),
        ("src/http/health.rs", "get", "Health and metrics"),
        ("src/http/post.rs", "post", "Requests"),
    ] {
        let source = read(source);
        let routes = source
            .lines()
            .filter_map(|line| line.trim().split_once(&format!(".service({method}(")))
            .map(|(_, rest)| rest);
        let served: BTreeSet<String> =
            routes.filter_map(|rest| quoted(rest).next()).map(str::to_owned).collect();
        assert!(served.len() >= 4, "{served:?}");
        assert_eq!(served, first_cells(&read("docs/admin-api.md"), heading));
    }
}

#[test]
fn every_log_line_of_a_warning_or_an_error_is_explained() {
    let explained = first_cells(&read("docs/errors.md"), "Log");
    let mut told = BTreeSet::new();
    for file in sources(&["src/", "actors/src/", "actors/arm/src/"]) {
        for call in ["tracing::warn!(", "tracing::error!("] {
            for (at, _) in file.match_indices(call) {
                told.insert(message(&file[at + call.len()..]));
            }
        }
    }
    assert!(told.len() >= 10, "{told:?}");
    assert_eq!(told, explained);
}

/// The message of a logging macro: the last quoted text before its closing parenthesis.
fn message(call: &str) -> String {
    let (mut depth, mut inside, mut end) = (0, false, call.len());
    for (at, letter) in call.char_indices() {
        match letter {
            '"' => inside = !inside,
            '(' if !inside => depth += 1,
            ')' if !inside && depth == 0 => {
                end = at;
                break;
            }
            ')' if !inside => depth -= 1,
            _ => {}
        }
    }
    quoted(&call[..end]).last().unwrap_or_default().to_owned()
}

/// The texts of all sources below these folders, unit tests left out.
fn sources(folders: &[&str]) -> Vec<String> {
    let below = |path: &str| folders.iter().any(|folder| path.starts_with(folder));
    let all = tidy::files(&[".rs"]).into_iter().filter(|(path, _)| below(path) && !tidy::is_test(path));
    all.map(|(_, text)| tidy::before_tests(&text).to_owned()).collect()
}
