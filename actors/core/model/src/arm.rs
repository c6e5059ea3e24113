//! Requests to Azure Resource Manager and their answers: the messages of the arm port.
//!
//! The port parses and sends; the core makes every decision about an answer. Documents pass through the machines as
//! opaque values, so that unknown fields survive (W3).

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub use crate::backend::Backend;
use crate::ids::{
    AddressName, AttemptId, CallId, Etag, InstanceId, LbName, NetworkId, Operation, PoolId, PoolName,
    SubnetId,
};
use crate::machine::Now;
use crate::write_record::WriteRecord;

/// One call to ARM.
#[derive(Clone, Debug)]
pub struct ArmCall {
    /// The id that the answer carries.
    pub id: CallId,
    /// The request.
    pub request: ArmRequest,
}

/// A request to ARM.
#[derive(Clone, Debug)]
pub enum ArmRequest {
    /// GET of a load balancer with all its pools and rules.
    GetLoadBalancer(LbName),
    /// GET of one pool.
    GetPool(PoolId),
    /// PUT of one pool: the document of the GET with the edit applied.
    PutPool {
        /// The pool.
        pool: PoolId,
        /// The document as the GET returned it.
        base: Document,
        /// The changes to it.
        edit: Edit,
        /// The value of `If-Match`, if present.
        if_match: Option<Etag>,
        /// The right to send the request (W8).
        permit: Permit,
        /// The change and its reason, for the log.
        record: Arc<WriteRecord>,
    },
    /// GET of an asynchronous operation's state.
    Poll(Operation),
}

/// The right to send one PUT (W8). The per-try policy refuses a try after `send_deadline`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permit {
    /// The attempt that the permit belongs to.
    pub attempt: AttemptId,
    /// The last moment at which the try may be sent.
    pub send_deadline: Now,
}

/// An ARM document that passes unchanged from a GET to the PUT that edits it.
#[derive(Clone)]
pub struct Document(Arc<dyn Any + Send + Sync>);

impl Document {
    /// Wraps the port's own representation.
    pub fn new<T: Any + Send + Sync>(inner: T) -> Document {
        Document(Arc::new(inner))
    }

    /// Returns the port's own representation; `None` if another port made the document.
    #[must_use]
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Document")
    }
}

/// The changes of a PUT to the document of its GET. Everything else stays unchanged (W3).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Edit {
    /// Positions of removed entries in the address array of the GET.
    pub remove: BTreeSet<usize>,
    /// New entries, appended in this order.
    pub add: Vec<NewEntry>,
    /// Admin states to set, by position in the address array of the GET.
    pub set_admin: BTreeMap<usize, AdminState>,
    /// The virtual network to set at pool level, only if the pool has none at any level.
    pub pool_network: Option<NetworkId>,
}

impl Edit {
    /// Returns true if the edit changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty() && self.set_admin.is_empty()
    }
}

/// A new address entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewEntry {
    /// Its name.
    pub name: AddressName,
    /// Its address.
    pub ip: IpAddr,
    /// The network at address level, if this pool names its network there.
    pub network: Option<Arc<EntryNetwork>>,
    /// `adminState` of the new entry: `Down` on a draining node, else none.
    pub admin_state: Option<AdminState>,
}

/// How an address entry names its network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EntryNetwork {
    /// `virtualNetwork`.
    VirtualNetwork(NetworkId),
    /// `subnet`.
    Subnet(SubnetId),
}

/// The admin state of an address entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AdminState {
    /// The health probe decides about new connections.
    None,
    /// New connections regardless of the health probe.
    Up,
    /// No new connections.
    Down,
    /// An unknown value; it is left unchanged.
    Unknown,
}

/// `provisioningState` of a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Provisioning {
    /// `Succeeded`.
    Succeeded,
    /// `Creating`, `Updating` or `Deleting`: an operation is running.
    Updating,
    /// `Failed` or `Canceled`: no operation is running, and the last one did not succeed.
    Failed,
    /// Absent or an unknown value; treated as if no operation is running.
    Unknown,
}

/// One address entry of a pool, as read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name; empty when absent.
    pub name: Arc<str>,
    /// Its address; `None` when absent, empty or unreadable.
    pub ip: Option<IpAddr>,
    /// Its admin state; absent counts as [`AdminState::None`].
    pub admin_state: AdminState,
    /// The network at address level.
    pub network: Option<Arc<EntryNetwork>>,
    /// The virtual machine behind its network interface; `None` when it names no interface.
    pub instance: Option<InstanceId>,
}

impl Entry {
    /// Returns the target of the entry: its address, else the virtual machine behind its network interface; `None`
    /// when it has neither.
    #[must_use]
    pub fn backend(&self) -> Option<Backend> {
        let instance = || self.instance.clone().map(Backend::Instance);
        self.ip.map(Backend::Address).or_else(instance)
    }
}

