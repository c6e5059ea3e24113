//! `check` and an export with pools that are filled from control planes: they wait for each source, and name the
//! blocking ones.

use serde_json::{Value, json};
use simulator::CLUSTER_NAME;
use simulator::control_plane::{Bad, Code, ControlPlane, HealthStatus, Kind, endpoints};
use simulator::models::arm::{PoolSpec, VirtualNetwork};
use tempfile::TempDir;

use super::check::{Findings, judged};
use super::fixture::{Ended, Fixture};
use crate::xds::stage::{control_plane, endpoints_at, locality, server, write_bootstrap};

const BEFORE: &str = "10.9.0.1";
const GOOD: &str = "10.1.0.1";

/// A pool of the configuration.
type Listed<'a> = (&'a str, &'a str, &'a str);

/// A fixture with a Service in sync, and with these pools in the configuration.
struct TestEnvironment {
    fixture: Fixture,
    _folder: TempDir,
}

impl TestEnvironment {
    async fn new(servers: &[Value], listed: &[Listed<'_>]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let pools = listed
            .iter()
            .map(|(lb, pool, source)| json!({ "loadBalancer": lb, "backendPool": pool, "source": source }));
        let keys = json!({
            "members": { "removalDelay": "0s" },
            "batching": { "quietPeriod": "50ms" },
            "pools": pools.collect::<Vec<_>>(),
            "xds": { "bootstrap": write_bootstrap(&folder, servers) },
        });
        Self { fixture: Fixture::with(1, &keys).await, _folder: folder }
    }

    /// Creates these pools, with a rule that belongs to no Service.
    async fn with_pools(self, pools: &[&str]) -> Self {
        self.with_pools_and_members(pools, &[BEFORE]).await
    }

    /// Creates these pools with these members, and with a rule that belongs to no Service.
    async fn with_pools_and_members(self, pools: &[&str], members: &[&str]) -> Self {
        for name in pools {
            let spec = PoolSpec {
                virtual_network: VirtualNetwork::Pool(simulator::vnet_id()),
                members: members.iter().map(|ip| (ip.replace('.', "-"), (*ip).to_owned())).collect(),
                ..PoolSpec::default()
            };
            let name = (*name).to_owned();
            let add = move |azure: &mut simulator::Azure, _: u64| {
                azure.model.add_pool(CLUSTER_NAME, &name, &spec);
                azure.model.add_rule(CLUSTER_NAME, &format!("edge-{name}"), &name, true);
            };
            self.fixture.fakes.azure.ask(add).await;
        }
        self
    }

    /// Invalidates the proof of ownership of a pool.
    async fn invalidate_proof(&self, pool: &str) {
        let pool = pool.to_owned();
        let add = move |azure: &mut simulator::Azure, _: u64| {
            azure.model.add_inbound_nat_rule(CLUSTER_NAME, "nat-rule", &pool);
        };
        self.fixture.fakes.azure.ask(add).await;
    }

    async fn check(&self, within: &str) -> Findings {
        let ended = self.fixture.run("check", &["--output", "json", "--within", within]).await;
        self.fixture.assert_nothing_written().await;
        judged(&ended)
    }

    async fn export(&self, within: &str, form: &str) -> Ended {
        let flags = ["--dry-run", "--export", "-", "--until-synced", "--within", within, "--output", form];
        let ended = self.fixture.run("run", &flags).await;
        self.fixture.assert_nothing_written().await;
        ended
    }
}

/// Returns a control plane with valid, invalid and reported endpoints, and no others.
async fn mixed() -> ControlPlane {
    let plane = control_plane().await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[GOOD])).await;
    plane.set_bad(Kind::Endpoints, "bad", Bad::Content).await;
    plane.fail(Kind::Endpoints, "denied", Code::PermissionDenied, "not for you").await;
    plane
}

