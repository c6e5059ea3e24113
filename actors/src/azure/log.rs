//! Log lines about calls to ARM: one per written pool, and one with a remedy per failed call. Each line is in the span
//! of its call. The span has the pool or load balancer, the caller, the attempt and the correlation id, so lines do not
//! repeat these. The machines decide what a failure means for the pool, and report it as an event.

use std::sync::Arc;
use std::time::Duration;

use actix::Message;
use model::arm::{ArmAnswer, Edit, Failure, FailureKind, OperationState, Provisioning, PutAccepted};
use model::ids::{AttemptId, LbName, Operation, PoolId};
use model::sample::{ArmVerb, Caller};
use model::write_record::{Trigger, WriteRecord};
use tokio::time::Instant;
use tracing::Span;
use tracing::field::{DebugValue, debug};

/// Subject of a call.
#[derive(Clone, Debug)]
pub(super) enum CallSubject {
    /// A read of a load balancer.
    LoadBalancer(LbName),
    /// A read of a pool.
    Pool(PoolId),
    /// A write.
    Put(Write),
    /// A poll of the operation of this process's last write on a load balancer.
    Poll(Write),
    /// A poll of another operation.
    OtherPoll(Operation),
}

/// A write in flight.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) pool: PoolId,
    pub(super) attempt: AttemptId,
    /// The callers, by S1's names; `None` if the write changes neither members nor admin states.
    pub(super) caller: Option<Arc<str>>,
    /// The changes of the write, with their reasons.
    pub(super) record: Arc<WriteRecord>,
    pub(super) began: Instant,
    pub(super) correlation_id: Option<Arc<str>>,
}

impl Write {
    /// Creates a write that starts now.
    pub(super) fn new(pool: PoolId, attempt: AttemptId, edit: &Edit, record: Arc<WriteRecord>) -> Write {
        Write { pool, attempt, caller: caller(edit), record, began: Instant::now(), correlation_id: None }
    }
}

/// Returns the callers of an edit: membership, admin state, or both. The admin state of a new member is part of the
/// member.
fn caller(edit: &Edit) -> Option<Arc<str>> {
    let is_one = |caller: &Caller| match caller {
        Caller::Membership => !(edit.add.is_empty() && edit.remove.is_empty()),
        Caller::AdminState => !edit.set_admin.is_empty(),
    };
    let callers: Vec<&str> = Caller::ALL.into_iter().filter(is_one).map(Caller::as_str).collect();
    (!callers.is_empty()).then(|| Arc::from(callers.join(",")))
}

/// Returns the span of a call. Its fields name the subject and the caller (S1); ARM's correlation id is added once it
/// is known. The level makes the fields visible at every `log.level`.
pub(super) fn span(subject: &CallSubject) -> Span {
    let (verb, load_balancer, pool, write) = match subject {
        CallSubject::LoadBalancer(lb) => (ArmVerb::GetLoadBalancer, Some(lb), None, None),
        CallSubject::Pool(pool) => (ArmVerb::GetPool, None, Some(pool), None),
        CallSubject::Put(write) => (ArmVerb::PutPool, None, Some(&write.pool), Some(write)),
        CallSubject::Poll(write) => (ArmVerb::Poll, None, Some(&write.pool), Some(write)),
        CallSubject::OtherPoll(_) => (ArmVerb::Poll, None, None, None),
    };
    tracing::error_span!(
        "arm",
        operation = verb.as_str(),
        load_balancer = load_balancer.map(tracing::field::display),
        pool = pool.map(tracing::field::display),
        caller = write.and_then(|write| write.caller.as_deref()),
        attempt = write.map(|write| tracing::field::display(write.attempt)),
        correlation_id = write.and_then(|write| write.correlation_id.as_deref())
    )
}

/// A write was accepted, and its operation continues.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub(super) struct Accepted(pub(super) Operation, pub(super) Write);

