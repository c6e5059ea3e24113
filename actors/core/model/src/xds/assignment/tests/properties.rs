//! Compares random assignments with a simple reference model of validity and content.

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseResult, TestRng, TestRunner};

use super::*;
use pool_testing::planted::each_is_found;

/// The limit of a small pool, which is sometimes exceeded.
const LIMITS: Limits = Limits { members: 3 };

/// The families.
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// A bug between the control plane and the validation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plant {
    /// The second of two endpoints with the same socket is ignored.
    MissesDuplicates,
    /// Priorities are renumbered.
    MissesGaps,
    /// Endpoints of weight 0 count as if they had no weight.
    TakesWeightless,
    /// Localities of weight 0 count.
    TakesSkipped,
    /// Localities without a weight are ignored.
    LeavesUnweighted,
    /// Addresses that cannot belong to a host are replaced by others.
    TakesUnfit,
    /// Additional addresses are ignored.
    ForgetsAdditional,
    /// Degraded endpoints count as healthy.
    TakesDegraded,
    /// Draining endpoints count as out.
    DropsDraining,
    /// Only the first endpoint of each locality is read.
    ReadsOne,
}

impl Plant {
    const ALL: [Plant; 10] = [
        Plant::MissesDuplicates,
        Plant::MissesGaps,
        Plant::TakesWeightless,
        Plant::TakesSkipped,
        Plant::LeavesUnweighted,
        Plant::TakesUnfit,
        Plant::ForgetsAdditional,
        Plant::TakesDegraded,
        Plant::DropsDraining,
        Plant::ReadsOne,
    ];

    /// Applies the bug to the facts.
    fn spoil(self, mut facts: AssignmentFacts) -> AssignmentFacts {
        let localities = &mut facts.localities;
        match self {
            Plant::MissesDuplicates => {
                let mut seen = Vec::new();
                for locality in localities.iter_mut().filter(|locality| locality.weight != Some(0)) {
                    locality.endpoints.retain(|endpoint| {
                        let new = !seen.contains(&endpoint.address);
                        seen.push(endpoint.address.clone());
                        new
                    });
                }
            }
            Plant::MissesGaps => close_gaps(localities),
            Plant::TakesSkipped => localities.iter_mut().for_each(|locality| locality.weight = None),
            Plant::LeavesUnweighted => localities.retain(|locality| locality.weight.is_some()),
            Plant::ReadsOne => localities.iter_mut().for_each(|locality| locality.endpoints.truncate(1)),
            Plant::TakesWeightless
            | Plant::TakesUnfit
            | Plant::ForgetsAdditional
            | Plant::TakesDegraded
            | Plant::DropsDraining => {
                let endpoints = localities.iter_mut().flat_map(|locality| &mut locality.endpoints);
                endpoints.for_each(|endpoint| self.spoil_endpoint(endpoint));
            }
        }
        facts
    }

    fn spoil_endpoint(self, endpoint: &mut EndpointFacts) {
        let heals = |from: i32, to: i32| if endpoint.health == from { to } else { endpoint.health };
        match self {
            Plant::TakesWeightless => endpoint.weight = endpoint.weight.filter(|weight| *weight > 0),
            Plant::ForgetsAdditional => endpoint.additional.clear(),
            Plant::TakesDegraded => endpoint.health = heals(DEGRADED, HEALTHY),
            Plant::DropsDraining => endpoint.health = heals(DRAINING, UNHEALTHY),
            Plant::TakesUnfit => {
                let unfit = |address: &str| address.parse::<IpAddr>().is_ok_and(|ip| !is_fit(ip));
                if let AddressFacts::Socket { address, .. } = &mut endpoint.address
                    && unfit(address)
                {
                    *address = "10.9.9.9".to_owned();
                }
            }
            Plant::MissesDuplicates
            | Plant::MissesGaps
            | Plant::TakesSkipped
            | Plant::LeavesUnweighted
            | Plant::ReadsOne => {}
        }
    }
}

/// Renumbers the priorities of counted localities, from 0 without gaps.
fn close_gaps(localities: &mut [LocalityFacts]) {
    let counts = |locality: &&LocalityFacts| locality.weight != Some(0);
    let numbers: BTreeSet<u32> = localities.iter().filter(counts).map(|locality| locality.priority).collect();
    for locality in localities {
        let place = numbers.iter().position(|number| *number == locality.priority);
        locality.priority = place.and_then(|place| u32::try_from(place).ok()).unwrap_or(locality.priority);
    }
}

