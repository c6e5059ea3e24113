//! Pools in the admin API: in lists, with all details, and with the removals that are held back. Also the guards.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::assignment;
use model::ids::PoolId;
use model::level::Source;
use model::policy::Pause;
use model::view::{self, ExcludedNodeView, GuardsView, PoolView, Snapshot};
use model::write_record::{self, MemberList, WriteRecord};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::enums;
use super::super::values::{Address, Seconds, Time, addresses};
use super::super::verdict::why;
use super::{Show, admin_state_word, family, pause, wall};

/// A pool in a list.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct PoolLine<'a> {
    /// Its load balancer.
    load_balancer: &'a str,
    /// Its name.
    backend_pool: &'a str,
    /// Its state.
    state: enums::PoolState,
    /// How long it has been in that state, in seconds.
    state_seconds: Seconds,
    /// The Services whose pool it is, as namespace/name. None for a pool of an xDS source.
    services: Vec<String>,
    /// `kubernetes`, or the source of an xDS control plane: `eds:…` or `cluster:…`.
    source: String,
    /// Number of required members.
    required: usize,
    /// Number of members at the last read. Null: it was not read yet.
    observed: Option<usize>,
    /// How long its oldest change has waited, in seconds. Null: none waits, or it is paused.
    waiting_seconds: Option<Seconds>,
    /// Since when the pool has been out of sync, across attempts. Null: it is in sync.
    out_of_sync_since: Option<Time>,
    /// How long ago that was, in seconds.
    out_of_sync_seconds: Option<Seconds>,
    /// Whether Azure reports that its last operation on the pool or its load balancer failed.
    provisioning_failed: bool,
    /// Whether the pool may have been out of sync earlier: a read or a new leader found it then.
    out_of_sync_at_least: bool,
    /// Why it is not written now. Null: there is nothing to write, it is being written, or it is its turn.
    blocked_by: Option<enums::BlockedBy>,
    /// When it may continue, in seconds. Null: unknown.
    blocked_for_seconds: Option<Seconds>,
    /// The last error, until an attempt succeeds.
    last_error: Option<&'a str>,
    /// Why it is out of sync, in one sentence. Null: it is in sync.
    why: Option<String>,
    /// The removal that is held back. Null: none is.
    held: Option<Held>,
    /// The removal to which the guards object, and which proceeds. Null: there is none.
    would_hold: Option<Held>,
}

/// A pool in detail.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Pool<'a> {
    #[serde(flatten)]
    #[schema(inline)]
    line: PoolLine<'a>,
    /// The family of its members.
    family: enums::Family,
    /// The nodes with endpoints that are excluded, 100 at most for each Service.
    excluded_nodes: Vec<ExcludedNode<'a>>,
    /// The errors of its xDS source, or else the node id that its control plane receives. Null: it has no such source.
    note: Option<&'a str>,
    /// Diagnostics about the choice of members from the assignment of its xDS source. Null: it has no such source.
    diagnostics: Option<Vec<PoolDiagnostic>>,
    /// How its desired members have reached the controller.
    provenance: enums::Provenance,
    /// Its members.
    members: Members<'a>,
    /// When it was last read. Null: not yet.
    observed_at: Option<Time>,
    /// The attempt in flight. Null: none is.
    attempt: Option<String>,
    /// The retry counts of the changes that wait, by the UID of the Service.
    retries: BTreeMap<String, &'a [u32]>,
    /// How the last attempt ended. Null: there was none yet.
    last_attempt: Option<LastAttempt<'a>>,
    /// What a write would change, if the pool is only compared. Null: nothing, or it is written.
    would_change: Option<PoolWouldChange>,
    /// Number of its lost writes since the start of the process.
    lost_writes: u64,
    /// The pauses that apply to it.
    paused_by: Vec<PausedBy<'a>>,
}

/// The members of a pool.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Members<'a> {
    /// The members that it must have.
    required: Vec<RequiredMember<'a>>,
    /// The members that it may have in addition.
    tolerated: Vec<Address>,
    /// The members that it had when it was last read. Null: it was not read.
    observed: Option<Vec<Address>>,
    /// The admin state of each observed member, by its address.
    admin_states: Option<BTreeMap<String, enums::EntryState>>,
    /// The members that it lacks. Null: it was not read.
    missing: Option<Vec<Address>>,
    /// The members that must be removed. Null: it was not read.
    surplus: Option<Vec<Address>>,
}

/// A member that a pool must have.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RequiredMember<'a> {
    /// Its address.
    ip: Address,
    /// The name of its entry.
    name: &'a str,
    /// Whether its node is Ready.
    node_ready: bool,
}

