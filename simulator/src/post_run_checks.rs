//! Checks of a controller after its scenario: unexpected errors in its log, pending work, and held removals.
//!
//! Samples the controller's listeners during the run and at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use crate::scenario::Guarded;

/// Interval between samples.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum time of one answer; a suspended controller does not answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// States of pools with pending work. A failed pool has none: it is compared again later.
const BUSY: [&str; 4] = ["waiting", "due", "attempting", "parked"];
/// Maximum number of listed error lines.
const NAMED: usize = 20;

/// Results of the checks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PostRunChecks {
    /// Unexpected lines of the log: those with level ERROR, and those that are not log lines. `None` if there is no log
    /// file, because the log went to a terminal or to a full disk.
    pub log_errors: Option<Vec<String>>,
    /// Expected errors that are not in the log.
    pub log_missing: Vec<String>,
    /// Pending work at the end: pools with changes, writes in lanes, messages in mailboxes. `None` if the controller
    /// did not report its work, which is a failure.
    pub queue_depth_end: Option<u64>,
    /// Maximum of the pending work.
    pub queue_depth_max: u64,
    /// Removals that guards held during the run, by reason.
    pub held: BTreeMap<String, Held>,
    /// The longest time for which all removals were stopped, in seconds; `None` if they never were.
    pub removals_stopped_seconds: Option<f64>,
    /// Deviations of the guards from the expectations.
    pub guards_wrong: Vec<String>,
    /// Samples of the controller's status, in the order of time.
    #[serde(skip)]
    pub samples: Vec<StatusSample>,
}

/// One sample of the status.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatusSample {
    /// Time, in seconds since the controller became ready.
    pub at: f64,
    /// Amount of pending work.
    pub depth: u64,
    /// Number of held pools.
    pub held: usize,
    /// True if all removals were stopped.
    pub stopped: bool,
}

/// Removals that were held for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Held {
    /// Maximum number of pools at the same time.
    pub pools: usize,
    /// The longest time of one pool, in seconds.
    pub seconds: f64,
}

impl PostRunChecks {
    /// Returns whether all checks passed. A controller that does not report its pending work fails.
    pub(crate) fn is_clean(&self) -> bool {
        self.log_errors.as_ref().is_none_or(Vec::is_empty)
            && self.log_missing.is_empty()
            && self.guards_wrong.is_empty()
            && self.queue_depth_end == Some(0)
    }

    /// Compares a log with the expectations.
    pub fn check_log(&mut self, log: &str, expected: &[String]) {
        let (mut unexpected, missing) = log_errors(log, expected);
        unexpected.truncate(NAMED);
        self.log_errors = Some(unexpected);
        self.log_missing = missing;
    }

    /// Compares the actions of guards with the expectations.
    pub fn check_guards(&mut self, expected: &Guarded) {
        let mut wrong = Vec::new();
        match (expected.stopped, self.removals_stopped_seconds) {
            (true, None) => wrong.push("removals were never stopped".to_owned()),
            (false, Some(seconds)) => wrong.push(format!("all removals were stopped for {seconds:.1} s")),
            (true, Some(_)) | (false, None) => {}
        }
        for (reason, least) in &expected.held {
            let pools = self.held.get(reason).map_or(0, |held| held.pools);
            if pools < *least {
                wrong.push(format!("{pools} pools were held for {reason}, not {least}"));
            }
        }
        self.guards_wrong = wrong;
    }

    /// Records a sample.
    fn record(&mut self, at: f64, status: &Value, depth: u64) {
        self.record_guards(status);
        self.queue_depth_max = self.queue_depth_max.max(depth);
        let held = status["held"].as_array().into_iter().flatten().map(|line| &line["pool"]);
        // A pool has a line for each reason.
        let held: BTreeSet<String> = held.map(ToString::to_string).collect();
        let stopped = status["guards"]["removalsStopped"]["seconds"].is_number();
        self.samples.push(StatusSample { at, depth, held: held.len(), stopped });
    }

    /// Records the guards of a sample.
    fn record_guards(&mut self, status: &Value) {
        let stopped = status["guards"]["removalsStopped"]["seconds"].as_f64();
        self.removals_stopped_seconds = match (self.removals_stopped_seconds, stopped) {
            (Some(longest), Some(now)) => Some(longest.max(now)),
            (longest, now) => longest.or(now),
        };
        let mut pools: BTreeMap<String, usize> = BTreeMap::new();
        for held in status["held"].as_array().into_iter().flatten().map(|line| &line["held"]) {
            let Some(reason) = held["reason"].as_str() else { continue };
            *pools.entry(reason.to_owned()).or_default() += 1;
            let all = self.held.entry(reason.to_owned()).or_default();
            all.seconds = all.seconds.max(held["seconds"].as_f64().unwrap_or(0.0));
        }
        for (reason, count) in pools {
            let all = self.held.entry(reason).or_default();
            all.pools = all.pools.max(count);
        }
    }
}

