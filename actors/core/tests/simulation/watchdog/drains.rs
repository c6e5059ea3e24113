//! Admin states (chapter 8): the changes that a PUT may make, by the state of nodes, records and entries (N1, N2,
//! N4); and the requests that a machine may send.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::config_map::ConfigMapRequest;
use model::leadership::Leadership;
use model::policy::OperatorPolicy;
use model::report::EventKind;
use pool_core::route::{Delivery, Output};
use serde_json::Value;

use super::entries::{DOWN, EntryId, UP, entries_of};
use super::nodes::NOTICED_US;
use super::puts::ADDRESSES;
use super::served::is_listed;
use super::{Put, Watchdog};
use crate::ccm::EXCLUDED;

/// Time for which a process may not know that the admin state is disabled: a read each 15 s, some of which fail, and
/// edges that stall.
const OFF_NOTICED_US: u64 = 150_000_000;

/// Inputs of the AdminState machine of a process.
#[derive(Default)]
pub(super) struct AdminInputs {
    policy: Option<Arc<OperatorPolicy>>,
    leads: bool,
}

impl Watchdog {
    /// Returns whether no pool has given a level to the attempt of a PUT. Such a PUT may change only admin states.
    pub(super) fn is_admin_only(&self, put: &Put<'_>) -> bool {
        !self.within[put.process].horizon.knows(put.attempt)
    }

    /// Checks N1-N4: an entry of a draining node is Down after each PUT, from any machine (W1). No other entry goes
    /// Down, and only a Down of ours ends. If no pool has given a level, nothing else changes (N3).
    pub(super) fn check_admin(&mut self, now: u64, put: &Put<'_>) -> Result<(), String> {
        let (lb, pool) = (put.pool.lb.as_str(), put.pool.pool.as_str());
        let before = entries_of(put.base);
        let mut changes = 0;
        for (backend, state) in entries_of(put.body) {
            let entry = EntryId::new(lb, pool, &backend);
            let known = before.get(&backend).copied();
            let was_down = known == Some(DOWN);
            changes += u64::from(known.is_some_and(|known| known != state));
            if is_listed(put.pool) {
                self.check_source(now, put, (&entry, known, state))?;
                continue;
            }
            if state == DOWN && !was_down {
                self.check_down(now, put, &entry)?;
            } else if state != DOWN && was_down {
                self.check_restore(now, put, &entry)?;
            } else if known.is_some_and(|known| known != state) || known.is_none() && state == UP {
                return Err(format!("N4: {entry} was {known:?} and becomes {state}"));
            }
            if state != DOWN {
                self.check_not_down(now, put, &entry, state)?;
            }
        }
        if changes > 0 {
            *self.admin_puts.entry(put.pool.clone()).or_default() += 1;
        }
        if self.is_admin_only(put) {
            if stripped(put.base) != stripped(put.body) {
                return Err(format!("N3: a PUT of {} for its admin states changes more", put.pool));
            }
            if pool == EXCLUDED {
                return Err(format!("N2: a PUT of {}, which is excluded", put.pool));
            }
            if changes == 0 {
                return Err(format!("N2: a PUT of {} that changes nothing", put.pool));
            }
        }
        Ok(())
    }

    /// Checks N1 and N4: an entry goes Down only if its node drains and was recorded before.
    fn check_down(&self, now: u64, put: &Put<'_>, entry: &EntryId) -> Result<(), String> {
        if entry.is_excluded() {
            return Err(format!("N2: {entry} goes Down, and its pool is excluded"));
        }
        if self.within[put.process].is_off || self.records.off.holds_for(now, OFF_NOTICED_US) {
            return Err(format!("N4: {entry} goes Down while the admin state is switched off"));
        }
        let blind = self.within[put.process].blind_since.is_some();
        let had = || self.nodes.all.iter().filter(|(_, node)| node.backends.contains_key(&entry.backend));
        let sees_all_since = self.within[put.process].sees_all_since();
        let leaves = self.nodes.leaving(now, sees_all_since, &entry.backend).next().is_some();
        if !leaves && !blind {
            return Err(format!("N1: {entry} goes Down, and none of its nodes drains"));
        }
        let mut leaving = had().map(|(uid, _)| uid);
        if !leaving.any(|uid| self.records.held(now, uid, &entry.backend)) {
            return Err(format!("N4: {entry} goes Down without a record"));
        }
        Ok(())
    }

    /// Checks N4: a Down ends only if it is ours, and its node exists and does not drain.
    fn check_restore(&self, now: u64, put: &Put<'_>, entry: &EntryId) -> Result<(), String> {
        if !self.records.may_be_ours(now, entry) || self.records.is_exception(now, entry) {
            return Err(format!("N4: the Down of {entry} is not ours to end"));
        }
        let gives_back = self.within[put.process].is_off || self.records.off.held_within(now, OFF_NOTICED_US);
        let mut owners = self.nodes.all.values();
        let is_there = owners.any(|node| {
            let has = node.backends.get(&entry.backend);
            has.is_some_and(|has| has.held_within(now, NOTICED_US)) && node.there.held_within(now, NOTICED_US)
        });
        if !is_there && !gives_back && self.within[put.process].blind_since.is_none() {
            return Err(format!("S1: the Down of {entry} ends, and its node does not exist"));
        }
        Ok(())
    }

