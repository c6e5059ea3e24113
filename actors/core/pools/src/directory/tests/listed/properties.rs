//! Property tests of safety and liveness over random histories of two sources and the two pools that are filled from
//! them.

use proptest::prelude::*;

use super::*;
use crate::directory::tests::properties::bits;

/// An event.
#[derive(Clone, Debug)]
enum Event {
    /// The state of a source. After the first assignment, "never known" no longer occurs.
    Knows {
        source: usize,
        assigned: Known,
        listed: bool,
        ambient: bool,
    },
    /// A read of the load balancer.
    Read([Seen; 2]),
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
    /// The mode, and whether the first pool is paused.
    OperatorPolicy {
        add_only: bool,
        paused: bool,
    },
    /// The operator releases everything.
    Release,
}

#[derive(Clone, PartialEq, Debug)]
enum Known {
    Unknown {
        fault: bool,
    },
    /// The health of the endpoints of each of two priorities.
    Usable([[EndpointHealth; 3]; 2]),
    Dropped,
}

/// A pool in a read.
#[derive(Clone, Debug)]
struct Seen {
    exists: bool,
    members: u8,
    down: u8,
    probed: bool,
    outbound: bool,
    updating: bool,
}

const POOLS: [&str; 2] = ["edge", "far"];

/// Returns the sources, by pool.
fn sources() -> [Name; 2] {
    [shop(), Name::Cluster("far".into())]
}

/// Returns the address of an endpoint. No two endpoints have the same.
fn at(priority: usize, endpoint: usize) -> u8 {
    u8::try_from(priority * 3 + endpoint).expect("few")
}

fn health() -> impl Strategy<Value = EndpointHealth> {
    prop::sample::select(vec![UP, UP, UP, DRAINS, EndpointHealth::Degraded, OUT])
}

fn known() -> impl Strategy<Value = Known> {
    let one = || [health(), health(), health()];
    prop_oneof![
        1 => any::<bool>().prop_map(|fault| Known::Unknown { fault }),
        8 => [one(), one()].prop_map(Known::Usable),
        1 => Just(Known::Usable([[OUT; 3]; 2])),
        1 => Just(Known::Dropped),
    ]
}

fn seen() -> impl Strategy<Value = Seen> {
    let weighted = prop::bool::weighted;
    (weighted(0.9), 0..128_u8, any::<u8>(), weighted(0.9), weighted(0.05), weighted(0.1)).prop_map(
        |(exists, members, down, probed, outbound, updating)| Seen {
            exists,
            members,
            down,
            probed,
            outbound,
            updating,
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        10 => (0..2_usize, known(), prop::bool::weighted(0.3), prop::bool::weighted(0.3))
            .prop_map(|(source, assigned, listed, ambient)| Event::Knows { source, assigned, listed, ambient }),
        6 => [seen(), seen()].prop_map(Event::Read),
        1 => Just(Event::Absent),
        8 => (0..40_000_u64).prop_map(|millis| Event::Pass { millis }),
        2 => (0..2_usize).prop_map(|pool| Event::Answer { pool }),
        1 => (0..3_u64).prop_map(Event::Term),
        1 => prop::option::of(0..3_u64).prop_map(Event::Reporting),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(add_only, paused)| Event::OperatorPolicy { add_only, paused }),
        1 => Just(Event::Release),
    ]
}

/// Returns the addresses of the endpoints with this health, by priority.
fn with_health(endpoints: &[[EndpointHealth; 3]; 2], wanted: EndpointHealth) -> Vec<BTreeSet<IpAddr>> {
    let of = |(priority, endpoints): (usize, &[EndpointHealth; 3])| {
        let all = endpoints.iter().enumerate().filter(|(_, health)| **health == wanted);
        all.map(|(endpoint, _)| ip(at(priority, endpoint))).collect()
    };
    endpoints.iter().enumerate().map(of).collect()
}

