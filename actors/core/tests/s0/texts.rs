//! The exact texts of S0's events (E1), for the Services of the bench.

use crate::profile::Profile;

/// Message in error answers of the bench's ARM.
const MESSAGE: &str = "It did not work";

/// An attempt failed and is retried: this is the next retry of `max`.
pub fn retrying(service: &str, retry: u32, max: u32, code: &str) -> String {
    format!(
        "{service} Warning LoadBalancerBackendPoolUpdateRetrying: \
         Backend pool update failed, will retry ({retry}/{max}): {code}: {MESSAGE}."
    )
}

/// Returns the text of an attempt that met the closed throttle gate before it reached ARM.
pub fn gate_closed_text(service: &str, retry: u32) -> String {
    format!(
        "{service} Warning LoadBalancerBackendPoolUpdateRetrying: \
         Backend pool update failed, will retry ({retry}/3): ThrottleGateClosed: ARM asks to wait"
    )
}

/// The retry budget is used up.
pub fn exhausted(service: &str, retries: u32, code: &str, afterwards: &str) -> String {
    format!(
        "{service} Warning LoadBalancerBackendPoolUpdateFailed: \
         Backend pool update failed after {retries} retries: {code}: {MESSAGE}. To retrigger, cause an endpoint change \
         for the Service (e.g., restart or scale a backing pod). {afterwards}"
    )
}

/// Returns the text of a failure that is not retried; in the default profile, the pool is compared a minute later.
pub fn failed(profile: Profile, code: &str) -> String {
    format!(
        "web Warning LoadBalancerBackendPoolUpdateFailed: \
         Backend pool update failed (non-retriable): {code}: {MESSAGE}. {}",
        profile.afterwards(60)
    )
}

/// S0's part of the update message for `lb/shop-web`. Names, trigger and correlation id follow, which are not S0's.
pub fn updated(service: &str, members: u8, added: u8, removed: u8) -> String {
    let plural = if members == 1 { "" } else { "s" };
    format!(
        "{service} Normal LoadBalancerBackendPoolUpdated: Load balancer backend pool updated successfully: \
         lb/shop-web has {members} member{plural} ({added} added, {removed} removed)"
    )
}
