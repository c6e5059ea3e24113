//! Follows the machines while they restore pools, until each pool is in sync or has failed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use model::assignment::PausedBy;
use model::ids::PoolId;
use model::level::SurplusPolicy;
use model::machine::Now;
use model::operator_request::{Answer, OperatorAction, Refusal, Scope};
use model::sample::{AttemptEnd, PoolState};
use model::view::{LeadershipView, PoolView, Snapshot};

use crate::cli::eprint_lines;
use crate::cli::observe::POLL_INTERVAL;
use crate::service::ServiceHandle;

/// The time after the last write at which ARM is read once more, because ARM can report success and store something
/// else.
const CONFIRM_AFTER: Duration = Duration::from_secs(2);

/// The outcome of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// It was written and is in sync.
    Restored,
    /// It is in sync and was not written.
    InSync,
    /// It could not be written, for this reason.
    Failed(String),
    /// It is not in sync yet; the text has its state.
    Pending(String),
}

impl Outcome {
    /// Returns whether the pool has the members of its pre-image.
    pub(super) fn is_in_sync(&self) -> bool {
        match self {
            Outcome::Restored | Outcome::InSync => true,
            Outcome::Failed(_) | Outcome::Pending(_) => false,
        }
    }

    /// Returns the outcome as a text.
    pub(super) fn text(&self) -> String {
        match self {
            Outcome::Restored => "restored".to_owned(),
            Outcome::InSync => "is in sync".to_owned(),
            Outcome::Failed(reason) => format!("failed: {reason}"),
            Outcome::Pending(reason) => format!("not done: {reason}"),
        }
    }

    /// Returns the outcome of a pool since this time.
    fn of(view: Option<&PoolView>, since: Now) -> Outcome {
        let Some(view) = view else {
            return Outcome::Failed("it no longer exists, or is no longer manageable".to_owned());
        };
        let end = view.last_end.as_ref().filter(|last| last.at >= since).map(|last| last.end);
        let reason = || view.last_error.as_deref().unwrap_or("unknown error").to_owned();
        if view.level.keeps == SurplusPolicy::KeepAll {
            return Outcome::Failed(
                "its endpoints have moved to other nodes meanwhile: it would serve no traffic now".to_owned(),
            );
        }
        match view.state {
            PoolState::InSync if end == Some(AttemptEnd::Written) => Outcome::Restored,
            PoolState::InSync => Outcome::InSync,
            PoolState::Failed if end == Some(AttemptEnd::Stale) => {
                Outcome::Failed("it no longer exists".to_owned())
            }
            PoolState::Failed => Outcome::Failed(reason()),
            PoolState::Quarantined => {
                Outcome::Failed("the controller does not write it after an internal error".to_owned())
            }
            PoolState::Parked => Outcome::Pending(format!("waiting for the next attempt: {}", reason())),
            PoolState::Paused if view.paused.iter().any(is_single) => {
                Outcome::Failed("it was paused meanwhile".to_owned())
            }
            PoolState::Paused => Outcome::Pending("nothing may be written yet".to_owned()),
            PoolState::Unknown | PoolState::Waiting | PoolState::Due | PoolState::Attempting => {
                Outcome::Pending(match &view.last_error {
                    Some(reason) => format!("{}; {reason}", view.state.as_str()),
                    None => view.state.as_str().to_owned(),
                })
            }
        }
    }
}

/// Returns whether a pause applies only to one pool or Service.
fn is_single(paused: &PausedBy) -> bool {
    match paused {
        PausedBy::Pool | PausedBy::Service(_) | PausedBy::Annotation(_) => true,
        PausedBy::Mode | PausedBy::Everything | PausedBy::NotInRestore => false,
    }
}

/// The restore of some pools.
pub(super) struct PoolRestore<'a> {
    pub(super) pools: &'a [PoolId],
    /// The reason of the pause of everything; `None` without a pause.
    pub(super) pause: Option<Arc<str>>,
    /// The start time.
    pub(super) since: Now,
    /// The maximum duration.
    pub(super) within: Duration,
}

