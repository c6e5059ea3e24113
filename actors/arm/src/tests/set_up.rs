//! Setting up a client.

use std::path::PathBuf;

use url::Url;

use super::settings;
use crate::{Client, Identity, SetUpError, Settings};

fn workload(authority_host: &str) -> Identity {
    Identity::WorkloadIdentity {
        tenant: "tenant".to_owned(),
        client_id: "client".to_owned(),
        token_file: PathBuf::from("/nowhere/token"),
        authority_host: authority_host.to_owned(),
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
    let identity = workload("https://login.test");
    let tokens = Settings { identity, ..settings("http://127.0.0.1:1") };
    assert!(matches!(refused(tokens), SetUpError::TokenOverPlainHttp { .. }));
}

#[test]
fn c1_what_is_wrong_with_a_setting_is_said_with_its_name_and_without_its_secrets() {
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
        let said = refused(settings).to_string();
        assert!(said.starts_with(beginning) && said.contains(": "), "{said}");
        assert!(!said.contains("secret") && !debug.contains("secret"), "{said} {debug}");
    }
    let azure = |identity| Settings {
        identity,
        endpoint: Url::parse("https://management.azure.com").unwrap(),
        ..local()
    };
    assert!(matches!(refused(azure(workload("http://login.test"))), SetUpError::Authority { .. }));
    let missing = refused(azure(workload("https://login.test")));
    assert!(matches!(missing, SetUpError::Credential { .. }), "{missing}");
}
