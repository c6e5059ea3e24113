//! Clients that send many requests at once cost little memory and do not delay other clients.

use std::time::Duration;

use futures::future::join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::stage::Stage;
use crate::support::{PATIENCE, limit};

/// How many clients send at once, on a listener with 512 places.
const ATTACKERS: usize = 500;
/// How many bytes each of them sends at once.
const EACH: usize = 128 << 10;
/// How much memory all of them may take, in bytes.
const COST: u64 = 64 << 20;
/// Within which time other clients get a response meanwhile: on an idle machine, and while other tests run.
const ANSWERED_WITHIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Sends many requests at once. Returns the number of responses.
async fn attack(listener: &str) -> usize {
    let mut connection = TcpStream::connect(listener).await.expect("the listener takes connections");
    let request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let (mut from, mut to) = connection.split();
    let many = request.repeat(EACH / request.len());
    let mut answers = Vec::new();
    // Unread requests may cut off the response.
    let (_, _) = tokio::join!(to.write_all(&many), from.read_to_end(&mut answers));
    String::from_utf8_lossy(&answers).matches("HTTP/1.1 ").count()
}

async fn is_flooded(stage: &Stage, listener: &str) {
    let before = stage.peak_bytes();
    let attackers = join_all((0..ATTACKERS).map(|_| attack(listener)));
    let others = async {
        let mut slowest = Duration::ZERO;
        for _ in 0..50 {
            let began = Instant::now();
            assert_eq!(stage.health("/livez").await.status, 200);
            slowest = slowest.max(began.elapsed());
        }
        slowest
    };
    let both = async { tokio::join!(attackers, others) };
    let (answers, slowest) = tokio::time::timeout(PATIENCE, both).await.expect("all connections end");
    let cost = stage.peak_bytes() - before;
    assert!(cost < COST, "{ATTACKERS} connections to {listener} took {} KiB", cost >> 10);
    let (goal, shared) = ANSWERED_WITHIN;
    assert!(slowest < limit(goal, shared), "another client waited for {slowest:?}");
    assert!(answers.iter().all(|count| *count <= 1), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_pipelined_requests_cost_no_memory_and_no_time() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to the hard limit");
    let stage = Stage::ready(1).await;
    is_flooded(&stage, &stage.health).await;
    is_flooded(&stage, &stage.admin).await;
}
