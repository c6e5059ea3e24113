//! The cloud configuration (C1, Q7): parsing, defaults, and the text of every refusal.

use std::time::Duration;

use config::{CloudConfig, Login, Problem, Warning};

/// A valid multi-SLB configuration in YAML; tests put their own lines below it.
const BASE: &str = "\
tenantId: t-1
subscriptionId: s-1
resourceGroup: RG-One
vnetName: vnet
loadBalancerBackendPoolConfigurationType: nodeIP
multipleStandardLoadBalancerConfigurations:
- {name: kubernetes, primaryVMSet: vmss-1}
- {name: lb2, primaryVMSet: vmss-2}
";

fn parse(text: &str) -> Result<(CloudConfig, Vec<Warning>), Vec<Problem>> {
    CloudConfig::parse(text.as_bytes(), "azure.json")
}

fn with(lines: &str) -> (CloudConfig, Vec<Warning>) {
    parse(&format!("{BASE}{lines}")).expect("valid")
}

fn refused(lines: &str) -> Vec<String> {
    let problems = parse(&format!("{BASE}{lines}")).expect_err("must be refused");
    problems.iter().map(ToString::to_string).collect()
}

fn warnings(lines: &str) -> Vec<String> {
    with(lines).1.iter().map(ToString::to_string).collect()
}

#[test]
fn c1_json_and_yaml_give_the_same_configuration() {
    let json = "{\n\t\"tenantId\": \"t-1\",\n\t\"subscriptionId\": \"s-1\",\n\t\"resourceGroup\": \"RG-One\",\n\t\
                \"vnetName\": \"vnet\", \"loadBalancerBackendPoolConfigurationType\": \"nodeIP\",\n\t\
                \"multipleStandardLoadBalancerConfigurations\": [{\"name\": \"kubernetes\", \"primaryVMSet\": \
                \"vmss-1\"}, {\"name\": \"lb2\", \"primaryVMSet\": \"vmss-2\"}]\n}\n";
    let (from_json, json_warnings) = parse(json).expect("valid JSON");
    let (from_yaml, yaml_warnings) = with("");
    assert_eq!(from_json.to_json(), from_yaml.to_json());
    assert_eq!((json_warnings, yaml_warnings), (vec![], vec![]));
    assert_eq!(from_yaml.resource_group(), "rg-one", "upstream lower-cases it on load");
}

#[test]
fn c1_keys_ignore_case_and_foreign_keys_are_ignored() {
    let text = "TENANTID: t-1\nsubscriptionID: s-1\nResourceGroup: rg\nvnetname: vnet\nloadBalancerSKU: Standard\n\
                LoadBalancerBackendPoolConfigurationType: NODEIP\ncloudProviderRatelimit: true\n\
                MULTIPLESTANDARDLOADBALANCERCONFIGURATIONS:\n- NAME: lb1\n  PrimaryVmSet: a\n\
                loadbalancerRATELIMIT: {CLOUDPROVIDERRATELIMIT: true, cloudproviderratelimitqps: 20}\n\
                routeTableName: rt\nsomething: {else: [1, 2]}\n";
    let (config, _) = parse(text).expect("valid");
    assert_eq!(config.tenant_id(), "t-1");
    assert_eq!(config.balancer_configurations()[0].primary_vm_set, "a");
    assert!(config.uses_multiple_load_balancers());
    assert_eq!(config.rate_limit().map(|limit| limit.reads_per_second), Some(20.0));
}

#[test]
fn c1_keys_that_differ_only_in_case_are_refused_with_both_names() {
    assert_eq!(
        refused("tenantID: t-2\n"),
        ["azure.json:9: tenantId: found tenantId (line 1) and tenantID (line 9), expected the key once; \
          remove all but one; keys are case-insensitive"]
    );
    assert_eq!(
        refused("loadBalancerRateLimit:\n  cloudProviderRateLimit: true\n  cloudProviderRatelimit: false\n"),
        [
            "azure.json:11: loadBalancerRateLimit.cloudProviderRateLimit: found cloudProviderRateLimit (line 10) and \
          cloudProviderRatelimit (line 11), expected the key once; remove all but one; keys are \
          case-insensitive"
        ]
    );
}

