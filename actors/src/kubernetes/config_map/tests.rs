//! The controller's ConfigMap against the model of an API server over real HTTP, and invalid documents.

use kube::Client;
use model::object::GIVE_UP_AFTER;
use simulator::models::kube::Resource;
use simulator::{Fakes, Settings};

use super::*;
use crate::azure::Effects;
use crate::kubernetes::object_api::Kind;
use crate::kubernetes::raw;

const NAME: &str = "azure-backend-pool-controller";

async fn stage(effects: Effects) -> (Fakes, ConfigMapClient) {
    let fakes = Fakes::start(Settings::default()).await.expect("loopback has free ports");
    let config_maps = config_maps(&fakes.kubernetes_url, effects);
    (fakes, config_maps)
}

fn config_maps(url: &str, effects: Effects) -> ConfigMapClient {
    let config = kube::Config::new(url.parse().expect("an address"));
    let client = Client::try_from(config).expect("a client");
    let name = NamespacedName { namespace: Arc::from("kube-system"), name: Arc::from(NAME) };
    let api = ObjectApi { client, effects, kind: Kind::ConfigMap, name };
    ConfigMapClient { api, clock: Clock::start() }
}

fn set(key: &str, value: EditValue) -> ConfigMapEdit {
    ConfigMapEdit { set: BTreeMap::from([(Arc::from(key), value)]), ..ConfigMapEdit::default() }
}

fn facts_of(answer: ConfigMapAnswer) -> Arc<ConfigMapFacts> {
    let ConfigMapAnswer::Seen(facts) = answer else { panic!("expected a state, not {answer:?}") };
    facts
}

async fn stored(fakes: &Fakes) -> Option<Value> {
    fakes.cluster.ask(|cluster, _| cluster.model.get(Resource::ConfigMaps, "kube-system", NAME)).await
}

#[tokio::test]
async fn a4_only_the_newest_config_map_can_be_replaced() {
    let (fakes, config_maps) = stage(Effects::Carried).await;
    assert!(matches!(config_maps.send(ConfigMapRequest::Get).await, ConfigMapAnswer::Absent));
    let pause = set("pause.pool.a", EditValue::Time(config_maps.clock.now()));
    let first = facts_of(config_maps.send(ConfigMapRequest::Create(pause.clone())).await);
    let time = first.data["pause.pool.a"].time.expect("the written data can be read");
    assert!(first.read.as_micros().abs_diff(time.as_micros()) < 60_000_000, "{first:?}");
    let again = config_maps.send(ConfigMapRequest::Create(pause)).await;
    assert!(matches!(again, ConfigMapAnswer::Conflict), "{again:?}");

    let other = set("pause", EditValue::Text("all".into()));
    let second = facts_of(config_maps.send(ConfigMapRequest::Replace(Arc::clone(&first), other)).await);
    assert_eq!(second.data.len(), 2);
    assert_eq!((&*second.data["pause"].text, second.data["pause"].time), ("all", None));
    assert_ne!(second.version, first.version);
    let removal = ConfigMapEdit { remove: ["pause.pool.a".into()].into(), ..ConfigMapEdit::default() };
    let late = config_maps.send(ConfigMapRequest::Replace(first, removal.clone())).await;
    assert!(matches!(late, ConfigMapAnswer::Conflict), "{late:?}");
    let third = facts_of(config_maps.send(ConfigMapRequest::Replace(second, removal)).await);
    assert_eq!(third.data.keys().map(|key| &**key).collect::<Vec<_>>(), ["pause"]);
    assert_eq!(stored(&fakes).await.expect("it is there")["data"], json!({ "pause": "all" }));
}

#[tokio::test]
async fn a4_unknown_fields_and_keys_survive_a_replacement() {
    let (fakes, config_maps) = stage(Effects::Carried).await;
    let foreign = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": NAME, "namespace": "kube-system", "labels": { "team": "net" } },
        "data": { "down.node-1": "10.0.0.4" }, "binaryData": { "raw": "AAE=" },
    });
    fakes.apply(vec![foreign.clone()]).await.expect("a good object");
    let facts = facts_of(config_maps.send(ConfigMapRequest::Get).await);
    facts_of(config_maps.send(ConfigMapRequest::Replace(facts, set("a", EditValue::Text("b".into())))).await);
    let after = stored(&fakes).await.expect("it is there");
    assert_eq!(after["metadata"]["labels"], foreign["metadata"]["labels"]);
    assert_eq!(after["binaryData"], foreign["binaryData"]);
    assert_eq!(after["data"], json!({ "down.node-1": "10.0.0.4", "a": "b" }));
}

#[tokio::test]
async fn a4_refusals_absent_objects_and_other_failures_are_distinct() {
    let (fakes, config_maps) = stage(Effects::Carried).await;
    fakes.plant(|model| model.forbid(Resource::ConfigMaps)).await;
    let refused = config_maps.send(ConfigMapRequest::Get).await;
    let ConfigMapAnswer::Failed(RequestFailure::Denied(reason)) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("403") && reason.contains("configmaps"), "{reason}");
    fakes.plant(|model| model.permit(Resource::ConfigMaps)).await;
    let edit = set("a", EditValue::Text("b".into()));
    let facts = facts_of(config_maps.send(ConfigMapRequest::Create(edit.clone())).await);
    let of = |name: NamespacedName| ConfigMapClient {
        api: ObjectApi { name, ..config_maps.api.clone() },
        ..config_maps.clone()
    };
    let ours = config_maps.api.name.clone();
    let another = of(NamespacedName { name: Arc::from("another"), ..ours.clone() });
    assert!(matches!(another.send(ConfigMapRequest::Get).await, ConfigMapAnswer::Absent));
    let nowhere = of(NamespacedName { namespace: Arc::from("nowhere"), ..ours });
    let nowhere = nowhere.send(ConfigMapRequest::Create(edit)).await;
    assert!(matches!(nowhere, ConfigMapAnswer::Failed(RequestFailure::Other(_))), "{nowhere:?}");
    let foreign = ConfigMapFacts { document: Document::new(()), ..(*facts).clone() };
    let foreign =
        config_maps.send(ConfigMapRequest::Replace(Arc::new(foreign), ConfigMapEdit::default())).await;
    assert!(matches!(foreign, ConfigMapAnswer::Failed(RequestFailure::Other(_))), "{foreign:?}");
}

