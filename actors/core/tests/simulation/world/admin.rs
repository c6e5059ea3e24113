//! Draining nodes: what the world tells the writers of them, and what it asks of whoever leads (N2, N3).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use pool_core::arm::Backend;
use pool_core::route::Delivery;
use pool_core::writer;

use super::{Inner, World};
use crate::process::{Life, Process};
use crate::replica::Actor;

/// How far apart two looks at what is to be asked for are.
const ASK_APART_US: u64 = 100_000;

impl World {
    /// Takes note of which nodes drain now.
    pub(super) fn note_draining(&mut self) -> Result<(), String> {
        let backends = |ips: &BTreeSet<IpAddr>| ips.iter().copied().map(Backend::Address).collect();
        let draining: BTreeSet<Backend> = backends(&self.story.cluster.draining());
        let foreign: BTreeSet<Backend> = backends(&self.story.cluster.foreign_downs);
        let was_foreign = self.draining.restorable.intersection(&foreign).next().is_some();
        if draining.iter().eq(self.draining.addresses.keys()) && !was_foreign {
            return Ok(());
        }
        let uid = || pool_core::ids::NodeUid::new("a node");
        let mut restorable: BTreeSet<Backend> = self.draining.restorable.union(&draining).cloned().collect();
        // What somebody has set by hand is not ours to take back (N4).
        restorable.retain(|backend| !foreign.contains(backend));
        let next = writer::Draining {
            generation: self.draining.generation + 1,
            addresses: draining.into_iter().map(|backend| (backend, uid())).collect(),
            restorable,
            ..writer::Draining::default()
        };
        self.watchdog.note_draining(self.now, &next);
        self.draining = Arc::new(next);
        for process in 0..self.processes.len() {
            self.tell_draining(process)?;
        }
        Ok(())
    }

    pub(super) fn tell_draining(&mut self, process: usize) -> Result<(), String> {
        if self.processes[process].is_there() {
            let delivery = Delivery::Writer(writer::In::Draining(Arc::clone(&self.draining)));
            self.tell_writer(process, delivery);
            self.processes[process].admin.stir();
            self.ask_for_downs(process);
        }
        Ok(())
    }

    fn tell_writer(&mut self, process: usize, delivery: Delivery) {
        for delivery in self.saboteur.pass(delivery) {
            let (edge, _) = self.processes[process].replica.push(&Actor::Host, delivery);
            self.depart(process, edge);
        }
    }

    /// Asks the writer of a process that leads for what its pools lack.
    pub(super) fn ask_for_downs(&mut self, process: usize) {
        let Process { admin, clock, life, ending, .. } = &mut self.processes[process];
        if *life != Life::Runs || *ending {
            return;
        }
        let asks = admin.ask(self.now, clock.now(self.now), &self.draining);
        // What is due and cannot be asked for yet is looked at again, and not at this very moment.
        let again = admin.again_at().map(|at| at.max(self.now + ASK_APART_US));
        for (pool, due) in asks {
            self.watchdog.asks_for_admin(process, &pool, &due);
            self.tell_writer(process, Delivery::Writer(writer::In::AdminDue(pool, due)));
        }
        if let Some(at) = again.filter(|at| self.processes[process].asks_at.is_none_or(|known| known > *at)) {
            self.processes[process].asks_at = Some(at);
            self.within(at, process, Inner::Ask);
        }
    }

    /// The time has come to ask again.
    pub(super) fn ask_again(&mut self, process: usize) {
        self.processes[process].asks_at = None;
        self.ask_for_downs(process);
    }
}
