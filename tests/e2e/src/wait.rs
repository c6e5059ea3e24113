//! Waiting for what other processes do. Nothing else here sleeps.

use std::future::Future;
use std::time::Duration;

use anyhow::bail;
use tokio::time::Instant;

/// Waits.
pub(crate) async fn pause(span: Duration) {
    tokio::time::sleep(span).await;
}

/// Looks every `interval` until `condition` gives a value; what it says otherwise is told when the time is over.
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
            Err(seen) if begin.elapsed() >= limit => bail!("{what}: not within {limit:?}; last seen: {seen}"),
            Err(_) => pause(interval).await,
        }
    }
}