#[test]
fn c1_wrong_values_are_refused_with_field_finding_and_remedy() {
    let rows = [
        (
            "loadBalancerBackendPoolUpdateMaxRetries: \"3\"",
            "azure.json:9: loadBalancerBackendPoolUpdateMaxRetries: found the text \"3\", expected a whole number; \
             write a whole number of at most 64 bits, without quotes",
        ),
        (
            "loadBalancerBackendPoolUpdateIntervalInSeconds: -5",
            "azure.json:9: loadBalancerBackendPoolUpdateIntervalInSeconds: found the number -5, expected 0 or more \
             seconds; write 0 for the default of 30 seconds",
        ),
        (
            "loadBalancerBackendPoolUpdateIntervalInSeconds: 1e3",
            "azure.json:9: loadBalancerBackendPoolUpdateIntervalInSeconds: found the number 1e3, expected a whole \
             number; write a whole number of at most 64 bits, without quotes",
        ),
        (
            "loadBalancerBackendPoolUpdateMaxRetries: 4294967296",
            "azure.json:9: loadBalancerBackendPoolUpdateMaxRetries: found the number 4294967296, expected at most \
             4294967295; write a smaller number",
        ),
        (
            "enableLoadBalancerAdminState: \"true\"",
            "azure.json:9: enableLoadBalancerAdminState: found the text \"true\", expected true or false; \
             write true or false, without quotes",
        ),
        (
            "cloudProviderRateLimitQPS: -1",
            "azure.json:9: cloudProviderRateLimitQPS: found the number -1, expected a number of 0 or more; \
             write a number, without quotes",
        ),
        (
            "location: y",
            "azure.json:9: location: found the switch y, expected text; put the value in double quotes",
        ),
        (
            "location: 0123",
            "azure.json:9: location: found the number 0123, expected text; put the value in double quotes",
        ),
        (
            "location: [a]",
            "azure.json:9: location: found a list, expected text; write one value in double quotes",
        ),
        (
            "loadBalancerRateLimit: true",
            "azure.json:9: loadBalancerRateLimit: found the switch true, expected a map; write `key: value` pairs",
        ),
        (
            "loadBalancerSku: gateway",
            "azure.json:9: loadBalancerSku: found the text \"gateway\", expected standard or basic; write standard",
        ),
        (
            "loadBalancerName: /subscriptions/s/x",
            "azure.json:9: loadBalancerName: found the text \"/subscriptions/s/x\", expected a name without slashes, \
             spaces and other special characters, at most 90 long; write the bare name, not an id or address",
        ),
        (
            "loadBalancerRateLimit: {cloudProviderRateLimitBucket: -1}",
            "azure.json:9: loadBalancerRateLimit.cloudProviderRateLimitBucket: found the number -1, expected a number \
             between 0 and 4294967295; write the maximum burst of calls, or 0 for the default",
        ),
        (
            "aadClientSecret: {a: b}",
            "azure.json:9: aadClientSecret: found a map, expected text; write one value in double quotes",
        ),
    ];
    for (line, problem) in rows {
        assert_eq!(refused(&format!("{line}\n")), [problem], "{line}");
    }
}

#[test]
fn c1_all_problems_are_in_one_report() {
    let problems =
        parse("loadBalancerSku: 5\nuseManagedIdentityExtension: 1\n").expect_err("must be refused");
    let fields: Vec<&str> = problems.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(
        fields,
        ["useManagedIdentityExtension", "loadBalancerSku", "tenantId", "subscriptionId", "resourceGroup"]
    );
    assert_eq!(problems[2].remedy, "add the key; there is no default for it");
}

