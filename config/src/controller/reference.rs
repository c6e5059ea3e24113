//! The commented reference configuration: every key with its documentation, range, environment override and default.

use super::{DefaultValue, KEYS, Key, SECTIONS};
use crate::cloud::DEFAULT_UPDATE_INTERVAL;
use crate::{duration, value};

/// Returns the text of `reference.yaml`. If used as controller.yaml, it yields exactly the defaults.
pub fn reference() -> String {
    let mut out = String::from(
        "# Reference configuration of azure-backend-pool-controller: every key with its default.\n\
         # Write only the keys that you change. An environment variable overrides the file.\n\
         # Generated from the key table in config/src/controller.rs.\n",
    );
    for key in KEYS.iter().filter(|key| !key.path.contains('.')) {
        out.push('\n');
        out.push_str(&entry(key, key.path, ""));
    }
    for section in SECTIONS {
        // There is no empty line between a section without keys of its own and its nested section.
        if !out.ends_with(":\n") {
            out.push('\n');
        }
        // A nested section follows the keys of its parent.
        let (depth, name) = (section.path.matches('.').count(), section.path.rsplit('.').next());
        let (outer, inner) = ("  ".repeat(depth), "  ".repeat(depth + 1));
        section.doc.iter().for_each(|line| out.push_str(&format!("{outer}#{line}\n")));
        out.push_str(&format!("{outer}{}:\n", name.unwrap_or(section.path)));
        for key in KEYS {
            match key.path.rsplit_once('.') {
                Some((path, name)) if path == section.path => out.push_str(&entry(key, name, &inner)),
                Some(_) | None => {}
            }
        }
    }
    out
}

fn entry(key: &Key, name: &str, indent: &str) -> String {
    let mut out = String::new();
    key.doc.iter().for_each(|line| out.push_str(&format!("{indent}#{line}\n")));
    let expected = (key.expected)();
    out.push_str(&format!("{indent}# Value: {expected}.\n"));
    match key.default {
        DefaultValue::Fixed(_) => {}
        DefaultValue::UpdateInterval => out.push_str(&format!(
            "{indent}# Default: loadBalancerBackendPoolUpdateIntervalInSeconds of the cloud configuration, at most 60s.\n"
        )),
    }
    out.push_str(&format!("{indent}# Since {}. Environment: {}.\n", key.since, key.environment()));
    match key.default {
        DefaultValue::Fixed(text) => out.push_str(&format!("{indent}{name}: {}\n", written(text))),
        DefaultValue::UpdateInterval => {
            out.push_str(&format!("{indent}# {name}: {}\n", duration::render(DEFAULT_UPDATE_INTERVAL)));
        }
    }
    out
}

/// Renders a default as YAML. A text that begins with a digit or a bracket is a number, duration, address or list, and
/// stays plain.
fn written(text: &str) -> String {
    if text.starts_with(|c: char| c.is_ascii_digit() || c == '[') || matches!(text, "true" | "false") {
        text.to_owned()
    } else {
        value::yaml_text(text)
    }
}
