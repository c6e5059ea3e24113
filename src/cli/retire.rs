//! `retire`: scales a Deployment to 0 and waits until its Pods have ended. Run it before the Deployment is deleted
//! together with the rights of its Pods: a Pod that ends needs them to release both Leases (W7, W8). Before that, the
//! Pods restore the entries that the controller has set to Down (N4), as the key `admin-state.off` of our ConfigMap
//! requests.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use actors::clock::Clock;
use actors::kubernetes::{NamespacedName, send_config_map_request};
use anyhow::{Context as _, anyhow};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use config::LabelSelector;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::Selector;
use model::config_map::{ConfigMapAnswer, ConfigMapFacts, ConfigMapRequest};
use model::machine::Now;
use model::redact::safe_line;
use nodes::switch::{self, DownNodes};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::{api_server, eprint_lines, observe, print_lines};
use crate::service;

/// Exit code if Pods have not ended in time, nodes are still Down, or that is unknown.
const NOT_ENDED: u8 = 3;
/// The time between an answer and the next request.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of attempts to remove the key `admin-state.off`.
const MAX_ATTEMPTS: u32 = 3;
/// Timeout of a request to the API server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// The maximum length of the API server's error message, in bytes.
const MAX_ERROR_BYTES: usize = 600;

/// The flags of `retire`.
#[derive(Args, Debug)]
pub(super) struct RetireArgs {
    /// The Deployment's namespace.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    namespace: String,
    /// The Deployment's name.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    deployment: String,
    /// Labels of the Deployment's Pods, as for `kubectl get --selector`. Needed only if the Deployment was already
    /// deleted: without this flag, the command then waits for no Pods.
    #[arg(long, value_name = "LABELS", value_parser = labels)]
    selector: Option<LabelSelector>,
    /// The controller's ConfigMap (same namespace and name as its Lease). Nodes that are recorded there as Down are
    /// restored first, for at most half of --within. Without this flag, they stay Down.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced_name)]
    configmap: Option<NamespacedName>,
    /// How long the command may take.
    #[arg(long, value_parser = config::parse_duration, default_value = "60s")]
    within: Duration,
    /// The kubeconfig; by default the files of KUBECONFIG or `~/.kube/config`, else the Pod's service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

/// Parses a label selector, and refuses one that matches all Pods.
fn labels(text: &str) -> Result<LabelSelector, String> {
    let example = "write labels such as app.kubernetes.io/name=web,tier!=cache";
    match LabelSelector::parse(text) {
        Ok(selector) if selector.requirements().is_empty() => Err(format!("it matches all Pods; {example}")),
        Ok(selector) => Ok(selector),
        Err(invalid) => Err(format!("not a label selector: {invalid}; {example}")),
    }
}

/// Parses the namespace and name of an object.
fn namespaced_name(text: &str) -> Result<NamespacedName, String> {
    let is_name = |name: &str| {
        let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
        (1..=253).contains(&name.len()) && name.chars().all(fits)
    };
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok(NamespacedName { namespace: namespace.into(), name: name.into() })
        }
        Some(_) | None => {
            Err("write NAMESPACE/NAME, such as kube-system/azure-backend-pool-controller".to_owned())
        }
    }
}

/// Scales the Deployment to 0 and waits for its Pods. Exit code 3: Pods or nodes that are Down remain, or that is
/// unknown.
///
/// # Errors
/// SIGTERM came, or no API server is configured.
pub(super) fn retire(args: &RetireArgs) -> anyhow::Result<ExitCode> {
    service::in_system(async {
        let client = service::kubernetes_client(args.kubeconfig.as_ref()).await?;
        let clock = Clock::start();
        let mut work = Retirement {
            args,
            clock,
            end: clock.now().plus(args.within),
            deployments: Api::namespaced(client.clone(), &args.namespace),
            pods: Api::namespaced(client.clone(), &args.namespace),
            client,
            selector: args.selector.as_ref().map(ToString::to_string),
            last_waiting_for: String::new(),
        };
        // The first process of a container ignores signals without a handler.
        let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
        let ended = tokio::select! {
            ended = work.execute() => ended,
            _ = terminate.recv() => {
                Err(anyhow!("ended by SIGTERM: the Deployment stays as it is now; run this again"))
            }
        };
        // An earlier run may have left the key.
        work.switch_on().await?;
        ended
    })
}

