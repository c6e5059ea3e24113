//! Drained nodes: the time until they were taken out of traffic, and the number that could have been in time.
//!
//! A node is drained as soon as all its entries are Down or removed. The time counts from the moment at which the API
//! server accepted the taint or the notice.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::Serialize;

use super::{Convergence, NAMED, seconds};
use crate::convergence::PoolName;
use crate::downs::{AdminPut, Change, Downs, PoolNumber};
use crate::expected_members::WrongEntry;
use crate::lanes::{Fate, Write};
use crate::signals::{Signal, Signals};

/// Maximum number of listed nodes.
const LISTED: usize = 1_000;
/// Time after the return or end of a node within which a PUT for it may still be in flight.
const GRACE_US: u64 = 1_000_000;

/// Results for the drained nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DrainReport {
    /// Number of drained nodes that were in pools.
    pub nodes: usize,
    /// Nodes that were drained in time: before the eviction if a notice named its time, otherwise before they came
    /// back.
    pub reached_in_time: usize,
    /// Nodes that were drained too late.
    pub late: usize,
    /// Nodes that were not drained before they came back, were deleted, or the run ended.
    pub never: usize,
    /// Number that the scenario expects in time; `None` if it is not checked.
    pub reached_expected: Option<usize>,
    /// Number of nodes that could have been drained in time. Each load balancer would have written only the pools of
    /// these nodes, the earliest deadline first, with the measured durations of its writes.
    pub best_possible: usize,
    /// Times from the taint or the notice until the node was Down in the last pool.
    pub drained_seconds: Times,
    /// Times from the taint or the notice until the first PUT for the node arrived at ARM.
    pub sent_seconds: Times,
    /// Accepted PUTs with changes of admin states.
    pub puts: usize,
    /// Maximum number of these PUTs for one pool.
    pub puts_per_pool_max: usize,
    /// PUTs that only set entries Down whose nodes had already returned or been deleted.
    pub puts_without_effect: usize,
    /// Entries that accepted PUTs set Down.
    pub set_down: usize,
    /// Entries that accepted PUTs restored.
    pub restored: usize,
    /// Entries with a wrong admin state at the end of the run.
    pub wrong_entries: usize,
    /// The first wrong entries.
    pub wrong_entry_details: Vec<WrongEntry>,
    /// The first nodes, in the order of their signals.
    pub by_node: Vec<Drained>,
}

/// Percentiles of times, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
}

/// One node. Times are seconds from its signal unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drained {
    /// Its name.
    pub node: String,
    /// Time of its signal, from the start of the run.
    pub signal_seconds: f64,
    /// Time of its eviction; `None` without a notice.
    pub due_seconds: Option<f64>,
    /// Time at which the first PUT for it arrived.
    pub sent_seconds: Option<f64>,
    /// Time at which it was drained.
    pub drained_seconds: Option<f64>,
    /// Earliest time at which it could have been drained.
    pub best_seconds: f64,
    /// Number of pools in which the node was not Down at its signal.
    pub pools: usize,
    /// True if it was drained in time.
    pub in_time: bool,
}

/// Observations of the models.
#[derive(Clone, Copy, Debug)]
pub(super) struct DrainInputs<'a> {
    pub(super) signals: &'a Signals,
    pub(super) downs: &'a Downs,
    pub(super) writes: &'a [Write],
    /// Latency of the read before a write, in microseconds.
    pub(super) read_us: u64,
    /// Start of the run, in microseconds.
    pub(super) began_us: u64,
}

impl Times {
    fn of(mut all_us: Vec<u64>) -> Self {
        all_us.sort_unstable();
        let Convergence { p50, p99, max, .. } = Convergence::of(&all_us, 0);
        Self { p50, p99, max }
    }
}

impl DrainReport {
    /// Computes the results.
    pub(super) fn of(
        inputs: &DrainInputs<'_>,
        wrong: Vec<WrongEntry>,
        reached_expected: Option<usize>,
    ) -> Self {
        let drains = inputs.drains();
        let best = inputs.best(&drains);
        let in_time = drains.iter().filter(|drain| drain.is_in_time()).count();
        let drained = drains.iter().filter(|drain| drain.drained_us.is_some()).count();
        let since = |at: Option<u64>, drain: &NodeDrain<'_>| at.map(|at| at - drain.signal.from_us);
        let times = drains.iter().filter_map(|drain| since(drain.drained_us, drain)).collect();
        let sent = drains.iter().filter_map(|drain| since(drain.sent_us, drain)).collect();
        let best_possible = drains.iter().zip(&best).filter(|(drain, at)| drain.is_met_at(**at)).count();
        let by_node = drains.iter().zip(&best).take(LISTED);
        let by_node = by_node.map(|(drain, best_us)| drain.listed(*best_us, inputs.began_us)).collect();
        Self {
            nodes: drains.len(),
            reached_in_time: in_time,
            late: drained - in_time,
            never: drains.len() - drained,
            reached_expected,
            best_possible,
            drained_seconds: Times::of(times),
            sent_seconds: Times::of(sent),
            wrong_entries: wrong.len(),
            wrong_entry_details: wrong.into_iter().take(NAMED).collect(),
            by_node,
            ..inputs.puts()
        }
    }

