//! Rules for each PUT: when it is sent, when it arrives, and its outcome at ARM.

use std::collections::{BTreeMap, BTreeSet};

use model::ids::{AttemptId, Etag, LbName, PoolId};
use model::sample::GateClass;
use serde_json::Value;
use simulator_models::arm::{ArmModel, Reply};

use super::drains::stripped;
use super::served::is_listed;
use super::{Known, NOTICED_US, PAUSE_NOTICED_US, Watchdog};
use crate::azure::CLIENT_TIMEOUT_US;
use crate::ccm::rules_of;
use crate::decode::{items, text};

pub(super) const ADDRESSES: &str = "loadBalancerBackendAddresses";

/// A PUT.
pub struct Put<'a> {
    /// Process that sends it.
    pub process: usize,
    /// Attempt.
    pub attempt: AttemptId,
    /// Pool.
    pub pool: &'a PoolId,
    /// Entity tag.
    pub if_match: Option<&'a Etag>,
    /// Document that was edited.
    pub base: &'a Value,
    /// Body.
    pub body: &'a Value,
}

/// A PUT in flight.
struct Window {
    process: usize,
    pool: PoolId,
    attempt: AttemptId,
    until: u64,
    /// True if it could be sent without the shared Lease (W7).
    bypasses: bool,
}

/// All PUTs.
#[derive(Default)]
pub struct Puts {
    open: Vec<Window>,
    /// Last operation that one of our processes has started: the process, and the resulting entity tag.
    own_operation: BTreeMap<LbName, (usize, String)>,
    /// Entity tag of the load balancer just before the last PUT, the pool then, and whether another client's write
    /// was in flight there.
    tag_before: Option<String>,
    pool_before: Value,
    was_busy: bool,
}

impl Puts {
    /// Returns whether a PUT is in flight, of this process or of any; including PUTs that need no shared Lease, or
    /// not.
    pub fn is_open(&self, now: u64, process: Option<usize>, bypasses: bool) -> bool {
        let mut open = self.open.iter().filter(|put| put.until > now && (bypasses || !put.bypasses));
        open.any(|put| process.is_none_or(|process| process == put.process))
    }
}

impl Watchdog {
    /// Checks a PUT when it is sent.
    ///
    /// # Errors
    /// A violation.
    pub fn sends_put(&mut self, now: u64, put: &Put<'_>) -> Result<(), String> {
        self.puts += 1;
        self.within[put.process].put_at.insert(put.pool.clone(), now);
        let lb = &put.pool.lb;
        self.calls.open.retain(|other| other.until > now);
        for other in &self.calls.open {
            let is_unknown = other.process != put.process && self.tenure.is_unknown(now);
            if other.pool.lb == *lb && !is_unknown {
                return Err(format!("W1: a second PUT on {lb} while the first is unanswered"));
            }
            if other.process != put.process && !self.tenure.is_unknown(now) {
                return Err(format!(
                    "W8: two writers: a PUT of {} while another process's is unanswered",
                    put.pool
                ));
            }
        }
        let until = now + CLIENT_TIMEOUT_US;
        let (process, pool, attempt) = (put.process, put.pool.clone(), put.attempt);
        let bypasses = self.may_bypass(put);
        self.calls.open.push(Window { process, pool, attempt, until, bypasses });
        self.check_permit(now, put)?;
        self.versions.check(put.pool, &self.within[put.process].horizon.of(put.attempt))?;
        check_unknown_fields(put)?;
        check_networks(put)?;
        self.check_admin(now, put)
    }

