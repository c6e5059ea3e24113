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
pub enum FailureClass {
    /// The pool or its load balancer does not exist. On a poll URL: no information, so the load balancer is read.
    Stale,
    /// Another client has written: start another round from GET.
    EtagRound,
    /// Throttled: nothing more in this scope for a while.
    Throttled(ThrottleScope),
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

impl FailureClass {
    /// Whether this is S0's `ThrottleError`: a 429, or a closed gate.
    #[must_use]
    pub fn is_throttled(self) -> bool {
        match self {
            FailureClass::Throttled(_) | FailureClass::GateClosed => true,
            FailureClass::Stale
            | FailureClass::EtagRound
            | FailureClass::Retriable
            | FailureClass::ClientRetry
            | FailureClass::Terminal
            | FailureClass::NotGranted => false,
        }
    }
}

/// The scope of a 429.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ThrottleScope {
    /// The lane of one load balancer: another operation runs there.
    Lane,
    /// The gate of the class for the whole subscription: a quota, or an unknown 429.
    Subscription,
}

/// Classifies a failure (W5).
#[must_use]
pub fn classify(failure: &Failure, stage: Stage) -> FailureClass {
    match failure.kind {
        FailureKind::Status(status) => of_status(status, failure, stage),
        FailureKind::Operation => {
            if codes(failure).any(is_conflict) {
                FailureClass::Retriable
            } else {
                FailureClass::Terminal
            }
        }
        FailureKind::NotConnected
        | FailureKind::Connection
        | FailureKind::Timeout
        | FailureKind::Credential => FailureClass::ClientRetry,
        FailureKind::Undecodable(_) | FailureKind::Refused => FailureClass::Terminal,
        FailureKind::PermitExpired => FailureClass::NotGranted,
        FailureKind::GateClosed => FailureClass::GateClosed,
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

fn of_status(status: u16, failure: &Failure, stage: Stage) -> FailureClass {
    match status {
        404 => FailureClass::Stale,
        409 => FailureClass::Retriable,
        412 => match stage {
            Stage::Read | Stage::Put => FailureClass::EtagRound,
            Stage::Poll => FailureClass::Retriable,
        },
        429 if codes(failure).any(is_lock) => FailureClass::Throttled(ThrottleScope::Lane),
        429 => FailureClass::Throttled(ThrottleScope::Subscription),
        408 | 500 | 502 | 503 | 504 => FailureClass::ClientRetry,
        _ => FailureClass::Terminal,
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

    fn expect(kind: FailureKind, code: &str, inner: &[&str], stage: Stage, class: FailureClass) {
        assert_eq!(
            classify(&failure(kind, code, inner), stage),
            class,
            "{kind:?} {code} {inner:?} {stage:?}"
        );
    }

    #[test]
    fn w5_every_code_that_azure_is_known_to_send_has_its_class() {
        let status = FailureKind::Status;
        let (lane, quota) = (
            FailureClass::Throttled(ThrottleScope::Lane),
            FailureClass::Throttled(ThrottleScope::Subscription),
        );
        let table: &[(u16, &str, &[&str], FailureClass)] = &[
            (409, "AnotherOperationInProgress", &[], FailureClass::Retriable),
            (409, "OperationNotAllowed", &[], FailureClass::Retriable),
            (409, "LoadBalancerInUseByVirtualMachineScaleSet", &[], FailureClass::Retriable),
            (412, "PreconditionFailed", &["PreconditionFailedEtagMismatch"], FailureClass::EtagRound),
            (412, "PreconditionFailed", &[], FailureClass::EtagRound),
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
            (400, "InvalidRequestFormat", &["DuplicateResourceName"], FailureClass::Terminal),
            (400, "InvalidResourceName", &[], FailureClass::Terminal),
            (400, "ModificationOfNICIpConfigBackendPoolNotSupported", &[], FailureClass::Terminal),
            (
                400,
                "ModificationOfBackendAddressesInPoolIsNotSupportedWhenSyncModeIsAutomatic",
                &[],
                FailureClass::Terminal,
            ),
            (400, "InvalidResourceReference", &[], FailureClass::Terminal),
            (
                400,
                "InvalidRequestFormat",
                &["DuplicateIpConfigurationReferenceOnBackendAddressPool"],
                FailureClass::Terminal,
            ),
            (401, "InvalidAuthenticationToken", &[], FailureClass::Terminal),
            (403, "AuthorizationFailed", &[], FailureClass::Terminal),
            (403, "LinkedAuthorizationFailed", &[], FailureClass::Terminal),
            (403, "ReadOnlyDisabledSubscription", &[], FailureClass::Terminal),
            (403, "RequestDisallowedByPolicy", &[], FailureClass::Terminal),
            (404, "NotFound", &[], FailureClass::Stale),
            (404, "ResourceNotFound", &[], FailureClass::Stale),
            (404, "ResourceGroupNotFound", &[], FailureClass::Stale),
            (404, "", &[], FailureClass::Stale),
            (408, "", &[], FailureClass::ClientRetry),
            (500, "InternalServerError", &[], FailureClass::ClientRetry),
            (502, "", &[], FailureClass::ClientRetry),
            (503, "ServiceUnavailable", &[], FailureClass::ClientRetry),
            (504, "GatewayTimeout", &[], FailureClass::ClientRetry),
            (501, "", &[], FailureClass::Terminal),
            (418, "", &[], FailureClass::Terminal),
        ];
        for (code, outer, inner, class) in table {
            expect(status(*code), outer, inner, Stage::Put, *class);
            expect(status(*code), outer, inner, Stage::Read, *class);
        }
        expect(status(412), "PreconditionFailed", &[], Stage::Poll, FailureClass::Retriable);
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
            expect(FailureKind::Status(400), code, &[], Stage::Put, FailureClass::Terminal);
            expect(FailureKind::Operation, code, &[], Stage::Poll, FailureClass::Terminal);
        }
    }

    #[test]
    fn w5_an_ended_operation_is_classed_by_its_codes() {
        let superseded: &[&str] = &["CanceledAndSupersededDueToAnotherOperation"];
        let table: &[(&str, &[&str], FailureClass)] = &[
            ("Canceled", superseded, FailureClass::Retriable),
            ("AnotherOperationInProgress", &[], FailureClass::Retriable),
            ("PreconditionFailed", &["PreconditionFailedEtagMismatch"], FailureClass::Retriable),
            ("RetryableError", &["RetryableErrorDueToAnotherOperation"], FailureClass::Retriable),
            ("NotLatestOperation", &[], FailureClass::Retriable),
            ("SubscriptionRequestsThrottled", &[], FailureClass::Retriable),
            ("InternalServerError", &[], FailureClass::Terminal),
            ("InvalidResourceReference", &[], FailureClass::Terminal),
            ("", &[], FailureClass::Terminal),
        ];
        for (outer, inner, class) in table {
            expect(FailureKind::Operation, outer, inner, Stage::Poll, *class);
        }
    }

    #[test]
    fn w5_what_was_not_answered_or_not_sent_has_its_class() {
        for stage in [Stage::Read, Stage::Put, Stage::Poll] {
            expect(FailureKind::Connection, "", &[], stage, FailureClass::ClientRetry);
            expect(FailureKind::NotConnected, "", &[], stage, FailureClass::ClientRetry);
            expect(FailureKind::Timeout, "", &[], stage, FailureClass::ClientRetry);
            expect(FailureKind::Undecodable(200), "", &[], stage, FailureClass::Terminal);
            expect(FailureKind::Credential, "", &[], stage, FailureClass::ClientRetry);
            expect(FailureKind::Refused, "", &[], stage, FailureClass::Terminal);
            expect(FailureKind::PermitExpired, "", &[], stage, FailureClass::NotGranted);
            expect(FailureKind::GateClosed, "", &[], stage, FailureClass::GateClosed);
        }
    }

    #[test]
    fn w4_a_put_without_an_answer_of_the_resource_provider_is_in_doubt() {
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
