//! The real binary with each identity against a login endpoint, an instance metadata service and ARM on this machine,
//! over TLS: it gets a token and uses it (C3), and it never shows a secret, in any failure (C1).

pub mod peer;
mod proxied;
mod repeated;
mod repeater;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use simulator::{Fakes, FileOptions, Files, Settings, Size, World};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use self::peer::{Authority, Peer, ReceivedRequest};
use crate::admin::stage::PROGRAM;
use crate::support::{TEST_TIMEOUT, eventually, log_lines};

/// Secrets that must never appear, in place of the real ones.
const SECRET: &str = "planted/client+secret";
const SECRET_ENCODED: &str = "planted%2Fclient%2Bsecret";
const PASSWORD: &str = "planted-certificate-password";
const ASSERTION: &str = "eyJwbGFudGVkIjoiYXNzZXJ0aW9uIn0.eyJwbGFudGVkIjoiYXNzZXJ0aW9uIn0.cGxhbnRlZA";
const TOKEN: &str = "eyJwbGFudGVkIjoidG9rZW4ifQ.eyJwbGFudGVkIjoidG9rZW4ifQ.cGxhbnRlZC10b2tlbg";
const HEADER: &str = "planted-identity-header";
const SIGNATURE: &str = "planted-signature";
const KUBERNETES_TOKEN: &str = "planted-kubernetes-token";
const MARKERS: [&str; 8] =
    [SECRET, SECRET_ENCODED, PASSWORD, ASSERTION, TOKEN, HEADER, SIGNATURE, KUBERNETES_TOKEN];

/// A log filter with every line of every crate, also of those that are filtered by default.
const FINEST: &str =
    "trace,kube_client=trace,actix_server=trace,typespec_client_core=trace,hyper=trace,rustls=trace";

/// Path of the readiness probe; the controller is not ready while ARM rejects its requests.
const READY: &str = "/readyz?verbose";

/// Time within which a process must end.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// Files, a cluster without Services, and a server that issues tokens and answers as ARM.
struct TestEnvironment {
    folder: TempDir,
    files: Files,
    _fakes: Fakes,
    /// Login endpoint, metadata document and ARM.
    azure: Peer,
    /// The instance metadata service.
    near: Peer,
    log: PathBuf,
}

impl TestEnvironment {
    /// Creates an environment with these keys in the cloud configuration and this behaviour of the authority.
    async fn new(keys: &Value, authority: Authority) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let fakes = Fakes::start(Settings::default()).await.expect("loopback has free ports");
        let world = World::new(Size { services: 0, ..Size::default() }, 1);
        let anywhere = ([127, 0, 0, 1], 0).into();
        let overlay =
            json!({ "identity": "auto", "discovery": { "interval": "5s" }, "log": { "level": "trace" } });
        let options = FileOptions { health: anywhere, admin: anywhere, overlay: Some(overlay) };
        let files = Files::write(folder.path(), &fakes, &world, &options).expect("the folder can be written");
        let azure = Peer::start(Some(folder.path()), authority).await;
        let near = Peer::start(None, authority).await;
        let log = folder.path().join("log");
        let env = Self { folder, files, _fakes: fakes, azure, near, log };
        env.configure(&json!({ "resourceManagerEndpoint": format!("https://localhost:{}", env.azure.port) }));
        env.configure(keys);
        env.edit(&env.files.kubeconfig, |config| {
            config["users"][0]["user"] = json!({ "token": KUBERNETES_TOKEN });
        });
        std::fs::write(env.path("assertion"), ASSERTION).expect("the folder can be written");
        std::fs::write(env.path("certificate"), peer::rsa_certificate()).expect("the folder can be written");
        env
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sets keys of the cloud configuration.
    fn configure(&self, keys: &Value) {
        self.edit(&self.files.cloud_config, |cloud| {
            for (key, value) in keys.as_object().into_iter().flatten() {
                cloud[key] = value.clone();
            }
        });
    }

    fn edit(&self, path: &Path, change: impl FnOnce(&mut Value)) {
        let text = std::fs::read_to_string(path).expect("the simulator has written it");
        let mut value = serde_json::from_str(&text).expect("it is JSON");
        change(&mut value);
        std::fs::write(path, value.to_string()).expect("the folder can be written");
    }

