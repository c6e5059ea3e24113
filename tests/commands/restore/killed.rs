//! `restore` is killed during its work: the pause of everything stays, and a second `restore` completes the work.

use rustix::process::Signal;
use simulator::models::arm::{Method, Request};
use simulator::{Azure, Exchange, Fate};
use tokio::sync::{mpsc, oneshot};

use super::{
    Fixture, Pool, Running, all_paused, is_restored, overwrite, result_line, snapshot_with_old_member,
};
use crate::support::{TEST_TIMEOUT, eventually};

/// Returns the pools of one load balancer, which are written one after the other.
fn of_one_balancer(pools: &[Pool]) -> Vec<Pool> {
    pools.iter().filter(|pool| pool.lb == pools[0].lb).cloned().collect()
}

/// Returns the entry that pauses everything.
async fn pause_entry(fixture: &Fixture) -> Option<String> {
    let map = fixture.config_map().await?;
    map["data"]["pause.everything"].as_str().map(str::to_owned)
}

/// Runs `restore` and kills it at the read of a pool after this number of writes. That read is never answered, so
/// nothing is written later.
async fn killed_after(fixture: &Fixture, file: &str, writes: usize) {
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
    fixture.fakes.azure.ask(move |azure, _| azure.wire.intercept(hook)).await;
    let before = fixture.puts().len();
    let mut restore = Running::start(fixture, "restore", &[file, "--yes"], "killed.log");
    let hold = tokio::time::timeout(TEST_TIMEOUT, read.recv()).await.expect("it reads the next pool");
    eventually("everything is paused", TEST_TIMEOUT, || async {
        pause_entry(fixture).await.ok_or("no pause".to_owned())
    })
    .await;
    restore.signal(Signal::KILL);
    restore.child.wait().await.expect("it is our child");
    fixture.fakes.azure.ask(|azure, _| azure.wire.intercept(|_, _, _| Fate::Answered)).await;
    drop(hold);
    assert_eq!(fixture.puts().len(), before + writes, "writes before it was killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_a_second_restore_completes_a_killed_one() {
    let fixture = Fixture::new(2).await;
    let file = fixture.path("pools.json");
    let pools = snapshot_with_old_member(&fixture, &file).await;
    for pool in &pools {
        overwrite(&fixture, pool).await;
    }
    killed_after(&fixture, &file, 0).await;
    let paused = pause_entry(&fixture).await.expect("the pause stays");
    assert!(paused.contains("by: restore"), "{paused}");

    let ended = fixture.run("restore", &[&file, "--yes"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("leads: nothing is restored before it ends"), "{ended:?}");
    for pool in &pools {
        assert!(is_restored(&fixture, pool).await, "{pool:?}: {ended:?}");
        assert_eq!(result_line(&ended, pool), "restored", "{ended:?}");
    }
    assert_eq!(fixture.puts().len(), pools.len());
    assert_eq!(pause_entry(&fixture).await, Some(paused), "the pause is the first one's");
    assert!(ended.stdout.contains("everything is paused: no controller changes these pools"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_a_restore_killed_midway_leaves_everything_paused() {
    let fixture = Fixture::new(4).await;
    let file = fixture.path("pools.json");
    let pools = of_one_balancer(&snapshot_with_old_member(&fixture, &file).await);
    assert_eq!(pools.len(), 2, "{pools:?}");
    for pool in &pools {
        overwrite(&fixture, pool).await;
    }
    killed_after(&fixture, &file, 1).await;
    let restored = [is_restored(&fixture, &pools[0]).await, is_restored(&fixture, &pools[1]).await];
    assert_ne!(restored[0], restored[1], "one of two pools was written");
    let paused = pause_entry(&fixture).await.expect("the pause stays");

    // A controller that starts neither reverts nor completes the restore.
    let (controller, admin) = Running::start_leader(&fixture).await;
    all_paused(&admin).await;
    controller.signal(Signal::TERM);
    controller.ended().await;
    assert_eq!(fixture.puts().len(), 1);
    assert_eq!(pause_entry(&fixture).await, Some(paused.clone()));

    let ended = fixture.run("restore", &[&file, "--yes"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for (pool, was_restored) in pools.iter().zip(restored) {
        assert!(is_restored(&fixture, pool).await, "{pool:?}: {ended:?}");
        assert_eq!(result_line(&ended, pool), if was_restored { "" } else { "restored" }, "{ended:?}");
    }
    assert_eq!(fixture.puts().len(), 2, "pools in sync were not written again");
    assert_eq!(pause_entry(&fixture).await, Some(paused));

    // When the operator resumes, the pools follow endpoints again.
    let mut map = fixture.config_map().await.expect("the controller's ConfigMap");
    map["data"].as_object_mut().expect("data").shift_remove("pause.everything");
    fixture.fakes.apply(vec![map]).await.expect("a good ConfigMap");
    let (controller, _) = Running::start_leader(&fixture).await;
    eventually("the pools match the endpoints", TEST_TIMEOUT, || async {
        let mut restored = Vec::new();
        for pool in &pools {
            restored.push(is_restored(&fixture, pool).await);
        }
        if restored == [false, false] { Ok(()) } else { Err(format!("{restored:?}")) }
    })
    .await;
    controller.signal(Signal::TERM);
    assert_eq!(controller.ended().await.code, Some(0));
}
