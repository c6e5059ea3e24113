//! What is known of xDS control planes (H3, X2-X4): the servers, the resources that are asked of them, and what follows
//! for the pools that are filled from them. All of it is of one moment, the one that CSDS shows.
//!
//! What the states mean and what becomes of the pools is decided elsewhere. Which pools a source is for the configuration
//! says: one of whose source nothing was ever known is nowhere else.

use std::collections::{BTreeMap, BTreeSet};

use actix_web::{HttpRequest, HttpResponse, web};
use model::ids::PoolId;
use model::view::Snapshot;
use model::xds::ResourceValue as Content;
use model::xds::assignment::{LoadAssignment, Standing};
use model::xds::cache::{Error, ResourceState};
use model::xds::dump::{ResourceDump, ServerDump};
use model::xds::facts::{ResourceKey, ResourceKind};
use model::xds::name::Name;
use model::xds::source::{Fault, SourceFact};
use serde_json::{Value, json};

use super::About;
use super::admin::{look, told};
use super::query::{Query, Wrong, one_of};
use super::show::{Show, wall};

#[cfg(test)]
mod tests;

/// The pools that are configured to be filled from each source.
pub type Listed = BTreeMap<Name, BTreeSet<PoolId>>;

pub(super) async fn resources(request: HttpRequest, about: web::Data<About>) -> HttpResponse {
    told(list(&request, &about))
}

fn list(request: &HttpRequest, about: &About) -> Result<Value, Wrong> {
    let asked = Asked::of(request)?;
    let (snapshot, show) = look(about);
    Ok(answer(&snapshot, &show, &asked, &about.listed))
}

/// What of it is asked for.
struct Asked {
    kind: Option<ResourceKind>,
    state: Option<ResourceState>,
    /// A part of a name, in lower case.
    part: Option<String>,
    /// The last resource of the page before.
    after: Option<ResourceKey>,
    limit: usize,
}

