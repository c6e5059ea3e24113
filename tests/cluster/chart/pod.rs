//! Runs a Pod of the chart as a process of this machine, in place of the kubelet and a container runtime. Arguments,
//! environment, files and probes are those of the live Pod. The process has its own mounts: a read-only root, the Pod's
//! volumes and the files of its service account at the same paths as in a container, and only the host directories that
//! a debug build needs. Two things differ from a container:
//! - All listeners take free loopback ports, set by the environment, because the process has no network namespace.
//! - It runs as the user who runs the tests.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::admin::stage::PROGRAM;
use crate::support::controller::Controller;
use crate::support::kubernetes::{self, Api, Cluster};

/// Environment variables of the listeners, and their addresses in tests.
const LISTENERS: [(&str, &str); 3] = [
    ("POOL_CONTROLLER_HTTP_HEALTH_LISTEN", "127.0.0.1:0"),
    ("POOL_CONTROLLER_HTTP_ADMIN_LISTEN", "127.0.0.1:0"),
    ("POOL_CONTROLLER_HTTP_ADMIN_TLS_LISTEN", "127.0.0.1:0"),
];
/// Folder with the credentials of the service account in every container.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Path of the program in the image.
const ENTRYPOINT: &str = "/azure-backend-pool-controller";

/// Sets up a container-like root: `$1` is the root, `$2` the folder of the mounts, `$3` the program, and `$4` its path
/// in the container. The paths of the mounts follow, then `--`, then the arguments of `env`.
const RUNTIME: &str = r#"
set -eu
PATH="$PATH:/usr/sbin:/sbin"
root="$1" files="$2" program="$3" entrypoint="$4"
shift 4
mount -t tmpfs -o mode=755 container "$root"
# The libraries of a debug build, the directories of every container, and the CA certificates of the image.
for place in /usr /bin /lib /lib32 /lib64 /sbin /nix /dev /proc /etc/ssl /etc/pki; do
  mkdir -p "$root${place%/*}"
  if [ -L "$place" ]; then
    cp -P "$place" "$root$place"
  elif [ -d "$place" ]; then
    mkdir "$root$place"
    mount --rbind "$place" "$root$place"
  fi
done
: >"$root$entrypoint"
mount --bind "$program" "$root$entrypoint"
while [ "$1" != -- ]; do
  mkdir -p "$root$1"
  mount --bind "$files$1" "$root$1"
  shift
done
shift
mount -o remount,bind,ro "$root"
exec chroot "$root" /usr/bin/env -i "$@"
"#;

/// Returns whether this machine supports mount namespaces, which the tests need to imitate a container. If not, logs
/// that the test is skipped.
pub(super) async fn supports_mount_namespaces() -> bool {
    let mut attempt = tokio::process::Command::from(unshare_command());
    // On some machines `unshare` succeeds but mounting fails.
    attempt.args(["mount", "-t", "tmpfs", "attempt", "/tmp"]);
    let reason = match attempt.stdin(Stdio::null()).output().await {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => format!("unshare: {error}"),
    };
    let reason = format!("this machine does not support mount namespaces: {reason}");
    kubernetes::skip("CONTAINER_TESTS", &reason);
    false
}

/// Returns a command that runs the following one with its own mounts: as root, or as root of a new user namespace.
fn unshare_command() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]);
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command
}

/// A Pod with one container.
pub(super) struct Pod(Value);

/// A container of a Pod, which this test starts as a process.
pub(super) struct Container {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// Mount points.
    mounts: Vec<String>,
    /// Folder of the mounted files, each below its own path.
    files: PathBuf,
}

impl Pod {
    /// Returns the Pod of an object that the API server has returned.
    pub(super) fn new(object: Value) -> Self {
        Self(object)
    }

    /// Returns its name.
    pub(super) fn name(&self) -> &str {
        text(&self.0["metadata"]["name"])
    }

    fn namespace(&self) -> &str {
        text(&self.0["metadata"]["namespace"])
    }

