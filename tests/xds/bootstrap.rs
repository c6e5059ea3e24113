//! The bootstrap: errors of an unusable one, and TLS and tokens of a usable one (X2, C1).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use simulator::control_plane::{ControlPlane, Ending, Identity, Kind, RecordedRequest};
use tempfile::TempDir;

use super::stage::{BALANCER, FREE, Plan, TOKEN, endpoints_at};
use crate::admin::stage::Prepared;
use crate::support::certificates::Authority;

const BEFORE: &str = "10.9.0.1";
const GOOD: &str = "10.1.0.1";

/// Returns the keys of a configuration with one listed pool and this bootstrap.
fn keys(bootstrap: Option<&Path>) -> Value {
    let bootstrap = bootstrap.map_or(json!(""), |path| json!(path));
    json!({
        "pools": [{ "loadBalancer": BALANCER, "backendPool": "web", "source": "eds:web" }],
        "xds": { "bootstrap": bootstrap },
        "http": { "csdsListen": FREE.to_string() },
    })
}

/// Asserts that both commands refuse this bootstrap with these texts, and write nothing.
async fn is_refused(bootstrap: Option<&str>, words: &[&str]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = bootstrap.map(|text| written(&folder, "bootstrap.json", text));
    both_refuse(file.as_deref(), words).await;
}

async fn both_refuse(file: Option<&Path>, words: &[&str]) {
    let (prepared, keys) = (Prepared::new(1).await, keys(file));
    let checked = prepared.check_config(&keys).await;
    let counters = prepared.fakes.counters().await;
    assert_eq!(counters.pool_puts + counters.load_balancer_gets, 0, "check-config opens nothing");
    let stderr = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.stdout.is_empty(), "{checked:?}");
    let (status, output) = prepared.ends(&keys).await;
    for (code, output) in [(checked.status.code(), stderr), (status.code(), output)] {
        assert_eq!(code, Some(1), "{output}");
        assert!(!output.contains("panicked") && output.lines().count() < 25, "{output}");
        for word in words {
            assert!(output.contains(word), "the output lacks {word:?}: {output}");
        }
    }
}

