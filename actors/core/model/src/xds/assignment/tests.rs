//! The validity rules as tables, and the content of valid assignments.

mod properties;

use super::*;
use crate::xds::facts::Locality;

/// Returns true if no endpoint is usable, or if there is none.
fn is_unusable(assignment: &LoadAssignment) -> bool {
    let mut known = assignment.priorities.iter().flat_map(|priority| priority.addresses.values());
    !known.any(|health| EndpointHealth::USABLE.contains(health))
}

/// The numbers of `HealthStatus`.
const UNKNOWN: i32 = 0;
const HEALTHY: i32 = 1;
const UNHEALTHY: i32 = 2;
const DRAINING: i32 = 3;
const TIMEOUT: i32 = 4;
const DEGRADED: i32 = 5;

/// The numbers of the protocols.
const TCP: i32 = 0;
const UDP: i32 = 1;

fn socket(address: &str, port: u32) -> AddressFacts {
    AddressFacts::Socket { address: address.to_owned(), port: Some(port), protocol: TCP }
}

/// Returns a healthy endpoint at port 80, with this address and these additional ones.
fn endpoint(address: &str, additional: &[&str]) -> EndpointFacts {
    let additional = additional.iter().map(|address| socket(address, 80)).collect();
    EndpointFacts { address: socket(address, 80), additional, health: HEALTHY, weight: None }
}

fn healthy(address: &str) -> EndpointFacts {
    endpoint(address, &[])
}

fn of_health(address: &str, health: i32) -> EndpointFacts {
    EndpointFacts { health, ..healthy(address) }
}

fn at_port(address: &str, port: u32, health: i32) -> EndpointFacts {
    EndpointFacts { address: socket(address, port), ..of_health(address, health) }
}

fn at(address: AddressFacts) -> EndpointFacts {
    EndpointFacts { address, ..healthy("10.0.0.1") }
}

fn weighing(address: &str, weight: u32) -> EndpointFacts {
    EndpointFacts { weight: Some(weight), ..healthy(address) }
}

fn locality(priority: u32, endpoints: Vec<EndpointFacts>) -> LocalityFacts {
    LocalityFacts { priority, endpoints, ..LocalityFacts::default() }
}

fn weighty(weight: u32, priority: u32, endpoints: Vec<EndpointFacts>) -> LocalityFacts {
    LocalityFacts { weight: Some(weight), ..locality(priority, endpoints) }
}

fn facts(localities: Vec<LocalityFacts>) -> AssignmentFacts {
    AssignmentFacts { cluster_name: "shop".to_owned(), localities }
}

fn validated(localities: Vec<LocalityFacts>) -> Result<LoadAssignment, String> {
    LoadAssignment::of(&facts(localities), Limits::AZURE)
}

fn valid(localities: Vec<LocalityFacts>) -> LoadAssignment {
    validated(localities).expect("it is valid")
}

fn fault(localities: Vec<LocalityFacts>) -> String {
    validated(localities).expect_err("it is not valid")
}

/// Returns the addresses of each priority, with their health.
fn shown(assignment: &LoadAssignment) -> Vec<Vec<String>> {
    let line = |(ip, health): (&IpAddr, &EndpointHealth)| format!("{ip} {health}");
    let priorities = assignment.priorities.iter();
    priorities.map(|priority| priority.addresses.iter().map(line).collect()).collect()
}

#[test]
fn x2_endpoints_have_their_health_and_unknown_values_are_out() {
    let table = [
        (UNKNOWN, EndpointHealth::Healthy),
        (HEALTHY, EndpointHealth::Healthy),
        (UNHEALTHY, EndpointHealth::Unhealthy),
        (DRAINING, EndpointHealth::Draining),
        (TIMEOUT, EndpointHealth::Unhealthy),
        (DEGRADED, EndpointHealth::Degraded),
        (6, EndpointHealth::Unhealthy),
        (-1, EndpointHealth::Unhealthy),
    ];
    for (number, health) in table {
        assert_eq!(EndpointHealth::of_health(number), health, "{number}");
        let assignment = valid(vec![locality(0, vec![of_health("10.0.0.1", number)])]);
        assert_eq!(shown(&assignment), [[format!("10.0.0.1 {health}")]]);
        assert_eq!(is_unusable(&assignment), !EndpointHealth::USABLE.contains(&health), "{number}");
    }
}

