//! Leases against the model of an API server over real HTTP, and against invalid answers.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use kube::Client;
use model::ids::{LbName, PoolId, PoolName};
use model::lease::{GateTimes, LeaseAnswer, LeaseEdit, LeaseFacts, LeaseName, LeaseRequest, WATCH_MARGIN};
use model::object::{GIVE_UP_AFTER, RequestFailure, ResourceVersion};
use serde_json::{Value, json};
use simulator::models::kube::Resource;
use simulator::{Fakes, Settings};
use tokio_util::io::StreamReader;

use super::LeaseClient;
use super::document::{LeaseDocument, facts};
use crate::azure::Effects;
use crate::clock::Clock;
use crate::kubernetes::object_api::{Kind, NamespacedName, ObjectApi};
use crate::kubernetes::raw;

const NAME: &str = "aks-managed-resource-locker";

fn lease_name() -> NamespacedName {
    NamespacedName { namespace: Arc::from("kube-system"), name: Arc::from(NAME) }
}

fn lease_client(url: &str, effects: Effects) -> LeaseClient {
    let config = kube::Config::new(url.parse().unwrap());
    let client = Client::try_from(config).unwrap();
    let api = ObjectApi { client, effects, kind: Kind::Lease, name: lease_name() };
    LeaseClient { api, clock: Clock::start(), lease: LeaseName::Own }
}

async fn stage() -> (Fakes, LeaseClient) {
    let fakes = Fakes::start(Settings::default()).await.unwrap();
    let lease_client = lease_client(&fakes.kubernetes_url, Effects::Carried);
    (fakes, lease_client)
}

fn edit(holder: Option<&str>) -> LeaseEdit {
    LeaseEdit {
        holder: holder.map(Arc::from),
        duration: Duration::from_secs(45),
        acquired: false,
        transition: false,
        previous_holder: None,
        gates: None,
        out_of_sync: None,
    }
}

fn facts_of(answer: LeaseAnswer) -> Arc<LeaseFacts> {
    let LeaseAnswer::Seen(facts) = answer else { panic!("expected a state, not {answer:?}") };
    facts
}

fn failed(answer: LeaseAnswer) -> String {
    let LeaseAnswer::Failed(RequestFailure::Other(reason)) = answer else {
        panic!("expected a failure, not {answer:?}")
    };
    reason.to_string()
}

async fn stored(fakes: &Fakes) -> Option<Value> {
    fakes.cluster.ask(|cluster, _| cluster.model.get(Resource::Leases, "kube-system", NAME)).await
}

#[tokio::test]
async fn w8_a_lease_is_written_only_at_its_newest_version() {
    let (fakes, lease_client) = stage().await;
    assert!(matches!(lease_client.send(LeaseRequest::Get).await, LeaseAnswer::Absent));
    let taken = LeaseEdit { acquired: true, ..edit(Some("us")) };
    let made = facts_of(lease_client.send(LeaseRequest::Create(taken.clone())).await);
    assert_eq!((made.holder.as_deref(), made.duration), (Some("us"), Some(Duration::from_secs(45))));
    assert!(made.renewed_ago.is_some_and(|ago| ago < Duration::from_secs(60)));
    assert!(matches!(lease_client.send(LeaseRequest::Create(taken)).await, LeaseAnswer::Conflict));

    let renewal = LeaseRequest::Replace(Arc::clone(&made), edit(Some("us")));
    let renewed = facts_of(lease_client.send(renewal.clone()).await);
    assert_ne!(renewed.version, made.version);
    assert!(matches!(lease_client.send(renewal).await, LeaseAnswer::Conflict));

    let release = LeaseEdit { duration: Duration::from_secs(1), ..edit(None) };
    let released = facts_of(lease_client.send(LeaseRequest::Replace(renewed, release.clone())).await);
    assert_eq!((released.holder.as_deref(), released.duration), (None, Some(Duration::from_secs(1))));
    assert_eq!(facts_of(lease_client.send(LeaseRequest::Get).await).version, released.version);

    assert!(fakes.delete(Resource::Leases, "kube-system", NAME).await);
    let gone = lease_client.send(LeaseRequest::Replace(released, release)).await;
    assert!(matches!(gone, LeaseAnswer::Absent | LeaseAnswer::Conflict), "{gone:?}");
}

