//! Scenarios as text files, run against the real binary over loopback HTTP, with the simulator's models of ARM and the
//! API server as its world: the language of docs/simulator.md, with actions and expectations that name single objects.
//! Each scenario has its own fake servers, configuration and process; each file of `tests/scenarios/*.txt`
//! is a test: `cargo test --test main scenarios::files::d1_paused`.
//!
//! The clock is real. Lines run one after another: `given` before the controller starts; `at 1.5s` this long after the
//! controller became ready, or immediately if that time has passed; `after 1s` this long after the previous line;
//! `expect` waits until the condition holds. Absence is checked against the timestamps that the fake servers record. No
//! test here may depend on the speed of the machine.
//!
//! A Service `web` is `shop/web` with the pool `shop-web` (and `shop-web-ipv6`); `team.web` is `team/web`. Nodes are
//! `node-1` with the address 10.0.0.1 (and fd00::1) and so on. In lists of members, an address is written literally,
//! and `no-members` is the empty list. Lists of nodes, such as those with records, use the same word. A pool is named
//! `<pool>`, or `<load balancer>/<pool>` if several load balancers have a pool of this name, or none has yet.
//!
//! ```text
//! # A comment. The first one names the rules that the scenario tests.
//! given nodes 3 [dual]                            given load balancers kubernetes lb-2
//! given load balancer single prod                 and prod-internal, NIC-based; no Service has a pool
//! given service web [dual] on kubernetes hosted node-1     with rules, and pools that are in sync
//! given pool shop-web holds node-9                given controller batching.quietPeriod 2s
//! given dry run                                   given timeout 2s
//! given <any change>
//!
//! slice web[/2] [IPv4|IPv6] <endpoints>      hosted, not-ready or terminating, each with nodes; nowhere; empty
//! delete slice web[/2]           slice web malformed
//! node node-1 gone|deleted|ip <ips>|label <key> [<value>]|unlabel <key>|machine <scale set>/<number>
//! node node-1 replaced [ip <ips>]                 another node of this name, Ready and without taints
//! node node-1 taint <taint>|untaint <key>|cordoned|uncordoned|ready|not-ready
//! node node-1 notice event|event-v1|condition [reason <reason>] [age <time>] [text <text>]
//! service web policy <p>|paused|unpaused|deleted|malformed|repaired|on <load balancer> [<endpoints>]
//! [outbound|nat] rule <name> for <pool>           no rule of web
//! pool <pool> nic-backed|automatic|by subnet <nodes>       pool <pool> removed             unknown fields
//! load balancer <name> created again              deleted before; it has its rules, and empty pools
//! load balancer <name> failed                     another client's last operation failed; nothing else changes
//! foreign PUT <pool> <members>   foreign down|up|none <pool> <node>      the admin state of one entry
//! arm …, lists …, apiserver …                     as docs/simulator.md has them
//! apiserver raw services|endpointslices|nodes <line>
//! apiserver streaming refused-as-invalid|refused-as-bad-request|refused-by-error-event
//! operator releases|pauses|resumes everything|<pool>              operator releases node node-1
//! controller killed|stopped|started               cloud <key of azure.json> <value>, from the next start on
//!
//! expect PUT <pool> <members> [down <nodes>] [-> <status>|lost]       the next write of this pool, in which no node
//!                                                 else is Down; every write must be expected
//! expect no PUT [<pool>] until 2s                 on the scenario's clock
//! expect no PUT [<pool>] for 2s                   from the last change or the last expected PUT's answer
//! expect no PUT [<pool>] for 2s after PUT         from the last expected PUT's answer
//! expect no pool GET for 1s      expect no ARM write|call for 2s
//! expect quiet 2s                waits until ARM has had no request for this long
//! expect polls <at least>        expect members <pool> <members>     expect down <pool> <nodes>
//! expect overlap <pool> <pool>   the last expected PUTs of both
//! expect [no] body <text>        expect unknown fields in body          of the last expected PUT
//! expect traffic <pool> new <nodes> [kept <nodes>]         the healthy members that get new connections, and those
//!                                                 that only keep their existing ones
//! expect taints node-1 <taints>|none              expect records <nodes>, those in the controller's ConfigMap
//! expect event <reason> <service>|node <node> [x<exact number at the end>] [<text>]
//! expect no event <reason> <service>|node <node>  expect no events
//! expect held <service> <reason> expect gauge <series> <value>|any|absent  expect shared lease never ours
//! expect GET <path> <pointer> <value>             expect log <level> <text>
//! finally <pool> <members>       finally any <pool>           the members of this pool are not computed
//! finally any admin states       the Down entries are not computed
//! finally refused PUTs <pool> -> <status>         that no `expect` lists
//! finally pending work           work is pending at the end
//! ```
//!
//! A taint is `KEY[=VALUE][:EFFECT]`, or `out-of-service`, `shutdown` or `spot-eviction`.
//!
//! At the end of a scenario: every pool is in sync; exactly the entries of draining nodes are Down, except entries that
//! another client has set Down; no work is pending; every write was expected, and no two writes overlapped on a load
//! balancer; the process exits with 0 on SIGTERM; and its log has no ERROR line without an `expect log ERROR`.

