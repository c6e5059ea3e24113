//! Both files together with the environment (C3): identity, cross checks, effective values, secrets, and file reading.

use std::collections::BTreeMap;
use std::path::Path;

use config::{Config, Identity, Loaded, Login, ManagedIdentity, Origin, Report, Source, read};

/// A valid cloud configuration for tests without loopback: a managed identity at the public cloud.
pub(crate) const CLOUD: &str = "\
tenantId: t-1
subscriptionId: s-1
resourceGroup: rg
vnetName: vnet
loadBalancerBackendPoolConfigurationType: nodeIP
multipleStandardLoadBalancerConfigurations:
- {name: kubernetes, primaryVMSet: vmss-1}
useManagedIdentityExtension: true
";

/// A secret, which no output may contain.
const MARKER: &str = "hunter2MARKER";

/// Returns an environment.
pub(crate) fn env(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn load(cloud: &str, controller: &str, variables: &[(&str, &str)]) -> Result<Loaded, Report> {
    let cloud = Source::new("azure.json", cloud);
    Config::load(cloud, Source::new("controller.yaml", controller), &env(variables))
}

fn refused(cloud: &str, controller: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let report = load(cloud, controller, variables).expect_err("must be refused");
    report.problems().iter().map(ToString::to_string).collect()
}

fn without_identity(lines: &str) -> String {
    CLOUD.replace("useManagedIdentityExtension: true\n", lines)
}

#[test]
fn c1_problems_of_both_files_come_in_one_report() {
    let report =
        load("tenantId: [\n", "colour: red\nlog: {level: loud}\n", &[]).expect_err("must be refused");
    let text = report.to_string();
    assert!(text.starts_with("the configuration has 3 problems\n- azure.json:"), "{text}");
    assert!(text.contains("\n- controller.yaml:1: colour: "), "{text}");
    assert!(text.contains("\n- controller.yaml:2: log.level: "), "{text}");
}

#[test]
fn c1_only_the_cloud_configuration_must_exist() {
    let missing = Config::load(Source::none("cloud"), Source::none("controller.yaml"), &env(&[]));
    assert_eq!(
        missing.expect_err("must be refused").to_string(),
        "the configuration has 1 problem\n- cloud: whole file: found nothing, expected the \
         cloud-controller-manager's configuration; give the file with --cloud-config"
    );
    assert!(Config::load(Source::new("c", CLOUD), Source::none("controller.yaml"), &env(&[])).is_ok());
}

#[test]
fn c1_a_missing_file_is_named_with_its_path_and_a_remedy() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("controller.yaml");
    let report = read(&path).expect_err("there is no file");
    let problem = &report.problems()[0];
    assert_eq!(problem.location.to_string(), path.display().to_string());
    assert_eq!(problem.remedy, "check the path, or mount the file there");
    let report = read(folder.path()).expect_err("a folder is no file");
    assert_eq!(report.problems()[0].remedy, "name the file inside the directory");
    std::fs::write(&path, "log: {format: text}\n").expect("written");
    let source = read(&path).expect("readable");
    assert_eq!(source.content(), Some(b"log: {format: text}\n".as_slice()));
    std::fs::write(&path, vec![b'#'; config::MAX_FILE_BYTES + 1]).expect("written");
    assert_eq!(read(&path).expect_err("too large").problems()[0].found, "a larger one");
    assert!(read(Path::new("/dev/null/x")).is_err());
}

#[test]
fn c3_credentials_are_chosen_in_upstreams_order() {
    let all = "useFederatedWorkloadIdentityExtension: true\naadFederatedTokenFile: /token\nuseManagedIdentityExtension: true\n\
               aadClientId: c-1\naadClientSecret: s\naadClientCertPath: /cert\n";
    let lines: Vec<&str> = all.lines().collect();
    let kinds = ["workloadIdentity", "managedIdentity", "clientSecret", "clientCertificate"];
    for (dropped, kind) in [(0, kinds[0]), (2, kinds[1]), (3, kinds[2]), (5, kinds[3])] {
        let rest: Vec<&str> =
            lines.iter().enumerate().filter(|(at, _)| *at >= dropped || *at == 3).map(|(_, l)| *l).collect();
        let loaded = load(&without_identity(&(rest.join("\n") + "\n")), "", &[]).expect("valid");
        assert_eq!(loaded.config.identity.name(), kind);
    }
}