    /// Returns the binary with this environment and nothing from the environment of the tests.
    fn command(&self, name: &str, environment: &[(&str, &str)]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg(name).arg("--cloud-config").arg(&self.files.cloud_config);
        command.arg("--config").arg(&self.files.controller).arg("--kubeconfig").arg(&self.files.kubeconfig);
        command.env_clear().current_dir(self.folder.path()).env("RUST_LOG", FINEST);
        command.env("SSL_CERT_FILE", self.path("ca.pem"));
        for (key, value) in environment {
            let value = value.replace("PORT", &self.near.port.to_string());
            let value = value.replace("AZURE", &format!("https://localhost:{}", self.azure.port));
            command.env(key, value);
        }
        command.kill_on_drop(true).stdin(Stdio::null());
        command
    }

    async fn start(&self, environment: &[(&str, &str)]) -> Child {
        let log = std::fs::File::create(&self.log).expect("the folder can be written");
        let mut command = self.command("run", environment);
        command.stdout(Stdio::null()).stderr(log).spawn().expect("the binary under test")
    }

    fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).expect("the log")
    }

    /// Returns all pages of the listeners.
    async fn shown(&self) -> String {
        let started = eventually("the controller has its listeners", TEST_TIMEOUT, || async {
            let started = log_lines(&self.log).into_iter().find(|line| line["message"] == "started");
            started.ok_or_else(|| self.logged())
        })
        .await;
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        let mut shown = String::new();
        let paths = [
            "/",
            "/openapi.json",
            "/api/v1/status",
            "/api/v1/queues",
            "/api/v1/services",
            "/api/v1/held",
            "/api/v1/lanes",
            "/api/v1/config",
        ];
        let admin = paths.map(|path| (&started["admin"], path));
        let health = ["/metrics", READY, "/livez?verbose"].map(|path| (&started["health"], path));
        for (listener, path) in admin.into_iter().chain(health) {
            let url = format!("http://{}{path}", listener.as_str().expect("an address"));
            let answer = http.get(url).send().await.expect("an answer");
            let status = answer.status().as_u16();
            assert!(status == 200 || (status == 503 && path == READY), "{path}: {status}");
            shown.push_str(&answer.text().await.expect("a body"));
        }
        shown
    }

    async fn end(&self, mut child: Child) {
        let pid = i32::try_from(child.id().expect("it runs")).expect("process ids are small");
        kill_process(Pid::from_raw(pid).expect("not 0"), Signal::TERM).expect("it can be signalled");
        let ended = tokio::time::timeout(END_TIMEOUT, child.wait()).await.expect("it ends");
        assert_eq!(ended.expect("it is a child").code(), Some(0), "{}", self.logged());
    }
}

/// An identity: its keys, its environment, and what the token request must hold.
struct Case {
    keys: fn(&Path) -> Value,
    environment: &'static [(&'static str, &'static str)],
    is_expected: fn(&ReceivedRequest) -> bool,
    kind: &'static str,
}

const CASES: [Case; 4] = [
    Case {
        keys: |_| json!({ "aadClientId": "client", "aadClientSecret": SECRET }),
        environment: &[],
        is_expected: |request| {
            request.body.contains(SECRET_ENCODED)
                && request.body.contains("scope=https%3A%2F%2Faudience.test%2F.default")
        },
        kind: "clientSecret",
    },
    Case {
        keys: |folder| {
            json!({
                "aadClientId": "client", "aadClientCertPath": folder.join("certificate"), "aadClientCertPassword": PASSWORD,
            })
        },
        environment: &[("AZURE_AUTHORITY_HOST", "AZURE/")],
        is_expected: |request| request.body.contains("client_assertion=eyJ"),
        kind: "clientCertificate",
    },
    Case {
        keys: |_| json!({ "useManagedIdentityExtension": false, "aadClientSecret": SECRET }),
        environment: &[("AZURE_FEDERATED_TOKEN_FILE", "assertion"), ("AZURE_CLIENT_ID", "client")],
        is_expected: |request| request.body.contains(ASSERTION),
        kind: "workloadIdentity",
    },
    Case {
        keys: |_| json!({ "useManagedIdentityExtension": true, "userAssignedIdentityID": "user-1" }),
        // Variables that select another metadata service than the virtual machine's.
        environment: &[("IDENTITY_ENDPOINT", "http://127.0.0.1:PORT/msi"), ("IDENTITY_HEADER", HEADER)],
        is_expected: |request| {
            request.line.contains("client_id=user-1")
                && request.line.contains("resource=https%3A%2F%2Faudience.test")
        },
        kind: "managedIdentity",
    },
];

