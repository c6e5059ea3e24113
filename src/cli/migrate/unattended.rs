//! A migration that plans itself and asks no questions: `apply --unattended`, and the start of the controller with
//! `migration.onStartup`. An interrupted migration goes on; else everything in scope is read, and what follows from it is
//! carried out if nothing blocks it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use migration::apply::Apply;
use migration::journal::Journal;
use migration::plan::{Accepted, Blocker, Plan};

use super::drive::{Driven, Run, Waited};
use super::journal::{Kind, Store};
use super::{Outside, azure, facts};
use crate::service::Sight;

/// How often the cluster is read at most where it does not answer, and how long is waited between: a pod's first
/// connections can fail while its network is set up.
const TRIES: u32 = 4;
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// What is to be done.
pub(super) enum Task {
    /// No Basic load balancer is in scope.
    Nothing,
    /// This blocks the migration.
    Blocked(Plan),
    /// This plan is to be carried out, with this journal.
    Begin(Plan, Box<Journal>),
    /// The migration of this journal has begun and not ended.
    Resume(Box<Journal>),
}

/// How it has ended.
pub(super) enum Finished {
    /// No Basic load balancer is in scope.
    Nothing,
    /// Findings block the migration.
    Blocked(Vec<Blocker>),
    /// Everything is paused.
    Paused,
    /// A signal came before anything was changed.
    Interrupted,
    /// It was carried out, or has stopped.
    Driven(Driven),
}

pub(super) struct Unattended<'a> {
    outside: &'a Outside,
    store: Arc<Store<'a>>,
    accepted: Accepted,
    /// The controller whose pause of everything counts.
    sight: Option<&'a Sight>,
}

impl<'a> Unattended<'a> {
    /// A migration whose journal is stored in the cluster, and in this file if there is one. What the configuration
    /// accepts counts beside `accept`.
    pub(super) fn new(outside: &'a Outside, file: Option<&'a Path>, accept: &[String]) -> Unattended<'a> {
        let store = Arc::new(Store::of(outside, Kind::Migration, file));
        Unattended { outside, store, accepted: outside.accepted(accept), sight: None }
    }

    /// The same, which changes nothing while this controller sees that everything is paused, and does not keep it from its
    /// work for longer than it must.
    pub(super) fn heeding(self, sight: &'a Sight) -> Unattended<'a> {
        Unattended { sight: Some(sight), ..self }
    }

    fn is_paused(&self) -> bool {
        let snapshot = self.sight.map(|sight| sight.published.load());
        let policy = snapshot.as_ref().and_then(|snapshot| snapshot.policy.as_ref()?.policy.as_ref());
        policy.is_some_and(|policy| policy.everything.is_some())
    }

    /// Reads what is to be done; `None`: a signal came.
    pub(super) async fn task(&self, run: &mut Run<'a>) -> anyhow::Result<Option<Task>> {
        for _ in 1..TRIES {
            match self.try_task(run).await {
                Err(error) if is_transient(&error) => run.output.reads_again(&error),
                read => return read,
            }
            if run.beside(tokio::time::sleep(AGAIN_AFTER)).await.is_none() {
                return Ok(None);
            }
        }
        self.try_task(run).await
    }

    async fn try_task(&self, run: &mut Run<'a>) -> anyhow::Result<Option<Task>> {
        let Some(journal) = run.beside(self.store.read()).await else { return Ok(None) };
        if let Some(journal) = journal?.filter(|journal| !journal.done) {
            return Ok(Some(Task::Resume(Box::new(journal))));
        }
        let Some(cluster) = run.beside(facts::read(self.outside)).await else { return Ok(None) };
        let output = run.output.clone();
        let survey = azure::survey(&self.outside.arm, self.outside.clock, cluster?, &output);
        let Some(inventory) = run.beside(survey).await else { return Ok(None) };
        let plan = Plan::of(&inventory, &self.accepted);
        Ok(Some(if !plan.blockers.is_empty() {
            Task::Blocked(plan)
        } else if plan.is_empty() {
            Task::Nothing
        } else {
            Task::Begin(plan, Box::new(Journal::begun(inventory)))
        }))
    }

    /// Carries out what is to be done. The Lease is waited for only if something is; what was read before it was held
    /// is read again, because another process may have migrated meanwhile.
    pub(super) async fn carry_out(&self, run: &mut Run<'a>) -> anyhow::Result<Finished> {
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
                        Waited::Held | Waited::OtherHolder => {}
                        Waited::Interrupted => return Ok(Finished::Interrupted),
                    }
                    continue;
                }
            };
            let machine = if self.sight.is_some() { machine.without_patience() } else { machine };
            return Ok(Finished::Driven(run.drive(machine, &self.store).await));
        }
    }
}

/// Whether a later try can succeed: the API server has not answered, or has trouble of its own.
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
    fn only_trouble_of_the_api_server_is_worth_another_try() {
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