#[test]
fn c1_yaml_switches_are_read_as_in_upstream() {
    for (written, expected) in [("yes", true), ("On", true), ("FALSE", false), ("n", false)] {
        let (config, _) = with(&format!("enableLoadBalancerAdminState: {written}\n"));
        assert_eq!(config.admin_state_enabled(), expected, "{written}");
    }
    assert!(with("").0.admin_state_enabled(), "true when absent");
    assert!(with("enableLoadBalancerAdminState: null\n").0.admin_state_enabled(), "true when null");
}

#[test]
fn c1_unquoted_whole_numbers_are_text_in_text_keys() {
    assert_eq!(with("location: 42\n").0.location(), Some("42"));
    assert_eq!(with("location: \"0123\"\n").0.location(), Some("0123"));
    assert_eq!(with("location: \"\"\n").0.location(), None, "empty is absent");
}

#[test]
fn c1_multiple_load_balancers_are_checked_as_in_upstream() {
    let head = "tenantId: t\nsubscriptionId: s\nresourceGroup: r\nvnetName: v\n\
                loadBalancerBackendPoolConfigurationType: nodeIP\nmultipleStandardLoadBalancerConfigurations:\n";
    let key = "multipleStandardLoadBalancerConfigurations";
    let rows = [
        ("- {name: a}", "[0].primaryVMSet: found nothing, expected a value; add it; every entry needs one"),
        ("- {primaryVMSet: a}", "[0].name: found nothing, expected a value; add it; every entry needs one"),
        (
            "- {name: a, primaryVMSet: x}\n- {name: A, primaryVMSet: z}",
            "[1].name: found the text \"A\", expected a value that no other entry has; give each entry its own",
        ),
        (
            "- {name: a, primaryVMSet: x}\n- {name: b, primaryVMSet: X}",
            "[1].primaryVMSet: found the text \"X\", expected a value that no other entry has; give each entry its own",
        ),
        (
            "- {name: a, primaryVMSet: x, nodeSelector: [k]}",
            "[0].nodeSelector: found a list, expected a map; write `key: value` pairs",
        ),
        (
            "- lb1",
            "[0]: found the text \"lb1\", expected a map with at least name and primaryVMSet; \
             write `name: …` and `primaryVMSet: …`",
        ),
    ];
    for (entries, expected) in rows {
        let problems = parse(&format!("{head}{entries}\n")).expect_err("must be refused");
        let location = if expected.contains("found nothing") {
            "azure.json".to_owned()
        } else {
            format!("azure.json:{}", 6 + entries.lines().count())
        };
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(texts, [format!("{location}: {key}{expected}")], "{entries}");
    }
}

#[test]
fn c1_multiple_load_balancers_need_node_ips_and_standard_sku() {
    for pool_type in ["nodeIPConfiguration", "podIP"] {
        let text = BASE.replace("nodeIP\n", &format!("{pool_type}\n"));
        let problems = parse(&text).expect_err("must be refused");
        assert_eq!(
            problems[0].to_string(),
            format!(
                "azure.json:5: loadBalancerBackendPoolConfigurationType: found the text {pool_type:?}, expected nodeIP, \
                 because multipleStandardLoadBalancerConfigurations is given; write nodeIP"
            )
        );
    }
    let (config, warnings) = with("loadBalancerSku: basic\n");
    assert!(!config.uses_multiple_load_balancers());
    assert_eq!(warnings[0].field, "loadBalancerSku");
}

#[test]
fn d1_each_configuration_has_an_external_and_an_internal_lb() {
    assert_eq!(
        with("").0.managed_load_balancers("ignored"),
        ["kubernetes", "kubernetes-internal", "lb2", "lb2-internal"]
    );
    let single = "tenantId: t\nsubscriptionId: s\nresourceGroup: r\nvnetName: v\n";
    let (config, warnings) = parse(single).expect("valid");
    assert_eq!(config.managed_load_balancers("prod"), ["prod", "prod-internal"]);
    assert_eq!(warnings[0].field, "multipleStandardLoadBalancerConfigurations");
    let (config, _) = parse(&format!("{single}loadBalancerName: LB\n")).expect("valid");
    assert_eq!(config.managed_load_balancers("prod"), ["LB", "LB-internal"]);
}

