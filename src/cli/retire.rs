//! `retire`: scales a Deployment to 0 and waits until its Pods have ended. Run it before the Deployment is deleted together
//! with the rights of its Pods: a Pod that ends needs them to release both Leases (W7, W8). Before that, the Pods restore
//! the nodes that are Down by the controller (N4): the key `admin-state.off` of our ConfigMap asks them to.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use actors::clock::Clock;
use actors::kubernetes::{Place, ask_config_map};
use anyhow::{Context as _, anyhow};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use config::LabelSelector;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::Selector;
use model::config_map::{ConfigMapAnswer, ConfigMapAsk, ConfigMapFacts};
use model::machine::Now;
use model::object::RequestFailure;
use model::redact::safe_line;
use nodes::switch::{self, DownNodes};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::{api_server, observe, say, tell};
use crate::service;

/// The exit code that says that Pods have not ended in time, or that it is not known.
const LATE: u8 = 3;
/// How long after an answer it looks again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often it tries to remove the key `admin-state.off`.
const TRIES: u32 = 3;
/// How long one answer of the API server may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// The most bytes of what the API server says of a failure.
const LONGEST: usize = 600;

/// The flags of `retire`.
#[derive(Args, Debug)]
pub(super) struct RetireArgs {
    /// The Deployment's namespace.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    namespace: String,
    /// The Deployment.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    deployment: String,
    /// Which Pods are the Deployment's where it was deleted already, by their labels, as for `kubectl get --selector`;
    /// without it none are waited for then.
    #[arg(long, value_name = "LABELS", value_parser = labels)]
    selector: Option<LabelSelector>,
    /// Our ConfigMap, named like our own Lease: the nodes that it records as Down by the controller are restored first,
    /// while the Pods still run, for at most half of the time; without it they stay Down.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = place)]
    configmap: Option<Place>,
    /// How long it may take.
    #[arg(long, value_parser = config::parse_duration, default_value = "60s")]
    within: Duration,
    /// The kubeconfig; without it the files of KUBECONFIG or `~/.kube/config`, else the pod's service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

/// Reads a label selector that is not for all Pods.
fn labels(text: &str) -> Result<LabelSelector, String> {
    let example = "write labels such as app.kubernetes.io/name=web,tier!=cache";
    match LabelSelector::parse(text) {
        Ok(selector) if selector.requirements().is_empty() => Err(format!("it is for all Pods; {example}")),
        Ok(selector) => Ok(selector),
        Err(wrong) => Err(format!("not a label selector: {wrong}; {example}")),
    }
}

/// Reads where an object is.
fn place(text: &str) -> Result<Place, String> {
    let is_name = |name: &str| {
        let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
        (1..=253).contains(&name.len()) && name.chars().all(fits)
    };
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok(Place { namespace: namespace.into(), name: name.into() })
        }
        Some(_) | None => {
            Err("write NAMESPACE/NAME, such as kube-system/azure-backend-pool-controller".to_owned())
        }
    }
}

/// Scales the Deployment to 0 and waits for its Pods. Exit code 3: they have not ended in time, or it is not known.
///
/// # Errors
/// It was ended by SIGTERM, or the API server's address is not known.
pub(super) fn retire(args: &RetireArgs) -> anyhow::Result<ExitCode> {
    service::in_system(async {
        let client = service::kubernetes_client(args.kubeconfig.as_ref()).await?;
        let clock = Clock::start();
        let mut work = Work {
            args,
            clock,
            end: clock.now().plus(args.within),
            deployments: Api::namespaced(client.clone(), &args.namespace),
            pods: Api::namespaced(client.clone(), &args.namespace),
            client,
            selector: args.selector.as_ref().map(ToString::to_string),
            waits_for: None,
            restored: false,
            switched_off: false,
            down: BTreeSet::new(),
        };
        // The first process of a container is not ended by a signal that it does not listen for.
        let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
        let ended = tokio::select! {
            ended = work.carry_out() => ended,
            _ = terminate.recv() => {
                Err(anyhow!("ended by SIGTERM: the Deployment stays as it is now; run this again"))
            }
        };
        // An earlier call may have left the key.
        if work.switched_off || (ended.is_ok() && args.configmap.is_some() && !work.restored) {
            work.switch_on().await?;
        }
        ended
    })
}

