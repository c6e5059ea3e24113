//! GETs and lists.

use serde_json::json;
use simulator_models::arm::{ArmModel, Kind, Latency, Method, PoolSpec, Settings};

use crate::support::{GROUP, code, get, json_of, model, path, pool_path, request, send, text};

#[test]
fn z1_only_single_gets_carry_the_shared_etag() {
    let mut model = model(Settings::default());
    let etag = model.etag("lb").expect("lb is there");
    for path in [path("lb"), pool_path("lb", "a"), pool_path("LB", "A")] {
        let answer = get(&mut model, &path, 0);
        assert_eq!((answer.status, answer.header("etag")), (200, Some(etag.as_str())), "{path}");
        assert_eq!(text(&json_of(&answer), "/etag"), etag);
    }
    for path in [path(""), path("lb/backendAddressPools")] {
        let answer = get(&mut model, &path, 0);
        assert_eq!((answer.status, answer.header("etag")), (200, None), "{path}");
    }
    let body = json_of(&get(&mut model, &path("lb"), 0));
    for pointer in ["/properties/backendAddressPools/0/etag", "/properties/backendAddressPools/1/etag"] {
        assert_eq!(text(&body, pointer), etag);
    }
}

#[test]
fn z1_lists_are_paged_with_absolute_next_links() {
    let settings =
        Settings { page_size: 2, endpoint: "http://127.0.0.1:7".to_owned(), ..Settings::default() };
    let mut model = ArmModel::new(settings);
    for n in 0..5 {
        model.add_pool("lb", &format!("pool-{n}"), &PoolSpec::default());
        model.add_load_balancer(&format!("lb-{n}"));
    }
    let subscription = "/subscriptions/00000000-0000-0000-0000-000000000000/providers/Microsoft.Network/loadBalancers?api-version=2025-05-01";
    let lists = [(path("lb/backendAddressPools"), 5), (path(""), 6), (subscription.to_owned(), 6)];
    for (start, expected) in lists {
        let mut names = Vec::new();
        let mut next = Some(start.clone());
        while let Some(path) = next {
            let page = json_of(&get(&mut model, &path, 0));
            let value = page["value"].as_array().expect("a page has a value");
            assert!(value.len() <= 2);
            names.extend(value.iter().map(|item| text(item, "/name")));
            next = page["nextLink"].as_str().map(str::to_owned);
            assert!(next.as_deref().is_none_or(|link| link.starts_with("http://127.0.0.1:7/subscriptions/")));
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), expected, "{start}");
    }
}

#[test]
fn z1_a_load_balancer_shows_rules_probes_frontends_and_users() {
    let mut model = model(Settings::default());
    model.add_rule("lb", "a1234567890abcdef1234567890abcde-TCP-80", "a", true);
    model.add_rule("lb", "a1234567890abcdef1234567890abcde-TCP-443", "a", false);
    model.add_outbound_rule("lb", "outbound", "b");
    model.add_inbound_nat_rule("lb", "nat", "b");
    let lb = json_of(&get(&mut model, &path("lb"), 0));
    let properties = &lb["properties"];
    let count = |child: &str| properties[child].as_array().map(Vec::len);
    assert_eq!(count("loadBalancingRules"), Some(2));
    assert_eq!(count("probes"), Some(1));
    assert_eq!(count("frontendIPConfigurations"), Some(1));
    assert_eq!(count("outboundRules"), Some(1));
    assert_eq!(count("inboundNatRules"), Some(1));
    assert_eq!(text(&lb, "/properties/frontendIPConfigurations/0/name"), "a1234567890abcdef1234567890abcde");
    let id = format!("{GROUP}/providers/Microsoft.Network/loadBalancers/lb");
    let rule = &properties["loadBalancingRules"][0]["properties"];
    assert_eq!(rule["backendAddressPool"], json!({"id": format!("{id}/backendAddressPools/a")}));
    assert!(rule.get("probe").is_some());
    assert!(properties["loadBalancingRules"][1]["properties"].get("probe").is_none());
    let pools = &properties["backendAddressPools"];
    assert_eq!(pools[0]["properties"]["loadBalancingRules"].as_array().map(Vec::len), Some(2));
    assert_eq!(pools[1]["properties"]["outboundRule"], json!({"id": format!("{id}/outboundRules/outbound")}));
    assert_eq!(
        pools[1]["properties"]["inboundNatRules"],
        json!([{"id": format!("{id}/inboundNatRules/nat")}])
    );
}

#[test]
fn z1_nic_pools_show_guid_names_and_ip_configurations() {
    let mut model = ArmModel::new(Settings::default());
    let spec = PoolSpec {
        members: vec![("node".to_owned(), "7".to_owned())],
        nic_backed: true,
        ..PoolSpec::default()
    };
    model.add_pool("lb", "kubernetes", &spec);
    let pool = json_of(&get(&mut model, &pool_path("lb", "kubernetes"), 0));
    let interface = text(&pool, "/properties/backendIPConfigurations/0/id");
    assert!(interface.contains("/virtualMachines/7/networkInterfaces/"), "{interface}");
    let address = "/properties/loadBalancerBackendAddresses/0";
    assert_eq!(text(&pool, &format!("{address}/properties/networkInterfaceIPConfiguration/id")), interface);
    assert_eq!(text(&pool, &format!("{address}/name")).len(), 36);
    assert!(pool.pointer(&format!("{address}/properties/ipAddress")).is_none());
}

