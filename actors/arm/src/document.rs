//! The document of a pool between the GET and the PUT that edits it (W3).
//!
//! Only the path to the addresses is parsed; everything else stays as the text that Azure sent. So nothing is lost,
//! not even the digits of a number.

use model::arm::Edit;
use serde_json::value::{RawValue, to_raw_value};

use crate::entry;
use crate::object::Object;

const PROPERTIES: &str = "properties";
const ADDRESSES: &str = "loadBalancerBackendAddresses";
const NETWORK: &str = "virtualNetwork";
const ADMIN_STATE: &str = "adminState";

/// A pool as Azure sent it.
pub(crate) struct PoolDocument(Object);

/// Reasons why an edit does not fit a document.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EditError {
    /// The document is not a pool.
    #[error("the document of the pool cannot be parsed")]
    Malformed {
        /// Error of the parser.
        source: serde_json::Error,
    },
    /// The document has no properties.
    #[error("the document of the pool has no properties")]
    WithoutProperties,
    /// The entry does not exist.
    #[error("the pool has no entry at position {position}, only {length}")]
    MissingEntry {
        /// The position that the edit names.
        position: usize,
        /// Number of entries.
        length: usize,
    },
}

fn malformed(source: serde_json::Error) -> EditError {
    EditError::Malformed { source }
}

impl PoolDocument {
    /// Parses the document of a GET.
    pub(crate) fn parse(text: &str) -> Result<PoolDocument, serde_json::Error> {
        serde_json::from_str(text).map(PoolDocument)
    }

    /// Returns the document with the edit applied, as the body of a PUT. The address array is always written, even if
    /// empty; an existing virtual network is never changed.
    pub(crate) fn apply(&self, edit: &Edit) -> Result<Vec<u8>, EditError> {
        let properties = self.0.get(PROPERTIES).ok_or(EditError::WithoutProperties)?;
        let mut properties = Object::within(properties).map_err(malformed)?;
        let old: Vec<Box<RawValue>> = match properties.get(ADDRESSES) {
            Some(raw) => serde_json::from_str(raw.get()).map_err(malformed)?,
            None => Vec::new(),
        };
        let length = old.len();
        for &position in edit.remove.iter().chain(edit.set_admin.keys()) {
            if position >= length {
                return Err(EditError::MissingEntry { position, length });
            }
        }
        let mut addresses = Vec::with_capacity(length + edit.add.len());
        for (position, raw) in old.into_iter().enumerate() {
            if edit.remove.contains(&position) {
                continue;
            }
            addresses.push(match edit.set_admin.get(&position).and_then(|state| entry::spelling(*state)) {
                Some(state) => with_admin_state(&raw, state).map_err(malformed)?,
                None => raw,
            });
        }
        for new in &edit.add {
            addresses.push(to_raw_value(&entry::build(new)).map_err(malformed)?);
        }
        properties.set(ADDRESSES, to_raw_value(&addresses).map_err(malformed)?);
        if let (Some(network), None) = (&edit.pool_network, properties.get(NETWORK)) {
            properties.set(NETWORK, to_raw_value(&entry::reference(network.as_str())).map_err(malformed)?);
        }
        let mut whole = self.0.clone();
        whole.set(PROPERTIES, properties.to_raw().map_err(malformed)?);
        serde_json::to_vec(&whole).map_err(malformed)
    }
}

fn with_admin_state(entry: &RawValue, state: &'static str) -> Result<Box<RawValue>, serde_json::Error> {
    let mut whole = Object::within(entry)?;
    let mut properties = match whole.get(PROPERTIES) {
        Some(raw) => Object::within(raw)?,
        None => Object::default(),
    };
    properties.set(ADMIN_STATE, to_raw_value(state)?);
    whole.set(PROPERTIES, properties.to_raw()?);
    whole.to_raw()
}
