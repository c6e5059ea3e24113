//! When load balancers are read again because a Service changed: 2 s after the change, and at 5, 10, 20 and 40 s until
//! its rules and its policy agree (D3).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::rules::RuleIndex;
use mechanisms::recheck::Recheck;
use model::ids::{Family, RulePrefix, ServiceKey, ServiceUid};
use model::machine::Now;

/// Times at which a changed Service requests a round, counted from the change.
const AFTER: [Duration; 5] = [
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(40),
];

/// The expected state of a changed Service's rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ExpectedRules {
    /// A candidate has a rule that sends to a pool of its own name.
    OwnPool,
    /// A Service that is not a candidate has no such rule.
    NoOwnPool,
}

/// One changed Service.
struct Followup {
    prefix: RulePrefix,
    key: ServiceKey,
    wanted: ExpectedRules,
    rounds: Recheck,
}

impl Followup {
    fn agrees(&self, rules: &RuleIndex) -> bool {
        let own = [Family::V4, Family::V6].map(|family| self.key.pool_name(family));
        let found = rules.of(&self.prefix).any(|(_, pool)| pool.is_some_and(|pool| own.contains(pool)));
        match self.wanted {
            ExpectedRules::OwnPool => found,
            ExpectedRules::NoOwnPool => !found,
        }
    }
}

/// The Services whose change is being followed.
#[derive(Default)]
pub(super) struct Followups {
    services: BTreeMap<ServiceUid, Followup>,
    by_time: BTreeSet<(Now, ServiceUid)>,
}

impl Followups {
    /// Follows a change made at `since`, and ends the earlier follow-up of the same Service.
    pub(super) fn changed(&mut self, uid: &ServiceUid, key: &ServiceKey, wanted: ExpectedRules, since: Now) {
        self.follow(uid, key, wanted, Recheck::new(&AFTER, since));
    }

    /// Follows a candidate that existed at the start: the initial reads take the place of its first round.
    pub(super) fn found_at_start(&mut self, uid: &ServiceUid, key: &ServiceKey, since: Now) {
        let mut rounds = Recheck::new(&AFTER, since);
        rounds.advance();
        self.follow(uid, key, ExpectedRules::OwnPool, rounds);
    }

    fn follow(&mut self, uid: &ServiceUid, key: &ServiceKey, wanted: ExpectedRules, rounds: Recheck) {
        self.drop_service(uid);
        if let Some(at) = rounds.at() {
            let followup = Followup { prefix: RulePrefix::of(uid), key: key.clone(), wanted, rounds };
            self.by_time.insert((at, uid.clone()));
            self.services.insert(uid.clone(), followup);
        }
    }

    fn drop_service(&mut self, uid: &ServiceUid) {
        if let Some(at) = self.services.remove(uid).and_then(|followup| followup.rounds.at()) {
            self.by_time.remove(&(at, uid.clone()));
        }
    }

    /// Returns when the next Service requests a round.
    pub(super) fn next_at(&self) -> Option<Now> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Returns whether a due Service requests a round. Services whose rules agree are followed no longer.
    pub(super) fn requests_round(&mut self, now: Now, rules: &RuleIndex) -> bool {
        let mut requested = false;
        while let Some((at, uid)) = self.by_time.pop_first() {
            if at > now {
                self.by_time.insert((at, uid));
                break;
            }
            let Some(followup) = self.services.get_mut(&uid) else {
                continue;
            };
            if !followup.rounds.is_first() && followup.agrees(rules) {
                self.services.remove(&uid);
                continue;
            }
            requested = true;
            followup.rounds.advance();
            match followup.rounds.at() {
                Some(next) => {
                    self.by_time.insert((next, uid));
                }
                None => {
                    self.services.remove(&uid);
                }
            }
        }
        requested
    }

    /// Checks that each followed Service has one due time, by number.
    pub(super) fn check(&self) -> bool {
        self.services.len() == self.by_time.len()
    }
}
