//! The migration of a cluster's nodes from Basic to Standard load balancers.
//!
//! This crate owns the inventory ([`inventory`]), the plan ([`plan`]), and the steps ([`apply`]). It does no IO:
//! machines request calls to Azure Resource Manager and handle the replies. Leases, files and the API server belong to
//! the command.
//!
//! Every write is derived from two sources: the bodies that were read before the first change, which the journal holds,
//! and the live state of the object. So another process can take over with the journal alone.

pub mod apply;
pub mod call;
pub mod inventory;
pub mod journal;
pub mod lease;
pub mod members;
pub mod plan;
pub mod resource_id;
pub mod target;
pub mod work;

mod json;

#[cfg(test)]
mod tests;
