//! Every decision of azure-backend-pool-controller, as synchronous machines without input or output.
//!
//! Shells feed machines and act on what they say; [`route::route`] knows who hears what. Rule ids such as `Q3`
//! are those of the contract (docs/design).

pub mod machine;

pub mod arm;
pub mod ask;
pub mod assignment;
mod bucket;
pub mod config_map;
pub mod error;
pub mod guard;
pub mod ids;
pub mod lease;
pub mod level;
pub mod object;
pub mod pins;
pub mod proof;
pub mod redact;
pub mod report;
pub mod sample;
pub mod view;
pub mod wishes;
pub mod write_record;

pub mod admin_state;
pub mod board;
pub mod certificate;
pub mod comparison;
pub mod deployment;
pub mod directory;
pub mod discovery;
pub mod events;
pub mod informer;
pub mod leader;
pub mod pauses;
#[cfg(test)]
mod planted;
pub mod queue;
pub mod resource_cache;
pub mod watch;
pub mod work_queue;
pub mod writer;
pub mod xds;
pub mod xds_source;

pub mod intake;
pub mod outbox;
pub mod route;
