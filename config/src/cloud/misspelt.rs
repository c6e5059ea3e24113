//! Keys of the cloud configuration that are not read, and that resemble one which is read here. Other unknown keys are
//! the cloud-controller-manager's business.

use super::file::{CloudFile, RateLimitFile};
use super::{LOAD_BALANCER_RATE_LIMIT, balancers};
use crate::document::{Content, Entry, quoted};
use crate::nearest::misspelling_of;
use crate::problem::{Place, Problem, Warning};

/// The misspelt keys of a whole configuration, at every level that is read; `file` is its name.
pub(super) fn keys(file: &str, entries: &[Entry]) -> Vec<Problem> {
    let rate_limit = || RateLimitFile::default().shown().into_iter().map(|(key, _)| key);
    let top = CloudFile::default().shown().into_iter().map(|(key, _)| key).chain(rate_limit());
    let top: Vec<&str> = top.chain([LOAD_BALANCER_RATE_LIMIT, balancers::KEY]).collect();
    let mut found = of_map(file, "", entries, &top);
    for entry in entries {
        match &entry.value.content {
            Content::Map(inner) if entry.key.eq_ignore_ascii_case(LOAD_BALANCER_RATE_LIMIT) => {
                let known: Vec<&str> = rate_limit().collect();
                found.extend(of_map(file, &format!("{LOAD_BALANCER_RATE_LIMIT}."), inner, &known));
            }
            Content::List(items) if entry.key.eq_ignore_ascii_case(balancers::KEY) => {
                let document = entry.document.as_deref().unwrap_or(file);
                for (index, item) in items.iter().enumerate() {
                    if let Content::Map(inner) = &item.content {
                        let prefix = format!("{}[{index}].", balancers::KEY);
                        found.extend(of_map(document, &prefix, inner, &balancers::KEYS));
                    }
                }
            }
            Content::Map(_) | Content::List(_) | Content::Scalar { .. } => {}
        }
    }
    found
}

/// The same as warnings, for a configuration that works.
pub(super) fn warning(problem: &Problem) -> Warning {
    let Problem { place, field, expected, .. } = problem;
    let message = format!("no such key is known, and it is ignored; did you mean {expected}");
    Warning { place: place.clone(), field: field.clone(), message }
}

fn of_map(file: &str, prefix: &str, entries: &[Entry], known: &[&str]) -> Vec<Problem> {
    let is_known = |key: &str| known.iter().any(|name| name.eq_ignore_ascii_case(key));
    let problem = |entry: &Entry| {
        let meant = misspelling_of(&entry.key, known.iter().copied())?;
        let file = entry.document.as_deref().unwrap_or(file).to_owned();
        Some(Problem {
            place: Place::Line(file, entry.line),
            field: format!("{prefix}{}", entry.key),
            found: format!("the unknown key {}", quoted(&entry.key)),
            expected: meant.to_owned(),
            remedy: "correct the key, or remove it".to_owned(),
        })
    };
    entries.iter().filter(|entry| !is_known(&entry.key)).filter_map(problem).collect()
}
