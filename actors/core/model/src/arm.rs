//! What the machines ask of Azure Resource Manager, and what it answers: the messages of the arm port.
//!
//! The port parses and carries out; every decision about an answer is made here in the core. Documents travel
//! through the machines unread, so that unknown fields survive (W3).

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

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
    /// What is asked.
    pub request: ArmRequest,
}

/// What is asked of ARM.
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
        /// What changes in it.
        edit: Edit,
        /// Sent as `If-Match` when present.
        if_match: Option<Etag>,
        /// Until when the request may be sent (W8).
        permit: Permit,
        /// What it changes and why, for the log.
        record: Arc<WriteRecord>,
    },
    /// GET of an asynchronous operation's state.
    Poll(Operation),
}

/// The right to send one PUT try (W8): refused by the per-try policy once `send_before` has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permit {
    /// The attempt it was made for.
    pub attempt: AttemptId,
    /// The last moment at which the try may be sent.
    pub send_before: Now,
}

/// A document of ARM that is carried unread between a GET and the PUT that edits it.
#[derive(Clone)]
pub struct Document(Arc<dyn Any + Send + Sync>);

impl Document {
    /// Wraps whatever the port keeps.
    pub fn new<T: Any + Send + Sync>(inner: T) -> Document {
        Document(Arc::new(inner))
    }

    /// The port's own view of it; `None` when another port made it.
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

/// What a PUT changes in the document of its GET; all else stays as it was (W3).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Edit {
    /// Positions, in the GET's address array, of the entries that go.
    pub remove: BTreeSet<usize>,
    /// New entries, appended in this order.
    pub add: Vec<NewEntry>,
    /// Admin states to set, by position in the GET's address array.
    pub set_admin: BTreeMap<usize, AdminState>,
    /// The virtual network to write at pool level, only when the pool has none anywhere.
    pub pool_network: Option<NetworkId>,
}

impl Edit {
    /// Whether the document would stay as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty() && self.set_admin.is_empty()
    }
}

/// An address entry to be added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewEntry {
    /// Its name.
    pub name: AddressName,
    /// Its address.
    pub ip: IpAddr,
    /// The network at address level, when this pool names it there.
    pub network: Option<Arc<EntryNetwork>>,
    /// `adminState` at birth: `Down` on a draining node, else none.
    pub admin_state: Option<AdminState>,
}

/// How an address entry names the network of its address.
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
    /// The health probe decides.
    None,
    /// Always eligible.
    Up,
    /// No new connections.
    Down,
    /// A value that we do not know; it is left alone.
    Unknown,
}

/// `provisioningState` of a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Provisioning {
    /// `Succeeded`.
    Succeeded,
    /// `Creating`, `Updating` or `Deleting`: an operation runs.
    Updating,
    /// `Failed` or `Canceled`: at rest, after an operation that did not succeed.
    Failed,
    /// Absent or a value that we do not know; treated as at rest.
    Unknown,
}

/// One address entry of a pool as it was seen.
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
    /// The virtual machine behind the network interface that it names; `None` when it names none.
    pub instance: Option<InstanceId>,
}

impl Entry {
    /// What it sends traffic to: its address, else the virtual machine behind its network interface; `None` when it
    /// says neither.
    #[must_use]
    pub fn backend(&self) -> Option<Backend> {
        let instance = || self.instance.clone().map(Backend::Instance);
        self.ip.map(Backend::Address).or_else(instance)
    }
}

/// What an address entry sends traffic to (N2).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Backend {
    /// An address.
    Address(IpAddr),
    /// A virtual machine, by its network interface.
    Instance(InstanceId),
}

impl From<IpAddr> for Backend {
    fn from(ip: IpAddr) -> Backend {
        Backend::Address(ip)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backend::Address(ip) => ip.fmt(f),
            Backend::Instance(instance) => instance.fmt(f),
        }
    }
}

/// A pool as it was seen, by a GET of its own or within a GET of its load balancer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolFacts {
    /// Which pool.
    pub id: PoolId,
    /// Its address entries in the order of the document.
    pub entries: Vec<Entry>,
    /// The names of the load-balancing rules that send to it.
    pub rules: Vec<Arc<str>>,
    /// Whether an outbound rule uses it.
    pub outbound_rule: bool,
    /// Whether an inbound NAT rule uses it.
    pub inbound_nat_rule: bool,
    /// Whether it has members by network interface (`backendIPConfigurations`).
    pub nic_backed: bool,
    /// Whether `syncMode` is `Automatic`.
    pub sync_automatic: bool,
    /// The virtual network at pool level.
    pub network: Option<NetworkId>,
    /// The entity tag in its body.
    pub etag: Option<Etag>,
    /// Whether an operation runs on it.
    pub provisioning: Provisioning,
}

impl PoolFacts {
    /// A pool at rest with these entries, which nothing uses yet.
    #[must_use]
    pub fn at_rest(id: PoolId, entries: Vec<Entry>) -> PoolFacts {
        PoolFacts {
            id,
            entries,
            rules: Vec::new(),
            outbound_rule: false,
            inbound_nat_rule: false,
            nic_backed: false,
            sync_automatic: false,
            network: None,
            etag: None,
            provisioning: Provisioning::Succeeded,
        }
    }

    /// The addresses in it.
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
    /// The pool it sends to; `None` when it names none or one of another load balancer.
    pub pool: Option<PoolName>,
    /// Whether it has a health probe.
    pub probed: bool,
}

