//! The state of one watched resource, as its watcher knows it (A88).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::resource_cache::ResourceChange;
use crate::xds::client::WatcherId;
use model::level::Provenance;
use model::xds::ResourceValue;
use model::xds::assignment::LoadAssignment;
use model::xds::cache::Cached;
use model::xds::facts::ResourceKey;
use model::xds::name::Name;
use model::xds::source::Fault;

/// A resource that is watched.
#[derive(Debug)]
pub(super) struct Watched {
    /// The watcher of the current watch.
    pub watcher: WatcherId,
    /// The state of the resource.
    pub view: View,
    /// The sources that need it.
    pub users: BTreeSet<Name>,
}

impl Watched {
    /// Returns a newly watched resource.
    pub fn new(watcher: WatcherId) -> Watched {
        Watched { watcher, view: View::Waiting, users: BTreeSet::new() }
    }
}

/// The state of a resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum View {
    /// Neither the resource nor an error has arrived.
    Waiting,
    /// The resource is usable, possibly with an error of a newer version or of its server; with its provenance (G1).
    Good { resource: Resource, provenance: Provenance, ambient: Option<Fault> },
    /// The resource is not usable, or no longer.
    Failed(Fault),
}

/// The content of a resource that a source uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Resource {
    /// The endpoints that a cluster names.
    Cluster(Arc<str>),
    /// The assignment of a cluster.
    Endpoints(Arc<LoadAssignment>),
}

impl View {
    /// Applies a notice to the watcher.
    pub fn apply(&mut self, key: &ResourceKey, change: ResourceChange<ResourceValue>) {
        match change {
            ResourceChange::Changed(Ok(cached)) => {
                let Cached { value, provenance, .. } = cached;
                debug_assert_eq!(value.kind(), key.kind);
                let resource = match value {
                    ResourceValue::Cluster(cluster) => Resource::Cluster(cluster.eds_name),
                    ResourceValue::Endpoints(assignment) => Resource::Endpoints(Arc::new(assignment)),
                };
                *self = View::Good { resource, provenance, ambient: None };
            }
            ResourceChange::Changed(Err(error)) => *self = View::Failed(Fault::of(key, &error)),
            ResourceChange::Ambient(error) => {
                let fault = error.map(|error| Fault::of(key, &error));
                match self {
                    View::Good { ambient, .. } => *ambient = fault,
                    View::Waiting | View::Failed(_) => *self = fault.map_or(View::Waiting, View::Failed),
                }
            }
        }
    }

    /// Returns the endpoints that the resource names.
    pub fn named(&self) -> Option<&Arc<str>> {
        match self {
            View::Good { resource: Resource::Cluster(name), .. } => Some(name),
            View::Good { resource: Resource::Endpoints(_), .. } | View::Waiting | View::Failed(_) => None,
        }
    }

    /// Returns the assignment of the resource.
    pub fn assignment(&self) -> Option<&Arc<LoadAssignment>> {
        match self {
            View::Good { resource: Resource::Endpoints(assignment), .. } => Some(assignment),
            View::Good { resource: Resource::Cluster(_), .. } | View::Waiting | View::Failed(_) => None,
        }
    }

    /// Returns the provenance of the resource.
    pub fn provenance(&self) -> Option<Provenance> {
        match self {
            View::Good { provenance, .. } => Some(*provenance),
            View::Waiting | View::Failed(_) => None,
        }
    }

    /// Returns the error of the resource.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            View::Waiting => None,
            View::Good { ambient, .. } => ambient.as_ref(),
            View::Failed(fault) => Some(fault),
        }
    }
}