#[test]
fn x2_an_assignment_without_endpoints_is_valid_and_empty() {
    let empty = [vec![], vec![locality(0, vec![])], vec![locality(0, vec![]), locality(1, vec![])]];
    for localities in empty {
        let assignment = valid(localities);
        assert_eq!(assignment, LoadAssignment::default());
        assert!(is_unusable(&assignment));
    }
    let second = valid(vec![locality(0, vec![]), locality(1, vec![healthy("10.0.0.1")])]);
    assert_eq!(shown(&second), [vec![], vec!["10.0.0.1 healthy".to_owned()]]);
}

#[test]
fn x2_only_localities_of_weight_0_are_skipped() {
    let unset = valid(vec![locality(0, vec![healthy("10.0.0.1")])]);
    assert_eq!((shown(&unset), unset.skips), (vec![vec!["10.0.0.1 healthy".to_owned()]], false));
    let nonsense = vec![at(AddressFacts::Pipe), weighing("10.0.0.1", 0), healthy("10.0.0.1")];
    let skipped = valid(vec![weighty(0, 7, nonsense), locality(0, vec![healthy("10.0.0.1")])]);
    assert_eq!((shown(&skipped), skipped.skips), (vec![vec!["10.0.0.1 healthy".to_owned()]], true));
    let nothing = valid(vec![weighty(0, 0, vec![healthy("10.0.0.1")])]);
    assert!(is_unusable(&nothing) && nothing.skips);
}

#[test]
fn x2_a_locality_is_unique_in_its_priority() {
    let zone =
        |zone: &str| Locality { region: "r".to_owned(), zone: zone.to_owned(), sub_zone: String::new() };
    let named = |priority: u32, name: &str, address: &str| LocalityFacts {
        locality: Some(zone(name)),
        ..locality(priority, vec![healthy(address)])
    };
    let nameless = |address: &str| locality(0, vec![healthy(address)]);
    let (first, second) = (named(0, "1", "10.0.0.1"), named(0, "2", "10.0.0.2"));
    let skipped = LocalityFacts { weight: Some(0), ..first.clone() };
    let good = vec![skipped, first.clone(), second.clone(), named(1, "1", "10.0.0.3"), nameless("10.0.0.4")];
    assert_eq!(shown(&valid([good, vec![nameless("10.0.0.5")]].concat()))[0].len(), 4);
    let twice = fault(vec![first.clone(), second, named(0, "1", "10.0.0.3")]);
    let words = "endpoints[2].locality: \"r/1/\" is a duplicate in priority 0, it is also endpoints[0]";
    assert!(twice.starts_with(words), "{twice}");
    let empty = |address| LocalityFacts { locality: Some(Locality::default()), ..nameless(address) };
    assert!(fault(vec![empty("10.0.0.1"), empty("10.0.0.2")]).contains("is a duplicate"), "one may be empty");
}

#[test]
fn x2_locality_weights_of_a_priority_fit_in_32_bits() {
    let of =
        |weight: u32, priority: u32, n: u8| weighty(weight, priority, vec![healthy(&format!("10.0.0.{n}"))]);
    valid(vec![of(u32::MAX - 1, 0, 1), of(1, 0, 2), of(u32::MAX, 1, 3)]);
    let words = fault(vec![of(u32::MAX, 0, 1), of(1, 0, 2), of(9, 0, 3)]);
    assert!(words.starts_with("endpoints[1].load_balancing_weight: makes more than 4294967295"), "{words}");
    assert!(!words.contains("endpoints[2]"), "it is reported once: {words}");
}

#[test]
fn x2_an_endpoint_of_weight_0_is_refused() {
    let fault = fault(vec![locality(0, vec![healthy("10.0.0.1"), weighing("10.0.0.2", 0)])]);
    assert!(fault.starts_with("endpoints[0].lb_endpoints[1].load_balancing_weight: is 0"), "{fault}");
}