/// Returns one request of each kind.
fn requests_of_each_kind() -> [ConfigMapRequest; 3] {
    let read = json!({ "metadata": { "resourceVersion": "7" } });
    let read = Arc::new(facts(read, Clock::start()).expect("usable"));
    let edit = ConfigMapEdit::default();
    [ConfigMapRequest::Get, ConfigMapRequest::Create(edit.clone()), ConfigMapRequest::Replace(read, edit)]
}

fn failed(answer: ConfigMapAnswer) -> Arc<str> {
    let ConfigMapAnswer::Failed(RequestFailure::Other(reason)) = answer else { panic!("{answer:?}") };
    reason
}

#[tokio::test]
async fn a_success_without_a_body_is_a_failure() {
    for answer in raw::EMPTY {
        let config_maps = config_maps(&raw::serve(|_| answer.to_owned(), false).await, Effects::Carried);
        for request in requests_of_each_kind() {
            let reason = failed(config_maps.send(request).await);
            let is_explained = reason.contains("HTTP 200") && reason.contains("without a body");
            assert!(is_explained || answer == raw::EMPTY[4], "{reason}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_to_a_silent_server_end() {
    let config_maps = config_maps(&raw::serve(|_| String::new(), true).await, Effects::Carried);
    let began = tokio::time::Instant::now();
    for request in requests_of_each_kind() {
        failed(config_maps.send(request).await);
    }
    assert!(began.elapsed() <= 3 * GIVE_UP_AFTER, "{:?}", began.elapsed());
}

#[tokio::test]
async fn c4_a_dry_run_writes_no_config_map() {
    let (fakes, config_maps) = stage(Effects::Withheld).await;
    let answer = config_maps.send(ConfigMapRequest::Create(ConfigMapEdit::default())).await;
    assert!(matches!(answer, ConfigMapAnswer::Failed(RequestFailure::Other(_))), "{answer:?}");
    assert_eq!(stored(&fakes).await, None);
}

#[test]
fn a4_only_an_unusable_config_map_is_refused() {
    let of = |value: Value| facts(value, Clock::start());
    let odd = json!({
        "metadata": { "resourceVersion": "7" },
        "data": { "text": "x", "number": 5, "nothing": null, "time": "2026-01-01T12:00:00+02:00", "empty": "" },
    });
    let odd = of(odd).expect("usable");
    assert_eq!(odd.data.keys().map(|key| &**key).collect::<Vec<_>>(), ["empty", "text", "time"]);
    assert_eq!(odd.data["time"].time, Some(Wall::from_micros(1_767_261_600_000_000)));
    for data in [json!(null), json!([1]), json!("x")] {
        let facts = of(json!({ "metadata": { "resourceVersion": "7" }, "data": data })).expect("usable");
        assert!(facts.data.is_empty());
        let document = facts.document.get::<ConfigMapDocument>().expect("of this port");
        let body = document.edited(&set("a", EditValue::Text("b".into())), Clock::start());
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(body["data"], json!({ "a": "b" }));
    }
    for refused in
        [json!([]), json!({}), json!({ "metadata": { "resourceVersion": "" } }), json!({ "metadata": 5 })]
    {
        assert!(of(refused.clone()).is_err(), "{refused}");
    }
}

#[tokio::test]
async fn concurrent_commands_store_all_entries_up_to_the_maximum() {
    let (fakes, config_maps) = stage(Effects::Carried).await;
    facts_of(
        config_maps.send(ConfigMapRequest::Create(set("pause.pool.a", EditValue::Text("x".into())))).await,
    );
    let ObjectApi { client, name, .. } = config_maps.api;
    let store = async |suffix: &str| {
        let entry = ConfigMapEntry {
            prefix: "snapshot.",
            name: suffix.to_owned(),
            text: "note".to_owned(),
            max_entries: 3,
        };
        store_entry(client.clone(), name.clone(), config_maps.clock, &entry).await
    };
    let results = tokio::join!(store("1"), store("2"), store("3"));
    assert!(matches!(results, (Ok(()), Ok(()), Ok(()))), "{results:?}");
    let expected =
        json!({ "pause.pool.a": "x", "snapshot.1": "note", "snapshot.2": "note", "snapshot.3": "note" });
    assert_eq!(stored(&fakes).await.expect("it is there")["data"], expected);
    assert!(store("4").await.is_ok());
    let expected =
        json!({ "pause.pool.a": "x", "snapshot.2": "note", "snapshot.3": "note", "snapshot.4": "note" });
    assert_eq!(
        stored(&fakes).await.expect("it is there")["data"],
        expected,
        "the oldest entry of its kind is removed"
    );
    fakes.plant(|model| model.forbid(Resource::ConfigMaps)).await;
    assert!(matches!(store("5").await, Err(RequestFailure::Denied(_))));
}
