//! What must hold at every moment, judged from outside of the machines: by what they say, and by what reaches ARM.

use std::collections::{BTreeMap, BTreeSet};

use pool_core::events;
use pool_core::ids::{AttemptId, Etag, LbName, PoolId, ServiceUid};
use pool_core::report::{Report, Subject, What};
use pool_core::route::{Delivery, PoolMessage, Said};
use pool_core::sample::{PoolState, Sample};
use pool_core::{queue, writer};
use serde_json::Value;
use simulator_models::arm::{ArmModel, Reply};

use crate::ccm::{pool_name, rules_of};
use crate::cluster::Cluster;
use crate::decode::items;
use crate::replica::Actor;

/// How long a Service must have had, or lacked, something for the controller to be held to it.
const NOTICED_US: u64 = 3_000_000;
/// How long after a pause the last write may still be sent: those that were under way.
const PAUSE_NOTICED_US: u64 = 30_000_000;
/// How long a Take may go unanswered.
const TAKE_US: u64 = 5_000_000;

/// A PUT that is about to be sent.
pub struct Put<'a> {
    /// The pool.
    pub pool: &'a PoolId,
    /// The entity tag that it carries.
    pub if_match: Option<&'a Etag>,
    /// Its body.
    pub body: &'a Value,
}

/// A Service as it was over time.
#[derive(Clone, Debug)]
struct Known {
    pools: BTreeSet<String>,
    rules: BTreeSet<String>,
    candidate: bool,
    /// Whether it has endpoints, and since when that is so.
    has: (bool, u64),
    /// When it last had endpoints for long enough to be noticed.
    had_until: u64,
    paused: Option<u64>,
}

/// Judges a world.
#[derive(Default)]
pub struct Watchdog {
    /// How long emptiness must last before a pool is emptied (G2).
    empty_confirm_us: u64,
    services: BTreeMap<String, Known>,
    /// Since when the controller may not see everything.
    blind_since: Option<u64>,
    busy_until: BTreeMap<LbName, u64>,
    own_operation: BTreeMap<LbName, String>,
    /// The entity tag of the load balancer just before the last PUT.
    tag_before: Option<String>,
    states: BTreeMap<Actor, PoolState>,
    told: BTreeSet<(Actor, AttemptId, ServiceUid, &'static str)>,
    takes: BTreeMap<(PoolId, AttemptId), u64>,
    /// Pools of which a PUT was accepted, or may have been, since they last counted as written.
    accepted: BTreeSet<PoolId>,
    /// The gauge of pools by state, as the recorder would have it.
    pub gauge: BTreeMap<PoolState, i64>,
    /// How many writes were counted as lost (W2).
    pub lost: u64,
    /// How many PUTs were sent.
    pub puts: u64,
    /// How many events were told.
    pub reports: u64,
}

impl Watchdog {
    /// One that has seen nothing.
    pub fn new(empty_confirm_us: u64) -> Watchdog {
        Watchdog { empty_confirm_us, ..Watchdog::default() }
    }

    /// The controller may not see everything from now on, or sees it again.
    pub fn blind(&mut self, now: u64, blind: bool) {
        self.blind_since = if blind { self.blind_since.or(Some(now)) } else { None };
    }

    /// Notes what the cluster is like.
    pub fn note(&mut self, now: u64, cluster: &Cluster) {
        let mut seen = BTreeSet::new();
        for service in cluster.services.values() {
            let families = || service.families.iter();
            let has = service.pods() > 0;
            let known = self.services.entry(service.uid()).or_insert_with(|| Known {
                pools: families().map(|family| pool_name(&service.key(), *family)).collect(),
                rules: families().map(|family| service.rule(*family)).collect(),
                candidate: false,
                has: (has, now),
                had_until: if has { now } else { 0 },
                paused: None,
            });
            if known.has.0 && (has || now >= known.has.1 + NOTICED_US) {
                known.had_until = now;
            }
            if known.has.0 != has {
                known.has = (has, now);
            }
            known.candidate = service.is_candidate();
            known.paused = service.paused.then(|| known.paused.unwrap_or(now));
            seen.insert(service.uid());
        }
        for (_, gone) in self.services.iter_mut().filter(|(uid, _)| !seen.contains(*uid)) {
            gone.candidate = false;
        }
    }