#[tokio::test]
async fn w7_unknown_fields_of_a_lease_survive_a_replacement() {
    let (fakes, lease_client) = stage().await;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": NAME, "namespace": "kube-system", "labels": { "of": "somebody" },
            "annotations": { "other/note": "kept", "aks-managed-resource-locker-previous-holder": "ccm" },
        },
        "spec": {
            "holderIdentity": "", "leaseDurationSeconds": 900, "leaseTransitions": 6, "strategy": "OldestEmulationVersion",
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    });
    fakes.apply(vec![lease]).await.unwrap();
    let before = facts_of(lease_client.send(LeaseRequest::Get).await);
    assert_eq!((before.holder.as_deref(), before.transitions), (None, 6));
    let take = LeaseEdit {
        acquired: true,
        transition: true,
        previous_holder: Some(Arc::from("us")),
        ..edit(Some("us"))
    };
    let after = facts_of(lease_client.send(LeaseRequest::Replace(before, take)).await);
    assert_eq!(after.transitions, 7);
    let stored = stored(&fakes).await.unwrap();
    let metadata = &stored["metadata"];
    assert_eq!(metadata["labels"]["of"], "somebody");
    assert_eq!(metadata["annotations"]["other/note"], "kept");
    assert_eq!(metadata["annotations"]["aks-managed-resource-locker-previous-holder"], "us");
    assert_eq!(stored["spec"]["strategy"], "OldestEmulationVersion");
    assert_eq!(stored["spec"]["acquireTime"], stored["spec"]["renewTime"]);
    assert_ne!(stored["spec"]["renewTime"], "2026-01-01T00:00:00.000000Z");
}

#[tokio::test]
async fn w8_a_release_is_seen_during_other_requests() {
    let (_fakes, lease_client) = stage().await;
    let made = facts_of(lease_client.send(LeaseRequest::Create(edit(Some("them")))).await);
    let waiting = lease_client.clone();
    let version = made.version.clone();
    let waiter =
        tokio::spawn(
            async move { waiting.send(LeaseRequest::Watch(version, Duration::from_secs(300))).await },
        );
    let released = facts_of(lease_client.send(LeaseRequest::Replace(made, edit(None))).await);
    let result = facts_of(waiter.await.unwrap());
    assert_eq!((result.holder.as_deref(), &result.version), (None, &released.version));
}

#[tokio::test]
async fn w7_a_lease_without_recent_writes_can_be_watched() {
    let (fakes, lease_client) = stage().await;
    let old = facts_of(lease_client.send(LeaseRequest::Create(edit(None))).await);
    let made = facts_of(lease_client.send(LeaseRequest::Replace(Arc::clone(&old), edit(Some("them")))).await);
    // The server keeps no earlier change.
    fakes
        .apply(vec![json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } })])
        .await
        .unwrap();
    fakes.plant(|model| model.compact()).await;
    let second = LeaseRequest::Watch(made.version.clone(), Duration::from_secs(1));
    assert!(matches!(lease_client.send(second).await, LeaseAnswer::Unchanged));

    let waiting = lease_client.clone();
    let request = LeaseRequest::Watch(made.version.clone(), Duration::from_secs(300));
    let waiter = tokio::spawn(async move { waiting.send(request).await });
    let released = facts_of(lease_client.send(LeaseRequest::Replace(made, edit(None))).await);
    assert_eq!(facts_of(waiter.await.unwrap()).version, released.version);

    let missed = LeaseRequest::Watch(old.version.clone(), Duration::from_secs(300));
    assert_eq!(
        facts_of(lease_client.send(missed).await).version,
        released.version,
        "the newest state, immediately"
    );
}

#[tokio::test]
async fn w8_a_denial_is_distinct_from_other_failures() {
    let (fakes, lease_client) = stage().await;
    fakes.plant(|model| model.forbid(Resource::Leases)).await;
    let version = ResourceVersion("1".into());
    for request in [
        LeaseRequest::Get,
        LeaseRequest::Create(edit(None)),
        LeaseRequest::Watch(version, Duration::from_secs(1)),
    ] {
        let answer = lease_client.send(request).await;
        let LeaseAnswer::Failed(RequestFailure::Denied(reason)) = answer else { panic!("{answer:?}") };
        assert!(reason.contains("HTTP 403") && reason.contains("leases"), "{reason}");
    }
    fakes.plant(|model| model.permit(Resource::Leases)).await;
    fakes.plant(|model| model.down(true)).await;
    failed(lease_client.send(LeaseRequest::Get).await);
}

