//! Remedies for failed reads from ARM.

use model::arm::{Failure, FailureKind};

/// Returns the remedy for a failed read; `grant` is the one for 403.
pub(super) fn of_read<'a>(failure: &Failure, grant: &'a str) -> &'a str {
    match failure.kind {
        FailureKind::Status(429) | FailureKind::GateClosed => {
            "wait until ARM no longer throttles, and run this again; `az monitor` shows who sends the requests"
        }
        FailureKind::Status(401) | FailureKind::Credential => {
            "check the identity's ids, and its secret, certificate or token file"
        }
        FailureKind::Status(403) => grant,
        FailureKind::Status(404) => {
            "check that the resource exists, and the subscription and resource group in the cloud configuration"
        }
        FailureKind::NotConnected | FailureKind::Connection | FailureKind::Timeout => {
            "check resourceManagerEndpoint, the proxy variables, firewalls and name resolution, and run this again"
        }
        FailureKind::Undecodable(_) => "check that no proxy answers instead of ARM, and run this again",
        FailureKind::Refused => {
            "check the names in the cloud configuration, and that the addresses in ARM's answers are on \
             resourceManagerEndpoint"
        }
        FailureKind::Status(_) | FailureKind::Operation | FailureKind::PermitExpired => {
            "run this again; docs/errors.md lists the errors of ARM with remedies"
        }
    }
}

#[cfg(test)]
mod tests {
    use model::arm::RetryAfter;

    use super::*;

    #[test]
    fn only_a_refusal_has_a_grant_as_its_remedy() {
        let remedy = |kind| {
            let failure = Failure {
                kind,
                code: None,
                inner_codes: Vec::new(),
                message: "".into(),
                retry_after: RetryAfter::Absent,
                correlation_id: None,
            };
            of_read(&failure, "grant it")
        };
        assert_eq!(remedy(FailureKind::Status(403)), "grant it");
        for (kind, expected) in [
            (FailureKind::Status(429), "throttles"),
            (FailureKind::Status(503), "run this again"),
            (FailureKind::Timeout, "firewalls"),
            (FailureKind::Undecodable(200), "no proxy"),
        ] {
            assert!(remedy(kind).contains(expected), "{kind:?}: {}", remedy(kind));
        }
    }
}
