//! What operators see: Kubernetes Events and the published snapshot (docs/design/reporting.md).

pub mod snapshot;
pub mod events;