    /// Checks N4: an entry whose node drains and is recorded is Down after each PUT.
    fn check_not_down(&self, now: u64, put: &Put<'_>, entry: &EntryId, state: &str) -> Result<(), String> {
        let within = &self.within[put.process];
        let may_not_know = within.blind_since.is_some() || within.started_at + NOTICED_US >= now;
        let is_off = self.is_off || self.records.off.held_within(now, OFF_NOTICED_US);
        if may_not_know || is_off || entry.is_excluded() {
            return Ok(());
        }
        let Some((uid, node)) = self.nodes.owner(&entry.backend) else { return Ok(()) };
        // Exceptions are never written, even after another client has ended its Down (N4).
        if self.records.was_exception(now, entry) {
            return Ok(());
        }
        let recorded = self.records.holds_steadily(now, uid, &entry.backend);
        if node.leaves.holds_for(now, NOTICED_US) && recorded {
            return Err(format!("N4: {entry} is of {}, which drains, and is {state} in a PUT", node.name));
        }
        Ok(())
    }

    /// Returns whether a PUT may be sent without the shared Lease: if that is allowed, only for a Down, with the
    /// entity tag of a pool without operations (W7).
    pub(super) fn may_bypass(&self, put: &Put<'_>) -> bool {
        let (before, after) = (entries_of(put.base), entries_of(put.body));
        let goes_down =
            |(backend, state): (&String, &&str)| *state == DOWN && before.get(backend) != Some(&DOWN);
        self.bypass
            && after.keys().eq(before.keys())
            && after.iter().any(goes_down)
            && put.if_match.is_some()
            && put.base["properties"]["provisioningState"] == "Succeeded"
    }

    /// Returns the changes of admin states in a PUT, as text.
    pub(super) fn admin_changes(&self, put: &Put<'_>) -> String {
        let before = entries_of(put.base);
        let mut after: BTreeMap<String, &str> = entries_of(put.body);
        after.retain(|backend, state| before.get(backend) != Some(state));
        let (pool, state) = (put.pool, &put.base["properties"]["provisioningState"]);
        format!("{pool} is {state}, admin states alone: {}, {after:?}", self.is_admin_only(put))
    }

    /// Checks a step of the AdminState machine (C4, G6, N4): a process that does not lead, or only observes, writes
    /// nothing. A process that knows that the admin state is disabled sets no node Down.
    pub(super) fn on_admin_state_step(
        &mut self,
        process: usize,
        input: Option<&Delivery>,
        outputs: &[Output],
    ) -> Result<(), String> {
        let inputs = &mut self.within[process].drains;
        if let Some(Delivery::AdminState(input)) = input {
            if let nodes::In::OperatorPolicy { policy, .. } = input {
                inputs.policy = Some(Arc::clone(policy));
            } else if let nodes::In::Leadership(leadership) = input {
                inputs.leads = match leadership {
                    Leadership::Leading { .. } => true,
                    Leadership::Standby => false,
                };
            }
        }
        let acts = inputs.leads && inputs.policy.as_ref().is_some_and(|policy| !policy.only_observes());
        let is_off = inputs.policy.as_ref().is_some_and(|policy| policy.admin_state_off);
        for output in outputs {
            let Output::AdminState(output) = output else { continue };
            let writes = match output {
                nodes::Out::Taint(..) => Some("a taint"),
                nodes::Out::ConfigMap(_, ConfigMapRequest::Create(_) | ConfigMapRequest::Replace(..)) => {
                    Some("a record")
                }
                nodes::Out::Draining(set) if is_off && !set.addresses.is_empty() => {
                    return Err(format!(
                        "N4: the set contains {:?} while the admin state is switched off",
                        set.addresses
                    ));
                }
                nodes::Out::Due(pool, Some(_)) if pool.pool.as_str() == EXCLUDED => {
                    return Err(format!("N2: {pool} is due, and is excluded"));
                }
                nodes::Out::Report(report) => {
                    self.reports += 1;
                    self.left.waits += u64::from(matches!(report.what, EventKind::AdminHeld { .. }));
                    None
                }
                nodes::Out::Ended(_)
                | nodes::Out::Draining(_)
                | nodes::Out::DrainingAddresses(_)
                | nodes::Out::Due(..)
                | nodes::Out::Opened(_)
                | nodes::Out::ReadLoadBalancers
                | nodes::Out::NoticeIgnored(..)
                | nodes::Out::ConfigMap(_, ConfigMapRequest::Get | ConfigMapRequest::Watch(..))
                | nodes::Out::Node(..)
                | nodes::Out::View(_)
                | nodes::Out::Answer(..)
                | nodes::Out::Release(..)
                | nodes::Out::Metric(_) => None,
            };
            if let Some(what) = writes.filter(|_| !acts) {
                return Err(format!("G6, N4: process {process} writes {what} without being allowed to"));
            }
            self.record_admin_request(process, output);
        }
        Ok(())
    }
}

/// Returns a pool without the admin states of its addresses.
pub(super) fn stripped(pool: &Value) -> Value {
    let mut pool = pool.clone();
    if let Some(entries) = pool["properties"][ADDRESSES].as_array_mut() {
        for entry in entries {
            if let Some(properties) = entry["properties"].as_object_mut() {
                properties.shift_remove("adminState");
            }
        }
    }
    pool
}
