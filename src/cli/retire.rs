//! `retire`: has a Deployment run no Pods, and waits until they have ended. Whoever deletes it together with the Pods'
//! rights does this first: what is told to end gives both Leases back, and needs those rights for it (W7, W8). Before that
//! the Pods take the nodes back that are Down by us (N4). What is asked next, and when it is too late, is decided by
//! [`pool_core::retirement`].

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use actors::clock::Clock;
use actors::kubernetes::{Place, ask_config_map};
use anyhow::{Context as _, bail};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use config::LabelSelector;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::Selector;
use pool_core::config_map::{ConfigMapAnswer, ConfigMapAsk};
use pool_core::machine::{Machine as _, Now};
use pool_core::object::RequestFailure;
use pool_core::redact::told;
use pool_core::retirement::{End, In, Left, Out, Retirement, Scale, Seen, Stay};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{api_server, observe, say};
use crate::service;

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
    /// Our ConfigMap, named like our own Lease: the nodes that it notes as Down by the controller are taken back first,
    /// while the Pods still run, for at most half of the time; without it they stay Down.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = place)]
    configmap: Option<Place>,
    /// How long it may take.
    #[arg(long, value_parser = simulator::duration, default_value = "60s")]
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

/// Has the Deployment run no Pods.
///
/// # Errors
/// Some of them have not ended in time, or it is not known.
pub(super) fn retire(args: &RetireArgs) -> anyhow::Result<()> {
    service::in_system(async {
        let client = service::kubernetes_client(args.kubeconfig.as_ref()).await?;
        let mut work = Work {
            args,
            clock: Clock::start(),
            deployments: Api::namespaced(client.clone(), &args.namespace),
            pods: Api::namespaced(client.clone(), &args.namespace),
            client,
            selector: args.selector.as_ref().map(ToString::to_string),
        };
        // The first process of a container hears of nothing that it does not listen for.
        let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
        work.carry_out(&mut terminate).await
    })
}

/// What is asked of the API server.
enum Request {
    Look,
    ScaleDown,
    ConfigMap(ConfigMapAsk),
}

/// One call of the command.
struct Work<'a> {
    args: &'a RetireArgs,
    clock: Clock,
    client: kube::Client,
    deployments: Api<Deployment>,
    pods: Api<Pod>,
    /// Which Pods are the Deployment's: as it says itself, once it was read, and until then as the flag says.
    selector: Option<String>,
}

