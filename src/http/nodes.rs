//! The nodes that leave service (docs/design/surface.md, H3; N1-N5): in a list, alone with all of their pools, and in
//! sums.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use model::arm::{AdminState, Backend};
use model::ids::{NodeName, PoolId};
use model::node::NodeFact;
use model::node::{NodeState, Role};
use model::object::LeftOut;
use model::signals::of_taints;
use model::view::{AdminView, ForeignState, NodePoolState, NodeView, Snapshot, admin_state_word};
use serde_json::{Value, json};

use super::About;
use super::admin::{look, told};
use super::page::page;
use super::problem::problem_as_of;
use super::query::{Query, Wrong, one_of};
use super::show::Show;

#[cfg(test)]
mod tests;

/// What ends that a record cannot be read.
const UNREADABLE: &str = "nothing of this node that is Down is known to be ours: look at its entries, and remove this key of \
                          the ConfigMap that is named like our Lease";

pub(super) async fn nodes(request: HttpRequest, about: web::Data<About>) -> HttpResponse {
    told(list(&request, &about))
}

fn list(request: &HttpRequest, about: &About) -> Result<Value, Wrong> {
    let query = Query::of(request, &["state", "contains", "limit", "after"])?;
    let state = query.text("state").map(state).transpose()?;
    let part = query.text("contains").map(str::to_lowercase);
    let after = query.text("after").map(NodeName::new);
    let limit = query.limit()?;
    let (snapshot, show) = look(about);
    let page = page(&snapshot.nodes, after.as_ref(), limit, |node| {
        state.is_none_or(|state| state == node.state)
            && part.as_ref().is_none_or(|part| node.name.as_str().contains(part.as_str()))
    });
    Ok(json!({
        "snapshotAgeSeconds": show.snapshot_age(&snapshot),
        "items": page.items.iter().map(|node| line(node, &snapshot, &show)).collect::<Vec<_>>(),
        "next": page.next.map(NodeName::as_str),
        "total": page.total,
    }))
}

fn state(text: &str) -> Result<NodeState, Wrong> {
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
    let (snapshot, show) = look(&about);
    let age = show.snapshot_age(&snapshot);
    let shown = match (snapshot.nodes.get(&name), snapshot.known_nodes.get(&name)) {
        (Some(node), _) => whole(node, &snapshot, &show),
        (None, Some(fact)) => quiet(fact, &snapshot),
        (None, None) => {
            let (title, detail) = absent(&name, &snapshot);
            return problem_as_of(age, StatusCode::NOT_FOUND, title, &detail);
        }
    };
    told(Ok(json!({ "snapshotAgeSeconds": age, "node": shown })))
}

/// A node in a list.
fn line(node: &NodeView, snapshot: &Snapshot, show: &Show) -> Value {
    let addresses = node.backends.iter().filter_map(|backend| match backend {
        Backend::Address(ip) => Some(ip),
        Backend::Instance(_) => None,
    });
    let instance = node.backends.iter().find_map(|backend| match backend {
        Backend::Address(_) => None,
        Backend::Instance(instance) => Some(instance.to_string()),
    });
    let mut pools = json!({ "total": node.pools.len() });
    for state in NodePoolState::ALL {
        pools[state.as_str()] = node.count(state).into();
    }
    json!({
        "name": node.name.as_str(),
        "uid": node.uid.as_str(),
        "state": node.state.as_str(),
        "reasons": node.signals.iter().map(|signal| signal.as_str()).collect::<Vec<_>>(),
        "signalSeconds": node.since.map(|at| show.age(at)),
        "ready": node.ready,
        "addresses": addresses.collect::<Vec<_>>(),
        "instance": instance,
        "generation": node.generation,
        "recorded": node.recorded,
        "pools": pools,
        "foreign": foreign_of(&node.name, snapshot).map(foreign_state).collect::<Vec<_>>(),
        "taint": { "ours": node.taint_ours },
        "retries": node.retries,
        "nextInSeconds": node.next.map(|at| show.until(at)),
        "lastError": node.last_error,
        "leftOut": left_out(snapshot.known_nodes.get(&node.name).and_then(|fact| fact.left_out)),
    })
}

/// The rule by which a node is left out of pools, whichever Service has endpoints on it (D5).
fn left_out(why: Option<LeftOut>) -> Option<Value> {
    why.map(|why| json!({ "rule": why.as_str(), "detail": why.to_string() }))
}

