//! Answers to PUTs and polls, and facts about load balancers and pools.

use std::net::IpAddr;
use std::time::Duration;

use azure_core::http::RawResponse;
use std::sync::Arc;

use model::arm::{
    AdminState, ArmAnswer, EntryNetwork, FailureKind, LbFacts, OperationState, PoolFacts, Provisioning,
    PutAccepted, RetryAfter,
};
use model::ids::{LbName, NetworkId, Operation, PoolName, SubnetId};

use super::{failure, pool_id, pool_read, response};
use crate::answer;

fn poll(response: &RawResponse) -> OperationState {
    let answer = answer::operation(false, response);
    let ArmAnswer::Operation(state) = answer else { panic!("{answer:?}") };
    state
}

fn put(response: &RawResponse) -> PutAccepted {
    let answer = answer::put(response);
    let ArmAnswer::Put(accepted) = answer else { panic!("{answer:?}") };
    accepted
}

fn facts(body: &str) -> PoolFacts {
    PoolFacts::clone(&pool_read(answer::pool(&pool_id(), &response(200, &[], body))).facts)
}

fn balancer(body: &str) -> std::sync::Arc<LbFacts> {
    let answer = answer::load_balancer(&LbName::new("lb"), &response(200, &[], body));
    let ArmAnswer::LoadBalancer(facts) = answer else { panic!("{answer:?}") };
    facts
}

