//! Scenario files.

use super::disruption::leaving::{NoticeForm, Step};
use super::*;
use crate::azure::Azure;
use crate::expected_members::{ExpectedPool, expected_pools};
use crate::owner::Model as _;
use crate::world::World;
use simulator_models::arm::{
    ArmModel, ConcurrentWrite, FaultTarget, Method, Quotas, Reply, Request, Visibility,
};
use simulator_models::kube::{self, KubeModel};

/// Returns the actions of a scenario without an effect. There are two pools on one load balancer, which require their
/// members; `meanwhile` runs after each action.
fn unreached(text: &str, mut meanwhile: impl FnMut(&mut Azure, u64)) -> Vec<String> {
    let size = "services 2\nload-balancers 1\nnodes 6\n";
    let scenario = Scenario::read(&format!("{size}{text}")).expect("a scenario");
    let mut world = World::new(scenario.size, 1);
    let mut cluster = KubeModel::new(kube::Settings::default());
    let mut azure = Azure::new(ArmModel::new(scenario.arm.clone()));
    world.fill_cluster(&mut cluster, "2026-01-01T00:00:00Z", 0);
    world.fill_azure(&mut azure, &expected_pools(&cluster), &crate::vnet_id());
    for entry in scenario.timetable() {
        let scene = entry.action.begin(&mut world, "2026-01-01T00:00:00Z");
        scene.on_azure(&mut azure, entry.at_us);
        meanwhile(&mut azure, entry.at_us);
    }
    Reach::of_azure(&azure).missed(&scenario.timetable())
}

/// Reads the first pool, or sets one new member.
fn ask(azure: &mut Azure, method: Method, agent: &str, at_us: u64) -> Reply {
    let pool = azure.convergence.names().next().expect("a pool").clone();
    let member = json!({"name": "n", "properties": {"ipAddress": format!("10.9.0.{}", at_us / 100_000)}});
    let body = match method {
        Method::Put => json!({"properties": {"loadBalancerBackendAddresses": [member]}}).to_string(),
        Method::Get | Method::Head | Method::Post | Method::Patch | Method::Delete | Method::Other => {
            String::new()
        }
    };
    let request = Request {
        method,
        path_and_query: format!(
            "/subscriptions/{}/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/{}/\
             backendAddressPools/{}?api-version=2024-05-01",
            arm::Settings::default().subscription,
            pool.load_balancer,
            pool.pool
        ),
        headers: vec![("User-Agent".to_owned(), agent.to_owned())],
        body: body.into_bytes(),
    };
    azure.handle(&request, at_us)
}

fn put(azure: &mut Azure, at_us: u64) {
    ask(azure, Method::Put, "simulator", at_us);
}

fn get(azure: &mut Azure, at_us: u64) {
    ask(azure, Method::Get, "simulator", at_us);
}

#[test]
fn z2_a_quota_or_a_loss_without_an_effect_is_unreached() {
    let scenario = "at 1s arm quota 1 writes 9 reads in 5m\nat 2s arm quota none\n\
                 at 3s arm silent-loss 1\nat 4s arm silent-loss 0\nat 5s arm buckets 1 writes 1/s\n";
    let [buckets, quota, loss] =
        ["arm buckets 1 writes 1/s", "arm quota 1 writes 9 reads in 5m", "arm silent-loss 1"];
    assert_eq!(unreached(scenario, |_, _| ()), [buckets, quota, loss], "nothing is written");
    let reads = unreached(scenario, get);
    assert_eq!(reads, [buckets, quota, loss], "reads are not lost, and there may be nine of them");
    assert_eq!(unreached(scenario, put), [buckets, quota], "one write each is let through, and lost at 3 s");
    let twice = |azure: &mut Azure, at_us: u64| {
        put(azure, at_us);
        put(azure, at_us + 200_000);
    };
    assert_eq!(unreached(scenario, twice), Vec::<String>::new());
    let later = |azure: &mut Azure, at_us: u64| {
        if matches!(at_us, 2_000_000 | 4_000_000) {
            twice(azure, at_us);
        }
    };
    assert_eq!(unreached(scenario, later), [buckets, quota, loss], "they were over when a write came");
}

