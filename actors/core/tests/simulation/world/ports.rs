//! The ports of processes: their requests, and when these arrive at the API server and at ARM.

use model::arm::{ArmAnswer, ArmCall, ArmRequest};
use model::config_map::ConfigMapRequester;
use model::ids::CallId;
use model::lease::LeaseName;
use model::machine::Now;
use model::sample::GateClass;
use pool_core::route::{ArmMessage, Delivery, KubernetesCall};

use serde_json::Value;
use simulator_models::arm::Reply;

use super::{ProcessEvent, World, WorldEvent};
use crate::azure::{CLIENT_TIMEOUT_US, Sent, class_of};
use crate::ccm;
use crate::kubernetes::Effect;
use crate::leases::{LeaseStep, micro_time};
use crate::notes::{self, NotesStep};
use crate::plant::Plant;
use crate::process::{Process, ProcessState};
use crate::trace::Entry;
use crate::watchdog::Put;

/// Time within which an answer that is not late arrives.
const SOON_US: u64 = 5_000_000;

impl World {
    /// Continues with a request about a Lease. It arrives even if its process has ended; all other steps belong to
    /// the process.
    pub(super) fn lease_step(
        &mut self,
        process: usize,
        lease: LeaseName,
        call: CallId,
        step: LeaseStep,
    ) -> Result<(), String> {
        match (&step, self.processes[process].life) {
            (LeaseStep::Land(..), _) | (_, ProcessState::Runs) => {}
            (_, ProcessState::Stopped(until)) => {
                self.at(until, WorldEvent::Lease(process, lease, call, step));
                return Ok(());
            }
            (_, ProcessState::Gone) => return Ok(()),
        }
        let Process { leases, clock, .. } = &mut self.processes[process];
        let effects = leases.step(&mut self.kube, self.now, clock, lease, call, step);
        self.follow(process, effects)
    }

    /// Continues with a request about our ConfigMap in the same way.
    pub(super) fn notes_step(
        &mut self,
        process: usize,
        requester: ConfigMapRequester,
        call: CallId,
        step: NotesStep,
    ) -> Result<(), String> {
        match (&step, self.processes[process].life) {
            (NotesStep::Land(..), _) | (NotesStep::Answer(_), ProcessState::Runs) => {}
            (NotesStep::Answer(_), ProcessState::Stopped(until)) => {
                self.at(until, WorldEvent::Notes(process, requester, call, step));
                return Ok(());
            }
            (NotesStep::Answer(_), ProcessState::Gone) => return Ok(()),
        }
        let Process { notes, leases, clock, .. } = &mut self.processes[process];
        let cut = self.now < leases.unreachable_until.max(notes.unreachable_until);
        let effects = notes.step(&mut self.kube, self.now, clock, cut, (requester, call), step);
        self.follow(process, effects)
    }

    /// Records that a process has written our ConfigMap.
    pub(super) fn notes_written(&mut self, process: usize) -> Result<(), String> {
        self.record_records(Some(process))?;
        if self.keeps_notes && notes::stored(&self.kube).is_none_or(|map| map["data"][notes::KEPT].is_null())
        {
            return Err("A4: a key of another client was removed".to_owned());
        }
        self.watchdog.record_pauses(self.now, &notes::paused(&self.kube));
        Ok(())
    }

    pub(super) fn at_kubernetes(&mut self, process: usize, call: KubernetesCall) -> Result<(), String> {
        let now = self.now;
        let Process { kubernetes, leases, notes, clock, .. } = &mut self.processes[process];
        let effects = match call {
            KubernetesCall::Open { call, kind, request, given_up: _ } => {
                kubernetes.open(&mut self.kube, now, kind, call, request)
            }
            KubernetesCall::Lease { call, lease, request } => leases.call(now, clock, lease, call, &request),
            KubernetesCall::ConfigMap { requester, call, request } => {
                notes.call(now, clock, (requester, call), &request)
            }
            KubernetesCall::Taint { call, patch } => kubernetes.taint(now, call, patch),
            KubernetesCall::CountLockFailures { call, since } => {
                let ago = clock.now(now).since(since).as_micros();
                let began = crate::clock::wall(now) - i64::try_from(ago).unwrap_or(0);
                let count = ccm::lock_failures(&self.kube, &micro_time(began));
                let input =
                    writer::In::LockFailures(call, (now >= kubernetes.unreachable_until).then_some(count));
                vec![Effect::DeliverAt(now + 2_000, Delivery::Writer(input))]
            }
            KubernetesCall::Post { call, event } => {
                self.watchdog.on_post(now, process).map_err(|reason| format!("{reason}: {event:?}"))?;
                let (effects, accepted) = kubernetes.post(now, call);
                self.watchdog.on_posted(now, process, &event, accepted);
                effects
            }
        };
        self.follow(process, effects)
    }

