//! Maps the configuration to the parameters of machines and clients; machines never see the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actors::clock::Clock;
use actors::kubernetes::{LeaseNames, NamespacedName};
use actors::recorder::CloudLabels;
use config::{
    Compatibility, Config, ExposeSecret, GuardsMode, Identity, IpFamily, Login, ManagedIdentity, MembersAdd,
    Mode, ObjectName, SecretString,
};
use coordination::{leader, pauses};
use model::guard::{Fraction, GuardMode};
use model::ids::{Family, LbName, NetworkId, PoolId, PoolName};
use model::machine::Wall;
use model::pins::Pins;
use model::policy;
use model::xds::name::Name;
use pools::directory::Listing;
use pools::membership::{self, AdminStates};
use pools::{directory, discovery, queue};
use reporting::events;
use sources::informer::{Counts, Requirement, Selector};
use sources::xds::client::{self, ExponentialBackoff};
use sources::{informer, xds_source};
use xds::Bootstrap;

/// The time for which a node's last known address is tolerated (D6).
const LAST_KNOWN_FOR: Duration = Duration::from_secs(300);
/// The maximum number of queued events (E1).
const MAX_QUEUED_EVENTS: usize = 1_000;
/// The maximum rate of events (E1).
const EVENTS_PER_SECOND: u32 = 10;
/// The maximum burst of events (E1).
const EVENT_BURST: u32 = 100;

/// Default of `userAgent`, the User-Agent of requests to ARM.
const USER_AGENT: &str = concat!("azure-backend-pool-controller/", env!("CARGO_PKG_VERSION"));

/// The parameters of all machines.
#[derive(Clone, Debug)]
pub struct Machines {
    /// Parameters of the Informer.
    pub informer: informer::Params,
    /// Parameters of Discovery.
    pub discovery: discovery::Params,
    /// Parameters of the Directory.
    pub directory: directory::Params,
    /// Parameters of every pool.
    pub queue: queue::Params,
    /// Parameters of the Writer.
    pub writer: writer::Params,
    /// Parameters of the admin state.
    pub admin_state: nodes::Params,
    /// Parameters of the Leader.
    pub leader: leader::Params,
    /// Parameters of the pauses.
    pub pauses: pauses::Params,
    /// Parameters of the event emitter.
    pub events: events::Params,
    /// Parameters of the xDS sources.
    pub xds_source: xds_source::Params,
}

/// The identity and kind of this process.
#[derive(Clone, Debug)]
pub struct Instance {
    /// A name that is unique among all replicas and restarts.
    pub identity: Arc<str>,
    /// Whether the process writes nothing (C4).
    pub dry_run: bool,
}

/// Returns the parameters of the machines for this configuration.
#[must_use]
pub fn machines(config: &Config, instance: &Instance) -> Machines {
    let controller = &config.controller;
    let listed = listings(config);
    let load_balancers = load_balancers(config);
    Machines {
        informer: informer::Params {
            counts: match controller.members.add {
                MembersAdd::Hosted => Counts::Hosted,
                MembersAdd::Serving => Counts::Serving,
                MembersAdd::Ready => Counts::Ready,
            },
            multi_slb: config.cloud.uses_multiple_load_balancers(),
            namespaces: controller.services.namespaces.iter().map(|name| Arc::from(name.as_str())).collect(),
            selector: selector(&controller.services.selector),
            last_known_for: LAST_KNOWN_FOR,
            fail_on_data_errors: controller.sources_kubernetes.fail_on_data_errors,
            control_plane: !config.cloud.excludes_control_plane(),
            per_family: exceeds_upstream(config),
        },
        discovery: discovery::Params {
            load_balancers: load_balancers.clone(),
            internal: internal(config),
            interval: controller.discovery.interval,
        },
        directory: directory::Params {
            removal_delay: controller.members.removal_delay,
            empty_confirm: empty_confirm(config),
            guards: match controller.guards.mode {
                GuardsMode::Enforce => GuardMode::Enforce,
                GuardsMode::Observe => GuardMode::Observe,
                GuardsMode::Off => GuardMode::Off,
            },
            max_removal: Fraction::millionths(controller.guards.max_removal_fraction.millionths()),
            cluster_name: Arc::from(controller.cluster_name.as_str()),
            pins: None,
            only_listed: only_listed(config),
            listed: listed.clone(),
            dry_run: instance.dry_run,
        },
        queue: queue(config),
        writer: writer(config, instance),
        admin_state: admin_state(config, instance, load_balancers, &listed),
        leader: leader::Params {
            identity: Arc::clone(&instance.identity),
            election: if instance.dry_run {
                leader::LeaderElection::Disabled
            } else {
                leader::LeaderElection::Enabled(leader::Times::W8)
            },
        },
        pauses: pauses::Params {
            mode: match controller.mode {
                Mode::Observe => policy::Mode::Observe,
                Mode::AddOnly => policy::Mode::AddOnly,
                Mode::Enforce => policy::Mode::Enforce,
            },
            storage: if instance.dry_run {
                pauses::PauseStorage::Nothing
            } else {
                pauses::PauseStorage::ConfigMap
            },
            effect: pauses::PauseEffect::Pauses,
        },
        events: events::Params {
            capacity: MAX_QUEUED_EVENTS,
            per_second: EVENTS_PER_SECOND,
            burst: EVENT_BURST,
        },
        xds_source: xds_source_params(BTreeSet::new(), None),
    }
}

