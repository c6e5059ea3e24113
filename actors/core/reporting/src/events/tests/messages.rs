//! Tests of the texts of E1 and S0 "Event Behavior": a row for each kind of report.

use super::*;
use model::arm::AdminState;
use model::assignment::HeldReason;
use model::error::NotManageable;
use model::ids::{NodeName, NodeUid};
use model::object::{ExclusionRule, Kind};
use model::report::{Effect, ExcludedNodes};
use model::sample::Caller;
use model::signals::Signal;

/// Returns the row of the table for a report. A new kind does not compile without a row.
fn row_of(what: &EventKind) -> usize {
    match what {
        EventKind::Updated { .. } => 0,
        EventKind::Retrying { .. } => 1,
        EventKind::FailedTerminal { .. } => 2,
        EventKind::FailedExhausted { .. } => 3,
        EventKind::NotManageable { .. } => 4,
        EventKind::Shared { .. } => 5,
        EventKind::Blocked { .. } => 6,
        EventKind::Contested { .. } => 7,
        EventKind::Held { .. } => 8,
        EventKind::DataError { .. } => 9,
        EventKind::Undecodable { .. } => 10,
        EventKind::Quarantined { .. } => 11,
        EventKind::WritesLost { .. } => 12,
        EventKind::LeaseHeld { .. } => 13,
        EventKind::RemovalsStopped { .. } => 14,
        EventKind::AdminDown { .. } => 15,
        EventKind::AdminRestored { .. } => 16,
        EventKind::AdminFailed { .. } => 17,
        EventKind::AdminHeld { .. } => 18,
        EventKind::AdminForeign { .. } => 19,
        EventKind::SourceFailing { .. } => 20,
        EventKind::SourceRecovered { .. } => 21,
    }
}

/// A report, its reason, its type and its message.
pub(super) type Row = (EventKind, &'static str, Severity, &'static str);

/// Returns the shared Lease, held by an unknown client.
fn other_client() -> Row {
    let what = EventKind::LeaseHeld { holder: "aks-rp".into() };
    let text = "Writes of backend pools wait for the Lease that is shared with the cloud-controller-manager; it is \
                held by aks-rp, which is neither this controller nor the cloud-controller-manager. It is taken over \
                once it has not changed for 15 minutes; if that holder no longer runs, empty holderIdentity of the \
                Lease";
    (what, "SharedLeaseHeldByOtherClient", Severity::Warning, text)
}

/// Returns rows for reports about a source (X3, X4).
fn of_sources() -> Vec<Row> {
    let failing = |pools, effect, text| {
        let (sources, error) =
            (["eds:shop".into()].into(), "the control plane reports: no such thing".into());
        let what = EventKind::SourceFailing { sources, pools, effect, error };
        (what, "XdsResourceError", Severity::Warning, text)
    };
    let recovered = "No more errors in eds:shop";
    vec![
        failing(
            1,
            Effect::Kept,
            "Error in eds:shop; the last good endpoints stay in use in 1 backend pool: the control plane reports: no \
             such thing",
        ),
        failing(
            2,
            Effect::Untouched,
            "Error in eds:shop; no valid endpoints have been received, so nothing is written to 2 backend pools: the \
             control plane reports: no such thing",
        ),
        failing(
            1,
            Effect::Emptied,
            "Error in eds:shop; the last good endpoints are no longer used (fail_on_data_errors), which empties 1 \
             backend pool: the control plane reports: no such thing",
        ),
        (
            EventKind::SourceFailing {
                sources: ["eds:a", "eds:b", "eds:c", "eds:d", "eds:e"].map(Arc::from).into(),
                pools: 7,
                effect: Effect::Kept,
                error: "refused".into(),
            },
            "XdsResourceError",
            Severity::Warning,
            "Error in eds:a, eds:b, eds:c and 2 others; the last good endpoints stay in use in 7 backend pools: \
             refused",
        ),
        (
            EventKind::SourceRecovered { sources: ["eds:shop".into()].into() },
            "XdsResourceRecovered",
            Severity::Normal,
            recovered,
        ),
    ]
}

