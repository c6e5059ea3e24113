//! The record of one write: its changes and its reason. The log, the event `LoadBalancerBackendPoolUpdated` and the
//! admin API show it as an audit trail (E1, H3). The writer creates it; no decision depends on it.

use std::net::IpAddr;
use std::sync::Arc;

use crate::backend::Backend;
use crate::ids::ServiceKey;
use crate::redact::Printable;

/// The maximum number of members in each list, and of Services, that a record names. Its counts are always complete.
pub const MAX_NAMED: usize = 200;

/// The longest node name in a record, in bytes.
const MAX_NAME: usize = 80;

/// The reason for an attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Trigger {
    /// The endpoints of a Service or of an xDS resource, or the nodes that host them, have changed.
    Endpoints,
    /// A comparison of the pool with its level: after a change by another writer, at the end of a delay or of a held
    /// removal, or after a change of leader.
    Comparison,
    /// An operator request.
    OperatorRequest,
    /// The pool is in sync, but its provisioning state stays `Failed`.
    ProvisioningFailed,
    /// A node leaves service or returns to it; the write changes only admin states.
    NodeAdminState,
}

impl Trigger {
    /// Every trigger.
    pub const ALL: [Trigger; 5] = [
        Trigger::Endpoints,
        Trigger::Comparison,
        Trigger::OperatorRequest,
        Trigger::ProvisioningFailed,
        Trigger::NodeAdminState,
    ];

    /// Returns the value in the log and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Trigger::Endpoints => "endpoints_changed",
            Trigger::Comparison => "comparison",
            Trigger::OperatorRequest => "operator_request",
            Trigger::ProvisioningFailed => "provisioning_failed",
            Trigger::NodeAdminState => "node_admin_state",
        }
    }
}

/// A member of a pool: the name and the target of its entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberRecord {
    /// The node, by the name of the entry in the pool; empty if the entry has no name. Printable, at most 80 bytes.
    pub node: Arc<str>,
    /// Its address, or the virtual machine behind its network interface; `None` if the entry has neither.
    pub backend: Option<Backend>,
}

impl MemberRecord {
    /// Creates a record of a member. The name may come from another writer of the pool.
    #[must_use]
    pub fn new(name: &Arc<str>, backend: Option<Backend>) -> MemberRecord {
        let printable = Printable::line_within(name, MAX_NAME);
        let node = if printable.as_str() == &**name { Arc::clone(name) } else { printable.as_str().into() };
        MemberRecord { node, backend }
    }

    /// Returns the member's address; `None` if only its virtual machine is known.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        match &self.backend {
            Some(Backend::Address(ip)) => Some(*ip),
            Some(Backend::Instance(_)) | None => None,
        }
    }
}

/// The members that a write changes in one way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemberList {
    /// Number of members.
    pub count: usize,
    /// The first [`MAX_NAMED`] of them.
    pub named: Vec<MemberRecord>,
}

impl MemberList {
    /// Adds a member.
    pub fn push(&mut self, name: &Arc<str>, backend: Option<Backend>) {
        self.count += 1;
        if self.named.len() < MAX_NAMED {
            self.named.push(MemberRecord::new(name, backend));
        }
    }

    /// Returns the names of the nodes.
    #[must_use]
    pub fn nodes(&self) -> Vec<String> {
        self.named.iter().map(|member| member.node.to_string()).collect()
    }

    /// Returns the addresses, in the same order.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let address = |member: &MemberRecord| member.backend.as_ref().map(ToString::to_string);
        self.named.iter().map(|member| address(member).unwrap_or_default()).collect()
    }
}

/// The changes of one write and its reason.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WriteRecord {
    /// The trigger; `None` if this process does not know it.
    pub trigger: Option<Trigger>,
    /// The Services that own the pool; empty for a pool of an xDS source, and for a write that only changes admin
    /// states.
    pub services: Vec<ServiceKey>,
    /// Added members.
    pub added: MemberList,
    /// Removed members.
    pub removed: MemberList,
    /// Members whose admin state becomes Down, including new ones.
    pub down: MemberList,
    /// Members whose admin state is no longer Down.
    pub restored: MemberList,
    /// The correlation id of ARM's answer, if there was an answer with one.
    pub correlation_id: Option<Arc<str>>,
}

impl WriteRecord {
    /// Returns the record of an attempt for these Services that has changed nothing.
    #[must_use]
    pub fn of<'a>(
        trigger: Trigger,
        services: impl Iterator<Item = &'a ServiceKey>,
        correlation_id: Option<Arc<str>>,
    ) -> WriteRecord {
        let services = services.filter(|key| key.is_service()).take(MAX_NAMED).cloned().collect();
        WriteRecord { trigger: Some(trigger), services, correlation_id, ..WriteRecord::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e1_names_of_other_writers_are_printable_and_short() {
        let name: Arc<str> = format!("a\u{1b}[2J\n{}", "x".repeat(500)).into();
        let member = MemberRecord::new(&name, None);
        assert!(member.node.starts_with("a\\u{1b}[2J\\u{a}xxx"), "{}", member.node);
        assert!(member.node.len() <= MAX_NAME, "{}", member.node.len());
        let plain: Arc<str> = "aks-pool-1".into();
        assert!(Arc::ptr_eq(&MemberRecord::new(&plain, None).node, &plain), "nothing is copied");
    }

    #[test]
    fn e1_a_record_counts_all_members_and_names_the_first() {
        let mut list = MemberList::default();
        for n in 0..300_u16 {
            let [high, low] = n.to_be_bytes();
            list.push(&format!("n{n}").into(), Some(IpAddr::from([10, 0, high, low]).into()));
        }
        assert_eq!((list.count, list.named.len()), (300, MAX_NAMED));
        assert_eq!(list.nodes()[1], "n1");
        assert_eq!(list.addresses()[1], "10.0.0.1");
    }
}
