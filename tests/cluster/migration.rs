//! A migration from Basic to Standard load balancers on a real API server (docs/migration.md), beside controllers and a
//! second client that behaves like the cloud-controller-manager. All of them use the same Leases: no other client
//! writes to Azure from the first removed node to the end, and afterwards no client has anything to change.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use simulator::models::arm::topology::{Cluster as Machines, NodeGroup, NodeKind, Service};
use simulator::models::ccm::Settings;

use super::TestEnvironment;
use super::replicas::has_role;
use crate::admin::stage::PROGRAM;
use crate::support::azure::{Write, pool_name};
use crate::support::ccm::CloudControllerManager;
use crate::support::controller::{self, Controller, Flags, Replica};
use crate::support::kubernetes::{self, Cluster, tail};
use crate::support::{TEST_TIMEOUT, eventually, objects};

const NAMESPACE: &str = "migrating";
/// User agent of the migration and of the controllers in Azure.
const MIGRATION: &str = "the-migration";
const CONTROLLER: &str = "the-controller";
/// The Services of the cluster.
const NAMES: [&str; 2] = ["web-0", "web-1"];
const GROUP: &str =
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg/providers/Microsoft.Network";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_a_migration_shares_the_leases_with_all_writers() {
    let Some(cluster) = kubernetes::own().await else { return };
    let env = TestEnvironment::begin_on(&cluster, NAMESPACE, 0, &["kubernetes"]).await;
    let balancer = arrange(&env).await;
    let before = frontends(&env).await;
    assert_eq!(before.len(), 3, "{before:?}");

    let manager = start_manager(&env);
    eventually("the manager finds its resources unchanged", TEST_TIMEOUT, || async {
        let counters = manager.sums().counters;
        if counters.reconciled >= 4 { Ok(()) } else { Err(format!("{counters:?}")) }
    })
    .await;
    let leader = start_controller(&env, "leader").await;
    has_role(&leader, "leader").await;

    let plan = command(&env, &["plan", "--out", "plan.json"]).output().expect("the binary under test");
    assert_eq!(plan.status.code(), Some(0), "{plan:?}");
    let mut apply = command(&env, &["apply", "--plan", "plan.json"]);
    let mut migration = Migration { child: env.cluster.reaper().start("apply", &mut apply) };
    let log = env.cluster.folder().join("apply.log");
    eventually("the migration waits for the controller that leads", TEST_TIMEOUT, || async {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        if text.contains("holds the Lease migrating/") { Ok(()) } else { Err(text) }
    })
    .await;
    assert!(!env.azure.writes().await.iter().any(|write| is_of(write, MIGRATION)));
    let (arrived, release) = env.azure.hold_first_deletion().await;
    leader.terminate().await;
    tokio::time::timeout(TEST_TIMEOUT, arrived)
        .await
        .expect("it deletes in time")
        .expect("the hook is there");
    // The outage has begun. Neither a new pod of the controller nor the manager disturbs the migration.
    let standby = start_controller(&env, "standby").await;
    has_role(&standby, "standby").await;
    let failures = manager.sums().counters.lock_failures;
    eventually("the Lease blocks the manager", TEST_TIMEOUT, || async {
        let counters = manager.sums().counters;
        if counters.lock_failures > failures { Ok(()) } else { Err(format!("{counters:?}")) }
    })
    .await;
    assert!(release.send(()).is_ok(), "the answer is delayed");
    let ended = eventually("the migration has ended", TEST_TIMEOUT, || {
        let ended = migration.child.try_wait().expect("a child can be waited for");
        let log = &log;
        async move { ended.ok_or_else(|| tail(log)) }
    })
    .await;
    assert_eq!(ended.code(), Some(0), "{}", tail(&log));

    assert_eq!(frontends(&env).await, before, "each frontend has its address and answers");
    let ours = undisturbed(&env.azure.writes().await);

    let reconciled = manager.sums().counters.reconciled;
    eventually("the manager has nothing to change at the new load balancer", TEST_TIMEOUT, || async {
        let counters = manager.sums().counters;
        if counters.reconciled >= reconciled + 6 { Ok(()) } else { Err(format!("{counters:?}")) }
    })
    .await;
    has_role(&standby, "leader").await;
    let later = env.azure.writes().await.split_off(ours);
    assert!(later.is_empty(), "there is nothing to change: {later:?}");

    works_as_standard(&env, balancer).await;
    assert_eq!(frontends(&env).await, before, "after a change");
    standby.terminate().await;
}

/// Asserts that features of Standard work: a Service gets its own pool, and the controller fills it.
async fn works_as_standard(env: &TestEnvironment<&Cluster>, balancer: String) {
    let local = json!({ "spec": { "externalTrafficPolicy": "Local" } });
    env.api.merge(&env.path("services", NAMES[0]), &local).await;
    follows(env, "the first members").await;
    env.scale(NAMES[0], 3).await;
    follows(env, "scaling").await;
    assert_eq!(
        env.azure.model(move |model| model.json(&balancer).map(|lb| lb["sku"]["name"].clone())).await,
        Some(json!("Standard"))
    );
}