#[test]
fn x2_gaps_in_priorities_are_refused() {
    let one = |priority: u32| locality(priority, vec![healthy(&format!("10.0.0.{}", priority % 200 + 1))]);
    let table = [
        (vec![one(1)], "endpoints[0].priority: is 1, and no locality with a weight has 0"),
        (vec![one(3), one(0), one(1)], "endpoints[0].priority: is 3, and no locality with a weight has 2"),
        (vec![one(0), one(u32::MAX)], "endpoints[1].priority: is 4294967295, and no"),
    ];
    for (localities, expected) in table {
        let fault = fault(localities);
        assert!(fault.starts_with(expected), "{fault}");
    }
    assert_eq!(shown(&valid(vec![one(2), one(0), one(1)])).len(), 3);
}

#[test]
fn x2_a_priority_with_only_weight_0_is_a_gap() {
    let localities = vec![weighty(0, 0, vec![healthy("10.0.0.1")]), locality(1, vec![healthy("10.0.0.2")])];
    assert!(fault(localities).starts_with("endpoints[1].priority: is 1"));
}

#[test]
fn x2_a_duplicate_address_and_port_is_rejected_anywhere() {
    let first = || locality(0, vec![healthy("10.0.0.1")]);
    let none = AddressFacts::Socket { address: "10.0.0.9".to_owned(), port: None, protocol: TCP };
    let table = [
        (
            vec![locality(0, vec![healthy("10.0.0.1"), of_health("10.0.0.1", DRAINING)])],
            "endpoints[0].lb_endpoints[1].endpoint.address: 10.0.0.1:80 is a duplicate",
        ),
        (
            vec![first(), locality(1, vec![healthy("10.0.0.1")])],
            "endpoints[1].lb_endpoints[0].endpoint.address: 10.0.0.1:80 is a duplicate",
        ),
        (
            vec![first(), locality(0, vec![endpoint("fd00::1", &["10.0.0.1"])])],
            "endpoints[1].lb_endpoints[0].endpoint.additional_addresses[0].address: 10.0.0.1:80 is a",
        ),
        (
            vec![first(), locality(0, vec![healthy("::ffff:10.0.0.1")])],
            "endpoints[1].lb_endpoints[0].endpoint.address: 10.0.0.1:80 is a duplicate",
        ),
        (
            vec![locality(0, vec![healthy("fd00:0::1"), healthy("fd00::1")])],
            "endpoints[0].lb_endpoints[1].endpoint.address: [fd00::1]:80 is a duplicate",
        ),
        (
            vec![locality(0, vec![at(none.clone()), at(none), at(socket("10.0.0.9", 0))])],
            "endpoints[0].lb_endpoints[1].endpoint.address: 10.0.0.9:0 is a duplicate",
        ),
    ];
    for (localities, expected) in table {
        let fault = fault(localities);
        assert!(fault.starts_with(expected), "{fault}");
        assert!(fault.contains("also in endpoints[0].lb_endpoints[0]"), "{fault}");
    }
}

#[test]
fn x2_an_address_with_several_ports_has_its_best_health() {
    let ports = [(81, UNHEALTHY), (80, HEALTHY), (82, DRAINING), (83, DEGRADED)];
    let all: Vec<EndpointFacts> =
        ports.iter().map(|(port, health)| at_port("10.0.0.1", *port, *health)).collect();
    let of = |places: &[usize]| {
        let some = places.iter().map(|place| all[*place].clone()).collect();
        let assignment = valid(vec![locality(0, some)]);
        shown(&assignment)[0].clone()
    };
    assert_eq!(of(&[0, 1, 2, 3]), ["10.0.0.1 healthy"]);
    assert_eq!(of(&[2, 3]), ["10.0.0.1 degraded"]);
    assert_eq!(of(&[0, 2]), ["10.0.0.1 draining"]);
    let at = |port: u32| valid(vec![locality(0, vec![at_port("10.0.0.1", port, HEALTHY)])]);
    assert_eq!(at(80), at(81), "another port is the same assignment, because a pool has no ports");
}

#[test]
fn x2_tcp_and_udp_of_one_address_are_one_member() {
    let udp = AddressFacts::Socket { address: "10.0.0.1".to_owned(), port: Some(80), protocol: UDP };
    let assignment = valid(vec![locality(0, vec![healthy("10.0.0.1"), at(udp)])]);
    assert_eq!(shown(&assignment), [["10.0.0.1 healthy"]]);
}

#[test]
fn x2_an_address_may_be_in_two_priorities() {
    let assignment = valid(vec![
        locality(0, vec![of_health("10.0.0.1", UNHEALTHY)]),
        locality(1, vec![at_port("10.0.0.1", 81, HEALTHY)]),
    ]);
    assert_eq!(shown(&assignment), [["10.0.0.1 out"], ["10.0.0.1 healthy"]]);
}

