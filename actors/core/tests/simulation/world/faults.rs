//! Events of processes: starts, crashes, suspensions, lost connections, stalls and shutdowns.

use std::sync::Arc;

use coordination::leader;
use coordination::leader::ReleasedLeases;
use model::lease::LeaseName;
use model::object::Kind;
use pool_core::route::Delivery;
use sources::xds_source;

use super::{World, WorldEvent};
use crate::ccm::lease_object;
use crate::fault_injection::{self, LongFault};
use crate::plant::Plant;
use crate::process::{Process, ProcessState, used};
use crate::replica::{Actor, Replica};
use crate::story::Often;

/// Time after a fault within which a process must see everything again.
const SIGHT_US: u64 = 90_000_000;
/// Grace period of a process that got the signal to shut down, like a Pod's.
const GRACE_US: u64 = 30_000_000;
/// Longest suspension of a process.
const MAX_STOP_US: u64 = 180_000_000;
/// Longest stall of a receiver.
const MAX_STALL_US: u64 = 8_000_000;
/// Longest stall of a stream.
const MAX_STREAM_STALL_US: u64 = 90_000_000;
/// Probability, in thousandths, that a change of ARM's faults makes reads of a load balancer hang.
const HANGING: u64 = 150;
/// Longest life of a process that crashes on startup, and longest pause until the next one.
const CRASHES_TIMEOUT_US: u64 = 6_000_000;

impl World {
    /// Starts a process in a slot.
    pub(super) fn start(&mut self, slot: usize) -> Result<(), String> {
        let lives = self.processes.iter().filter(|process| process.slot == slot).count();
        let mut random = self.fates.fork();
        let mut process = Process::new(slot, lives, self.settings, self.plant, &mut random);
        if self.stormy {
            process.leases.trouble = if self.size.faults.leases { random.below(150) } else { 0 };
            process.notes.trouble = process.leases.trouble;
            process.azure.slow_per_mille = if self.size.faults.edges { random.below(80) } else { 0 };
        }
        let number = self.processes.len();
        let identity = Arc::clone(&process.identity);
        self.record(format!("{identity} starts as process {number}"));
        self.processes.push(process);
        self.watchdog.start(self.now, Some(identity), &self.settings);
        if let Some(left) = self.crashes.get_mut(&slot).filter(|left| **left > 0) {
            *left -= 1;
            let at = self.now + self.fates.between(300_000, CRASHES_TIMEOUT_US);
            self.at(at, WorldEvent::Kill(number));
        }
        self.at(self.now + SIGHT_US, WorldEvent::Sight(number, self.faults));
        for (actor, delivery) in Replica::first_inputs() {
            self.turn(number, &actor, vec![delivery])?;
        }
        Ok(())
    }

    /// Kills a process; its sent messages continue without it.
    pub(super) fn kill(&mut self, number: usize) {
        let process = &mut self.processes[number];
        if !process.is_there() {
            return;
        }
        process.life = ProcessState::Gone;
        process.kubernetes.close(&mut self.kube);
        process.leases.close(&mut self.kube);
        let slot = process.slot;
        if let Some(planes) = &mut self.planes {
            planes.process_gone(number);
        }
        self.watchdog.end(number);
        self.record(format!("process {number} has ended"));
        let pause = match self.crashes.get(&slot) {
            Some(_) => self.fates.below(CRASHES_TIMEOUT_US),
            None if self.stormy => self.fates.below(60_000_000),
            None => 1_000_000,
        };
        self.at(self.now + pause, WorldEvent::Start(slot));
    }

    /// Checks at its end that a process does not hold what it reports as released.
    pub(super) fn check_free(&self, number: usize, free: ReleasedLeases) -> Result<(), String> {
        let identity = &self.processes[number].identity;
        let lease = lease_object(&self.kube, LeaseName::Own);
        if free.own && lease.is_some_and(|lease| lease["spec"]["holderIdentity"] == **identity) {
            return Err(format!("W8: process {number} reports the Lease as released, and holds it"));
        }
        Ok(())
    }

