//! Tests of the plan, with property tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::tests::fake::{apply, entry, ip};
use model::arm::{AdminState, Backend, Entry};
use model::ids::{InstanceId, LbName, NodeUid, PoolId, PoolName, SubnetId};
use model::level::{Member, States};
use pool_testing::facts::pool_at_rest;

fn pool(entries: Vec<Entry>) -> PoolFacts {
    pool_at_rest(PoolId::new(LbName::new("lb"), PoolName::new("shop-web")), entries)
}

fn member(name: &str) -> Member {
    Member { name: AddressName::new(name), node_ready: true }
}

fn level(required: &[(u8, &str)], tolerated: &[u8]) -> Level {
    Level {
        required: required.iter().map(|(last, name)| (ip(*last), member(name))).collect(),
        tolerated: tolerated.iter().map(|last| ip(*last)).collect(),
        ..Level::default()
    }
}

fn draining(addresses: &[u8], restorable: &[u8]) -> Draining {
    Draining {
        generation: 1,
        addresses: addresses.iter().map(|last| (ip(*last).into(), NodeUid::new("uid"))).collect(),
        restorable: restorable.iter().map(|last| ip(*last).into()).collect(),
        ..Draining::default()
    }
}

fn edit(facts: &PoolFacts, level: Option<&Level>, draining: &Draining) -> PoolChange {
    match plan(facts, level, draining, None) {
        Plan::Unchanged => PoolChange::default(),
        Plan::Edit(change) => *change,
    }
}

fn names(change: &PoolChange) -> Vec<&str> {
    change.edit.add.iter().map(|new| new.name.as_str()).collect()
}

#[test]
fn w3_members_are_removed_and_added_in_order_of_address() {
    let facts = pool(vec![entry("n1", Some(ip(1))), entry("n2", Some(ip(2))), entry("n3", Some(ip(3)))]);
    let change = edit(&facts, Some(&level(&[(9, "n9"), (1, "n1"), (4, "n4")], &[3])), &Draining::default());
    assert_eq!(change.edit.remove, BTreeSet::from([1]));
    assert_eq!(names(&change), ["n4", "n9"]);
    assert_eq!(change.members, BTreeSet::from([ip(1), ip(3), ip(4), ip(9)]));
    assert_eq!((change.added.len(), change.removed), (2, BTreeSet::from([ip(2)])));
}

#[test]
fn w3_members_in_sync_are_unchanged_and_garbage_causes_no_write() {
    let facts = pool(vec![
        entry("n1", Some(ip(1))),
        entry("garbage", None),
        entry("again", Some(ip(1))),
        entry("n3", Some(ip(3))),
    ]);
    let in_sync = level(&[(1, "n1")], &[3]);
    assert_eq!(plan(&facts, Some(&in_sync), &Draining::default(), None), Plan::Unchanged);
    let change = edit(&facts, Some(&level(&[(1, "n1")], &[])), &Draining::default());
    assert_eq!(change.edit.remove, BTreeSet::from([1, 2, 3]), "but it goes with one");
}

#[test]
fn w3_an_emptied_pool_is_an_edit_that_removes_everything() {
    let facts = pool(vec![entry("n1", Some(ip(1))), entry("n2", Some(ip(2)))]);
    let change = edit(&facts, Some(&Level::default()), &Draining::default());
    assert_eq!(change.edit.remove, BTreeSet::from([0, 1]));
    assert!(change.edit.add.is_empty() && change.members.is_empty());
    assert_eq!(plan(&pool(Vec::new()), Some(&Level::default()), &Draining::default(), None), Plan::Unchanged);
}

#[test]
fn w3_a_duplicate_name_in_any_case_gets_the_address_appended() {
    let facts = pool(vec![entry("NODE", Some(ip(1))), entry("gone", Some(ip(2)))]);
    let wanted = level(&[(1, "other"), (3, "node"), (4, "gone"), (5, "node")], &[]);
    let change = edit(&facts, Some(&wanted), &Draining::default());
    assert_eq!(names(&change), ["node-10-0-0-3", "gone", "node-10-0-0-5"]);
}

