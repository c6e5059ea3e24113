//! controller.yaml (C1): defaults, the reference file, environment overrides, and the text of every refusal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{
    Compatibility, Config, ControllerConfig, DefaultValue, GuardsMode, KEYS, LogFormat, MembersAdd, Report,
    Source, environment_name, reference, schema,
};

use crate::load::{CLOUD, env};

fn load(text: &str, env: &BTreeMap<String, String>) -> Result<ControllerConfig, Report> {
    let cloud = Source::new("azure.json", CLOUD);
    Config::load(cloud, Source::new("controller.yaml", text), env).map(|loaded| loaded.config.controller)
}

fn valid(text: &str) -> ControllerConfig {
    load(text, &env(&[])).expect("valid")
}

fn refused(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let report = load(text, &env(variables)).expect_err("must be refused");
    report.problems().iter().map(ToString::to_string).collect()
}

#[test]
fn c1_every_key_has_a_default() {
    let config = valid("");
    assert_eq!(config.cluster_name, "kubernetes");
    assert_eq!(config.batching.quiet_period, Duration::from_millis(500));
    assert_eq!(config.batching.max_delay, Duration::from_secs(2));
    assert_eq!(config.batching.min_interval, Duration::from_secs(5));
    assert_eq!(config.members.add, MembersAdd::Hosted);
    assert_eq!(config.members.removal_delay, Duration::from_secs(30));
    assert_eq!(config.writer.max_concurrent_load_balancers, 64);
    assert!(config.writer.if_match);
    assert_eq!(config.writer.etag_rounds, 3);
    assert_eq!((config.budget.writes_per_5_minutes, config.budget.reads_per_5_minutes), (500, 5_000));
    assert_eq!(config.http.admin_listen.to_string(), "127.0.0.1:8081");
    assert_eq!(config.http.admin_tls_listen.to_string(), "0.0.0.0:8443");
    assert_eq!((&config.http_tls.certificate, &config.http_tls.key), (&None, &None), "and it is not open");
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!(config.compatibility, Compatibility::Default);
    assert_eq!(config.leader_election.name.as_str(), "azure-backend-pool-controller");
    assert_eq!(config.leader_election.namespace.as_str(), "kube-system");
    assert_eq!(
        (config.lease.max_hold, config.lease.min_cooldown),
        (Duration::from_secs(20), Duration::from_secs(5))
    );
    assert!(!config.lease.bypass_for_drain && !config.client.retry_throttled);
    assert_eq!(config.admin_state.exclude_pools, ["aksOutboundBackendPool"]);
    assert_eq!(config.admin_state.max_backoff, Duration::from_secs(15));
    assert_eq!((config.migration.on_startup, config.migration.accept), (false, Vec::new()));
    assert!(config.services.selector.requirements().is_empty() && config.services.namespaces.is_empty());
    assert!(!config.sources_kubernetes.fail_on_data_errors);
    assert_eq!((config.pools, config.xds.bootstrap), (Vec::new(), None));
    assert_eq!(config.xds.failback, Duration::from_secs(30));
    assert_eq!(config.http.csds_listen.to_string(), "127.0.0.1:18000", "and it is not open");
}

#[test]
fn c1_a_file_without_settings_gives_the_defaults() {
    for text in ["# nothing\n", "---\n", "services:\n", "{}"] {
        assert_eq!(valid(text), valid(""), "{text:?}");
    }
}

#[test]
fn c1_a_key_without_a_value_is_refused() {
    for key in KEYS {
        for nothing in ["", "~", "null"] {
            let segments: Vec<&str> = key.path.split('.').collect();
            let (name, sections) = segments.split_last().expect("a path has a segment");
            let mut written = String::new();
            for (depth, section) in sections.iter().enumerate() {
                written.push_str(&format!("{:indent$}{section}:\n", "", indent = 2 * depth));
            }
            written.push_str(&format!("{:indent$}{name}: {nothing}\n", "", indent = 2 * sections.len()));
            let problems = refused(&written, &[]);
            assert_eq!(problems.len(), 1, "{written}{problems:?}");
            assert!(problems[0].contains(key.path) && problems[0].contains("found nothing"), "{problems:?}");
            // The default of the mode does more than its other values: an operator who wants it writes it.
            let remedy = match key.path {
                "mode" => "expected one of observe, add-only, enforce; write the one that you mean",
                _ => "or remove the key to use its default",
            };
            assert!(problems[0].contains(remedy), "{problems:?}");
        }
    }
}