mod action;
mod azure;
mod ending;
mod expect;
mod signals;
mod stage;
mod world;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use simulator::models::arm::Kind;
use simulator::{Line, When};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use stage::Stage;

/// Maximum number of failing scenarios that run concurrently.
const MAX_CONCURRENT: usize = 10;

/// A scenario.
struct Scenario {
    /// The name of its file, or what a test calls it.
    name: String,
    text: String,
}

/// Runs a scenario and returns the first problem.
async fn play(scenario: &Scenario) -> Result<(), String> {
    let mut stage = Stage::set_up().await;
    let played = run_lines(scenario, &mut stage).await;
    played.map_err(|error| format!("{error}\n{}", stage.remains()))
}

async fn run_lines(scenario: &Scenario, stage: &mut Stage) -> Result<(), String> {
    let mut started = false;
    stage.prepare(&["load", "balancers", "kubernetes"]).await?;
    for line in Line::read(&scenario.text).map_err(|error| format!("{}: {error}", scenario.name))? {
        if !started && line.when != When::Given {
            stage.start().await.map_err(|error| format!("{}: the start: {error}", scenario.name))?;
            started = true;
        }
        match line.when {
            When::At(time) => stage.wait_until(stage.zero_us + us(time)).await,
            When::After(time) => stage.wait_until(stage.now_us() + us(time)).await,
            When::Given | When::Expect | When::Finally | When::Every(_) => {}
        }
        let done = match (line.when, line.words.as_slice()) {
            (When::Given, _) if started => Err("given comes before everything else".to_owned()),
            (When::Every(_), _) => Err("nothing is repeated in a scenario of tests".to_owned()),
            (When::Given, words) => stage.prepare(words).await,
            (When::Finally, words) => stage.expect_at_end(words),
            (When::Expect, words) | (When::At(_) | When::After(_), ["expect", words @ ..]) => {
                stage.expect(words).await
            }
            (When::At(_) | When::After(_), words) => {
                stage.mark_us = stage.now_us();
                stage.action(words).await
            }
        };
        done.map_err(|error| format!("{}:{}: {}: {error}", scenario.name, line.number, line.text))?;
    }
    stage.end().await.map_err(|error| format!("{}: the end: {error}", scenario.name))
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the folder of the scenarios.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

/// Defines one test per named scenario, and the list of the names.
macro_rules! scenarios {
    ($($name:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::plays(stringify!($name)).await;
            }
        )*
    };
}

/// Runs the scenario with this name.
async fn plays(name: &str) {
    let text = std::fs::read_to_string(folder().join(format!("{name}.txt"))).expect("a scenario can be read");
    play(&Scenario { name: name.to_owned(), text }).await.unwrap_or_else(|error| panic!("{error}"));
}

