//! `restore`: restores the members of pools from a snapshot, with the machines of `run` and under their rules: our own
//! Lease, the shared Lease, gates, budgets, proof of ownership, verification (docs/design/surface.md, commands).
//!
//! Only the desired members of a pool have another source: the snapshot that the operator names. The command pauses
//! everything for the next leader, so that the restore is not undone immediately.

mod image;
mod plan;
mod work;

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal, stdin};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use config::Config;
use model::ids::{PoolId, PoolName};
use model::machine::Now;
use model::redact::Printable;
use model::view::{Candidacy, Snapshot};
use pool_core::comparison::unread;
use tokio::sync::oneshot;

use self::image::{Image, Permissions};
use self::plan::{Documents, Evidence, Finding};
use self::work::{Outcome, PoolRestore};
use super::snapshot::format::Filter;
use super::snapshot::{Azure, check_scope, read_file};
use super::{Files, eprint_lines, files, observe, print_lines, run, write};
use crate::service::{self, Ended, Listeners, Options, ServiceHandle};
use crate::telemetry;
use crate::wiring::ElectionStart;
use crate::wiring::params::{self, Restoring};

/// Exit code if pools would be written.
const PENDING: u8 = 3;
/// Timeout of the first lists and reads.
const READ_TIMEOUT: Duration = Duration::from_secs(300);
/// The time for which everything must have been known before the plan is made, because the parts of the published
/// snapshot arrive one after another.
const STABLE_FOR: Duration = Duration::from_secs(1);

/// The flags of `restore`.
#[derive(Args, Debug)]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    files: Files,
    /// The kubeconfig; by default the files of KUBECONFIG or `~/.kube/config`, else the Pod's service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The snapshot.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Restores only pools of this load balancer; may be given several times.
    #[arg(long, value_name = "NAME")]
    lb: Vec<String>,
    /// Restores only pools of this name, even if they or their Services are paused; may be given several times.
    #[arg(long, value_name = "NAME")]
    pool: Vec<String>,
    /// Empties pools that are empty in the snapshot, even if their Services have endpoints.
    #[arg(long)]
    allow_empty: bool,
    /// Writes pools even if no member would host an endpoint (the Service then gets no traffic).
    #[arg(long)]
    allow_unserved: bool,
    /// Does not pause everything: a running controller then undoes the restore.
    #[arg(long)]
    leave_unpaused: bool,
    /// Shows what would be written, and writes nothing. Exit code 0: no change; 3: something would be written.
    #[arg(long)]
    dry_run: bool,
    /// How long the restore may take, including the wait for a controller that leads.
    #[arg(long, value_parser = config::parse_duration, default_value = "10m")]
    within: Duration,
    /// Writes without asking for confirmation.
    #[arg(long)]
    yes: bool,
}

/// Restores pools.
pub(super) fn restore(args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    // A file that cannot be used needs no confirmation.
    let stored = read_file(&args.file)?;
    if !args.dry_run && !args.yes && !stdin().is_terminal() {
        bail!(
            "standard input is not a terminal, so no confirmation is possible: pass --yes, or --dry-run to see the changes first"
        );
    }
    let loaded = files::load_with(&args.files, args.kubeconfig.as_ref())?;
    let config = loaded.config;
    let log = telemetry::start(run::log_form(config.controller.log.format), "warn");
    for warning in &loaded.warnings {
        eprint_lines([printable!("warning: {warning}")]);
    }
    check_scope(&config, &args.file, &stored)?;
    let images =
        image::images_of(&stored, &Filter { load_balancers: args.lb.clone(), pools: args.pool.clone() })?;
    print_lines([printable!(
        "{} pools as of {} in {}",
        images.len(),
        stored.created_at,
        args.file.display()
    )])?;
    let named = !args.pool.is_empty();
    let permissions = Permissions { empty: args.allow_empty, unserved: args.allow_unserved, paused: named };
    let pins = Arc::new(image::pins(&images, permissions));
    let options = Options {
        config: config.clone(),
        kubeconfig: args.kubeconfig.clone(),
        dry_run: args.dry_run,
        levels: log.levels.clone(),
        restoring: Some(Restoring { pins, pauses: !args.leave_unpaused, named }),
        election: ElectionStart::Deferred,
    };
    let mut task = Task { args, config: &config, created: &stored.created_at, images, started: None };
    service::in_system(async {
        let azure = Azure::of(&config)?;
        let watcher = async |service: ServiceHandle| task.execute(&azure, &service).await;
        let Ended { answer, handle: service } = service::serve(options, Listeners::Absent, watcher).await?;
        match answer {
            Some(code) => code,
            None => task.interrupted(&service.published.load_full()),
        }
    })
}

/// A run of the command.
struct Task<'a> {
    args: &'a RestoreArgs,
    config: &'a Config,
    /// When the snapshot was made.
    created: &'a str,
    images: Vec<Image>,
    /// The findings and the start time of the restore; `None` before it has started.
    started: Option<(Vec<Finding>, Now)>,
}