#[test]
fn c1_the_reference_file_matches_the_key_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("reference.yaml");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, reference()).expect("the reference file is writable");
    }
    let committed = std::fs::read_to_string(&path).expect("the reference file is committed");
    assert!(
        committed == reference(),
        "config/reference.yaml is not what the key table gives; run `make config-reference` and commit"
    );
}

/// Returns the values' schema of the chart, which has the schema of controller.yaml as one of its definitions.
fn values_schema() -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../charts/azure-backend-pool-controller/values.schema.json");
    let text = std::fs::read_to_string(&path).expect("the schema is committed");
    (path, text)
}

#[test]
fn c1_the_schema_of_the_chart_matches_the_key_table() {
    let (path, text) = values_schema();
    let (begin, end) = ("    \"controllerConfig\": ", "\n    },\n");
    let (before, rest) = text.split_once(begin).expect("the schema has the definition");
    let (_, after) = rest.split_once(end).expect("the definition ends");
    let pretty = serde_json::to_string_pretty(&schema()).expect("it is JSON").replace('\n', "\n    ");
    let generated = format!("{before}{begin}{pretty},\n{after}");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, &generated).expect("the schema is writable");
    }
    assert!(
        values_schema().1 == generated,
        "values.schema.json is not what the key table gives; run `make config-reference` and commit"
    );
}

#[test]
fn c1_the_schema_has_every_key_and_no_other() {
    fn paths(schema: &serde_json::Value, path: &str, found: &mut BTreeSet<String>) {
        for (name, inner) in schema["properties"].as_object().expect("a section has properties") {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            if inner.get("properties").is_some() {
                assert_eq!(inner["additionalProperties"], false, "{path}");
                paths(inner, &path, found);
            } else {
                found.insert(path);
            }
        }
    }
    let mut found = BTreeSet::new();
    paths(&schema(), "", &mut found);
    assert_eq!(found, KEYS.iter().map(|key| key.path.to_owned()).collect());
    let level = &schema()["properties"]["log"]["properties"]["level"];
    assert_eq!(*level, serde_json::json!({ "enum": ["error", "warn", "info", "debug", "trace"] }));
}

#[test]
fn c1_the_schema_describes_each_value_in_words() {
    let interval = &schema()["properties"]["discovery"]["properties"]["interval"];
    assert_eq!(interval["else"], serde_json::json!({ "const": "a duration from 5s to 1h" }));
    assert_eq!(interval["if"]["type"], "string");
}

#[test]
fn c1_the_api_version_is_a_date_that_knows_admin_states() {
    let of = |version: &str| valid(&format!("client: {{apiVersion: {version}}}")).client.api_version;
    assert_eq!(valid("").client.api_version.as_str(), "2025-05-01");
    for version in ["2021-08-01", "2024-05-01", "2024-05-01-preview"] {
        assert_eq!(of(version).as_str(), version);
    }
    let expected = "expected a version of Azure's network API, 2021-08-01 or later; write";
    let like = "it like 2024-05-01 or 2024-05-01-preview";
    let later = "a later version; members of backend pools have no admin state in earlier ones";
    let rows = [
        ("latest", like),
        ("2024-13-01", like),
        ("2024-05-00", like),
        ("2024-5-1", like),
        ("2024-05-01-beta", like),
        ("2024-05-01&x=y", like),
        ("20240501", like),
        ("2018-11-01", later),
        ("2021-07-31-preview", later),
    ];
    for (version, ending) in rows {
        let problems = refused(&format!("client: {{apiVersion: \"{version}\"}}"), &[]);
        assert!(
            problems.len() == 1 && problems[0].ends_with(&format!("{expected} {ending}")),
            "{problems:?}"
        );
    }
}

