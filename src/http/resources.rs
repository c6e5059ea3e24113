//! The xDS control planes in the admin API (H3, X2-X4): the servers, the requested resources, and the effect on the
//! pools with an xDS source. All of it comes from one published snapshot, as in CSDS.
//!
//! Other modules decide the states and their effects. The pools of each source come from the configuration, because a
//! snapshot has no pool whose source was never known.

use std::collections::{BTreeMap, BTreeSet};

use actix_web::{HttpRequest, HttpResponse, web};
use model::ids::PoolId;
use model::view::Snapshot;
use model::xds::ResourceValue as Content;
use model::xds::assignment::{EndpointHealth, LoadAssignment};
use model::xds::cache::{Error, ResourceState};
use model::xds::dump::{ResourceDump, ServerDump};
use model::xds::facts::{ResourceKey, ResourceKind};
use model::xds::name::Name;
use model::xds::source::{Fault, SourceFact};
use serde::Serialize;
use utoipa::ToSchema;

use super::About;
use super::admin::{json_response, load_snapshot};
use super::enums;
use super::query::{Query, QueryError, one_of};
use super::show::{NotManageable, Show, wall};
use super::values::{SnapshotAge, Time};

#[cfg(test)]
mod tests;

/// The pools configured for each xDS source.
pub type Listed = BTreeMap<Name, BTreeSet<PoolId>>;

/// The xDS control planes.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resources<'a> {
    snapshot_age_seconds: SnapshotAge,
    /// The node id that control planes receive. Null: no pool is filled from one, or it is not known yet.
    node_id: Option<&'a str>,
    /// The servers, in the order of preference.
    servers: Vec<ControlPlaneServer<'a>>,
    /// The resources of this page.
    items: Vec<Resource<'a>>,
    /// The parameter `after` of the next page. Null: there is none.
    next: Option<String>,
    /// The number of resources of all pages.
    total: usize,
    /// What pools get their members from.
    sources: Vec<PoolSource<'a>>,
}

/// A summary of the xDS control planes.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ControlPlanes<'a> {
    /// The servers, in the order of preference.
    servers: Vec<ControlPlaneServer<'a>>,
    /// Number of sources of pools.
    sources: usize,
    /// Number of sources with an error, whether or not an assignment is in use.
    wrong: usize,
    /// The first source with an error; those without an assignment in use come first. Null: there is no error.
    worst: Option<WorstSource<'a>>,
    /// Number of their pools that are not written, because the controller may not manage them or they do not exist.
    not_manageable: usize,
}

/// A source with an error.
#[derive(Serialize, ToSchema)]
struct WorstSource<'a> {
    /// `eds:…` or `cluster:…`.
    source: String,
    /// The assignment that its pools get.
    assigned: enums::Assigned,
    /// The error, as text.
    message: &'a str,
}

/// A server of a control plane.
#[derive(Serialize, ToSchema)]
struct ControlPlaneServer<'a> {
    /// Its target.
    uri: &'a str,
    /// Whether a stream to it is open or being opened.
    used: bool,
    /// Whether it is used, and no stream to it has ended without a response since the last response.
    connected: bool,
    /// Why it is not connected.
    failure: Option<&'a str>,
    /// The error with which the last streams ended within a minute of their first response. Null: the last one did not.
    cut: Option<&'a str>,
}

/// A resource that is requested from control planes.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Resource<'a> {
    /// Its type.
    r#type: enums::ResourceType,
    /// Its name.
    name: &'a str,
    /// Its state.
    state: enums::ResourceState,
    /// Its state, with whether the last good version is in use.
    cache_state: enums::CacheState,
    /// The version of the response that brought the content in use. Null: none is in use.
    version: Option<&'a str>,
    /// When that response arrived.
    updated_at: Option<Time>,
    /// The number of its watchers.
    watchers: usize,
    /// The endpoints resource that the cluster in use names. Null: none is in use, or it is not a cluster.
    eds_name: Option<&'a str>,
    /// The addresses of the endpoints in use. Null: none is in use, or it is not an endpoints resource.
    addresses: Option<AssignedAddresses>,
    /// The error of the newest version. Null: there is none.
    error: Option<ResourceError<'a>>,
}

