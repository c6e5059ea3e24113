//! Diagnostics of a pool whose members come from an xDS control plane (docs/design/xds.md, X2).

use std::fmt;

/// A diagnostic about the members of a pool, as in the admin API.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Diagnostic {
    /// Some endpoints are assigned, but none of the pool's family is usable.
    NothingUsable,
    /// This priority is used, which is not the highest.
    PriorityUsed(usize),
    /// This higher priority is usable again, and must stay usable for a while before it is used.
    FailbackWaits(usize),
    /// No endpoint is healthy, so degraded ones are used.
    DegradedUsed,
    /// Some members should get more traffic than others, but all get the same.
    WeightsIgnored,
    /// Localities of weight 0 are skipped.
    LocalitiesSkipped,
    /// Further addresses of endpoints, of the same family, are ignored.
    AlternativesIgnored,
    /// Some draining endpoints that are in the pool are left out, because the pool has no room for them.
    DrainingCut,
    /// This many members are Down, although neither the source nor a leaving node requires it.
    ForeignDown(usize),
}

impl Diagnostic {
    /// Returns the value in the admin API.
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
            Diagnostic::DegradedUsed => f.write_str("degraded endpoints are used, because none is healthy"),
            Diagnostic::WeightsIgnored => f.write_str("weights are ignored, because a backend pool has none"),
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
