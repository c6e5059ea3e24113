//! A sans-IO model of an xDS control plane (docs/design/surface.md, Z1; X2): its resources, the subscriptions of each
//! stream, the changes that were sent on it, and so the pending responses. It implements the state-of-the-world variant
//! over one aggregated stream.
//!
//! The caller owns resources, and errors that replace them. It also owns streams and nonces, and decides whether and
//! when requests are answered.

mod catalogue;
mod subscriptions;
#[cfg(test)]
mod tests;

pub use catalogue::{Catalogue, CatalogueMatch};
pub use subscriptions::{PendingResponse, Subscriptions};

/// The kinds of resources of a control plane.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// `Cluster`: each response contains all subscribed clusters that exist (CDS).
    Clusters,
    /// `ClusterLoadAssignment`: each response contains only resources that are new on its stream (EDS).
    Endpoints,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Clusters, Self::Endpoints];

    /// Returns the type URL of its resources.
    #[must_use]
    pub fn type_url(self) -> &'static str {
        match self {
            Self::Clusters => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        }
    }

    /// Returns the kind with this type URL.
    #[must_use]
    pub fn of_type_url(type_url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.type_url() == type_url)
    }
}
