//! Which process may write, by the true state of the two Lease objects: the conditions of a PUT when it is sent and
//! when it arrives (W7, W8), and the limits of a write of a Lease.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::ids::PoolId;
use model::lease::LeaseName;
use serde_json::Value;

use crate::clock::wall;
use crate::decode::text;
use crate::leases::{OURS, renew_time};

/// `Elected`'s duration (W8).
const TERM_US: u64 = 45_000_000;
/// Time after a hold's end within which its holder's last PUT may still arrive (W8).
const SETTLE_US: u64 = 20_000_000;
/// Assumed duration of a foreign hold (W7).
const FOREIGN_US: i64 = 900_000_000;
/// Largest error of a replica's clocks, in microseconds.
const CLOCKS_US: u64 = 5_000_000;
/// Longest hold (W7), and how much later its last renewal may still arrive.
const MAX_HOLD_US: u64 = 60_000_000 + 35_000_000;
/// Maximum time until a process detects the loss of its leadership.
const NOTICES_LOSS_US: u64 = 60_000_000;

/// State of one Lease.
#[derive(Clone, Debug, Default)]
struct Hold {
    version: String,
    holder: String,
    acquired: String,
    taken_at: u64,
    written_at: u64,
    renewed: i64,
    duration_us: i64,
}

impl Hold {
    fn of(now: u64, object: &Value, before: &Hold) -> Hold {
        let spec = &object["spec"];
        let (holder, acquired) = (text(&spec["holderIdentity"]), text(&spec["acquireTime"]));
        let goes_on = before.holder == holder && before.acquired == acquired;
        Hold {
            version: text(&object["metadata"]["resourceVersion"]).to_owned(),
            holder: holder.to_owned(),
            acquired: acquired.to_owned(),
            taken_at: if goes_on { before.taken_at } else { now },
            written_at: now,
            renewed: renew_time(object).unwrap_or(0),
            duration_us: spec["leaseDurationSeconds"].as_i64().unwrap_or(0) * 1_000_000,
        }
    }
}

/// Holders of both Leases at one time.
pub struct Holds {
    own: Hold,
    shared: Hold,
}

/// True state of both Leases over time.
#[derive(Default)]
pub struct Tenure {
    own: Hold,
    shared: Hold,
    /// Time before which only the last holder of the controller's Lease may write.
    settled_at: u64,
    /// State of the controller's Lease when the operator took it from its holder, until it has a holder again.
    robbed: Option<Hold>,
    /// Processes that may not have seen the operator's change of the Lease, with the time until which the last PUT of
    /// each may arrive.
    unaware: BTreeMap<String, u64>,
    /// Time until which a process may still rely on a hold of the shared Lease that the operator has ended.
    shared_believed_until: u64,
    /// Time until which other writers cannot be known.
    unknown_until: u64,
    /// Last time at which the operator changed the controller's Lease, and whether it was ever deleted: then its terms
    /// restart.
    touched_at: Option<u64>,
    counts_anew: bool,
    /// Last term, and its process.
    last_term: Option<(usize, u64)>,
    /// Last term of each process.
    last_of: BTreeMap<usize, u64>,
    /// Number of terms.
    pub terms: u64,
    /// Time until which each process was seen as the holder of the controller's Lease.
    led_until: BTreeMap<String, u64>,
    /// Holders of the shared Lease over time.
    history: Vec<(u64, String)>,
}

