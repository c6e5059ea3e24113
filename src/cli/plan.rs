//! The changes that the controller would make, with their reasons, computed from one snapshot: for the export of a dry
//! run (C4), and for the findings of `check` about Services, pools and sources.

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use actors::clock::Clock;
use model::assignment::{HeldReason, PausedBy};
use model::ids::{Family, PoolId};
use model::level::Source;
use model::redact::Printable;
use model::view::{Candidacy, ExcludedNodeView, PoolView, Snapshot};
use pool_core::comparison::Comparison;
use serde::Serialize;

pub(super) use self::sources::Source as XdsSource;

/// The version of the JSON format; each change that a reader may notice increases it.
const SCHEMA_VERSION: u32 = 1;

/// The planned changes, as the export has them.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
pub(super) struct Plan {
    schema_version: u32,
    version: &'static str,
    /// When the snapshot was made (RFC 3339).
    at: String,
    /// Whether everything was compared and every removal is certain.
    pub(super) complete: bool,
    summary: Summary,
    pub(super) pools: Vec<Pool>,
    pub(super) not_manageable: Vec<NotManageable>,
    /// Services that should have a pool and have none, and those with incomplete data.
    pub(super) services: Vec<Service>,
    load_balancers: Vec<Balancer>,
    /// The xDS sources of pools.
    pub(super) sources: Vec<XdsSource>,
}

#[derive(Serialize, Default, Debug)]
#[serde(rename_all = "camelCase")]
struct Summary {
    pools: usize,
    /// Pools that would be written now.
    would_change: usize,
    add: usize,
    remove: usize,
    /// Admin states that would be set to `Down`.
    down: usize,
    /// Admin states that would be set back to `None`.
    restore: usize,
    held: usize,
    paused: usize,
    not_compared: usize,
    not_manageable: usize,
    /// Candidate Services without a pool.
    without_pool: usize,
    /// Sources that never sent anything, so that their pools are left as they are.
    unknown_sources: usize,
}

#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pool {
    load_balancer: String,
    backend_pool: String,
    family: &'static str,
    services: Vec<String>,
    /// The xDS source of its members; null: its Services.
    source: Option<String>,
    state: &'static str,
    provenance: &'static str,
    paused: bool,
    /// Whether the pool was compared at least once.
    compared: bool,
    observed: Option<BTreeSet<IpAddr>>,
    required: BTreeMap<IpAddr, String>,
    tolerated: BTreeSet<IpAddr>,
    add: Vec<IpAddr>,
    remove: Vec<IpAddr>,
    /// Members whose admin state would become `Down`, because the pool's source reports them as draining.
    down: BTreeSet<IpAddr>,
    /// Members whose admin state would be `None` again.
    restore: BTreeSet<IpAddr>,
    held: Option<HeldRemoval>,
    reasons: Vec<String>,
    pub(super) last_error: Option<String>,
}

#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
struct HeldRemoval {
    reason: &'static str,
    members: BTreeSet<IpAddr>,
    /// What ends the hold: `time`, `second_read` or `facts`; an operator can end it too.
    waits_for: &'static str,
    /// The earliest time at which the hold ends by itself (RFC 3339); null: only new facts or an operator end it.
    until: Option<String>,
}

#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
pub(super) struct NotManageable {
    load_balancer: String,
    backend_pool: String,
    /// The Service of the pool; null: the pool has an xDS source.
    pub(super) service: Option<String>,
    /// The xDS source of the pool; null: none.
    source: Option<String>,
    pub(super) reason: &'static str,
    pub(super) detail: String,
}

#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
pub(super) struct Service {
    pub(super) service: String,
    pub(super) has_pool: bool,
    data_errors: Vec<String>,
}

#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
struct Balancer {
    name: String,
    exists: Option<bool>,
    pools: usize,
    last_error: Option<String>,
}