    /// Checks W7 and W8: the process that writes leads, and holds the shared Lease unless the PUT may be sent without
    /// it.
    fn check_permit(&self, now: u64, put: &Put<'_>) -> Result<(), String> {
        let Some(identity) = &self.within[put.process].identity else { return Ok(()) };
        self.tenure.may_lead(now, identity)?;
        match self.tenure.may_hold(now) {
            Err(reason) if !self.may_bypass(put) => Err(format!("{reason}: {}", self.admin_changes(put))),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Checks any call when it is sent.
    ///
    /// # Errors
    /// A violation.
    pub fn sends(&mut self, now: u64, process: usize, class: GateClass) -> Result<(), String> {
        self.within[process].sender.sends(now, class)
    }

    /// Checks a PUT when it reaches ARM.
    ///
    /// # Errors
    /// A violation.
    pub fn before_put(&mut self, arm: &mut ArmModel, now: u64, put: &Put<'_>) -> Result<(), String> {
        arm.tick(now);
        self.check_permit(now, put).map_err(|reason| format!("{reason} (it arrives only now)"))?;
        let lb = &put.pool.lb;
        let current = arm.etag(lb.as_str());
        self.calls.tag_before.clone_from(&current);
        self.calls.was_busy = arm.is_updating(lb.as_str());
        self.calls.pool_before = arm.pool_json(lb.as_str(), put.pool.pool.as_str()).unwrap_or_default();
        let given = put.if_match.map(Etag::as_str).ok_or("W2: a PUT without If-Match")?;
        if current.as_deref() != Some(given) {
            return Ok(()); // It will be refused: nothing is written.
        }
        if arm.is_updating(lb.as_str())
            && let Some((process, tag)) = self.calls.own_operation.get(lb)
            && current.as_ref() == Some(tag)
        {
            return Err(format!(
                "W2: a PUT on {lb} of process {} while an operation of process {process} runs there",
                put.process
            ));
        }
        let Some(pool) = arm.pool_json(lb.as_str(), put.pool.pool.as_str()) else {
            return Err(format!("D2: a PUT of {}, which does not exist", put.pool));
        };
        if items(&pool["properties"][ADDRESSES]) != items(&put.base["properties"][ADDRESSES]) {
            return Err(format!("W2: a PUT of {} from an outdated document", put.pool));
        }
        if is_listed(put.pool) {
            return self.check_listed(now, put);
        }
        // If an attempt has lost its membership part, only its admin part continues.
        if self.is_admin_only(put) || stripped(put.base) == stripped(put.body) {
            if self.tenure.may_hold(now).is_err() && arm.is_updating(lb.as_str()) {
                return Err(format!("W7: a Down without the shared Lease while {lb} is being written"));
            }
            return Ok(()); // It changes nothing that belongs to a Service.
        }
        let owners = self.proof(put.pool, &pool)?;
        self.check_pause(now, put, &owners)?;
        let before = items(&pool["properties"][ADDRESSES]).len();
        let after = put.body["properties"][ADDRESSES].as_array();
        let after = after.ok_or("W3: a PUT without the address array")?.len();
        let is_emptied = after == 0 && before > 0;
        if is_emptied && self.guarded { self.check_emptying(now, put, &owners) } else { Ok(()) }
    }

    /// Returns the Services whose rules use the pool, from the model's own state (D2).
    fn proof(&self, id: &PoolId, pool: &Value) -> Result<Vec<Known>, String> {
        let properties = &pool["properties"];
        if !properties["outboundRule"].is_null() || !properties["inboundNatRules"].is_null() {
            return Err(format!("D2: a PUT of {id}, which an outbound or NAT rule uses"));
        }
        let rules = rules_of(pool);
        if rules.is_empty() {
            return Err(format!("D2: a PUT of {id}, which no rule uses"));
        }
        let mut owners = Vec::new();
        for rule in rules {
            let mut known = self.services.values().filter(|known| known.prefix.owns(&rule));
            let Some(owner) = known.find(|known| known.pools.contains(id.pool.folded())) else {
                return Err(format!("D2: a PUT of {id}, whose rule {rule} is of no Service of that name"));
            };
            owners.push(owner.clone());
        }
        Ok(owners)
    }

    fn check_pause(&self, now: u64, put: &Put<'_>, owners: &[Known]) -> Result<(), String> {
        let since = owners.iter().filter_map(|owner| owner.paused).min();
        let noticed = since.is_some_and(|since| since + PAUSE_NOTICED_US < now);
        if noticed && self.within[put.process].blind_since.is_none() {
            return Err(format!("D1: a PUT of {}, which is paused since {since:?}", put.pool));
        }
        Ok(())
    }

    /// Checks G2: the last member of an existing Service's pool is removed only after `emptyConfirm`, and never
    /// because of a broken source.
    fn check_emptying(&self, now: u64, put: &Put<'_>, owners: &[Known]) -> Result<(), String> {
        let id = put.pool;
        let released_at = self.within[put.process].guards.released_at(id);
        for owner in owners.iter().filter(|owner| owner.candidate) {
            let Some(endpoints) = owner.endpoints.get(id.pool.folded()) else { continue };
            let (has, since) = endpoints.has;
            // The operator has released the held removals since the Service lost its last endpoint.
            if !has && released_at.is_some_and(|released_at| released_at >= since) {
                continue;
            }
            match self.within[put.process].blind_since {
                None => {
                    let too_soon = now < endpoints.had_until + self.empty_confirm_us;
                    if has && now >= since + NOTICED_US || too_soon {
                        return Err(format!("G2: {id} is emptied: {owner:?}"));
                    }
                }
                Some(blind) => {
                    // Its knowledge may be from before it became blind, but not from earlier.
                    let long = has && since + NOTICED_US + self.empty_confirm_us < blind;
                    // Two lists with the same error look correct; G4 covers losses of many pools.
                    if long && !self.within[put.process].guards.is_listed_twice(id, &owner.uid) {
                        return Err(format!("G2: {id} is emptied by a broken source: {owner:?}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Records that a PUT ends without an answer: its process must assume that it may have been applied.
    pub fn in_doubt(&mut self, process: usize, pool: &PoolId) {
        self.within[process].accepted.insert(pool.clone());
    }

    /// Records the outcome of a PUT at ARM, and when its answer arrives.
    pub fn after_put(&mut self, arm: &ArmModel, now: u64, put: &Put<'_>, reply: &Reply, arrives: u64) {
        let lb = &put.pool.lb;
        if arrives >= now + CLIENT_TIMEOUT_US {
            self.in_doubt(put.process, put.pool);
        }
        let mut may_count = false;
        let accepted = match reply {
            // Only the model knows whether it was applied.
            Reply::Answer(response) if response.status == 408 => {
                self.in_doubt(put.process, put.pool);
                may_count = true;
                false
            }
            Reply::Answer(response) => response.status < 300 || response.status >= 500,
            Reply::Lost { .. } => true,
            Reply::Refused => {
                self.in_doubt(put.process, put.pool);
                false
            }
        };
        if accepted || may_count {
            let before = std::mem::take(&mut self.calls.pool_before);
            let busy = self.calls.was_busy || may_count;
            self.downs_sent(lb.as_str(), put.pool.pool.as_str(), &before, put.body, busy);
        }
        for window in self.calls.open.iter_mut().filter(|open| open.process == put.process) {
            if window.pool == *put.pool && window.attempt == put.attempt {
                window.until = window.until.min(arrives);
            }
        }
        let is_unknown = self.tenure.is_unknown(now);
        if accepted {
            let within = &mut self.within[put.process];
            if within.horizon.knows(put.attempt) {
                within.accepted.insert(put.pool.clone());
            }
            if !is_unknown {
                self.versions.accept(put.pool, &within.horizon.of(put.attempt));
            }
        }
        // An entity tag that changed with the PUT is that of its own operation; a refused PUT changes none.
        let tag = arm.etag(lb.as_str());
        if tag != self.calls.tag_before && arm.is_updating(lb.as_str()) && !is_unknown {
            self.calls.own_operation.insert(lb.clone(), (put.process, tag.unwrap_or_default()));
        }
    }
}

/// Checks W3: if entries name their network by a subnet, new ones name one of these subnets, and no network is added
/// to the pool.
fn check_networks(put: &Put<'_>) -> Result<(), String> {
    let [before, after] = [put.base, put.body].map(|document| items(&document["properties"][ADDRESSES]));
    let subnet = |entry: &Value| entry["properties"]["subnet"]["id"].as_str().map(str::to_owned);
    let subnets: BTreeSet<String> = before.iter().filter_map(subnet).collect();
    if subnets.is_empty() {
        return Ok(());
    }
    let known: BTreeSet<&str> = before.iter().map(|entry| text(&entry["name"])).collect();
    let mut new = after.iter().filter(|entry| !known.contains(text(&entry["name"])));
    if let Some(new) = new.find(|entry| subnet(entry).is_none_or(|id| !subnets.contains(&id))) {
        return Err(format!("W3: {new} of {} has none of the subnets {subnets:?}", put.pool));
    }
    let [had, has] = [put.base, put.body].map(|document| &document["properties"]["virtualNetwork"]);
    if had != has {
        return Err(format!("W3: {} gets the network {has} beside subnets", put.pool));
    }
    Ok(())
}

/// Checks W3: unknown fields survive, at each level of the document.
fn check_unknown_fields(put: &Put<'_>) -> Result<(), String> {
    let unknown =
        |value: &Value| [value["fieldOfTheFuture"].clone(), value["properties"]["fieldOfTheFuture"].clone()];
    let mut is_unchanged = unknown(put.base) == unknown(put.body);
    let by_ip = |document: &Value| -> BTreeMap<String, [Value; 2]> {
        let entries = items(&document["properties"][ADDRESSES]).iter();
        entries.map(|entry| (text(&entry["properties"]["ipAddress"]).to_owned(), unknown(entry))).collect()
    };
    let before = by_ip(put.base);
    for (ip, fields) in by_ip(put.body) {
        is_unchanged &= before.get(&ip).is_none_or(|before| *before == fields);
    }
    if is_unchanged { Ok(()) } else { Err(format!("W3: unknown fields of {} are lost", put.pool)) }
}
