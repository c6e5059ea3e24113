//! Classifies failures, as a pure function (docs/design/writer.md, W5, W6; S0 "Error Handling").
//!
//! The ARM port provides the facts of a failure. The writer decides what to do with a class.

use model::arm::{Failure, FailureKind};

/// The step of a write at which a call failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// The GET before the PUT.
    Read,
    /// The PUT.
    Put,
    /// A poll of the operation, or the end of the operation itself.
    Poll,
}

/// The class of a failure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// The pool or its load balancer does not exist. On a poll URL: no information, so the load balancer is read.
    Stale,
    /// Another client has written: start another round from GET.
    EtagRound,
    /// Throttled: nothing more in this scope for a while.
    Throttled(Scope),
    /// Another attempt may succeed.
    Retriable,
    /// ARM or the connection has a problem: 408, 500, 502, 503, 504, no connection, no answer, or no token. The
    /// client retries within the attempt. After its last retry, the attempt ends as with a terminal failure (W4).
    ClientRetry,
    /// Another attempt would not succeed.
    Terminal,
    /// The permit had expired. Nothing was sent.
    NotGranted,
    /// The throttle gate was closed. Nothing was sent.
    GateClosed,
}

impl Class {
    /// Whether this is S0's `ThrottleError`: a 429, or a closed gate.
    #[must_use]
    pub fn is_throttled(self) -> bool {
        match self {
            Class::Throttled(_) | Class::GateClosed => true,
            Class::Stale
            | Class::EtagRound
            | Class::Retriable
            | Class::ClientRetry
            | Class::Terminal
            | Class::NotGranted => false,
        }
    }
}

/// The scope of a 429.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scope {
    /// The lane of one load balancer: another operation runs there.
    Lane,
    /// The gate of the class for the whole subscription: a quota, or an unknown 429.
    Subscription,
}

/// Classifies a failure (W5).
#[must_use]
pub fn classify(failure: &Failure, stage: Stage) -> Class {
    match failure.kind {
        FailureKind::Status(status) => of_status(status, failure, stage),
        FailureKind::Operation => {
            if codes(failure).any(is_conflict) {
                Class::Retriable
            } else {
                Class::Terminal
            }
        }
        FailureKind::NotConnected
        | FailureKind::Connection
        | FailureKind::Timeout
        | FailureKind::Credential => Class::ClientRetry,
        FailureKind::Undecodable(_) | FailureKind::Refused => Class::Terminal,
        FailureKind::PermitExpired => Class::NotGranted,
        FailureKind::GateClosed => Class::GateClosed,
    }
}

/// Whether a PUT with this failure may still run or be carried out: no server that holds the resource has reported
/// its result (W4).
#[must_use]
pub fn is_in_doubt(failure: &Failure) -> bool {
    match failure.kind {
        FailureKind::Status(status) => matches!(status, 408 | 502 | 504),
        FailureKind::Connection | FailureKind::Timeout | FailureKind::Undecodable(_) => true,
        FailureKind::Operation
        | FailureKind::NotConnected
        | FailureKind::Credential
        | FailureKind::PermitExpired
        | FailureKind::GateClosed
        | FailureKind::Refused => false,
    }
}

/// Whether a PUT with this failure may have been carried out, so that a later GET may show its members (W4). This
/// includes 500 and 503. They come from the resource provider, so that nothing is in flight and the lane stays open.
/// But ARM also returns them for PUTs that it has begun.
#[must_use]
pub fn may_be_carried_out(failure: &Failure) -> bool {
    match failure.kind {
        FailureKind::Status(500 | 503) => true,
        FailureKind::Status(_)
        | FailureKind::Operation
        | FailureKind::NotConnected
        | FailureKind::Connection
        | FailureKind::Timeout
        | FailureKind::Undecodable(_)
        | FailureKind::Credential
        | FailureKind::PermitExpired
        | FailureKind::GateClosed
        | FailureKind::Refused => is_in_doubt(failure),
    }
}

fn of_status(status: u16, failure: &Failure, stage: Stage) -> Class {
    match status {
        404 => Class::Stale,
        409 => Class::Retriable,
        412 => match stage {
            Stage::Read | Stage::Put => Class::EtagRound,
            Stage::Poll => Class::Retriable,
        },
        429 if codes(failure).any(is_lock) => Class::Throttled(Scope::Lane),
        429 => Class::Throttled(Scope::Subscription),
        408 | 500 | 502 | 503 | 504 => Class::ClientRetry,
        _ => Class::Terminal,
    }
}

fn codes(failure: &Failure) -> impl Iterator<Item = &str> {
    failure.code.iter().chain(&failure.inner_codes).map(|code| &**code)
}

