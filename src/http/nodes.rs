//! The nodes that leave service, in the admin API (docs/design/surface.md, H3; N1-N5): in lists, each with all of its
//! pools, and in totals.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use model::arm::{self, Backend};
use model::ids::{NodeName, PoolId};
use model::node::NodeFact;
use model::node::{NodeState, Role};
use model::object::ExclusionRule;
use model::signals::of_taints;
use model::view::{AdminView, ForeignState, NodePoolState, NodeView, Snapshot, admin_state_word};
use serde::Serialize;
use utoipa::ToSchema;

use super::About;
use super::admin::{json_response, load_snapshot};
use super::enums;
use super::page::{Listing, page};
use super::problem::problem_as_of;
use super::query::{Query, QueryError, one_of};
use super::show::{Show, Unreadable};
use super::values::{Address, Counts, Seconds, SnapshotAge, addresses};

#[cfg(test)]
mod tests;

/// The remedy for a record that cannot be read.
const UNREADABLE: &str = "the controller cannot prove that it set the Down entries of this node: check them, and \
                          remove this key of the ConfigMap that has the namespace and name of the controller's Lease";

/// The number of pools of a node, by the node's state in them.
type InPoolCounts = Counts<enums::NodeInPoolState>;
/// The number of nodes, by state.
type NodeCounts = Counts<enums::NodeState>;

/// A node in a list.
#[derive(PartialEq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeLine<'a> {
    /// Its name.
    name: &'a str,
    /// Its UID.
    uid: &'a str,
    /// Its state.
    state: enums::AnyNodeState,
    /// Why it leaves service. None: it is being restored, or its object is gone.
    reasons: Vec<enums::DrainReason>,
    /// How long these reasons have applied, in seconds. Null: there is none.
    signal_seconds: Option<Seconds>,
    /// Whether it is Ready.
    ready: bool,
    /// Its addresses.
    addresses: Vec<Address>,
    /// Its virtual machine. Null: unknown.
    instance: Option<String>,
    /// The generation of the set of nodes that has it. Null: none has.
    generation: Option<u64>,
    /// Whether the controller's ConfigMap holds its record.
    recorded: bool,
    /// The number of pools that it is in, by its state in them.
    pools: NodePools,
    /// What other clients have set on its entries.
    foreign: Vec<ForeignEntry<'a>>,
    /// The taint of an eviction.
    taint: NodeTaint,
    /// The number of consecutive failures.
    retries: u32,
    /// When it is retried, in seconds. Null: it does not wait for a time.
    next_in_seconds: Option<Seconds>,
    /// The last error, until a retry succeeds.
    last_error: Option<&'a str>,
    /// The rule by which the node is excluded from pools. Null: by none of its own.
    excluded_by: Option<NodeExclusion>,
}

/// A node with all of its pools.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Node)]
struct NodeDetail<'a> {
    #[serde(flatten)]
    #[schema(inline)]
    line: NodeLine<'a>,
    /// Its pools.
    in_pools: Vec<InPool<'a>>,
}

/// One node with all of its pools.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct OneNode<'a> {
    snapshot_age_seconds: SnapshotAge,
    /// The node.
    node: NodeDetail<'a>,
}

/// The number of pools that a node is in, in total and by the node's state in them.
#[derive(PartialEq, Debug, Serialize, ToSchema)]
struct NodePools {
    /// All of them.
    total: usize,
    #[serde(flatten)]
    #[schema(inline)]
    by_state: InPoolCounts,
}

/// What another client has set on an entry.
#[derive(PartialEq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ForeignState)]
struct ForeignEntry<'a> {
    /// The load balancer of the pool.
    load_balancer: &'a str,
    /// The pool.
    backend_pool: &'a str,
    /// What is set.
    admin_state: enums::EntryState,
}