/// A process that is killed when the test ends first.
struct Migration {
    child: Child,
}

impl Drop for Migration {
    fn drop(&mut self) {
        // Both fail if it has ended, which is fine.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Creates nodes, Services, and in Azure their Basic load balancers as the cloud-controller-manager creates them.
/// Returns the id of the public one.
async fn arrange(env: &TestEnvironment<&Cluster>) -> String {
    let machines = Machines {
        nodes: vec![NodeGroup::new("agents", NodeKind::AvailabilitySet, 3)],
        // The first one represents the Services of this test; the manager does not use the internal one.
        services: vec![Service::external(false), Service::internal(None)],
        ..Machines::default()
    };
    env.azure.load_cluster(machines).await;
    for at in 0..3 {
        let (machine, ip) = env
            .azure
            .model(move |model| {
                let id =
                    |end: String| model.ids().into_iter().find(|id| id.ends_with(&end)).expect("it is there");
                let nic =
                    model.json(&id(format!("/networkInterfaces/agents-{at}-nic"))).expect("it is there");
                let ip = nic["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"].clone();
                (id(format!("/virtualMachines/agents-{at}")), ip)
            })
            .await;
        let ip = ip.as_str().expect("it has an address");
        let mut node = objects::node(env.namespace, &format!("agents-{at}"), ip);
        node["spec"] = json!({ "providerID": format!("azure://{machine}") });
        env.api.create("/api/v1/nodes", &node).await;
    }
    let services = format!("/api/v1/namespaces/{}/services", env.namespace);
    let mut made = Vec::new();
    for name in NAMES {
        let mut service = objects::service(env.namespace, name);
        service["spec"]["externalTrafficPolicy"] = json!("Cluster");
        made.push(env.api.create(&services, &service).await);
        env.create("deployments", &objects::deployment(env.namespace, name, 2)).await;
    }
    let balancer = format!("{GROUP}/loadBalancers/kubernetes");
    let (body, addresses) = basic(&balancer, &made);
    let id = balancer.clone();
    let ips = env
        .azure
        .model(move |model| {
            let address = json!({ "location": "eastus", "sku": { "name": "Basic" }, "properties": {
                "publicIPAllocationMethod": "Dynamic", "publicIPAddressVersion": "IPv4" } });
            for id in &addresses {
                model.seed(id, &address).expect("Azure accepts the address");
            }
            model.seed(&id, &body).expect("Azure accepts the load balancer");
            let ip = |id: &String| model.json(id).expect("it is there")["properties"]["ipAddress"].clone();
            addresses.iter().map(ip).collect::<Vec<_>>()
        })
        .await;
    for (name, ip) in NAMES.iter().zip(ips) {
        let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": ip, "ipMode": "VIP" }] } } });
        env.api.merge(&format!("{services}/{name}/status"), &status).await;
    }
    env.rolled_out(&NAMES.map(str::to_owned)).await;
    balancer
}

/// Returns the public load balancer of these Services, and the ids of their public addresses.
fn basic(balancer: &str, services: &[Value]) -> (Value, Vec<String>) {
    let (mut frontends, mut rules, mut probes, mut addresses) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for service in services {
        let uid = service["metadata"]["uid"].as_str().expect("the API server gives one");
        let name: String = format!("a{}", uid.replace('-', "")).chars().take(32).collect();
        let address = format!("{GROUP}/publicIPAddresses/kubernetes-{name}");
        let rule = format!("{name}-TCP-80");
        let port = &service["spec"]["ports"][0]["nodePort"];
        frontends.push(json!({ "name": name, "properties": { "publicIPAddress": { "id": address } } }));
        probes.push(
            json!({ "name": rule, "properties": { "protocol": "Tcp", "port": port, "intervalInSeconds": 5,
            "numberOfProbes": 2 } }),
        );
        rules.push(json!({ "name": rule, "properties": {
            "frontendIPConfiguration": { "id": format!("{balancer}/frontendIPConfigurations/{name}") },
            "backendAddressPool": { "id": format!("{balancer}/backendAddressPools/kubernetes") },
            "probe": { "id": format!("{balancer}/probes/{rule}") },
            "protocol": "Tcp", "frontendPort": 80, "backendPort": 80, "enableFloatingIP": true,
            "idleTimeoutInMinutes": 4, "disableOutboundSnat": true } }));
        addresses.push(address);
    }
    let pools = json!([{ "name": "kubernetes", "properties": {} }]);
    let properties = json!({ "frontendIPConfigurations": frontends, "backendAddressPools": pools,
        "loadBalancingRules": rules, "probes": probes });
    (json!({ "location": "eastus", "sku": { "name": "Basic" }, "properties": properties }), addresses)
}

/// Returns the address of each frontend that answers.
async fn frontends(env: &TestEnvironment<&Cluster>) -> BTreeMap<String, String> {
    let all = |model: &mut simulator::models::arm::ArmModel| {
        let mut all = BTreeMap::new();
        for name in ["kubernetes", "kubernetes-internal"] {
            let body = model.json(&format!("{GROUP}/loadBalancers/{name}")).unwrap_or_default();
            for frontend in body["properties"]["frontendIPConfigurations"].as_array().into_iter().flatten() {
                let properties = &frontend["properties"];
                let public = properties["publicIPAddress"]["id"].as_str().and_then(|id| model.json(id));
                let address = match &public {
                    Some(public) => &public["properties"]["ipAddress"],
                    None => &properties["privateIPAddress"],
                };
                let frontend = frontend["name"].as_str().unwrap_or_default();
                if model.frontend_serves(name, frontend) {
                    all.insert(format!("{name}/{frontend}"), address.as_str().unwrap_or_default().to_owned());
                }
            }
        }
        all
    };
    env.azure.model(all).await
}

fn is_of(write: &Write, who: &str) -> bool {
    write.user_agent.starts_with(who)
}

/// Asserts that no other client has written between the first change of a node and the last write of the migration.
/// Returns the number of writes until then.
fn undisturbed(writes: &[Write]) -> usize {
    let ours: Vec<&Write> = writes.iter().filter(|write| is_of(write, MIGRATION)).collect();
    let first =
        ours.iter().find(|write| !write.path.contains("publicIPAddresses")).expect("it changes nodes");
    let last = ours.last().expect("it writes");
    assert!(ours.iter().any(|write| write.path.contains("networkInterfaces")));
    for other in writes.iter().filter(|write| !is_of(write, MIGRATION)) {
        let in_outage = other.answered_us > first.at_us && other.at_us < last.answered_us;
        let meets =
            ours.iter().any(|write| other.answered_us > write.at_us && other.at_us < write.answered_us);
        assert!(!in_outage && !meets, "{other:?} disturbs the migration");
    }
    writes.iter().rposition(|write| is_of(write, MIGRATION)).map_or(0, |at| at + 1)
}

/// Waits until the pool of the first Service has the nodes of its Pods.
async fn follows(env: &TestEnvironment<&Cluster>, after: &str) {
    let pool = pool_name(env.namespace, NAMES[0]);
    eventually(&format!("the pool is in sync after {after}"), TEST_TIMEOUT, || async {
        let wanted = crate::support::expected_members::expected(&env.api, env.namespace).await?;
        let found = env.azure.pools().await;
        let (wanted, found) = (wanted.get(&pool), found.get(&pool));
        if wanted.is_some() && wanted == found { Ok(()) } else { Err(format!("{wanted:?} {found:?}")) }
    })
    .await;
}

fn start_manager(env: &TestEnvironment<&Cluster>) -> CloudControllerManager {
    let settings = Settings {
        epoch_s: u64::try_from(jiff::Timestamp::now().as_second()).expect("it is after 1970"),
        lease: controller::shared_lease(env.namespace),
        updater_interval_us: 2_000_000,
        node_sync_us: 5_000_000,
        resync_us: Some(1_500_000),
        retry_us: 1_000_000,
        // No Service waits longer than the test.
        max_retry_us: 8_000_000,
        ..Settings::default()
    };
    CloudControllerManager::start(env.api.clone(), &env.azure, env.namespace, settings, |_| "kubernetes")
}

fn cloud_config(env: &TestEnvironment<&Cluster>, who: &str) -> Value {
    let mut cloud_config = env.azure.cloud_config();
    cloud_config["userAgent"] = json!(who);
    cloud_config
}

async fn start_controller(env: &TestEnvironment<&Cluster>, name: &str) -> Controller {
    let kubeconfig = match name {
        "leader" => env.cluster.controller_kubeconfig(env.namespace).await,
        _ => env.cluster.account_kubeconfig(env.namespace, objects::ACCOUNT).await,
    };
    let replica = Replica {
        name: &format!("{NAMESPACE}.{name}"),
        namespace: env.namespace,
        kubeconfig,
        cloud_config: cloud_config(env, CONTROLLER),
        settings: json!({}),
        flags: Flags::default(),
    };
    Controller::start_replica(env.cluster, &replica).await
}

/// Returns `migrate-basic-lb` as an operator runs it, with the configuration of the controllers.
fn command(env: &TestEnvironment<&Cluster>, arguments: &[&str]) -> Command {
    let folder = env.cluster.folder();
    let write = |name: &str, value: &Value| {
        let path = folder.join(name);
        std::fs::write(&path, value.to_string()).expect("the folder can be written");
        path
    };
    let mut command = Command::new(PROGRAM);
    command.arg("migrate-basic-lb").args(arguments).current_dir(folder).stdin(Stdio::null());
    command.arg("--kubeconfig").arg(env.cluster.admin_kubeconfig());
    command.arg("--cloud-config").arg(write("migration.azure.json", &cloud_config(env, MIGRATION)));
    command.arg("--config").arg(write("migration.yaml", &controller::settings(env.namespace)));
    command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1").env_remove("RUST_LOG");
    command
}