#[test]
fn s1_the_single_lb_warning_tells_whether_nodes_are_drained() {
    let single = "tenantId: t\nsubscriptionId: s\nresourceGroup: r\nvnetName: v\n";
    let none =
        "without it and SKU standard no Service has a backend pool of its own, and no members are written";
    let on = "only nodes that leave service are taken out of traffic (enableLoadBalancerAdminState)";
    let off = "with enableLoadBalancerAdminState false, this controller does nothing";
    let rows = [
        ("", on),
        ("enableLoadBalancerAdminState: true\n", on),
        ("enableLoadBalancerAdminState: false\n", off),
    ];
    for (lines, rest) in rows {
        let (config, warnings) = parse(&format!("{single}{lines}")).expect("valid");
        assert_eq!(config.admin_state_enabled(), rest == on);
        let messages: Vec<String> = warnings.into_iter().map(|warning| warning.message).collect();
        assert_eq!(messages, [format!("{none}; {rest}")], "{lines}");
    }
}

#[test]
fn d1_subscriptions_groups_and_network_follow_upstream() {
    let (config, _) = with("");
    assert_eq!(config.network_subscription(), "s-1");
    assert_eq!(config.load_balancer_resource_group(), "rg-one");
    let vnet = "/subscriptions/s-1/resourceGroups/rg-one/providers/Microsoft.Network/virtualNetworks/vnet";
    assert_eq!(config.vnet_id().as_deref(), Some(vnet));
    let (config, _) =
        with("networkResourceSubscriptionID: s-2\nloadBalancerResourceGroup: LBs\nvnetResourceGroup: Nets\n");
    assert_eq!(config.network_subscription(), "s-2");
    assert_eq!(config.load_balancer_resource_group(), "LBs");
    let vnet = "/subscriptions/s-1/resourceGroups/Nets/providers/Microsoft.Network/virtualNetworks/vnet";
    assert_eq!(config.vnet_id().as_deref(), Some(vnet), "upstream's id is in the cluster's subscription");
}

#[test]
fn c3_each_cloud_has_its_endpoint_authority_and_audience() {
    let rows = [
        (
            "",
            "https://management.azure.com/",
            "https://login.microsoftonline.com/",
            "https://management.core.windows.net//.default",
        ),
        (
            "AzurePublicCloud",
            "https://management.azure.com/",
            "https://login.microsoftonline.com/",
            "https://management.core.windows.net//.default",
        ),
        (
            "AZURECHINACLOUD",
            "https://management.chinacloudapi.cn/",
            "https://login.chinacloudapi.cn/",
            "https://management.core.chinacloudapi.cn/.default",
        ),
        (
            "azureUSGovernment",
            "https://management.usgovcloudapi.net/",
            "https://login.microsoftonline.us/",
            "https://management.core.usgovcloudapi.net/.default",
        ),
        (
            "AzureUSGovernmentCloud",
            "https://management.usgovcloudapi.net/",
            "https://login.microsoftonline.us/",
            "https://management.core.usgovcloudapi.net/.default",
        ),
    ];
    for (cloud, arm, authority, scope) in rows {
        let (config, _) = with(&format!("cloud: \"{cloud}\"\n"));
        assert_eq!(config.arm_endpoint().as_str(), arm, "{cloud}");
        assert_eq!(config.login().scope().as_deref(), Some(scope), "{cloud}");
        match config.login() {
            Login::Known { authority_host, .. } => assert_eq!(authority_host.as_str(), authority, "{cloud}"),
            Login::Metadata { .. } => panic!("{cloud} is a known cloud"),
        }
    }
}