#[test]
fn w2_only_the_status_of_a_poll_counts_in_any_case() {
    let succeeded = r#"{"status":"sUCCEEDED","error":{"code":"NotLatestOperation"}}"#;
    assert!(matches!(poll(&response(200, &[], succeeded)), OperationState::Succeeded));
    let canceled = r#"{"status":"CANCELED","error":{"code":"Canceled","message":"m","details":[
        {"code":"CanceledAndSupersededDueToAnotherOperation","message":"by \"another\""}]}}"#;
    let OperationState::Canceled(failure) =
        poll(&response(200, &[("x-ms-correlation-request-id", "c")], canceled))
    else {
        panic!("not canceled")
    };
    assert_eq!(failure.kind, FailureKind::Operation);
    assert_eq!(failure.code.as_deref(), Some("Canceled"));
    assert_eq!(failure.inner_codes, [std::sync::Arc::from("CanceledAndSupersededDueToAnotherOperation")]);
    assert_eq!(failure.correlation_id.as_deref(), Some("c"));
    assert!(matches!(poll(&response(200, &[], r#"{"status":"Failed"}"#)), OperationState::Failed(_)));
    for status in ["InProgress", "Accepted", "Updating", "Whatever"] {
        for http in [200, 202] {
            let body = format!(r#"{{"status":"{status}"}}"#);
            let state = poll(&response(http, &[("Retry-After", "7")], &body));
            let OperationState::Running { retry_after } = state else { panic!("{status}: {state:?}") };
            assert_eq!(retry_after, RetryAfter::In(Duration::from_secs(7)));
        }
    }
    assert!(matches!(poll(&response(202, &[], "")), OperationState::Running { .. }));
    assert!(matches!(poll(&response(204, &[], "")), OperationState::Succeeded));
}

#[test]
fn w5_a_poll_needs_a_status_or_the_resource() {
    for body in ["", "{}", "<html>", "[]", r#"{"status":3}"#, r#"{"status":""}"#] {
        let answer = failure(answer::operation(false, &response(200, &[], body)));
        assert_eq!(answer.kind, FailureKind::Undecodable(200), "{body}");
        let resource = answer::operation(true, &response(200, &[], body));
        assert!(matches!(resource, ArmAnswer::Operation(OperationState::Succeeded)), "{body}");
    }
    assert_eq!(failure(answer::operation(true, &response(404, &[], ""))).kind, FailureKind::Status(404));
}

#[test]
fn w2_an_accepted_put_has_its_state_and_polling_url() {
    let body = r#"{"properties":{"provisioningState":"succeeded"}}"#;
    let location = ("Location", "https://h/operationResults/1");
    let both = put(&response(200, &[("Azure-AsyncOperation", "https://h/operations/1"), location], body));
    assert_eq!(both.provisioning, Provisioning::Succeeded);
    assert_eq!(both.operation, Some(Operation::new("https://h/operations/1")));
    assert_eq!(both.retry_after, RetryAfter::Absent);
    let one = put(&response(202, &[location], ""));
    assert_eq!(one.operation, Some(Operation::new("https://h/operationResults/1")));
    assert_eq!(one.provisioning, Provisioning::Unknown);
    for body in ["", "<html>", "[]", "\"x\"", "{"] {
        let undecodable = failure(answer::put(&response(201, &[("Retry-After", "9")], body)));
        assert_eq!(undecodable.kind, FailureKind::Undecodable(201), "{body}");
        assert_eq!(undecodable.retry_after, RetryAfter::In(Duration::from_secs(9)));
    }
}

#[test]
fn d2_a_pool_has_all_facts_for_its_proof() {
    let pool = facts(
        r#"{"etag":"W/\"1\"","properties":{"provisioningState":"Updating","syncMode":"Automatic",
        "virtualNetwork":{"id":"/vnet"},
        "loadBalancingRules":[{"id":"/a/loadBalancingRules/r1"},{"id":"/a/loadBalancingRules/r2"}],
        "outboundRule":{"id":"/o"},"inboundNatRules":[{"id":"/n"}],"backendIPConfigurations":[{"id":"/c"}],
        "loadBalancerBackendAddresses":[
            {"name":"a","properties":{"ipAddress":"10.0.0.4","adminState":"down","virtualNetwork":{"id":"/v"}}},
            {"name":"b","properties":{"ipAddress":"","adminState":"Sideways"}},
            {"name":"c","properties":{"ipAddress":"fd00::1","adminState":"Up"}},
            {"properties":{"ipAddress":5,"adminState":7}},
            {}, "nonsense"]}}"#,
    );
    assert_eq!(pool.rules.iter().map(|rule| &**rule).collect::<Vec<_>>(), ["r1", "r2"]);
    assert!(pool.outbound_rule && pool.inbound_nat_rule && pool.nic_backed && pool.sync_automatic);
    assert_eq!(pool.network, Some(NetworkId::new("/vnet")));
    assert_eq!(pool.provisioning, Provisioning::Updating);
    let ip = |text: &str| Some(text.parse::<IpAddr>().unwrap());
    let entries: Vec<_> = pool.entries.iter().map(|e| (&*e.name, e.ip, e.admin_state)).collect();
    assert_eq!(
        entries,
        [
            ("a", ip("10.0.0.4"), AdminState::Down),
            ("b", None, AdminState::Unknown),
            ("c", ip("fd00::1"), AdminState::Up),
            ("", None, AdminState::Unknown),
            ("", None, AdminState::None),
            ("", None, AdminState::None),
        ]
    );
    assert_eq!(pool.entries[0].network, Some(Arc::new(EntryNetwork::VirtualNetwork(NetworkId::new("/v")))));
    let plain = facts(r#"{"properties":{}}"#);
    assert!(!(plain.outbound_rule || plain.inbound_nat_rule || plain.nic_backed || plain.sync_automatic));
    let interface = r#"{"properties":{"loadBalancerBackendAddresses":[{"properties":{"networkInterfaceIPConfiguration":{"id":"/c"}}}]}}"#;
    let subnet = r#"{"properties":{"loadBalancerBackendAddresses":[{"properties":{"subnet":{"id":"/s"},"virtualNetwork":{"id":"/v"}}}]}}"#;
    assert_eq!(facts(subnet).entries[0].network, Some(Arc::new(EntryNetwork::Subnet(SubnetId::new("/s")))));
    assert!(!facts(interface).nic_backed, "D2 needs only backendIPConfigurations");
}

#[test]
fn d6_unreadable_answers_never_count_as_empty() {
    let bodies = [
        "",
        "null",
        "[]",
        "{}",
        r#"{"properties":null}"#,
        r#"{"properties":{"loadBalancerBackendAddresses":{}}}"#,
        r#"{"properties":{"loadBalancingRules":"x"}}"#,
        r#"{"properties":{"backendIPConfigurations":1}}"#,
    ];
    for body in bodies {
        let undecodable = failure(answer::pool(&pool_id(), &response(200, &[], body)));
        assert_eq!(undecodable.kind, FailureKind::Undecodable(200), "{body}");
        let within = format!(r#"{{"properties":{{"backendAddressPools":[{body}]}}}}"#);
        if !body.is_empty() {
            let undecodable =
                failure(answer::load_balancer(&LbName::new("lb"), &response(200, &[], &within)));
            assert_eq!(undecodable.kind, FailureKind::Undecodable(200), "{within}");
        }
    }
}

#[test]
fn d1_a_rule_has_its_pools_and_its_probe() {
    let facts = balancer(
        r#"{"id":"/rg/one/loadBalancers/LB","etag":"e","properties":{"provisioningState":"Failed",
        "backendAddressPools":[{"id":"/rg/one/loadBalancers/LB/backendAddressPools/p","properties":{}}],
        "loadBalancingRules":[
          {"name":"one","properties":{"backendAddressPool":{"id":"/RG/one/loadbalancers/lb/BACKENDADDRESSPOOLS/P"},
             "backendAddressPools":[{"id":"/rg/one/loadBalancers/LB/backendAddressPools/p"}],"probe":{"id":"/pr"}}},
          {"name":"other","properties":{"backendAddressPool":{"id":"/rg/two/loadBalancers/lb/backendAddressPools/p"}}},
          {"id":"/x/loadBalancingRules/two","properties":{"backendAddressPools":[
             {"id":"/rg/one/loadBalancers/LB/backendAddressPools/p"},{"id":"/rg/one/loadBalancers/LB/backendAddressPools/q"}]}},
          {"name":"none"}]}}"#,
    );
    assert_eq!(facts.provisioning, Provisioning::Failed);
    assert_eq!(facts.pools[0].id.pool, PoolName::new("p"));
    let rules: Vec<_> =
        facts.rules.iter().map(|r| (&*r.name, r.pool.as_ref().map(PoolName::folded), r.probed)).collect();
    assert_eq!(
        rules,
        [
            ("one", Some("p"), true),
            ("other", None, false),
            ("two", Some("p"), false),
            ("two", Some("q"), false),
            ("none", None, false),
        ]
    );
}

#[test]
fn a_long_message_is_truncated_between_characters() {
    let long = "\u{e9}".repeat(100_000);
    let cut = failure(answer::pool(&pool_id(), &response(500, &[], &long)));
    assert!(cut.message.len() <= 1024 && cut.message.len() > 1000, "{}", cut.message.len());
    assert!(cut.message.ends_with('\u{2026}'));
    let code = format!(r#"{{"error":{{"code":"{}","message":"a\r\n  b"}}}}"#, "c".repeat(5000));
    let short = failure(answer::pool(&pool_id(), &response(400, &[], &code)));
    assert_eq!((short.code.as_ref().unwrap().len(), &*short.message), (1024, "a b"));
}