/// What keeps the command from its end.
enum Left {
    /// These Pods have not ended.
    Pods(BTreeSet<String>),
    /// These Pods have not ended, and there is no Deployment.
    Orphans(BTreeSet<String>),
    /// The Deployment's controller has not scaled it down.
    Controller,
    /// The last request failed, for this reason.
    Unknown(String),
}

/// One call of the command.
struct Work<'a> {
    args: &'a RetireArgs,
    clock: Clock,
    /// When its time is over.
    end: Now,
    client: kube::Client,
    deployments: Api<Deployment>,
    pods: Api<Pod>,
    /// Which Pods are the Deployment's: as it says itself, once it was read, and until then as the flag says.
    selector: Option<String>,
    /// What was last said that it waits for.
    waits_for: Option<String>,
    /// Whether the nodes that are Down were looked at.
    restored: bool,
    /// Whether the key `admin-state.off` may have been written.
    switched_off: bool,
    /// The nodes that stay Down.
    down: BTreeSet<String>,
}

impl Work<'_> {
    async fn carry_out(&mut self) -> anyhow::Result<ExitCode> {
        let mut found = false;
        loop {
            let left = match self.look().await {
                Err(why) => Left::Unknown(why),
                Ok((Some(scale), _)) if scale.wanted > 0 => {
                    found = true;
                    if !std::mem::replace(&mut self.restored, true) {
                        self.restore_nodes().await?;
                    }
                    say([printable!("scaling {} from {} to 0", self.name(), scale.wanted)])?;
                    // Pods need a moment to end: what is left is said after the next look.
                    match self.scale_down().await {
                        Ok(()) if self.clock.now() < self.end => {
                            tokio::time::sleep(LOOK_EVERY).await;
                            continue;
                        }
                        Ok(()) => Left::Controller,
                        Err(why) => Left::Unknown(why),
                    }
                }
                Ok((Some(_), pods)) if !pods.is_empty() => {
                    found = true;
                    Left::Pods(pods)
                }
                Ok((Some(Scale { settled: false, .. }), _)) => Left::Controller,
                Ok((None, pods)) if !pods.is_empty() => {
                    found = true;
                    Left::Orphans(pods)
                }
                Ok((scale, _)) => {
                    self.say_done(found || scale.is_some())?;
                    return Ok(ExitCode::SUCCESS);
                }
            };
            if self.clock.now() >= self.end {
                tell([printable!("error: {}", self.late(&left))]);
                return Ok(ExitCode::from(LATE));
            }
            self.say_waits(&words(&left))?;
            self.rest(self.end).await;
        }
    }

    /// Has the Pods restore the nodes that are Down by the controller, for at most half of the time.
    async fn restore_nodes(&mut self) -> anyhow::Result<()> {
        if self.args.configmap.is_none() {
            return say([printable!(
                "nodes that are Down stay Down: pass --configmap to have them restored"
            )]);
        }
        let half = self.end.minus(self.args.within / 2);
        loop {
            let is_late = self.clock.now() >= half;
            match self.down_nodes().await {
                Ok(down) if down.nodes.is_empty() || is_late => {
                    return self.say_stay_down(down);
                }
                Ok(down) => self.say_waits(&format!("{} to be restored", of_nodes(&down.nodes)))?,
                Err(Failure::Other(why)) if !is_late => self.say_waits(&format!("the API server: {why}"))?,
                Err(failure) => {
                    return say([printable!(
                        "it is not known which nodes stay Down: {}: {failure}",
                        self.config_map()
                    )]);
                }
            }
            self.rest(half).await;
        }
    }

    /// Switches the admin state off where it is not, and reads which nodes are Down by the controller.
    async fn down_nodes(&mut self) -> Result<DownNodes, Failure> {
        let mut facts = self.ask(ConfigMapAsk::Get).await?;
        self.switched_off = true;
        if !switch::is_off(&facts) {
            let edit = switch::off(self.clock.now());
            facts = self.ask(ConfigMapAsk::Replace(facts, edit)).await?;
        }
        Ok(DownNodes::of(&facts, self.clock.now()))
    }

    /// Removes the key `admin-state.off`: a controller that finds it takes no node out of traffic for 10 minutes.
    async fn switch_on(&mut self) -> anyhow::Result<()> {
        let mut tries = 1;
        loop {
            match self.try_switch_on().await {
                Ok(()) | Err(Failure::Absent) => return Ok(()),
                Err(Failure::Other(_)) if tries < TRIES => tokio::time::sleep(LOOK_EVERY).await,
                Err(failure) => return self.say_key_stays(&failure),
            }
            tries += 1;
        }
    }

    async fn try_switch_on(&self) -> Result<(), Failure> {
        let facts = self.ask(ConfigMapAsk::Get).await?;
        if switch::is_off(&facts) {
            self.ask(ConfigMapAsk::Replace(facts, switch::on())).await?;
        }
        Ok(())
    }

    async fn ask(&self, ask: ConfigMapAsk) -> Result<Arc<ConfigMapFacts>, Failure> {
        let Some(place) = &self.args.configmap else { return Err(Failure::Absent) };
        match ask_config_map(self.client.clone(), place.clone(), self.clock, ask).await {
            ConfigMapAnswer::Seen(facts) => Ok(facts),
            ConfigMapAnswer::Absent => Err(Failure::Absent),
            ConfigMapAnswer::Conflict => {
                Err(Failure::Other("another client writes it at the same time".into()))
            }
            ConfigMapAnswer::Failed(RequestFailure::Denied(why)) => Err(Failure::Denied(why)),
            ConfigMapAnswer::Failed(RequestFailure::Other(why)) => Err(Failure::Other(why)),
        }
    }

    /// Reads the Deployment, then its Pods: once its controller has acted, hardly any Pod is added to those listed later.
    async fn look(&mut self) -> Result<(Option<Scale>, BTreeSet<String>), String> {
        let found = self.answered(self.deployments.get_opt(&self.args.deployment)).await?;
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
                running(self.answered(self.pods.list(&its_own)).await?.items)
            }
            None => BTreeSet::new(),
        };
        Ok((scale, pods))
    }

    async fn scale_down(&self) -> Result<(), String> {
        let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
        let params = PatchParams::default();
        self.answered(self.deployments.patch_scale(&self.args.deployment, &params, &none)).await.map(drop)
    }

    /// The answer to a request, or why there is none. No answer takes longer than the whole command may.
    async fn answered<T>(&self, request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
        let within = ANSWER_WITHIN.min(self.args.within);
        match tokio::time::timeout(within, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => {
                Err(format!("HTTP {}: {}", status.code, safe_line(&status.message, &[], LONGEST)))
            }
            Ok(Err(error)) => Err(api_server::chain(&error)),
            Err(_) => Err(format!("no answer within {within:?}")),
        }
    }

    /// Waits until the next look, at most until then.
    async fn rest(&self, until: Now) {
        let now = self.clock.now();
        tokio::time::sleep(LOOK_EVERY.min(until.since(now))).await;
    }

    fn name(&self) -> String {
        format!("Deployment {}/{}", self.args.namespace, self.args.deployment)
    }

    /// The name of our ConfigMap.
    fn config_map(&self) -> String {
        let place = self.args.configmap.as_ref().map(ToString::to_string);
        format!("ConfigMap {}", place.unwrap_or_default())
    }

    /// Says what it waits for, unless that was the last thing it said.
    fn say_waits(&mut self, what: &str) -> anyhow::Result<()> {
        if self.waits_for.as_deref() != Some(what) {
            say([printable!("waiting for {what}")])?;
            self.waits_for = Some(what.to_owned());
        }
        Ok(())
    }

    fn say_stay_down(&mut self, down: DownNodes) -> anyhow::Result<()> {
        self.down = down.all();
        if self.down.is_empty() {
            return Ok(());
        }
        say([printable!(
            "{}: still Down, not restored in time; docs/admin-state.md says what to do",
            of_nodes(&self.down)
        )])
    }

    fn say_key_stays(&self, why: &Failure) -> anyhow::Result<()> {
        say([printable!(
            "the key admin-state.off of the {} may still be there: {why}; remove it: a controller that finds it takes no \
             node out of traffic for 10 minutes",
            self.config_map()
        )])
    }

    fn say_done(&self, found: bool) -> anyhow::Result<()> {
        let name = self.name();
        say([match &self.args.selector {
            _ if found => printable!("no Pod of {name} is left"),
            Some(labels) => {
                printable!("there is no {name}, and no Pod with the labels {labels}: nothing is to be done")
            }
            None => printable!(
                "there is no {name}: nothing is to be done; Pods of one that was deleted are waited for with --selector"
            ),
        }])
    }

    /// What is left when the time is over, and what to do.
    fn late(&self, left: &Left) -> String {
        let (name, within, namespace) = (self.name(), self.args.within, &self.args.namespace);
        let left = match left {
            Left::Pods(_) => format!(
                "{name} is scaled to 0, and has not ended within {within:?}: {}; {}",
                words(left),
                self.what_to_do()
            ),
            Left::Orphans(pods) => format!(
                "there is no {name}, and not all of its Pods have ended within {within:?}: {}; {}. If it was deleted with \
                 --cascade=orphan, delete its ReplicaSets",
                counted(pods, ""),
                self.what_to_do()
            ),
            Left::Controller => format!(
                "{name} is scaled to 0, and that was not carried out within {within:?}: see whether \
                 kube-controller-manager works, and run this again"
            ),
            Left::Unknown(why) => format!(
                "it is not known after {within:?} whether {name} runs Pods: {why}; check --kubeconfig and the network, and \
                 let the account get this Deployment, patch its scale, and list Pods in {namespace}"
            ),
        };
        if self.down.is_empty() { left } else { format!("{left}. Still Down: {}", of_nodes(&self.down)) }
    }

    /// What helps where Pods do not end.
    fn what_to_do(&self) -> String {
        let namespace = &self.args.namespace;
        format!(
            "see why with `kubectl --namespace {namespace} describe pod`, and run this again. A Pod whose node is gone for \
             good ends with `kubectl --namespace {namespace} delete pod <name> --force`"
        )
    }
}