/// Each scenario passes.
mod files {
    scenarios! {
        c4_a_dry_run_sets_nothing_down_and_shows_leaving_nodes
        c4_a_dry_run_writes_nothing_under_churn
        c4_dry_run
        d1_paused
        d1_release
        d1_rules_make_the_mapping
        d1_selection
        d1_service_appears
        d2_ownership_is_proven_before_each_write
        d2_pools_without_proof
        d2_two_services_share_a_pool
        d3_discovery_survives_malformed_answers
        d3_drift_is_restored
        d4_dual_stack
        d4_each_family_has_its_own_members
        d4_nodes_are_deleted_changed_and_excluded
        d4_removal_delay
        d4_terminating_is_tolerated
        d4_two_slices_share_a_node
        d5_a_node_to_be_deleted_stays_while_it_hosts_endpoints
        d5_excluded_nodes_are_named
        d6_a_list_that_lacks_nodes_removes_no_member
        d6_endpoint_without_node
        d6_expired_by_an_error_event
        d6_garbage_in_the_watch
        d6_no_usable_node_is_held
        d6_relist_under_change
        d6_streaming_lists_refused
        d6_streaming_lists_refused_by_an_error_event
        d6_the_operator_releases_one_pool
        d6_undecodable_objects_are_isolated
        e1_a_failure_is_posted_after_many_updates
        e2_an_absent_load_balancer_is_no_error
        e2_metrics_of_one_drain
        e2_metrics_of_one_write
        g2_a_list_without_slices_is_held
        g2_emptiness_is_confirmed
        g2_empty_confirm_of_0s_empties_pools_immediately
        g2_last_member
        g2_vanished_slices_are_held
        g2_vanished_slices_wait_for_a_second_read
        g3_a_list_counts_only_members_of_the_pool
        g3_a_list_that_lacks_most_of_a_pool_is_read_twice
        g3_small_removals_and_removals_by_watch_are_not_held
        g4_a_mass_change_is_held_until_released
        g4_a_reverted_mass_change_is_ignored
        g4_few_pools_and_replaced_nodes_are_not_held
        g4_services_that_scale_to_zero_stop_no_removals
        g6_a_pause_of_everything_holds_downs_and_taints
        g6_a_pause_of_everything_writes_nothing_until_it_ends
        g6_add_only_adds_and_removes_nothing
        g6_add_only_sets_down_as_enforce_does
        g6_observe_sets_nothing_down_and_taints_nothing
        g6_observe_writes_nothing
        h3_the_last_attempt_names_what_it_changed_and_why
        n1_each_taint_sets_entries_down_until_it_is_removed
        n1_freeze_reboot_failed_queries_and_cordons_cost_no_call
        n1_notices_come_in_either_group_of_events_and_as_conditions
        n1_only_notices_that_are_less_than_60_s_overdue_count
        n2_a_deletion_while_the_pool_waits_is_no_failure
        n2_a_service_shows_its_required_members_that_are_down
        n2_a_single_load_balancer_with_nic_based_pools
        n2_a_taint_removed_halfway_cancels_the_other_writes
        n2_every_load_balancer_family_and_kind_of_pool
        n2_one_put_has_all_draining_nodes_and_due_members
        n2_refusals_for_network_interfaces_are_reported_and_retried
        n3_a_404_of_an_admin_write_is_no_failure
        n3_a_parked_pool_delays_no_down
        n3_a_paused_pool_or_service_delays_no_down
        n3_the_window_of_members_delays_no_down
        n4_a_foreign_down_or_up_is_reported_and_left
        n4_a_lost_down_is_reset_and_new_entries_start_down
        n4_a_new_process_restores_the_downs_of_a_killed_one
        n4_a_recreated_node_is_not_down
        n4_when_disabled_downs_are_restored_and_calls_end
        n5_half_of_the_nodes_go_down_and_the_others_wait
        q2_a_change_reverted_in_its_window_causes_no_call
        q2_rolling_update_costs_one_put
        q4_deleted_rules_are_no_failure
        q4_gone_before_the_retry
        q5_changes_join_a_parked_pool
        q6_conflicts_until_the_budget_is_spent
        q6_exhausted_and_requeued
        q6_stale_pool
        q8_a_failed_load_balancer_is_out_of_sync
        q8_a_parked_pool_is_out_of_sync
        q8_a_slice_event_retries_after_failure
        s1_a_drain_by_kubectl_is_membership_alone
        s1_a_foreign_write_is_neither_lost_nor_superseded
        s1_a_node_drains_until_its_last_signal_ends
        s1_a_throttled_down_is_retried_when_the_gate_opens
        s1_an_eviction_event_taints_its_node_once
        s1_an_only_member_goes_down_until_its_pod_moves
        s1_deleting_a_down_node_causes_no_call
        s1_failed_pools_are_reported_on_the_node
        w1_lanes_are_parallel
        w2_a_recreated_load_balancer_loses_no_write
        w2_asynchronous_operation
        w2_canceled_operation_is_retried
        w2_failing_polls_hold_no_lane
        w2_foreign_operation_is_not_superseded
        w2_lost_write_is_found
        w2_one_412_is_retried_with_a_new_etag
        w3_new_entries_name_the_subnet_of_their_pool
        w3_unknown_fields_survive
        w4_arm_is_down
        w4_arm_stays_down
        w4_bad_gateway
        w4_lost_answer
        w5_unparseable_answers
        w5_unreadable_success_body
        w6_lock_closes_one_lane
        w6_quota_closes_the_gate
        x5_unreadable_and_deleted_slices_are_dropped_if_configured
        x5_unreadable_and_deleted_slices_stay_in_use
    }