fn assert_unseen(what: &str, text: &str) {
    for marker in MARKERS {
        if let Some(at) = text.find(marker) {
            let around: String = text[..at].chars().rev().take(300).collect();
            let around: String = around.chars().rev().collect();
            panic!("{what} shows {marker}, after: {around}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_each_identity_gets_a_token_without_showing_a_secret() {
    for case in CASES {
        let mut env = TestEnvironment::new(&json!({}), Authority::Gives).await;
        env.configure(&(case.keys)(env.folder.path()));
        let child = env.start(case.environment).await;
        let asks = if case.kind == "managedIdentity" { &mut env.near } else { &mut env.azure };
        asks.until(case.kind, case.is_expected).await;
        env.azure
            .until(case.kind, |request| {
                request.line.contains("/loadBalancers/") && request.head.contains(&format!("Bearer {TOKEN}"))
            })
            .await;
        eventually("the refusal is logged", TEST_TIMEOUT, || async {
            let log = env.logged();
            if log.contains("AuthorizationFailed") { Ok(()) } else { Err(log) }
        })
        .await;
        let shown = env.shown().await;
        env.end(child).await;
        assert_unseen(case.kind, &env.logged());
        assert_unseen(case.kind, &shown);
        assert!(
            env.logged().contains("TRACE") || env.logged().contains("\"trace\""),
            "the finest level is on"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_a_token_is_renewed_early_with_the_current_account_token() {
    let mut env = TestEnvironment::new(&json!({}), Authority::GivesForAMinute).await;
    let [_, _, case, _] = &CASES;
    env.configure(&(case.keys)(env.folder.path()));
    let child = env.start(case.environment).await;
    env.azure.until("the first token", case.is_expected).await;
    let renewed = format!("{ASSERTION}-as-the-kubelet-has-renewed-it");
    std::fs::write(env.path("assertion"), &renewed).expect("the folder can be written");
    env.azure.until("the second token", |request| request.body.contains(&renewed)).await;
    env.end(child).await;
    assert!(!env.logged().contains("no token"), "no call lacked a token: {}", env.logged());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_no_secret_is_seen_when_a_login_endpoint_echoes_a_request() {
    for case in CASES {
        let env = TestEnvironment::new(&json!({}), Authority::Repeats).await;
        env.configure(&(case.keys)(env.folder.path()));
        let child = env.start(case.environment).await;
        eventually("the refusal is logged", TEST_TIMEOUT, || async {
            let log = env.logged();
            if log.contains("could not sign in") { Ok(()) } else { Err(log) }
        })
        .await;
        let shown = env.shown().await;
        env.end(child).await;
        assert_unseen(case.kind, &env.logged());
        assert_unseen(case.kind, &shown);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_check_config_shows_every_identity_and_no_secret() {
    for case in CASES {
        let env = TestEnvironment::new(&json!({}), Authority::Gives).await;
        env.configure(&(case.keys)(env.folder.path()));
        let mut environment = case.environment.to_vec();
        environment.push(("AZURE_CLIENT_SECRET", SECRET));
        let Output { status, stdout, stderr } =
            env.command("check-config", &environment).output().await.expect("the binary under test");
        let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{text}");
        if case.kind != "clientCertificate" {
            assert!(text.contains(&format!("  kind: {}  # ", case.kind)), "{text}");
        }
        assert_unseen(case.kind, &text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_no_secret_is_seen_in_a_refused_configuration() {
    let wrong = json!({
        "aadClientId": "client", "aadClientSecret": [SECRET], "aadClientCertPassword": { "x": PASSWORD },
        "resourceManagerEndpoint": format!("https://localhost/?sig={SIGNATURE}"),
    });
    let env = TestEnvironment::new(&wrong, Authority::Gives).await;
    for name in ["check-config", "run"] {
        let environment =
            [("AZURE_AUTHORITY_HOST", "https://u:planted-signature@login.test/?sig=planted-signature")];
        let Output { status, stdout, stderr } =
            env.command(name, &environment).output().await.expect("the binary under test");
        let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert_eq!(status.code(), Some(1), "{text}");
        for key in ["aadClientSecret", "aadClientCertPassword", "resourceManagerEndpoint"] {
            assert!(text.contains(key), "{key}: {text}");
        }
        assert_unseen(name, &text);
    }
}