/// Returns the possible choices of these endpoints, best first: the endpoints of one priority, and degraded ones only
/// if none is healthy.
fn choices(endpoints: &[[EndpointHealth; 3]; 2]) -> Vec<BTreeSet<IpAddr>> {
    let usable = |so| -> Vec<BTreeSet<IpAddr>> {
        with_health(endpoints, so).into_iter().filter(|of| !of.is_empty()).collect()
    };
    let healthy = usable(UP);
    if healthy.is_empty() { usable(EndpointHealth::Degraded) } else { healthy }
}

/// Returns whether there are endpoints that are neither usable nor draining, and no usable ones.
fn is_unusable(endpoints: &[[EndpointHealth; 3]; 2]) -> bool {
    choices(endpoints).is_empty() && endpoints.iter().flatten().any(|health| *health != DRAINS)
}

fn draining(endpoints: &[[EndpointHealth; 3]; 2]) -> BTreeSet<IpAddr> {
    with_health(endpoints, DRAINS).into_iter().flatten().collect()
}

/// What an observer knows about one pool from the events alone.
#[derive(Default)]
struct Watched {
    known: Option<Known>,
    /// Provenance of this knowledge.
    provenance: Provenance,
    /// True if the source has no error.
    error_free: bool,
    read: Option<Seen>,
    /// Its last required members, while it was assigned and its source in use.
    asked: BTreeSet<IpAddr>,
    /// When each address was released.
    left: BTreeMap<IpAddr, Now>,
    /// Time since which it is assigned without required members.
    empty_since: Option<Now>,
    /// True if the operator has released its held removals, and the reason may still hold.
    released: bool,
    /// Members that were required since it was last read. They may have been written.
    recent: BTreeSet<IpAddr>,
    /// Addresses that its source has ever reported as draining.
    drained: BTreeSet<IpAddr>,
}

struct World {
    fixture: Fixture,
    watched: [Watched; 2],
    /// True if the load balancer existed at the last read.
    exists: Option<bool>,
    add_only: bool,
}

