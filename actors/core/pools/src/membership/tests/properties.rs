//! Random histories of an assignment, compared with a simple model of the expected members.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::*;
use pool_testing::planted::each_is_found;

/// Number of priorities, and of endpoints in each.
const PRIORITIES: usize = 3;
const ENDPOINTS: usize = 3;
/// Maximum number of events in a history.
const LENGTH: usize = 40;
/// Time for which a better priority must have been usable.
const FAILBACK: Duration = Duration::from_secs(30);

/// An event.
#[derive(Clone, Debug)]
enum Op {
    /// The endpoint at this index of this priority has this health from now on.
    Health(usize, usize, i32),
    /// All endpoints of this priority have this health from now on.
    All(usize, i32),
    /// Only this many priorities are assigned from now on.
    Assigned(usize),
    /// This many milliseconds pass.
    Wait(u64),
    /// The same assignment again.
    Again,
}

/// A bug planted between the world and the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plant {
    /// It does not wait for a better priority.
    DoesNotWait,
    /// It waits longer than it should.
    WaitsTooLong,
    /// It misses the deadline.
    MissesDeadline,
    /// It uses unusable endpoints until something else happens.
    FailsOverLate,
    /// It does not notice that a better priority was unusable in the meantime.
    MissesFlaps,
    /// It loses its history each time.
    LosesHistory,
    /// It treats degraded endpoints as healthy.
    TreatsDegradedAsHealthy,
    /// It keeps draining endpoints without admin states, and drops them with admin states.
    InvertsAdminState,
    /// The pool has the other family.
    UsesOtherFamily,
    /// It treats draining endpoints as members.
    KeepsDraining,
}

impl Plant {
    const ALL: [Plant; 10] = [
        Plant::DoesNotWait,
        Plant::WaitsTooLong,
        Plant::MissesDeadline,
        Plant::FailsOverLate,
        Plant::MissesFlaps,
        Plant::LosesHistory,
        Plant::TreatsDegradedAsHealthy,
        Plant::InvertsAdminState,
        Plant::UsesOtherFamily,
        Plant::KeepsDraining,
    ];
}

fn op() -> impl Strategy<Value = Op> {
    let health = || prop_oneof![4 => Just(HEALTHY), 4 => Just(UNHEALTHY), 1 => 0_i32..=6];
    prop_oneof![
        4 => (0..PRIORITIES, 0..ENDPOINTS, health()).prop_map(|(p, n, health)| Op::Health(p, n, health)),
        6 => (0..PRIORITIES, health()).prop_map(|(priority, health)| Op::All(priority, health)),
        1 => (0..=PRIORITIES).prop_map(Op::Assigned),
        6 => (1_u64..40_000).prop_map(Op::Wait),
        1 => Just(Op::Again),
    ]
}

/// Returns the family of a pool, whether admin states are enabled, and the events.
fn history() -> impl Strategy<Value = (bool, bool, Vec<Op>)> {
    (any::<bool>(), any::<bool>(), prop::collection::vec(op(), 1..=LENGTH))
}

/// The machine, its inputs, and the model.
struct World {
    pool: Failover,
    family: Family,
    admin_state: bool,
    plant: Option<Plant>,
    now: Now,
    /// The health of each endpoint, by priority.
    health: [[i32; ENDPOINTS]; PRIORITIES],
    /// Number of assigned priorities.
    count: usize,
    /// The last input of the machine.
    shown: LoadAssignment,
    /// The endpoints that should be used.
    used: Option<EndpointSet>,
    /// Time since which each set has been usable without interruption.
    since: BTreeMap<EndpointSet, Now>,
}

impl World {
    fn new(v6: bool, admin_state: bool, plant: Option<Plant>) -> World {
        let family = if v6 { Family::V6 } else { Family::V4 };
        let mut world = World {
            pool: Failover::new(family, Params::default()),
            family,
            admin_state,
            plant,
            now: Now::from_millis(1_000),
            health: [[HEALTHY; ENDPOINTS]; PRIORITIES],
            count: PRIORITIES,
            shown: LoadAssignment::default(),
            used: None,
            since: BTreeMap::new(),
        };
        world.pool = world.begin();
        world
    }

