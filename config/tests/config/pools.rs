//! Pools that are filled from an xDS control plane (X2): their list, and the keys that only count with listed pools.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use config::{Config, IpFamily, ListedPool, Loaded, Origin, Report, Source, Value};

use crate::load::{CLOUD, env};

fn load(text: &str, variables: &[(&str, &str)]) -> Result<Loaded, Report> {
    let variables: BTreeMap<String, String> = env(variables);
    Config::load(Source::new("azure.json", CLOUD), Source::new("controller.yaml", text), &variables)
}

fn pools(text: &str, variables: &[(&str, &str)]) -> Vec<ListedPool> {
    load(text, variables).expect("valid").config.controller.pools
}

fn refused(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let report = load(text, variables).expect_err("must be refused");
    report.problems().iter().map(ToString::to_string).collect()
}

fn pool(load_balancer: &str, backend_pool: &str, source: &str, family: IpFamily) -> ListedPool {
    ListedPool {
        load_balancer: load_balancer.to_owned(),
        backend_pool: backend_pool.to_owned(),
        source: source.to_owned(),
        family,
    }
}

const WEB: &str = "{loadBalancer: lb, backendPool: web, source: 'eds:web'}";
const NAME: &str = "expected a name of 1 to 80 letters, digits, `_`, `.` and `-`, with a letter or digit first and a \
                    letter, digit or `_` last";
const LIST: &str = "expected a list of maps with loadBalancer, backendPool, source and, if need be, family";