impl Plan {
    /// Returns the plan for the last snapshot. `complete`: everything was compared, and every removal is certain.
    pub(super) fn of(comparison: &Comparison, complete: bool, clock: Clock) -> Plan {
        let (snapshot, compared) = (&**comparison.snapshot(), comparison.compared());
        let time = |at| format!("{:.3}", clock.timestamp_of(at));
        let pools: Vec<Pool> = snapshot
            .pools
            .values()
            .map(|pool| Pool {
                held: pool.held.as_ref().map(|held| HeldRemoval {
                    reason: held.reason.as_str(),
                    members: held.members.clone(),
                    waits_for: held.waits.as_str(),
                    until: held.waits.earliest().map(time),
                }),
                ..Pool::of(pool, compared.has(&pool.pool), &snapshot.excluded_nodes_of(pool))
            })
            .collect();
        let (not_manageable, services) = (not_manageable(comparison), services(snapshot));
        let sources = XdsSource::all(comparison);
        Plan {
            schema_version: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            at: time(snapshot.at),
            complete,
            summary: Summary {
                not_manageable: not_manageable.len(),
                without_pool: services.iter().filter(|service| !service.has_pool).count(),
                unknown_sources: sources.iter().filter(|source| source.is_unknown()).count(),
                ..Summary::of(&pools)
            },
            pools,
            not_manageable,
            services,
            load_balancers: balancers(snapshot),
            sources,
        }
    }

    /// Returns whether something would be written now, or after a guard ends its hold.
    pub(super) fn is_pending(&self) -> bool {
        self.summary.would_change > 0 || self.summary.held > 0
    }

    /// Returns the plan as JSON.
    pub(super) fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("it has texts and numbers alone");
        text + "\n"
    }

    /// Returns the plan as text; pools in sync are counted but not listed.
    pub(super) fn text(&self) -> String {
        let Summary { pools, would_change, add, remove, down, restore, held, paused, .. } = self.summary;
        let Summary { not_compared, not_manageable, without_pool, unknown_sources, .. } = self.summary;
        let mut text = format!(
            "{pools} pools: {would_change} would change (add {add}, remove {remove}{}), {held} held, {paused} paused, \
             {not_compared} not compared; {not_manageable} not manageable; {without_pool} Services without a pool{}\n",
            if self.sources.is_empty() {
                String::new()
            } else {
                format!(", set {down} Down, set {restore} back")
            },
            if self.sources.is_empty() {
                String::new()
            } else {
                format!("; {unknown_sources} sources unknown")
            }
        );
        if !self.complete {
            text += "incomplete: not everything was compared, or members.removalDelay is not over\n";
        }
        for Balancer { name, last_error, .. } in &self.load_balancers {
            if let Some(error) = last_error {
                text += &format!("\nload balancer {name}\n  could not be read: {}\n", Printable::line(error));
            }
        }
        for pool in self.pools.iter().filter(|pool| pool.is_listed()) {
            let head = format!(
                "{} ({}), {}",
                pool.name(),
                pool.source.clone().unwrap_or_else(|| pool.services.join(", ")),
                pool.state
            );
            text += &format!("\n{}\n", Printable::line(&head));
            for reason in &pool.reasons {
                text += &format!("  {}\n", Printable::line(reason));
            }
        }
        for refused in &self.not_manageable {
            let (head, detail) = (Printable::line(&refused.name()), Printable::line(&refused.detail));
            text += &format!("\n{head}\n  not written: {detail}\n");
        }
        text += &self.sources.iter().filter_map(XdsSource::text).collect::<String>();
        for Service { service, has_pool, data_errors } in &self.services {
            text += &format!("\n{}\n", Printable::line(service));
            if !has_pool {
                text += "  has no pool: no load-balancing rule of it was found on a managed load balancer\n";
            }
            for error in data_errors {
                text += &format!("  incomplete data: {}\n", Printable::line(error));
            }
        }
        text
    }
}

impl Summary {
    /// Returns the sums over all pools.
    fn of(pools: &[Pool]) -> Summary {
        let mut summary = Summary { pools: pools.len(), ..Summary::default() };
        for pool in pools {
            summary.held += usize::from(pool.held.is_some());
            summary.paused += usize::from(pool.paused);
            summary.not_compared += usize::from(!pool.compared);
            if !pool.paused {
                summary.would_change += usize::from(pool.differs());
                summary.add += pool.add.len();
                summary.remove += pool.remove.len();
                summary.down += pool.down.len();
                summary.restore += pool.restore.len();
            }
        }
        summary
    }
}

impl NotManageable {
    /// Returns the name of the pool, and of the Service or source that it is for.
    pub(super) fn name(&self) -> String {
        let of = self.service.as_deref().or(self.source.as_deref()).unwrap_or_default();
        format!("{}/{} ({of})", self.load_balancer, self.backend_pool)
    }
}

