//! Property tests of safety and liveness over random histories of three Services and two pools on one load balancer.

use proptest::prelude::*;

use super::*;
use model::policy::Mode;

/// An event.
#[derive(Clone, Debug)]
enum Event {
    /// A Service requires this. `candidate: false`: its policy is not `Local`. `listed`: the fact came with a list.
    Asks {
        service: u32,
        required: u8,
        tolerated: u8,
        unusable: bool,
        candidate: bool,
        listed: bool,
    },
    /// A Service is deleted.
    Gone {
        service: u32,
    },
    /// A read of the load balancer.
    Read {
        first: Seen,
        second: Seen,
    },
    /// A pool is written as it was last assigned.
    Write {
        pool: usize,
    },
    /// A read that finds the load balancer absent.
    Absent,
    Pass {
        millis: u64,
    },
    /// An answer of a pool that was assigned without an owner, or an unexpected answer.
    Answer {
        pool: usize,
    },
    /// A new term of leadership.
    Term(u64),
    /// The term of the reports, if any.
    Reporting(Option<u64>),
    /// The requested second read completes, if there is one.
    Reread,
    /// The mode becomes `add-only`, or removals are allowed again.
    AddOnly(bool),
    /// The operator releases everything.
    Release,
}

/// A pool in a read: the Services with rules for it, its members, and the conditions that prevent a proof.
#[derive(Clone, Debug)]
struct Seen {
    exists: bool,
    rules: u8,
    members: u8,
    probed: bool,
    foreign_rule: bool,
}

const POOLS: [&str; 2] = ["shop-a", "shop-b"];
/// Services 0 and 1 have the same name, so that they share a pool. Service 2 has the other pool.
const NAMES: [&str; 3] = ["a", "a", "b"];

pub(super) fn bits(mask: u8) -> Vec<u8> {
    (0..4).filter(|n| mask & (1 << n) != 0).collect()
}

fn seen() -> impl Strategy<Value = Seen> {
    (prop::bool::weighted(0.9), 1..8_u8, 0..16_u8, prop::bool::weighted(0.9), prop::bool::weighted(0.1))
        .prop_map(|(exists, rules, members, probed, foreign_rule)| Seen {
            exists,
            rules,
            members,
            probed,
            foreign_rule,
        })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..3_u32, 0..16_u8, 0..16_u8, prop::bool::weighted(0.1), prop::bool::weighted(0.9), any::<bool>())
            .prop_map(|(service, required, tolerated, unusable, candidate, listed)| {
                Event::Asks { service, required, tolerated, unusable, candidate, listed }
            }),
        3 => (0..3_u32, any::<bool>()).prop_map(|(service, listed)| Event::Asks {
            service, required: 0, tolerated: 0, unusable: false, candidate: true, listed
        }),
        2 => Just(Event::Reread),
        1 => prop::bool::weighted(0.3).prop_map(Event::AddOnly),
        1 => Just(Event::Release),
        1 => (0..3_u32).prop_map(|service| Event::Gone { service }),
        5 => (seen(), seen()).prop_map(|(first, second)| Event::Read { first, second }),
        3 => (0..2_usize).prop_map(|pool| Event::Write { pool }),
        1 => Just(Event::Absent),
        6 => (0..40_000_u64).prop_map(|millis| Event::Pass { millis }),
        2 => (0..2_usize).prop_map(|pool| Event::Answer { pool }),
        1 => (0..3_u64).prop_map(Event::Term),
        1 => prop::option::of(0..3_u64).prop_map(Event::Reporting),
    ]
}

/// What an observer knows from the events alone.
struct World {
    fixture: Fixture,
    facts: BTreeMap<ServiceUid, ServiceFact>,
    read: [Option<Seen>; 2],
    /// The last assignment with Services of each pool.
    last: [Option<Arc<Assignment>>; 2],
    /// Time since which each pool is assigned without required members.
    empty_since: [Option<Now>; 2],
    /// The addresses that a list has released, by Service, each with the time of its release.
    doubts: BTreeMap<(ServiceUid, IpAddr), Now>,
    /// Time since which each pool has been assigned to each Service.
    owned: [BTreeMap<ServiceUid, Now>; 2],
    add_only: bool,
    /// True if the operator has released the held removals of a pool, and the reason may still hold.
    released: [bool; 2],
    /// The members that each pool was required to have at its last read or since, with the last time. They may have
    /// been written.
    recent: [BTreeMap<IpAddr, Now>; 2],
    /// Time at which each address was last found absent from each pool. If another client adds it later, it counts as
    /// first seen at that time.
    absent: [BTreeMap<IpAddr, Now>; 2],
}

