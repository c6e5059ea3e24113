//! One process of the controller with its ports and clocks, and its start parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use coordination::{leader, pauses};
use model::guard::{Fraction, GuardMode};
use model::ids::{LbName, NetworkId, PoolId, PoolName};
use model::view::Snapshot;
use model::xds::name::Name;
use pools::directory::Listing;
use pools::membership::{self, AdminStates};
use pools::{directory, discovery, queue};
use reporting::events;
use sources::informer::{Counts, Selector};
use sources::xds::client::{self, ExponentialBackoff};
use sources::{informer, xds_source};
use writer::{LeaseParams, RateLimit, Throttling};

use crate::azure::ArmPort;
use crate::ccm;
use crate::clock::Clock;
use crate::kubernetes::KubernetesPort;
use crate::leases::{LeasePort, OURS};
use crate::notes::NotesPort;
use crate::planes::Features;
use crate::plant::Plant;
use crate::random::Random;
use crate::replica::{Actor, Params, Replica};
use crate::served::{BALANCER, LISTED, Listed};
use crate::story::{Often, Size};
use crate::watchdog::MAX_RETRIES;
use crate::xds_port::XdsPort;

/// S0's tick.
const TICK: Duration = Duration::from_secs(30);
/// G2, in microseconds.
pub const EMPTY_CONFIRM_US: u64 = 60_000_000;

/// State of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessState {
    /// The process runs.
    Runs,
    /// The process is suspended until this time; then everything that waited happens.
    Stopped(u64),
    /// The process has ended.
    Gone,
}

/// One process.
pub struct Process {
    /// Number of the replica.
    pub slot: usize,
    /// Holder identity in our Lease.
    pub identity: Arc<str>,
    /// Its state.
    pub life: ProcessState,
    /// True if it got the signal to shut down.
    pub ending: bool,
    /// Its clocks.
    pub clock: Clock,
    /// Its machines.
    pub replica: Replica,
    /// Its port to Kubernetes.
    pub kubernetes: KubernetesPort,
    /// Its port to the Leases.
    pub leases: LeasePort,
    /// Its port to our ConfigMap.
    pub notes: NotesPort,
    /// Its port to ARM.
    pub azure: ArmPort,
    /// Its port to control planes.
    pub xds: XdsPort,
    /// Last published snapshot.
    pub snapshot: Option<Arc<Snapshot>>,
    /// True if it existed when the API server's storage was restored.
    pub outlives_restore: bool,
    /// Time until which a receiver is stalled.
    pub stalled: BTreeMap<Actor, u64>,
}

/// Settings of all processes of a world.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of load balancers.
    pub balancers: usize,
    /// `budget.writesPer5Minutes`.
    pub writes_per_5_minutes: u32,
    /// `budget.readsPer5Minutes`.
    pub reads_per_5_minutes: u32,
    /// `compatibility: upstream` (C2).
    pub upstream: bool,
    /// The cloud configuration's rates, in some worlds (S1).
    pub rate_limit: Option<RateLimit>,
    /// `lease.bypassForDrain` (W7).
    pub bypass_for_drain: bool,
    /// `enableLoadBalancerAdminState: false` (N4).
    pub admin_state_off: bool,
    /// The control planes that fill pools, if there are any (X2).
    pub planes: Option<Features>,
    /// Number of additional managed load balancers for which ARM never answers (D3).
    pub unanswered_balancers: usize,
}

/// Number of load balancers without answers in worlds with this fault.
const SILENT: usize = 20;

impl Settings {
    /// Returns the defaults.
    pub fn defaults(size: Size) -> Settings {
        Settings {
            balancers: size.balancers,
            writes_per_5_minutes: 500,
            reads_per_5_minutes: 5_000,
            upstream: false,
            rate_limit: None,
            bypass_for_drain: false,
            admin_state_off: false,
            planes: None,
            unanswered_balancers: 0,
        }
    }

