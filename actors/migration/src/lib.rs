//! The migration of a cluster's nodes from Basic to Standard load balancers.
//!
//! It owns what is read ([`inventory`]), what will happen ([`plan`]), and the steps ([`apply`]). It does no IO: machines
//! ask for calls to Azure Resource Manager, and take the replies. Leases, files and the API server belong to the command.
//!
//! Everything that is written follows from two things: the bodies that were read before the first change, which the
//! journal holds, and the live state of the object. So a process that takes over needs nothing else.

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