impl World {
    fn new() -> World {
        let [shop, far] = sources();
        let listed = vec![listing(POOLS[0], shop, Family::V4), listing(POOLS[1], far, Family::V4)];
        let fixture = started(Params { listed, ..params() });
        World { fixture, watched: Default::default(), exists: None, add_only: false }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Knows { source, assigned, listed, ambient } => {
                self.knows(source, assigned, listed, ambient)
            }
            Event::Read(seen) => {
                for (watched, seen) in self.watched.iter_mut().zip(seen) {
                    watched.read = Some(seen).filter(|seen| seen.exists);
                    watched.recent.clear();
                }
                self.exists = Some(true);
                self.fixture.observe(&self.balancer());
            }
            Event::Absent => {
                self.exists = Some(false);
                self.watched.iter_mut().for_each(|watched| watched.read = None);
                self.fixture.read("lb", None);
            }
            Event::Pass { millis } => {
                let end = self.fixture.now.plus(Duration::from_millis(millis));
                while let Some(next) = self.fixture.machine.deadline().filter(|next| *next <= end) {
                    self.fixture.pass(next.since(self.fixture.now).as_millis() as u64);
                    self.check_safety();
                }
                self.fixture.pass(end.since(self.fixture.now).as_millis() as u64);
            }
            Event::Answer { pool } => self.fixture.send(In::Retired(id("lb", POOLS[pool]))),
            Event::Term(n) => self.fixture.send(In::Confirmed(Epoch(n))),
            Event::Reporting(term) => self.fixture.reporting(term),
            Event::OperatorPolicy { add_only, paused } => {
                let mode = if add_only { Mode::AddOnly } else { Mode::Enforce };
                let pools = paused.then(|| (id("lb", POOLS[0]), Pause::default()));
                self.add_only = add_only;
                policy(
                    &mut self.fixture,
                    OperatorPolicy { mode, pools: pools.into_iter().collect(), ..OperatorPolicy::default() },
                );
            }
            Event::Release => {
                if self.fixture.machine.reporting.is_some() {
                    self.watched.iter_mut().for_each(|watched| watched.released = true);
                }
                self.fixture.send(In::Release(RequestId(1), Scope::Everything, Vec::new()));
            }
        }
        self.check_safety();
        self.check_reports();
    }

    fn knows(&mut self, source: usize, assigned: Known, listed: bool, ambient: bool) {
        let watched = &mut self.watched[source];
        let is_first = watched.known.as_ref().is_none_or(|known| matches!(known, Known::Unknown { .. }));
        if !is_first && matches!(assigned, Known::Unknown { .. }) {
            return;
        }
        let is_note = watched.known.as_ref() == Some(&assigned);
        let fact = match &assigned {
            Known::Unknown { fault: told } => waited_for(told.then(|| fault("refused"))),
            Known::Usable(endpoints) => {
                watched.drained.extend(draining(endpoints));
                let one =
                    |(priority, endpoints): (usize, &[EndpointHealth; 3])| -> Vec<(IpAddr, EndpointHealth)> {
                        let all = endpoints.iter().enumerate();
                        all.map(|(endpoint, health)| (ip(at(priority, endpoint)), *health)).collect()
                    };
                let priorities: Vec<_> = endpoints.iter().enumerate().map(one).collect();
                usable(assignment(&priorities.iter().map(Vec::as_slice).collect::<Vec<_>>()))
            }
            Known::Dropped => dropped("deleted"),
        };
        watched.known = Some(assigned);
        watched.error_free = !ambient;
        if !is_note {
            watched.provenance = if listed { Provenance::Relist } else { Provenance::Watch };
        }
        let fact = SourceFact { provenance: watched.provenance, ..fact };
        let fact = if ambient { beside(fact, "timed out") } else { fact };
        let before = self.fixture.assigned.get(&id("lb", POOLS[source])).cloned();
        self.fixture.send(In::Source(sources()[source].clone(), fact));
        if let (Some(before), true) = (before, is_note) {
            let said = &self.fixture.assigned[&id("lb", POOLS[source])];
            assert!(said.level.same_members(&before.level) && said.services == before.services);
        }
    }

    fn balancer(&self) -> Arc<LbFacts> {
        let (mut pools, mut rules) = (Vec::new(), Vec::new());
        for (name, watched) in POOLS.iter().zip(&self.watched) {
            let Some(seen) = &watched.read else { continue };
            let mut facts = pool("lb", name, &seven(seen.members));
            for entry in &mut facts.entries {
                if entry.ip.is_some_and(|at| ips(&seven(seen.down)).contains(&at)) {
                    entry.admin_state = AdminState::Down;
                }
            }
            facts.outbound_rule = seen.outbound;
            if seen.updating {
                facts.provisioning = Provisioning::Updating;
            }
            pools.push(facts);
            let pool = Some(PoolName::new(*name));
            rules.push(RuleFacts { name: format!("{name}-https").into(), pool, probed: seen.probed });
        }
        balancer("lb", pools, rules)
    }

    /// Checks safety, after every event.
    fn check_safety(&mut self) {
        for (place, name) in POOLS.into_iter().enumerate() {
            let watched = &mut self.watched[place];
            let said = self.fixture.assigned.get(&id("lb", name)).filter(|said| !said.services.is_empty());
            let why = match (self.exists, &watched.read) {
                (None, _) => None,
                (Some(false), _) => Some("load_balancer_not_found"),
                (Some(true), None) => Some("pool_not_found"),
                (Some(true), Some(seen)) => seen.outbound.then_some("outbound_rule"),
            };
            let refused = self.fixture.machine.pools.get(&id("lb", name)).and_then(|pool| pool.refused());
            assert_eq!(refused.map(|refused| refused.reason.label().0), why, "{name}");
            let seen = watched.read.as_ref().filter(|seen| !seen.outbound);
            let known = watched.known.as_ref().filter(|known| !matches!(known, Known::Unknown { .. }));
            let (Some(seen), Some(known)) = (seen, known) else {
                assert!(
                    said.is_none(),
                    "{name} is not found, not proven, or nothing was ever known of its source"
                );
                watched.forget();
                continue;
            };
            let said = said.expect("it is filled");
            assert!(said.is_sound());
            let members = ips(&seven(seen.members));
            assert!(
                !self.add_only || said.level.surplus(&members).next().is_none(),
                "add-only removes nothing"
            );
            match known {
                Known::Unknown { .. } => {}
                Known::Dropped => {
                    assert!(said.level.is_empty(), "it is emptied at once");
                    assert_eq!(said.level.keeps == SurplusPolicy::RemoveAll, !self.add_only);
                    let held = said.held.as_ref().map(|held| held.reason);
                    assert!(matches!(held, None | Some(HeldReason::AddOnly)), "{held:?}");
                    watched.forget();
                }
                Known::Usable(endpoints) => {
                    let (endpoints, probed) = (*endpoints, seen.probed);
                    watched.check_usable(self.fixture.now, &endpoints, probed, &members, said);
                }
            }
        }
    }

    /// Checks that every report about a pool carries the text about its source.
    fn check_reports(&mut self) {
        for report in self.fixture.reports_since() {
            let (EventKind::NotManageable { pool, .. } | EventKind::Held { pool, .. }) = &report.what else {
                assert!(is_of_source(&report), "{report:?}");
                continue;
            };
            let place = POOLS.iter().position(|name| *pool == id("lb", name)).expect("a pool of ours");
            assert_eq!(report.subjects, [Subject::Controller]);
            assert_eq!(report.note.is_some(), self.watched[place].known.is_some());
        }
    }

    /// Checks liveness: after the last event, each pool reaches the members of the best choice, and nothing waits.
    fn run_to_rest(&mut self) {
        self.apply(Event::OperatorPolicy { add_only: false, paused: false });
        self.apply(Event::Pass { millis: 240_000 });
        for name in POOLS {
            // There are two answers, because a pool may be asked again.
            for _ in 0..2 {
                let said = self.fixture.assigned.get(&id("lb", name));
                if said.is_some_and(|said| said.services.is_empty()) {
                    self.fixture.send(In::Retired(id("lb", name)));
                }
            }
        }
        assert_eq!(self.fixture.machine.deadline(), None);
        // The next read shows the members that are written then.
        let mut written = self.fixture.assigned.clone();
        for (place, name) in POOLS.into_iter().enumerate() {
            let watched = &mut self.watched[place];
            let (Some(said), Some(seen)) = (written.get_mut(&id("lb", name)), &mut watched.read) else {
                continue;
            };
            let level = &said.level;
            let found = ips(&seven(seen.members));
            let goes: BTreeSet<IpAddr> = level.surplus(&found).copied().collect();
            let comes = level.required.keys().copied();
            let holds: BTreeSet<IpAddr> = found.difference(&goes).copied().chain(comes).collect();
            let down = level.states.down_when_applied(&holds, &ips(&seven(seen.down)));
            (seen.members, seen.down, seen.updating) = (mask(&holds), mask(&down), false);
            if let Some(Known::Usable(endpoints)) = &watched.known {
                let (best, drain) =
                    (choices(endpoints).first().cloned().unwrap_or_default(), draining(endpoints));
                assert_eq!(level.required.keys().copied().collect::<BTreeSet<_>>(), best);
                if let Some(held) = &said.held {
                    if held.reason == HeldReason::Fraction {
                        assert!(!watched.error_free, "a state without an error becomes certain");
                        continue;
                    }
                    let unusable = is_unusable(endpoints);
                    let reason = if unusable { HeldReason::NoUsableNode } else { HeldReason::LastMember };
                    assert_eq!(held.reason, reason, "nothing else lasts");
                    assert!(best.is_empty() && drain.is_disjoint(&held.members));
                } else {
                    assert_eq!(level.tolerated, drain);
                }
            }
        }
        self.apply(Event::Read(
            self.watched.each_ref().map(|watched| watched.read.clone().unwrap_or(ABSENT)),
        ));
        for (name, watched) in POOLS.iter().zip(&self.watched) {
            let Some(said) = self.fixture.assigned.get(&id("lb", name)) else { continue };
            let seen = watched.read.as_ref().expect("it is assigned");
            let (members, down) = (ips(&seven(seen.members)), ips(&seven(seen.down)));
            assert!(said.level.is_in_sync(&members) && said.level.states.are_in_sync(&members, &down));
            assert_eq!(said.level.states.lifted, BTreeSet::new(), "what was taken back is gone");
        }
    }
}

