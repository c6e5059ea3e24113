//! Runs the state machine of a migration with Azure, both Leases and the journal.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actors::kubernetes::send_lease_request;
use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use migration::apply::{Apply, ApplyIn, ApplyOut, Outcome, Stage};
use migration::call::Reply;
use migration::inventory::CallId;
use migration::lease::{LeaseHold, LeaseIn, LeaseOut, LeaseParams};
use model::arm::Permit;
use model::ids::{AttemptId, CallId as LeaseCall, Epoch};
use model::lease::{LeaseAnswer, LeaseName};
use model::machine::{Machine as _, Now, earliest};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::journal::Store;
use super::output::Output;
use super::{Environment, azure};
use crate::wiring::params;

/// The time for which a migration continues after a signal that ends the process, because an immediate stop would
/// prolong the outage.
const CONTINUE_FOR: Duration = Duration::from_secs(8);
/// The time to wait after that for the answers to changes. A PUT takes no longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The time to wait for the release of both Leases at the end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum time from the signal to the end of the process; Kubernetes kills it later.
#[cfg(test)]
const END_TIMEOUT: Duration =
    Duration::from_secs(CONTINUE_FOR.as_secs() + ANSWER_TIMEOUT.as_secs() + RELEASE_TIMEOUT.as_secs());
/// The maximum duration of a permit to send a change, as for the controller.
const PERMIT_FOR: Duration = Duration::from_secs(60);

/// A completed operation.
enum Completion {
    Azure(CallId, Result<Reply, String>),
    Lease(LeaseName, LeaseCall, LeaseAnswer),
    Recorded(Result<(), String>),
}

/// The signals that end the process, even during the outage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EndingSignals {
    /// SIGTERM. SIGINT, as from Ctrl-C, only requests a stop.
    OnTerminate,
    /// SIGTERM and SIGINT.
    OnBoth,
}

/// A request that a signal makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StopRequest {
    /// Stop, unless traffic is interrupted.
    Stop,
    /// End soon in any case.
    End,
}

/// The signals that a migration handles, including those that arrived before it began.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    ending_signals: EndingSignals,
}

impl Signals {
    pub(super) fn listen(ending_signals: EndingSignals) -> anyhow::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?,
            ending_signals,
        })
    }

    async fn next(&mut self) -> StopRequest {
        tokio::select! {
            _ = self.terminate.recv() => StopRequest::End,
            _ = self.interrupt.recv() => match self.ending_signals {
                EndingSignals::OnTerminate => StopRequest::Stop,
                EndingSignals::OnBoth => StopRequest::End,
            },
        }
    }
}

/// The result of the wait for the own Lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeaseWait {
    /// This process holds it.
    Held,
    /// Another client has taken it.
    OtherHolder,
    /// A signal came.
    Interrupted,
}

/// The end of the state machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RunResult {
    /// The state machine has ended, with this outcome.
    Ended(Outcome),
    /// A signal interrupted the migration in this stage. The next process continues there.
    Interrupted(Stage),
}

/// Runs a migration in this process: holds both Leases and drives the state machine.
pub(super) struct Run<'a> {
    environment: &'a Environment,
    pub(super) output: Output,
    own: LeaseHold,
    shared: LeaseHold,
    answers: FuturesUnordered<BoxFuture<'a, Completion>>,
    /// Changes that were sent to Azure and have no answer yet.
    changing: BTreeSet<CallId>,
    /// Whether the journal is being stored.
    is_recording: bool,
    /// Whether another client has taken the own Lease since the last check.
    has_other_holder: bool,
    /// Whether a signal has come.
    pub(super) is_asked_to_stop: bool,
    signals: Signals,
}