impl Asked {
    fn of(request: &HttpRequest) -> Result<Asked, Wrong> {
        let query = Query::of(request, &["type", "state", "contains", "limit", "after"])?;
        let after = match query.after()? {
            None => None,
            Some((of, name)) => {
                let no_next =
                    || Wrong::new("after", query.text("after").unwrap_or_default(), "the `next` of a page");
                Some(ResourceKey::new(known(of).ok_or_else(no_next)?, name))
            }
        };
        Ok(Asked {
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

/// The kind of this type.
fn known(text: &str) -> Option<ResourceKind> {
    ResourceKind::ALL.into_iter().find(|kind| kind.resource_type() == text)
}

fn kind(text: &str) -> Result<ResourceKind, Wrong> {
    one_of("type", text, ResourceKind::ALL, ResourceKind::resource_type)
}

fn state(text: &str) -> Result<ResourceState, Wrong> {
    one_of("state", text, ResourceState::ALL, ResourceState::as_str)
}

fn answer(snapshot: &Snapshot, show: &Show, asked: &Asked, listed: &Listed) -> Value {
    let view = snapshot.xds.as_deref();
    let resources = view.into_iter().flat_map(|view| &view.dump.resources);
    let is_seen = |resource: &&ResourceDump| asked.after.as_ref().is_some_and(|after| resource.key <= *after);
    let total = resources.clone().filter(|resource| asked.wants(resource)).count();
    let mut wanted = resources.skip_while(is_seen).filter(|resource| asked.wants(resource));
    let items: Vec<&ResourceDump> = wanted.by_ref().take(asked.limit).collect();
    let last = wanted.next().and(items.last()).map(|last| &last.key);
    let sources = view.into_iter().flat_map(|view| &view.sources);
    let sources = sources.filter(|(name, _)| asked.names(&name.to_string()));
    json!({
        "snapshotAgeSeconds": show.snapshot_age(snapshot),
        "nodeId": view.map(|view| &view.node_id),
        "servers": view.into_iter().flat_map(|view| &view.dump.servers).map(server).collect::<Vec<_>>(),
        "items": items.iter().map(|one| resource(one)).collect::<Vec<_>>(),
        "next": last.map(|key| format!("{}/{}", key.kind.resource_type(), key.name)),
        "total": total,
        "sources": sources
            .map(|(name, fact)| source(name, fact, listed.get(name), snapshot))
            .collect::<Vec<_>>(),
    })
}

/// Control planes at a glance; `None`: no pool is filled from one. `wrong` counts the sources about which something is
/// wrong, whether or not that keeps the pools as they are, and `worst` is one of those that have least.
pub(super) fn in_short(snapshot: &Snapshot, listed: &Listed) -> Option<Value> {
    let view = snapshot.xds.as_deref()?;
    let wrong = || view.sources.iter().filter_map(|(name, fact)| Some((name, fact, first_fault(fact)?)));
    let worst = wrong().min_by_key(|(_, fact, _)| fact.assignment().is_some());
    let pools: BTreeSet<&PoolId> = listed.values().flatten().collect();
    Some(json!({
        "servers": view.dump.servers.iter().map(server).collect::<Vec<_>>(),
        "sources": view.sources.len(),
        "wrong": wrong().count(),
        "worst": worst.map(|(name, fact, fault)| json!({
            "source": name.to_string(), "assigned": fact.assigned.as_str(), "message": fault.message,
        })),
        "notManageable": pools.into_iter().filter(|pool| snapshot.refused.contains_key(pool)).count(),
    }))
}

/// What is wrong for a source: first why nothing of it is in use, then what is wrong beside that.
fn first_fault(fact: &SourceFact) -> Option<&Fault> {
    fact.error().or_else(|| fact.ambient().first())
}

/// A control plane's server.
fn server(server: &ServerDump) -> Value {
    let ServerDump { uri, is_used, is_connected, failure, cut } = server;
    json!({ "uri": uri, "used": is_used, "connected": is_connected, "failure": failure, "cut": cut })
}

/// A resource: what of it is in use, and what is wrong with the newest that came in its place.
fn resource(resource: &ResourceDump) -> Value {
    let ResourceDump { key, state, cached, error, watchers } = resource;
    let cached = cached.as_ref();
    let (eds_name, addresses) = match cached.map(|cached| &cached.value) {
        None => (None, None),
        Some(Content::Cluster(cluster)) => (Some(&cluster.eds_name), None),
        Some(Content::Endpoints(assignment)) => (None, Some(counted(assignment))),
    };
    json!({
        "type": key.kind.resource_type(),
        "name": key.name,
        "state": state.as_str(),
        "cacheState": resource.cache_state().as_str(),
        "version": cached.map(|cached| &cached.version),
        "updatedAt": cached.and_then(|cached| wall(cached.updated)),
        "watchers": watchers,
        "edsName": eds_name,
        "addresses": addresses,
        "error": error.as_ref().map(|error| failure(key, error)),
    })
}

/// The addresses of all priorities of an assignment, by how they stand.
fn counted(assignment: &LoadAssignment) -> Value {
    let standings = || assignment.priorities.iter().flat_map(|priority| priority.addresses.values());
    let count = |standing: Standing| standings().filter(|known| **known == standing).count();
    json!({
        "priorities": assignment.priorities.len(),
        "healthy": count(Standing::Healthy),
        "degraded": count(Standing::Degraded),
        "draining": count(Standing::Draining),
        "out": count(Standing::Out),
    })
}

/// What is wrong with a resource, in words as those for its source: no status code is passed on (X4). `version` and `at`
/// are of the response that said so, where one did.
fn failure(key: &ResourceKey, error: &Error) -> Value {
    let rejected = error.rejected.as_ref();
    json!({
        "reason": error.reason.as_str(),
        "message": Fault::of(key, error).message,
        "version": rejected.map(|rejected| &rejected.version),
        "at": rejected.and_then(|rejected| wall(rejected.at)),
    })
}

/// What the pools of a source get.
fn source(name: &Name, fact: &SourceFact, pools: Option<&BTreeSet<PoolId>>, snapshot: &Snapshot) -> Value {
    let pool = |id: &PoolId| {
        let view = snapshot.pools.get(id);
        json!({
            "loadBalancer": id.lb.as_str(),
            "backendPool": id.pool.as_str(),
            "state": view.map(|view| view.state.as_str()),
            "notManageable": snapshot.refused.get(id)
                .map(|why| json!({ "reason": why.label().0, "detail": why.to_string() })),
        })
    };
    json!({
        "source": name.to_string(),
        "assigned": fact.assigned.as_str(),
        "error": fact.error().map(fault),
        "ambientErrors": fact.ambient().iter().map(fault).collect::<Vec<_>>(),
        "note": fact.note.to_string(),
        "pools": pools.into_iter().flatten().map(pool).collect::<Vec<_>>(),
    })
}

/// What is wrong for a source, in words; no status code is passed on (X4).
fn fault(fault: &Fault) -> Value {
    let Fault { resource, reason, message } = fault;
    json!({
        "resource": resource
            .as_ref()
            .map(|key| json!({ "type": key.kind.resource_type(), "name": key.name })),
        "reason": reason.as_str(),
        "message": message,
    })
}