const ABSENT: Seen =
    Seen { exists: false, members: 0, down: 0, probed: true, outbound: false, updating: false };

/// Returns the last bytes of seven addresses, of which a source can assign six.
fn seven(mask: u8) -> Vec<u8> {
    let low = bits(mask);
    low.into_iter().chain(bits(mask >> 4).into_iter().map(|n| n + 4)).filter(|n| *n < 7).collect()
}

fn mask(of: &BTreeSet<IpAddr>) -> u8 {
    (0..7).filter(|n| of.contains(&ip(*n))).map(|n| 1 << n).sum()
}

impl Watched {
    /// Drops the history of a pool that is not assigned, or is emptied.
    fn forget(&mut self) {
        self.asked.clear();
        self.left.clear();
        self.recent.clear();
        (self.empty_since, self.released) = (None, false);
    }

    fn check_usable(
        &mut self,
        now: Now,
        endpoints: &[[EndpointHealth; 3]; 2],
        probed: bool,
        seen: &BTreeSet<IpAddr>,
        said: &Assignment,
    ) {
        let level = &said.level;
        let required: BTreeSet<IpAddr> = level.required.keys().copied().collect();
        let (choices, drain) = (choices(endpoints), draining(endpoints));
        assert_eq!(required.is_empty(), choices.is_empty(), "what can be used is used");
        assert!(required.is_empty() || choices.contains(&required), "those of one priority: {required:?}");
        assert!(drain.is_subset(&level.tolerated));
        assert_eq!(level.states.down, drain);
        assert!(level.states.lifted.is_subset(&self.drained));
        let asked: BTreeSet<IpAddr> = required.union(&drain).copied().collect();
        for ip in self.asked.difference(&asked) {
            self.left.insert(*ip, now);
        }
        self.left.retain(|ip, _| !asked.contains(ip));
        let delay = Duration::from_secs(if probed { 30 } else { 0 });
        let stays =
            |(ip, left): (&IpAddr, &Now)| left.plus(delay) <= now || !seen.contains(ip) || level.allows(ip);
        assert!(self.left.iter().all(stays), "the removal delay");
        self.asked = asked;

        let may_be_in = |ip: &IpAddr| seen.contains(ip) || self.recent.contains(ip);
        let unusable = is_unusable(endpoints);
        let lasts = required.is_empty() && (unusable || !drain.iter().any(may_be_in));
        self.recent.extend(&required);
        self.released &= lasts;
        self.empty_since = if self.asked.is_empty() { self.empty_since.or(Some(now)) } else { None };
        let confirmed = self.empty_since.is_some_and(|since| now.since(since) >= Duration::from_secs(60));
        assert!(!unusable || self.released || level.surplus(seen).next().is_none(), "no word for removals");
        let emptied = !seen.is_empty() && lasts && level.surplus(seen).count() == seen.len();
        assert!(!emptied || confirmed || self.released, "emptied too soon");
    }
}

proptest! {
    #[test]
    fn x2_x3_pools_of_sources_are_safe_and_end_with_the_best(
        events in prop::collection::vec(event(), 1..60)
    ) {
        let mut world = World::new();
        for event in events {
            world.apply(event);
        }
        world.run_to_rest();
    }
}
