//! Manual changes by operators: they take Leases from their holders, write another holder into them, and delete them
//! (W7, W8).

use model::lease::LeaseName;
use serde_json::Value;
use simulator_models::kube::Resource;

use super::{World, WorldEvent};
use crate::ccm::lease_object;
use crate::clock::wall;
use crate::leases::{AN_OPERATOR, NAMESPACE, object_name, renew_time};
use crate::plant::Plant;
use crate::process::Process;

/// Assumed duration of another client's hold (W7), plus the time of an observation, plus clock differences.
const FOREIGN_US: i64 = 900_000_000 + 30_000_000 + 10_000_000;

/// Time after the request for a pause within which it may still be recorded: the request, its tries, and a late write.
const LAST_WISH_US: u64 = 60_000_000;

impl World {
    /// Empties, renames or deletes a held Lease, as another client. That is impossible while the API server is down.
    pub(super) fn take_away(&mut self) -> Result<(), String> {
        let lease = LeaseName::ALL[self.fates.index(2)];
        if self.kube.is_down() {
            return Ok(());
        }
        let Some(object) = lease_object(&self.kube, lease) else { return Ok(()) };
        let renames = match self.plant {
            Some(Plant::RenamedIsReleased) => 1_000,
            Some(Plant::EmptiedIsReleased) => 0,
            Some(_) | None => 300,
        };
        if self.fates.per_mille(renames) {
            self.write_holder(lease, object, AN_OPERATOR);
        } else if self.fates.per_mille(400) {
            self.kube.delete(Resource::Leases, NAMESPACE, object_name(lease), self.now);
        } else {
            self.write_holder(lease, object, "");
        }
        let left = lease_object(&self.kube, lease);
        let holder = left.as_ref().map(|left| left["spec"]["holderIdentity"].to_string());
        self.record(format!("the operator changes {lease:?}: {holder:?}"));
        self.watchdog.tenure.taken_away(self.now, lease, left.as_ref());
        Ok(())
    }

    fn write_holder(&mut self, lease: LeaseName, mut object: Value, holder: &str) {
        object["spec"]["holderIdentity"] = holder.into();
        self.kube.apply(object, self.now).unwrap_or_else(|_| panic!("{lease:?} is a Lease"));
    }

    /// Ends the changes by operators, in some worlds after a repair. Returns until when the effects of their changes
    /// may last.
    pub(super) fn end_operator_changes(&mut self) -> u64 {
        self.crashes.clear();
        let mut until = self.now;
        if self.size.faults.policy {
            // Until then the last request of an operator may still take effect.
            until += LAST_WISH_US;
            self.at(until, WorldEvent::EndPauses);
        }
        if let Some(object) = lease_object(&self.kube, LeaseName::Shared)
            && object["spec"]["holderIdentity"] == AN_OPERATOR
        {
            if self.fates.per_mille(500) {
                self.write_holder(LeaseName::Shared, object, "");
                let left = lease_object(&self.kube, LeaseName::Shared);
                self.watchdog.tenure.taken_away(self.now, LeaseName::Shared, left.as_ref());
            } else {
                let ends = renew_time(&object).unwrap_or(0) + FOREIGN_US;
                until = until.max(self.now + u64::try_from(ends - wall(self.now)).unwrap_or(0));
            }
        }
        until
    }

    /// Makes a slot in which each process crashes on startup.
    pub(super) fn crash_loop(&mut self, number: usize) {
        let Process { slot, .. } = self.processes[number];
        let times = 3 + u32::from(self.fates.per_mille(500));
        self.record(format!("processes in place {slot} crash {times} times"));
        self.crashes.insert(slot, times);
        self.kill(number);
    }
}