#[test]
fn w3_names_fit_azures_alphabet_and_length() {
    let long = "n".repeat(90);
    let facts = pool(vec![entry("ip-10-0-0-4", Some(ip(9)))]);
    let wanted = level(&[(1, &long), (2, "-a b/c-"), (3, ""), (4, "--"), (9, "x")], &[]);
    let change = edit(&facts, Some(&wanted), &Draining::default());
    let long_cut = format!("{}-10-0-0-1", "n".repeat(71));
    assert_eq!(names(&change), [&*long_cut, "a-b-c-10-0-0-2", "ip-10-0-0-3", "ip-10-0-0-4-2"]);
    assert_eq!(long_cut.len(), NAME_LIMIT);
    let mut six = Level::default();
    six.required.insert("::1".parse().expect("an address"), member(""));
    six.required.insert("fd00::a:1".parse().expect("an address"), member("taken"));
    let facts = pool(vec![entry("taken", Some("fd00::2".parse().expect("an address")))]);
    six.tolerated.insert("fd00::2".parse().expect("an address"));
    assert_eq!(names(&edit(&facts, Some(&six), &Draining::default())), ["ip-1", "taken-fd00--a-1"]);
}

#[test]
fn w3_a_new_member_on_a_draining_node_is_added_down() {
    let change = edit(&pool(Vec::new()), Some(&level(&[(1, "a"), (2, "b")], &[])), &draining(&[2], &[]));
    let states: Vec<_> = change.edit.add.iter().map(|new| new.admin_state).collect();
    assert_eq!(states, [None, Some(AdminState::Down)]);
}

#[test]
fn n4_draining_overrides_up_and_only_our_down_is_restored() {
    let state = |name: &str, last: u8, admin_state| Entry { admin_state, ..entry(name, Some(ip(last))) };
    let facts = pool(vec![
        state("up-draining", 1, AdminState::Up),
        state("down-draining", 2, AdminState::Down),
        state("ours", 3, AdminState::Down),
        state("foreign", 4, AdminState::Down),
        state("up", 5, AdminState::Up),
        state("none-draining", 6, AdminState::None),
        state("unknown-draining", 7, AdminState::Unknown),
        state("ours-draining", 8, AdminState::Down),
    ]);
    let set = draining(&[1, 2, 6, 7, 8], &[3, 5, 8]);
    let change = edit(&facts, None, &set);
    let expected = BTreeMap::from([(0, AdminState::Down), (2, AdminState::None), (5, AdminState::Down)]);
    assert_eq!(change.edit, Edit { set_admin: expected, ..Edit::default() });
    assert_eq!(change.restored, BTreeSet::from([Backend::from(ip(3))]));
    assert_eq!(change.members, facts.members(), "an admin-only write keeps the observed members (N3)");
}

#[test]
fn n4_an_exception_applies_only_in_its_pool() {
    let down = Entry { admin_state: AdminState::Down, ..entry("down", Some(ip(1))) };
    let facts = pool(vec![down]);
    let exception = (facts.id.clone(), Backend::from(ip(1)));
    let set = Draining { foreign: BTreeSet::from([exception]), ..draining(&[], &[1]) };
    assert_eq!(plan(&facts, None, &set, None), Plan::Unchanged);
    let other = PoolFacts { id: PoolId::new(LbName::new("lb"), PoolName::new("other")), ..facts };
    assert_eq!(edit(&other, None, &set).edit.set_admin, BTreeMap::from([(0, AdminState::None)]));
}

#[test]
fn n2_an_excluded_pool_gets_no_admin_state_at_all() {
    let down = Entry { admin_state: AdminState::Down, ..entry("down", Some(ip(2))) };
    let facts = pool(vec![entry("drains", Some(ip(1))), down]);
    let set = Draining { excluded: [PoolName::new("SHOP-WEB")].into(), ..draining(&[1, 3], &[2]) };
    assert_eq!(plan(&facts, None, &set, None), Plan::Unchanged);
    let change = edit(&facts, Some(&level(&[(3, "born")], &[1, 2])), &set);
    assert_eq!((change.edit.set_admin.len(), change.edit.add[0].admin_state), (0, None));
}

fn state(last: u8, admin_state: AdminState) -> Entry {
    Entry { admin_state, ..entry(&format!("n{last}"), Some(ip(last))) }
}

/// Returns the same level with these admin states from its source.
fn saying(level: Level, down: &[u8], lifted: &[u8]) -> Level {
    let of = |last: &[u8]| last.iter().map(|last| ip(*last)).collect();
    Level { states: States { down: of(down), lifted: of(lifted) }, ..level }
}

