//! Identifiers as newtypes: no identifier is a bare string.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps the text unchanged.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// Returns the text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the shared text, which can be stored elsewhere without a copy.
            #[must_use]
            pub fn shared(&self) -> Arc<str> {
                Arc::clone(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), &*self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

/// Implements equality, order, hash, `Display` and `Debug` for a name that compares by its `folded()`.
macro_rules! case_insensitive {
    ($name:ident) => {
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.folded() == other.folded()
            }
        }
        impl Eq for $name {}
        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }
        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                self.folded().cmp(other.folded())
            }
        }
        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.folded().hash(state);
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), self.as_str())
            }
        }
    };
}

macro_rules! case_insensitive_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Azure compares these names without regard to case; equality, order and hash do the same. URLs and operators
        /// get the spelling that was seen first.
        #[derive(Clone)]
        pub struct $name { shown: Arc<str>, folded: Arc<str> }

        impl $name {
            /// Wraps the text and keeps its spelling.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                let shown: Arc<str> = text.into();
                let folded = if shown.bytes().any(|b| b.is_ascii_uppercase()) {
                    Arc::from(shown.to_ascii_lowercase())
                } else {
                    Arc::clone(&shown)
                };
                Self { shown, folded }
            }

            /// Returns the text in the spelling that was seen first.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.shown
            }

            /// Returns the text in lower case, used for comparison.
            #[must_use]
            pub fn folded(&self) -> &str {
                &self.folded
            }
        }

        case_insensitive!($name);
    };
}

mod instance;

pub use instance::InstanceId;

case_insensitive_id! {
    /// Name of an Azure load balancer.
    LbName
}
case_insensitive_id! {
    /// Name of a backend pool within its load balancer.
    PoolName
}
text_id! {
    /// UID of a Service.
    ServiceUid
}
text_id! {
    /// Name of a Node.
    NodeName
}
text_id! {
    /// UID of a Node. A node that is re-created under the same name has another UID.
    NodeUid
}
text_id! {
    /// Name of an address entry in a pool: unique in the pool, at most 80 characters (W3).
    AddressName
}
text_id! {
    /// Entity tag of a load balancer, shared by all its pools; `W/"…"` as ARM writes it.
    Etag
}
text_id! {
    /// The opaque URL at which ARM reports the state of an asynchronous operation.
    Operation
}
text_id! {
    /// Id of a virtual network, as ARM writes it.
    NetworkId
}
text_id! {
    /// Id of a subnet, as ARM writes it.
    SubnetId
}

/// A pool: a load balancer and the name of one of its backend pools.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolId {
    /// The load balancer.
    pub lb: LbName,
    /// The backend pool within it.
    pub pool: PoolName,
}

impl PoolId {
    /// Names the pool `pool` of the load balancer `lb`.
    #[must_use]
    pub fn new(lb: LbName, pool: PoolName) -> PoolId {
        PoolId { lb, pool }
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.lb, self.pool)
    }
}

impl PoolName {
    /// Returns the names of the two pools of the cluster as a whole, for IPv4 and for IPv6. No Service owns them
    /// (D2).
    #[must_use]
    pub fn of_cluster(cluster_name: &str) -> [PoolName; 2] {
        [PoolName::new(cluster_name), PoolName::new(format!("{cluster_name}-IPv6"))]
    }
}

/// Address family of a pool. All members of a pool are of one family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A namespaced name of a Service.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServiceKey {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name within it.
    pub name: Arc<str>,
}

impl ServiceKey {
    /// Names the Service `namespace/name`.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> ServiceKey {
        ServiceKey { namespace: namespace.into(), name: name.into() }
    }

    /// Returns the key that replaces a Service's key in a pool whose members come from an xDS source (X2): the
    /// configured name of the source, without a namespace.
    #[must_use]
    pub fn of_source(source: &str) -> ServiceKey {
        ServiceKey::new("", source)
    }

    /// Returns true for a Service, false for an xDS source.
    #[must_use]
    pub fn is_service(&self) -> bool {
        !self.namespace.is_empty()
    }

    /// Returns the name that the cloud-controller-manager gives to this Service's own pool (D2).
    #[must_use]
    pub fn pool_name(&self, family: Family) -> PoolName {
        let suffix = match family {
            Family::V4 => "",
            Family::V6 => "-ipv6",
        };
        PoolName::new(format!("{}-{}{suffix}", self.namespace, self.name).to_lowercase())
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_service() {
            write!(f, "{}/{}", self.namespace, self.name)
        } else {
            f.write_str(&self.name)
        }
    }
}