    /// Judges a PUT as it reaches ARM.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn before_put(&mut self, arm: &mut ArmModel, now: u64, put: &Put<'_>) -> Result<(), String> {
        arm.tick(now);
        self.puts += 1;
        let lb = &put.pool.lb;
        if self.busy_until.get(lb).is_some_and(|until| *until > now) {
            return Err(format!("W1: a second PUT on {lb} while the first is unanswered"));
        }
        let current = arm.etag(lb.as_str());
        self.tag_before.clone_from(&current);
        let given = put.if_match.map(Etag::as_str).ok_or("W2: a PUT without If-Match")?;
        if current.as_deref() != Some(given) {
            return Ok(()); // It will be refused: nothing is written.
        }
        if arm.is_updating(lb.as_str())
            && self.own_operation.get(lb).map(String::as_str) == current.as_deref()
        {
            return Err(format!("W2: a PUT on {lb} while our own operation runs there"));
        }
        let Some(pool) = arm.pool_json(lb.as_str(), put.pool.pool.as_str()) else {
            return Err(format!("D2: a PUT of {}, which does not exist", put.pool));
        };
        let owners = self.proof(put.pool, &pool)?;
        self.judge_pause(now, put.pool, &owners)?;
        let before = items(&pool["properties"]["loadBalancerBackendAddresses"]).len();
        let after = put.body["properties"]["loadBalancerBackendAddresses"].as_array();
        let after = after.ok_or("W3: a PUT without the address array")?.len();
        if after == 0 && before > 0 { self.judge_emptying(now, put.pool, &owners) } else { Ok(()) }
    }

