//! A sans-IO model of an xDS control plane (docs/design/surface.md, Z1; X2): what it serves, what each stream has
//! subscribed to and was told, and so what is due to it. It speaks state of the world over one aggregated stream.
//!
//! Resources, and errors that stand in their places, are the caller's. So are streams, nonces, and in what manner
//! requests are dealt with: whether they are answered at all, and when.

mod catalogue;
mod subscriptions;
#[cfg(test)]
mod tests;

pub use catalogue::{Catalogue, Found};
pub use subscriptions::{Due, Subscriptions};

/// The kinds of resources that a control plane has.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// `Cluster`, of which each response names all that are subscribed to and exist (CDS).
    Clusters,
    /// `ClusterLoadAssignment`, of which each response names only what is new on its stream (EDS).
    Endpoints,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Clusters, Self::Endpoints];

    /// The type URL of its resources.
    #[must_use]
    pub fn type_url(self) -> &'static str {
        match self {
            Self::Clusters => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        }
    }

    /// The kind with this type URL.
    #[must_use]
    pub fn of_type_url(type_url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.type_url() == type_url)
    }
}
