//! Drives the wait for a complete comparison on the test's clock.

use std::collections::BTreeMap;
use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use model::error::NotManageable;
use model::ids::{ServiceKey, ServiceUid};
use model::level::{Level, Provenance};
use model::view::{LbView, SourceView, Synced};
use model::xds::cache::Reason;
use model::xds::dump::XdsView;
use model::xds::dump::{Dump, ServerDump};
use model::xds::source::{Assigned, Fault, Note, SourceFact};
use pool_testing::views;

const SECOND: Duration = Duration::from_secs(1);

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn id(pool: &str) -> PoolId {
    PoolId::new(LbName::new("lb"), PoolName::new(pool))
}

/// Returns a pool in sync that was read.
fn pool(name: &str) -> PoolView {
    PoolView {
        observed: Some([ip(1)].into()),
        observed_at: Some(Now::ZERO),
        ..views::pool(id(name), PoolState::InSync)
    }
}

/// Returns a candidate with rules that send to these pools.
fn service(name: &str, pools: &[&str]) -> ServiceView {
    ServiceView {
        key: ServiceKey::new("shop", name),
        uid: ServiceUid::new(name),
        candidacy: Candidacy::Candidate,
        paused: false,
        slices: 1,
        endpoints: 1,
        data_errors: Vec::new(),
        resource: None,
        excluded: Vec::new(),
        pools: pools.iter().map(|name| id(name)).collect(),
        not_manageable: Vec::new(),
    }
}

fn load_balancer(exists: Option<bool>, last_error: Option<&str>) -> LbView {
    let last_error = last_error.map(Arc::from);
    LbView { lb: LbName::new("lb"), exists, read_at: None, read_began: None, pools: 0, last_error }
}

fn source(synced: bool, last_error: Option<&str>) -> SourceView {
    let last_error = last_error.map(Arc::from);
    SourceView {
        kind: Kind::Nodes,
        phase: "watching",
        synced,
        objects: 0,
        heard_at: None,
        stale_since: None,
        last_error,
    }
}

/// Returns a complete snapshot with these pools and Services.
fn world(
    pools: impl IntoIterator<Item = PoolView>,
    services: impl IntoIterator<Item = ServiceView>,
) -> Snapshot {
    Snapshot {
        pools: pools.into_iter().map(|pool| (pool.pool.clone(), Arc::new(pool))).collect(),
        services: services.into_iter().map(|it| (it.key.clone(), Arc::new(it))).collect(),
        sources: [(Kind::Nodes, source(true, None))].into(),
        load_balancers: [(LbName::new("lb"), Arc::new(load_balancer(Some(true), None)))].into(),
        synced: Synced { lists: true, discovery: true },
        ..Snapshot::default()
    }
}

/// The machine, started at second 0, and its outputs.
struct Fixture {
    comparison: Comparison,
    ended: Option<(Now, End)>,
}

impl Fixture {
    fn begun() -> Fixture {
        Fixture::of(BTreeMap::new())
    }

    /// Creates a fixture where these pools are listed to be filled from these sources.
    fn of(listed: BTreeMap<PoolId, Name>) -> Fixture {
        let cluster_name = "Kubernetes".into();
        let params = Params { removal_delay: 5 * SECOND, within: 60 * SECOND, cluster_name, listed };
        let mut fixture = Fixture { comparison: Comparison::new(params), ended: None };
        fixture.send(Now::ZERO, In::Start);
        fixture
    }

    fn send(&mut self, now: Now, input: In) {
        let mut out = Vec::new();
        self.comparison.step(now, input, &mut out);
        self.record_outputs(now, &out);
    }

    /// Advances the clock to this second, and delivers this snapshot then.
    fn at(&mut self, second: u64, snapshot: &Snapshot) -> &mut Fixture {
        let now = Now::from_millis(second * 1_000);
        self.wait(now);
        self.send(now, In::Snapshot(Arc::new(snapshot.clone())));
        self
    }

    fn wait(&mut self, until: Now) {
        while let Some(due) = self.comparison.deadline().filter(|due| *due <= until) {
            let mut out = Vec::new();
            self.comparison.tick(due, &mut out);
            self.record_outputs(due, &out);
        }
    }

    fn record_outputs(&mut self, now: Now, out: &[Out]) {
        for Out::Ended(end) in out {
            assert_eq!(self.ended.replace((now, *end)), None, "it ends once");
        }
        let complete = self.ended.is_some_and(|(_, end)| end == End::Complete);
        assert_eq!(self.comparison.missing().is_empty(), complete, "{:?}", self.comparison.missing());
    }