impl Task<'_> {
    async fn execute(&mut self, azure: &Azure<'_>, service: &ServiceHandle) -> anyhow::Result<ExitCode> {
        let documents = self.documents(azure).await?;
        self.wait_until_read(service, &documents).await?;
        let snapshot = service.published.load_full();
        let evidence = Evidence { documents: &documents, snapshot: &snapshot, named: self.has_named() };
        let findings: Vec<Finding> = self.images.iter().map(|image| Finding::of(image, &evidence)).collect();
        print_lines(plan::lines(&self.images, &findings, &evidence))?;
        let changes = findings.iter().filter(|finding| finding.is_change()).count();
        if self.args.dry_run {
            return Ok(if changes > 0 { ExitCode::from(PENDING) } else { ExitCode::SUCCESS });
        }
        if changes == 0 {
            print_lines([printable!("nothing to write")])?;
            return Ok(exit_code(findings.iter().all(|finding| self.is_as_requested(finding, None))));
        }
        if !self.args.yes && !confirm(changes).await? {
            bail!("not confirmed: nothing was written");
        }
        let since = service.clock.now();
        let pools = self.pools(&findings);
        self.started = Some((findings, since));
        service.election_trigger.join_election().await;
        let file = self.args.file.file_name().unwrap_or_default().to_string_lossy();
        let reason = format!("pools were restored from {file}, a snapshot of {}", self.created);
        let work = PoolRestore {
            pools: &pools,
            pause: (!self.args.leave_unpaused).then(|| reason.into()),
            since,
            within: self.args.within,
        };
        let is_confirmed =
            async |outcomes: &BTreeMap<PoolId, Outcome>| self.is_confirmed(azure, service, outcomes).await;
        let ended = work.run(service, is_confirmed).await;
        let all = self.report(&service.published.load_full())?;
        ended?;
        Ok(exit_code(all))
    }

    /// Returns the pools that the machines restore or keep restored.
    fn pools(&self, findings: &[Finding]) -> Vec<PoolId> {
        let chosen = self.images.iter().zip(findings).filter(|(_, finding)| finding.is_ours());
        chosen.map(|(image, _)| image.id.clone()).collect()
    }

    /// Waits until the lists, all load balancers and the facts about the pools were read.
    async fn wait_until_read(&self, service: &ServiceHandle, documents: &Documents) -> anyhow::Result<()> {
        let began = service.clock.now();
        let mut steady: Option<Now> = None;
        let cluster = self.config.controller.cluster_name.as_str();
        loop {
            let (now, snapshot) = (service.clock.now(), service.published.load_full());
            let policy = snapshot.policy.as_ref().is_some_and(|view| view.policy.is_some());
            let known = |id: &PoolId| !documents.contains_key(id) || is_known(&snapshot, id, cluster);
            let all =
                policy && unread(&snapshot).is_empty() && self.images.iter().all(|image| known(&image.id));
            steady = if all { steady.or(Some(now)) } else { None };
            if steady.is_some_and(|since| now.since(since) >= STABLE_FOR) {
                return Ok(());
            }
            if now.since(began) >= READ_TIMEOUT.min(self.args.within) {
                let mut missing: Vec<String> = unread(&snapshot).iter().map(ToString::to_string).collect();
                if !policy {
                    let error = snapshot.policy.as_ref().and_then(|view| view.last_error.as_deref());
                    missing.push(format!(
                        "the controller's ConfigMap: {}",
                        error.unwrap_or("it was not read yet")
                    ));
                }
                let unseen = self.images.iter().filter(|image| !known(&image.id));
                missing.extend(unseen.map(|image| format!("{} was not read", image.id)));
                if missing.is_empty() {
                    missing.push("the last change was read less than a second ago".to_owned());
                }
                bail!("not everything could be read: {}; nothing was written", observe::named(missing));
            }
            tokio::time::sleep(observe::POLL_INTERVAL).await;
        }
    }

    /// Reads the current pools from ARM.
    async fn documents(&self, azure: &Azure<'_>) -> anyhow::Result<Documents> {
        let mut documents = Documents::new();
        let mut read: Vec<&str> = Vec::new();
        for image in &self.images {
            let lb = image.id.lb.as_str();
            if read.contains(&lb) {
                continue;
            }
            read.push(lb);
            let balancer = azure.balancer(lb, &Filter::default()).await?;
            for pool in balancer.into_iter().flat_map(|balancer| balancer.pools) {
                let document = serde_json::from_str(pool.document.get()).context("a pool is not readable")?;
                documents.insert(PoolId::new(image.id.lb.clone(), PoolName::new(pool.name)), document);
            }
        }
        Ok(documents)
    }

    /// Returns whether ARM has the pools that the machines report as restored.
    async fn is_confirmed(
        &self,
        azure: &Azure<'_>,
        service: &ServiceHandle,
        outcomes: &BTreeMap<PoolId, Outcome>,
    ) -> anyhow::Result<bool> {
        let (documents, snapshot) = (self.documents(azure).await?, service.published.load_full());
        let in_sync =
            self.images.iter().filter(|image| outcomes.get(&image.id).is_some_and(Outcome::is_in_sync));
        let evidence = Evidence { documents: &documents, snapshot: &snapshot, named: self.has_named() };
        Ok(in_sync.into_iter().all(|image| Finding::of(image, &evidence).is_in_sync()))
    }

    /// Prints the outcome of each pool and the next steps. Returns whether all pools are as requested.
    fn report(&self, snapshot: &Snapshot) -> anyhow::Result<bool> {
        let Some((findings, since)) = &self.started else { return Ok(false) };
        let pools = self.pools(findings);
        let work = PoolRestore { pools: &pools, pause: None, since: *since, within: self.args.within };
        let outcomes = work.outcomes(snapshot);
        let found =
            self.images.iter().zip(findings).map(|(image, finding)| (finding, outcomes.get(&image.id)));
        let is_in_sync = |(finding, outcome): &(&Finding, Option<&Outcome>)| {
            outcome.map_or_else(|| finding.is_in_sync(), Outcome::is_in_sync)
        };
        let in_sync = found.clone().filter(is_in_sync).count();
        let all = found.clone().all(|(finding, outcome)| self.is_as_requested(finding, outcome));
        let mut lines = vec![printable!("{in_sync} of {} pools are as in the snapshot", self.images.len())];
        for (image, finding) in self.images.iter().zip(findings) {
            let text = outcomes.get(&image.id).map_or_else(|| finding.text(), Outcome::text);
            let silent = outcomes
                .get(&image.id)
                .map_or_else(|| finding.is_in_sync(), |outcome| *outcome == Outcome::InSync);
            if !silent || finding.is_change() {
                lines.push(printable!("- {}: {text}", image.id));
            }
        }
        lines.extend(self.next_steps(snapshot));
        print_lines(lines)?;
        Ok(all)
    }

    /// Returns whether the operator has named the pools.
    fn has_named(&self) -> bool {
        !self.args.pool.is_empty()
    }

    /// Returns whether a pool is as requested. A pool without an owner counts only if the operator has named it.
    fn is_as_requested(&self, finding: &Finding, outcome: Option<&Outcome>) -> bool {
        let foreign = *finding == Finding::Foreign && !self.has_named();
        foreign || outcome.map_or_else(|| finding.is_in_sync(), Outcome::is_in_sync)
    }

    /// Returns the lines about what happens to the pools from now on, and how to end the pause.
    fn next_steps(&self, snapshot: &Snapshot) -> Vec<Printable> {
        if self.args.leave_unpaused {
            return vec![printable!(
                "nothing is paused: a controller that runs will change the pools to match the endpoints"
            )];
        }
        let policy = snapshot.policy.as_ref().and_then(|view| view.policy.as_ref());
        if policy.is_none_or(|policy| policy.everything.is_none()) {
            return vec![printable!(
                "there is no pause of everything: a controller that runs will change the pools to match the endpoints"
            )];
        }
        let lease = params::leases(self.config).own;
        vec![
            printable!(
                "everything is paused: no controller changes these pools until an operator resumes, by POST /api/v1/resume \
                 with {{\"scope\": \"everything\"}}, or by"
            ),
            printable!(
                "  kubectl --namespace {} patch configmap {} --type=merge --patch '{{\"data\": {{\"pause.everything\": \
                 null}}}}'",
                lease.namespace,
                lease.name
            ),
        ]
    }

    /// Reports the state after a signal has interrupted the command.
    fn interrupted(&self, snapshot: &Snapshot) -> anyhow::Result<ExitCode> {
        if self.started.is_none() {
            bail!("interrupted: nothing was written");
        }
        eprint_lines([printable!("interrupted: all requests that were sent are answered")]);
        self.report(snapshot)?;
        Ok(ExitCode::FAILURE)
    }
}