/// Applies the reference rule for addresses of hosts in an Azure network, by their first bits.
fn is_fit(ip: IpAddr) -> bool {
    let within = |ip: u128, of: u32, network: &str| {
        let (first, bits) = network.split_once('/').expect("a network");
        let (first, bits): (IpAddr, u32) = (first.parse().expect("ip"), bits.parse().expect("bits"));
        let first = match first {
            IpAddr::V4(first) => u128::from(first.to_bits()),
            IpAddr::V6(first) => first.to_bits(),
        };
        ip.checked_shr(of - bits) == first.checked_shr(of - bits)
    };
    match ip {
        IpAddr::V4(ip) => ![
            "0.0.0.0/8",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "168.63.129.16/32",
            "224.0.0.0/4",
            "255.255.255.255/32",
        ]
        .iter()
        .any(|network| within(u128::from(ip.to_bits()), 32, network)),
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => is_fit(IpAddr::V4(ip)),
            None => !["::/128", "::1/128", "fe80::/10", "ff00::/8"]
                .iter()
                .any(|network| within(ip.to_bits(), 128, network)),
        },
    }
}

/// Returns the reference result for one address. `None`: it is invalid.
fn read(address: &AddressFacts) -> Option<(IpAddr, u32, i32)> {
    match address {
        AddressFacts::Socket { address, port, protocol } => {
            let port = port.unwrap_or(0);
            let ip: IpAddr = address.parse().ok()?;
            (is_fit(ip) && port <= 65_535).then_some((ip.to_canonical(), port, *protocol))
        }
        AddressFacts::Pipe | AddressFacts::Internal | AddressFacts::Missing => None,
    }
}

/// Returns the reference result for an assignment: the addresses of each priority by health. `None`: it is invalid.
fn account(facts: &AssignmentFacts) -> Option<Vec<BTreeMap<IpAddr, EndpointHealth>>> {
    let counted: Vec<&LocalityFacts> =
        facts.localities.iter().filter(|locality| locality.weight != Some(0)).collect();
    let count = counted.iter().map(|locality| locality.priority).collect::<BTreeSet<u32>>().len();
    let mut priorities = vec![BTreeMap::new(); count];
    let mut sockets = Vec::new();
    for locality in counted {
        // There is a gap if one of them is too large.
        let place = usize::try_from(locality.priority).ok()?;
        let priority = priorities.get_mut(place)?;
        for endpoint in &locality.endpoints {
            if endpoint.weight == Some(0) {
                return None;
            }
            let own = [read(&endpoint.address)].into_iter();
            let all: Option<Vec<_>> = own.chain(endpoint.additional.iter().map(read)).collect();
            let all = all?;
            sockets.extend(all.iter().copied());
            for family in FAMILIES {
                if let Some((ip, _, _)) = all.iter().find(|(ip, _, _)| family_of(*ip) == family) {
                    let known = priority.entry(*ip).or_insert(EndpointHealth::Unhealthy);
                    *known = EndpointHealth::of_health(endpoint.health).min(*known);
                }
            }
        }
    }
    let all = sockets.len();
    sockets.sort_unstable();
    sockets.dedup();
    let fits = |priority: &BTreeMap<IpAddr, EndpointHealth>| {
        FAMILIES.iter().all(|family| {
            let of = |health: EndpointHealth| {
                priority.iter().filter(|(ip, at)| family_of(**ip) == *family && **at == health).count()
            };
            of(EndpointHealth::Healthy) <= LIMITS.members && of(EndpointHealth::Degraded) <= LIMITS.members
        })
    };
    (sockets.len() == all && priorities.iter().all(fits)).then_some(priorities)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => (1_u8..=40).prop_map(|n| format!("10.0.0.{n}")),
        4 => (1_u8..=40).prop_map(|n| format!("fd00::{n:x}")),
        1 => (1_u8..=40).prop_map(|n| format!("::ffff:10.0.0.{n}")),
    ]
}

