//! Tests of the redaction of all credentials of a kubeconfig, and of the proxy that a kubeconfig names.

use std::path::Path;

use model::redact::safe_line;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// Returns a server that answers each request with an empty object, and its address.
async fn server() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has free ports");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    drop(tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(socket.read_u8().await.expect("a whole request"));
            }
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            socket.write_all(answer.as_bytes()).await.expect("the client waits");
        }
    }));
    url
}

fn kubeconfig(cluster: &Value, user: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{ "name": "other", "cluster": { "server": "https://x", "proxy-url": "ftp://x" } },
                     { "name": "it", "cluster": cluster }],
        "users": [{ "name": "it", "user": user }],
        "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
    })
}

/// Sends a request with the credentials of this user.
async fn send_as(folder: &Path, user: &Value) {
    let path = folder.join("kubeconfig");
    let file = kubeconfig(&json!({ "server": server().await }), user);
    std::fs::write(&path, file.to_string()).expect("the folder can be written");
    let client = kubernetes_client(Some(&path)).await.expect("a good kubeconfig");
    let request = Request::get("/version").body(Body::empty()).expect("a request");
    assert_eq!(client.send(request).await.expect("an answer").status().as_u16(), 200);
}

#[tokio::test]
async fn c1_credentials_of_a_kubeconfig_are_known_when_they_are_sent() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("token");
    std::fs::write(&file, "planted-in-a-file").expect("the folder can be written");
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": { "token": "planted-by-a-program" },
    });
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "echo", "args": [credential.to_string()],
    });
    let cases = [
        (json!({ "token": "planted-in-place" }), "planted-in-place"),
        (json!({ "tokenFile": file }), "planted-in-a-file"),
        (json!({ "username": "somebody", "password": "planted-password" }), "planted-password"),
        (json!({ "exec": exec }), "planted-by-a-program"),
    ];
    for (user, secret) in cases {
        assert!(safe_line(secret, &[], 90).contains(secret), "{secret} is not known yet");
        send_as(folder.path(), &user).await;
        assert_eq!(safe_line(&format!("it was {secret}!"), &[], 90), "it was <redacted>!", "{user}");
    }
    // `somebody:planted-password`.
    assert!(safe_line("c29tZWJvZHk6cGxhbnRlZC1wYXNzd29yZA==", &[], 90).contains(REDACTED));
}

#[test]
fn the_proxy_is_that_of_the_current_contexts_cluster() {
    let named = |cluster: &Value| {
        let file = Kubeconfig::from_yaml(&kubeconfig(cluster, &json!({})).to_string()).expect("it is good");
        named_proxy(&file).map(|proxy| proxy.map(|proxy| proxy.to_string()))
    };
    let with = |url: &str| json!({ "server": "https://it", "proxy-url": url });
    assert_eq!(named(&json!({ "server": "https://it" })), Ok(None));
    assert_eq!(named(&with("")), Ok(None));
    let expected = "socks5://p:1080 (proxy-url of the kubeconfig's cluster)";
    assert_eq!(named(&with("socks5://u:p@p")), Ok(Some(expected.to_owned())));
    assert!(named(&with("p:3128")).is_err_and(|error| error.to_string().contains("has no scheme")));
}