impl PoolRestore<'_> {
    /// Returns the outcome of each pool, as the machines report it.
    pub(super) fn outcomes(&self, snapshot: &Snapshot) -> BTreeMap<PoolId, Outcome> {
        let outcome = |id: &PoolId| Outcome::of(snapshot.pools.get(id).map(AsRef::as_ref), self.since);
        self.pools.iter().map(|id| (id.clone(), outcome(id))).collect()
    }

    /// Waits until no pool is pending and `is_confirmed` has found the same outcomes at ARM, or until the time is over.
    ///
    /// # Errors
    /// The pause of everything failed, or an operator has ended it.
    pub(super) async fn run(
        &self,
        service: &ServiceHandle,
        is_confirmed: impl AsyncFn(&BTreeMap<PoolId, Outcome>) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let mut reporter = Reporter::default();
        let (mut is_paused, mut finished_at) = (false, None);
        while service.clock.now().since(self.since) < self.within {
            let (now, snapshot) = (service.clock.now(), service.published.load_full());
            reporter.leadership(snapshot.leadership.as_ref());
            if let Some(reason) = &self.pause {
                is_paused = self.ensure_paused(service, &snapshot, reason, is_paused).await?;
            }
            let outcomes = self.outcomes(&snapshot);
            reporter.progress(&outcomes);
            if outcomes.values().any(|outcome| matches!(outcome, Outcome::Pending(_))) {
                finished_at = None;
            } else if now.since(*finished_at.get_or_insert(now)) >= CONFIRM_AFTER {
                if is_confirmed(&outcomes).await? {
                    return Ok(());
                }
                finished_at = None;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Pauses everything for other processes once this process leads, and returns whether everything is paused now.
    ///
    /// # Errors
    /// The pause failed, or an operator has ended it.
    async fn ensure_paused(
        &self,
        service: &ServiceHandle,
        snapshot: &Snapshot,
        reason: &Arc<str>,
        was_paused: bool,
    ) -> anyhow::Result<bool> {
        let policy = snapshot.policy.as_ref().and_then(|view| view.policy.as_ref());
        let is_paused = policy.is_some_and(|policy| policy.everything.is_some());
        let leads = snapshot.leadership.as_ref().is_some_and(|view| view.role == "leader");
        if was_paused && !is_paused && policy.is_some() {
            bail!("the pause of everything was ended meanwhile: nothing was written after that");
        }
        if is_paused || !leads {
            return Ok(is_paused);
        }
        let (scope, by) = (Scope::Everything, Some(Arc::from("restore")));
        let request = OperatorAction::Pause { scope, by, reason: Some(Arc::clone(reason)) };
        let reason: Arc<str> = match service.requests.send(request).await {
            // The published snapshot will show the pause soon.
            Some(Answer::Done(_)) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                return Ok(false);
            }
            Some(Answer::Refused(Refusal::Failed(reason))) => reason,
            Some(Answer::Refused(refusal)) => format!("{refusal:?}").into(),
            None => "there was no answer".into(),
        };
        bail!(
            "failed to pause everything in the controller's ConfigMap: {reason}; nothing was written. Let this account \
             create and update that ConfigMap, or pass --leave-unpaused where no controller runs"
        )
    }
}

/// Prints changes of the progress, each once.
#[derive(Default)]
struct Reporter {
    leadership: String,
    in_sync: Option<usize>,
}

impl Reporter {
    fn leadership(&mut self, view: Option<&LeadershipView>) {
        let Some(view) = view else { return };
        let text = match (view.role, &view.holder) {
            ("standby", Some(holder)) if *holder != view.identity => format!(
                "{holder} leads: nothing is restored before it ends; scale the controller down, or wait"
            ),
            ("settling", _) => {
                "the last leader did not shut down cleanly: waiting for its last writes".to_owned()
            }
            ("standby", _) => match &view.last_error {
                Some(reason) => format!("failed to acquire the controller's Lease: {reason}"),
                None => return,
            },
            ("leader", _) => "this process leads".to_owned(),
            _ => return,
        };
        if self.leadership != text {
            eprint_lines([printable!("{text}")]);
            self.leadership = text;
        }
    }

    fn progress(&mut self, outcomes: &BTreeMap<PoolId, Outcome>) {
        let in_sync = outcomes.values().filter(|outcome| outcome.is_in_sync()).count();
        if self.in_sync != Some(in_sync) {
            self.in_sync = Some(in_sync);
            eprint_lines([printable!("{in_sync} of {} pools are in sync", outcomes.len())]);
        }
    }
}