fn written(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("the folder can be written");
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_without_a_bootstrap_nothing_starts_and_the_key_is_named() {
    is_refused(None, &["xds.bootstrap", "GRPC_XDS_BOOTSTRAP", "no xDS bootstrap is given"]).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("nowhere.json");
    both_refuse(Some(&file), &["nowhere.json", "cannot be read", "check its path and its mount"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_malformed_bootstrap_is_refused_with_its_field() {
    is_refused(Some("{\"xds_servers\": ["), &["bootstrap.json", "is not JSON", "line 1"]).await;
    is_refused(Some("{}"), &["xds_servers", "list at least one server"]).await;
    let without = r#"{"xds_servers": [{"channel_creds": [{"type": "insecure"}]}], "node": {"id": "a"}}"#;
    is_refused(Some(without), &["xds_servers[0].server_uri", "give the server as host:port"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_bootstrap_without_usable_credentials_is_refused() {
    let of = |creds: Value| json!({ "xds_servers": [{ "server_uri": "localhost:1", "channel_creds": creds }], "node": { "id": "a" } });
    let words = ["xds_servers[0].channel_creds", "list one of insecure or tls"];
    is_refused(Some(&of(json!([{ "type": "google_default" }])).to_string()), &words).await;
    let mut unsafe_token = of(json!([{ "type": "insecure" }]));
    unsafe_token["xds_servers"][0]["call_creds"] =
        json!([{ "type": "jwt_token_file", "config": { "jwt_token_file": "/token" } }]);
    let words = ["xds_servers[0].call_creds", "use channel_creds of type tls"];
    is_refused(Some(&unsafe_token.to_string()), &words).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_bootstrap_is_read_only_for_listed_pools() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bootstrap = json!({ "xds_servers": [{
        "server_uri": "localhost:1",
        "channel_creds": [{ "type": "insecure" }],
        "server_features": ["ignore_resource_deletion"],
    }] });
    let file = written(&folder, "bootstrap.json", &bootstrap.to_string());
    let prepared = Prepared::new(1).await;
    let checked = prepared.check_config(&keys(Some(&file))).await;
    let output = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{output}");
    for words in ["ignore_resource_deletion is deprecated", "node.id is missing"] {
        assert!(output.contains(words), "{output}");
    }
    let mut none = keys(Some(&folder.path().join("nowhere.json")));
    none["pools"] = json!([]);
    assert!(prepared.check_config(&none).await.status.success());
    let stage = prepared.start(&none).await;
    stage.wait_until_ready().await;
    assert_eq!(stage.csds, "", "there is nothing to show");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a27_without_a_configured_bootstrap_grpc_variables_count() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let of = |features: Value| {
        json!({ "xds_servers": [{
        "server_uri": "localhost:1", "channel_creds": [{ "type": "insecure" }], "server_features": features,
    }] })
    };
    let file = written(&folder, "of-grpc.json", &of(json!(["ignore_resource_deletion"])).to_string());
    let (file, text) = (file.as_os_str(), of(json!([])).to_string());
    let (in_file, in_text) = (("GRPC_XDS_BOOTSTRAP", file), ("GRPC_XDS_BOOTSTRAP_CONFIG", OsStr::new(&text)));
    let prepared = Prepared::new(1).await;
    // Only the file has a feature with a warning.
    for (variables, is_of_file) in
        [(vec![in_file], true), (vec![in_text], false), (vec![in_text, in_file], true)]
    {
        let checked = prepared.check_config_in(&keys(None), &variables).await;
        let output = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success() && output.contains("node.id is missing"), "{variables:?}: {output}");
        assert_eq!(output.contains("ignore_resource_deletion"), is_of_file, "{variables:?}: {output}");
    }
    let named = written(&folder, "named.json", &text);
    let checked = prepared.check_config_in(&keys(Some(&named)), &[in_file]).await;
    let output = String::from_utf8_lossy(&checked.stderr);
    assert!(
        checked.status.success() && !output.contains("ignore_resource_deletion"),
        "xds.bootstrap: {output}"
    );
}

/// The files of a control plane with TLS that accepts only clients with certificates of `ours`.
struct Secured {
    folder: TempDir,
    ours: Authority,
    plane: ControlPlane,
}

impl Secured {
    async fn start() -> Self {
        let ours = Authority::new("control plane");
        let pair = ours.server();
        let identity =
            Identity { certificates: pair.certificate, key: pair.key, client_roots: Some(ours.pem()) };
        let plane = ControlPlane::start_tls(&identity).await.expect("loopback has free ports");
        plane.set(Kind::Endpoints, "web", endpoints_at("web", &[GOOD])).await;
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder, ours, plane }
    }

    /// Writes the files of the trusted authority, the client certificate and the token, and returns the server entry
    /// with them.
    fn server(&self, trusted: &Authority, token: &str) -> Value {
        let own = self.ours.client("pools");
        let ca = written(&self.folder, "ca.pem", &trusted.pem());
        let certificate = written(&self.folder, "own.pem", &own.certificate);
        let key = written(&self.folder, "own.key", &own.key);
        let token = written(&self.folder, "token", token);
        json!({
            "server_uri": self.plane.address().to_string(),
            "channel_creds": [{ "type": "tls", "config": {
                "ca_certificate_file": ca, "certificate_file": certificate, "private_key_file": key,
            } }],
            "call_creds": [{ "type": "jwt_token_file", "config": { "jwt_token_file": token } }],
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_tls_and_tokens_are_read_for_each_stream_and_never_shown() {
    let secured = Secured::start().await;
    let plane = &secured.plane;
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let env = plan.start(&[secured.server(&secured.ours, "first-secret-token\n")]).await;
    env.stage.post("/api/v1/log-level", TOKEN, &json!({ "level": "trace" })).await;
    env.wait_for_members("web", &[GOOD]).await;
    let sent = |journal: &[RecordedRequest]| journal.last().and_then(|request| request.authorization.clone());
    assert_eq!(sent(&plane.journal().await).as_deref(), Some("Bearer first-secret-token"));

    // The controller reads rotated files without a signal.
    secured.server(&secured.ours, "second-secret-token");
    plane.cut(Ending::Connections).await;
    let second = Some("Bearer second-secret-token".to_owned());
    plane.wait_until(|journal| sent(journal) == second).await.expect("the new token");
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &["10.1.0.2"])).await;
    env.wait_for_members("web", &["10.1.0.2"]).await;

    // An authority that did not sign the server's certificate is rejected.
    secured.server(&Authority::new("another authority"), "third-secret-token");
    plane.cut(Ending::Connections).await;
    let note = env.wait_for_note("web", "ca.pem").await;
    assert!(note.contains("the stream ended without a response: "), "{note}");
    env.assert_no_codes_shown(["web"]).await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &["10.1.0.2"], 2).await;
    secured.server(&secured.ours, "third-secret-token");
    env.wait_for_no_error("web").await;
    let log = format!("{:?}", env.stage.log());
    assert!(log.contains("TRACE"), "the log has lines of all levels");
    assert!(!log.contains("secret-token"), "a token was logged");
    let shown = env.stage.admin(reqwest::Method::GET, "/api/v1/queues/kubernetes/web").await.text;
    assert!(!shown.contains("secret-token"), "{shown}");
    env.assert_no_logged_errors();
}
