//! What operators are told of a pool whose members an xDS control plane names (docs/design/xds.md, X2).

use std::fmt;

/// What operators are told of a membership.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Remark {
    /// No endpoint of the pool's family can be used, though some are assigned.
    NothingUsable,
    /// A priority other than the first is used: this one.
    PriorityUsed(usize),
    /// A better priority, this one, can be used again, and must stay so for a while.
    FailbackWaits(usize),
    /// Nothing is healthy, so that degraded endpoints are used.
    DegradedUsed,
    /// Some members are to get more traffic than others, and get the same.
    WeightsIgnored,
    /// Localities of weight 0 are left out.
    LocalitiesSkipped,
    /// Endpoints have further addresses of the same family, which are left out.
    AlternativesIgnored,
    /// Some draining endpoints that are in the pool are left out, because it has no room for them beside its members.
    DrainingCut,
    /// So many members are Down though neither the source nor a node that leaves service asks for it.
    ForeignDown(usize),
}

impl Remark {
    /// The word for the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Remark::NothingUsable => "nothing_usable",
            Remark::PriorityUsed(_) => "priority_used",
            Remark::FailbackWaits(_) => "failback_waits",
            Remark::DegradedUsed => "degraded_used",
            Remark::WeightsIgnored => "weights_ignored",
            Remark::LocalitiesSkipped => "localities_skipped",
            Remark::AlternativesIgnored => "alternatives_ignored",
            Remark::DrainingCut => "draining_cut",
            Remark::ForeignDown(_) => "foreign_down",
        }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remark::NothingUsable => f.write_str("no assigned endpoint can be used"),
            Remark::PriorityUsed(number) => write!(f, "endpoints of priority {number} are used"),
            Remark::FailbackWaits(number) => {
                write!(f, "endpoints of priority {number} are used again when they stay usable for a while")
            }
            Remark::DegradedUsed => f.write_str("degraded endpoints are used, as nothing is healthy"),
            Remark::WeightsIgnored => f.write_str("weights are ignored, as a backend pool has none"),
            Remark::LocalitiesSkipped => f.write_str("localities of weight 0 are left out"),
            Remark::AlternativesIgnored => {
                f.write_str("of several addresses of an endpoint only the first of the pool's family is used")
            }
            Remark::DrainingCut => {
                f.write_str("the pool has no room for all draining endpoints that are in it")
            }
            Remark::ForeignDown(1) => {
                f.write_str("another client has set a member Down, and it stays so: it gets no connections")
            }
            Remark::ForeignDown(members) => {
                write!(
                    f,
                    "another client has set {members} members Down, and they stay so: they get no connections"
                )
            }
        }
    }
}
