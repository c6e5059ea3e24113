//! The cluster suite: tests that a controller in the cluster of KUBECONFIG keeps pools equal to the cluster's
//! endpoints. Its Services have no selector and EndpointSlices that the suite writes, so no Pod runs and no image is
//! pulled; the cluster's own cloud-controller-manager gives them load balancers.

mod objects;
mod stage;

use std::time::Duration;

use anyhow::ensure;
use futures::future::LocalBoxFuture;
use kube::ResourceExt as _;
use tokio::time::Instant;

use crate::azure::Azure;
use crate::environment::Environment;
use crate::report::{Case, Outcome};
use crate::{Options, Suite};
use stage::Stage;

/// Result of a test that did not fail.
enum TestOutcome {
    /// The test passed.
    Passed,
    /// The test cannot run in this cluster, for this reason.
    Skipped(String),
}

/// One test.
struct Test {
    name: &'static str,
    about: &'static str,
    run: for<'a> fn(&'a Stage<'a>) -> LocalBoxFuture<'a, anyhow::Result<TestOutcome>>,
}

macro_rules! test {
    ($name:literal, $about:literal, $run:path) => {
        Test { name: $name, about: $about, run: |stage| Box::pin($run(stage)) }
    };
}

/// All tests, in the order in which they run. Each uses its own Services.
const TESTS: [Test; 7] = [
    test!("leader", "A replica of the controller leads.", leader),
    test!("pool-has-node", "The pool of a Service gets the node that hosts its endpoint.", pool_has_node),
    test!("endpoint-moves", "The pool follows an endpoint to another node.", endpoint_moves),
    test!("all-nodes", "The pool has every node that hosts an endpoint, and no other.", all_nodes),
    test!(
        "last-member",
        "The last member of a live Service stays while an empty EndpointSlice may be an error.",
        last_member
    ),
    test!(
        "pause",
        "The pool of a Service with the annotation pause is not written, and follows afterwards.",
        pause
    ),
    test!("event", "A written pool causes an event on its Service.", event),
];

/// Returns the names of all tests.
pub(crate) fn names() -> Vec<&'static str> {
    TESTS.iter().map(|test| test.name).collect()
}