impl Tenure {
    /// Checks a write of a Lease. `open`: whether a PUT of ours, or of the given holder, is in flight. `knows`:
    /// whether a process has read this version of our Lease.
    ///
    /// # Errors
    /// A violation.
    pub fn written(
        &mut self,
        now: u64,
        lease: LeaseName,
        object: &Value,
        open: impl Fn(Option<&str>) -> bool,
        knows: impl Fn(&str, &str) -> bool,
    ) -> Result<(), String> {
        match lease {
            LeaseName::Own => {
                let next = Hold::of(now, object, &self.own);
                let before = std::mem::replace(&mut self.own, next);
                self.led_until.insert(before.holder.clone(), now);
                if before.holder == self.own.holder {
                    return Ok(());
                }
                if before.holder.is_empty() {
                    self.taken_by_hand(knows);
                    return Ok(());
                }
                if self.own.holder.is_empty() {
                    return self.check_release(now, &before.holder, open);
                }
                self.settled_at = before.written_at + TERM_US + SETTLE_US - CLOCKS_US / 50;
                if now + CLOCKS_US / 50 < before.written_at + TERM_US {
                    return Err(format!(
                        "W8: {} takes the Lease of {} before it ends",
                        self.own.holder, before.holder
                    ));
                }
            }
            LeaseName::Shared => {
                let next = Hold::of(now, object, &self.shared);
                let before = std::mem::replace(&mut self.shared, next);
                if before.holder != self.shared.holder {
                    self.history.push((now, self.shared.holder.clone()));
                }
                if now < self.unknown_until {
                    return Ok(());
                }
                let ours = self.shared.holder == OURS;
                let foreign = !before.holder.is_empty() && before.holder != OURS;
                if ours && foreign && wall(now) + 5_000_000 < before.renewed + FOREIGN_US {
                    return Err(format!("W7: the shared Lease is taken from {before:?}"));
                }
                if before.holder == OURS && self.shared.holder.is_empty() && open(None) {
                    return Err("W7: the shared Lease is released while a PUT is unanswered".to_owned());
                }
                if ours && before.holder == OURS && now > self.shared.taken_at + MAX_HOLD_US {
                    return Err(format!("W7: the shared Lease is held since {}", self.shared.taken_at));
                }
            }
        }
        Ok(())
    }

    /// Checks a release of our Lease: only by a process with no call in flight that need not wait for an earlier
    /// holder's last PUT.
    fn check_release(
        &self,
        now: u64,
        holder: &str,
        open: impl Fn(Option<&str>) -> bool,
    ) -> Result<(), String> {
        if now < self.unknown_until {
            return Ok(());
        }
        if open(Some(holder)) {
            return Err(format!("W8: {holder} releases it while one of its PUTs is unanswered"));
        }
        if now < self.settled_at {
            return Err(format!(
                "W8: {holder} releases it before {}: its successor would not wait",
                self.settled_at
            ));
        }
        Ok(())
    }

    /// Records that the operator empties, renames or deletes a Lease (`None`). Its holder does not know.
    pub fn taken_away(&mut self, now: u64, lease: LeaseName, object: Option<&Value>) {
        let object = object.unwrap_or(&Value::Null);
        let known = match lease {
            LeaseName::Own => &self.own,
            LeaseName::Shared => &self.shared,
        };
        if !object.is_null() && text(&object["metadata"]["resourceVersion"]) == known.version {
            return; // An existing state is not written again.
        }
        match lease {
            LeaseName::Own => {
                self.counts_anew |= object.is_null();
                self.touched_at = Some(now);
                let next = Hold::of(now, object, &self.own);
                let before = std::mem::replace(&mut self.own, next);
                if !before.holder.is_empty() {
                    self.led_until.insert(before.holder.clone(), now);
                    let last_arrives = before.written_at + TERM_US;
                    self.unaware.insert(before.holder.clone(), last_arrives);
                    self.robbed = Some(before);
                }
                if !self.own.holder.is_empty() {
                    // The next holder waits for the end of that hold, and so for all earlier ones.
                    self.robbed = None;
                }
            }
            LeaseName::Shared => {
                let next = Hold::of(now, object, &self.shared);
                let before = std::mem::replace(&mut self.shared, next);
                self.history.push((now, self.shared.holder.clone()));
                if before.holder == OURS {
                    self.shared_believed_until = before.written_at + TERM_US + SETTLE_US;
                }
            }
        }
    }

