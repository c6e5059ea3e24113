//! `migrate-basic-lb apply`: applies a plan that an operator has read, or one that it makes itself (`--unattended`).

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use migration::apply::{Apply, Outcome, Stage};
use migration::journal::Journal;
use migration::plan::{Blocker, Plan};
use model::redact::Printable;

use super::drive::{EndingSignals, Run, RunResult, Signals};
use super::journal::{Kind, Store};
use super::output::Output;
use super::unattended::{Finished, Unattended};
use super::{CommonArgs, Environment, azure, facts};
use crate::cli::{eprint_lines, print_lines};
use crate::service;

/// Exit code of a migration that is not complete.
pub(super) const NOT_DONE: u8 = 3;
/// Default file of the journal with `--plan`.
const JOURNAL: &str = "migrate-basic-lb.journal.json";

/// The flags of `apply`.
#[derive(Args, Debug)]
pub(super) struct ApplyArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// The plan: a file that `plan --out` has written.
    #[arg(long, value_name = "FILE", required_unless_present = "unattended")]
    plan: Option<PathBuf>,
    /// Makes the plan itself and applies it if nothing blocks it, for a Job in the cluster.
    #[arg(long, conflicts_with = "plan")]
    unattended: bool,
    /// Accepts what will change, as in `plan`; may be given several times.
    #[arg(long, value_name = "NAME", conflicts_with = "plan")]
    accept: Vec<String>,
    /// Also stores the journal in this file, and reads it from there if the cluster has none [default:
    /// migrate-basic-lb.journal.json; with --unattended none].
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
}

/// Applies a plan, or continues the migration that the journal describes.
pub(super) fn apply(args: &ApplyArgs) -> anyhow::Result<ExitCode> {
    let config = args.common.load()?;
    let plan = args.plan.as_deref().map(read_plan).transpose()?;
    service::in_system(async {
        let environment = args.common.open(config).await?;
        match &plan {
            Some(plan) => attended(&environment, args, plan).await,
            None => unattended(&environment, args).await,
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

/// Applies the plan that an operator has read.
async fn attended(environment: &Environment, args: &ApplyArgs, plan: &Plan) -> anyhow::Result<ExitCode> {
    let mut run = Run::new(environment, Output::terminal(), Signals::listen(EndingSignals::OnTerminate)?);
    run.acquire_own_lease().await?;
    let file = args.journal.as_deref().unwrap_or(Path::new(JOURNAL));
    let done = migrate(environment, &mut run, file, plan).await;
    run.release().await;
    done
}

async fn migrate<'a>(
    environment: &'a Environment,
    run: &mut Run<'a>,
    file: &'a Path,
    plan: &Plan,
) -> anyhow::Result<ExitCode> {
    let store = Arc::new(Store::of(environment, Kind::Migration, Some(file)));
    let (journal, is_stored) = match store.read().await? {
        Some(journal) if journal.digest == plan.digest => (journal, true),
        Some(journal) if !journal.done => bail!(
            "another migration has begun and not ended: apply its plan, with digest {}, again first",
            journal.digest
        ),
        Some(_) | None => {
            let cluster = facts::read(environment).await?;
            let output = run.output.clone();
            let survey = azure::survey(&environment.arm, environment.clock, cluster, &output);
            let Some(inventory) = run.run_unless_interrupted(survey).await else {
                bail!("interrupted before anything was changed");
            };
            let now = Plan::of(&inventory, &plan.accepted);
            require_current(plan, &now)?;
            if now.is_empty() {
                return nothing_to_do();
            }
            (Journal::begun(inventory), false)
        }
    };
    run.output.notices(&plan.notices);
    let run_result = run.drive(Apply::new(journal, is_stored), &store).await;
    print_result(run_result, Some(file))
}

/// Plans from the live state and applies the plan.
async fn unattended(environment: &Environment, args: &ApplyArgs) -> anyhow::Result<ExitCode> {
    let file = args.journal.as_deref();
    let mut run = Run::new(environment, Output::terminal(), Signals::listen(EndingSignals::OnTerminate)?);
    let migration = Unattended::new(environment, file, &args.accept);
    let finished = migration.execute(&mut run).await;
    run.release().await;
    match finished? {
        Finished::Nothing => nothing_to_do(),
        Finished::Blocked(blockers) => {
            eprint_lines(blockers.iter().map(blocker_line));
            eprint_lines([printable!("{} findings block the migration", blockers.len())]);
            Ok(ExitCode::from(NOT_DONE))
        }
        Finished::Paused | Finished::Interrupted => bail!("interrupted before anything was changed"),
        Finished::RunResult(run_result) => print_result(run_result, file),
    }
}

fn nothing_to_do() -> anyhow::Result<ExitCode> {
    print_lines([printable!("No Basic load balancer is in scope: there is nothing to migrate.")])?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the result of the migration and returns the exit code.
fn print_result(run_result: RunResult, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    match run_result {
        RunResult::Ended(Outcome::Done) => {
            print_lines([
                printable!("Every load balancer is migrated, and all addresses are as they were."),
                printable!(
                    "Start the cloud-controller-manager now, with loadBalancerSku: standard, and configure outbound traffic."
                ),
            ])?;
            Ok(ExitCode::SUCCESS)
        }
        RunResult::Ended(Outcome::Incomplete(problems)) => {
            print_lines([printable!("Every load balancer is migrated, except for these frontends:")])?;
            print_lines(problems.iter().map(|problem| printable!("- {problem}")))?;
            print_lines([printable!("Remove the cause and run this command again: it tries them again.")])?;
            Ok(ExitCode::from(NOT_DONE))
        }
        RunResult::Ended(Outcome::Stopped(guide)) => {
            print_lines(guide.lines().iter().map(|blocker_line| printable!("{blocker_line}")))?;
            print_lines([match file {
                Some(file) => printable!("The journal is in {} and in the cluster.", file.display()),
                None => printable!("The journal is in the cluster."),
            }])?;
            Ok(ExitCode::from(NOT_DONE))
        }
        RunResult::Interrupted(stage) => {
            print_lines([cut_off(stage)])?;
            Ok(ExitCode::from(NOT_DONE))
        }
    }
}

/// Returns the message for a migration that a signal interrupted during the outage.
pub(super) fn cut_off(stage: Stage) -> Printable {
    printable!(
        "SIGTERM ended this process while {}. Run the command again now: it continues there.",
        stage.title()
    )
}

fn blocker_line(blocker: &Blocker) -> Printable {
    printable!("- {}: {}; remedy: {}", blocker.object, blocker.finding, blocker.remedy)
}

/// Refuses a plan that differs from the plan of the live state, or that something blocks.
fn require_current(plan: &Plan, now: &Plan) -> anyhow::Result<()> {
    if plan.digest != now.digest {
        bail!(
            "the cluster or Azure has changed since the plan was made: make a new plan, review it, and apply that"
        );
    }
    if !now.blockers.is_empty() {
        eprint_lines(now.blockers.iter().map(blocker_line));
        bail!("{} findings block the migration", now.blockers.len());
    }
    Ok(())
}