    /// Creates settings by the seed: mostly the defaults; in some small and some crowded worlds few calls.
    pub fn new(random: &mut Random, size: Size, plant: Option<Plant>) -> Settings {
        // Bugs are planted in the default profile, which has all rules.
        let upstream = random.per_mille(200) && plant.is_none();
        let few = random.per_mille(600);
        let hangs = size.faults.often == Some(Often::Hanging);
        let (writes_per_5_minutes, reads_per_5_minutes) = match size.services {
            _ if hangs => (500, 5_000),
            // With an additional load balancer to read, so few reads are not enough for all.
            0..5 if few && !size.faults.planes => (4, 25),
            // If everything changes at the end, few writes would take too long.
            16.. if few && !upstream => (10, 5_000),
            _ => (500, 5_000),
        };
        let often = if plant == Some(Plant::RateLimitIgnored) { 1_000 } else { 160 };
        let rate_limit = random.per_mille(often).then(|| RateLimit {
            reads_per_second: 10.0,
            reads_at_once: 100,
            writes_per_second: [0.1, 0.5, 2.0][random.index(3)],
            writes_at_once: [1, 3, 10][random.index(3)],
        });
        // Not if the planted bug does it.
        let bypass_for_drain = random.per_mille(300) && plant != Some(Plant::BypassUnasked);
        Settings {
            balancers: size.balancers,
            writes_per_5_minutes,
            reads_per_5_minutes,
            upstream,
            rate_limit,
            bypass_for_drain,
            admin_state_off: false,
            planes: None,
            unanswered_balancers: if hangs { SILENT } else { 0 },
        }
    }
}

impl Process {
    /// Creates a process without inputs.
    pub fn new(
        slot: usize,
        life: usize,
        settings: Settings,
        plant: Option<Plant>,
        random: &mut Random,
    ) -> Process {
        let identity: Arc<str> = Arc::from(format!("replica-{slot}_{life}"));
        Process {
            slot,
            life: ProcessState::Runs,
            ending: false,
            clock: Clock::new(random),
            replica: Replica::new(params(plant, settings, Arc::clone(&identity))),
            kubernetes: KubernetesPort::new(random.fork(), plant),
            leases: LeasePort::new(random.fork(), plant),
            notes: NotesPort::new(random.fork(), plant),
            azure: ArmPort::new(random.fork(), plant),
            xds: XdsPort::new(random.fork(), plant),
            snapshot: None,
            outlives_restore: false,
            stalled: BTreeMap::new(),
            identity,
        }
    }

    /// Returns whether it exists, running or suspended.
    pub fn is_there(&self) -> bool {
        self.life != ProcessState::Gone
    }
}

fn params(plant: Option<Plant>, settings: Settings, identity: Arc<str>) -> Params {
    let seconds = Duration::from_secs;
    let upstream = settings.upstream;
    let guarded = plant != Some(Plant::GuardOff) && !upstream;
    let times = if plant == Some(Plant::BudgetIgnored) { 100 } else { 1 };
    let fraction = if plant == Some(Plant::FractionIgnored) { 1_000_000 } else { 500_000 };
    let settle = if plant == Some(Plant::SettleZero) { Duration::ZERO } else { leader::Times::W8.settle };
    Params {
        informer: informer_params(upstream),
        discovery: discovery::Params {
            load_balancers: looked_at(settings),
            internal: BTreeSet::new(),
            interval: seconds(60),
        },
        directory: directory::Params {
            removal_delay: seconds(if guarded { 30 } else { 0 }),
            empty_confirm: seconds(if guarded { EMPTY_CONFIRM_US / 1_000_000 } else { 0 }),
            guards: if guarded { GuardMode::Enforce } else { GuardMode::Off },
            max_removal: Fraction::millionths(fraction),
            cluster_name: Arc::from("kubernetes"),
            pins: None,
            listed: listings(settings),
            only_listed: only_listed(settings),
            dry_run: false,
        },
        queue: queue_params(plant, upstream),
        writer: writer::Params {
            turns: 64,
            if_match: true,
            etag_rounds: if upstream { 1 } else { 3 },
            client_retries: 3,
            dry_run: false,
            lease: Some(LeaseParams {
                holder: Arc::from(OURS),
                max_hold: seconds(20),
                min_cooldown: seconds(5),
                bypass_for_drain: settings.bypass_for_drain || plant == Some(Plant::BypassUnasked),
            }),
            rate_limit: settings.rate_limit.filter(|_| plant != Some(Plant::RateLimitIgnored)),
            retry_throttled: upstream,
            gates_delay_grants: !upstream,
            throttling: if upstream { Throttling::Upstream } else { Throttling::Bounded },
            breaker: !upstream,
            min_interval: if upstream { TICK } else { seconds(5) },
            writes_per_5_minutes: settings.writes_per_5_minutes * times,
            reads_per_5_minutes: settings.reads_per_5_minutes * times,
            network: Some(NetworkId::new(ccm::NETWORK)),
        },
        pauses: pauses::Params {
            mode: model::policy::Mode::Enforce,
            storage: pauses::PauseStorage::ConfigMap,
            effect: pauses::PauseEffect::Pauses,
        },
        admin_state: admin_state_params(settings),
        leader: leader::Params {
            identity,
            election: leader::LeaderElection::Enabled(leader::Times { settle, ..leader::Times::W8 }),
        },
        events: events::Params { capacity: 1_000, per_second: 10, burst: 100 },
        xds_source: following(settings),
        facts_pile_up: plant == Some(Plant::FactsPileUp),
    }
}