/// The reason why the command must still wait.
enum Remaining {
    /// These Pods have not ended.
    Pods(BTreeSet<String>),
    /// The Deployment's controller has not scaled it down.
    Controller,
    /// The last request failed, for this reason.
    Unknown(String),
}

/// A run of the command.
struct Retirement<'a> {
    args: &'a RetireArgs,
    clock: Clock,
    /// The end of `--within`.
    end: Now,
    client: kube::Client,
    deployments: Api<Deployment>,
    pods: Api<Pod>,
    /// The selector of the Deployment's Pods: its own once it was read, until then that of the flag.
    selector: Option<String>,
    /// The last message about what the command waits for.
    last_waiting_for: String,
}

impl Retirement<'_> {
    async fn execute(&mut self) -> anyhow::Result<ExitCode> {
        let (mut has_found, mut has_restored) = (false, false);
        let remaining = loop {
            let remaining = match self.read_state().await {
                Ok((Some(scale), _)) if scale.desired > 0 => {
                    has_found = true;
                    if !std::mem::replace(&mut has_restored, true) {
                        self.restore_nodes().await?;
                    }
                    print_lines([printable!("scaling {} from {} to 0", self.name(), scale.desired)])?;
                    self.scale_down().await.err().map_or(Remaining::Controller, Remaining::Unknown)
                }
                Ok((_, pods)) if !pods.is_empty() => {
                    has_found = true;
                    Remaining::Pods(pods)
                }
                Ok((Some(Scale { is_scaled_down: false, .. }), _)) => Remaining::Controller,
                Ok((scale, _)) => {
                    self.print_success(has_found || scale.is_some())?;
                    break None;
                }
                Err(reason) => Remaining::Unknown(reason),
            };
            if self.clock.now() >= self.end {
                break Some(remaining);
            }
            self.print_waiting_for(remaining.to_string())?;
            self.wait(self.end).await;
        };
        let remaining = remaining.map(|remaining| self.failure_text(&remaining));
        let problems: Vec<String> = remaining.into_iter().chain(self.still_down().await).collect();
        eprint_lines(problems.iter().map(|problem| printable!("error: {problem}")));
        Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_ENDED) })
    }

    /// Makes the Pods restore the nodes that the controller has set to Down, for at most half of the time.
    async fn restore_nodes(&mut self) -> anyhow::Result<()> {
        let half = self.end.minus(self.args.within / 2);
        loop {
            let what = match self.switch_off().await {
                Ok(down) if down.nodes.is_empty() => return Ok(()),
                Ok(down) => format!("{} to be restored", count_and_names("node", &down.nodes)),
                Err(reason) => format!("the {}: {reason}", self.config_map()),
            };
            if self.clock.now() >= half {
                return Ok(());
            }
            self.print_waiting_for(what)?;
            self.wait(half).await;
        }
    }

    /// Switches the admin state off, and returns the nodes that the controller has set to Down.
    async fn switch_off(&self) -> Result<DownNodes, Arc<str>> {
        let mut facts = self.send_config_map_request(ConfigMapRequest::Get).await?;
        if let Some(on) = facts.take_if(|facts| !switch::is_off(facts)) {
            let edit = switch::off(self.clock.now());
            facts = self.send_config_map_request(ConfigMapRequest::Replace(on, edit)).await?;
        }
        Ok(facts.map(|facts| DownNodes::of(&facts, self.clock.now())).unwrap_or_default())
    }

    /// Removes the key `admin-state.off`, which would stop a controller from setting nodes to Down for 10 minutes.
    async fn switch_on(&self) -> anyhow::Result<()> {
        for tries_left in (0..MAX_ATTEMPTS).rev() {
            match self.try_switch_on().await {
                Ok(()) => break,
                Err(_) if tries_left > 0 => tokio::time::sleep(POLL_INTERVAL).await,
                Err(reason) => print_lines([printable!(
                    "the key admin-state.off of the {} may still exist: {reason}; remove it: a controller that finds it sets \
                     no node to Down for 10 minutes",
                    self.config_map()
                )])?,
            }
        }
        Ok(())
    }

    async fn try_switch_on(&self) -> Result<(), Arc<str>> {
        let facts = self.send_config_map_request(ConfigMapRequest::Get).await?;
        if let Some(off) = facts.filter(|facts| switch::is_off(facts)) {
            self.send_config_map_request(ConfigMapRequest::Replace(off, switch::on())).await?;
        }
        Ok(())
    }

    /// Returns the error message about the nodes that are still Down, or that may be.
    async fn still_down(&self) -> Option<String> {
        match self.send_config_map_request(ConfigMapRequest::Get).await {
            Ok(facts) => {
                let down = DownNodes::of(&*facts?, self.clock.now()).all();
                let nodes = count_and_names("node", &down);
                (!down.is_empty()).then(|| {
                    format!("still Down: {nodes}; docs/admin-state.md says how to restore them by hand")
                })
            }
            Err(reason) => {
                Some(format!("it is unknown which nodes are still Down: the {}: {reason}", self.config_map()))
            }
        }
    }

    /// Sends a request about our ConfigMap and returns its state. `None`: it does not exist, or is not named.
    async fn send_config_map_request(
        &self,
        request: ConfigMapRequest,
    ) -> Result<Option<Arc<ConfigMapFacts>>, Arc<str>> {
        let Some(name) = &self.args.configmap else { return Ok(None) };
        match send_config_map_request(self.client.clone(), name.clone(), self.clock, request).await {
            ConfigMapAnswer::Seen(facts) => Ok(Some(facts)),
            ConfigMapAnswer::Absent => Ok(None),
            ConfigMapAnswer::Conflict | ConfigMapAnswer::Unchanged => {
                Err("another client writes it at the same time".into())
            }
            ConfigMapAnswer::Failed(failure) => Err(failure.into_why()),
        }
    }

    /// Reads the Deployment and then its Pods. In this order, hardly any Pod appears after the list.
    async fn read_state(&mut self) -> Result<(Option<Scale>, BTreeSet<String>), String> {
        let found = self.response(self.deployments.get_opt(&self.args.deployment)).await?;
        let scale = match found {
            Some(deployment) => {
                let (scale, selector) = facts(deployment)?;
                self.selector = Some(selector);
                Some(scale)
            }
            None => None,
        };
        let pods = match &self.selector {
            Some(selector) => {
                let its_own = ListParams::default().labels(selector);
                running(self.response(self.pods.list(&its_own)).await?.items)
            }
            None => BTreeSet::new(),
        };
        Ok((scale, pods))
    }

    async fn scale_down(&self) -> Result<(), String> {
        let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
        let params = PatchParams::default();
        self.response(self.deployments.patch_scale(&self.args.deployment, &params, &none)).await.map(drop)
    }

    /// Awaits the answer to a request, for at most `--within`; the error has the reason of a failure.
    async fn response<T>(&self, request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
        let within = ANSWER_TIMEOUT.min(self.args.within);
        match tokio::time::timeout(within, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => {
                Err(format!("HTTP {}: {}", status.code, safe_line(&status.message, &[], MAX_ERROR_BYTES)))
            }
            Ok(Err(error)) => Err(api_server::chain(&error)),
            Err(_) => Err(format!("no answer within {within:?}")),
        }
    }

    /// Waits for the next round, at most until this time.
    async fn wait(&self, until: Now) {
        let now = self.clock.now();
        tokio::time::sleep(POLL_INTERVAL.min(until.since(now))).await;
    }

    fn name(&self) -> String {
        format!("Deployment {}/{}", self.args.namespace, self.args.deployment)
    }

    /// Returns the name of our ConfigMap, as texts have it.
    fn config_map(&self) -> String {
        let name = self.args.configmap.as_ref().map(ToString::to_string);
        format!("ConfigMap {}", name.unwrap_or_default())
    }

    /// Prints what the command waits for, unless that was the last message.
    fn print_waiting_for(&mut self, what: String) -> anyhow::Result<()> {
        if self.last_waiting_for != what {
            print_lines([printable!("waiting for {what}")])?;
            self.last_waiting_for = what;
        }
        Ok(())
    }

    fn print_success(&self, has_found: bool) -> anyhow::Result<()> {
        let name = self.name();
        print_lines([match &self.args.selector {
            _ if has_found => printable!("no Pod of {name} is left"),
            Some(labels) => {
                printable!("there is no {name}, and no Pod with the labels {labels}: nothing to do")
            }
            None => printable!(
                "there is no {name}: nothing to do; to wait for the Pods of a deleted Deployment, pass --selector"
            ),
        }])
    }

    /// Returns the error message about what remains when the time is over, with a remedy.
    fn failure_text(&self, remaining: &Remaining) -> String {
        let (name, within, namespace) = (self.name(), self.args.within, &self.args.namespace);
        match remaining {
            Remaining::Pods(_) => format!(
                "{name} has not ended within {within:?}: {remaining}; see why with `kubectl --namespace {namespace} describe \
                 pod`, and run this again. A Pod whose node is gone for good ends with `kubectl --namespace {namespace} \
                 delete pod <name> --force`"
            ),
            Remaining::Controller => format!(
                "{name} is scaled to 0, but its controller has not acted within {within:?}: check kube-controller-manager, \
                 and run this again"
            ),
            Remaining::Unknown(reason) => format!(
                "it is unknown after {within:?} whether {name} runs Pods: {reason}; check --kubeconfig and the network, and \
                 let the account get this Deployment, patch its scale, and list Pods in {namespace}"
            ),
        }
    }
}