#[test]
fn c3_a_resource_manager_endpoint_wins_and_gives_its_authority() {
    let (config, _) = with("resourceManagerEndpoint: https://management.local.example/\n");
    assert_eq!(config.arm_endpoint().as_str(), "https://management.local.example/");
    let document = "https://management.local.example/metadata/endpoints?api-version=2019-05-01";
    match config.login() {
        Login::Metadata { document: url, authority_host: None, .. } => assert_eq!(url.as_str(), document),
        other @ (Login::Known { .. } | Login::Metadata { .. }) => panic!("{other:?}"),
    }
    let (config, _) = with("resourceManagerEndpoint: https://management.azure.com\n");
    assert!(config.login().scope().is_some(), "a known cloud's endpoint has that cloud's authority");
}

#[test]
fn c3_azure_stack_is_refused_with_the_reason() {
    for lines in ["", "resourceManagerEndpoint: https://management.local.example\n"] {
        assert_eq!(
            refused(&format!("cloud: AZURESTACKCLOUD\n{lines}")),
            [
                "azure.json:9: cloud: found the text \"AZURESTACKCLOUD\", expected a cloud whose backend pools can list IP \
                 addresses; the network API of Azure Stack cannot; on Azure Stack, leave the backend pools to the \
                 cloud-controller-manager and uninstall this controller"
            ]
        );
    }
}

#[test]
fn c3_a_custom_cloud_named_azure_stack_is_accepted() {
    // As in cloud-provider-azure: the name stands for custom endpoints, and the cluster is not on Azure Stack.
    let lines = "cloud: AzureStackCloud\ndisableAzureStackCloud: true\n";
    let (config, text) = with(&format!("{lines}resourceManagerEndpoint: https://management.local.example\n"));
    assert_eq!(config.arm_endpoint().as_str(), "https://management.local.example/");
    assert!(text.is_empty(), "{text:?}");
    assert_eq!(
        refused(lines),
        [
            "azure.json: resourceManagerEndpoint: found nothing, expected the address of ARM, because cloud is \
             AzureStackCloud and disableAzureStackCloud is true; write it like https://management.example.com, or name \
             the cloud in cloud"
        ]
    );
}

#[test]
fn c3_endpoints_are_absolute_and_plain_http_is_loopback_only() {
    let key = "azure.json:9: resourceManagerEndpoint: found";
    let https = "expected an absolute https address";
    let example = "write it like https://management.example.com";
    let rows = [
        (
            "management.example.com",
            format!("{key} \"management.example.com\" (relative URL without a base), {https}; {example}"),
        ),
        (
            "ftp://a.example",
            format!("{key} \"ftp://a.example\" (neither http nor https), {https}; {example}"),
        ),
        (
            "http://10.0.0.1:1",
            format!(
                "{key} \"http://10.0.0.1:1\" (plain http), {https}; use https; plain http is allowed to loopback only"
            ),
        ),
        (
            "https://u:MARKER@a.example",
            format!(
                "{key} an address that is not shown here (with credentials), {https}; remove user and password from the address"
            ),
        ),
        (
            "https://a.example/?x=1",
            format!(
                "{key} an address that is not shown here (with a query or fragment), {https}; remove everything from `?` or `#` on"
            ),
        ),
    ];
    for (address, problem) in rows {
        assert_eq!(refused(&format!("resourceManagerEndpoint: {address}\n")), [problem], "{address}");
    }
    for address in
        ["http://127.0.0.1:8444", "http://localhost:1", "http://[::1]:1", "https://a.example:8443/base"]
    {
        with(&format!("resourceManagerEndpoint: \"{address}\"\n"));
    }
    assert_eq!(
        warnings("cloud: Moon\n"),
        ["azure.json:9: cloud: \"Moon\" is not a known cloud; AzurePublicCloud is used"]
    );
}

