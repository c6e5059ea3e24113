//! What is known of one watched resource, by what its watcher was told (A88).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::resource_cache::News;
use crate::xds::client::Watcher;
use model::level::Provenance;
use model::xds::Value;
use model::xds::assignment::LoadAssignment;
use model::xds::cache::Cached;
use model::xds::facts::Key;
use model::xds::name::Name;
use model::xds::source::Fault;

/// A resource that is watched.
#[derive(Debug)]
pub(super) struct Watched {
    /// By whom, this time.
    pub watcher: Watcher,
    /// What is known of it.
    pub view: View,
    /// The sources that need it.
    pub users: BTreeSet<Name>,
}

impl Watched {
    /// A resource that is watched from now on.
    pub fn new(watcher: Watcher) -> Watched {
        Watched { watcher, view: View::Waiting, users: BTreeSet::new() }
    }
}

/// What is known of a resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum View {
    /// Nothing.
    Waiting,
    /// It can be used, whatever is wrong with a newer one, or with its server; and how it has come (G1).
    Good { resource: Resource, provenance: Provenance, ambient: Option<Fault> },
    /// It cannot, or not any more.
    Failed(Fault),
}

/// What of a resource matters to a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Resource {
    /// The endpoints that a cluster names.
    Cluster(Arc<str>),
    /// What is assigned to one.
    Endpoints(Arc<LoadAssignment>),
}

impl View {
    /// The watcher is told something of the resource.
    pub fn hear(&mut self, key: &Key, news: News<Value>) {
        match news {
            News::Changed(Ok(cached)) => {
                let Cached { value, provenance, .. } = cached;
                debug_assert_eq!(value.kind(), key.kind);
                let resource = match value {
                    Value::Cluster(cluster) => Resource::Cluster(cluster.eds_name),
                    Value::Endpoints(assignment) => Resource::Endpoints(Arc::new(assignment)),
                };
                *self = View::Good { resource, provenance, ambient: None };
            }
            News::Changed(Err(error)) => *self = View::Failed(Fault::of(key, &error)),
            News::Ambient(error) => {
                let fault = error.map(|error| Fault::of(key, &error));
                match self {
                    View::Good { ambient, .. } => *ambient = fault,
                    View::Waiting | View::Failed(_) => *self = fault.map_or(View::Waiting, View::Failed),
                }
            }
        }
    }

    /// The endpoints that it names.
    pub fn named(&self) -> Option<&Arc<str>> {
        match self {
            View::Good { resource: Resource::Cluster(name), .. } => Some(name),
            View::Good { resource: Resource::Endpoints(_), .. } | View::Waiting | View::Failed(_) => None,
        }
    }

    /// What is assigned by it.
    pub fn assignment(&self) -> Option<&Arc<LoadAssignment>> {
        match self {
            View::Good { resource: Resource::Endpoints(assignment), .. } => Some(assignment),
            View::Good { resource: Resource::Cluster(_), .. } | View::Waiting | View::Failed(_) => None,
        }
    }

    /// How it has come.
    pub fn provenance(&self) -> Option<Provenance> {
        match self {
            View::Good { provenance, .. } => Some(*provenance),
            View::Waiting | View::Failed(_) => None,
        }
    }

    /// What is wrong with it.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            View::Waiting => None,
            View::Good { ambient, .. } => ambient.as_ref(),
            View::Failed(fault) => Some(fault),
        }
    }
}