/// A namespaced name of an EndpointSlice.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SliceKey {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name within it.
    pub name: Arc<str>,
}

/// The namespaced name of a Kubernetes Event.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EventKey {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

/// Returns the entries of `map` whose pools are on the load balancer `lb`, in order.
pub fn of_balancer<'m, V>(
    map: &'m BTreeMap<PoolId, V>,
    lb: &'m LbName,
) -> impl Iterator<Item = (&'m PoolId, &'m V)> {
    let first = PoolId::new(lb.clone(), PoolName::new(""));
    map.range(first..).take_while(move |(id, _)| id.lb == *lb)
}

/// The name prefix of the load-balancing rules that the cloud-controller-manager creates for one Service (D1): `("a" +
/// uid without dashes)[:32]`. It compares without regard to case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RulePrefix(Arc<str>);

impl RulePrefix {
    /// The length of every prefix, in characters.
    pub const LENGTH: usize = 32;

    /// Returns the prefix for the Service with this UID.
    #[must_use]
    pub fn of(uid: &ServiceUid) -> RulePrefix {
        let whole: String = std::iter::once('a')
            .chain(uid.as_str().chars().filter(|c| *c != '-'))
            .take(RulePrefix::LENGTH)
            .collect();
        RulePrefix(Arc::from(whole.to_ascii_lowercase()))
    }

    /// Returns true if a rule with this name belongs to any Service (D2): `^a[0-9a-f]{31}`, without regard to case.
    #[must_use]
    pub fn is_service_rule(rule: &str) -> bool {
        let head = rule.as_bytes().get(..RulePrefix::LENGTH);
        head.is_some_and(|head| head[0].eq_ignore_ascii_case(&b'a') && head.iter().all(u8::is_ascii_hexdigit))
    }

    /// Returns true if a rule with this name belongs to the Service.
    #[must_use]
    pub fn owns(&self, rule: &str) -> bool {
        rule.get(..self.0.len()).is_some_and(|head| head.eq_ignore_ascii_case(&self.0))
    }

    /// Returns the text, in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A term of leadership. Each term has a greater number than the one before, so that answers from an older term are
/// recognised (W8).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u64);

/// Id of one attempt to bring a pool to its level (A3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AttemptId {
    /// The term of leadership of the attempt.
    pub epoch: Epoch,
    /// Number of the attempt within this process.
    pub n: u64,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch.0, self.n)
    }
}

/// Id of one call to ARM or to the Kubernetes API. The answer carries the same id (A3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub u64);

/// Id of a second read of Services, EndpointSlices and Nodes, which confirms or refutes a removal (G1). Later reads
/// have greater ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ReadId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d1_the_rule_prefix_is_an_a_and_31_digits_of_the_uid() {
        let prefix = RulePrefix::of(&ServiceUid::new("12345678-90ab-cdef-1234-567890abcdef"));
        assert_eq!(prefix.as_str(), "a1234567890abcdef1234567890abcde");
        assert!(prefix.owns("A1234567890ABCDEF1234567890ABCDE-TCP-80"));
        assert!(!prefix.owns("a1234567890abcdef1234567890abcdf-TCP-80"));
        assert!(!prefix.owns("a123"));
        assert!(!prefix.owns("a1234567890abcdef1234567890abcd\u{e9}-TCP"));
    }

    #[test]
    fn azure_names_ignore_case_and_keep_their_spelling() {
        assert_eq!(LbName::new("Kubernetes"), LbName::new("kubernetes"));
        assert_eq!(LbName::new("Kubernetes").to_string(), "Kubernetes");
    }

    #[test]
    fn d2_the_pool_name_is_lower_case_and_may_end_in_ipv6() {
        let key = ServiceKey::new("Shop", "web");
        assert_eq!(key.pool_name(Family::V4).as_str(), "shop-web");
        assert_eq!(key.pool_name(Family::V6).as_str(), "shop-web-ipv6");
    }
}
