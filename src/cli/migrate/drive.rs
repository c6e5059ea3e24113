//! Runs the machine of a migration with Azure, both Leases and the journal.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actors::kubernetes::{Place, ask_lease};
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
use super::{Outside, azure};
use crate::wiring::params;

/// How long the migration goes on after a signal that ends the process, where a pause would prolong the outage.
const GO_ON_FOR: Duration = Duration::from_secs(8);
/// How long the answers to changes are waited for after that: a PUT takes no longer.
const SETTLE_WITHIN: Duration = Duration::from_secs(20);
/// How long both Leases are waited for at the end.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);
/// How long the end of a process may take after the signal. Kubernetes then kills it.
#[cfg(test)]
const END_WITHIN: Duration =
    Duration::from_secs(GO_ON_FOR.as_secs() + SETTLE_WITHIN.as_secs() + RELEASE_WITHIN.as_secs());
/// The most time before the end of a hold at which a change may still be sent, as the controller has it.
const PERMIT_FOR: Duration = Duration::from_secs(60);

/// What an answer is about.
enum Answered {
    Azure(CallId, Result<Reply, String>),
    Lease(LeaseName, LeaseCall, LeaseAnswer),
    Recorded(Result<(), String>),
}

/// Which signals end the process, also during the outage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// SIGTERM. SIGINT only asks to stop, as an operator does at a terminal.
    OnTerminate,
    /// SIGTERM and SIGINT.
    OnBoth,
}

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    /// To stop, as long as traffic is not interrupted.
    Stop,
    /// To end soon in any case.
    End,
}

/// The signals that a migration hears. Those from before it has begun count too.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    ending: Ending,
}

impl Signals {
    pub(super) fn listen(ending: Ending) -> anyhow::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?,
            ending,
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::End,
            _ = self.interrupt.recv() => match self.ending {
                Ending::OnTerminate => Asked::Stop,
                Ending::OnBoth => Asked::End,
            },
        }
    }
}

/// How the wait for the own Lease has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waited {
    /// It is held.
    Held,
    /// Another client has it who had it not before.
    OtherHolder,
    /// A signal came.
    Interrupted,
}

/// How the machine has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Driven {
    /// By itself.
    Ended(Outcome),
    /// By a signal in this stage: the next process continues there.
    CutOff(Stage),
}

/// What a process does about a migration: it holds both Leases and drives the machine.
pub(super) struct Run<'a> {
    outside: &'a Outside,
    pub(super) output: Output,
    own: LeaseHold,
    shared: LeaseHold,
    answers: FuturesUnordered<BoxFuture<'a, Answered>>,
    /// Changes at Azure that are not answered yet.
    changing: BTreeSet<CallId>,
    /// Whether the journal is being stored.
    is_recording: bool,
    /// Whether another client has the own Lease who had it not when this was last looked at.
    has_other_holder: bool,
    /// Whether a signal has come.
    pub(super) is_asked_to_stop: bool,
    signals: Signals,
}

impl<'a> Run<'a> {
    pub(super) fn new(outside: &'a Outside, output: Output, signals: Signals) -> Run<'a> {
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
            outside,
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

    /// Waits until no controller leads: this process then holds its Lease.
    pub(super) async fn hold_own_lease(&mut self) -> anyhow::Result<()> {
        loop {
            match self.wait_for_own_lease().await {
                Waited::Held => return Ok(()),
                Waited::OtherHolder => {}
                Waited::Interrupted => bail!("interrupted before anything was changed"),
            }
        }
    }

    /// Waits for the own Lease, or until another client holds it than before.
    pub(super) async fn wait_for_own_lease(&mut self) -> Waited {
        self.lease(LeaseName::Own, LeaseIn::Want(true));
        while !self.holds_own_lease() {
            if std::mem::take(&mut self.has_other_holder) {
                return Waited::OtherHolder;
            }
            let deadline = self.own.deadline();
            tokio::select! {
                Some(answered) = self.answers.next() => drop(self.on_answer(answered)),
                () = azure::until(self.outside.clock, deadline) => self.tick_leases(),
                _ = self.signals.next() => return Waited::Interrupted,
            }
        }
        Waited::Held
    }

    /// Whether this process holds its Lease now.
    pub(super) fn holds_own_lease(&self) -> bool {
        self.own.send_before().is_some_and(|end| self.outside.clock.now() < end)
    }

    /// Runs this to its end and renews the Leases meanwhile; `None`: a signal came first.
    pub(super) async fn beside<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let deadline = earliest(self.own.deadline(), self.shared.deadline());
            tokio::select! {
                done = &mut work => return Some(done),
                Some(answered) = self.answers.next() => drop(self.on_answer(answered)),
                () = azure::until(self.outside.clock, deadline) => self.tick_leases(),
                _ = self.signals.next() => return None,
            }
        }
    }