/// Returns the unexpected lines of a log, and the expected texts without such a line. Unexpected are lines with level
/// ERROR, and lines that are not log lines, such as those of a panic.
#[must_use]
pub fn log_errors(log: &str, expected: &[String]) -> (Vec<String>, Vec<String>) {
    let is_error = |line: &&str| {
        let parsed = serde_json::from_str::<Value>(line);
        parsed.map_or(true, |line| !line.is_object() || line["level"] == "ERROR")
    };
    let errors: Vec<&str> = log.lines().filter(is_error).collect();
    let unexplained = errors.iter().filter(|line| !expected.iter().any(|text| line.contains(text)));
    let missing = expected.iter().filter(|text| !errors.iter().any(|line| line.contains(*text)));
    (unexplained.map(ToString::to_string).collect(), missing.cloned().collect())
}

/// Samples the status of a controller from its start until [`Watcher::rest`].
#[derive(Debug)]
pub struct Watcher {
    ending: oneshot::Sender<Duration>,
    asking: JoinHandle<PostRunChecks>,
}

impl Watcher {
    /// Starts to sample the controller with these listeners.
    #[must_use]
    pub fn start(admin: SocketAddr, health: SocketAddr) -> Self {
        let (ending, ended) = oneshot::channel();
        Self { ending, asking: tokio::spawn(ask(admin, health, ended)) }
    }

    /// Waits until there is no pending work, at most for this time, and returns the results.
    pub async fn rest(self, within: Duration) -> PostRunChecks {
        // The task runs until it receives this message.
        let _alone = self.ending.send(within).is_err();
        self.asking.await.unwrap_or_default()
    }
}

async fn ask(admin: SocketAddr, health: SocketAddr, mut ended: oneshot::Receiver<Duration>) -> PostRunChecks {
    let began = Instant::now();
    let mut again = tokio::time::interval(POLL_INTERVAL);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut until, mut all) = (None, PostRunChecks::default());
    loop {
        tokio::select! {
            within = &mut ended, if until.is_none() => match within {
                Ok(within) => until = Some(Instant::now() + within),
                Err(_) => return PostRunChecks::default(),
            },
            _ = again.tick() => {
                let now = read_status(admin, health).await;
                let depth = now.as_ref().map(|(status, metrics)| depth_of(status, metrics));
                if let (Some((status, _)), Some(depth)) = (&now, depth) {
                    all.record(began.elapsed().as_secs_f64(), status, depth);
                }
                if until.is_some_and(|until| depth == Some(0) || Instant::now() >= until) {
                    all.queue_depth_end = depth;
                    return all;
                }
            }
        }
    }
}

/// Returns the status and the pending work; `None` if the controller does not answer.
async fn read_status(admin: SocketAddr, health: SocketAddr) -> Option<(Value, String)> {
    let status: Value = serde_json::from_str(&get(admin, "/api/v1/status").await?).ok()?;
    let metrics = get(health, "/metrics").await?;
    Some((status, metrics))
}

fn depth_of(status: &Value, metrics: &str) -> u64 {
    let pools: u64 = BUSY.iter().filter_map(|state| status["pools"]["byState"][state].as_u64()).sum();
    let lanes = status["lanes"].as_array().into_iter().flatten();
    let lanes: usize = lanes
        .map(|lane| {
            let waiting = lane["waiting"].as_array().map_or(0, Vec::len);
            waiting + usize::from(!lane["writing"].is_null())
        })
        .sum();
    let mailboxes =
        metrics.lines().filter(|line| line.starts_with("backend_pool_controller_mailbox_waiting{"));
    let mailboxes = mailboxes.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    // A gauge of whole numbers that are not negative.
    pools + lanes as u64 + mailboxes.sum::<f64>() as u64
}

/// Returns the body of a page, if it is answered 200 in time.
async fn get(address: SocketAddr, path: &str) -> Option<String> {
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, fetch(address, path)).await;
    let answer = answer.ok()?.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}