#[test]
fn x2_addresses_that_are_no_ips_are_rejected() {
    const IP: &str = ".socket_address.address: ";
    let text = |address: &str| socket(address, 80);
    let table = [
        (text("db.example"), IP, "\"db.example\" is not an IP address"),
        (text(""), IP, "\"\" is not an IP address"),
        (text("10.0.0.1:80"), IP, "is not an IP address"),
        (text("[fd00::1]"), IP, "is not an IP address"),
        (text("fe80::1%eth0"), IP, "is not an IP address"),
        (text("010.0.0.1"), IP, "is not an IP address"),
        (text(" 10.0.0.1"), IP, "is not an IP address"),
        (socket("10.0.0.1", 65_536), ".socket_address.port_value: ", "65536 is not the number of a port"),
        (AddressFacts::Pipe, ".pipe: ", "name the IP address"),
        (AddressFacts::Internal, ".envoy_internal_address: ", "name the IP address"),
        (AddressFacts::Missing, ": ", "is missing: name the IP address"),
    ];
    for (address, field, expected) in table {
        let own = fault(vec![locality(0, vec![at(address.clone())])]);
        let path = format!("endpoints[0].lb_endpoints[0].endpoint.address{field}");
        assert!(own.starts_with(&path) && own.contains(expected), "{own}");
        let additional = vec![socket("fd00::1", 1), address];
        let second = EndpointFacts { additional, ..healthy("10.0.0.2") };
        let further = fault(vec![locality(0, vec![healthy("10.0.0.1"), second])]);
        let path = format!("endpoints[0].lb_endpoints[1].endpoint.additional_addresses[1].address{field}");
        assert!(further.starts_with(&path) && further.contains(expected), "{further}");
    }
}