/// Number of addresses in all priorities, by health.
#[derive(Serialize, ToSchema)]
struct AssignedAddresses {
    /// Number of priorities.
    priorities: usize,
    /// Addresses that are healthy.
    healthy: usize,
    /// Addresses that are degraded.
    degraded: usize,
    /// Addresses that are draining.
    draining: usize,
    /// Addresses that get no traffic.
    out: usize,
}

/// The error of a resource.
#[derive(Serialize, ToSchema)]
struct ResourceError<'a> {
    /// The kind of the error.
    reason: enums::ResourceReason,
    /// The error, as text.
    message: String,
    /// The version of the response that was rejected, or that reports the error. Null: there was none.
    version: Option<&'a str>,
    /// When that response arrived.
    at: Option<Time>,
}

/// What pools get their members from.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PoolSource<'a> {
    /// `eds:…` or `cluster:…`.
    source: String,
    /// The assignment that its pools get.
    assigned: enums::Assigned,
    /// Why no assignment is in use. Null: one is in use, or is expected.
    error: Option<SourceFault<'a>>,
    /// Errors despite an assignment in use.
    ambient_errors: Vec<SourceFault<'a>>,
    /// The text after `error` in everything that is reported about its pools: the ambient errors, or else the node id that
    /// the control plane receives.
    note: String,
    /// The pools that are configured to be filled from it.
    pools: Vec<SourcedPool<'a>>,
}

/// A pool that is configured to be filled from a source.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SourcedPool<'a> {
    /// Its load balancer.
    load_balancer: &'a str,
    /// Its name.
    backend_pool: &'a str,
    /// Its state. Null: nothing is assigned to it, its load balancer was not read yet, or the controller may not manage its
    /// members.
    state: Option<enums::PoolState>,
    /// Why its members are not written: the controller may not manage the pool, or it does not exist. Null: they are
    /// written.
    not_manageable: Option<NotManageable>,
}

/// An error, without a status code.
#[derive(Serialize, ToSchema)]
struct SourceFault<'a> {
    /// The resource. Null: no server can be reached.
    resource: Option<FaultyResource<'a>>,
    /// The kind of the error.
    reason: enums::ResourceReason,
    /// The error, as text.
    message: &'a str,
}

/// A resource with an error.
#[derive(Serialize, ToSchema)]
struct FaultyResource<'a> {
    /// Its type.
    r#type: enums::ResourceType,
    /// Its name.
    name: &'a str,
}

pub(super) async fn resources(request: HttpRequest, about: web::Data<About>) -> HttpResponse {
    let (snapshot, show) = load_snapshot(&about);
    json_response(ResourceFilter::of(&request).map(|asked| answer(&snapshot, &show, &asked, &about.listed)))
}

/// The filters in a request's query.
struct ResourceFilter {
    kind: Option<ResourceKind>,
    state: Option<ResourceState>,
    /// A part of a name, in lower case.
    part: Option<String>,
    /// The last resource of the previous page.
    after: Option<ResourceKey>,
    limit: usize,
}

impl ResourceFilter {
    fn of(request: &HttpRequest) -> Result<ResourceFilter, QueryError> {
        let query = Query::of(request, &["type", "state", "contains", "limit", "after"])?;
        let after = match query.after()? {
            None => None,
            Some((of, name)) => {
                let no_next = || {
                    QueryError::new("after", query.text("after").unwrap_or_default(), "the `next` of a page")
                };
                Some(ResourceKey::new(known(of).ok_or_else(no_next)?, name))
            }
        };
        Ok(ResourceFilter {
            kind: query.text("type").map(kind).transpose()?,
            state: query.text("state").map(state).transpose()?,
            part: query.text("contains").map(str::to_lowercase),
            after,
            limit: query.limit()?,
        })
    }

