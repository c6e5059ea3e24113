//! Every identity end to end, against an authority, an instance metadata service and ARM on loopback: the requests
//! for tokens, and the errors without one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use azure_core::base64;
use model::arm::{ArmRequest, FailureKind};
use rcgen::PublicKeyData;
use serde_json::Value;
use url::{Url, form_urlencoded};

use super::identity::{POOL, of, token};
use super::server::{Received, Reply, Server, reply};
use super::{failure, login, pool_id, pool_read};
use crate::credential::test_certificates::{self, PASSWORD};
use crate::{Client, Identity, Login, ManagedIdentity, Secret};

const AUDIENCE: &str = "https://management.core.test/";

fn secret() -> Identity {
    Identity::ClientSecret {
        tenant: "my-tenant".to_owned(),
        client_id: "my-client".to_owned(),
        secret: Secret::new("s3cr3t/+&"),
    }
}

async fn start(identity: Identity, replies: Vec<Reply>) -> (Server, Client) {
    of(identity, login("https://login.test/", AUDIENCE), replies, Duration::ZERO).await
}

async fn read_pool(client: &Client) {
    pool_read(client.execute(ArmRequest::GetPool(pool_id())).await.answer);
}

fn form(request: &Received) -> BTreeMap<String, String> {
    form_urlencoded::parse(request.body.as_bytes()).into_owned().collect()
}

fn imds(token: &str) -> Reply {
    // One day after the tests' wall time and far from the SDK's, which reads its own clock.
    let body = format!(
        r#"{{"access_token":"{token}","expires_on":"4102444800","resource":"x","token_type":"Bearer"}}"#
    );
    reply(200, "content-type: application/json\r\n", &body)
}

#[tokio::test]
async fn c3_a_client_secret_goes_only_to_the_authority() {
    let (mut server, client) = start(secret(), vec![token("t-1"), reply(200, "", POOL)]).await;
    read_pool(&client).await;
    let request = server.received().unwrap();
    assert_eq!(request.line, "POST /my-tenant/oauth2/v2.0/token HTTP/1.1");
    assert_eq!(request.headers["x-meant-for"], "login.test");
    let form = form(&request);
    let sent = ["client_id", "client_secret", "grant_type", "scope"].map(|key| form[key].as_str());
    assert_eq!(
        sent,
        ["my-client", "s3cr3t/+&", "client_credentials", "https://management.core.test//.default"],
        "the audience's slash stays"
    );
    assert_eq!(server.received().unwrap().headers["authorization"], "Bearer t-1");
}

#[tokio::test]
async fn c3_a_managed_identity_uses_its_configured_id() {
    let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i";
    let rows = [
        (ManagedIdentity::SystemAssigned, None),
        (ManagedIdentity::ClientId("c-1".to_owned()), Some(("client_id", "c-1"))),
        (ManagedIdentity::ResourceId(id.to_owned()), Some(("msi_res_id", id))),
    ];
    for (which, named) in rows {
        let (mut server, client) =
            start(Identity::Managed(which), vec![imds("t-1"), reply(200, "", POOL)]).await;
        read_pool(&client).await;
        let request = server.received().unwrap();
        assert_eq!(request.headers["x-meant-for"], "169.254.169.254");
        assert_eq!(request.headers["metadata"], "true");
        let path = request.line.split(' ').nth(1).unwrap();
        let url = Url::parse(&format!("http://x{path}")).unwrap();
        assert_eq!(url.path(), "/metadata/identity/oauth2/token");
        let mut query: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
        assert!(query.remove("api-version").is_some());
        assert_eq!(query.remove("resource").as_deref(), Some(AUDIENCE));
        let expected = named.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(query.into_iter().next(), expected);
        let get = server.received().unwrap();
        assert_eq!(
            (get.headers["authorization"].as_str(), get.headers["x-meant-for"].as_str()),
            ("Bearer t-1", "management.test")
        );
    }
}