/// A node with all of its pools.
fn whole(node: &NodeView, snapshot: &Snapshot, show: &Show) -> Value {
    let mut shown = line(node, snapshot, show);
    let pools = node.pools.iter().map(|of| {
        let seen = snapshot.pools.get(&of.pool).and_then(|pool| {
            let states = node.backends.iter().filter_map(|backend| match backend {
                Backend::Address(ip) => pool.admin_state(ip),
                Backend::Instance(_) => None,
            });
            states.max()
        });
        let state = match of.state {
            // It is known sooner here than the pool is seen again.
            NodePoolState::Down | NodePoolState::Foreign => Some(AdminState::Down),
            NodePoolState::Waiting
            | NodePoolState::Failed
            | NodePoolState::Unknown
            | NodePoolState::Excluded => seen,
        };
        in_pool(&of.pool, snapshot, of.state.as_str(), state)
    });
    shown["inPools"] = pools.collect();
    shown
}

/// One pool of a node: how far the node is there, and the admin state of its entry, where that was seen.
fn in_pool(pool: &PoolId, snapshot: &Snapshot, state: &str, entry: Option<AdminState>) -> Value {
    json!({
        "loadBalancer": pool.lb.as_str(),
        "backendPool": pool.pool.as_str(),
        "listed": snapshot.pools.contains_key(pool),
        "state": state,
        "adminState": entry.map(admin_state_word),
    })
}

/// A node of which nothing is to be Down or restored, as far as this process works on it.
fn quiet(fact: &NodeFact, snapshot: &Snapshot) -> Value {
    let signals = of_taints(&fact.taints);
    let entries = snapshot.pools.values().filter_map(|pool| {
        let state = fact.ips.iter().filter_map(|ip| pool.admin_state(ip)).max()?;
        Some((&pool.pool, state))
    });
    let entries: Vec<(&PoolId, AdminState)> = entries.collect();
    let word = |state: AdminState| match state {
        AdminState::None | AdminState::Up => "open",
        AdminState::Down => NodePoolState::Foreign.as_str(),
        AdminState::Unknown => NodePoolState::Unknown.as_str(),
    };
    let mut pools = json!({ "total": entries.len() });
    for state in NodePoolState::ALL {
        let count = entries.iter().filter(|(_, entry)| word(*entry) == state.as_str()).count();
        pools[state.as_str()] = count.into();
    }
    json!({
        "name": fact.name.as_str(),
        "uid": fact.uid.as_str(),
        "state": if signals.is_empty() { "in_service" } else { "not_followed" },
        "reasons": signals.iter().map(|signal| signal.as_str()).collect::<Vec<_>>(),
        "signalSeconds": null,
        "ready": fact.ready,
        "addresses": fact.ips,
        "instance": fact.instance.as_ref().map(ToString::to_string),
        "generation": null,
        "recorded": false,
        "pools": pools,
        "foreign": foreign_of(&fact.name, snapshot).map(foreign_state).collect::<Vec<_>>(),
        "taint": { "ours": false },
        "retries": 0,
        "nextInSeconds": null,
        "lastError": null,
        "leftOut": left_out(fact.left_out),
        "inPools": entries.iter().map(|(pool, state)| in_pool(pool, snapshot, word(*state), Some(*state))).collect::<Vec<_>>(),
    })
}

/// What others have set on entries of a node.
fn foreign_of<'a>(name: &'a NodeName, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a ForeignState> {
    let all = snapshot.admin_state.iter().flat_map(|view| &view.foreign);
    all.filter(move |foreign| foreign.node == *name)
}

/// What others have set on one entry.
fn foreign_state(of: &ForeignState) -> Value {
    json!({
        "loadBalancer": of.pool.lb.as_str(),
        "backendPool": of.pool.pool.as_str(),
        "adminState": admin_state_word(of.state),
    })
}

/// The admin state as a whole; `None`: nothing was said of it yet.
pub(super) fn admin_state(snapshot: &Snapshot) -> Option<Value> {
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
    let unreadable =
        unreadable.iter().map(|(key, why)| json!({ "key": key, "why": why, "remedy": UNREADABLE }));
    let foreign = foreign.iter().map(|of| {
        let mut shown = foreign_state(of);
        shown["backend"] = of.backend.to_string().into();
        shown["node"] = of.node.as_str().into();
        shown
    });
    let mut shown = json!({
        "enabled": *role == Role::On,
        "switchedOff": switched_off,
        "generation": generation,
        "records": records,
        "unreadable": unreadable.collect::<Vec<_>>(),
        "refused": refused,
        "foreign": foreign.collect::<Vec<_>>(),
        "fresh": fresh,
        "lastError": last_error,
    });
    for state in NodeState::ALL {
        shown[state.as_str()] = snapshot.nodes.values().filter(|node| node.state == state).count().into();
    }
    Some(shown)
}

/// Why a node is not shown.
fn absent(name: &NodeName, snapshot: &Snapshot) -> (&'static str, String) {
    if snapshot.synced.lists {
        let detail = format!(
            "there is no node {name}; GET /api/v1/nodes lists those that leave service, and kubectl get nodes all"
        );
        ("no such node", detail)
    } else {
        ("not known yet", "the nodes have not been listed yet; ask again in some seconds".to_owned())
    }
}