/// Logs an answer within the span of its call; returns a write whose operation continues.
pub(super) fn answer(subject: CallSubject, answer: &ArmAnswer) -> Option<Accepted> {
    if let Some(id) = correlation_id(answer) {
        Span::current().record("correlation_id", id);
    }
    match (subject, answer) {
        (CallSubject::Put(write), ArmAnswer::Put(accepted)) => put(write, accepted),
        (CallSubject::Poll(write), ArmAnswer::Operation(OperationState::Succeeded)) => {
            written(&write);
            None
        }
        (
            subject,
            ArmAnswer::Operation(OperationState::Failed(failure) | OperationState::Canceled(failure)),
        )
        | (subject, ArmAnswer::Failed(failure)) => {
            failed(&subject, failure);
            None
        }
        (
            CallSubject::LoadBalancer(_)
            | CallSubject::Pool(_)
            | CallSubject::Put(_)
            | CallSubject::Poll(_)
            | CallSubject::OtherPoll(_),
            ArmAnswer::LoadBalancer(_)
            | ArmAnswer::Pool(_)
            | ArmAnswer::Put(_)
            | ArmAnswer::Operation(OperationState::Running { .. } | OperationState::Succeeded)
            | ArmAnswer::Withheld,
        ) => None,
    }
}

/// Returns ARM's correlation id, if the answer has one.
fn correlation_id(answer: &ArmAnswer) -> Option<&str> {
    match answer {
        ArmAnswer::Put(accepted) => accepted.correlation_id.as_deref(),
        ArmAnswer::Operation(OperationState::Failed(failure) | OperationState::Canceled(failure))
        | ArmAnswer::Failed(failure) => failure.correlation_id.as_deref(),
        ArmAnswer::LoadBalancer(_)
        | ArmAnswer::Pool(_)
        | ArmAnswer::Operation(OperationState::Running { .. } | OperationState::Succeeded)
        | ArmAnswer::Withheld => None,
    }
}

fn put(write: Write, accepted: &PutAccepted) -> Option<Accepted> {
    let write = Write { correlation_id: accepted.correlation_id.clone(), ..write };
    match (&accepted.operation, accepted.provisioning) {
        (Some(operation), Provisioning::Updating | Provisioning::Failed | Provisioning::Unknown) => {
            tracing::debug!("write accepted; its operation runs");
            Some(Accepted(operation.clone(), write))
        }
        (None, _) | (Some(_), Provisioning::Succeeded) => {
            written(&write);
            None
        }
    }
}

/// Logs what a write changes and why, with further fields and a message.
macro_rules! log_write {
    ($level:ident, $write:expr, $($more:tt)+) => {{
        let WriteRecord { trigger, services, added, removed, down, restored, correlation_id: _ } = &*$write.record;
        tracing::$level!(
            trigger = trigger.map(Trigger::as_str),
            services = listed(services.iter().map(ToString::to_string).collect()),
            added = added.count,
            added_nodes = listed(added.nodes()),
            added_addresses = listed(added.addresses()),
            removed = removed.count,
            removed_nodes = listed(removed.nodes()),
            removed_addresses = listed(removed.addresses()),
            down = counted(down.count),
            down_nodes = listed(down.nodes()),
            down_addresses = listed(down.addresses()),
            restored = counted(restored.count),
            restored_nodes = listed(restored.nodes()),
            restored_addresses = listed(restored.addresses()),
            took_ms = millis($write.began.elapsed()),
            $($more)+
        )
    }};
}

fn written(write: &Write) {
    log_write!(info, write, "wrote backend pool");
}

/// Returns a list as a field, which is an array in JSON; `None` omits an empty one.
fn listed(names: Vec<String>) -> Option<DebugValue<Vec<String>>> {
    (!names.is_empty()).then(|| debug(names))
}