#[test]
fn x2_a_draining_endpoint_is_down_until_it_is_back() {
    let facts = pool(vec![
        state(1, AdminState::None),
        state(2, AdminState::Up),
        state(3, AdminState::Down),
        state(4, AdminState::Unknown),
        state(5, AdminState::Down),
        state(6, AdminState::Up),
        state(7, AdminState::Unknown),
        state(8, AdminState::Down),
    ]);
    let members = level(&[(5, "n5"), (6, "n6"), (7, "n7"), (8, "n8")], &[1, 2, 3, 4, 9]);
    let wanted = saying(members.clone(), &[1, 2, 3, 4, 9], &[5, 6, 7]);
    let change = edit(&facts, Some(&wanted), &Draining::default());
    let expected = BTreeMap::from([(0, AdminState::Down), (1, AdminState::Down), (4, AdminState::None)]);
    assert_eq!(change.edit, Edit { set_admin: expected, ..Edit::default() }, "8 is another client's");
    assert_eq!((change.members, change.restored), (facts.members(), BTreeSet::new()));
    assert_eq!(plan(&facts, None, &Draining::default(), None), Plan::Unchanged, "membership does not ride");
    assert_eq!(plan(&facts, Some(&members), &Draining::default(), None), Plan::Unchanged, "nothing is said");
    let in_sync =
        pool(vec![state(1, AdminState::Down), state(5, AdminState::None), state(8, AdminState::Down)]);
    let wanted = saying(level(&[(5, "n5"), (8, "n8")], &[1]), &[1], &[5]);
    assert_eq!(
        plan(&in_sync, Some(&wanted), &Draining::default(), None),
        Plan::Unchanged,
        "it is done after once"
    );
}

#[test]
fn x2_n4_a_down_of_a_source_is_restored_in_other_pools() {
    let facts = pool(vec![Entry { admin_state: AdminState::Down, ..entry("a", Some(ip(1))) }]);
    let kept = |pool: PoolId| Draining {
        kept: BTreeSet::from([(pool, Backend::from(ip(1)))]),
        ..draining(&[], &[1])
    };
    assert_eq!(plan(&facts, None, &kept(facts.id.clone()), None), Plan::Unchanged);
    let other = PoolId::new(facts.id.lb.clone(), PoolName::new("other"));
    assert_eq!(edit(&facts, None, &kept(other)).edit.set_admin, BTreeMap::from([(0, AdminState::None)]));
}

#[test]
fn n4_a_draining_node_is_down_in_spite_of_its_source() {
    let facts =
        pool(vec![state(1, AdminState::Down), state(2, AdminState::None), state(3, AdminState::Down)]);
    let wanted = saying(level(&[(1, "n1"), (2, "n2"), (3, "n3")], &[]), &[], &[1, 2, 3]);
    let change = edit(&facts, Some(&wanted), &draining(&[1, 2], &[]));
    let expected = BTreeMap::from([(1, AdminState::Down), (2, AdminState::None)]);
    assert_eq!(change.edit.set_admin, expected, "only 3 comes back");
    // This also applies if the Down existed before the node drained. No other write would set it again.
    let exception = (facts.id.clone(), Backend::from(ip(1)));
    let set = Draining { foreign: BTreeSet::from([exception]), ..draining(&[1], &[]) };
    let change = edit(&facts, Some(&wanted), &set);
    assert_eq!(change.edit.set_admin, BTreeMap::from([(2, AdminState::None)]));
    let change = edit(&facts, Some(&wanted), &draining(&[], &[1]));
    assert_eq!(change.restored, BTreeSet::from([Backend::from(ip(1))]), "both take it back");
    assert_eq!(change.edit.set_admin, BTreeMap::from([(0, AdminState::None), (2, AdminState::None)]));
}

#[test]
fn n2_x2_in_an_excluded_pool_only_the_source_counts() {
    let facts =
        pool(vec![state(1, AdminState::Down), state(2, AdminState::None), state(3, AdminState::None)]);
    let wanted = saying(level(&[(1, "n1"), (2, "n2")], &[3]), &[3], &[1]);
    let set = Draining { excluded: [PoolName::new("shop-web")].into(), ..draining(&[1, 2], &[]) };
    let change = edit(&facts, Some(&wanted), &set);
    assert_eq!(change.edit.set_admin, BTreeMap::from([(0, AdminState::None), (2, AdminState::Down)]));
}

#[test]
fn x2_remaining_entries_get_admin_states_in_the_same_put() {
    let facts = pool(vec![
        state(1, AdminState::Down),
        state(2, AdminState::None),
        entry("again", Some(ip(2))),
        state(3, AdminState::Down),
    ]);
    let wanted = saying(level(&[(3, "n3"), (4, "n4")], &[2]), &[2], &[3, 4]);
    let change = edit(&facts, Some(&wanted), &Draining::default());
    assert_eq!(change.edit.remove, BTreeSet::from([0, 2]));
    assert_eq!(change.edit.set_admin, BTreeMap::from([(1, AdminState::Down), (3, AdminState::None)]));
    assert_eq!(change.edit.add.iter().map(|new| new.admin_state).collect::<Vec<_>>(), [None]);
}