/// Returns the pools that control planes fill.
fn listings(settings: Settings) -> Vec<Listing> {
    let listing = |listed: &Listed| Listing {
        pool: PoolId::new(LbName::new(BALANCER), PoolName::new(listed.pool)),
        source: source_of(listed),
        family: listed.family,
        membership: membership::Params {
            admin_states: if settings.admin_state_off { AdminStates::Off } else { AdminStates::On },
            ..membership::Params::default()
        },
    };
    settings.planes.iter().flat_map(|_| LISTED.iter().map(listing)).collect()
}

fn source_of(listed: &Listed) -> Name {
    Name::parse(listed.source).expect("it names a source")
}

/// Returns the load balancers that only such pools name.
fn only_listed(settings: Settings) -> BTreeSet<LbName> {
    settings.planes.iter().map(|_| LbName::new(BALANCER)).collect()
}

/// Returns the parameters of the xDS source machine for these pools.
fn following(settings: Settings) -> xds_source::Params {
    let servers = settings.planes.map(Features::named).unwrap_or_default();
    xds_source::Params {
        client: client::Params {
            servers,
            backoff: ExponentialBackoff::STREAMS,
            nack_pace: ExponentialBackoff::NACKS,
        },
        node_id: Arc::from("backend-pools"),
        sources: settings.planes.iter().flat_map(|_| LISTED.iter().map(source_of)).collect(),
    }
}

fn admin_state_params(settings: Settings) -> nodes::Params {
    let (on, off) = (model::node::Role::On, model::node::Role::Off);
    nodes::Params {
        role: if settings.admin_state_off { off } else { on },
        load_balancers: looked_at(settings),
        excluded: BTreeSet::from([PoolName::new(ccm::EXCLUDED)]),
        only_listed: only_listed(settings),
        listed: listings(settings).into_iter().map(|listing| listing.pool).collect(),
        max_backoff: Duration::from_secs(15),
        storage: nodes::RecordStorage::ConfigMap,
    }
}

/// Returns the load balancers of the cloud-controller-manager.
pub fn used(settings: Settings) -> Vec<LbName> {
    (0..settings.balancers).map(|number| LbName::new(ccm::balancer(number))).collect()
}

/// Returns the load balancers that are read: those for which ARM never answers first, those of control planes last.
fn looked_at(settings: Settings) -> Vec<LbName> {
    unanswered_balancers(settings).chain(used(settings)).chain(only_listed(settings)).collect()
}

/// Returns the unused load balancers for which ARM never answers.
pub fn unanswered_balancers(settings: Settings) -> impl Iterator<Item = LbName> {
    (0..settings.unanswered_balancers).map(|number| LbName::new(format!("silent-{number}")))
}

fn informer_params(upstream: bool) -> informer::Params {
    informer::Params {
        counts: Counts::Hosted,
        multi_slb: true,
        namespaces: BTreeSet::new(),
        selector: Selector::default(),
        last_known_for: Duration::from_secs(300),
        fail_on_data_errors: false,
        control_plane: false,
        per_family: !upstream,
    }
}

fn queue_params(plant: Option<Plant>, upstream: bool) -> queue::Params {
    let max_retries = if plant == Some(Plant::RetriesUnlimited) { 1_000 } else { MAX_RETRIES };
    if upstream {
        return queue::Params::upstream(TICK, max_retries);
    }
    let seconds = Duration::from_secs;
    queue::Params {
        quiet_period: Duration::from_millis(500),
        max_delay: seconds(2),
        min_interval: seconds(5),
        retry_interval: TICK,
        max_retries,
        after_failure: Some(seconds(60)),
        drift: true,
        compare_after_stale: true,
        contention_backoff: true,
    }
}
