//! `migrate-basic-lb`: the migration from Basic to Standard load balancers. What is read, planned and done is decided by
//! the crate `migration`; this command gives it Azure, the API server, Leases and files.

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

use super::{Files, files, tell};
use crate::service;
use crate::wiring::params;

pub(super) use on_startup::run_after_migration;

/// The flags of `migrate-basic-lb`.
#[derive(Args, Debug)]
pub(super) struct MigrateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Reads everything in scope and prints what will happen, how long traffic stops, what cannot be undone, and what must
    /// be changed first. Writes nothing at Azure. Exit code 3: something blocks the migration.
    Plan(plan::PlanArgs),
    /// Carries a plan out, or continues one that was interrupted. Exit code 3: it stopped, or an address is not served yet.
    Apply(apply::ApplyArgs),
    /// Changes the pools of Standard load balancers from members by interface to members by address, as
    /// `loadBalancerBackendPoolConfigurationType: nodeIP` needs it. Exit code 3: something blocks it, or it stopped.
    IpPools(ip_pools::IpPoolsArgs),
}

/// What both commands read first.
#[derive(Args, Debug)]
struct Common {
    #[command(flatten)]
    files: Files,
    /// The kubeconfig; without it the files of KUBECONFIG or `~/.kube/config`, else the pod's service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

/// The ways to everything outside.
struct Outside {
    config: Config,
    kubeconfig: Option<PathBuf>,
    clock: Clock,
    arm: arm::Client,
    kubernetes: kube::Client,
}

impl Common {
    fn load(&self) -> anyhow::Result<Config> {
        let Loaded { config, warnings } = files::load_with(&self.files, self.kubeconfig.as_ref())?;
        for warning in &warnings {
            tell([printable!("warning: {warning}")]);
        }
        Ok(config)
    }

    async fn open(&self, config: Config) -> anyhow::Result<Outside> {
        Outside::open(config, self.kubeconfig.clone()).await
    }
}

impl Outside {
    async fn open(config: Config, kubeconfig: Option<PathBuf>) -> anyhow::Result<Outside> {
        let clock = Clock::start();
        let arm = arm::Client::new(params::arm(&config, clock)).context("failed to set up the ARM client")?;
        let kubernetes = service::kubernetes_client(kubeconfig.as_ref()).await?;
        Ok(Outside { config, kubeconfig, clock, arm, kubernetes })
    }

    /// What the configuration accepts, and these names.
    fn accepted(&self, names: &[String]) -> Accepted {
        self.config.controller.migration.accept.iter().chain(names).cloned().collect()
    }
}

/// Plans a migration or carries it out.
pub(super) fn migrate(args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Plan(args) => plan::plan(args),
        What::Apply(args) => apply::apply(args),
        What::IpPools(args) => ip_pools::ip_pools(args),
    }
}