    fn has(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    /// Creates a machine without history.
    fn begin(&self) -> Failover {
        let failback = if self.has(Plant::DoesNotWait) {
            Duration::ZERO
        } else if self.has(Plant::WaitsTooLong) {
            FAILBACK * 2
        } else {
            FAILBACK
        };
        let family = match (self.family, self.has(Plant::UsesOtherFamily)) {
            (Family::V4, false) | (Family::V6, true) => Family::V4,
            (Family::V6, false) | (Family::V4, true) => Family::V6,
        };
        let is_on = self.admin_state != self.has(Plant::InvertsAdminState);
        let admin_states = if is_on { AdminStates::On } else { AdminStates::Off };
        Failover::new(family, Params { admin_states, failback, limits: Limits::AZURE })
    }

    /// Returns the addresses of an endpoint. The last one of each priority is the same host at another port.
    fn addresses(priority: usize, n: usize) -> [String; 2] {
        if n + 1 == ENDPOINTS {
            ["10.0.9.9".to_owned(), "fd00:9::9".to_owned()]
        } else {
            [format!("10.0.{priority}.{n}"), format!("fd00:{priority}::{}", n + 1)]
        }
    }

    /// Returns the assignment, with its health numbers mapped.
    fn assignment(&self, health: impl Fn(i32) -> i32) -> LoadAssignment {
        let mut localities = Vec::new();
        for (number, healths) in (0_u32..).zip(&self.health).take(self.count) {
            let priority = usize::try_from(number).expect("few");
            let mut endpoints = Vec::new();
            for (n, at) in healths.iter().enumerate() {
                let [v4, v6] = World::addresses(priority, n);
                let socket =
                    |address: String| AddressFacts::Socket { address, port: Some(80 + number), protocol: 0 };
                let (address, additional) = (socket(v4), vec![socket(v6)]);
                endpoints.push(EndpointFacts { address, additional, health: health(*at), weight: None });
            }
            localities.push(LocalityFacts { priority: number, endpoints, ..LocalityFacts::default() });
        }
        valid(localities)
    }

    /// Returns the model's addresses of the pool's family in one priority with one of these health numbers.
    fn of_health(&self, priority: usize, health: &[i32]) -> BTreeSet<IpAddr> {
        let place = match self.family {
            Family::V4 => 0,
            Family::V6 => 1,
        };
        let all = if priority < self.count { ENDPOINTS } else { 0 };
        (0..all)
            .filter(|n| health.contains(&self.health[priority][*n]))
            .map(|n| World::addresses(priority, n)[place].parse::<IpAddr>().expect("an address"))
            .collect()
    }

    /// Returns the model's members for a set.
    fn chosen(&self, choice: EndpointSet) -> BTreeSet<IpAddr> {
        let health: &[i32] = if choice.degraded { &[DEGRADED] } else { &[UNKNOWN, HEALTHY] };
        self.of_health(choice.priority, health)
    }

    fn apply(&mut self, op: Op) -> TestCaseResult {
        match op {
            Op::Health(priority, n, health) => self.health[priority][n] = health,
            Op::All(priority, health) => self.health[priority] = [health; ENDPOINTS],
            Op::Assigned(count) => self.count = count,
            Op::Wait(millis) => return self.wait(Duration::from_millis(millis)),
            Op::Again => {}
        }
        self.ask()
    }

    /// Advances the clock, and calls the machine at each of its deadlines.
    fn wait(&mut self, span: Duration) -> TestCaseResult {
        let until = self.now.plus(span);
        while let Some(due) = self.deadline().filter(|due| *due <= until) {
            prop_assert!(due > self.now, "it has been due since {:?}", due);
            self.now = due;
            if self.has(Plant::MissesDeadline) {
                self.account();
                prop_assert_eq!(self.pool.used(), self.used, "too late");
            }
            self.ask()?;
        }
        self.now = until;
        Ok(())
    }

    /// Returns the model's deadline.
    fn deadline(&self) -> Option<Now> {
        self.used.and_then(|used| self.better(used).map(|(_, since)| since.plus(FAILBACK)).min())
    }

    /// Returns the better sets of the same health, with the time since when each has been usable.
    fn better(&self, used: EndpointSet) -> impl Iterator<Item = (EndpointSet, Now)> + '_ {
        let alike = move |choice: &EndpointSet| *choice < used && choice.degraded == used.degraded;
        self.since.iter().filter(move |(choice, _)| alike(choice)).map(|(choice, since)| (*choice, *since))
    }

    fn account(&mut self) {
        let choices = (0..PRIORITIES).flat_map(|priority| {
            [EndpointSet { degraded: false, priority }, EndpointSet { degraded: true, priority }]
        });
        let usable: BTreeSet<EndpointSet> =
            choices.filter(|choice| !self.chosen(*choice).is_empty()).collect();
        self.since.retain(|choice, _| usable.contains(choice));
        for choice in &usable {
            self.since.entry(*choice).or_insert(self.now);
        }
        let some_healthy = usable.iter().any(|choice| !choice.degraded);
        let stays = self.used.filter(|used| usable.contains(used) && !(used.degraded && some_healthy));
        self.used = match stays {
            None => usable.first().copied(),
            Some(used) => {
                let lasting = self.better(used).filter(|(_, since)| since.plus(FAILBACK) <= self.now);
                Some(lasting.map(|(choice, _)| choice).min().unwrap_or(used))
            }
        };
    }