#[test]
fn z2_each_fault_of_a_line_must_be_met() {
    let scenario = "at 1s arm fault put 429 every 1 body pascal and any 502 every 1 body html\nat 2s arm fault none\n\
                 at 3s arm fault get 429 every 1 body pascal and any 502 every 2 body html\n";
    let [first, second] = [
        "arm fault put 429 every 1 body pascal and any 502 every 1 body html",
        "arm fault get 429 every 1 body pascal and any 502 every 2 body html",
    ];
    assert_eq!(unreached(scenario, |_, _| ()), [second, first]);
    assert_eq!(unreached(scenario, get), [second, first], "a web page at 1 s, the other at 3 s");
    assert_eq!(unreached(scenario, put), [second, first], "the gateway's own at 1 s, and nothing at 3 s");
    let both = |azure: &mut Azure, at_us: u64| {
        put(azure, at_us);
        get(azure, at_us + 200_000);
    };
    assert_eq!(unreached(scenario, both), [second], "the first of two faults at 3 s answers");
}

#[test]
fn z2_a_member_must_be_taken_from_a_pool_that_needed_it() {
    let scenario = "at 1s arm up\nat 2s others take a member of every 2\n";
    assert_eq!(unreached(scenario, |_, _| ()), Vec::<String>::new());
    let unneeded = |azure: &mut Azure, at_us: u64| {
        let pools: Vec<_> = azure.convergence.names().cloned().collect();
        azure.want(pools.into_iter().map(|pool| (pool, ExpectedPool::default())).collect(), at_us);
    };
    let words = ["others take a member of every 2"];
    assert_eq!(unreached(scenario, unneeded), words, "none is needed");
    let locked = format!("arm operation 1m\n{scenario}");
    let lock = |azure: &mut Azure, at_us: u64| {
        let other = azure.convergence.names().nth(1).expect("two pools").clone();
        azure.foreign_put(&other.load_balancer, &other.pool, &[], at_us);
    };
    assert_eq!(unreached(&locked, lock), words, "an operation runs on the load balancer");
    let at_end = format!("arm operation 5s\narm visible at-end\n{scenario}");
    assert_eq!(unreached(&at_end, |_, _| ()), words, "it is still there");
    let ends = |azure: &mut Azure, at_us: u64| azure.tick(at_us * 9);
    assert_eq!(unreached(&at_end, ends), Vec::<String>::new(), "the operation has ended");
}

#[test]
fn z2_unread_clocks_and_missing_processes_have_no_effect() {
    let scenario = "at 1s clocks jump 1h\n";
    assert_eq!(unreached(scenario, |_, _| ()), ["clocks jump 1h"]);
    let manager = |azure: &mut Azure, at_us: u64| {
        ask(azure, Method::Get, "kubernetes-cloudprovider/v1.36.2", at_us);
    };
    assert_eq!(unreached(scenario, manager), ["clocks jump 1h"], "that was not the controller");
    assert_eq!(unreached(scenario, get), Vec::<String>::new());
    let scenario = "at 1s controller stands still\nat 2s controller goes on\nat 3s controller files 9\n";
    let words = ["controller files 9", "controller goes on", "controller stands still"];
    assert_eq!(unreached(scenario, get), words);
}

#[test]
fn z1_a_change_is_answered_200_or_201_and_nothing_else() {
    for status in [200, 201] {
        let scenario = Scenario::read(&format!("arm update-status {status}\n")).expect("a scenario");
        assert_eq!(scenario.arm.update_status, status);
    }
    for line in ["arm update-status 202", "at 1s arm update-status 404", "arm update-status created"] {
        let bad = Scenario::read(line).expect_err(line);
        assert_eq!(
            bad.to_string(),
            format!("line 1: `{line}`: expected 200 or 201, the statuses of a PUT that changes a pool")
        );
    }
}

