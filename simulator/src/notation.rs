//! The short notations of the command line: durations, latencies and faults.

use std::time::Duration;

use simulator_models::arm::{
    Fault, FaultAnswer, FaultBody, FaultEffect, FaultTarget, Latency, OperationFailure,
};
use thiserror::Error;

/// An invalid text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{found:?} is not {expected}")]
pub struct BadNotation {
    found: String,
    expected: &'static str,
}

/// Parses a duration as in the configuration, such as `1m30s`; `0` needs no unit.
///
/// # Errors
/// Anything else.
pub fn duration(text: &str) -> Result<Duration, BadNotation> {
    match config::parse_duration(if text == "0" { "0s" } else { text }) {
        Ok(duration) => Ok(duration),
        Err(_) => {
            Err(BadNotation { found: text.to_owned(), expected: "a duration such as 500ms, 2s or 1m30s" })
        }
    }
}

/// Parses a latency: a duration, or `median..p95` of a lognormal distribution, such as `5s..20s`.
///
/// # Errors
/// Anything else.
pub fn latency(text: &str) -> Result<Latency, BadNotation> {
    let us = |text| duration(text).map(|value| u64::try_from(value.as_micros()).unwrap_or(u64::MAX));
    match text.split_once("..") {
        Some((median, p95)) => Ok(Latency::LogNormal { median_us: us(median)?, p95_us: us(p95)? }),
        None => Ok(Latency::Fixed { us: us(text)? }),
    }
}

/// Parses a fault of pool PUTs: `every:N:STATUS`, `every:N:STATUS:RETRY-AFTER`, `every:N:lock:RETRY-AFTER` (429 because
/// another operation holds the load balancer), `every:N:lost` (applied, and the connection dropped without an answer),
/// `every:N:cut` (the connection dropped at once), `every:N:hang` (applied, and answered after an hour),
/// `every:N:gateway-error` (429 with a body in PascalCase), `every:N:html` (502 with a web page), `every:N:no-group` or
/// `every:N:no-role` (404 or 403 of the gateway, as for a resource group or a role assignment that has not reached
/// every region yet), `every:N:failed` or `every:N:canceled` (the operation ends so); with `@LOAD-BALANCER` behind it,
/// of that one alone. Before it, `put/`, `delete/`, `get/`, `lb-get/`, `poll/` or `any/` names other requests.
///
/// # Errors
/// Anything else.
pub fn fault(text: &str) -> Result<Fault, BadNotation> {
    let bad = || BadNotation {
        found: text.to_owned(),
        expected: "a fault such as every:20:409, every:20:429:2, every:20:lock:2@lb-1 or every:20:lost",
    };
    if let Some((target, text)) = text.split_once('/') {
        let target = match target {
            "put" => FaultTarget::PoolPut,
            "delete" => FaultTarget::PoolDelete,
            "get" => FaultTarget::PoolGet,
            "lb-get" => FaultTarget::LoadBalancerGet,
            "poll" => FaultTarget::Poll,
            "any" => FaultTarget::Any,
            _ => return Err(bad()),
        };
        return fault(text).map(|fault| Fault { target, ..fault });
    }
    if let Some((text, balancer)) = text.rsplit_once('@') {
        if balancer.is_empty() || text.contains('@') {
            return Err(bad());
        }
        return fault(text).map(|fault| Fault { load_balancer: Some(balancer.to_owned()), ..fault });
    }
    let parts: Vec<&str> = text.splitn(4, ':').collect();
    let (every, what, retry_after) = match parts.as_slice() {
        ["every", every, what] => (every, what, None),
        ["every", every, what, retry_after] => (every, what, Some(*retry_after)),
        _ => return Err(bad()),
    };
    let every: u64 = every.parse().ok().filter(|every| *every > 0).ok_or_else(bad)?;
    if let (Some(effect), None) = (effect(what), retry_after) {
        return Ok(Fault { effect, ..Fault::every_nth_put(every, 500, "", None) });
    }
    if *what == "lock" {
        let code = "RetryableErrorDueToAnotherOperation";
        return Ok(Fault::every_nth_put(every, 429, code, retry_after));
    }
    let status: u16 = what.parse().ok().filter(|status| (400..600).contains(status)).ok_or_else(bad)?;
    Ok(Fault::every_nth_put(every, status, code_of(status), retry_after))
}

/// Time until a hanging request is answered: an hour.
const HANGS_US: u64 = 3_600_000_000;

