//! Tests that no machine can delay the Leader: all others are blocked for 40 s, nearly as long as a term lasts without
//! a renewal.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use actors::shell::Ping;
use config::{CloudSource, Config};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use simulator::{Fakes, FileOptions, Files, Settings, Size, World};
use tokio::time::Instant;

use super::{
    Clock, Instance, Listeners, Options, actor_dependencies, in_system, kubernetes_client, machines, params,
    recorder, wiring,
};
use crate::telemetry::Levels;
use crate::wiring::ElectionStart;

/// The time for which the machines are blocked.
const BLOCKED: Duration = Duration::from_secs(40);
/// The minimum number of renewals in that time: one every 5 s, minus some for a busy machine.
const RENEWALS: usize = 5;
/// The interval between reads of the Lease.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The time for the process to become leader.
const LEADER_TIMEOUT: Duration = Duration::from_secs(120);
/// The time for a machine to answer, as for `/livez`.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the holder of a Lease, and the time of its last renewal.
async fn lease_holder(leases: &Api<Lease>, name: &str) -> Option<(String, String)> {
    let spec = leases.get_opt(name).await.expect("the API server answers")?.spec?;
    Some((spec.holder_identity?, spec.renew_time?.0.to_string()))
}

#[test]
fn w8_blocked_machines_delay_no_renewal_and_fail_livez() {
    in_system(async {
        let fakes = Fakes::start(Settings::default()).await.expect("loopback has free ports");
        let world = World::new(Size { services: 2, nodes: 2, ..Size::default() }, 1);
        world.populate(&fakes, &simulator::vnet_id()).await;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let anywhere = ([127, 0, 0, 1], 0).into();
        let files = FileOptions { health: anywhere, admin: anywhere, overlay: None };
        let files = Files::write(folder.path(), &fakes, &world, &files).expect("the folder can be written");
        let cloud = CloudSource::from(config::read(&files.cloud_config).expect("it is there"));
        let controller = config::read(&files.controller).expect("it is there");
        let config = Config::load(cloud, controller, &BTreeMap::new()).expect("it is valid").config;
        let kubeconfig = Some(files.kubeconfig.clone());
        let (levels, election) = (Levels::none(), ElectionStart::Immediate);
        let options = Options { config, kubeconfig, dry_run: false, levels, restoring: None, election };

        let clock = Clock::start();
        let client = kubernetes_client(options.kubeconfig.as_ref()).await.expect("it is valid");
        let azure = arm::Client::new(params::arm(&options.config, clock)).expect("it is valid");
        let metrics = recorder::install().expect("no other test of this program installs one");
        let instance = Instance { identity: "this-one".into(), dry_run: false };
        let machine_params = machines(&options, &instance, Listeners::Absent, None);
        let lease = params::leases(&options.config).own;
        let leases: Api<Lease> = Api::namespaced(client.clone(), &lease.namespace);
        let running = wiring::start(actor_dependencies(
            &options,
            clock,
            machine_params,
            (client, azure, None),
            metrics,
        ));

        let started = Instant::now();
        while lease_holder(&leases, &lease.name).await.is_none_or(|(holder, _)| holder != "this-one") {
            assert!(started.elapsed() < LEADER_TIMEOUT, "there is no leader");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let (begun, begins) = tokio::sync::oneshot::channel();
        #[expect(clippy::disallowed_methods, reason = "the thread must block")]
        let spawned = running.machines.spawn_fn(move || {
            begun.send(()).expect("the test waits");
            std::thread::sleep(BLOCKED);
        });
        assert!(spawned);
        begins.await.expect("the thread runs");
        let (started, mut renewals) = (Instant::now(), BTreeSet::new());
        while started.elapsed() + PING_TIMEOUT < BLOCKED {
            let (holder, renewed) = lease_holder(&leases, &lease.name).await.expect("it is held");
            assert_eq!(holder, "this-one");
            renewals.insert(renewed);
            let pings = running.liveness_targets.0.iter().map(|(name, machine)| async move {
                let answered = tokio::time::timeout(PING_TIMEOUT, machine.send(Ping)).await.is_ok();
                (*name, answered)
            });
            let alive: Vec<&str> = futures::future::join_all(pings)
                .await
                .into_iter()
                .filter_map(|(name, answered)| answered.then_some(name))
                .collect();
            assert_eq!(alive, ["leader"], "all others are blocked, and /livez reports it");
        }
        assert!(renewals.len() >= RENEWALS, "{} renewals in {BLOCKED:?}: {renewals:?}", renewals.len());
    });
}
