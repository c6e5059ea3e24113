//! `run` with `migration.onStartup`: the controller migrates once, and then takes part in the election of the leader. Until
//! then it answers probes, reads and compares, and writes nothing. Whatever becomes of the migration, the controller goes on.

use std::path::PathBuf;
use std::process::ExitCode;

use config::{Config, Mode};
use migration::apply::Outcome;
use migration::plan::{Blocker, Plan};

use super::Outside;
use super::drive::{Driven, Ending, Run, Signals};
use super::output::Output;
use super::unattended::{Finished, Task, Unattended};
use crate::cli::observe::LOOK_EVERY;
use crate::service::{self, Listeners, Options, Sight};

/// How a migration that has begun goes on.
const GO_ON: &str = "remove the cause and restart the controller, or run `migrate-basic-lb apply --unattended`: it \
                     continues there; see docs/migration.md";
/// What to do where a migration has not begun.
const BEGIN: &str = "remove the cause and restart the controller, or set migration.onStartup: false; the rights in the \
                     cluster are in docs/rbac-migration.yaml";

/// Runs the controller until SIGTERM or SIGINT, after a migration.
pub(in crate::cli) fn run_after_migration(options: Options) -> anyhow::Result<ExitCode> {
    service::in_system(async {
        let start = Start {
            config: options.config.clone(),
            kubeconfig: options.kubeconfig.clone(),
            writes: !options.dry_run && options.config.controller.mode == Mode::Enforce,
            signals: Signals::listen(Ending::OnBoth)?,
        };
        let mut task = None;
        let watcher = async |sight: Sight| {
            // A task of its own: a signal ends the watcher, and the migration ends in its own order.
            let migration = task.insert(actix::spawn(start.migrate(sight.clone())));
            let ended = migration.await;
            task = None;
            debug_assert!(ended.is_ok(), "a panic ends the process");
            sight.ballot.cast().await;
            std::future::pending::<()>().await;
        };
        service::serve(options, Listeners::Open, watcher).await?;
        if let Some(migration) = task {
            let ended = migration.await;
            debug_assert!(ended.is_ok(), "a panic ends the process");
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// The migration of one start.
struct Start {
    config: Config,
    kubeconfig: Option<PathBuf>,
    /// Whether it may change anything; else it logs the plan.
    writes: bool,
    signals: Signals,
}

impl Start {
    async fn migrate(self, sight: Sight) {
        if let Err(error) = self.carry_out(&sight).await {
            tracing::error!(
                error = format!("{error:#}"),
                remedy = BEGIN,
                "the migration from Basic load balancers did not begin"
            );
        }
    }

    async fn carry_out(self, sight: &Sight) -> anyhow::Result<()> {
        let outside = Outside::open(self.config, self.kubeconfig).await?;
        let mut run = Run::new(&outside, Output::Log, self.signals);
        let migration = Unattended::new(&outside, None, &[]).heeding(sight);
        if !self.writes {
            if let Some(task) = migration.task(&mut run).await? {
                shown(&task);
            }
            return Ok(());
        }
        // Without them no term of leadership begins either.
        let pauses = async {
            while sight.published.load().policy.as_ref().is_none_or(|view| view.policy.is_none()) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        if run.beside(pauses).await.is_none() {
            return Ok(());
        }
        let finished = migration.carry_out(&mut run).await;
        run.release().await;
        logged(finished?, run.is_asked_to_stop);
        Ok(())
    }
}

/// Logs what would be done.
fn shown(task: &Task) {
    match task {
        Task::Nothing => nothing(),
        Task::Resume(_) => {
            tracing::info!("a migration from Basic load balancers that was interrupted would go on")
        }
        Task::Blocked(plan) | Task::Begin(plan, _) => {
            let Plan { steps, outage, irreversible, blockers, notices, .. } = plan;
            let steps: Vec<&str> = steps.iter().map(|step| step.title.as_str()).collect();
            let blockers: Vec<String> = blockers
                .iter()
                .map(|Blocker { object, finding, remedy, .. }| {
                    format!("{object}: {finding}; remedy: {remedy}")
                })
                .collect();
            tracing::info!(
                ?steps,
                outage_least_s = outage.least_seconds,
                outage_most_s = outage.most_seconds,
                ?irreversible,
                ?blockers,
                ?notices,
                "the plan of a migration from Basic load balancers, which is not carried out"
            );
        }
    }
}

fn nothing() {
    tracing::info!("no Basic load balancer is in scope: nothing is migrated");
}

/// Logs how the migration has ended.
fn logged(finished: Finished, is_asked_to_stop: bool) {
    match finished {
        Finished::Nothing => nothing(),
        Finished::Blocked(blockers) => {
            for Blocker { object, finding, remedy, .. } in &blockers {
                tracing::error!(
                    object,
                    finding,
                    remedy,
                    "a finding blocks the migration from Basic load balancers"
                );
            }
        }
        Finished::Paused => tracing::warn!(
            remedy = "resume everything and restart the controller",
            "everything is paused, so Basic load balancers are not migrated"
        ),
        Finished::Interrupted => {}
        Finished::Driven(Driven::Ended(Outcome::Done)) => {
            tracing::info!(
                "migrated from Basic to Standard load balancers, and all addresses are as they were"
            );
        }
        Finished::Driven(Driven::Ended(Outcome::Incomplete(problems))) => {
            for (object, finding) in problems.iter().map(|problem| parts(problem)) {
                tracing::error!(
                    object,
                    finding,
                    remedy = GO_ON,
                    "a frontend is not served after the migration from Basic load balancers"
                );
            }
        }
        Finished::Driven(Driven::Ended(Outcome::Stopped(guide)))
            if is_asked_to_stop && guide.is_before_outage() =>
        {
            tracing::info!("the migration from Basic load balancers ended before it interrupted traffic");
        }
        Finished::Driven(Driven::Ended(Outcome::Stopped(guide))) => {
            for (object, finding) in guide.problems.iter().map(|problem| parts(problem)) {
                tracing::error!(
                    object,
                    finding,
                    remedy = GO_ON,
                    stage = guide.stage.title(),
                    "the migration from Basic load balancers stopped"
                );
            }
            tracing::error!(guide = ?guide.lines(), "how to go on with the migration from Basic load balancers");
        }
        Finished::Driven(Driven::CutOff(stage)) => tracing::warn!(
            stage = stage.title(),
            remedy = "start the controller again: it continues there",
            "the end of the process interrupts the migration from Basic load balancers"
        ),
    }
}

/// The object of a problem, and what was found; the object is empty where there is none.
fn parts(problem: &str) -> (&str, &str) {
    problem.split_once(": ").unwrap_or(("", problem))
}
