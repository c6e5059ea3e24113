//! `migrate-basic-lb apply`: carries a plan out, one that an operator has read, or one that it makes itself.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use migration::apply::{Apply, Outcome, Stage};
use migration::journal::Journal;
use migration::plan::{Blocker, Plan};
use model::redact::Printable;

use super::drive::{Driven, Ending, Run, Signals};
use super::journal::{Kind, Store};
use super::output::Output;
use super::unattended::{Finished, Unattended};
use super::{Common, Outside, azure, facts};
use crate::cli::{say, tell};
use crate::service;

/// The exit code that says that the migration has not reached its end.
pub(super) const NOT_DONE: u8 = 3;
/// The file of the journal where an operator applies a plan and names none.
const JOURNAL: &str = "migrate-basic-lb.journal.json";

/// The flags of `apply`.
#[derive(Args, Debug)]
pub(super) struct ApplyArgs {
    #[command(flatten)]
    common: Common,
    /// The plan that `plan --out` has stored.
    #[arg(long, value_name = "FILE", required_unless_present = "unattended")]
    plan: Option<PathBuf>,
    /// Makes the plan itself and carries it out if nothing blocks it, for a Job in the cluster.
    #[arg(long, conflicts_with = "plan")]
    unattended: bool,
    /// Accepts what will change, as in `plan`; may be given several times.
    #[arg(long, value_name = "NAME", conflicts_with = "plan")]
    accept: Vec<String>,
    /// The journal is stored in this file too, and read from it where the cluster has none [default:
    /// migrate-basic-lb.journal.json; with --unattended none].
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
}

/// Carries a plan out.
pub(super) fn apply(args: &ApplyArgs) -> anyhow::Result<ExitCode> {
    let config = args.common.load()?;
    let plan = args.plan.as_deref().map(read_plan).transpose()?;
    service::in_system(async {
        let outside = args.common.open(config).await?;
        match &plan {
            Some(plan) => attended(&outside, args, plan).await,
            None => unattended(&outside, args).await,
        }
    })
}

fn read_plan(file: &Path) -> anyhow::Result<Plan> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("failed to read {}; make one with `plan --out`", file.display()))?;
    let plan: Plan = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a plan; make one with `plan --out`", file.display()))?;
    if !plan.is_readable() {
        bail!("{} was made by another version; make a new plan with `plan --out`", file.display());
    }
    Ok(plan)
}

/// Carries out the plan that an operator has read.
async fn attended(outside: &Outside, args: &ApplyArgs, plan: &Plan) -> anyhow::Result<ExitCode> {
    let mut run = Run::new(outside, Output::terminal(), Signals::listen(Ending::OnTerminate)?);
    run.hold_own_lease().await?;
    let file = args.journal.as_deref().unwrap_or(Path::new(JOURNAL));
    let done = migrate(outside, &mut run, file, plan).await;
    run.release().await;
    done
}

async fn migrate<'a>(
    outside: &'a Outside,
    run: &mut Run<'a>,
    file: &'a Path,
    plan: &Plan,
) -> anyhow::Result<ExitCode> {
    let store = Arc::new(Store::of(outside, Kind::Migration, Some(file)));
    let (journal, is_stored) = match store.read().await? {
        Some(journal) if journal.digest == plan.digest => (journal, true),
        Some(journal) if !journal.done => bail!(
            "another migration has begun and not ended: apply its plan, with digest {}, again first",
            journal.digest
        ),
        Some(_) | None => {
            let cluster = facts::read(outside).await?;
            let output = run.output.clone();
            let survey = azure::survey(&outside.arm, outside.clock, cluster, &output);
            let Some(inventory) = run.beside(survey).await else {
                bail!("interrupted before anything was changed");
            };
            let now = Plan::of(&inventory, &plan.accepted);
            check(plan, &now)?;
            if now.is_empty() {
                return nothing_to_do();
            }
            (Journal::begun(inventory), false)
        }
    };
    run.output.notices(&plan.notices);
    let driven = run.drive(Apply::new(journal, is_stored), &store).await;
    told(driven, Some(file))
}

/// Carries out the plan that follows from the live state.
async fn unattended(outside: &Outside, args: &ApplyArgs) -> anyhow::Result<ExitCode> {
    let file = args.journal.as_deref();
    let mut run = Run::new(outside, Output::terminal(), Signals::listen(Ending::OnTerminate)?);
    let migration = Unattended::new(outside, file, &args.accept);
    let finished = migration.carry_out(&mut run).await;
    run.release().await;
    match finished? {
        Finished::Nothing => nothing_to_do(),
        Finished::Blocked(blockers) => {
            tell(blockers.iter().map(line));
            tell([printable!("{} findings block the migration", blockers.len())]);
            Ok(ExitCode::from(NOT_DONE))
        }
        Finished::Paused | Finished::Interrupted => bail!("interrupted before anything was changed"),
        Finished::Driven(driven) => told(driven, file),
    }
}

fn nothing_to_do() -> anyhow::Result<ExitCode> {
    say([printable!("No Basic load balancer is in scope: there is nothing to migrate.")])?;
    Ok(ExitCode::SUCCESS)
}

/// Prints how the migration has ended.
fn told(driven: Driven, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    match driven {
        Driven::Ended(Outcome::Done) => {
            say([
                printable!("Every load balancer is migrated, and all addresses are as they were."),
                printable!(
                    "Start the cloud-controller-manager now, with loadBalancerSku: standard, and configure outbound traffic."
                ),
            ])?;
            Ok(ExitCode::SUCCESS)
        }
        Driven::Ended(Outcome::Incomplete(problems)) => {
            say([printable!("Every load balancer is migrated, except for these frontends:")])?;
            say(problems.iter().map(|problem| printable!("- {problem}")))?;
            say([printable!("Remove the cause and run this command again: it tries them again.")])?;
            Ok(ExitCode::from(NOT_DONE))
        }
        Driven::Ended(Outcome::Stopped(guide)) => {
            say(guide.lines().iter().map(|line| printable!("{line}")))?;
            say([match file {
                Some(file) => printable!("The journal is in {} and in the cluster.", file.display()),
                None => printable!("The journal is in the cluster."),
            }])?;
            Ok(ExitCode::from(NOT_DONE))
        }
        Driven::CutOff(stage) => {
            say([cut_off(stage)])?;
            Ok(ExitCode::from(NOT_DONE))
        }
    }
}

/// What is said where a signal has ended the process during the outage.
pub(super) fn cut_off(stage: Stage) -> Printable {
    printable!(
        "SIGTERM has ended this process while {}. Run the command again at once: it continues there.",
        stage.title()
    )
}

fn line(blocker: &Blocker) -> Printable {
    printable!("- {}: {}; remedy: {}", blocker.object, blocker.finding, blocker.remedy)
}

/// Compares the plan with what follows from the live state.
fn check(plan: &Plan, now: &Plan) -> anyhow::Result<()> {
    if plan.digest != now.digest {
        bail!("what the plan was made from has changed since: make a new plan, read it, and apply that");
    }
    if !now.blockers.is_empty() {
        tell(now.blockers.iter().map(line));
        bail!("{} findings block the migration", now.blockers.len());
    }
    Ok(())
}