const MIXED: [Listed<'static>; 7] = [
    (CLUSTER_NAME, "web", "eds:web"),
    (CLUSTER_NAME, "bad", "eds:bad"),
    (CLUSTER_NAME, "denied", "eds:denied"),
    (CLUSTER_NAME, "nat", "eds:web"),
    (CLUSTER_NAME, "misspelt", "eds:web"),
    ("nowhere", "web", "eds:web"),
    (CLUSTER_NAME, "late", "eds:late"),
];

const MADE: [&str; 5] = ["web", "bad", "denied", "nat", "late"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_check_of_working_sources_and_pools_finds_no_problem() {
    let plane = mixed().await;
    let env = TestEnvironment::new(&[server(&plane, &[])], &MIXED[..1]).await.with_pools(&["web"]).await;
    let findings = env.check("20s").await;
    assert_eq!(findings.bad(), Vec::<String>::new());
    findings.must_have("sources", "ok", "1 of 1 sources are in use: eds:web");
    findings.must_have("pools", "ok", "2 pools are proven to belong to managed Services, 0 are not");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_x3_check_waits_for_each_source_and_names_obstacles() {
    let plane = mixed().await;
    let env = TestEnvironment::new(&[server(&plane, &[])], &MIXED).await.with_pools(&MADE).await;
    env.invalidate_proof("nat").await;
    // A missing resource times out after 15 s, and its state is known then.
    let findings = env.check("60s").await;
    assert_eq!(findings.of("candidates", "problem"), "");
    findings.must_have("sources", "ok", "1 of 4 sources are in use: eds:web");
    findings.must_have("sources", "problem", "eds:bad: ");
    findings.must_have("sources", "problem", "not for you");
    findings.must_have("sources", "problem", "eds:late: ");
    assert_eq!(findings.of("sources", "problem").lines().count(), 3);
    findings.must_have("pools", "ok", "2 pools are proven to belong to managed Services, 3 are not");
    findings.must_have(
        "pools",
        "problem",
        "inbound_nat_rule: 1 pools of `pools` are not written: kubernetes/nat (eds:web)",
    );
    let misspelt = "pool_not_found: 1 pools of `pools` are not written: kubernetes/misspelt (eds:web): load balancer \
                    kubernetes has no such backend pool: create it";
    findings.must_have("pools", "problem", misspelt);
    findings.must_have(
        "pools",
        "problem",
        "load_balancer_not_found: 1 pools of `pools` are not written: nowhere/web",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_check_names_sources_without_an_answer_in_time() {
    let plane = mixed().await;
    let late = [MIXED[0], MIXED[6]];
    let env = TestEnvironment::new(&[server(&plane, &[])], &late).await.with_pools(&MADE).await;
    let findings = env.check("4s").await;
    findings.must_have(
        "candidates",
        "problem",
        "not everything was compared in time: no response about eds:late",
    );
    findings.must_have("sources", "problem", "eds:late: nothing was received from it");
    findings.must_have("sources", "ok", "1 of 2 sources are in use: eds:web");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_check_reports_an_unreachable_control_plane() {
    // The listener is closed.
    let closed = {
        let plane = control_plane().await;
        server(&plane, &[])
    };
    let env = TestEnvironment::new(&[closed], &MIXED[..1]).await.with_pools(&["web"]).await;
    let findings = env.check("3s").await;
    findings.must_have("sources", "problem", "eds:web: xDS server 127.0.0.1:");
    assert_eq!(findings.of("sources", "problem").matches("eds:web").count(), 1, "it is reported once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_c4_an_export_has_each_source_and_unwritten_listed_pool() {
    let plane = mixed().await;
    let env = TestEnvironment::new(&[server(&plane, &[])], &MIXED[..6]).await.with_pools(&MADE).await;
    env.invalidate_proof("nat").await;
    let ended = env.export("30s", "json").await;
    let plan = ended.json();
    assert_eq!((ended.code, &plan["complete"]), (Some(3), &json!(true)), "{}\n{plan:#}", ended.stderr);
    let web = plan["pools"].as_array().expect("pools").iter().find(|pool| pool["backendPool"] == "web");
    assert_eq!(web.map(|pool| (&pool["add"], &pool["source"])), Some((&json!([GOOD]), &json!("eds:web"))));
    let refused: Vec<(&Value, &Value, &Value, &Value)> = plan["notManageable"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| (&it["backendPool"], &it["service"], &it["source"], &it["reason"]))
        .collect();
    let (none, source) = (json!(null), json!("eds:web"));
    let expected =
        [("misspelt", "pool_not_found"), ("nat", "inbound_nat_rule"), ("web", "load_balancer_not_found")]
            .map(|(pool, reason)| (json!(pool), json!(reason)));
    assert_eq!(refused, expected.each_ref().map(|(pool, reason)| (pool, &none, &source, reason)));
    let summary = &plan["summary"];
    assert_eq!((&summary["notManageable"], &summary["unknownSources"]), (&json!(3), &json!(2)));
    let sources = plan["sources"].as_array().expect("sources");
    let assigned: Vec<_> =
        sources.iter().map(|it| (&it["source"], &it["assigned"], it["error"].is_string())).collect();
    let (bad, denied, web) = (json!("eds:bad"), json!("eds:denied"), json!("eds:web"));
    let (unknown, usable) = (json!("unknown"), json!("usable"));
    assert_eq!(assigned, [(&bad, &unknown, true), (&denied, &unknown, true), (&web, &usable, false)]);
    let listed = json!([{ "loadBalancer": CLUSTER_NAME, "backendPool": "bad" }]);
    assert_eq!(sources[0]["pools"], listed);

    let text = env.export("30s", "text").await.stdout;
    for words in [
        "3 not manageable; 0 Services without a pool; 2 sources unknown",
        "kubernetes/misspelt (eds:web)\n  not written: load balancer kubernetes has no such backend pool",
        "eds:denied (kubernetes/denied)\n  its pools would be left as they are: ",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_c4_an_export_shows_a_write_that_only_sets_a_member_down() {
    let plane = control_plane().await;
    let (serves, drains) = ((GOOD, HealthStatus::Healthy), (BEFORE, HealthStatus::Draining));
    plane.set(Kind::Endpoints, "web", endpoints("web", [locality(0, &[serves, drains])])).await;
    let env = TestEnvironment::new(&[server(&plane, &[])], &MIXED[..1])
        .await
        .with_pools_and_members(&["web"], &[GOOD, BEFORE])
        .await;
    let ended = env.export("30s", "json").await;
    let plan = ended.json();
    assert_eq!((ended.code, &plan["complete"]), (Some(3), &json!(true)), "{}\n{plan:#}", ended.stderr);
    let summary = &plan["summary"];
    let counted = ["wouldChange", "add", "remove", "down", "restore"].map(|name| &summary[name]);
    assert_eq!(counted, [&json!(1), &json!(0), &json!(0), &json!(1), &json!(0)]);
    let web = plan["pools"].as_array().expect("pools").iter().find(|pool| pool["backendPool"] == "web");
    assert_eq!(web.map(|pool| (&pool["down"], &pool["restore"])), Some((&json!([BEFORE]), &json!([]))));

    let text = env.export("30s", "text").await.stdout;
    for words in [
        "1 would change (add 0, remove 0, set 1 Down, set 0 back)",
        "set 10.9.0.1 Down: eds:web reports it as draining",
        "keep 10.9.0.1: it may stay, because eds:web reports it as draining",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_c4_an_export_fails_without_an_answer_of_a_source() {
    let plane = mixed().await;
    let late = [MIXED[0], MIXED[6]];
    let env = TestEnvironment::new(&[server(&plane, &[])], &late).await.with_pools(&MADE).await;
    let ended = env.export("4s", "text").await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let message = "not everything was compared within 4s: no response about eds:late was received";
    assert!(ended.stderr.contains(message), "{}", ended.stderr);
    let section =
        "eds:late (kubernetes/late)\n  its pools would be left as they are: nothing was received from it";
    assert!(
        ended.stdout.contains("incomplete: not everything was compared") && ended.stdout.contains(section),
        "{}",
        ended.stdout
    );
}
