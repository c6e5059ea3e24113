//! Timing of writes of pools: operations, visibility, two at the same time.

use anyhow::ensure;
use arm::RawAnswer;
use serde_json::{Value, json};

use super::stage::{Stage, addresses};
use super::{Finding, Question, answered, log_normal, open, question, turns};
use crate::azure::{describe, operation};

/// Number of attempts of a request that must meet a running operation.
const TRIES: usize = 3;

pub(super) const QUESTIONS: [Question; 6] = [
    question!(
        "operation",
        "Is a write of a pool an operation, what is its status, and how long does it run?",
        operations
    ),
    question!(
        "retry-after",
        "Which Retry-After has the answer to a write that starts an operation?",
        retry_after
    ),
    question!("read-after-write", "Does a GET right after an accepted PUT show the new members?", visible),
    question!("etag-at-end", "Does the end of an operation change the etag once more?", etag_at_end),
    question!(
        "concurrent-write",
        "Is a write refused or does it supersede while another one runs on the load balancer?",
        concurrent
    ),
    question!("unfinished-write", "Which members has the pool after a superseded write?", unfinished),
];

/// Writes a pool that already has a member, and returns the immediate answer.
async fn write_again(stage: &Stage<'_>, pool: &str) -> anyhow::Result<(String, RawAnswer)> {
    let (before, after) = (stage.fresh(), stage.fresh());
    stage.write(pool, stage.members(&[&before])).await?;
    stage.at_rest().await?;
    let answer = stage.azure.put(&stage.pool(pool), stage.members(&[&after])).await?;
    ensure!(answer.status < 300, "PUT of pool {pool}: {}", describe(&answer));
    Ok((after, answer))
}

fn state(body: &Value) -> &str {
    body["properties"]["provisioningState"].as_str().unwrap_or_default()
}

/// Returns whether an operation continues after this answer.
fn runs_on(answer: &RawAnswer) -> bool {
    operation(answer).is_some() && state(&answer.body) != "Succeeded"
}

const FINISHED: &str = "writes are finished when they are answered";

async fn operations(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let (_, answer) = write_again(stage, "first").await?;
    let status = answer.status;
    if !runs_on(&answer) {
        let model_settings = vec![("operation", Value::Null)];
        return Ok(Finding::Answered(format!("HTTP {status}; {FINISHED}"), model_settings));
    }
    let mut times = Vec::new();
    let mut answer = answer;
    loop {
        let end = stage.azure.end(&answer).await?;
        let end = end.filter(|end| end.status == "Succeeded");
        times.extend(end.map(|end| end.after));
        if times.len() >= TRIES {
            break;
        }
        stage.at_rest().await?;
        let next = stage.fresh();
        answer = stage.azure.put(&stage.pool("first"), stage.members(&[&next])).await?;
        ensure!(answer.status < 300, "PUT of a pool: {}", describe(&answer));
    }
    times.sort();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    let text = format!(
        "HTTP {status}, {} with Azure-AsyncOperation; {TRIES} of them ran for {times:.1?}",
        state(&answer.body)
    );
    Ok(Finding::Answered(
        text,
        vec![("operation", log_normal(median, longest)), ("updateStatus", json!(status))],
    ))
}

async fn retry_after(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let (_, answer) = write_again(stage, "first").await?;
    if !runs_on(&answer) {
        return open(FINISHED);
    }
    let header = answer.headers.get("retry-after").cloned();
    let poll = match operation(&answer) {
        Some(address) => stage.azure.get(address).await?.headers.get("retry-after").cloned(),
        None => None,
    };
    stage.azure.end(&answer).await?;
    match header {
        None => turns(
            "operationRetryAfterS",
            Value::Null,
            format!("the answer has none; the first poll: {poll:?}"),
        ),
        Some(text) => match text.trim().parse::<u32>() {
            Ok(seconds) => {
                turns("operationRetryAfterS", seconds, format!("{seconds} s; the first poll: {poll:?}"))
            }
            Err(_) => answered(format!("{text:?}, which is not a number of seconds")),
        },
    }
}

