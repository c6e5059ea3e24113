//! `migrate-basic-lb ip-pools`: migrates pools from NIC-based to IP-based.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use migration::apply::{Apply, Outcome};
use migration::inventory::{Cluster, Purpose};
use migration::journal::Journal;
use migration::plan::PoolsPlan;

use super::apply::{NOT_DONE, cut_off};
use super::drive::{EndingSignals, Run, RunResult, Signals};
use super::journal::{Kind, Store};
use super::output::Output;
use super::{CommonArgs, Environment, azure, facts};
use crate::cli::print_lines;
use crate::service;

/// The flags of `ip-pools`.
#[derive(Args, Debug)]
pub(super) struct IpPoolsArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Shows what would be written, and writes nothing.
    #[arg(long)]
    dry_run: bool,
    /// Also stores the journal in this file, and reads it from there if the cluster has none.
    #[arg(long, value_name = "FILE", default_value = "migrate-basic-lb.ip-pools.journal.json")]
    journal: PathBuf,
}

/// Changes the pools of the cluster, or shows what would change.
pub(super) fn ip_pools(args: &IpPoolsArgs) -> anyhow::Result<ExitCode> {
    let config = args.common.load()?;
    service::in_system(async {
        let environment = args.common.open(config).await?;
        if args.dry_run {
            let cluster = cluster(&environment).await?;
            let inventory =
                azure::survey(&environment.arm, environment.clock, cluster, &Output::terminal()).await;
            return print_plan(&PoolsPlan::of(&inventory));
        }
        let mut run =
            Run::new(&environment, Output::terminal(), Signals::listen(EndingSignals::OnTerminate)?);
        run.acquire_own_lease().await?;
        let done = change(&mut run, &environment, args).await;
        run.release().await;
        done
    })
}

async fn cluster(environment: &Environment) -> anyhow::Result<Cluster> {
    let cluster = facts::read(environment).await?;
    Ok(Cluster { purpose: Purpose::IpPools, ..cluster })
}

fn print_plan(plan: &PoolsPlan) -> anyhow::Result<ExitCode> {
    print_lines(plan.to_string().lines().map(|line| printable!("{line}")))?;
    Ok(if plan.blockers.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_DONE) })
}

async fn change<'a>(
    run: &mut Run<'a>,
    environment: &'a Environment,
    args: &'a IpPoolsArgs,
) -> anyhow::Result<ExitCode> {
    let store = Arc::new(Store::of(environment, Kind::IpPools, Some(&args.journal)));
    let (journal, is_stored) = match store.read().await? {
        Some(journal) if !journal.done => (journal, true),
        Some(_) | None => {
            let output = run.output.clone();
            // The Leases are renewed meanwhile.
            let survey = async {
                anyhow::Ok(
                    azure::survey(&environment.arm, environment.clock, cluster(environment).await?, &output)
                        .await,
                )
            };
            let Some(inventory) = run.run_unless_interrupted(survey).await else {
                bail!("interrupted before anything was changed");
            };
            let inventory = inventory?;
            let plan = PoolsPlan::of(&inventory);
            let exit_code = print_plan(&plan)?;
            if plan.pools.is_empty() || !plan.blockers.is_empty() {
                return Ok(exit_code);
            }
            (Journal::begun(inventory), false)
        }
    };
    match run.drive(Apply::new(journal, is_stored), &store).await {
        RunResult::Ended(Outcome::Done) => {
            print_lines([printable!("All pools of the cluster name their members by address.")])?;
            Ok(ExitCode::SUCCESS)
        }
        RunResult::Ended(Outcome::Incomplete(problems)) => {
            print_lines(problems.iter().map(|problem| printable!("- {problem}")))?;
            Ok(ExitCode::from(NOT_DONE))
        }
        RunResult::Ended(Outcome::Stopped(guide)) => {
            print_lines(guide.lines().iter().map(|line| printable!("{line}")))?;
            Ok(ExitCode::from(NOT_DONE))
        }
        RunResult::Interrupted(stage) => {
            print_lines([cut_off(stage)])?;
            Ok(ExitCode::from(NOT_DONE))
        }
    }
}