    #[test]
    fn every_file_has_a_test() {
        let files = std::fs::read_dir(super::folder()).expect("the folder of the scenarios").flatten();
        let files =
            files.filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".txt")?.to_owned()));
        let mut files: Vec<String> = files.collect();
        files.sort();
        assert_eq!(files, TESTED, "the list in tests/scenarios.rs must equal the sorted list of files");
    }
}

/// Runs scenarios, a few at a time, and returns the result of each, sorted by name.
async fn play_all(scenarios: Vec<Scenario>) -> Vec<(String, Result<(), String>)> {
    let places = Arc::new(Semaphore::new(MAX_CONCURRENT));
    let mut playing = JoinSet::new();
    for scenario in scenarios {
        let places = Arc::clone(&places);
        playing.spawn(async move {
            let _permit = places.acquire_owned().await.expect("it is never closed");
            let played = play(&scenario).await;
            (scenario.name, played)
        });
    }
    let mut played = playing.join_all().await;
    played.sort_by(|one, other| one.0.cmp(&other.0));
    played
}

/// Failing scenarios report the expected error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scenario_with_another_outcome_fails() {
    let world = "given timeout 2s\ngiven nodes 2\ngiven service web on kubernetes hosted node-1\n";
    let wrong = [
        ("other members", "at 0s slice web hosted node-2\nexpect PUT shop-web node-1", "the next PUT has"),
        (
            "unlisted PUT",
            "at 0s slice web hosted node-2\nexpect members shop-web node-2",
            "a PUT that no `expect` lists",
        ),
        ("no write", "at 0s slice web hosted node-1\nexpect PUT shop-web node-1", "not within"),
        ("too early", "at 0s slice web hosted node-2\nexpect no PUT for 1.5s", "was written at"),
        ("no event", "at 0s slice web hosted node-1\nexpect event Nothing web", "not in time"),
        ("wrong end", "at 0s slice web hosted node-1\nfinally shop-web node-2", "out of sync at the end"),
        ("no error", "expect log ERROR of no kind", "the log lacks the expected error"),
        (
            "lease",
            "at 0s slice web hosted node-2\nexpect PUT shop-web node-2\nexpect shared lease never ours",
            "it had",
        ),
        ("unknown action", "at 0s sing", "unknown action"),
        ("no time", "at noon slice web empty", "line 4: `at noon slice web empty`: expected a duration"),
        ("too late", "at 0s slice web hosted node-1\ngiven nodes 1", "given comes before"),
        ("again", "every 1s slice web hosted node-1", "nothing is repeated"),
        ("other Downs", "at 0s node node-1 taint shutdown\nexpect PUT shop-web node-1", "Down are [Entry"),
        (
            "wrong admin state",
            "given cloud enableLoadBalancerAdminState false\nat 0s node node-1 taint shutdown",
            "its node leaves service",
        ),
        (
            "unexpected ARM call",
            "at 0s slice web hosted node-2\nexpect PUT shop-web node-2\nexpect no ARM call for 2s",
            "there was one",
        ),
        ("no record", "at 0s expect records node-1", "not in time"),
        ("no taint", "at 0s expect taints node-1 shutdown", "not in time"),
        ("no down", "at 0s expect down shop-web node-1", "not in time"),
        (
            "traffic goes on",
            "at 0s expect traffic shop-web new no-members kept node-1",
            "new_connections: true",
        ),
        ("no traffic", "at 0s expect traffic shop-web node-1", "new <nodes> [kept <nodes>]"),
        ("no such taint", "at 0s node node-1 taint shutdown:Never", "KEY[=VALUE]"),
        ("no such node", "at 0s node node-7 taint shutdown", "given nodes N"),
    ];
    let scenarios =
        wrong.map(|(name, lines, _)| Scenario { name: name.to_owned(), text: format!("{world}{lines}") });
    let played = play_all(scenarios.into()).await;
    for (name, played) in played {
        let expected = wrong
            .iter()
            .find(|(known, ..)| *known == name)
            .map(|(_, _, expected)| *expected)
            .expect("its own name");
        let error = played.expect_err(&name);
        assert!(error.contains(expected), "{name}: {error}");
    }
}