/// What a write would change in a pool.
#[derive(Serialize, ToSchema)]
struct PoolWouldChange {
    /// The members that it would add.
    add: Vec<Address>,
    /// The members that it would remove.
    remove: Vec<Address>,
}

/// How an attempt of a pool ended, and what it changed.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct LastAttempt<'a> {
    /// How it ended.
    outcome: enums::Outcome,
    /// When it ended.
    at: Option<Time>,
    /// What started it. Null: an attempt that was interrupted.
    trigger: Option<enums::Trigger>,
    /// The Services whose pool it is, as namespace/name. None for a pool of an xDS source.
    services: Vec<String>,
    /// The members that it added.
    added: ChangedMembers<'a>,
    /// The members that it removed.
    removed: ChangedMembers<'a>,
    /// The members whose admin state it set Down.
    down: ChangedMembers<'a>,
    /// The members that are no longer Down.
    restored: ChangedMembers<'a>,
    /// The correlation id of Azure's answer to the write, or to the call that failed. Null: there was no answer, or it had
    /// none.
    correlation_id: Option<&'a str>,
}

/// Members that an attempt has changed.
#[derive(Serialize, ToSchema)]
struct ChangedMembers<'a> {
    /// Number of changed members.
    count: usize,
    /// The first 200 of them.
    members: Vec<ChangedMember<'a>>,
}

/// A member that an attempt has changed.
#[derive(Serialize, ToSchema)]
struct ChangedMember<'a> {
    /// The node, by the name of the entry in the pool. Null: the entry has no name.
    node: Option<&'a str>,
    /// The address, or the virtual machine behind its network interface. Null: the entry has neither.
    address: Option<String>,
}

/// A removal that is, or would be, held back.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Held {
    /// Why.
    reason: enums::HeldReason,
    /// How long, in seconds.
    seconds: Seconds,
    /// What ends it.
    waits_for: enums::WaitsFor,
    /// When it ends automatically, or when a second read may confirm it, in seconds. Null: it waits for facts.
    ends_in_seconds: Option<Seconds>,
    /// The members that stay meanwhile.
    members: Vec<Address>,
}

/// A pool with a removal that is, or would be, held back.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct HeldLine<'a> {
    /// Its load balancer.
    load_balancer: &'a str,
    /// Its name.
    backend_pool: &'a str,
    /// The Services whose pool it is, as namespace/name. None for a pool of an xDS source.
    services: Vec<String>,
    /// `kubernetes`, or the source of an xDS control plane: `eds:…` or `cluster:…`.
    source: String,
    /// The removal that is held back. Null: none is.
    held: Option<Held>,
    /// The removal to which the guards object, and which proceeds. Null: there is none.
    would_hold: Option<Held>,
}

/// The guards, for all pools together.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Guards {
    /// `guards.mode`.
    mode: enums::GuardMode,
    /// Set if all removals are held back, because too many pools would lose most of their members. Null: they are not.
    removals_stopped: Option<RemovalsStopped>,
    /// How long a second read has run, in seconds. Null: none runs.
    second_read_seconds: Option<Seconds>,
}

/// All removals are held back.
#[derive(Serialize, ToSchema)]
struct RemovalsStopped {
    /// How long, in seconds.
    seconds: Seconds,
    /// Number of pools that would lose most of their members.
    pools: usize,
    /// Number of all pools.
    of: usize,
}

/// A pause that applies to a pool or a Service.
#[derive(Serialize, ToSchema)]
pub(super) struct PausedBy<'a> {
    /// The scope of the pause.
    scope: enums::PausedByScope,
    /// The Service. Of a Service, for the scope `pool`: the pool. Null: everything, or the pool itself.
    target: Option<String>,
    /// Who set the pause. Null: unknown, or not a pause in the ConfigMap.
    by: Option<&'a str>,
    /// When it was set. Null: unknown, or not a pause in the ConfigMap.
    since: Option<Time>,
    /// The reason. Null: unknown, or not a pause in the ConfigMap.
    reason: Option<&'a str>,
}

/// A node with endpoints of a Service that is excluded from a pool of it.
#[derive(Serialize, ToSchema)]
pub(super) struct ExcludedNode<'a> {
    /// The node.
    node: &'a str,
    /// The family of the pool.
    family: enums::Family,
    /// The rule that excludes it.
    rule: enums::ExclusionRule,
    /// The rule, as text.
    detail: String,
}

/// A diagnostic about the choice of the members of a pool.
#[derive(Serialize, ToSchema)]
struct PoolDiagnostic {
    /// The subject.
    reason: enums::DiagnosticReason,
    /// The diagnostic as a sentence.
    detail: String,
}

