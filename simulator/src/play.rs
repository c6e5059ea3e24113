//! A run: timed changes, then the wait until every pool and every admin state is in sync.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use simulator_models::arm::Counters;
use tokio::time::{Instant, MissedTickBehavior};

use crate::churn::Churn;
use crate::convergence::InSync;
use crate::expected_members::{self, Addresses, OutOfSyncPool, States, WrongEntry};
use crate::fakes::Fakes;
use crate::process_control::ProcessControl;
use crate::scenario::{Action, TimelineEntry};
use crate::world::{Scope, World};

/// Interval between updates of the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum number of due changes that are written together.
const BATCH: usize = 256;

/// The parts of a run.
pub struct Play<'a> {
    fakes: &'a Fakes,
    world: World,
    churn: Churn,
    addresses: Arc<Addresses>,
    /// Scope of changes of each Service.
    scopes: Vec<Arc<Scope>>,
    /// The actions of the scenario, in the order of time.
    timeline: VecDeque<TimelineEntry>,
    /// The controller's process.
    control: Option<ProcessControl>,
    /// Seconds by which the cluster's wall clock is ahead of the local one.
    ahead_s: i64,
    /// `members.removalDelay`.
    removal_delay_us: u64,
}

/// Stage of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Changes are being made.
    Changing,
    /// All changes are made; the run waits for pools.
    Settling,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Its stage.
    pub stage: Stage,
    /// Changes made.
    pub changes: u64,
    /// Total number of changes.
    pub changes_total: u64,
    /// Numbers of pools in sync, and of those with old members within `members.removalDelay`.
    pub in_sync: InSync,
    /// All pools.
    pub pools: usize,
    /// ARM's counters.
    pub arm: Counters,
}

/// Outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Changes made.
    pub changes: u64,
    /// Duration of the changes, in microseconds.
    pub changing_us: u64,
    /// Pools out of sync at the end, computed from all objects.
    pub wrong_pools: Vec<OutOfSyncPool>,
    /// Entries with wrong admin states at the end.
    pub wrong_entries: Vec<WrongEntry>,
}

impl<'a> Play<'a> {
    /// Creates a run in a cluster that has been written into these fakes.
    pub async fn new(fakes: &'a Fakes, world: World, churn: Churn) -> Self {
        let addresses = fakes.cluster.ask(|cluster, _| Arc::new(Addresses::of(&cluster.model))).await;
        let scopes = (0..world.services().len()).map(|service| Arc::new(world.scope(service))).collect();
        let churn = churn.planned(&world);
        Self {
            fakes,
            world,
            churn,
            addresses,
            scopes,
            timeline: VecDeque::new(),
            control: None,
            ahead_s: 0,
            removal_delay_us: 0,
        }
    }

    /// Returns the same run with these actions, which are in the order of time.
    #[must_use]
    pub fn with(mut self, timeline: &[TimelineEntry]) -> Self {
        self.timeline = timeline.iter().cloned().collect();
        self
    }

    /// Returns the same run. Its progress counts a pool as in sync while this `members.removalDelay` keeps old members
    /// in it.
    #[must_use]
    pub fn with_removal_delay(mut self, delay: Duration) -> Self {
        self.removal_delay_us = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self
    }

    /// Returns the same run with a handle of the controller's process.
    #[must_use]
    pub fn holding(mut self, control: Option<ProcessControl>) -> Self {
        self.control = control;
        self
    }

    /// Makes all changes at their times, and then waits at most `settle` for pools and admin states.
    pub async fn run(mut self, settle: Duration, mut show: impl FnMut(&Progress)) -> Outcome {
        let clock = self.fakes.clock();
        let begin_us = clock.now_us();
        self.change(begin_us, &mut show).await;
        let changing_us = clock.now_us().saturating_sub(begin_us);
        self.wait_until_in_sync(Instant::now() + settle, &mut show).await;
        let wanted =
            self.fakes.cluster.ask(|cluster, _| expected_members::expected_pools(&cluster.model)).await;
        let gone = self.world.gone_pools();
        let query = move |azure: &mut crate::azure::Azure, _| {
            let mut all = expected_members::wrong_pools(&azure.model, &wanted);
            all.extend(expected_members::pools_again(&azure.model, &gone));
            all
        };
        let wrong_pools = self.fakes.azure.ask(query).await;
        let wrong_entries = self.wrong_entries().await;
        Outcome { changes: self.churn.made(), changing_us, wrong_pools, wrong_entries }
    }

    async fn change(&mut self, begin_us: u64, show: &mut impl FnMut(&Progress)) {
        let clock = self.fakes.clock();
        let mut shown = ticks();
        loop {
            let happens_us = self.timeline.front().map(|entry| entry.at_us);
            let changes_us = self.churn.next_due_us(&self.world);
            let Some(due_us) = [happens_us, changes_us].into_iter().flatten().min() else { return };
            tokio::select! {
                biased;
                _ = shown.tick() => show(&self.progress(Stage::Changing).await),
                () = tokio::time::sleep_until(clock.instant(begin_us.saturating_add(due_us))) => {
                    if happens_us == Some(due_us) {
                        self.happen().await;
                    } else {
                        self.make(clock.now_us().saturating_sub(begin_us)).await;
                    }
                }
            }
        }
    }

