//! The policies of each request, in this order. Once per call: the request id and the user agent. Per try: the gate,
//! the permit, the token, and the permit again, because getting a token takes time.

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
