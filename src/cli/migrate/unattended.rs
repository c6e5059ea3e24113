//! A migration without an operator: `apply --unattended`, and the start of the controller with `migration.onStartup`.
//! It continues an interrupted migration; else it reads everything in scope, plans, and applies the plan if nothing
//! blocks it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use migration::apply::Apply;
use migration::journal::Journal;
use migration::plan::{Accepted, Blocker, Plan};

use super::drive::{LeaseWait, Run, RunResult};
use super::journal::{Kind, Store};
use super::{Environment, azure, facts};
use crate::service::ServiceHandle;

/// The maximum number of reads while the API server does not answer, and the time between them: a Pod's first
/// connections can fail while its network is set up.
const MAX_READS: u32 = 4;
const READ_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The task that follows from the live state.
pub(super) enum Task {
    /// No Basic load balancer is in scope.
    Nothing,
    /// This plan has findings that block the migration.
    Blocked(Plan),
    /// Apply this plan, with this journal.
    Begin(Plan, Box<Journal>),
    /// Continue the migration of this journal.
    Resume(Box<Journal>),
}

/// The result of an unattended migration.
pub(super) enum Finished {
    /// No Basic load balancer is in scope.
    Nothing,
    /// Findings block the migration.
    Blocked(Vec<Blocker>),
    /// Everything is paused.
    Paused,
    /// A signal came before anything was changed.
    Interrupted,
    /// A plan was applied, completely or not.
    RunResult(RunResult),
}

pub(super) struct Unattended<'a> {
    environment: &'a Environment,
    store: Arc<Store<'a>>,
    accepted: Accepted,
    /// The controller of this process, if any: the migration respects its pause of everything.
    service: Option<&'a ServiceHandle>,
}

impl<'a> Unattended<'a> {
    /// Returns a migration whose journal is stored in the cluster, and in this file if there is one. It accepts the
    /// names in `accept` and those of the configuration.
    pub(super) fn new(
        environment: &'a Environment,
        file: Option<&'a Path>,
        accept: &[String],
    ) -> Unattended<'a> {
        let store = Arc::new(Store::of(environment, Kind::Migration, file));
        Unattended { environment, store, accepted: environment.accepted(accept), service: None }
    }

    /// Connects the migration to the controller of this process. The migration changes nothing while everything is
    /// paused, and ends as early as possible, so that the controller can begin.
    pub(super) fn with_service(self, service: &'a ServiceHandle) -> Unattended<'a> {
        Unattended { service: Some(service), ..self }
    }

    fn is_paused(&self) -> bool {
        let snapshot = self.service.map(|service| service.published.load());
        let policy = snapshot.as_ref().and_then(|snapshot| snapshot.policy.as_ref()?.policy.as_ref());
        policy.is_some_and(|policy| policy.everything.is_some())
    }

    /// Reads the live state and returns the task that follows; `None` if a signal came.
    pub(super) async fn task(&self, run: &mut Run<'a>) -> anyhow::Result<Option<Task>> {
        for _ in 1..MAX_READS {
            match self.try_task(run).await {
                Err(error) if is_transient(&error) => run.output.retrying_read(&error),
                read => return read,
            }
            if run.run_unless_interrupted(tokio::time::sleep(READ_AGAIN_AFTER)).await.is_none() {
                return Ok(None);
            }
        }
        self.try_task(run).await
    }

    async fn try_task(&self, run: &mut Run<'a>) -> anyhow::Result<Option<Task>> {
        let Some(journal) = run.run_unless_interrupted(self.store.read()).await else { return Ok(None) };
        if let Some(journal) = journal?.filter(|journal| !journal.done) {
            return Ok(Some(Task::Resume(Box::new(journal))));
        }
        let Some(cluster) = run.run_unless_interrupted(facts::read(self.environment)).await else {
            return Ok(None);
        };
        let output = run.output.clone();
        let survey = azure::survey(&self.environment.arm, self.environment.clock, cluster?, &output);
        let Some(inventory) = run.run_unless_interrupted(survey).await else { return Ok(None) };
        let plan = Plan::of(&inventory, &self.accepted);
        Ok(Some(if !plan.blockers.is_empty() {
            Task::Blocked(plan)
        } else if plan.is_empty() {
            Task::Nothing
        } else {
            Task::Begin(plan, Box::new(Journal::begun(inventory)))
        }))
    }

    /// Executes the task. Waits for the Lease only if something is to be done, and then reads the state again, because
    /// another process may have migrated meanwhile.
    pub(super) async fn execute(&self, run: &mut Run<'a>) -> anyhow::Result<Finished> {
        loop {
            let was_held = run.holds_own_lease();
            let Some(task) = self.task(run).await? else { return Ok(Finished::Interrupted) };
            let is_held = was_held && run.holds_own_lease();
            let machine = match task {
                Task::Nothing => return Ok(Finished::Nothing),
                Task::Blocked(plan) => return Ok(Finished::Blocked(plan.blockers)),
                Task::Begin(..) | Task::Resume(_) if self.is_paused() => return Ok(Finished::Paused),
                Task::Begin(plan, journal) if is_held => {
                    run.output.notices(&plan.notices);
                    Apply::new(*journal, false)
                }
                Task::Resume(journal) if is_held => Apply::new(*journal, true),
                Task::Begin(..) | Task::Resume(_) => {
                    match run.wait_for_own_lease().await {
                        LeaseWait::Held | LeaseWait::OtherHolder => {}
                        LeaseWait::Interrupted => return Ok(Finished::Interrupted),
                    }
                    continue;
                }
            };
            let machine = if self.service.is_some() { machine.with_few_retakes() } else { machine };
            return Ok(Finished::RunResult(run.drive(machine, &self.store).await));
        }
    }
}

/// Returns whether another attempt can succeed: the API server did not answer, or failed with 429 or 5xx.
fn is_transient(error: &anyhow::Error) -> bool {
    match error.chain().find_map(|cause| cause.downcast_ref::<kube::Error>()) {
        Some(kube::Error::Api(status)) => status.code == 429 || status.code >= 500,
        Some(_) => true,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_errors_of_the_api_server_are_retried() {
        let failed =
            |error: kube::Error| is_transient(&anyhow::Error::new(error).context("failed to list Nodes"));
        let status = |code| kube::Error::Api(Box::new(Status { code, ..Status::failure("no", "why") }));
        assert_eq!(
            [403, 404, 429, 500, 503].map(|code| failed(status(code))),
            [false, false, true, true, true]
        );
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(failed(kube::Error::Service(refused.into())));
        let damaged = Err::<(), _>(anyhow::anyhow!("the journal is damaged")).context("read");
        assert!(!is_transient(&damaged.unwrap_err()));
    }
}