#[tokio::test]
async fn c4_a_dry_run_writes_no_lease() {
    let (fakes, carried) = stage().await;
    let withheld = lease_client(&fakes.kubernetes_url, Effects::Withheld);
    failed(withheld.send(LeaseRequest::Create(edit(Some("us")))).await);
    assert_eq!(stored(&fakes).await, None);
    let made = facts_of(carried.send(LeaseRequest::Create(edit(Some("them")))).await);
    failed(withheld.send(LeaseRequest::Replace(made, edit(Some("us")))).await);
    assert_eq!(stored(&fakes).await.unwrap()["spec"]["holderIdentity"], "them");
    assert_eq!(facts_of(withheld.send(LeaseRequest::Get).await).holder.as_deref(), Some("them"));
}

/// Requests to a server that answers each with these bytes, and closes the connection unless `keep_open`.
async fn against(answer: String, keep_open: bool) -> LeaseClient {
    let url = raw::serve(move |_| answer.clone(), keep_open).await;
    lease_client(&url, Effects::Carried)
}

async fn watched(lines: &[Value]) -> LeaseAnswer {
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
    let request = LeaseRequest::Watch(ResourceVersion("7".into()), Duration::from_secs(300));
    against(format!("{head}{body}"), false).await.send(request).await
}

#[tokio::test]
async fn w8_a_watch_answers_with_its_first_meaningful_event() {
    let lease = json!({ "metadata": { "resourceVersion": "9" }, "spec": { "holderIdentity": "them" } });
    let modified = json!({ "type": "MODIFIED", "object": lease });
    let bookmark = json!({ "type": "BOOKMARK", "object": { "metadata": { "resourceVersion": "8" } } });
    assert_eq!(&*facts_of(watched(&[bookmark.clone(), modified.clone()]).await).version.0, "9");
    assert_eq!(&*facts_of(watched(&[modified]).await).version.0, "9");
    assert!(matches!(watched(&[json!({ "type": "DELETED", "object": lease })]).await, LeaseAnswer::Absent));
    let error = failed(watched(&[bookmark]).await);
    assert_eq!(error, "the watch ended without a line about the Lease");
    assert_eq!(failed(watched(&[]).await), error);
    let expired = json!({ "type": "ERROR", "object": { "code": 410, "message": "too old" } });
    assert_eq!(failed(watched(&[expired]).await), "too old");
    failed(watched(&[json!("nonsense")]).await);
    failed(watched(&[json!({ "type": "MODIFIED", "object": { "metadata": {} } })]).await);
}

#[tokio::test]
async fn an_empty_watch_is_a_failure() {
    for answer in raw::EMPTY {
        let request = LeaseRequest::Watch(ResourceVersion("7".into()), Duration::from_secs(300));
        failed(against(answer.to_owned(), false).await.send(request).await);
    }
}

fn watch_event(kind: &str, version: u32) -> Value {
    json!({ "type": kind, "object": { "metadata": { "resourceVersion": version.to_string() } } })
}

#[tokio::test]
async fn w8_a_watch_skips_the_known_state_but_not_a_final_one() {
    let answer = watched(&[watch_event("ADDED", 7), watch_event("MODIFIED", 9)]).await;
    assert_eq!(&*facts_of(answer).version.0, "9");
    assert!(matches!(watched(&[watch_event("ADDED", 7)]).await, LeaseAnswer::Unchanged));
    assert!(matches!(
        watched(&[watch_event("ADDED", 7), watch_event("DELETED", 8)]).await,
        LeaseAnswer::Absent
    ));
    // A lagging cache.
    assert!(matches!(
        watched(&[watch_event("ADDED", 6), watch_event("MODIFIED", 7)]).await,
        LeaseAnswer::Unchanged
    ));
    let answer =
        watched(&[watch_event("ADDED", 5), watch_event("MODIFIED", 6), watch_event("MODIFIED", 8)]).await;
    assert_eq!(&*facts_of(answer).version.0, "8");
    // Storage that was restored from a backup.
    assert_eq!(&*facts_of(watched(&[watch_event("ADDED", 6)]).await).version.0, "6");
}

