//! Reads the configuration: both files, the Secret that may hold the cloud configuration, and the environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use actors::kubernetes::NamespacedName;
use config::{CloudSource, Config, Loaded, Location, Problem, Report, Source, WHOLE_FILE};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use model::redact::safe_line;

use super::Files;
use crate::service;

/// Default path of the cloud configuration.
const CLOUD_CONFIG: &str = "/etc/kubernetes/azure.json";
/// Default Secret of the cloud configuration: the cloud-controller-manager's.
pub(super) const SECRET: &str = "kube-system/azure-cloud-provider";
/// Key of the cloud configuration in the Secret.
const SECRET_KEY: &str = "cloud-config";
/// Timeout of the request for the Secret.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum length of the API server's error message, in bytes.
const MAX_ERROR_BYTES: usize = 600;

/// Parses the namespace and name of an object.
pub(super) fn namespaced_name(text: &str, example: &str) -> Result<NamespacedName, String> {
    let is_name = |name: &str| {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        (1..=253).contains(&name.len()) && name.chars().all(fits)
    };
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok(NamespacedName { namespace: namespace.into(), name: name.into() })
        }
        Some(_) | None => Err(format!("write NAMESPACE/NAME, such as {example}")),
    }
}

/// Parses the name of the Secret.
pub(super) fn secret_name(text: &str) -> Result<NamespacedName, String> {
    namespaced_name(text, SECRET)
}

/// Reads and validates both files, the Secret and the overrides of the environment; `kubeconfig` names the API server
/// that has the Secret.
pub(super) fn load_with(files: &Files, kubeconfig: Option<&PathBuf>) -> anyhow::Result<Loaded> {
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let mut cloud = CloudSource::from(cloud_file(files)?);
    if let Some(secret) = &files.cloud_config_secret
        && config::is_secret_used(cloud.file())
    {
        cloud = cloud.with_secret(read_secret(secret, kubeconfig)?);
    }
    let controller = match &files.config {
        Some(path) => config::read(path)?,
        None => Source::none("controller.yaml"),
    };
    Ok(Config::load(cloud, controller, &environment)?)
}

/// Reads the file of the cloud configuration. With a Secret, the default file need not exist.
fn cloud_file(files: &Files) -> Result<Source, Report> {
    match &files.cloud_config {
        Some(path) => config::read(path),
        None if files.cloud_config_secret.is_some() && !Path::new(CLOUD_CONFIG).exists() => {
            Ok(Source::none(CLOUD_CONFIG))
        }
        None => config::read(Path::new(CLOUD_CONFIG)),
    }
}

/// Reads the Secret once: later changes have no effect before the next start.
fn read_secret(secret: &NamespacedName, kubeconfig: Option<&PathBuf>) -> anyhow::Result<Source> {
    service::install_tls();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = service::kubernetes_client(kubeconfig).await?;
        let secrets: Api<Secret> = Api::namespaced(client, &secret.namespace);
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, secrets.get(&secret.name)).await;
        let answer = answer.map_err(|_| {
            let found = format!("no answer from the API server within {} s", ANSWER_TIMEOUT.as_secs());
            problem(secret, found, "check --kubeconfig and the network")
        })?;
        let read = answer.map_err(|error| failure(secret, &error))?;
        match read.data.and_then(|mut data| data.remove(SECRET_KEY)) {
            Some(bytes) => Ok(Source::new(format!("Secret {secret}, key {SECRET_KEY}"), bytes.0)),
            None => {
                let found = format!("no key {SECRET_KEY}");
                let remedy =
                    "put the cloud configuration under this key, as for the cloud-controller-manager";
                Err(problem(secret, found, remedy).into())
            }
        }
    })
}

/// Returns the report about a failed request for the Secret.
fn failure(secret: &NamespacedName, error: &kube::Error) -> Report {
    let status = if let kube::Error::Api(status) = error { Some(status) } else { None };
    match status.map(|status| (status.code, &status.message)) {
        Some((404, _)) => {
            let remedy =
                "create it, name another with --cloud-config-secret=NAMESPACE/NAME, or give a file instead";
            problem(secret, "none".to_owned(), remedy)
        }
        Some((401 | 403, message)) => {
            let remedy =
                "let the service account get this Secret: docs/rbac-cloud-config-secret.yaml has the Role";
            problem(secret, format!("none ({})", safe_line(message, &[], MAX_ERROR_BYTES)), remedy)
        }
        Some(_) | None => {
            // The error about an undecodable answer may quote the answer, and thus the Secret.
            let reason = if matches!(error, kube::Error::SerdeError(_)) {
                "the answer cannot be read".to_owned()
            } else {
                safe_line(&error.to_string(), &[], MAX_ERROR_BYTES)
            };
            let found = format!("none: the request to the API server failed ({reason})");
            problem(secret, found, "check --kubeconfig and the network")
        }
    }
}

/// Returns the report about an unusable Secret.
fn problem(secret: &NamespacedName, found: String, remedy: &str) -> Report {
    Report::from(Problem {
        location: Location::File(format!("Secret {secret}")),
        field: WHOLE_FILE.to_owned(),
        found,
        expected: "the cloud-controller-manager's configuration".to_owned(),
        remedy: remedy.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c1_a_secret_is_named_with_its_namespace() {
        assert_eq!(secret_name(SECRET).unwrap().to_string(), "kube-system/azure-cloud-provider");
        for text in ["", "azure-cloud-provider", "a/", "/b", "a/b/c", "a/../b", "A/b", "a/b?x", "a b/c"] {
            assert!(secret_name(text).unwrap_err().contains(SECRET), "{text}");
        }
    }

    #[test]
    fn c1_an_answer_that_cannot_be_read_is_not_repeated() {
        let quoting = serde_json::from_str::<u8>("\"swordfish\"").unwrap_err();
        assert!(quoting.to_string().contains("swordfish"));
        let report = failure(&secret_name(SECRET).unwrap(), &kube::Error::SerdeError(quoting)).to_string();
        assert!(report.contains("the answer cannot be read") && !report.contains("swordfish"), "{report}");
    }
}