/// A pool as read, by its own GET or by the GET of its load balancer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolFacts {
    /// Which pool.
    pub id: PoolId,
    /// Its address entries in the order of the document.
    pub entries: Vec<Entry>,
    /// The names of the load-balancing rules that use it.
    pub rules: Vec<Arc<str>>,
    /// True if an outbound rule uses it.
    pub outbound_rule: bool,
    /// True if an inbound NAT rule uses it.
    pub inbound_nat_rule: bool,
    /// True if it has members by network interface (`backendIPConfigurations`).
    pub nic_backed: bool,
    /// True if `syncMode` is `Automatic`.
    pub sync_automatic: bool,
    /// The virtual network at pool level.
    pub network: Option<NetworkId>,
    /// The entity tag in its body.
    pub etag: Option<Etag>,
    /// Its provisioning state.
    pub provisioning: Provisioning,
}

impl PoolFacts {
    /// Returns the addresses of the pool's entries.
    #[must_use]
    pub fn members(&self) -> BTreeSet<IpAddr> {
        self.entries.iter().filter_map(|entry| entry.ip).collect()
    }
}

/// A load-balancing rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleFacts {
    /// Its name.
    pub name: Arc<str>,
    /// The pool that the rule uses; `None` when it names none, or one of another load balancer.
    pub pool: Option<PoolName>,
    /// True if it has a health probe.
    pub probed: bool,
}

/// A load balancer as read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LbFacts {
    /// Its name.
    pub lb: LbName,
    /// Its entity tag.
    pub etag: Option<Etag>,
    /// Its `resourceGuid`. A re-created load balancer has another one.
    pub guid: Option<Arc<str>>,
    /// Its provisioning state.
    pub provisioning: Provisioning,
    /// Its pools.
    pub pools: Vec<Arc<PoolFacts>>,
    /// Its load-balancing rules.
    pub rules: Vec<RuleFacts>,
}

impl LbFacts {
    /// Returns a copy with only the pools for which `is_wanted` returns true.
    #[must_use]
    pub fn only(&self, is_wanted: impl Fn(&PoolId) -> bool) -> LbFacts {
        let pools = self.pools.iter().filter(|pool| is_wanted(&pool.id)).cloned().collect();
        LbFacts { pools, ..self.clone() }
    }

    /// Returns true if the last operation on it and on each of its pools has succeeded.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        let succeeded = |provisioning| match provisioning {
            Provisioning::Succeeded => true,
            Provisioning::Updating | Provisioning::Failed | Provisioning::Unknown => false,
        };
        succeeded(self.provisioning) && self.pools.iter().all(|pool| succeeded(pool.provisioning))
    }
}

/// The answer of ARM or of the transport.
#[derive(Clone, Debug)]
pub enum ArmAnswer {
    /// A load balancer.
    LoadBalancer(Arc<LbFacts>),
    /// A pool, with the document that a PUT edits.
    Pool(PoolRead),
    /// A PUT was accepted.
    Put(PutAccepted),
    /// The state of an operation.
    Operation(OperationState),
    /// Nothing was sent, because this process only shows what it would do (C4).
    Withheld,
    /// The call failed.
    Failed(Arc<Failure>),
}

/// The answer to a GET of one pool.
#[derive(Clone, Debug)]
pub struct PoolRead {
    /// The content of the pool.
    pub facts: Arc<PoolFacts>,
    /// The whole document, for the PUT.
    pub document: Document,
    /// The entity tag: from the `ETag` header, else from the body.
    pub etag: Option<Etag>,
}

/// The answer to an accepted PUT.
#[derive(Clone, Debug)]
pub struct PutAccepted {
    /// `provisioningState` in the body. `Succeeded` means done, whatever the headers contain.
    pub provisioning: Provisioning,
    /// The URL to poll for the state of the operation.
    pub operation: Option<Operation>,
    /// The delay before the first poll.
    pub retry_after: RetryAfter,
    /// The entity tag in the answer's body.
    pub etag: Option<Etag>,
    /// ARM's correlation id, for operators.
    pub correlation_id: Option<Arc<str>>,
}

/// The state of an asynchronous operation.
#[derive(Clone, Debug)]
pub enum OperationState {
    /// Anything but the three terminal states.
    Running {
        /// The delay before the next poll.
        retry_after: RetryAfter,
    },
    /// `Succeeded`.
    Succeeded,
    /// `Failed`, with the failure in the body; the poll itself was answered with 200.
    Failed(Arc<Failure>),
    /// `Canceled`, with the failure in the body.
    Canceled(Arc<Failure>),
}

/// The header `Retry-After`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RetryAfter {
    /// No header.
    #[default]
    Absent,
    /// The delay from the arrival of the answer. A date is compared with the answer's own `Date`.
    In(Duration),
    /// Zero, negative or unparsable.
    Invalid,
}

impl RetryAfter {
    /// The longest delay that is respected before another try (W4).
    const MAX_DELAY: Duration = Duration::from_secs(60);

    /// Returns the shortest delay before another try, capped; `None`: the header names none.
    #[must_use]
    pub fn before_next_try(self) -> Option<Duration> {
        match self {
            RetryAfter::In(span) => Some(span.min(RetryAfter::MAX_DELAY)),
            RetryAfter::Absent | RetryAfter::Invalid => None,
        }
    }
}