#[test]
fn s0_the_update_interval_defaults_to_30_seconds_also_for_0() {
    let interval = |lines: &str| with(lines).0.update_interval();
    assert_eq!(interval(""), Duration::from_secs(30));
    assert_eq!(interval("loadBalancerBackendPoolUpdateIntervalInSeconds: 0\n"), Duration::from_secs(30));
    assert_eq!(interval("loadBalancerBackendPoolUpdateIntervalInSeconds: 7\n"), Duration::from_secs(7));
}

const MAX_RETRIES: &str = "loadBalancerBackendPoolUpdateMaxRetries";
const RETRY_COUNT: &str = "loadBalancerBackendPoolUpdateRetryCount";

/// Returns the configured retries, those in force, and the configured ones after serializing and parsing the
/// configuration.
fn q7(lines: &str) -> (Option<i64>, u32, Option<i64>) {
    let (config, _) = with(lines);
    let (again, _) =
        CloudConfig::parse(config.to_json().as_bytes(), "again").expect("re-serialised text is valid");
    assert_eq!(again.max_retries(), config.max_retries());
    (config.configured_max_retries(), config.max_retries(), again.configured_max_retries())
}

#[test]
fn q7_absent_is_3_and_stays_absent_through_reserialisation() {
    assert_eq!(q7(""), (None, 3, None));
    assert!(!with("").0.to_json().contains(MAX_RETRIES));
}

#[test]
fn q7_null_is_3_and_absent_after_reserialisation() {
    assert_eq!(q7(&format!("{MAX_RETRIES}: null\n")), (None, 3, None));
    assert_eq!(q7(&format!("{MAX_RETRIES}:\n")), (None, 3, None));
    assert_eq!(q7(&format!("{MAX_RETRIES}: ~\n")), (None, 3, None));
}

#[test]
fn q7_0_is_none_and_stays_0_through_reserialisation() {
    assert_eq!(q7(&format!("{MAX_RETRIES}: 0\n")), (Some(0), 0, Some(0)));
}

#[test]
fn q7_a_positive_number_is_used() {
    assert_eq!(q7(&format!("{MAX_RETRIES}: 12\n")), (Some(12), 12, Some(12)));
}

#[test]
fn q7_negative_is_none_with_a_warning() {
    assert_eq!(q7(&format!("{MAX_RETRIES}: -2\n")), (Some(-2), 0, Some(-2)));
    assert_eq!(
        warnings(&format!("{MAX_RETRIES}: -2\n")),
        [format!("azure.json:9: {MAX_RETRIES}: a negative count means 0: failed changes are not retried")]
    );
}

#[test]
fn q7_the_older_key_is_an_alias_with_a_warning() {
    assert_eq!(q7(&format!("{RETRY_COUNT}: 0\n")), (Some(0), 0, Some(0)));
    assert_eq!(
        warnings(&format!("{RETRY_COUNT}: 5\n")),
        [format!("azure.json:9: {RETRY_COUNT}: this is an older name; write {MAX_RETRIES}")]
    );
    assert_eq!(q7(&format!("{RETRY_COUNT}: null\n")), (None, 3, None));
}

#[test]
fn q7_the_newer_key_wins_over_the_older_with_a_warning() {
    let both = format!("{MAX_RETRIES}: 0\n{RETRY_COUNT}: 5\n");
    assert_eq!(q7(&both), (Some(0), 0, Some(0)));
    assert_eq!(
        warnings(&both),
        [format!(
            "azure.json:10: {RETRY_COUNT}: ignored, because {MAX_RETRIES} is given too; remove this older name"
        )]
    );
    assert_eq!(q7(&format!("{MAX_RETRIES}: null\n{RETRY_COUNT}: 5\n")).1, 5, "null is absent");
}

#[test]
fn w4_client_retries_count_only_with_backoff_and_above_0() {
    let retries = |lines: &str| with(lines).0.client_retries();
    assert_eq!(retries(""), 3);
    assert_eq!(retries("cloudProviderBackoffRetries: 9\n"), 3);
    assert_eq!(retries("cloudProviderBackoff: true\ncloudProviderBackoffRetries: 9\n"), 9);
    assert_eq!(retries("cloudProviderBackoff: true\ncloudProviderBackoffRetries: 0\n"), 3);
    assert_eq!(retries("cloudProviderBackoff: true\n"), 3);
}

