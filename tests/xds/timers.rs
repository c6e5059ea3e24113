//! The row of A88 that is about time: a resource that does not come. The timers are real ones of 15 and 30 seconds, and
//! so there is one test that waits for all of them together (A57, X1, X3).

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus::{
    Acked, DoesNotExist, ReceivedError, Requested, Timeout,
};
use simulator::control_plane::{Code, ControlPlane, Ending, Kind, cluster};

use super::stage::{FAILS, Plan, Scene, at, control_plane, server};

const BEFORE: &str = "10.9.0.1";
const GOOD: &str = "10.1.0.1";

/// The pools that nothing comes for.
const LATE: [&str; 3] = ["late", "late-cluster", "half"];

async fn scene(plane: &ControlPlane, features: &[&str]) -> Scene {
    plane.set(Kind::Endpoints, "kept", at("kept", &[GOOD])).await;
    plane.fail(Kind::Endpoints, "reported", Code::NotFound, "never heard of it").await;
    // The cluster is there, and the endpoints that it names are not.
    plane.set(Kind::Clusters, "half", cluster("half", "half-endpoints")).await;
    let mut plan = Plan::new().await;
    let pools = [
        ("late", "eds:late"),
        ("late-cluster", "cluster:late"),
        ("half", "cluster:half"),
        ("reported", "eds:reported"),
        ("kept", "eds:kept"),
    ];
    for (pool, source) in pools {
        plan = plan.pool(pool, source, &[BEFORE]).await;
    }
    let scene = plan.start(&[server(plane, features)]).await;
    scene.holds("kept", &[GOOD]).await;
    // On the next stream what is cached is not sent again, and no timer runs for it.
    plane.trust_versions(true).await;
    plane.cut(Ending::Cleanly).await;
    let asked = |name: &'static str| {
        move |asked: &simulator::control_plane::Asked| {
            asked.stream > 1 && asked.names.iter().any(|it| it == name)
        }
    };
    let again = plane
        .wait_until(|journal| ["late", "half-endpoints"].iter().all(|name| journal.iter().any(asked(name))));
    again.await.expect("everything is asked for on the next stream");
    scene
}

/// Nothing that did not come was written, and what is there is as it was.
async fn is_untouched(scene: &Scene) {
    scene.all_is_written().await;
    for pool in LATE.into_iter().chain(["reported"]) {
        scene.is_at_rest(pool, &[BEFORE], 0).await;
    }
    scene.is_at_rest("kept", &[GOOD], 1).await;
    let shown = scene.endpoints_are("kept", Acked).await;
    assert!(shown.is_good(), "what is cached has no timer: {shown:?}");
    let shown = scene.endpoints_are("reported", ReceivedError).await;
    assert!(
        shown.error.is_some_and(|(_, words)| words.contains("never heard of it")),
        "an error ends the timer"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a88_what_does_not_come_does_not_exist_after_15_s_or_is_late_after_30_s_and_nothing_is_written() {
    let (strict, lax) = (control_plane().await, control_plane().await);
    let (hasty, patient) =
        tokio::join!(scene(&strict, &[]), scene(&lax, &["resource_timer_is_transient_error", FAILS]));

    for (kind, name) in
        [(Kind::Endpoints, "late"), (Kind::Clusters, "late"), (Kind::Endpoints, "half-endpoints")]
    {
        let shown = hasty.shows(kind, name, |shown| shown.state != Requested).await;
        assert_eq!((shown.state, shown.version.as_str()), (DoesNotExist, ""), "{name}: {shown:?}");
        let (version, words) = shown.error.expect("an error");
        assert!(
            version.is_empty() && words.contains("within 15 s"),
            "nothing was rejected: {version:?} {words}"
        );
    }
    for (kind, name) in [(Kind::Endpoints, "late"), (Kind::Clusters, "late")] {
        let shown = patient.shows(kind, name, |_| true).await;
        assert_eq!(shown.state, Requested, "there are 30 s: {shown:?}");
    }
    for source in ["eds:late", "cluster:late", "cluster:half"] {
        hasty.event("XdsResourceError", &[source, "nothing was ever known"]).await;
    }
    hasty.counts(Kind::Endpoints, "does_not_exist", 2).await;
    hasty.counts(Kind::Clusters, "does_not_exist", 1).await;
    is_untouched(&hasty).await;

    for (kind, name) in
        [(Kind::Endpoints, "late"), (Kind::Clusters, "late"), (Kind::Endpoints, "half-endpoints")]
    {
        let shown = patient.shows(kind, name, |shown| shown.state != Requested).await;
        assert_eq!((shown.state, shown.version.as_str()), (Timeout, ""), "{name}: {shown:?}");
        assert!(shown.error.is_some_and(|(version, _)| version.is_empty()));
    }
    patient.counts(Kind::Endpoints, "timeout", 2).await;
    patient.event("XdsResourceError", &["eds:late", "nothing was ever known"]).await;
    is_untouched(&patient).await;

    // What comes in the end is used.
    for (plane, scene) in [(&strict, &hasty), (&lax, &patient)] {
        plane.set(Kind::Endpoints, "late", at("late", &[GOOD])).await;
        plane.set(Kind::Endpoints, "half-endpoints", at("half-endpoints", &[GOOD])).await;
        scene.holds("late", &[GOOD]).await;
        scene.holds("half", &[GOOD]).await;
        scene.has_no_error("late").await;
        scene.event("XdsResourceRecovered", &["eds:late"]).await;
        scene.logged_no_errors();
    }
}
