//! The real binary behind the proxies of the environment and the kubeconfig. `run`, `check`, `snapshot` and `restore`
//! use them, and connect directly if `NO_PROXY` covers the target.

use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use crate::commands::fixture::{Ended, Fixture};
use crate::signing_in::peer;
use crate::support::gateway::{Gateway, LOGIN, Speaks};
use crate::support::{TEST_TIMEOUT, eventually, log_lines};
use crate::xds::stage::control_plane;

/// A name that only a proxy resolves.
const NAME: &str = "api.cluster.test";
/// An address of this machine that does not count as loopback.
const HERE: &str = "0.0.0.0";
/// The address of a proxy that does not run.
const DEAD: &str = "http://127.0.0.1:9";

/// Every variable that names a proxy, or targets without one.
const VARIABLES: [&str; 8] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
];

/// Returns the port of the API server.
fn port(fixture: &Fixture) -> &str {
    fixture.fakes.kubernetes_url.rsplit(':').next().expect("it has a port")
}

/// Sets the cluster of the kubeconfig.
fn cluster(fixture: &Fixture, cluster: &Value) {
    let path = &fixture.files.kubeconfig;
    let text = std::fs::read_to_string(path).expect("the simulator has written it");
    let mut file: Value = serde_json::from_str(&text).expect("it is JSON");
    file["clusters"][0]["cluster"] = cluster.clone();
    std::fs::write(path, file.to_string()).expect("the folder can be written");
}

/// Returns a command with these proxy variables and no others.
fn command(fixture: &Fixture, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = fixture.command(name, arguments);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied());
    command
}

