//! Waits for other processes. Only this module sleeps.

use std::future::Future;
use std::time::Duration;

use anyhow::bail;
use tokio::time::Instant;

/// Waits.
pub(crate) async fn pause(span: Duration) {
    tokio::time::sleep(span).await;
}

/// Checks every `interval` until `condition` returns a value; after the time limit, the error has its last text.
pub(crate) async fn until<T, F>(
    what: &str,
    (interval, limit): (Duration, Duration),
    mut condition: impl FnMut() -> F,
) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<Result<T, String>>>,
{
    let begin = Instant::now();
    loop {
        match condition().await? {
            Ok(value) => return Ok(value),
            Err(last) if begin.elapsed() >= limit => bail!("{what}: not within {limit:?}; last seen: {last}"),
            Err(_) => pause(interval).await,
        }
    }
}