impl World {
    fn new() -> World {
        World {
            fixture: Fixture::running(),
            facts: BTreeMap::new(),
            read: [None, None],
            last: [None, None],
            empty_since: [None, None],
            doubts: BTreeMap::new(),
            owned: [BTreeMap::new(), BTreeMap::new()],
            add_only: false,
            released: [false, false],
            recent: [BTreeMap::new(), BTreeMap::new()],
            absent: [BTreeMap::new(), BTreeMap::new()],
        }
    }

    /// Records doubts about the addresses that this fact releases, if it came with a list and is usable.
    fn doubt(&mut self, fact: &ServiceFact) {
        let asked = |fact: &ServiceFact| -> BTreeSet<IpAddr> {
            let part = &fact.parts[&Family::V4];
            part.required.keys().chain(&part.tolerated).copied().collect()
        };
        let (now, listed) = (self.fixture.now, fact.provenance == Provenance::Relist);
        let asks = asked(fact);
        let before = self.facts.get(&fact.uid).map(asked).unwrap_or_default();
        self.doubts.retain(|(uid, ip), _| *uid != fact.uid || !asks.contains(ip));
        if !fact.parts[&Family::V4].unusable && listed {
            for ip in before.difference(&asks) {
                self.doubts.entry((fact.uid.clone(), *ip)).or_insert(now);
            }
        }
    }

    /// Returns the addresses that a list released for a Service that owned the pool at that time, without a second
    /// read since.
    fn in_doubt(&self, pool: usize) -> BTreeSet<IpAddr> {
        let probed = self.read[pool].as_ref().is_some_and(|seen| seen.probed);
        let delay = if probed { params().removal_delay } else { Duration::ZERO };
        let doubts = self
            .doubts
            .iter()
            .filter(|((uid, _), since)| self.owned[pool].get(uid).is_some_and(|owned| owned < *since))
            .filter(|((_, ip), since)| self.absent[pool].get(ip).is_none_or(|at| *at <= since.plus(delay)));
        doubts.map(|((_, ip), _)| *ip).collect()
    }