#[test]
fn w9_rate_limits_follow_upstreams_defaults_and_override() {
    let limit = |lines: &str| {
        let limit = with(lines).0.rate_limit();
        limit.map(|l| (l.reads_per_second, l.read_burst, l.writes_per_second, l.write_burst))
    };
    assert_eq!(limit(""), None);
    assert_eq!(limit("cloudProviderRateLimit: true\n"), Some((10.0, 5, 1.0, 5)), "reads have a floor");
    let general = "cloudProviderRateLimit: true\ncloudProviderRateLimitQPS: 40\ncloudProviderRateLimitBucket: 8\n\
                   cloudProviderRateLimitQPSWrite: 2.5\ncloudProviderRateLimitBucketWrite: 3\n";
    assert_eq!(limit(general), Some((40.0, 8, 2.5, 3)));
    let own = format!(
        "{general}loadBalancerRateLimit: {{cloudProviderRateLimit: true, cloudProviderRateLimitQPSWrite: 7}}\n"
    );
    assert_eq!(limit(&own), Some((40.0, 8, 7.0, 3)));
    let off = format!("{general}loadBalancerRateLimit: {{cloudProviderRateLimit: false}}\n");
    assert_eq!(limit(&off), None);
}

#[test]
fn w9_a_rate_of_0_counts_as_absent_as_in_upstream() {
    let keys = ["QPS", "Bucket", "QPSWrite", "BucketWrite"].map(|key| format!("cloudProviderRateLimit{key}"));
    let limit = |lines: &str| with(lines).0.rate_limit();
    let enabled = "cloudProviderRateLimit: true\n";
    let general: String =
        keys.iter().zip([40, 8, 20, 3]).map(|(key, value)| format!("{key}: {value}\n")).collect();
    for zero in &keys {
        assert_eq!(limit(&format!("{enabled}{zero}: 0\n")), limit(enabled), "{zero}");
        let own =
            format!("{enabled}{general}loadBalancerRateLimit: {{cloudProviderRateLimit: true, {zero}: 0}}\n");
        assert_eq!(limit(&own), limit(&format!("{enabled}{general}")), "{zero}");
    }
}

#[test]
fn w9_reads_below_the_floor_are_a_warning() {
    let rate_warning = |lines: &str| {
        let text = warnings(lines).into_iter().find(|text| text.contains("reads per second"));
        text.unwrap_or_default()
    };
    assert_eq!(
        rate_warning("cloudProviderRateLimit: true\n"),
        "azure.json:9: cloudProviderRateLimit: 1 reads per second are too few for this controller, which may make up \
         to 10"
    );
    assert!(
        rate_warning(
            "loadBalancerRateLimit: {cloudProviderRateLimit: true, cloudProviderRateLimitQPS: 9.5}\n"
        )
        .starts_with("azure.json:9: loadBalancerRateLimit: 9.5 reads per second are too few")
    );
    assert_eq!(rate_warning("cloudProviderRateLimit: true\ncloudProviderRateLimitQPS: 10\n"), "");
    assert_eq!(rate_warning("cloudProviderRateLimit: false\ncloudProviderRateLimitQPS: 1\n"), "");
}

#[test]
fn n4_the_admin_state_switch_causes_no_warning() {
    for written in ["enableLoadBalancerAdminState: true\n", "enableLoadBalancerAdminState: false\n", ""] {
        assert!(!warnings(written).iter().any(|text| text.contains("AdminState")), "{written}");
    }
}

#[test]
fn d5_control_plane_nodes_are_excluded_by_default() {
    for (written, expected) in [
        ("", true),
        ("excludeMasterFromStandardLB: null\n", true),
        ("excludeMasterFromStandardLB: true\n", true),
        ("excludemasterfromstandardlb: false\n", false),
    ] {
        assert_eq!(with(written).0.excludes_control_plane(), expected, "{written}");
    }
}

