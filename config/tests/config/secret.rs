//! The cloud configuration from a Secret, alone and over a file (C1).

use config::{CloudConfig, CloudSource, Config, Problem, Source, Warning, is_secret_used};

use crate::load::{CLOUD, env};

const SECRET_NAME: &str = "Secret kube-system/azure-cloud-provider, key cloud-config";

fn source(file: &str, secret: &str) -> CloudSource {
    CloudSource::from(Source::new("azure.json", file)).with_secret(Source::new(SECRET_NAME, secret))
}

fn read(file: &str, secret: &str) -> Result<(CloudConfig, Vec<Warning>), Vec<Problem>> {
    CloudConfig::read(&source(file, secret))
}

fn refused(source: &CloudSource) -> Vec<String> {
    let problems = CloudConfig::read(source).expect_err("must be refused");
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn c1_a_secret_replaces_only_its_own_keys_of_the_file() {
    let file = format!(
        "{CLOUD}loadBalancerBackendPoolUpdateMaxRetries: 7\ncloudProviderBackoff: true\ncloudProviderBackoffRetries: 9\n"
    );
    let secret = r#"{"TENANTID": "t-2", "loadBalancerBackendPoolUpdateMaxRetries": 0, "cloudProviderBackoff": false,
        "resourceGroup": null, "multipleStandardLoadBalancerConfigurations": [{"name": "other", "primaryVMSet": "v"}]}"#;
    for kind in ["", "cloudConfigType: merge\n", "cloudconfigtype: MERGE\n"] {
        let (config, warnings) = read(&format!("{file}{kind}"), secret).expect("valid");
        assert_eq!((config.tenant_id(), config.subscription_id()), ("t-2", "s-1"));
        assert_eq!(config.resource_group(), "rg", "null sets nothing");
        assert_eq!((config.max_retries(), config.client_retries()), (0, 3), "0 and false are values");
        assert_eq!(config.managed_load_balancers("x"), ["other", "other-internal"], "lists are replaced");
        assert_eq!(warnings, []);
    }
}

#[test]
fn c1_maps_of_a_secret_are_merged_key_by_key() {
    let file = format!(
        "{CLOUD}loadBalancerRateLimit: {{cloudProviderRateLimit: true, cloudProviderRateLimitQPS: 20, cloudProviderRateLimitBucket: 30}}\n"
    );
    let (config, _) = read(&file, "LoadBalancerRateLimit: {cloudProviderRateLimitQps: 40}\n").expect("valid");
    let limit = config.rate_limit().expect("enabled in the file");
    assert_eq!((limit.reads_per_second, limit.read_burst), (40.0, 30));
}

#[test]
fn c1_the_types_file_and_secret_ignore_the_other_one() {
    let secret = CLOUD.replace("t-1", "t-2");
    for (kind, tenant, expected) in [("file", "t-1", false), ("Secret", "t-2", true), ("merge", "t-2", true)]
    {
        let file = format!("{CLOUD}location: here\ncloudConfigType: {kind}\n");
        assert_eq!(is_secret_used(&Source::new("azure.json", file.clone())), expected, "{kind}");
        let (config, _) = read(&file, &secret).expect("valid");
        assert_eq!(config.tenant_id(), tenant, "{kind}");
        assert_eq!(config.location().is_some(), kind != "Secret", "{kind}");
    }
    assert!(is_secret_used(&Source::none("azure.json")) && is_secret_used(&Source::new("azure.json", "[")));
}

#[test]
fn c1_without_a_file_the_secret_is_the_configuration() {
    let source = CloudSource::from(Source::none("/etc/kubernetes/azure.json"))
        .with_secret(Source::new(SECRET_NAME, CLOUD));
    assert_eq!(source.name(), SECRET_NAME);
    let loaded = Config::load(source, Source::none("controller.yaml"), &env(&[])).expect("valid");
    let effective = loaded.config.effective();
    assert!(effective.starts_with(&format!("# {SECRET_NAME}\n")), "{effective}");
    assert!(effective.contains("  tenantId: t-1  # secret\n"), "{effective}");
    assert!(
        effective.contains("  multipleStandardLoadBalancerConfigurations: [kubernetes]  # secret\n"),
        "{effective}"
    );
}

#[test]
fn c1_effective_values_and_problems_name_the_secret() {
    let both = source(CLOUD, "subscriptionId: s-9\naadClientSecret: marker-of-the-secret\n");
    let loaded = Config::load(both, Source::none("controller.yaml"), &env(&[])).expect("valid");
    let effective = loaded.config.effective();
    assert!(effective.starts_with(&format!("# azure.json and {SECRET_NAME}\n")), "{effective}");
    for line in [
        "  tenantId: t-1  # file\n",
        "  subscriptionId: s-9  # secret\n",
        "  aadClientSecret: \"<redacted>\"  # secret\n",
    ] {
        assert!(effective.contains(line), "{line:?} is not in\n{effective}");
    }
    assert!(!format!("{effective}{loaded:?}").contains("marker-of-the-secret"));
    let invalid = source(
        CLOUD,
        "subscriptionId: [x]\nmultipleStandardLoadBalancerConfigurations:\n- {name: a}\n- 7\ntenantId: a\nTenantId: b\n",
    );
    let texts = refused(&invalid);
    for part in [
        ":1: subscriptionId: ",
        ":3: multipleStandardLoadBalancerConfigurations[0].primaryVMSet: ",
        ":4: ",
        ":6: tenantId: ",
    ] {
        let part = format!("{SECRET_NAME}{part}");
        // An absent key has no line.
        let file = part.replace(":3: ", ": ");
        assert!(
            texts.iter().any(|line| line.starts_with(&part) || line.starts_with(&file)),
            "{part}: {texts:#?}"
        );
    }
}

#[test]
fn c1_an_unusable_secret_or_type_is_a_problem() {
    let texts = refused(&source(CLOUD, "- a list\n"));
    assert!(texts[0].starts_with(&format!("{SECRET_NAME}: whole file: found a list")), "{texts:?}");
    let texts = refused(&source(CLOUD, "tenantId: [\n"));
    assert!(texts[0].starts_with(SECRET_NAME) && texts[0].contains("a syntax error"), "{texts:?}");
    assert_eq!(
        refused(&source(&format!("{CLOUD}cloudConfigType: both\n"), "{}")),
        [
            "azure.json:9: cloudConfigType: found the text \"both\", expected file, secret or merge; write merge, or remove the key"
        ]
    );
    let alone = CloudConfig::parse(format!("{CLOUD}cloudConfigType: secret\n").as_bytes(), "azure.json");
    let warnings: Vec<String> = alone.expect("valid").1.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "azure.json:9: cloudConfigType: the Secret is not read; pass --cloud-config-secret if this file is incomplete"
        ]
    );
}
