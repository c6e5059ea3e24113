//! ArmModel answers like recordings and reports of Azure (docs/design/surface.md, Z1).

mod access;
mod azure;
mod balancers;
mod conflicts;
mod errors;
mod faults;
mod migrations;
mod operations;
mod properties;
mod quotas;
mod random_writes;
mod reads;
mod recordings;
mod resources;
mod rules;
mod scale_sets;
mod support;
mod topologies;
mod traffic;
mod writes;