/// Why a request about the ConfigMap failed.
enum Failure {
    Absent,
    Denied(Arc<str>),
    Other(Arc<str>),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Absent => f.write_str("it does not exist"),
            Failure::Denied(why) | Failure::Other(why) => f.write_str(why),
        }
    }
}

/// How many Pods a Deployment runs.
struct Scale {
    /// How many it is to run.
    wanted: i32,
    /// Whether its controller has seen that, and knows of no Pod.
    settled: bool,
}

/// What is waited for, in words.
fn words(left: &Left) -> String {
    match left {
        Left::Pods(pods) => counted(pods, ""),
        Left::Orphans(pods) => counted(pods, " of a Deployment that is gone"),
        Left::Controller => "kube-controller-manager to carry it out".to_owned(),
        Left::Unknown(why) => format!("the API server: {why}"),
    }
}

/// How many Pods there are, of what, and their names.
fn counted(pods: &BTreeSet<String>, of_what: &str) -> String {
    let pod = if pods.len() == 1 { "Pod" } else { "Pods" };
    format!("{} {pod}{of_what}: {}", pods.len(), named(pods))
}

/// How many nodes there are, and their names.
fn of_nodes(nodes: &BTreeSet<String>) -> String {
    let node = if nodes.len() == 1 { "node" } else { "nodes" };
    format!("{} {node}: {}", nodes.len(), named(nodes))
}

