//! `restore`: puts the members of pools back to what a snapshot has, by the machines of `run` and under their rules:
//! our own Lease, the shared one, gates, budgets, proof of ownership, verification (docs/design/surface.md, commands).
//!
//! Only which level a pool has is decided otherwise: by the snapshot, for the operator has said so. Everything is paused for
//! the next leader, so that it does not undo that at once.

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

use self::image::{Allowed, Image};
use self::plan::{Documents, Finding, Grounds};
use self::work::{Fate, Work};
use super::snapshot::format::Filter;
use super::snapshot::{Azure, check_scope, read_file};
use super::{Files, files, observe, run, say, tell, write};
use crate::service::{self, Ended, Listeners, Options, Sight};
use crate::telemetry;
use crate::wiring::Election;
use crate::wiring::params::{self, Restoring};

/// The exit code that says that pools would be written.
const PENDING: u8 = 3;
/// How long the first lists and reads may take.
const SEEN_WITHIN: Duration = Duration::from_secs(300);
/// For how long everything must have been seen: views of one thing come in one after the other.
const STEADY_FOR: Duration = Duration::from_secs(1);

/// The flags of `restore`.
#[derive(Args, Debug)]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    files: Files,
    /// The kubeconfig; without it the files of KUBECONFIG or `~/.kube/config`, else the pod's service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The snapshot.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Restores only pools of this load balancer; may be given several times.
    #[arg(long, value_name = "NAME")]
    lb: Vec<String>,
    /// Restores only pools of this name, and does so where they or their Services are paused too; may be given several
    /// times.
    #[arg(long, value_name = "NAME")]
    pool: Vec<String>,
    /// Empties pools whose pre-image is empty though their Services have endpoints.
    #[arg(long)]
    allow_empty: bool,
    /// Writes pools also where none of the nodes that endpoints are on is left in them, so that they serve no traffic.
    #[arg(long)]
    allow_unserved: bool,
    /// Does not pause everything for the controllers that run afterwards: they will undo what was restored.
    #[arg(long)]
    leave_unpaused: bool,
    /// Only shows what would be written: exit code 0 when nothing would be, 3 when something would.
    #[arg(long)]
    dry_run: bool,
    /// How long it may take, waiting for a controller that leads included.
    #[arg(long, value_parser = config::parse_duration, default_value = "10m")]
    within: Duration,
    /// Asks no question.
    #[arg(long)]
    yes: bool,
}

/// Restores pools.
pub(super) fn restore(args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    // A file that cannot be used needs no confirmation.
    let stored = read_file(&args.file)?;
    if !args.dry_run && !args.yes && !stdin().is_terminal() {
        bail!(
            "standard input is not a terminal, so no confirmation is possible: pass --yes, or --dry-run to look first"
        );
    }
    let loaded = files::load_with(&args.files, args.kubeconfig.as_ref())?;
    let config = loaded.config;
    let log = telemetry::start(run::form(config.controller.log.format), "warn");
    for warning in &loaded.warnings {
        tell([printable!("warning: {warning}")]);
    }
    check_scope(&config, &args.file, &stored)?;
    let images =
        image::wanted(&stored, &Filter { load_balancers: args.lb.clone(), pools: args.pool.clone() })?;
    say([printable!("{} pools as of {} in {}", images.len(), stored.created_at, args.file.display())])?;
    let named = !args.pool.is_empty();
    let allowed = Allowed { empty: args.allow_empty, unserved: args.allow_unserved, paused: named };
    let pins = Arc::new(image::pins(&images, allowed));
    let options = Options {
        config: config.clone(),
        kubeconfig: args.kubeconfig.clone(),
        dry_run: args.dry_run,
        levels: log.levels.clone(),
        restoring: Some(Restoring { pins, pauses: !args.leave_unpaused, named }),
        election: Election::WhenTold,
    };
    let mut task = Task { args, config: &config, created: &stored.created_at, images, begun: None };
    service::in_system(async {
        let azure = Azure::of(&config)?;
        let watcher = async |sight: Sight| task.carry_out(&azure, &sight).await;
        let Ended { answer, sight } = service::serve(options, Listeners::Absent, watcher).await?;
        match answer {
            Some(code) => code,
            None => task.interrupted(&sight.published.load_full()),
        }
    })
}