/// A failure as facts; the writer classifies it when it arrives (W5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Where the call failed.
    pub kind: FailureKind,
    /// ARM's outermost error code.
    pub code: Option<Arc<str>>,
    /// The codes of the error's details and inner errors, outermost first.
    pub inner_codes: Vec<Arc<str>>,
    /// ARM's message, or that of the transport; shortened to 1 kB.
    pub message: Arc<str>,
    /// The header `Retry-After`.
    pub retry_after: RetryAfter,
    /// ARM's correlation id.
    pub correlation_id: Option<Arc<str>>,
}

/// Where a call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// ARM answered with this status.
    Status(u16),
    /// An operation ended `Failed` or `Canceled`; the poll was answered with 200.
    Operation,
    /// No connection was made, so that nothing reached ARM.
    NotConnected,
    /// The connection broke before the answer was complete, or it is not known how much of the request was sent.
    Connection,
    /// No answer in time.
    Timeout,
    /// A success status with an unreadable body.
    Undecodable(u16),
    /// No token was obtained.
    Credential,
    /// The permit expired before the try; nothing was sent (W8).
    PermitExpired,
    /// The throttle gate was closed; nothing was sent (W6).
    GateClosed,
    /// This program refused to build the request; nothing was sent.
    Refused,
}

/// What identical failures have in common (Q8, W10).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailureCause {
    kind: FailureKind,
    code: Option<Arc<str>>,
}

/// ARM's codes for a resource, or its parent, that does not exist.
const ABSENT: [&str; 3] = ["ResourceNotFound", "ParentResourceNotFound", "NotFound"];

impl Failure {
    /// Returns the cause, apart from the message and the details of one answer.
    #[must_use]
    pub fn cause(&self) -> FailureCause {
        FailureCause { kind: self.kind, code: self.code.clone() }
    }

    /// Returns true if ARM says that the requested resource does not exist; a pool of a deleted load balancer does not
    /// exist either. A 404 about the resource group or subscription does not count, because it may be temporary. A 404
    /// without ARM's code does not count, because another server may have sent it.
    #[must_use]
    pub fn says_absent(&self) -> bool {
        let says = |code: &str| ABSENT.iter().any(|absent| code.eq_ignore_ascii_case(absent));
        self.kind == FailureKind::Status(404) && self.code.as_deref().is_some_and(says)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FailureKind::Status(status) => write!(f, "HTTP {status}")?,
            FailureKind::Operation => f.write_str("operation failed")?,
            FailureKind::NotConnected | FailureKind::Connection => f.write_str("connection failed")?,
            FailureKind::Timeout => f.write_str("no answer in time")?,
            FailureKind::Undecodable(status) => write!(f, "HTTP {status} with an unreadable body")?,
            FailureKind::Credential => f.write_str("no token")?,
            FailureKind::PermitExpired => f.write_str("permit ran out")?,
            FailureKind::GateClosed => f.write_str("throttle gate closed")?,
            FailureKind::Refused => f.write_str("request refused")?,
        }
        if let Some(code) = &self.code {
            write!(f, " {code}")?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        if let Some(id) = &self.correlation_id {
            write!(f, " (correlation id {id})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d1_n3_only_a_404_of_a_resource_or_its_parent_means_absent() {
        let failure = |status, code: Option<&str>| Failure {
            kind: FailureKind::Status(status),
            code: code.map(Arc::from),
            inner_codes: Vec::new(),
            message: Arc::from(""),
            retry_after: RetryAfter::Absent,
            correlation_id: None,
        };
        for code in ["ResourceNotFound", "ParentResourceNotFound", "NotFound", "resourcenotfound"] {
            assert!(failure(404, Some(code)).says_absent(), "{code}");
            assert!(!failure(403, Some(code)).says_absent(), "{code}");
        }
        for code in [Some("ResourceGroupNotFound"), Some("SubscriptionNotFound"), Some("NotFoundHere"), None]
        {
            assert!(!failure(404, code).says_absent(), "{code:?}");
        }
    }

    /// The number of entries is the number of members of all pools.
    #[test]
    fn an_entry_takes_no_more_than_eight_words() {
        assert!(size_of::<Entry>() <= size_of::<[usize; 8]>(), "{}", size_of::<Entry>());
    }

    #[test]
    fn n2_an_entry_targets_an_address_or_a_machine() {
        let address: IpAddr = [10, 0, 0, 4].into();
        let machine = InstanceId::new("pool-vmss/0");
        let entry = |ip, instance| Entry {
            name: Arc::from("entry"),
            ip,
            admin_state: AdminState::None,
            network: None,
            instance,
        };
        let by_address = Some(Backend::Address(address));
        assert_eq!(entry(Some(address), None).backend(), by_address);
        assert_eq!(entry(Some(address), Some(machine.clone())).backend(), by_address);
        assert_eq!(entry(None, Some(machine.clone())).backend(), Some(Backend::Instance(machine)));
        assert_eq!(entry(None, None).backend(), None);
    }
}
