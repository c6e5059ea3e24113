//! The journal in the cluster: errors of a damaged or partly deleted journal, and the use of its file instead.

use serde_json::{Value, json};
use simulator::Cluster;
use simulator::models::kube::Resource;

use super::{Ended, Fixture, fixture, plan, scale_set};

/// The ConfigMap that names the parts of the journal.
const HEAD: &str = "azure-backend-pool-controller-migration";

/// Applies a plan, and returns the environment and the files of the plan and the journal.
async fn migrated() -> (Fixture, String, String) {
    let fixture = fixture(scale_set()).await;
    let (file, journal) = (fixture.path("plan.json"), fixture.path("journal.json"));
    assert_eq!(plan(&fixture, &["--out", &file]).await.code, Some(0));
    let applied = apply(&fixture, &file, &journal).await;
    assert_eq!(applied.code, Some(0), "{applied:?}");
    (fixture, file, journal)
}

async fn apply(fixture: &Fixture, plan: &str, journal: &str) -> Ended {
    fixture.run("migrate-basic-lb", &["apply", "--plan", plan, "--journal", journal]).await
}

async fn config_map(fixture: &Fixture, name: String) -> Value {
    let get = move |cluster: &mut Cluster, _: u64| {
        cluster.model.get(Resource::ConfigMaps, "kube-system", &name).expect("it exists")
    };
    fixture.fakes.cluster.ask(get).await
}

/// Returns the name of the only part.
async fn part(fixture: &Fixture) -> String {
    let head = config_map(fixture, HEAD.to_owned()).await;
    assert_eq!(head["data"]["parts"], "1");
    format!("{HEAD}-{}-0", head["data"]["version"].as_str().expect("a text"))
}

/// Changes the data of a ConfigMap.
async fn edit(fixture: &Fixture, name: String, key: &str, text: &str) {
    let mut map = config_map(fixture, name).await;
    map["data"][key] = json!(text);
    fixture.fakes.apply(vec![map]).await.expect("a good ConfigMap");
}

/// Asserts this error and its remedy, and that the remedy works.
async fn refused(fixture: &Fixture, (plan, journal): (&str, &str), what: &str) {
    let ended = apply(fixture, plan, journal).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let advice =
        format!("delete ConfigMap kube-system/{HEAD}, and pass the file of the journal with --journal");
    assert!(ended.stderr.contains(&format!("{what}; {advice}")), "{ended:?}");
    assert!(fixture.fakes.delete(Resource::ConfigMaps, "kube-system", HEAD).await);
    let ended = apply(fixture, plan, journal).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("all addresses are as they were"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_does_not_exist_is_named() {
    let (fixture, plan, journal) = migrated().await;
    let part = part(&fixture).await;
    assert!(fixture.fakes.delete(Resource::ConfigMaps, "kube-system", &part).await);
    let what = format!("ConfigMap kube-system/{part}, a part of the journal, does not exist");
    refused(&fixture, (&plan, &journal), &what).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_holds_something_else_is_damaged() {
    let (fixture, plan, journal) = migrated().await;
    edit(&fixture, part(&fixture).await, "journal", "{}").await;
    refused(&fixture, (&plan, &journal), "the journal in namespace kube-system is damaged").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_config_map_that_names_no_parts_is_damaged() {
    let (fixture, plan, journal) = migrated().await;
    edit(&fixture, HEAD.to_owned(), "parts", "some").await;
    let what = format!("ConfigMap kube-system/{HEAD} of the journal is damaged");
    refused(&fixture, (&plan, &journal), &what).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_config_map_does_not_lose_a_migration() {
    let (fixture, _, _) = migrated().await;
    let part = part(&fixture).await;
    assert!(fixture.fakes.delete(Resource::ConfigMaps, "kube-system", HEAD).await);
    let ended = fixture.run("migrate-basic-lb", &["apply", "--unattended"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let what =
        format!("ConfigMap kube-system/{HEAD} of the journal does not exist, but parts of it do ({part})");
    assert!(ended.stderr.contains(&what), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_file_is_named_and_the_cluster_is_enough() {
    let (fixture, plan, journal) = migrated().await;
    let text = std::fs::read_to_string(&journal).expect("the file");
    std::fs::write(&journal, &text[..text.len() / 2]).expect("the folder can be written");
    let ended = apply(&fixture, &plan, &journal).await;
    assert_eq!(ended.code, Some(0), "the ConfigMaps are used: {ended:?}");

    std::fs::write(&journal, &text[..text.len() / 2]).expect("the folder can be written");
    assert!(fixture.fakes.delete(Resource::ConfigMaps, "kube-system", HEAD).await);
    let ended = apply(&fixture, &plan, &journal).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains(&format!("the journal in {journal} cannot be used")), "{ended:?}");
    // A journal that was edited by hand is damaged too.
    std::fs::write(&journal, text.replace("\"Static\"", "\"Dynamic\"")).expect("the folder can be written");
    let ended = apply(&fixture, &plan, &journal).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("the digest of the journal does not fit its content"), "{ended:?}");
}