#[tokio::test]
async fn c3_a_client_certificate_signs_an_assertion_that_verifies() {
    let made = test_certificates::make();
    for (name, bytes, password) in made.files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let identity = Identity::ClientCertificate {
            tenant: "my-tenant".to_owned(),
            client_id: "my-client".to_owned(),
            path: file.path().to_owned(),
            password: password.map(Secret::new),
        };
        let (mut server, client) = start(identity, vec![token("t-1"), reply(200, "", POOL)]).await;
        read_pool(&client).await;
        let request = server.received().unwrap();
        let form = form(&request);
        assert_eq!(form["client_assertion_type"], "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
        let (signed, signature) = form["client_assertion"].rsplit_once('.').unwrap();
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, made.key.der_bytes());
        let signature = base64::decode_url_safe(signature).unwrap();
        key.verify(signed.as_bytes(), &signature).unwrap_or_else(|_| panic!("{name}: a wrong signature"));
        let part = |part: &str| -> Value {
            serde_json::from_slice(&base64::decode_url_safe(part).unwrap()).unwrap()
        };
        let (header, claims) = signed.split_once('.').unwrap();
        let (header, claims) = (part(header), part(claims));
        assert_eq!((header["alg"].as_str(), header["typ"].as_str()), (Some("RS256"), Some("JWT")), "{name}");
        let digest =
            |algorithm| base64::encode_url_safe(aws_lc_rs::digest::digest(algorithm, made.certificate.der()));
        assert_eq!(header["x5t#S256"], digest(&aws_lc_rs::digest::SHA256), "{name}");
        assert_eq!(header["x5t"], digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY), "{name}");
        // As upstream: a certificate that is trusted by its subject and issuer is sent with its chain.
        let chain = header["x5c"].as_array().unwrap();
        assert_eq!(
            chain[0],
            base64::encode(made.certificate.der()),
            "{name}: its own certificate comes first"
        );
        assert_eq!(chain.len(), if name.contains("others") { 2 } else { 1 }, "{name}");
        assert_eq!(claims["aud"], "https://login.test/my-tenant/oauth2/v2.0/token");
        assert_eq!((&claims["iss"], &claims["sub"]), (&"my-client".into(), &"my-client".into()));
        let wall = super::WALL.as_micros() / 1_000_000;
        assert_eq!((claims["nbf"].as_i64(), claims["exp"].as_i64()), (Some(wall), Some(wall + 600)));
        assert!(claims["jti"].as_str().is_some_and(|id| id.len() == 36));
    }
}

#[tokio::test]
async fn c3_a_renewed_certificate_is_used_for_the_next_token() {
    let (old, new) = (test_certificates::make(), test_certificates::make());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), old.pem()).unwrap();
    let identity = Identity::ClientCertificate {
        tenant: "t".to_owned(),
        client_id: "c".to_owned(),
        path: file.path().to_owned(),
        password: None,
    };
    let refused = reply(401, "www-authenticate: Bearer realm=\"\"\r\n", "");
    let (mut server, client) =
        start(identity, vec![token("t-1"), refused, token("t-2"), reply(200, "", POOL)]).await;
    std::fs::write(file.path(), new.pem()).unwrap();
    read_pool(&client).await;
    let all: Vec<_> = std::iter::from_fn(|| server.received()).collect();
    assert_eq!(all.len(), 4);
    let header = form(&all[2])["client_assertion"].split('.').next().unwrap().to_owned();
    let header: Value = serde_json::from_slice(&base64::decode_url_safe(header).unwrap()).unwrap();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, new.certificate.der());
    assert_eq!(header["x5t#S256"], base64::encode_url_safe(digest));
}

#[tokio::test]
async fn c3_a_metadata_document_names_authority_and_audience() {
    let document = r#"[{"name": "Stack", "resourceManager": "https://management.test/",
        "authentication": {"loginEndpoint": "https://login.stack/", "audiences": ["https://audience.stack"]}}]"#;
    let url = Url::parse("https://management.test/metadata/endpoints?api-version=2019-05-01").unwrap();
    let rows = [(None, "login.stack"), (Some("https://login.own".to_owned()), "login.own")];
    for (authority_host, asked_host) in rows {
        let login = Login::Metadata { document: url.clone(), cloud: String::new(), authority_host };
        let replies =
            vec![reply(200, "", document), token("t-1"), reply(200, "", POOL), reply(200, "", POOL)];
        let (mut server, client) = of(secret(), login, replies, Duration::ZERO).await;
        read_pool(&client).await;
        read_pool(&client).await;
        let first = server.received().unwrap();
        assert_eq!(first.line, "GET /metadata/endpoints?api-version=2019-05-01 HTTP/1.1");
        assert!(!first.headers.contains_key("authorization"));
        let request = server.received().unwrap();
        assert_eq!(request.headers["x-meant-for"], asked_host);
        assert_eq!(form(&request)["scope"], "https://audience.stack/.default");
        for _ in 0..2 {
            assert_eq!(server.received().unwrap().headers["authorization"], "Bearer t-1");
        }
    }
}

