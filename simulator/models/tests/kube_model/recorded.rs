//! Real traffic passes through the model unchanged.

use std::io::Write;
use std::path::Path;

use serde_json::Value;
use simulator_models::kube::{KubeModel, Refused, Settings};

use super::{Server, decode, event_names};

const FILE: &str = "../../../shared/data/kubernetes/endpointslice_watch_rollout_1.36.2.jsonl";

#[test]
fn z1_a_recorded_watch_can_be_replayed_and_watched_again_equal() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let Ok(recorded) = std::fs::read_to_string(&path) else {
        // Not captured by the test runner, unlike a print.
        writeln!(std::io::stderr(), "SKIPPED: {} is not here", path.display())
            .expect("standard error can be written");
        return;
    };
    let mut server = Server::new();
    let rv = server.model.resource_version();
    let (watch, _) = server.watch(&format!("{}?watch=1&resourceVersion={rv}", super::SLICES));
    let selected =
        "/apis/discovery.k8s.io/v1/endpointslices?watch=1&labelSelector=kubernetes.io/service-name=web";
    let (by_label, _) = server.watch(&format!("{selected}&resourceVersion={rv}"));
    for line in recorded.lines() {
        server.model.replay(line.as_bytes(), 0).expect("a recorded line is newer than the one before");
    }
    let expected: Vec<Value> =
        recorded.lines().map(|line| serde_json::from_str(line).expect("recorded JSON")).collect();
    assert!(!expected.is_empty());
    let lines = server.model.poll_watch(watch, 0);
    assert_eq!(decode(&lines), expected);
    let bytes: Vec<u8> = lines.iter().flat_map(|line| line.iter().copied()).collect();
    assert_eq!(String::from_utf8_lossy(&bytes).trim_end(), recorded.trim_end(), "byte for byte");
    assert_eq!(decode(&server.model.poll_watch(by_label, 0)), expected);
}

#[test]
fn z1_a_replayed_line_must_be_a_newer_change_of_a_served_kind() {
    let mut model = KubeModel::new(Settings::default());
    let line = |kind: &str, word: &str, rv: u64| {
        format!(
            r#"{{"type":"{word}","object":{{"kind":"{kind}","apiVersion":"v1","metadata":{{"name":"a","namespace":"demo","resourceVersion":"{rv}"}}}}}}"#
        )
    };
    assert_eq!(model.replay(line("Service", "MODIFIED", 50).as_bytes(), 0), Ok(()));
    assert_eq!(model.resource_version(), 50);
    assert_eq!(model.replay(line("Service", "MODIFIED", 50).as_bytes(), 0), Err(Refused::NotNewer));
    assert_eq!(model.replay(line("Service", "BOOKMARK", 51).as_bytes(), 0), Err(Refused::NotNewer));
    assert_eq!(model.replay(line("Pod", "ADDED", 51).as_bytes(), 0), Err(Refused::UnknownKind));
    assert_eq!(model.replay(b"{\"type\"", 0), Err(Refused::NotAnObject));
    let mut server = Server { model, now: 0 };
    assert_eq!(event_names(&server.watch("/api/v1/services?watch=1").1), ["ADDED a"]);
}
