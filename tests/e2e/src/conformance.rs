//! The conformance suite: questions about Azure that public sources leave open, each asked by experiment. The answers
//! show which settings of the simulated ARM (`simulator/models/src/arm/settings.rs`) come closest to Azure.
//!
//! Everything happens in resources of the suite's own in the resource group, which it deletes at the end.

mod migration;
mod pools;
mod stage;
mod writes;

use futures::future::LocalBoxFuture;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::azure::Azure;
use crate::report::{Case, Outcome};
use crate::{Options, Suite};
use stage::Stage;

/// Result of an experiment.
enum Finding {
    /// The answer, and the resulting settings.
    Answered(String, Vec<(&'static str, Value)>),
    /// The question stays open, for this reason.
    Open(String),
}

/// Returns an answer without a setting.
fn answered(text: impl Into<String>) -> anyhow::Result<Finding> {
    Ok(Finding::Answered(text.into(), Vec::new()))
}

/// Returns an answer from which one setting follows.
fn turns(setting: &'static str, value: impl Into<Value>, text: impl Into<String>) -> anyhow::Result<Finding> {
    Ok(Finding::Answered(text.into(), vec![(setting, value.into())]))
}

fn open(reason: impl Into<String>) -> anyhow::Result<Finding> {
    Ok(Finding::Open(reason.into()))
}

/// One question.
struct Question {
    name: &'static str,
    about: &'static str,
    how: How,
}

/// Method of answering a question.
enum How {
    /// With an experiment.
    Asks(for<'a> fn(&'a Stage<'a>) -> LocalBoxFuture<'a, anyhow::Result<Finding>>),
    /// Not by this suite, for this reason.
    Needs(&'static str),
}

/// A question that an experiment answers.
macro_rules! question {
    ($name:literal, $about:literal, $ask:path) => {
        $crate::conformance::Question {
            name: $name,
            about: $about,
            how: $crate::conformance::How::Asks(|stage| Box::pin($ask(stage))),
        }
    };
}
use question;

/// Returns all questions in their order.
fn questions() -> impl Iterator<Item = &'static Question> {
    pools::QUESTIONS.iter().chain(&writes::QUESTIONS).chain(&migration::QUESTIONS).chain(&LAST)
}

/// Questions whose answers follow from all the others.
const LAST: [Question; 2] = [
    question!("latency", "How long do GETs and PUTs take until they are answered?", latency),
    question!("quota", "How many calls are left, as x-ms-ratelimit-remaining-* say?", quota),
];

/// Returns the names of all questions.
pub(crate) fn names() -> Vec<&'static str> {
    questions().map(|question| question.name).collect()
}

/// Runs the selected questions; returns the cases and the resulting settings.
pub(crate) async fn run(options: &Options, azure: &Azure) -> (Vec<Case>, Map<String, Value>) {
    let selected = questions().filter(|question| options.selects(Suite::Conformance, question.name));
    let selected: Vec<&Question> = selected.collect();
    let (mut cases, mut model_settings) = (Vec::new(), Map::new());
    if selected.is_empty() {
        return (cases, model_settings);
    }
    let begin = Instant::now();
    let case = |name, about, outcome, begin: Instant| Case {
        suite: "conformance",
        name,
        about,
        outcome,
        took: begin.elapsed(),
    };
    let stage = match Stage::set_up(azure).await {
        Ok(stage) => stage,
        Err((stage, error)) => {
            let reason = Outcome::Failed(format!("{error:#}"));
            cases.push(case("set-up", "The suite's own resources are created.", reason, begin));
            cases.extend(stage.clear_up().await);
            return (cases, model_settings);
        }
    };
    for question in selected {
        let begin = Instant::now();
        let outcome = match ask(question, &stage).await {
            Ok(Finding::Answered(text, turned)) => {
                model_settings.extend(turned.into_iter().map(|(name, value)| (name.to_owned(), value)));
                Outcome::Passed(text)
            }
            Ok(Finding::Open(reason)) => Outcome::Skipped(reason),
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        cases.push(case(question.name, question.about, outcome, begin));
    }
    cases.extend(stage.clear_up().await);
    (cases, model_settings)
}

async fn ask(question: &Question, stage: &Stage<'_>) -> anyhow::Result<Finding> {
    match question.how {
        How::Asks(experiment) => {
            stage.at_rest().await?;
            experiment(stage).await
        }
        How::Needs(what) => open(what),
    }
}

/// Returns a distribution of the simulated ARM with these two quantiles in microseconds.
fn log_normal(median: std::time::Duration, p95: std::time::Duration) -> Value {
    let micros = |span: std::time::Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    json!({ "logNormal": { "medianUs": micros(median), "p95Us": micros(p95) } })
}

async fn latency(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let Some([(get, get_p95), (put, put_p95)]) = stage.azure.times() else {
        return open("nothing was written, so nothing was measured");
    };
    let text =
        format!("median and 95th percentile: GET {get:.1?}, {get_p95:.1?}; PUT {put:.1?}, {put_p95:.1?}");
    let model_settings =
        vec![("getLatency", log_normal(get, get_p95)), ("putLatency", log_normal(put, put_p95))];
    Ok(Finding::Answered(text, model_settings))
}

async fn quota(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let left = stage.azure.left();
    if left.is_empty() {
        return open("no answer had such a header");
    }
    let remaining: Vec<String> =
        left.iter().map(|(name, least)| format!("{name}: at least {least}")).collect();
    answered(remaining.join(", "))
}

#[cfg(test)]
mod tests;
