//! Answers of the API server about the controller's Deployment, over loopback HTTP.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

fn deployment() -> NamespacedName {
    NamespacedName { namespace: "pools".into(), name: "controller".into() }
}

/// Starts a server that gives one answer; returns the first line of the request and the decoded answer.
async fn exchange(status: u16, body: &str) -> (String, Result<Arc<str>, Failure>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let length = body.len();
    let answer =
        format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("the client calls");
        let mut text = String::new();
        while !text.contains("\r\n\r\n") {
            let mut part = [0; 4096];
            let count = stream.read(&mut part).await.expect("the client writes");
            text.push_str(std::str::from_utf8(&part[..count]).expect("a head is text"));
        }
        stream.write_all(answer.as_bytes()).await.expect("the client listens");
        text.lines().next().unwrap_or_default().to_owned()
    });
    let mut config = kube::Config::new(format!("http://{address}").parse().expect("a URI"));
    config.default_retry = false;
    let found = request(&Client::try_from(config).expect("a client"), &deployment()).await;
    (server.await.expect("the server has answered"), found)
}

#[tokio::test]
async fn x2_e1_the_uid_of_the_deployment_is_read_by_one_get() {
    let body = r#"{"kind": "Deployment", "metadata": {"name": "controller", "uid": "d-1"}, "spec": {}}"#;
    let (line, found) = exchange(200, body).await;
    assert_eq!(line, "GET /apis/apps/v1/namespaces/pools/deployments/controller HTTP/1.1");
    assert_eq!(found, Ok("d-1".into()));
}

#[tokio::test]
async fn x2_e1_failures_are_absent_denied_or_other() {
    assert_eq!(exchange(404, "{}").await.1, Err(Failure::Absent));
    for status in [401, 403] {
        let (_, found) = exchange(status, r#"{"message": "deployments.apps is forbidden"}"#).await;
        assert!(
            matches!(&found, Err(Failure::Denied(reason)) if reason.contains("is forbidden")),
            "{found:?}"
        );
    }
    for (status, body) in [(500, "{}"), (429, ""), (200, "{}"), (200, "no JSON"), (204, "")] {
        let (_, found) = exchange(status, body).await;
        assert!(matches!(found, Err(Failure::Other(_))), "{status} {body}: {found:?}");
    }
}

#[test]
fn e1_the_deployment_needs_both_variables() {
    let variables = |name: &str| match name {
        "DEPLOYMENT_NAME" => Some("controller".to_owned()),
        "POD_NAMESPACE" => Some("pools".to_owned()),
        _ => None,
    };
    assert_eq!(named(variables), Some(deployment()));
    for missing in ["DEPLOYMENT_NAME", "POD_NAMESPACE"] {
        assert_eq!(named(|name| variables(name).filter(|_| name != missing)), None);
        assert_eq!(
            named(|name| variables(name).map(|it| if name == missing { String::new() } else { it })),
            None
        );
    }
}