/// One call of the command.
struct Task<'a> {
    args: &'a RestoreArgs,
    config: &'a Config,
    /// When the snapshot was made.
    created: &'a str,
    images: Vec<Image>,
    /// What was found and when the work began; `None`: it has not.
    begun: Option<(Vec<Finding>, Now)>,
}

impl Task<'_> {
    async fn carry_out(&mut self, azure: &Azure<'_>, sight: &Sight) -> anyhow::Result<ExitCode> {
        let documents = self.documents(azure).await?;
        self.until_seen(sight, &documents).await?;
        let snapshot = sight.published.load_full();
        let grounds = Grounds { documents: &documents, snapshot: &snapshot, named: self.has_named() };
        let findings: Vec<Finding> = self.images.iter().map(|image| Finding::of(image, &grounds)).collect();
        say(plan::lines(&self.images, &findings, &grounds))?;
        let changes = findings.iter().filter(|finding| finding.is_change()).count();
        if self.args.dry_run {
            return Ok(if changes > 0 { ExitCode::from(PENDING) } else { ExitCode::SUCCESS });
        }
        if changes == 0 {
            say([printable!("nothing is to be written")])?;
            return Ok(exit(findings.iter().all(|finding| self.is_well(finding, None))));
        }
        if !self.args.yes && !confirmed(changes).await? {
            bail!("not confirmed: nothing was written");
        }
        let since = sight.clock.now();
        let pools = self.pools(&findings);
        self.begun = Some((findings, since));
        sight.ballot.cast().await;
        let file = self.args.file.file_name().unwrap_or_default().to_string_lossy();
        let reason = format!("pools were restored from {file}, a snapshot of {}", self.created);
        let work = Work {
            pools: &pools,
            pause: (!self.args.leave_unpaused).then(|| reason.into()),
            since,
            within: self.args.within,
        };
        let is_so = async |fates: &BTreeMap<PoolId, Fate>| self.is_so(azure, sight, fates).await;
        let ended = work.done(sight, is_so).await;
        let all = self.report(&sight.published.load_full())?;
        ended?;
        Ok(exit(all))
    }

    /// The pools that are to be brought into sync, or kept so.
    fn pools(&self, findings: &[Finding]) -> Vec<PoolId> {
        let wanted = self.images.iter().zip(findings).filter(|(_, finding)| finding.is_work());
        wanted.map(|(image, _)| image.id.clone()).collect()
    }

    /// Waits until the lists, all load balancers, and all that is to be known of the pools have been seen.
    async fn until_seen(&self, sight: &Sight, documents: &Documents) -> anyhow::Result<()> {
        let began = sight.clock.now();
        let mut steady: Option<Now> = None;
        let cluster = self.config.controller.cluster_name.as_str();
        loop {
            let (now, snapshot) = (sight.clock.now(), sight.published.load_full());
            let policy = snapshot.policy.as_ref().is_some_and(|view| view.policy.is_some());
            let known = |id: &PoolId| !documents.contains_key(id) || is_known(&snapshot, id, cluster);
            let all =
                policy && unread(&snapshot).is_empty() && self.images.iter().all(|image| known(&image.id));
            steady = if all { steady.or(Some(now)) } else { None };
            if steady.is_some_and(|since| now.since(since) >= STEADY_FOR) {
                return Ok(());
            }
            if now.since(began) >= SEEN_WITHIN.min(self.args.within) {
                let mut why: Vec<String> = unread(&snapshot).iter().map(ToString::to_string).collect();
                if !policy {
                    let error = snapshot.policy.as_ref().and_then(|view| view.last_error.as_deref());
                    why.push(format!("our ConfigMap: {}", error.unwrap_or("it was not read yet")));
                }
                let unseen = self.images.iter().filter(|image| !known(&image.id));
                why.extend(unseen.map(|image| format!("{} was not seen", image.id)));
                if why.is_empty() {
                    why.push("all of it came only in the last second".to_owned());
                }
                bail!("not everything could be read: {}; nothing was written", observe::named(why));
            }
            tokio::time::sleep(observe::LOOK_EVERY).await;
        }
    }

    /// The pools as ARM has them now.
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

    /// Whether the pools that the machines report in sync are so at ARM.
    async fn is_so(
        &self,
        azure: &Azure<'_>,
        sight: &Sight,
        fates: &BTreeMap<PoolId, Fate>,
    ) -> anyhow::Result<bool> {
        let (documents, snapshot) = (self.documents(azure).await?, sight.published.load_full());
        let in_sync = self.images.iter().filter(|image| fates.get(&image.id).is_some_and(Fate::is_in_sync));
        let grounds = Grounds { documents: &documents, snapshot: &snapshot, named: self.has_named() };
        Ok(in_sync.into_iter().all(|image| Finding::of(image, &grounds).is_in_sync()))
    }

    /// What has become of each pool, and how to go on. Returns whether all are in sync.
    fn report(&self, snapshot: &Snapshot) -> anyhow::Result<bool> {
        let Some((findings, since)) = &self.begun else { return Ok(false) };
        let pools = self.pools(findings);
        let work = Work { pools: &pools, pause: None, since: *since, within: self.args.within };
        let fates = work.fates(snapshot);
        let found = self.images.iter().zip(findings).map(|(image, finding)| (finding, fates.get(&image.id)));
        let is_in_sync = |(finding, fate): &(&Finding, Option<&Fate>)| {
            fate.map_or_else(|| finding.is_in_sync(), Fate::is_in_sync)
        };
        let in_sync = found.clone().filter(is_in_sync).count();
        let all = found.clone().all(|(finding, fate)| self.is_well(finding, fate));
        let mut lines = vec![printable!("{in_sync} of {} pools are as in the snapshot", self.images.len())];
        for (image, finding) in self.images.iter().zip(findings) {
            let words = fates.get(&image.id).map_or_else(|| finding.words(), Fate::words);
            let silent =
                fates.get(&image.id).map_or_else(|| finding.is_in_sync(), |fate| *fate == Fate::InSync);
            if !silent || finding.is_change() {
                lines.push(printable!("- {}: {words}", image.id));
            }
        }
        lines.extend(self.how_to_go_on(snapshot));
        say(lines)?;
        Ok(all)
    }

    /// Whether the pools were named.
    fn has_named(&self) -> bool {
        !self.args.pool.is_empty()
    }

    /// Whether a pool is as it was asked for. One without an owner counts only where it was named.
    fn is_well(&self, finding: &Finding, fate: Option<&Fate>) -> bool {
        let foreign = *finding == Finding::Foreign && !self.has_named();
        foreign || fate.map_or_else(|| finding.is_in_sync(), Fate::is_in_sync)
    }

    fn how_to_go_on(&self, snapshot: &Snapshot) -> Vec<Printable> {
        if self.args.leave_unpaused {
            return vec![printable!(
                "nothing is paused: a controller that runs makes the pools what endpoints ask for"
            )];
        }
        let policy = snapshot.policy.as_ref().and_then(|view| view.policy.as_ref());
        if policy.is_none_or(|policy| policy.everything.is_none()) {
            return vec![printable!(
                "everything is not paused: a controller that runs makes the pools what endpoints ask for"
            )];
        }
        let place = params::leases(self.config).own;
        vec![
            printable!(
                "everything is paused: no controller changes these pools until an operator resumes, by POST /api/v1/resume \
                 with {{\"scope\": \"everything\"}}, or by"
            ),
            printable!(
                "  kubectl --namespace {} patch configmap {} --type=merge --patch '{{\"data\": {{\"pause.everything\": \
                 null}}}}'",
                place.namespace,
                place.name
            ),
        ]
    }

    /// A signal came first.
    fn interrupted(&self, snapshot: &Snapshot) -> anyhow::Result<ExitCode> {
        if self.begun.is_none() {
            bail!("interrupted: nothing was written");
        }
        tell([printable!("interrupted: what was sent was waited for")]);
        self.report(snapshot)?;
        Ok(ExitCode::FAILURE)
    }
}

/// Whether it is known what the machines make of a pool that exists: it has no owner, is not manageable, or was seen.
/// Those of the cluster as a whole have no owner, whichever rules send to them.
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

fn exit(all: bool) -> ExitCode {
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Asks the operator at the terminal. A thread of its own waits for the answer: a signal ends the process all the same.
async fn confirmed(pools: usize) -> anyhow::Result<bool> {
    write(&printable!("Write {pools} pools? Only `yes` means yes: "))?;
    let (answer, answered) = oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = stdin().lock().read_line(&mut line);
        if answer.send(read.is_ok() && line.trim() == "yes").is_err() {
            tell([printable!("the answer came too late")]);
        }
    });
    Ok(answered.await.unwrap_or(false))
}
