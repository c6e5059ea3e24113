//! Control planes and the processes' ports to them: the messages on each stream, and when they arrive (X2).

use model::ids::Family;
use model::machine::Wall;
use model::xds::stream::{StreamEvent, StreamId, XdsRequest};
use pool_core::route::Delivery;
use simulator_models::arm::PoolSpec;
use sources::xds_source;

use super::{ProcessEvent, World, WorldEvent};
use crate::planes::{Planes, Sendings};
use crate::random::Random;
use crate::replica::Actor;
use crate::served::{BALANCER, LISTED};
use crate::xds_port::{Effect, XdsStep};

impl World {
    /// Creates the control planes of a world that has some.
    pub(super) fn planes_of(seed: u64) -> Planes {
        Planes::new(Random::new(seed ^ 0x706c_616e))
    }

    /// Adds the pools that they fill, with members of another client.
    pub(super) fn add_listed(&mut self) {
        if self.planes.is_none() {
            return;
        }
        self.arm.add_load_balancer(BALANCER);
        for listed in LISTED {
            let members = (1..=self.planing.below(4))
                .map(|number| (format!("old-{number}"), foreign_member(listed.family, number)));
            let spec = PoolSpec { members: members.collect(), ..PoolSpec::default() };
            self.arm.add_pool(BALANCER, listed.pool, &spec);
            self.arm.add_rule(BALANCER, &format!("rule-{}", listed.pool), listed.pool, true);
        }
        self.at(self.now, WorldEvent::Plane);
    }

    /// Makes a change to control planes, or to the pools that they fill.
    pub(super) fn plane_happens(&mut self) -> Result<(), String> {
        let Some(planes) = &mut self.planes else { return Ok(()) };
        let pause = planes.pause();
        self.at(self.now + pause, WorldEvent::Plane);
        if self.size.faults.meddling && self.planing.per_mille(60) {
            self.meddle_with_listed();
            return Ok(());
        }
        let Some(planes) = &mut self.planes else { return Ok(()) };
        let (words, sendings) = planes.make_change();
        self.record(format!("control planes: {words}"));
        self.send_all(sendings)
    }

    /// Removes members from such a pool, and adds others, as another client does.
    fn meddle_with_listed(&mut self) {
        let listed = LISTED[self.planing.index(LISTED.len())];
        self.arm.tick(self.now);
        let known = self.arm.member_ips(BALANCER, listed.pool).unwrap_or_default();
        let mut members: Vec<String> = known.into_iter().map(str::to_owned).collect();
        members.retain(|_| self.planing.per_mille(500));
        if self.planing.per_mille(300) {
            members.push(foreign_member(listed.family, self.planing.below(9)));
        }
        let named: Vec<(String, &String)> =
            members.iter().map(|ip| (ip.replace(['.', ':'], "-"), ip)).collect();
        let named: Vec<(&str, &str)> = named.iter().map(|(name, ip)| (name.as_str(), ip.as_str())).collect();
        let status = self.arm.foreign_put(BALANCER, listed.pool, &named, self.now);
        self.record(format!("foreign write of {BALANCER}/{}: {members:?} {status}", listed.pool));
    }

    /// Sends the messages of servers.
    pub(super) fn send_all(&mut self, sendings: Sendings) -> Result<(), String> {
        for ((process, stream), sent) in sendings {
            if self.processes[process].is_there() {
                let effects = self.processes[process].xds.sent(self.now, stream, sent);
                self.follow_xds(process, effects)?;
            }
        }
        Ok(())
    }

    /// Handles calls of a process's xDS source machine.
    pub(super) fn at_xds_port(&mut self, process: usize, batch: Vec<Delivery>) -> Result<(), String> {
        for delivery in batch {
            if let Delivery::Xds(call) = delivery {
                let effects = self.processes[process].xds.call(self.now, call);
                self.follow_xds(process, effects)?;
            }
        }
        Ok(())
    }