#[test]
fn c1_a_suggestion_is_never_the_value_with_more_effect() {
    let rows = [
        ("mode: foo", "one of observe, add-only, enforce; write one of these words"),
        ("mode: enforec", "one of observe, add-only, enforce; write one of these words"),
        ("mode: observed", "one of observe, add-only, enforce; write observe"),
        ("mode: addonly", "one of observe, add-only, enforce; write add-only"),
        ("guards: {mode: of}", "one of enforce, observe, off; write one of these words"),
        ("guards: {mode: Enforce}", "one of enforce, observe, off; write enforce"),
        ("compatibility: up-stream", "one of default, upstream; write one of these words"),
        ("log: {level: warning}", "one of error, warn, info, debug, trace; write warn"),
        ("log: {level: Info}", "one of error, warn, info, debug, trace; write info"),
    ];
    for (text, ending) in rows {
        let problems = refused(text, &[]);
        assert!(problems.len() == 1 && problems[0].ends_with(ending), "{text}: {problems:?}");
    }
}

#[test]
fn c1_the_reference_file_has_every_key_with_its_default() {
    assert_eq!(valid(&reference()), valid(""));
    for key in KEYS {
        let line = |key: &config::Key| {
            let name = key.path.rsplit('.').next().unwrap_or_default();
            match key.default {
                DefaultValue::Fixed(_) => format!("{name}: "),
                DefaultValue::UpdateInterval => format!("# {name}: "),
            }
        };
        let written = reference().lines().filter(|text| text.trim_start().starts_with(&line(key))).count();
        let alike = KEYS.iter().filter(|other| line(other) == line(key)).count();
        assert_eq!(written, alike, "{}", key.path);
        assert!(reference().contains(&key.environment()), "{}", key.path);
        assert!(!key.doc.is_empty() && !key.since.is_empty(), "{}", key.path);
    }
}

#[test]
fn c1_environment_names_follow_the_path() {
    let rows = [
        ("batching.quietPeriod", "POOL_CONTROLLER_BATCHING_QUIET_PERIOD"),
        ("clusterName", "POOL_CONTROLLER_CLUSTER_NAME"),
        ("budget.writesPer5Minutes", "POOL_CONTROLLER_BUDGET_WRITES_PER_5_MINUTES"),
        ("log.level", "POOL_CONTROLLER_LOG_LEVEL"),
        ("http.adminTlsListen", "POOL_CONTROLLER_HTTP_ADMIN_TLS_LISTEN"),
        ("http.tls.certificate", "POOL_CONTROLLER_HTTP_TLS_CERTIFICATE"),
        ("adminState.excludePools", "POOL_CONTROLLER_ADMIN_STATE_EXCLUDE_POOLS"),
        ("migration.onStartup", "POOL_CONTROLLER_MIGRATION_ON_STARTUP"),
        ("pools", "POOL_CONTROLLER_POOLS"),
        ("xds.bootstrap", "POOL_CONTROLLER_XDS_BOOTSTRAP"),
        ("sources.kubernetes.failOnDataErrors", "POOL_CONTROLLER_SOURCES_KUBERNETES_FAIL_ON_DATA_ERRORS"),
    ];
    for (path, name) in rows {
        assert_eq!(environment_name(path), name);
    }
    let names: std::collections::BTreeSet<String> = KEYS.iter().map(config::Key::environment).collect();
    assert_eq!(names.len(), KEYS.len(), "no two keys share a variable");
}

#[test]
fn c1_errors_name_the_overriding_variable_of_every_key() {
    for key in KEYS {
        let default = match key.default {
            config::DefaultValue::Fixed(text) => text,
            config::DefaultValue::UpdateInterval => "30s",
        };
        let name = key.environment();
        let cloud = Source::new("azure.json", CLOUD);
        let none = Source::none("controller.yaml");
        let loaded = Config::load(cloud, none, &env(&[(&name, default)])).expect("defaults are valid");
        let entry = loaded.config.effective_controller().iter().find(|entry| entry.path == key.path);
        let origin = &entry.expect("every key is shown").origin;
        assert_eq!(*origin, config::Origin::Environment(name.clone()), "{name}");
        let texts = refused("", &[(&name, "?!")]);
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(
            texts[0].starts_with(&format!("environment variable {name}: {}: found ", key.path)),
            "{texts:?}"
        );
    }
}