/// Parameters of a restore.
#[derive(Clone, Debug)]
pub struct Restoring {
    /// The pre-images to restore.
    pub pins: Arc<Pins>,
    /// Whether the process writes only while everything is paused for all other processes.
    pub pauses: bool,
    /// Whether the operator has named the pools, so that they are restored even if they are paused.
    pub named: bool,
}

impl Machines {
    /// Makes the machines restore pre-images. The configured mode has no effect, because it limits only changes without
    /// an operator. The start of the command is not recorded.
    #[must_use]
    pub fn restoring(mut self, restoring: &Restoring) -> Machines {
        self.directory.pins = Some(Arc::clone(&restoring.pins));
        self.admin_state.role = model::node::Role::Silent;
        self.pauses.mode = policy::Mode::Enforce;
        // A dry run reads the ConfigMap too, so that the operator sees what is paused.
        self.pauses.storage = pauses::PauseStorage::ConfigMap;
        self.pauses.effect = pauses::PauseEffect::Restoring(pauses::Restoring {
            requires_global_pause: restoring.pauses,
            respects_narrow_pauses: !restoring.named,
        });
        self
    }

    /// Makes the machines follow the sources of the configured pools on the control planes of this bootstrap. Without a
    /// bootstrap, no control plane is contacted.
    #[must_use]
    pub fn with_bootstrap(mut self, bootstrap: Option<&Bootstrap>) -> Machines {
        let sources = self.directory.listed.iter().map(|listing| listing.source.clone()).collect();
        self.xds_source = xds_source_params(sources, bootstrap);
        self
    }

    /// Makes the machines ignore the admin state of nodes, for a process that ends once everything was compared.
    #[must_use]
    pub fn for_comparison(mut self) -> Machines {
        self.admin_state.role = model::node::Role::Silent;
        self
    }
}