    /// Returns the input of the machine.
    fn show(&self) -> LoadAssignment {
        let is = |plant: Plant, health: i32, known: i32| self.has(plant) && health == known;
        let assignment = self.assignment(|health| {
            let likes = is(Plant::TreatsDegradedAsHealthy, health, DEGRADED);
            let keeps = is(Plant::KeepsDraining, health, DRAINING);
            if likes || keeps { HEALTHY } else { health }
        });
        let can = |choice: &EndpointSet| !self.chosen(*choice).is_empty();
        let late = self.has(Plant::FailsOverLate) && self.used.iter().any(|used| !can(used));
        let flaps = self.has(Plant::MissesFlaps) && self.used.iter().any(can);
        if late || flaps { self.shown.clone() } else { assignment }
    }

    fn ask(&mut self) -> TestCaseResult {
        if self.has(Plant::LosesHistory) {
            self.pool = self.begin();
        }
        self.shown = self.show();
        let PoolMembership { members, draining, drains: all, diagnostics } =
            self.pool.members(self.now, &self.shown);
        self.account();
        prop_assert_eq!(self.pool.used(), self.used);
        prop_assert_eq!(self.pool.deadline(), self.deadline());
        let expected = self.used.map(|used| self.chosen(used)).unwrap_or_default();
        prop_assert_eq!(&members, &expected);
        prop_assert_eq!(members.is_empty(), self.since.is_empty(), "a usable endpoint results in a member");
        let drains = (0..PRIORITIES).flat_map(|priority| self.of_health(priority, &[DRAINING]));
        let drains: BTreeSet<IpAddr> = drains.filter(|ip| !expected.contains(ip)).collect();
        prop_assert_eq!(&all, &drains);
        prop_assert_eq!(draining, if self.admin_state { drains } else { BTreeSet::new() });
        prop_assert_eq!(
            diagnostics.contains(&Diagnostic::NothingUsable),
            self.used.is_none() && self.count > 0
        );
        let waits = diagnostics.iter().any(|diagnostic| matches!(diagnostic, Diagnostic::FailbackWaits(_)));
        prop_assert_eq!(waits, self.deadline().is_some());
        Ok(())
    }

    /// Makes all assigned endpoints healthy from now on. The pool uses the first priority in bounded time.
    fn calm(&mut self) -> TestCaseResult {
        self.health = [[HEALTHY; ENDPOINTS]; PRIORITIES];
        self.count = PRIORITIES;
        self.ask()?;
        self.wait(FAILBACK)?;
        prop_assert_eq!(self.pool.used(), Some(EndpointSet { degraded: false, priority: 0 }));
        Ok(())
    }
}

fn play((v6, admin_state, ops): (bool, bool, Vec<Op>), plant: Option<Plant>) -> TestCaseResult {
    let mut world = World::new(v6, admin_state, plant);
    world.ask()?;
    for op in ops {
        world.apply(op)?;
    }
    world.calm()
}

proptest! {
    #[test]
    fn x2_a_pool_uses_the_best_endpoints_in_bounded_time(
        history in history(),
    ) {
        play(history, None)?;
    }

    #[test]
    fn x2_with_usable_endpoints_not_both_pools_are_empty(
        healths in prop::collection::vec(prop::collection::vec(0_i32..=6, 0..4), 0..4),
    ) {
        let mut localities = Vec::new();
        for (priority, healths) in (0_u32..).zip(&healths) {
            let place = |n: usize| match n % 2 {
                0 => format!("10.0.{priority}.{n}"),
                _ => format!("fd00:{priority}::{n}"),
            };
            let all = healths.iter().enumerate();
            let endpoints = all.map(|(n, health)| endpoint(&place(n), *health)).collect();
            localities.push(LocalityFacts { priority, endpoints, ..LocalityFacts::default() });
        }
        let assignment = valid(localities);
        let of = |family| Failover::new(family, Params::default()).members(Now::ZERO, &assignment).members;
        let count = of(Family::V4).len() + of(Family::V6).len();
        let mut known = assignment.priorities.iter().flat_map(|priority| priority.addresses.values());
        prop_assert_eq!(count > 0, known.any(|health| EndpointHealth::USABLE.contains(health)));
    }

    #[test]
    fn x2_addresses_have_distinct_names_that_azure_accepts(
        one in any::<IpAddr>(),
        other in any::<IpAddr>(),
    ) {
        let name = |ip: IpAddr| address_name(ip).as_str().to_owned();
        prop_assert_eq!(one == other, name(one) == name(other));
        let named = name(one);
        let word = |c: char| c.is_ascii_alphanumeric();
        prop_assert!(named.len() <= 80 && named.starts_with(word) && named.ends_with(word), "{}", named);
        prop_assert!(named.chars().all(|c| word(c) || c == '-'), "{}", named);
    }
}

#[test]
fn each_planted_bug_is_found() {
    each_is_found(Plant::ALL, 500, history, |history, plant| play(history, Some(plant)));
}
