//! `retire`: scales a Deployment to 0 and waits until its Pods have ended. Run it before the Deployment is deleted
//! together with the rights of its Pods: a Pod that ends needs them to release both Leases (W7, W8). Before that, the
//! Pods restore the entries that the controller has set to Down (N4), as the key `admin-state.off` of our ConfigMap
//! requests.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use actors::clock::Clock;
use actors::kubernetes::{NamespacedName, send_config_map_request};
use anyhow::Context as _;
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

use super::{api_server, eprint_lines, files, observe, print_lines};
use crate::service;

/// Exit code if Pods have not ended in time, nodes are still Down, or that is unknown.
const NOT_ENDED: u8 = 3;
/// The time between an answer and the next request.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long the command tries to remove the key `admin-state.off`.
const SWITCH_ON_TIMEOUT: Duration = Duration::from_secs(15);
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
    /// The labels of the Deployment's Pods, as for `kubectl get --selector`, in case it was deleted already; without
    /// this flag, no Pods are waited for then.
    #[arg(long, value_name = "LABELS", value_parser = labels)]
    selector: Option<LabelSelector>,
    /// The controller's ConfigMap, named like its own Lease: the nodes that it records as Down are restored first,
    /// while the Pods still run, for at most half of --within; without this flag they stay Down.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = configmap)]
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

/// Parses the name of the ConfigMap.
fn configmap(text: &str) -> Result<NamespacedName, String> {
    files::namespaced_name(text, "kube-system/azure-backend-pool-controller")
}

/// Scales the Deployment to 0 and waits for its Pods. Exit code 3: Pods or nodes that are Down remain, or that is
/// unknown.
///
/// # Errors
/// No API server is configured.
pub(super) fn retire(args: &RetireArgs) -> anyhow::Result<ExitCode> {
    service::in_system(async {
        let client = service::kubernetes_client(args.kubeconfig.as_ref()).await?;
        let mut work = Retirement {
            args,
            clock: Clock::start(),
            deployments: Api::namespaced(client.clone(), &args.namespace),
            pods: Api::namespaced(client.clone(), &args.namespace),
            client,
            selector: args.selector.as_ref().map(ToString::to_string),
            name: format!("Deployment {}/{}", args.namespace, args.deployment),
        };
        // The first process of a container ignores signals without a handler.
        let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
        let (failure, code) = tokio::select! {
            ended = work.execute() => (ended.err(), ExitCode::from(NOT_ENDED)),
            _ = terminate.recv() => {
                let failure = "ended by SIGTERM: the Deployment stays as it is now; run this again";
                (Some(failure.to_owned()), ExitCode::FAILURE)
            }
        };
        // An earlier run may have left the key.
        let until = work.clock.now().plus(SWITCH_ON_TIMEOUT);
        let restored = work.poll(until, Retirement::switch_on).await.and_then(|down| none_left(&down.all()));
        let failures = [failure, restored.err().map(|remaining| remaining.failure)];
        let problems: Vec<String> = failures.into_iter().flatten().collect();
        eprint_lines(problems.iter().map(|problem| printable!("error: {problem}")));
        Ok(if problems.is_empty() { ExitCode::SUCCESS } else { code })
    })
}

/// A run of the command.
struct Retirement<'a> {
    args: &'a RetireArgs,
    clock: Clock,
    client: kube::Client,
    deployments: Api<Deployment>,
    pods: Api<Pod>,
    /// The selector of the Deployment's Pods: its own once it was read, until then that of the flag.
    selector: Option<String>,
    /// The name of the Deployment in texts.
    name: String,
}

/// A condition for which the command waits.
struct Waiting {
    what: String,
    /// The error message when the time is over, with a remedy.
    failure: String,
}

/// The Deployment and its Pods.
struct State {
    /// Whether the Deployment or a Pod exists.
    exists: bool,
    /// The desired number of Pods.
    desired: i32,
    /// Whether the status of the Deployment is current and reports no Pod.
    is_scaled_down: bool,
    /// The names of the Pods that have not ended.
    pods: BTreeSet<String>,
}

