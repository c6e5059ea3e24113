//! The azureResourceLocker: the Lease that upstream acquires before it writes to Azure (upstream's `azure_lock.go`).
//!
//! This module only implements the protocol: the next request, and the meaning of an answer. The lock is never
//! renewed, and expiry is judged by the model's own wall clock.

use serde_json::{Value, json};

use super::call::{Answer, Verb};
use super::settings::Settings;
use super::wall;

const PREVIOUS: &str = "aks-managed-resource-locker-previous-holder";
const NOT_EXPIRED: &str = "lease has not expired yet, another component such as aks rp may be processing another \
    request, this would be automatically recovered after the lease expires";
/// Value of the annotation, even if another client holds the Lease: upstream writes this constant.
const CONSTANT: &str = "cloud-controller-manager";

/// A request about the Lease.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LeaseRequest {
    pub(super) verb: Verb,
    /// True if the request goes to the collection.
    pub(super) create: bool,
    pub(super) body: Option<Value>,
}

/// Progress of Lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Locking {
    /// GET: does the Lease exist?
    CheckingExistence,
    /// POST of one without a holder.
    Creating,
    /// GET: who holds it?
    Reading,
    /// PUT of our identity; another client held it before.
    TakingOver,
    /// PUT of our identity; either we held it before, or it never had a holder.
    TakingAgain,
}

/// Progress of Unlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unlocking {
    /// GET: is it still ours?
    Reading,
    /// PUT without a holder.
    Releasing,
}

/// Next step after an answer.
#[derive(Debug, PartialEq)]
pub(super) enum NextStep<S, D> {
    /// The next request.
    LeaseRequest(S, LeaseRequest),
    /// The end.
    Done(Result<D, String>),
}

/// Result of Lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caches {
    /// No other client has held the Lease.
    Keep,
    /// Another client has held it, so everything is read again.
    Rebuild,
}

fn get() -> LeaseRequest {
    LeaseRequest { verb: Verb::Get, create: false, body: None }
}

fn put(lease: Value) -> LeaseRequest {
    LeaseRequest { verb: Verb::Put, create: false, body: Some(lease) }
}

impl Locking {
    pub(super) fn begin() -> (Self, LeaseRequest) {
        (Self::CheckingExistence, get())
    }

    pub(super) fn answered(
        self,
        settings: &Settings,
        wall_us: u64,
        answer: &Answer,
    ) -> NextStep<Self, Caches> {
        match (self, answer.status(), answer.is_success()) {
            (Self::CheckingExistence, 404, _) => NextStep::LeaseRequest(Self::Creating, create(settings)),
            (Self::CheckingExistence | Self::Creating, _, true) => {
                NextStep::LeaseRequest(Self::Reading, get())
            }
            (Self::Reading, _, true) => take(settings, wall_us, answer),
            (Self::TakingOver, _, true) => NextStep::Done(Ok(Caches::Rebuild)),
            (Self::TakingAgain, _, true) => NextStep::Done(Ok(Caches::Keep)),
            (
                Self::CheckingExistence
                | Self::Creating
                | Self::Reading
                | Self::TakingOver
                | Self::TakingAgain,
                _,
                false,
            ) => NextStep::Done(Err(answer.error_text())),
        }
    }
}

impl Unlocking {
    pub(super) fn begin() -> (Self, LeaseRequest) {
        (Self::Reading, get())
    }

    pub(super) fn answered(self, settings: &Settings, wall_us: u64, answer: &Answer) -> NextStep<Self, ()> {
        match (self, answer.status(), answer.is_success()) {
            (Self::Reading, 404, _) | (Self::Releasing, _, true) => NextStep::Done(Ok(())),
            (Self::Reading, _, true) => release(settings, wall_us, answer),
            (Self::Reading | Self::Releasing, _, false) => NextStep::Done(Err(answer.error_text())),
        }
    }
}

fn create(settings: &Settings) -> LeaseRequest {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": settings.lease, "namespace": "kube-system"},
        "spec": {"leaseDurationSeconds": settings.lease_duration_s},
    });
    LeaseRequest { verb: Verb::Post, create: true, body: Some(lease) }
}

fn take(settings: &Settings, wall_us: u64, answer: &Answer) -> NextStep<Locking, Caches> {
    let Some((mut lease, holder)) = decoded(answer) else {
        return NextStep::Done(Err("the lease cannot be decoded".to_owned()));
    };
    match has_expired(&lease, wall_us) {
        Err(()) => return NextStep::Done(Err("the lease cannot be decoded".to_owned())),
        Ok(false) if !holder.eq_ignore_ascii_case(&settings.holder) => {
            return NextStep::Done(Err(NOT_EXPIRED.to_owned()));
        }
        Ok(_) => {}
    }
    let now = wall::micro_time(wall_us);
    lease["spec"]["holderIdentity"] = settings.holder.as_str().into();
    lease["spec"]["acquireTime"] = now.as_str().into();
    lease["spec"]["renewTime"] = now.into();
    let annotations = lease["metadata"].get("annotations").filter(|value| value.is_object());
    let foreign = annotations.is_some_and(|annotations| {
        !annotations[PREVIOUS].as_str().unwrap_or_default().eq_ignore_ascii_case(CONSTANT)
    });
    let next = if foreign { Locking::TakingOver } else { Locking::TakingAgain };
    NextStep::LeaseRequest(next, put(lease))
}

fn release(settings: &Settings, wall_us: u64, answer: &Answer) -> NextStep<Unlocking, ()> {
    let Some((mut lease, holder)) = decoded(answer) else {
        return NextStep::Done(Err("the lease cannot be decoded".to_owned()));
    };
    let Ok(expired) = has_expired(&lease, wall_us) else {
        return NextStep::Done(Err("the lease cannot be decoded".to_owned()));
    };
    if expired || !holder.eq_ignore_ascii_case(&settings.holder) {
        return NextStep::Done(Ok(()));
    }
    lease["spec"]["holderIdentity"] = "".into();
    if !lease["metadata"]["annotations"].is_object() {
        lease["metadata"]["annotations"] = json!({});
    }
    lease["metadata"]["annotations"][PREVIOUS] = CONSTANT.into();
    NextStep::LeaseRequest(Unlocking::Releasing, put(lease))
}

/// Returns the Lease in an answer, with the expected objects in place, and its holder.
fn decoded(answer: &Answer) -> Option<(Value, String)> {
    let mut lease = answer.object()?;
    for part in ["metadata", "spec"] {
        if lease[part].is_null() {
            lease[part] = json!({});
        }
        lease[part].as_object()?;
    }
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    Some((lease, holder))
}

/// Returns whether the Lease has no valid holder. Without a time of renewal it has expired; an invalid time fails the
/// whole decoding, as in a typed client.
fn has_expired(lease: &Value, wall_us: u64) -> Result<bool, ()> {
    let spec = &lease["spec"];
    if spec["holderIdentity"].as_str().unwrap_or_default().is_empty() {
        return Ok(true);
    }
    match &spec["renewTime"] {
        Value::Null => Ok(true),
        Value::String(text) => {
            let renewed = wall::read(text).ok_or(())?;
            let seconds = spec["leaseDurationSeconds"].as_u64().unwrap_or(0);
            Ok(wall_us > renewed.saturating_add(seconds.saturating_mul(1_000_000)))
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Err(()),
    }
}