fn outcomes() -> Vec<Row> {
    let failure = failure("it is busy.");
    let compared_again_in = Some(Duration::from_secs(60));
    vec![
        (
            updated(3),
            "LoadBalancerBackendPoolUpdated",
            Severity::Normal,
            "Load balancer backend pool updated successfully: kubernetes/shop-web has 3 members (2 added, 1 removed). \
             Added: node-4 (10.0.0.4), node-5 (10.0.0.5). Removed: node-6 (10.0.0.6). Service: shop/web. \
             Trigger: endpoints_changed (correlation id c-1)",
        ),
        (
            EventKind::Retrying { pool: pool(), retry: 1, max: 3, failure: failure.clone() },
            "LoadBalancerBackendPoolUpdateRetrying",
            Severity::Warning,
            "Backend pool update failed, will retry (1/3): AnotherOperationInProgress: it is busy. \
             (correlation id c-1)",
        ),
        (
            EventKind::FailedTerminal { pool: pool(), failure: failure.clone(), compared_again_in },
            "LoadBalancerBackendPoolUpdateFailed",
            Severity::Warning,
            "Backend pool update failed (non-retriable): AnotherOperationInProgress: it is busy. \
             (correlation id c-1). Backend pool kubernetes/shop-web is compared again in 60 s.",
        ),
        (
            EventKind::FailedExhausted { pool: pool(), retries: 3, failure, compared_again_in: None },
            "LoadBalancerBackendPoolUpdateFailed",
            Severity::Warning,
            "Backend pool update failed after 3 retries: AnotherOperationInProgress: it is busy. (correlation id c-1). \
             To retrigger, cause an endpoint change for the Service (e.g., restart or scale a backing pod). Backend \
             pool kubernetes/shop-web is not compared again until an endpoint changes.",
        ),
    ]
}

fn held(reason: HeldReason, members: usize, message: &'static str) -> Row {
    let what = EventKind::Held { pool: pool(), reason, members, enforced: true, excluded: None };
    (what, "BackendPoolRemovalHeld", Severity::Warning, message)
}

/// Returns the row for a removal that is held because all nodes are excluded.
fn excluded() -> Row {
    let first = NodeName::new("k3s");
    let what = EventKind::Held {
        pool: pool(),
        reason: HeldReason::NoUsableNode,
        members: 1,
        enforced: true,
        excluded: Some(ExcludedNodes { first, why: ExclusionRule::ControlPlane, more: 2 }),
    };
    let message = "Removal of 1 member from backend pool kubernetes/shop-web is held back: the Service has endpoints but no \
                   usable node, or one of its slices or nodes cannot be read; node k3s is excluded, because it is a \
                   control-plane node, and excludeMasterFromStandardLB of the cloud configuration is not false (2 more \
                   are excluded)";
    (what, "BackendPoolRemovalHeld", Severity::Warning, message)
}

