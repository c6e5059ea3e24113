//! The fakes over real HTTP, and runs against them.

mod azure;
mod ccm;
mod disruption;
mod kubernetes;
mod run;
mod wire;
mod world;

/// Waits for something, with a time limit.
async fn soon<T>(awaited: impl Future<Output = T>) -> T {
    let within = std::time::Duration::from_secs(10);
    tokio::time::timeout(within, awaited).await.expect("nothing came within ten seconds")
}