fn flawed() -> impl Strategy<Value = AddressFacts> {
    let texts = ["db.example", "", "0.0.0.0", "127.0.0.1", "::1", "169.254.1.1", "ff02::1", "168.63.129.16"];
    prop_oneof![
        6 => prop::sample::select(texts.to_vec()).prop_map(|text| socket(text, 80)),
        2 => any::<IpAddr>().prop_map(|ip| socket(&ip.to_string(), 80)),
        1 => any::<u32>().prop_map(|port| socket("10.0.0.1", port)),
        1 => Just(AddressFacts::Pipe),
        1 => Just(AddressFacts::Internal),
        1 => Just(AddressFacts::Missing),
    ]
}

fn address() -> impl Strategy<Value = AddressFacts> {
    let port = prop_oneof![8 => (1_u32..=20).prop_map(Some), 1 => Just(None)];
    let socket = (text(), port, prop_oneof![9 => Just(TCP), 1 => Just(UDP)])
        .prop_map(|(address, port, protocol)| AddressFacts::Socket { address, port, protocol });
    prop_oneof![80 => socket, 1 => flawed()]
}

fn any_endpoint() -> impl Strategy<Value = EndpointFacts> {
    let additional = prop_oneof![3 => Just(0_usize), 1 => 1_usize..3]
        .prop_flat_map(|count| prop::collection::vec(address(), count));
    let weight = prop_oneof![60 => Just(None), 20 => (1_u32..3).prop_map(Some), 1 => Just(Some(0))];
    (address(), additional, 0_i32..=6, weight).prop_map(|(address, additional, health, weight)| {
        EndpointFacts { address, additional, health, weight }
    })
}

fn any_facts() -> impl Strategy<Value = AssignmentFacts> {
    let weight = prop_oneof![4 => Just(None), 2 => (1_u32..3).prop_map(Some), 1 => Just(Some(0))];
    let endpoints = prop::collection::vec(any_endpoint(), 0..5);
    let locality = (weight, 0_u32..3, endpoints)
        .prop_map(|(weight, priority, endpoints)| LocalityFacts { weight, ..locality(priority, endpoints) });
    let localities = (prop::collection::vec(locality, 0..5), 0_u8..5);
    localities.prop_map(|(mut localities, gaps)| {
        // Most assignments have no gaps.
        if gaps > 0 {
            close_gaps(&mut localities);
        }
        facts(localities)
    })
}

/// Returns the items in the order of these numbers.
fn in_order<T: Clone>(things: &[T], order: &[usize]) -> Vec<T> {
    let mut places: Vec<usize> = (0..things.len()).collect();
    places.sort_by_key(|place| order.get(*place));
    places.into_iter().map(|place| things[place].clone()).collect()
}

/// Returns an assignment with the same content as a valid one: every address with several ports and with none.
fn equivalent(assignment: &LoadAssignment) -> AssignmentFacts {
    let number_of = |health: EndpointHealth| match health {
        EndpointHealth::Healthy => UNKNOWN,
        EndpointHealth::Degraded => DEGRADED,
        EndpointHealth::Draining => DRAINING,
        EndpointHealth::Unhealthy => TIMEOUT,
    };
    let mut localities: Vec<LocalityFacts> = Vec::new();
    for (number, priority) in (0_u32..).zip(&assignment.priorities) {
        let mut endpoints: Vec<EndpointFacts> = Vec::new();
        // In another priority an address may have another health, so its socket must differ.
        let protocol = i32::try_from(number).expect("few priorities");
        for (ip, health) in &priority.addresses {
            let at = |port: &u32| speaking(protocol, at_port(&ip.to_string(), *port, number_of(*health)));
            endpoints.extend([81, 80, 0].iter().map(at));
            if *health == EndpointHealth::Draining && !assignment.only_drains {
                // A draining endpoint may share the address: the other endpoint determines its health.
                endpoints.push(speaking(protocol, at_port(&ip.to_string(), 82, TIMEOUT)));
            }
        }
        if let (true, Some(first)) = (priority.weighted, endpoints.first()) {
            let heavier = EndpointFacts { weight: Some(2), ..speaking(-1 - protocol, first.clone()) };
            endpoints.push(heavier);
        }
        localities.push(locality(number, endpoints));
    }
    if let (true, Some(first)) = (assignment.alternatives, first_endpoint(&mut localities)) {
        let (own, _, _) = read(&first.address).expect("it is valid");
        first.additional = match family_of(own) {
            Family::V4 => vec![socket("10.8.8.8", 1)],
            Family::V6 => vec![socket("fd08::8", 1)],
        };
    }
    if assignment.skips {
        // If nothing else is assigned, the assignment has only skipped endpoints.
        let health = if assignment.only_drains { EndpointHealth::Draining } else { EndpointHealth::Healthy };
        let skipped = assignment.has_endpoints.then(|| of_health("10.7.7.7", number_of(health)));
        localities.push(weighty(0, 9, skipped.into_iter().collect()));
    }
    facts(localities)
}