/// Returns rows for removals that are held, or would be.
fn guards() -> Vec<Row> {
    let warning = |what, reason, message| (what, reason, Severity::Warning, message);
    vec![
        held(
            HeldReason::EmptyConfirm,
            1,
            "Removal of 1 member from backend pool kubernetes/shop-web is held back: a Service would lose its last \
             member; this waits for confirmation",
        ),
        held(
            HeldReason::NoUsableNode,
            2,
            "Removal of 2 members from backend pool kubernetes/shop-web is held back: the Service has endpoints \
             but no usable node, or one of its slices or nodes cannot be read",
        ),
        held(
            HeldReason::LastMember,
            2,
            "Removal of 2 members from backend pool kubernetes/shop-web is held back: the Service has endpoints \
             but none that counts, and none of their nodes is in the pool",
        ),
        held(
            HeldReason::Fraction,
            3,
            "Removal of 3 members from backend pool kubernetes/shop-web is held back: a new list removes so much of \
             the pool that a second list must confirm it",
        ),
        held(
            HeldReason::Breaker,
            1,
            "Removal of 1 member from backend pool kubernetes/shop-web is held back: too many backend pools would lose \
             most of their members at the same time",
        ),
        warning(
            EventKind::Held {
                pool: pool(),
                reason: HeldReason::Breaker,
                members: 1,
                enforced: false,
                excluded: None,
            },
            "BackendPoolRemovalHeld",
            "Removal of 1 member from backend pool kubernetes/shop-web would be held back if guards.mode were enforce, \
             but proceeds: too many backend pools would lose most of their members at the same time",
        ),
        excluded(),
        warning(
            EventKind::RemovalsStopped { pools: 7, of: 10, enforced: true },
            "BackendPoolRemovalsStopped",
            "7 of 10 backend pools would be left with less than half of the members that they had 5 minutes ago; all \
             removals are paused until this clears or an operator releases them",
        ),
        warning(
            EventKind::RemovalsStopped { pools: 7, of: 10, enforced: false },
            "BackendPoolRemovalsStopped",
            "7 of 10 backend pools would be left with less than half of the members that they had 5 minutes ago; \
             guards.mode is observe, so their members are removed",
        ),
    ]
}

/// Returns rows for writes lost by Azure: the first and the third of the pool.
fn writes_lost() -> [Row; 2] {
    let row = |writes, left_for, message| {
        let what = EventKind::WritesLost { pool: pool(), writes, left_for };
        (what, "BackendPoolWritesLost", Severity::Warning, message)
    };
    [
        row(
            1,
            None,
            "Azure Resource Manager reported writes of backend pool kubernetes/shop-web as done, but the pool does \
             not have them (1 so far); it is written again",
        ),
        row(
            3,
            Some(Duration::from_secs(60)),
            "Azure Resource Manager reported writes of backend pool kubernetes/shop-web as done, but the pool does \
             not have them (3 so far); the next try waits 60 s unless an endpoint changes",
        ),
    ]
}

fn quarantined() -> Row {
    (
        EventKind::Quarantined { pool: pool(), broken: "a change without an owner waits" },
        "BackendPoolQuarantined",
        Severity::Warning,
        "Backend pool kubernetes/shop-web is no longer written: a change without an owner waits. This is an internal \
         error: report it, and restart the controller to try again",
    )
}

fn conditions() -> Vec<Row> {
    let warning = |what, reason, message| (what, reason, Severity::Warning, message);
    let services = vec![ServiceKey::new("shop-a", "b"), ServiceKey::new("shop", "a-b")];
    let lb = Some(LbName::new("kubernetes"));
    vec![
        warning(
            EventKind::NotManageable { pool: pool(), reason: NotManageable::OutboundRule, attempted: false },
            "BackendPoolNotManageable",
            "Members of backend pool kubernetes/shop-web are not written: an outbound rule uses the pool",
        ),
        warning(
            EventKind::Shared { pool: pool(), services },
            "BackendPoolShared",
            "Backend pool kubernetes/shop-web is used by several Services; it gets the members of all: \
             shop-a/b, shop/a-b",
        ),
        warning(
            EventKind::Blocked {
                caller: Caller::Membership,
                fault: "HTTP 403 AuthorizationFailed".into(),
                lb: None,
            },
            "BackendPoolWritesBlocked",
            "Writes of backend pools wait, because several failed in the same way: HTTP 403 AuthorizationFailed. One \
             write at a time is tried; a success ends this",
        ),
        warning(
            EventKind::Blocked { caller: Caller::Membership, fault: "HTTP 400".into(), lb: lb.clone() },
            "BackendPoolWritesBlocked",
            "Writes of backend pools of load balancer kubernetes wait, because several failed in the same way: HTTP \
             400. One write at a time is tried; a success ends this",
        ),
        warning(
            EventKind::Blocked { caller: Caller::AdminState, fault: "HTTP 400".into(), lb },
            "BackendPoolWritesBlocked",
            "Writes of admin states in backend pools of load balancer kubernetes wait, because several failed in the \
             same way: HTTP 400. One write at a time is tried; a success ends this",
        ),
        warning(
            EventKind::Contested { pool: pool(), members: 2, left_for: Duration::from_secs(120) },
            "BackendPoolContested",
            "Another client keeps adding 2 members to backend pool kubernetes/shop-web that no endpoint requires; \
             they stay there for 120 s",
        ),
        quarantined(),
        warning(
            EventKind::DataError { endpoints: 2, example: "web-1 has no node".into() },
            "ServiceEndpointsIncomplete",
            "2 endpoints cannot be placed in a backend pool: web-1 has no node",
        ),
        warning(
            EventKind::DataError { endpoints: 0, example: "web-1 has no node".into() },
            "ServiceEndpointsIncomplete",
            "Endpoints cannot be placed in a backend pool: web-1 has no node",
        ),
        warning(
            EventKind::Undecodable {
                kind: Kind::Nodes,
                object: "node-1".into(),
                error: "no name".into(),
                kept: true,
            },
            "ObjectUndecodable",
            "Node node-1 cannot be read; its last good state stays in use: no name",
        ),
    ]
}

