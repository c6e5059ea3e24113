//! The commands of the real binary (docs/design/surface.md, commands): output, failures, exit codes.

pub mod check;
mod export;
pub mod fixture;
mod migrate;
mod printable;
mod restore;
mod retire;
mod simulate;
mod snapshot;
mod sources;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::admin::stage::{PROGRAM, Stage};

/// Maximum number of lines of an error.
const ONE_SCREEN: usize = 25;

/// Maximum time in which a controller without writes in flight ends, on a busy machine.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// A folder with files for a command.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).expect("the folder can be written");
        path
    }
}

/// Returns the binary with these arguments and without the environment of the tests.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdin(Stdio::null());
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        let reaches_in = ["POOL_CONTROLLER_", "AZURE_", "KUBERNETES_", "POD_", "DEPLOYMENT_"]
            .iter()
            .any(|head| name.starts_with(head));
        if reaches_in || name == "KUBECONFIG" || name == "RUST_LOG" {
            command.env_remove(&key);
        }
    }
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the binary under test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

/// Asserts an error with these texts: exit code 1, no standard output, at most one screen, no panic.
fn refused(arguments: &[&str], words: &[&str]) -> String {
    let Output { status, stdout, stderr } = run(arguments);
    let output = text(&stderr);
    assert_eq!((status.code(), text(&stdout).as_str()), (Some(1), ""), "{arguments:?}: {output}");
    assert!(!output.contains("panicked") && !output.contains("RUST_BACKTRACE"), "{output}");
    assert!(output.lines().count() <= ONE_SCREEN, "{output}");
    assert!(output.contains("error: "), "{output}");
    for word in words {
        assert!(output.contains(word), "the output of {arguments:?} lacks {word:?}: {output}");
    }
    output
}

/// Returns a cloud configuration for ARM on a loopback port without a listener.
fn cloud() -> Value {
    json!({
        "cloud": "AzurePublicCloud", "resourceManagerEndpoint": "http://127.0.0.1:9",
        "tenantId": "00000000-0000-0000-0000-000000000001", "subscriptionId": "00000000-0000-0000-0000-000000000002",
        "resourceGroup": "rg", "location": "eastus", "vnetName": "vnet", "vnetResourceGroup": "rg",
        "loadBalancerSku": "standard", "loadBalancerBackendPoolConfigurationType": "nodeIP",
        "multipleStandardLoadBalancerConfigurations": [{ "name": "kubernetes", "primaryVMSet": "vmss" }],
    })
}

/// Configures workload identity in the public cloud.
fn signs_in(cloud: &mut Value) {
    cloud.as_object_mut().expect("an object").remove("resourceManagerEndpoint");
    cloud["useFederatedWorkloadIdentityExtension"] = json!(true);
    cloud["aadClientId"] = json!("11111111-1111-1111-1111-111111111111");
    cloud["aadFederatedTokenFile"] = json!("/var/run/secrets/azure/tokens/azure-identity-token");
}

const KUBECONFIG: &str = r#"{"apiVersion":"v1","kind":"Config","current-context":"c",
    "clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:9"}}],
    "users":[{"name":"c","user":{"token":"t"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}]}"#;

