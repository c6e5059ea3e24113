//! Converts a Lease between its JSON and the facts for the machines. Unknown fields survive a replacement.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use model::arm::Document;
use model::ids::{LbName, PoolId, PoolName};
use model::lease::{GateTimes, LeaseEdit, LeaseFacts, LeaseName, OutOfSyncTimes};
use model::machine::Now;
use model::object::ResourceVersion;
use serde_json::{Map, Value, json};

use super::NamespacedName;
use crate::clock::Clock;
use crate::kubernetes::sanitize::safe_text;

/// End of ARM's closed gate of reads; on our own Lease only (W8).
const READS_UNTIL: &str = "azure-backend-pool-controller.io/reads-throttled-until";
/// End of ARM's closed gate of writes; on our own Lease only (W8).
const WRITES_UNTIL: &str = "azure-backend-pool-controller.io/writes-throttled-until";
/// Times since which pools have been out of sync, as a JSON object; on our own Lease only (Q8).
const OUT_OF_SYNC: &str = "azure-backend-pool-controller.io/out-of-sync-since";
/// Last writer under the shared Lease; the cloud-controller-manager drops its caches if it was another one.
const PREVIOUS_HOLDER: &str = "aks-managed-resource-locker-previous-holder";

/// A Lease as the API server sent it, or a new one.
pub(super) struct LeaseDocument(Map<String, Value>);

/// Reason for which JSON is not a usable Lease.
#[derive(Debug, thiserror::Error)]
#[error("{field}: expected {expected}, found {found}")]
pub(super) struct Unusable {
    field: &'static str,
    expected: &'static str,
    found: String,
}

/// Returns the facts about a state of a Lease; refuses only what cannot be understood at all.
pub(super) fn facts(lease: LeaseName, value: Value, clock: Clock) -> Result<LeaseFacts, Unusable> {
    let Value::Object(document) = value else {
        return Err(unusable("Lease", "an object", &value));
    };
    let metadata = &document.get("metadata").unwrap_or(&Value::Null);
    let version = metadata["resourceVersion"].as_str().filter(|version| !version.is_empty());
    let version = version
        .ok_or_else(|| unusable("metadata.resourceVersion", "a text", &metadata["resourceVersion"]))?;
    let spec = document.get("spec").unwrap_or(&Value::Null);
    if !spec.is_object() && !spec.is_null() {
        return Err(unusable("spec", "an object", spec));
    }
    let holder = match &spec["holderIdentity"] {
        Value::Null => None,
        Value::String(holder) => Some(holder.as_str()).filter(|holder| !holder.is_empty()),
        found @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            return Err(unusable("spec.holderIdentity", "a text", found));
        }
    };
    // A negative number counts as missing; the API's type ends at 2³¹.
    let seconds =
        whole_number(spec, "leaseDurationSeconds", "spec.leaseDurationSeconds")?.filter(|all| *all >= 0);
    let seconds = seconds.map(|all| all.min(i32::MAX.into()).unsigned_abs());
    let transitions = whole_number(spec, "leaseTransitions", "spec.leaseTransitions")?.unwrap_or(0);
    let renewed: Option<Timestamp> = spec["renewTime"].as_str().and_then(|text| text.parse().ok());
    let ago = |renewed: Timestamp| {
        Duration::try_from(clock.wall().duration_since(renewed)).unwrap_or(Duration::ZERO)
    };
    let (gates, out_of_sync) = match lease {
        LeaseName::Own => {
            let annotations = &metadata["annotations"];
            (gates(annotations, clock), out_of_sync(annotations, clock))
        }
        LeaseName::Shared => (GateTimes::default(), OutOfSyncTimes::default()),
    };
    Ok(LeaseFacts {
        lease,
        holder: holder.map(Into::into),
        duration: seconds.map(Duration::from_secs),
        renewed_ago: renewed.map(ago),
        transitions: u64::try_from(transitions).unwrap_or(0),
        version: ResourceVersion(version.into()),
        gates,
        out_of_sync,
        document: Document::new(LeaseDocument(document)),
    })
}

