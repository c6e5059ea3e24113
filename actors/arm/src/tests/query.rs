//! Reads for commands, which bypass the writer.

use model::arm::FailureKind;
use model::ids::LbName;

use super::server::{Server, reply};
use super::settings;
use crate::{Client, Query};

const SCOPE: &str = "/subscriptions/s/resourceGroups/my rg";

#[tokio::test]
async fn each_query_is_one_get_of_its_own_address_with_body_and_date() {
    let date = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    let queries = [
        (
            Query::LoadBalancer(LbName::new("lb")),
            "/subscriptions/sub/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/lb?api-version=2025-05-01",
        ),
        (
            Query::Permissions(SCOPE.to_owned()),
            "/subscriptions/s/resourceGroups/my%20rg/providers/Microsoft.Authorization/permissions?api-version=2022-04-01",
        ),
        (
            Query::Locks(SCOPE.to_owned()),
            "/subscriptions/s/resourceGroups/my%20rg/providers/Microsoft.Authorization/locks?api-version=2016-09-01",
        ),
        (
            Query::LocksAbove(SCOPE.to_owned()),
            "/subscriptions/s/resourceGroups/my%20rg/providers/Microsoft.Authorization/locks?api-version=2016-09-01&%24filter=atScope%28%29",
        ),
    ];
    for (query, address) in queries {
        let mut server = Server::start(vec![reply(200, date, r#"{"value": [ ]}"#)]).await;
        let result = Client::new(settings(&server.endpoint())).unwrap().query(&query).await;
        assert_eq!(result.text.as_deref(), Ok(r#"{"value": [ ]}"#));
        assert_eq!(result.date.as_deref(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!(server.received().unwrap().line, format!("GET {address} HTTP/1.1"));
        assert!(server.received().is_none());
    }
}

#[tokio::test]
async fn a_refusal_has_status_and_date_and_pages_stay_local() {
    let body = r#"{"error":{"code":"AuthorizationFailed","message":"no"}}"#;
    let mut server = Server::start(vec![reply(403, "date: today\r\n", body), reply(200, "", "{}")]).await;
    let client = Client::new(settings(&server.endpoint())).unwrap();
    let result = client.query(&Query::Locks(SCOPE.to_owned())).await;
    let failure = result.text.unwrap_err();
    assert_eq!(
        (failure.kind, failure.code.as_deref()),
        (FailureKind::Status(403), Some("AuthorizationFailed"))
    );
    assert_eq!(result.date.as_deref(), Some("today"));
    let next = format!("{}/next?page=2", server.endpoint());
    assert!(client.query(&Query::Next(next)).await.text.is_ok());
    for elsewhere in ["http://127.0.0.1:9/next", "https://example.com/next", "/next"] {
        let result = client.query(&Query::Next(elsewhere.to_owned())).await;
        assert_eq!(result.text.unwrap_err().kind, FailureKind::Refused, "{elsewhere}");
    }
    let dots = client.query(&Query::Permissions("/subscriptions/../x".to_owned())).await;
    assert_eq!(dots.text.unwrap_err().kind, FailureKind::Refused);
    assert_eq!(std::iter::from_fn(|| server.received()).count(), 2);
}