    /// Gives both Leases back. While a change is unanswered they are left to expire: it may still arrive at Azure.
    pub(super) async fn release(&mut self) {
        if !self.changing.is_empty() {
            return;
        }
        let clock = self.outside.clock;
        let end = clock.now().plus(RELEASE_WITHIN);
        self.lease(LeaseName::Shared, LeaseIn::Want(false));
        self.lease(LeaseName::Own, LeaseIn::Want(false));
        while !(self.own.is_free() && self.shared.is_free()) && clock.now() < end {
            let deadline = earliest(earliest(self.own.deadline(), self.shared.deadline()), Some(end));
            tokio::select! {
                Some(answered) = self.answers.next() => drop(self.on_answer(answered)),
                () = azure::until(clock, deadline) => self.tick_leases(),
            }
        }
    }

    /// Drives a migration to its end.
    pub(super) async fn drive(&mut self, mut machine: Apply, store: &Arc<Store<'a>>) -> Driven {
        let clock = self.outside.clock;
        let (mut out, mut held) = (Vec::new(), false);
        let mut end = None;
        machine.step(clock.now(), ApplyIn::Start, &mut out);
        loop {
            for said in std::mem::take(&mut out) {
                if let Some(outcome) = self.say(said, store) {
                    return Driven::Ended(outcome);
                }
            }
            if end.is_some_and(|end| end <= clock.now()) {
                self.settle().await;
                return Driven::CutOff(machine.stage());
            }
            let now_held = self.permit().is_some();
            if now_held != held {
                held = now_held;
                machine.step(clock.now(), ApplyIn::Lease(held), &mut out);
                continue;
            }
            let leases = earliest(self.own.deadline(), self.shared.deadline());
            let lapses = self.permit().map(|permit| permit.send_before);
            let deadline = earliest(earliest(machine.deadline(), end), earliest(leases, lapses));
            tokio::select! {
                Some(answered) = self.answers.next() => {
                    if let Some(input) = self.on_answer(answered) {
                        machine.step(clock.now(), input, &mut out);
                    }
                }
                () = azure::until(clock, deadline) => {
                    self.tick_leases();
                    machine.tick(clock.now(), &mut out);
                }
                asked = self.signals.next() => {
                    self.is_asked_to_stop = true;
                    if asked == Asked::End {
                        end = end.or_else(|| Some(clock.now().plus(GO_ON_FOR)));
                    }
                    machine.step(clock.now(), ApplyIn::Stop, &mut out);
                }
            }
        }
    }

    /// Waits for the answers to changes that were sent, and sends no more.
    async fn settle(&mut self) {
        let clock = self.outside.clock;
        let end = clock.now().plus(SETTLE_WITHIN);
        while (self.is_recording || !self.changing.is_empty()) && clock.now() < end {
            let leases = earliest(self.own.deadline(), self.shared.deadline());
            tokio::select! {
                Some(answered) = self.answers.next() => drop(self.on_answer(answered)),
                () = azure::until(clock, earliest(leases, Some(end))) => self.tick_leases(),
            }
        }
    }