/// Runs a scenario; returns the requests to ARM from the first read of a pool on, and the writes.
async fn requests_to_arm(text: &str) -> (Vec<String>, Vec<String>) {
    let scenario = Scenario { name: "the same".to_owned(), text: text.to_owned() };
    let mut stage = Stage::set_up().await;
    if let Err(error) = run_lines(&scenario, &mut stage).await {
        panic!("{error}\n{}", stage.remains());
    }
    let log = stage.fakes.log().await;
    // At the start of a term, the number of load balancer reads depends on the order of two messages.
    let from_first = log.iter().skip_while(|call| call.kind != Kind::PoolGet);
    let requests = from_first
        .map(|call| format!("{:?} {:?} {:?} -> {}", call.kind, call.load_balancer, call.pool, call.status));
    let written = stage.puts.iter().map(|put| format!("{} {:?}", put.pool, put.entries));
    (requests.collect(), written.collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_without_draining_nodes_arm_gets_the_same_requests() {
    let scenario = "given controller discovery.interval 1h\n\
                 given load balancers kubernetes lb-2\n\
                 given nodes 3\n\
                 given service web on kubernetes hosted node-1 node-2\n\
                 given service mail on lb-2 hosted node-1\n\
                 expect GET /api/v1/status /leadership/role leader\n\
                 expect quiet 3s\n\
                 at 0s slice web hosted node-2 node-3\n\
                 expect PUT shop-web node-2 node-3\n\
                 expect quiet 5s\n\
                 after 0s node node-2 cordoned\n\
                 after 0s node node-3 not-ready\n\
                 after 0s node node-3 ready\n\
                 after 0s slice mail hosted node-3\n\
                 expect PUT shop-mail node-3\n\
                 expect quiet 5s\n";
    let off = format!("given cloud enableLoadBalancerAdminState false\n{scenario}");
    let (on, off) = tokio::join!(requests_to_arm(scenario), requests_to_arm(&off));
    assert_eq!(on, off);
    assert!(on.0.len() > 4 && on.1.len() == 2, "{on:?}");
}