async fn fetch(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LOG: &str = r#"{"level":"INFO","message":"an error was mended"}
{"level":"ERROR","message":"the disk burns"}
thread 'main' panicked at somewhere
"#;

    #[test]
    fn z2_unexpected_and_missing_errors_are_reported() {
        let (unexpected, missing) = log_errors(LOG, &["the disk".to_owned()]);
        assert_eq!((unexpected, missing), (vec!["thread 'main' panicked at somewhere".to_owned()], vec![]));
        let expected = ["the disk", "panicked", "the sea rises"].map(str::to_owned);
        assert_eq!(log_errors(LOG, &expected), (vec![], vec!["the sea rises".to_owned()]));
        let mut checks = PostRunChecks { queue_depth_end: Some(0), ..PostRunChecks::default() };
        assert!(checks.is_clean());
        checks.check_log(LOG, &expected[..2]);
        assert!(checks.is_clean());
        checks.check_log(LOG, &expected);
        assert!(!checks.is_clean(), "an expected error is missing");
        checks.check_log(LOG, &[]);
        assert_eq!((checks.is_clean(), checks.log_errors.map(|lines| lines.len())), (false, Some(2)));
    }

    #[test]
    fn z2_pending_work_is_that_of_pools_lanes_and_mailboxes() {
        let status = json!({
            "pools": {"byState": {"in_sync": 50, "failed": 1, "waiting": 2, "due": 1, "attempting": 1, "parked": 1}},
            "lanes": [{"writing": {"pool": "a"}, "waiting": [{"pool": "b"}]}, {"writing": null, "waiting": []}]
        });
        let metrics = "# TYPE backend_pool_controller_mailbox_waiting gauge\n\
                       backend_pool_controller_mailbox_waiting{actor=\"pool\"} 3\n\
                       backend_pool_controller_mailbox_waiting{actor=\"writer\"} 0\nother{a=\"b\"} 9\n";
        assert_eq!(depth_of(&status, metrics), 10);
        assert_eq!(depth_of(&json!({}), ""), 0);
        let left = PostRunChecks { queue_depth_end: Some(1), ..PostRunChecks::default() };
        assert!(!left.is_clean());
        assert!(!PostRunChecks::default().is_clean(), "the pending work is unknown");
        assert!(PostRunChecks { queue_depth_end: Some(0), ..left }.is_clean());
    }

    #[test]
    fn g5_each_sample_has_held_pools_and_waiting_work() {
        let line =
            |pool: &str, reason: &str| json!({"pool": pool, "held": {"reason": reason, "seconds": 1.0}});
        let mut checks = PostRunChecks::default();
        let held = [line("lb/a", "fraction"), line("lb/a", "breaker"), line("lb/b", "breaker")];
        checks.record(0.5, &json!({"guards": {"removalsStopped": {"seconds": 2.0}}, "held": held}), 7);
        checks.record(1.0, &json!({"guards": {"removalsStopped": null}, "held": []}), 3);
        let first = StatusSample { at: 0.5, depth: 7, held: 2, stopped: true };
        assert_eq!(checks.samples, [first, StatusSample { at: 1.0, depth: 3, held: 0, stopped: false }]);
        assert_eq!((checks.queue_depth_max, checks.removals_stopped_seconds), (7, Some(2.0)));
    }

    #[test]
    fn g5_held_removals_must_match_the_scenario() {
        let held = |reason: &str, seconds: f64| json!({"pool": "lb/a", "held": {"reason": reason, "seconds": seconds}});
        let idle = || PostRunChecks { queue_depth_end: Some(0), ..PostRunChecks::default() };
        let mut checks = idle();
        checks.record_guards(
            &json!({"guards": {"removalsStopped": null}, "held": [held("fraction", 1.0), held("fraction", 4.5)]}),
        );
        checks.check_guards(&Guarded::default());
        assert_eq!((checks.held["fraction"], checks.is_clean()), (Held { pools: 2, seconds: 4.5 }, true));
        checks.record_guards(
            &json!({"guards": {"removalsStopped": {"seconds": 3.0}}, "held": [held("breaker", 3.0)]}),
        );
        checks.record_guards(&json!({"guards": {"removalsStopped": {"seconds": 2.0}}, "held": []}));
        assert_eq!((checks.removals_stopped_seconds, checks.held["breaker"].pools), (Some(3.0), 1));
        assert!(checks.is_clean(), "the log was not checked");
        checks.check_guards(&Guarded::default());
        assert!(!checks.is_clean() && checks.guards_wrong[0].contains("stopped for 3.0 s"));
        let expected = |least| Guarded { stopped: true, held: vec![("breaker".to_owned(), least)] };
        checks.check_guards(&expected(1));
        assert!(checks.is_clean());
        checks.check_guards(&expected(2));
        assert_eq!(checks.guards_wrong, ["1 pools were held for breaker, not 2"]);
        let mut never = idle();
        never.check_guards(&expected(1));
        assert_eq!(never.guards_wrong.len(), 2);
    }
}