    pub(super) fn done(&mut self, number: usize) -> Result<(), String> {
        let process = &self.processes[number];
        if !process.ending {
            return Err(format!("W8: process {number} ends without a shutdown"));
        }
        if self.watchdog.has_open_put(self.now, number) {
            return Err(format!("W8: process {number} ends while a PUT of its is unanswered"));
        }
        self.kill(number);
        Ok(())
    }

    /// Resumes a suspended process.
    pub(super) fn wake(&mut self, number: usize) {
        if let ProcessState::Stopped(until) = self.processes[number].life
            && until <= self.now
        {
            self.processes[number].life = ProcessState::Runs;
            self.watchdog.resumes(self.now, number);
            self.record(format!("process {number} resumes"));
        }
    }

    fn stop(&mut self, number: usize, span: u64) {
        let until = self.now + span;
        if self.processes[number].life == ProcessState::Runs {
            self.processes[number].life = ProcessState::Stopped(until);
            self.record(format!("process {number} is stopped until {:.6}", until as f64 / 1e6));
            self.blind(number, span);
            // Before all events that wait for the process.
            self.at(until, WorldEvent::Wake(number));
        }
    }

    pub(super) fn blind(&mut self, number: usize, span: u64) {
        self.faults += 1;
        self.watchdog.blind(self.now, number, true);
        self.at(self.now + span + SIGHT_US, WorldEvent::Sight(number, self.faults));
    }

    /// Cuts every watch of a process after this time, in microseconds, from now on. With 0, a watch is answered 200
    /// and closed empty.
    ///
    /// # Errors
    ///
    /// A finding of the watchdog.
    pub fn cut_watches(&mut self, number: usize, after_us: u64) -> Result<(), String> {
        let effects = self.processes[number].kubernetes.cut_watches(&mut self.kube, after_us);
        self.follow(number, effects)
    }

    /// Ends all faults of a process.
    pub(super) fn end_faults_of_process(&mut self, number: usize) {
        let process = &mut self.processes[number];
        fault_injection::clear_port(&mut process.kubernetes, &mut process.azure);
        process.leases.trouble = 0;
        process.notes.trouble = 0;
        process.notes.unreachable_until = 0;
        process.leases.refused_until.clear();
        process.leases.unreachable_until = 0;
        process.azure.slow_per_mille = 0;
        process.azure.unreachable_until = 0;
        process.xds.unreachable_until = 0;
        process.stalled.clear();
    }

    /// Makes a fault in a process.
    pub(super) fn fault(&mut self) -> Result<(), String> {
        let is_slow = self.size.faults.often == Some(Often::SlowIntake);
        let pause = self.fates.between(4_000_000, if is_slow { 8_000_000 } else { 35_000_000 });
        self.at(self.now + pause, WorldEvent::Fault);
        let there: Vec<usize> =
            (0..self.processes.len()).filter(|number| self.processes[*number].is_there()).collect();
        let Some(number) = self.fates.pick(&there) else { return Ok(()) };
        // Prefer the leader.
        let leads = |number: &usize| &*self.processes[*number].identity == self.watchdog.tenure.leader();
        let leader = there.iter().copied().find(leads);
        let number = if self.fates.per_mille(500) { leader.unwrap_or(number) } else { number };
        let faults = self.size.faults;
        if faults.often.is_some_and(|often| self.happens_often(often, leader, &there)) {
            return Ok(());
        }
        let often = match self.plant {
            Some(Plant::EmptiedIsReleased | Plant::RenamedIsReleased) => 500,
            Some(_) | None => 70,
        };
        if faults.leases && self.fates.per_mille(often) {
            return self.take_away();
        }
        if faults.crashes && self.fates.per_mille(200) {
            self.crash_loop(number);
            return Ok(());
        }
        match self.fates.below(17) {
            0..2 if faults.processes => self.kill(number),
            2..5 if faults.processes => self.request_shutdown(number),
            5 if faults.processes => {
                let span = self.fates.between(1_000_000, MAX_STOP_US);
                self.stop(number, span);
            }
            6..8 if faults.processes => return self.cut(number),
            8..11 if faults.leases => {
                let lease = LeaseName::ALL[self.fates.index(2)];
                let until = self.now + self.fates.between(5_000_000, 120_000_000);
                self.processes[number].leases.refused_until.insert(lease, until);
                self.record(format!("requests about {lease:?} of process {number} fail"));
            }
            11..13 if faults.edges => self.stall_receiver(number),
            13..15 if faults.kube => {
                let kind = Kind::ALL[self.fates.index(4)];
                let span = self.fates.between(5_000_000, MAX_STREAM_STALL_US);
                self.stall_stream(number, kind, span);
            }
            15 if faults.kube && faults.processes => self.stale_take_over(leader, &there),
            16 if faults.policy && faults.processes => {
                let is_received = self.fates.per_mille(500);
                self.take_over_in_a_pause(leader, &there, is_received);
            }
            _ => {}
        }
        Ok(())
    }