/// Returns rows for reports about nodes that leave service (S1, N4, N5).
fn nodes() -> Vec<Row> {
    let normal = |what, reason, message| (what, reason, Severity::Normal, message);
    let warning = |what, reason, message| (what, reason, Severity::Warning, message);
    let down = |pools, balancers, signals: &[Signal]| EventKind::AdminDown {
        pools,
        balancers,
        signals: signals.iter().copied().collect(),
        unknown: None,
    };
    let partly = |unknown| EventKind::AdminDown {
        pools: 2,
        balancers: 1,
        signals: [Signal::Shutdown].into(),
        unknown: Some((unknown, pool())),
    };
    let foreign = |pools, state| EventKind::AdminForeign { pools, example: pool(), state };
    vec![
        normal(
            down(40, 2, &[Signal::Shutdown, Signal::OutOfService]),
            "LoadBalancerAdminStateDown",
            "The node gets no new traffic: admin state Down in 40 pools of 2 load balancers (out-of-service, \
             shutdown)",
        ),
        normal(
            down(1, 1, &[Signal::SpotEviction]),
            "LoadBalancerAdminStateDown",
            "The node gets no new traffic: admin state Down in 1 pool of 1 load balancer (spot-eviction)",
        ),
        normal(
            partly(1),
            "LoadBalancerAdminStateDown",
            "The node gets no new traffic: admin state Down in 2 pools of 1 load balancer (shutdown); in pool \
             kubernetes/shop-web its admin state is unknown and stays unchanged",
        ),
        normal(
            partly(4),
            "LoadBalancerAdminStateDown",
            "The node gets no new traffic: admin state Down in 2 pools of 1 load balancer (shutdown); in 4 pools, \
             such as kubernetes/shop-web, its admin state is unknown and stays unchanged",
        ),
        normal(
            EventKind::AdminRestored { pools: 3 },
            "LoadBalancerAdminStateNone",
            "The node gets traffic again: admin state None restored in 3 pools",
        ),
        warning(
            EventKind::AdminHeld { down: 3, ready: 6 },
            "LoadBalancerAdminStateHeld",
            "Drain limit reached: 3 of 6 Ready nodes are already Down, and more nodes wait. A node proceeds when fewer \
             are Down, when it is not Ready, or when an operator releases it",
        ),
        warning(
            foreign(1, AdminState::Up),
            "LoadBalancerAdminStateForeign",
            "Another client set the admin state of the node in pool kubernetes/shop-web to Up; it stays unchanged, \
             because no signal says that the node leaves service",
        ),
        warning(
            foreign(7, AdminState::Down),
            "LoadBalancerAdminStateForeign",
            "Another client set the admin state of the node in 7 pools, such as kubernetes/shop-web, to Down; it \
             stays unchanged, because no signal says that the node leaves service",
        ),
    ]
}