#[test]
fn c1_the_order_is_environment_then_file_then_default() {
    let text = "batching: {quietPeriod: 100ms, maxDelay: 1s}\nservices: {namespaces: [y, \"on\"]}\n";
    let variables = [
        ("POOL_CONTROLLER_BATCHING_QUIET_PERIOD", "200ms"),
        ("POOL_CONTROLLER_SERVICES_SELECTOR", "app=web,!internal"),
    ];
    let config = load(text, &env(&variables)).expect("valid");
    assert_eq!(config.batching.quiet_period, Duration::from_millis(200));
    assert_eq!(config.batching.max_delay, Duration::from_secs(1));
    assert_eq!(config.services.selector.to_string(), "app=web,!internal");
    assert_eq!(config.services.namespaces, ["y", "on"], "unquoted y is the namespace y");
    let config = load(text, &env(&[("POOL_CONTROLLER_SERVICES_NAMESPACES", "a, b,a")])).expect("valid");
    assert_eq!(config.services.namespaces, ["a", "b"]);
    let config = load(text, &env(&[("POOL_CONTROLLER_SERVICES_NAMESPACES", "")])).expect("valid");
    assert!(config.services.namespaces.is_empty(), "an empty list is written as empty text");
}

#[test]
fn c1_wrong_settings_are_refused_with_field_finding_and_remedy() {
    let rows = [
        (
            "batching: {quietPeriod: 500}",
            "controller.yaml:1: batching.quietPeriod: found the number 500, expected a duration from 0s to 1m; \
             add the unit: 500s for seconds, 500ms for milliseconds",
        ),
        (
            "batching: {maxDelay: fast}",
            "controller.yaml:1: batching.maxDelay: found the text \"fast\", expected a duration from 0s to 5m; \
             write whole numbers with units, such as 500ms, 2s or 10m",
        ),
        (
            "batching: {retryInterval: 61s}",
            "controller.yaml:1: batching.retryInterval: found the text \"61s\", expected a duration from 100ms to 1m; \
             write a duration from 100ms to 1m",
        ),
        (
            "lease: {maxHold: 5s}",
            "controller.yaml:1: lease.maxHold: found the text \"5s\", expected a duration from 6s to 30s; \
             write a duration from 6s to 30s",
        ),
        (
            "writer:\n  etagRounds: 0",
            "controller.yaml:2: writer.etagRounds: found the number 0, expected a whole number from 1 to 10; \
             write a whole number from 1 to 10, without quotes",
        ),
        (
            "writer: {ifMatch: 1}",
            "controller.yaml:1: writer.ifMatch: found the number 1, expected true or false; \
             write true or false, without quotes",
        ),
        (
            "members: {add: redy}",
            "controller.yaml:1: members.add: found the text \"redy\", expected one of hosted, serving, ready; write ready",
        ),
        (
            "clusterName: a/b",
            "controller.yaml:1: clusterName: found the text \"a/b\", expected a name of 1 to 80 letters, digits, `-`, \
             `_` and `.`; write the bare name",
        ),
    ];
    for (text, problem) in rows {
        assert_eq!(refused(text, &[]), [problem], "{text}");
    }
}

