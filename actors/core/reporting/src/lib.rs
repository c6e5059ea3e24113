//! Kubernetes Events and the published snapshot (docs/design/reporting.md).

pub mod events;
pub mod snapshot;
