//! Expected Event messages of upstream's specification (S0, docs/design/overview.md#s0).

use crate::profile::Profile;

/// Message in error answers of the fake ARM.
const MESSAGE: &str = "It did not work";

/// Returns the message for a failed attempt that will be retried.
pub fn retrying(service: &str, retry: u32, max: u32, code: &str) -> String {
    format!(
        "{service} Warning LoadBalancerBackendPoolUpdateRetrying: \
         Backend pool update failed, will retry ({retry}/{max}): {code}: {MESSAGE}."
    )
}

/// Returns the message for an attempt that the closed throttle gate stopped before it reached ARM.
pub fn gate_closed_text(service: &str, retry: u32) -> String {
    format!(
        "{service} Warning LoadBalancerBackendPoolUpdateRetrying: \
         Backend pool update failed, will retry ({retry}/3): ThrottleGateClosed: ARM asks to wait"
    )
}

/// Returns the message for a change without retries left.
pub fn exhausted(service: &str, retries: u32, code: &str, next_step: &str) -> String {
    format!(
        "{service} Warning LoadBalancerBackendPoolUpdateFailed: \
         Backend pool update failed after {retries} retries: {code}: {MESSAGE}. To retrigger, cause an endpoint change \
         for the Service (e.g., restart or scale a backing pod). {next_step}"
    )
}

/// Returns the message for a failure that is not retried; in the default profile, the pool is compared a minute later.
pub fn failed(profile: Profile, code: &str) -> String {
    format!(
        "web Warning LoadBalancerBackendPoolUpdateFailed: \
         Backend pool update failed (non-retriable): {code}: {MESSAGE}. {}",
        profile.afterwards(60)
    )
}

/// Returns upstream's part of the update message for `lb/shop-web`. Names, trigger and correlation id follow, which
/// upstream does not have.
pub fn updated(service: &str, members: u8, added: u8, removed: u8) -> String {
    let plural = if members == 1 { "" } else { "s" };
    format!(
        "{service} Normal LoadBalancerBackendPoolUpdated: Load balancer backend pool updated successfully: \
         lb/shop-web has {members} member{plural} ({added} added, {removed} removed)"
    )
}