/// What another client has set on an entry, with the node of the entry.
#[derive(Serialize, ToSchema)]
#[schema(as = ForeignStateOfNode)]
struct ForeignEntryOfNode<'a> {
    #[serde(flatten)]
    #[schema(inline)]
    entry: ForeignEntry<'a>,
    /// The address or the virtual machine of the entry.
    backend: String,
    /// The node.
    node: &'a str,
}

/// The taint of an eviction.
#[derive(PartialEq, Debug, Serialize, ToSchema)]
struct NodeTaint {
    /// Whether the controller set the taint.
    ours: bool,
}

/// The rule by which a node is excluded from pools, whichever Service has endpoints on it.
#[derive(PartialEq, Debug, Serialize, ToSchema)]
struct NodeExclusion {
    /// The rule.
    rule: enums::ExclusionRule,
    /// The rule, as text.
    detail: String,
}

/// A pool of a node.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct InPool<'a> {
    /// The load balancer of the pool.
    load_balancer: &'a str,
    /// The pool.
    backend_pool: &'a str,
    /// Whether the list of pools has it.
    listed: bool,
    /// The state of the node in the pool.
    state: enums::AnyNodeInPoolState,
    /// The admin state of its entry. Null: not read yet.
    admin_state: Option<enums::EntryState>,
}

/// Totals of the nodes that leave service.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdminState<'a> {
    /// `enableLoadBalancerAdminState`.
    enabled: bool,
    /// Whether the controller's ConfigMap has the key `admin-state.off`.
    switched_off: bool,
    /// The number of changes of the set of nodes that must be Down.
    generation: u64,
    /// The number of records in the controller's ConfigMap.
    records: usize,
    /// The records that cannot be read.
    unreadable: Vec<Unreadable<'a>>,
    /// The number of nodes whose record cannot be stored in the controller's ConfigMap.
    refused: usize,
    /// What other clients have set on entries of nodes.
    #[schema(max_items = 100)]
    foreign: Vec<ForeignEntryOfNode<'a>>,
    /// Whether the last read or write of the controller's ConfigMap succeeded.
    fresh: bool,
    /// The last error, until a request succeeds.
    last_error: Option<&'a str>,
    #[serde(flatten)]
    #[schema(inline)]
    by_state: NodeCounts,
}

pub(super) async fn nodes(request: HttpRequest, about: web::Data<About>) -> HttpResponse {
    let (snapshot, show) = load_snapshot(&about);
    json_response(list(&request, &snapshot, &show))
}

fn list<'a>(
    request: &HttpRequest,
    snapshot: &'a Snapshot,
    show: &Show,
) -> Result<Listing<NodeLine<'a>>, QueryError> {
    let query = Query::of(request, &["state", "contains", "limit", "after"])?;
    let state = query.text("state").map(state).transpose()?;
    let part = query.text("contains").map(str::to_lowercase);
    let after = query.text("after").map(NodeName::new);
    let limit = query.limit()?;
    let page = page(&snapshot.nodes, after.as_ref(), limit, |node| {
        state.is_none_or(|state| state == node.state)
            && part.as_ref().is_none_or(|part| node.name.as_str().contains(part.as_str()))
    });
    Ok(Listing {
        snapshot_age_seconds: show.snapshot_age(snapshot),
        items: page.items.into_iter().map(|node| line(node, snapshot, show)).collect(),
        next: page.next.map(|name| name.as_str().to_owned()),
        total: page.total,
    })
}

fn state(text: &str) -> Result<NodeState, QueryError> {
    one_of("state", text, NodeState::ALL, NodeState::as_str)
}

pub(super) async fn node(
    request: HttpRequest,
    about: web::Data<About>,
    path: web::Path<String>,
) -> HttpResponse {
    if let Err(wrong) = Query::of(&request, &[]) {
        return wrong.into();
    }
    let name = NodeName::new(path.into_inner());
    let (snapshot, show) = load_snapshot(&about);
    let age = show.snapshot_age(&snapshot);
    let shown = match (snapshot.nodes.get(&name), snapshot.known_nodes.get(&name)) {
        (Some(node), _) => whole(node, &snapshot, &show),
        (None, Some(fact)) => quiet(fact, &snapshot),
        (None, None) => {
            let (title, detail) = absent(&name, &snapshot);
            return problem_as_of(age, StatusCode::NOT_FOUND, title, &detail);
        }
    };
    json_response(Ok(OneNode { snapshot_age_seconds: age, node: shown }))
}

