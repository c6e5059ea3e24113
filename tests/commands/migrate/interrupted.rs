//! A process that is killed in the outage, and the following commands.

use rustix::process::Signal;
use simulator::models::kube::Resource;

use super::{OWN, Running, SHARED, cut_creations, cut_nothing, fixture, plan, scale_set, skus};
use crate::support::TEST_TIMEOUT;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_names_a_migration_that_has_not_ended() {
    let fixture = fixture(scale_set()).await;
    let (file, journal) = (fixture.path("plan.json"), fixture.path("journal.json"));
    assert_eq!(plan(&fixture, &["--out", &file]).await.code, Some(0));
    let mut cut = cut_creations(&fixture).await;
    let arguments = ["apply", "--plan", &file, "--journal", &journal];
    let running = Running::start(&fixture, "migrate-basic-lb", &arguments, "apply.log");
    tokio::time::timeout(TEST_TIMEOUT, cut.recv())
        .await
        .expect("it gets this far")
        .expect("the hook is there");
    running.signal(Signal::KILL);
    running.ended().await;

    // No Basic load balancer is left, and no Standard one exists yet.
    let unfinished = plan(&fixture, &[]).await;
    assert_eq!(unfinished.code, Some(3), "{unfinished:?}");
    assert!(unfinished.stdout.contains("has begun and not ended"), "{unfinished:?}");
    assert!(unfinished.stdout.contains("apply its plan again"), "{unfinished:?}");
    let json = plan(&fixture, &["-o", "json"]).await.json();
    assert_eq!(json["blockers"][0]["reason"], "unfinished", "{json}");

    cut_nothing(&fixture).await;
    // The hold of both Leases would expire after a minute.
    for name in [OWN, SHARED] {
        assert!(fixture.fakes.delete(Resource::Leases, "kube-system", name).await);
    }
    let resumed = fixture.run("migrate-basic-lb", &arguments).await;
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert_eq!(skus(&fixture).await, ["Standard", "Standard"]);
    let over = plan(&fixture, &[]).await;
    assert_eq!(over.code, Some(0), "{over:?}");
    assert!(over.stdout.contains("there is nothing to migrate"), "{over:?}");
}