impl fmt::Display for Remaining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remaining::Pods(pods) => f.write_str(&count_and_names("Pod", pods)),
            Remaining::Controller => f.write_str("kube-controller-manager to scale it down"),
            Remaining::Unknown(reason) => write!(f, "the API server: {reason}"),
        }
    }
}

/// The scale of a Deployment.
struct Scale {
    /// The desired number of Pods.
    desired: i32,
    /// Whether its controller has observed that, and reports no Pod.
    is_scaled_down: bool,
}

/// Returns the number of things of this kind, and their names.
fn count_and_names(kind: &str, names: &BTreeSet<String>) -> String {
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("{} {kind}{plural}: {}", names.len(), observe::named(names.iter().cloned().collect()))
}

/// Returns the scale of a Deployment and the selector of its Pods.
fn facts(deployment: Deployment) -> Result<(Scale, String), String> {
    let spec = deployment.spec.ok_or_else(|| "the Deployment has no spec".to_owned())?;
    let status = deployment.status.unwrap_or_default();
    let is_current = status.observed_generation >= deployment.metadata.generation;
    let scale = Scale {
        // The API server's default.
        desired: spec.replicas.unwrap_or(1),
        is_scaled_down: is_current && status.replicas.unwrap_or(0) == 0,
    };
    let selector = Selector::try_from(spec.selector).map_err(|error| error.to_string())?;
    Ok((scale, selector.to_string()))
}

/// Returns the names of the Pods that have not ended. A Pod that was evicted or has failed may exist long after its
/// containers have ended.
fn running(pods: Vec<Pod>) -> BTreeSet<String> {
    let is_running = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        !matches!(phase, Some("Succeeded" | "Failed"))
    };
    pods.into_iter().filter(is_running).filter_map(|pod| pod.metadata.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n4_our_config_map_is_named_with_its_namespace() {
        let parsed = |text: &str| namespaced_name(text).map(|name| name.to_string());
        assert_eq!(parsed("kube-system/pools.a"), Ok("kube-system/pools.a".to_owned()));
        for invalid in ["", "pools", "kube-system/", "/pools", "a/b/c", "a/b c", "a/b?x=y"] {
            let error = parsed(invalid).expect_err("it names no ConfigMap");
            assert!(error.starts_with("write NAMESPACE/NAME, such as "), "{invalid}: {error}");
        }
    }
}