/// Returns rows for failures to set nodes Down: the first, a repeated one, and one outside of any pool.
fn node_failures() -> [Row; 3] {
    let failed = |pool, why: &str, retry, next, message| {
        let what = EventKind::AdminFailed { pool, why: why.into(), retry, next };
        (what, "LoadBalancerAdminStateUpdateFailed", Severity::Warning, message)
    };
    [
        failed(
            Some(pool()),
            "AnotherOperationInProgress: it is busy.",
            0,
            Some(Duration::from_millis(5)),
            "Admin state update failed: pool kubernetes/shop-web: AnotherOperationInProgress: it is busy; the next try \
             is in 1 s",
        ),
        failed(
            Some(pool()),
            "HTTP 503",
            2,
            Some(Duration::from_millis(14_001)),
            "Admin state update failed: pool kubernetes/shop-web: HTTP 503 (retry 2); the next try is in 15 s",
        ),
        failed(
            None,
            "the controller's ConfigMap has no room for the node's record",
            0,
            None,
            "Admin state update failed: the controller's ConfigMap has no room for the node's record",
        ),
    ]
}

/// Returns at least one row for each kind of report.
pub(super) fn rows() -> Vec<Row> {
    let mut rows = outcomes();
    rows.extend(conditions());
    rows.extend(guards());
    rows.push(other_client());
    rows.extend(writes_lost());
    rows.extend(of_sources());
    rows.extend(nodes());
    rows.extend(node_failures());
    rows
}

#[test]
fn e1_every_report_has_its_reason_type_and_text() {
    let mut rows = BTreeMap::new();
    for (what, reason, severity, message) in self::rows() {
        *rows.entry(row_of(&what)).or_insert(0) += 1;
        let mut drive = Drive::new(params());
        drive.report(&["web"], what);
        let event = drive.take_next();
        assert_eq!((event.reason, event.severity, &*event.message), (reason, severity, message));
        assert_eq!((&event.subject, event.count), (&subject("web"), 1));
    }
    assert!(rows.into_keys().eq(0..22), "each kind of report has its row");
}

#[test]
fn e1_reports_about_this_process_are_attached_to_it() {
    let mut drive = Drive::new(params());
    let what = EventKind::Blocked { caller: Caller::Membership, fault: "HTTP 403".into(), lb: None };
    drive.step(In::Report(Report { subjects: vec![Subject::Controller], what, note: None }));
    assert_eq!(drive.take_next().subject, Subject::Controller);
}

#[test]
fn s1_events_of_a_node_are_attached_to_it() {
    let mut drive = Drive::new(params());
    let subject = Subject::Node { name: NodeName::new("node-7"), uid: NodeUid::new("u-7") };
    let next = Some(Duration::from_secs(15));
    let what = EventKind::AdminFailed { pool: Some(pool()), why: "x".repeat(3_000).into(), retry: 9, next };
    drive.step(In::Report(Report { subjects: vec![subject.clone()], what, note: None }));
    let event = drive.take_next();
    assert_eq!(event.subject, subject);
    assert!(event.message.len() <= 1_024, "{}", event.message.len());
    assert!(event.message.ends_with("x… (retry 9); the next try is in 15 s"), "{}", event.message);
}

#[test]
fn e1_a_failure_without_a_code_names_its_place() {
    let kinds = [
        (FailureKind::Status(503), "HTTP 503"),
        (FailureKind::Operation, "OperationFailed"),
        (FailureKind::Connection, "ConnectionFailed"),
        (FailureKind::Timeout, "Timeout"),
        (FailureKind::Undecodable(200), "HTTP 200 with an unreadable body"),
        (FailureKind::Credential, "NoToken"),
        (FailureKind::PermitExpired, "PermitExpired"),
        (FailureKind::GateClosed, "ThrottleGateClosed"),
        (FailureKind::Refused, "RequestRefused"),
    ];
    for (kind, words) in kinds {
        let failure = Failure { kind, code: None, correlation_id: None, ..(*failure("")).clone() };
        let mut drive = Drive::new(params());
        let compared_again_in = Some(Duration::from_secs(60));
        drive.report(
            &["web"],
            EventKind::FailedTerminal { pool: pool(), failure: failure.into(), compared_again_in },
        );
        let expected = format!(
            "Backend pool update failed (non-retriable): {words}. Backend pool kubernetes/shop-web is compared \
             again in 60 s."
        );
        assert_eq!(*drive.take_next().message, *expected);
    }
}

