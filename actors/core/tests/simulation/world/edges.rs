//! The edges of processes: outputs depart, arrive after a while, and start a turn of a machine.

use model::machine::Now;
use pool_core::route::{Delivery, HostMessage, PoolMessage, reply_for_missing_pool};

use super::{ProcessEvent, World, WorldEvent};
use crate::kubernetes::Effect;
use crate::process::Process;
use crate::replica::{Actor, EdgeId, routed};
use crate::trace::Entry;
use crate::watchdog::{Watchdog, affects_behaviour};

impl World {
    pub(super) fn follow(&mut self, process: usize, effects: Vec<Effect>) -> Result<(), String> {
        for effect in effects {
            match effect {
                Effect::Deliver(delivery) => {
                    for delivery in self.saboteur.pass(delivery) {
                        let from = Actor::KubernetesPort;
                        let (edge, _) = self.processes[process].replica.push(&from, delivery);
                        self.depart(process, edge);
                    }
                }
                Effect::Read(kind, call, lines) => {
                    let Process { clock, kubernetes, .. } = &mut self.processes[process];
                    let read = kubernetes.read(clock.now(self.now), kind, call, lines);
                    self.watchdog.on_lines_read(self.now, process, &read);
                    let passed: Vec<Delivery> =
                        read.into_iter().flat_map(|delivery| self.saboteur.pass(delivery)).collect();
                    for delivery in passed {
                        let from = Actor::KubernetesPort;
                        let (edge, _) = self.processes[process].replica.push(&from, delivery);
                        self.depart(process, edge);
                    }
                }
                Effect::DeliverAt(at, delivery) => self.within(at, process, ProcessEvent::Deliver(delivery)),
                Effect::Later(at, kind, call, step) => {
                    self.within(at, process, ProcessEvent::Kube(kind, call, step))
                }
                Effect::Lease(at, lease, call, step) => {
                    self.at(at, WorldEvent::Lease(process, lease, call, step));
                }
                Effect::LeaseWritten(lease) => self.lease_written(lease)?,
                Effect::Notes(at, requester, call, step) => {
                    self.at(at, WorldEvent::Notes(process, requester, call, step));
                }
                Effect::NotesWritten => self.notes_written(process)?,
                Effect::Patch(at, call, patch, fate) => {
                    self.at(at, WorldEvent::Patch(process, call, patch, fate));
                }
            }
        }
        Ok(())
    }

    pub(super) fn stalled_until(&self, process: usize, actor: &Actor) -> Option<u64> {
        // A pool's machine stalls with its registry.
        let actor = if let Actor::Pool(..) = actor { &Actor::Registry } else { actor };
        self.processes[process].stalled.get(actor).copied().filter(|until| *until > self.now)
    }

    pub(super) fn depart(&mut self, process: usize, edge: EdgeId) {
        if self.processes[process].replica.depart(&edge) {
            let slow = self.delays.per_mille(self.slow_edges);
            let delay =
                if slow { self.delays.between(5_000, 200_000) } else { self.delays.between(0, 5_000) };
            let from = self.stalled_until(process, &edge.1).unwrap_or(self.now);
            self.within(from + delay, process, ProcessEvent::Arrive(edge));
        }
    }

