//! What the keys of our ConfigMap say of nodes that are Down by us, and the note that has all of them taken back
//! (docs/design/nodes.md, N4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::admin_state::records::{self, ADMIN_STATE_OFF};
use crate::config_map::{ConfigMapEdit, ConfigMapFacts, Value};
use crate::machine::Now;

/// What stands in the note above its time.
const BY: &str = "by: retire";
/// The most characters of a node's name that are told.
const LONGEST_NAME: usize = 253;

/// The nodes that are noted as Down by us.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Downs {
    /// Their names.
    pub(super) nodes: BTreeSet<String>,
    /// Keys that cannot be read: nobody takes back what they were for.
    unreadable: BTreeSet<String>,
}

impl Downs {
    /// Those of a state that was read at this moment.
    pub(super) fn of(facts: &ConfigMapFacts, now: Now) -> Downs {
        let (records, unreadable) = records::of(facts, now);
        Downs {
            nodes: records.iter().map(|record| plain(record.node.as_str())).collect(),
            unreadable: unreadable.keys().map(|key| plain(key)).collect(),
        }
    }

    /// All of them, in words.
    pub(super) fn left(self) -> BTreeSet<String> {
        let unreadable = self.unreadable.into_iter().map(|key| format!("{key} (cannot be read)"));
        self.nodes.into_iter().chain(unreadable).collect()
    }
}

/// Whoever writes ConfigMaps may have written any characters.
fn plain(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_control()).take(LONGEST_NAME).collect()
}

/// What switches it off.
pub(super) fn switching_off(now: Now) -> ConfigMapEdit {
    let value = Value::Since { head: BY.into(), at: now, tail: "".into() };
    ConfigMapEdit { set: BTreeMap::from([(Arc::from(ADMIN_STATE_OFF), value)]), ..ConfigMapEdit::default() }
}

/// What ends that.
pub(super) fn switching_on() -> ConfigMapEdit {
    ConfigMapEdit { remove: BTreeSet::from([Arc::from(ADMIN_STATE_OFF)]), ..ConfigMapEdit::default() }
}