    fn say(&mut self, said: ApplyOut, store: &Arc<Store<'a>>) -> Option<Outcome> {
        match said {
            ApplyOut::Call(id, call) => {
                let (arm, permit) = (&self.outside.arm, self.permit());
                if call.writes() {
                    self.changing.insert(id);
                }
                self.answers
                    .push(Box::pin(async move { Answered::Azure(id, azure::call(arm, call, permit).await) }));
            }
            ApplyOut::Record(journal) => {
                let store = Arc::clone(store);
                self.is_recording = true;
                self.answers.push(Box::pin(async move {
                    Answered::Recorded(store.write(&journal).await.map_err(|why| format!("{why:#}")))
                }));
            }
            ApplyOut::Lease(wanted) => self.lease(LeaseName::Shared, LeaseIn::Want(wanted)),
            ApplyOut::Progress { stage, done, total } => self.output.progress(stage, done, total),
            ApplyOut::Finished(outcome) => return Some(outcome),
        }
        None
    }

    /// Until when a change may be sent: as long as both Leases are ours.
    fn permit(&self) -> Option<Permit> {
        let now = self.outside.clock.now();
        let end = self.own.send_before()?.min(self.shared.send_before()?).min(now.plus(PERMIT_FOR));
        (now < end).then_some(Permit { attempt: AttemptId { epoch: Epoch(0), n: 0 }, send_before: end })
    }

    fn lease(&mut self, lease: LeaseName, input: LeaseIn) {
        let now = self.outside.clock.now();
        let mut out = Vec::new();
        match lease {
            LeaseName::Own => self.own.step(now, input, &mut out),
            LeaseName::Shared => self.shared.step(now, input, &mut out),
        }
        self.ask_leases(lease, out);
    }

    /// Takes an answer in, and gives back what is for the machine.
    fn on_answer(&mut self, answered: Answered) -> Option<ApplyIn> {
        match answered {
            Answered::Lease(lease, call, answer) => {
                self.lease(lease, LeaseIn::Answer(call, answer));
                None
            }
            Answered::Azure(id, answer) => {
                self.changing.remove(&id);
                Some(ApplyIn::Answer(id, answer))
            }
            Answered::Recorded(result) => {
                self.is_recording = false;
                if let Err(why) = &result {
                    self.output.journal_failed(why);
                }
                Some(ApplyIn::Recorded(result))
            }
        }
    }

    fn tick_leases(&mut self) {
        let now: Now = self.outside.clock.now();
        let (mut own, mut shared) = (Vec::new(), Vec::new());
        self.own.tick(now, &mut own);
        self.shared.tick(now, &mut shared);
        self.ask_leases(LeaseName::Own, own);
        self.ask_leases(LeaseName::Shared, shared);
    }

    fn ask_leases(&mut self, lease: LeaseName, out: Vec<LeaseOut>) {
        let places = params::leases(&self.outside.config);
        let place: Place = match lease {
            LeaseName::Own => places.own,
            LeaseName::Shared => places.shared,
        };
        for said in out {
            match said {
                LeaseOut::Ask(call, ask) => {
                    let (client, clock, place) =
                        (self.outside.kubernetes.clone(), self.outside.clock, place.clone());
                    self.answers.push(Box::pin(async move {
                        Answered::Lease(lease, call, ask_lease(client, place, clock, lease, ask).await)
                    }));
                }
                LeaseOut::HeldBy(holder) => {
                    self.has_other_holder |= lease == LeaseName::Own;
                    self.output.held_by(&holder, &place);
                }
                LeaseOut::Failed(why) => self.output.lease_failed(&place, &why),
                LeaseOut::Held(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http;
    use crate::service::QUIET_WITHIN;

    #[test]
    fn w8_the_end_during_the_outage_takes_no_longer_than_that_of_a_controller() {
        assert!(END_WITHIN <= QUIET_WITHIN + Duration::from_secs(http::END_WITHIN));
    }
}