#[test]
fn c3_the_environment_wins_over_the_file_for_credentials() {
    let variables = [
        ("AZURE_FEDERATED_TOKEN_FILE", "/var/run/token"),
        ("AZURE_CLIENT_ID", "env-client"),
        ("AZURE_TENANT_ID", "env-tenant"),
        ("AZURE_AUTHORITY_HOST", "https://login.example/"),
    ];
    let loaded = load(CLOUD, "", &variables).expect("valid");
    match &loaded.config.identity {
        Identity::WorkloadIdentity { tenant_id, client_id, token_file } => {
            assert_eq!((tenant_id.as_str(), client_id.as_str()), ("env-tenant", "env-client"));
            assert_eq!(token_file, Path::new("/var/run/token"));
        }
        other @ (Identity::Anonymous
        | Identity::Managed(_)
        | Identity::ClientSecret { .. }
        | Identity::ClientCertificate { .. }) => panic!("{other:?}"),
    }
    match &loaded.config.login {
        Login::Known { authority_host, .. } => assert_eq!(authority_host.as_str(), "https://login.example/"),
        Login::Metadata { .. } => panic!("the public cloud is known"),
    }
    let entry =
        loaded.config.effective_identity().iter().find(|entry| entry.path == "clientId").expect("shown");
    assert_eq!(entry.origin, Origin::Environment("AZURE_CLIENT_ID".to_owned()));
}

#[test]
fn c3_user_assigned_identities_are_client_ids_or_resource_ids() {
    let rows = [
        ("", ManagedIdentity::SystemAssigned),
        ("userAssignedIdentityID: u-1\n", ManagedIdentity::ClientId("u-1".to_owned())),
        (
            "userAssignedIdentityID: /subscriptions/s/x\n",
            ManagedIdentity::ResourceId("/subscriptions/s/x".to_owned()),
        ),
    ];
    for (line, expected) in rows {
        match load(&format!("{CLOUD}{line}"), "", &[]).expect("valid").config.identity {
            Identity::Managed(identity) => assert_eq!(identity, expected),
            other @ (Identity::Anonymous
            | Identity::WorkloadIdentity { .. }
            | Identity::ClientSecret { .. }
            | Identity::ClientCertificate { .. }) => panic!("{other:?}"),
        }
    }
}

#[test]
fn c3_missing_credentials_are_problems_with_remedies() {
    let remedy = "set useFederatedWorkloadIdentityExtension, useManagedIdentityExtension, or aadClientId with \
                  aadClientSecret or aadClientCertPath";
    assert_eq!(
        refused(&without_identity(""), "", &[]),
        [format!(
            "azure.json: identity: found no credentials in the cloud configuration and the environment, expected a \
             way to sign in at ARM; {remedy}"
        )]
    );
    assert_eq!(
        refused(&without_identity("aadMSIDataPlaneIdentityPath: /x\n"), "", &[]),
        [format!(
            "azure.json: identity: found aadMSIDataPlaneIdentityPath, which this controller does not support, expected \
             a way to sign in at ARM; {remedy}"
        )]
    );
    assert_eq!(
        refused(CLOUD, "identity: workloadIdentity\n", &[]),
        [
            "azure.json: aadFederatedTokenFile: found nothing, expected the projected token's path for workload \
             identity; set AZURE_FEDERATED_TOKEN_FILE or aadFederatedTokenFile, or write another identity",
            "azure.json: aadClientId: found nothing, expected the application that signs in; set AZURE_CLIENT_ID or \
             aadClientId",
        ]
    );
}

#[test]
fn c3_a_requested_identity_wins_over_all_other_credentials() {
    let all = "useFederatedWorkloadIdentityExtension: true\naadFederatedTokenFile: /token\nuseManagedIdentityExtension: true\n\
               aadClientId: c-1\naadClientSecret: s\naadClientCertPath: /cert\n";
    for kind in ["workloadIdentity", "managedIdentity", "clientSecret", "clientCertificate"] {
        let loaded = load(&without_identity(all), &format!("identity: {kind}\n"), &[]).expect("valid");
        assert_eq!(loaded.config.identity.name(), kind);
    }
    assert_eq!(
        refused(CLOUD, "identity: clientSecret\n", &[("AZURE_CLIENT_ID", "c")]),
        [
            "azure.json: aadClientSecret: found nothing, expected the application's secret; set AZURE_CLIENT_SECRET or \
             aadClientSecret, or write another identity"
        ]
    );
    assert_eq!(
        refused(CLOUD, "identity: clientCertificate\n", &[("AZURE_CLIENT_ID", "c")]),
        ["azure.json: aadClientCertPath: found nothing, expected the path of certificate and key; set \
             aadClientCertPath to a PKCS#12 or PEM file, or write another identity"]
    );
}