    /// Returns when and how the machine ends without further snapshots.
    fn end(&mut self) -> (u64, End) {
        self.wait(Now::from_millis(1_000_000));
        let (at, end) = self.ended.expect("it ends");
        (at.as_micros() / 1_000_000, end)
    }

    fn missing_texts(&self) -> Vec<String> {
        self.comparison.missing().iter().map(ToString::to_string).collect()
    }
}

#[test]
fn c4_it_completes_a_second_after_everything_was_compared() {
    let in_sync = world([pool("shop-web")], [service("web", &["shop-web"])]);
    assert_eq!(Fixture::begun().at(3, &in_sync).end(), (4, End::Complete));
    let due = world([PoolView { state: PoolState::Unknown, ..pool("shop-web") }], []);
    assert_eq!(Fixture::begun().at(3, &due).at(9, &in_sync).end(), (10, End::Complete));
    let mut shaken = Fixture::begun();
    let more = world([pool("shop-web")], [service("web", &["shop-web", "shop-new"])]);
    assert_eq!(shaken.at(3, &in_sync).at(3, &more).at(8, &in_sync).end(), (9, End::Complete));
}

#[test]
fn c4_a_compared_pool_may_wait_again_but_not_vanish() {
    let in_sync = world([pool("a"), pool("b")], []);
    let again = world([PoolView { state: PoolState::Due, ..pool("a") }, pool("b")], []);
    assert_eq!(Fixture::begun().at(1, &in_sync).at(1, &again).end(), (2, End::Complete));
    let unseen = PoolView { state: PoolState::Unknown, observed: None, ..pool("a") };
    let unseen = world([unseen, pool("b")], []);
    let mut fixture = Fixture::begun();
    assert_eq!(fixture.at(1, &in_sync).at(1, &unseen).end(), (60, End::TimedOut));
    assert_eq!(fixture.missing_texts(), ["lb/a was not compared"]);
}

#[test]
fn d2_the_clusters_own_pools_are_not_awaited() {
    let services = [service("web", &["shop-web", "kubernetes"]), service("six", &["KUBERNETES-ipv6"])];
    assert_eq!(Fixture::begun().at(1, &world([pool("shop-web")], services)).end(), (2, End::Complete));
    let foreign = world([], [service("web", &["kubernetes-2"])]);
    let mut fixture = Fixture::begun();
    assert_eq!(fixture.at(1, &foreign).end(), (60, End::TimedOut));
    assert_eq!(fixture.missing_texts(), ["lb/kubernetes-2 was not compared"]);
}

#[test]
fn d2_refused_pools_and_pools_without_candidates_do_not_block() {
    let refused = ServiceView {
        not_manageable: vec![(id("shop-nat"), NotManageable::InboundNatRule)],
        ..service("nat", &["shop-nat"])
    };
    let cluster = ServiceView { candidacy: Candidacy::NotLocal, ..service("other", &["shop-other"]) };
    assert_eq!(Fixture::begun().at(1, &world([], [refused, cluster])).end(), (2, End::Complete));
}

#[test]
fn d4_tolerated_members_are_awaited_2_s_after_their_delay() {
    let level = Level { tolerated: [ip(1)].into(), ..Level::default() };
    let leaving = world([PoolView { level, ..pool("shop-web") }], []);
    let mut fixture = Fixture::begun();
    fixture.at(4, &leaving).at(6, &leaving);
    assert_eq!(fixture.missing_texts(), ["members.removalDelay is not over for members of lb/shop-web"]);
    assert_eq!(fixture.end(), (11, End::Complete));
    let in_sync = world([pool("shop-web")], []);
    assert_eq!(Fixture::begun().at(4, &leaving).at(6, &in_sync).end(), (6, End::Complete));
}

#[test]
fn d4_a_late_pools_delay_counts_from_its_first_comparison() {
    let level = Level { tolerated: [ip(1)].into(), ..Level::default() };
    let first = world([pool("a")], []);
    let failing =
        Snapshot { load_balancers: behind(load_balancer(None, Some("HTTP 403"))).load_balancers, ..first };
    let both = world([pool("a"), PoolView { level, ..pool("b") }], []);
    let mut fixture = Fixture::begun();
    fixture.at(1, &failing).at(30, &both).at(32, &both);
    assert_eq!(fixture.missing_texts(), ["members.removalDelay is not over for members of lb/b"]);
    let decided =
        |fixture: &Fixture, second: u64| fixture.comparison.is_decided(Now::from_millis(second * 1_000));
    assert_eq!((decided(&fixture, 36), decided(&fixture, 37)), (false, true), "also with repeated snapshots");
    assert_eq!(fixture.end(), (37, End::Complete));
}