    fn names(&self, name: &str) -> bool {
        self.part.as_ref().is_none_or(|part| name.to_lowercase().contains(part.as_str()))
    }

    fn wants(&self, resource: &ResourceDump) -> bool {
        self.kind.is_none_or(|kind| kind == resource.key.kind)
            && self.state.is_none_or(|state| state == resource.state)
            && self.names(&resource.key.name)
    }
}

/// Returns the kind of the resource type with this name.
fn known(text: &str) -> Option<ResourceKind> {
    ResourceKind::ALL.into_iter().find(|kind| kind.resource_type() == text)
}

fn kind(text: &str) -> Result<ResourceKind, QueryError> {
    one_of("type", text, ResourceKind::ALL, ResourceKind::resource_type)
}

fn state(text: &str) -> Result<ResourceState, QueryError> {
    one_of("state", text, ResourceState::ALL, ResourceState::as_str)
}

fn answer<'a>(
    snapshot: &'a Snapshot,
    show: &Show,
    asked: &ResourceFilter,
    listed: &'a Listed,
) -> Resources<'a> {
    let view = snapshot.xds.as_deref();
    let resources = view.into_iter().flat_map(|view| &view.dump.resources);
    let is_seen = |resource: &&ResourceDump| asked.after.as_ref().is_some_and(|after| resource.key <= *after);
    let total = resources.clone().filter(|resource| asked.wants(resource)).count();
    let mut wanted = resources.skip_while(is_seen).filter(|resource| asked.wants(resource));
    let items: Vec<&ResourceDump> = wanted.by_ref().take(asked.limit).collect();
    let last = wanted.next().and(items.last()).map(|last| &last.key);
    let sources = view.into_iter().flat_map(|view| &view.sources);
    let sources = sources.filter(|(name, _)| asked.names(&name.to_string()));
    Resources {
        snapshot_age_seconds: show.snapshot_age(snapshot),
        node_id: view.map(|view| &*view.node_id),
        servers: view.into_iter().flat_map(|view| &view.dump.servers).map(server).collect(),
        items: items.into_iter().map(resource).collect(),
        next: last.map(|key| format!("{}/{}", key.kind.resource_type(), key.name)),
        total,
        sources: sources.map(|(name, fact)| source(name, fact, listed.get(name), snapshot)).collect(),
    }
}

/// Returns a summary of the control planes; `None` if the snapshot has none. `wrong` counts the sources with an error,
/// even if an assignment is in use. `worst` is the first of them, those without an assignment in use first.
pub(super) fn in_short<'a>(snapshot: &'a Snapshot, listed: &Listed) -> Option<ControlPlanes<'a>> {
    let view = snapshot.xds.as_deref()?;
    let wrong = || view.sources.iter().filter_map(|(name, fact)| Some((name, fact, first_fault(fact)?)));
    let worst = wrong().min_by_key(|(_, fact, _)| fact.assignment().is_some());
    let pools: BTreeSet<&PoolId> = listed.values().flatten().collect();
    Some(ControlPlanes {
        servers: view.dump.servers.iter().map(server).collect(),
        sources: view.sources.len(),
        wrong: wrong().count(),
        worst: worst.map(|(name, fact, fault)| WorstSource {
            source: name.to_string(),
            assigned: enums::Assigned(fact.assigned.as_str()),
            message: &fault.message,
        }),
        not_manageable: pools.into_iter().filter(|pool| snapshot.refused.contains_key(pool)).count(),
    })
}

/// Returns the first error of a source: why no assignment is in use, or else the first ambient error.
fn first_fault(fact: &SourceFact) -> Option<&Fault> {
    fact.error().or_else(|| fact.ambient().first())
}