impl Retirement<'_> {
    /// Requests the restore and waits for it, then scales the Deployment to 0 and waits for its Pods. The error
    /// describes what remains.
    async fn execute(&mut self) -> Result<(), String> {
        let start = self.clock.now();
        let (half, end) = (start.plus(self.args.within / 2), start.plus(self.args.within));
        let before = self.poll(end, Self::read_state).await.map_err(|remaining| remaining.failure)?;
        if before.desired > 0 {
            // After half of the time, the Pods end even if nodes are still Down.
            drop(self.poll(half, Self::switch_off).await);
        }
        let after = self.poll(end, Self::scale_down).await.map_err(|remaining| remaining.failure)?;
        let name = &self.name;
        drop(print_lines([match &self.args.selector {
            _ if before.exists || after.exists => printable!("no Pod of {name} is left"),
            Some(labels) => {
                printable!("there is no {name}, and no Pod with the labels {labels}: nothing to do")
            }
            None => printable!(
                "there is no {name}: nothing to do; to wait for the Pods of a deleted Deployment, pass --selector"
            ),
        }]));
        Ok(())
    }

    /// Repeats a step until it succeeds, or fails after this time. Prints each reason once.
    async fn poll<T>(
        &mut self,
        until: Now,
        step: impl AsyncFn(&mut Self) -> Result<T, Waiting>,
    ) -> Result<T, Waiting> {
        let mut printed = String::new();
        loop {
            let remaining = match step(self).await {
                Ok(done) => return Ok(done),
                Err(remaining) => remaining,
            };
            let now = self.clock.now();
            if now >= until {
                return Err(remaining);
            }
            if printed != remaining.what {
                drop(print_lines([printable!("waiting for {}", remaining.what)]));
                printed = remaining.what;
            }
            tokio::time::sleep(POLL_INTERVAL.min(until.since(now))).await;
        }
    }

    /// Reads the Deployment and then its Pods. In this order, hardly any Pod appears after the list.
    async fn read_state(&mut self) -> Result<State, Waiting> {
        let found = self.response(self.deployments.get_opt(&self.args.deployment)).await?;
        let mut state =
            State { exists: found.is_some(), desired: 0, is_scaled_down: true, pods: BTreeSet::new() };
        if let Some(Deployment { metadata, spec, status }) = found {
            let spec = spec.ok_or_else(|| self.unknown("the Deployment has no spec"))?;
            let status = status.unwrap_or_default();
            // 1 is the default of the API server.
            state.desired = spec.replicas.unwrap_or(1);
            let is_current = status.observed_generation >= metadata.generation;
            state.is_scaled_down = is_current && status.replicas.unwrap_or(0) == 0;
            let selector = Selector::try_from(spec.selector);
            self.selector = Some(selector.map_err(|error| self.unknown(&error.to_string()))?.to_string());
        }
        if let Some(selector) = &self.selector {
            let its_own = ListParams::default().labels(selector);
            state.pods = running(self.response(self.pods.list(&its_own)).await?.items);
            state.exists |= !state.pods.is_empty();
        }
        Ok(state)
    }

    /// Scales the Deployment to 0 if necessary, and fails while it has Pods or its status is out of date.
    async fn scale_down(&mut self) -> Result<State, Waiting> {
        let state = self.read_state().await?;
        let (name, within, namespace) = (&self.name, self.args.within, &self.args.namespace);
        if state.desired > 0 {
            drop(print_lines([printable!("scaling {name} from {} to 0", state.desired)]));
            let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
            let params = PatchParams::default();
            self.response(self.deployments.patch_scale(&self.args.deployment, &params, &none)).await?;
        } else if !state.pods.is_empty() {
            let what = count_and_names("Pod", &state.pods);
            let failure = format!(
                "{name} has not ended within {within:?}: {what}; see why with `kubectl --namespace {namespace} describe pod`, \
                 and run this again. A Pod whose node is gone for good ends with `kubectl --namespace {namespace} delete pod \
                 <name> --force`"
            );
            return Err(Waiting { what, failure });
        } else if state.is_scaled_down {
            return Ok(state);
        }
        let failure = format!(
            "{name} is scaled to 0, but its controller has not acted within {within:?}: check kube-controller-manager, and \
             run this again"
        );
        Err(Waiting { what: "kube-controller-manager to scale it down".to_owned(), failure })
    }

    /// Awaits the answer to a request, for at most `--within`.
    async fn response<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, Waiting> {
        let within = ANSWER_TIMEOUT.min(self.args.within);
        let reason = match tokio::time::timeout(within, request).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(kube::Error::Api(status))) => {
                format!("HTTP {}: {}", status.code, safe_line(&status.message, &[], MAX_ERROR_BYTES))
            }
            Ok(Err(error)) => api_server::chain(&error),
            Err(_) => format!("no answer within {within:?}"),
        };
        Err(self.unknown(&reason))
    }

    /// Returns the failure for a state that is unknown for this reason.
    fn unknown(&self, reason: &str) -> Waiting {
        let (name, within, namespace) = (&self.name, self.args.within, &self.args.namespace);
        let failure = format!(
            "it is unknown after {within:?} whether {name} runs Pods: {reason}; check --kubeconfig and the network, and let \
             the account get this Deployment, patch its scale, and list Pods in {namespace}"
        );
        Waiting { what: format!("the API server: {reason}"), failure }
    }

    /// Makes the Pods restore the nodes that the controller has set to Down, and fails while any node is Down.
    async fn switch_off(&mut self) -> Result<(), Waiting> {
        none_left(&self.switch(true).await?.nodes)
    }

    /// Removes the key, which would stop a controller from setting nodes to Down for 10 minutes.
    async fn switch_on(&mut self) -> Result<DownNodes, Waiting> {
        self.switch(false).await
    }

    /// Adds the key `admin-state.off` to our ConfigMap, or removes it, and returns the nodes that are Down: none if the
    /// ConfigMap does not exist, or is not named.
    async fn switch(&self, off: bool) -> Result<DownNodes, Waiting> {
        let mut facts = self.send(ConfigMapRequest::Get).await?;
        if let Some(other) = facts.take_if(|facts| switch::is_off(facts) != off) {
            let edit = if off { switch::off(self.clock.now()) } else { switch::on() };
            facts = self.send(ConfigMapRequest::Replace(other, edit)).await?;
        }
        Ok(facts.map(|facts| DownNodes::of(&facts, self.clock.now())).unwrap_or_default())
    }

    /// Sends a request about our ConfigMap and returns its state.
    async fn send(&self, request: ConfigMapRequest) -> Result<Option<Arc<ConfigMapFacts>>, Waiting> {
        let Some(name) = &self.args.configmap else { return Ok(None) };
        let reason =
            match send_config_map_request(self.client.clone(), name.clone(), self.clock, request).await {
                ConfigMapAnswer::Seen(facts) => return Ok(Some(facts)),
                ConfigMapAnswer::Absent => return Ok(None),
                ConfigMapAnswer::Conflict | ConfigMapAnswer::Unchanged => {
                    Arc::from("another client writes it at the same time")
                }
                ConfigMapAnswer::Failed(failure) => failure.into_why(),
            };
        let what = format!("the ConfigMap {name}: {reason}");
        let failure = format!(
            "it is unknown which nodes are still Down: {what}. Remove the key admin-state.off from it: a controller that \
             finds the key sets no node to Down for 10 minutes"
        );
        Err(Waiting { what, failure })
    }
}

/// Fails if nodes are Down.
fn none_left(down: &BTreeSet<String>) -> Result<(), Waiting> {
    if down.is_empty() {
        return Ok(());
    }
    let nodes = count_and_names("node", down);
    let failure = format!("still Down: {nodes}; docs/admin-state.md says how to restore them by hand");
    Err(Waiting { what: format!("{nodes} to be restored"), failure })
}

/// Returns the number of objects of this kind, and their names.
fn count_and_names(kind: &str, names: &BTreeSet<String>) -> String {
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("{} {kind}{plural}: {}", names.len(), observe::named(names.iter().cloned().collect()))
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
