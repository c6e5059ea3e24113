//! Tests of the whole command: variables, selection, dry runs.

use std::collections::BTreeMap;

use clap::Parser as _;

use super::{Options, run};

fn options(arguments: &[&str]) -> Options {
    Options::try_parse_from([&["e2e"], arguments].concat()).expect("arguments")
}

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

const AZURE: [(&str, &str); 7] = [
    ("AZURE_TENANT_ID", "tenant"),
    ("AZURE_SUBSCRIPTION_ID", "subscription"),
    ("AZURE_CLIENT_ID", "client"),
    ("AZURE_CLIENT_SECRET", "secret-of-the-client"),
    ("AZURE_LOCATION", "westeurope"),
    ("AZURE_RESOURCE_GROUP", "group"),
    ("CLUSTER_NAME", "mine"),
];

#[tokio::test]
async fn every_missing_variable_is_named_and_a_simulation_needs_none() {
    let dry = options(&["--dry-run"]);
    let error = run(&dry, &variables(&AZURE[..2])).await.expect_err("variables are missing");
    let text = format!("{error:#}");
    for name in ["AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_LOCATION", "AZURE_RESOURCE_GROUP"] {
        assert!(text.contains(name), "{text}");
    }
    assert!(!text.contains("AZURE_TENANT_ID"), "{text}");
    let result = run(&dry, &variables(&AZURE)).await.expect("all variables are set");
    assert!(
        result.text.contains("https://management.azure.com") && !result.text.contains("secret-of"),
        "{}",
        result.text
    );
    let mut near = variables(&AZURE[4..]);
    near.extend(variables(&[
        ("AZURE_SUBSCRIPTION_ID", "s"),
        ("AZURE_RESOURCE_MANAGER_ENDPOINT", "http://127.0.0.1:1"),
    ]));
    assert!(run(&dry, &near).await.is_ok());
    let mut basic = variables(&AZURE);
    basic.insert("AZURE_LOADBALANCER_SKU".to_owned(), "basic".to_owned());
    assert!(
        format!("{:#}", run(&dry, &basic).await.expect_err("it is retired"))
            .contains("AZURE_LOADBALANCER_SKU")
    );
    basic.extend(variables(&[("AZURE_LOADBALANCER_SKU", "Standard"), ("AZURE_ENVIRONMENT", "Mars")]));
    assert!(
        format!("{:#}", run(&dry, &basic).await.expect_err("no such cloud")).contains("AZURE_ENVIRONMENT")
    );
    basic.extend(variables(&[("AZURE_ENVIRONMENT", "AzureChinaCloud"), ("CLUSTER_NAME", "../up")]));
    assert!(format!("{:#}", run(&dry, &basic).await.expect_err("no folder")).contains("CLUSTER_NAME"));
}

#[tokio::test]
async fn focus_and_skip_select_by_a_part_of_the_name() {
    let names = async |arguments: &[&str]| {
        let result = run(&options(&[&["--dry-run"], arguments].concat()), &variables(&AZURE)).await;
        let text = result.map(|result| result.text).unwrap_or_else(|error| error.to_string());
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.pop();
        lines
    };
    assert_eq!(names(&["--focus", "if-match"]).await, ["if-match"]);
    let basic = names(&["--focus", "basic", "--skip", "delete"]).await;
    assert_eq!(basic, ["basic-load-balancer", "basic-address", "basic-static", "basic-ipv6"]);
    assert!(names(&["--suite", "conformance"]).await.len() >= 30);
    assert!(!names(&["--suite", "cluster"]).await.contains(&"if-match".to_owned()));
    assert!(names(&["--focus", "no such test"]).await.is_empty());
    let simulated = options(&["--simulated", "--suite", "cluster"]);
    assert!(run(&simulated, &BTreeMap::new()).await.is_err());
}