/// Returns whether the machines know an existing pool: it has no owner, is not manageable, or was read. The pools of
/// the cluster as a whole have no owner, even if rules use them.
fn is_known(snapshot: &Snapshot, id: &PoolId, cluster: &str) -> bool {
    let is_cluster = PoolName::of_cluster(cluster).contains(&id.pool);
    let mut services = snapshot.services.values();
    match snapshot.pools.get(id) {
        Some(pool) => pool.observed.is_some(),
        None if is_cluster => true,
        None => services.all(|service| {
            service.candidacy != Candidacy::Candidate
                || !service.pools.contains(id)
                || service.not_manageable.iter().any(|(pool, _)| pool == id)
        }),
    }
}

fn exit_code(in_sync: bool) -> ExitCode {
    if in_sync { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Asks the operator at the terminal. A separate thread waits for the answer, so that a signal can still end the
/// process.
async fn confirm(pools: usize) -> anyhow::Result<bool> {
    write(&printable!("Write {pools} pools? Only `yes` means yes: "))?;
    let (answer, answered) = oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = stdin().lock().read_line(&mut line);
        if answer.send(read.is_ok() && line.trim() == "yes").is_err() {
            eprint_lines([printable!("the answer came too late")]);
        }
    });
    Ok(answered.await.unwrap_or(false))
}
