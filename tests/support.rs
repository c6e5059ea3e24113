//! Shared support of the tests of the real binary: real Kubernetes processes, a fake Azure, the controller's process,
//! and the one function that waits.

pub mod azure;
pub mod browser;
pub mod ccm;
pub mod certificates;
pub mod controller;
pub mod expected_members;
pub mod gateway;
pub mod kubernetes;
pub mod objects;
pub mod proxy;
pub mod reaper;
pub mod terminal;

use std::future::Future;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

/// Interval between checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum time of a step of these tests on a slow and shared machine. A successful step is much faster.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns a time limit: the goal if `QUIET_MACHINE` is set, because nothing else runs on the machine, and `shared`
/// otherwise.
pub fn limit(goal: Duration, shared: Duration) -> Duration {
    if std::env::var_os("QUIET_MACHINE").is_some() { goal } else { shared }
}

/// Polls until `condition` returns a value, and returns that value.
///
/// # Panics
/// The deadline has passed; the panic says what was seen last.
pub async fn eventually<T, F>(what: &str, deadline: Duration, mut condition: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, String>>,
{
    let end = Instant::now() + deadline;
    loop {
        match condition().await {
            Ok(value) => return value,
            Err(last) => assert!(Instant::now() < end, "{what}: not within {deadline:?}; seen last: {last}"),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns the complete lines of a JSON log so far; a line that is not JSON is returned as a string.
pub fn log_lines(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    // The last line may be incomplete.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| Value::from(line))).collect()
}

/// Writes a line to the standard error of the process, past the test harness, so that it is always shown.
pub fn log_line(line: &str) {
    // This failure cannot be reported.
    drop(std::io::stderr().write_all(format!("{line}\n").as_bytes()));
}
