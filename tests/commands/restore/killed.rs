//! `restore` is killed during its work: the pause of everything stays, and a second `restore` completes the work.

use rustix::process::Signal;
use simulator::models::arm::{Method, Request};
use simulator::{Azure, Exchange, Fate};
use tokio::sync::{mpsc, oneshot};

use super::{
    Bench, Pool, Running, all_paused, is_restored, overwrite, result_line, snapshot_with_old_member,
};
use crate::support::{PATIENCE, eventually};

/// Returns the pools of one load balancer, which are written one after the other.
fn of_one_balancer(pools: &[Pool]) -> Vec<Pool> {
    pools.iter().filter(|pool| pool.lb == pools[0].lb).cloned().collect()
}

/// Returns the entry that pauses everything.
async fn pause_entry(bench: &Bench) -> Option<String> {
    let map = bench.config_map().await?;
    map["data"]["pause.everything"].as_str().map(str::to_owned)
}

/// Runs `restore` and kills it at the read of a pool after this number of writes. That read is never answered, so
/// nothing is written later.
async fn killed_after(bench: &Bench, file: &str, writes: usize) {
    let (reads, mut read) = mpsc::unbounded_channel();
    let mut written = Vec::new();
    let hook = move |_: &mut Azure, request: &Request, _| {
        let exchange = Exchange { request: request.clone(), arrived_us: 0, ended_us: None, status: None };
        let Some(pool) = exchange.pool() else { return Fate::Answered };
        if request.method == Method::Put {
            written.push(pool);
            return Fate::Answered;
        }
        // A written pool is read again to verify it.
        if written.len() < writes || written.contains(&pool) {
            return Fate::Answered;
        }
        let (hold, release) = oneshot::channel();
        reads.send(hold).expect("the test continues");
        Fate::Held(release)
    };
    bench.fakes.azure.ask(move |azure, _| azure.wire.intercept(hook)).await;
    let before = bench.puts().len();
    let mut restore = Running::start(bench, "restore", &[file, "--yes"], "killed.log");
    let hold = tokio::time::timeout(PATIENCE, read.recv()).await.expect("it reads the next pool");
    eventually("everything is paused", PATIENCE, || async {
        pause_entry(bench).await.ok_or("no pause".to_owned())
    })
    .await;
    restore.signal(Signal::KILL);
    restore.child.wait().await.expect("it is our child");
    bench.fakes.azure.ask(|azure, _| azure.wire.intercept(|_, _, _| Fate::Answered)).await;
    drop(hold);
    assert_eq!(bench.puts().len(), before + writes, "writes before it was killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_a_second_restore_completes_a_killed_one() {
    let bench = Bench::new(2).await;
    let file = bench.path("pools.json");
    let pools = snapshot_with_old_member(&bench, &file).await;
    for pool in &pools {
        overwrite(&bench, pool).await;
    }
    killed_after(&bench, &file, 0).await;
    let paused = pause_entry(&bench).await.expect("the pause stays");
    assert!(paused.contains("by: restore"), "{paused}");

    let ended = bench.run("restore", &[&file, "--yes"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("leads: nothing is restored before it ends"), "{ended:?}");
    for pool in &pools {
        assert!(is_restored(&bench, pool).await, "{pool:?}: {ended:?}");
        assert_eq!(result_line(&ended, pool), "restored", "{ended:?}");
    }
    assert_eq!(bench.puts().len(), pools.len());
    assert_eq!(pause_entry(&bench).await, Some(paused), "the pause is the first one's");
    assert!(ended.stdout.contains("everything is paused: no controller changes these pools"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_a_restore_killed_midway_leaves_everything_paused() {
    let bench = Bench::new(4).await;
    let file = bench.path("pools.json");
    let pools = of_one_balancer(&snapshot_with_old_member(&bench, &file).await);
    assert_eq!(pools.len(), 2, "{pools:?}");
    for pool in &pools {
        overwrite(&bench, pool).await;
    }
    killed_after(&bench, &file, 1).await;
    let restored = [is_restored(&bench, &pools[0]).await, is_restored(&bench, &pools[1]).await];
    assert_ne!(restored[0], restored[1], "one of two pools was written");
    let paused = pause_entry(&bench).await.expect("the pause stays");

    // A controller that starts neither reverts nor completes the restore.
    let (controller, admin) = Running::start_leader(&bench).await;
    all_paused(&admin).await;
    controller.signal(Signal::TERM);
    controller.ended().await;
    assert_eq!(bench.puts().len(), 1);
    assert_eq!(pause_entry(&bench).await, Some(paused.clone()));

    let ended = bench.run("restore", &[&file, "--yes"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for (pool, was_restored) in pools.iter().zip(restored) {
        assert!(is_restored(&bench, pool).await, "{pool:?}: {ended:?}");
        assert_eq!(result_line(&ended, pool), if was_restored { "" } else { "restored" }, "{ended:?}");
    }
    assert_eq!(bench.puts().len(), 2, "pools in sync were not written again");
    assert_eq!(pause_entry(&bench).await, Some(paused));

    // When the operator resumes, the pools follow endpoints again.
    let mut map = bench.config_map().await.expect("the controller's ConfigMap");
    map["data"].as_object_mut().expect("data").shift_remove("pause.everything");
    bench.fakes.apply(vec![map]).await.expect("a good ConfigMap");
    let (controller, _) = Running::start_leader(&bench).await;
    eventually("the pools match the endpoints", PATIENCE, || async {
        let mut restored = Vec::new();
        for pool in &pools {
            restored.push(is_restored(&bench, pool).await);
        }
        if restored == [false, false] { Ok(()) } else { Err(format!("{restored:?}")) }
    })
    .await;
    controller.signal(Signal::TERM);
    assert_eq!(controller.ended().await.code, Some(0));
}