/// Returns the load balancers that are read, each once: the managed ones, and those of pools with an xDS source (X2).
#[must_use]
pub fn load_balancers(config: &Config) -> Vec<LbName> {
    let mut all: Vec<LbName> = config.managed_load_balancers().into_iter().map(LbName::new).collect();
    for pool in &config.controller.pools {
        let name = LbName::new(pool.load_balancer.as_str());
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// Returns the load balancers that only internal Services use: those that the cloud-controller-manager creates for
/// them, unless a pool with an xDS source is on them too.
fn internal(config: &Config) -> BTreeSet<LbName> {
    let managed = config.managed_load_balancers().into_iter();
    let mut internal: BTreeSet<LbName> =
        managed.filter(|name| name.to_ascii_lowercase().ends_with("-internal")).map(LbName::new).collect();
    for pool in &config.controller.pools {
        internal.remove(&LbName::new(pool.load_balancer.as_str()));
    }
    internal
}

/// Returns the load balancers that are not managed and are named only by pools with an xDS source.
fn only_listed(config: &Config) -> BTreeSet<LbName> {
    let managed: BTreeSet<LbName> = config.managed_load_balancers().into_iter().map(LbName::new).collect();
    load_balancers(config).into_iter().filter(|lb| !managed.contains(lb)).collect()
}

/// Returns the pools with an xDS source. Draining endpoints are set to Down if the admin state of nodes is on and the
/// pool is not excluded from it; else they are no members.
fn listings(config: &Config) -> Vec<Listing> {
    let excluded_pools: Vec<PoolName> = excluded_pools(config).collect();
    let listing = |pool: &config::ListedPool| {
        let name = PoolName::new(pool.backend_pool.as_str());
        let membership = membership::Params {
            admin_states: match (excluded_pools.contains(&name), config.cloud.admin_state_enabled()) {
                (true, _) => AdminStates::Excluded,
                (false, true) => AdminStates::On,
                (false, false) => AdminStates::Off,
            },
            failback: config.controller.xds.failback,
            ..membership::Params::default()
        };
        Listing {
            pool: PoolId::new(LbName::new(pool.load_balancer.as_str()), name),
            source: Name::parse(&pool.source).expect("the configuration holds no other names of sources"),
            family: match pool.family {
                IpFamily::V4 => Family::V4,
                IpFamily::V6 => Family::V6,
            },
            membership,
        }
    };
    config.controller.pools.iter().map(listing).collect()
}

/// Returns the source of each pool with an xDS source (X2).
#[must_use]
pub fn sources(config: &Config) -> BTreeMap<PoolId, Name> {
    listings(config).into_iter().map(|listing| (listing.pool, listing.source)).collect()
}

/// Returns the pools of each xDS source (X2).
#[must_use]
pub fn pools_by_source(config: &Config) -> BTreeMap<Name, BTreeSet<PoolId>> {
    let mut pools: BTreeMap<Name, BTreeSet<PoolId>> = BTreeMap::new();
    for (pool, source) in sources(config) {
        pools.entry(source).or_default().insert(pool);
    }
    pools
}

fn excluded_pools(config: &Config) -> impl Iterator<Item = PoolName> {
    config.controller.admin_state.exclude_pools.iter().map(|name| PoolName::new(name.as_str()))
}

/// Returns the parameters of the xDS sources.
fn xds_source_params(sources: BTreeSet<Name>, bootstrap: Option<&Bootstrap>) -> xds_source::Params {
    let servers = bootstrap.map(Bootstrap::servers).unwrap_or_default();
    xds_source::Params {
        client: client::Params {
            servers,
            backoff: ExponentialBackoff::STREAMS,
            nack_pace: ExponentialBackoff::NACKS,
        },
        node_id: Arc::from(bootstrap.map_or("", Bootstrap::node_id)),
        sources: if bootstrap.is_some() { sources } else { BTreeSet::new() },
    }
}

/// Returns whether behaviour beyond that of S0 is enabled (C2).
fn exceeds_upstream(config: &Config) -> bool {
    match config.controller.compatibility {
        Compatibility::Default => true,
        Compatibility::Upstream => false,
    }
}

/// Returns the time for which a pool must have no endpoint before it is emptied: zero if the guards are off, unless
/// S0's profile has switched them off and the time is set (C2).
fn empty_confirm(config: &Config) -> Duration {
    match (config.controller.guards.mode, config.controller.compatibility) {
        (GuardsMode::Off, Compatibility::Default) => Duration::ZERO,
        (GuardsMode::Enforce | GuardsMode::Observe | GuardsMode::Off, _) => {
            config.controller.guards.empty_confirm
        }
    }
}

fn queue(config: &Config) -> queue::Params {
    let batching = &config.controller.batching;
    let after_failure = config.controller.resync.after_failure;
    let (max_retries, exceeds_upstream) = (config.cloud.max_retries(), exceeds_upstream(config));
    queue::Params {
        quiet_period: batching.quiet_period,
        max_delay: batching.max_delay,
        min_interval: batching.min_interval,
        retry_interval: batching.retry_interval,
        max_retries,
        // Q8: MaxRetries 0 switches the comparison after failure off as well.
        after_failure: (!after_failure.is_zero() && max_retries > 0).then_some(after_failure),
        drift: exceeds_upstream,
        compare_after_stale: exceeds_upstream,
        contention_backoff: exceeds_upstream,
    }
}

fn writer(config: &Config, instance: &Instance) -> writer::Params {
    let (controller, exceeds_upstream) = (&config.controller, exceeds_upstream(config));
    let lease = writer::LeaseParams {
        // The same for all replicas, and different from the cloud-controller-manager's (W7).
        holder: Arc::from(events::COMPONENT),
        max_hold: controller.lease.max_hold,
        min_cooldown: controller.lease.min_cooldown,
        bypass_for_drain: controller.lease.bypass_for_drain,
    };
    let limit = |limit: config::RateLimit| writer::RateLimit {
        reads_per_second: limit.reads_per_second,
        reads_at_once: limit.read_burst,
        writes_per_second: limit.writes_per_second,
        writes_at_once: limit.write_burst,
    };
    writer::Params {
        turns: usize::try_from(controller.writer.max_concurrent_load_balancers).unwrap_or(usize::MAX),
        if_match: controller.writer.if_match,
        etag_rounds: controller.writer.etag_rounds,
        client_retries: config.cloud.client_retries(),
        writes_per_5_minutes: controller.budget.writes_per_5_minutes,
        reads_per_5_minutes: controller.budget.reads_per_5_minutes,
        network: config.cloud.vnet_id().map(NetworkId::new),
        lease: (!instance.dry_run).then_some(lease),
        dry_run: instance.dry_run,
        rate_limit: config.cloud.rate_limit().map(limit),
        retry_throttled: controller.client.retry_throttled,
        gates_delay_grants: exceeds_upstream,
        throttling: if exceeds_upstream { writer::Throttling::Bounded } else { writer::Throttling::Upstream },
        breaker: exceeds_upstream,
        min_interval: controller.batching.min_interval,
    }
}

fn admin_state(
    config: &Config,
    instance: &Instance,
    load_balancers: Vec<LbName>,
    listed: &[Listing],
) -> nodes::Params {
    let settings = &config.controller.admin_state;
    nodes::Params {
        role: if config.cloud.admin_state_enabled() { model::node::Role::On } else { model::node::Role::Off },
        only_listed: only_listed(config),
        load_balancers,
        excluded: excluded_pools(config).collect(),
        listed: listed.iter().map(|listing| listing.pool.clone()).collect(),
        max_backoff: settings.max_backoff,
        storage: if instance.dry_run {
            nodes::RecordStorage::Nothing
        } else {
            nodes::RecordStorage::ConfigMap
        },
    }
}

/// Returns the names of both Leases.
#[must_use]
pub fn leases(config: &Config) -> LeaseNames {
    let name_of = |namespace: &ObjectName, name: &ObjectName| NamespacedName {
        namespace: Arc::from(namespace.as_str()),
        name: Arc::from(name.as_str()),
    };
    let (own, shared) = (&config.controller.leader_election, &config.controller.lease);
    LeaseNames { own: name_of(&own.namespace, &own.name), shared: name_of(&shared.namespace, &shared.name) }
}

fn selector(text: &config::LabelSelector) -> Selector {
    let values = |values: &[String]| values.iter().map(|value| Arc::from(value.as_str())).collect();
    let requirements = text.requirements().iter().map(|requirement| match requirement {
        config::Requirement::Exists(key) => Requirement::Exists(Arc::from(key.as_str())),
        config::Requirement::Absent(key) => Requirement::Absent(Arc::from(key.as_str())),
        config::Requirement::In(key, all) => Requirement::In(Arc::from(key.as_str()), values(all)),
        config::Requirement::NotIn(key, all) => Requirement::NotIn(Arc::from(key.as_str()), values(all)),
    });
    Selector(requirements.collect())
}

/// Returns the labels of upstream's metric series.
#[must_use]
pub fn labels(config: &Config) -> CloudLabels {
    CloudLabels {
        resource_group: Arc::from(config.cloud.load_balancer_resource_group().to_lowercase()),
        subscription_id: Arc::from(config.cloud.network_subscription()),
    }
}

/// Returns the settings of the ARM client.
#[must_use]
pub fn arm(config: &Config, clock: Clock) -> arm::Settings {
    arm::Settings {
        endpoint: config.cloud.arm_endpoint().clone(),
        subscription: config.cloud.network_subscription().to_owned(),
        resource_group: config.cloud.load_balancer_resource_group().to_owned(),
        api_version: config.controller.client.api_version.as_str().to_owned(),
        identity: identity(&config.identity),
        login: login(&config.login),
        user_agent: config.cloud.user_agent().unwrap_or(USER_AGENT).to_owned(),
        timeouts: arm::Timeouts::default(),
        clocks: arm::Clocks {
            now: Arc::new(move || clock.now()),
            wall: Arc::new(move || Wall::from_micros(clock.wall().as_microsecond())),
        },
    }
}

fn identity(identity: &Identity) -> arm::Identity {
    match identity.clone() {
        Identity::Anonymous => arm::Identity::Anonymous,
        Identity::WorkloadIdentity { tenant_id: tenant, client_id, token_file } => {
            arm::Identity::WorkloadIdentity { tenant, client_id, token_file }
        }
        Identity::Managed(which) => arm::Identity::Managed(match which {
            ManagedIdentity::SystemAssigned => arm::ManagedIdentity::SystemAssigned,
            ManagedIdentity::ClientId(id) => arm::ManagedIdentity::ClientId(id),
            ManagedIdentity::ResourceId(id) => arm::ManagedIdentity::ResourceId(id),
        }),
        Identity::ClientSecret { tenant_id: tenant, client_id, secret } => {
            arm::Identity::ClientSecret { tenant, client_id, secret: to_secret(&secret) }
        }
        Identity::ClientCertificate { tenant_id: tenant, client_id, path, password } => {
            let password = password.as_ref().map(to_secret);
            arm::Identity::ClientCertificate { tenant, client_id, path, password }
        }
    }
}

fn to_secret(secret: &SecretString) -> arm::Secret {
    arm::Secret::new(secret.expose_secret().to_owned())
}

fn login(login: &Login) -> arm::Login {
    match login {
        Login::Known { authority_host, audience } => {
            arm::Login::Known { authority_host: authority_host.to_string(), audience: audience.clone() }
        }
        Login::Metadata { document, cloud, authority_host } => arm::Login::Metadata {
            document: document.clone(),
            cloud: cloud.clone(),
            authority_host: authority_host.as_ref().map(ToString::to_string),
        },
    }
}

#[cfg(test)]
mod tests;