#[test]
fn e1_a_long_error_is_cut_at_a_character_and_the_advice_stays() {
    let what = |retries| EventKind::FailedExhausted {
        pool: pool(),
        retries,
        failure: failure(&"ö".repeat(2_000)),
        compared_again_in: Some(Duration::from_millis(60_001)),
    };
    let mut drive = Drive::new(params());
    for retries in 0..10 {
        drive.report(&["web"], what(retries));
    }
    let all = drive.take_all();
    assert!(
        all[9].message.starts_with("(combined from similar events): Backend pool update failed after 9 ")
    );
    assert!(all[9].message.len() > 1_015, "{}", all[9].message.len());
    for event in all {
        assert!(event.message.len() <= 1024, "{}", event.message.len());
        assert!(event.message.contains("ö…. To retrigger, cause an endpoint change"));
        assert!(event.message.ends_with("is compared again in 61 s."));
    }
}

/// Returns the message of the one event of this report about a pool that is filled from a source.
fn with_note(what: EventKind, note: &str) -> String {
    let mut drive = Drive::new(params());
    drive.step(In::Report(Report { subjects: vec![Subject::Controller], what, note: Some(note.into()) }));
    drive.take_next().message.to_string()
}

#[test]
fn x4_the_note_of_a_source_comes_last_in_its_events() {
    let message = with_note(updated(3), "xDS node id: replica-1");
    assert!(message.ends_with(" (correlation id c-1) [xDS node id: replica-1]"), "{message}");
    let retries = EventKind::FailedExhausted {
        pool: pool(),
        retries: 3,
        failure: failure("it is busy."),
        compared_again_in: None,
    };
    let message = with_note(retries, "refused");
    let guidance = "To retrigger, have the control plane send a changed assignment, or request an attempt of the pool. \
                    Backend pool kubernetes/shop-web is not compared again until its assignment changes. [refused]";
    assert!(message.ends_with(guidance), "{message}");
    for (reason, words) in [
        (
            HeldReason::EmptyConfirm,
            "no endpoint is assigned to it any more; this waits for confirmation [refused]",
        ),
        (HeldReason::LastMember, "none takes new traffic, and none of them is in the pool [refused]"),
        (
            HeldReason::Breaker,
            "too many backend pools would lose most of their members at the same time [refused]",
        ),
    ] {
        let message = with_note(
            EventKind::Held { pool: pool(), reason, members: 2, enforced: true, excluded: None },
            "refused",
        );
        assert!(message.ends_with(words) && !message.contains("Service"), "{message}");
    }
}

#[test]
fn x4_a_long_error_and_a_long_note_leave_room_for_each_other() {
    for (error, note) in [("e", "ö"), ("fehler ", "refused "), ("é", "x")] {
        for (errors, notes) in [(1, 2_000), (2_000, 1), (2_000, 2_000), (150, 40)] {
            let (error, note) = (error.repeat(errors), note.repeat(notes));
            let what = EventKind::FailedExhausted {
                pool: pool(),
                retries: 3,
                failure: failure(&error),
                compared_again_in: Some(Duration::from_secs(60)),
            };
            let message = with_note(what, &note);
            assert!(message.len() <= 1_024, "{}", message.len());
            assert!(message.starts_with("Backend pool update failed after 3 retries: "), "{message}");
            let (_, tail) = message.rsplit_once(" is compared again in 60 s. [").expect("the advice");
            assert!(message.contains("To retrigger, have the control plane"), "{message}");
            let whole = tail.strip_suffix(']').expect("it ends with the note");
            let shown = whole.strip_suffix('…').unwrap_or(whole);
            assert!(note.starts_with(shown) && shown.len() >= note.len().min(300), "{message}");
        }
    }
}