/// Returns a count as a field; `None` omits 0.
fn counted(count: usize) -> Option<usize> {
    (count > 0).then_some(count)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn failed(subject: &CallSubject, failure: &Failure) {
    if is_ordinary(subject, failure) {
        tracing::debug!(%failure, "call to Azure not answered with success");
        return;
    }
    let remedy = remedy(failure);
    match subject {
        CallSubject::LoadBalancer(_) => tracing::warn!(%failure, remedy, "failed to read load balancer"),
        CallSubject::Pool(_) => tracing::warn!(%failure, remedy, "failed to read backend pool"),
        CallSubject::Put(write) => log_write!(warn, write, %failure, remedy, "failed to write backend pool"),
        CallSubject::Poll(write) => {
            log_write!(warn, write, %failure, remedy, "the operation that writes a backend pool failed");
        }
        CallSubject::OtherPoll(operation) => {
            // The query may have a signature.
            let url = operation.as_str().split('?').next().unwrap_or_default();
            tracing::warn!(url, %failure, remedy, "an Azure operation failed");
        }
    }
}

/// Returns whether a failure is normal: a load balancer that does not exist, as most `-internal` ones do not, or a
/// call that was not sent because a gate or a permit had closed.
fn is_ordinary(subject: &CallSubject, failure: &Failure) -> bool {
    match (failure.kind, subject) {
        (FailureKind::PermitExpired | FailureKind::GateClosed, _) => true,
        (FailureKind::Status(_), CallSubject::LoadBalancer(_)) => failure.says_absent(),
        (
            FailureKind::Status(_)
            | FailureKind::Operation
            | FailureKind::NotConnected
            | FailureKind::Connection
            | FailureKind::Timeout
            | FailureKind::Undecodable(_)
            | FailureKind::Credential
            | FailureKind::Refused,
            _,
        ) => false,
    }
}

/// Returns what the operator can do, if anything.
pub(super) fn remedy(failure: &Failure) -> &'static str {
    match failure.kind {
        FailureKind::Status(401) => {
            "check that the identity's tenant, client id and token are those of the subscription"
        }
        FailureKind::Status(403) => {
            "give the identity the role Network Contributor on the load balancers' resource group and join on the \
             virtual network; see the message for the missing action"
        }
        FailureKind::Status(404) if failure.says_absent() => {
            "none: the controller reads the load balancers again soon"
        }
        FailureKind::Status(404) => {
            "check the names of subscription and resource group, resourceManagerEndpoint and proxies; the request is \
             retried"
        }
        FailureKind::Status(409 | 412) => "none: another client is writing, and the write is retried",
        FailureKind::Status(429) => {
            "none: the request is retried when Azure allows it. If this lasts, lower budget.writesPer5Minutes, or find \
             other clients that use the subscription's quota"
        }
        FailureKind::Status(408 | 500 | 502 | 503 | 504) => {
            "none: the request is retried. If this lasts, see Azure's status"
        }
        FailureKind::Status(_) => "read the message: Azure rejected the request",
        FailureKind::Operation => {
            "read the message; if it names a lock or another operation, the write is retried"
        }
        FailureKind::NotConnected | FailureKind::Connection | FailureKind::Timeout => {
            "check DNS, proxy, firewall and resourceManagerEndpoint; the request is retried"
        }
        FailureKind::Undecodable(_) => "check resourceManagerEndpoint and proxies: the answer is not Azure's",
        FailureKind::Credential => {
            "follow the failure's advice; if it has none, check the identity and the connection to its login endpoint"
        }
        FailureKind::PermitExpired | FailureKind::GateClosed => {
            "none: nothing was sent, and the request is retried"
        }
        FailureKind::Refused => "this is a bug in the controller: report it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::arm::{AdminState, NewEntry};
    use model::ids::AddressName;

    #[test]
    fn s1_a_write_has_the_callers_of_its_parts() {
        let admin_state = Some(AdminState::Down);
        let born =
            NewEntry { name: AddressName::new("n"), ip: [10, 0, 0, 1].into(), network: None, admin_state };
        let members = Edit { add: vec![born], ..Edit::default() };
        assert_eq!(caller(&members).as_deref(), Some("LocalServiceBackendPoolUpdater"));
        let mut states = Edit { set_admin: [(0, AdminState::None)].into(), ..Edit::default() };
        assert_eq!(caller(&states).as_deref(), Some("AdminStateController"));
        states.remove.insert(1);
        let both = "LocalServiceBackendPoolUpdater,AdminStateController";
        assert_eq!(caller(&states).as_deref(), Some(both));
        assert_eq!(caller(&Edit::default()), None);
    }
}
