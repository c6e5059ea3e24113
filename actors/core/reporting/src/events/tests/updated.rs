//! The text of `LoadBalancerBackendPoolUpdated`: an audit trail that names at most five nodes of each list.

use super::*;
use crate::events::messages::message;
use model::arm::Backend;
use model::ids::InstanceId;

const HEAD: &str = "Load balancer backend pool updated successfully: kubernetes/shop-web has 3 members";
const TAIL: &str = ". Service: shop/web. Trigger: endpoints_changed (correlation id c-1)";

fn text(record: WriteRecord) -> String {
    message(&EventKind::Updated { pool: pool(), members: 3, record: Arc::new(record) }, false)
}

/// Returns `node-1 (10.0.0.1), …` with the nodes of this range.
fn named(last: std::ops::RangeInclusive<u8>) -> String {
    last.map(|n| format!("node-{n} (10.0.0.{n})")).collect::<Vec<_>>().join(", ")
}

#[test]
fn e1_at_most_five_added_nodes_are_named() {
    for (count, names) in [(1, named(1..=1)), (5, named(1..=5)), (6, named(1..=5) + " and 1 more")] {
        let added: Vec<u8> = (1..=count).collect();
        let expected = format!("{HEAD} ({count} added, 0 removed). Added: {names}{TAIL}");
        assert_eq!(text(record(&added, &[])), expected);
    }
}

#[test]
fn e1_three_hundred_nodes_are_five_names_and_a_count() {
    let mut many = record(&[], &[1]);
    for n in 0..300 {
        let ip = IpAddr::from([
            10,
            0,
            u8::try_from(n / 200).expect("small"),
            u8::try_from(n % 200).expect("small"),
        ]);
        many.added.push(&name(&format!("node-{n}")), Some(ip.into()));
    }
    let text = text(many);
    assert!(text.contains("(300 added, 1 removed). Added: node-0 (10.0.0.0), node-1"), "{text}");
    let ends = format!("node-4 (10.0.0.4) and 295 more. Removed: node-1 (10.0.0.1){TAIL}");
    assert!(text.ends_with(&ends), "{text}");
}

#[test]
fn e1_a_removal_names_no_added_nodes() {
    let expected = format!("{HEAD} (0 added, 2 removed). Removed: {}{TAIL}", named(1..=2));
    assert_eq!(text(record(&[], &[1, 2])), expected);
    assert_eq!(text(record(&[], &[])), format!("{HEAD} (0 added, 0 removed){TAIL}"));
}

#[test]
fn e1_unknown_fields_are_omitted() {
    let mut unknown = WriteRecord::default();
    let instance = || Some(Backend::Instance(InstanceId::new("pool-vmss/0")));
    for (node, backend) in
        [("", Some(IpAddr::from([10, 0, 0, 1]).into())), ("", instance()), ("n", None), ("", None)]
    {
        unknown.removed.push(&name(node), backend);
    }
    let names = "10.0.0.1, pool-vmss/0, n, an entry without a name";
    assert_eq!(text(unknown), format!("{HEAD} (0 added, 4 removed). Removed: {names}"));
}

#[test]
fn e1_long_names_are_cut_and_ids_stay() {
    let mut long = record(&[], &[]);
    for n in 0..9 {
        let ip: IpAddr = format!("fd00:1111:2222:3333:4444:5555:6666:{n:04x}").parse().expect("an address");
        let node = name(&format!("{n}{}", "x".repeat(200)));
        long.added.push(&node, Some(ip.into()));
        long.removed.push(&node, Some(ip.into()));
    }
    long.services =
        (0..9).map(|n| ServiceKey::new("n".repeat(63), format!("{n}{}", "s".repeat(62)))).collect();
    let text = text(long);
    assert!(text.len() <= 1024 - "(combined from similar events): ".len(), "{}", text.len());
    let ends = format!("2{} and 6 others. Trigger: endpoints_changed (correlation id c-1)", "s".repeat(62));
    assert!(text.ends_with(&ends), "{text}");
    assert!(text.contains("Added: 0xxx"), "{text}");
}
