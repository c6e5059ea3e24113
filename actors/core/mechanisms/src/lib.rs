//! Mechanisms that several machines share (docs/design/model-and-mechanisms.md).

pub mod backoff;
pub mod bucket;
pub mod object_client;
pub mod once_per_term;
pub mod outbox;
pub mod published;
pub mod recheck;
pub mod watch_failures;
pub mod work_queue;