fn named(names: &BTreeSet<String>) -> String {
    observe::named(names.iter().cloned().collect())
}

/// What is to be known of a Deployment, and which Pods are its own.
fn facts(deployment: Deployment) -> Result<(Scale, String), String> {
    let spec = deployment.spec.ok_or_else(|| "the Deployment has no spec".to_owned())?;
    let status = deployment.status.unwrap_or_default();
    let is_current = status.observed_generation >= deployment.metadata.generation;
    let scale = Scale {
        // The API server's default.
        wanted: spec.replicas.unwrap_or(1),
        settled: is_current && status.replicas.unwrap_or(0) == 0,
    };
    let selector = Selector::try_from(spec.selector).map_err(|error| error.to_string())?;
    Ok((scale, selector.to_string()))
}

/// The names of the Pods that have not ended. One that was evicted, or has failed, may be there for long after its
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
        let shown = |text: &str| place(text).map(|place| place.to_string());
        assert_eq!(shown("kube-system/pools.a"), Ok("kube-system/pools.a".to_owned()));
        for wrong in ["", "pools", "kube-system/", "/pools", "a/b/c", "a/b c", "a/b?x=y"] {
            let told = shown(wrong).expect_err("it names no ConfigMap");
            assert!(told.starts_with("write NAMESPACE/NAME, such as "), "{wrong}: {told}");
        }
    }
}
