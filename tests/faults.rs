//! Every named scenario (`simulate --scenario NAME`) with the real binary: `simulate` runs it, and the test checks its
//! exit code, its report and the controller's log. `SCENARIO_SPEED=N` runs all of them N times as fast as written,
//! instead of the speeds below.
//!
//! No scenario may end with a pool out of sync, with an unexpected error in the log, or with pending work.

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use serde_json::Value;
use simulator::{NAMED, Scenario, log_errors};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::reaper::Reaper;

/// The binary under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_azure-backend-pool-controller");

/// Default speed of a scenario, as a multiple of that of its file.
const SPEED: u32 = 4;

/// Scenarios that depend on times that the speed does not change, such as those of the Leases.
const SLOWER: [(&str, u32); 10] = [
    ("suspended", 1),
    ("file-descriptors", 1),
    ("drain-and-return", 2),
    ("one-node-drains", 1),
    ("apiserver-slow", 2),
    ("apiserver-down", 2),
    ("spot-storm", 2),
    ("watch-410", 2),
    ("etcd-restored", 2),
    ("etcd-catches-up", 2),
];

/// Scenarios that take many minutes at any speed: they are measurements (`benches/realistic.sh`).
const TOO_LONG: [&str; 1] = ["realistic"];

/// Scenarios in which another client empties pools.
const EMPTIED_BY_OTHERS: [&str; 1] = ["ccm-removes-needed"];

/// Reason of the event with which guards report that they have stopped all removals (G4).
const STOPPED: &str = "BackendPoolRemovalsStopped";

/// Reasons for which guards may hold removals if there are only organic changes, and the maximum times by their rules,
/// in seconds of the scenario's speed (G2, D6). Nodes and slices, and slices and Services, arrive in any order, and a
/// fact about one of them is held until the other is known.
const ORGANIC: [(&str, &[(&str, u32)]); 6] = [
    ("scale-to-zero", &[("empty_confirm", 60)]),
    ("recreate", &[("empty_confirm", 60)]),
    ("one-pod-rollout", &[]),
    ("namespace-deletion", &[("empty_confirm", 0)]),
    ("node-pool-swap", &[("no_usable_node", 0)]),
    ("blue-green", &[("no_usable_node", 0)]),
];

/// Additional time for which a removal may be shown as held, in seconds: for turns, polls and a slow machine.
const SLACK: f64 = 5.0;

/// Maximum number of waiting items per Service: its pool, the pool's entry in a lane, and one or two messages in
/// flight. Each Node can have one more message. Pods change more often, so a queue that only grows exceeds this number.
const MAX_PER_SERVICE: u64 = 4;

/// Maximum time of a scenario on a slow and shared machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(1200);

/// Interval between polls.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Results of a run.
struct Played {
    status: ExitStatus,
    report: Value,
    /// Output of `simulate`.
    output: String,
    /// The controller's complete log.
    log: String,
}

/// Runs a scenario, given by name or text.
async fn play(name: &str, text: Option<&str>, speed: u32) -> Result<Played, String> {
    let reaper = Reaper::new();
    let file = |name: &str| -> PathBuf { reaper.folder().join(name) };
    let scenario = match text {
        None => name.to_owned(),
        Some(text) => {
            std::fs::write(file("scenario.txt"), text).map_err(|error| error.to_string())?;
            file("scenario.txt").display().to_string()
        }
    };
    let mut command = Command::new(PROGRAM);
    command.args(["simulate", "--exit-when-done", "--report", "json", "--scenario", &scenario]);
    command.args(["--speed", &speed.to_string(), "--listen", "127.0.0.1:0"]);
    command.arg("--folder").arg(file("run")).arg("--output").arg(file("report.json"));
    command.env_remove("RUST_LOG");
    let mut child = reaper.start("simulate", &mut command);
    let status = ended(&mut child).await?;
    let read = |name: &str| std::fs::read_to_string(file(name)).unwrap_or_default();
    let report = serde_json::from_str(&read("report.json")).unwrap_or_default();
    Ok(Played { status, report, output: read("simulate.log"), log: read("run/service.log") })
}