    /// Runs the next action, and updates the requirements in the convergence tracker.
    async fn happen(&mut self) {
        let Some(entry) = self.timeline.pop_front() else { return };
        if let Action::ClocksJump(seconds) = entry.action {
            self.ahead_s = self.ahead_s.saturating_add(seconds);
        }
        let trigger_time = self.trigger_time();
        let mut scene = entry.action.begin(&mut self.world, &trigger_time);
        scene.on_process(self.control.as_ref()).await;
        let there = (0..self.scopes.len()).filter(|service| !self.world.is_gone(*service));
        let scopes: Vec<Arc<Scope>> = if scene.changes_expected_members() {
            there.map(|service| Arc::clone(&self.scopes[service])).collect()
        } else {
            Vec::new()
        };
        let acted = scene.clone();
        let (addresses, wanted) = self
            .fakes
            .cluster
            .ask(move |cluster, now_us| {
                acted.on_cluster(cluster, now_us);
                let addresses = Arc::new(Addresses::of(&cluster.model));
                let wanted: Vec<_> =
                    scopes.iter().flat_map(|scope| scope.wanted(&cluster.model, &addresses)).collect();
                (addresses, wanted)
            })
            .await;
        self.addresses = addresses;
        self.fakes
            .azure
            .ask(move |azure, now_us| {
                scene.on_azure(azure, now_us);
                azure.want(wanted, now_us);
            })
            .await;
    }

    /// Makes the due changes, and updates the requirements in the convergence tracker.
    async fn make(&mut self, elapsed_us: u64) {
        let trigger_time = self.trigger_time();
        let (mut objects, mut touched) = (Vec::new(), Vec::new());
        while touched.len() < BATCH
            && self.churn.next_due_us(&self.world).is_some_and(|due| due <= elapsed_us)
        {
            let Some(change) = self.churn.make(&mut self.world) else { break };
            objects.extend(self.world.slices(change.service, change.slice, &trigger_time));
            // Deleted Services require nothing.
            if !self.world.is_gone(change.service) {
                touched.push(Arc::clone(&self.scopes[change.service]));
            }
        }
        let addresses = Arc::clone(&self.addresses);
        let (wanted, changed_us) = self
            .fakes
            .cluster
            .ask(move |cluster, now_us| {
                for object in objects {
                    cluster
                        .model
                        .apply(object, now_us)
                        .expect("the model accepts the objects of the builders");
                }
                let wanted = touched.into_iter().flat_map(|scope| scope.wanted(&cluster.model, &addresses));
                (wanted.collect::<Vec<_>>(), now_us)
            })
            .await;
        self.fakes.azure.ask(move |azure, _| azure.want(wanted, changed_us)).await;
    }

    /// Returns the current time of the cluster's wall clock.
    fn trigger_time(&self) -> String {
        let clock = self.fakes.clock();
        clock.ahead(self.ahead_s).rfc3339(clock.now_us())
    }

    async fn wait_until_in_sync(&self, until: Instant, show: &mut impl FnMut(&Progress)) {
        let mut moved = self.fakes.azure.revision();
        let mut shown = ticks();
        loop {
            moved.borrow_and_update();
            let query = |azure: &mut crate::azure::Azure, _| {
                (azure.convergence.out_of_sync(), azure.convergence.all_converged_since_us())
            };
            let (out_of_sync, converged_since_us) = self.fakes.azure.ask(query).await;
            if out_of_sync == 0 && self.wrong_entries().await.is_empty() {
                let at_us = converged_since_us.unwrap_or(0);
                // The last write is answered at this time.
                tokio::time::sleep_until(self.fakes.clock().instant(at_us)).await;
                break;
            }
            tokio::select! {
                changed = moved.changed() => changed.expect("the fakes outlive the run"),
                _ = shown.tick() => show(&self.progress(Stage::Settling).await),
                () = tokio::time::sleep_until(until) => break,
            }
        }
        show(&self.progress(Stage::Settling).await);
    }

    /// Returns the entries with wrong admin states.
    async fn wrong_entries(&self) -> Vec<WrongEntry> {
        let states = self.fakes.cluster.ask(|cluster, _| States::of(&cluster.model)).await;
        self.fakes.azure.ask(move |azure, _| azure.wrong_entries(&states)).await
    }

    async fn progress(&self, stage: Stage) -> Progress {
        let (changes, changes_total) = (self.churn.made(), self.churn.total(&self.world));
        let delay_us = self.removal_delay_us;
        let query = move |azure: &mut crate::azure::Azure, now_us| {
            let convergence = &azure.convergence;
            (convergence.in_sync(now_us, delay_us), convergence.pools(), azure.model.counters())
        };
        let (in_sync, pools, arm) = self.fakes.azure.ask(query).await;
        Progress { stage, changes, changes_total, in_sync, pools, arm }
    }
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}
