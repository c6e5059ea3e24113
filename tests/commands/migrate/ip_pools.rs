//! `ip-pools`: conversion of pools of interfaces to pools of addresses.

use serde_json::json;
use simulator::models::arm::topology::Topology;

use super::{Bench, bench, both_leases_are_free};

/// Returns the addresses of the members of both load balancers.
async fn addresses(bench: &Bench) -> Vec<usize> {
    let mut counts = Vec::new();
    for lb in ["kubernetes", "kubernetes-internal"] {
        let members = bench.fakes.members(lb, "kubernetes").await.expect("the pool exists");
        counts.push(members.iter().filter(|member| member.ip.starts_with("10.240.")).count());
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_of_interfaces_are_converted_to_addresses_once() {
    let bench = bench(Topology::StandardInterfaces.cluster()).await;
    bench.configure(|cloud| cloud["loadBalancerBackendPoolConfigurationType"] = json!("nodeIP"));
    let journal = bench.path("journal.json");
    let shown = bench.run("migrate-basic-lb", &["ip-pools", "--dry-run"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains("Pools that get members by address"), "{shown:?}");
    bench.assert_nothing_written().await;

    let arguments = ["ip-pools", "--journal", &journal];
    let changed = bench.run("migrate-basic-lb", &arguments).await;
    assert_eq!(changed.code, Some(0), "{changed:?}");
    assert!(
        changed.stdout.contains("All pools of the cluster name their members by address."),
        "{changed:?}"
    );
    assert_eq!(addresses(&bench).await, [3, 3]);
    both_leases_are_free(&bench).await;

    let writes = bench.puts().len();
    let again = bench.run("migrate-basic-lb", &arguments).await;
    assert_eq!((again.code, bench.puts().len()), (Some(0), writes), "{again:?}");
    assert!(again.stdout.contains("there is nothing to change"), "{again:?}");
}