    /// Makes the main fault of this run with some probability; returns whether it did.
    fn happens_often(&mut self, often: Often, leader: Option<usize>, there: &[usize]) -> bool {
        if self.fates.per_mille(500) {
            return false;
        }
        match often {
            Often::StaleTakeOver => self.stale_take_over(leader, there),
            Often::PausedTakeOver => self.take_over_in_a_pause(leader, there, true),
            Often::UnheardPause => self.take_over_in_a_pause(leader, there, false),
            Often::SlowIntake => self.stall_informer(leader),
            Often::LackingLists
            | Often::BrokenSource
            | Often::Refusals
            | Often::FailingPolls
            | Often::Hanging
            | Often::EmptyWatches
            | Often::LostEvents
            | Often::EmptiedServices
            | Often::LabelledNodes
            | Often::CreatedAgain => return false,
        }
        true
    }

    /// Tells a process to shut down.
    pub(super) fn request_shutdown(&mut self, number: usize) {
        if !self.processes[number].is_there() || std::mem::replace(&mut self.processes[number].ending, true) {
            return;
        }
        self.record(format!("process {number} gets the signal to end"));
        let shutdowns = [Delivery::Writer(writer::In::Shutdown), Delivery::Leader(leader::In::Shutdown)];
        let follower = self.planes.as_ref().map(|_| Delivery::XdsSource(xds_source::In::Shutdown));
        for delivery in shutdowns.into_iter().chain(follower) {
            let (edge, _) = self.processes[number].replica.push(&Actor::Host, delivery);
            self.depart(number, edge);
        }
        self.at(self.now + GRACE_US, WorldEvent::Kill(number));
    }

    fn cut(&mut self, number: usize) -> Result<(), String> {
        let span = self.fates.between(5_000_000, 120_000_000);
        let until = self.now + span;
        let from_arm = self.fates.per_mille(300);
        let process = &mut self.processes[number];
        process.leases.unreachable_until = until;
        if from_arm {
            process.azure.unreachable_until = until;
        }
        let effects = process.kubernetes.cut(&mut self.kube, until);
        self.record(format!("process {number} is disconnected for {span} us"));
        self.blind(number, span);
        self.cut_planes(number, until)?;
        self.follow(number, effects)
    }

    fn stall_receiver(&mut self, number: usize) {
        let mut receivers = vec![
            Actor::Informer,
            Actor::Discovery,
            Actor::Directory,
            Actor::Registry,
            Actor::Writer,
            Actor::Leader,
            Actor::AdminState,
            Actor::Events,
            Actor::Snapshot,
            Actor::KubernetesPort,
            Actor::ArmPort,
            Actor::Watcher(Kind::EndpointSlices),
        ];
        if self.planes.is_some() {
            receivers.extend([Actor::XdsSource, Actor::XdsPort, Actor::Directory]);
        }
        let receiver = receivers[self.fates.index(receivers.len())].clone();
        let until = self.now + self.fates.between(500_000, MAX_STALL_US);
        self.record(format!("{receiver:?} of process {number} stalls"));
        if receiver == Actor::Writer {
            self.watchdog.stall_writer(number, until);
        }
        self.processes[number].stalled.insert(receiver, until);
    }

