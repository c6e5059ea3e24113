//! Services in the admin API: in lists, and each with its pools.

use std::collections::BTreeSet;

use model::assignment;
use model::error;
use model::ids::PoolId;
use model::policy::OperatorPolicy;
use model::view::{Candidacy, PoolView, ResourceView, ServiceView, Snapshot};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::enums;
use super::super::values::SnapshotAge;
use super::super::verdict::{verdict, verdict_reason};
use super::pools::{ExcludedNode, PausedBy, Pool, excluded_node, paused_by};
use super::{Show, wished};

/// A Service of type LoadBalancer.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Service<'a> {
    /// Its namespace.
    namespace: &'a str,
    /// Its name.
    name: &'a str,
    /// Its UID.
    uid: &'a str,
    /// Whether it is a candidate, and if not, why.
    candidacy: enums::Candidacy,
    /// Whether a pause of it or of one of its pools applies.
    paused: bool,
    /// Everything that pauses it, in any of its pools.
    paused_by: Vec<PausedBy<'a>>,
    /// Number of its EndpointSlices.
    endpoint_slices: usize,
    /// Number of endpoints in them.
    endpoints: usize,
    /// The errors in its data, as text.
    data_errors: Vec<&'a str>,
    /// The state of its EndpointSlices, by gRFC A88. Null unless it is a candidate.
    resource: Option<ServiceResource<'a>>,
    /// The nodes with endpoints that are excluded, 100 at most.
    excluded_nodes: Vec<ExcludedNode<'a>>,
    /// The pools of its rules.
    pools: Vec<String>,
    /// Its pools that are not written.
    not_manageable: Vec<NotManageablePool>,
}

/// A Service in a list.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct ServiceLine<'a> {
    #[serde(flatten)]
    #[schema(inline)]
    service: Service<'a>,
    /// Why it is, or is not, in its pool, in one sentence.
    verdict: String,
    /// The reason of the verdict.
    verdict_reason: enums::VerdictReason,
}

/// One Service with its pools.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct OneService<'a> {
    snapshot_age_seconds: SnapshotAge,
    /// The Service.
    service: Service<'a>,
    /// Why it is, or is not, in its pool, in one sentence.
    verdict: String,
    /// The reason of the verdict.
    verdict_reason: enums::VerdictReason,
    /// Its pools.
    pools: Vec<PoolOfService<'a>>,
}

/// A pool of a Service.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum PoolOfService<'a> {
    Known(Box<Pool<'a>>),
    Unknown(UnknownPool),
}

/// A pool that has not been read yet.
#[derive(Serialize, ToSchema)]
struct UnknownPool {
    /// The pool.
    pool: String,
}

/// The state of the EndpointSlices of a Service, by gRFC A88.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ServiceResource<'a> {
    /// The state.
    state: enums::ResourceState,
    /// The state, with whether the last good version is in use.
    cache_state: enums::CacheState,
    /// The error. Null: there is none.
    error: Option<ServiceResourceError<'a>>,
}

/// The error of the EndpointSlices of a Service.
#[derive(Serialize, ToSchema)]
struct ServiceResourceError<'a> {
    /// The kind of the error.
    reason: enums::ResourceReason,
    /// The error, as text.
    message: &'a str,
}

/// A pool of a Service that is not written.
#[derive(Serialize, ToSchema)]
struct NotManageablePool {
    /// The pool.
    pool: String,
    /// The reason, as a code.
    reason: enums::NotManageableReason,
    /// The reason, as text.
    detail: String,
}

/// Why a pool of an xDS source is not written.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct NotManageable {
    /// The reason, as a code.
    reason: enums::ListedNotManageableReason,
    /// The reason, as text.
    detail: String,
}

impl NotManageable {
    pub(in crate::http) fn of(why: &error::NotManageable) -> NotManageable {
        NotManageable { reason: enums::ListedNotManageableReason(why.label().0), detail: why.to_string() }
    }
}

