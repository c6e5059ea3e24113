//! The admin states of entries over time: the controller's PUTs that set entries Down or restore them, the times of
//! their effects, and the Downs of other clients.
//!
//! This module owns only the record. `expected_members` computes the expected states, and `signals` the draining nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;
use simulator_models::arm::ArmModel;

use crate::convergence::PoolName;

/// Maximum number of changes and PUTs; later ones are dropped.
const MOST: usize = 500_000;

/// State of a Down that another client has set, while its entry stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// The Down is present.
    Set,
    /// A write of the controller restored it.
    TakenBack,
}

/// Index of a pool in the record.
pub(crate) type PoolNumber = usize;

/// An entry that was added, was removed, or changed its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Time, in microseconds.
    pub(crate) at_us: u64,
    /// Its pool.
    pub(crate) pool: PoolNumber,
    /// Its address.
    pub(crate) ip: IpAddr,
    /// True if it is Down from then on; `None` if it is no longer a member.
    pub(crate) down: Option<bool>,
}

/// A PUT of the controller that changes admin states, or adds Down entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminPut {
    /// Time at which it arrived, in microseconds.
    pub(crate) sent_us: u64,
    /// Its pool.
    pub(crate) pool: PoolName,
    /// The addresses that it sets Down.
    pub(crate) downs: Vec<IpAddr>,
    /// The addresses that it restores.
    pub(crate) restores: Vec<IpAddr>,
    /// True if ARM accepted it.
    pub(crate) taken: bool,
}

/// The record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Downs {
    numbers: BTreeMap<PoolName, PoolNumber>,
    pools: Vec<Known>,
    changes: Vec<Change>,
    puts: Vec<AdminPut>,
    set_by_others: u64,
    moves: u64,
}

/// The last observed state of a pool.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Each entry, and true if it is Down.
    entries: BTreeMap<IpAddr, bool>,
    /// True if another client wrote it last.
    by_others: bool,
    /// The Downs of another client.
    others: BTreeMap<IpAddr, Others>,
}

impl Downs {
    /// Records the writer of a pool; later changes there belong to that writer.
    pub(crate) fn wrote(&mut self, pool: &PoolName, by_others: bool) {
        let number = self.number(pool);
        self.pools[number].by_others = by_others;
    }

    /// Records the state of a pool at `at_us`.
    pub(crate) fn observe(&mut self, azure: &ArmModel, pool: &PoolName, at_us: u64) {
        let members = azure.members(&pool.load_balancer, &pool.pool).unwrap_or_default();
        let entries = members.iter().filter_map(|member| {
            let ip: IpAddr = member.ip.parse().ok()?;
            Some((ip, member.admin_state.eq_ignore_ascii_case("Down")))
        });
        self.record(pool, entries.collect(), at_us);
    }

    fn record(&mut self, pool: &PoolName, entries: BTreeMap<IpAddr, bool>, at_us: u64) {
        let number = self.number(pool);
        let known = &mut self.pools[number];
        if known.entries == entries {
            return;
        }
        let before = std::mem::replace(&mut known.entries, entries);
        let ips: BTreeSet<IpAddr> = before.keys().chain(known.entries.keys()).copied().collect();
        for ip in ips {
            let (was, is) = (before.get(&ip).copied(), known.entries.get(&ip).copied());
            if was == is {
                continue;
            }
            match (is, known.by_others) {
                (None, _) | (Some(false), true) => {
                    known.others.remove(&ip);
                }
                (Some(true), true) => {
                    known.others.insert(ip, Others::Set);
                    self.set_by_others += 1;
                }
                // If the write was lost, the Down is present again.
                (Some(down), false) => {
                    let state = if down { Others::Set } else { Others::TakenBack };
                    if let Some(known) = known.others.get_mut(&ip) {
                        *known = state;
                    }
                }
            }
            if self.changes.len() < MOST {
                self.changes.push(Change { at_us, pool: number, ip, down: is });
            }
        }
        self.moves += 1;
    }

    /// Returns the changes of admin states in a PUT of the controller that arrives now; `None` if it has none.
    pub(crate) fn admin_put(&self, pool: PoolName, body: &[u8], sent_us: u64) -> Option<AdminPut> {
        let body: Value = serde_json::from_slice(body).ok()?;
        let wanted = body.pointer("/properties/loadBalancerBackendAddresses")?.as_array()?;
        let known = self.numbers.get(&pool).map(|number| &self.pools[*number].entries);
        let (mut downs, mut restores) = (Vec::new(), Vec::new());
        for entry in wanted {
            let text = |key: &str| entry["properties"][key].as_str().unwrap_or_default();
            let Ok(ip) = text("ipAddress").parse::<IpAddr>() else { continue };
            let was_down = known.and_then(|known| known.get(&ip)).is_some_and(|down| *down);
            match (was_down, text("adminState").eq_ignore_ascii_case("Down")) {
                (false, true) => downs.push(ip),
                (true, false) => restores.push(ip),
                (true, true) | (false, false) => {}
            }
        }
        let changes = !(downs.is_empty() && restores.is_empty());
        changes.then_some(AdminPut { sent_us, pool, downs, restores, taken: false })
    }

