//! Follows the machines while they put pre-images back, until each pool is in sync, or cannot become so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use model::assignment::PausedBy;
use model::ids::PoolId;
use model::level::Keeps;
use model::machine::Now;
use model::operator_request::{Answer, Refusal, Scope, Wanted};
use model::sample::{AttemptEnd, PoolState};
use model::view::{LeadershipView, PoolView, Snapshot};

use crate::cli::observe::LOOK_EVERY;
use crate::cli::tell;
use crate::service::Sight;

/// How long after the last write ARM is read once more: it can report success and keep something else.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// What has become of a pool that is restored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It was written, and is in sync.
    Restored,
    /// It is in sync, and was not written.
    InSync,
    /// It could not be written.
    Failed(String),
    /// It is out of sync: its state.
    Pending(String),
}

impl Fate {
    /// Whether the pool has the members of its pre-image.
    pub(super) fn is_in_sync(&self) -> bool {
        match self {
            Fate::Restored | Fate::InSync => true,
            Fate::Failed(_) | Fate::Pending(_) => false,
        }
    }

    /// In words.
    pub(super) fn words(&self) -> String {
        match self {
            Fate::Restored => "restored".to_owned(),
            Fate::InSync => "is in sync".to_owned(),
            Fate::Failed(why) => format!("failed: {why}"),
            Fate::Pending(why) => format!("not done: {why}"),
        }
    }

    /// What has become of a pool since a moment.
    fn of(view: Option<&PoolView>, since: Now) -> Fate {
        let Some(view) = view else {
            return Fate::Failed("it is gone, or not manageable any more".to_owned());
        };
        let end = view.last_end.as_ref().filter(|last| last.at >= since).map(|last| last.end);
        let why = || view.last_error.as_deref().unwrap_or("no error was told").to_owned();
        if view.level.keeps == Keeps::All {
            return Fate::Failed(
                "its endpoints have moved meanwhile: it would serve no traffic now".to_owned(),
            );
        }
        match view.state {
            PoolState::InSync if end == Some(AttemptEnd::Written) => Fate::Restored,
            PoolState::InSync => Fate::InSync,
            PoolState::Failed if end == Some(AttemptEnd::Stale) => {
                Fate::Failed("it does not exist any more".to_owned())
            }
            PoolState::Failed => Fate::Failed(why()),
            PoolState::Quarantined => {
                Fate::Failed("the controller left it alone after an error of its own".to_owned())
            }
            PoolState::Parked => Fate::Pending(format!("it waits to be tried again: {}", why())),
            PoolState::Paused if view.paused.iter().any(is_single) => {
                Fate::Failed("it was paused meanwhile".to_owned())
            }
            PoolState::Paused => Fate::Pending("nothing may be written yet".to_owned()),
            PoolState::Unknown | PoolState::Waiting | PoolState::Due | PoolState::Attempting => {
                Fate::Pending(match &view.last_error {
                    Some(why) => format!("{}; {why}", view.state.as_str()),
                    None => view.state.as_str().to_owned(),
                })
            }
        }
    }
}

/// Whether a pause is one of this pool or of a Service whose pool it is.
fn is_single(paused: &PausedBy) -> bool {
    match paused {
        PausedBy::Pool | PausedBy::Service(_) | PausedBy::Annotation(_) => true,
        PausedBy::Mode | PausedBy::Everything | PausedBy::NoPin => false,
    }
}

/// The pools that are restored, and what has become of them.
pub(super) struct Work<'a> {
    pub(super) pools: &'a [PoolId],
    /// Why the pause of everything is made; `None`: it is not made.
    pub(super) pause: Option<Arc<str>>,
    /// When it began.
    pub(super) since: Now,
    pub(super) within: Duration,
}

