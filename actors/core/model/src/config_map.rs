//! Our ConfigMap: what is asked of the kubernetes port about it, and what it answers. It keeps what must outlive a
//! process and has no place in a Lease, one key for each thing that is noted (docs/design/model-and-mechanisms.md, A4).
//!
//! The port reads and writes the object; the meaning of a key is decided by the machine that writes it:
//! the keeper of pauses and the admin state. Each of them leaves the others' keys alone. How they ask is the same
//! for all (`mechanisms::config_map_client`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::arm::Document;
use crate::machine::{Now, Wall};
use crate::object::{RequestFailure, ResourceVersion};

/// The key that switches the admin state off, whatever it holds: uninstalling the service writes it.
pub const ADMIN_STATE_OFF: &str = "admin-state.off";

/// Our ConfigMap as it was seen.
#[derive(Clone, Debug)]
pub struct ConfigMapFacts {
    /// The texts of `data`, by key.
    pub data: BTreeMap<Arc<str>, Text>,
    /// The keys of what is no text: those of `binaryData`.
    pub binary: BTreeSet<Arc<str>>,
    /// When it was read, by this process's wall clock: what the times in it are compared with.
    pub read: Wall,
    /// The version of this state of it: a replacement names it and fails when it is no longer the newest.
    pub version: ResourceVersion,
    /// The whole of it, unread: a replacement edits it, so that unknown fields survive.
    pub document: Document,
}

impl ConfigMapFacts {
    /// Whether the admin state is switched off by [`ADMIN_STATE_OFF`] (N4).
    #[must_use]
    pub fn admin_state_is_off(&self) -> bool {
        self.data.contains_key(ADMIN_STATE_OFF) || self.binary.contains(ADMIN_STATE_OFF)
    }
}

/// The text of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text {
    /// As it is written.
    pub text: Arc<str>,
    /// The time that it is, or that a line `since: <time>` of it names (RFC 3339).
    pub time: Option<Wall>,
}

/// What is to be written to a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// This text.
    Text(Arc<str>),
    /// This moment, as a time of the wall clock (RFC 3339).
    Time(Now),
    /// These lines, with one between them that says `since: <time>` of this moment.
    Since {
        /// What stands before it, without the end of its last line.
        head: Arc<str>,
        /// The moment.
        at: Now,
        /// What stands behind it.
        tail: Arc<str>,
    },
}

/// What a replacement or creation changes; all other keys stay as they are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConfigMapEdit {
    /// Keys that have this from now on; what was no text before is one then.
    pub set: BTreeMap<Arc<str>, Value>,
    /// Keys that go, whatever they held.
    pub remove: BTreeSet<Arc<str>>,
}

impl ConfigMapEdit {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }
}

/// Who keeps something in it, and hears the answers to what it has asked about it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Keeper {
    /// The keeper of pauses.
    Pauses,
    /// The admin state.
    AdminState,
}

/// What is asked about it.
#[derive(Clone, Debug)]
pub enum ConfigMapAsk {
    /// GET it.
    Get,
    /// Create it; it must not exist.
    Create(ConfigMapEdit),
    /// Replace the state that was seen; fails with [`ConfigMapAnswer::Conflict`] when that is no longer the newest.
    Replace(Arc<ConfigMapFacts>, ConfigMapEdit),
}

/// What became of a request about it.
#[derive(Clone, Debug)]
pub enum ConfigMapAnswer {
    /// Its state: read, or as it is after the write.
    Seen(Arc<ConfigMapFacts>),
    /// It does not exist.
    Absent,
    /// Another client wrote it first, or it exists already.
    Conflict,
    /// The request failed, or its answer was lost: a write may have been carried out all the same.
    Failed(RequestFailure),
}