impl<'a> Run<'a> {
    pub(super) fn new(environment: &'a Environment, output: Output, signals: Signals) -> Run<'a> {
        let own = LeaseParams {
            holder: format!("migrate-basic-lb_{}", uuid::Uuid::new_v4()).into(),
            duration: Duration::from_secs(45),
            renew_every: Duration::from_secs(5),
            // A leader that has just lost its hold may still have a PUT in flight.
            foreign_for: Duration::from_secs(45 + 20),
            released_duration: Duration::from_secs(1),
            leaves_name: false,
        };
        let shared = LeaseParams {
            holder: Arc::from(reporting::events::COMPONENT),
            duration: Duration::from_secs(60),
            renew_every: Duration::from_secs(15),
            foreign_for: writer::FOREIGN_HOLD,
            released_duration: writer::FOREIGN_HOLD,
            leaves_name: true,
        };
        Run {
            environment,
            output,
            own: LeaseHold::new(own),
            shared: LeaseHold::new(shared),
            answers: FuturesUnordered::new(),
            changing: BTreeSet::new(),
            is_recording: false,
            has_other_holder: false,
            is_asked_to_stop: false,
            signals,
        }
    }

    /// Waits until no controller leads and this process holds its Lease.
    pub(super) async fn acquire_own_lease(&mut self) -> anyhow::Result<()> {
        loop {
            match self.wait_for_own_lease().await {
                LeaseWait::Held => return Ok(()),
                LeaseWait::OtherHolder => {}
                LeaseWait::Interrupted => bail!("interrupted before anything was changed"),
            }
        }
    }

    /// Waits for the own Lease, or until another client has taken it.
    pub(super) async fn wait_for_own_lease(&mut self) -> LeaseWait {
        self.lease(LeaseName::Own, LeaseIn::Want(true));
        while !self.holds_own_lease() {
            if std::mem::take(&mut self.has_other_holder) {
                return LeaseWait::OtherHolder;
            }
            let deadline = self.own.deadline();
            tokio::select! {
                Some(completion) = self.answers.next() => drop(self.on_answer(completion)),
                () = azure::until(self.environment.clock, deadline) => self.tick_leases(),
                _ = self.signals.next() => return LeaseWait::Interrupted,
            }
        }
        LeaseWait::Held
    }

    /// Returns whether this process holds its own Lease now.
    pub(super) fn holds_own_lease(&self) -> bool {
        self.own.send_deadline().is_some_and(|end| self.environment.clock.now() < end)
    }

    /// Awaits `work` while renewing the Leases; `None` if a signal came first.
    pub(super) async fn run_unless_interrupted<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let deadline = earliest(self.own.deadline(), self.shared.deadline());
            tokio::select! {
                done = &mut work => return Some(done),
                Some(completion) = self.answers.next() => drop(self.on_answer(completion)),
                () = azure::until(self.environment.clock, deadline) => self.tick_leases(),
                _ = self.signals.next() => return None,
            }
        }
    }

    /// Releases both Leases. A change without an answer may still arrive at Azure: the Leases then expire instead.
    pub(super) async fn release(&mut self) {
        if !self.changing.is_empty() {
            return;
        }
        let clock = self.environment.clock;
        let end = clock.now().plus(RELEASE_TIMEOUT);
        self.lease(LeaseName::Shared, LeaseIn::Want(false));
        self.lease(LeaseName::Own, LeaseIn::Want(false));
        while !(self.own.is_free() && self.shared.is_free()) && clock.now() < end {
            let deadline = earliest(earliest(self.own.deadline(), self.shared.deadline()), Some(end));
            tokio::select! {
                Some(completion) = self.answers.next() => drop(self.on_answer(completion)),
                () = azure::until(clock, deadline) => self.tick_leases(),
            }
        }
    }

    /// Drives a migration to its end.
    pub(super) async fn drive(&mut self, mut machine: Apply, store: &Arc<Store<'a>>) -> RunResult {
        let clock = self.environment.clock;
        let (mut out, mut has_leases) = (Vec::new(), false);
        let mut end = None;
        machine.step(clock.now(), ApplyIn::Start, &mut out);
        loop {
            for action in std::mem::take(&mut out) {
                if let Some(outcome) = self.handle_output(action, store) {
                    return RunResult::Ended(outcome);
                }
            }
            if end.is_some_and(|end| end <= clock.now()) {
                self.wait_for_answers().await;
                return RunResult::Interrupted(machine.stage());
            }
            let has_leases_now = self.permit().is_some();
            if has_leases_now != has_leases {
                has_leases = has_leases_now;
                machine.step(clock.now(), ApplyIn::Lease(has_leases), &mut out);
                continue;
            }
            let leases = earliest(self.own.deadline(), self.shared.deadline());
            let lapses = self.permit().map(|permit| permit.send_deadline);
            let deadline = earliest(earliest(machine.deadline(), end), earliest(leases, lapses));
            tokio::select! {
                Some(completion) = self.answers.next() => {
                    if let Some(input) = self.on_answer(completion) {
                        machine.step(clock.now(), input, &mut out);
                    }
                }
                () = azure::until(clock, deadline) => {
                    self.tick_leases();
                    machine.tick(clock.now(), &mut out);
                }
                request = self.signals.next() => {
                    self.is_asked_to_stop = true;
                    if request == StopRequest::End {
                        end = end.or_else(|| Some(clock.now().plus(CONTINUE_FOR)));
                    }
                    machine.step(clock.now(), ApplyIn::Stop, &mut out);
                }
            }
        }
    }

    /// Waits for the answers to changes that were sent, without sending more.
    async fn wait_for_answers(&mut self) {
        let clock = self.environment.clock;
        let end = clock.now().plus(ANSWER_TIMEOUT);
        while (self.is_recording || !self.changing.is_empty()) && clock.now() < end {
            let leases = earliest(self.own.deadline(), self.shared.deadline());
            tokio::select! {
                Some(completion) = self.answers.next() => drop(self.on_answer(completion)),
                () = azure::until(clock, earliest(leases, Some(end))) => self.tick_leases(),
            }
        }
    }

    /// Executes an action of the machine. Returns the outcome when the migration has ended.
    fn handle_output(&mut self, action: ApplyOut, store: &Arc<Store<'a>>) -> Option<Outcome> {
        match action {
            ApplyOut::Call(id, call) => {
                let (arm, permit) = (&self.environment.arm, self.permit());
                if call.writes() {
                    self.changing.insert(id);
                }
                self.answers.push(Box::pin(async move {
                    Completion::Azure(id, azure::call(arm, call, permit).await)
                }));
            }
            ApplyOut::Record(journal) => {
                let store = Arc::clone(store);
                self.is_recording = true;
                self.answers.push(Box::pin(async move {
                    Completion::Recorded(store.write(&journal).await.map_err(|error| format!("{error:#}")))
                }));
            }
            ApplyOut::Lease(is_needed) => self.lease(LeaseName::Shared, LeaseIn::Want(is_needed)),
            ApplyOut::Progress { stage, done, total } => self.output.progress(stage, done, total),
            ApplyOut::Finished(outcome) => return Some(outcome),
        }
        None
    }

    /// Returns the permit to send changes, which ends with the hold of either Lease; `None` without both Leases.
    fn permit(&self) -> Option<Permit> {
        let now = self.environment.clock.now();
        let end = self.own.send_deadline()?.min(self.shared.send_deadline()?).min(now.plus(PERMIT_FOR));
        (now < end).then_some(Permit { attempt: AttemptId { epoch: Epoch(0), n: 0 }, send_deadline: end })
    }

    fn lease(&mut self, lease: LeaseName, input: LeaseIn) {
        let now = self.environment.clock.now();
        let mut out = Vec::new();
        match lease {
            LeaseName::Own => self.own.step(now, input, &mut out),
            LeaseName::Shared => self.shared.step(now, input, &mut out),
        }
        self.send_lease_requests(lease, out);
    }

    /// Handles a completed operation and returns the input for the state machine, if any.
    fn on_answer(&mut self, completion: Completion) -> Option<ApplyIn> {
        match completion {
            Completion::Lease(lease, call, answer) => {
                self.lease(lease, LeaseIn::Answer(call, answer));
                None
            }
            Completion::Azure(id, answer) => {
                self.changing.remove(&id);
                Some(ApplyIn::Answer(id, answer))
            }
            Completion::Recorded(result) => {
                self.is_recording = false;
                if let Err(error) = &result {
                    self.output.journal_failed(error);
                }
                Some(ApplyIn::Recorded(result))
            }
        }
    }

    fn tick_leases(&mut self) {
        let now: Now = self.environment.clock.now();
        let (mut own, mut shared) = (Vec::new(), Vec::new());
        self.own.tick(now, &mut own);
        self.shared.tick(now, &mut shared);
        self.send_lease_requests(LeaseName::Own, own);
        self.send_lease_requests(LeaseName::Shared, shared);
    }

    fn send_lease_requests(&mut self, lease: LeaseName, out: Vec<LeaseOut>) {
        let leases = params::leases(&self.environment.config);
        let name = match lease {
            LeaseName::Own => leases.own,
            LeaseName::Shared => leases.shared,
        };
        for action in out {
            match action {
                LeaseOut::Request(call, request) => {
                    let (client, clock, name) =
                        (self.environment.kubernetes.clone(), self.environment.clock, name.clone());
                    self.answers.push(Box::pin(async move {
                        Completion::Lease(
                            lease,
                            call,
                            send_lease_request(client, name, clock, lease, request).await,
                        )
                    }));
                }
                LeaseOut::HeldBy(holder) => {
                    self.has_other_holder |= lease == LeaseName::Own;
                    self.output.held_by(&holder, &name);
                }
                LeaseOut::Failed(error) => self.output.lease_failed(&name, &error),
                LeaseOut::Held(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http;
    use crate::service::SHUTDOWN_TIMEOUT;

    #[test]
    fn w8_ending_in_an_outage_takes_no_longer_than_a_controller() {
        assert!(END_TIMEOUT <= SHUTDOWN_TIMEOUT + Duration::from_secs(http::END_TIMEOUT));
    }
}