#[test]
fn c1_wrong_lists_and_addresses_are_refused_with_a_remedy() {
    let rows = [
        (
            "services: {namespaces: web}",
            "controller.yaml:1: services.namespaces: found the text \"web\", expected a list of namespaces; \
             write a list such as [default, web], or [] for all",
        ),
        (
            "services: {namespaces: [Web]}",
            "controller.yaml:1: services.namespaces: found the text \"Web\" in the list, expected a list of namespaces; \
             write namespaces by name: lower-case letters, digits and `-`",
        ),
        (
            "adminState: {excludePools: aksOutboundBackendPool}",
            "controller.yaml:1: adminState.excludePools: found the text \"aksOutboundBackendPool\", expected a list of \
             backend pools; write a list such as [aksOutboundBackendPool], or [] for none",
        ),
        (
            "adminState: {excludePools: [kubernetes/web]}",
            "controller.yaml:1: adminState.excludePools: found the text \"kubernetes/web\" in the list, expected a list of \
             backend pools; write backend pools by name, without their load balancer: letters, digits, `-`, `_` and `.`",
        ),
        (
            "migration: {accept: no-outbound}",
            "controller.yaml:1: migration.accept: found the text \"no-outbound\", expected a list of addresses and names; \
             write a list such as [no-outbound], or [] for nothing",
        ),
        (
            "migration: {accept: [all of it]}",
            "controller.yaml:1: migration.accept: found the text \"all of it\" in the list, expected a list of addresses and \
             names; write the names that `migrate-basic-lb plan` gives for --accept",
        ),
        (
            "adminState: {maxBackoff: 18m}",
            "controller.yaml:1: adminState.maxBackoff: found the text \"18m\", expected a duration from 1s to 17m; \
             write a duration from 1s to 17m",
        ),
        (
            "services: {selector: \"a in (b\"}",
            "controller.yaml:1: services.selector: found the text \"a in (b\", expected a label selector; correct a `(` \
             without `)`; write it like app=web,tier!=cache,zone in (a,b), or \"\" for all",
        ),
        (
            "http: {adminListen: \"0.0.0.0:8081\"}",
            "controller.yaml:1: http.adminListen: found the text \"0.0.0.0:8081\", expected a loopback IP address with a \
             port; write 127.0.0.1:8081; reading is open to every client that reaches it",
        ),
        (
            "http: {healthListen: 8080}",
            "controller.yaml:1: http.healthListen: found the number 8080, expected an IP address with a port; \
             write IP and port, such as 127.0.0.1:8081 or \"[::1]:8081\"",
        ),
    ];
    for (text, problem) in rows {
        assert_eq!(refused(text, &[]), [problem], "{text}");
    }
}

#[test]
fn c1_wrong_shapes_and_combinations_are_refused() {
    let rows = [
        (
            "batching: 5s",
            "controller.yaml:1: batching: found the text \"5s\", expected a map of settings; \
             indent the section's keys below it",
        ),
        (
            "[a]",
            "controller.yaml:1: whole file: found a list, expected a map of settings; \
             write `key: value` pairs; see the reference",
        ),
        (
            "log: {level: info}\nlog: {level: warn}",
            "controller.yaml:2: log: found the key on line 1 and on line 2, expected the key once; remove one of them",
        ),
        (
            "batching: {quietPeriod: 3s}",
            "controller.yaml: batching.quietPeriod: found 3s, expected at most batching.maxDelay, which is 2s; \
             shorten quietPeriod or lengthen maxDelay",
        ),
        (
            "http: {healthListen: \"0.0.0.0:8081\"}",
            "controller.yaml: http.adminListen: found 127.0.0.1:8081, expected another port than http.healthListen, \
             which is 0.0.0.0:8081; give each listener a port of its own",
        ),
    ];
    for (text, problem) in rows {
        assert_eq!(refused(text, &[]), [problem], "{text}");
    }
}

/// Returns a controller.yaml with a certificate and a key, and more keys of the section `http`.
fn with_tls(more: &str) -> String {
    format!("http: {{{more}tls: {{certificate: /tls/tls.crt, key: /tls/tls.key}}}}")
}