impl Show {
    /// Returns a Service as a list shows it.
    pub(in crate::http) fn service_line<'a>(
        &self,
        service: &'a ServiceView,
        snapshot: &'a Snapshot,
    ) -> ServiceLine<'a> {
        ServiceLine {
            service: shown(service, snapshot),
            verdict: verdict(service, snapshot, self),
            verdict_reason: enums::VerdictReason(verdict_reason(service, snapshot).as_str()),
        }
    }

    /// Returns one Service with its pools.
    pub(in crate::http) fn one_service<'a>(
        &self,
        service: &'a ServiceView,
        snapshot: &'a Snapshot,
    ) -> OneService<'a> {
        let pools = service.pools.iter().map(|id| match snapshot.pools.get(id) {
            Some(pool) => PoolOfService::Known(Box::new(self.pool(pool, snapshot))),
            None => PoolOfService::Unknown(UnknownPool { pool: id.to_string() }),
        });
        OneService {
            snapshot_age_seconds: self.snapshot_age(snapshot),
            service: shown(service, snapshot),
            verdict: verdict(service, snapshot, self),
            verdict_reason: enums::VerdictReason(verdict_reason(service, snapshot).as_str()),
            pools: pools.collect(),
        }
    }
}

/// Returns a Service without its verdict.
fn shown<'a>(service: &'a ServiceView, snapshot: &'a Snapshot) -> Service<'a> {
    let paused_by = service_paused_by(service, snapshot);
    let not_manageable = service.not_manageable.iter().map(|(pool, why)| NotManageablePool {
        pool: pool.to_string(),
        reason: enums::NotManageableReason(why.label().0),
        detail: why.to_string(),
    });
    Service {
        namespace: &service.key.namespace,
        name: &service.key.name,
        uid: service.uid.as_str(),
        candidacy: enums::Candidacy(service.candidacy.as_str()),
        paused: !paused_by.is_empty(),
        paused_by,
        endpoint_slices: service.slices,
        endpoints: service.endpoints,
        data_errors: service.data_errors.iter().map(|error| &**error).collect(),
        resource: service.resource.as_ref().map(resource),
        excluded_nodes: service.excluded.iter().map(excluded_node).collect(),
        pools: service.pools.iter().map(ToString::to_string).collect(),
        not_manageable: not_manageable.collect(),
    }
}

/// Returns all pauses that apply to a Service or to one of its pools.
fn service_paused_by<'a>(service: &ServiceView, snapshot: &'a Snapshot) -> Vec<PausedBy<'a>> {
    let policy = wished(snapshot);
    let mut all: BTreeSet<(assignment::PausedBy, Option<&PoolId>)> = BTreeSet::new();
    if service.paused {
        all.insert((assignment::PausedBy::Annotation(service.key.clone()), None));
    }
    if policy.is_some_and(|policy| policy.services.contains_key(&service.key)) {
        all.insert((assignment::PausedBy::Service(service.key.clone()), None));
    }
    let stopped_by = policy.and_then(OperatorPolicy::stopped_by);
    all.extend(stopped_by.filter(|_| service.candidacy == Candidacy::Candidate).map(|by| (by, None)));
    for view in service.pools.iter().filter_map(|pool| snapshot.pools.get(pool)) {
        let view: &PoolView = view;
        let named = |by: &assignment::PausedBy| (*by == assignment::PausedBy::Pool).then_some(&view.pool);
        all.extend(view.paused.iter().map(|by| (by.clone(), named(by))));
    }
    let pause = |by: &assignment::PausedBy, pool: Option<&PoolId>| {
        service.pools.first().and_then(|first| policy?.pause_of(pool.unwrap_or(first), by))
    };
    all.iter().map(|(by, pool)| paused_by(by, *pool, pause(by, *pool))).collect()
}

/// Returns the state of a Service's EndpointSlices, in the terms of `/api/v1/resources`.
fn resource(resource: &ResourceView) -> ServiceResource<'_> {
    ServiceResource {
        state: enums::ResourceState(resource.state.as_str()),
        cache_state: enums::CacheState(resource.state.cache_state(resource.is_cached).as_str()),
        error: resource.error.as_ref().map(|(reason, message)| ServiceResourceError {
            reason: enums::ResourceReason(reason.as_str()),
            message,
        }),
    }
}