#[test]
fn c4_it_does_not_complete_while_something_was_not_read() {
    let mut fixture = Fixture::begun();
    fixture.at(1, &behind(load_balancer(None, None)));
    assert!(!fixture.comparison.is_decided(Now::from_millis(50_000)));
    fixture.at(2, &world([pool("a")], []));
    assert!(fixture.comparison.is_decided(Now::from_millis(2_000)));
}

#[test]
fn c4_unknown_sources_are_named_with_their_errors() {
    let rows: [(Snapshot, &[&str]); 8] = [
        (
            Snapshot::default(),
            &[
                "the first lists of services, endpointslices and nodes are not complete",
                "no load balancer has been read yet",
            ],
        ),
        (without_lists(source(false, None)), &["the list of nodes is not complete"]),
        (without_lists(source(false, Some("HTTP 403"))), &["nodes: HTTP 403"]),
        (behind(load_balancer(None, None)), &["load balancer lb has not been read yet"]),
        (behind(load_balancer(Some(true), Some("HTTP 403"))), &["lb: HTTP 403"]),
        (
            Snapshot {
                sources: [(Kind::Nodes, source(true, Some("gone away")))].into(),
                ..world([], [service("web", &["shop-web"])])
            },
            &["lb/shop-web was not compared", "nodes: gone away"],
        ),
        (
            Snapshot {
                sources: [events("denied")].into(),
                synced: Synced { lists: false, discovery: true },
                ..world([], [])
            },
            &["the first lists of services, endpointslices and nodes are not complete"],
        ),
        (
            Snapshot { sources: [events("denied")].into(), ..world([], [service("web", &["shop-web"])]) },
            &["lb/shop-web was not compared"],
        ),
    ];
    for (snapshot, missing_texts) in rows {
        let mut fixture = Fixture::begun();
        assert_eq!(fixture.at(1, &snapshot).end(), (60, End::TimedOut), "{missing_texts:?}");
        assert_eq!(fixture.missing_texts(), missing_texts);
    }
}

/// Returns a fixture with `lb/edge`, which is filled from `eds:shop`.
fn following() -> Fixture {
    Fixture::of([(id("edge"), shop())].into())
}

fn shop() -> Name {
    Name::Endpoints("shop".into())
}

/// Returns a snapshot with this state of `eds:shop` and this state of its server.
fn snapshot_with(
    assigned: Option<Assigned>,
    failure: Option<&str>,
    pools: impl IntoIterator<Item = PoolView>,
) -> Snapshot {
    let note = Note::Node("pools".into());
    let fact =
        assigned.map(|assigned| (shop(), SourceFact { assigned, provenance: Provenance::FirstList, note }));
    let server = ServerDump {
        uri: "one:1".into(),
        is_used: true,
        is_connected: failure.is_none(),
        failure: failure.map(Arc::from),
        cut: None,
    };
    let spare =
        ServerDump { uri: "two:2".into(), is_used: false, is_connected: false, failure: None, cut: None };
    let dump = Dump { servers: vec![server, spare], resources: Vec::new() };
    let view = XdsView { node_id: "pools".into(), dump, sources: fact.into_iter().collect() };
    Snapshot { xds: Some(Arc::new(view)), ..world(pools, []) }
}

fn fault(message: &str) -> Fault {
    Fault { resource: None, reason: Reason::Connectivity, message: message.into() }
}

fn usable() -> Option<Assigned> {
    Some(Assigned::Usable(Arc::default()))
}

#[test]
fn x2_c4_it_waits_for_a_source_until_its_state_is_known() {
    let silent = "no response about eds:shop was received";
    let rows = [
        (world([], []), silent),
        (snapshot_with(None, None, []), silent),
        (snapshot_with(Some(Assigned::Unknown(None)), None, []), silent),
        (
            snapshot_with(Some(Assigned::Unknown(None)), Some("one:1: refused"), []),
            "eds:shop: one:1: refused",
        ),
    ];
    for (snapshot, missing_texts) in rows {
        let mut fixture = following();
        assert_eq!(fixture.at(1, &snapshot).end(), (60, End::TimedOut), "{missing_texts}");
        assert_eq!(fixture.missing_texts(), [missing_texts]);
    }
    let unknown = snapshot_with(Some(Assigned::Unknown(None)), None, []);
    let known = snapshot_with(usable(), None, [pool("edge")]);
    assert_eq!(following().at(1, &unknown).at(9, &known).end(), (10, End::Complete));
    assert_eq!(Fixture::begun().at(1, &world([], [])).end(), (2, End::Complete), "without listed sources");
}

