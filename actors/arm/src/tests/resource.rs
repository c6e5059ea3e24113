//! Calls about any resource.

use std::time::Duration;

use model::arm::FailureKind;

use super::server::{Server, reply};
use super::{NOW, permit, settings};
use crate::{Client, ResourceAddress, ResourceCall, ResourceMethod};

fn call(method: ResourceMethod, address: ResourceAddress) -> ResourceCall {
    ResourceCall { method, address, body: None, if_match: None }
}

fn path(text: &str) -> ResourceAddress {
    ResourceAddress::Path(text.to_owned())
}

#[tokio::test]
async fn a_path_keeps_its_query_and_a_refusal_is_returned() {
    let body = r#"{"error":{"code":"ScopeLocked","message":"locked"}}"#;
    let mut server = Server::start(vec![reply(409, "retry-after: 7\r\n", body)]).await;
    let client = Client::new(settings(&server.endpoint())).unwrap();
    let address = path("/subscriptions/s/resourceGroups/my rg/locks?api-version=1&$filter=atScope()");
    let answer = client.resource(call(ResourceMethod::Get, address), None).await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (409, body));
    assert_eq!(answer.retry_after, Some(Duration::from_secs(7)));
    let line = server.received().unwrap().line;
    assert_eq!(
        line,
        "GET /subscriptions/s/resourceGroups/my%20rg/locks?api-version=1&$filter=atScope() HTTP/1.1"
    );
}

#[tokio::test]
async fn w8_a_change_needs_a_permit_that_lasts() {
    let mut server = Server::start(vec![reply(202, "location: /operations/1\r\n", "")]).await;
    let client = Client::new(settings(&server.endpoint())).unwrap();
    for method in [ResourceMethod::Put, ResourceMethod::Delete, ResourceMethod::Post] {
        for permit in [None, Some(permit(NOW.minus(Duration::from_secs(1))))] {
            let refused = client.resource(call(method, path("/a?b=c")), permit).await.unwrap_err();
            assert_eq!(refused.kind, FailureKind::PermitExpired);
        }
    }
    let mut change = call(ResourceMethod::Put, path("/a?b=c"));
    change.body = Some("{}".to_owned());
    change.if_match = Some("W/\"1\"".to_owned());
    let answer = client.resource(change, Some(permit(NOW))).await.unwrap();
    assert_eq!(answer.operation.as_deref(), Some("/operations/1"));
    let received = server.received().unwrap();
    assert_eq!((received.line.as_str(), received.body.as_str()), ("PUT /a?b=c HTTP/1.1", "{}"));
    assert_eq!(received.headers.get("if-match").map(String::as_str), Some("W/\"1\""));
    assert!(server.received().is_none());
}

#[tokio::test]
async fn urls_and_paths_stay_on_the_endpoint() {
    let client = Client::new(settings("http://127.0.0.1:1")).unwrap();
    let elsewhere = ResourceAddress::Url("https://example.com/next".to_owned());
    for address in [elsewhere, path("/subscriptions/../x?y=z")] {
        let refused = client.resource(call(ResourceMethod::Get, address), None).await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Refused);
    }
}
