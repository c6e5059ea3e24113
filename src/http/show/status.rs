//! The summary of the controller's state in the admin API.

use model::machine::Now;
use model::view::{self, PoolView, Snapshot};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::About;
use super::super::enums;
use super::super::installation::InstallationStatus;
use super::super::nodes::{AdminState, admin_state};
use super::super::resources::{ControlPlanes, in_short};
use super::super::values::{Counts, Seconds, SnapshotAge};
use super::super::verdict::is_not_manageable;
use super::Show;
use super::lanes::{Gate, Lane, LoadBalancer, Source};
use super::leadership::{Leadership, Pauses, SharedLease};
use super::pools::{Guards, Held, PoolLine, differs};

/// Maximum number of out-of-sync pools that are shown.
const MAX_OUT_OF_SYNC: usize = 10;

/// A summary of the controller's state.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Status<'a> {
    snapshot_age_seconds: SnapshotAge,
    /// The version of this program.
    version: &'static str,
    /// The installation that answers, with the names that `kubectl` commands need. Null: unknown.
    installation: InstallationStatus<'a>,
    /// Whether this is a dry run, which writes nothing.
    dry_run: bool,
    /// Leadership. Null: not known yet.
    leadership: Option<Leadership<'a>>,
    /// The configured mode. Null: not known yet.
    mode: Option<enums::Mode>,
    /// What operators have paused. Null: not known yet.
    pauses: Option<Pauses<'a>>,
    /// The Lease that is shared with the cloud-controller-manager. Null: it is not used, or not known yet.
    shared_lease: Option<SharedLease<'a>>,
    /// What the start of this process still waits for.
    synced: Synced,
    /// Number of pools.
    pools: PoolCounts,
    /// What a write would change in pools that are only compared.
    would_change: WouldChange,
    /// Number of Services of type LoadBalancer.
    services: usize,
    /// Number of Services with a pool that is not written, because nothing proves that it belongs to this Service
    /// alone.
    not_manageable_services: usize,
    /// How long the oldest change has waited, in seconds. Null: none waits.
    oldest_waiting_change_seconds: Option<Seconds>,
    /// Pools that do not match their level, without those that are paused or only shown.
    out_of_sync: OutOfSync<'a>,
    /// The guards. Null: they are not known yet.
    guards: Option<Guards>,
    /// The removals that are held back.
    held: Vec<HeldPool>,
    /// Totals of the nodes that leave service. Null: not known yet.
    admin_state: Option<AdminState<'a>>,
    /// A summary of the xDS control planes. Null: no pool is filled from one.
    control_planes: Option<ControlPlanes<'a>>,
    /// The kinds of Kubernetes objects that are watched.
    sources: Vec<Source<'a>>,
    /// The load balancers.
    load_balancers: Vec<LoadBalancer<'a>>,
    /// What is written on each load balancer, and what waits.
    lanes: Vec<Lane<'a>>,
    /// The throttle gates and budgets.
    gates: Vec<Gate>,
}

/// What the start of this process still waits for.
#[derive(Serialize, ToSchema)]
struct Synced {
    /// Whether the first lists are complete.
    lists: bool,
    /// Whether a managed load balancer was read, and each other one too, or that failed or took longer than 1 s.
    discovery: bool,
}

/// Number of pools in each state.
type PoolStateCounts = Counts<enums::PoolState>;

/// Numbers of pools.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PoolCounts {
    /// Number of all pools.
    total: usize,
    /// Number of pools in each state.
    #[schema(inline)]
    by_state: PoolStateCounts,
}

/// Totals of the pools that are only compared.
#[derive(Serialize, ToSchema)]
struct WouldChange {
    /// Pools that are compared and not written.
    compared: usize,
    /// Those of them that have not been read yet. While there are any, the sums are too small.
    unseen: usize,
    /// Those of them that would be changed.
    pools: usize,
    /// The members that would be added to them.
    add: usize,
    /// The members that would be removed from them.
    remove: usize,
    /// What would be held back. It is not part of `remove`.
    held: WouldHold,
}

/// What would be held back of pools that are only compared.
#[derive(Serialize, ToSchema)]
struct WouldHold {
    /// The pools.
    pools: usize,
    /// The members that would stay for that.
    members: usize,
}