    /// Returns whether the expected number of nodes was in time.
    pub(super) fn is_as_expected(&self) -> bool {
        self.reached_expected.is_none_or(|least| self.reached_in_time >= least)
    }
}

/// History of one node from its signal on.
#[derive(Clone, Debug)]
struct NodeDrain<'a> {
    signal: &'a Signal,
    /// The pools in which the node was not Down.
    open: BTreeSet<PoolNumber>,
    sent_us: Option<u64>,
    drained_us: Option<u64>,
}

impl NodeDrain<'_> {
    fn is_in_time(&self) -> bool {
        self.drained_us.is_some_and(|at| self.is_met_at(at))
    }

    fn is_met_at(&self, at_us: u64) -> bool {
        self.signal.due_us.is_none_or(|due| at_us <= due)
    }

    fn listed(&self, best_us: u64, began_us: u64) -> Drained {
        let from_us = self.signal.from_us;
        let since = |at_us: u64| seconds(at_us.saturating_sub(from_us));
        Drained {
            node: self.signal.node.clone(),
            signal_seconds: seconds(from_us - began_us),
            due_seconds: self.signal.due_us.map(since),
            sent_seconds: self.sent_us.map(since),
            drained_seconds: self.drained_us.map(since),
            best_seconds: since(best_us),
            pools: self.open.len(),
            in_time: self.is_in_time(),
        }
    }
}

