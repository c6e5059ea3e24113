//! The suite against the simulated ARM: its findings must match the settings.

use std::collections::BTreeMap;

use clap::Parser as _;
use futures::future::join_all;
use serde_json::Value;
use simulator::models::arm::{ConcurrentWrite, Latency, Settings, UnfinishedWrite, Visibility};
use simulator::{Arm, Clock};

use super::{Map, run};
use crate::azure::Azure;
use crate::environment::Environment;
use crate::report::{Case, Outcome};
use crate::{Options, Suite};

/// Runs the questions whose names contain `focus` against a simulated ARM with these settings.
async fn run_cases(settings: Settings, focus: &str) -> (Vec<Case>, Map<String, Value>) {
    let set = [
        ("AZURE_SUBSCRIPTION_ID", settings.subscription.clone()),
        ("AZURE_RESOURCE_GROUP", settings.resource_group.clone()),
        ("AZURE_LOCATION", settings.location.clone()),
        ("CLUSTER_NAME", "simulated".to_owned()),
    ];
    let arm = Arm::start(settings, Clock::start()).await.expect("loopback has free ports");
    let mut variables: BTreeMap<String, String> =
        set.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    variables.insert("AZURE_RESOURCE_MANAGER_ENDPOINT".to_owned(), arm.url.clone());
    let azure = Azure::new(&Environment::read(&variables).expect("all variables")).expect("a client");
    let options = Options::try_parse_from(["e2e", "--focus", focus]).expect("options");
    assert_eq!(options.suite, Suite::All);
    run(&options, &azure).await
}

fn failures(cases: &[Case]) -> Vec<&Case> {
    cases.iter().filter(|case| matches!(case.outcome, Outcome::Failed(_))).collect()
}

/// Returns the settings from the answers, over the defaults.
fn settings(model_settings: Map<String, Value>) -> Settings {
    serde_json::from_value(Value::Object(model_settings))
        .expect("every answer is a setting of the simulated ARM")
}

#[tokio::test]
async fn every_measured_setting_matches_the_simulated_arm() {
    let one = Settings {
        get_latency: Latency::Fixed { us: 1_000 },
        put_latency: Latency::Fixed { us: 2_000 },
        operation: Some(Latency::Fixed { us: 400_000 }),
        operation_retry_after_s: Some(7),
        lock_retry_after_s: 3,
        ..Settings::default()
    };
    let other = Settings {
        operation_retry_after_s: None,
        visibility: Visibility::AtEnd,
        unfinished_write: UnfinishedWrite::Kept,
        etag_changes_at_end: false,
        update_status: 201,
        concurrent_write: ConcurrentWrite::Supersede,
        lock_retry_after_header: false,
        enforce_if_match: false,
        address_resource_fields: false,
        ..one.clone()
    };
    let third = Settings { lock_retry_after_header: false, lock_retry_after_s: 5, ..one.clone() };
    // They run concurrently, each in its own subscription.
    let sets = [one, other, third];
    let run_cases = join_all(sets.iter().map(|set| run_cases(set.clone(), ""))).await;
    for (set, (cases, model_settings)) in sets.into_iter().zip(run_cases) {
        assert!(failures(&cases).is_empty(), "{:#?}", failures(&cases));
        let found = settings(model_settings);
        let plain = |settings: &Settings| Settings {
            get_latency: Latency::Fixed { us: 0 },
            put_latency: Latency::Fixed { us: 0 },
            operation: None,
            ..settings.clone()
        };
        let mut expected = plain(&set);
        // Without a refusal there is no lock, and without a superseded write there is no remaining state.
        match set.concurrent_write {
            ConcurrentWrite::Refuse => expected.unfinished_write = Settings::default().unfinished_write,
            ConcurrentWrite::Supersede | ConcurrentWrite::Mixed { .. } => {
                expected.lock_retry_after_header = Settings::default().lock_retry_after_header;
                expected.lock_retry_after_s = Settings::default().lock_retry_after_s;
            }
        }
        assert_eq!(plain(&found), expected);
        let Some(Latency::LogNormal { median_us, .. }) = found.operation else { panic!("{found:?}") };
        // The operation begins before its answer arrives, and polls see its end slightly later.
        assert!((200_000..4_000_000).contains(&median_us), "{median_us}");
    }
}

#[tokio::test]
async fn unanswered_questions_change_no_setting() {
    let (cases, model_settings) = run_cases(Settings { operation: None, ..Settings::default() }, "").await;
    assert!(failures(&cases).is_empty(), "{:#?}", failures(&cases));
    let is_open = |name: &str| {
        let case = cases.iter().find(|case| case.name == name).expect("the question exists");
        matches!(case.outcome, Outcome::Skipped(_))
    };
    for name in [
        "read-after-write",
        "retry-after",
        "etag-at-end",
        "unfinished-write",
        "upgrade-policy",
        "basic-static",
    ] {
        assert!(is_open(name), "{name}");
    }
    for name in ["visibility", "operationRetryAfterS", "unfinishedWrite", "etagChangesAtEnd"] {
        assert!(!model_settings.contains_key(name), "{name}");
    }
    assert_eq!(model_settings["operation"], Value::Null);
    assert_eq!(model_settings["enforceIfMatch"], true);
}

#[tokio::test]
async fn a_refusal_fails_the_question_and_not_the_run() {
    let permissions = Vec::new();
    let (cases, model_settings) =
        run_cases(Settings { permissions, ..Settings::default() }, "if-match").await;
    assert_eq!(failures(&cases).len(), 1, "{cases:#?}");
    assert_eq!(cases[0].name, "set-up");
    assert!(model_settings.is_empty());
}