#[test]
fn z2_every_named_scenario_can_be_read_and_has_a_summary() {
    for (name, text) in NAMED {
        let scenario =
            Scenario::named(name).expect("it has this name").unwrap_or_else(|bad| panic!("{name}: {bad}"));
        assert_eq!(scenario.name.as_deref(), Some(name));
        assert!(text.starts_with("# "), "{name} begins with its summary");
        let rolls = matches!(scenario.pattern, Pattern::Rollout { .. } | Pattern::Recreate { .. });
        assert!(rolls || !scenario.timeline.is_empty() || !scenario.repeats.is_empty(), "{name}");
    }
    assert!(Scenario::named("nobody-knows").is_none());
}

#[test]
fn z2_a_scenario_sets_sizes_settings_and_a_timetable() {
    let text = "# A scenario.\nservices 12\nload-balancers 3   # few\ndual-stack\narm operation 2s..8s\n\
                arm visible at-end\nccm updater\ncontroller members.removalDelay 5s\n\
                pods rollout within 2m step 10s\nsettle 1m\n\
                at 40s arm up\nat 10s arm down\nat 1s arm fault any 503 every 2 and put lost every 3\n";
    let scenario = Scenario::read(text).expect("a scenario");
    assert_eq!(
        (scenario.size.services, scenario.size.load_balancers, scenario.size.dual_stack),
        (12, 3, true)
    );
    assert_eq!(scenario.arm.operation, Some(Latency::LogNormal { median_us: 2_000_000, p95_us: 8_000_000 }));
    assert_eq!(scenario.arm.visibility, Visibility::AtEnd);
    assert_eq!(scenario.ccm_mode, CcmMode::ManagerAndUpdater);
    assert_eq!(scenario.controller, json!({"members": {"removalDelay": "5s"}}));
    assert_eq!(scenario.pattern, Pattern::Rollout { within_us: 120_000_000, step_us: 10_000_000 });
    let words: Vec<&str> = scenario.timeline.iter().map(|entry| &*entry.words).collect();
    assert_eq!(words, ["arm fault any 503 every 2 and put lost every 3", "arm down", "arm up"]);
    let Action::Arm(ModelSetting::Faults(faults)) = &scenario.timeline[0].action else { panic!("faults") };
    assert_eq!((faults.len(), faults[0].target), (2, FaultTarget::Any));
}

#[test]
fn z2_an_invalid_line_is_rejected_with_its_number() {
    for (text, line) in [
        ("services 3\npods sometimes\n", 2),
        ("nodes 0\n", 1),
        ("at soon arm down\n", 1),
        ("at 1s arm sideways\n", 1),
        ("colour blue\n", 1),
        ("ccm perhaps\n", 1),
        ("at 1s nodes add some\n", 1),
        ("at 1s nodes multiply 3\n", 1),
        ("at 1s lists empty pods\n", 1),
        ("at 1s controller files few\n", 1),
        ("at 1s clocks jump\n", 1),
        ("expect log ERROR\n", 1),
        ("log empty\n", 1),
        ("expect held breaker often\n", 1),
        ("at 1s nodes fail most\n", 1),
        ("at 1s nodes taint\n", 1),
        ("at 1s nodes taint some key\n", 1),
        ("at 1s nodes preempt 3\n", 1),
        ("at 1s nodes preempt 3 within soon\n", 1),
        ("at 1s nodes preempt 3 within 9s as letter\n", 1),
        ("at 1s nodes preempt 3 within 9s notice 30s as event\n", 1),
        ("at 1s nodes recreate 2 other-addresses\n", 1),
        ("at 1s others set down a member\n", 1),
        ("at 1s controller restart\n", 1),
        ("expect nodes reached most\n", 1),
        ("arm concurrent-write supersede 2\n", 1),
        ("arm lock-retry-after 3 perhaps\n", 1),
        ("arm buckets 3 writes\n", 1),
        ("arm buckets 3 writes 2\n", 1),
        ("arm buckets 3 polls 2/s\n", 1),
    ] {
        let bad = Scenario::read(text).expect_err(text);
        assert_eq!(bad.line, line, "{bad}");
        assert!(!bad.expected.is_empty() && bad.to_string().contains("expected"), "{bad}");
    }
}

