//! The entries of all pools, and which clients may have set them Down (N4), by the requests to ARM.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use simulator_models::arm::ArmModel;

use super::Watchdog;
use super::puts::ADDRESSES;
use crate::ccm::EXCLUDED;
use crate::decode::{items, text};

pub(super) const DOWN: &str = "Down";
pub(super) const UP: &str = "Up";
pub(super) const NONE: &str = "None";

/// An entry: its load balancer, its pool, and its address or interface.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct EntryId {
    lb: String,
    pool: String,
    pub(super) backend: String,
}

impl EntryId {
    pub(super) fn new(lb: &str, pool: &str, backend: &str) -> EntryId {
        EntryId { lb: lb.to_lowercase(), pool: pool.to_lowercase(), backend: backend.to_owned() }
    }

    /// Returns its pool, as records name it.
    pub(super) fn pool_words(&self) -> String {
        format!("{}/{}", self.lb, self.pool)
    }

    pub(super) fn is_excluded(&self) -> bool {
        self.pool == EXCLUDED.to_lowercase()
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} in {}", self.lb, self.backend, self.pool)
    }
}

/// Clients that may have set an entry Down.
#[derive(Clone, Copy, Debug, Default)]
struct Maker {
    us: bool,
    others: bool,
}

/// Clients that may have set each entry Down last.
#[derive(Default)]
pub(super) struct Entries {
    makers: BTreeMap<EntryId, Maker>,
}

impl Entries {
    /// Returns whether only other clients can have set the Down.
    pub(super) fn is_foreign(&self, entry: &EntryId) -> bool {
        self.makers.get(entry).is_some_and(|maker| maker.others && !maker.us)
    }

    /// Returns whether only the controller can have set the Down.
    pub(super) fn is_ours(&self, entry: &EntryId) -> bool {
        self.makers.get(entry).is_some_and(|maker| maker.us && !maker.others)
    }

    /// Records that another client sets an entry Down. If another write is in flight, or the entry may be Down
    /// already, the final state is unknown.
    fn made(&mut self, entry: EntryId, by: Maker, is_certain: bool) {
        let maker = self.makers.entry(entry).or_default();
        let before = if is_certain { Maker::default() } else { *maker };
        *maker = Maker { us: by.us || before.us, others: by.others || before.others };
    }
}

/// Returns the address of an entry, or else the virtual machine of its interface.
fn backend_of(entry: &Value) -> String {
    let ip = text(&entry["properties"]["ipAddress"]);
    if !ip.is_empty() {
        return ip.to_owned();
    }
    let id = text(&entry["properties"]["networkInterfaceIPConfiguration"]["id"]);
    let interface = id.rsplit_once("/ipConfigurations/").and_then(|(rest, _)| rest.rsplit('/').next());
    interface.map_or_else(String::new, |name| name.strip_suffix("-nic").unwrap_or(name).to_owned())
}

/// Returns the entries of a pool: address or interface, and admin state.
pub(super) fn entries_of(pool: &Value) -> BTreeMap<String, &str> {
    let entries = items(&pool["properties"][ADDRESSES]).iter();
    let state = |entry: &'_ Value| match entry["properties"]["adminState"].as_str() {
        Some(DOWN) => DOWN,
        Some(UP) => UP,
        Some(_) | None => NONE,
    };
    entries
        .map(|entry| (backend_of(entry), state(entry)))
        .filter(|(backend, _)| !backend.is_empty())
        .collect()
}

impl Watchdog {
    /// Records that a write of ours has reached ARM and may take effect. `was_busy`: another write was in flight
    /// there.
    pub(super) fn downs_sent(&mut self, lb: &str, pool: &str, before: &Value, body: &Value, was_busy: bool) {
        let before = entries_of(before);
        for (backend, state) in entries_of(body) {
            let was_down = before.get(&backend) == Some(&DOWN);
            if state == DOWN && !was_down {
                let by = Maker { us: true, others: false };
                self.entries.made(EntryId::new(lb, pool, &backend), by, !was_busy);
                self.left.entries.0 += 1;
            }
            self.left.entries.1 += u64::from(state != DOWN && was_down);
        }
    }

    /// Records that another client has set an entry Down. `is_certain`: it was not Down, and no other write was in
    /// flight.
    pub fn set_down_by_others(&mut self, lb: &str, pool: &str, backend: &str, is_certain: bool) {
        let by = Maker { us: false, others: true };
        self.entries.made(EntryId::new(lb, pool, backend), by, is_certain);
    }

    /// Returns every entry of pools that are not excluded, with its state.
    pub(super) fn all_entries(arm: &ArmModel) -> Vec<(EntryId, &'static str)> {
        let mut all = Vec::new();
        for lb in arm.load_balancers() {
            for name in arm.pools(lb) {
                let pool = arm.pool_json(lb, name).unwrap_or(Value::Null);
                for (backend, state) in entries_of(&pool) {
                    let state = [DOWN, UP].into_iter().find(|known| *known == state).unwrap_or(NONE);
                    all.push((EntryId::new(lb, name, &backend), state));
                }
            }
        }
        all.retain(|(entry, _)| !entry.is_excluded());
        all
    }
}
