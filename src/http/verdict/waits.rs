//! What a pool waits for whose changes are due: the first of what keeps its lane from being granted (W1, W4, W6-W10).

use model::machine::Now;
use model::sample::GateClass;
use model::view::{LaneView, LeadershipView, PoolView, SharedLeaseView, Snapshot, Whose};

use super::super::show::Show;
use super::super::values::Seconds;

/// A span as operators read it, of whole seconds.
pub(super) fn span(Seconds(seconds): Seconds) -> String {
    format!("{seconds:.0} s")
}

/// What a pool says that is due: for how long, and what it waits for.
pub(super) fn due(pool: &PoolView, snapshot: &Snapshot, show: &Show) -> String {
    format!("has waited for {}: {}", span(show.age(pool.since)), cause(pool, snapshot, show))
}

/// What a pool says that has an attempt: whether it is at work, or waits for its next try.
pub(super) fn attempting(pool: &PoolView, snapshot: &Snapshot, show: &Show) -> String {
    let lane = snapshot.lanes.get(&pool.pool.lb);
    let waiting = lane.and_then(|lane| lane.waiting.iter().find(|(waits, _, _)| *waits == pool.pool));
    let written = lane.and_then(|lane| lane.writing.as_ref()).is_some_and(|(one, _, _)| *one == pool.pool);
    match waiting {
        Some((_, _, since)) if !written => {
            let since = span(show.age(*since));
            format!("is being written, and has waited for its next try for {since}")
        }
        Some(_) | None => "is being written".to_owned(),
    }
}

fn cause(pool: &PoolView, snapshot: &Snapshot, show: &Show) -> String {
    let lane = snapshot.lanes.get(&pool.pool.lb);
    snapshot
        .leadership
        .as_ref()
        .and_then(|leadership| no_leader(leadership, show))
        .or_else(|| lane.and_then(|lane| blocked(lane)))
        .or_else(|| gate(snapshot, show))
        .or_else(|| lane.and_then(|lane| lane_is_shut(lane, pool, show)))
        .or_else(|| snapshot.shared_lease.as_ref().and_then(|lease| shared_lease(lease, show)))
        .or_else(|| budget(snapshot, show))
        .unwrap_or_else(|| "it waits for its turn among the load balancers".to_owned())
}

/// This replica does not write (W8).
fn no_leader(leadership: &LeadershipView, show: &Show) -> Option<String> {
    let role = leadership.role;
    if matches!(role, "leader" | "alone") {
        return None;
    }
    let since = span(show.age(leadership.since));
    Some(match leadership.holder.as_deref().filter(|holder| *holder != &*leadership.identity) {
        Some(holder) => format!("this replica is {role} and does not write it; ask {holder}, which leads"),
        None => format!("no leader is known: this replica has been {role} for {since}"),
    })
}

/// Writes fail for good in the same way (W10).
fn blocked(lane: &LaneView) -> Option<String> {
    let fault = lane.blocked_by.as_ref()?;
    Some(format!(
        "writes on its load balancer are stopped but for one try at a time, for they fail alike: {fault}"
    ))
}

/// Azure throttles (W6).
fn gate(snapshot: &Snapshot, show: &Show) -> Option<String> {
    let closed = snapshot.gates.iter().filter_map(|(class, gate)| Some((gate.closed_until?, class.as_str())));
    let (until, class) = closed.filter(|(until, _)| *until > show.now).max()?;
    Some(format!("Azure throttles {class} for {} more", span(show.until(until))))
}

/// Its load balancer is at work on another pool, or closed (W1, W4, W6).
fn lane_is_shut(lane: &LaneView, pool: &PoolView, show: &Show) -> Option<String> {
    if let Some((other, phase, since)) = lane.writing.as_ref().filter(|(one, _, _)| *one != pool.pool) {
        let since = span(show.age(*since));
        return Some(format!("its load balancer has been at work on pool {other} for {since} ({phase})"));
    }
    let until = span(show.until(lane.closed_until?));
    Some(format!(
        "its load balancer is closed for {until} more: Azure asked for that, the answer to a write was lost, or a \
         foreign operation runs on it"
    ))
}

/// The shared Lease is wanted, and is not ours (W7).
fn shared_lease(lease: &SharedLeaseView, show: &Show) -> Option<String> {
    let wanted = span(show.age(lease.wanted_since?));
    let left = |until: Option<Now>| match until.filter(|until| *until != Now::NEVER) {
        Some(until) => format!(", for {} more at most", span(show.until(until))),
        None => String::new(),
    };
    let said = match lease.state {
        "held" => return None,
        "waiting" => {
            let whose = match lease.whose {
                Whose::Stranger => ", a stranger,",
                Whose::Namesake => ", another client in our name,",
                Whose::CloudControllerManager | Whose::Us | Whose::Nobody | Whose::Unknown => "",
            };
            let holder = lease.holder.as_deref().unwrap_or("an unknown client");
            let held = lease.held_since.map_or_else(String::new, |at| format!(" for {}", span(show.age(at))));
            format!(
                "the shared Lease, wanted for {wanted}, which {holder}{whose} has held{held}{}",
                left(lease.until)
            )
        }
        "off" => format!("the shared Lease, wanted for {wanted}, is left to others{}", left(lease.until)),
        state => format!("the shared Lease, wanted for {wanted}, is {state}"),
    };
    let error = lease.last_error.as_ref().map_or_else(String::new, |error| format!(" ({error})"));
    Some(said + &error)
}

/// Too little is saved up (W9).
fn budget(snapshot: &Snapshot, show: &Show) -> Option<String> {
    let short = snapshot.gates.iter().filter_map(|(class, gate)| Some((gate.short_until?, *class)));
    let (until, class) = short.filter(|(until, _)| *until > show.now).max_by_key(|(until, _)| *until)?;
    let key = match class {
        GateClass::Reads => "readsPer5Minutes",
        GateClass::Writes => "writesPer5Minutes",
    };
    let (class, until) = (class.as_str(), span(show.until(until)));
    Some(format!(
        "the budget for {class} is spent for {until} more (budget.{key}, or a rate of the cloud configuration)"
    ))
}
