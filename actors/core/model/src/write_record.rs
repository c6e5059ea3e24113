//! What one write changes and why: the audit trail that the log, the event `LoadBalancerBackendPoolUpdated` and the
//! admin API show (E1, H3). The writer makes the record; nothing is decided by it.

use std::net::IpAddr;
use std::sync::Arc;

use crate::arm::Backend;
use crate::ids::ServiceKey;
use crate::redact::Printable;

/// How many members of each list, and how many Services, a record names. Its counts are always complete.
pub const MOST_NAMED: usize = 200;

/// The longest name of a node in a record, in bytes.
const LONGEST_NAME: usize = 80;

/// What started an attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Trigger {
    /// The endpoints of a Service or of an xDS resource have changed, or the nodes that host them.
    Endpoints,
    /// The pool was compared with its level: another writer has changed it, a delay or a hold has ended, or a leader
    /// has taken over.
    Comparison,
    /// An operator has asked for an attempt.
    OperatorRequest,
    /// The pool is right, but its provisioning state stays `Failed`.
    ProvisioningFailed,
    /// A node leaves service or returns to it: only admin states are set.
    NodeAdminState,
}

impl Trigger {
    /// Each of them.
    pub const ALL: [Trigger; 5] = [
        Trigger::Endpoints,
        Trigger::Comparison,
        Trigger::OperatorRequest,
        Trigger::ProvisioningFailed,
        Trigger::NodeAdminState,
    ];

    /// The word for the log and the admin API.
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

/// A member of a pool, by the name of its entry and by what it sends traffic to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberRecord {
    /// The node, by the name of the entry in the pool; empty if the entry has none. Printable, of at most 80 bytes.
    pub node: Arc<str>,
    /// Its address, or the virtual machine behind its network interface; `None`: the entry has neither.
    pub backend: Option<Backend>,
}

impl MemberRecord {
    /// A member under this name. The name may come from another writer of the pool.
    #[must_use]
    pub fn new(name: &Arc<str>, backend: Option<Backend>) -> MemberRecord {
        let printable = Printable::line_within(name, LONGEST_NAME);
        let node = if printable.as_str() == &**name { Arc::clone(name) } else { printable.as_str().into() };
        MemberRecord { node, backend }
    }

    /// Its address; `None`: it is only known by its virtual machine.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        match &self.backend {
            Some(Backend::Address(ip)) => Some(*ip),
            Some(Backend::Instance(_)) | None => None,
        }
    }
}

/// Members that a write changes in one way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemberList {
    /// How many there are.
    pub count: usize,
    /// The first [`MOST_NAMED`] of them.
    pub named: Vec<MemberRecord>,
}

impl MemberList {
    /// Adds one.
    pub fn push(&mut self, name: &Arc<str>, backend: Option<Backend>) {
        self.count += 1;
        if self.named.len() < MOST_NAMED {
            self.named.push(MemberRecord::new(name, backend));
        }
    }

    /// The names of the nodes.
    #[must_use]
    pub fn nodes(&self) -> Vec<String> {
        self.named.iter().map(|member| member.node.to_string()).collect()
    }

    /// The addresses, in the same order.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let address = |member: &MemberRecord| member.backend.as_ref().map(ToString::to_string);
        self.named.iter().map(|member| address(member).unwrap_or_default()).collect()
    }
}

/// What one write changes and why.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WriteRecord {
    /// What started it; `None`: this process did not see that.
    pub trigger: Option<Trigger>,
    /// The Services whose pool it is; none for a pool of an xDS source, and for a write that only sets admin states.
    pub services: Vec<ServiceKey>,
    /// Members that are added.
    pub added: MemberList,
    /// Members that are removed.
    pub removed: MemberList,
    /// Members whose admin state becomes Down, new ones among them.
    pub down: MemberList,
    /// Members whose admin state is Down no longer.
    pub restored: MemberList,
    /// The correlation id of ARM's answer; `None`: there was no answer, or it had none.
    pub correlation_id: Option<Arc<str>>,
}

impl WriteRecord {
    /// A record of an attempt of these Services that has changed nothing.
    #[must_use]
    pub fn of<'a>(
        trigger: Trigger,
        services: impl Iterator<Item = &'a ServiceKey>,
        correlation_id: Option<Arc<str>>,
    ) -> WriteRecord {
        let services = services.filter(|key| key.is_service()).take(MOST_NAMED).cloned().collect();
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
        assert!(member.node.len() <= LONGEST_NAME, "{}", member.node.len());
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
        assert_eq!((list.count, list.named.len()), (300, MOST_NAMED));
        assert_eq!(list.nodes()[1], "n1");
        assert_eq!(list.addresses()[1], "10.0.0.1");
    }
}