/// Returns a node as a list shows it.
fn line<'a>(node: &'a NodeView, snapshot: &'a Snapshot, show: &Show) -> NodeLine<'a> {
    let ips = node.backends.iter().filter_map(|backend| match backend {
        Backend::Address(ip) => Some(ip),
        Backend::Instance(_) => None,
    });
    let instance = node.backends.iter().find_map(|backend| match backend {
        Backend::Address(_) => None,
        Backend::Instance(instance) => Some(instance.to_string()),
    });
    NodeLine {
        name: node.name.as_str(),
        uid: node.uid.as_str(),
        state: enums::AnyNodeState(node.state.as_str()),
        reasons: node.signals.iter().map(|signal| enums::DrainReason(signal.as_str())).collect(),
        signal_seconds: node.since.map(|at| show.age(at)),
        ready: node.ready,
        addresses: addresses(ips),
        instance,
        generation: node.generation,
        recorded: node.recorded,
        pools: NodePools {
            total: node.pools.len(),
            by_state: Counts::of(node.pools.iter().map(|of| of.state.as_str())),
        },
        foreign: foreign_of(&node.name, snapshot).map(foreign_entry).collect(),
        taint: NodeTaint { ours: node.taint_ours },
        retries: node.retries,
        next_in_seconds: node.next.map(|at| show.until(at)),
        last_error: node.last_error.as_deref(),
        excluded_by: excluded_by(snapshot.known_nodes.get(&node.name).and_then(|fact| fact.excluded)),
    }
}

/// Returns the rule by which a node is excluded from the pools of all Services (D5).
fn excluded_by(why: Option<ExclusionRule>) -> Option<NodeExclusion> {
    why.map(|why| NodeExclusion { rule: enums::ExclusionRule(why.as_str()), detail: why.to_string() })
}

/// Returns a node with all of its pools.
fn whole<'a>(node: &'a NodeView, snapshot: &'a Snapshot, show: &Show) -> NodeDetail<'a> {
    let pools = node.pools.iter().map(|of| {
        let seen = snapshot.pools.get(&of.pool).and_then(|pool| {
            let states = node.backends.iter().filter_map(|backend| match backend {
                Backend::Address(ip) => pool.admin_state(ip),
                Backend::Instance(_) => None,
            });
            states.max()
        });
        let state = match of.state {
            // The state of the node is newer than the last read of the pool.
            NodePoolState::Down | NodePoolState::Foreign => Some(arm::AdminState::Down),
            NodePoolState::Waiting
            | NodePoolState::Failed
            | NodePoolState::Unknown
            | NodePoolState::Excluded => seen,
        };
        in_pool(&of.pool, snapshot, of.state.as_str(), state)
    });
    NodeDetail { line: line(node, snapshot, show), in_pools: pools.collect() }
}

/// Returns a pool of a node: the state of the node in the pool, and the admin state of its entry, if that is known.
fn in_pool<'a>(
    pool: &'a PoolId,
    snapshot: &Snapshot,
    state: &'static str,
    entry: Option<arm::AdminState>,
) -> InPool<'a> {
    InPool {
        load_balancer: pool.lb.as_str(),
        backend_pool: pool.pool.as_str(),
        listed: snapshot.pools.contains_key(pool),
        state: enums::AnyNodeInPoolState(state),
        admin_state: entry.map(|state| enums::EntryState(admin_state_word(state))),
    }
}

