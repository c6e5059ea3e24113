//! Calls to Azure for the state machines of the migration.

use actors::clock::Clock;
use arm::{ResourceAddress, ResourceCall, ResourceMethod};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use migration::call::{Address, Call, Method, Reply};
use migration::inventory::{CallId, Cluster, Inventory, Survey, SurveyIn, SurveyOut};
use model::arm::Permit;
use model::machine::Machine as _;
use serde_json::Value;

use super::output::Output;

/// Makes one call, with the client's version of the network API. A change is sent only before the permit ends.
pub(super) async fn call(arm: &arm::Client, call: Call, permit: Option<Permit>) -> Result<Reply, String> {
    let call = call.with_network_version(arm.network_version());
    let method = match call.method {
        Method::Get => ResourceMethod::Get,
        Method::Put => ResourceMethod::Put,
        Method::Delete => ResourceMethod::Delete,
        Method::Post => ResourceMethod::Post,
    };
    let address = match call.address {
        Address::Path(path) => ResourceAddress::Path(path),
        Address::Url(url) => ResourceAddress::Url(url),
    };
    let body = call.body.map(|body| body.to_string());
    let call = ResourceCall { method, address, body, if_match: call.if_match };
    let reply = arm.resource(call, permit).await.map_err(|failure| failure.to_string())?;
    let body = if reply.body.is_empty() {
        Value::Null
    } else {
        serde_json::from_str(&reply.body).unwrap_or(Value::Null)
    };
    Ok(Reply { status: reply.status, body, operation: reply.operation, retry_after: reply.retry_after })
}

/// Reads all resources in scope.
pub(super) async fn survey(arm: &arm::Client, clock: Clock, cluster: Cluster, output: &Output) -> Inventory {
    let mut survey = Survey::new(cluster);
    let mut calls = FuturesUnordered::new();
    let mut out = Vec::new();
    let mut reported = 0;
    survey.step(clock.now(), SurveyIn::Start, &mut out);
    loop {
        for action in std::mem::take(&mut out) {
            match action {
                SurveyOut::Done(inventory) => return *inventory,
                SurveyOut::Call(id, request) => {
                    calls.push(async move { (id, call(arm, request, None).await) })
                }
            }
        }
        let (read, known) = survey.progress();
        if read >= reported + 100 {
            reported = read;
            output.reading(read, known);
        }
        let deadline = survey.deadline();
        tokio::select! {
            Some(finished) = calls.next(), if !calls.is_empty() => {
                let (id, answer): (CallId, Result<Reply, String>) = finished;
                survey.step(clock.now(), SurveyIn::Answer(id, answer), &mut out);
            }
            () = until(clock, deadline) => survey.tick(clock.now(), &mut out),
        }
    }
}

/// Waits until this time; with `None`, forever.
pub(super) async fn until(clock: Clock, moment: Option<model::machine::Now>) {
    match moment {
        Some(moment) => tokio::time::sleep(moment.since(clock.now())).await,
        None => std::future::pending().await,
    }
}