impl Pool {
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.load_balancer, self.backend_pool)
    }

    /// Returns whether the text lists the pool, because it is not in sync.
    fn is_listed(&self) -> bool {
        self.differs() || self.held.is_some() || self.last_error.is_some() || !self.compared
    }

    /// Returns whether a write would change the pool.
    fn differs(&self) -> bool {
        !(self.add.is_empty() && self.remove.is_empty() && self.down.is_empty() && self.restore.is_empty())
    }

    fn of(pool: &PoolView, compared: bool, excluded: &BTreeSet<&ExcludedNodeView>) -> Pool {
        let difference = pool.observed.as_ref().map(|observed| {
            let all = |ips: &mut dyn Iterator<Item = &IpAddr>| ips.copied().collect::<Vec<_>>();
            (all(&mut pool.level.missing(observed)), all(&mut pool.level.surplus(observed)))
        });
        let (add, remove) = difference.unwrap_or_default();
        let paused = is_paused(pool);
        let (down, restore) = pool.states();
        Pool {
            load_balancer: pool.pool.lb.to_string(),
            backend_pool: pool.pool.pool.to_string(),
            family: match pool.family {
                Family::V4 => "IPv4",
                Family::V6 => "IPv6",
            },
            services: pool
                .services
                .values()
                .filter(|key| key.is_service())
                .map(ToString::to_string)
                .collect(),
            source: source(pool),
            state: pool.state.as_str(),
            provenance: pool.provenance.as_str(),
            paused,
            compared,
            observed: pool.observed.clone(),
            required: pool.level.required.iter().map(|(ip, member)| (*ip, member.name.to_string())).collect(),
            tolerated: pool.level.tolerated.clone(),
            reasons: reasons(pool, compared, (&add, &remove), excluded),
            add,
            remove,
            down,
            restore,
            held: None,
            last_error: pool.last_error.as_ref().map(ToString::to_string),
        }
    }
}

/// Returns the xDS source of a pool, if it has one.
fn source(pool: &PoolView) -> Option<String> {
    match &pool.source {
        Source::Kubernetes => None,
        Source::Xds { name, .. } => Some(name.to_string()),
    }
}

/// Returns a text for each member that would be added or removed, with the reason.
fn differences(
    pool: &PoolView,
    (add, remove): (&[IpAddr], &[IpAddr]),
    excluded: &BTreeSet<&ExcludedNodeView>,
) -> Vec<String> {
    if let Some(source) = source(pool) {
        let added = add.iter().map(|ip| format!("add {ip}: {source} assigns it"));
        let removed = remove.iter().map(|ip| format!("remove {ip}: {source} does not assign it"));
        let (down, restore) = pool.states();
        let down = down.iter().map(|ip| format!("set {ip} Down: {source} reports it as draining"));
        let restore = restore
            .iter()
            .map(|ip| format!("set {ip} back to None: {source} no longer reports it as draining"));
        return added.chain(removed).chain(down).chain(restore).collect();
    }
    let services = pool.services.values().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    let node = |ip: &IpAddr| pool.level.required.get(ip).map_or("", |member| member.name.as_str());
    let added = add.iter().map(|ip| format!("add {ip}: node {} hosts an endpoint of {services}", node(ip)));
    let gone = |ip: &IpAddr| match excluded.iter().find(|of| of.ips.contains(ip)) {
        Some(ExcludedNodeView { node, why, .. }) => {
            format!("remove {ip}: node {node} is excluded, because {why}")
        }
        None => format!("remove {ip}: no node with this address hosts an endpoint of {services}"),
    };
    let others = excluded.iter().filter(|of| !remove.iter().any(|ip| of.ips.contains(ip)));
    let others = others.map(|of| format!("exclude node {}: {}", of.node, of.why));
    added.chain(remove.iter().map(gone)).chain(others).collect()
}