    /// Writes the current contents of its volumes and the credentials of its service account, including a new token.
    pub(super) async fn container(&self, cluster: &Cluster) -> Container {
        let spec = &self.0["spec"];
        let container = &spec["containers"][0];
        // The test always provides the account's files and a read-only root, so the Pod must ask for both.
        assert_eq!(spec["automountServiceAccountToken"], true, "{}", self.0);
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{}", self.0);
        let files = cluster.folder().join(format!("{}.files", self.name()));
        let token = cluster.token(self.namespace(), text(&spec["serviceAccountName"])).await;
        let authority = fs::read(cluster.folder().join("ca.crt")).expect("the certificates are written");
        let of_account = [
            ("token", token.into_bytes()),
            ("ca.crt", authority),
            ("namespace", self.namespace().to_owned().into_bytes()),
        ];
        write(&below(&files, ACCOUNT), of_account);
        let mut mounts = vec![ACCOUNT.to_owned()];
        for mount in list(&container["volumeMounts"]) {
            let volume = list(&spec["volumes"]).find(|volume| volume["name"] == mount["name"]);
            let volume = volume.unwrap_or_else(|| panic!("no volume for {mount}"));
            let path = text(&mount["mountPath"]);
            write(&below(&files, path), self.files(&cluster.api(), volume).await);
            mounts.push(path.to_owned());
        }
        let arguments = list(&container["args"]).map(|argument| text(argument).to_owned()).collect();
        // The kubelet tells every container where the API server is.
        let at = cluster.address();
        let mut environment = vec![
            ("KUBERNETES_SERVICE_HOST".to_owned(), at.ip().to_string()),
            ("KUBERNETES_SERVICE_PORT".to_owned(), at.port().to_string()),
        ];
        for variable in list(&container["env"]) {
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some(path) => self.field(path),
                None => text(&variable["value"]),
            };
            environment.push((text(&variable["name"]).to_owned(), value.to_owned()));
        }
        Container { arguments, environment, mounts, files }
    }

    /// Returns the value of a `fieldPath`.
    fn field(&self, path: &str) -> &str {
        let value = self.0.pointer(&format!("/{}", path.replace('.', "/")));
        value.and_then(Value::as_str).unwrap_or_else(|| panic!("the Pod has no {path}: {}", self.0))
    }

    /// Asserts that each probe targets the configured health port, and that the process answers it.
    pub(super) async fn answers_the_kubelet(&self, container: &Container, process: &Controller) {
        let listens = container.health_listener();
        let own = &self.0["spec"]["containers"][0];
        for name in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let probe = &own[name]["httpGet"];
            let port = list(&own["ports"])
                .find(|port| [&port["name"], &port["containerPort"]].contains(&&probe["port"]));
            let port = port.unwrap_or_else(|| panic!("{name} names no port of the container: {own}"));
            assert_eq!(
                port["containerPort"],
                listens.port(),
                "{name} names another port than the listener's: {own}"
            );
            assert_eq!(probe["scheme"], "HTTP", "{name}: {own}");
            let path = text(&probe["path"]);
            assert_eq!(process.health(path).await, 200, "{name}: {path}");
        }
    }

    /// Returns the names and contents of a volume's files.
    async fn files(&self, api: &Api, volume: &Value) -> Vec<(String, Vec<u8>)> {
        let named = (volume["configMap"]["name"].as_str(), volume["secret"]["secretName"].as_str());
        let (kind, name) = match named {
            (Some(name), None) => ("configmaps", name),
            (None, Some(name)) => ("secrets", name),
            (Some(_), Some(_)) | (None, None) => panic!("unsupported volume source: {volume}"),
        };
        let path = format!("/api/v1/namespaces/{}/{kind}/{name}", self.namespace());
        let object = api.get(&path).await.expect("what a volume names exists");
        let content = |value: &Value| {
            if kind == "secrets" {
                STANDARD.decode(text(value)).expect("a Secret is in base64")
            } else {
                text(value).to_owned().into_bytes()
            }
        };
        let items = &volume["secret"]["items"];
        if items.is_null() {
            let data = object["data"].as_object().into_iter().flatten();
            return data.map(|(name, value)| (name.clone(), content(value))).collect();
        }
        let item =
            |item: &Value| (text(&item["path"]).to_owned(), content(&object["data"][text(&item["key"])]));
        list(items).map(item).collect()
    }
}