#[test]
fn z1_a_scenario_reaches_locks_and_both_quotas_of_the_model() {
    let text = "arm down resets-flows\narm concurrent-write supersede 0.25\narm lock-retry-after 14 no-header\n\
                arm buckets 20 writes 2/s 30 reads 3/s\n";
    let scenario = Scenario::read(text).expect("a scenario");
    assert_eq!(scenario.arm.concurrent_write, ConcurrentWrite::Mixed { supersede: 0.25 });
    assert_eq!((scenario.arm.lock_retry_after_s, scenario.arm.lock_retry_after_header), (14, false));
    assert!(scenario.arm.down_resets_flows);
    let expected = Quotas {
        read_bucket: 30,
        read_refill_per_s: 3,
        write_bucket: 20,
        write_refill_per_s: 2,
        provider_reads: u64::MAX,
        provider_writes: u64::MAX,
        ..Quotas::default()
    };
    assert_eq!(scenario.arm.quotas, Some(expected), "the network provider has no limit");

    let later = "arm quota 5 writes 50 reads in 1m\nat 1s arm buckets 4 deletes 1/s\nat 2s arm lock-retry-after 9\n\
                 at 3s arm quota 7 writes 70 reads in 2m\nat 4s arm quota none\n";
    let scenario = Scenario::read(later).expect("a scenario").faster(4);
    let mut arm = scenario.arm;
    for (entry, quotas) in scenario.timeline.into_iter().zip([
        Some((4, 4, 5, 15)),
        Some((4, 4, 5, 15)),
        Some((4, 4, 7, 30)),
        None,
    ]) {
        let Action::Arm(setting) = entry.action else { panic!("a setting") };
        setting.turn(&mut arm);
        let shown = |quotas: Quotas| {
            let Quotas { delete_bucket, delete_refill_per_s, provider_writes, provider_window_s, .. } =
                quotas;
            (delete_bucket, delete_refill_per_s, provider_writes, provider_window_s)
        };
        assert_eq!(arm.quotas.map(shown), quotas, "{}: omitted values stay", entry.words);
    }
    assert_eq!((arm.lock_retry_after_s, arm.lock_retry_after_header), (3, true));
}

#[test]
fn z2_a_faster_scenario_divides_its_times() {
    let text = "arm operation 6s\narm retry-after 10\npods churn 2/s for 60s\nsettle 90s\n\
                at 30s arm get-latency 300ms\nat 45s arm fault put 429 every 2 retry-after 4\n";
    let scenario = Scenario::read(text).expect("a scenario").faster(3);
    assert_eq!(scenario.arm.operation, Some(Latency::Fixed { us: 2_000_000 }));
    assert_eq!(scenario.arm.operation_retry_after_s, Some(4));
    assert_eq!(scenario.pattern, Pattern::Churn { rate: 6.0, duration_us: 20_000_000 });
    assert_eq!((scenario.settle.as_secs(), scenario.timeline[0].at_us), (30, 10_000_000));
    assert_eq!(
        scenario.timeline[0].action,
        Action::Arm(ModelSetting::GetLatency(Latency::Fixed { us: 100_000 }))
    );
    let Action::Arm(ModelSetting::Faults(faults)) = &scenario.timeline[1].action else { panic!("faults") };
    let arm::FaultEffect::Answer(answer) = &faults[0].effect else { panic!("an answer") };
    assert_eq!(answer.retry_after.as_deref(), Some("2"));
    assert_eq!(scenario.controller["batching"]["minInterval"], "1666ms");
}

