//! The journal is stored outside of this process before the first change. It suffices to continue after a crash, and
//! for the operator to restore the former state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::inventory::Inventory;
use crate::resource_id::ResourceId;

/// The current format.
const FORMAT: u32 = 1;

/// The journal of one migration.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Journal {
    /// The format.
    pub format: u32,
    /// The digest of the inventory.
    pub digest: String,
    /// Everything that was read before the first change.
    pub inventory: Inventory,
    /// The original bodies of nodes that appeared later.
    pub later: BTreeMap<ResourceId, Value>,
    /// True if nodes may be detached. Set before the first node is detached.
    pub outage: bool,
    /// True if the migration has ended, or was abandoned before the outage.
    pub done: bool,
}

/// Reasons why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file is not a journal, or it is damaged.
    #[error("the journal is not readable")]
    Unreadable(#[source] serde_json::Error),
    /// The journal was written by another version of this program.
    #[error(
        "the journal has format {0}, and this version reads format {FORMAT}; use the version that wrote it"
    )]
    Format(u32),
    /// The content does not match its digest.
    #[error("the digest of the journal does not fit its content")]
    Damaged,
}

impl Journal {
    /// Creates the journal of a new migration.
    #[must_use]
    pub fn begun(inventory: Inventory) -> Journal {
        Journal {
            format: FORMAT,
            digest: inventory.digest(),
            inventory,
            later: BTreeMap::new(),
            outage: false,
            done: false,
        }
    }

    /// Returns the text to store.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("ids and bodies are always JSON")
    }

    /// Parses a stored text.
    ///
    /// # Errors
    /// The text is not a journal, is damaged, or has another format.
    pub fn read(text: &str) -> Result<Journal, JournalError> {
        let value: Value = serde_json::from_str(text).map_err(JournalError::Unreadable)?;
        let format = value["format"].as_u64().and_then(|format| u32::try_from(format).ok()).unwrap_or(0);
        if format != FORMAT {
            return Err(JournalError::Format(format));
        }
        let journal: Journal = serde_json::from_value(value).map_err(JournalError::Unreadable)?;
        if journal.digest != journal.inventory.digest() {
            return Err(JournalError::Damaged);
        }
        Ok(journal)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::cloud::Cloud;

    fn stored() -> Value {
        serde_json::from_str(&Journal::begun(Cloud::with_scale_set().survey()).text()).unwrap()
    }

    #[test]
    fn m2_a_journal_is_read_as_it_was_stored() {
        let mut journal = Journal::begun(Cloud::with_scale_set().survey());
        journal.outage = true;
        assert_eq!(Journal::read(&journal.text()).unwrap(), journal);
    }

    #[test]
    fn m2_a_damaged_journal_is_not_used() {
        let text = stored().to_string();
        assert!(matches!(Journal::read(&text[..text.len() / 2]), Err(JournalError::Unreadable(_))));
        assert!(matches!(Journal::read(""), Err(JournalError::Unreadable(_))));
        let changed = text.replace("20.0.0.1", "20.0.0.9");
        assert!(matches!(Journal::read(&changed), Err(JournalError::Damaged)));
        let mut lacking = stored();
        lacking.as_object_mut().unwrap().remove("inventory");
        assert!(matches!(Journal::read(&lacking.to_string()), Err(JournalError::Unreadable(_))));
    }

    #[test]
    fn a_journal_of_another_version_is_named() {
        let mut other = stored();
        other["format"] = json!(FORMAT + 1);
        assert!(matches!(Journal::read(&other.to_string()), Err(JournalError::Format(_))));
    }
}
