//! What operators are told of a pool whose members an xDS control plane names (docs/design/xds.md, X2).

use std::fmt;

/// What operators are told of a membership.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Diagnostic {
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

impl Diagnostic {
    /// The word for the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Diagnostic::NothingUsable => "nothing_usable",
            Diagnostic::PriorityUsed(_) => "priority_used",
            Diagnostic::FailbackWaits(_) => "failback_waits",
            Diagnostic::DegradedUsed => "degraded_used",
            Diagnostic::WeightsIgnored => "weights_ignored",
            Diagnostic::LocalitiesSkipped => "localities_skipped",
            Diagnostic::AlternativesIgnored => "alternatives_ignored",
            Diagnostic::DrainingCut => "draining_cut",
            Diagnostic::ForeignDown(_) => "foreign_down",
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Diagnostic::NothingUsable => f.write_str("no assigned endpoint can be used"),
            Diagnostic::PriorityUsed(number) => write!(f, "endpoints of priority {number} are used"),
            Diagnostic::FailbackWaits(number) => {
                write!(f, "endpoints of priority {number} are used again when they stay usable for a while")
            }
            Diagnostic::DegradedUsed => f.write_str("degraded endpoints are used, as nothing is healthy"),
            Diagnostic::WeightsIgnored => f.write_str("weights are ignored, as a backend pool has none"),
            Diagnostic::LocalitiesSkipped => f.write_str("localities of weight 0 are left out"),
            Diagnostic::AlternativesIgnored => {
                f.write_str("of several addresses of an endpoint only the first of the pool's family is used")
            }
            Diagnostic::DrainingCut => {
                f.write_str("the pool has no room for all draining endpoints that are in it")
            }
            Diagnostic::ForeignDown(1) => {
                f.write_str("another client has set a member Down, and it stays so: it gets no connections")
            }
            Diagnostic::ForeignDown(members) => {
                write!(
                    f,
                    "another client has set {members} members Down, and they stay so: they get no connections"
                )
            }
        }
    }
}