#[test]
fn z2_repeated_actions_run_while_services_change_their_pods() {
    let text = "pods rollout within 70s step 1s\nat 25s arm down\nevery 20s a service changes\n";
    let scenario = Scenario::read(text).expect("a scenario");
    let times: Vec<(u64, Action)> =
        scenario.timetable().into_iter().map(|one| (one.at_us / 1_000_000, one.action)).collect();
    let touch = |at, number| (at, Action::TouchService(number));
    assert_eq!(times, [touch(20, 1), (25, Action::ArmDown(true)), touch(40, 2), touch(60, 3)]);
    assert!(Scenario::read("every 0 a service changes\n").is_err());
}

#[test]
fn z2_a_scenario_has_actions_for_each_kind_of_object() {
    let text = "log full\nexpect log ERROR out of ink   # as told\nexpect removals stopped\nexpect held breaker 7\npods recreate within 1m step 4s\n\
                at 1s nodes label 3 some/key=value\nat 2s nodes delete 4 oldest\nat 3s lists empty nodes\n\
                at 4s clocks jump back 90s\nat 5s controller files 7\nat 6s controller goes on\n\
                at 7s arm fault put 429 every 2 retry-after date+9\n";
    let scenario = Scenario::read(text).expect("a scenario");
    assert_eq!((scenario.log_full, scenario.errors.as_slice()), (true, &["out of ink".to_owned()][..]));
    let held = vec![("breaker".to_owned(), 7)];
    assert_eq!(
        (&scenario.guarded, Scenario::default().guarded.stopped),
        (&Guarded { stopped: true, held }, false)
    );
    let faster = scenario.clone().faster(4);
    assert_eq!(faster.pattern, Pattern::Recreate { within_us: 15_000_000, step_us: 1_000_000 });
    let (key, value) = ("some/key".to_owned(), "value".to_owned());
    let expected = [
        Action::Disruption(Disruption::LabelNodes { count: 3, key, value }),
        Action::Disruption(Disruption::LoseNodes { count: 4, oldest: true }),
        Action::ListsEmpty(vec![simulator_models::kube::Resource::Nodes]),
        Action::ClocksJump(-90),
        Action::FilesLimit(Some(7)),
        Action::StandStill(false),
    ];
    let actions: Vec<Action> = faster.timeline.iter().map(|entry| entry.action.clone()).collect();
    assert_eq!(actions[..6], expected, "none of them is changed by the speed");
    let Action::Arm(ModelSetting::Faults(faults)) = &actions[6] else { panic!("faults") };
    let arm::FaultEffect::Answer(answer) = &faults[0].effect else { panic!("an answer") };
    assert_eq!(answer.retry_after.as_deref(), Some("date+3"));
}

#[test]
fn z2_a_scenario_can_drain_and_return_nodes() {
    let text = "expect nodes reached 7\nat 1s nodes taint 3 some/key=value\nat 2s nodes taint 1 some/key\n\
                at 3s nodes untaint some/key\nat 4s nodes stop 2\nat 5s nodes start\n\
                at 6s nodes recreate 2 same-addresses\nat 7s nodes recreate 2\n\
                at 8s others set down a member of every 5\nat 9s controller restarts\n";
    let scenario = Scenario::read(text).expect("a scenario");
    assert_eq!(scenario.reached, Some(7));
    let (key, none) = ("some/key".to_owned(), String::new());
    let expected = [
        NodeDisruption::Taint { count: 3, key: key.clone(), value: "value".to_owned() },
        NodeDisruption::Taint { count: 1, key: key.clone(), value: none },
        NodeDisruption::Untaint(key),
        NodeDisruption::Stop(2),
        NodeDisruption::Start,
        NodeDisruption::Recreate { count: 2, same_addresses: true },
        NodeDisruption::Recreate { count: 2, same_addresses: false },
    ];
    let actions: Vec<Action> = scenario.timetable().into_iter().map(|entry| entry.action).collect();
    assert_eq!(actions[..7], expected.map(|action| Action::Disruption(Disruption::NodeDisruption(action))));
    assert_eq!(actions[7..], [Action::SetDown(5), Action::Restart]);
}

