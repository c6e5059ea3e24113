//! Tests of the round trip of a record, and of unreadable records.

use proptest::prelude::*;

use super::*;

const READ: Wall = Wall::from_micros(1_800_000_000_000_000);
const NOW: Now = Now::from_millis(10_000_000);

fn pool(lb: &str, name: &str) -> PoolId {
    PoolId::new(LbName::new(lb), PoolName::new(name))
}

/// Returns the text that the port writes for a value, and the time that it reads in it.
fn as_text(value: &Value) -> Text {
    let Value::Since { head, at, tail } = value else { panic!("a record has a time") };
    let ago = i64::try_from(NOW.since(*at).as_micros()).expect("a short time");
    let text = format!("{head}\nsince: 2026-11-22T16:30:35.000000Z\n{tail}").into();
    Text { text, time: Some(Wall::from_micros(READ.as_micros() - ago)) }
}

fn read(text: &str) -> Result<Record, &'static str> {
    let text = Text { text: text.into(), time: None };
    Record::read("down.uid-7", &text, READ, NOW).expect("a key of the controller")
}

fn record() -> Record {
    let mut foreign = Exceptions::default();
    foreign.add(&pool("kubernetes", "shop-web"));
    Record {
        node: NodeName::new("node-7"),
        uid: NodeUid::new("uid-7"),
        ips: ["10.0.0.7", "fd00::7"].map(|ip| ip.parse().expect("an address")).into(),
        instance: Some(InstanceId::new("pool1/3")),
        since: Now::from_millis(9_000_000),
        foreign,
        taint_ours: true,
        rest: vec!["by: a later release".into()],
    }
}

#[test]
fn n4_a_record_is_readable_text() {
    let text = as_text(&record().written());
    let expected = "node-7\nips: 10.0.0.7 fd00::7\ninstance: pool1/3\nforeign: kubernetes/shop-web\n\
                    since: 2026-11-22T16:30:35.000000Z\ntaint: ours\nby: a later release\n";
    assert_eq!(&*text.text, expected);
    assert_eq!(record().size(), expected.len() + "down.uid-7".len());
    assert_eq!(key(&record().uid).as_deref(), Some("down.uid-7"));
}

#[test]
fn n4_records_survive_unknown_lines() {
    let record =
        read("node-7\nips: 10.0.0.7\ntaint: theirs\n\n  mood: fine\nsince: at noon\n").expect("read");
    assert_eq!(record.rest, ["taint: theirs".into(), "mood: fine".into()]);
    assert_eq!((record.taint_ours, record.since), (false, NOW));
    let again = Record::read("down.uid-7", &as_text(&record.written()), READ, NOW);
    assert_eq!(again, Some(Ok(record)));
}

#[test]
fn n4_an_unreadable_record_claims_nothing() {
    let broken = [
        "",
        "\n \n",
        "node-7\nips: 10.0.0.7 10.0.0",
        "node-7\nforeign: kubernetes",
        "node-7\nforeign: kubernetes/a/b",
        "node-7\nforeign: kubernetes/",
        "node-7\nforeign: #a1b2c3d4e5f",
        "node-7\nforeign: #+1b2c3d4e5f6",
    ];
    assert!(broken.iter().all(|text| read(text).is_err()));
    let text = Text { text: "node-7".into(), time: None };
    let of = |key: &str| Record::read(key, &text, READ, NOW);
    assert!(of("pause.pool.x").is_none() && of("start.x").is_none(), "foreign keys");
    assert!(of("down.").expect("of ours").is_err() && of("down.a_b").expect("of ours").is_err());
}

#[test]
fn n4_a_time_in_the_future_is_now() {
    let text = Text { text: "n".into(), time: Some(Wall::from_micros(READ.as_micros() + 1)) };
    let record = Record::read("down.u", &text, READ, NOW).expect("of ours").expect("read");
    assert_eq!(record.since, NOW);
}

#[test]
fn n4_many_exceptions_are_kept_short() {
    let mut foreign = Exceptions::default();
    let pools: Vec<PoolId> = (0..1_000).map(|n| pool("kubernetes-internal", &format!("shop-{n}"))).collect();
    pools.iter().for_each(|pool| foreign.add(pool));
    pools.iter().for_each(|pool| foreign.add(pool));
    assert_eq!((foreign.named.len(), foreign.short.len()), (NAMED, 992));
    assert!(pools.iter().all(|pool| foreign.holds(pool)));
    assert!(foreign.holds(&pool("KUBERNETES-INTERNAL", "Shop-999")), "in any spelling");
    assert!(!foreign.holds(&pool("kubernetes-internal", "shop-1000")));
    let long = Record { foreign, ..record() };
    assert!(long.size() <= MAX_RECORD_BYTES, "{}", long.size());
}

#[test]
fn n4_a_uid_that_no_key_can_hold_has_no_key() {
    let of = |uid: &str| key(&NodeUid::new(uid));
    assert!(of("0f0c6d1e-3f5c-4b9a-8a53-1f6b1f2f3a4b").is_some());
    assert!([String::new(), "a/b".into(), "a_b".into(), "a".repeat(101)].iter().all(|uid| of(uid).is_none()));
}

prop_compose! {
    fn any_pool()(lb in "[a-zA-Z0-9][a-zA-Z0-9._-]{0,6}", name in "[a-zA-Z0-9][a-zA-Z0-9._-]{0,6}") -> PoolId {
        pool(&lb, &name)
    }
}

prop_compose! {
    fn any_record()(
        node in "[a-z0-9][a-z0-9.-]{0,10}",
        uid in "[a-zA-Z0-9.-]{1,100}",
        ips in prop::collection::btree_set(any::<IpAddr>(), 0..4),
        instance in prop::option::of("[a-z0-9-]{1,8}(/[0-9]{1,3})?"),
        ago in 0_u64..9_000_000_000,
        pools in prop::collection::vec(any_pool(), 0..20),
        taint_ours in any::<bool>(),
        rest in prop::collection::vec("x[ -~]{0,20}y", 0..3),
    ) -> Record {
        let mut foreign = Exceptions::default();
        pools.iter().for_each(|pool| foreign.add(pool));
        Record {
            node: NodeName::new(node),
            uid: NodeUid::new(uid),
            ips,
            instance: instance.map(InstanceId::new),
            since: NOW.minus(std::time::Duration::from_micros(ago)),
            foreign,
            taint_ours,
            rest: rest.into_iter().map(Arc::from).collect(),
        }
    }
}

proptest! {
    #[test]
    fn n4_a_written_record_reads_the_same(record in any_record()) {
        let key = key(&record.uid).expect("a key");
        let again = Record::read(&key, &as_text(&record.written()), READ, NOW);
        prop_assert_eq!(again, Some(Ok(record)));
    }

    #[test]
    fn n4_a_record_of_any_text_is_equal_after_writing(text in "(\\PC|\n|ips:|foreign: #|taint: ours){0,60}") {
        let text = Text { text: text.into(), time: None };
        if let Some(Ok(record)) = Record::read("down.u", &text, READ, NOW) {
            let again = Record::read("down.u", &as_text(&record.written()), READ, NOW);
            prop_assert_eq!(again, Some(Ok(record)));
        }
    }
}