    /// Checks the guards' rules for doubtful removals (G2, G3).
    fn check_doubts(&self, pool: usize, said: &Assignment, seen: &BTreeSet<IpAddr>) {
        let goes: BTreeSet<IpAddr> = said.level.surplus(seen).copied().collect();
        assert!(!self.add_only || goes.is_empty(), "add-only removes nothing");
        let doubted = goes.intersection(&self.in_doubt(pool)).count();
        let emptied = said.level.required.is_empty() && goes.len() == seen.len();
        assert!(!emptied || doubted == 0, "emptied in doubt");
        let may_be_in = seen.iter().chain(said.level.required.keys()).chain(self.recent[pool].keys());
        let all = may_be_in.collect::<BTreeSet<_>>().len();
        assert!(seen.len() < 3 || doubted * 2 <= all, "{doubted} of {all} go in doubt");
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Asks { service, required, tolerated, unusable, candidate, listed } => {
                let asked = if unusable {
                    Part { unusable, ..Part::default() }
                } else {
                    part(&bits(required), &bits(tolerated & !required))
                };
                let mut fact = fact(service, NAMES[service as usize], asked);
                if !candidate {
                    fact.candidacy = Candidacy::NotLocal;
                }
                if listed {
                    fact.provenance = Provenance::Relist;
                }
                self.doubt(&fact);
                self.facts.insert(uid(service), fact.clone());
                self.fixture.service(fact);
            }
            Event::Gone { service } => {
                self.doubts.retain(|(uid, _), _| *uid != self::uid(service));
                self.facts.remove(&uid(service));
                self.fixture.send(In::Service(uid(service), None));
            }
            Event::Read { first, second } => self.read_balancer(first, second),
            Event::Write { pool } => {
                // A write ends after the beginning of each earlier read.
                self.apply(Event::Pass { millis: 1 });
                self.write(pool);
            }
            Event::Absent => {
                self.read = [None, None];
                let (lb, began) = (LbName::new("lb"), self.fixture.now);
                let absent = LbObservation { lb, began, facts: None, puts: Default::default() };
                self.fixture.send(In::Lb(absent));
            }
            Event::Pass { millis } => {
                let end = self.fixture.now.plus(Duration::from_millis(millis));
                while let Some(at) = self.fixture.machine.deadline().filter(|at| *at <= end) {
                    self.fixture.pass(at.since(self.fixture.now).as_millis() as u64);
                    self.check_safety();
                }
                self.fixture.pass(end.since(self.fixture.now).as_millis() as u64);
            }
            Event::Answer { pool } => self.fixture.send(In::Retired(id("lb", POOLS[pool]))),
            Event::Term(n) => self.fixture.send(In::Confirmed(Epoch(n))),
            Event::Reporting(term) => self.fixture.reporting(term),
            Event::Reread => {
                let asked_at = self.fixture.machine.second_read.in_flight();
                if self.fixture.reread() > 0 {
                    let asked_at = asked_at.expect("it was in flight");
                    self.doubts.retain(|_, since| since.plus(Duration::from_secs(30)) > asked_at);
                }
            }
            Event::AddOnly(add_only) => {
                let mode = if add_only { Mode::AddOnly } else { Mode::Enforce };
                let policy = Arc::new(OperatorPolicy { mode, ..OperatorPolicy::default() });
                self.add_only = add_only;
                self.fixture.send(In::OperatorPolicy { term: None, policy });
            }
            Event::Release => {
                if self.fixture.machine.reporting.is_some() {
                    // Released members may be removed immediately, even if they were in doubt.
                    self.doubts.clear();
                    self.released = [true, true];
                }
                self.fixture.send(In::Release(RequestId(1), Scope::Everything, Vec::new()));
            }
        }
        self.check_safety();
    }

    /// Reads the load balancer.
    fn read_balancer(&mut self, first: Seen, second: Seen) {
        self.read = [Some(first), Some(second)].map(|seen| seen.filter(|seen| seen.exists));
        let began = self.fixture.now;
        self.recent.iter_mut().for_each(|recent| recent.retain(|_, at| *at >= began));
        for (absent, seen) in self.absent.iter_mut().zip(&self.read) {
            let members = seen.as_ref().map_or(0, |seen| seen.members);
            absent.extend(ips(&bits(15 & !members)).into_iter().map(|ip| (ip, self.fixture.now)));
        }
        self.fixture.observe(&self.balancer());
    }

    /// Writes the assigned level to an existing pool.
    fn write(&mut self, place: usize) {
        let pool = id("lb", POOLS[place]);
        let said = self.fixture.assigned.get(&pool).filter(|said| !said.services.is_empty()).cloned();
        let (Some(said), Some(seen)) = (said, &mut self.read[place]) else { return };
        let now = self.fixture.now;
        let before = ips(&bits(seen.members));
        let going: BTreeSet<IpAddr> = said.level.surplus(&before).copied().collect();
        let members: BTreeSet<IpAddr> =
            before.difference(&going).chain(said.level.required.keys()).copied().collect();
        seen.members = (0..4).filter(|n| members.contains(&ip(*n))).map(|n| 1 << n).sum();
        self.recent[place].retain(|_, at| *at >= now);
        self.absent[place].extend(ips(&bits(15 & !seen.members)).into_iter().map(|ip| (ip, now)));
        self.fixture.send(In::Members(pool, PoolMembers { at: now, members }));
    }

    fn balancer(&self) -> Arc<LbFacts> {
        let (mut pools, mut rules) = (Vec::new(), Vec::new());
        for (name, seen) in POOLS.iter().zip(&self.read) {
            let Some(seen) = seen else { continue };
            pools.push(pool("lb", name, &bits(seen.members)));
            let owners = (0..3).filter(|n| seen.rules & (1 << n) != 0);
            for owner in owners.chain(seen.foreign_rule.then_some(9)) {
                let mut rule = rule(owner, name);
                rule.name = format!("{}-{name}", rule.name).into();
                rule.probed = seen.probed;
                rules.push(rule);
            }
        }
        balancer("lb", pools, rules)
    }

    /// Returns the Services to which a pool should be assigned: those of its rules, if they are all candidates and one
    /// of them has the pool's name.
    fn owners(&self, pool: usize) -> BTreeMap<ServiceUid, &Part> {
        let Some(seen) = &self.read[pool] else { return BTreeMap::new() };
        let rules: Vec<u32> = (0..3).filter(|n| seen.rules & (1 << n) != 0).collect();
        let candidate = |n: &u32| {
            let fact = self.facts.get(&uid(*n))?;
            (fact.candidacy == Candidacy::Candidate).then_some((uid(*n), &fact.parts[&Family::V4]))
        };
        let named = rules.iter().any(|n| candidate(n).is_some() && POOLS[pool].ends_with(NAMES[*n as usize]));
        let all: Option<BTreeMap<_, _>> = rules.iter().map(candidate).collect();
        all.filter(|_| named && !seen.foreign_rule).unwrap_or_default()
    }

    /// Checks safety, after every event.
    fn check_safety(&mut self) {
        for (place, name) in POOLS.into_iter().enumerate() {
            let owners = self.owners(place);
            let said = self.fixture.assigned.get(&id("lb", name)).filter(|said| !said.services.is_empty());
            let served: BTreeSet<&ServiceUid> = said.iter().flat_map(|said| said.services.keys()).collect();
            assert_eq!(served, owners.keys().collect(), "assigned to its proven Services alone");
            let Some(said) = said.cloned() else {
                (self.last[place], self.empty_since[place]) = (None, None);
                self.owned[place].clear();
                // The next assignment is compared with the observed members.
                self.recent[place].clear();
                continue;
            };
            let uids: BTreeSet<ServiceUid> = owners.keys().cloned().collect();
            let required: BTreeSet<IpAddr> =
                owners.values().flat_map(|part| part.required.keys()).copied().collect();
            assert_eq!(said.level.required.keys().copied().collect::<BTreeSet<_>>(), required);
            assert!(owners.values().flat_map(|part| &part.tolerated).all(|ip| said.level.allows(ip)));
            assert!(said.is_sound(), "the union of the shares is the level");
            let asked = owners.values().any(|part| !part.required.is_empty() || !part.tolerated.is_empty());
            let unusable = owners.values().any(|part| part.unusable);
            let seen = self.read[place].as_ref().map(|seen| ips(&bits(seen.members))).unwrap_or_default();
            let may_be_in = |ip: &IpAddr| seen.contains(ip) || self.recent[place].contains_key(ip);
            let kept = owners.values().flat_map(|part| &part.tolerated).any(may_be_in);
            let lasts = unusable || (required.is_empty() && !kept);
            self.released[place] &= lasts;
            self.recent[place].extend(required.iter().map(|ip| (*ip, self.fixture.now)));
            let last = self.last[place].take();
            self.empty_since[place] = match self.empty_since[place] {
                _ if asked || unusable => None,
                Some(since) => Some(since),
                None => Some(self.fixture.now),
            };
            let had_some = last.as_ref().is_some_and(|last| !last.level.is_empty());
            let kept = self.released[place] || !(unusable && had_some && said.level.is_empty());
            assert!(kept, "emptied without a usable node");
            if said.level.is_empty() && !unusable {
                let had = match &last {
                    Some(last) => !last.level.is_empty(),
                    None => self.read[place].as_ref().is_some_and(|seen| seen.members & 15 != 0),
                };
                let lasted = self.empty_since[place].map(|since| self.fixture.now.since(since));
                let confirmed = lasted.is_some_and(|lasted| lasted >= Duration::from_secs(60));
                assert!(!had || confirmed || self.released[place], "emptied after {lasted:?}");
            }
            if !seen.is_empty()
                && said.level.required.is_empty()
                && said.level.surplus(&seen).count() == seen.len()
            {
                let lasted = self.empty_since[place].map(|since| self.fixture.now.since(since));
                let confirmed = lasted.is_some_and(|lasted| lasted >= Duration::from_secs(60));
                assert!(confirmed || self.released[place], "what was seen would be emptied after {lasted:?}");
            }
            let now = self.fixture.now;
            self.owned[place].retain(|uid, _| uids.contains(uid));
            for uid in uids {
                self.owned[place].entry(uid).or_insert(now);
            }
            self.check_doubts(place, &said, &seen);
            self.last[place] = Some(said);
        }
    }

    /// Checks liveness: after the last event, everything is as if there were no guards, and nothing waits.
    fn run_to_rest(&mut self) {
        self.apply(Event::AddOnly(false));
        for _ in 0..4 {
            self.apply(Event::Pass { millis: 60_001 });
            self.apply(Event::Reread);
        }
        for name in POOLS {
            // There are two answers, because a pool may be asked again.
            for _ in 0..2 {
                let over =
                    self.fixture.assigned.get(&id("lb", name)).is_some_and(|said| said.services.is_empty());
                if over {
                    self.fixture.send(In::Retired(id("lb", name)));
                }
            }
        }
        assert_eq!(self.fixture.machine.deadline(), None);
        for (place, name) in POOLS.into_iter().enumerate() {
            let owners = self.owners(place);
            let Some(said) = self.fixture.assigned.get(&id("lb", name)) else {
                assert!(owners.is_empty());
                continue;
            };
            assert!(!said.services.is_empty(), "a pool without an owner is forgotten");
            if owners.values().any(|part| part.unusable) {
                continue;
            }
            let tolerated: BTreeSet<IpAddr> = owners
                .values()
                .flat_map(|part| &part.tolerated)
                .filter(|ip| !said.level.required.contains_key(ip))
                .copied()
                .collect();
            if let Some(held) = &said.held {
                assert_eq!(held.reason, HeldReason::LastMember, "nothing else lasts");
                assert!(said.level.required.is_empty() && !tolerated.is_empty());
                assert!(
                    tolerated.is_disjoint(&held.members),
                    "held only where nothing asked for is in the pool"
                );
                continue;
            }
            assert_eq!(said.level.tolerated, tolerated);
        }
    }
}

proptest! {
    #[test]
    fn d2_d4_g2_levels_are_always_safe_and_finally_unguarded(
        events in prop::collection::vec(event(), 1..60)
    ) {
        let mut world = World::new();
        for event in events {
            world.apply(event);
        }
        world.run_to_rest();
    }
}
