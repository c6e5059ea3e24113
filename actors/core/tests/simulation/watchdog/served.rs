//! Pools that control planes fill: the resources that a process has received, and the PUTs that may follow (X2, X3).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::ids::PoolId;
use model::xds::facts::Code;
use serde_json::Value;
use simulator_models::control_plane::Kind;

use super::entries::{DOWN, EntryId, UP, entries_of};
use super::puts::ADDRESSES;
use super::{Put, Watchdog};
use crate::decode::{items, text};
use crate::planes::Answer;
use crate::served::{BALANCER, CLUSTER, Contents, ExpectedMembers, LISTED, Listed};

/// Time for which a pool may follow an earlier level: a better priority waits for 30 s, as does a member that leaves,
/// edges stall, and a write takes time.
const IN_FORCE_US: u64 = 180_000_000;

/// Errors, as far as they drop endpoints (`fail_on_data_errors`).
#[derive(Default)]
struct Failing {
    now: BTreeSet<(Kind, String)>,
    /// Time at which the last error ended.
    mended_at: Option<u64>,
}

/// A pool's level by its source, from a time on.
struct Level {
    from: u64,
    expected: ExpectedMembers,
    /// True if no endpoint is assigned.
    is_empty: bool,
}

/// Resources that a process has received.
#[derive(Default)]
pub(super) struct Handed {
    /// Last valid resource of each name.
    valid: BTreeMap<(Kind, String), Contents>,
    /// Endpoints of the cluster that are in use.
    in_use: Option<String>,
    failing: Failing,
    levels: BTreeMap<&'static str, Vec<Level>>,
    /// All addresses that were ever in a valid assignment, and those that were draining.
    ever: BTreeSet<IpAddr>,
    drained: BTreeSet<IpAddr>,
}

impl Handed {
    fn take(&mut self, now: u64, answer: &Answer, fails: bool) {
        let had = !self.failing.now.is_empty();
        let mut named: BTreeSet<&str> = answer.errors.iter().map(|(name, _)| name.as_str()).collect();
        for (name, served) in &answer.resources {
            let key = (answer.kind, name.clone());
            named.insert(name);
            if served.fault.is_none() {
                self.failing.now.remove(&key);
                self.valid.insert(key, served.what.clone());
            } else {
                self.failing.now.insert(key);
            }
        }
        for (name, code) in &answer.errors {
            if matches!(code, Code::NotFound | Code::PermissionDenied) {
                self.failing.now.insert((answer.kind, name.clone()));
            }
        }
        if answer.kind == Kind::Clusters && !named.contains(CLUSTER) {
            self.failing.now.insert((Kind::Clusters, CLUSTER.to_owned()));
        }
        if !fails {
            self.failing.now.clear();
        }
        if had && self.failing.now.is_empty() {
            self.failing.mended_at = Some(now);
        }
        self.use_endpoints();
        LISTED.iter().for_each(|listed| self.level(now, listed));
    }

    /// If a cluster names other endpoints, the former ones stay in use until the new ones arrive; resources that are
    /// no longer requested are forgotten.
    fn use_endpoints(&mut self) {
        let Some(Contents::Cluster(named)) = self.valid.get(&(Kind::Clusters, CLUSTER.to_owned())).cloned()
        else {
            return;
        };
        if self.valid.contains_key(&(Kind::Endpoints, named.clone())) {
            self.in_use = Some(named.clone());
        }
        let own = |name: &str| LISTED.iter().any(|listed| listed.endpoints() == Some(name));
        let in_use = self.in_use.clone();
        self.valid.retain(|(kind, name), _| {
            *kind == Kind::Clusters || own(name) || *name == named || Some(name) == in_use.as_ref()
        });
    }

    /// Records the level of a pool from now on, if it differs from the one before.
    fn level(&mut self, now: u64, listed: &Listed) {
        let name = match listed.endpoints() {
            Some(name) => name.to_owned(),
            None => match &self.in_use {
                Some(endpoints) => endpoints.clone(),
                None => return,
            },
        };
        let Some(Contents::Endpoints(backends)) = self.valid.get(&(Kind::Endpoints, name)) else { return };
        let expected = ExpectedMembers::of(backends, listed.family);
        self.ever.extend(ExpectedMembers::ever_serving(backends, listed.family));
        self.drained.extend(&expected.draining);
        let levels = self.levels.entry(listed.pool).or_default();
        let level = Level { from: now, expected, is_empty: backends.is_empty() };
        let is_same = |last: &Level| last.expected == level.expected && last.is_empty == level.is_empty;
        if !levels.last().is_some_and(is_same) {
            levels.push(level);
        }
    }

    /// Returns the levels that a pool may follow: the newest, and recent ones.
    fn in_force(&self, now: u64, pool: &PoolId) -> impl Iterator<Item = &Level> {
        let levels = self.levels.get(pool.pool.as_str()).map(Vec::as_slice).unwrap_or_default();
        let before = levels.partition_point(|level| level.from + IN_FORCE_US <= now);
        levels.iter().skip(before.saturating_sub(1))
    }

