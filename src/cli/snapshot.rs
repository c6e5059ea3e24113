//! `snapshot`: pre-images of pools in a file, and what has changed since (docs/design/surface.md, commands). Azure is
//! only read; Kubernetes is written only where `--configmap` asks for it.

pub(super) mod compare;
pub(super) mod format;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use actors::clock::Clock;
use actors::kubernetes::{Note, Place};
use anyhow::{Context as _, bail};
use arm::{Client, Query};
use clap::Args;
use config::Config;
use jiff::Timestamp;
use model::ids::LbName;
use serde_json::json;

use self::format::{Balancer, Filter, Snapshot, sha256};
use super::atomic_file::{Existing, Readers, can_write, write_atomically};
use super::{Files, files, remedy, say, tell};
use crate::service;
use crate::wiring::params;

/// The exit code that says that pools are different now.
const DIFFERENT: u8 = 3;

/// How many snapshots our ConfigMap names; older ones are no longer noted.
const MAX_NOTES: usize = 50;

/// The flags of `snapshot`.
#[derive(Args, Debug)]
pub(super) struct SnapshotArgs {
    #[command(flatten)]
    files: Files,
    /// The kubeconfig, for `--configmap`; without it the files of KUBECONFIG or `~/.kube/config`, else the pod's service
    /// account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    way: Way,
    /// Replaces a file that exists.
    #[arg(long, requires = "output", conflicts_with = "verify")]
    force: bool,
    /// Notes name, hash, number of pools and time of the snapshot in our ConfigMap, under the key `snapshot.<time>`.
    #[arg(long, requires = "output", conflicts_with = "verify")]
    configmap: bool,
    /// Stores only this load balancer; may be given several times.
    #[arg(long, value_name = "NAME", requires = "output", conflicts_with = "verify")]
    lb: Vec<String>,
    /// Stores only pools of this name; may be given several times.
    #[arg(long, value_name = "NAME", requires = "output", conflicts_with = "verify")]
    pool: Vec<String>,
}

/// What is done.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Way {
    /// Stores the pools in this file, readable by its owner alone.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Checks this file and tells what is different now: exit code 0 when nothing is, 3 when something is.
    #[arg(long, value_name = "FILE")]
    verify: Option<PathBuf>,
}

/// Stores pools, or compares them with a file.
pub(super) fn snapshot(args: &SnapshotArgs) -> anyhow::Result<ExitCode> {
    // A file that cannot be used needs no configuration.
    let stored = match &args.way.verify {
        Some(file) => Some((file, read_file(file)?)),
        None => None,
    };
    let loaded = files::load_with(&args.files, args.kubeconfig.as_ref())?;
    for warning in &loaded.warnings {
        tell([printable!("warning: {warning}")]);
    }
    let config = &loaded.config;
    if let Some((file, stored)) = &stored {
        check_scope(config, file, stored)?;
    }
    service::in_system(async {
        let azure = Azure::of(config)?;
        match (&args.way.output, &stored) {
            (Some(file), _) => take(&azure, args, file).await,
            (None, Some((_, stored))) => verify(&azure, stored).await,
            (None, None) => bail!("pass --output or --verify"),
        }
    })
}

/// ARM, for reading.
pub(super) struct Azure<'a> {
    client: Client,
    config: &'a Config,
    clock: Clock,
}

impl Azure<'_> {
    /// ARM as this configuration has it.
    pub(super) fn of(config: &Config) -> anyhow::Result<Azure<'_>> {
        let clock = Clock::start();
        let client = Client::new(params::arm(config, clock)).context("failed to set up the ARM client")?;
        Ok(Azure { client, config, clock })
    }

    /// A load balancer as it is now; `None`: it does not exist.
    pub(super) async fn balancer(&self, name: &str, filter: &Filter) -> anyhow::Result<Option<Balancer>> {
        let read_at = time(self.clock.wall());
        match self.client.query(&Query::LoadBalancer(LbName::new(name))).await.text {
            Ok(text) => {
                let lb = Balancer::read(name, &text, read_at, filter);
                lb.map(Some).with_context(|| format!("load balancer {name} is not readable"))
            }
            Err(failure) if failure.says_absent() => Ok(None),
            Err(failure) => {
                let remedy = remedy::of_read(&failure, "grant Microsoft.Network/loadBalancers/read");
                bail!("failed to read load balancer {name}: {failure}; {remedy}")
            }
        }
    }
}