impl Show {
    /// Returns a pool as a list shows it.
    pub(in crate::http) fn pool_line<'a>(&self, pool: &'a PoolView, snapshot: &Snapshot) -> PoolLine<'a> {
        let blocked = snapshot.blocked(self.now, pool);
        PoolLine {
            load_balancer: pool.pool.lb.as_str(),
            backend_pool: pool.pool.pool.as_str(),
            state: enums::PoolState(pool.state.as_str()),
            state_seconds: self.age(pool.since),
            services: services(pool),
            source: filled_from(&pool.source),
            required: pool.level.required.len(),
            observed: pool.observed.as_ref().map(BTreeSet::len),
            waiting_seconds: pool.waiting_since.map(|at| self.age(at)),
            out_of_sync_since: pool.out_of_sync.and_then(|out| self.time(out.since)),
            out_of_sync_seconds: pool.out_of_sync.map(|out| self.age(out.since)),
            provisioning_failed: pool.provisioning_failed,
            out_of_sync_at_least: pool.out_of_sync.is_some_and(|out| out.at_least),
            blocked_by: blocked.map(|blocked| enums::BlockedBy(blocked.why.as_str())),
            blocked_for_seconds: blocked.and_then(|blocked| blocked.until).map(|at| self.until(at)),
            last_error: pool.last_error.as_deref(),
            why: why(pool, snapshot, self),
            held: pool.held.as_ref().map(|held| self.held(held)),
            would_hold: pool.would_hold.as_ref().map(|held| self.held(held)),
        }
    }

    /// Returns a pool with all details.
    pub(in crate::http) fn pool<'a>(&self, pool: &'a PoolView, snapshot: &'a Snapshot) -> Pool<'a> {
        let paused_by = pool.paused.iter().map(|by| paused_by(by, None, pause(snapshot, &pool.pool, by)));
        Pool {
            line: self.pool_line(pool, snapshot),
            family: enums::Family(family(pool.family)),
            excluded_nodes: snapshot.excluded_nodes_of(pool).into_iter().map(excluded_node).collect(),
            note: pool.source.note().map(|note| &**note),
            diagnostics: diagnostics(&pool.source),
            provenance: enums::Provenance(pool.provenance.as_str()),
            members: members(pool),
            observed_at: pool.observed_at.and_then(|at| self.time(at)),
            attempt: pool.attempt.map(|id| id.to_string()),
            retries: pool.retries.iter().map(|(uid, counts)| (uid.to_string(), &counts[..])).collect(),
            last_attempt: pool.last_end.as_ref().map(|last| self.last_attempt(last)),
            would_change: pool.would_change().map(|(added, removed)| PoolWouldChange {
                add: addresses(&added),
                remove: addresses(&removed),
            }),
            lost_writes: pool.lost_writes,
            paused_by: paused_by.collect(),
        }
    }

    /// Returns how the last attempt of a pool ended, and what it changed.
    fn last_attempt<'a>(&self, last: &'a view::LastAttempt) -> LastAttempt<'a> {
        let view::LastAttempt { end, at, record } = last;
        let record = record.as_deref();
        let changed = |of: fn(&WriteRecord) -> &MemberList| changed_members(record.map(of));
        let services = record.into_iter().flat_map(|record| &record.services);
        LastAttempt {
            outcome: enums::Outcome(end.as_str()),
            at: self.time(*at),
            trigger: record
                .and_then(|record| record.trigger)
                .map(|trigger| enums::Trigger(write_record::Trigger::as_str(trigger))),
            services: services.map(ToString::to_string).collect(),
            added: changed(|record| &record.added),
            removed: changed(|record| &record.removed),
            down: changed(|record| &record.down),
            restored: changed(|record| &record.restored),
            correlation_id: record.and_then(|record| record.correlation_id.as_deref()),
        }
    }

    /// Returns a removal that is, or would be, held back.
    pub(super) fn held(&self, held: &assignment::Held) -> Held {
        Held {
            reason: enums::HeldReason(held.reason.as_str()),
            seconds: self.age(held.since),
            waits_for: enums::WaitsFor(held.waits.as_str()),
            ends_in_seconds: held.waits.earliest().map(|at| self.until(at)),
            members: addresses(&held.members),
        }
    }

    /// Returns a pool with the removals that are, or would be, held back.
    pub(in crate::http) fn held_line<'a>(&self, pool: &'a PoolView) -> HeldLine<'a> {
        HeldLine {
            load_balancer: pool.pool.lb.as_str(),
            backend_pool: pool.pool.pool.as_str(),
            services: services(pool),
            source: filled_from(&pool.source),
            held: pool.held.as_ref().map(|held| self.held(held)),
            would_hold: pool.would_hold.as_ref().map(|held| self.held(held)),
        }
    }

    /// Returns the state of the guards.
    pub(in crate::http) fn guards(&self, guards: &GuardsView) -> Guards {
        let stopped = guards.stopped.map(|stopped| RemovalsStopped {
            seconds: self.age(stopped.since),
            pools: stopped.pools,
            of: stopped.of,
        });
        Guards {
            mode: enums::GuardMode(guards.mode.as_str()),
            removals_stopped: stopped,
            second_read_seconds: guards.reading_since.map(|at| self.age(at)),
        }
    }
}