    pub(super) fn arrive(&mut self, process: usize, edge: &EdgeId) -> Result<(), String> {
        if let Some(until) = self.stalled_until(process, &edge.1) {
            self.within(until, process, ProcessEvent::Arrive(edge.clone()));
            return Ok(());
        }
        let batch = self.processes[process].replica.arrive(edge);
        Watchdog::on_batch(&batch).map_err(|reason| format!("{reason} on {edge:?}"))?;
        match &edge.1 {
            Actor::Registry => self.at_registry(process, batch)?,
            Actor::KubernetesPort => {
                for delivery in batch {
                    if let Delivery::Kubernetes(call) = delivery {
                        self.at_kubernetes(process, call)?;
                    }
                }
            }
            Actor::ArmPort => self.at_arm(process, batch)?,
            Actor::XdsPort => self.at_xds_port(process, batch)?,
            Actor::Metrics => {
                for delivery in &batch {
                    if let Delivery::Metrics(sample) = delivery {
                        self.watchdog.on_metric(process, sample);
                    }
                }
            }
            Actor::Host => {
                for delivery in batch {
                    let Delivery::Host(message) = delivery else { continue };
                    match message {
                        HostMessage::Publish(snapshot) => {
                            Watchdog::published(&snapshot)?;
                            self.processes[process].snapshot = Some(snapshot);
                        }
                        HostMessage::Quarantined(pool, broken) => {
                            return Err(format!("A4: {pool}: {broken}"));
                        }
                        HostMessage::NoticeIgnored(..) | HostMessage::EventDropped(_) => {}
                        HostMessage::Answered(id, answer) => {
                            self.watchdog.answered(self.now, process, id, &answer)?;
                        }
                        HostMessage::Done(free) => {
                            self.check_free(process, free)?;
                            self.done(process)?;
                        }
                        HostMessage::StorageRollback(rollback) => {
                            self.ends_for_rollback(process, &rollback)?
                        }
                    }
                }
            }
            Actor::Watcher(_)
            | Actor::Informer
            | Actor::Discovery
            | Actor::Directory
            | Actor::Pool(..)
            | Actor::Writer
            | Actor::Leader
            | Actor::AdminState
            | Actor::XdsSource
            | Actor::Pauses
            | Actor::Events
            | Actor::Snapshot => self.turn(process, &edge.1, batch)?,
        }
        if self.processes[process].is_there() {
            self.depart(process, edge.clone());
        }
        Ok(())
    }

    fn at_registry(&mut self, process: usize, batch: Vec<Delivery>) -> Result<(), String> {
        for delivery in batch {
            let Delivery::Pool(pool, message) = delivery else { continue };
            let replica = &mut self.processes[process].replica;
            match message {
                PoolMessage::Forget => {
                    if let Some((actor, last)) = replica.under_way_to(&pool) {
                        self.turn(process, &actor, last)?;
                    }
                    self.record(format!("forget {pool}"));
                    self.processes[process].replica.forget(&pool);
                }
                PoolMessage::In(input) => {
                    if let Some(answer) =
                        reply_for_missing_pool(&input).filter(|_| !replica.pools.contains_key(&pool))
                    {
                        let (edge, _) = replica.push(&Actor::Registry, answer);
                        self.depart(process, edge);
                    } else if let Some(actor) = replica.start(&pool, &input) {
                        let delivery = Delivery::Pool(pool, PoolMessage::In(input));
                        let (edge, _) = replica.push_to(&Actor::Registry, actor, delivery);
                        self.depart(process, edge);
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs one turn of a machine, and handles its effects.
    pub(super) fn turn(&mut self, process: usize, who: &Actor, batch: Vec<Delivery>) -> Result<(), String> {
        let now = self.processes[process].clock.now(self.now);
        let turn = self.processes[process].replica.turn(now, who, batch);
        let bound = 200 + 20 * (self.story.cluster.services.len() + self.story.cluster.nodes.len());
        let mut touched = Vec::new();
        for (input, outputs) in turn.steps {
            self.watchdog.on_step(self.now, now, process, who, input.as_ref(), &outputs)?;
            if let Some(input) = input.filter(affects_behaviour) {
                self.trace.record(self.now, Entry::Received(process, who.clone(), Box::new(input)));
            }
            for delivery in outputs.into_iter().flat_map(routed) {
                for delivery in self.saboteur.pass(delivery) {
                    let (edge, waiting) = self.processes[process].replica.push(who, delivery);
                    if waiting > bound {
                        return Err(format!("A3: {waiting} deliveries wait on {edge:?}"));
                    }
                    if touched.last() != Some(&edge) {
                        touched.push(edge);
                    }
                }
            }
        }
        for edge in touched {
            self.depart(process, edge);
        }
        self.rearm(process, who, turn.deadline);
        Ok(())
    }

    fn rearm(&mut self, process: usize, who: &Actor, deadline: Option<Now>) {
        let armed = &mut self.processes[process].replica.armed;
        if armed.get(who) == deadline.as_ref() {
            return;
        }
        let Some(at) = deadline else {
            armed.remove(who);
            return;
        };
        armed.insert(who.clone(), at);
        let late =
            if self.delays.per_mille(30) { self.delays.below(20_000) } else { self.delays.below(1_000) };
        let due = self.processes[process].clock.world(at).max(self.now) + late;
        self.within(due, process, ProcessEvent::Timer(who.clone(), at));
    }
}
