//! The nodes that leave service (H3, design.md chapter 8): in a list, alone with all of their pools, and in sums.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use pool_core::admin_state::{NodeState, Role};
use pool_core::arm::Backend;
use pool_core::ids::NodeName;
use pool_core::view::{AdminView, ForeignState, NodePoolState, NodeView, Snapshot, admin_state_word};
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

/// What has switched the admin state off, and what ends that.
const SWITCHED_OFF: &str = "the key admin-state.off of the ConfigMap that is named like our Lease has switched it \
                            off: remove it, or wait, for it counts for 10 minutes at most";

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
    match snapshot.nodes.get(&name) {
        Some(node) => told(Ok(json!({ "snapshotAgeSeconds": age, "node": whole(node, &snapshot, &show) }))),
        None => {
            let (title, detail) = absent(&name, &snapshot);
            problem_as_of(age, StatusCode::NOT_FOUND, title, &detail)
        }
    }
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
    })
}

/// A node with all of its pools.
fn whole(node: &NodeView, snapshot: &Snapshot, show: &Show) -> Value {
    let mut shown = line(node, snapshot, show);
    let pools = node.pools.iter().map(|of| {
        json!({
            "loadBalancer": of.pool.lb.as_str(),
            "backendPool": of.pool.pool.as_str(),
            "state": of.state.as_str(),
        })
    });
    shown["inPools"] = pools.collect();
    shown
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

/// Why a node is not shown, as far as that is known here.
fn absent(name: &NodeName, snapshot: &Snapshot) -> (&'static str, String) {
    let Some(view) = snapshot.admin_state.as_deref() else {
        let detail = "nothing is known of nodes that leave service yet; ask again in some seconds";
        return ("not known yet", detail.to_owned());
    };
    let off = match view.role {
        Role::On => view.switched_off.then_some(SWITCHED_OFF),
        Role::Off => Some("enableLoadBalancerAdminState is false in the cloud configuration"),
        Role::Silent => Some("this command does not work on it"),
    };
    if let Some(off) = off {
        return ("the admin state is off", format!("node {name} has nothing of the admin state: {off}"));
    }
    let nothing = "nothing says that it leaves service, and nothing of it is Down by us";
    let (most, foreign) = (AdminView::MOST_FOREIGN, foreign_of(name, snapshot).count());
    let more = if view.foreign.len() < most {
        String::new()
    } else {
        format!("; what somebody else has set is listed for {most} entries only: the node may have others")
    };
    if foreign > 0 {
        let detail = format!(
            "node {name} is there, and {nothing}; somebody else has set the admin state of {foreign} of its entries, \
             which adminState.foreign in GET /api/v1/status lists{more}"
        );
        return ("nothing of the admin state", detail);
    }
    let mut members = snapshot.pools.values().flat_map(|pool| pool.level.required.values());
    if members.any(|member| member.name.as_str() == name.as_str()) {
        return ("nothing of the admin state", format!("node {name} is there, and {nothing}{more}"));
    }
    let detail = format!(
        "no pool requires a node {name}: it does not exist, or {nothing}; kubectl get node {name} tells which, and GET \
         /api/v1/nodes lists those that leave service{more}"
    );
    ("no such node", detail)
}
