//! Checks the entries of operators in our ConfigMap: the pauses, and the switch of the admin state.

use actors::clock::Clock;
use actors::kubernetes::{NamespacedName, config_map_facts};
use coordination::pauses;
use model::policy::OperatorPolicy;
use serde_json::Value;

use super::finding::{Check, Findings};
use crate::cli::observe::named;
use crate::cli::pauses::describe_pause;

/// The effect of a pause of everything.
const NOTHING_WRITTEN: &str =
    "the controller compares and shows, and writes no pool until writing is resumed";
/// The effect of pauses of single pools and Services.
const SOME_NOT_WRITTEN: &str = "their pools are compared and shown, and not written until they are resumed";

/// Reports the pauses and switches in our ConfigMap.
pub(super) fn check_notes(map: Value, name: &NamespacedName, clock: Clock, findings: &mut Findings) {
    let facts = match config_map_facts(map, clock) {
        Ok(facts) => facts,
        Err(reason) => {
            let what = format!("the controller's ConfigMap {name} is invalid: {reason}");
            let means = "the pauses cannot be read, and nothing is written until they can be";
            return findings.warning(
                Check::OwnObjects,
                what,
                means,
                "inspect it, and delete it if it is damaged",
            );
        }
    };
    let (policy, unreadable) = pauses::noted(&facts);
    paused(&policy, name, findings);
    switched_off(&policy, name, findings);
    for (key, reason) in unreadable {
        let what = format!(
            "the key {key} of the controller's ConfigMap {name} looks like a pause and cannot be read: {reason}"
        );
        // A value that is not text still pauses everything.
        let means = if policy.everything.is_some() && key.eq_ignore_ascii_case("pause.everything") {
            NOTHING_WRITTEN
        } else {
            "the pause has no effect: its pool or Service may be written"
        };
        findings.warning(Check::OwnObjects, what, means, "correct or remove this key");
    }
}

fn paused(policy: &OperatorPolicy, name: &NamespacedName, findings: &mut Findings) {
    if let Some(pause) = &policy.everything {
        let what = format!("everything is paused {}", describe_pause(pause));
        let remedy = format!(
            "once its reason is resolved, resume by POST /api/v1/resume with {{\"scope\": \"everything\"}}, or remove the \
             key pause.everything of the ConfigMap {name}"
        );
        findings.warning(Check::OwnObjects, what, NOTHING_WRITTEN, &remedy);
    }
    let OperatorPolicy { pools, services, .. } = policy;
    if pools.is_empty() && services.is_empty() {
        return;
    }
    let pools_text = pools.iter().map(|(id, pause)| format!("the pool {id} {}", describe_pause(pause)));
    let services_text =
        services.iter().map(|(key, pause)| format!("the Service {key} {}", describe_pause(pause)));
    let all: Vec<String> = pools_text.chain(services_text).collect();
    let what = format!("{} pools and {} Services are paused: {}", pools.len(), services.len(), named(all));
    let remedy = "once their reasons are resolved, resume by POST /api/v1/resume, or remove their keys of the \
                  controller's ConfigMap";
    findings.warning(Check::OwnObjects, what, SOME_NOT_WRITTEN, remedy);
}

fn switched_off(policy: &OperatorPolicy, name: &NamespacedName, findings: &mut Findings) {
    if policy.admin_state_off {
        let what = format!(
            "the key admin-state.off of the controller's ConfigMap {name} switches the admin state off"
        );
        let means = "a controller restores the entries that it has set Down, and takes no further node out of traffic, for \
                     10 minutes after it first sees the key";
        let remedy = "remove the key, unless the controller is being uninstalled";
        findings.warning(Check::OwnObjects, what, means, remedy);
    }
}
