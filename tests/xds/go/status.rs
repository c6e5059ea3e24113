//! CSDS as a Go client sees it, with the call and the types of grpcdebug (H5): the program `csds` of
//! tests/go-control-plane, and its answer.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use simulator::control_plane::Kind;
use tokio::process::Command;

use crate::support::{TEST_TIMEOUT, eventually};

/// The status of the only xDS client in a process.
#[derive(Debug)]
pub struct Status(Value);

impl Status {
    /// Reads the status from CSDS at this address.
    pub async fn of(program: &Path, address: &str, flags: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(flags).arg(address).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(TEST_TIMEOUT, command.output()).await.expect("it ends in time");
        let output = output.expect("the program runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut answer: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
        let configs = answer["config"].as_array().expect("an answer has clients");
        assert_eq!(configs.len(), 1, "there is one client in the process: {answer}");
        Self(answer["config"][0].take())
    }

    /// Returns the identity that the client sends.
    pub fn node(&self) -> &Value {
        &self.0["node"]
    }

    /// Returns a resource; null: it is not watched.
    pub fn resource(&self, kind: Kind, name: &str) -> &Value {
        let resources = self.0["genericXdsConfigs"].as_array();
        let mut resources = resources.into_iter().flatten();
        let found = resources.find(|one| one["typeUrl"] == kind.type_url() && one["name"] == name);
        found.unwrap_or(&Value::Null)
    }

    /// Returns whether all of these resources are in these states.
    pub fn has(&self, states: &[(Kind, &str, &str)]) -> bool {
        states.iter().all(|(kind, name, state)| self.resource(*kind, name)["clientStatus"] == *state)
    }
}

/// Waits until all of these resources are in these states, and returns the status.
pub async fn shows(program: &Path, address: &str, states: &[(Kind, &str, &str)]) -> Status {
    eventually(&format!("CSDS shows {states:?}"), TEST_TIMEOUT, || async {
        let status = Status::of(program, address, &[]).await;
        if status.has(states) { Ok(status) } else { Err(format!("{status:?}")) }
    })
    .await
}
