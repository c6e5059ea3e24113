//! Backend pools that are filled from xDS control planes, with the real binary over real streams: what A88 asks of each
//! error (X1, X3), what becomes of addresses (X2), what is told of it (X4), and what CSDS shows (H5).

mod addresses;
mod assignments;
mod bootstrap;
mod churn;
mod cluster_errors;
mod data_errors;
mod draining;
mod dump;
mod fallback;
mod go;
mod guards;
mod large;
mod late;
mod pace;
mod replicas;
mod restarts;
pub mod stage;
mod streams;
mod timers;
pub mod trouble;