    /// Continues with a stream in the port of a process.
    pub(super) fn xds_step(
        &mut self,
        process: usize,
        stream: StreamId,
        step: &XdsStep,
    ) -> Result<(), String> {
        let Some(planes) = &self.planes else { return Ok(()) };
        let Some(server) = self.processes[process].xds.server_of(stream) else { return Ok(()) };
        let reach = (planes.reach(server), planes.accepts_streams(server));
        let effects = self.processes[process].xds.step(self.now, stream, step, reach);
        self.follow_xds(process, effects)
    }

    /// Lets a request reach its server, even if its process has ended.
    pub(super) fn plane_receives(
        &mut self,
        process: usize,
        stream: StreamId,
        request: &XdsRequest,
    ) -> Result<(), String> {
        let Some(planes) = &mut self.planes else { return Ok(()) };
        let sendings = planes.on_request((process, stream), request);
        self.send_all(sendings)
    }

    pub(super) fn follow_xds(&mut self, process: usize, effects: Vec<Effect>) -> Result<(), String> {
        for effect in effects {
            let Some(planes) = &mut self.planes else { return Ok(()) };
            match effect {
                Effect::Deliver(input) => self.pass_to_xds_source(process, input),
                Effect::Hand(stream, answer) => {
                    let fails = planes.features.policy.fail_on_data_errors;
                    self.watchdog.on_response(self.now, process, &answer, fails);
                    let wall = Wall::from_micros(self.processes[process].clock.wall(self.now));
                    self.pass_to_xds_source(process, StreamEvent::Response(stream, answer.response, wall));
                }
                Effect::Later(at, stream, step) => self.within(at, process, ProcessEvent::Xds(stream, step)),
                Effect::Opened(server, stream) => planes.open(server, (process, stream)),
                Effect::Ask(at, stream, request) => {
                    self.at(at, WorldEvent::PlaneReceives(process, stream, Box::new(request)));
                }
                Effect::Closed(stream) => planes.closed((process, stream)),
            }
        }
        Ok(())
    }

    fn pass_to_xds_source(&mut self, process: usize, event: StreamEvent) {
        for delivery in self.saboteur.pass(Delivery::XdsSource(xds_source::In::StreamEvent(event))) {
            let (edge, _) = self.processes[process].replica.push(&Actor::XdsPort, delivery);
            self.depart(process, edge);
        }
    }

    /// Makes all control planes unreachable for a process for a while.
    pub(super) fn cut_planes(&mut self, process: usize, until: u64) -> Result<(), String> {
        if self.planes.is_none() || self.planing.per_mille(400) {
            return Ok(());
        }
        let effects = self.processes[process].xds.cut(self.now, until);
        self.follow_xds(process, effects)
    }

    /// Makes the repairs of control planes that an operator would make.
    pub(super) fn repair_planes(&mut self) -> Result<(), String> {
        let Some(planes) = &mut self.planes else { return Ok(()) };
        let sendings = planes.repair();
        self.send_all(sendings)
    }

    /// Withdraws all their resources.
    ///
    /// # Errors
    /// A finding of the watchdog.
    pub fn take_back(&mut self) -> Result<(), String> {
        let Some(planes) = &mut self.planes else { return Ok(()) };
        let sendings = planes.take_back();
        self.record("control planes withdraw all resources".to_owned());
        self.send_all(sendings)
    }

    /// Changes all their resources once.
    pub(super) fn change_all_planes(&mut self) -> Result<(), String> {
        let Some(planes) = &mut self.planes else { return Ok(()) };
        let sendings = planes.change_everything();
        self.send_all(sendings)
    }
}

/// Returns an address that no control plane has.
fn foreign_member(family: Family, number: u64) -> String {
    match family {
        Family::V4 => format!("10.3.0.{}", number + 1),
        Family::V6 => format!("fd03::{:x}", number + 1),
    }
}
