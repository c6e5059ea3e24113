//! Arbitrary answers never cause a panic or lose their status.

use azure_core::http::RawResponse;
use azure_core::http::headers::Headers;
use model::arm::{ArmAnswer, FailureKind};
use model::ids::LbName;
use proptest::collection::vec;
use proptest::prelude::*;

use super::pool_id;
use crate::answer;
use crate::document::PoolDocument;

const VALID_BODIES: [&str; 6] = [
    r#"{"error":{"code":"RetryableError","message":"A \"b\".","details":[{"code":"C","message":"d\n"}],"innererror":{"code":"E"}}}"#,
    r#"{"Error":{"Details":[{"Code":"GatewayError","Message":"m","Target":null}],"InnerError":"Source: x --->"}}"#,
    r#"{"status":"Canceled","error":{"code":"Canceled","message":"m","details":[{"code":"CanceledAndSuperseded"}]}}"#,
    r#"{"etag":"W/\"1\"","properties":{"provisioningState":"Updating","loadBalancerBackendAddresses":[{"name":"a","properties":{"ipAddress":"10.0.0.4","adminState":"Down"}}],"loadBalancingRules":[{"id":"/r"}]}}"#,
    r#"{"id":"/lb","properties":{"backendAddressPools":[{"name":"p","properties":{}}],"loadBalancingRules":[{"name":"r","properties":{"backendAddressPool":{"id":"/lb/backendAddressPools/p"}}}]}}"#,
    "<?xml version=\"1.0\"?><Error><Code>ServerBusy</Code><Message>wait</Message></Error>",
];

const HEADERS: [&str; 6] =
    ["retry-after", "date", "etag", "azure-asyncoperation", "location", "x-ms-correlation-request-id"];

/// Returns a valid body with a few bytes replaced and its end cut off.
fn corrupted_body() -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (prop::sample::select(&VALID_BODIES[..]), changes, any::<prop::sample::Index>()).prop_map(
        |(body, changes, end)| {
            let mut bytes = body.as_bytes().to_vec();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(end.index(bytes.len() + 1));
            bytes
        },
    )
}

fn header_value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        any::<i64>().prop_map(|n| n.to_string()),
        "[A-Z][a-z]{2}, [0-9]{2} (Nov|Feb|Xxx) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT",
    ]
}

fn any_response() -> impl Strategy<Value = RawResponse> {
    let headers = vec((prop::sample::select(&HEADERS[..]), header_value()), 0..6);
    let body =
        prop_oneof![vec(any::<u8>(), 0..200), any::<String>().prop_map(String::into_bytes), corrupted_body()];
    (prop_oneof![Just(200_u16), Just(202), 100..=999_u16], headers, body).prop_map(
        |(status, headers, body)| {
            let mut map = Headers::new();
            for (name, value) in headers {
                map.insert(name, value);
            }
            RawResponse::from_bytes(status.into(), map, body)
        },
    )
}

proptest! {
    #[test]
    fn w5_no_answer_panics_or_loses_its_status(response in any_response()) {
        let status = u16::from(response.status());
        let answers = [
            answer::load_balancer(&LbName::new("lb"), &response),
            answer::pool(&pool_id(), &response),
            answer::put(&response),
            answer::operation(false, &response),
            answer::operation(true, &response),
        ];
        for answer in answers {
            let success = (200..300).contains(&status);
            if let ArmAnswer::Failed(failure) = answer {
                let kind = if success { FailureKind::Undecodable(status) } else { FailureKind::Status(status) };
                prop_assert_eq!(failure.kind, kind);
                prop_assert!(failure.message.len() <= 1024);
            } else {
                prop_assert!(success, "status {} was decoded as success", status);
            }
        }
    }

    #[test]
    fn w3_arbitrary_text_never_panics(body in corrupted_body()) {
        if let Ok(text) = std::str::from_utf8(&body)
            && let Ok(document) = PoolDocument::parse(text)
            && let Ok(written) = document.apply(&model::arm::Edit::default())
        {
            prop_assert!(PoolDocument::parse(std::str::from_utf8(&written).unwrap()).is_ok());
        }
    }
}