#[test]
fn z2_evictions_are_spread_evenly_with_notice_and_end() {
    let text = "at 10s nodes preempt 2 within 20s as condition notice 4s\nat 12s nodes preempt 1 within 0\n";
    let scenario = Scenario::read(text).expect("a scenario");
    let steps = |scenario: &Scenario| -> Vec<(u64, usize, Step)> {
        let step = |entry: TimelineEntry| {
            let Action::Disruption(Disruption::NodeDisruption(NodeDisruption::Evict(number, step))) =
                entry.action
            else {
                panic!("an eviction has only its own steps");
            };
            (entry.at_us / 1_000_000, number, step)
        };
        scenario.timetable().into_iter().map(step).collect()
    };
    let notice = |form, seconds: u64| Step::Notice { form, notice_us: seconds * 1_000_000 };
    let expected = [
        (10, 0, notice(NoticeForm::Condition, 4)),
        (12, 2, notice(NoticeForm::Event, 30)),
        (14, 0, Step::NotReady),
        (20, 1, notice(NoticeForm::Condition, 4)),
        (24, 1, Step::NotReady),
        (29, 0, Step::Gone),
        (39, 1, Step::Gone),
        (42, 2, Step::NotReady),
        (57, 2, Step::Gone),
    ];
    assert_eq!(steps(&scenario), expected);
    let faster: Vec<u64> = steps(&scenario.faster(2)).into_iter().map(|(at, ..)| at).collect();
    assert_eq!(faster, [5, 6, 7, 10, 12, 14, 19, 21, 28]);
    let form = |word: &str| {
        let scenario =
            Scenario::read(&format!("at 1s nodes preempt 1 within 0 {word}\n")).expect("a scenario");
        steps(&scenario)[0].2
    };
    assert_eq!(form("as event-v1"), notice(NoticeForm::EventV1, 30));
    assert_eq!(
        (form("as event"), form("notice 9s")),
        (notice(NoticeForm::Event, 30), notice(NoticeForm::Event, 9))
    );
}

#[test]
fn z2_a_member_must_have_been_set_down_by_another_client() {
    let scenario = "at 1s arm up\nat 2s others set down a member of every 2\n";
    assert_eq!(unreached(scenario, |_, _| ()), Vec::<String>::new());
    let locked = format!("arm operation 1m\n{scenario}");
    let lock = |azure: &mut Azure, at_us: u64| {
        let other = azure.convergence.names().nth(1).expect("two pools").clone();
        azure.foreign_put(&other.load_balancer, &other.pool, &[], at_us);
    };
    assert_eq!(unreached(&locked, lock), ["others set down a member of every 2"], "an operation runs");
    let down = |azure: &mut Azure, at_us: u64| {
        if at_us > 1_000_000 {
            let pool = azure.convergence.names().next().expect("a pool").clone();
            let members = azure.model.members(&pool.load_balancer, &pool.pool).expect("its members");
            let first = members.iter().min_by_key(|member| member.ip.parse::<std::net::IpAddr>().ok());
            assert_eq!(first.map(|member| member.admin_state.as_str()), Some("Down"));
            assert_eq!(members.iter().filter(|member| member.admin_state == "Down").count(), 1);
        }
    };
    assert_eq!(unreached(scenario, down), Vec::<String>::new());
}

#[test]
fn z2_the_documentation_lists_exactly_the_named_scenarios() {
    let text = include_str!("../../../docs/simulator.md");
    let (_, table) = text.split_once("| name | what happens |").expect("the table of names");
    let table = table.split("\n\n").next().unwrap_or_default();
    let cells = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let named: std::collections::BTreeSet<&str> =
        cells.flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches('`')).collect();
    assert_eq!(named, NAMED.iter().map(|(name, _)| *name).collect());
}