/// Runs the selected tests.
pub(crate) async fn run(options: &Options, environment: &Environment, azure: &Azure) -> Vec<Case> {
    let selected: Vec<&Test> =
        TESTS.iter().filter(|test| options.selects(Suite::Cluster, test.name)).collect();
    let case = |name, about, outcome, begin: Instant| Case {
        suite: "cluster",
        name,
        about,
        outcome,
        took: begin.elapsed(),
    };
    let mut cases = Vec::new();
    if selected.is_empty() {
        return cases;
    }
    let begin = Instant::now();
    let stage = match Stage::set_up(environment, azure).await {
        Ok(stage) => stage,
        Err(error) => {
            let outcome = Outcome::Failed(format!("{error:#}"));
            cases.push(case("set-up", "The cluster has what the tests need.", outcome, begin));
            return cases;
        }
    };
    for test in selected {
        let begin = Instant::now();
        let outcome = match (test.run)(&stage).await {
            Ok(TestOutcome::Passed) => Outcome::Passed(String::new()),
            Ok(TestOutcome::Skipped(reason)) => Outcome::Skipped(reason),
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        cases.push(case(test.name, test.about, outcome, begin));
    }
    let begin = Instant::now();
    if let Err(error) = stage.clear_up().await {
        let outcome = Outcome::Failed(format!("{error:#}"));
        cases.push(case("clear-up", "What the tests created is deleted.", outcome, begin));
    }
    cases
}

/// A little less than the default of `guards.emptyConfirm`.
const EMPTY_CONFIRM: Duration = Duration::from_secs(55);
const TWO_NODES: &str = "it needs two nodes that may be members";

async fn leader(stage: &Stage<'_>) -> anyhow::Result<TestOutcome> {
    stage.leader().await?;
    Ok(TestOutcome::Passed)
}

async fn pool_has_node(stage: &Stage<'_>) -> anyhow::Result<TestOutcome> {
    let service = stage.create("has-node", &[0]).await?;
    stage.holds(&service, &[0]).await?;
    Ok(TestOutcome::Passed)
}

async fn endpoint_moves(stage: &Stage<'_>) -> anyhow::Result<TestOutcome> {
    if stage.nodes.len() < 2 {
        return Ok(TestOutcome::Skipped(TWO_NODES.to_owned()));
    }
    let service = stage.create("moves", &[0]).await?;
    stage.holds(&service, &[0]).await?;
    stage.set_endpoints("moves", &[1]).await?;
    stage.holds(&service, &[1]).await?;
    Ok(TestOutcome::Passed)
}

async fn all_nodes(stage: &Stage<'_>) -> anyhow::Result<TestOutcome> {
    let all: Vec<usize> = (0..stage.nodes.len()).collect();
    let service = stage.create("all-nodes", &all).await?;
    stage.holds(&service, &all).await?;
    stage.set_endpoints("all-nodes", &[0]).await?;
    stage.holds(&service, &[0]).await?;
    Ok(TestOutcome::Passed)
}

async fn last_member(stage: &Stage<'_>) -> anyhow::Result<TestOutcome> {
    if stage.nodes.len() < 2 {
        return Ok(TestOutcome::Skipped(TWO_NODES.to_owned()));
    }
    let service = stage.create("last-member", &[0]).await?;
    let other = stage.create("beside-last-member", &[0]).await?;
    stage.holds(&service, &[0]).await?;
    stage.holds(&other, &[0]).await?;
    let begin = Instant::now();
    stage.set_endpoints("last-member", &[]).await?;
    // Once a later change of another Service is in place, this one has been processed too.
    stage.set_endpoints("beside-last-member", &[1]).await?;
    stage.holds(&other, &[1]).await?;
    let members = stage.members(&service).await?;
    let took = begin.elapsed();
    if took > EMPTY_CONFIRM {
        return Ok(TestOutcome::Skipped(format!(
            "the other Service took {took:.0?}; the last member may go after 60 s"
        )));
    }
    ensure!(members.is_some_and(|members| members.len() == 1), "the pool was emptied at once");
    Ok(TestOutcome::Passed)
}

async fn pause(stage: &Stage<'_>) -> anyhow::Result<TestOutcome> {
    if stage.nodes.len() < 2 {
        return Ok(TestOutcome::Skipped(TWO_NODES.to_owned()));
    }
    // The cloud-controller-manager writes the pool whenever the Service changes, so the Service has the annotation from
    // the start.
    let service = stage.create_paused("pause", &[0]).await?;
    let other = stage.create("beside-pause", &[0]).await?;
    for service in [&service, &other] {
        stage.holds(service, &[0]).await?;
        stage.ensured(service).await?;
    }
    stage.set_endpoints("pause", &[1]).await?;
    // Once a later change of another Service is in place, this one has been processed too.
    stage.set_endpoints("beside-pause", &[1]).await?;
    stage.holds(&other, &[1]).await?;
    let members = stage.members(&service).await?;
    ensure!(
        members == Some(stage.addresses(&[0])),
        "the pool was written despite the pause: it has {members:?}"
    );
    stage.resume("pause").await?;
    stage.holds(&service, &[1]).await?;
    Ok(TestOutcome::Passed)
}

async fn event(stage: &Stage<'_>) -> anyhow::Result<TestOutcome> {
    if stage.nodes.len() < 2 {
        return Ok(TestOutcome::Skipped(TWO_NODES.to_owned()));
    }
    // The cloud-controller-manager may have added the first node itself.
    let service = stage.create("event", &[0]).await?;
    stage.holds(&service, &[0]).await?;
    stage.set_endpoints("event", &[1]).await?;
    stage.holds(&service, &[1]).await?;
    stage.event(&service.name_any(), "LoadBalancerBackendPoolUpdated").await?;
    Ok(TestOutcome::Passed)
}
