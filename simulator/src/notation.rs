//! The short notations of the command line: durations, waiting times and faults.

use std::time::Duration;

use simulator_models::arm::{
    Fault, FaultAnswer, FaultBody, FaultEffect, FaultTarget, Latency, OperationFailure,
};
use thiserror::Error;

/// An invalid duration, waiting time or fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{found:?} is not {expected}")]
pub struct BadNotation {
    found: String,
    pub(crate) expected: &'static str,
}

impl From<BadNotation> for String {
    fn from(bad: BadNotation) -> String {
        bad.to_string()
    }
}

/// Parses a duration as in the configuration, such as `1m30s`, or a fraction of seconds; `0` needs no unit.
///
/// # Errors
/// Anything else.
pub fn duration(text: &str) -> Result<Duration, BadNotation> {
    let seconds = text.strip_suffix('s').and_then(|number| number.parse().ok());
    if let Some(duration) = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        return Ok(duration);
    }
    config::parse_duration(if text == "0" { "0s" } else { text }).map_err(|_| BadNotation {
        found: text.to_owned(),
        expected: "a duration such as 500ms, 2s or 1m30s",
    })
}

/// Parses a waiting time: a duration, or `median..p95` of a lognormal distribution, such as `5s..20s`.
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

/// Parses a fault of ARM, such as `put 409 every 20` or `lb-get hang on lb-2` (docs/simulator.md).
///
/// # Errors
/// Anything else.
pub fn fault(text: &str) -> Result<Fault, BadNotation> {
    read_fault(text).ok_or_else(|| BadNotation {
        found: text.to_owned(),
        expected: "a fault such as `put 409 every 20`, `put 429 retry-after 2 on lb-1` or `any lost times 3`",
    })
}

fn read_fault(text: &str) -> Option<Fault> {
    let mut words = text.split_whitespace();
    let target = match words.next()? {
        "put" => FaultTarget::PoolPut,
        "delete" => FaultTarget::PoolDelete,
        "get" => FaultTarget::PoolGet,
        "lb-get" => FaultTarget::LoadBalancerGet,
        "poll" => FaultTarget::Poll,
        "any" => FaultTarget::Any,
        _ => return None,
    };
    let effect = words.next()?;
    let status = match effect {
        "lost" | "cut" | "hang" | "failed" | "canceled" => 409,
        status => status.parse::<u16>().ok().filter(|status| (200..600).contains(status))?,
    };
    let (mut code, mut retry_after, mut body) = (code_of(status).to_owned(), None, FaultBody::Standard);
    let (mut every, mut limit, mut load_balancer) = (None, None, None);
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word {
            "every" => every = Some(value.parse::<u64>().ok().filter(|every| *every > 0)?),
            "times" => limit = Some(value.parse().ok()?),
            "code" => value.clone_into(&mut code),
            "retry-after" => retry_after = Some(value.to_owned()),
            "on" => load_balancer = Some(value.to_owned()),
            "body" => {
                body = match value {
                    "html" => FaultBody::Html,
                    "bare" => FaultBody::Bare,
                    "pascal" => FaultBody::PascalCase,
                    "empty" => FaultBody::Empty,
                    "gateway" => FaultBody::Gateway,
                    _ => return None,
                };
            }
            _ => return None,
        }
    }
    let message = "A planned fault.".to_owned();
    let effect = match effect {
        "lost" => FaultEffect::LoseAnswer,
        "cut" => FaultEffect::Refuse,
        "hang" => FaultEffect::Delay { us: HANGS_US },
        "failed" => FaultEffect::FailOperation { end: OperationFailure::Failed, code, message },
        "canceled" => FaultEffect::FailOperation { end: OperationFailure::Canceled, code, message },
        _ => FaultEffect::Answer(FaultAnswer { status, code, message, retry_after, body }),
    };
    // A fault without a number takes effect once.
    let limit = if every.is_none() { limit.or(Some(1)) } else { limit };
    Some(Fault { target, every: every.unwrap_or(1), limit, load_balancer, effect })
}

/// Time until a hanging request is answered: an hour.
const HANGS_US: u64 = 3_600_000_000;

/// Returns the code that Azure most often returns with a status.
fn code_of(status: u16) -> &'static str {
    match status {
        403 => "AuthorizationFailed",
        404 => "NotFound",
        409 => "AnotherOperationInProgress",
        412 => "PreconditionFailed",
        429 => "TooManyRequests",
        500 => "InternalServerError",
        502 => "BadGateway",
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
        assert_eq!((read("0.2s"), read("-1s")), (Some(Duration::from_millis(200)), None));
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
    fn a_fault_names_its_requests_its_effect_and_its_number() {
        let expected = Fault::every_nth_put(20, 409, "AnotherOperationInProgress", None);
        assert_eq!(fault("put 409 every 20"), Ok(expected.clone()));
        let once = Fault { every: 1, limit: Some(1), ..expected };
        assert_eq!(fault("put 409"), Ok(once.clone()));
        assert_eq!(
            fault("put 409 times 3 on lb-1"),
            Ok(Fault { limit: Some(3), load_balancer: Some("lb-1".to_owned()), ..once })
        );
        let dated = Fault::every_nth_put(5, 429, "TooManyRequests", Some("date+2"));
        assert_eq!(fault("put 429 every 5 retry-after date+2"), Ok(dated));
        let effect = |text| fault(text).map(|fault| (fault.target, fault.effect));
        assert_eq!(effect("any lost"), Ok((FaultTarget::Any, FaultEffect::LoseAnswer)));
        assert_eq!(
            effect("lb-get hang"),
            Ok((FaultTarget::LoadBalancerGet, FaultEffect::Delay { us: HANGS_US }))
        );
        let gone = effect("get 404 code ResourceGroupNotFound body gateway");
        let Ok((FaultTarget::PoolGet, FaultEffect::Answer(gone))) = gone else { panic!("an answer") };
        assert_eq!((gone.status, &*gone.code, gone.body), (404, "ResourceGroupNotFound", FaultBody::Gateway));
        for bad in [
            "all 503",
            "put 409 every 0",
            "put",
            "put 99",
            "put 409 on",
            "put 409 body xml",
            "put 409 often",
            "",
        ] {
            assert!(fault(bad).is_err(), "{bad:?}");
        }
    }
}