/// Returns a server of a control plane.
fn server(server: &ServerDump) -> ControlPlaneServer<'_> {
    let ServerDump { uri, is_used, is_connected, failure, cut } = server;
    ControlPlaneServer {
        uri,
        used: *is_used,
        connected: *is_connected,
        failure: failure.as_deref(),
        cut: cut.as_deref(),
    }
}

/// Returns a resource: the content in use, and the error of the newest version.
fn resource(resource: &ResourceDump) -> Resource<'_> {
    let ResourceDump { key, state, cached, error, watchers } = resource;
    let cached = cached.as_ref();
    let (eds_name, addresses) = match cached.map(|cached| &cached.value) {
        None => (None, None),
        Some(Content::Cluster(cluster)) => (Some(&*cluster.eds_name), None),
        Some(Content::Endpoints(assignment)) => (None, Some(counted(assignment))),
    };
    Resource {
        r#type: enums::ResourceType(key.kind.resource_type()),
        name: &key.name,
        state: enums::ResourceState(state.as_str()),
        cache_state: enums::CacheState(resource.cache_state().as_str()),
        version: cached.map(|cached| &*cached.version),
        updated_at: cached.and_then(|cached| wall(cached.updated)),
        watchers: *watchers,
        eds_name,
        addresses,
        error: error.as_ref().map(|error| failure(key, error)),
    }
}

/// Counts the addresses of all priorities of an assignment, by health.
fn counted(assignment: &LoadAssignment) -> AssignedAddresses {
    let known = || assignment.priorities.iter().flat_map(|priority| priority.addresses.values());
    let count = |health: EndpointHealth| known().filter(|known| **known == health).count();
    AssignedAddresses {
        priorities: assignment.priorities.len(),
        healthy: count(EndpointHealth::Healthy),
        degraded: count(EndpointHealth::Degraded),
        draining: count(EndpointHealth::Draining),
        out: count(EndpointHealth::Unhealthy),
    }
}

/// Returns the error of a resource, with the same text as for its source: without a status code (X4). `version` and
/// `at` are those of the rejected response, if there is one.
fn failure<'a>(key: &ResourceKey, error: &'a Error) -> ResourceError<'a> {
    let rejected = error.rejected.as_ref();
    ResourceError {
        reason: enums::ResourceReason(error.reason.as_str()),
        message: Fault::of(key, error).message.to_string(),
        version: rejected.map(|rejected| &*rejected.version),
        at: rejected.and_then(|rejected| wall(rejected.at)),
    }
}

/// Returns a source with its assignment, its errors and its pools.
fn source<'a>(
    name: &Name,
    fact: &'a SourceFact,
    pools: Option<&'a BTreeSet<PoolId>>,
    snapshot: &Snapshot,
) -> PoolSource<'a> {
    let pool = |id: &'a PoolId| SourcedPool {
        load_balancer: id.lb.as_str(),
        backend_pool: id.pool.as_str(),
        state: snapshot.pools.get(id).map(|view| enums::PoolState(view.state.as_str())),
        not_manageable: snapshot.refused.get(id).map(NotManageable::of),
    };
    PoolSource {
        source: name.to_string(),
        assigned: enums::Assigned(fact.assigned.as_str()),
        error: fact.error().map(fault),
        ambient_errors: fact.ambient().iter().map(fault).collect(),
        note: fact.note.to_string(),
        pools: pools.into_iter().flatten().map(pool).collect(),
    }
}

/// Returns an error of a source, without a status code (X4).
fn fault(fault: &Fault) -> SourceFault<'_> {
    let Fault { resource, reason, message } = fault;
    SourceFault {
        resource: resource.as_ref().map(|key| FaultyResource {
            r#type: enums::ResourceType(key.kind.resource_type()),
            name: &key.name,
        }),
        reason: enums::ResourceReason(reason.as_str()),
        message,
    }
}