#[tokio::test(start_paused = true)]
async fn w8_a_watch_that_stays_open_without_the_known_state_ends_soon() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
    let request = LeaseRequest::Watch(ResourceVersion("7".into()), Duration::from_secs(300));
    let began = tokio::time::Instant::now();
    let error = failed(against(head.to_owned(), true).await.send(request.clone()).await);
    assert!(error.contains("not begun with the Lease"), "{error}");
    assert!(began.elapsed() <= Duration::from_secs(6), "{:?}", began.elapsed());
    let older = format!("{head}{}\n", watch_event("ADDED", 6));
    assert_eq!(&*facts_of(against(older, true).await.send(request).await).version.0, "6");
    assert!(began.elapsed() <= Duration::from_secs(9), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn w8_every_request_has_a_time_limit() {
    let began = tokio::time::Instant::now();
    for request in [LeaseRequest::Get, LeaseRequest::Create(edit(Some("us")))] {
        failed(against(String::new(), true).await.send(request).await);
    }
    assert!(began.elapsed() <= 2 * GIVE_UP_AFTER, "{:?}", began.elapsed());
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n".to_owned();
    let request = LeaseRequest::Watch(ResourceVersion("7".into()), Duration::from_secs(30));
    let before = began.elapsed();
    failed(against(head, true).await.send(request).await);
    assert!(began.elapsed() - before <= Duration::from_secs(33), "{:?}", began.elapsed() - before);
    // A refusal with an endless body is recognised by its status.
    let head = "HTTP/1.1 403 Forbidden\r\ncontent-length: 9\r\n\r\n".to_owned();
    let (request, before) =
        (LeaseRequest::Watch(ResourceVersion("7".into()), Duration::ZERO), began.elapsed());
    let refused = against(head, true).await.send(request).await;
    assert!(matches!(refused, LeaseAnswer::Failed(RequestFailure::Denied(_))), "{refused:?}");
    assert!(began.elapsed() - before < WATCH_MARGIN, "{:?}", began.elapsed() - before);
}

fn decoded(spec: &Value) -> LeaseFacts {
    let value = json!({ "metadata": { "resourceVersion": "5" }, "spec": spec });
    facts(LeaseName::Own, value, Clock::start()).unwrap()
}

#[test]
fn w8_missing_and_invalid_fields_of_a_lease_are_ignored() {
    for spec in [json!(null), json!({}), json!({ "holderIdentity": "", "renewTime": "yesterday" })] {
        let facts = decoded(&spec);
        assert_eq!(
            (facts.holder, facts.duration, facts.renewed_ago, facts.transitions),
            (None, None, None, 0)
        );
    }
    for (seconds, duration) in [
        (json!(0), Some(0)),
        (json!(-5), None),
        (json!(i64::MAX), Some(2_147_483_647)),
        (json!(u64::MAX), Some(2_147_483_647)),
    ] {
        let facts = decoded(&json!({ "leaseDurationSeconds": seconds, "leaseTransitions": -3 }));
        assert_eq!((facts.duration, facts.transitions), (duration.map(Duration::from_secs), 0), "{seconds}");
    }
    for time in ["2020-01-01T00:00:00.123456Z", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00+01:00"] {
        let ago = decoded(&json!({ "renewTime": time })).renewed_ago;
        assert!(ago.is_some_and(|ago| ago > Duration::from_secs(86_400)), "{time} {ago:?}");
    }
    assert_eq!(decoded(&json!({ "renewTime": "2999-01-01T00:00:00Z" })).renewed_ago, Some(Duration::ZERO));
}

#[test]
fn w8_an_unusable_lease_is_refused_with_the_name_of_its_field() {
    let refused =
        |value: Value| facts(LeaseName::Own, value, Clock::start()).map(drop).unwrap_err().to_string();
    let with = |spec: Value| json!({ "metadata": { "resourceVersion": "5" }, "spec": spec });
    for (value, watch_event) in [
        (json!([]), "Lease: expected an object, found a list"),
        (json!({}), "metadata.resourceVersion: expected a text, found nothing"),
        (
            json!({ "metadata": { "resourceVersion": "" } }),
            "metadata.resourceVersion: expected a text, found an empty text",
        ),
        (with(json!("x")), "spec: expected an object, found a text"),
        (with(json!({ "holderIdentity": 7 })), "spec.holderIdentity: expected a text, found a number"),
        (
            with(json!({ "leaseDurationSeconds": "900" })),
            "spec.leaseDurationSeconds: expected a whole number, found a text",
        ),
        (
            with(json!({ "leaseTransitions": 1.5 })),
            "spec.leaseTransitions: expected a whole number, found 1.5",
        ),
    ] {
        assert_eq!(refused(value), watch_event);
    }
}

fn recorded(gates: GateTimes, clock: Clock) -> Value {
    let edit = LeaseEdit { gates: Some(gates), ..edit(Some("us")) };
    let body = LeaseDocument::new(&lease_name()).edited(&edit, clock);
    let mut lease: Value = serde_json::from_slice(&body).unwrap();
    lease["metadata"]["resourceVersion"] = "5".into();
    lease
}

#[test]
fn w8_gate_times_survive_a_round_trip() {
    let clock = Clock::start();
    let until = clock.now().plus(Duration::from_secs(100));
    let lease = recorded(GateTimes { reads_until: Some(until), writes_until: None }, clock);
    let annotations = &lease["metadata"]["annotations"];
    assert!(annotations["azure-backend-pool-controller.io/reads-throttled-until"].is_string());
    assert_eq!(annotations["azure-backend-pool-controller.io/writes-throttled-until"], Value::Null);
    let read = facts(LeaseName::Own, lease.clone(), clock).unwrap();
    let reads_until = read.gates.reads_until.unwrap();
    assert!(reads_until.since(until) + until.since(reads_until) < Duration::from_secs(1));
    assert_eq!(read.gates.writes_until, None);
    assert_eq!(facts(LeaseName::Shared, lease, clock).unwrap().gates, GateTimes::default());

    let facts_of = LeaseEdit { gates: Some(GateTimes::default()), ..edit(None) };
    let again = read.document.get::<LeaseDocument>().unwrap().edited(&facts_of, clock);
    let again: Value = serde_json::from_slice(&again).unwrap();
    assert_eq!(again["metadata"]["annotations"], json!({}), "an open gate is no longer stored");
}

#[test]
fn out_of_sync_times_survive_a_round_trip() {
    let clock = Clock::start();
    let pool = PoolId::new(LbName::new("lb"), PoolName::new("shop-web"));
    let since = clock.now().minus(Duration::from_secs(900));
    let edit = LeaseEdit { out_of_sync: Some(Arc::new([(pool.clone(), since)].into())), ..edit(Some("us")) };
    let body = LeaseDocument::new(&lease_name()).edited(&edit, clock);
    let mut lease: Value = serde_json::from_slice(&body).unwrap();
    lease["metadata"]["resourceVersion"] = "5".into();
    let read = facts(LeaseName::Own, lease.clone(), clock).unwrap();
    let back = read.out_of_sync[&pool];
    assert!(back.since(since) + since.since(back) < Duration::from_secs(1));
    assert!(facts(LeaseName::Shared, lease.clone(), clock).unwrap().out_of_sync.is_empty());

    let none = LeaseEdit { out_of_sync: Some(Arc::default()), ..self::edit(None) };
    let again = read.document.get::<LeaseDocument>().unwrap().edited(&none, clock);
    let again: Value = serde_json::from_slice(&again).unwrap();
    assert_eq!(again["metadata"]["annotations"], json!({}), "nothing is stored if every pool is in sync");

    lease["metadata"]["annotations"]["azure-backend-pool-controller.io/out-of-sync-since"] =
        r#"{"lb": "2026-01-01T00:00:00Z", "lb/a": "soon", "lb/b": 7}"#.into();
    assert!(facts(LeaseName::Own, lease, clock).unwrap().out_of_sync.is_empty());
}

#[test]
fn w8_past_or_invalid_gate_times_are_ignored() {
    let clock = Clock::start();
    for text in ["2020-01-01T00:00:00Z", "soon", ""] {
        let mut lease = recorded(GateTimes::default(), clock);
        lease["metadata"]["annotations"]["azure-backend-pool-controller.io/writes-throttled-until"] =
            text.into();
        assert_eq!(facts(LeaseName::Own, lease, clock).unwrap().gates, GateTimes::default(), "{text:?}");
    }
}

#[test]
fn w8_times_have_the_apis_micro_time_format() {
    let lease = recorded(GateTimes::default(), Clock::start());
    let time = lease["spec"]["renewTime"].as_str().unwrap();
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000000Z");
}

#[tokio::test(start_paused = true)]
async fn w8_a_watch_that_is_cut_after_10_s_counts_as_closed() {
    let lease_client = lease_client("http://127.0.0.1:1", Effects::Carried);
    for (seconds, is_routine) in [(0, false), (9, false), (11, true), (60, true)] {
        let line = json!({ "type": "ADDED", "object": {
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": NAME, "namespace": "kube-system", "resourceVersion": "7" },
            "spec": { "holderIdentity": "them", "leaseDurationSeconds": 45 },
        } });
        let begun = stream::iter([Ok(std::io::Cursor::new(format!("{line}\n")))]);
        let cut = stream::once(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Err(std::io::Error::other("connection reset"))
        });
        let bytes = StreamReader::new(Box::pin(begun.chain(cut)));
        let result = lease_client.first_change(&ResourceVersion("7".into()), bytes).await;
        match result {
            Ok(LeaseAnswer::Unchanged) => assert!(is_routine, "after {seconds} s"),
            Err(RequestFailure::Other(_)) => assert!(!is_routine, "after {seconds} s"),
            other => panic!("after {seconds} s: {other:?}"),
        }
    }
}