async fn take(azure: &Azure<'_>, args: &SnapshotArgs, file: &Path) -> anyhow::Result<ExitCode> {
    let existing = if args.force { Existing::Replaced } else { Existing::Kept };
    if file == Path::new("-") {
        bail!("--output: name a file; a snapshot is not written to standard output");
    }
    can_write(file, existing)?;
    let created = azure.clock.wall();
    let snapshot = read(azure, args, created).await?;
    let text = snapshot.text();
    write_atomically(file, text.as_bytes(), Readers::Owner, existing)?;
    let hash = sha256(text.as_bytes());
    let (pools, balancers) = (snapshot.count(), snapshot.load_balancers.len());
    say([
        printable!("{pools} pools of {balancers} load balancers are in {}", file.display()),
        printable!("sha256 {hash}"),
    ])?;
    if !snapshot.absent.is_empty() {
        say([printable!("absent: {}", snapshot.absent.join(", "))])?;
    }
    if args.configmap {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let note = json!({ "name": name, "sha256": hash, "pools": pools, "time": time(created) });
        let (place, key) =
            note_in_config_map(azure, args, created, &note.to_string()).await.with_context(|| {
                format!("the snapshot is in {}, and could not be noted in our ConfigMap", file.display())
            })?;
        say([printable!("noted under {key} of the ConfigMap {place}")])?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn read(azure: &Azure<'_>, args: &SnapshotArgs, created: Timestamp) -> anyhow::Result<Snapshot> {
    let filter = Filter { load_balancers: args.lb.clone(), pools: args.pool.clone() };
    let ours = params::load_balancers(azure.config);
    let managed: Vec<String> = ours.iter().map(ToString::to_string).collect();
    if let Some(foreign) = args.lb.iter().find(|lb| !managed.iter().any(|it| it.eq_ignore_ascii_case(lb))) {
        bail!(
            "--lb {foreign}: not a managed load balancer, and none of `pools`; those are {}",
            managed.join(", ")
        );
    }
    let cloud = &azure.config.cloud;
    let mut snapshot = Snapshot::begun(time(created), filter);
    snapshot.endpoint = cloud.arm_endpoint().to_string();
    azure.config.controller.client.api_version.as_str().clone_into(&mut snapshot.api_version);
    cloud.network_subscription().clone_into(&mut snapshot.subscription);
    cloud.load_balancer_resource_group().clone_into(&mut snapshot.resource_group);
    for name in managed.iter().filter(|name| snapshot.filter.wants_balancer(name)) {
        match azure.balancer(name, &snapshot.filter).await? {
            Some(lb) => {
                if !lb.is_at_rest() {
                    tell([printable!("warning: an operation runs on {name}: its pools may change with it")]);
                }
                snapshot.load_balancers.push(lb);
            }
            None => snapshot.absent.push(name.clone()),
        }
    }
    if snapshot.load_balancers.is_empty() {
        let (group, absent) = (&snapshot.resource_group, snapshot.absent.join(", "));
        bail!(
            "no load balancer exists: {absent} were looked for in resource group {group}; `check` says more"
        );
    }
    if let Some(pool) = unmatched(&snapshot) {
        bail!("--pool {pool}: no pool of that name is on {}", names(&snapshot));
    }
    Ok(snapshot)
}

/// A pool that was asked for and is nowhere.
fn unmatched(snapshot: &Snapshot) -> Option<&str> {
    let there = |name: &str| {
        let mut pools = snapshot.load_balancers.iter().flat_map(|lb| &lb.pools);
        pools.any(|pool| pool.name.eq_ignore_ascii_case(name))
    };
    snapshot.filter.pools.iter().map(String::as_str).find(|name| !there(name))
}

fn names(snapshot: &Snapshot) -> String {
    let names: Vec<&str> = snapshot.load_balancers.iter().map(|lb| lb.name.as_str()).collect();
    names.join(", ")
}

async fn note_in_config_map(
    azure: &Azure<'_>,
    args: &SnapshotArgs,
    created: Timestamp,
    note: &str,
) -> anyhow::Result<(Place, String)> {
    let client = service::kubernetes_client(args.kubeconfig.as_ref()).await?;
    let place = params::leases(azure.config).own;
    // A key of a ConfigMap has no colon.
    let name = created.strftime("%Y%m%dT%H%M%SZ").to_string();
    let note = Note { prefix: "snapshot.", name, text: note.to_owned(), most: MAX_NOTES };
    let kept = actors::kubernetes::keep(client, place.clone(), azure.clock, &note);
    match kept.await {
        Ok(()) => Ok((place, note.key())),
        Err(why) => bail!("failed to write the ConfigMap {place}: {}", why.into_why()),
    }
}

/// Reads the file of a snapshot.
pub(super) fn read_file(file: &Path) -> anyhow::Result<Snapshot> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("failed to read {}; check the path", file.display()))?;
    Snapshot::read(&text).with_context(|| format!("{} cannot be used", file.display()))
}

/// Refuses a snapshot of another resource group than that of the cloud configuration.
pub(super) fn check_scope(config: &Config, file: &Path, stored: &Snapshot) -> anyhow::Result<()> {
    let cloud = &config.cloud;
    let (subscription, group) = (cloud.network_subscription(), cloud.load_balancer_resource_group());
    let same = |left: &str, right: &str| left.eq_ignore_ascii_case(right);
    if !same(&stored.subscription, subscription) || !same(&stored.resource_group, group) {
        let Snapshot { subscription: theirs, resource_group, .. } = stored;
        bail!(
            "{} is of resource group {resource_group} of subscription {theirs}, and the cloud configuration names \
             {group} of {subscription}",
            file.display()
        );
    }
    Ok(())
}

async fn verify(azure: &Azure<'_>, stored: &Snapshot) -> anyhow::Result<ExitCode> {
    let mut told = Vec::new();
    for then in &stored.load_balancers {
        let now = azure.balancer(&then.name, &stored.filter).await?;
        let differences = compare::differences(then, now.as_ref(), &stored.filter);
        told.extend(differences.iter().map(|line| printable!("- {line}")));
    }
    for name in &stored.absent {
        if azure.balancer(name, &stored.filter).await?.is_some() {
            told.push(printable!("- {name} is new"));
        }
    }
    let (pools, created) = (stored.count(), &stored.created_at);
    say([printable!("{pools} pools as of {created}; every document is as it was stored")])?;
    if told.is_empty() {
        say([printable!("nothing is different now")])?;
        return Ok(ExitCode::SUCCESS);
    }
    say([printable!("{} differences now:", told.len())].into_iter().chain(told))?;
    Ok(ExitCode::from(DIFFERENT))
}

/// A time as operators write it, in UTC.
fn time(at: Timestamp) -> String {
    format!("{at:.3}")
}
