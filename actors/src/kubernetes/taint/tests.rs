//! Patches of taints against the model of an API server over real HTTP.

use model::ids::{NodeName, NodeUid};
use simulator::models::kube::Resource;
use simulator::models::kube::build::node;
use simulator::{Fakes, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// Starts an API server with the node `n1`, which has these taints.
async fn stage(taints: &[(&str, &str, &str)]) -> (Fakes, TaintClient) {
    let fakes = Fakes::start(Settings::default()).await.expect("loopback has free ports");
    fakes.apply(vec![node("n1", &["10.0.0.4"], &[], true, taints)]).await.expect("a node");
    let config = kube::Config::new(fakes.kubernetes_url.parse().expect("an address"));
    let client = Client::try_from(config).expect("a client");
    (fakes, TaintClient { client, effects: Effects::Carried })
}

async fn stored(fakes: &Fakes) -> Value {
    fakes.cluster.ask(|cluster, _| cluster.model.get(Resource::Nodes, "", "n1")).await.expect("it is there")
}

/// Returns the taints of the node in kubectl's format.
async fn taints(fakes: &Fakes) -> Vec<String> {
    let node = stored(fakes).await;
    let text = |taint: &Value, field: &str| taint[field].as_str().unwrap_or_default().to_owned();
    let all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let each = |taint: &Value| {
        let [key, value, effect] = ["key", "value", "effect"].map(|field| text(taint, field));
        format!("{key}={value}:{effect}")
    };
    all.iter().map(each).collect()
}

/// Returns this edit for the current state of the node.
async fn taint_request(fakes: &Fakes, edit: TaintEdit) -> TaintPatch {
    let node = stored(fakes).await;
    let text = |field: &str| node["metadata"][field].as_str().expect("the server sets it").to_owned();
    TaintPatch { node: NodeName::new("n1"), uid: NodeUid::new(text("uid")), edit }
}

const OURS: &str = "cloudprovider.azure.microsoft.com/draining=spot-eviction:NoSchedule";
const OTHERS: [(&str, &str, &str); 2] = [("other", "a", "NoExecute"), ("more", "", "NoSchedule")];

#[tokio::test]
async fn n1_the_taint_is_added_and_removed_and_others_stay() {
    let (fakes, taint_client) = stage(&OTHERS).await;
    let before = taints(&fakes).await;
    let add = taint_request(&fakes, TaintEdit::AddTo).await;
    // A concurrent write by another client loses neither change.
    let mut other = stored(&fakes).await;
    other["spec"]["unschedulable"] = true.into();
    fakes.apply(vec![other]).await.expect("a node");
    assert_eq!(taint_client.apply(&add).await, TaintAnswer::Done);
    assert_eq!(taints(&fakes).await, [&before[..], &[OURS.to_owned()]].concat());
    assert_eq!(taint_client.apply(&add).await, TaintAnswer::Overtaken, "it is there");

    let remove = taint_request(&fakes, TaintEdit::Remove { at: 2 }).await;
    assert_eq!(taint_client.apply(&remove).await, TaintAnswer::Done);
    assert_eq!(taints(&fakes).await, before);
    assert_eq!(taint_client.apply(&remove).await, TaintAnswer::Overtaken, "it is gone");
    assert_eq!(stored(&fakes).await["spec"]["unschedulable"], true);
}

#[tokio::test]
async fn n1_a_first_taint_is_added_only_to_an_empty_list() {
    let (fakes, taint_client) = stage(&[]).await;
    let append = taint_request(&fakes, TaintEdit::AddTo).await;
    assert_eq!(taint_client.apply(&append).await, TaintAnswer::Overtaken, "there is no list to add it to");
    let first = taint_request(&fakes, TaintEdit::AddFirst).await;
    fakes.apply(vec![node("n1", &["10.0.0.4"], &[], true, &OTHERS)]).await.expect("a node");
    assert_eq!(taint_client.apply(&first).await, TaintAnswer::Overtaken);
    assert_eq!(taints(&fakes).await, ["other=a:NoExecute", "more=:NoSchedule"]);
    fakes.apply(vec![node("n1", &["10.0.0.4"], &[], true, &[])]).await.expect("a node");
    let first = taint_request(&fakes, TaintEdit::AddFirst).await;
    assert_eq!(taint_client.apply(&first).await, TaintAnswer::Done);
    assert_eq!(taints(&fakes).await, [OURS]);
}

#[tokio::test]
async fn n1_only_our_taint_is_removed_by_key_value_and_effect() {
    let likes = [
        [("another", "spot-eviction", "NoSchedule"), OTHERS[0]],
        [(DRAINING, "maintenance", "NoSchedule"), OTHERS[0]],
        [(DRAINING, SPOT_EVICTION, "NoExecute"), OTHERS[0]],
        [OTHERS[0], (DRAINING, SPOT_EVICTION, EFFECT)],
    ];
    for like in likes {
        let (fakes, taint_client) = stage(&like).await;
        let before = taints(&fakes).await;
        let remove = taint_request(&fakes, TaintEdit::Remove { at: 0 }).await;
        assert_eq!(taint_client.apply(&remove).await, TaintAnswer::Overtaken, "{before:?}");
        assert_eq!(taints(&fakes).await, before);
    }
    let (fakes, taint_client) = stage(&[(DRAINING, SPOT_EVICTION, EFFECT)]).await;
    let remove = taint_request(&fakes, TaintEdit::Remove { at: 0 }).await;
    let mut other = stored(&fakes).await;
    other["spec"]["unschedulable"] = true.into();
    fakes.apply(vec![other]).await.expect("a node");
    assert_eq!(taint_client.apply(&remove).await, TaintAnswer::Done, "after other writes");
    assert_eq!(taints(&fakes).await, [""; 0]);
}

#[tokio::test]
async fn n1_another_node_of_the_same_name_is_not_patched() {
    let (fakes, taint_client) = stage(&OTHERS).await;
    let before = taints(&fakes).await;
    for edit in [TaintEdit::AddTo, TaintEdit::AddFirst, TaintEdit::Remove { at: 0 }] {
        let taint_request = TaintPatch { uid: NodeUid::new("another"), ..taint_request(&fakes, edit).await };
        assert_eq!(taint_client.apply(&taint_request).await, TaintAnswer::Overtaken, "{edit:?}");
    }
    let add = taint_request(&fakes, TaintEdit::AddTo).await;
    let gone = TaintPatch { node: NodeName::new("n2"), ..add.clone() };
    assert_eq!(taint_client.apply(&gone).await, TaintAnswer::Gone);
    fakes.plant(|model| model.forbid(Resource::Nodes)).await;
    let answer = taint_client.apply(&add).await;
    let TaintAnswer::Failed(RequestFailure::Denied(reason)) = answer else { panic!("{answer:?}") };
    assert!(reason.contains("HTTP 403") && reason.contains("cannot patch resource \"nodes\""), "{reason}");
    fakes.plant(|model| model.permit(Resource::Nodes)).await;
    fakes.plant(|model| model.down(true)).await;
    let answer = taint_client.apply(&add).await;
    assert!(matches!(answer, TaintAnswer::Failed(RequestFailure::Other(_))), "{answer:?}");
    assert_eq!(taints(&fakes).await, before);
}

#[tokio::test]
async fn n1_a_success_without_the_node_is_a_failure() {
    for body in ["", "{}", "<html>hello</html>"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let length = body.len();
        let answer =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("the client calls");
            let mut read = Vec::new();
            while !read.ends_with(b"]") {
                let count = stream.read_buf(&mut read).await.expect("the client writes");
                assert_ne!(count, 0, "the patch is an array");
            }
            stream.write_all(answer.as_bytes()).await.expect("the client listens");
        });
        let config = kube::Config::new(format!("http://{address}").parse().expect("an address"));
        let client = Client::try_from(config).expect("a client");
        let taint_client = TaintClient { client, effects: Effects::Carried };
        let patch = TaintPatch { node: NodeName::new("n1"), uid: NodeUid::new("u"), edit: TaintEdit::AddTo };
        let answer = taint_client.apply(&patch).await;
        server.await.expect("the server has answered");
        let TaintAnswer::Failed(RequestFailure::Other(reason)) = answer else {
            panic!("{body:?}: {answer:?}")
        };
        assert!(reason.contains("HTTP 200"), "{reason}");
    }
}