impl Work<'_> {
    /// What has become of each pool, as the machines see it.
    pub(super) fn fates(&self, snapshot: &Snapshot) -> BTreeMap<PoolId, Fate> {
        let fate = |id: &PoolId| Fate::of(snapshot.pools.get(id).map(AsRef::as_ref), self.since);
        self.pools.iter().map(|id| (id.clone(), fate(id))).collect()
    }

    /// Waits until nothing is pending and `is_so` has seen it at ARM too, or until time is up.
    ///
    /// # Errors
    /// Everything could not be paused for the others, or an operator has ended that.
    pub(super) async fn done(
        &self,
        sight: &Sight,
        is_so: impl AsyncFn(&BTreeMap<PoolId, Fate>) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let mut told = Told::default();
        let (mut paused, mut settled) = (false, None);
        while sight.clock.now().since(self.since) < self.within {
            let (now, snapshot) = (sight.clock.now(), sight.published.load_full());
            told.leadership(snapshot.leadership.as_ref());
            if let Some(reason) = &self.pause {
                paused = self.paused(sight, &snapshot, reason, paused).await?;
            }
            let fates = self.fates(&snapshot);
            told.progress(&fates);
            if fates.values().any(|fate| matches!(fate, Fate::Pending(_))) {
                settled = None;
            } else if now.since(*settled.get_or_insert(now)) >= SETTLED_AFTER {
                if is_so(&fates).await? {
                    return Ok(());
                }
                settled = None;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Pauses everything for the others once this process leads, and makes certain that it stays so. Says whether it is.
    async fn paused(
        &self,
        sight: &Sight,
        snapshot: &Snapshot,
        reason: &Arc<str>,
        was: bool,
    ) -> anyhow::Result<bool> {
        let policy = snapshot.policy.as_ref().and_then(|view| view.policy.as_ref());
        let is = policy.is_some_and(|policy| policy.everything.is_some());
        let leads = snapshot.leadership.as_ref().is_some_and(|view| view.role == "leader");
        if was && !is && policy.is_some() {
            bail!("the pause of everything was ended meanwhile: from then on nothing was written");
        }
        if is || !leads {
            return Ok(is);
        }
        let (scope, by) = (Scope::Everything, Some(Arc::from("restore")));
        let asked = Wanted::Pause { scope, by, reason: Some(Arc::clone(reason)) };
        let why: Arc<str> = match sight.asks.ask(asked).await {
            // What is shown follows.
            Some(Answer::Done(_)) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                return Ok(false);
            }
            Some(Answer::Refused(Refusal::Failed(why))) => why,
            Some(Answer::Refused(refusal)) => format!("{refusal:?}").into(),
            None => "there was no answer".into(),
        };
        bail!(
            "everything could not be paused in our ConfigMap: {why}; nothing was written. Let this account create and update \
             that ConfigMap, or pass --leave-unpaused where no controller runs"
        )
    }
}

/// What operators were told while they wait.
#[derive(Default)]
struct Told {
    leadership: String,
    in_sync: Option<usize>,
}

impl Told {
    fn leadership(&mut self, view: Option<&LeadershipView>) {
        let Some(view) = view else { return };
        let words = match (view.role, &view.holder) {
            ("standby", Some(holder)) if *holder != view.identity => format!(
                "{holder} leads: nothing is restored before it ends; scale the controller down, or wait"
            ),
            ("settling", _) => {
                "the last leader did not end in good order: its last writes are waited for".to_owned()
            }
            ("standby", _) => match &view.last_error {
                Some(why) => format!("our Lease cannot be taken: {why}"),
                None => return,
            },
            ("leader", _) => "this process leads".to_owned(),
            _ => return,
        };
        if self.leadership != words {
            tell([printable!("{words}")]);
            self.leadership = words;
        }
    }

    fn progress(&mut self, fates: &BTreeMap<PoolId, Fate>) {
        let in_sync = fates.values().filter(|fate| fate.is_in_sync()).count();
        if self.in_sync != Some(in_sync) {
            self.in_sync = Some(in_sync);
            tell([printable!("{in_sync} of {} pools are in sync", fates.len())]);
        }
    }
}
