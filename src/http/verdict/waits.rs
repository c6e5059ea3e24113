//! Texts about what a pool waits for: one text for each reason in [`Blocked`] (W1, W4, W6-W10).

use model::blocked::{Blocked, BlockedUntil};
use model::machine::Now;
use model::sample::GateClass;
use model::view::{LeadershipView, LeaseHolderKind, PoolView, SharedLeaseView, Snapshot};

use super::super::show::Show;
use super::super::values::Seconds;

/// Returns a time span as text, in whole seconds.
pub(super) fn span(Seconds(seconds): Seconds) -> String {
    format!("{seconds:.0} s")
}

/// Describes the wait of a due pool: its duration, and the reason.
pub(super) fn due(pool: &PoolView, snapshot: &Snapshot, show: &Show) -> String {
    let cause = match snapshot.blocked(show.now, pool) {
        Some(blocked) => cause(blocked, pool, snapshot, show),
        None => "it waits for its turn among the load balancers".to_owned(),
    };
    format!("has waited for {}: {cause}", span(show.age(pool.since)))
}

/// Describes the attempt of a pool: it is being written, or waits for its next try.
pub(super) fn attempting(pool: &PoolView, snapshot: &Snapshot, show: &Show) -> String {
    let lane = snapshot.lanes.get(&pool.pool.lb).filter(|lane| !lane.is_writing(&pool.pool));
    match lane.and_then(|lane| lane.waiting(&pool.pool)) {
        Some(waiting) => {
            let since = span(show.age(waiting.since));
            format!("is being written, and has waited for its next try for {since}")
        }
        None => "is being written".to_owned(),
    }
}

/// Describes the wait of a pool that is not due.
pub(super) fn own(blocked: BlockedUntil, show: &Show) -> String {
    let meaning = blocked.why.meaning();
    match blocked.until {
        Some(until) => format!("waits {} more: {meaning}", span(show.until(until))),
        None => format!("waits: {meaning}"),
    }
}

/// Describes why a due pool is not written.
fn cause(blocked: BlockedUntil, pool: &PoolView, snapshot: &Snapshot, show: &Show) -> String {
    let said = match blocked.why {
        Blocked::NotLeader => snapshot.leadership.as_ref().map(|leadership| no_leader(leadership, show)),
        Blocked::Breaker => fault(pool, snapshot),
        Blocked::Throttled => class_of(blocked, snapshot)
            .map(|class| format!("Azure throttles {} for {}", class.as_str(), more(blocked, show))),
        Blocked::LaneBusy => busy(pool, snapshot, show),
        Blocked::LaneLocked => {
            Some(format!("another operation holds its load balancer's lock for {}", more(blocked, show)))
        }
        Blocked::LaneInDoubt => Some(format!(
            "its load balancer is closed for {}: the answer to a write was lost, or an operation runs on it",
            more(blocked, show)
        )),
        Blocked::SharedLease => snapshot.shared_lease.as_ref().and_then(|lease| shared_lease(lease, show)),
        Blocked::Budget => class_of(blocked, snapshot).map(|class| budget(class, blocked, show)),
        Blocked::Paused
        | Blocked::Parked
        | Blocked::Contention
        | Blocked::AfterFailure
        | Blocked::Interval
        | Blocked::Window
        | Blocked::Held => None,
    };
    said.unwrap_or_else(|| format!("it {}", own(blocked, show)))
}

/// Returns the remaining time, as text.
fn more(blocked: BlockedUntil, show: &Show) -> String {
    blocked.until.map_or_else(|| "some time".to_owned(), |until| format!("{} more", span(show.until(until))))
}

/// Returns the request class (reads or writes) of the gate that blocks.
fn class_of(blocked: BlockedUntil, snapshot: &Snapshot) -> Option<GateClass> {
    snapshot.gates.iter().find(|(_, gate)| gate.blocked == Some(blocked)).map(|(class, _)| *class)
}

/// Describes why this replica does not write (W8).
fn no_leader(leadership: &LeadershipView, show: &Show) -> String {
    let role = leadership.role;
    let since = span(show.age(leadership.since));
    match leadership.holder.as_deref().filter(|holder| *holder != &*leadership.identity) {
        Some(holder) => format!("this replica is {role} and does not write it; {holder} leads"),
        None => format!("no leader is known: this replica has been {role} for {since}"),
    }
}

/// Describes the fault that stops writes (W10).
fn fault(pool: &PoolView, snapshot: &Snapshot) -> Option<String> {
    let fault = snapshot.lanes.get(&pool.pool.lb)?.fault.as_ref()?;
    Some(format!("writes on its load balancer fail in the same way, so one is tried at a time: {fault}"))
}

/// Describes the write of another pool on the same load balancer (W1).
fn busy(pool: &PoolView, snapshot: &Snapshot, show: &Show) -> Option<String> {
    let (other, phase, since) = snapshot.lanes.get(&pool.pool.lb)?.writing.as_ref()?;
    let since = span(show.age(*since));
    Some(format!("its load balancer has been at work on pool {other} for {since} ({phase})"))
}

/// Describes why the controller does not hold the shared Lease (W7). `None`: it does, or does not need it.
fn shared_lease(lease: &SharedLeaseView, show: &Show) -> Option<String> {
    let wanted = span(show.age(lease.wanted_since?));
    let left = |until: Option<Now>| match until.filter(|until| *until != Now::NEVER) {
        Some(until) => format!(", for {} more at most", span(show.until(until))),
        None => String::new(),
    };
    let said = match lease.state {
        "held" => return None,
        "waiting" => {
            let holder_kind = match lease.holder_kind {
                LeaseHolderKind::Other => ", an unknown client,",
                LeaseHolderKind::SameName => ", another process with the controller's name,",
                LeaseHolderKind::CloudControllerManager
                | LeaseHolderKind::Controller
                | LeaseHolderKind::None
                | LeaseHolderKind::Unknown => "",
            };
            let holder = lease.holder.as_deref().unwrap_or("an unknown client");
            let held = lease.held_since.map_or_else(String::new, |at| format!(" for {}", span(show.age(at))));
            format!(
                "the shared Lease, wanted for {wanted}, which {holder}{holder_kind} has held{held}{}",
                left(lease.until)
            )
        }
        "cooldown" => {
            format!("the shared Lease, wanted for {wanted}, is left to other clients{}", left(lease.until))
        }
        "acquiring" => format!("the shared Lease, wanted for {wanted}, is being acquired"),
        "releasing" => format!("the shared Lease, wanted for {wanted}, is being released"),
        state => format!("the shared Lease, wanted for {wanted}, is {state}"),
    };
    let error = lease.last_error.as_ref().map_or_else(String::new, |error| format!(" ({error})"));
    Some(said + &error)
}

/// Describes the wait for the budget (W9).
fn budget(class: GateClass, blocked: BlockedUntil, show: &Show) -> String {
    let key = match class {
        GateClass::Reads => "readsPer5Minutes",
        GateClass::Writes => "writesPer5Minutes",
    };
    let (class, until) = (class.as_str(), more(blocked, show));
    format!(
        "the budget for {class} is spent for {until} (budget.{key}, or a rate of the cloud configuration)"
    )
}