/// Returns whether a pool is out of sync, or is only compared and would be changed.
pub(in crate::http) fn differs(pool: &PoolView) -> bool {
    pool.late_since().is_some() || pool.would_change().is_some()
}

/// Returns a pause of a pool or a Service: its scope and target. With an operator's `pause`, also who set it, when and
/// why.
pub(super) fn paused_by<'a>(
    by: &assignment::PausedBy,
    pool: Option<&PoolId>,
    pause: Option<&'a Pause>,
) -> PausedBy<'a> {
    let target = by.service().map(ToString::to_string).or_else(|| pool.map(ToString::to_string));
    PausedBy {
        scope: enums::PausedByScope(by.as_str()),
        target,
        by: pause.and_then(|pause| pause.by.as_deref()),
        since: pause.and_then(|pause| pause.since).and_then(wall),
        reason: pause.and_then(|pause| pause.reason.as_deref()),
    }
}

/// Returns an excluded node, with the family of the pool and the rule that excludes the node.
pub(super) fn excluded_node(of: &ExcludedNodeView) -> ExcludedNode<'_> {
    ExcludedNode {
        node: of.node.as_str(),
        family: enums::Family(family(of.family)),
        rule: enums::ExclusionRule(of.why.as_str()),
        detail: of.why.to_string(),
    }
}

/// Returns the Services of a pool. A pool with an xDS source has none.
fn services(pool: &PoolView) -> Vec<String> {
    pool.services.values().filter(|key| key.is_service()).map(ToString::to_string).collect()
}

/// Returns the source of a pool's members: `kubernetes`, or the name of an xDS source.
fn filled_from(source: &Source) -> String {
    match source {
        Source::Kubernetes => "kubernetes".to_owned(),
        Source::Xds { name, .. } => name.to_string(),
    }
}

/// Returns the diagnostics about the choice of a pool's members. `None`: the members come from Services.
fn diagnostics(source: &Source) -> Option<Vec<PoolDiagnostic>> {
    let diagnostics = match source {
        Source::Kubernetes => return None,
        Source::Xds { diagnostics, .. } => diagnostics,
    };
    let shown = diagnostics.iter().map(|diagnostic| PoolDiagnostic {
        reason: enums::DiagnosticReason(diagnostic.as_str()),
        detail: diagnostic.to_string(),
    });
    Some(shown.collect())
}

/// Returns the required, tolerated and observed members of a pool, and the difference.
fn members(pool: &PoolView) -> Members<'_> {
    let (missing, surplus) = pool.difference().unzip();
    let required = pool.level.required.iter().map(|(ip, member)| RequiredMember {
        ip: Address(*ip),
        name: member.name.as_str(),
        node_ready: member.node_ready,
    });
    Members {
        required: required.collect(),
        tolerated: addresses(&pool.level.tolerated),
        observed: pool.observed.as_ref().map(addresses),
        admin_states: pool.observed.as_ref().map(|observed| admin_states(pool, observed)),
        missing: missing.as_ref().map(addresses),
        surplus: surplus.as_ref().map(addresses),
    }
}

/// Returns the admin states of the observed members, by address.
fn admin_states(pool: &PoolView, observed: &BTreeSet<IpAddr>) -> BTreeMap<String, enums::EntryState> {
    let states = observed.iter().filter_map(|ip| Some((ip.to_string(), pool.admin_state(ip)?)));
    states.map(|(ip, state)| (ip, enums::EntryState(admin_state_word(state)))).collect()
}

/// Returns the number of members that an attempt has changed, and the first of them.
fn changed_members(list: Option<&MemberList>) -> ChangedMembers<'_> {
    let named = list.into_iter().flat_map(|list| &list.named).map(|member| ChangedMember {
        node: (!member.node.is_empty()).then_some(&*member.node),
        address: member.backend.as_ref().map(ToString::to_string),
    });
    ChangedMembers { count: list.map_or(0, |list| list.count), members: named.collect() }
}
