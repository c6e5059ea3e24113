//! Requests to the kubernetes port about our ConfigMap, and their answers. The ConfigMap stores data that must outlive
//! a process and does not belong in a Lease, with one key for each item (docs/design/model-and-mechanisms.md, A4).
//!
//! The port reads and writes the object; the machine that writes a key defines its meaning: pauses or the admin state.
//! Each of them leaves the other's keys unchanged. Both use the same client (`mechanisms::object_client`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::arm::Document;
use crate::machine::{Now, Wall};
use crate::object::{ApiObject, ObjectAnswer, ObjectRequest, ResourceVersion};

/// The key that switches the admin state off, whatever its value. Uninstalling the service writes it.
pub const ADMIN_STATE_OFF: &str = "admin-state.off";

/// Our ConfigMap as read.
#[derive(Clone, Debug)]
pub struct ConfigMapFacts {
    /// The values of `data`, by key.
    pub data: BTreeMap<Arc<str>, Text>,
    /// The keys of `binaryData`, whose values are not text.
    pub binary: BTreeSet<Arc<str>>,
    /// When it was read, on this process's wall clock. Times in its values are compared with this.
    pub read: Wall,
    /// The resourceVersion of this state. A replacement sends it, and fails when it is no longer the newest.
    pub version: ResourceVersion,
    /// The whole object, unparsed. A replacement edits it, so that unknown fields survive.
    pub document: Document,
}

impl ConfigMapFacts {
    /// Returns true if [`ADMIN_STATE_OFF`] switches the admin state off (N4).
    #[must_use]
    pub fn admin_state_is_off(&self) -> bool {
        self.data.contains_key(ADMIN_STATE_OFF) || self.binary.contains(ADMIN_STATE_OFF)
    }
}

/// The value of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text {
    /// The value as written.
    pub text: Arc<str>,
    /// The time in the value, or in its line `since: <time>` (RFC 3339).
    pub time: Option<Wall>,
}

/// A value to write to a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// The text as given.
    Text(Arc<str>),
    /// The wall-clock time of this moment (RFC 3339).
    Time(Now),
    /// The given lines, with a line `since: <time>` of this moment between them.
    Since {
        /// The lines before it, without the last line end.
        head: Arc<str>,
        /// The moment.
        at: Now,
        /// The lines after it.
        tail: Arc<str>,
    },
}

/// The changes of a replacement or creation. All other keys stay unchanged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConfigMapEdit {
    /// Keys to set. A key of `binaryData` becomes a text key.
    pub set: BTreeMap<Arc<str>, Value>,
    /// Keys to remove, whatever their values.
    pub remove: BTreeSet<Arc<str>>,
}

impl ConfigMapEdit {
    /// Returns true if the edit changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }
}

/// A machine that stores data in the ConfigMap, and gets the answers to its own requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConfigMapRequester {
    /// The machine for pauses.
    Pauses,
    /// The admin state.
    AdminState,
}

impl ApiObject for ConfigMapFacts {
    type Edit = ConfigMapEdit;
}

/// A request about our ConfigMap.
pub type ConfigMapRequest = ObjectRequest<ConfigMapFacts>;

/// The answer to a request about our ConfigMap.
pub type ConfigMapAnswer = ObjectAnswer<ConfigMapFacts>;
