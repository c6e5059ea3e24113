//! `run` with `migration.onStartup`.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use simulator::models::arm::topology::{Cluster, Topology};
use simulator::models::arm::{Method, PoolSpec, Reply, Request, VirtualNetwork};
use simulator::models::kube::Resource;
use simulator::models::kube::build::Family;
use simulator::{Azure, vnet_id};

use super::{
    Fixture, OWN, Running, SHARED, both_leases_are_free, cut_creations, cut_nothing, hold, lease, scale_set,
    skus,
};
use crate::support::{TEST_TIMEOUT, eventually};

/// Maximum time in which a process ends while nothing is in flight, on a busy machine.
const END_TIMEOUT: Duration = Duration::from_secs(20);
const BLOCKED: &str = "a finding blocks the migration from Basic load balancers";
const MIGRATED: &str = "migrated from Basic to Standard load balancers, and all addresses are as they were";
const NOTHING: &str = "no Basic load balancer is in scope: nothing is migrated";

/// Returns an environment whose controller migrates this cluster at its start. Its only Service has no pool in Azure
/// yet.
async fn fixture(cluster: Cluster, more: Value) -> Fixture {
    let mut overlay = json!({
        "migration": { "onStartup": true, "accept": ["no-outbound"] },
        "discovery": { "interval": "5s" },
    });
    simulator::merge_overlay(&mut overlay, &more);
    let mut fixture = Fixture::with(1, &overlay).await;
    hold(&fixture, cluster).await;
    fixture.configure(|cloud| {
        let one = json!([{ "name": "kubernetes", "primaryVMSet": "workers" }]);
        cloud["multipleStandardLoadBalancerConfigurations"] = one;
    });
    fixture.reset_baseline().await;
    fixture
}

fn start(fixture: &Fixture) -> Running {
    Running::start(fixture, "run", &[], "controller.log")
}

/// Returns the lines of the log with this message.
fn lines(running: &Running, message: &str) -> Vec<Value> {
    running.lines().into_iter().filter(|line| line["message"] == message).collect()
}

async fn ready(running: &Running) {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    eventually("the controller is ready", TEST_TIMEOUT, || async {
        let health = running.listener("health").ok_or("it has not started")?;
        let answer = client.get(format!("http://{health}/readyz?verbose")).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        if answer.status() == 200 { Ok(()) } else { Err(answer.text().await.unwrap_or_default()) }
    })
    .await;
}