    /// Delays for a while everything that the leader reads.
    fn stall_informer(&mut self, leader: Option<usize>) {
        let Some(leader) = leader else { return };
        let until = self.now + self.fates.between(1_500_000, 5_000_000);
        self.record(format!("the Informer of process {leader} stalls"));
        self.processes[leader].stalled.insert(Actor::Informer, until);
    }

    /// Hides changes of endpoints from all other processes for a while, during which the leader gets the signal to
    /// shut down.
    fn stale_take_over(&mut self, leader: Option<usize>, there: &[usize]) {
        let Some(leader) = leader else { return };
        // In runs that test this, it lasts long enough that the leader writes in the meantime, and the next leader sees
        // its writes.
        let is_long = self.size.faults.often == Some(Often::StaleTakeOver);
        let (shortest, soonest) = if is_long { (75_000_000, 20_000_000) } else { (5_000_000, 3_000_000) };
        for other in there.iter().filter(|other| **other != leader) {
            let span = self.fates.between(shortest, MAX_STREAM_STALL_US);
            self.stall_stream(*other, Kind::EndpointSlices, span);
        }
        let at = self.now + self.fates.between(soonest, 30_000_000);
        self.at(at, WorldEvent::RequestShutdown(leader));
    }

    /// Pauses everything as the operator, and then shuts the leader down. Unless the other replicas must receive the
    /// pause first, their requests about the ConfigMap fail for some time.
    fn take_over_in_a_pause(&mut self, leader: Option<usize>, there: &[usize], is_received: bool) {
        let Some(leader) = leader else { return };
        for other in there.iter().filter(|other| **other != leader && !is_received) {
            let until = self.now + self.fates.between(20_000_000, 90_000_000);
            self.processes[*other].notes.unreachable_until = until;
        }
        self.record(format!(
            "everything is paused, the leader ends, and others receive the pause: {is_received}"
        ));
        self.pause_everything();
        let at = self.now + self.fates.between(500_000, 20_000_000);
        self.at(at, WorldEvent::RequestShutdown(leader));
    }

    fn stall_stream(&mut self, number: usize, kind: Kind, span: u64) {
        self.processes[number].kubernetes.stall(kind, self.now + span);
        self.record(format!("stream of {kind:?} of process {number} stalls"));
        self.blind(number, span);
    }

    /// Suspends or ends a process before it sends a PUT, with some probability.
    pub(super) fn maybe_interrupt(&mut self, number: usize) {
        if self.stormy && self.size.faults.processes && self.fates.per_mille(50) {
            if self.fates.per_mille(700) {
                let span = self.fates.between(10_000_000, 150_000_000);
                self.stop(number, span);
            } else {
                let at = self.now + self.fates.below(20_000);
                self.at(at, WorldEvent::Kill(number));
            }
        }
    }

    /// Applies a planted bug: the shared Lease is released during a PUT.
    pub(super) fn release_early(&mut self) -> Result<(), String> {
        let Some(mut object) = lease_object(&self.kube, LeaseName::Shared) else { return Ok(()) };
        if object["spec"]["holderIdentity"] == crate::leases::OURS && self.fates.per_mille(100) {
            object["spec"]["holderIdentity"] = "".into();
            self.kube.apply(object, self.now).expect("it is a Lease");
            self.lease_written(LeaseName::Shared)?;
        }
        Ok(())
    }