/// Whether the code of a 429 means that another operation runs: a lock, not a quota (W6).
fn is_lock(code: &str) -> bool {
    starts_with(code, "RetryableError") || code.eq_ignore_ascii_case("ReferencedResourceNotProvisioned")
}

/// Whether the error code of an operation means a conflict, a changed entity tag or a limit: 409, 412 or 429 as a
/// status.
fn is_conflict(code: &str) -> bool {
    const WHOLE: [&str; 5] =
        ["Canceled", "AnotherOperationInProgress", "OperationNotAllowed", "Conflict", "TooManyRequests"];
    const HEADS: [&str; 3] = ["CanceledAndSuperseded", "PreconditionFailed", "NotLatestOperation"];
    is_lock(code)
        || WHOLE.iter().any(|known| code.eq_ignore_ascii_case(known))
        || HEADS.iter().any(|known| starts_with(code, known))
        || (code.len() > "Throttled".len() && code.ends_with("RequestsThrottled"))
}

fn starts_with(code: &str, head: &str) -> bool {
    code.get(..head.len()).is_some_and(|start| start.eq_ignore_ascii_case(head))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::arm::RetryAfter;
    use std::sync::Arc;

    fn failure(kind: FailureKind, code: &str, inner: &[&str]) -> Failure {
        Failure {
            kind,
            code: (!code.is_empty()).then(|| Arc::from(code)),
            inner_codes: inner.iter().map(|code| Arc::from(*code)).collect(),
            message: Arc::from(""),
            retry_after: RetryAfter::Absent,
            correlation_id: None,
        }
    }

    fn expect(kind: FailureKind, code: &str, inner: &[&str], stage: Stage, class: Class) {
        assert_eq!(
            classify(&failure(kind, code, inner), stage),
            class,
            "{kind:?} {code} {inner:?} {stage:?}"
        );
    }

    #[test]
    fn w5_every_code_that_azure_is_known_to_send_has_its_class() {
        let status = FailureKind::Status;
        let (lane, quota) = (Class::Throttled(Scope::Lane), Class::Throttled(Scope::Subscription));
        let table: &[(u16, &str, &[&str], Class)] = &[
            (409, "AnotherOperationInProgress", &[], Class::Retriable),
            (409, "OperationNotAllowed", &[], Class::Retriable),
            (409, "LoadBalancerInUseByVirtualMachineScaleSet", &[], Class::Retriable),
            (412, "PreconditionFailed", &["PreconditionFailedEtagMismatch"], Class::EtagRound),
            (412, "PreconditionFailed", &[], Class::EtagRound),
            (429, "RetryableError", &["RetryableErrorDueToAnotherOperation"], lane),
            (429, "RetryableErrorDueToAnotherOperation", &[], lane),
            (429, "RetryableError", &["ReferencedResourceNotProvisioned"], lane),
            (429, "Throttled", &["ReferencedResourceNotProvisioned"], lane),
            (429, "retryableerror", &[], lane),
            (429, "SubscriptionRequestsThrottled", &[], quota),
            (429, "ResourceRequestsThrottled", &[], quota),
            (429, "TooManyRequests", &[], quota),
            (429, "OperationNotAllowed", &["TooManyRequests"], quota),
            (429, "", &["GatewayError"], quota),
            (429, "", &[], quota),
            (400, "InvalidRequestFormat", &["DuplicateResourceName"], Class::Terminal),
            (400, "InvalidResourceName", &[], Class::Terminal),
            (400, "ModificationOfNICIpConfigBackendPoolNotSupported", &[], Class::Terminal),
            (
                400,
                "ModificationOfBackendAddressesInPoolIsNotSupportedWhenSyncModeIsAutomatic",
                &[],
                Class::Terminal,
            ),
            (400, "InvalidResourceReference", &[], Class::Terminal),
            (
                400,
                "InvalidRequestFormat",
                &["DuplicateIpConfigurationReferenceOnBackendAddressPool"],
                Class::Terminal,
            ),
            (401, "InvalidAuthenticationToken", &[], Class::Terminal),
            (403, "AuthorizationFailed", &[], Class::Terminal),
            (403, "LinkedAuthorizationFailed", &[], Class::Terminal),
            (403, "ReadOnlyDisabledSubscription", &[], Class::Terminal),
            (403, "RequestDisallowedByPolicy", &[], Class::Terminal),
            (404, "NotFound", &[], Class::Stale),
            (404, "ResourceNotFound", &[], Class::Stale),
            (404, "ResourceGroupNotFound", &[], Class::Stale),
            (404, "", &[], Class::Stale),
            (408, "", &[], Class::ClientRetry),
            (500, "InternalServerError", &[], Class::ClientRetry),
            (502, "", &[], Class::ClientRetry),
            (503, "ServiceUnavailable", &[], Class::ClientRetry),
            (504, "GatewayTimeout", &[], Class::ClientRetry),
            (501, "", &[], Class::Terminal),
            (418, "", &[], Class::Terminal),
        ];
        for (code, outer, inner, class) in table {
            expect(status(*code), outer, inner, Stage::Put, *class);
            expect(status(*code), outer, inner, Stage::Read, *class);
        }
        expect(status(412), "PreconditionFailed", &[], Stage::Poll, Class::Retriable);
    }

    #[test]
    fn w5_a_configuration_that_azure_refuses_is_terminal_whatever_the_code() {
        for code in [
            "DuplicateResourceName",
            "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed",
            "MaxAvailabilitySetsInLoadBalancerReached",
            "RulesOfSameLoadBalancerTypeUseSameBackendPortProtocolAndIPConfig",
            "AnotherInternalLoadBalancerExists",
            "LoadBalancerWithoutFrontendIPCantHaveChildResources",
            "LoadBalancerRuleCountLimitReachedForNic",
            "MoreThanOneOutboundRuleUsingSameFrontendIPConfigurationAndProtocolIsNotSupported",
            "InvalidTemplateDeployment",
            "ResourceDeploymentFailure",
        ] {
            expect(FailureKind::Status(400), code, &[], Stage::Put, Class::Terminal);
            expect(FailureKind::Operation, code, &[], Stage::Poll, Class::Terminal);
        }
    }

    #[test]
    fn w5_an_ended_operation_is_classed_by_its_codes() {
        let superseded: &[&str] = &["CanceledAndSupersededDueToAnotherOperation"];
        let table: &[(&str, &[&str], Class)] = &[
            ("Canceled", superseded, Class::Retriable),
            ("AnotherOperationInProgress", &[], Class::Retriable),
            ("PreconditionFailed", &["PreconditionFailedEtagMismatch"], Class::Retriable),
            ("RetryableError", &["RetryableErrorDueToAnotherOperation"], Class::Retriable),
            ("NotLatestOperation", &[], Class::Retriable),
            ("SubscriptionRequestsThrottled", &[], Class::Retriable),
            ("InternalServerError", &[], Class::Terminal),
            ("InvalidResourceReference", &[], Class::Terminal),
            ("", &[], Class::Terminal),
        ];
        for (outer, inner, class) in table {
            expect(FailureKind::Operation, outer, inner, Stage::Poll, *class);
        }
    }

    #[test]
    fn w5_what_was_not_answered_or_not_sent_has_its_class() {
        for stage in [Stage::Read, Stage::Put, Stage::Poll] {
            expect(FailureKind::Connection, "", &[], stage, Class::ClientRetry);
            expect(FailureKind::NotConnected, "", &[], stage, Class::ClientRetry);
            expect(FailureKind::Timeout, "", &[], stage, Class::ClientRetry);
            expect(FailureKind::Undecodable(200), "", &[], stage, Class::Terminal);
            expect(FailureKind::Credential, "", &[], stage, Class::ClientRetry);
            expect(FailureKind::Refused, "", &[], stage, Class::Terminal);
            expect(FailureKind::PermitExpired, "", &[], stage, Class::NotGranted);
            expect(FailureKind::GateClosed, "", &[], stage, Class::GateClosed);
        }
    }

    #[test]
    fn w4_a_put_without_a_word_from_the_resource_provider_is_in_doubt() {
        let doubtful = |kind| is_in_doubt(&failure(kind, "", &[]));
        for kind in [FailureKind::Connection, FailureKind::Timeout, FailureKind::Undecodable(201)] {
            assert!(doubtful(kind), "{kind:?}");
        }
        for status in [408, 502, 504] {
            assert!(doubtful(FailureKind::Status(status)), "{status}");
        }
        for status in [400, 404, 409, 412, 429, 500, 503] {
            assert!(!doubtful(FailureKind::Status(status)), "{status}");
        }
        for kind in [FailureKind::GateClosed, FailureKind::PermitExpired, FailureKind::NotConnected] {
            assert!(!doubtful(kind), "{kind:?}");
        }
    }

    #[test]
    fn w4_a_500_or_503_may_have_been_carried_out_though_it_closes_no_lane() {
        let may = |kind| may_be_carried_out(&failure(kind, "", &[]));
        for status in [408, 500, 502, 503, 504] {
            assert!(may(FailureKind::Status(status)), "{status}");
        }
        for status in [400, 404, 409, 412, 429] {
            assert!(!may(FailureKind::Status(status)), "{status}");
        }
        assert!(may(FailureKind::Connection) && !may(FailureKind::NotConnected));
        assert!(!may(FailureKind::Credential));
    }
}