#[test]
fn c1_a_misspelt_key_is_named_with_the_right_spelling() {
    let line = |line: &str, suggestion: &str| {
        let field = line.split_once(':').map_or(line, |(key, _)| key);
        format!("azure.json:9: {field}: ignored, because it is not a known key; did you mean {suggestion}")
    };
    let rows = [
        ("loadBalancerBackendPoolUpdateMaxRetry: 5", "loadBalancerBackendPoolUpdateMaxRetries"),
        ("enableLoadbalancerAdminStates: false", "enableLoadBalancerAdminState"),
        ("cloudProviderRatelimitQSP: 3", "cloudProviderRateLimitQPS"),
        ("vnetNmae: v", "vnetName"),
    ];
    for (text, suggestion) in rows {
        assert_eq!(warnings(&format!("{text}\n")), [line(text, suggestion)], "{text}");
    }
    let nested = "loadBalancerRateLimit: {cloudProviderRateLimitBuket: 3}\n";
    assert_eq!(
        warnings(nested),
        [
            "azure.json:9: loadBalancerRateLimit.cloudProviderRateLimitBuket: ignored, because it is not a known key; did you mean cloudProviderRateLimitBucket"
        ]
    );
    // A required key that is missing because it is misspelt.
    let text = match parse(&BASE.replace("tenantId", "tenentId")) {
        Ok(_) => panic!("it has no tenant"),
        Err(problems) => problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    };
    assert!(text.contains("tenantId: found nothing"), "{text}");
    assert!(
        text.contains("found the unknown key \"tenentId\", expected tenantId; correct the key"),
        "{text}"
    );
}

#[test]
fn c1_keys_of_the_cloud_controller_manager_are_no_misspellings() {
    let keys = "subnetName securityGroupName securityGroupResourceGroup routeTableName routeTableResourceGroup \
        primaryAvailabilitySetName vmType primaryScaleSetName tags tagsMap systemTags \
        preConfiguredBackendPoolLoadBalancerTypes disableAvailabilitySetNodes enableVmssFlexNodes \
        useInstanceMetadata enableMultipleStandardLoadBalancers nodePoolsWithoutDedicatedSLB \
        disableOutboundSNAT maximumLoadBalancerRuleCount availabilitySetNodesCacheTTLInSeconds \
        vmssCacheTTLInSeconds vmssVirtualMachinesCacheTTLInSeconds vmCacheTTLInSeconds loadBalancerCacheTTLInSeconds \
        nsgCacheTTLInSeconds routeTableCacheTTLInSeconds plsCacheTTLInSeconds availabilitySetsCacheTTLInSeconds \
        publicIPCacheTTLInSeconds routeUpdateIntervalInSeconds putVMSSVMBatchSize privateLinkServiceResourceGroup \
        enableMigrateToIPBasedBackendPoolAPI disableAPICallCache clusterServiceLoadBalancerHealthProbeMode \
        clusterServiceSharedLoadBalancerHealthProbePort serviceGatewayEnabled enableMinimumRetryAfter \
        routeRateLimit subnetsRateLimit interfaceRateLimit routeTableRateLimit publicIPAddressRateLimit \
        securityGroupRateLimit virtualMachineRateLimit storageAccountRateLimit diskRateLimit snapshotRateLimit \
        virtualMachineScaleSetRateLimit availabilitySetRateLimit attachDetachDiskRateLimit containerServiceRateLimit \
        deploymentRateLimit privateDNSRateLimit privateEndpointRateLimit virtualNetworkRateLimit \
        auxiliaryTokenProvider useStandardLoadBalancer providerKeyName providerKeyVersion providerVaultName";
    for key in keys.split_whitespace() {
        assert_eq!(warnings(&format!("{key}: x\n")), Vec::<String>::new(), "{key}");
    }
}
