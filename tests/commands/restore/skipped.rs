//! Pools that `restore` skips without a flag: pools that would serve no traffic, and pools with their own pause.

use simulator::models::kube::Resource;

use super::*;

/// Returns whether a line of the plan or of the result about this pool contains the text.
fn has_line(ended: &Ended, pool: &Pool, words: &str) -> bool {
    let head = format!("- {}: ", pool.id());
    ended.stdout.lines().any(|line| line.starts_with(&head) && line.contains(words))
}

/// Returns namespace and name of the Service of a pool. The simulator puts all Services of a small cluster into one
/// namespace.
fn service(pool: &Pool) -> (String, String) {
    let name = pool.name.strip_prefix("team-000-").expect("the pool of a Service of the first namespace");
    ("team-000".to_owned(), name.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_a_pool_without_members_needs_a_flag() {
    let fixture = Fixture::new(2).await;
    let file = fixture.path("pools.json");
    let pools_of_file = take_snapshot(&fixture, &fixture.path("before.json")).await;
    let (unserved, other) = (pools_of_file[0].clone(), pools_of_file[1].clone());
    let all = unserved.members.len();
    foreign_put(&fixture, &unserved, &[(OLD.to_owned(), "old-node".to_owned())]).await;
    let unserved_image = take_snapshot(&fixture, &file).await.remove(0);
    foreign_put(&fixture, &unserved, &unserved.members).await;
    overwrite(&fixture, &other).await;

    let ended = fixture.run("restore", &[&file, "--yes"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let loss =
        format!("warning: of the {all} nodes with endpoints it has {all}, and would have 0, and no traffic");
    assert!(has_line(&ended, &unserved, &loss), "{ended:?}");
    assert!(result_line(&ended, &unserved).contains("pass --allow-unserved"), "{ended:?}");
    let gain = format!("of the {} nodes with endpoints it has 0, and will have", other.members.len());
    assert!(has_line(&ended, &other, &gain) && result_line(&ended, &other) == "restored", "{ended:?}");
    assert!(is_restored(&fixture, &unserved).await && is_restored(&fixture, &other).await);
    assert_eq!(fixture.puts().len(), 1);

    let ended = fixture.run("restore", &[&file, "--yes", "--allow-unserved"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(has_line(&ended, &unserved, "will have 0, and no traffic will be served"), "{ended:?}");
    assert!(is_restored(&fixture, &unserved_image).await, "{ended:?}");

    let ended = fixture.run("restore", &[&file, "--dry-run"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        has_line(&ended, &unserved, "it has 0, so no traffic is served"),
        "in sync is not all: {ended:?}"
    );
    assert!(ended.stdout.contains("everything is paused since 2") && ended.stdout.contains("by restore"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d1_g6_paused_pools_are_skipped_unless_they_are_named() {
    let mut fixture = Fixture::new(4).await;
    let file = fixture.path("pools.json");
    let pools = snapshot_with_old_member(&fixture, &file).await;
    let [by_pool, by_service, by_annotation, free] = &pools[..] else { panic!("{pools:?}") };
    let ((namespace, name), annotated) = (service(by_service), service(by_annotation));
    let note = "since: 2026-11-20T08:00:00Z\nby: alice\nreason: we look into it\n";
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "namespace": "kube-system", "name": "azure-backend-pool-controller" },
        "data": {
            "pause.pool.a": format!("{}\n{note}", by_pool.id()),
            "pause.service.b": format!("{namespace}/{name}\n{note}"),
            "pause.of-what": note,
        },
    });
    let get = move |cluster: &mut simulator::Cluster, _: u64| {
        cluster.model.get(Resource::Services, &annotated.0, &annotated.1)
    };
    let mut object = fixture.fakes.cluster.ask(get).await.expect("the Service");
    object["metadata"]["annotations"]["azure-backend-pool-controller.io/pause"] = json!("true");
    fixture.fakes.apply(vec![map, object]).await.expect("good objects");
    fixture.reset_baseline().await;
    for pool in &pools {
        overwrite(&fixture, pool).await;
    }
    let who = "since 2026-11-20T08:00:00Z by alice, we look into it";
    let skipped = [
        (by_pool, format!("paused {who}")),
        (by_service, format!("its Service {namespace}/{name} is paused {who}")),
        (by_annotation, "has the annotation azure-backend-pool-controller.io/pause".to_owned()),
    ];

    let ended = fixture.run("restore", &[&file, "--dry-run"]).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(
        ended.stdout.contains("1 pools would be written, 2 are in sync, 3 are left as they are"),
        "{ended:?}"
    );
    assert!(
        ended.stdout.contains("warning: the key pause.of-what of the controller's ConfigMap"),
        "{ended:?}"
    );
    fixture.assert_nothing_written().await;

    let ended = fixture.run("restore", &[&file, "--yes", "--leave-unpaused"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for (pool, words) in &skipped {
        let outcome = result_line(&ended, pool);
        assert!(outcome.starts_with("left as it is: ") && outcome.contains(words.as_str()), "{ended:?}");
        assert!(outcome.contains("--pool"), "{ended:?}");
        assert_eq!(current_members(&fixture, pool).await, [(WRONG.to_owned(), "wrong".to_owned())]);
    }
    assert!(result_line(&ended, free) == "restored" && is_restored(&fixture, free).await, "{ended:?}");
    assert_eq!(fixture.puts().len(), 1);

    let names: Vec<&str> = skipped.iter().flat_map(|(pool, _)| ["--pool", &pool.name]).collect();
    let ended = fixture.run("restore", &[&[&file, "--yes"][..], &names].concat()).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for (pool, words) in &skipped {
        assert!(has_line(&ended, pool, words), "it is shown in any case: {ended:?}");
        assert!(result_line(&ended, pool) == "restored" && is_restored(&fixture, pool).await, "{ended:?}");
    }
}
