//! ArmModel answers as recordings and reports of Azure do (design.md Z1).

mod access;
mod azure;
mod balancers;
mod conflicts;
mod errors;
mod faults;
mod operations;
mod properties;
mod quotas;
mod reads;
mod recordings;
mod rules;
mod support;
mod topologies;
mod traffic;
mod writes;