    /// Returns the current holders of both Leases.
    pub fn holds_now(&self) -> Holds {
        Holds { own: self.own.clone(), shared: self.shared.clone() }
    }

    /// Records that both Leases are restored to an earlier state, which later holders have not seen.
    pub fn rollback(&mut self, now: u64, holds: Holds) {
        (self.counts_anew, self.touched_at, self.robbed) = (true, Some(now), None);
        let before = std::mem::replace(&mut self.own, holds.own);
        if !before.holder.is_empty() {
            let last_arrives = before.written_at + TERM_US;
            self.led_until.insert(before.holder.clone(), now);
            if before.holder != self.own.holder {
                self.settled_at = self.settled_at.max(last_arrives + SETTLE_US - CLOCKS_US / 50);
            }
            self.unaware.insert(before.holder, last_arrives);
        }
        let before = std::mem::replace(&mut self.shared, holds.shared);
        self.history.push((now, self.shared.holder.clone()));
        if before.holder == OURS {
            self.shared_believed_until = before.written_at + TERM_US + SETTLE_US;
        }
    }

    /// Records the first process that takes our Lease after the operator took it away. W8 promises that it waits for
    /// the last PUT of the earlier holder if it has read that holder's last renewal. Otherwise it cannot know about
    /// that PUT.
    fn taken_by_hand(&mut self, knows: impl Fn(&str, &str) -> bool) {
        let Some(robbed) = self.robbed.take().filter(|robbed| robbed.holder != self.own.holder) else {
            return;
        };
        let last_arrives = robbed.written_at + TERM_US + SETTLE_US;
        if knows(&self.own.holder, &robbed.version) {
            self.settled_at = self.settled_at.max(last_arrives - CLOCKS_US / 50);
        } else {
            self.settled_at = 0;
            self.unknown_until = self.unknown_until.max(last_arrives);
        }
    }

    /// Returns whether other writers cannot be known, because of the operator's changes.
    pub fn is_unknown(&self, now: u64) -> bool {
        now < self.unknown_until
    }

    /// Checks whether a PUT of this process may be in flight, with regard to leadership.
    ///
    /// # Errors
    /// Why not.
    pub fn may_lead(&self, now: u64, identity: &str) -> Result<(), String> {
        if now < self.unknown_until {
            return Ok(());
        }
        let is_unaware = self.unaware.get(identity).is_some_and(|until| now < *until);
        if self.own.holder != identity && !is_unaware {
            return Err(format!("W8: a PUT of {identity}, and {:?} leads", self.own.holder));
        }
        if now < self.settled_at && !is_unaware {
            return Err(format!("W8: a PUT of {identity} before {}", self.settled_at));
        }
        Ok(())
    }

    /// Checks whether a PUT may be in flight, with regard to the shared Lease.
    ///
    /// # Errors
    /// Why not.
    pub fn may_hold(&self, now: u64) -> Result<(), String> {
        if now < self.unknown_until.max(self.shared_believed_until) {
            return Ok(());
        }
        if self.shared.holder != OURS {
            return Err(format!("W7: a PUT while the shared Lease is of {:?}", self.shared.holder));
        }
        if wall(now) > self.shared.renewed + self.shared.duration_us {
            return Err(format!(
                "W7: a PUT while the controller's hold counts as expired: {:?}",
                self.shared
            ));
        }
        Ok(())
    }

