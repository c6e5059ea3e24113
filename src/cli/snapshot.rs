//! `snapshot`: stores pre-images of pools in a file, or compares such a file with the current pools
//! (docs/design/surface.md, commands). It only reads Azure, and writes to Kubernetes only with `--configmap`.

pub(super) mod compare;
pub(super) mod format;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use actors::clock::Clock;
use actors::kubernetes::{ConfigMapEntry, NamespacedName};
use anyhow::{Context as _, bail};
use arm::{Client, Query};
use clap::Args;
use config::Config;
use jiff::Timestamp;
use model::ids::LbName;
use serde_json::json;

use self::format::{Balancer, Filter, Snapshot, sha256};
use super::atomic_file::{Existing, Readers, can_write, write_atomically};
use super::{Files, eprint_lines, files, print_lines, remedy};
use crate::service;
use crate::wiring::params;

/// Exit code if pools are different now.
const DIFFERENT: u8 = 3;

/// The maximum number of snapshots that our ConfigMap lists; the oldest entries are removed.
const MAX_ENTRIES: usize = 50;

/// The flags of `snapshot`.
#[derive(Args, Debug)]
pub(super) struct SnapshotArgs {
    #[command(flatten)]
    files: Files,
    /// The kubeconfig, for `--configmap`; by default the files of KUBECONFIG or `~/.kube/config`, else the Pod's
    /// service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    action: Action,
    /// Replaces an existing file.
    #[arg(long, requires = "output", conflicts_with = "verify")]
    force: bool,
    /// Records name, hash, number of pools and time of the snapshot in the controller's ConfigMap, under the key
    /// `snapshot.<time>`.
    #[arg(long, requires = "output", conflicts_with = "verify")]
    configmap: bool,
    /// Stores only this load balancer; may be given several times.
    #[arg(long, value_name = "NAME", requires = "output", conflicts_with = "verify")]
    lb: Vec<String>,
    /// Stores only pools of this name; may be given several times.
    #[arg(long, value_name = "NAME", requires = "output", conflicts_with = "verify")]
    pool: Vec<String>,
}

/// The action: one of the two flags.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Action {
    /// Stores the pools in this file, which only its owner can read.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Checks this file and prints the differences from the current pools. Exit code 0: none; 3: at least one.
    #[arg(long, value_name = "FILE")]
    verify: Option<PathBuf>,
}

/// Stores pools, or compares them with a file.
pub(super) fn snapshot(args: &SnapshotArgs) -> anyhow::Result<ExitCode> {
    // A file that cannot be used needs no configuration.
    let stored = match &args.action.verify {
        Some(file) => Some((file, read_file(file)?)),
        None => None,
    };
    let loaded = files::load_with(&args.files, args.kubeconfig.as_ref())?;
    for warning in &loaded.warnings {
        eprint_lines([printable!("warning: {warning}")]);
    }
    let config = &loaded.config;
    if let Some((file, stored)) = &stored {
        check_scope(config, file, stored)?;
    }
    service::in_system(async {
        let azure = Azure::of(config)?;
        match (&args.action.output, &stored) {
            (Some(file), _) => store(&azure, args, file).await,
            (None, Some((_, stored))) => verify(&azure, stored).await,
            (None, None) => bail!("pass --output or --verify"),
        }
    })
}

/// Reads load balancers from ARM.
pub(super) struct Azure<'a> {
    client: Client,
    config: &'a Config,
    clock: Clock,
}

impl Azure<'_> {
    /// Creates the client for this configuration.
    pub(super) fn of(config: &Config) -> anyhow::Result<Azure<'_>> {
        let clock = Clock::start();
        let client = Client::new(params::arm(config, clock)).context("failed to set up the ARM client")?;
        Ok(Azure { client, config, clock })
    }

    /// Reads a load balancer; `None` if it does not exist.
    pub(super) async fn balancer(&self, name: &str, filter: &Filter) -> anyhow::Result<Option<Balancer>> {
        let read_at = time(self.clock.wall());
        match self.client.query(&Query::LoadBalancer(LbName::new(name))).await.text {
            Ok(text) => {
                let lb = Balancer::read(name, &text, read_at, filter);
                lb.map(Some).with_context(|| format!("failed to parse load balancer {name}"))
            }
            Err(failure) if failure.says_absent() => Ok(None),
            Err(failure) => {
                let remedy = remedy::of_read(&failure, "grant Microsoft.Network/loadBalancers/read");
                bail!("failed to read load balancer {name}: {failure}; {remedy}")
            }
        }
    }
}