#[test]
fn z1_the_interfaces_of_a_pool_are_those_of_its_machines() {
    let mut model = ArmModel::new(Settings::default());
    let instances = ["aks-np-vmss/3", "7", "machine", "aks-pool-12345678-0"].map(str::to_owned);
    model.add_pool("lb", "kubernetes", &PoolSpec { instances: instances.into(), ..PoolSpec::default() });
    let pool = json_of(&get(&mut model, &pool_path("lb", "kubernetes"), 0));
    let expected = [
        "Microsoft.Compute/virtualMachineScaleSets/aks-np-vmss/virtualMachines/3/networkInterfaces/aks-np-vmss",
        "Microsoft.Compute/virtualMachineScaleSets/vmss/virtualMachines/7/networkInterfaces/vmss",
        "Microsoft.Network/networkInterfaces/machine-nic",
        "Microsoft.Network/networkInterfaces/aks-pool-12345678-nic-0",
    ];
    for (at, interface) in expected.into_iter().enumerate() {
        let shown = text(&pool, &format!("/properties/backendIPConfigurations/{at}/id"));
        assert_eq!(shown, format!("{GROUP}/providers/{interface}/ipConfigurations/ipconfig1"));
    }
    let members = model.members("lb", "kubernetes").expect("the pool is there");
    assert!(members.iter().all(|member| member.ip.is_empty() && member.network_interface.is_some()));
}

#[test]
fn z1_the_two_layers_of_404_differ() {
    let mut model = model(Settings::default());
    let elsewhere = path("lb").replace("resourceGroups/rg", "resourceGroups/none");
    let cases = [
        (pool_path("lb", "none"), "NotFound", None),
        (path("none"), "ResourceNotFound", Some("gateway")),
        (pool_path("none", "a"), "ResourceNotFound", Some("gateway")),
        (elsewhere, "ResourceGroupNotFound", Some("gateway")),
    ];
    for (path, expected, cause) in cases {
        let answer = get(&mut model, &path, 0);
        assert_eq!((answer.status, code(&answer).as_str()), (404, expected), "{path}");
        assert_eq!(answer.header("x-ms-failure-cause"), cause);
        let remaining = answer.header("x-ms-ratelimit-remaining-subscription-reads");
        assert_eq!(remaining.is_none(), cause.is_some(), "{path}");
    }
}

#[test]
fn z1_answers_carry_ids_and_echo_the_client_id_on_demand() {
    let mut model = model(Settings::default());
    let correlation = "11111111-2222-4333-8444-555555555555";
    let headers = [
        ("X-Ms-Correlation-Request-Id", correlation),
        ("x-ms-client-request-id", "mine"),
        ("x-ms-return-client-request-id", "true"),
    ];
    let answer = send(&mut model, &request(Method::Get, &path("lb"), &headers, ""), 0);
    assert_eq!(answer.header("x-ms-correlation-request-id"), Some(correlation));
    assert_eq!(answer.header("x-ms-client-request-id"), Some("mine"));
    assert_eq!(answer.header("x-ms-request-id").map(str::len), Some(36));
    assert!(answer.header("date").is_none(), "the wrapper owns the wall clock");
    let silent = send(&mut model, &request(Method::Get, &path("lb"), &headers[1..2], ""), 0);
    assert_eq!(silent.header("x-ms-client-request-id"), None);
    assert_ne!(silent.header("x-ms-request-id"), answer.header("x-ms-request-id"));
}

#[test]
fn z1_lognormal_latency_has_its_median_and_p95() {
    let get_latency = Latency::LogNormal { median_us: 50_000, p95_us: 150_000 };
    let mut model = model(Settings { get_latency, ..Settings::default() });
    let mut drawn: Vec<u64> = (0..4_000).map(|_| get(&mut model, &path("lb"), 0).latency_us).collect();
    drawn.sort_unstable();
    assert!((45_000..55_000).contains(&drawn[2_000]), "median {}", drawn[2_000]);
    assert!((130_000..170_000).contains(&drawn[3_800]), "p95 {}", drawn[3_800]);
}

#[test]
fn z1_the_log_has_kind_names_status_and_times() {
    let mut model = model(Settings::default());
    get(&mut model, &path("LB"), 10);
    get(&mut model, &pool_path("lb", "none"), 20);
    let log = model.log();
    let entries: Vec<_> = log.iter().map(|e| (e.kind, e.status, e.started_us, e.ended_us)).collect();
    let expected = [(Kind::LoadBalancerGet, 200, 10, 20_010), (Kind::PoolGet, 404, 20, 20_020)];
    assert_eq!(entries, expected);
    assert_eq!(log[0].load_balancer.as_deref(), Some("lb"), "the name is the stored one");
    assert_eq!((log[1].pool.as_deref(), log[1].code.as_deref()), (Some("none"), Some("NotFound")));
    assert_eq!((model.counters().load_balancer_gets, model.counters().pool_gets), (1, 1));
}

#[test]
fn z1_paths_may_be_percent_encoded_absolute_and_in_any_case() {
    let mut model = model(Settings::default());
    model.add_pool("lb", "10.0-a_bcd", &PoolSpec::default());
    let plain = pool_path("lb", "10.0-a_bcd");
    let spellings = [
        plain.clone(),
        plain.replace("10.0-a_bcd", "%31%30.0%2da%5Fbcd"),
        format!("http://127.0.0.1:8080{plain}"),
        plain.to_uppercase(),
        plain.replace("resourceGroups", "resourcegroups"),
    ];
    for path in spellings {
        let answer = get(&mut model, &path, 0);
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(text(&json_of(&answer), "/name"), "10.0-a_bcd");
    }
}