/// Pools that do not match their level, without those that are paused or only shown.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct OutOfSync<'a> {
    /// Number of these pools.
    pools: usize,
    /// The pool that has been out of sync for longest. Null: there is none.
    longest: Option<String>,
    /// How long it has been, in seconds.
    longest_seconds: Option<Seconds>,
    /// Whether that may have begun earlier.
    longest_at_least: bool,
    /// The pools that have been out of sync for longest, followed by pools that are only compared and would be changed.
    #[schema(max_items = 10)]
    items: Vec<PoolLine<'a>>,
}

/// A pool with a removal that is held back.
#[derive(Serialize, ToSchema)]
struct HeldPool {
    /// The pool.
    pool: String,
    /// The removal.
    held: Held,
}

impl<'a> Status<'a> {
    /// Returns a summary of the controller's state.
    pub(in crate::http) fn of(about: &'a About, snapshot: &'a Snapshot, show: &Show) -> Status<'a> {
        let oldest = snapshot.pools.values().filter_map(|pool| pool.waiting_since).min();
        let held = snapshot.pools.values().filter_map(|pool| {
            Some(HeldPool { pool: pool.pool.to_string(), held: show.held(pool.held.as_ref()?) })
        });
        let services = &snapshot.services;
        Status {
            snapshot_age_seconds: show.snapshot_age(snapshot),
            version: env!("CARGO_PKG_VERSION"),
            installation: about.installation.to_status(),
            dry_run: about.dry_run,
            leadership: snapshot.leadership.as_ref().map(|view| show.leadership(view)),
            mode: snapshot.policy.as_ref().map(|view| enums::Mode(view.mode.as_str())),
            pauses: snapshot.policy.as_ref().map(|view| show.policy(view)),
            shared_lease: snapshot.shared_lease.as_ref().map(|view| show.shared_lease(view)),
            synced: Synced { lists: snapshot.synced.lists, discovery: snapshot.synced.discovery },
            pools: PoolCounts {
                total: snapshot.pools.len(),
                by_state: Counts::of(snapshot.pools.values().map(|pool| pool.state.as_str())),
            },
            would_change: would_change(snapshot.would_change(about.dry_run)),
            services: services.len(),
            not_manageable_services: services.values().filter(|service| is_not_manageable(service)).count(),
            oldest_waiting_change_seconds: oldest.map(|at| show.age(at)),
            out_of_sync: out_of_sync(snapshot, show),
            guards: snapshot.guards.as_ref().map(|view| show.guards(view)),
            held: held.collect(),
            admin_state: admin_state(snapshot),
            control_planes: in_short(snapshot, &about.listed),
            sources: snapshot.sources.values().map(|source| show.source(source)).collect(),
            load_balancers: snapshot.load_balancers.values().map(|lb| show.lb(lb)).collect(),
            lanes: snapshot.lanes.values().map(|lane| show.lane(lane)).collect(),
            gates: snapshot.gates.iter().map(|(class, gate)| show.gate(*class, gate)).collect(),
        }
    }
}

/// Returns the number of pools that should be written and are out of sync, and those that have been so for longest.
/// Pools that are only compared and would be changed follow them.
fn out_of_sync<'a>(snapshot: &'a Snapshot, show: &Show) -> OutOfSync<'a> {
    let late = || snapshot.pools.values().filter(|pool| pool.late_since().is_some());
    let longest = late().min_by_key(|pool| pool.late_since());
    let mut all: Vec<&PoolView> =
        snapshot.pools.values().map(|pool| &**pool).filter(|pool| differs(pool)).collect();
    all.sort_by_key(|pool| {
        (pool.late_since().is_none(), pool.out_of_sync.map_or(Now::NEVER, |out| out.since), &pool.pool)
    });
    let items = all.into_iter().take(MAX_OUT_OF_SYNC).map(|pool| show.pool_line(pool, snapshot));
    OutOfSync {
        pools: late().count(),
        longest: longest.map(|pool| pool.pool.to_string()),
        longest_seconds: longest.and_then(|pool| pool.late_since()).map(|at| show.age(at)),
        longest_at_least: longest.and_then(|pool| pool.out_of_sync).is_some_and(|out| out.at_least),
        items: items.collect(),
    }
}

/// Returns the totals of the pools that are only compared.
fn would_change(sums: view::WouldChange) -> WouldChange {
    let view::WouldChange { compared, unseen, pools, add, remove, held_pools, held_members } = sums;
    let held = WouldHold { pools: held_pools, members: held_members };
    WouldChange { compared, unseen, pools, add, remove, held }
}
