//! Classifies failures, once, when the answer arrives (docs/design/writer.md, W5, W6; S0 "Error Handling").
//!
//! The ARM port provides the facts of a failure. Everything in the writer that follows from it reads its class.

use std::sync::Arc;

use model::arm::{ArmAnswer, Failure, FailureKind, RetryAfter};

/// An answer of ARM whose failure is classified.
pub(super) type Answered = Result<ArmAnswer, FailedCall>;

/// A failure, its class, and its effect as a PUT.
#[derive(Clone, Debug)]
pub(super) struct FailedCall {
    pub failure: Arc<Failure>,
    pub class: FailureClass,
    /// The effect of the call if it was a PUT.
    pub put: FailedPut,
}

/// The possible effect of a failed PUT (W4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FailedPut {
    /// The PUT was refused or not sent.
    Refused,
    /// The PUT may have been carried out, so that a later GET may show its members. The resource provider sends 500
    /// and 503, so nothing is in flight and the lane stays open. But ARM also returns them for PUTs that it has
    /// begun.
    MayBeCarriedOut,
    /// The PUT may have been carried out or may still run: the resource provider has not reported its result.
    InDoubt,
}

impl FailedCall {
    /// Classifies a failure.
    pub(super) fn new(failure: Arc<Failure>) -> FailedCall {
        FailedCall { class: classify(&failure), put: failed_put(failure.kind), failure }
    }

    /// Returns a failure that the writer itself detected.
    pub(super) fn ours(kind: FailureKind, message: &str) -> FailedCall {
        FailedCall::new(Arc::new(Failure {
            kind,
            code: None,
            inner_codes: Vec::new(),
            message: Arc::from(message),
            retry_after: RetryAfter::Absent,
            correlation_id: None,
        }))
    }
}

/// Classifies the failure of an answer.
pub(super) fn answered(answer: ArmAnswer) -> Answered {
    if let ArmAnswer::Failed(failure) = answer { Err(FailedCall::new(failure)) } else { Ok(answer) }
}

