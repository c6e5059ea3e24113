//! The local-service updater: the changes that EndpointSlices queue, and the drain at each tick. Its defects are kept.
//! It compares one slice with its previous version, and new and deleted slices queue nothing. It compares IPs without
//! regard to their family, and drops failed changes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::facts::{Facts, Key, Service, Slice, family_of};
use super::operation::{Action, Client, Outcome};
use super::reconcile::{Context, Next};
use super::{balancer, pool};
use crate::arm::random::Random;
use crate::kube::build::Family;

/// State of a local Service since its last successful reconcile.
#[derive(Clone, Debug)]
struct Info {
    /// Names of its pools.
    pools: Vec<String>,
    /// Lower-case name of its load balancer.
    balancer: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Add,
    Remove,
}

#[derive(Clone, Debug)]
struct Queued {
    service: Key,
    balancer: String,
    pool: String,
    change: Change,
    ips: Vec<String>,
}

/// The queue, and the state that decides whether a change matters.
#[derive(Debug, Default)]
pub(super) struct Updater {
    known: BTreeMap<Key, Info>,
    queue: Vec<Queued>,
}

impl Updater {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Records a reconciled Service: the updater handles local Services from now on, and no longer handles others.
    pub(super) fn reconciled(&mut self, service: &Service, body: &mut Value, facts: &Facts) {
        let key = service.key();
        if !service.local {
            self.known.remove(&key);
            return;
        }
        let pools: Vec<String> = service.families.iter().map(|family| service.own_pool(*family)).collect();
        let info = Info { pools: pools.clone(), balancer: service.balancer.to_lowercase() };
        self.known.insert(key.clone(), info);
        // Slices may have changed since the hosts were written. Without slices, nothing is compared.
        let Some(hosts) = facts.hosts(&key) else { return };
        let expected = facts.ips_of(&hosts);
        let found = |name: String| Some((pool::ips(balancer::pool(body, &name)?), name));
        let current: Vec<_> = pools.into_iter().filter_map(found).collect();
        self.compare(&key, &service.balancer.to_lowercase(), current, &expected);
    }

    pub(super) fn forget(&mut self, key: &str) {
        self.known.remove(key);
    }

    /// Drops queued changes of a Service that leaves its load balancer.
    pub(super) fn forget_changes(&mut self, key: &str) {
        self.queue.retain(|queued| !queued.service.eq_ignore_ascii_case(key));
    }

    /// Queues the changes that follow from a changed slice.
    pub(super) fn slice_changed(&mut self, old: &Slice, new: &Slice, facts: &Facts) {
        let Some(info) = self.known.get(&new.service).cloned() else { return };
        let previous = facts.ips_of(&old.nodes);
        let current = facts.ips_of(&new.nodes);
        let pools = info.pools.into_iter().map(|name| (previous.clone(), name)).collect();
        self.compare(&new.service, &info.balancer, pools, &current);
    }

    /// Queues the changes from the assumed IPs of each pool to the expected ones; IPv6 first.
    fn compare(
        &mut self,
        service: &str,
        balancer: &str,
        mut pools: Vec<(BTreeSet<String>, String)>,
        expected: &BTreeSet<String>,
    ) {
        let is_v6 = |name: &str| name.to_lowercase().ends_with("-ipv6");
        pools.sort_by_key(|(_, name)| !is_v6(name));
        for (previous, pool) in pools {
            let family = if is_v6(&pool) { Family::V6 } else { Family::V4 };
            let expected: Vec<String> =
                expected.iter().filter(|ip| family_of(ip) == family).cloned().collect();
            let surplus: Vec<String> = previous.iter().filter(|ip| !expected.contains(ip)).cloned().collect();
            if surplus.is_empty() && previous.len() == expected.len() {
                continue;
            }
            for (change, ips) in [(Change::Remove, surplus), (Change::Add, expected)] {
                if !ips.is_empty() {
                    let (service, balancer) = (service.to_owned(), balancer.to_owned());
                    self.queue.push(Queued { service, balancer, pool: pool.clone(), change, ips });
                }
            }
        }
    }

    /// Takes the whole queue. Irrelevant changes are dropped, and the others are grouped by pool, in random order.
    pub(super) fn drain(&mut self, random: &mut Random) -> Drain {
        let mut groups: BTreeMap<(String, String), Vec<Queued>> = BTreeMap::new();
        for queued in std::mem::take(&mut self.queue) {
            let info = self.known.get(&queued.service.to_lowercase());
            if info.is_some_and(|info| info.balancer.eq_ignore_ascii_case(&queued.balancer)) {
                groups.entry((queued.balancer.clone(), queued.pool.clone())).or_default().push(queued);
            }
        }
        let mut left: Vec<_> =
            groups.into_iter().map(|((balancer, pool), changes)| Group { balancer, pool, changes }).collect();
        for at in (1..left.len()).rev() {
            let other = random.next_u64() % (at as u64 + 1);
            left.swap(at, usize::try_from(other).unwrap_or(0));
        }
        Drain { left, reading: false, reports: Vec::new() }
    }
}

#[derive(Debug)]
struct Group {
    balancer: String,
    pool: String,
    changes: Vec<Queued>,
}

/// Report about a finished group: nothing, success, or the failure.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GroupReport {
    Updated(Key),
    Failed(Key, String),
}

/// One drain: the groups, one after the other.
#[derive(Debug)]
pub(super) struct Drain {
    left: Vec<Group>,
    /// True if the pool of the last group is being read; false if it is being written.
    reading: bool,
    /// Reports of groups that have ended since the last call.
    pub(super) reports: Vec<GroupReport>,
}

impl Drain {
    pub(super) fn resume(&mut self, outcome: Option<Outcome>, context: &mut Context) -> Next {
        match (outcome, self.reading) {
            (None, _) => {}
            (Some(Ok(mut body)), true) => {
                if let Some(action) = self.write(&mut body, context) {
                    self.reading = false;
                    return Next::Do(action);
                }
                self.end(None);
            }
            (Some(Ok(_)), false) => self.end(None),
            (Some(Err(failure)), _) => self.end(Some((failure.status, failure.error_text))),
        }
        match self.left.last() {
            Some(group) => {
                self.reading = true;
                Next::Do(Action::get(Client::Pools, context.settings.pool(&group.balancer, &group.pool)))
            }
            None => Next::Done(Ok(())),
        }
    }

    /// Returns the PUT for the changes of the group, if any.
    fn write(&self, body: &mut Value, context: &Context) -> Option<Action> {
        let group = self.left.last()?;
        let mut changed = false;
        for queued in &group.changes {
            changed |= match queued.change {
                Change::Add => pool::add(body, &queued.ips, context.facts, &context.settings.network),
                Change::Remove => pool::remove(body, &queued.ips.iter().cloned().collect()),
            };
        }
        if context.settings.drops_unknown_fields {
            pool::keep_known_fields(body);
        }
        // The cache of load balancers is not updated; upstream drops it here.
        let path = context.settings.pool(&group.balancer, &group.pool);
        changed.then(|| Action::put_pool(path, body.clone()))
    }

    /// Reports the end of a group to the Service of the first change only; a missing pool is not reported.
    fn end(&mut self, failure: Option<(u16, String)>) {
        let Some(first) = self.left.pop().and_then(|group| group.changes.into_iter().next()) else { return };
        match failure {
            None => self.reports.push(GroupReport::Updated(first.service)),
            Some((404, _)) => {}
            Some((_, error_text)) => self.reports.push(GroupReport::Failed(first.service, error_text)),
        }
    }
}
