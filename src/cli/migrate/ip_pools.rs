//! `migrate-basic-lb ip-pools`.

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
use super::drive::{Driven, Ending, Run, Signals};
use super::journal::{Kind, Store};
use super::output::Output;
use super::{Common, Outside, azure, facts};
use crate::cli::say;
use crate::service;

/// The flags of `ip-pools`.
#[derive(Args, Debug)]
pub(super) struct IpPoolsArgs {
    #[command(flatten)]
    common: Common,
    /// Shows what would change and writes nothing.
    #[arg(long)]
    dry_run: bool,
    /// The journal is stored in this file too, and read from it where the cluster has none.
    #[arg(long, value_name = "FILE", default_value = "migrate-basic-lb.ip-pools.journal.json")]
    journal: PathBuf,
}

/// Changes the pools of the cluster, or shows what would change.
pub(super) fn ip_pools(args: &IpPoolsArgs) -> anyhow::Result<ExitCode> {
    let config = args.common.load()?;
    service::in_system(async {
        let outside = args.common.open(config).await?;
        if args.dry_run {
            let cluster = cluster(&outside).await?;
            let inventory = azure::survey(&outside.arm, outside.clock, cluster, &Output::terminal()).await;
            return tell_plan(&PoolsPlan::of(&inventory));
        }
        let mut run = Run::new(&outside, Output::terminal(), Signals::listen(Ending::OnTerminate)?);
        run.hold_own_lease().await?;
        let done = change(&mut run, &outside, args).await;
        run.release().await;
        done
    })
}

async fn cluster(outside: &Outside) -> anyhow::Result<Cluster> {
    let cluster = facts::read(outside).await?;
    Ok(Cluster { purpose: Purpose::IpPools, ..cluster })
}

fn tell_plan(plan: &PoolsPlan) -> anyhow::Result<ExitCode> {
    say(plan.to_string().lines().map(|line| printable!("{line}")))?;
    Ok(if plan.blockers.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_DONE) })
}

async fn change<'a>(
    run: &mut Run<'a>,
    outside: &'a Outside,
    args: &'a IpPoolsArgs,
) -> anyhow::Result<ExitCode> {
    let store = Arc::new(Store::of(outside, Kind::IpPools, Some(&args.journal)));
    let (journal, is_stored) = match store.read().await? {
        Some(journal) if !journal.done => (journal, true),
        Some(_) | None => {
            let output = run.output.clone();
            // The Leases are renewed meanwhile.
            let survey = async {
                anyhow::Ok(azure::survey(&outside.arm, outside.clock, cluster(outside).await?, &output).await)
            };
            let Some(inventory) = run.beside(survey).await else {
                bail!("interrupted before anything was changed");
            };
            let inventory = inventory?;
            let plan = PoolsPlan::of(&inventory);
            let told = tell_plan(&plan)?;
            if plan.pools.is_empty() || !plan.blockers.is_empty() {
                return Ok(told);
            }
            (Journal::begun(inventory), false)
        }
    };
    match run.drive(Apply::new(journal, is_stored), &store).await {
        Driven::Ended(Outcome::Done) => {
            say([printable!("All pools of the cluster name their members by address.")])?;
            Ok(ExitCode::SUCCESS)
        }
        Driven::Ended(Outcome::Incomplete(problems)) => {
            say(problems.iter().map(|problem| printable!("- {problem}")))?;
            Ok(ExitCode::from(NOT_DONE))
        }
        Driven::Ended(Outcome::Stopped(guide)) => {
            say(guide.lines().iter().map(|line| printable!("{line}")))?;
            Ok(ExitCode::from(NOT_DONE))
        }
        Driven::CutOff(stage) => {
            say([cut_off(stage)])?;
            Ok(ExitCode::from(NOT_DONE))
        }
    }
}