impl<'a> DrainInputs<'a> {
    /// Returns the drains of all nodes that were in pools, in the order of their signals.
    fn drains(&self) -> Vec<NodeDrain<'a>> {
        let mut history: BTreeMap<IpAddr, Vec<Change>> = BTreeMap::new();
        for change in self.downs.changes() {
            history.entry(change.ip).or_default().push(*change);
        }
        let signals = self.signals.all().iter().filter(|signal| signal.from_us >= self.began_us);
        signals.filter_map(|signal| self.drain(signal, &history)).collect()
    }

    /// Returns the drain of one node; `None` if it was in no pool.
    fn drain(&self, signal: &'a Signal, history: &BTreeMap<IpAddr, Vec<Change>>) -> Option<NodeDrain<'a>> {
        let own = signal.ips.iter().filter_map(|ip| history.get(ip));
        let mut changes: Vec<&Change> = own.flatten().collect();
        changes.sort_by_key(|change| change.at_us);
        let (before, mut after) =
            changes.split_at(changes.partition_point(|change| change.at_us <= signal.from_us));
        let mut entries = BTreeMap::new();
        apply_changes(&mut entries, before);
        if entries.is_empty() {
            return None;
        }
        let open = entries.iter().filter(|(_, down)| !**down).map(|((pool, _), _)| *pool).collect();
        let mut drained_us = is_drained(&entries).then_some(signal.from_us);
        while let (None, Some(next)) = (drained_us, after.first()) {
            let at_us = next.at_us;
            if signal.until_us.is_some_and(|until| at_us > until) {
                break;
            }
            let (now, later) = after.split_at(after.partition_point(|change| change.at_us == at_us));
            apply_changes(&mut entries, now);
            drained_us = is_drained(&entries).then_some(at_us);
            after = later;
        }
        let is_of = |put: &&AdminPut| {
            put.sent_us >= signal.from_us
                && signal.until_us.is_none_or(|until| put.sent_us <= until)
                && put.downs.iter().any(|ip| signal.ips.contains(ip))
        };
        let sent_us = self.downs.puts().iter().find(is_of).map(|put| put.sent_us);
        Some(NodeDrain { signal, open, sent_us, drained_us })
    }

    /// Returns a report with only the counts of the controller's PUTs.
    fn puts(&self) -> DrainReport {
        let taken = self.downs.puts().iter().filter(|put| put.taken && put.sent_us >= self.began_us);
        let mut all = DrainReport::default();
        let mut by_pool: BTreeMap<&PoolName, usize> = BTreeMap::new();
        for put in taken {
            all.puts += 1;
            all.set_down += put.downs.len();
            all.restored += put.restores.len();
            all.puts_without_effect += usize::from(self.has_no_effect(put));
            *by_pool.entry(&put.pool).or_default() += 1;
        }
        all.puts_per_pool_max = by_pool.into_values().max().unwrap_or(0);
        all
    }

    fn has_no_effect(&self, put: &AdminPut) -> bool {
        let is_requested = |ip: &IpAddr| {
            self.signals.all().iter().any(|signal| {
                let over_us = signal.until_us.map_or(u64::MAX, |until| until.saturating_add(GRACE_US));
                signal.ips.contains(ip) && (signal.from_us..=over_us).contains(&put.sent_us)
            })
        };
        !put.downs.is_empty() && !put.downs.iter().any(is_requested)
    }

    /// Returns the earliest possible time for each node, in microseconds.
    fn best(&self, drains: &[NodeDrain<'a>]) -> Vec<u64> {
        let names = self.downs.by_number();
        let mut jobs: BTreeMap<&str, Vec<Job>> = BTreeMap::new();
        for (node, drain) in drains.iter().enumerate() {
            let Signal { from_us, due_us, .. } = *drain.signal;
            for pool in &drain.open {
                let job = Job { node, pool: *pool, from_us, due_us: due_us.unwrap_or(u64::MAX) };
                jobs.entry(&names[*pool].load_balancer).or_default().push(job);
            }
        }
        let mut ends: Vec<u64> = drains.iter().map(|drain| drain.signal.from_us).collect();
        for (load_balancer, jobs) in jobs {
            for (node, end) in earliest_deadline_first(jobs, &self.write_durations(load_balancer)) {
                ends[node] = ends[node].max(end);
            }
        }
        ends
    }

    /// Returns the durations of the controller's writes to a load balancer, in microseconds.
    fn write_durations(&self, load_balancer: &str) -> Vec<u64> {
        let own = self.writes.iter().filter(|write| write.load_balancer == load_balancer && !write.foreign);
        let done = own.filter(|write| match write.fate {
            Fate::Running | Fate::Done => true,
            Fate::Superseded | Fate::Refused | Fate::Lost => false,
        });
        done.map(|write| self.read_us + write.ended_us - write.started_us).collect()
    }
}

fn apply_changes(entries: &mut BTreeMap<(PoolNumber, IpAddr), bool>, changes: &[&Change]) {
    for change in changes {
        let key = (change.pool, change.ip);
        match change.down {
            Some(down) => {
                entries.insert(key, down);
            }
            None => {
                entries.remove(&key);
            }
        }
    }
}

fn is_drained(entries: &BTreeMap<(PoolNumber, IpAddr), bool>) -> bool {
    entries.values().all(|down| *down)
}

/// A node's entry in a pool that must be set Down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Job {
    node: usize,
    pool: PoolNumber,
    from_us: u64,
    due_us: u64,
}

/// Computes the best schedule of one load balancer's jobs: each write serves all waiting jobs of one pool, and the pool
/// with the earliest deadline that can still be met comes first. The writes take `write_durations`, one after another,
/// and then their mean. Returns each node with the time at which its job is done.
fn earliest_deadline_first(mut waiting: Vec<Job>, write_durations: &[u64]) -> Vec<(usize, u64)> {
    let mean = write_durations.iter().sum::<u64>() / write_durations.len().max(1) as u64;
    let mut write_durations = write_durations.iter().copied().chain(std::iter::repeat(mean));
    let (mut now, mut done) = (0, Vec::new());
    while let Some(first) = waiting.iter().map(|job| job.from_us).min() {
        now = first.max(now);
        let ends = now + write_durations.next().unwrap_or(mean);
        let there = waiting.iter().filter(|job| job.from_us <= now);
        let urgency = |job: &&Job| (job.due_us < ends, job.due_us, job.from_us, job.pool);
        let Some(pool) = there.min_by_key(urgency).map(|job| job.pool) else { break };
        let (served, left): (Vec<Job>, Vec<Job>) =
            waiting.into_iter().partition(|job| job.pool == pool && job.from_us <= now);
        done.extend(served.iter().map(|job| (job.node, ends)));
        (waiting, now) = (left, ends);
    }
    done
}

#[cfg(test)]
mod tests;