async fn ended(child: &mut Child) -> Result<ExitStatus, String> {
    let until = Instant::now() + TEST_TIMEOUT;
    let mut again = tokio::time::interval(POLL_INTERVAL);
    loop {
        again.tick().await;
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() > until => {
                return Err(format!("it still runs after {TEST_TIMEOUT:?}"));
            }
            Ok(None) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Checks a run, and returns the first problem.
fn check(name: &str, scenario: &Scenario, played: &Played) -> Result<(), String> {
    let Played { status, report, output, log } = played;
    let end = |text: &str| text.lines().rev().take(4).collect::<Vec<_>>().join(" | ");
    if !status.success() {
        let (output, log) = (end(output), end(log));
        return Err(format!("{name}: {status}: {output}\n  {}\n  the log's end: {log}", summary(report)));
    }
    let in_sync = report["converged"] == true && report["wrong_pools"] == 0;
    if !in_sync || report["max_concurrent_puts_per_lb"].as_u64().is_none_or(|most| most > 1) {
        return Err(format!("{name}: {}", summary(report)));
    }
    if report["queue_depth_end"] != 0 {
        return Err(format!("{name}: work is pending: {}", summary(report)));
    }
    let count = |key: &str| report[key].as_u64().unwrap_or(0);
    let most = count("services") * MAX_PER_SERVICE + count("nodes");
    if report["queue_depth_max"].as_u64().is_none_or(|depth| depth > most) {
        return Err(format!("{name}: more than {most} things waited at once: {}", summary(report)));
    }
    if report["emptied_pools"] != 0 && !EMPTIED_BY_OTHERS.contains(&name) {
        return Err(format!("{name}: pools lost their last members: {}", summary(report)));
    }
    check_guards(name, scenario, report)?;
    if scenario.log_full {
        return Ok(());
    }
    // The report was made before the controller ended.
    match log_errors(log, &scenario.errors) {
        (unexpected, missing) if unexpected.is_empty() && missing.is_empty() && !log.is_empty() => Ok(()),
        (unexpected, missing) => {
            Err(format!("{name}: unexpected errors {unexpected:?}, missing {missing:?}"))
        }
    }
}

/// Checks the actions of guards, and returns the first problem. `simulate` polls held removals twice a second; the
/// events have the rest.
fn check_guards(name: &str, scenario: &Scenario, report: &Value) -> Result<(), String> {
    let expected = report["events"][STOPPED].as_u64().unwrap_or(0);
    if expected != u64::from(scenario.guarded.stopped) {
        return Err(format!("{name}: {expected} events say that removals are stopped: {}", summary(report)));
    }
    let Some((_, may)) = ORGANIC.iter().find(|(organic, _)| *organic == name) else { return Ok(()) };
    let speed = report["speed"].as_f64().unwrap_or(1.0);
    for (reason, held) in report["held"].as_object().into_iter().flatten() {
        let most = may.iter().find(|(known, _)| known == reason).map(|(_, most)| f64::from(*most) / speed);
        if most.is_none_or(|most| held["seconds"].as_f64().is_none_or(|seconds| seconds > most + SLACK)) {
            return Err(format!("{name}: {reason} holds {held}, which may be {most:?} s"));
        }
    }
    Ok(())
}

/// Returns a summary of a report.
fn summary(report: &Value) -> String {
    let keys = [
        "converged",
        "wrong_pools",
        "wrong_pool_details",
        "emptied_pools",
        "max_concurrent_puts_per_lb",
        "log_errors",
        "log_missing",
        "queue_depth_end",
        "queue_depth_max",
        "held",
        "removals_stopped_seconds",
        "guards_wrong",
        "admin_state",
        "unreached",
        "events",
        "warnings",
    ];
    keys.map(|key| format!("{key} {}", report[key])).join(", ")
}

fn speed_of(name: &str) -> u32 {
    let timeout =
        std::env::var("SCENARIO_SPEED").ok().map(|speed| speed.parse().expect("SCENARIO_SPEED is a number"));
    let slower = || SLOWER.iter().find(|(slow, _)| *slow == name).map_or(SPEED, |(_, speed)| *speed);
    timeout.unwrap_or_else(slower)
}

#[test]
fn the_tables_of_this_file_name_scenarios_that_exist() {
    let slower = SLOWER.iter().map(|(name, _)| *name);
    let organic = ORGANIC.iter().map(|(name, _)| *name);
    for name in slower.chain(organic).chain(TOO_LONG).chain(EMPTIED_BY_OTHERS) {
        assert!(NAMED.iter().any(|(named, _)| *named == name), "{name}");
    }
}

/// Defines one test per named scenario, with `_` for `-`, and the list of the names.
macro_rules! scenarios {
    ($($name:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::ends_in_sync(stringify!($name)).await;
            }
        )*
    };
}

/// Runs the scenario with this name.
async fn ends_in_sync(name: &str) {
    let name = name.replace('_', "-");
    let scenario = Scenario::named(&name).expect("it has this name").expect("it can be read");
    let played = play(&name, None, speed_of(&name)).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    check(&name, &scenario, &played).unwrap_or_else(|error| panic!("{error}"));
}

/// Every named scenario ends with the required pools, without unexpected errors and without pending work.
mod z2_scenarios {
    use super::{NAMED, TOO_LONG};

    scenarios! {
        apiserver_down
        apiserver_slow
        arm_5xx_storm
        arm_down
        blue_green
        ccm_removes_needed
        clock_jumps
        drain_and_return
        empty_lists
        etcd_catches_up
        etcd_restored
        file_descriptors
        gateway_errors
        gateway_forgets
        log_full
        lost_answers
        mass_label_change
        most_nodes_labelled
        namespace_deletion
        node_deletion
        node_lists_empty
        node_pool_swap
        nodes_fail
        nodes_vanish
        one_node_drains
        one_pod_rollout
        quota_exhausted
        recreate
        scale_to_zero
        silent_loss
        slice_lists_empty
        slice_lists_gone
        spot_storm
        suspended
        watch_410
    }

    #[test]
    fn every_scenario_with_a_name_has_a_test() {
        let named = NAMED.iter().map(|(name, _)| *name).filter(|name| !TOO_LONG.contains(name));
        let mut named: Vec<String> = named.map(|name| name.replace('-', "_")).collect();
        named.sort();
        assert_eq!(named, TESTED, "the list in tests/faults.rs must equal the sorted `NAMED`");
    }
}

/// `simulate` fails and reports the cause: one scenario per cause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z2_a_scenario_that_ends_wrong_or_without_its_error_fails() {
    let world = "services 4\nload-balancers 2\nnodes 6\npods burst\n";
    // One pool per load balancer. Its only write brings it into sync immediately, while the operation continues. Pool
    // and lane wait for the operation.
    let busy = "services 2\nload-balancers 2\nnodes 6\npods burst\n\
                arm operation 10m\narm retry-after 1\narm visible at-once\n\
                controller members.removalDelay 0s\nsettle 30s\n";
    let scenarios = [
        ("a pool out of sync", world, "settle 3s\nat 0s arm down\n", "pools are out of sync"),
        ("no stop", world, "settle 30s\nexpect removals stopped\n", "removals were never stopped"),
        ("no hold", world, "settle 30s\nexpect held breaker 1\n", "0 pools were held for breaker"),
        (
            "no refusal",
            world,
            "settle 30s\nat 0s arm quota 5000 writes 50000 reads in 5m\n",
            "`arm quota 5000 writes 50000 reads in 5m` had no effect",
        ),
        (
            "no loss",
            world,
            "settle 30s\nat 0s arm silent-loss 0.000000001\n",
            "`arm silent-loss 0.000000001` had no effect",
        ),
        ("no error", world, "settle 30s\nexpect log ERROR of no kind\n", "the log lacks the expected error"),
        ("busy", busy, "", "FAILED: the queue depth is still 4."),
        (
            "silent",
            world,
            "controller members.removalDelay 0s\nsettle 30s\nat 15s controller stands still\n",
            "FAILED: the controller did not report what still waits.",
        ),
    ];
    let mut playing = JoinSet::new();
    for (name, world, lines, expected) in scenarios {
        let text = format!("{world}{lines}");
        playing.spawn(async move {
            let scenario = Scenario::read(&text).expect("a scenario");
            let played = play(name, Some(&text), 1).await.expect("it ends");
            assert_eq!(played.status.code(), Some(1), "{name}: {}", played.output);
            let wrong = check(name, &scenario, &played).expect_err(name);
            let verdict = format!("{wrong} {}", played.output);
            assert!(verdict.contains(expected), "{name}: the output lacks {expected:?}: {verdict}");
        });
    }
    playing.join_all().await;
}
