//! The policies that each request passes, in this order: once per call the request id and the user agent; per try
//! the gate, the permit, the token, and the permit again, because having a token takes time.

mod bearer;
mod gate;
mod permit;
mod request_id;
mod user_agent;

pub(crate) use bearer::BearerPolicy;
pub(crate) use gate::{GatePolicy, Gates};
pub(crate) use permit::PermitPolicy;
pub(crate) use request_id::RequestIdPolicy;
pub(crate) use user_agent::UserAgentPolicy;