#[test]
fn x2_pools_have_sources_and_their_names_give_the_family() {
    let text = "\
pools:
- loadBalancer: Edge_1
  backendPool: web
  source: eds:outbound|80||web.shop.svc.cluster.local
- {loadBalancer: edge-2, backendPool: Web-IPV6, source: \"cluster:web\"}
- {loadBalancer: 2, backendPool: a-ipv6, source: \"eds:*a\", family: IPv4}
- {loadBalancer: edge-2, backendPool: ipv6, source: \"eds:web\", family: IPv6}
- {loadBalancer: edge-2, backendPool: ipv6-a_, source: \"eds:web\"}
";
    assert_eq!(
        pools(text, &[]),
        [
            pool("Edge_1", "web", "eds:outbound|80||web.shop.svc.cluster.local", IpFamily::V4),
            pool("edge-2", "Web-IPV6", "cluster:web", IpFamily::V6),
            pool("2", "a-ipv6", "eds:*a", IpFamily::V4),
            pool("edge-2", "ipv6", "eds:web", IpFamily::V6),
            pool("edge-2", "ipv6-a_", "eds:web", IpFamily::V4),
        ]
    );
    assert_eq!(IpFamily::V6.as_str(), "IPv6");
}

#[test]
fn x2_a_variable_lists_pools_in_one_line_of_yaml_or_json() {
    let name = "POOL_CONTROLLER_POOLS";
    let of =
        |list: &str| pools("pools: [{loadBalancer: x, backendPool: y, source: \"eds:z\"}]", &[(name, list)]);
    let web = [pool("lb", "web", "eds:web", IpFamily::V4)];
    assert_eq!(of(&format!("[{WEB}]")), web);
    assert_eq!(of("[{\"loadBalancer\":\"lb\",\"backendPool\":\"web\",\"source\":\"eds:web\"}]"), web);
    assert_eq!(of("- loadBalancer: lb\n  backendPool: web\n  source: eds:web\n"), web);
    for none in ["", " ", "[]"] {
        assert_eq!(of(none), [], "{none:?}");
    }
    let list = "[{loadBalancer: lb, backendPool: web, source: eds}]";
    assert_eq!(
        refused("", &[(name, list)]),
        [
            "environment variable POOL_CONTROLLER_POOLS: pools[0].source: found the text \"eds\", expected eds:<name> or \
          cluster:<name>; write eds: and the name of the endpoints, or cluster: and the name of the cluster that refers to them"
        ]
    );
    let start = format!("environment variable {name}: pools: found ");
    for (invalid, found) in
        [("[{loadBalancer: lb", "a syntax error ("), ("~", "nothing"), ("web", "the text \"web\"")]
    {
        let texts = refused("", &[(name, invalid)]);
        assert!(texts.len() == 1 && texts[0].starts_with(&format!("{start}{found}")), "{texts:?}");
        assert!(texts[0].contains(LIST), "{texts:?}");
    }
    assert!(
        refused("", &[(name, "[{")])[0].ends_with(
            "; write it as in one line of YAML or JSON, such as [{loadBalancer: kubernetes, backendPool: web, source: \
             \"eds:web\"}]"
        )
    );
}

#[test]
fn x2_invalid_entries_are_refused_with_a_remedy() {
    let example = "{loadBalancer: kubernetes, backendPool: web, source: \"eds:web\"}";
    let rows = [
        (
            "pools: web".to_owned(),
            format!("1: pools: found the text \"web\", {LIST}; write a list such as [{example}], or [] for none"),
        ),
        (
            format!("pools: {WEB}"),
            format!("1: pools: found a map, {LIST}; write a list such as [{example}], or [] for none"),
        ),
        (
            format!("pools:\n- {WEB}\n- web"),
            format!(
                "3: pools[1]: found the text \"web\", expected a map with loadBalancer, backendPool and source; write it \
                 like {example}"
            ),
        ),
        (
            format!("pools:\n- {WEB}\n-"),
            format!(
                "3: pools[1]: found nothing, expected a map with loadBalancer, backendPool and source; write it like \
                 {example}"
            ),
        ),
        (
            "pools:\n- loadBalancer: lb\n  backendPool: web\n  source: eds:a\n  backendpol: x".to_owned(),
            "5: pools[0].backendpol: found the unknown key \"backendpol\", expected a known key; the nearest is \
             backendPool"
                .to_owned(),
        ),
        (
            "pools:\n- loadBalancer: lb\n  backendPool: web\n  source: eds:a\n  source: eds:b".to_owned(),
            "5: pools[0].source: found the key on line 4 and on line 5, expected the key once; remove one of them"
                .to_owned(),
        ),
        (
            format!("pools:\n- {WEB}\n- loadBalancer: LB\n  source: eds:other\n  backendPool: Web"),
            "5: pools[1].backendPool: found LB/Web, which pools[0] names too, expected each backend pool once, whatever \
             its case; remove one of the two"
                .to_owned(),
        ),
    ];
    for (text, problem) in rows {
        assert_eq!(refused(&text, &[]), [format!("controller.yaml:{problem}")], "{text}");
    }
    let apart = "pools: [{loadBalancer: a, backendPool: web, source: 'eds:a'}, {loadBalancer: b, backendPool: web, source: 'eds:a'}]";
    assert_eq!(
        pools(apart, &[]).len(),
        2,
        "one source may fill many pools, and names are those of a load balancer"
    );
}

#[test]
fn x2_wrong_values_of_an_entry_are_refused_with_a_remedy() {
    let source = "expected eds:<name> or cluster:<name>";
    let how = "write eds: and the name of the endpoints, or cluster: and the name of the cluster that refers to them";
    let rows = [
        ("source: web", format!("source: found the text \"web\", {source}; {how}")),
        ("source: EDS:web", format!("source: found the text \"EDS:web\", {source}; {how}")),
        ("source: [eds]", format!("source: found a list, {source}; {how}")),
        ("source:", format!("source: found nothing, {source}; {how}")),
        (
            "source: 'eds: web'",
            format!(
                "source: found the text \"eds: web\", {source}; remove the space around the name, which would be a part of it"
            ),
        ),
        ("source: 'eds:'", format!("source: found the text \"eds:\", {source}; add the resource's name")),
        (
            "source: 'cluster: '",
            format!("source: found the text \"cluster: \", {source}; add the resource's name"),
        ),
        (
            "source: 'cluster:*'",
            format!(
                "source: found the text \"cluster:*\", {source}; name one resource; control planes take * for all of \
                 them"
            ),
        ),
        (
            "family: ipv6",
            "family: found the text \"ipv6\", expected one of IPv4, IPv6; write IPv6".to_owned(),
        ),
        (
            "family: 4",
            "family: found the number 4, expected one of IPv4, IPv6; write one of these words".to_owned(),
        ),
        (
            "family: ~",
            "family: found nothing, expected a value; write one, or remove the key to use its default"
                .to_owned(),
        ),
    ];
    for (line, problem) in rows {
        let other = if line.starts_with("source") { "family: IPv4" } else { "source: eds:web" };
        let text = format!("pools:\n- loadBalancer: lb\n  backendPool: web\n  {other}\n  {line}\n");
        assert_eq!(refused(&text, &[]), [format!("controller.yaml:5: pools[0].{problem}")], "{line}");
    }
}

#[test]
fn x2_names_that_azure_does_not_allow_are_refused() {
    let named = |key: &str, name: &str| {
        let other = if key == "loadBalancer" { "backendPool" } else { "loadBalancer" };
        format!("pools: [{{{key}: {name}, {other}: other, source: 'eds:a'}}]")
    };
    let remedies = [
        ("loadBalancer", "write the load balancer's name"),
        ("backendPool", "write the backend pool's name, without its load balancer"),
    ];
    let long = "a".repeat(80);
    for (key, remedy) in remedies {
        for invalid in ["_a", ".a", "-a", "a.", "a-", "a/b", "a b", "ä", "\"\"", &format!("{long}a")] {
            let texts = refused(&named(key, invalid), &[]);
            let start = format!("controller.yaml:1: pools[0].{key}: found the text ");
            assert!(texts.len() == 1 && texts[0].starts_with(&start), "{invalid}: {texts:?}");
            assert!(texts[0].ends_with(&format!("{NAME}; {remedy}")), "{invalid}: {texts:?}");
        }
        for invalid in ["[a]", "{a: b}", "~"] {
            assert_eq!(refused(&named(key, invalid), &[]).len(), 1, "{invalid}");
        }
        for right in ["a", "9", "A_", "a.b-c_9", &long] {
            assert_eq!(pools(&named(key, right), &[]).len(), 1, "{right}");
        }
    }
}

#[test]
fn x2_all_mistakes_of_the_list_are_in_one_bounded_report() {
    let text = "pools:\n- {}\n- {loadBalancer: /, backendPool: web, source: x, family: both, port: 80}\n";
    let texts = refused(text, &[]);
    let starts = [
        "controller.yaml:2: pools[0].loadBalancer: found nothing, ",
        "controller.yaml:2: pools[0].backendPool: found nothing, ",
        "controller.yaml:2: pools[0].source: found nothing, ",
        "controller.yaml:3: pools[1].port: found the unknown key \"port\", ",
        "controller.yaml:3: pools[1].loadBalancer: found the text \"/\", ",
        "controller.yaml:3: pools[1].source: found the text \"x\", ",
        "controller.yaml:3: pools[1].family: found the text \"both\", ",
    ];
    assert_eq!(texts.len(), starts.len(), "{texts:?}");
    for (texts, start) in texts.iter().zip(starts) {
        assert!(texts.starts_with(start), "{texts}");
    }
    let many: String = (0..100).map(|_| "- web\n").collect();
    let texts = refused(&format!("pools:\n{many}"), &[]);
    assert_eq!(texts.len(), 21);
    assert_eq!(
        texts[20],
        format!(
            "controller.yaml:2: pools: found 80 more mistakes, {LIST}; correct the others first, and look for what they \
             have in common"
        )
    );
}

#[test]
fn x2_the_pools_of_the_whole_cluster_are_refused() {
    for (cluster, name) in [("kubernetes", "Kubernetes"), ("kubernetes", "KUBERNETES-ipv6"), ("Prod", "prod")]
    {
        let list = format!("[{WEB}, {{loadBalancer: lb, backendPool: {name}, source: 'eds:web'}}]");
        let refusal = format!(
            "pools[1].backendPool: found {name}, expected another pool than those of the whole cluster, {cluster} and \
             {cluster}-IPv6; name a pool that only this list fills, or correct clusterName"
        );
        let text = format!("clusterName: {cluster}\npools: {list}\n");
        assert_eq!(refused(&text, &[]), [format!("controller.yaml: {refusal}")]);
        let by_variable = refused(&format!("clusterName: {cluster}"), &[("POOL_CONTROLLER_POOLS", &list)]);
        assert_eq!(by_variable, [format!("environment variable POOL_CONTROLLER_POOLS: {refusal}")]);
    }
    let text =
        "clusterName: prod\npools: [{loadBalancer: kubernetes, backendPool: kubernetes, source: 'eds:web'}]";
    assert_eq!(pools(text, &[]).len(), 1, "the name of another cluster, or of a load balancer, is free");
}

#[test]
fn c1_listed_pools_are_shown_with_derived_values() {
    let text = format!("pools: [{WEB}, {{loadBalancer: lb, backendPool: web-ipv6, source: 'cluster:a b'}}]");
    let config = load(&text, &[]).expect("valid").config;
    let effective = config.effective();
    let line = "  pools: [{loadBalancer: lb, backendPool: web, source: \"eds:web\", family: IPv4}, {loadBalancer: lb, \
                backendPool: web-ipv6, source: \"cluster:a b\", family: IPv6}]  # file\n";
    assert!(effective.contains(line), "{effective}");
    let of = |key: &str, text: &str| {
        let loaded = load(text, &[]).expect("valid");
        let entry = loaded.config.effective_controller().iter().find(|entry| entry.path == key).cloned();
        entry.expect("every key is shown")
    };
    let entry = of("pools", &format!("pools: [{WEB}]"));
    let pairs = [("loadBalancer", "lb"), ("backendPool", "web"), ("source", "eds:web"), ("family", "IPv4")];
    let pairs = pairs.map(|(key, text)| (key, text.to_owned())).to_vec();
    assert_eq!((entry.value, entry.origin), (Value::Maps(vec![pairs]), Origin::File));
    let none = of("pools", "");
    assert_eq!((none.value, none.origin), (Value::Maps(Vec::new()), Origin::Default));
    let section = "sources:\n    kubernetes:\n      failOnDataErrors: false  # default\n";
    assert!(effective.contains(section), "{effective}");
}

#[test]
fn x2_the_bootstrap_file_is_an_absolute_path_or_empty() {
    let bootstrap = |text: &str| load(text, &[]).expect("valid").config.controller.xds.bootstrap;
    assert_eq!(
        bootstrap("xds: {bootstrap: /xds/bootstrap.json}").as_deref(),
        Some(Path::new("/xds/bootstrap.json"))
    );
    assert_eq!(bootstrap("xds: {bootstrap: ''}"), None);
    assert_eq!(
        refused("xds: {bootstrap: bootstrap.json}", &[]),
        [
            "controller.yaml:1: xds.bootstrap: found the text \"bootstrap.json\", expected the absolute path of a file, or \
          \"\" for none; write the absolute path, starting with /"
        ]
    );
}

#[test]
fn x2_the_failback_delay_is_at_most_10_minutes() {
    let failback = |text: &str| load(text, &[]).expect("valid").config.controller.xds.failback;
    assert_eq!(failback("xds: {failback: 0s}"), Duration::ZERO);
    assert_eq!(failback("xds: {failback: 10m}"), Duration::from_secs(600));
    assert_eq!(
        refused("xds: {failback: 11m}", &[]),
        [
            "controller.yaml:1: xds.failback: found the text \"11m\", expected a duration from 0s to 10m; write a duration \
          from 0s to 10m"
        ]
    );
}

#[test]
fn x5_members_stay_after_data_errors_by_default() {
    let fails = |text: &str, variables: &[(&str, &str)]| {
        load(text, variables).expect("valid").config.controller.sources_kubernetes.fail_on_data_errors
    };
    assert!(fails("sources: {kubernetes: {failOnDataErrors: true}}", &[]));
    assert!(fails("sources:", &[("POOL_CONTROLLER_SOURCES_KUBERNETES_FAIL_ON_DATA_ERRORS", "true")]));
    assert!(!fails("sources: {kubernetes: }", &[]));
    let rows = [
        (
            "sources: {kubernetes: {failOnDataErrors: 1}}",
            "sources.kubernetes.failOnDataErrors: found the number 1, expected true or false; write true or false, \
             without quotes",
        ),
        (
            "sources: {kubernetes: true}",
            "sources.kubernetes: found the switch true, expected a map of settings; indent the section's keys below it",
        ),
        (
            "sources: [kubernetes]",
            "sources: found a list, expected a map of settings; indent the section's keys below it",
        ),
        (
            "sources: {failOnDataErrors: true}",
            "sources.failOnDataErrors: found the unknown key \"sources.failOnDataErrors\", expected a known key; the \
             nearest is sources.kubernetes.failOnDataErrors: write `failOnDataErrors` below `kubernetes:` below \
             `sources:`",
        ),
        (
            "source: {}",
            "source: found the unknown key \"source\", expected a known key; the nearest is sources",
        ),
    ];
    for (text, problem) in rows {
        assert_eq!(refused(text, &[]), [format!("controller.yaml:1: {problem}")], "{text}");
    }
}

#[test]
fn h5_csds_is_on_loopback_with_a_port_of_its_own() {
    for (anywhere, port) in [("0.0.0.0:18000", 18000), ("10.0.0.1:19", 19), ("[::]:9", 9)] {
        assert_eq!(
            refused(&format!("http: {{csdsListen: \"{anywhere}\"}}"), &[]),
            [format!(
                "controller.yaml:1: http.csdsListen: found the text \"{anywhere}\", expected a loopback IP address with a \
                 port; write 127.0.0.1:{port}; reading is open to every client that reaches it"
            )]
        );
    }
    let tls = "tls: {certificate: /tls.crt, key: /tls.key}";
    for (other, at, more) in [
        ("http.healthListen", "0.0.0.0:8080", ""),
        ("http.adminListen", "127.0.0.1:8081", ""),
        ("http.adminTlsListen", "0.0.0.0:8443", tls),
    ] {
        let port = at.rsplit(':').next().expect("it has a port");
        let http = format!("http: {{csdsListen: \"127.0.0.1:{port}\", {more}}}\n");
        let problem = format!(
            "controller.yaml: http.csdsListen: found 127.0.0.1:{port}, expected another port than {other}, which is \
             {at}; give each listener a port of its own"
        );
        assert_eq!(refused(&format!("{http}pools: [{WEB}]"), &[]), [problem]);
        // A closed listener uses no port.
        assert_eq!(pools(&http, &[]), []);
    }
    let free = format!("http: {{csdsListen: \"127.0.0.1:8443\"}}\npools: [{WEB}]");
    assert_eq!(pools(&free, &[]).len(), 1, "without a certificate no other listener uses this port");
}

#[test]
fn c2_compatibility_upstream_changes_no_pools_or_sources() {
    let of = |compatibility: &str| {
        let text = format!("compatibility: {compatibility}\npools: [{WEB}]\n");
        let loaded = load(&text, &[]).expect("valid");
        assert_eq!(loaded.warnings, []);
        let controller = loaded.config.controller;
        (controller.pools, controller.xds, controller.sources_kubernetes, controller.http)
    };
    assert_eq!(of("upstream"), of("default"));
}