    /// Records a PUT, if any, with its result.
    pub(crate) fn sent_if(&mut self, put: Option<AdminPut>, taken: bool) {
        if self.puts.len() < MOST {
            self.puts.extend(put.map(|put| AdminPut { taken, ..put }));
        }
    }

    fn number(&mut self, pool: &PoolName) -> PoolNumber {
        if let Some(number) = self.numbers.get(pool) {
            return *number;
        }
        let number = self.pools.len();
        self.pools.push(Known::default());
        self.numbers.insert(pool.clone(), number);
        number
    }

    /// Returns the state of another client's Down of an entry.
    pub(crate) fn of_others(&self, pool: &PoolName, ip: IpAddr) -> Option<Others> {
        let number = self.numbers.get(pool)?;
        self.pools[*number].others.get(&ip).copied()
    }

    /// Returns the pools, in the order of their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &PoolName> {
        self.numbers.keys()
    }

    /// Returns the pools by their indices.
    pub(crate) fn by_number(&self) -> Vec<&PoolName> {
        let mut all: Vec<(&PoolName, PoolNumber)> =
            self.numbers.iter().map(|(pool, number)| (pool, *number)).collect();
        all.sort_by_key(|(_, number)| *number);
        all.into_iter().map(|(pool, _)| pool).collect()
    }

    /// Returns the changes, almost in the order of time: a write takes effect at its answer.
    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns the controller's PUTs that change admin states, in the order of their arrival.
    pub(crate) fn puts(&self) -> &[AdminPut] {
        &self.puts
    }

    /// Returns the number of times another client set an entry Down.
    pub(crate) fn set_by_others(&self) -> u64 {
        self.set_by_others
    }

    /// Returns a counter that changes when an entry is added, is removed, or changes its state.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn pool() -> PoolName {
        PoolName::new("LB", "Shop-Web")
    }

    /// Writes entries as a client, each by its last byte and whether it is Down.
    fn write(downs: &mut Downs, by_others: bool, entries: &[(u8, bool)], at_us: u64) {
        downs.wrote(&pool(), by_others);
        downs.record(&pool(), entries.iter().map(|(last, down)| (ip(*last), *down)).collect(), at_us);
    }

    #[test]
    fn n4_a_foreign_down_lasts_until_a_change_or_removal() {
        let mut downs = Downs::default();
        let of = |downs: &Downs, last| downs.of_others(&pool(), ip(last));
        write(&mut downs, true, &[(1, false), (2, false)], 0);
        write(&mut downs, false, &[(1, true), (2, false)], 10);
        assert_eq!((of(&downs, 1), downs.set_by_others()), (None, 0), "the controller has set it");
        write(&mut downs, true, &[(1, true), (2, true)], 20);
        assert_eq!((of(&downs, 1), of(&downs, 2)), (None, Some(Others::Set)));
        write(&mut downs, false, &[(1, false), (2, true)], 30);
        assert_eq!((of(&downs, 1), of(&downs, 2)), (None, Some(Others::Set)));
        write(&mut downs, false, &[(1, false), (2, false)], 40);
        assert_eq!(of(&downs, 2), Some(Others::TakenBack));
        write(&mut downs, false, &[(1, false), (2, true)], 50);
        assert_eq!(of(&downs, 2), Some(Others::Set), "that write was lost");
        write(&mut downs, true, &[(1, false), (2, false)], 60);
        assert_eq!((of(&downs, 2), downs.set_by_others()), (None, 1));
        write(&mut downs, true, &[(1, false), (2, true)], 70);
        write(&mut downs, false, &[(1, false)], 80);
        assert_eq!((of(&downs, 2), downs.set_by_others()), (None, 2));
        let second = downs.changes().iter().filter(|change| change.ip == ip(2));
        let states: Vec<(u64, Option<bool>)> = second.map(|change| (change.at_us, change.down)).collect();
        let (down, up) = (Some(true), Some(false));
        let expected = [(0, up), (20, down), (40, up), (50, down), (60, up), (70, down), (80, None)];
        assert_eq!(states, expected);
    }

    #[test]
    fn n2_a_put_that_changes_a_down_changes_admin_states() {
        let mut downs = Downs::default();
        write(&mut downs, true, &[(1, false), (2, true), (3, true)], 0);
        let put_of = |entries: &[(u8, &str)]| {
            let entry = |(last, state): &(u8, &str)| {
                let properties = serde_json::json!({"ipAddress": ip(*last), "adminState": state});
                serde_json::json!({"name": "n", "properties": properties})
            };
            let listed: Vec<Value> = entries.iter().map(entry).collect();
            let body = serde_json::json!({"properties": {"loadBalancerBackendAddresses": listed}});
            let put = downs.admin_put(pool(), body.to_string().as_bytes(), 7)?;
            assert_eq!((put.sent_us, put.taken), (7, false));
            Some((put.downs, put.restores))
        };
        assert_eq!(put_of(&[(1, "None"), (2, "Down"), (4, "None")]), None, "membership alone");
        assert_eq!(put_of(&[(1, "Down"), (2, "Down"), (3, "None")]), Some((vec![ip(1)], vec![ip(3)])));
        assert_eq!(put_of(&[(9, "Down")]), Some((vec![ip(9)], vec![])), "at birth");
        assert_eq!(downs.admin_put(pool(), b"<html>", 7), None);
    }
}