/// Stops a controller with SIGTERM.
async fn end(running: Running) {
    running.signal(Signal::TERM);
    let ended = tokio::time::timeout(END_TIMEOUT, running.ended()).await.expect("it ends in time");
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// Creates the Service's pool and rule, as the cloud-controller-manager does, and waits for the members.
async fn is_managed(fixture: &Fixture) {
    let service = &fixture.world.services()[0];
    let (_, pool) = fixture.world.pools(0).next().expect("it has one");
    let (rule, name) = (service.rule(Family::V4), pool.pool.clone());
    let create = move |azure: &mut Azure, _: u64| {
        let network = VirtualNetwork::Pool(vnet_id());
        let spec = PoolSpec { virtual_network: network, ..PoolSpec::default() };
        azure.model.add_pool("kubernetes", &name, &spec);
        azure.model.add_rule("kubernetes", &rule, &name, true);
    };
    fixture.fakes.azure.ask(create).await;
    eventually("the pool has its members", TEST_TIMEOUT, || async {
        let members = fixture.fakes.members("kubernetes", &pool.pool).await.unwrap_or_default();
        if members.len() == 2 { Ok(()) } else { Err(format!("{members:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_a_start_migrates_once_and_then_manages_pools() {
    let fixture = fixture(scale_set(), json!({})).await;
    let running = start(&fixture);
    running.wait_until_leading().await;
    assert_eq!(skus(&fixture).await, ["Standard", "Standard"]);
    let log = running.lines();
    let at = |found: &dyn Fn(&Value) -> bool| log.iter().position(found).expect("it is logged");
    let migrated = at(&|line| line["message"] == MIGRATED);
    assert!(
        migrated < at(&|line| line["message"] == "leadership"),
        "it joins the election afterwards: {log:?}"
    );
    assert!(log.iter().all(|line| line["level"] != "ERROR"), "{log:?}");
    is_managed(&fixture).await;
    end(running).await;

    let puts = fixture.puts().len();
    let running = start(&fixture);
    running.wait_until_leading().await;
    assert_eq!((lines(&running, NOTHING).len(), lines(&running, MIGRATED).len()), (1, 0));
    assert_eq!(fixture.puts().len(), puts, "a second start changes nothing");
    end(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_plan_is_logged_and_the_controller_leads() {
    let fixture = fixture(Topology::LockedDelete.cluster(), json!({})).await;
    let running = start(&fixture);
    running.wait_until_leading().await;
    let blocked = lines(&running, BLOCKED);
    assert!(!blocked.is_empty(), "{:?}", running.lines());
    for line in &blocked {
        assert_eq!(line["level"], "ERROR");
        for field in ["object", "finding", "remedy"] {
            assert!(line[field].as_str().is_some_and(|text| !text.is_empty()), "{line}");
        }
    }
    assert!(blocked.iter().any(|line| line["remedy"].as_str().is_some_and(|it| it.contains("lock"))));
    assert_eq!(skus(&fixture).await, ["Basic", "Basic"]);
    assert!(fixture.puts().is_empty());
    end(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_a_new_pod_is_ready_and_migrates_after_the_old_leader() {
    let fixture = fixture(scale_set(), json!({})).await;
    fixture.fakes.apply(vec![lease(OWN, "controller-1")]).await.expect("a good Lease");
    let running = start(&fixture);
    ready(&running).await;
    running.wait_for_log("the migration waits for a Lease").await;
    assert_eq!(lines(&running, "the migration waits for a Lease")[0]["holder"], "controller-1");
    assert!(fixture.puts().is_empty());
    assert_eq!(skus(&fixture).await, ["Basic", "Basic"]);
    fixture.fakes.apply(vec![lease(OWN, "")]).await.expect("a good Lease");
    running.wait_until_leading().await;
    assert_eq!(skus(&fixture).await, ["Standard", "Standard"]);
    end(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_one_of_two_replicas_migrates() {
    let fixture = fixture(scale_set(), json!({})).await;
    fixture.fakes.apply(vec![lease(OWN, "controller-1")]).await.expect("a good Lease");
    let replicas = ["one.log", "two.log"].map(|log| Running::start(&fixture, "run", &[], log));
    for replica in &replicas {
        replica.wait_for_log("the migration waits for a Lease").await;
    }
    fixture.fakes.apply(vec![lease(OWN, "")]).await.expect("a good Lease");
    eventually("both take part in the election", TEST_TIMEOUT, || async {
        let count = |message: &str| replicas.iter().map(|it| lines(it, message).len()).collect::<Vec<_>>();
        let (migrated, nothing) = (count(MIGRATED), count(NOTHING));
        let sums = [migrated[0] + nothing[0], migrated[1] + nothing[1]];
        if sums == [1, 1] { Ok(()) } else { Err(format!("{migrated:?} {nothing:?}")) }
    })
    .await;
    let [one, two] = replicas;
    assert_eq!(lines(&one, MIGRATED).len() + lines(&two, MIGRATED).len(), 1);
    end(one).await;
    end(two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_before_the_outage_releases_the_leases() {
    let fixture = fixture(scale_set(), json!({})).await;
    fixture.fakes.apply(vec![lease(SHARED, "cloud-controller-manager")]).await.expect("a good Lease");
    let running = start(&fixture);
    running.wait_for_log("cloud-controller-manager").await;
    running.signal(Signal::TERM);
    let ended = tokio::time::timeout(END_TIMEOUT, running.ended()).await.expect("it ends in time");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("ended before it interrupted traffic"), "{ended:?}");
    assert!(!ended.stderr.contains("\"ERROR\""), "{ended:?}");
    assert_eq!(skus(&fixture).await, ["Basic", "Basic"]);
    fixture.fakes.apply(vec![lease(SHARED, "")]).await.expect("a good Lease");
    both_leases_are_free(&fixture).await;

    let running = start(&fixture);
    running.wait_until_leading().await;
    assert_eq!(skus(&fixture).await, ["Standard", "Standard"], "the next start makes a new plan");
    end(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_process_continues_after_sigterm_in_the_outage() {
    let fixture = fixture(scale_set(), json!({})).await;
    let mut cut = cut_creations(&fixture).await;
    let running = start(&fixture);
    tokio::time::timeout(TEST_TIMEOUT, cut.recv())
        .await
        .expect("it gets this far")
        .expect("the hook is there");
    assert_eq!(skus(&fixture).await, Vec::<Value>::new(), "the Basic ones are deleted");
    running.signal(Signal::TERM);
    let ended = tokio::time::timeout(Duration::from_secs(40), running.ended()).await;
    let ended = ended.expect("it ends before Kubernetes kills it");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("the process stopped during the migration"), "{ended:?}");
    both_leases_are_free(&fixture).await;

    cut_nothing(&fixture).await;
    let running = start(&fixture);
    running.wait_until_leading().await;
    assert_eq!(lines(&running, MIGRATED).len(), 1, "{:?}", running.lines());
    assert_eq!(skus(&fixture).await, ["Standard", "Standard"]);
    is_managed(&fixture).await;
    end(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_process_continues_after_a_kill_in_the_outage() {
    let fixture = fixture(scale_set(), json!({})).await;
    let mut cut = cut_creations(&fixture).await;
    let mut running = start(&fixture);
    tokio::time::timeout(TEST_TIMEOUT, cut.recv())
        .await
        .expect("it gets this far")
        .expect("the hook is there");
    running.signal(Signal::KILL);
    running.child.wait().await.expect("it is our child");
    cut_nothing(&fixture).await;
    // Its hold of both Leases would expire after a minute.
    for name in [OWN, SHARED] {
        assert!(fixture.fakes.delete(Resource::Leases, "kube-system", name).await);
    }
    let running = start(&fixture);
    running.wait_until_leading().await;
    assert_eq!(skus(&fixture).await, ["Standard", "Standard"]);
    end(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_other_modes_log_the_plan_and_a_pause_stops_it() {
    let shown = "the plan of the migration from Basic load balancers; nothing is changed";
    for (more, arguments) in [(json!({}), &["--dry-run"][..]), (json!({ "mode": "observe" }), &[])] {
        let fixture = fixture(scale_set(), more).await;
        let running = Running::start(&fixture, "run", arguments, "controller.log");
        running.wait_for_log(shown).await;
        ready(&running).await;
        let plan = &lines(&running, shown)[0];
        assert!(plan["steps"].as_array().is_some_and(|steps| steps.len() > 5), "{plan}");
        assert_eq!(plan["blockers"], json!([]), "{plan}");
        end(running).await;
        assert!(fixture.puts().is_empty());
        assert_eq!(skus(&fixture).await, ["Basic", "Basic"]);
    }
    let fixture = fixture(scale_set(), json!({})).await;
    let pause = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": { "pause.everything": "" },
        "metadata": { "namespace": "kube-system", "name": OWN },
    });
    fixture.fakes.apply(vec![pause]).await.expect("a good ConfigMap");
    let running = start(&fixture);
    running.wait_until_leading().await;
    let message = "everything is paused, so Basic load balancers are not migrated";
    assert_eq!(lines(&running, message).len(), 1, "{:?}", running.lines());
    end(running).await;
    assert_eq!(skus(&fixture).await, ["Basic", "Basic"]);
}

/// Returns the private address of the internal frontend; `None`: it does not exist.
async fn internal_address(fixture: &Fixture) -> Option<String> {
    let find = |azure: &mut Azure, _: u64| {
        let ids = azure.model.ids();
        let lb = ids.iter().find(|id| id.ends_with("/loadBalancers/kubernetes-internal"))?;
        let body = azure.model.json(lb)?;
        let frontend = &body["properties"]["frontendIPConfigurations"][0];
        frontend["properties"]["privateIPAddress"].as_str().map(str::to_owned)
    };
    fixture.fakes.azure.ask(find).await
}

/// Deletes the network interface that uses an address.
async fn delete_other_interface(fixture: &Fixture, address: &str) {
    let name = format!("/networkInterfaces/rival-{}", address.replace('.', "-"));
    let leave = move |azure: &mut Azure, now: u64| {
        let id = azure.model.ids().into_iter().find(|id| id.ends_with(&name)).expect("it has the address");
        let path_and_query = format!("{id}?api-version=2025-05-01");
        let request =
            Request { method: Method::Delete, path_and_query, headers: Vec::new(), body: Vec::new() };
        match azure.model.handle(&request, now) {
            Reply::Answer(response) => assert!(response.status < 300, "{}", response.status),
            cut @ (Reply::Lost { .. } | Reply::Refused) => panic!("{cut:?}"),
        }
    };
    fixture.fakes.azure.ask(leave).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_in_use_is_logged_and_retried_at_start() {
    let fixture = fixture(scale_set(), json!({})).await;
    let address = internal_address(&fixture).await.expect("the internal load balancer is there");
    let ip = address.parse().expect("an address");
    fixture.fakes.azure.ask(move |azure, _| azure.model.plan_address_taker(ip, 0)).await;
    let running = start(&fixture);
    running.wait_until_leading().await;
    let lacking = lines(&running, "a frontend is not served after the migration from Basic load balancers");
    assert_eq!(lacking.len(), 1, "{:?}", running.lines());
    assert_eq!(lacking[0]["level"], "ERROR");
    let finding = lacking[0]["finding"].as_str().unwrap_or_default();
    assert!(finding.contains(&address) && finding.contains("in use"), "{lacking:?}");
    assert!(lacking[0]["remedy"].as_str().is_some_and(|it| it.contains("restart the controller")));
    assert!(lines(&running, MIGRATED).is_empty());
    assert_eq!(internal_address(&fixture).await, None);
    // The other frontends are served, and the controller fills pools.
    is_managed(&fixture).await;
    end(running).await;

    delete_other_interface(&fixture, &address).await;
    let running = start(&fixture);
    running.wait_until_leading().await;
    assert_eq!(lines(&running, MIGRATED).len(), 1, "{:?}", running.lines());
    assert_eq!(internal_address(&fixture).await, Some(address));
    end(running).await;
}

/// Upstream migrates when it reconciles a Service, also a deleted one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m14_a_deleted_service_touches_no_load_balancer() {
    let fixture = fixture(scale_set(), json!({ "migration": { "onStartup": false } })).await;
    let running = start(&fixture);
    running.wait_until_leading().await;
    let service = &fixture.world.services()[0];
    assert!(fixture.fakes.delete(Resource::Services, &service.namespace, &service.name).await);
    // It reads its load balancers every 5 s and compares them with the cluster's Services.
    let before = fixture.requests();
    eventually("the controller continues to read", TEST_TIMEOUT, || async {
        let more = fixture.requests() - before;
        if more >= 4 { Ok(()) } else { Err(format!("{more} requests")) }
    })
    .await;
    end(running).await;
    assert_eq!(skus(&fixture).await, ["Basic", "Basic"]);
    assert!(fixture.puts().is_empty());
    let serve = |azure: &mut Azure, _: u64| {
        let names = [0, 1].map(simulator::models::arm::topology::frontend_name);
        azure.model.frontend_serves("kubernetes", &names[0])
            && azure.model.frontend_serves("kubernetes-internal", &names[1])
    };
    assert!(fixture.fakes.azure.ask(serve).await, "both Services answer");
}
