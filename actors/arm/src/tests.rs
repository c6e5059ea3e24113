//! Tests of the client against real HTTP on loopback, against recorded traffic, and against arbitrary bytes.

mod addresses;
mod answers;
mod arbitrary_input;
mod documents;
mod identities;
mod identity;
mod query;
mod raw;
mod recorded;
mod redaction;
mod refusals;
mod resource;
mod server;
mod set_up;
mod tokens;
mod wire;

use std::sync::Arc;

use azure_core::http::RawResponse;
use azure_core::http::headers::Headers;
use model::arm::{ArmAnswer, Document, Edit, Failure, Permit, PoolRead};
use model::ids::{AttemptId, Epoch, LbName, PoolId, PoolName};
use model::machine::{Now, Wall};
use url::Url;

use crate::document::PoolDocument;
use crate::{Clocks, Identity, Login, Settings, Timeouts};

/// Fixed time of the tests' clock.
const NOW: Now = Now::from_millis(1_000_000);

/// The wall time at [`NOW`], 2026-01-01T00:00:00Z.
const WALL: Wall = Wall::from_micros(1_767_225_600_000_000);

fn settings(endpoint: &str) -> Settings {
    Settings {
        endpoint: Url::parse(endpoint).unwrap(),
        subscription: "sub".to_owned(),
        resource_group: "rg".to_owned(),
        api_version: "2025-05-01".to_owned(),
        identity: Identity::Anonymous,
        login: login("https://login.test", "https://management.azure.com"),
        user_agent: "azure-backend-pool-controller/test".to_owned(),
        timeouts: Timeouts::default(),
        clocks: Clocks { now: Arc::new(|| NOW), wall: Arc::new(|| WALL) },
    }
}

fn login(authority_host: &str, audience: &str) -> Login {
    Login::Known { authority_host: authority_host.to_owned(), audience: audience.to_owned() }
}

fn pool_id() -> PoolId {
    PoolId::new(LbName::new("lb"), PoolName::new("pool"))
}

fn permit(send_deadline: Now) -> Permit {
    Permit { attempt: AttemptId { epoch: Epoch(1), n: 1 }, send_deadline }
}

fn response(status: u16, headers: &[(&str, &str)], body: &str) -> RawResponse {
    let mut map = Headers::new();
    for (name, value) in headers {
        map.insert(name.to_ascii_lowercase(), (*value).to_owned());
    }
    RawResponse::from_bytes(status.into(), map, body.to_owned())
}

fn document(text: &str) -> Document {
    Document::new(PoolDocument::parse(text).unwrap())
}

fn apply(text: &str, edit: &Edit) -> String {
    String::from_utf8(PoolDocument::parse(text).unwrap().apply(edit).unwrap()).unwrap()
}

fn failure(answer: ArmAnswer) -> Arc<Failure> {
    let ArmAnswer::Failed(failure) = answer else { panic!("expected a failure, not {answer:?}") };
    failure
}

fn pool_read(answer: ArmAnswer) -> PoolRead {
    let ArmAnswer::Pool(read) = answer else { panic!("expected a pool, not {answer:?}") };
    read
}