#[test]
fn c3_load_balancers_of_another_tenant_use_its_application() {
    for credential in ["aadClientSecret: s", "aadClientCertPath: /c.pem"] {
        let lines = format!("aadClientId: c\n{credential}\nnetworkResourceTenantID: t-2\n");
        let loaded = load(&without_identity(&lines), "", &[]).expect("valid");
        match &loaded.config.identity {
            Identity::ClientSecret { tenant_id, .. } | Identity::ClientCertificate { tenant_id, .. } => {
                assert_eq!(tenant_id, "t-2", "{credential}");
            }
            other @ (Identity::Anonymous | Identity::WorkloadIdentity { .. } | Identity::Managed(_)) => {
                panic!("{other:?}")
            }
        }
        let entry: Vec<_> =
            loaded.config.effective_identity().iter().filter(|entry| entry.path == "tenantId").collect();
        assert_eq!(entry.len(), 1, "{credential}");
        assert_eq!(entry[0].value, config::Value::Text("t-2".to_owned()));
    }
    assert_eq!(
        refused(&format!("{CLOUD}networkResourceTenantID: t-2\n"), "", &[]),
        [
            "azure.json: networkResourceTenantID: found \"t-2\" with the identity managedIdentity, expected the tenant of the identity, because only a client secret or certificate works in another tenant; sign in with aadClientId and \
             aadClientSecret or aadClientCertPath, or remove the key"
        ]
    );
    let federated = without_identity("aadClientId: c\nnetworkResourceTenantID: t-2\n");
    let texts = refused(&federated, "", &[("AZURE_FEDERATED_TOKEN_FILE", "/token")]);
    assert!(
        texts[0].contains("\"t-2\" with the identity workloadIdentity, expected the tenant"),
        "{texts:?}"
    );
    assert!(load(&format!("{CLOUD}networkResourceTenantID: T-1\n"), "", &[]).is_ok(), "it is the same");
}

#[test]
fn c3_ad_fs_is_refused_if_it_would_issue_the_tokens() {
    let lines = "identitySystem: ADFS\naadClientId: c\naadClientSecret: s\n";
    assert_eq!(
        refused(&without_identity(lines), "", &[]),
        [
            "azure.json: identitySystem: found \"ADFS\", expected azure_ad; remove the key, or use a managed identity; \
             only Entra ID gives tokens to this controller"
        ]
    );
    assert!(load(&format!("{CLOUD}identitySystem: adfs\n"), "", &[]).is_ok());
    assert!(load(&without_identity(&lines.replace("ADFS", "azure_ad")), "", &[]).is_ok());
}

#[test]
fn c3_an_aks_identity_binding_is_refused_if_it_is_used() {
    let proxy = ("AZURE_KUBERNETES_TOKEN_PROXY", "https://10.0.0.1");
    let federated = without_identity("aadClientId: c\n");
    let token = ("AZURE_FEDERATED_TOKEN_FILE", "/token");
    assert_eq!(
        refused(&federated, "", &[token, proxy]),
        ["environment variable AZURE_KUBERNETES_TOKEN_PROXY: found an AKS identity binding, \
             expected workload identity without a token proxy, which this controller cannot use; remove the annotation \
             azure.workload.identity/use-identity-binding from its Pods, and create a federated credential for its \
             service account at the managed identity"]
    );
    assert!(load(&federated, "", &[token]).is_ok());
    assert!(load(CLOUD, "", &[proxy]).is_ok(), "a managed identity needs no proxy");
}

#[test]
fn c3_a_tenant_from_the_environment_is_one_path_segment() {
    let variables = [("AZURE_CLIENT_SECRET", "s"), ("AZURE_CLIENT_ID", "c"), ("AZURE_TENANT_ID", "a/b")];
    assert_eq!(
        refused(&without_identity(""), "", &variables),
        ["environment variable AZURE_TENANT_ID: found \"a/b\", expected a tenant's id or domain; \
          write the bare id, not an address"]
    );
}