#[test]
fn n2_entries_without_an_address_are_found_by_machine() {
    let named = |name: &str| Some(InstanceId::new(name));
    let facts = pool(vec![
        Entry { instance: named("pool1/3"), ..entry("a", None) },
        Entry { instance: named("pool1/4"), ..entry("b", None) },
        entry("c", None),
    ]);
    let drains = Backend::Instance(InstanceId::new("POOL1/3"));
    let addresses = BTreeMap::from([(drains, NodeUid::new("uid"))]);
    let change = edit(&facts, None, &Draining { addresses, ..Draining::default() });
    assert_eq!(change.edit.set_admin, BTreeMap::from([(0, AdminState::Down)]));
}

#[test]
fn w3_the_virtual_network_stays_at_its_level() {
    let (ours, theirs) = (NetworkId::new("ours"), NetworkId::new("theirs"));
    let wanted = level(&[(1, "a"), (2, "b")], &[]);
    let networks = |facts: &PoolFacts, wanted: &Level| match plan(
        facts,
        Some(wanted),
        &Draining::default(),
        Some(&ours),
    ) {
        Plan::Unchanged => None,
        Plan::Edit(change) => {
            Some((change.edit.add.first().and_then(|new| new.network.clone()), change.edit.pool_network))
        }
    };
    let at_pool = PoolFacts { network: Some(theirs.clone()), ..pool(vec![entry("a", Some(ip(1)))]) };
    assert_eq!(networks(&at_pool, &wanted), Some((None, None)));
    let at_address = pool(vec![
        Entry {
            network: Some(Arc::new(EntryNetwork::VirtualNetwork(theirs.clone()))),
            ..entry("gone", Some(ip(7)))
        },
        entry("a", Some(ip(1))),
    ]);
    assert_eq!(
        networks(&at_address, &wanted),
        Some((Some(Arc::new(EntryNetwork::VirtualNetwork(theirs.clone()))), None))
    );
    let subnet = |name: &str| Arc::new(EntryNetwork::Subnet(SubnetId::new(name)));
    let by_subnet = vec![
        Entry { network: Some(subnet("far")), ..entry("far", Some([10, 9, 0, 1].into())) },
        Entry { network: Some(subnet("near")), ..entry("a", Some(ip(1))) },
        Entry { network: Some(subnet("six")), ..entry("six", Some("fd00::2".parse().expect("an address"))) },
    ];
    for network in [None, Some(theirs)] {
        let by_subnet = PoolFacts { network, ..pool(by_subnet.clone()) };
        assert_eq!(networks(&by_subnet, &wanted), Some((Some(subnet("near")), None)), "nothing is added");
    }
    let nowhere = pool(vec![entry("a", Some(ip(1)))]);
    assert_eq!(networks(&nowhere, &wanted), Some((None, Some(ours.clone()))));
    assert_eq!(networks(&nowhere, &Level::default()), Some((None, None)), "an emptied pool needs none");
}

fn any_state() -> impl Strategy<Value = AdminState> {
    prop::sample::select(vec![AdminState::None, AdminState::Up, AdminState::Down, AdminState::Unknown])
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec!["a", "A", "b", "", "a-10-0-0-1", "-", "x_"]).prop_map(str::to_owned),
        "[a-z]{70,95}",
        "\\PC{0,6}",
    ]
}

prop_compose! {
    fn any_pool()(
        raw in prop::collection::vec((any::<u16>(), prop::option::of(0_u8..8), any_state(), any::<bool>()), 0..8),
        network in prop::option::of(Just(NetworkId::new("at-pool"))),
    ) -> PoolFacts {
        let entries = raw.iter().enumerate().map(|(at, (name, last, admin_state, networked))| Entry {
            // Names are unique in ARM's answers.
            name: Arc::from(if name % 3 == 0 { format!("n{at}") } else { format!("a-10-0-0-{at}") }),
            ip: last.map(ip),
            admin_state: *admin_state,
            network: networked.then(|| Arc::new(EntryNetwork::VirtualNetwork(NetworkId::new("at-address")))),
            instance: None,
        });
        PoolFacts { network, ..pool(entries.collect()) }
    }
}

