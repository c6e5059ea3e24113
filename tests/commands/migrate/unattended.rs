//! `apply --unattended`: the command makes the plan.

use simulator::models::arm::topology::Topology;

use super::{both_leases_are_free, fixture, plan, scale_set, skus};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_an_unblocked_plan_is_applied_once() {
    let fixture = fixture(scale_set()).await;
    let first = fixture.run("migrate-basic-lb", &["apply", "--unattended"]).await;
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(first.stdout.contains("all addresses are as they were"), "{first:?}");
    assert!(first.stderr.contains("Configure outbound traffic yourself"), "{first:?}");
    assert_eq!(skus(&fixture).await, ["Standard", "Standard"]);
    both_leases_are_free(&fixture).await;
    let writes = fixture.puts().len();
    let second = fixture.run("migrate-basic-lb", &["apply", "--unattended"]).await;
    assert_eq!((second.code, fixture.puts().len()), (Some(0), writes), "{second:?}");
    assert!(second.stdout.contains("there is nothing to migrate"), "{second:?}");
    assert!(!std::path::Path::new("migrate-basic-lb.journal.json").exists(), "it needs no folder");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_plan_ends_with_3_and_nothing_is_written() {
    let fixture = fixture(Topology::LockedDelete.cluster()).await;
    let ended = fixture.run("migrate-basic-lb", &["apply", "--unattended", "--accept", "no-outbound"]).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("remedy: remove the lock"), "{ended:?}");
    assert_eq!(skus(&fixture).await, ["Basic", "Basic"]);
    fixture.assert_nothing_written().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_configuration_or_a_flag_accepts_a_blocker() {
    // Only internal frontends: with Standard, nodes lose access to the internet.
    let fixture = fixture(Topology::InternalStatic.cluster()).await;
    let refused = fixture.run("migrate-basic-lb", &["apply", "--unattended"]).await;
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("--accept no-outbound"), "{refused:?}");
    assert_eq!(plan(&fixture, &[]).await.code, Some(0), "the flag of plan");
    let mut command = fixture.command("migrate-basic-lb", &["plan"]);
    let output = command.env("POOL_CONTROLLER_MIGRATION_ACCEPT", "no-outbound").output().await;
    assert_eq!(output.expect("the binary under test").status.code(), Some(0), "the configuration");
    let done = fixture.run("migrate-basic-lb", &["apply", "--unattended", "--accept", "no-outbound"]).await;
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_and_unattended_exclude_each_other_and_one_is_needed() {
    let fixture = fixture(scale_set()).await;
    for arguments in [
        &["apply"][..],
        &["apply", "--unattended", "--plan", "plan.json"],
        &["apply", "--plan", "plan.json", "--accept", "no-outbound"],
    ] {
        let ended = fixture.run("migrate-basic-lb", arguments).await;
        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
    }
    fixture.assert_nothing_written().await;
}
