//! The Azure Resource Manager client: pipeline, policies, credentials, lossless documents.
//!
//! It owns everything between a [`model::arm::ArmRequest`] and its [`model::arm::ArmAnswer`]: the address,
//! the token, the per-try gates and permits, the connection, the reading of whatever comes back, and the JSON
//! document that a PUT edits without losing a field (W3). It decides nothing: what follows from an answer is the
//! writer's, in the core. It tries nothing twice, except once with a fresh token after a 401 (W5).
//!
//! The generated models of `azure_mgmt_network` are used for their types alone, in one module; no request,
//! header or credential of their generation is ever built.

mod abort_reason;
mod answer;
mod client;
mod credential;
mod document;
mod entry;
mod failure;
mod headroom;
mod identity;
mod object;
mod pipeline;
mod policy;
mod raw;
mod read;
mod settings;
mod transport;
mod url;

pub use azure_core::credentials::Secret;
pub use client::{
    Answered, Client, Look, Looked, ResourceAddress, ResourceCall, ResourceMethod, ResourceReply,
};
pub use headroom::Headroom;
pub use identity::{Identity, Login, ManagedIdentity};
pub use raw::{RawAnswer, RawClient, RawMethod, RawRequest};
pub use settings::{Clocks, SetUpError, Settings, Timeouts};

#[cfg(test)]
mod tests;
