//! The target of an address entry in a pool.

use std::fmt;
use std::net::IpAddr;

use crate::ids::InstanceId;

/// The target of an address entry (N2).
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
