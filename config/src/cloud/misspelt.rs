//! Finds unknown keys of the cloud configuration that resemble one of the keys read here. Other unknown keys belong to
//! the cloud-controller-manager.

use super::file::{CloudFile, RateLimitFile};
use super::{LOAD_BALANCER_RATE_LIMIT, balancers};
use crate::document::{Content, Entry, quoted};
use crate::nearest::misspelling_of;
use crate::problem::{Location, Problem, Warning};

/// Returns the misspelt keys of a configuration, at every level that is read; `file` is its name.
pub(super) fn keys(file: &str, entries: &[Entry]) -> Vec<Problem> {
    let rate_limit = || RateLimitFile::default().values().into_iter().map(|(key, _)| key);
    let top = CloudFile::default().values().into_iter().map(|(key, _)| key).chain(rate_limit());
    let top: Vec<&str> = top.chain([LOAD_BALANCER_RATE_LIMIT, balancers::KEY]).collect();
    let mut problems = in_map(file, "", entries, &top);
    for entry in entries {
        match &entry.value.content {
            Content::Map(inner) if entry.key.eq_ignore_ascii_case(LOAD_BALANCER_RATE_LIMIT) => {
                let known: Vec<&str> = rate_limit().collect();
                problems.extend(in_map(file, &format!("{LOAD_BALANCER_RATE_LIMIT}."), inner, &known));
            }
            Content::List(items) if entry.key.eq_ignore_ascii_case(balancers::KEY) => {
                let document = entry.document.as_deref().unwrap_or(file);
                for (index, item) in items.iter().enumerate() {
                    if let Content::Map(inner) = &item.content {
                        let prefix = format!("{}[{index}].", balancers::KEY);
                        problems.extend(in_map(document, &prefix, inner, &balancers::KEYS));
                    }
                }
            }
            Content::Map(_) | Content::List(_) | Content::Scalar { .. } => {}
        }
    }
    problems
}

/// Returns a misspelt key as a warning, for a configuration that is otherwise valid.
pub(super) fn warning(problem: &Problem) -> Warning {
    let Problem { location, field, expected, .. } = problem;
    let message = format!("ignored, because it is not a known key; did you mean {expected}");
    Warning { location: location.clone(), field: field.clone(), message }
}

fn in_map(file: &str, prefix: &str, entries: &[Entry], known: &[&str]) -> Vec<Problem> {
    let is_known = |key: &str| known.iter().any(|name| name.eq_ignore_ascii_case(key));
    let problem = |entry: &Entry| {
        let suggestion = misspelling_of(&entry.key, known.iter().copied())?;
        let file = entry.document.as_deref().unwrap_or(file).to_owned();
        Some(Problem {
            location: Location::Line(file, entry.line),
            field: format!("{prefix}{}", entry.key),
            found: format!("the unknown key {}", quoted(&entry.key)),
            expected: suggestion.to_owned(),
            remedy: "correct the key, or remove it".to_owned(),
        })
    };
    entries.iter().filter(|entry| !is_known(&entry.key)).filter_map(problem).collect()
}
