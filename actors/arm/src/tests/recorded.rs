//! Real traffic of Azure, if present: recordings, the official examples, and the collection of errors.

use std::io::Write;
use std::path::{Path, PathBuf};

use azure_core::http::RawResponse;
use model::arm::{ArmAnswer, Edit, FailureKind, OperationState};
use model::ids::{LbName, PoolId, PoolName};
use serde_json::Value;
use writer::classify::{FailureClass, ThrottleScope, classify};

use super::{apply, failure, pool_id, pool_read, response};
use crate::{answer, entry};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/arm");

/// Returns the files of a folder of the data; reports if it is missing.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let folder = Path::new(DATA).join(folder);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        writeln!(std::io::stderr(), "skipped: there is no recorded traffic at {}", folder.display()).unwrap();
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|it| it == ending));
    files.sort();
    assert!(!files.is_empty(), "no file at {}", folder.display());
    files
}

fn json_of(file: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn body_text(body: &Value) -> String {
    match body {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => body.to_string(),
    }
}

/// Returns the last two segments of a URL.
fn kind_and_name(url: &str) -> (String, String) {
    let path = url.split('?').next().unwrap();
    let mut segments = path.rsplit('/').map(str::to_owned);
    let name = segments.next().unwrap();
    (segments.next().unwrap_or_default(), name)
}

/// Reads a load balancer, and checks that the models can read every pool in it.
fn check_load_balancer(name: &str, body: &Value) {
    let response = response(200, &[], &body_text(body));
    let ArmAnswer::LoadBalancer(facts) = answer::load_balancer(&LbName::new(name), &response) else {
        panic!("{name} cannot be read")
    };
    let pools = body["properties"]["backendAddressPools"].as_array().unwrap();
    assert_eq!(facts.pools.len(), pools.len());
    assert_eq!(facts.etag.as_ref().map(|tag| tag.as_str()), body["etag"].as_str());
    let rules = body["properties"]["loadBalancingRules"].as_array().unwrap();
    assert!(facts.rules.len() >= rules.len());
    for rule in &facts.rules {
        let known = rule.pool.as_ref().is_none_or(|pool| facts.pools.iter().any(|it| it.id.pool == *pool));
        assert!(known, "{rule:?}");
    }
    for pool in pools {
        check_pool(&PoolId::new(LbName::new(name), PoolName::new(pool["name"].as_str().unwrap())), pool);
    }
}

/// Reads a pool, writes it back unchanged, and reads its entries through the models.
fn check_pool(id: &PoolId, body: &Value) {
    let text = body_text(body);
    let read = pool_read(answer::pool(id, &response(200, &[], &text)));
    assert_eq!(read.etag.as_ref().map(|tag| tag.as_str()), body["etag"].as_str());
    let mut expected: Value = serde_json::from_str(&text).unwrap();
    let entries =
        expected["properties"]["loadBalancerBackendAddresses"].as_array().cloned().unwrap_or_default();
    assert_eq!(read.facts.entries.len(), entries.len());
    for (entry, fact) in entries.iter().zip(&read.facts.entries) {
        assert!(entry::fits_model(entry), "{entry}");
        assert_eq!(Some(&*fact.name), entry["name"].as_str());
        assert_eq!(fact.ip.map(|ip| ip.to_string()).as_deref(), entry["properties"]["ipAddress"].as_str());
    }
    expected["properties"]["loadBalancerBackendAddresses"] = Value::from(entries);
    let written: Value = serde_json::from_str(&apply(&text, &Edit::default())).unwrap();
    assert_eq!(written, expected);
}

/// Reads an answer as every kind of answer; returns whether it had an error code, which must not be lost.
fn check_any(response: &RawResponse, body: &Value) -> bool {
    let status = u16::from(response.status());
    drop(answer::operation(true, response));
    drop(answer::load_balancer(&LbName::new("lb"), response));
    let answer = answer::put(response);
    if status < 400 {
        return false;
    }
    let failed = failure(answer);
    assert_eq!(failed.kind, FailureKind::Status(status));
    let code = body["error"]["code"].as_str();
    if code.is_some() {
        assert_eq!(failed.code.as_deref(), code, "{body}");
    }
    code.is_some()
}

#[test]
fn w2_w3_recorded_traffic_is_read_without_loss() {
    let (mut balancers, mut pools, mut puts, mut polls, mut errors) = (0, 0, 0, 0, 0);
    let files = files("recorded", "json");
    for file in &files {
        for one in json_of(file)["interactions"].as_array().unwrap() {
            let (kind, name) = kind_and_name(one["url"].as_str().unwrap());
            let status = u16::try_from(one["status"].as_u64().unwrap()).unwrap();
            let headers: Vec<(&str, &str)> = one["responseHeaders"]
                .as_object()
                .unwrap()
                .iter()
                .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
                .collect();
            let body = &one["responseBody"];
            let response = response(status, &headers, &body_text(body));
            errors += usize::from(check_any(&response, body));
            match (one["method"].as_str().unwrap(), status, kind.as_str()) {
                ("GET", 200, "loadBalancers") => {
                    check_load_balancer(&name, body);
                    balancers += 1;
                }
                ("GET", 200, "backendAddressPools") => {
                    check_pool(&PoolId::new(LbName::new("lb"), PoolName::new(name)), body);
                    pools += 1;
                }
                ("PUT", 200 | 201, "backendAddressPools") => {
                    let ArmAnswer::Put(accepted) = answer::put(&response) else { panic!("{one}") };
                    assert!(accepted.operation.is_some() && accepted.etag.is_some());
                    puts += 1;
                }
                ("GET", 200, "operations") => {
                    let answer = answer::operation(false, &response);
                    assert!(matches!(answer, ArmAnswer::Operation(OperationState::Succeeded)), "{one}");
                    polls += 1;
                }
                _ => {}
            }
        }
    }
    if !files.is_empty() {
        let counts = [balancers, pools, puts, polls, errors];
        assert!(counts.iter().all(|n| *n > 3), "{counts:?}");
    }
}

#[test]
fn w3_official_examples_are_read_without_loss() {
    let (mut balancers, mut pools) = (0, 0);
    let files = files("official", "json");
    for file in &files {
        let example = json_of(file);
        for answered in example["responses"].as_object().unwrap().values() {
            let body = &answered["body"];
            match body["type"].as_str() {
                Some("Microsoft.Network/loadBalancers") => {
                    check_load_balancer("lb", body);
                    balancers += 1;
                }
                Some("Microsoft.Network/loadBalancers/backendAddressPools") => {
                    check_pool(&pool_id(), body);
                    pools += 1;
                }
                Some(_) | None => {
                    for pool in body["value"].as_array().into_iter().flatten() {
                        check_pool(&pool_id(), pool);
                        pools += 1;
                    }
                }
            }
        }
    }
    if !files.is_empty() {
        assert!(balancers >= 2 && pools >= 4, "{balancers} {pools}");
    }
}

#[test]
fn w3_the_last_value_of_a_duplicate_key_is_kept() {
    let Some(file) =
        files("official", "json").into_iter().find(|file| file.ends_with("LoadBalancerGet.json"))
    else {
        return;
    };
    let text = std::fs::read_to_string(file).unwrap();
    assert_eq!(text.matches("\"sku\"").count(), 2, "the recording still has the duplicate key");
    let start = text.find("\"body\":").unwrap() + "\"body\":".len();
    let mut stream =
        serde_json::Deserializer::from_str(&text[start..]).into_iter::<Box<serde_json::value::RawValue>>();
    let body = stream.next().unwrap().unwrap();
    let written: Value = serde_json::from_str(&apply(body.get(), &Edit::default())).unwrap();
    let read: Value = serde_json::from_str(body.get()).unwrap();
    assert_eq!(written["sku"], read["sku"]);
    check_load_balancer("lb", &read);
}

#[test]
fn w5_every_collected_error_keeps_its_codes() {
    let file = Path::new(DATA).join("errors.json");
    if !file.exists() {
        writeln!(std::io::stderr(), "skipped: there is no {}", file.display()).unwrap();
        return;
    }
    let (mut whole, mut polls, mut broken) = (0, 0, 0);
    for error in json_of(&file)["errors"].as_array().unwrap() {
        let status = error["httpStatus"].as_u64().map(|status| u16::try_from(status).unwrap());
        let body = &error["body"];
        let text = if body.is_null() { error["raw"].as_str().unwrap().to_owned() } else { body.to_string() };
        let code = body["error"]["code"].as_str();
        match (error["form"].as_str().unwrap(), status) {
            ("json", Some(status)) => {
                assert!(check_any(&response(status, &[], &text), body));
                let failed = failure(answer::put(&response(status, &[], &text)));
                for detail in body["error"]["details"].as_array().into_iter().flatten() {
                    let (code, message) =
                        (detail["code"].as_str().unwrap(), detail["message"].as_str().unwrap());
                    assert!(failed.inner_codes.iter().any(|it| &**it == code), "{failed:?}");
                    assert!(failed.message.contains(&message[..message.len().min(100)]), "{failed}");
                }
                whole += 1;
            }
            ("json", None) if body["status"].is_string() => {
                let answer = answer::operation(false, &response(200, &[], &text));
                let ArmAnswer::Operation(state) = answer else { panic!("{error}") };
                match (body["status"].as_str().unwrap(), state) {
                    ("Canceled", OperationState::Canceled(failure))
                    | ("Failed", OperationState::Failed(failure)) => {
                        assert_eq!(failure.code.as_deref(), code);
                    }
                    ("Succeeded", OperationState::Succeeded) => {}
                    (_, state) => panic!("{error} {state:?}"),
                }
                polls += 1;
            }
            ("json-text" | "fragment", _) => {
                let failed = failure(answer::put(&response(status.unwrap_or(400), &[], &text)));
                if text.contains("\"code\"") {
                    assert!(failed.code.is_some(), "{text}");
                    broken += 1;
                }
                assert!(!failed.message.is_empty());
            }
            _ => {
                let failed = failure(answer::put(&response(status.unwrap_or(400), &[], &text)));
                assert!(!failed.message.is_empty(), "{error}");
            }
        }
    }
    assert!(whole >= 10 && polls >= 3 && broken >= 3, "{whole} {polls} {broken}");
}

#[test]
fn w5_other_clients_recordings_are_read_too() {
    let (mut pools, mut errors) = (0, 0);
    let files = files("cassettes", "yaml");
    for file in &files {
        let whole: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        for one in whole["interactions"].as_array().unwrap() {
            let answered = &one["response"];
            let body = answered["body"]["string"].as_str().or(answered["body"].as_str()).unwrap_or_default();
            let status = answered["status"]["code"].as_u64().or(answered["code"].as_u64()).unwrap();
            let response = response(u16::try_from(status).unwrap(), &[], body);
            let json = serde_json::from_str::<Value>(body).unwrap_or(Value::Null);
            errors += usize::from(check_any(&response, &json));
            let method = one["request"]["method"].as_str().unwrap();
            let url = one["request"]["uri"].as_str().or(one["request"]["url"].as_str()).unwrap();
            let (kind, name) = kind_and_name(url);
            match (method, status, kind.as_str()) {
                ("GET", 200, "loadBalancers") => check_load_balancer(&name, &json),
                ("GET", 200, "backendAddressPools") => {
                    check_pool(&PoolId::new(LbName::new("lb"), PoolName::new(name)), &json);
                    pools +=
                        json["properties"]["loadBalancerBackendAddresses"].as_array().map_or(0, Vec::len);
                }
                _ => {}
            }
        }
    }
    if !files.is_empty() {
        assert!(pools > 3 && errors > 3, "{pools} {errors}");
    }
}

/// Returns W5's class for each collected error, by its id.
fn class_of(id: &str) -> Option<FailureClass> {
    Some(match id {
        "lro-canceled-superseded-lb" | "lro-another-operation-in-progress" => FailureClass::Retriable,
        "429-retryable-due-to-another-operation-json" | "429-retryable-with-ids" => {
            FailureClass::Throttled(ThrottleScope::Lane)
        }
        "429-subscription-requests-throttled" | "429-resource-requests-throttled" => {
            FailureClass::Throttled(ThrottleScope::Subscription)
        }
        "412-etag-mismatch-lb-recorded" | "412-etag-mismatch-vmss" | "412-etag-mismatch-lb" => {
            FailureClass::EtagRound
        }
        "400-duplicate-resource-name-envelope"
        | "400-invalid-resource-name"
        | "400-duplicate-ipconfig-reference"
        | "403-authorization-failed"
        | "403-linked-authorization-failed"
        | "403-readonly-disabled-subscription" => FailureClass::Terminal,
        "404-child-not-found" | "404-resource-not-found" => FailureClass::Absent,
        "404-resource-group-not-found" => FailureClass::Stale,
        _ => return None,
    })
}

#[test]
fn w5_collected_errors_have_the_classes_of_the_contract() {
    let file = Path::new(DATA).join("errors.json");
    if !file.exists() {
        writeln!(std::io::stderr(), "skipped: there is no {}", file.display()).unwrap();
        return;
    }
    let mut classed = 0;
    for error in json_of(&file)["errors"].as_array().unwrap() {
        let body = &error["body"];
        let text = if body.is_null() { error["raw"].as_str().unwrap().to_owned() } else { body.to_string() };
        let status = error["httpStatus"].as_u64().and_then(|status| u16::try_from(status).ok());
        let failed = if let (
            ArmAnswer::Operation(OperationState::Failed(failure) | OperationState::Canceled(failure)),
            None,
        ) = (answer::operation(false, &response(200, &[], &text)), status)
        {
            failure
        } else {
            failure(answer::put(&response(status.unwrap_or(400), &[], &text)))
        };
        // Every failure has a class, and no answer of Azure counts as a closed gate or an expired permit.
        let class = classify(&failed);
        assert!(!matches!(class, FailureClass::GateClosed | FailureClass::NotGranted), "{error}");
        let id = error["id"].as_str().unwrap();
        if let Some(expected) = class_of(id) {
            assert_eq!(class, expected, "{id}: {failed}");
            classed += 1;
        }
    }
    assert!(classed >= 15, "only {classed} of the known errors are present");
}