prop_compose! {
    fn any_level()(roles in prop::collection::vec((0_u8..3, any_name(), any::<bool>()), 8)) -> Level {
        let mut level = Level::default();
        for (last, (role, name, stated)) in (0_u8..).zip(&roles) {
            match role {
                0 => {
                    level.required.insert(ip(last), member(name));
                    level.states.lifted.extend(stated.then(|| ip(last)));
                }
                1 => {
                    level.tolerated.insert(ip(last));
                    level.states.down.extend(stated.then(|| ip(last)));
                }
                _ => {}
            }
        }
        level
    }
}

prop_compose! {
    fn any_draining()(roles in prop::collection::vec(0_u8..4, 8)) -> Draining {
        let of = |role: u8| (0_u8..8).filter(|n| roles[usize::from(*n)] & role != 0).collect::<Vec<u8>>();
        draining(&of(1), &of(2))
    }
}

fn is_valid_name(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.len() <= NAME_LIMIT
        && name.starts_with(is_word)
        && name.ends_with(is_word)
        && name.chars().all(|c| is_word(c) || c == '.' || c == '-')
}

proptest! {
    #[test]
    fn w3_a_plan_syncs_the_pool_and_changes_nothing_else(
        facts in any_pool(), wanted in any_level(), mut set in any_draining(), network in any::<bool>(),
    ) {
        // The Downs that the source of the pool requires are known when Downs are restored.
        set.kept = wanted.states.down.iter().map(|ip| (facts.id.clone(), Backend::from(*ip))).collect();
        let network = network.then(|| NetworkId::new("configured"));
        let planned = plan(&facts, Some(&wanted), &set, network.as_ref());
        let change = match planned { Plan::Unchanged => PoolChange::default(), Plan::Edit(change) => *change };
        let after = PoolFacts {
            entries: apply(&facts.entries, &change.edit),
            network: facts.network.clone().or(change.edit.pool_network.clone()),
            ..facts.clone()
        };
        let members = after.members();
        prop_assert!(wanted.is_in_sync(&members));
        prop_assert_eq!(plan(&after, Some(&wanted), &set, network.as_ref()), Plan::Unchanged);
        if !change.edit.is_empty() {
            prop_assert_eq!(&change.members, &members);
            prop_assert_eq!(&change.added, &members.difference(&facts.members()).copied().collect());
            prop_assert_eq!(&change.removed, &facts.members().difference(&members).copied().collect());
        }

        let new = &after.entries[facts.entries.len() - change.edit.remove.len()..];
        let mut seen = BTreeSet::new();
        prop_assert!(after.entries.iter().all(|entry| seen.insert(entry.name.to_ascii_lowercase())));
        prop_assert!(new.iter().all(|entry| is_valid_name(&entry.name)), "{:?}", new);
        if !change.added.is_empty() || !change.removed.is_empty() {
            let mut once = BTreeSet::new();
            prop_assert!(after.entries.iter().all(|entry| entry.ip.is_some_and(|ip| once.insert(ip))));
        } else {
            prop_assert!(change.edit.remove.is_empty() && change.edit.add.is_empty());
        }
        for entry in after.entries.iter().filter(|entry| entry.ip.is_some_and(|ip| set.addresses.contains_key(&ip.into()))) {
            prop_assert!(!matches!(entry.admin_state, AdminState::None | AdminState::Up));
        }
        prop_assert!(change.edit.pool_network.is_none() || facts.network.is_none());
        for entry in &after.entries {
            let Some(ip) = entry.ip else { continue };
            let is_down = entry.admin_state == AdminState::Down;
            let is_known = entry.admin_state != AdminState::Unknown;
            prop_assert!(!wanted.states.down.contains(&ip) || is_down || !is_known);
            prop_assert!(!wanted.states.lifted.contains(&ip) || !is_down || set.addresses.contains_key(&ip.into()));
        }
        let at_address = facts.entries.iter().any(|entry| entry.network.is_some());
        prop_assert!(new.iter().all(|new| new.network.is_some() == (at_address && facts.network.is_none())));
        for (at, state) in &change.edit.set_admin {
            prop_assert!(!change.edit.remove.contains(at) && facts.entries[*at].admin_state != *state);
        }
    }

    #[test]
    fn n3_an_admin_only_plan_never_changes_members(facts in any_pool(), set in any_draining()) {
        let change = edit(&facts, None, &set);
        prop_assert!(change.edit.remove.is_empty() && change.edit.add.is_empty());
        prop_assert!(change.edit.pool_network.is_none());
        prop_assert!(change.added.is_empty() && change.removed.is_empty());
    }
}