fn unusable(field: &'static str, expected: &'static str, found: &Value) -> Unusable {
    let found = match found {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(text) if text.is_empty() => "an empty text",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    Unusable { field, expected, found: found.to_owned() }
}

/// Parses a whole number, and clamps one that is too large for its type.
fn whole_number(spec: &Value, key: &str, field: &'static str) -> Result<Option<i64>, Unusable> {
    match &spec[key] {
        Value::Null => Ok(None),
        Value::Number(number) => match number.as_i64() {
            Some(number) => Ok(Some(number)),
            None if number.is_u64() => Ok(Some(i64::MAX)),
            None => Err(Unusable { field, expected: "a whole number", found: number.to_string() }),
        },
        found @ (Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) => {
            Err(unusable(field, "a whole number", found))
        }
    }
}

fn gates(annotations: &Value, clock: Clock) -> GateTimes {
    let read = |key: &str| {
        let text = annotations[key].as_str()?;
        let Ok(until) = text.parse::<Timestamp>() else {
            tracing::info!(annotation = key, value = %safe_text(text), "an annotation of the Lease is not a time");
            return None;
        };
        let left = clock.until(until);
        (!left.is_zero()).then(|| clock.now().plus(left))
    };
    GateTimes { reads_until: read(READS_UNTIL), writes_until: read(WRITES_UNTIL) }
}

impl LeaseDocument {
    /// Creates the document of a Lease that does not exist yet.
    pub(super) fn new(name: &NamespacedName) -> LeaseDocument {
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": &*name.name, "namespace": &*name.namespace },
        });
        let Value::Object(body) = body else { unreachable!("it is written as an object") };
        LeaseDocument(body)
    }

    /// Returns the edited document as the body of a request that is sent now.
    pub(super) fn edited(&self, edit: &LeaseEdit, clock: Clock) -> Vec<u8> {
        let mut document = self.0.clone();
        // The API's MicroTime has exactly six digits.
        let now = format!("{:.6}", clock.wall());
        let spec = object(&mut document, "spec");
        spec.insert("holderIdentity".to_owned(), edit.holder.as_deref().unwrap_or_default().into());
        spec.insert("leaseDurationSeconds".to_owned(), edit.duration.as_secs().max(1).into());
        if edit.acquired {
            spec.insert("acquireTime".to_owned(), now.as_str().into());
        }
        spec.insert("renewTime".to_owned(), now.into());
        if edit.transition {
            let before = spec.get("leaseTransitions").and_then(Value::as_i64).unwrap_or(0);
            let after = before.max(0).saturating_add(1).min(i32::MAX.into());
            spec.insert("leaseTransitions".to_owned(), after.into());
        }
        if edit.previous_holder.is_some() || edit.gates.is_some() || edit.out_of_sync.is_some() {
            let annotations = object(object(&mut document, "metadata"), "annotations");
            if let Some(previous) = &edit.previous_holder {
                annotations.insert(PREVIOUS_HOLDER.to_owned(), (&**previous).into());
            }
            if let Some(gates) = &edit.gates {
                set_gate(annotations, READS_UNTIL, gates.reads_until, clock);
                set_gate(annotations, WRITES_UNTIL, gates.writes_until, clock);
            }
            if let Some(pools) = &edit.out_of_sync {
                set_out_of_sync(annotations, pools, clock);
            }
        }
        Value::Object(document).to_string().into_bytes()
    }
}

/// Reads the pools that are recorded as out of sync, without invalid entries.
fn out_of_sync(annotations: &Value, clock: Clock) -> OutOfSyncTimes {
    let text = annotations[OUT_OF_SYNC].as_str().unwrap_or("{}");
    let Ok(recorded) = serde_json::from_str::<Map<String, Value>>(text) else {
        tracing::info!(annotation = OUT_OF_SYNC, value = %safe_text(text), "an annotation of the Lease is not a JSON object");
        return OutOfSyncTimes::default();
    };
    let parse = |(pool, since): (&String, &Value)| {
        let (lb, pool) = pool.split_once('/')?;
        let since: Timestamp = since.as_str()?.parse().ok()?;
        let ago = Duration::try_from(clock.wall().duration_since(since)).ok()?;
        Some((PoolId::new(LbName::new(lb), PoolName::new(pool)), clock.now().minus(ago)))
    };
    Arc::new(recorded.iter().filter_map(parse).collect())
}

/// Records the pools that are out of sync, or that there are none.
fn set_out_of_sync(annotations: &mut Map<String, Value>, pools: &OutOfSyncTimes, clock: Clock) {
    if pools.is_empty() {
        annotations.shift_remove(OUT_OF_SYNC);
        return;
    }
    let time = |since: &Now| Value::from(format!("{:.3}", clock.timestamp_of(*since)));
    let recorded: Map<String, Value> =
        pools.iter().map(|(pool, since)| (pool.to_string(), time(since))).collect();
    annotations.insert(OUT_OF_SYNC.to_owned(), Value::Object(recorded).to_string().into());
}

/// Records the end of a closed gate, or that the gate is open.
fn set_gate(annotations: &mut Map<String, Value>, key: &str, until: Option<Now>, clock: Clock) {
    match until {
        Some(until) => {
            let until = format!("{:.3}", clock.timestamp_of(until));
            annotations.insert(key.to_owned(), until.into());
        }
        None => {
            annotations.shift_remove(key);
        }
    }
}

/// Returns the object at a key; replaces a value of another type.
fn object<'a>(document: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let value = document.entry(key).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was made an object")
}