async fn store(azure: &Azure<'_>, args: &SnapshotArgs, file: &Path) -> anyhow::Result<ExitCode> {
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
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
    print_lines([
        printable!("{pools} pools of {balancers} load balancers are in {}", file.display()),
        printable!("sha256 {hash}"),
    ])?;
    if !snapshot.absent.is_empty() {
        print_lines([printable!("absent: {}", snapshot.absent.join(", "))])?;
    }
    if args.configmap {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let entry = json!({ "name": name, "sha256": hash, "pools": pools, "time": time(created) });
        let (config_map, key) =
            record_in_config_map(azure, args, created, &entry.to_string()).await.with_context(|| {
                format!(
                    "the snapshot is in {}, but could not be recorded in the controller's ConfigMap",
                    file.display()
                )
            })?;
        print_lines([printable!("recorded under {key} of the ConfigMap {config_map}")])?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn read(azure: &Azure<'_>, args: &SnapshotArgs, created: Timestamp) -> anyhow::Result<Snapshot> {
    let filter = Filter { load_balancers: args.lb.clone(), pools: args.pool.clone() };
    let ours = params::load_balancers(azure.config);
    let managed: Vec<String> = ours.iter().map(ToString::to_string).collect();
    if let Some(foreign) = args.lb.iter().find(|lb| !managed.iter().any(|it| it.eq_ignore_ascii_case(lb))) {
        bail!(
            "--lb {foreign}: not a managed load balancer, and not one of `pools`; managed are {}",
            managed.join(", ")
        );
    }
    let cloud = &azure.config.cloud;
    let mut snapshot = Snapshot::begun(time(created), filter);
    snapshot.endpoint = cloud.arm_endpoint().to_string();
    azure.config.controller.client.api_version.as_str().clone_into(&mut snapshot.api_version);
    cloud.network_subscription().clone_into(&mut snapshot.subscription);
    cloud.load_balancer_resource_group().clone_into(&mut snapshot.resource_group);
    for name in managed.iter().filter(|name| snapshot.filter.includes_balancer(name)) {
        match azure.balancer(name, &snapshot.filter).await? {
            Some(lb) => {
                if !lb.is_idle() {
                    eprint_lines([printable!(
                        "warning: an operation is running on {name}: it may change its pools"
                    )]);
                }
                snapshot.load_balancers.push(lb);
            }
            None => snapshot.absent.push(name.clone()),
        }
    }
    if snapshot.load_balancers.is_empty() {
        let (group, absent) = (&snapshot.resource_group, snapshot.absent.join(", "));
        bail!(
            "none of the load balancers {absent} exists in resource group {group}; run `check` for details"
        );
    }
    if let Some(pool) = unmatched(&snapshot) {
        bail!("--pool {pool}: no pool of that name is on {}", names(&snapshot));
    }
    Ok(snapshot)
}

/// Returns a pool name of the filter that matches no pool.
fn unmatched(snapshot: &Snapshot) -> Option<&str> {
    let exists = |name: &str| {
        let mut pools = snapshot.load_balancers.iter().flat_map(|lb| &lb.pools);
        pools.any(|pool| pool.name.eq_ignore_ascii_case(name))
    };
    snapshot.filter.pools.iter().map(String::as_str).find(|name| !exists(name))
}

fn names(snapshot: &Snapshot) -> String {
    let names: Vec<&str> = snapshot.load_balancers.iter().map(|lb| lb.name.as_str()).collect();
    names.join(", ")
}

async fn record_in_config_map(
    azure: &Azure<'_>,
    args: &SnapshotArgs,
    created: Timestamp,
    entry: &str,
) -> anyhow::Result<(NamespacedName, String)> {
    let client = service::kubernetes_client(args.kubeconfig.as_ref()).await?;
    let config_map = params::leases(azure.config).own;
    // A key of a ConfigMap has no colon.
    let name = created.strftime("%Y%m%dT%H%M%SZ").to_string();
    let entry =
        ConfigMapEntry { prefix: "snapshot.", name, text: entry.to_owned(), max_entries: MAX_ENTRIES };
    let stored = actors::kubernetes::store_entry(client, config_map.clone(), azure.clock, &entry);
    match stored.await {
        Ok(()) => Ok((config_map, entry.key())),
        Err(error) => bail!("failed to write the ConfigMap {config_map}: {}", error.into_why()),
    }
}

/// Reads the file of a snapshot.
pub(super) fn read_file(file: &Path) -> anyhow::Result<Snapshot> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("failed to read {}; check the path", file.display()))?;
    Snapshot::read(&text).with_context(|| format!("{} cannot be used", file.display()))
}

/// Refuses a snapshot of a resource group other than that of the cloud configuration.
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
    let mut differences = Vec::new();
    for then in &stored.load_balancers {
        let now = azure.balancer(&then.name, &stored.filter).await?;
        let of_balancer = compare::differences(then, now.as_ref(), &stored.filter);
        differences.extend(of_balancer.iter().map(|line| printable!("- {line}")));
    }
    for name in &stored.absent {
        if azure.balancer(name, &stored.filter).await?.is_some() {
            differences.push(printable!("- {name} is new"));
        }
    }
    let (pools, created) = (stored.count(), &stored.created_at);
    print_lines([printable!("{pools} pools as of {created}; every document is as it was stored")])?;
    if differences.is_empty() {
        print_lines([printable!("nothing is different now")])?;
        return Ok(ExitCode::SUCCESS);
    }
    print_lines([printable!("{} differences now:", differences.len())].into_iter().chain(differences))?;
    Ok(ExitCode::from(DIFFERENT))
}

/// Formats a time as RFC 3339 in UTC, with milliseconds.
fn time(at: Timestamp) -> String {
    format!("{at:.3}")
}