/// Returns a node that this process neither sets Down nor restores.
fn quiet<'a>(fact: &'a NodeFact, snapshot: &'a Snapshot) -> NodeDetail<'a> {
    let signals = of_taints(&fact.taints);
    let entries = snapshot.pools.values().filter_map(|pool| {
        let state = fact.ips.iter().filter_map(|ip| pool.admin_state(ip)).max()?;
        Some((&pool.pool, state))
    });
    let entries: Vec<(&PoolId, arm::AdminState)> = entries.collect();
    let word = |state: arm::AdminState| match state {
        arm::AdminState::None | arm::AdminState::Up => "in_service",
        arm::AdminState::Down => NodePoolState::Foreign.as_str(),
        arm::AdminState::Unknown => NodePoolState::Unknown.as_str(),
    };
    let line = NodeLine {
        name: fact.name.as_str(),
        uid: fact.uid.as_str(),
        state: enums::AnyNodeState(if signals.is_empty() { "in_service" } else { "not_managed" }),
        reasons: signals.iter().map(|signal| enums::DrainReason(signal.as_str())).collect(),
        signal_seconds: None,
        ready: fact.ready,
        addresses: addresses(&fact.ips),
        instance: fact.instance.as_ref().map(ToString::to_string),
        generation: None,
        recorded: false,
        pools: NodePools {
            total: entries.len(),
            by_state: Counts::of(entries.iter().map(|(_, entry)| word(*entry))),
        },
        foreign: foreign_of(&fact.name, snapshot).map(foreign_entry).collect(),
        taint: NodeTaint { ours: false },
        retries: 0,
        next_in_seconds: None,
        last_error: None,
        excluded_by: excluded_by(fact.excluded),
    };
    let pools = entries.iter().map(|(pool, state)| in_pool(pool, snapshot, word(*state), Some(*state)));
    NodeDetail { line, in_pools: pools.collect() }
}

/// Returns the admin states that other clients have set on entries of a node.
fn foreign_of<'a>(name: &'a NodeName, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a ForeignState> {
    let all = snapshot.admin_state.iter().flat_map(|view| &view.foreign);
    all.filter(move |foreign| foreign.node == *name)
}

/// Returns the admin state that another client has set on one entry.
fn foreign_entry(of: &ForeignState) -> ForeignEntry<'_> {
    ForeignEntry {
        load_balancer: of.pool.lb.as_str(),
        backend_pool: of.pool.pool.as_str(),
        admin_state: enums::EntryState(admin_state_word(of.state)),
    }
}

/// Returns the totals of the nodes that leave service; `None` if they are not known yet.
pub(super) fn admin_state(snapshot: &Snapshot) -> Option<AdminState<'_>> {
    let view = snapshot.admin_state.as_deref()?;
    let AdminView {
        role,
        switched_off,
        generation,
        records,
        unreadable,
        refused,
        foreign,
        fresh,
        last_error,
    } = view;
    let unreadable = unreadable.iter().map(|(key, why)| Unreadable { key, why, remedy: UNREADABLE });
    let foreign = foreign.iter().map(|of| ForeignEntryOfNode {
        entry: foreign_entry(of),
        backend: of.backend.to_string(),
        node: of.node.as_str(),
    });
    Some(AdminState {
        enabled: *role == Role::On,
        switched_off: *switched_off,
        generation: *generation,
        records: *records,
        unreadable: unreadable.collect(),
        refused: *refused,
        foreign: foreign.collect(),
        fresh: *fresh,
        last_error: last_error.as_deref(),
        by_state: Counts::of(snapshot.nodes.values().map(|node| node.state.as_str())),
    })
}

/// Returns the title and the detail of the problem about a node that is not known.
fn absent(name: &NodeName, snapshot: &Snapshot) -> (&'static str, String) {
    if snapshot.synced.lists {
        let detail = format!(
            "there is no node {name}; GET /api/v1/nodes lists those that leave service, and kubectl get nodes all"
        );
        ("no such node", detail)
    } else {
        ("not known yet", "the nodes have not been listed yet; retry in a few seconds".to_owned())
    }
}
