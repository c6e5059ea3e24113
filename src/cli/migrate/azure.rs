//! Calls to Azure for the machines of the migration.

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

/// Makes one call, in the client's version of the network API; `permit`: until when a change may be sent.
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

/// Reads everything in scope.
pub(super) async fn survey(arm: &arm::Client, clock: Clock, cluster: Cluster, output: &Output) -> Inventory {
    let mut survey = Survey::new(cluster);
    let mut calls = FuturesUnordered::new();
    let mut out = Vec::new();
    let mut told = 0;
    survey.step(clock.now(), SurveyIn::Start, &mut out);
    loop {
        for said in std::mem::take(&mut out) {
            match said {
                SurveyOut::Done(inventory) => return *inventory,
                SurveyOut::Call(id, asked) => calls.push(async move { (id, call(arm, asked, None).await) }),
            }
        }
        let (read, known) = survey.progress();
        if read >= told + 100 {
            told = read;
            output.reading(read, known);
        }
        let deadline = survey.deadline();
        tokio::select! {
            Some(answered) = calls.next(), if !calls.is_empty() => {
                let (id, answer): (CallId, Result<Reply, String>) = answered;
                survey.step(clock.now(), SurveyIn::Answer(id, answer), &mut out);
            }
            () = until(clock, deadline) => survey.tick(clock.now(), &mut out),
        }
    }
}

/// Waits for a moment; for `None` it never ends.
pub(super) async fn until(clock: Clock, moment: Option<model::machine::Now>) {
    match moment {
        Some(moment) => tokio::time::sleep(moment.since(clock.now())).await,
        None => std::future::pending().await,
    }
}