    /// Returns whether there is, or was recently, an error that removes members.
    fn fails(&self, now: u64) -> bool {
        let held_within = self.failing.mended_at.is_some_and(|at| now < at + IN_FORCE_US);
        !self.failing.now.is_empty() || held_within
    }

    /// Returns whether no endpoint was assigned for as long as it takes to empty a pool.
    fn was_empty_for(&self, now: u64, pool: &PoolId, confirm_us: u64) -> bool {
        let levels: Vec<&Level> = self.in_force(now, pool).collect();
        let until = |at: usize| levels.get(at + 1).map_or(now, |next| next.from + super::ASSIGNED_US);
        levels.iter().enumerate().any(|(at, level)| level.is_empty && level.from + confirm_us <= until(at))
    }
}

/// Returns whether a control plane fills this pool.
pub(super) fn is_listed(pool: &PoolId) -> bool {
    pool.lb.as_str() == BALANCER
}

fn addresses(pool: &Value) -> BTreeSet<IpAddr> {
    let entries = items(&pool["properties"][ADDRESSES]).iter();
    entries.filter_map(|entry| text(&entry["properties"]["ipAddress"]).parse().ok()).collect()
}

impl Watchdog {
    /// Records that a process receives a response. `fails`: data errors drop endpoints.
    pub fn on_response(&mut self, now: u64, process: usize, answer: &Answer, fails: bool) {
        self.within[process].on_response.take(now, answer, fails);
    }

    /// Checks X3: nothing is written before a state is known, no address becomes a member that was never assigned,
    /// and no assigned member is removed, with any error of the source. The last member is removed only after a long
    /// time without endpoints.
    pub(super) fn check_listed(&self, now: u64, put: &Put<'_>) -> Result<(), String> {
        let (within, id) = (&self.within[put.process], put.pool);
        let on_response = &within.on_response;
        if on_response.in_force(now, id).next().is_none() {
            return Err(format!("X3: a PUT of {id}, whose state is unknown to process {}", put.process));
        }
        let (before, after) = (addresses(put.base), addresses(put.body));
        if let Some(unassigned) = after.difference(&before).find(|ip| !on_response.ever.contains(ip)) {
            return Err(format!("X2: {unassigned} is added to {id}, and was in no valid assignment"));
        }
        if on_response.fails(now) {
            return Ok(());
        }
        let keeps_draining = !within.is_off;
        let stays = |ip: &&IpAddr| {
            let mut levels = on_response.in_force(now, id).map(|level| &level.expected);
            levels.all(|expected| {
                expected.serving.contains(*ip) || keeps_draining && expected.draining.contains(*ip)
            })
        };
        if let Some(lost) = before.difference(&after).find(stays) {
            return Err(format!("X3: {lost} is removed from {id}, and was always assigned"));
        }
        let is_emptied = after.is_empty() && !before.is_empty();
        let is_released = within.guards.released_at(id).is_some();
        if is_emptied
            && self.guarded
            && !is_released
            && !on_response.was_empty_for(now, id, self.empty_confirm_us)
        {
            return Err(format!("G2: {id} is emptied, and was not without endpoints for long"));
        }
        Ok(())
    }

    /// Checks N2: in such a pool, an entry goes Down because its source reports it as draining, and is restored only
    /// because the source once did.
    pub(super) fn check_source(
        &self,
        now: u64,
        put: &Put<'_>,
        (entry, before, after): (&EntryId, Option<&str>, &str),
    ) -> Result<(), String> {
        let within = &self.within[put.process];
        let Ok(ip) = entry.backend.parse::<IpAddr>() else { return Ok(()) };
        let was_down = before == Some(DOWN);
        if after == DOWN && !was_down {
            let mut levels = within.on_response.in_force(now, put.pool);
            if !levels.any(|level| level.expected.draining.contains(&ip)) {
                return Err(format!("N2: {entry} goes Down, and its source does not report it as draining"));
            }
            if within.is_off {
                return Err(format!("N4: {entry} goes Down while the admin state is switched off"));
            }
        } else if was_down && after != DOWN {
            if !within.on_response.drained.contains(&ip) {
                return Err(format!("N4: the Down of {entry} is not ours to end"));
            }
        } else if after == UP && before != Some(UP) || before.is_some_and(|before| before != after) {
            return Err(format!("N4: {entry} was {before:?} and becomes {after}"));
        }
        Ok(())
    }
}

/// Returns the addresses that are Down in a pool.
pub fn downs_of(pool: &Value) -> BTreeSet<IpAddr> {
    let down = entries_of(pool).into_iter().filter(|(_, state)| *state == DOWN);
    down.filter_map(|(backend, _)| backend.parse().ok()).collect()
}
