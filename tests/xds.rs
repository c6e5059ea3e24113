//! Backend pools with xDS sources, with the real binary over real streams: A88's handling of each error (X1, X3),
//! addresses (X2), reports (X4), and CSDS (H5).

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
