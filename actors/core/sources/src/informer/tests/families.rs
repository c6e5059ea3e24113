//! The members of each address family follow from the slices of that family (D4).

use super::*;

/// Returns a Service with pools of both families, and nodes with an address of each.
fn dual(slices: Vec<SliceObject>) -> Run {
    with(params(), slices)
}

fn with(params: Params, slices: Vec<SliceObject>) -> Run {
    let mut service = service("web");
    service.families = vec![V4, V6];
    let mut run = Run::of(params);
    run.list(Kind::Services, vec![service]);
    run.list(Kind::EndpointSlices, slices);
    let ips = |n| [format!("10.0.0.{n}"), format!("fd00::{n}")];
    let nodes = (1..=3).map(|n| {
        let [v4, v6] = ips(n);
        node(&format!("n{n}"), &[&v4, &v6])
    });
    run.list(Kind::Nodes, nodes.collect());
    run
}

fn typed(name: &str, address_type: AddressType, nodes: &[&str]) -> SliceObject {
    SliceObject { address_type, ..slice(name, "web", nodes) }
}

const IPV4: AddressType = AddressType::Ip(V4);
const IPV6: AddressType = AddressType::Ip(V6);

fn both(fact: &ServiceFact) -> [String; 2] {
    [V4, V6].map(|family| shown(fact, family).replace("fd00::", ""))
}

/// Returns the nodes excluded from the pool of a family, with the reasons.
fn excluded(fact: &ServiceFact, family: Family) -> Vec<(&str, ExclusionRule)> {
    fact.parts[&family].excluded.iter().map(|(name, node)| (name.as_str(), node.why)).collect()
}

#[test]
fn d4_a_slice_counts_for_the_family_of_its_addresses() {
    let v4 = typed("web-4", IPV4, &["n1", "n2"]);
    let mut run = dual(vec![v4, typed("web-6", IPV6, &["n2", "n3!"])]);
    let fact = run.fact();
    assert_eq!(both(&fact), ["1 2 | ", "2 | 3"]);
    assert_eq!(fact.data_errors, [] as [Arc<str>; 0]);
    assert_eq!(excluded(&fact, V6), [("n1", ExclusionRule::OtherFamily)]);
    assert_eq!(excluded(&fact, V4), [("n3", ExclusionRule::OtherFamily)]);
    let counted = |family| (fact.parts[&family].slices, fact.parts[&family].endpoints);
    assert_eq!((counted(V4), counted(V6), fact.slices, fact.endpoints), ((1, 2), (1, 2), 2, 4));
}

#[test]
fn d4_a_slice_without_a_type_counts_for_both() {
    let mut run = dual(vec![typed("web-1", AddressType::Unset, &["n1", "n2!"])]);
    assert_eq!(both(&run.fact()), ["1 | 2", "1 | 2"]);
    run.put(typed("web-1", IPV6, &["n1", "n2!"]));
    assert_eq!(both(&run.fact()), [" | ", "1 | 2"], "another type is another state");
}

#[test]
fn d4_a_slice_of_names_counts_for_none_and_is_a_data_error() {
    let mut run = dual(vec![typed("web-1", AddressType::Fqdn, &["n1", ""]), typed("web-4", IPV4, &["n2"])]);
    let out = run.turn();
    let fact = facts(&out)[0].1.clone().expect("a fact");
    assert_eq!(both(&fact), ["2 | ", " | "]);
    let error = "EndpointSlice shop/web-1 has the addressType FQDN and is not used";
    assert_eq!(fact.data_errors, [error.into()]);
    assert!(!fact.parts[&V6].unusable);
    let [report] = &reports(&out)[..] else { panic!("one report") };
    assert_eq!(report.what, EventKind::DataError { endpoints: 2, example: error.into() });
}

#[test]
fn d4_a_single_family_node_errs_for_the_other_family_only() {
    let mut run = dual(vec![typed("web-4", IPV4, &["n1"]), typed("web-6", IPV6, &["n2"])]);
    run.put(node("n1", &["10.0.0.1"]));
    let fact = run.fact();
    assert_eq!((both(&fact), fact.data_errors.len()), (["1 | ".to_owned(), "2 | ".to_owned()], 0));
    assert_eq!(excluded(&fact, V6), [], "it has no address that could be in that pool");
    run.put(typed("web-6", IPV6, &["n1", "n2"]));
    assert_eq!(run.fact().data_errors, ["node n1 has no IPv6 address".into()]);
}

#[test]
fn d4_a_node_contributes_the_first_address_of_each_family() {
    let mut run = dual(dual_slices("web-1", "web", &["n1", "n2!"]).into());
    run.put(node("n1", &["10.0.0.1", "fd00::1", "10.0.0.11", "fd00::11"]));
    run.put(node("n2", &["10.0.0.2", "10.0.0.12"]));
    assert_eq!(both(&run.fact()), ["1 | 2 11 12", "1 | 2 11"], "the last address of node 2 may stay");
}

#[test]
fn d4_c2_upstream_unites_families_and_takes_all_addresses() {
    let upstream = Params { per_family: false, ..params() };
    let mut run = with(upstream, vec![typed("web-4", IPV4, &["n1"]), typed("web-6", IPV6, &["n2"])]);
    run.put(node("n1", &["10.0.0.1", "fd00::1", "10.0.0.11"]));
    let fact = run.fact();
    assert_eq!(both(&fact), ["1 2 11 | ", "1 2 | "]);
    assert_eq!((excluded(&fact, V4), excluded(&fact, V6)), (vec![], vec![]));
}

#[test]
fn d6_an_endpoint_without_node_stays_in_its_own_family() {
    let mut run = dual(vec![typed("web-4", IPV4, &["n1", "n2"]), typed("web-6", IPV6, &["n1", "n2"])]);
    run.turn();
    run.put(typed("web-6", IPV6, &["n1", ""]));
    let fact = run.fact();
    assert_eq!(both(&fact), ["1 2 | ", "1 | 2"]);
    run.put(typed("web-4", IPV4, &["n1"]));
    assert_eq!(both(&run.fact()), ["1 | ", "1 | 2"]);
}

#[test]
fn d6_endpoints_without_a_usable_node_hold_their_family() {
    let mut run = dual(vec![typed("web-4", IPV4, &["gone"]), typed("web-6", IPV6, &[])]);
    let fact = run.fact();
    assert_eq!([V4, V6].map(|family| fact.parts[&family].unusable), [true, false]);
}

#[test]
fn x5_the_members_of_a_family_end_with_its_slices() {
    let drops = Params { fail_on_data_errors: true, ..params() };
    let mut run = with(drops, dual_slices("web-1", "web", &["n1"]).into());
    let dropped = |fact: &ServiceFact| [V4, V6].map(|family| fact.parts[&family].is_dropped);
    assert_eq!(dropped(&run.fact()), [false, false]);
    run.gone(slice_key("web-1-v6"));
    let fact = run.fact();
    assert_eq!((both(&fact), dropped(&fact)), (["1 | ".to_owned(), " | ".to_owned()], [false, true]));
    run.gone(slice_key("web-1"));
    assert_eq!(dropped(&run.fact()), [true, true]);
    dual_slices("web-1", "web", &["n1"]).into_iter().for_each(|slice| run.put(slice));
    assert_eq!(dropped(&run.fact()), [false, false]);
}
