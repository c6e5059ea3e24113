//! What the kubelet does for a Pod of the chart, for a process of this machine: arguments, environment, files and probes
//! are those of the live Pod. A process is no container, so three things stand for what that one has:
//! - Files are in a folder of the Pod's own, and paths in arguments, environment and ConfigMaps lead there.
//! - All listeners take free ports of loopback, by the environment, as it has no network of its own.
//! - A token of the Pod's service account is in a kubeconfig, as nothing can be mounted at `/var/run/secrets`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::admin::stage::PROGRAM;
use crate::support::controller::Controller;
use crate::support::kubernetes::{Api, Cluster};

/// The listeners, and where they listen here.
const LISTENERS: [(&str, &str); 3] = [
    ("POOL_CONTROLLER_HTTP_HEALTH_LISTEN", "127.0.0.1:0"),
    ("POOL_CONTROLLER_HTTP_ADMIN_LISTEN", "127.0.0.1:0"),
    ("POOL_CONTROLLER_HTTP_ADMIN_TLS_LISTEN", "127.0.0.1:0"),
];

/// A Pod with one container.
pub(super) struct Pod(Value);

/// How a Pod's container is started here.
pub(super) struct Container {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    folder: PathBuf,
}

impl Pod {
    /// One that the API server has.
    pub(super) fn new(object: Value) -> Self {
        Self(object)
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        text(&self.0["metadata"]["name"])
    }

    fn namespace(&self) -> &str {
        text(&self.0["metadata"]["namespace"])
    }

    /// Writes what its volumes hold, as the API server has it now, and a kubeconfig with a new token.
    pub(super) async fn container(&self, cluster: &Cluster) -> Container {
        let spec = &self.0["spec"];
        let container = &spec["containers"][0];
        // Neither can be given to a process: the kubeconfig has a token whatever the Pod says, and it may write anywhere.
        assert_eq!(spec["automountServiceAccountToken"], true, "{}", self.0);
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{}", self.0);
        let folder = cluster.folder().join(format!("{}.files", self.name()));
        let place = |mount: &Value| folder.join(text(&mount["mountPath"]).trim_start_matches('/'));
        let moved = |text: &str| {
            list(&container["volumeMounts"]).fold(text.to_owned(), |text, mount| {
                text.replace(self::text(&mount["mountPath"]), &place(mount).display().to_string())
            })
        };
        for mount in list(&container["volumeMounts"]) {
            let volume = list(&spec["volumes"]).find(|volume| volume["name"] == mount["name"]);
            let volume = volume.unwrap_or_else(|| panic!("no volume for {mount}"));
            std::fs::create_dir_all(place(mount)).expect("the folder can be written");
            for (name, content) in self.files(&cluster.api(), volume, &moved).await {
                std::fs::write(place(mount).join(name), content).expect("the folder can be written");
            }
        }
        let arguments = list(&container["args"]).map(|argument| moved(text(argument))).collect();
        let mut environment = Vec::new();
        for variable in list(&container["env"]) {
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some(path) => self.field(path).to_owned(),
                None => moved(text(&variable["value"])),
            };
            environment.push((text(&variable["name"]).to_owned(), value));
        }
        let account = text(&spec["serviceAccountName"]);
        let kubeconfig = cluster.account_kubeconfig(self.namespace(), account).await;
        environment.push(("KUBECONFIG".to_owned(), kubeconfig.display().to_string()));
        Container { arguments, environment, folder }
    }

    /// The value of a `fieldPath`.
    fn field(&self, path: &str) -> &str {
        let value = self.0.pointer(&format!("/{}", path.replace('.', "/")));
        value.and_then(Value::as_str).unwrap_or_else(|| panic!("the Pod has no {path}: {}", self.0))
    }

    /// Requires that each of its probes asks where the configuration has its container listen, as the kubelet would, and
    /// that the process which stands for it answers there.
    pub(super) async fn answers_the_kubelet(&self, container: &Container, process: &Controller) {
        let listens = container.health_listener();
        let own = &self.0["spec"]["containers"][0];
        for name in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let asked = &own[name]["httpGet"];
            let port = list(&own["ports"])
                .find(|port| [&port["name"], &port["containerPort"]].contains(&&asked["port"]));
            let port = port.unwrap_or_else(|| panic!("{name} asks at no port of the container: {own}"));
            assert_eq!(port["containerPort"], listens.port(), "{name} asks where nobody listens: {own}");
            assert_eq!(asked["scheme"], "HTTP", "{name}: {own}");
            let path = text(&asked["path"]);
            assert_eq!(process.health(path).await, 200, "{name}: {path}");
        }
    }

    /// The names of a volume's files, and what is in them; `moved` has the paths in a text lead here.
    async fn files(
        &self,
        api: &Api,
        volume: &Value,
        moved: impl Fn(&str) -> String,
    ) -> Vec<(String, Vec<u8>)> {
        let named = (volume["configMap"]["name"].as_str(), volume["secret"]["secretName"].as_str());
        let (kind, name) = match named {
            (Some(name), None) => ("configmaps", name),
            (None, Some(name)) => ("secrets", name),
            (Some(_), Some(_)) | (None, None) => panic!("no story knows how to fill this volume: {volume}"),
        };
        let path = format!("/api/v1/namespaces/{}/{kind}/{name}", self.namespace());
        let object = api.get(&path).await.expect("what a volume names exists");
        let content = |value: &Value| {
            if kind == "secrets" {
                STANDARD.decode(text(value)).expect("a Secret is in base64")
            } else {
                moved(text(value)).into_bytes()
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
    /// What starts it.
    pub(super) fn command(&self) -> Command {
        let mut command = self.with(&self.arguments);
        command.envs(LISTENERS);
        command
    }

    /// The binary with these arguments in the container's environment.
    fn with(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(PROGRAM);
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        command.args(arguments).env_clear().envs(environment).stdin(Stdio::null());
        command
    }

    /// Where its configuration has it listen for the kubelet.
    fn health_listener(&self) -> SocketAddr {
        let [run, files @ ..] = &self.arguments[..] else { panic!("the container has no arguments") };
        assert_eq!(run, "run");
        let mut arguments = vec!["check-config".to_owned()];
        arguments.extend_from_slice(files);
        let output = self.with(&arguments).output().expect("the binary under test");
        assert!(output.status.success(), "{output:?}");
        let shown = String::from_utf8(output.stdout).expect("a text");
        let line = shown.lines().find_map(|line| line.trim_start().strip_prefix("healthListen: "));
        let address = line.and_then(|line| line.split_whitespace().next()?.trim_matches('"').parse().ok());
        address.unwrap_or_else(|| panic!("no address to listen at: {shown}"))
    }

    /// Replaces an argument, where the test reads what else a person would.
    pub(super) fn replace_argument(&mut self, old: &str, new: &str) {
        let argument = self.arguments.iter_mut().find(|argument| argument.as_str() == old);
        new.clone_into(argument.unwrap_or_else(|| panic!("the container has no argument {old}")));
    }

    /// Has it call itself so at Azure, whose log is to tell replicas apart. All of them mount the same Secret.
    pub(super) fn name_at_azure(&self, name: &str) {
        let path = self.folder.join("etc/azure-backend-pool-controller/cloud/azure.json");
        let text = std::fs::read_to_string(&path).expect("the cloud configuration is mounted");
        let mut cloud: Value = serde_json::from_str(&text).expect("stories write it as JSON");
        cloud["userAgent"] = json!(name);
        std::fs::write(&path, cloud.to_string()).expect("the folder can be written");
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("a text was expected, not {value}"))
}