/// A load balancer as it was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LbFacts {
    /// Its name.
    pub lb: LbName,
    /// Its entity tag.
    pub etag: Option<Etag>,
    /// Its `resourceGuid`: one that is created again has another.
    pub guid: Option<Arc<str>>,
    /// Whether an operation runs on it.
    pub provisioning: Provisioning,
    /// Its pools.
    pub pools: Vec<Arc<PoolFacts>>,
    /// Its load-balancing rules.
    pub rules: Vec<RuleFacts>,
}

impl LbFacts {
    /// The same with these of its pools alone.
    #[must_use]
    pub fn only(&self, is_wanted: impl Fn(&PoolId) -> bool) -> LbFacts {
        let pools = self.pools.iter().filter(|pool| is_wanted(&pool.id)).cloned().collect();
        LbFacts { pools, ..self.clone() }
    }

    /// Whether the last operation on it and on each of its pools has ended well.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        let succeeded = |provisioning| match provisioning {
            Provisioning::Succeeded => true,
            Provisioning::Updating | Provisioning::Failed | Provisioning::Unknown => false,
        };
        succeeded(self.provisioning) && self.pools.iter().all(|pool| succeeded(pool.provisioning))
    }
}

/// What ARM, or the way to it, answered.
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
    /// It failed.
    Failed(Arc<Failure>),
}

/// The answer to a GET of one pool.
#[derive(Clone, Debug)]
pub struct PoolRead {
    /// What was seen.
    pub facts: Arc<PoolFacts>,
    /// The whole of it, for the PUT.
    pub document: Document,
    /// The entity tag: of the `ETag` header, else of the body.
    pub etag: Option<Etag>,
}

/// The answer to a PUT that was accepted.
#[derive(Clone, Debug)]
pub struct PutAccepted {
    /// `provisioningState` in the answer's body: `Succeeded` means done, whatever the headers say.
    pub provisioning: Provisioning,
    /// Where to ask how the operation stands.
    pub operation: Option<Operation>,
    /// How long to wait before asking.
    pub retry_after: RetryAfter,
    /// The entity tag in the answer's body.
    pub etag: Option<Etag>,
    /// ARM's correlation id, for operators.
    pub correlation_id: Option<Arc<str>>,
}

/// How an asynchronous operation stands.
#[derive(Clone, Debug)]
pub enum OperationState {
    /// Anything but the three terminal states.
    Running {
        /// How long to wait before asking again.
        retry_after: RetryAfter,
    },
    /// `Succeeded`.
    Succeeded,
    /// `Failed`, with what the body says; the poll itself was answered with 200.
    Failed(Arc<Failure>),
    /// `Canceled`, with what the body says.
    Canceled(Arc<Failure>),
}

/// The header `Retry-After`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RetryAfter {
    /// There was none.
    #[default]
    Absent,
    /// A span from the arrival of the answer; a date is taken against the answer's own `Date`.
    In(Duration),
    /// Zero, negative or unreadable.
    Invalid,
}

impl RetryAfter {
    /// The longest that is kept to before another try (W4).
    const LONGEST: Duration = Duration::from_secs(60);

    /// How long another try is to wait at least, as far as that is kept to; `None`: nothing was named.
    #[must_use]
    pub fn before_next_try(self) -> Option<Duration> {
        match self {
            RetryAfter::In(span) => Some(span.min(RetryAfter::LONGEST)),
            RetryAfter::Absent | RetryAfter::Invalid => None,
        }
    }
}

/// What went wrong, as facts; `writer::classify` decides what follows (W5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Where it went wrong.
    pub kind: FailureKind,
    /// ARM's outermost error code.
    pub code: Option<Arc<str>>,
    /// The codes of the error's details and inner errors, outermost first.
    pub inner_codes: Vec<Arc<str>>,
    /// ARM's message, or what the transport said; shortened to 1 kB.
    pub message: Arc<str>,
    /// The header `Retry-After`.
    pub retry_after: RetryAfter,
    /// ARM's correlation id.
    pub correlation_id: Option<Arc<str>>,
}

/// Where a call went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// ARM answered with this status.
    Status(u16),
    /// An operation ended `Failed` or `Canceled`; the poll was answered with 200.
    Operation,
    /// No connection could be made, so that nothing has reached ARM.
    NotConnected,
    /// The connection broke before the answer was complete, or it is not known how far the request came.
    Connection,
    /// No answer in time.
    Timeout,
    /// A success status with a body that cannot be read.
    Undecodable(u16),
    /// No token was obtained.
    Credential,
    /// The permit had run out before the try was sent; nothing was sent (W8).
    PermitExpired,
    /// The throttle gate was closed; nothing was sent (W6).
    GateClosed,
    /// We refused to build the request; nothing was sent.
    Refused,
}

/// The codes with which ARM says that what was asked for is not there, or the resource that it is a part of.
const ABSENT: [&str; 3] = ["ResourceNotFound", "ParentResourceNotFound", "NotFound"];

impl Failure {
    /// Whether ARM says that what was asked for is not there, as a pool is not whose load balancer is gone. A 404 about its
    /// resource group or subscription says nothing of it, and may pass; neither does one without ARM's code, which may be
    /// another client's.
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
    fn d1_n3_only_a_404_about_the_resource_or_its_parent_means_absent() {
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

    /// There are as many entries as pools have members.
    #[test]
    fn an_entry_takes_no_more_than_eight_words() {
        assert!(size_of::<Entry>() <= size_of::<[usize; 8]>(), "{}", size_of::<Entry>());
    }

    #[test]
    fn n2_an_entry_sends_traffic_to_its_address_or_to_its_interfaces_machine() {
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