#[test]
fn x2_c4_it_waits_for_a_pool_whose_source_has_a_demand() {
    for assigned in [usable(), Some(Assigned::Dropped(fault("deleted")))] {
        let mut fixture = following();
        fixture.at(1, &snapshot_with(assigned.clone(), None, []));
        assert_eq!(fixture.missing_texts(), ["lb/edge was not compared"]);
        let due = PoolView { state: PoolState::Due, ..pool("edge") };
        fixture.at(3, &snapshot_with(assigned.clone(), None, [due]));
        assert_eq!(fixture.missing_texts(), ["lb/edge was not compared"]);
        assert_eq!(fixture.at(5, &snapshot_with(assigned, None, [pool("edge")])).end(), (6, End::Complete));
    }
}

#[test]
fn x3_c4_pools_of_a_failed_source_do_not_block() {
    for reason in [Reason::Nack, Reason::Deleted, Reason::Timer, Reason::Reported] {
        let fault = Fault { reason, ..fault("not so") };
        let failed = snapshot_with(Some(Assigned::Unknown(Some(fault))), Some("not so"), []);
        assert_eq!(following().at(1, &failed).end(), (2, End::Complete));
    }
}

#[test]
fn x2_c4_it_waits_for_an_unreachable_control_plane() {
    let failed = snapshot_with(Some(Assigned::Unknown(Some(fault("refused")))), Some("refused"), []);
    let mut fixture = following();
    fixture.at(1, &failed);
    assert_eq!(fixture.missing_texts(), ["eds:shop: refused"]);
    assert_eq!(fixture.at(5, &snapshot_with(usable(), None, [pool("edge")])).end(), (6, End::Complete));
    assert_eq!(following().at(1, &failed).end(), (60, End::TimedOut));
}

#[test]
fn x2_c4_it_does_not_wait_for_a_refused_listed_pool() {
    let mut refused = snapshot_with(usable(), None, []);
    refused.refused = [(id("edge"), NotManageable::PoolNotFound { lb: LbName::new("lb") })].into();
    assert_eq!(following().at(1, &refused).end(), (2, End::Complete));
}

/// Returns a source on which no level depends.
fn events(error: &str) -> (Kind, SourceView) {
    (Kind::Preemptions, SourceView { kind: Kind::Preemptions, ..source(false, Some(error)) })
}

fn without_lists(source: SourceView) -> Snapshot {
    let synced = Synced { lists: false, discovery: true };
    Snapshot { synced, sources: [(Kind::Nodes, source)].into(), ..world([], []) }
}

fn behind(view: LbView) -> Snapshot {
    Snapshot { load_balancers: [(LbName::new("lb"), Arc::new(view))].into(), ..world([pool("a")], []) }
}

#[test]
fn c4_a_later_failure_of_a_source_does_not_block() {
    let failing = Snapshot {
        sources: [(Kind::Nodes, source(true, Some("gone away")))].into(),
        ..world([pool("a")], [])
    };
    assert_eq!(Fixture::begun().at(1, &failing).end(), (2, End::Complete));
}

#[test]
fn c4_a_late_comparison_does_not_extend_the_timeout() {
    let in_sync = world([pool("a")], []);
    let mut fixture = Fixture::begun();
    fixture.wait(Now::from_millis(59_500));
    fixture.send(Now::from_millis(59_500), In::Snapshot(Arc::new(in_sync)));
    assert_eq!(fixture.end(), (60, End::TimedOut));
    assert_eq!(fixture.missing_texts(), ["the last comparison was less than a second ago"]);
}

proptest! {
    /// Checks that with any snapshots the machine ends once, within its time, and never as complete while anything is
    /// missing. Until then it names what it waits for.
    #[test]
    fn c4_it_ends_as_complete_or_names_the_missing_objects(
        shown in proptest::collection::vec((0_u64..70, any::<[bool; 7]>()), 0..20),
    ) {
        let mut shown = shown;
        shown.sort_by_key(|(second, _)| *second);
        let mut fixture = Fixture::begun();
        for (second, [lists, discovery, read, has_pool, compared, leaving, cluster]) in shown {
            let state = if compared { PoolState::InSync } else { PoolState::Due };
            let tolerated = leaving.then(|| ip(1)).into_iter().collect();
            let level = Level { tolerated, ..Level::default() };
            let pools = has_pool.then(|| PoolView { state, level, ..pool("a") });
            let sends_to = if cluster { "kubernetes" } else { "a" };
            let mut snapshot = world(pools, [service("web", &[sends_to])]);
            snapshot.synced = Synced { lists, discovery };
            let balancer = load_balancer(read.then_some(true), None);
            snapshot.load_balancers = [(LbName::new("lb"), Arc::new(balancer))].into();
            fixture.at(second, &snapshot);
            if fixture.ended.is_some_and(|(_, end)| end == End::Complete) {
                break;
            }
        }
        let (second, _) = fixture.end();
        prop_assert!(second <= 60, "ended at {}", second);
    }
}