async fn visible(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    for _ in 0..TRIES {
        stage.at_rest().await?;
        let (new, answer) = write_again(stage, "first").await?;
        if !runs_on(&answer) {
            return open(FINISHED);
        }
        let pool = stage.read("first").await?;
        stage.azure.end(&answer).await?;
        let state = state(&pool);
        if state == "Succeeded" {
            continue;
        }
        return if addresses(&pool).contains(&new.as_str()) {
            turns("visibility", "atOnce", format!("yes, with provisioningState {state}"))
        } else {
            turns("visibility", "atEnd", format!("no; it shows the old ones with provisioningState {state}"))
        };
    }
    open("the operation ended before the GET each time")
}

async fn etag_at_end(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let (_, answer) = write_again(stage, "first").await?;
    if !runs_on(&answer) {
        return open(FINISHED);
    }
    let begin = answer.body["etag"].clone();
    stage.azure.end(&answer).await?;
    let end = stage.at_rest().await?["etag"].clone();
    ensure!(begin.is_string() && end.is_string(), "there is no etag: {begin}, {end}");
    let changes = begin != end;
    turns("etagChangesAtEnd", changes, if changes { "yes" } else { "no" })
}

/// Results of two writes of different pools that were sent one right after the other.
struct Met {
    /// The answer to the second write.
    second: RawAnswer,
    /// The final status of the first write.
    first: String,
    /// The member that the first write added.
    member: String,
}

/// Sends two writes until the second one meets the operation of the first; returns `None` if it never does.
async fn meet(stage: &Stage<'_>) -> anyhow::Result<Option<Met>> {
    for _ in 0..TRIES {
        stage.at_rest().await?;
        let (member, first) = write_again(stage, "first").await?;
        let second = stage.azure.put(&stage.pool("second"), stage.members(&[&stage.fresh()])).await?;
        let Some(end) = stage.azure.end(&first).await? else { continue };
        stage.azure.end(&second).await?;
        if second.status >= 300 || end.status != "Succeeded" {
            return Ok(Some(Met { second, first: end.status, member }));
        }
    }
    Ok(None)
}

const NEVER_MET: &str =
    "both writes succeeded each time: the first had ended, or Azure runs them concurrently";

async fn concurrent(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let Some(Met { second, first, .. }) = meet(stage).await? else { return open(NEVER_MET) };
    if second.status < 300 {
        let text = format!("it supersedes: HTTP {}, and the first operation ended {first}", second.status);
        return turns("concurrentWrite", "supersede", text);
    }
    let message = second.body["error"]["details"][0]["message"].as_str();
    let message = message.or_else(|| second.body["error"]["message"].as_str()).unwrap_or_default();
    let header = second.headers.get("retry-after");
    let mut model_settings =
        vec![("concurrentWrite", json!("refuse")), ("lockRetryAfterHeader", json!(header.is_some()))];
    let named = header.and_then(|text| text.parse::<u32>().ok()).or_else(|| seconds_in(message));
    model_settings.extend(named.map(|seconds| ("lockRetryAfterS", json!(seconds))));
    let text = format!("it is refused: {}, Retry-After {header:?}, {message:?}", describe(&second));
    Ok(Finding::Answered(text, model_settings))
}

/// Returns the number before the word `seconds`.
fn seconds_in(message: &str) -> Option<u32> {
    let (before, _) = message.split_once(" second")?;
    before.rsplit(' ').next()?.parse().ok()
}

async fn unfinished(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let Some(Met { second, first, member }) = meet(stage).await? else { return open(NEVER_MET) };
    if second.status >= 300 {
        return open("writes are refused and not superseded, so none stays unfinished");
    }
    stage.at_rest().await?;
    if addresses(&stage.read("first").await?).contains(&member.as_str()) {
        turns("unfinishedWrite", "kept", format!("its members; it ended {first}"))
    } else {
        turns("unfinishedWrite", "reverted", format!("its earlier members; it ended {first}"))
    }
}
