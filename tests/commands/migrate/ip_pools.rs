//! `ip-pools`: conversion of pools of interfaces to pools of addresses.

use serde_json::json;
use simulator::models::arm::topology::Topology;

use super::{Fixture, both_leases_are_free, fixture};

/// Returns the addresses of the members of both load balancers.
async fn addresses(fixture: &Fixture) -> Vec<usize> {
    let mut counts = Vec::new();
    for lb in ["kubernetes", "kubernetes-internal"] {
        let members = fixture.fakes.members(lb, "kubernetes").await.expect("the pool exists");
        counts.push(members.iter().filter(|member| member.ip.starts_with("10.240.")).count());
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_of_interfaces_are_converted_to_addresses_once() {
    let fixture = fixture(Topology::StandardInterfaces.cluster()).await;
    fixture.configure(|cloud| cloud["loadBalancerBackendPoolConfigurationType"] = json!("nodeIP"));
    let journal = fixture.path("journal.json");
    let shown = fixture.run("migrate-basic-lb", &["ip-pools", "--dry-run"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains("Pools that get members by address"), "{shown:?}");
    fixture.assert_nothing_written().await;

    let arguments = ["ip-pools", "--journal", &journal];
    let changed = fixture.run("migrate-basic-lb", &arguments).await;
    assert_eq!(changed.code, Some(0), "{changed:?}");
    assert!(
        changed.stdout.contains("All pools of the cluster name their members by address."),
        "{changed:?}"
    );
    assert_eq!(addresses(&fixture).await, [3, 3]);
    both_leases_are_free(&fixture).await;

    let writes = fixture.puts().len();
    let again = fixture.run("migrate-basic-lb", &arguments).await;
    assert_eq!((again.code, fixture.puts().len()), (Some(0), writes), "{again:?}");
    assert!(again.stdout.contains("there is nothing to change"), "{again:?}");
}