    /// Changes the faults of ARM.
    pub(super) fn change_arm_faults(&mut self) {
        let there: Vec<usize> =
            (0..self.processes.len()).filter(|number| self.processes[*number].is_there()).collect();
        let (refusals, either) = match self.size.faults.often {
            Some(Often::Refusals) => (600, 600),
            Some(Often::FailingPolls) => (0, 1_000),
            Some(
                Often::StaleTakeOver
                | Often::PausedTakeOver
                | Often::UnheardPause
                | Often::LackingLists
                | Often::BrokenSource
                | Often::Hanging
                | Often::EmptyWatches
                | Often::LostEvents
                | Often::SlowIntake
                | Often::EmptiedServices
                | Often::LabelledNodes
                | Often::CreatedAgain,
            )
            | None => (150, 200),
        };
        let dice = self.fault_random.below(1_000);
        let long = if dice < refusals {
            Some(LongFault::Refusals)
        } else {
            (dice < either).then_some(LongFault::FailingPolls)
        };
        let denials = Some(LongFault::Denials).filter(|_| self.size.faults.often == Some(Often::LostEvents));
        let long = denials.filter(|_| dice < 700).or(long);
        let mut words = fault_injection::change_arm(&mut self.fault_random, &mut self.arm, long);
        if self.fault_random.per_mille(HANGING) {
            let hanging = self.fault_random.pick(&used(self.settings)).map(|lb| lb.to_string());
            words.push_str(&format!(", reads of {hanging:?} hang"));
            fault_injection::hang_reads(&mut self.arm, hanging);
        }
        let (twice, late) = fault_injection::answers(&mut self.fault_random);
        for number in there {
            (self.processes[number].azure.duplicate_per_mille, self.processes[number].azure.late_per_mille) =
                (twice, late);
        }
        self.record(format!("faults: {words}, twice {twice}, late {late}"));
        let pause = if long.is_some() {
            self.fault_random.between(120_000_000, 240_000_000)
        } else {
            self.fault_random.between(5_000_000, 40_000_000)
        };
        self.at(self.now + pause, WorldEvent::ArmWeather);
    }

    /// Changes the faults of the API server.
    pub(super) fn change_kube_faults(&mut self) -> Result<(), String> {
        let now = self.now;
        fault_injection::clear_kube(&mut self.kube);
        let there: Vec<usize> =
            (0..self.processes.len()).filter(|number| self.processes[*number].is_there()).collect();
        let pause = self.fault_random.between(10_000_000, 60_000_000);
        for number in &there {
            let port = &mut self.processes[*number].kubernetes;
            (port.posts_fail, port.watches_last_us) = (0, None);
        }
        if let Some(number) = self.fault_random.pick(&there) {
            let port = &mut self.processes[number].kubernetes;
            let for_long = match self.size.faults.often {
                Some(Often::LackingLists) => Some(false),
                Some(Often::BrokenSource) => Some(true),
                Some(
                    Often::StaleTakeOver
                    | Often::PausedTakeOver
                    | Often::UnheardPause
                    | Often::Refusals
                    | Often::FailingPolls
                    | Often::Hanging
                    | Often::EmptyWatches
                    | Often::LostEvents
                    | Often::SlowIntake
                    | Often::EmptiedServices
                    | Often::LabelledNodes
                    | Often::CreatedAgain,
                )
                | None => None,
            };
            let lost_events = Some(Often::LostEvents) == self.size.faults.often;
            let (words, blind, effects) = match for_long.filter(|_| self.fault_random.per_mille(700)) {
                _ if lost_events => {
                    port.posts_fail = [300, 600, 900][self.fault_random.index(3)];
                    ("events are refused".to_owned(), false, Vec::new())
                }
                _ if self.size.faults.often == Some(Often::EmptyWatches) => {
                    ("watches are closed empty".to_owned(), true, port.cut_watches(&mut self.kube, 0))
                }
                Some(long) => {
                    fault_injection::break_lists(&mut self.fault_random, &mut self.kube, port, now, long)
                }
                None => fault_injection::change_kube(&mut self.fault_random, &mut self.kube, port, now),
            };
            self.follow(number, effects)?;
            if blind {
                for number in there {
                    self.blind(number, pause);
                }
            }
            self.record(format!("faults: {words}"));
        }
        self.at(now + pause, WorldEvent::KubeWeather);
        Ok(())
    }
}
