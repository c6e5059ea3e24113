//! The page's rendering of answers that a test cannot provoke: every enum value of the API, unknown values, and missing
//! keys. The answers are those of the real binary; a script in the page changes them.

use model::assignment::HeldReason;
use model::sample::PoolState;
use serde_json::{Value, json};

use super::Reader;
use crate::admin::web;

/// Changes each answer as requested by the page's address: `state` and `reason` replace those of pools, `more` adds
/// an unknown key to each object, and `drop` removes a key from each object that has it.
const CHANGES: &str = r"(() => {
    const real = fetch;
    const of = (key) => new URLSearchParams(location.hash.slice(1)).get(key);
    const wanted = { state: of('put-state'), reason: of('put-reason'), more: of('more'), drop: of('drop') };
    const change = (value) => {
        if (Array.isArray(value)) { value.forEach(change); return; }
        if (typeof value !== 'object' || value === null) return;
        Object.values(value).forEach(change);
        if (wanted.state && 'backendPool' in value && 'state' in value) value.state = wanted.state;
        if (wanted.reason && value.reason && 'waitsFor' in value) value.reason = wanted.reason;
        if (wanted.more) value.unheardOf = 1;
        if (wanted.drop) delete value[wanted.drop];
    };
    window.fetch = async (...asked) => {
        const answer = await real(...asked);
        const body = await answer.json();
        change(body);
        return new Response(JSON.stringify(body), { status: answer.status });
    };
})()";

const NAMES: [&str; 6] = ["quiet", "slow", "waits", "held", "paused", "foreign"];
const HELD: &str = "open=pool%3Akubernetes%2Fshop-held";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_every_state_and_reason_and_unknown_words_render() {
    let Some(mut reader) = Reader::start().await else { return };
    let (stage, _release) = web::in_the_middle(&NAMES).await;
    reader.browser.prepare(CHANGES).await;
    let states = PoolState::ALL.map(|state| ("put-state", state.as_str()));
    let reasons = HeldReason::ALL.map(|reason| ("put-reason", reason.as_str()));
    let unknown = [("put-state", "unheard-of"), ("put-reason", "unheard-of"), ("more", "1")];
    for (key, word) in states.into_iter().chain(reasons).chain(unknown) {
        for view in ["pools", "held", "services"] {
            reader.open(&stage, &format!("view={view}&{HELD}&{key}={word}")).await;
            reader.is_right(&format!("{view}, {key} {word}")).await;
        }
        if key != "more" {
            let one = reader.text("one").await;
            assert!(one.contains(word), "{word} is not in {one}");
        }
    }
}

/// Collects every key of an answer, at any depth.
fn keys(value: &Value, all: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| keys(item, all)),
        Value::Object(map) => {
            for (key, inner) in map {
                if !all.contains(key) {
                    all.push(key.clone());
                }
                keys(inner, all);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_a_missing_key_hides_only_dependent_parts() {
    let Some(mut reader) = Reader::start().await else { return };
    let (stage, _release) = web::in_the_middle(&NAMES).await;
    reader.browser.prepare(CHANGES).await;
    let (status, pool) =
        (stage.get("/api/v1/status").await, stage.get("/api/v1/queues/kubernetes/shop-held").await);
    let mut all = Vec::new();
    keys(&status, &mut all);
    keys(&pool["pool"], &mut all);
    assert!(all.len() > 80, "{all:?}");
    let mut mentioned = 0;
    for key in &all {
        reader.open(&stage, &format!("view=pools&{HELD}&drop={key}")).await;
        let broken = reader.browser.value("document.querySelectorAll('.broken').length").await;
        let complaints = reader.browser.complaints().await;
        assert!(broken == json!(0) && complaints.is_empty(), "without {key}: {complaints:?}");
        mentioned += usize::from(reader.text("missed").await.contains(&format!(".{key}")));
    }
    assert!(mentioned > 60, "the page reports {mentioned} of {} missing keys", all.len());
}