impl Container {
    /// Returns the command that starts it.
    pub(super) fn command(&self) -> Command {
        self.with(&self.arguments, &LISTENERS)
    }

    /// Returns a command for the binary with these arguments and the container's environment with additional variables.
    fn with(&self, arguments: &[String], extra_env: &[(&str, &str)]) -> Command {
        let root = self.files.with_extension("root");
        fs::create_dir_all(&root).expect("the folder can be written");
        let mut command = unshare_command();
        command.args(["sh", "-c", RUNTIME, "container"]).arg(root).arg(&self.files);
        command.args([PROGRAM, ENTRYPOINT]).args(&self.mounts).arg("--");
        command.args(self.environment.iter().map(|(name, value)| format!("{name}={value}")));
        command.args(extra_env.iter().map(|(name, value)| format!("{name}={value}")));
        command.arg(ENTRYPOINT).args(arguments).stdin(Stdio::null());
        command
    }

    /// Replaces the service account token, as the kubelet does before it expires.
    pub(super) fn renew_token(&self, token: &str) {
        let folder = below(&self.files, ACCOUNT);
        let next = folder.join("..token");
        fs::write(&next, token).expect("the folder can be written");
        fs::rename(next, folder.join("token")).expect("the folder can be written");
    }

    /// Returns the configured address of the health listener.
    fn health_listener(&self) -> SocketAddr {
        let [run, files @ ..] = &self.arguments[..] else { panic!("the container has no arguments") };
        assert_eq!(run, "run");
        let mut arguments = vec!["check-config".to_owned()];
        arguments.extend_from_slice(files);
        let output = self.with(&arguments, &[]).output().expect("the binary under test");
        assert!(output.status.success(), "{output:?}");
        let shown = String::from_utf8(output.stdout).expect("a text");
        let line = shown.lines().find_map(|line| line.trim_start().strip_prefix("healthListen: "));
        let address = line.and_then(|line| line.split_whitespace().next()?.trim_matches('"').parse().ok());
        address.unwrap_or_else(|| panic!("no address to listen at: {shown}"))
    }

    /// Returns the rest of the argument with this prefix.
    pub(super) fn argument(&self, begins: &str) -> String {
        let value = self.arguments.iter().find_map(|argument| argument.strip_prefix(begins));
        value.unwrap_or_else(|| panic!("the container has no argument {begins}")).to_owned()
    }

    /// Replaces an argument of the container.
    pub(super) fn replace_argument(&mut self, old: &str, new: &str) {
        let argument = self.arguments.iter_mut().find(|argument| argument.as_str() == old);
        new.clone_into(argument.unwrap_or_else(|| panic!("the container has no argument {old}")));
    }

    /// Sets the user agent, so that the fake ARM's log distinguishes replicas. All replicas mount the same Secret.
    pub(super) fn set_user_agent(&self, name: &str) {
        let path = below(&self.files, "/etc/azure-backend-pool-controller/cloud/azure.json");
        let text = fs::read_to_string(&path).expect("the cloud configuration is mounted");
        let mut cloud: Value = serde_json::from_str(&text).expect("tests write it as JSON");
        cloud["userAgent"] = json!(name);
        fs::write(&path, cloud.to_string()).expect("the folder can be written");
    }
}

/// Returns the target of a path of a container, below this folder.
fn below(folder: &Path, path: &str) -> PathBuf {
    folder.join(path.trim_start_matches('/'))
}

/// Writes these files into a folder, which is created if it is missing.
fn write<N: AsRef<Path>>(folder: &Path, files: impl IntoIterator<Item = (N, Vec<u8>)>) {
    fs::create_dir_all(folder).expect("the folder can be written");
    for (name, content) in files {
        fs::write(folder.join(name), content).expect("the folder can be written");
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("expected a string, not {value}"))
}
