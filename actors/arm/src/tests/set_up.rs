//! Creating a client.

use std::path::PathBuf;

use azure_core::http::{HttpClient, Method, Request};
use proxy::Proxies;
use url::Url;

use super::{login, settings};
use crate::settings::SetUpError;
use crate::transport::{HttpTransport, is_near};
use crate::{Client, Identity, Login, ManagedIdentity, Settings};

fn workload() -> Identity {
    Identity::WorkloadIdentity {
        tenant: "tenant".to_owned(),
        client_id: "client".to_owned(),
        token_file: PathBuf::from("/nowhere/token"),
    }
}

fn refused(settings: Settings) -> SetUpError {
    Client::new(settings).expect_err("it must be refused")
}

#[test]
fn c3_anonymous_and_plain_http_are_for_loopback_only() {
    for endpoint in [
        "http://127.0.0.1:1",
        "http://127.9.9.9:1",
        "http://[::1]:1",
        "http://LocalHost:1",
        "https://127.0.0.1",
    ] {
        assert!(Client::new(settings(endpoint)).is_ok(), "{endpoint}");
    }
    for endpoint in ["http://10.0.0.1", "http://localhost.example.com", "http://127.0.0.1.example.com"] {
        assert!(matches!(refused(settings(endpoint)), SetUpError::PlainHttp { .. }), "{endpoint}");
    }
    assert!(matches!(refused(settings("https://management.azure.com")), SetUpError::Anonymous { .. }));
    let tokens = Settings { identity: workload(), ..settings("http://127.0.0.1:1") };
    assert!(matches!(refused(tokens), SetUpError::TokenOverPlainHttp { .. }));
}

#[test]
fn c1_an_invalid_setting_is_named_without_secrets() {
    let local = || settings("http://127.0.0.1:1");
    let table = [
        (settings("ftp://127.0.0.1"), "endpoint ftp://127.0.0.1"),
        (settings("http://user:secret@127.0.0.1:1"), "endpoint http://127.0.0.1:1"),
        (settings("http://127.0.0.1:1/?sig=secret"), "endpoint http://127.0.0.1:1"),
        (Settings { subscription: String::new(), ..local() }, "subscription"),
        (Settings { resource_group: "..".to_owned(), ..local() }, "resource group"),
        (Settings { user_agent: "a\r\nb".to_owned(), ..local() }, "user agent"),
    ];
    for (settings, beginning) in table {
        let debug = format!("{:?}", refused(settings.clone()));
        let message = refused(settings).to_string();
        assert!(message.starts_with(beginning) && message.contains(": "), "{message}");
        assert!(!message.contains("secret") && !debug.contains("secret"), "{message} {debug}");
    }
    let azure = |authority: &str| Settings {
        identity: workload(),
        endpoint: Url::parse("https://management.azure.com").unwrap(),
        login: login(authority, "https://management.azure.com"),
        ..local()
    };
    assert!(matches!(refused(azure("http://login.test")), SetUpError::Authority { .. }));
    let missing = refused(azure("https://login.test"));
    assert!(matches!(missing, SetUpError::Credential { .. }), "{missing}");
}

#[tokio::test]
async fn c3_plain_http_is_only_for_local_servers() {
    let transport = HttpTransport::new(&settings("http://127.0.0.1:1")).unwrap();
    for (url, allowed) in [("http://192.0.2.1/x", false), ("http://127.0.0.1:1/x", true)] {
        let request = Request::new(Url::parse(url).unwrap(), Method::Get);
        let error = transport.execute_request(&request).await.unwrap_err();
        let message = model::redact::chain(&error);
        assert_eq!(message.contains("URL scheme is not allowed"), !allowed, "{url}: {message}");
    }
}

#[test]
fn c3_loopback_and_the_metadata_service_are_local() {
    let near =
        ["http://127.0.0.1:1", "https://localhost", "http://[::1]/", "http://169.254.169.254/metadata/x"];
    let far =
        ["http://169.254.169.253/", "http://169.254.169.254.example.com/", "https://management.azure.com"];
    for (url, expected) in near.map(|url| (url, true)).into_iter().chain(far.map(|url| (url, false))) {
        assert_eq!(is_near(&Url::parse(url).unwrap()), expected, "{url}");
    }
}

/// Returns unusable proxies, and the targets that do not use them.
fn unusable(no_proxy: &str) -> Proxies {
    Proxies::read(|name| match name {
        "HTTPS_PROXY" => Some("ftp://p".to_owned()),
        "NO_PROXY" => Some(no_proxy.to_owned()),
        _ => None,
    })
}

#[tokio::test]
async fn c3_an_invalid_proxy_is_an_error_only_if_it_is_used() {
    let azure = |identity: Identity| Settings { identity, ..settings("https://management.azure.com") };
    let managed = || Identity::Managed(ManagedIdentity::SystemAssigned);
    let from_document = |authority_host: Option<&str>| Login::Metadata {
        document: Url::parse("https://management.azure.com/metadata/endpoints").unwrap(),
        cloud: String::new(),
        authority_host: authority_host.map(str::to_owned),
    };
    let read = |login: Login| Settings { login, ..azure(workload()) };
    let table = [
        (settings("http://127.0.0.1:1"), "", true),
        (azure(managed()), "", false),
        (azure(managed()), "login.test", false),
        (azure(managed()), ".azure.com", true),
        (azure(workload()), ".azure.com", false),
        (azure(workload()), "login.test", false),
        (azure(workload()), ".azure.com,login.test", true),
        (azure(workload()), "*", true),
        (read(from_document(Some("https://login.test"))), ".azure.com", false),
        (read(from_document(Some("https://login.test"))), ".azure.com,login.test", true),
        // Its login endpoint is not known yet.
        (read(from_document(None)), ".azure.com", true),
        (read(from_document(None)), "login.test", false),
    ];
    for (settings, no_proxy, usable) in table {
        let made = HttpTransport::behind(&settings, unusable(no_proxy));
        assert_eq!(made.is_ok(), usable, "{settings:?}, NO_PROXY {no_proxy:?}");
    }
    // A login endpoint that is only known later uses the proxy.
    let transport = HttpTransport::behind(&read(from_document(None)), unusable(".azure.com")).unwrap();
    let request = Request::new(Url::parse("https://login.invalid/x").unwrap(), Method::Get);
    let error = model::redact::chain(&transport.execute_request(&request).await.unwrap_err());
    assert!(error.contains("HTTPS_PROXY has the unknown scheme ftp"), "{error}");
}