#[tokio::test]
async fn c4_a_dry_run_patches_nothing() {
    let (fakes, carried) = stage(&OTHERS).await;
    let taint_client = TaintClient { effects: Effects::Withheld, ..carried };
    let before = stored(&fakes).await;
    let add = taint_request(&fakes, TaintEdit::AddTo).await;
    assert_eq!(taint_client.apply(&add).await, TaintAnswer::Withheld);
    assert_eq!(stored(&fakes).await, before);
}

#[test]
fn n1_a_failure_is_logged_once_until_it_changes() {
    let taint_request =
        TaintPatch { node: NodeName::new("n1"), uid: NodeUid::new("u"), edit: TaintEdit::AddTo };
    let (denied, failing) = (RequestFailure::Denied("no".into()), RequestFailure::Other("away".into()));
    let mut log = PatchLog::default();
    for (failure, is_new) in
        [(&failing, true), (&failing, false), (&denied, true), (&denied, false), (&failing, false)]
    {
        assert_eq!(log.is_new(failure), is_new, "{failure:?}");
        log.record(&taint_request, &TaintAnswer::Failed(failure.clone()));
    }
    log.record(&taint_request, &TaintAnswer::Withheld);
    assert!(!log.is_new(&failing), "an unsent patch says nothing about the server");
    log.record(&taint_request, &TaintAnswer::Overtaken);
    assert!(log.is_new(&failing) && log.is_new(&denied));
}