    pub(super) fn at_arm(&mut self, process: usize, batch: Vec<Delivery>) -> Result<(), String> {
        for delivery in batch {
            let Delivery::Arm(message) = delivery else { continue };
            match message {
                ArmMessage::Gates { reads_until, writes_until } => {
                    let Process { azure, clock, .. } = &mut self.processes[process];
                    azure.set_gates(reads_until, writes_until);
                    let world = |until: Option<Now>| until.map(|until| clock.world(until));
                    self.watchdog.on_gate(self.now, GateClass::Reads, world(reads_until))?;
                    self.watchdog.on_gate(self.now, GateClass::Writes, world(writes_until))?;
                }
                ArmMessage::Call(call) => {
                    let is_put = class_of(&call.request) == GateClass::Writes;
                    let preparation = self.processes[process].azure.preparation();
                    self.within(self.now + preparation, process, ProcessEvent::Send(Box::new(call)));
                    if is_put {
                        self.maybe_interrupt(process);
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends a call, unless the per-try policy refuses it at this moment.
    pub(super) fn send(&mut self, process: usize, call: ArmCall) -> Result<(), String> {
        let now = self.now;
        let Process { azure, clock, .. } = &mut self.processes[process];
        if let Some(later) = azure.retry_at_if_serialized(now, &call.request) {
            self.within(later, process, ProcessEvent::Send(Box::new(call)));
            return Ok(());
        }
        if let Some(refusal) = azure.refusal(clock.now(now), &call.request) {
            self.within(now + 1, process, ProcessEvent::Answered(call.id, Box::new(refusal), None));
            return Ok(());
        }
        if now < azure.unreachable_until {
            let taken = azure.unreachable_answer(now);
            self.watchdog.exempt(taken.arrives[0], process, None);
            if let ArmRequest::PutPool { pool, .. } = &call.request {
                self.watchdog.in_doubt(process, pool);
            }
            self.within(
                taken.arrives[0],
                process,
                ProcessEvent::Answered(call.id, Box::new(taken.answer), None),
            );
            return Ok(());
        }
        let sent = azure.send(&self.arm, now, &call);
        self.watchdog.sends(now, process, class_of(&sent.request))?;
        if let Some(put) = put_of(process, &sent) {
            self.watchdog.sends_put(now, &put)?;
        }
        let transit_time = self.processes[process].azure.transit_time();
        self.at(now + transit_time, WorldEvent::Land(process, call.id, Box::new(sent)));
        if self.plant == Some(Plant::LeaseLetGoEarly) {
            self.release_early()?;
        }
        Ok(())
    }

    /// Lets a request reach ARM, even if its process has ended.
    pub(super) fn land(&mut self, process: usize, call: CallId, sent: &Sent) -> Result<(), String> {
        let now = self.now;
        let put = put_of(process, sent);
        if let Some(calls) = &mut self.calls {
            calls.push(format!("{now}: process {process}: {:?}", sent.http));
        }
        if let Some(put) = &put {
            self.watchdog.before_put(&mut self.arm, now, put)?;
        }
        let reply: Reply = self.arm.handle(&sent.http, now);
        if let ArmRequest::GetLoadBalancer(lb) = &sent.request {
            self.watchdog.reads(now, process, lb);
        }
        let taken = self.processes[process].azure.deliver(now, sent, &reply);
        // An answer after the client's timeout is not seen.
        if let (ArmRequest::GetLoadBalancer(lb), ArmAnswer::LoadBalancer(_)) = (&sent.request, &taken.answer)
            && taken.arrives[0] <= sent.at + CLIENT_TIMEOUT_US
        {
            self.watchdog.on_read_of_balancer(taken.arrives[0], process, &self.arm, lb.as_str());
        }
        if let ArmRequest::GetLoadBalancer(lb) = &sent.request
            && !matches!(&reply, Reply::Answer(response) if response.status == 200 && taken.arrives[0] < now + SOON_US)
        {
            self.watchdog.exempt(taken.arrives[0], process, Some(lb));
        }
        if put.is_none() {
            self.watchdog.on_read(now, process, &self.arm)?;
        }
        if let Some(put) = &put {
            self.watchdog.after_put(&self.arm, now, put, &reply, taken.arrives[0]);
            self.maybe_create_again(put.pool);
        }
        let entry =
            Entry::Called(Box::new(sent.request.clone()), taken.arrives[0], Box::new(taken.answer.clone()));
        self.trace.record(now, entry);
        let mut throttled = taken.throttled;
        for at in taken.arrives {
            let answer = Box::new(taken.answer.clone());
            self.within(at, process, ProcessEvent::Answered(call, answer, throttled.take()));
        }
        Ok(())
    }
}

/// Returns a request as the watchdog judges it, if it is a PUT.
fn put_of(process: usize, sent: &Sent) -> Option<Put<'_>> {
    let (ArmRequest::PutPool { pool, base, if_match, permit, .. }, Some(body)) = (&sent.request, &sent.body)
    else {
        return None;
    };
    let base = base.get::<Value>().expect("the document of a PUT is one of this port");
    Some(Put { process, attempt: permit.attempt, pool, if_match: if_match.as_ref(), base, body })
}
