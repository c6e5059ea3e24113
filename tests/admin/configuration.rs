//! The effective configuration (H3): the same as in `check-config`, and no secret (C1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::channel;

use reqwest::Method;
use serde_json::{Value, json};
use simulator::Fate;
use simulator::models::arm::Request;
use simulator::models::kube::build::Endpoint;

use super::stage::{Prepared, add_service, node_name, set_endpoints};

/// Secrets that must never appear, in place of the real ones.
const SECRET: &str = "planted-client-secret";
const PASSWORD: &str = "planted-certificate-password";
const MARKERS: [&str; 2] = [SECRET, PASSWORD];

/// The sections, in the order in which they are printed.
const SECTIONS: [&str; 3] = ["cloudConfig", "controllerConfig", "identity"];

/// Collects the values by their full paths.
fn flat(value: &Value, path: &str, all: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(keys) => {
            for (key, inner) in keys {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flat(inner, &path, all);
            }
        }
        Value::Null if path.is_empty() => {}
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            all.insert(path.to_owned(), value.clone());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_the_configuration_is_that_of_check_config_without_secrets() {
    let overlay = json!({ "log": { "level": "trace" }, "guards": { "maxRemovalFraction": 0.25 } });
    let cloud =
        json!({ "aadClientId": "client", "aadClientSecret": SECRET, "aadClientCertPassword": PASSWORD });
    let stage = Prepared::new(1).await.start_on(&overlay, &cloud).await;
    stage.wait_until_ready().await;
    let printed = stage.check_config().await;
    let answer = stage.admin(Method::GET, "/api/v1/config").await;
    assert_eq!((answer.status, answer.kind.as_str()), (200, "application/json"), "{answer:?}");
    for (what, text) in [
        ("check-config", printed.clone()),
        ("/api/v1/config", answer.text.clone()),
        ("/openapi.json", stage.admin(Method::GET, "/openapi.json").await.text),
        ("/api/v1/status", stage.admin(Method::GET, "/api/v1/status").await.text),
        ("the log", format!("{:?}", stage.log())),
    ] {
        for marker in MARKERS {
            assert!(!text.contains(marker), "{what} shows {marker}");
        }
    }

    let shown = answer.json();
    assert!(shown["snapshotAgeSeconds"].is_number(), "{shown}");
    let sections: Value = serde_saphyr::from_str(&printed).expect("it prints YAML");
    let mut origins = Vec::new();
    for section in SECTIONS {
        let mut expected = BTreeMap::new();
        flat(&sections[section], "", &mut expected);
        let items = shown[section].as_array().expect("a list");
        let found: BTreeMap<String, Value> = items
            .iter()
            .map(|item| (item["key"].as_str().expect("a key").to_owned(), item["value"].clone()))
            .collect();
        assert_eq!(found, expected, "{section}");
        assert_eq!(found.len(), items.len(), "{section}: each key once");
        origins.extend(items.iter().map(|item| {
            let origin = item["origin"].as_str().expect("an origin");
            item["variable"].as_str().map_or_else(|| origin.to_owned(), |name| format!("{origin} {name}"))
        }));
    }
    let documented: Vec<&str> =
        printed.lines().filter_map(|line| line.rsplit_once("  # ")).map(|(_, origin)| origin).collect();
    assert_eq!(origins, documented, "the origin of each value, in the same order");
    let value = |section: &str, key: &str| {
        let mut all = shown[section].as_array().into_iter().flatten();
        all.find(|item| item["key"] == key).cloned().unwrap_or_else(|| panic!("{section} has no {key}"))
    };
    let fraction = value("controllerConfig", "guards.maxRemovalFraction");
    assert_eq!((&fraction["value"], &fraction["origin"]), (&json!(0.25), &json!("file")));
    assert_eq!(value("controllerConfig", "discovery.interval")["value"], "5s");
    assert_eq!(value("cloudConfig", "aadClientSecret")["value"], "<redacted>");
    let refused = stage.admin(Method::GET, "/api/v1/config?key=mode").await;
    assert_eq!(refused.status, 400, "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_every_call_of_the_network_api_has_the_configured_version() {
    let prepared = Prepared::new(0).await;
    add_service(&prepared.fakes, "web", &[0]).await;
    let (report, notes) = channel();
    let hook = move |_: &mut simulator::Azure, request: &Request, _| {
        let (path, query) = request.path_and_query.split_once('?').unwrap_or((&request.path_and_query, ""));
        if path.contains("/providers/Microsoft.Network/loadBalancers/") {
            report.send(format!("{:?} {query}", request.method)).expect("the test reads them");
        }
        Fate::Answered
    };
    prepared.fakes.azure.ask(move |azure, _| azure.wire.intercept(hook)).await;
    let stage = prepared.start(&json!({ "client": { "apiVersion": "2024-05-01" } })).await;
    stage.wait_until_ready().await;
    set_endpoints(&stage.fakes, "web", &[Endpoint::ready(&node_name(1))]).await;
    stage.logged("a write", |line| line["message"] == "wrote backend pool").await;
    let expected = ["Get api-version=2024-05-01", "Put api-version=2024-05-01"].map(str::to_owned);
    assert_eq!(notes.try_iter().collect::<BTreeSet<_>>(), BTreeSet::from(expected));
}