#[test]
fn version_prints_name_and_version() {
    let output = run(&["version"]);
    assert!(output.status.success());
    let expected = format!("azure-backend-pool-controller {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((text(&output.stdout), text(&output.stderr)), (expected, String::new()));
}

#[test]
fn c1_check_config_prints_effective_values_and_no_secret() {
    let folder = Folder::new();
    let mut cloud = cloud();
    signs_in(&mut cloud);
    cloud["aadClientSecret"] = json!("swordfish-secret");
    let cloud = folder.write("azure.json", &cloud.to_string());
    let controller = folder.write("controller.yaml", "batching: {quietPeriod: 250ms}\n");
    let output = run(&["check-config", "--cloud-config", path(&cloud), "--config", path(&controller)]);
    let (shown, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    assert!(shown.contains("quietPeriod") && shown.contains("250ms"), "{shown}");
    assert!(shown.contains("minInterval"), "defaults are printed too: {shown}");
    assert!(!shown.contains("swordfish") && !stderr.contains("swordfish"), "{shown}{stderr}");
    assert!(shown.contains(config::REDACTED), "{shown}");
}

#[test]
fn c2_check_config_lists_the_changes_by_compatibility() {
    let folder = Folder::new();
    let mut cloud = cloud();
    signs_in(&mut cloud);
    cloud["cloudProviderRateLimit"] = json!(true);
    let cloud = folder.write("azure.json", &cloud.to_string());
    let controller =
        folder.write("controller.yaml", "compatibility: upstream\nbatching: {quietPeriod: 250ms}\n");
    let output = run(&["check-config", "--cloud-config", path(&cloud), "--config", path(&controller)]);
    let (shown, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    for line in
        ["quietPeriod: 250ms  # file", "maxDelay: 30s  # compatibility", "etagRounds: 1  # compatibility"]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let warnings: Vec<&str> = stderr.lines().filter(|line| line.starts_with("warning: ")).collect();
    assert_eq!(warnings.len(), 2, "{stderr}");
    assert!(
        warnings
            .iter()
            .any(|line| line.contains("batching.quietPeriod: deviates from compatibility: upstream")),
        "{stderr}"
    );
    assert!(
        warnings.iter().any(|line| line.contains("cloudProviderRateLimit: 1 reads per second are too few")),
        "{stderr}"
    );
}

#[test]
fn restore_checks_the_file_before_the_terminal() {
    let folder = Folder::new();
    let output = refused(&["restore", "/nowhere/snapshot.json"], &["failed to read /nowhere/snapshot.json"]);
    assert!(!output.contains("terminal"), "{output}");
    let broken = folder.write("snapshot.json", "{");
    let output = refused(&["restore", path(&broken)], &["snapshot.json cannot be used"]);
    assert!(!output.contains("terminal"), "{output}");
}

#[test]
fn c1_check_config_refuses_the_identity_that_run_would_refuse() {
    let folder = Folder::new();
    let mut cloud = cloud();
    signs_in(&mut cloud);
    cloud["useFederatedWorkloadIdentityExtension"] = json!(false);
    let cloud = folder.write("azure.json", &cloud.to_string());
    let words = ["identity: found no credentials", "useManagedIdentityExtension"];
    refused(&["check-config", "--cloud-config", path(&cloud)], &words);
    let words = ["write NAMESPACE/NAME, such as kube-system/azure-cloud-provider"];
    let arguments = ["check-config", "--cloud-config-secret=azure-cloud-provider"];
    let output = run(&arguments);
    assert!(words.iter().all(|word| text(&output.stderr).contains(word)), "{}", text(&output.stderr));
}

#[test]
fn c1_check_config_lists_all_problems_with_remedies() {
    let folder = Folder::new();
    let mut cloud = cloud();
    cloud["subscriptionId"] = Value::Null;
    cloud["loadBalancerBackendPoolUpdateMaxRetries"] = json!("many");
    let cloud = folder.write("azure.json", &cloud.to_string());
    let yaml = "batching:\n  quietPeriod: fast\n  quietPeriods: 1s\ndiscovery: {interval: 1s}\n";
    let controller = folder.write("controller.yaml", yaml);
    let output = refused(
        &["check-config", "--cloud-config", path(&cloud), "--config", path(&controller)],
        &[
            "subscriptionId",
            "loadBalancerBackendPoolUpdateMaxRetries",
            "batching.quietPeriod: ",
            "batching.quietPeriods: ",
            "discovery.interval",
        ],
    );
    assert!(output.contains("controller.yaml:2"), "lines are named: {output}");
    let problems: Vec<&str> = output.lines().filter(|line| line.starts_with("- ")).collect();
    assert!(problems.len() >= 5, "{output}");
    for problem in problems {
        assert!(
            problem.contains("found ") && problem.contains("expected ") && problem.contains("; "),
            "{problem}"
        );
    }
}

#[test]
fn run_refuses_unusable_arguments_with_a_remedy() {
    let folder = Folder::new();
    let good = folder.write("azure.json", &cloud().to_string());
    let anonymous = "identity: anonymous\nhttp: {healthListen: '127.0.0.1:0', adminListen: '127.0.0.1:0'}\n";
    let anonymous = folder.write("anonymous.yaml", anonymous);
    let kubeconfig = folder.write("kubeconfig", KUBECONFIG);
    let nonsense = folder.write("nonsense", "{not: [a kubeconfig");
    let mut certificate = cloud();
    certificate["aadClientCertPath"] = json!("/nowhere/certificate");
    certificate["aadClientId"] = json!("11111111-1111-1111-1111-111111111111");
    certificate.as_object_mut().expect("an object").remove("resourceManagerEndpoint");
    let certificate = folder.write("certificate.json", &certificate.to_string());
    let mut public = cloud();
    public.as_object_mut().expect("an object").remove("resourceManagerEndpoint");
    let public = folder.write("public.json", &public.to_string());
    let run = |cloud: &Path, kubeconfig: &str, config: &Path, words: &[&str]| {
        let arguments =
            ["run", "--cloud-config", path(cloud), "--kubeconfig", kubeconfig, "--config", path(config)];
        refused(&arguments, words)
    };
    let config = path(&kubeconfig);
    let nowhere = Path::new("/nowhere/azure.json");
    run(nowhere, config, &anonymous, &["/nowhere/azure.json", "check the path, or mount the file there"]);
    run(
        &good,
        config,
        Path::new("/nowhere/controller.yaml"),
        &["/nowhere/controller.yaml", "check the path"],
    );
    run(&good, "/nowhere/kubeconfig", &anonymous, &["failed to read kubeconfig /nowhere/kubeconfig"]);
    run(&good, path(&nonsense), &anonymous, &["failed to read kubeconfig", path(&nonsense)]);
    let auto = folder.write("auto.yaml", "http: {healthListen: '127.0.0.1:0', adminListen: '127.0.0.1:0'}\n");
    run(
        &certificate,
        config,
        &auto,
        &["identity could not be set up: the certificate file /nowhere/certificate"],
    );
    run(&public, config, &anonymous, &["identity", "anonymous", "loopback"]);
}

#[test]
fn run_names_the_listener_whose_port_is_taken() {
    let folder = Folder::new();
    let (cloud, kubeconfig) =
        (folder.write("azure.json", &cloud().to_string()), folder.write("kubeconfig", KUBECONFIG));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let taken = taken.local_addr().map(|address| (address, taken)).expect("a bound listener has an address");
    for (key, other) in [("healthListen", "adminListen"), ("adminListen", "healthListen")] {
        let address = taken.0;
        let yaml = format!("identity: anonymous\nhttp: {{{key}: '{address}', {other}: '127.0.0.1:0'}}\n");
        let config = folder.write("controller.yaml", &yaml);
        let arguments = [
            "run",
            "--cloud-config",
            path(&cloud),
            "--kubeconfig",
            path(&kubeconfig),
            "--config",
            path(&config),
        ];
        let listener = format!("http.{key}: failed to listen on {address}");
        refused(&arguments, &[&listener, "is the port in use by another process?"]);
    }
}

#[test]
fn a_closed_standard_output_is_no_failure_and_a_full_one_is() {
    let folder = Folder::new();
    let mut cloud = cloud();
    signs_in(&mut cloud);
    let cloud = folder.write("azure.json", &cloud.to_string());
    for arguments in [&["version"][..], &["check-config", "--cloud-config", path(&cloud)]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = command(arguments).stdout(writer).output().expect("the binary under test");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        let full = std::fs::File::create("/dev/full").expect("a device that is full");
        let output = command(arguments).stdout(full).output().expect("the binary under test");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains("failed to write to standard output"), "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_ends_with_code_0_after_sigterm_and_after_sigint() {
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT")] {
        let mut stage = Stage::ready(1).await;
        let signalled = Instant::now();
        stage.signal(signal);
        assert_eq!(stage.ended().await.code(), Some(0), "{name}: {:?}", stage.log());
        assert!(signalled.elapsed() < END_TIMEOUT, "{name}: {:?}", signalled.elapsed());
        let log = stage.log();
        let is_logged = |message: &str| log.iter().any(|line| line["message"] == message);
        assert!(is_logged(&format!("{name}: shutting down")) && is_logged("stopped"), "{name}: {log:?}");
        assert!(
            log.iter().all(|line| line["level"] != "ERROR" && line["level"] != "WARN"),
            "{name}: {log:?}"
        );
    }
}