/// Returns the endpoint with another protocol.
fn speaking(number: i32, mut endpoint: EndpointFacts) -> EndpointFacts {
    if let AddressFacts::Socket { protocol, .. } = &mut endpoint.address {
        *protocol = number;
    }
    endpoint
}

fn first_endpoint(localities: &mut [LocalityFacts]) -> Option<&mut EndpointFacts> {
    localities.iter_mut().find_map(|locality| locality.endpoints.first_mut())
}

fn check(facts: AssignmentFacts, plant: Option<Plant>) -> TestCaseResult {
    let expected = account(&facts);
    let facts = match plant {
        Some(plant) => plant.spoil(facts),
        None => facts,
    };
    match (LoadAssignment::of(&facts, LIMITS), expected) {
        (Ok(assignment), Some(expected)) => {
            let last = expected.iter().rposition(|priority| !priority.is_empty());
            let expected = &expected[..last.map_or(0, |last| last + 1)];
            let priorities = assignment.priorities.iter();
            let found: Vec<_> = priorities.map(|priority| priority.addresses.clone()).collect();
            prop_assert_eq!(found, expected);
            let usable = |health: &EndpointHealth| {
                matches!(health, EndpointHealth::Healthy | EndpointHealth::Degraded)
            };
            let unusable = !expected.iter().any(|priority| priority.values().any(usable));
            prop_assert_eq!(is_unusable(&assignment), unusable);
        }
        (Err(message), None) => prop_assert!(message.starts_with("endpoints"), "{}", message),
        (Ok(assignment), None) => {
            return Err(TestCaseError::fail(format!("it is not valid: {assignment:?}")));
        }
        (Err(message), Some(_)) => return Err(TestCaseError::fail(format!("it is valid: {message}"))),
    }
    Ok(())
}

proptest! {
    #[test]
    fn x2_an_assignment_is_refused_exactly_for_a_fault(facts in any_facts()) {
        check(facts, None)?;
    }

    #[test]
    fn x2_the_order_of_localities_and_endpoints_does_not_matter(
        facts in any_facts(),
        order in Just((0..8_usize).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let mut other = facts.clone();
        other.localities = in_order(&facts.localities, &order);
        for locality in &mut other.localities {
            locality.endpoints = in_order(&locality.endpoints, &order);
        }
        let (one, other) = (LoadAssignment::of(&facts, LIMITS), LoadAssignment::of(&other, LIMITS));
        prop_assert_eq!(one.ok(), other.ok());
    }

    #[test]
    fn x2_an_equivalent_of_a_decoded_assignment_decodes_equal(facts in any_facts()) {
        if let Ok(assignment) = LoadAssignment::of(&facts, LIMITS) {
            let again = LoadAssignment::of(&equivalent(&assignment), LIMITS);
            prop_assert_eq!(again, Ok(assignment));
        }
    }
}

#[test]
fn each_planted_bug_is_found() {
    each_is_found(Plant::ALL, 3_000, any_facts, |facts, plant| check(facts, Some(plant)));
}

/// The properties would be weak if generated assignments were all valid or all invalid.
#[test]
fn generated_assignments_are_valid_and_invalid() {
    let config = ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let valid = std::cell::Cell::new(0);
    let ended = runner.run(&any_facts(), |facts| {
        valid.set(valid.get() + i32::from(account(&facts).is_some_and(|account| !account.is_empty())));
        Ok(())
    });
    assert!(ended.is_ok(), "{ended:?}");
    assert!((100..950).contains(&valid.get()), "{} of 1000 are valid", valid.get());
}
