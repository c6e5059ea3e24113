//! What operators have noted in our ConfigMap: pauses, and that the admin state is switched off.

use actors::clock::Clock;
use actors::kubernetes::{Place, config_map_facts};
use coordination::pauses;
use model::policy::OperatorPolicy;
use serde_json::Value;

use super::finding::{Check, Findings};
use crate::cli::observe::named;
use crate::cli::pauses::words;

/// What a pause of everything means.
const NOTHING_WRITTEN: &str =
    "the controller compares and shows, and writes no pool until writing is resumed";
/// What pauses of single pools and Services mean.
const SOME_NOT_WRITTEN: &str = "their pools are compared and shown, and not written until they are resumed";

/// Looks at all of it.
pub(super) fn look(map: Value, place: &Place, clock: Clock, findings: &mut Findings) {
    let facts = match config_map_facts(map, clock) {
        Ok(facts) => facts,
        Err(why) => {
            let what = format!("our ConfigMap {place} cannot be understood: {why}");
            let means = "it is not known what is paused, and nothing is written before it is";
            return findings.warning(
                Check::OwnObjects,
                what,
                means,
                "look at it, and delete it if it is damaged",
            );
        }
    };
    let (policy, unreadable) = pauses::noted(&facts);
    paused(&policy, place, findings);
    switched_off(&policy, place, findings);
    for (key, why) in unreadable {
        let what =
            format!("the key {key} of our ConfigMap {place} looks like a pause and cannot be read: {why}");
        let means = "what it was to pause is not known, and may be written";
        findings.warning(Check::OwnObjects, what, means, "correct or remove this key");
    }
}

fn paused(policy: &OperatorPolicy, place: &Place, findings: &mut Findings) {
    if let Some(pause) = &policy.everything {
        let what = format!("everything is paused {}", words(pause));
        let remedy = format!(
            "when its reason is over, resume by POST /api/v1/resume with {{\"scope\": \"everything\"}}, or remove the key \
             pause.everything of the ConfigMap {place}"
        );
        findings.warning(Check::OwnObjects, what, NOTHING_WRITTEN, &remedy);
    }
    let OperatorPolicy { pools, services, .. } = policy;
    if pools.is_empty() && services.is_empty() {
        return;
    }
    let pools_said = pools.iter().map(|(id, pause)| format!("the pool {id} {}", words(pause)));
    let services_said = services.iter().map(|(key, pause)| format!("the Service {key} {}", words(pause)));
    let all: Vec<String> = pools_said.chain(services_said).collect();
    let what = format!("{} pools and {} Services are paused: {}", pools.len(), services.len(), named(all));
    let remedy =
        "when their reasons are over, resume by POST /api/v1/resume, or remove their keys of our ConfigMap";
    findings.warning(Check::OwnObjects, what, SOME_NOT_WRITTEN, remedy);
}

fn switched_off(policy: &OperatorPolicy, place: &Place, findings: &mut Findings) {
    if policy.admin_state_off {
        let what = format!("the key admin-state.off of our ConfigMap {place} switches the admin state off");
        let means = "a controller takes back what is Down by it and cuts out no node that leaves service, for 10 minutes \
                     from when it sees the key first";
        let remedy = "remove the key, unless the controller is being uninstalled at this moment";
        findings.warning(Check::OwnObjects, what, means, remedy);
    }
}