    /// D2, from the model's own state: gives the Services whose rules use the pool.
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
            let mut known = self.services.values().filter(|known| known.rules.contains(&rule));
            let Some(owner) = known.find(|known| known.pools.contains(id.pool.folded())) else {
                return Err(format!("D2: a PUT of {id}, whose rule {rule} is of no Service of that name"));
            };
            owners.push(owner.clone());
        }
        Ok(owners)
    }

    fn judge_pause(&self, now: u64, id: &PoolId, owners: &[Known]) -> Result<(), String> {
        let since = owners.iter().filter_map(|owner| owner.paused).min();
        let noticed = since.is_some_and(|since| since + PAUSE_NOTICED_US < now);
        if noticed && self.blind_since.is_none() {
            return Err(format!("D1: a PUT of {id}, which is paused since {since:?}"));
        }
        Ok(())
    }

    /// G2: the last member of a live Service's pool goes only after its emptiness has lasted, and never because a
    /// source broke.
    fn judge_emptying(&self, now: u64, id: &PoolId, owners: &[Known]) -> Result<(), String> {
        for owner in owners.iter().filter(|owner| owner.candidate) {
            let (has, since) = owner.has;
            match self.blind_since {
                None => {
                    let too_soon = now < owner.had_until + self.empty_confirm_us;
                    if has && now >= since + NOTICED_US || too_soon {
                        return Err(format!("G2: {id} is emptied: {owner:?}"));
                    }
                }
                Some(blind) => {
                    // What it believes may be from before it went blind, but not from before that.
                    if has && since + NOTICED_US + self.empty_confirm_us < blind {
                        return Err(format!("G2: {id} is emptied by a broken source: {owner:?}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes how ARM took a PUT.
    pub fn after_put(&mut self, arm: &ArmModel, now: u64, put: &Put<'_>, reply: &Reply) {
        let lb = &put.pool.lb;
        let (until, accepted) = match reply {
            Reply::Answer(response) => {
                (now + response.latency_us, response.status < 300 || response.status >= 500)
            }
            Reply::Lost { latency_us } => (now + latency_us, true),
            Reply::Refused => (now, false),
        };
        self.busy_until.insert(lb.clone(), until);
        if accepted {
            self.accepted.insert(put.pool.clone());
        }
        // An entity tag that moved with the PUT is that of its own operation; whoever was refused moved none.
        let tag = arm.etag(lb.as_str());
        if tag != self.tag_before && arm.is_updating(lb.as_str()) {
            self.own_operation.insert(lb.clone(), tag.unwrap_or_default());
        }
    }

    /// Judges one step of a machine by what it said.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn on_step(
        &mut self,
        now: u64,
        who: &Actor,
        input: Option<&Delivery>,
        said: &[Said],
    ) -> Result<(), String> {
        if let Actor::Pool(pool, _) = who {
            return self.on_pool_step(who, pool, input, said);
        }
        if let Some(Delivery::Writer(writer::In::Taken(pool, attempt, _))) = input {
            self.takes.remove(&(pool.clone(), *attempt));
        }
        for said in said {
            if let Said::Writer(writer::Out::Take(pool, attempt)) = said {
                self.takes.insert((pool.clone(), *attempt), now);
            }
            if let Said::Writer(writer::Out::Finished(pool, _, queue::Outcome::Written { .. })) = said
                && !self.accepted.remove(pool)
            {
                return Err(format!("W2: {pool} counts as written, and no PUT of it was accepted"));
            }
        }
        Ok(())
    }

    fn on_pool_step(
        &mut self,
        who: &Actor,
        pool: &PoolId,
        input: Option<&Delivery>,
        said: &[Said],
    ) -> Result<(), String> {
        let before = self.states.get(who).copied();
        let finished = match input {
            Some(Delivery::Pool(_, PoolMessage::In(queue::In::Finished(attempt, _)))) => Some(*attempt),
            Some(Delivery::Pool(_, PoolMessage::In(queue::In::Take(attempt)))) => {
                let answers = |said: &&Said| matches!(said, Said::Pool(queue::Out::Taken(of, id, _)) if of == pool && id == attempt);
                if said.iter().filter(answers).count() != 1 {
                    return Err(format!("Q3: {pool} does not answer the Take {attempt}"));
                }
                None
            }
            Some(_) | None => None,
        };
        for said in said {
            if let Said::Pool(queue::Out::Report(report)) = said {
                self.on_report(who, pool, before, finished, report)?;
            }
            if let Said::Pool(queue::Out::Sample(Sample::PoolState { from, to })) = said {
                if self.states.get(who) != from.as_ref() {
                    return Err(format!("E2: {pool} leaves {from:?} and was counted {before:?}"));
                }
                match to {
                    Some(to) => self.states.insert(who.clone(), *to),
                    None => self.states.remove(who),
                };
            }
        }
        let is_due = said.iter().any(|said| matches!(said, Said::Pool(queue::Out::Due(..))));
        let state = self.states.get(who).copied();
        if is_due && matches!(state, Some(PoolState::Paused | PoolState::Parked)) {
            return Err(format!("Q5, D1: {pool} is due while it is {state:?}"));
        }
        Ok(())
    }

    /// E1: one event of each reason per Service and attempt, and none but for an outcome.
    fn on_report(
        &mut self,
        who: &Actor,
        pool: &PoolId,
        before: Option<PoolState>,
        finished: Option<AttemptId>,
        report: &Report,
    ) -> Result<(), String> {
        self.reports += 1;
        let reason = match report.what {
            What::Updated { .. } => "updated",
            What::Retrying { .. } => "retrying",
            What::FailedTerminal { .. } | What::FailedExhausted { .. } => "failed",
            What::NotManageable { .. }
            | What::Shared { .. }
            | What::Held { .. }
            | What::DataError { .. }
            | What::Undecodable { .. } => return Ok(()),
        };
        let Some(attempt) = finished.filter(|_| before == Some(PoolState::Attempting)) else {
            return Err(format!(
                "E1: {pool} reports {reason} while it is {before:?}, outcome of {finished:?}"
            ));
        };
        for subject in &report.subjects {
            if let Subject::Service(service) = subject
                && !self.told.insert((who.clone(), attempt, service.uid.clone(), reason))
            {
                return Err(format!("E1: {pool} reports {reason} twice for attempt {attempt}"));
            }
        }
        Ok(())
    }

    /// Takes in what reaches the recorder.
    pub fn on_metric(&mut self, sample: &Sample) {
        self.lost += u64::from(*sample == Sample::LostWrite);
        if let Sample::PoolState { from, to } = sample {
            for (state, by) in [(from, -1), (to, 1)] {
                if let Some(state) = state {
                    *self.gauge.entry(*state).or_default() += by;
                }
            }
        }
    }

    /// Whether every Take was answered in time.
    ///
    /// # Errors
    /// The one that was not.
    pub fn takes_answered(&self, now: u64) -> Result<(), String> {
        let late = self.takes.iter().find(|(_, since)| **since + TAKE_US < now);
        late.map_or(Ok(()), |(take, since)| Err(format!("Q3: the Take {take:?} of {since} is not answered")))
    }

    /// The states under which pools are counted, by what they said.
    pub fn counted(&self) -> BTreeMap<PoolState, i64> {
        let mut counted = BTreeMap::new();
        for state in self.states.values() {
            *counted.entry(*state).or_default() += 1;
        }
        counted
    }
}

/// Whether a delivery tells something of how things go, and not only how they look; for the trace.
pub fn is_telling(delivery: &Delivery) -> bool {
    !matches!(
        delivery,
        Delivery::Metrics(_)
            | Delivery::Board(_)
            | Delivery::Host(_)
            | Delivery::Events(events::In::Posted { .. })
    )
}
