//! The Azure Resource Manager client: pipeline, policies, credentials, lossless documents.
//!
//! It turns a [`model::arm::ArmRequest`] into its [`model::arm::ArmAnswer`]: the URL, the token, the gates and
//! permits of each try, the connection, the parsing of the answer, and the JSON document that a PUT edits without
//! losing a field (W3). It makes no decisions: the writer decides what follows from an answer. It does not retry,
//! except once with a new token after a 401 (W5).
//!
//! Only the types of the generated models of `azure_mgmt_network` are used, in one module; no generated request,
//! header or credential is ever built.

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
pub use client::{Answered, Client, Query, QueryResult, ResourceAddress, ResourceCall, ResourceMethod};
pub use headroom::Headroom;
pub use identity::{Identity, Login, ManagedIdentity};
pub use raw::{RawAnswer, RawClient, RawMethod, RawRequest};
pub use settings::{Clocks, Settings, Timeouts};

#[cfg(test)]
mod tests;
