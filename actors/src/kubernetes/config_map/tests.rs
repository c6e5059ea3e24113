//! Our ConfigMap against the model of an API server over real HTTP, and invalid documents.

use kube::Client;
use model::object::GIVE_UP_AFTER;
use simulator::models::kube::Resource;
use simulator::{Fakes, Settings};

use super::*;
use crate::azure::Effects;
use crate::kubernetes::exchange::Kind;
use crate::kubernetes::raw;

const NAME: &str = "azure-backend-pool-controller";

async fn stage(effects: Effects) -> (Fakes, Requests) {
    let fakes = Fakes::start(Settings::default()).await.expect("loopback has free ports");
    let requests = requests(&fakes.kubernetes_url, effects);
    (fakes, requests)
}

fn requests(url: &str, effects: Effects) -> Requests {
    let config = kube::Config::new(url.parse().expect("an address"));
    let client = Client::try_from(config).expect("a client");
    let place = Place { namespace: Arc::from("kube-system"), name: Arc::from(NAME) };
    let exchange = Exchange { client, effects, kind: Kind::ConfigMap, place };
    Requests { exchange, clock: Clock::start() }
}

fn set(key: &str, value: Written) -> ConfigMapEdit {
    ConfigMapEdit { set: BTreeMap::from([(Arc::from(key), value)]), ..ConfigMapEdit::default() }
}

fn seen(answer: ConfigMapAnswer) -> Arc<ConfigMapFacts> {
    let ConfigMapAnswer::Seen(facts) = answer else { panic!("expected a state, not {answer:?}") };
    facts
}

async fn stored(fakes: &Fakes) -> Option<Value> {
    fakes.cluster.ask(|cluster, _| cluster.model.get(Resource::ConfigMaps, "kube-system", NAME)).await
}

#[tokio::test]
async fn a4_the_config_map_is_made_and_the_newest_state_alone_can_be_replaced() {
    let (fakes, requests) = stage(Effects::Carried).await;
    assert!(matches!(requests.carry_out(ConfigMapAsk::Get).await, ConfigMapAnswer::Absent));
    let noted = set("pause.pool.a", Written::Time(requests.clock.now()));
    let first = seen(requests.carry_out(ConfigMapAsk::Create(noted.clone())).await);
    let time = first.data["pause.pool.a"].time.expect("what was written can be read");
    assert!(first.read.as_micros().abs_diff(time.as_micros()) < 60_000_000, "{first:?}");
    let again = requests.carry_out(ConfigMapAsk::Create(noted)).await;
    assert!(matches!(again, ConfigMapAnswer::Conflict), "{again:?}");

    let other = set("pause", Written::Text("all".into()));
    let second = seen(requests.carry_out(ConfigMapAsk::Replace(Arc::clone(&first), other)).await);
    assert_eq!(second.data.len(), 2);
    assert_eq!((&*second.data["pause"].text, second.data["pause"].time), ("all", None));
    assert_ne!(second.version, first.version);
    let strike = ConfigMapEdit { remove: ["pause.pool.a".into()].into(), ..ConfigMapEdit::default() };
    let late = requests.carry_out(ConfigMapAsk::Replace(first, strike.clone())).await;
    assert!(matches!(late, ConfigMapAnswer::Conflict), "{late:?}");
    let third = seen(requests.carry_out(ConfigMapAsk::Replace(second, strike)).await);
    assert_eq!(third.data.keys().map(|key| &**key).collect::<Vec<_>>(), ["pause"]);
    assert_eq!(stored(&fakes).await.expect("it is there")["data"], json!({ "pause": "all" }));
}

#[tokio::test]
async fn a4_what_nobody_here_knows_survives_a_replacement() {
    let (fakes, requests) = stage(Effects::Carried).await;
    let foreign = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": NAME, "namespace": "kube-system", "labels": { "team": "net" } },
        "data": { "down.node-1": "10.0.0.4" }, "binaryData": { "raw": "AAE=" },
    });
    fakes.apply(vec![foreign.clone()]).await.expect("a good object");
    let facts = seen(requests.carry_out(ConfigMapAsk::Get).await);
    seen(requests.carry_out(ConfigMapAsk::Replace(facts, set("a", Written::Text("b".into())))).await);
    let after = stored(&fakes).await.expect("it is there");
    assert_eq!(after["metadata"]["labels"], foreign["metadata"]["labels"]);
    assert_eq!(after["binaryData"], foreign["binaryData"]);
    assert_eq!(after["data"], json!({ "down.node-1": "10.0.0.4", "a": "b" }));
}