#[tokio::test]
async fn c3_an_unusable_metadata_document_names_its_remedy() {
    let at =
        |login: &str| format!(r#"{{"authentication": {{"loginEndpoint": "{login}", "audiences": ["a"]}}}}"#);
    let (plain, adfs) = (at("http://login.stack"), at("https://adfs.stack/adfs/"));
    let rows = [
        (reply(200, "", "<html>"), "is not one of Azure Resource Manager"),
        (reply(503, "", ""), "cannot be read (status 503)"),
        (reply(200, "", &plain), "names http://login.stack as login endpoint, which is not https"),
        (reply(200, "", &adfs), "names AD FS as login endpoint"),
        (Reply::Hangup, "cannot be read ("),
    ];
    for (answer, reason) in rows {
        let document = Url::parse("https://management.test/metadata/endpoints").unwrap();
        let login = Login::Metadata { document, cloud: String::new(), authority_host: None };
        let (_server, client) = of(secret(), login, vec![answer], Duration::ZERO).await;
        let failed = failure(client.execute(ArmRequest::GetPool(pool_id())).await.answer);
        assert_eq!(failed.kind, FailureKind::Credential);
        assert!(failed.message.contains(reason), "{failed}");
        assert!(failed.message.contains("check resourceManagerEndpoint"), "{failed}");
    }
}

#[tokio::test]
async fn c3_a_refusal_of_an_authority_names_the_wrong_key() {
    let entra = |code: u32, text: &str| {
        reply(
            400,
            "",
            &format!(
                r#"{{"error":"x","error_description":"AADSTS{code}: {text} Trace ID: 1-2 Correlation ID: 3","error_codes":[{code}]}}"#
            ),
        )
    };
    let managed = || Identity::Managed(ManagedIdentity::ClientId("c".to_owned()));
    let rows = [
        (
            secret(),
            entra(7_000_215, "Invalid client secret provided."),
            "aadClientSecret or AZURE_CLIENT_SECRET is wrong",
        ),
        (secret(), entra(7_000_222, "The keys are expired."), "the secret has expired"),
        (secret(), entra(700_016, "Application not found."), "check aadClientId"),
        (secret(), entra(90_002, "Tenant not found."), "check tenantId"),
        (
            secret(),
            entra(500_011, "The resource principal was not found."),
            "check cloud and resourceManagerEndpoint",
        ),
        (secret(), entra(1, "Something else."), "check tenantId, aadClientId and the credential"),
        (secret(), reply(404, "", "<html>not found</html>"), "the answer is not from a login endpoint"),
        (secret(), reply(200, "", "welcome"), "the answer is not from a login endpoint"),
        (
            managed(),
            reply(400, "", r#"{"error":"invalid_request"}"#),
            "assign the identity to every virtual machine",
        ),
    ];
    for (identity, answer, remedy) in rows {
        let name = identity.name();
        let (mut server, client) = start(identity, vec![answer]).await;
        let failed = failure(client.execute(ArmRequest::GetPool(pool_id())).await.answer);
        assert_eq!(failed.kind, FailureKind::Credential);
        assert!(failed.message.starts_with(&format!("{name} could not sign in: ")), "{failed}");
        assert!(failed.message.contains(remedy), "{remedy}: {failed}");
        assert!(!failed.message.contains("Trace ID") && !failed.message.contains("<html>"), "{failed}");
        assert!(server.received().is_some() && server.received().is_none());
    }
}

#[tokio::test]
async fn c3_an_unreachable_authority_is_reported_with_a_remedy() {
    let (server, client) = start(secret(), Vec::new()).await;
    let address = server.address;
    drop(server);
    let failed = failure(client.execute(ArmRequest::GetPool(pool_id())).await.answer);
    assert_eq!(failed.kind, FailureKind::Credential, "{address}");
    assert!(failed.message.contains("check the network, the proxy variables, and cloud"), "{failed}");
    assert!(!failed.message.contains("aka.ms"), "{failed}");
}

#[tokio::test]
async fn c3_missing_credential_files_are_named_with_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let (tenant, client_id) = ("t".to_owned(), "c".to_owned());
    let (token_file, path) = (folder.path().join("token"), folder.path().join("certificate"));
    std::fs::write(&token_file, "assertion").unwrap();
    std::fs::write(&path, test_certificates::make().pem()).unwrap();
    let rows = [
        (
            Identity::WorkloadIdentity {
                tenant: tenant.clone(),
                client_id: client_id.clone(),
                token_file: token_file.clone(),
            },
            token_file,
            "the workload identity could not sign in: the token file ",
            "check AZURE_FEDERATED_TOKEN_FILE or aadFederatedTokenFile",
        ),
        (
            Identity::ClientCertificate { tenant, client_id, path: path.clone(), password: None },
            path,
            "the client certificate could not sign in: the certificate file ",
            "check aadClientCertPath",
        ),
    ];
    for (identity, file, beginning, remedy) in rows {
        let (mut server, client) = start(identity, Vec::new()).await;
        std::fs::remove_file(file).unwrap();
        let failed = failure(client.execute(ArmRequest::GetPool(pool_id())).await.answer);
        assert_eq!(failed.kind, FailureKind::Credential);
        assert!(failed.message.starts_with(beginning) && failed.message.contains(remedy), "{failed}");
        assert!(server.received().is_none());
    }
}

#[tokio::test]
async fn c3_many_calls_make_one_request_for_a_refused_token() {
    let body = r#"{"error_description":"AADSTS7000215: no","error_codes":[7000215]}"#;
    let (mut server, client) = start(secret(), vec![reply(401, "", body), token("never")]).await;
    let client = Arc::new(client);
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { failure(client.execute(ArmRequest::GetPool(pool_id())).await.answer) })
        })
        .collect();
    for call in calls {
        assert!(call.await.unwrap().message.contains("AADSTS7000215"));
    }
    assert!(server.received().is_some() && server.received().is_none());
}