impl Work<'_> {
    async fn carry_out(&mut self, terminate: &mut Signal) -> anyhow::Result<()> {
        let retirement = Retirement::new(self.args.within);
        let mut retirement =
            if self.args.configmap.is_some() { retirement.taking_back() } else { retirement };
        let mut said = Vec::new();
        retirement.step(self.clock.now(), In::Start, &mut said);
        loop {
            let mut request = None;
            for out in std::mem::take(&mut said) {
                match out {
                    Out::Look => request = Some(Request::Look),
                    Out::ScaleDown { from } => {
                        say([printable!("scaling {} from {from} to 0", self.name())])?;
                        request = Some(Request::ScaleDown);
                    }
                    Out::ConfigMap(ask) => request = Some(Request::ConfigMap(ask)),
                    Out::WaitsFor(left) => say([printable!("waiting for {}", words(&left))])?,
                    Out::TakesBack(nodes) => {
                        say([printable!(
                            "waiting for what is Down of {} to be taken back",
                            of_nodes(&nodes)
                        )])?;
                    }
                    Out::StaysDown(stay) => self.stays_down(&stay)?,
                    Out::NoteStays(why) => self.note_stays(&why)?,
                    Out::Ended(end) => return self.ended(&end),
                }
            }
            let input = tokio::select! {
                input = self.answer(request, retirement.deadline()) => input,
                _ = terminate.recv() => Some(In::Terminated),
            };
            match input {
                Some(input) => retirement.step(self.clock.now(), input, &mut said),
                None => retirement.tick(self.clock.now(), &mut said),
            }
        }
    }

    /// The answer to what was asked. Where nothing was, it waits until it is time for the next request, and gives none.
    async fn answer(&mut self, request: Option<Request>, next: Option<Now>) -> Option<In> {
        match request {
            Some(Request::Look) => Some(self.look().await),
            Some(Request::ScaleDown) => Some(self.scale_down().await),
            Some(Request::ConfigMap(ask)) => Some(In::ConfigMap(self.ask(ask).await)),
            None => {
                let next = next.expect("what asks nothing and has not ended looks again");
                tokio::time::sleep(next.since(self.clock.now())).await;
                None
            }
        }
    }

    async fn ask(&self, ask: ConfigMapAsk) -> ConfigMapAnswer {
        match &self.args.configmap {
            Some(place) => ask_config_map(self.client.clone(), place.clone(), self.clock, ask).await,
            None => ConfigMapAnswer::Failed(RequestFailure::Other("--configmap is not given".into())),
        }
    }

    async fn look(&mut self) -> In {
        self.seen().await.map_or_else(In::Failed, In::Seen)
    }

    /// Reads the Deployment first: once its controller has acted, hardly any Pod comes to those that are listed after.
    async fn seen(&mut self) -> Result<Seen, String> {
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
                Some(running(self.answered(self.pods.list(&its_own)).await?.items))
            }
            None => None,
        };
        Ok(Seen { scale, pods })
    }

    async fn scale_down(&self) -> In {
        let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
        let params = PatchParams::default();
        let scaled = self.answered(self.deployments.patch_scale(&self.args.deployment, &params, &none)).await;
        scaled.map_or_else(In::Failed, |_| In::Scaled)
    }

    /// The answer to a request, or why there is none. No answer takes longer than all may.
    async fn answered<T>(&self, request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
        let within = ANSWER_WITHIN.min(self.args.within);
        match tokio::time::timeout(within, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => {
                Err(format!("HTTP {}: {}", status.code, told(&status.message, &[], LONGEST)))
            }
            Ok(Err(error)) => Err(api_server::chain(&error)),
            Err(_) => Err(format!("no answer within {within:?}")),
        }
    }

    fn name(&self) -> String {
        format!("Deployment {}/{}", self.args.namespace, self.args.deployment)
    }

    /// Our ConfigMap, as people call it.
    fn config_map(&self) -> String {
        let place = self.args.configmap.as_ref().map(ToString::to_string);
        format!("ConfigMap {}", place.unwrap_or_default())
    }

    fn stays_down(&self, stay: &Stay) -> anyhow::Result<()> {
        say([match stay {
            Stay::Nodes(nodes) => printable!(
                "what is Down of {} stays Down: it was not taken back in time; docs/admin-state.md says what to do",
                of_nodes(nodes)
            ),
            Stay::Unnamed => printable!(
                "what is Down of nodes by the controller stays Down: pass --configmap to have it taken back"
            ),
            Stay::Unknown(why) => {
                printable!(
                    "it is not known of which nodes something stays Down: {}: {why}",
                    self.config_map()
                )
            }
        }])
    }

    fn note_stays(&self, why: &str) -> anyhow::Result<()> {
        say([printable!(
            "the key admin-state.off of the {} may still be there: {why}; remove it: a controller that begins would cut out \
             no node for 10 minutes",
            self.config_map()
        )])
    }

    /// How it has ended.
    fn ended(&self, end: &End) -> anyhow::Result<()> {
        let (name, within, namespace) = (self.name(), self.args.within, &self.args.namespace);
        match end {
            End::Absent => say([match &self.args.selector {
                Some(labels) => {
                    printable!(
                        "there is no {name}, and no Pod with the labels {labels}: nothing is to be done"
                    )
                }
                None => printable!(
                    "there is no {name}: nothing is to be done; Pods of one that was deleted are waited for with \
                     --selector"
                ),
            }]),
            End::Retired => say([printable!("no Pod of {name} is left")]),
            End::Terminated => bail!("ended by SIGTERM: the Deployment stays as it is now; run this again"),
            End::Late(left @ Left::Pods(_)) => bail!(
                "{name} is scaled to 0, and has not ended within {within:?}: {}; {}",
                words(left),
                self.what_to_do()
            ),
            End::Late(Left::Orphans(pods)) => bail!(
                "there is no {name}, and not all of its Pods have ended within {within:?}: {}; {}. Where it was deleted \
                 with --cascade=orphan, delete its ReplicaSets",
                counted(pods, ""),
                self.what_to_do()
            ),
            End::Late(Left::Controller) => bail!(
                "{name} is scaled to 0, and that was not carried out within {within:?}: see whether \
                 kube-controller-manager works, and run this again"
            ),
            End::Late(Left::Unknown(why)) => bail!(
                "it is not known after {within:?} whether {name} runs Pods: {why}; check --kubeconfig and the network, and \
                 let the account get this Deployment, patch its scale, and list Pods in {namespace}"
            ),
        }
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
