//! `migrate-basic-lb`: the migration from Basic to Standard load balancers. The crate `migration` decides what is read,
//! planned and done; this command connects it to Azure, the API server, Leases and files.

mod apply;
mod azure;
mod drive;
mod facts;
mod ip_pools;
mod journal;
mod on_startup;
mod output;
mod plan;
mod unattended;

use std::path::PathBuf;
use std::process::ExitCode;

use actors::clock::Clock;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use config::{Config, Loaded};
use migration::plan::Accepted;

use super::{Files, eprint_lines, files};
use crate::service;
use crate::wiring::params;

pub(super) use on_startup::run_after_migration;

/// The flags of `migrate-basic-lb`.
#[derive(Args, Debug)]
pub(super) struct MigrateArgs {
    #[command(subcommand)]
    command: MigrateCommand,
}

#[derive(Subcommand, Debug)]
enum MigrateCommand {
    /// Reads everything in scope and prints the steps, the expected outage, what is irreversible, and what blocks the
    /// migration. Writes nothing to Azure. Exit code 3: something blocks the migration.
    Plan(plan::PlanArgs),
    /// Applies a plan, or continues an interrupted one. Exit code 3: the migration stopped, or an address does not receive
    /// traffic yet.
    Apply(apply::ApplyArgs),
    /// Changes the pools of Standard load balancers from members by interface to members by address, as
    /// `loadBalancerBackendPoolConfigurationType: nodeIP` requires. Exit code 3: something blocks the change, or it
    /// stopped.
    IpPools(ip_pools::IpPoolsArgs),
}

/// The flags of all subcommands.
#[derive(Args, Debug)]
struct CommonArgs {
    #[command(flatten)]
    files: Files,
    /// The kubeconfig; by default the files of KUBECONFIG or `~/.kube/config`, else the Pod's service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

/// The configuration, the clock and the clients that a migration uses.
struct Environment {
    config: Config,
    kubeconfig: Option<PathBuf>,
    clock: Clock,
    arm: arm::Client,
    kubernetes: kube::Client,
}

impl CommonArgs {
    /// Loads the configuration and prints its warnings.
    fn load(&self) -> anyhow::Result<Config> {
        let Loaded { config, warnings } = files::load_with(&self.files, self.kubeconfig.as_ref())?;
        for warning in &warnings {
            eprint_lines([printable!("warning: {warning}")]);
        }
        Ok(config)
    }

    /// Creates the clients for this configuration.
    async fn open(&self, config: Config) -> anyhow::Result<Environment> {
        Environment::open(config, self.kubeconfig.clone()).await
    }
}

impl Environment {
    /// Creates the clients for this configuration.
    async fn open(config: Config, kubeconfig: Option<PathBuf>) -> anyhow::Result<Environment> {
        let clock = Clock::start();
        let arm = arm::Client::new(params::arm(&config, clock)).context("failed to set up the ARM client")?;
        let kubernetes = service::kubernetes_client(kubeconfig.as_ref()).await?;
        Ok(Environment { config, kubeconfig, clock, arm, kubernetes })
    }

    /// Returns the names that `migration.accept` of the configuration lists, and these names.
    fn accepted(&self, names: &[String]) -> Accepted {
        self.config.controller.migration.accept.iter().chain(names).cloned().collect()
    }
}

/// Runs a subcommand of `migrate-basic-lb`.
pub(super) fn migrate(args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        MigrateCommand::Plan(args) => plan::plan(args),
        MigrateCommand::Apply(args) => apply::apply(args),
        MigrateCommand::IpPools(args) => ip_pools::ip_pools(args),
    }
}