#[test]
fn c3_a_tenant_that_is_invalid_in_a_url_is_refused() {
    let lines = without_identity("aadClientId: c\naadClientSecret: s\n");
    let texts = "found \"t_1\", expected a tenant's id or domain; write the bare id, not an address";
    assert_eq!(refused(&lines.replace("t-1", "t_1"), "", &[]), [format!("azure.json: tenantId: {texts}")]);
    assert_eq!(
        refused(&format!("{lines}networkResourceTenantID: t_1\n"), "", &[]),
        [format!("azure.json: networkResourceTenantID: {texts}")]
    );
    assert_eq!(
        refused(&lines, "", &[("AZURE_TENANT_ID", "t_1")]),
        [format!("environment variable AZURE_TENANT_ID: {texts}")]
    );
}

#[test]
fn c3_no_token_is_sent_over_plain_http() {
    let secret = without_identity("aadClientId: c\naadClientSecret: s\n");
    let local = "resourceManagerEndpoint: \"http://127.0.0.1:4\"\n";
    for cloud in [CLOUD, &secret] {
        let texts = refused(&format!("{cloud}{local}"), "", &[]);
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(
            texts[0].starts_with(
                "azure.json: resourceManagerEndpoint: found \"http://127.0.0.1:4/\", expected https, because"
            ) && texts[0].ends_with(
                "; use https, or, for a simulation, write identity: anonymous into controller.yaml"
            ),
            "{texts:?}"
        );
    }
    let authority = [("AZURE_AUTHORITY_HOST", "http://localhost:1")];
    assert_eq!(
        refused(&secret, "", &authority),
        [
            "azure.json: AZURE_AUTHORITY_HOST: found \"http://localhost:1/\", expected an absolute https address; use \
             https"
        ]
    );
    assert!(load(CLOUD, "", &authority).is_ok(), "a managed identity does not use it");
}

#[test]
fn c3_anonymous_requires_loopback() {
    assert_eq!(
        refused(CLOUD, "identity: anonymous\n", &[]),
        [
            "controller.yaml: identity: found anonymous with the ARM endpoint https://management.azure.com/, expected \
          anonymous with a loopback endpoint only; write auto, or point resourceManagerEndpoint of the cloud \
          configuration to loopback"
        ]
    );
    assert_eq!(refused(CLOUD, "", &[("POOL_CONTROLLER_IDENTITY", "anonymous")]).len(), 1);
    for endpoint in ["http://127.0.0.1:4", "https://localhost:5", "http://[::1]:6"] {
        let cloud = format!("{CLOUD}resourceManagerEndpoint: \"{endpoint}\"\n");
        let loaded = load(&cloud, "identity: anonymous\n", &[]).expect("valid");
        assert_eq!(loaded.config.identity.name(), "anonymous");
    }
    assert_eq!(
        refused(CLOUD, "", &[("AZURE_AUTHORITY_HOST", "http://login.example")]),
        ["environment variable AZURE_AUTHORITY_HOST: found \"http://login.example\" (plain http), \
          expected an absolute https address; use https; plain http is allowed to loopback only"]
    );
}

#[test]
fn d1_a_cluster_name_without_its_load_balancer_is_a_warning() {
    let loaded = load(CLOUD, "clusterName: prod\n", &[]).expect("valid");
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "controller.yaml: clusterName: no entry of multipleStandardLoadBalancerConfigurations is named prod, which \
          the cloud-controller-manager requires; write its --cluster-name here"
        ]
    );
    assert_eq!(load(CLOUD, "", &[]).expect("valid").warnings, []);
    assert_eq!(
        load(CLOUD, "", &[]).expect("valid").config.managed_load_balancers(),
        ["kubernetes", "kubernetes-internal"]
    );
}

#[test]
fn c1_misspelt_overrides_cause_warnings() {
    let variables =
        [("POOL_CONTROLLER_LOG_LEVL", "info"), ("POOL_CONTROLLER_SERVICE_HOST", "10.0.0.1"), ("PATH", "/")];
    let loaded = load(CLOUD, "", &variables).expect("valid");
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "environment variable POOL_CONTROLLER_LOG_LEVL: ignored, because no key has this name; did you mean POOL_CONTROLLER_LOG_LEVEL"
        ]
    );
}