#[test]
fn h2_the_tls_listener_has_a_certificate_a_key_and_a_port() {
    let open = valid(&with_tls(""));
    let path = |path: &str| Some(Path::new(path).to_owned());
    assert_eq!((open.http_tls.certificate, open.http_tls.key), (path("/tls/tls.crt"), path("/tls/tls.key")));
    let variables = [
        ("POOL_CONTROLLER_HTTP_TLS_CERTIFICATE", "/other.crt"),
        ("POOL_CONTROLLER_HTTP_TLS_KEY", "/other.key"),
    ];
    assert_eq!(load("", &env(&variables)).expect("valid").http_tls.key, path("/other.key"));
    assert_eq!(
        refused("http: {tls: {certificate: /tls.crt}}", &[]),
        [
            "controller.yaml: http.tls.key: found nothing, expected the absolute path of a file in PEM, because \
             http.tls.certificate is set; set both, or remove http.tls.certificate to open no listener with TLS"
        ]
    );
    assert_eq!(
        refused("", &variables[1..]),
        [
            "controller.yaml: http.tls.certificate: found nothing, expected the absolute path of a file in PEM, because \
             http.tls.key is set; set both, or remove http.tls.key to open no listener with TLS"
        ]
    );
    assert_eq!(
        refused("http: {tls: {certificate: tls.crt, key: /tls.key}}", &[]),
        [
            "controller.yaml:1: http.tls.certificate: found the text \"tls.crt\", expected the absolute path of a file, or \
             \"\" for none; write the absolute path, starting with /"
        ]
    );
    for (taken, other, at) in [
        ("127.0.0.1:8080", "http.healthListen", "0.0.0.0:8080"),
        ("0.0.0.0:8081", "http.adminListen", "127.0.0.1:8081"),
    ] {
        let problem = format!(
            "controller.yaml: http.adminTlsListen: found {taken}, expected another port than {other}, which is {at}; \
             give each listener a port of its own"
        );
        assert_eq!(refused(&with_tls(&format!("adminTlsListen: \"{taken}\", ")), &[]), [problem]);
        // A closed listener uses no port.
        valid(&format!("http: {{adminTlsListen: \"{taken}\"}}"));
    }
    let any =
        "adminTlsListen: \"127.0.0.1:0\", adminListen: \"127.0.0.1:0\", healthListen: \"127.0.0.1:0\", ";
    valid(&with_tls(any));
}

#[test]
fn c1_unknown_keys_name_the_full_path_and_the_nearest_valid_key() {
    let rows = [
        (
            "batching:\n  quitePeriod: 1s",
            "controller.yaml:2: batching.quitePeriod: found the unknown key \"batching.quitePeriod\", expected a known \
             key; the nearest is batching.quietPeriod: write `quietPeriod` below `batching:`",
        ),
        (
            "quietPeriod: 1s",
            "controller.yaml:1: quietPeriod: found the unknown key \"quietPeriod\", expected a known key; \
             the nearest is batching.quietPeriod: write `quietPeriod` below `batching:`",
        ),
        (
            "batching.quietPeriod: 1s",
            "controller.yaml:1: batching.quietPeriod: found the unknown key \"batching.quietPeriod\", expected a known \
             key; the nearest is batching.quietPeriod: write `quietPeriod` below `batching:`",
        ),
        (
            "ClusterName: x",
            "controller.yaml:1: ClusterName: found the unknown key \"ClusterName\", expected a known key; \
             the nearest is clusterName",
        ),
        (
            "http: {tls: {certificat: /tls.crt}}",
            "controller.yaml:1: http.tls.certificat: found the unknown key \"http.tls.certificat\", expected a known key; \
             the nearest is http.tls.certificate: write `certificate` below `tls:` below `http:`",
        ),
        (
            "servises: {}",
            "controller.yaml:1: servises: found the unknown key \"servises\", expected a known key; \
             the nearest is services",
        ),
    ];
    for (text, problem) in rows {
        assert_eq!(refused(text, &[]), [problem], "{text}");
    }
}

#[test]
fn c1_the_report_of_many_unknown_keys_is_bounded() {
    let text: String = (0..500).map(|n| format!("k{n}: 1\n")).collect();
    let problems = refused(&text, &[]);
    assert_eq!(problems.len(), 21);
    assert_eq!(
        problems[20],
        "controller.yaml: whole file: found 480 more unknown keys, expected known keys; \
         check that this is the right file"
    );
}

#[test]
fn c1_a_wrong_override_names_the_variable_and_the_key() {
    assert_eq!(
        refused("", &[("POOL_CONTROLLER_DISCOVERY_INTERVAL", "60")]),
        [
            "environment variable POOL_CONTROLLER_DISCOVERY_INTERVAL: discovery.interval: found the number 60, expected \
          a duration from 5s to 1h; add the unit: 60s for seconds, 60ms for milliseconds"
        ]
    );
}

