//! `snapshot`: the content of the file, refusals, and differences since then.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use simulator::models::arm::{Fault, FaultTarget};

use super::fixture::Fixture;

fn read(file: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(file).expect("the file")).expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w3_a_snapshot_has_every_pool_as_azure_has_it() {
    let fixture = Fixture::new(4).await;
    fixture.fakes.azure.ask(|azure, _| azure.model.plant_unknown_fields()).await;
    let file = fixture.path("pools.json");
    let ended = fixture.run("snapshot", &["--output", &file]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mode = std::fs::metadata(&file).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let stored = read(&file);
    assert_eq!(fixture.requests(), 4, "one GET for each managed load balancer");
    assert_eq!(stored["absent"].as_array().map(Vec::len), Some(2));
    assert!(ended.stdout.contains("absent: kubernetes-internal, lb-2-internal"), "{ended:?}");
    let mut pools = 0;
    for lb in stored["loadBalancers"].as_array().expect("load balancers") {
        let name = lb["name"].as_str().expect("a name").to_owned();
        for pool in lb["pools"].as_array().expect("pools") {
            let (lb, id) = (name.clone(), pool["name"].as_str().expect("a name").to_owned());
            let there = fixture.fakes.azure.ask(move |azure, _| azure.model.pool_json(&lb, &id)).await;
            assert_eq!(Some(&pool["document"]), there.as_ref());
            pools += 1;
        }
        let etag = fixture.fakes.azure.ask(move |azure, _| azure.model.etag(&name)).await;
        assert_eq!(lb["etag"].as_str(), etag.as_deref());
    }
    assert!(pools >= 4 && ended.stdout.contains(&format!("{pools} pools of 2 load balancers")), "{ended:?}");
    fixture.assert_nothing_written().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_replaces_a_file_only_if_forced() {
    let fixture = Fixture::new(1).await;
    let file = fixture.path("pools.json");
    std::fs::write(&file, "precious").expect("the folder can be written");
    let ended = fixture.run("snapshot", &["--output", &file]).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("exists; pass --force"), "{}", ended.stderr);
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), "precious");
    let (folder, null) = (fixture.path(""), fixture.path("null"));
    std::os::unix::fs::symlink("/dev/null", &null).expect("the folder can be written");
    for (target, words) in [("-", "name a file"), (&null, "is a device or a pipe"), (&folder, "is a folder")]
    {
        let ended = fixture.run("snapshot", &["--output", target, "--force"]).await;
        assert_eq!(ended.code, Some(1), "{target}: {ended:?}");
        assert!(ended.stderr.contains(words), "{target}: {}", ended.stderr);
    }
    assert_eq!(fixture.requests(), 0, "it is refused before the work");
    assert_eq!(fixture.run("snapshot", &["--output", &file, "--force"]).await.code, Some(0));
    assert_eq!(read(&file)["schemaVersion"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_shows_differences_and_refuses_edited_files() {
    let fixture = Fixture::new(2).await;
    let file = fixture.path("pools.json");
    assert_eq!(fixture.run("snapshot", &["--output", &file]).await.code, Some(0));
    let same = fixture.run("snapshot", &["--verify", &file]).await;
    assert_eq!(same.code, Some(0), "{same:?}");
    assert!(same.stdout.contains("nothing is different now"), "{same:?}");

    let stored = read(&file);
    let lb = &stored["loadBalancers"][0];
    let pools = lb["pools"].as_array().expect("pools");
    let (name, pool) = (lb["name"].as_str().expect("a name"), pools.last().expect("a pool"));
    let id = pool["name"].as_str().expect("a name");
    let entries = &pool["document"]["properties"]["loadBalancerBackendAddresses"];
    let gone = entries[0]["properties"]["ipAddress"].as_str().expect("an address");
    let other = vec![("new".to_owned(), "10.224.0.99".to_owned())];
    assert!((200..300).contains(&fixture.fakes.foreign_put(name, id, other).await));
    let different = fixture.run("snapshot", &["--verify", &file]).await;
    assert_eq!(different.code, Some(3), "{different:?}");
    for words in [format!("{name}/{id}: {gone} ("), format!("{name}/{id}: 10.224.0.99 (new) was added")] {
        assert!(different.stdout.contains(&words), "{words}: {}", different.stdout);
    }
    let differences = different.stdout.lines().filter(|line| line.starts_with("- "));
    assert!(differences.clone().all(|line| line.contains(&format!("{name}/{id}: "))), "{}", different.stdout);
    fixture.assert_nothing_written().await;

    let text = std::fs::read_to_string(&file).expect("the file");
    std::fs::write(&file, text.replacen(gone, "10.224.0.77", 1)).expect("the folder can be written");
    let refused = fixture.run("snapshot", &["--verify", &file]).await;
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("is not what its sha256 says"), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_reads_the_file_before_the_configuration() {
    let fixture = Fixture::new(1).await;
    std::fs::write(&fixture.files.controller, "moed: observe\n").expect("the folder can be written");
    let ended = fixture.run("snapshot", &["--verify", &fixture.path("none.json")]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("none.json; check the path"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("moed"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_may_be_limited_to_existing_pools() {
    let fixture = Fixture::new(4).await;
    let all = fixture.path("all.json");
    assert_eq!(fixture.run("snapshot", &["--output", &all]).await.code, Some(0));
    let all = read(&all);
    let lb = &all["loadBalancers"][1];
    let (name, pool) =
        (lb["name"].as_str().expect("a name"), lb["pools"][0]["name"].as_str().expect("a name"));
    let file = fixture.path("one.json");
    let upper = (name.to_uppercase(), pool.to_uppercase());
    let ended = fixture.run("snapshot", &["--output", &file, "--lb", &upper.0, "--pool", &upper.1]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let one = read(&file);
    assert_eq!(one["loadBalancers"].as_array().map(Vec::len), Some(1));
    assert_eq!(one["loadBalancers"][0]["pools"], json!([lb["pools"][0]]));
    for (flag, words) in [("--lb", "not a managed load balancer"), ("--pool", "no pool of that name")] {
        let file = fixture.path("none.json");
        let ended = fixture.run("snapshot", &["--output", &file, flag, "nothing"]).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(words) && !std::path::Path::new(&file).exists(), "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_recorded_in_the_existing_config_map() {
    let fixture = Fixture::new(1).await;
    let first = fixture.path("first.json");
    assert_eq!(fixture.run("snapshot", &["--output", &first]).await.code, Some(0));
    assert!(fixture.config_map().await.is_none(), "it is written only on request");
    assert_eq!(fixture.run("snapshot", &["--output", &first, "--force", "--configmap"]).await.code, Some(0));
    let made = fixture.config_map().await.expect("it was created");
    assert_eq!(made["data"].as_object().map(serde_json::Map::len), Some(1), "{made}");

    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "namespace": "kube-system", "name": "azure-backend-pool-controller" },
        "data": { "pause.pool.a": "2026-01-01T00:00:00Z" },
    });
    fixture.fakes.apply(vec![map]).await.expect("a good ConfigMap");
    let file = fixture.path("pools.json");
    let ended = fixture.run("snapshot", &["--output", &file, "--configmap"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let map = fixture.config_map().await.expect("the ConfigMap");
    let data = map["data"].as_object().expect("data");
    assert_eq!(data["pause.pool.a"], "2026-01-01T00:00:00Z");
    let (key, note) = data.iter().find(|(key, _)| key.starts_with("snapshot.2")).expect("a note");
    let note: Value = serde_json::from_str(note.as_str().expect("a text")).expect("JSON");
    assert_eq!((&note["name"], &note["time"]), (&json!("pools.json"), &read(&file)["createdAt"]));
    assert!(
        ended.stdout.contains(note["sha256"].as_str().expect("a hash")) && ended.stdout.contains(key),
        "{ended:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_fails_if_a_load_balancer_cannot_be_read() {
    let fixture = Fixture::new(1).await;
    fixture.fakes.tune_arm(|arm| arm.require_bearer = true).await;
    let file = fixture.path("pools.json");
    let ended = fixture.run("snapshot", &["--output", &file]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("failed to read load balancer") && !std::path::Path::new(&file).exists());

    fixture.fakes.tune_arm(|arm| arm.require_bearer = false).await;
    let throttled = Fault {
        target: FaultTarget::LoadBalancerGet,
        load_balancer: Some("lb-2".to_owned()),
        ..Fault::every_nth_put(1, 429, "SubscriptionRequestsThrottled", Some("7"))
    };
    fixture.fakes.tune_arm(move |arm| arm.faults = vec![throttled]).await;
    let ended = fixture.run("snapshot", &["--output", &file]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stderr.contains("lb-2: HTTP 429") && ended.stderr.contains("throttles"),
        "{}",
        ended.stderr
    );
    let left = std::fs::read_dir(fixture.folder.path()).expect("the folder").count();
    assert_eq!(left, 3, "three files, and no part of a snapshot");
}

#[test]
fn flags_that_verify_would_ignore_are_refused() {
    for flag in [&["--force"][..], &["--configmap"], &["--lb", "kubernetes"], &["--pool", "a"]] {
        let arguments = [&["snapshot", "--verify", "/nowhere"][..], flag].concat();
        let output = super::run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{flag:?}: {output:?}");
        assert!(super::text(&output.stderr).contains(flag[0]), "{output:?}");
    }
}