/// Runs a command to its end.
async fn ended(fixture: &Fixture, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
    let output =
        command(fixture, name, arguments, environment).output().await.expect("the binary under test");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs the controller until it is ready, and stops it. Returns its log.
async fn ready(fixture: &Fixture, environment: &[(&str, &str)]) -> String {
    let path = fixture.folder.path().join("log");
    let log = std::fs::File::create(&path).expect("the folder can be written");
    let mut child = command(fixture, "run", &[], environment)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the binary under test");
    let logged = || std::fs::read_to_string(&path).expect("the log");
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    eventually("the controller is ready", TEST_TIMEOUT, || async {
        let started = log_lines(&path).into_iter().find(|line| line["message"] == "started");
        let started = started.ok_or_else(logged)?;
        let url = format!("http://{}/readyz?verbose", started["health"].as_str().expect("an address"));
        let answer = http.get(url).send().await.map_err(|error| error.to_string())?;
        if answer.status().as_u16() == 200 { Ok(()) } else { Err(logged()) }
    })
    .await;
    let id = i32::try_from(child.id().expect("it runs")).expect("process ids are small");
    kill_process(Pid::from_raw(id).expect("not 0"), Signal::TERM).expect("it can be signalled");
    let ended = tokio::time::timeout(TEST_TIMEOUT, child.wait()).await.expect("it ends");
    assert_eq!(ended.expect("it is a child").code(), Some(0), "{}", logged());
    logged()
}

/// Terminates TLS in front of this port, with `ca.pem` in this folder. Returns its own port.
async fn with_tls(folder: &Path, port: &str) -> u16 {
    let target = ("127.0.0.1", port.parse::<u16>().expect("a port"));
    let acceptor = peer::acceptor(folder, &[NAME]);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has free ports");
    let at = listener.local_addr().expect("it is bound").port();
    drop(tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            drop(tokio::spawn(async move {
                let mut client = acceptor.accept(client).await.ok()?;
                let mut server = TcpStream::connect(target).await.ok()?;
                copy_bidirectional(&mut client, &mut server).await.ok()
            }));
        }
    }));
    at
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_ready_through_the_proxy_of_the_environment() {
    for (variable, scheme, speaks, login) in [
        ("HTTPS_PROXY", "http://", Speaks::Http, ""),
        ("https_proxy", "", Speaks::HttpWithLogin, LOGIN),
        ("ALL_PROXY", "socks5://", Speaks::Socks5WithLogin, LOGIN),
        ("all_proxy", "socks5h://", Speaks::Socks5, ""),
    ] {
        let (fixture, gateway) = (Fixture::new(1).await, Gateway::start(speaks).await);
        let port = with_tls(fixture.folder.path(), port(&fixture)).await;
        let server = format!("https://{NAME}:{port}");
        cluster(&fixture, &json!({ "server": server, "certificate-authority": fixture.path("ca.pem") }));
        let login = if login.is_empty() { String::new() } else { format!("{login}@") };
        let url = format!("{scheme}{login}{}", gateway.address);
        let log =
            ready(&fixture, &[(variable, &url), ("HTTP_PROXY", DEAD), ("NO_PROXY", "other.test")]).await;
        let targets = gateway.targets();
        assert!(!targets.is_empty(), "{variable}");
        assert!(targets.iter().all(|target| *target == format!("{NAME}:{port}")), "{targets:?}");
        assert!(log.contains("the API server is reached through a proxy") && log.contains(variable), "{log}");
        assert!(!log.contains("planted-for-proxies"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_ready_through_the_proxy_of_the_kubeconfig() {
    for (scheme, speaks) in [("http", Speaks::Http), ("socks5", Speaks::Socks5WithLogin)] {
        let (fixture, gateway) = (Fixture::new(1).await, Gateway::start(speaks).await);
        let server = format!("http://{NAME}:{}", port(&fixture));
        let url = format!("{scheme}://{LOGIN}@{}", gateway.address);
        cluster(&fixture, &json!({ "server": server, "proxy-url": url }));
        // The kubeconfig takes precedence over the environment.
        let environment = [("HTTP_PROXY", DEAD), ("HTTPS_PROXY", DEAD), ("NO_PROXY", "*")];
        ready(&fixture, &environment).await;
        let targets = gateway.targets();
        assert!(!targets.is_empty() && targets.iter().all(|target| target.starts_with(NAME)), "{targets:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_ready_through_a_proxy_with_tls_that_it_trusts() {
    let fixture = Fixture::new(1).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tls = peer::acceptor(folder.path(), &["127.0.0.1"]);
    let gateway = Gateway::secured(Speaks::HttpWithLogin, tls).await;
    let trusted = folder.path().join("ca.pem").display().to_string();
    let port = with_tls(fixture.folder.path(), port(&fixture)).await;
    let other = fixture.path("ca.pem");
    cluster(&fixture, &json!({ "server": format!("https://{NAME}:{port}"), "certificate-authority": other }));
    let url = format!("https://{LOGIN}@{}", gateway.address);
    ready(&fixture, &[("HTTPS_PROXY", &url), ("SSL_CERT_FILE", &trusted)]).await;
    let targets = gateway.targets();
    assert!(!targets.is_empty() && targets.iter().all(|target| *target == format!("{NAME}:{port}")));
    // The certificate authority of the cluster is not that of the proxy.
    let environment = [("HTTPS_PROXY", url.as_str()), ("SSL_CERT_FILE", other.as_str())];
    let ended = ended(&fixture, "check", &["--within", "20s"], &environment).await;
    let expected = "the system's certificate store or SSL_CERT_FILE must trust the proxy";
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stdout.contains("failed to reach the proxy https://127.0.0.1")
            && ended.stdout.contains(expected)
    );
    assert!(!format!("{ended:?}").contains("planted-for-proxies"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_connects_directly_if_no_proxy_covers_the_api_server() {
    let (fixture, gateway) = (Fixture::new(1).await, Gateway::start(Speaks::Http).await);
    cluster(&fixture, &json!({ "server": format!("http://{HERE}:{}", port(&fixture)) }));
    let url = format!("http://{}", gateway.address);
    let one = format!("x.test, {HERE}:{}", port(&fixture));
    for (name, no) in [("NO_PROXY", "10.0.0.0/8,0.0.0.0/8"), ("no_proxy", &one), ("NO_PROXY", "*")] {
        ready(&fixture, &[("ALL_PROXY", &url), ("HTTP_PROXY", &url), (name, no)]).await;
        assert_eq!(gateway.targets(), Vec::<String>::new(), "{no}");
    }
    ready(&fixture, &[("HTTP_PROXY", &url), ("NO_PROXY", "10.0.0.0/8")]).await;
    assert!(!gateway.targets().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_use_the_proxy_as_run_does() {
    let mut fixture = Fixture::new(2).await;
    let gateway = Gateway::start(Speaks::HttpWithLogin).await;
    let url = format!("http://{LOGIN}@{}", gateway.address);
    let through =
        (format!("http://{NAME}:{}", port(&fixture)), [("HTTP_PROXY", url.as_str()), ("HTTPS_PROXY", DEAD)]);
    let past =
        (format!("http://{HERE}:{}", port(&fixture)), [("ALL_PROXY", DEAD), ("NO_PROXY", "0.0.0.0/8")]);
    for (server, environment) in [through, past] {
        let before = gateway.targets().len();
        cluster(&fixture, &json!({ "server": server }));
        let file = fixture.path(&format!("pools-{before}.json"));
        for (name, arguments) in [
            ("snapshot", vec!["--output", &file, "--configmap"]),
            ("check", vec!["--within", "60s"]),
            ("restore", vec![&file, "--yes"]),
        ] {
            let tunnels = gateway.targets().len();
            let ended = ended(&fixture, name, &arguments, &environment).await;
            assert_eq!(ended.code, Some(0), "{name} {environment:?}: {ended:?}");
            assert_eq!(gateway.targets().len() > tunnels, server.contains(NAME), "{name}");
        }
        fixture.reset_baseline().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unusable_proxy_is_named_with_the_remedy() {
    let fixture = Fixture::new(1).await;
    let file = fixture.path("pools.json");
    assert_eq!(ended(&fixture, "snapshot", &["--output", &file], &[]).await.code, Some(0));
    let through = |scheme: &str| json!({ "server": format!("{scheme}://{NAME}:{}", port(&fixture)) });
    let named = |url: &str| json!({ "server": fixture.fakes.kubernetes_url, "proxy-url": url });
    let field = "proxy-url of the kubeconfig's cluster";
    for (config, environment, expected) in [
        (
            through("https"),
            vec![("HTTPS_PROXY", "ftp://u:hidden@p")],
            "HTTPS_PROXY has the unknown scheme ftp".to_owned(),
        ),
        (
            through("http"),
            vec![("http_proxy", "http://u:hidden@"), ("NO_PROXY", "other.test")],
            "http_proxy is not an address".to_owned(),
        ),
        (named("u:hidden@p:3128"), vec![], format!("{field} has no scheme")),
        (named("quic://u:hidden@p"), vec![("NO_PROXY", "*")], format!("{field} has the unknown scheme quic")),
    ] {
        cluster(&fixture, &config);
        let commands = [
            ("run", vec![]),
            ("check", vec![]),
            ("snapshot", vec!["--output", &file, "--configmap", "--force"]),
            ("restore", vec![&file, "--yes"]),
        ];
        for (name, arguments) in commands {
            let ended = ended(&fixture, name, &arguments, &environment).await;
            let text = format!("{}{}", ended.stdout, ended.stderr);
            assert_eq!(ended.code, Some(1), "{name}: {text}");
            assert!(
                text.contains(&expected) && text.contains("such as http://proxy.example:3128"),
                "{name}: {text}"
            );
            assert!(!text.contains("hidden"), "{name}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unused_broken_proxy_is_no_error() {
    let fixture = Fixture::new(1).await;
    cluster(&fixture, &json!({ "server": format!("http://{HERE}:{}", port(&fixture)) }));
    ready(&fixture, &[("HTTPS_PROXY", "ftp://p")]).await;
    ready(&fixture, &[("ALL_PROXY", "ftp://p"), ("NO_PROXY", "0.0.0.0/8")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_refuses_is_named_with_the_remedy() {
    let (fixture, gateway) = (Fixture::new(1).await, Gateway::start(Speaks::HttpWithLogin).await);
    cluster(&fixture, &json!({ "server": format!("http://{NAME}:{}", port(&fixture)) }));
    let url = format!("http://operator:planted-and-wrong@{}", gateway.address);
    for (url, expected) in [
        (url.as_str(), "refuses the user and password"),
        (&format!("http://{}", gateway.address), "requires a user and password"),
        (DEAD, "failed to reach the proxy http://127.0.0.1:9 (HTTP_PROXY)"),
    ] {
        let ended = ended(&fixture, "check", &["--within", "20s"], &[("HTTP_PROXY", url)]).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(
            ended.stdout.contains(expected) && ended.stdout.contains("HTTP_PROXY"),
            "{expected}: {ended:?}"
        );
        assert!(!format!("{ended:?}").contains("planted-and-wrong"), "{ended:?}");
    }
    assert_eq!(gateway.targets(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_planes_are_reached_through_the_proxy_as_with_grpc() {
    let (plane, gateway) = (control_plane().await, Gateway::start(Speaks::Http).await);
    let pools =
        json!([{ "loadBalancer": simulator::CLUSTER_NAME, "backendPool": "edge", "source": "eds:edge" }]);
    let fixture = Fixture::with(1, &json!({ "pools": pools, "http": { "csdsListen": "127.0.0.1:0" } })).await;
    let port = plane.address().port();
    let start = |name: &str| {
        let server =
            json!({ "server_uri": format!("{name}:{port}"), "channel_creds": [{ "type": "insecure" }] });
        let bootstrap = json!({ "xds_servers": [server], "node": { "id": "behind-a-proxy" } }).to_string();
        let url = format!("http://{}", gateway.address);
        let environment =
            [("HTTPS_PROXY", url.as_str()), ("NO_PROXY", HERE), ("GRPC_XDS_BOOTSTRAP_CONFIG", &bootstrap)];
        let log =
            std::fs::File::create(fixture.folder.path().join("log")).expect("the folder can be written");
        let mut command = command(&fixture, "run", &[], &environment);
        command.stdout(Stdio::null()).stderr(log).spawn().expect("the binary under test")
    };
    let controller = start(HERE);
    let log = || std::fs::read_to_string(fixture.folder.path().join("log")).expect("the log");
    let edge =
        plane.wait_until(|journal| journal.iter().any(|it| it.names.iter().any(|name| name == "edge"))).await;
    assert!(edge.is_ok(), "{edge:?}: {}", log());
    assert_eq!(gateway.targets(), Vec::<String>::new());
    drop(controller);
    let streams = plane.streams().await.opened_us.len();
    let _controller = start("plane.cluster.test");
    let opened = plane.wait_for_streams(|now| now.opened_us.len() > streams).await;
    assert!(opened.is_ok(), "{opened:?}: {}", log());
    assert_eq!(gateway.targets().first(), Some(&format!("plane.cluster.test:{port}")));
}