#[test]
fn q2_the_retry_interval_follows_the_cloud_file_up_to_60_s() {
    let rows = [("", 30), ("0", 30), ("7", 7), ("60", 60), ("61", 60), ("86400", 60)];
    for (interval, seconds) in rows {
        let cloud = format!("{CLOUD}loadBalancerBackendPoolUpdateIntervalInSeconds: {interval}\n");
        let loaded =
            Config::load(Source::new("azure.json", cloud), Source::none("controller.yaml"), &env(&[]));
        let loaded = loaded.expect("valid");
        assert_eq!(
            loaded.config.controller.batching.retry_interval,
            Duration::from_secs(seconds),
            "{interval}"
        );
        let warned = loaded.warnings.iter().any(|warning| warning.field == "batching.retryInterval");
        assert_eq!(warned, interval.parse().is_ok_and(|n: u64| n > 60), "{interval}");
    }
    assert_eq!(valid("batching: {retryInterval: 3s}").batching.retry_interval, Duration::from_secs(3));
}

#[test]
fn w8_our_lease_is_independent_of_the_pods_namespace() {
    let namespace = |text: &str, variables: &[(&str, &str)]| {
        load(text, &env(variables)).expect("valid").leader_election.namespace.as_str().to_owned()
    };
    let pod = [("POD_NAMESPACE", "pools")];
    assert_eq!(namespace("", &pod), "kube-system");
    assert_eq!(namespace("leaderElection: {namespace: other}", &pod), "other");
    let own = [("POD_NAMESPACE", "pools"), ("POOL_CONTROLLER_LEADER_ELECTION_NAMESPACE", "third")];
    assert_eq!(namespace("leaderElection: {namespace: other}", &own), "third");
    assert_eq!(
        refused("leaderElection: {name: Not_A_Name}", &[]),
        [
            "controller.yaml:1: leaderElection.name: found the text \"Not_A_Name\", expected a name of 1 to 63 \
          lower-case letters, digits and `-`; write the bare name"
        ]
    );
}

#[test]
fn w8_our_own_lease_is_not_the_shared_one() {
    let same = "leaderElection: {namespace: a, name: b}\nlease: {namespace: a, name: b}\n";
    assert_eq!(
        refused(same, &[]),
        [
            "controller.yaml: leaderElection.name: found a/b, expected another Lease than that of lease.namespace and \
          lease.name; remove both names, or give the replicas a Lease of their own"
        ]
    );
    valid("leaderElection: {namespace: a, name: b}\nlease: {namespace: c, name: b}\n");
}

#[test]
fn g5_the_guards_are_configured_by_a_mode_and_a_fraction() {
    let guards = |text: &str| valid(text).guards;
    assert_eq!(
        (guards("").mode, guards("").max_removal_fraction.millionths()),
        (GuardsMode::Enforce, 500_000)
    );
    let read = |text: &str| {
        guards(&format!("guards: {{maxRemovalFraction: {text}}}\n")).max_removal_fraction.millionths()
    };
    assert_eq!(
        (read("0"), read("0.25"), read("1"), read("1.0"), read("0.333333")),
        (0, 250_000, 1_000_000, 1_000_000, 333_333)
    );
    for invalid in ["1.1", "-0.5", "50%", "0.1234567", ".5", "1e-1", "\"0.5\""] {
        let found = refused(&format!("guards: {{maxRemovalFraction: {invalid}}}\n"), &[]);
        assert!(found.len() == 1 && found[0].contains("a number from 0 to 1"), "{found:?}");
    }
    assert_eq!(guards("guards: {mode: observe}\n").mode, GuardsMode::Observe);
    let loaded = |text: &str| {
        let cloud = Source::new("azure.json", CLOUD.to_owned());
        Config::load(cloud, Source::new("controller.yaml", text), &env(&[])).expect("valid")
    };
    let mode = |text: &str| loaded(text).config.controller.guards.mode;
    let upstream = "compatibility: upstream\n";
    let explicit = format!("{upstream}guards: {{mode: enforce}}\n");
    assert_eq!((mode(upstream), mode(&explicit)), (GuardsMode::Off, GuardsMode::Enforce));
}

#[test]
fn n2_excluded_pools_are_named_in_any_case() {
    let excluded = |text: &str| valid(text).admin_state.exclude_pools;
    assert_eq!(excluded("adminState: {excludePools: []}\n"), Vec::<String>::new(), "none");
    assert_eq!(excluded("adminState: {excludePools: [a_b.c, A_B.C, Web-1]}\n"), ["a_b.c", "Web-1"]);
    let by_variable = |text: &str| {
        let variables = [("POOL_CONTROLLER_ADMIN_STATE_EXCLUDE_POOLS", text)];
        load("", &env(&variables)).expect("valid").admin_state.exclude_pools
    };
    assert_eq!(by_variable("a, b"), ["a", "b"]);
    assert_eq!(by_variable(""), Vec::<String>::new());
    let backoff = valid("adminState: {maxBackoff: 17m}\n").admin_state.max_backoff;
    assert_eq!(backoff, Duration::from_secs(1_020));
}