/// Returns the effect with this name, without a Retry-After.
fn effect(name: &str) -> Option<FaultEffect> {
    let answer = |status, code: &str, body| {
        let (code, message) = (code.to_owned(), "A planned fault.".to_owned());
        FaultEffect::Answer(FaultAnswer { status, code, message, retry_after: None, body })
    };
    let ends = |end| {
        let code = "AnotherOperationInProgress".to_owned();
        FaultEffect::FailOperation { end, code, message: "A planned fault.".to_owned() }
    };
    match name {
        "lost" => Some(FaultEffect::LoseAnswer),
        "cut" => Some(FaultEffect::Refuse),
        "hang" => Some(FaultEffect::Delay { us: HANGS_US }),
        "gateway-error" => Some(answer(429, "GatewayError", FaultBody::PascalCase)),
        "html" => Some(answer(502, "BadGateway", FaultBody::Html)),
        "no-group" => Some(answer(404, "ResourceGroupNotFound", FaultBody::Gateway)),
        "no-role" => Some(answer(403, "AuthorizationFailed", FaultBody::Gateway)),
        "failed" => Some(ends(OperationFailure::Failed)),
        "canceled" => Some(ends(OperationFailure::Canceled)),
        _ => None,
    }
}

/// Returns Azure's most frequent code with a status.
fn code_of(status: u16) -> &'static str {
    match status {
        403 => "AuthorizationFailed",
        404 => "NotFound",
        409 => "AnotherOperationInProgress",
        412 => "PreconditionFailed",
        429 => "TooManyRequests",
        500 => "InternalServerError",
        503 => "ServerTimeout",
        504 => "GatewayTimeout",
        _ => "PlannedFault",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_the_configuration_and_0() {
        let read = |text| duration(text).ok();
        assert_eq!(read("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(read("0"), Some(Duration::ZERO));
        assert_eq!(read("250"), None);
        assert_eq!(
            duration("x").map_err(|bad| bad.to_string()),
            Err("\"x\" is not a duration such as 500ms, 2s or 1m30s".to_owned())
        );
    }

    #[test]
    fn a_waiting_time_is_fixed_or_spread() {
        assert_eq!(latency("20ms"), Ok(Latency::Fixed { us: 20_000 }));
        assert_eq!(latency("5s..20s"), Ok(Latency::LogNormal { median_us: 5_000_000, p95_us: 20_000_000 }));
        assert!(latency("5s..").is_err());
    }

    #[test]
    fn a_fault_has_an_interval_a_status_and_a_retry_after() {
        let expected = Fault::every_nth_put(20, 409, "AnotherOperationInProgress", None);
        assert_eq!(fault("every:20:409"), Ok(expected));
        assert_eq!(fault("every:5:429:2"), Ok(Fault::every_nth_put(5, 429, "TooManyRequests", Some("2"))));
        let lock = Fault::every_nth_put(20, 429, "RetryableErrorDueToAnotherOperation", Some("2"));
        let at_one = Fault { load_balancer: Some("lb-1".to_owned()), ..lock.clone() };
        assert_eq!((fault("every:20:lock:2"), fault("every:20:lock:2@lb-1")), (Ok(lock), Ok(at_one)));
        assert_eq!(fault("every:3:lost").map(|fault| fault.effect), Ok(FaultEffect::LoseAnswer));
        let hangs = fault("lb-get/every:1:hang@lb-2").map(|fault| fault.effect);
        assert_eq!(hangs, Ok(FaultEffect::Delay { us: HANGS_US }));
        let storm = fault("any/every:2:503").map(|fault| (fault.target, fault.every));
        assert_eq!(storm, Ok((FaultTarget::Any, 2)));
        let other = fault("every:2:gateway-error@lb-1").map(|fault| fault.effect);
        assert!(matches!(other, Ok(FaultEffect::Answer(FaultAnswer { body: FaultBody::PascalCase, .. }))));
        let gone = fault("get/every:2:no-group").map(|fault| fault.effect);
        let Ok(FaultEffect::Answer(gone)) = gone else { panic!("an answer") };
        assert_eq!(
            (gone.status, gone.code.as_str(), gone.body),
            (404, "ResourceGroupNotFound", FaultBody::Gateway)
        );
        let dated = Fault::every_nth_put(5, 429, "TooManyRequests", Some("date+2"));
        assert_eq!(fault("every:5:429:date+2"), Ok(dated));
        for bad in [
            "all/every:2:503",
            "every:2:gateway-error:3",
            "every:0:409",
            "every:20",
            "each:20:409",
            "every:20:200",
            "every:20:lost:1",
            "every:20:409@",
            "",
        ] {
            assert!(fault(bad).is_err(), "{bad:?}");
        }
    }
}