#[test]
fn c1_effective_values_name_their_origin() {
    let controller = "batching: {quietPeriod: 100ms}\n";
    let loaded = load(CLOUD, controller, &[("POOL_CONTROLLER_LOG_LEVEL", "debug")]).expect("valid");
    let text = loaded.config.effective();
    for line in [
        "cloudConfig:\n",
        "  tenantId: t-1  # file\n",
        "  resourceManagerEndpoint: \"https://management.azure.com/\"  # default\n",
        "  loadBalancerBackendPoolUpdateMaxRetries: 3  # default\n",
        "  multipleStandardLoadBalancerConfigurations: [kubernetes]  # file\n",
        "controllerConfig:\n",
        "  batching:\n    quietPeriod: 100ms  # file\n    maxDelay: 2s  # default\n",
        "  log:\n    format: json  # default\n    level: debug  # environment POOL_CONTROLLER_LOG_LEVEL\n",
        "  kind: managedIdentity  # default\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    assert_eq!(loaded.config.effective_controller().len(), config::KEYS.len());
}

#[test]
fn c1_the_effective_values_are_a_valid_controller_yaml() {
    let controller = "services: {namespaces: [y, \"123\"], selector: \"app in (a,b)\"}\nclusterName: \"no\"\n\
         sources: {kubernetes: {failOnDataErrors: true}}\n\
         pools: [{loadBalancer: on, backendPool: \"1e3\", source: \"eds:outbound|80|{v1}|web, \\\"a\\\"\"}]\n";
    let loaded = load(CLOUD, controller, &[]).expect("valid");
    let text = loaded.config.effective();
    let start = text.find("controllerConfig:\n").expect("the section") + "controllerConfig:\n".len();
    let section: String = text[start..]
        .lines()
        .take_while(|line| line.starts_with("  "))
        .map(|line| format!("{}\n", &line[2..]))
        .collect();
    let again = load(CLOUD, &section, &[]).expect("valid");
    assert_eq!(again.config.controller, loaded.config.controller);
}

#[test]
fn c1_secrets_are_never_shown() {
    let secrets = format!("aadClientId: c\naadClientSecret: {MARKER}\naadClientCertPassword: {MARKER}\n");
    let cloud = without_identity(&secrets);
    let source = Source::new("azure.json", cloud.clone());
    assert!(!format!("{source:?}").contains(MARKER));
    let from_env = [("AZURE_CLIENT_SECRET", MARKER)];
    for variables in [&from_env[..], &[]] {
        let loaded = load(&cloud, "", variables).expect("valid");
        assert_eq!(loaded.config.identity.name(), "clientSecret");
        let (effective, json) = (loaded.config.effective(), loaded.config.cloud.to_json());
        assert!(effective.contains("aadClientSecret: \"<redacted>\"  # file"), "{effective}");
        assert!(json.contains("\"aadClientSecret\": \"<redacted>\""), "{json}");
        for entry in [effective, json, format!("{loaded:?}"), format!("{loaded:#?}")] {
            assert!(!entry.contains(MARKER), "{entry}");
        }
    }
}

#[test]
fn c1_problems_never_repeat_a_secret() {
    let rows = [
        format!("aadClientSecret: [{MARKER}]\n"),
        format!("aadClientSecret: {{{MARKER}: {MARKER}}}\n"),
        format!("aadClientSecret: *{MARKER}\n"),
        format!("aadClientSecret: &a {MARKER}\nx: *a\n"),
        format!("aadClientSecret: !{MARKER} x\n"),
        format!("aadClientSecret: %{MARKER}\n"),
        format!("aadClientSecret: @{MARKER}\n"),
        format!("aadClientSecret: \"\\q{MARKER}\"\n"),
        format!("aadClientSecret: \"{MARKER}\n"),
        format!("aadClientSecret: a: {MARKER}\n"),
        format!("aadClientSecret: {MARKER}\naadclientsecret: {MARKER}\n"),
        format!("resourceManagerEndpoint: https://user:{MARKER}@a.example\n"),
        format!("resourceManagerEndpoint: \"user:{MARKER}@\"\n"),
        format!("resourceManagerEndpoint: \"https://a.example/?sig={MARKER}\"\n"),
        format!("resourceManagerEndpoint: \"a.example?sv=1&sig={MARKER}\"\n"),
        format!("resourceManagerEndpoint: \"https://a.example/#{MARKER}\"\n"),
        format!("resourceManagerEndpoint: \"https://user:{MARKER}@a.example:99999\"\n"),
        "aadClientSecret: 1e10\n".replace("1e10", "8675309.5"),
    ];
    for lines in rows {
        let report = load(&format!("{CLOUD}{lines}"), "", &[]).expect_err("must be refused");
        for entry in [report.to_string(), format!("{report:?}")] {
            assert!(!entry.contains(MARKER) && !entry.contains("8675309"), "{lines} gives {entry}");
        }
    }
}