    /// Checks a process's report that it leads.
    ///
    /// # Errors
    /// A violation.
    pub fn on_leading(&mut self, now: u64, process: usize, identity: &str, epoch: u64) -> Result<(), String> {
        if self.last_term == Some((process, epoch)) {
            return Ok(());
        }
        // If the operator has deleted the Lease, its terms restart; those of each process still increase.
        let own = self.last_of.insert(process, epoch);
        let is_loose = self.counts_anew || self.touched_at.is_some_and(|at| now < at + TERM_US + SETTLE_US);
        if own.is_some_and(|own| epoch < own || epoch == own && !is_loose) {
            return Err(format!("W8: {identity} leads in term {epoch} again, after {own:?}"));
        }
        if let Some((other, last)) = self.last_term.filter(|(_, last)| epoch <= *last && !is_loose) {
            return Err(format!("W8: {identity} leads in term {epoch}, and {other} has led in term {last}"));
        }
        self.last_term = Some((process, epoch));
        self.terms += u64::from(own != Some(epoch));
        if self.own.holder == identity && now < self.settled_at {
            return Err(format!("W8: {identity} leads before {}", self.settled_at));
        }
        Ok(())
    }

    /// Returns whether this process has not led for long enough to know it.
    pub fn is_bystander(&self, now: u64, identity: &str) -> bool {
        let until = self.led_until.get(identity).copied();
        self.own.holder != identity && until.is_none_or(|until| until + NOTICES_LOSS_US < now)
    }

    /// Checks that a process that grants this pool a lane leads, as far as it can know (W8).
    pub fn may_grant(&self, now: u64, identity: Option<&Arc<str>>, pool: &PoolId) -> Result<(), String> {
        match identity.filter(|identity| self.is_bystander(now, identity)) {
            Some(identity) => {
                Err(format!("W8: {identity} grants {pool} a lane, and {:?} leads", self.leader()))
            }
            None => Ok(()),
        }
    }

    /// Returns the time since which the controller's Lease has had a holder.
    pub fn led_since(&self) -> u64 {
        self.own.taken_at
    }

    /// Returns the leader.
    pub fn leader(&self) -> &str {
        &self.own.holder
    }

    /// Returns the holds of the shared Lease between two times: holder, start and end.
    fn holds(&self, from: u64, to: u64) -> impl Iterator<Item = (&str, u64, u64)> {
        let ends = self.history.iter().skip(1).map(|(at, _)| *at).chain([u64::MAX]);
        let holds = self.history.iter().zip(ends);
        holds
            .map(move |((began, holder), ended)| (holder.as_str(), (*began).max(from), ended.min(to)))
            .filter(|(_, began, ended)| began < ended)
    }

    /// Returns the time for which the controller, and others, held the shared Lease between two times, in seconds.
    pub fn held(&self, from: u64, to: u64) -> (u64, u64) {
        let (mut ours, mut theirs) = (0, 0);
        for (holder, began, ended) in self.holds(from, to) {
            match holder {
                "" => {}
                OURS => ours += ended - began,
                _ => theirs += ended - began,
            }
        }
        (ours / 1_000_000, theirs / 1_000_000)
    }

    /// Returns the periods in which the controller blocked the shared Lease for other clients: start and end.
    pub fn exclusive_periods(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut exclusive_periods: Vec<(u64, u64)> = Vec::new();
        for (_, began, ended) in self.holds(from, to).filter(|(holder, ..)| *holder == OURS) {
            match exclusive_periods.last_mut().filter(|(_, last)| began == *last) {
                // Acquired again without another holder in between.
                Some((_, last)) => *last = ended,
                None => exclusive_periods.push((began, ended)),
            }
        }
        exclusive_periods
    }

    /// Returns when another client first held the shared Lease between two times.
    pub fn first_other(&self, from: u64, to: u64) -> Option<u64> {
        let mut others = self.holds(from, to).filter(|(holder, ..)| *holder != OURS && !holder.is_empty());
        others.next().map(|(_, began, _)| began)
    }

    /// Returns the longest time for which no other client held the shared Lease, in seconds.
    pub fn longest_without_others(&self, from: u64, to: u64) -> u64 {
        let (mut longest, mut since) = (0, from);
        for (holder, began, ended) in self.holds(from, to) {
            if holder != OURS && !holder.is_empty() {
                longest = longest.max(began.saturating_sub(since));
                since = ended;
            }
        }
        longest.max(to.saturating_sub(since)) / 1_000_000
    }
}