/// The class of a failure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FailureClass {
    /// ARM says that the pool or its load balancer does not exist.
    Absent,
    /// Any other 404. On a poll URL, either is no information, so the load balancer is read.
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
    /// Returns whether this is S0's `ThrottleError`: a 429, or a closed gate.
    #[must_use]
    pub fn is_throttled(self) -> bool {
        match self {
            FailureClass::Throttled(_) | FailureClass::GateClosed => true,
            FailureClass::Absent
            | FailureClass::Stale
            | FailureClass::EtagRound
            | FailureClass::Retriable
            | FailureClass::ClientRetry
            | FailureClass::Terminal
            | FailureClass::NotGranted => false,
        }
    }

    /// Returns whether this is a 404.
    #[must_use]
    pub fn is_stale(self) -> bool {
        matches!(self, FailureClass::Absent | FailureClass::Stale)
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
pub fn classify(failure: &Failure) -> FailureClass {
    match failure.kind {
        FailureKind::Status(404) if failure.says_absent() => FailureClass::Absent,
        FailureKind::Status(404) => FailureClass::Stale,
        FailureKind::Status(409) => FailureClass::Retriable,
        FailureKind::Status(412) => FailureClass::EtagRound,
        FailureKind::Status(429) if codes(failure).any(is_lock) => {
            FailureClass::Throttled(ThrottleScope::Lane)
        }
        FailureKind::Status(429) => FailureClass::Throttled(ThrottleScope::Subscription),
        FailureKind::Status(408 | 500 | 502 | 503 | 504)
        | FailureKind::NotConnected
        | FailureKind::Connection
        | FailureKind::Timeout
        | FailureKind::Credential => FailureClass::ClientRetry,
        FailureKind::Operation if codes(failure).any(is_conflict) => FailureClass::Retriable,
        FailureKind::Status(_)
        | FailureKind::Operation
        | FailureKind::Undecodable(_)
        | FailureKind::Refused => FailureClass::Terminal,
        FailureKind::PermitExpired => FailureClass::NotGranted,
        FailureKind::GateClosed => FailureClass::GateClosed,
    }
}

fn failed_put(kind: FailureKind) -> FailedPut {
    match kind {
        FailureKind::Status(408 | 502 | 504)
        | FailureKind::Connection
        | FailureKind::Timeout
        | FailureKind::Undecodable(_) => FailedPut::InDoubt,
        FailureKind::Status(500 | 503) => FailedPut::MayBeCarriedOut,
        FailureKind::Status(_)
        | FailureKind::Operation
        | FailureKind::NotConnected
        | FailureKind::Credential
        | FailureKind::PermitExpired
        | FailureKind::GateClosed
        | FailureKind::Refused => FailedPut::Refused,
    }
}

fn codes(failure: &Failure) -> impl Iterator<Item = &str> {
    failure.code.iter().chain(&failure.inner_codes).map(|code| &**code)
}

/// Returns whether the code of a 429 means that another operation runs: a lock, not a quota (W6).
fn is_lock(code: &str) -> bool {
    starts_with(code, "RetryableError") || code.eq_ignore_ascii_case("ReferencedResourceNotProvisioned")
}

/// Returns whether the error code of an operation means a conflict, a changed entity tag or a limit: 409, 412 or 429
/// as a status.
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

    fn expect(kind: FailureKind, code: &str, inner: &[&str], class: FailureClass) {
        assert_eq!(classify(&failure(kind, code, inner)), class, "{kind:?} {code} {inner:?}");
    }

    #[test]
    fn w5_every_code_that_azure_is_known_to_send_has_its_class() {
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
            (404, "NotFound", &[], FailureClass::Absent),
            (404, "ResourceNotFound", &[], FailureClass::Absent),
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
            expect(FailureKind::Status(*code), outer, inner, *class);
        }
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
            expect(FailureKind::Status(400), code, &[], FailureClass::Terminal);
            expect(FailureKind::Operation, code, &[], FailureClass::Terminal);
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
            expect(FailureKind::Operation, outer, inner, *class);
        }
    }

    #[test]
    fn w5_failures_without_an_answer_have_a_class() {
        expect(FailureKind::Connection, "", &[], FailureClass::ClientRetry);
        expect(FailureKind::NotConnected, "", &[], FailureClass::ClientRetry);
        expect(FailureKind::Timeout, "", &[], FailureClass::ClientRetry);
        expect(FailureKind::Undecodable(200), "", &[], FailureClass::Terminal);
        expect(FailureKind::Credential, "", &[], FailureClass::ClientRetry);
        expect(FailureKind::Refused, "", &[], FailureClass::Terminal);
        expect(FailureKind::PermitExpired, "", &[], FailureClass::NotGranted);
        expect(FailureKind::GateClosed, "", &[], FailureClass::GateClosed);
    }

    #[test]
    fn w4_a_put_without_an_answer_of_the_resource_provider_is_in_doubt() {
        for kind in [FailureKind::Connection, FailureKind::Timeout, FailureKind::Undecodable(201)] {
            assert_eq!(failed_put(kind), FailedPut::InDoubt, "{kind:?}");
        }
        for status in [408, 502, 504] {
            assert_eq!(failed_put(FailureKind::Status(status)), FailedPut::InDoubt, "{status}");
        }
        for status in [400, 404, 409, 412, 429] {
            assert_eq!(failed_put(FailureKind::Status(status)), FailedPut::Refused, "{status}");
        }
        for kind in [
            FailureKind::GateClosed,
            FailureKind::PermitExpired,
            FailureKind::NotConnected,
            FailureKind::Credential,
        ] {
            assert_eq!(failed_put(kind), FailedPut::Refused, "{kind:?}");
        }
    }

    #[test]
    fn w4_a_500_or_503_may_have_been_carried_out_though_it_closes_no_lane() {
        for status in [500, 503] {
            assert_eq!(failed_put(FailureKind::Status(status)), FailedPut::MayBeCarriedOut, "{status}");
        }
    }
}