#[test]
fn x2_addresses_that_no_azure_host_can_have_are_rejected() {
    let table = [
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("::", "unspecified"),
        ("::ffff:0.0.0.0", "unspecified"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("febf::1", "link-local"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("ff02::1", "multicast"),
        ("255.255.255.255", "broadcast"),
        ("168.63.129.16", "Azure's own"),
    ];
    for (address, reason) in table {
        let fault = fault(vec![locality(0, vec![of_health(address, UNHEALTHY)])]);
        let path = "endpoints[0].lb_endpoints[0].endpoint.address.socket_address.address: ";
        assert!(fault.starts_with(path) && fault.contains(reason), "{address}: {fault}");
    }
    for address in ["1.0.0.0", "100.64.0.1", "168.63.129.17", "203.0.113.1", "fd00::1", "fec0::1"] {
        let assignment = valid(vec![locality(0, vec![healthy(address)])]);
        assert_eq!(shown(&assignment), [[format!("{address} healthy")]]);
    }
}

#[test]
fn x2_an_ipv4_mapped_ipv6_address_is_ipv4() {
    let assignment = valid(vec![locality(0, vec![healthy("::ffff:10.0.0.1"), healthy("::FFFF:a00:2")])]);
    assert_eq!(shown(&assignment), [["10.0.0.1 healthy", "10.0.0.2 healthy"]]);
    assert_eq!(assignment.with(Family::V4, 0, EndpointHealth::Healthy).count(), 2);
}

#[test]
fn x2_additional_addresses_fill_the_other_familys_pool() {
    let both = vec![endpoint("10.0.0.1", &["fd00::1"]), endpoint("fd00::2", &["10.0.0.2"])];
    let dual = valid(vec![locality(0, both)]);
    let of = |assignment: &LoadAssignment, family| -> Vec<String> {
        assignment.with(family, 0, EndpointHealth::Healthy).map(|ip| ip.to_string()).collect()
    };
    assert_eq!(of(&dual, Family::V4), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(of(&dual, Family::V6), ["fd00::1", "fd00::2"]);
    assert!(!dual.alternatives);
    let more = endpoint("10.0.0.1", &["10.0.0.9", "fd00::1", "fd00::9"]);
    let more = valid(vec![locality(0, vec![more])]);
    assert_eq!(of(&more, Family::V4), ["10.0.0.1"]);
    assert_eq!(of(&more, Family::V6), ["fd00::1"]);
    assert!(more.alternatives);
    let ports = EndpointFacts { additional: vec![socket("10.0.0.1", 81)], ..healthy("10.0.0.1") };
    let ports = valid(vec![locality(0, vec![ports])]);
    assert!(!ports.alternatives, "another port is no other address");
}

#[test]
fn x2_more_addresses_than_a_pool_can_hold_are_rejected() {
    let many = |from: u32, to: u32, health: i32, text: fn(u32) -> String| -> Vec<EndpointFacts> {
        (from..to).map(|n| of_health(&text(n), health)).collect()
    };
    let v4: fn(u32) -> String = |n| format!("10.0.{}.{}", n / 250, n % 250);
    let v6: fn(u32) -> String = |n| format!("fd00::{n:x}");
    let fits = valid(vec![
        locality(0, many(1, 1_001, HEALTHY, v4)),
        locality(0, many(1, 1_001, UNKNOWN, v6)),
        locality(0, many(2_001, 3_001, DEGRADED, v4)),
        locality(0, many(3_001, 6_001, DRAINING, v4)),
        locality(0, many(6_001, 9_001, TIMEOUT, v4)),
        locality(1, many(9_001, 10_001, HEALTHY, v4)),
    ]);
    assert_eq!(fits.with(Family::V4, 0, EndpointHealth::Healthy).count(), 1_000);
    let table = [
        (many(1, 1_002, HEALTHY, v4), "1001 healthy IPv4"),
        (many(1, 1_002, UNKNOWN, v6), "1001 healthy IPv6"),
        (many(1, 1_002, DEGRADED, v6), "1001 degraded IPv6"),
    ];
    for (endpoints, expected) in table {
        let fault = fault(vec![locality(0, vec![]), locality(1, endpoints)]);
        let expected = format!("endpoints: are {expected} addresses of priority 1: a pool holds 1000");
        assert!(fault.starts_with(&expected), "{fault}");
    }
    let one_host = (1..2_000).map(|port| at_port("10.0.0.1", port, HEALTHY)).collect();
    assert_eq!(shown(&valid(vec![locality(0, one_host)])), [["10.0.0.1 healthy"]]);
}

#[test]
fn x2_unequal_weights_are_detected() {
    let of = |n: u8, weight: u32| weighing(&format!("10.0.0.{n}"), weight);
    let plain = |n: u8| healthy(&format!("10.0.0.{n}"));
    let table = [
        (false, vec![locality(0, vec![plain(1), of(2, 1)])]),
        (false, vec![locality(0, vec![of(1, 7), of(2, 7)])]),
        (true, vec![locality(0, vec![of(1, 7), of(2, 8)])]),
        (true, vec![locality(0, vec![plain(1), of(2, 2)])]),
        (true, vec![locality(0, vec![of(1, 1)]), locality(0, vec![of(2, 2)])]),
        (false, vec![weighty(2, 0, vec![plain(1), plain(2)]), weighty(1, 0, vec![plain(3)])]),
        (true, vec![weighty(1, 0, vec![plain(1), plain(2)]), weighty(1, 0, vec![plain(3)])]),
        (false, vec![weighty(9, 0, vec![plain(1)]), weighty(1, 0, vec![])]),
        (false, vec![weighty(9, 0, vec![plain(1)]), locality(0, vec![plain(2)])]),
        (false, vec![weighty(9, 0, vec![plain(1)]), weighty(1, 1, vec![plain(2)])]),
    ];
    for (weighted, localities) in table {
        assert_eq!(valid(localities.clone()).priorities[0].weighted, weighted, "{localities:?}");
    }
}

#[test]
fn x2_all_errors_of_an_assignment_have_their_paths() {
    let localities = vec![
        locality(0, vec![at(AddressFacts::Pipe), weighing("10.0.0.1", 0)]),
        locality(2, vec![healthy("db")]),
    ];
    let fault = fault(localities);
    for path in [
        "endpoints[0].lb_endpoints[0].endpoint.address.pipe: ",
        "; endpoints[0].lb_endpoints[1].load_balancing_weight: ",
        "; endpoints[1].lb_endpoints[0].endpoint.address.socket_address.address: ",
        "; endpoints[1].priority: ",
    ] {
        assert!(fault.contains(path), "{fault}");
    }
}
