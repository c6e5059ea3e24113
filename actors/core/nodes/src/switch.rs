//! The key `admin-state.off` of our ConfigMap, with which a command makes the controller restore its Down nodes, and
//! the records of these nodes (docs/design/nodes.md, N4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::records;
use model::config_map::{ADMIN_STATE_OFF, ConfigMapEdit, ConfigMapFacts, Value};
use model::machine::Now;

/// First line of the key.
const BY: &str = "by: retire";
/// Maximum number of shown characters of a node's name.
const MAX_NAME: usize = 253;

/// The nodes that are recorded as Down by the controller.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DownNodes {
    /// Their names.
    pub nodes: BTreeSet<String>,
    /// Unreadable keys, for which the controller restores nothing.
    unreadable: BTreeSet<String>,
}

impl DownNodes {
    /// Reads the nodes from a state of the ConfigMap that was read now.
    #[must_use]
    pub fn of(facts: &ConfigMapFacts, now: Now) -> DownNodes {
        let (records, unreadable) = records::of(facts, now);
        DownNodes {
            nodes: records.iter().map(|record| plain(record.node.as_str())).collect(),
            unreadable: unreadable.keys().map(|key| plain(key)).collect(),
        }
    }

    /// Returns the names of the nodes, and the unreadable keys.
    #[must_use]
    pub fn all(self) -> BTreeSet<String> {
        let unreadable = self.unreadable.into_iter().map(|key| format!("{key} (cannot be read)"));
        self.nodes.into_iter().chain(unreadable).collect()
    }
}

/// Removes control characters from a name and shortens it: any client that may write the ConfigMap chooses the text.
fn plain(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_control()).take(MAX_NAME).collect()
}

/// Returns whether the admin state is switched off.
#[must_use]
pub fn is_off(facts: &ConfigMapFacts) -> bool {
    facts.admin_state_is_off()
}

/// Returns the edit that switches the admin state off.
#[must_use]
pub fn off(now: Now) -> ConfigMapEdit {
    let value = Value::Since { head: BY.into(), at: now, tail: "".into() };
    ConfigMapEdit { set: BTreeMap::from([(Arc::from(ADMIN_STATE_OFF), value)]), ..ConfigMapEdit::default() }
}

/// Returns the edit that switches the admin state on again.
#[must_use]
pub fn on() -> ConfigMapEdit {
    ConfigMapEdit { remove: BTreeSet::from([Arc::from(ADMIN_STATE_OFF)]), ..ConfigMapEdit::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n4_names_are_shown_without_control_characters() {
        assert_eq!(plain("node\u{1b}[2J\n"), "node[2J");
    }
}