#[test]
fn a_migration_at_start_needs_consents_and_enforce() {
    let text = "migration: {onStartup: true, accept: [no-outbound, 2001:db8::1, no-outbound]}\n";
    let migration = valid(text).migration;
    assert!(migration.on_startup);
    assert_eq!(migration.accept, ["no-outbound", "2001:db8::1"], "each once");
    let by_variable = env(&[("POOL_CONTROLLER_MIGRATION_ACCEPT", "no-outbound, workers_1")]);
    assert_eq!(load("", &by_variable).expect("valid").migration.accept, ["no-outbound", "workers_1"]);
    let warnings = |mode: &str| {
        let cloud = Source::new("azure.json", CLOUD.to_owned());
        let controller = Source::new("controller.yaml", format!("{text}mode: {mode}\n"));
        let loaded = Config::load(cloud, controller, &env(&[])).expect("valid");
        loaded.warnings.iter().filter(|warning| warning.field == "migration.onStartup").count()
    };
    assert_eq!(["enforce", "add-only", "observe"].map(warnings), [0, 1, 1]);
}

#[test]
fn c2_compatibility_upstream_sets_the_times_of_s0() {
    let cloud = format!("{CLOUD}loadBalancerBackendPoolUpdateIntervalInSeconds: 45\n");
    let of = |cloud: &str, text: &str| {
        let files = (Source::new("azure.json", cloud.to_owned()), Source::new("controller.yaml", text));
        Config::load(files.0, files.1, &env(&[])).expect("valid")
    };
    let loaded = of(&cloud, "compatibility: upstream");
    let (config, tick) = (&loaded.config.controller, Duration::from_secs(45));
    let batching = &config.batching;
    assert_eq!((batching.quiet_period, batching.max_delay, batching.min_interval), (tick, tick, tick));
    assert_eq!(batching.retry_interval, tick);
    assert_eq!(config.members.removal_delay, Duration::ZERO);
    assert_eq!(config.resync.after_failure, Duration::ZERO);
    assert_eq!((config.guards.empty_confirm, config.guards.mode), (Duration::ZERO, GuardsMode::Off));
    assert_eq!(config.writer.etag_rounds, 1);
    assert!(config.client.retry_throttled);
    assert_eq!(loaded.warnings, []);
    let entry = loaded.config.effective();
    assert!(entry.contains("quietPeriod: 45s  # compatibility\n"), "{entry}");
    assert!(entry.contains("ifMatch: true  # default\n"), "{entry}");

    let slow = format!("{CLOUD}loadBalancerBackendPoolUpdateIntervalInSeconds: 300\n");
    let slow = of(&slow, "compatibility: upstream").config.controller.batching;
    let tick = Duration::from_secs(300);
    assert_eq!((slow.min_interval, slow.retry_interval), (tick, tick), "the retry interval is not capped");

    let default = of(&cloud, "compatibility: default").config.controller;
    assert_eq!(default, of(&cloud, "").config.controller);
    assert_eq!(default.batching.quiet_period, Duration::from_millis(500));
}

#[test]
fn c2_a_set_key_wins_over_compatibility_with_a_warning() {
    let text = "compatibility: upstream\nbatching: {quietPeriod: 1s}\nwriter: {etagRounds: 1}\n";
    let cloud = Source::new("azure.json", CLOUD);
    let loaded = Config::load(cloud, Source::new("controller.yaml", text), &env(&[])).expect("valid");
    assert_eq!(loaded.config.controller.batching.quiet_period, Duration::from_secs(1));
    assert_eq!(loaded.config.controller.batching.max_delay, Duration::from_secs(30));
    let texts: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "controller.yaml: batching.quietPeriod: deviates from compatibility: upstream, which has 30s; remove the \
             key, or accept the difference"
        ]
    );
}
