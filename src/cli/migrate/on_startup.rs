//! `run` with `migration.onStartup`: the controller migrates once, and then takes part in leader election. Until then
//! it answers probes, reads and compares, and writes nothing. It continues even if the migration fails.

use std::path::PathBuf;
use std::process::ExitCode;

use config::{Config, Mode};
use migration::apply::Outcome;
use migration::plan::{Blocker, Plan};

use super::Environment;
use super::drive::{EndingSignals, Run, RunResult, Signals};
use super::output::Output;
use super::unattended::{Finished, Task, Unattended};
use crate::cli::observe::POLL_INTERVAL;
use crate::service::{self, Listeners, Options, ServiceHandle};

/// Remedy for a migration that has begun.
const CONTINUE: &str = "remove the cause and restart the controller, or run `migrate-basic-lb apply --unattended`: it \
                     continues there; see docs/migration.md";
/// Remedy for a migration that has not begun.
const BEGIN: &str = "remove the cause and restart the controller, or set migration.onStartup: false; the rights in the \
                     cluster are in docs/rbac-migration.yaml";

/// Runs the controller until SIGTERM or SIGINT, after a migration.
pub(in crate::cli) fn run_after_migration(options: Options) -> anyhow::Result<ExitCode> {
    service::in_system(async {
        let start = Start {
            config: options.config.clone(),
            kubeconfig: options.kubeconfig.clone(),
            writes: !options.dry_run && options.config.controller.mode == Mode::Enforce,
            signals: Signals::listen(EndingSignals::OnBoth)?,
        };
        let mut task = None;
        let watcher = async |service: ServiceHandle| {
            // A separate task, because a signal ends the watcher immediately, but the migration needs time to end.
            let migration = task.insert(actix::spawn(start.migrate(service.clone())));
            let ended = migration.await;
            task = None;
            debug_assert!(ended.is_ok(), "a panic ends the process");
            service.election_trigger.join_election().await;
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

/// The migration at the start of a process.
struct Start {
    config: Config,
    kubeconfig: Option<PathBuf>,
    /// Whether the migration may change anything; else it only logs the plan.
    writes: bool,
    signals: Signals,
}

impl Start {
    async fn migrate(self, service: ServiceHandle) {
        if let Err(error) = self.execute(&service).await {
            tracing::error!(
                error = format!("{error:#}"),
                remedy = BEGIN,
                "the migration from Basic load balancers failed to start"
            );
        }
    }

    async fn execute(self, service: &ServiceHandle) -> anyhow::Result<()> {
        let environment = Environment::open(self.config, self.kubeconfig).await?;
        let mut run = Run::new(&environment, Output::Log, self.signals);
        let migration = Unattended::new(&environment, None, &[]).with_service(service);
        if !self.writes {
            if let Some(task) = migration.task(&mut run).await? {
                log_task(&task);
            }
            return Ok(());
        }
        // Read the pauses first, as before leadership.
        let pauses = async {
            while service.published.load().policy.as_ref().is_none_or(|view| view.policy.is_none()) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        if run.run_unless_interrupted(pauses).await.is_none() {
            return Ok(());
        }
        let finished = migration.execute(&mut run).await;
        run.release().await;
        log_finished(finished?, run.is_asked_to_stop);
        Ok(())
    }
}

/// Logs a task that is not executed.
fn log_task(task: &Task) {
    match task {
        Task::Nothing => log_nothing(),
        Task::Resume(_) => {
            tracing::info!(
                "an interrupted migration from Basic load balancers would continue; nothing is changed"
            )
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
                "the plan of the migration from Basic load balancers; nothing is changed"
            );
        }
    }
}

fn log_nothing() {
    tracing::info!("no Basic load balancer is in scope: nothing is migrated");
}

/// Logs the result of the migration.
fn log_finished(finished: Finished, is_asked_to_stop: bool) {
    match finished {
        Finished::Nothing => log_nothing(),
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
        Finished::RunResult(RunResult::Ended(Outcome::Done)) => {
            tracing::info!(
                "migrated from Basic to Standard load balancers, and all addresses are as they were"
            );
        }
        Finished::RunResult(RunResult::Ended(Outcome::Incomplete(problems))) => {
            for (object, finding) in problems.iter().map(|problem| parts(problem)) {
                tracing::error!(
                    object,
                    finding,
                    remedy = CONTINUE,
                    "a frontend is not served after the migration from Basic load balancers"
                );
            }
        }
        Finished::RunResult(RunResult::Ended(Outcome::Stopped(guide)))
            if is_asked_to_stop && guide.is_before_outage() =>
        {
            tracing::info!("the migration from Basic load balancers ended before it interrupted traffic");
        }
        Finished::RunResult(RunResult::Ended(Outcome::Stopped(guide))) => {
            for (object, finding) in guide.problems.iter().map(|problem| parts(problem)) {
                tracing::error!(
                    object,
                    finding,
                    remedy = CONTINUE,
                    stage = guide.stage.title(),
                    "the migration from Basic load balancers stopped"
                );
            }
            let guide = guide.lines();
            tracing::warn!(?guide, "steps to continue the migration from Basic load balancers");
        }
        Finished::RunResult(RunResult::Interrupted(stage)) => tracing::warn!(
            stage = stage.title(),
            remedy = "start the controller again: it continues there",
            "the process stopped during the migration from Basic load balancers"
        ),
    }
}

/// Splits a problem into its object and the finding; the object is empty if there is none.
fn parts(problem: &str) -> (&str, &str) {
    problem.split_once(": ").unwrap_or(("", problem))
}