#[test]
fn c3_an_unusable_certificate_fails_the_set_up() {
    let folder = tempfile::tempdir().unwrap();
    let made = test_certificates::make();
    let other = test_certificates::make();
    let elliptic = rcgen::KeyPair::generate().unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let rows = [
        (folder.path().join("none"), None, "cannot be read (No such file"),
        (put("empty", b""), None, "is neither PEM nor PKCS#12"),
        (
            put("pfx", &made.pkcs12()),
            Some("wrong"),
            "is neither PEM nor PKCS#12 that aadClientCertPassword opens",
        ),
        (put("pfx", &made.pkcs12()), None, "is neither PEM nor PKCS#12 that aadClientCertPassword opens"),
        (put("cut", &made.pkcs12()[..200]), Some(PASSWORD), "is neither PEM nor PKCS#12"),
        (put("certificate", made.certificate.pem().as_bytes()), None, "holds no private key"),
        (put("key", made.key.serialize_pem().as_bytes()), None, "holds no certificate of its private key"),
        (
            put("mixed", format!("{}{}", made.key.serialize_pem(), other.certificate.pem()).as_bytes()),
            None,
            "holds no certificate of its private key",
        ),
        (put("elliptic", elliptic.serialize_pem().as_bytes()), None, "that is not RSA"),
        (
            put(
                "encrypted",
                b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            ),
            None,
            "holds an encrypted PEM key",
        ),
        (put("large", &vec![b'x'; (1 << 20) + 1]), None, "is larger than"),
    ];
    for (path, password, reason) in rows {
        let identity = Identity::ClientCertificate {
            tenant: "t".to_owned(),
            client_id: "c".to_owned(),
            path,
            password: password.map(Secret::new),
        };
        let settings = crate::Settings {
            identity,
            endpoint: Url::parse("https://management.test").unwrap(),
            ..super::settings("https://management.test")
        };
        let error = Client::new(settings).expect_err("it must be refused");
        let body = model::redact::chain(&error);
        assert!(body.contains(reason) && body.contains("the certificate file "), "{reason}: {body}");
        assert!(!body.contains(PASSWORD) && !format!("{error:?}").contains(PASSWORD));
    }
}