#[tokio::test]
async fn a4_a_refusal_an_absent_object_and_other_failures_are_told_apart() {
    let (fakes, requests) = stage(Effects::Carried).await;
    fakes.plant(|model| model.forbid(Resource::ConfigMaps)).await;
    let refused = requests.carry_out(ConfigMapAsk::Get).await;
    let ConfigMapAnswer::Failed(RequestFailure::Denied(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("403") && why.contains("configmaps"), "{why}");
    fakes.plant(|model| model.permit(Resource::ConfigMaps)).await;
    let edit = set("a", Written::Text("b".into()));
    let facts = seen(requests.carry_out(ConfigMapAsk::Create(edit.clone())).await);
    let of = |place: Place| Requests {
        exchange: Exchange { place, ..requests.exchange.clone() },
        ..requests.clone()
    };
    let ours = requests.exchange.place.clone();
    let another = of(Place { name: Arc::from("another"), ..ours.clone() });
    assert!(matches!(another.carry_out(ConfigMapAsk::Get).await, ConfigMapAnswer::Absent));
    let nowhere = of(Place { namespace: Arc::from("nowhere"), ..ours });
    let nowhere = nowhere.carry_out(ConfigMapAsk::Create(edit)).await;
    assert!(matches!(nowhere, ConfigMapAnswer::Failed(RequestFailure::Other(_))), "{nowhere:?}");
    let foreign = ConfigMapFacts { document: Document::new(()), ..(*facts).clone() };
    let foreign =
        requests.carry_out(ConfigMapAsk::Replace(Arc::new(foreign), ConfigMapEdit::default())).await;
    assert!(matches!(foreign, ConfigMapAnswer::Failed(RequestFailure::Other(_))), "{foreign:?}");
}

/// One request of each kind.
fn asks() -> [ConfigMapAsk; 3] {
    let read = json!({ "metadata": { "resourceVersion": "7" } });
    let read = Arc::new(facts(read, Clock::start()).expect("usable"));
    let edit = ConfigMapEdit::default();
    [ConfigMapAsk::Get, ConfigMapAsk::Create(edit.clone()), ConfigMapAsk::Replace(read, edit)]
}

fn failed(answer: ConfigMapAnswer) -> Arc<str> {
    let ConfigMapAnswer::Failed(RequestFailure::Other(why)) = answer else { panic!("{answer:?}") };
    why
}

#[tokio::test]
async fn a_200_without_a_body_is_a_failure() {
    for answer in raw::EMPTY {
        let requests = requests(&raw::serve(|_| answer.to_owned(), false).await, Effects::Carried);
        for ask in asks() {
            let why = failed(requests.carry_out(ask).await);
            let is_said = why.contains("HTTP 200") && why.contains("without a body");
            assert!(is_said || answer == raw::EMPTY[4], "{why}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_to_a_silent_server_end() {
    let requests = requests(&raw::serve(|_| String::new(), true).await, Effects::Carried);
    let began = tokio::time::Instant::now();
    for ask in asks() {
        failed(requests.carry_out(ask).await);
    }
    assert!(began.elapsed() <= 3 * GIVE_UP_AFTER, "{:?}", began.elapsed());
}

#[tokio::test]
async fn c4_a_dry_run_writes_no_config_map() {
    let (fakes, requests) = stage(Effects::Withheld).await;
    let answer = requests.carry_out(ConfigMapAsk::Create(ConfigMapEdit::default())).await;
    assert!(matches!(answer, ConfigMapAnswer::Failed(RequestFailure::Other(_))), "{answer:?}");
    assert_eq!(stored(&fakes).await, None);
}

#[test]
fn a4_of_an_odd_config_map_only_what_cannot_be_used_at_all_is_refused() {
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
        let body = document.edited(&set("a", Written::Text("b".into())), Clock::start());
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
async fn what_several_commands_keep_at_once_is_all_kept_up_to_a_number() {
    let (fakes, requests) = stage(Effects::Carried).await;
    seen(requests.carry_out(ConfigMapAsk::Create(set("pause.pool.a", Written::Text("x".into())))).await);
    let Exchange { client, place, .. } = requests.exchange;
    let keep_one = async |name: &str| {
        let note = Note { prefix: "snapshot.", name: name.to_owned(), text: "note".to_owned(), most: 3 };
        keep(client.clone(), place.clone(), requests.clock, &note).await
    };
    let kept = tokio::join!(keep_one("1"), keep_one("2"), keep_one("3"));
    assert!(matches!(kept, (Ok(()), Ok(()), Ok(()))), "{kept:?}");
    let wanted =
        json!({ "pause.pool.a": "x", "snapshot.1": "note", "snapshot.2": "note", "snapshot.3": "note" });
    assert_eq!(stored(&fakes).await.expect("it is there")["data"], wanted);
    assert!(keep_one("4").await.is_ok());
    let wanted =
        json!({ "pause.pool.a": "x", "snapshot.2": "note", "snapshot.3": "note", "snapshot.4": "note" });
    assert_eq!(stored(&fakes).await.expect("it is there")["data"], wanted, "the oldest of its kind goes");
    fakes.plant(|model| model.forbid(Resource::ConfigMaps)).await;
    assert!(matches!(keep_one("5").await, Err(RequestFailure::Denied(_))));
}