/// Returns a text for each member that would be added or removed, and for those that stay, with the reason.
fn reasons(
    pool: &PoolView,
    compared: bool,
    (add, remove): (&[IpAddr], &[IpAddr]),
    excluded: &BTreeSet<&ExcludedNodeView>,
) -> Vec<String> {
    let mut reasons = differences(pool, (add, remove), excluded);
    if let Some(held) = &pool.held {
        let members: Vec<String> = held.members.iter().map(ToString::to_string).collect();
        let reason = match held.reason {
            HeldReason::EmptyConfirm => {
                "it is not yet confirmed that no endpoint is left (guards.emptyConfirm)"
            }
            HeldReason::NoUsableNode => {
                "there are endpoints, but none can be used, or their data is incomplete"
            }
            HeldReason::LastMember => {
                "there are endpoints, but none counts, and the pool has no other member"
            }
            HeldReason::Fraction => {
                "too large a part of the pool would be removed, and this is not yet confirmed \
                 (guards.maxRemovalFraction)"
            }
            HeldReason::Breaker => "too many pools would lose most of their members at the same time",
            HeldReason::AddOnly => "the mode is add-only, which removes nothing",
        };
        reasons.push(format!("hold {}: {reason}", members.join(", ")));
    }
    let stays = |ip: &&IpAddr| {
        pool.level.tolerated.contains(ip) && !pool.held.as_ref().is_some_and(|held| held.members.contains(ip))
    };
    let reason = match &pool.source {
        Source::Kubernetes => {
            "its node has an endpoint that does not count, is excluded, or had an endpoint until recently"
                .to_owned()
        }
        Source::Xds { name, .. } => format!("{name} reports it as draining, or assigned it until recently"),
    };
    for ip in pool.observed.iter().flatten().filter(stays) {
        reasons.push(format!("keep {ip}: it may stay, because {reason}"));
    }
    let (down, restore) = pool.states();
    let differs = !(add.is_empty() && remove.is_empty() && down.is_empty() && restore.is_empty());
    for paused in pool.paused.iter().filter(|_| differs) {
        reasons.push(match paused {
            PausedBy::Mode => "`run` would write nothing: the mode is observe".to_owned(),
            PausedBy::Everything => "nothing is written: everything is paused".to_owned(),
            PausedBy::Pool => "nothing is written: the pool is paused".to_owned(),
            PausedBy::NotInRestore => "nothing is written: the pool is not part of this restore".to_owned(),
            PausedBy::Service(key) => format!("nothing is written: Service {key} is paused"),
            PausedBy::Annotation(key) => {
                format!("nothing is written: Service {key} has the pause annotation")
            }
        });
    }
    if let Some(error) = &pool.last_error {
        reasons.push(format!("last error: {error}"));
    }
    if !compared {
        reasons.push("not compared yet".to_owned());
    }
    reasons
}

fn not_manageable(comparison: &Comparison) -> Vec<NotManageable> {
    let snapshot = &**comparison.snapshot();
    let refused = |PoolId { lb, pool }: &PoolId, why: &model::error::NotManageable| NotManageable {
        load_balancer: lb.to_string(),
        backend_pool: pool.to_string(),
        service: None,
        source: None,
        reason: why.label().0,
        detail: why.to_string(),
    };
    let of_services = snapshot.services.values().flat_map(|service| {
        // A listed pool is reported under its source, even if a Service has a rule for it.
        let own = service.not_manageable.iter().filter(|(id, _)| !snapshot.refused.contains_key(id));
        own.map(|(id, why)| NotManageable { service: Some(service.key.to_string()), ..refused(id, why) })
    });
    let of_sources = snapshot.refused.iter().map(|(id, why)| NotManageable {
        source: comparison.source_of(id).map(ToString::to_string),
        ..refused(id, why)
    });
    of_services.chain(of_sources).collect()
}

fn services(snapshot: &Snapshot) -> Vec<Service> {
    let candidates = snapshot.services.values().filter(|service| match service.candidacy {
        Candidacy::Candidate => true,
        Candidacy::NotLoadBalancer
        | Candidacy::NotMultiSlb
        | Candidacy::NotLocal
        | Candidacy::Deleting
        | Candidacy::NotSelected => false,
    });
    let services = candidates.map(|service| Service {
        service: service.key.to_string(),
        has_pool: !service.pools.is_empty() || !service.not_manageable.is_empty(),
        data_errors: service.data_errors.iter().map(ToString::to_string).collect(),
    });
    services.filter(|service| !service.has_pool || !service.data_errors.is_empty()).collect()
}

fn balancers(snapshot: &Snapshot) -> Vec<Balancer> {
    let balancer = |lb: &model::view::LbView| Balancer {
        name: lb.lb.to_string(),
        exists: lb.exists,
        pools: lb.pools,
        last_error: lb.last_error.as_ref().map(ToString::to_string),
    };
    snapshot.load_balancers.values().map(|lb| balancer(lb)).collect()
}

/// Returns whether an operator has paused the pool. The mode does not count: in mode `observe`, the plan must show what
/// would change.
fn is_paused(pool: &PoolView) -> bool {
    pool.paused.iter().any(|paused| match paused {
        PausedBy::Everything | PausedBy::Pool | PausedBy::Service(_) | PausedBy::Annotation(_) => true,
        PausedBy::Mode | PausedBy::NotInRestore => false,
    })
}
