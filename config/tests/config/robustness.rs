//! Any bytes result in a configuration or in problems, without a panic and in bounded time.

use config::{CloudConfig, CloudSource, Config, Source};
use proptest::prelude::*;

use crate::load::{CLOUD, env};

fn both(bytes: &[u8]) -> (bool, bool) {
    let cloud = Config::load(Source::new("c", bytes), Source::none("controller.yaml"), &env(&[]));
    let controller = Config::load(Source::new("c", CLOUD), Source::new("controller.yaml", bytes), &env(&[]));
    for result in [&cloud, &controller] {
        match result {
            Ok(loaded) => assert!(!loaded.config.effective().is_empty()),
            Err(report) => {
                assert!(!report.problems().is_empty());
                for problem in report.problems() {
                    assert!(!problem.field.is_empty() && !problem.remedy.is_empty(), "{problem}");
                }
            }
        }
    }
    (cloud.is_ok(), controller.is_ok())
}

/// Keys of maps in lists.
const INNER_KEYS: [&str; 8] =
    ["name", "NAME", "primaryVMSet", "x", "loadBalancer", "backendPool", "source", "family"];

/// Returns a strategy for texts that resemble the files more than random bytes do.
fn documents() -> impl Strategy<Value = String> {
    let keys = prop::sample::select(vec![
        "tenantId",
        "TENANTID",
        "aadClientSecret",
        "loadBalancerRateLimit",
        "cloud",
        "resourceManagerEndpoint",
        "multipleStandardLoadBalancerConfigurations",
        "loadBalancerBackendPoolUpdateMaxRetries",
        "name",
        "batching",
        "quietPeriod",
        "services",
        "selector",
        "namespaces",
        "http",
        "adminListen",
        "clusterName",
        "pools",
        "<<",
        "a.b",
        "",
    ]);
    let leaf = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| number.to_string()),
        "[ -~]{0,12}",
        "\\PC{0,8}",
        prop::sample::select(vec![
            "null",
            "y",
            "500ms",
            "1h99m",
            "a in (b,c)",
            "eds:a",
            "cluster:*",
            "http://[::1",
            "*a",
            "&a b",
            "!!str 3",
            "|"
        ])
        .prop_map(str::to_owned),
    ];
    let value = leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|items| format!("[{}]", items.join(", "))),
            prop::collection::vec((prop::sample::select(INNER_KEYS.to_vec()), inner), 0..5).prop_map(
                |entries| {
                    let entries: Vec<String> =
                        entries.iter().map(|(key, value)| format!("{key}: {value}")).collect();
                    format!("{{{}}}", entries.join(", "))
                }
            ),
        ]
    });
    prop::collection::vec((keys, value), 0..8)
        .prop_map(|entries| entries.iter().map(|(key, value)| format!("{key}: {value}\n")).collect())
}

proptest! {
    #[test]
    fn c1_any_bytes_give_a_configuration_or_problems(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        both(&bytes);
    }

    #[test]
    fn c1_any_document_gives_a_configuration_or_problems(text in documents()) {
        both(text.as_bytes());
        both(format!("{CLOUD}{text}").as_bytes());
    }

    #[test]
    fn c1_any_secret_and_file_give_a_configuration_or_problems(file in documents(), secret in documents()) {
        for (file, secret) in [(file.clone(), secret.clone()), (format!("{CLOUD}{file}"), secret.clone()), (file, format!("{CLOUD}{secret}"))] {
            let source = CloudSource::from(Source::new("f", file)).with_secret(Source::new("s", secret));
            match Config::load(source, Source::none("controller.yaml"), &env(&[])) {
                Ok(loaded) => prop_assert!(!loaded.config.effective().is_empty()),
                Err(report) => prop_assert!(!report.problems().is_empty()),
            }
        }
    }

    #[test]
    fn c1_any_override_gives_a_configuration_or_problems(name in prop::sample::select(config::KEYS.iter().map(config::Key::environment).collect::<Vec<_>>()), value in "\\PC{0,20}") {
        let loaded = Config::load(Source::new("c", CLOUD), Source::none("controller.yaml"), &env(&[(&name, &value)]));
        if let Err(report) = loaded {
            prop_assert!(!report.problems().is_empty());
        }
    }
}

#[test]
fn c1_bombs_are_refused() {
    let deep_flow = format!("a: {}{}", "[".repeat(10_000), "]".repeat(10_000));
    let deep_map = format!("a: {}1{}", "{a: ".repeat(100), "}".repeat(100));
    let deep_block: String = (0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    let aliases = "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n".to_owned();
    let wide = format!("a: [{}]", "1,".repeat(60_000));
    let documents = "---\na: 1\n".repeat(50);
    for bomb in [deep_flow, deep_map, deep_block, aliases, wide, documents] {
        let problems = CloudConfig::parse(bomb.as_bytes(), "c").expect_err("must be refused");
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let start = texts.first().map(String::as_str).unwrap_or_default();
        let refused = start.starts_with("c: whole file: found a document beyond the limits");
        assert!(texts.len() == 1 && refused, "{} gives {texts:?}", &bomb[..30]);
        assert_eq!(both(bomb.as_bytes()), (false, false));
    }
    let problems = CloudConfig::parse(b"a: 1\n---\nb: 2\n", "c").expect_err("must be refused");
    assert_eq!(
        problems[0].to_string(),
        "c:2: whole file: found a second document, expected one document; remove everything after `---`"
    );
    let large = vec![b' '; config::MAX_FILE_BYTES + 1];
    let problems = CloudConfig::parse(&large, "c").expect_err("must be refused");
    assert_eq!(problems[0].expected, "at most 1048576");
}

#[test]
fn c1_documents_of_ordinary_depth_are_read() {
    let nested = format!("{CLOUD}foreign: {}1{}\n", "{a: ".repeat(20), "}".repeat(20));
    assert!(both(nested.as_bytes()).0);
    let long = format!("{CLOUD}aadClientSecret: \"{}\"\n", "x".repeat(20_000));
    assert!(both(long.as_bytes()).0, "long values are accepted");
    let one_line = format!(
        "{{\"tenantId\":\"t\",\"subscriptionId\":\"s\",\"resourceGroup\":\"r\",\"foreign\":\"{}\",\
                            \"useManagedIdentityExtension\":true}}",
        "x".repeat(20_000)
    );
    assert!(both(one_line.as_bytes()).0, "JSON in one long line is read");
    assert!(both("\u{feff}{}".as_bytes()).1, "a byte order mark is ignored");
}

#[test]
fn c1_invalid_utf_8_is_a_problem_with_its_line() {
    let problems =
        CloudConfig::parse(b"tenantId: t\nlocation: \xff\n", "azure.json").expect_err("must be refused");
    assert_eq!(
        problems[0].to_string(),
        "azure.json:2: whole file: found bytes that are not UTF-8, expected UTF-8 text; save the file as UTF-8"
    );
}
