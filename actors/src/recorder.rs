//! The Prometheus metrics: each declared once, with name, unit, help and the closed set of each label (E2).
//!
//! The actor turns the machines' samples into metrics, and runs the recorder's upkeep.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler};
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use model::blocked::Blocked;
use model::object::Kind;
use model::policy::Mode;
use model::redact::Printable;
use model::sample::{ArmResult, ArmVerb, Caller, GateClass, Metric, PoolState};
use pool_core::route::Delivery;

use crate::address_book::{Deliver, MAILBOXES};

mod admin;
mod out_of_sync;
mod xds;

pub use out_of_sync::{LISTED, OutOfSyncPool, pools_out_of_sync};

/// Interval of the recorder's upkeep.
const UPKEEP: Duration = Duration::from_secs(5);

const OP_DURATION: &str = "cloudprovider_azure_op_duration_seconds";
const OP_FAILURES: &str = "cloudprovider_azure_op_failure_count";
const API_DURATION: &str = "cloudprovider_azure_api_request_duration_seconds";
const API_ERRORS: &str = "cloudprovider_azure_api_request_errors";
const API_THROTTLED: &str = "cloudprovider_azure_api_request_throttled_count";
const API_RATE_LIMITED: &str = "cloudprovider_azure_api_request_ratelimited_count";
const LOCK_WAIT: &str = "cloudprovider_azure_lock_wait_duration_seconds";
const POOLS: &str = "backend_pool_controller_pools";
const BLOCKED_POOLS: &str = "backend_pool_controller_blocked_pools";
const OLDEST: &str = "backend_pool_controller_oldest_waiting_change_seconds";
const OUT_OF_SYNC: &str = "backend_pool_controller_longest_out_of_sync_seconds";
const POOL_OUT_OF_SYNC: &str = "backend_pool_controller_pool_out_of_sync_seconds";
const ATTEMPTS: &str = "backend_pool_controller_attempts_total";
const PROGRAMMING: &str = "backend_pool_controller_network_programming_duration_seconds";
const ARM_CALLS: &str = "backend_pool_controller_arm_call_duration_seconds";
const DRIFT: &str = "backend_pool_controller_drift_total";
const LOST: &str = "backend_pool_controller_lost_writes_total";
const HELD: &str = "backend_pool_controller_held_pools";
const WOULD_HOLD: &str = "backend_pool_controller_would_hold_pools";
const REMOVALS_STOPPED: &str = "backend_pool_controller_removals_stopped";
const SECOND_READS: &str = "backend_pool_controller_second_reads_total";
const NOT_MANAGEABLE: &str = "backend_pool_controller_not_manageable_pools";
const LANES_BUSY: &str = "backend_pool_controller_lanes_busy";
const LANES_WAITING: &str = "backend_pool_controller_pools_waiting_for_lane";
const GATE: &str = "backend_pool_controller_throttle_gate_closed";
const BUDGET: &str = "backend_pool_controller_budget_left_ratio";
const FRESH: &str = "backend_pool_controller_source_fresh";
const OBJECTS: &str = "backend_pool_controller_cached_objects";
const UNDECODABLE: &str = "backend_pool_controller_undecodable_objects_total";
const STALE: &str = "backend_pool_controller_stale_refused_total";
const STALE_ACCEPTED: &str = "backend_pool_controller_stale_accepted_total";
const RELISTS: &str = "backend_pool_controller_relists_total";
const EVENTS: &str = "backend_pool_controller_events_total";
const LEASE_HELD: &str = "backend_pool_controller_lease_held_seconds";
const LOCK_FAILURES: &str = "backend_pool_controller_foreign_lock_failures_total";
const LEADING: &str = "backend_pool_controller_leading";
const MODE: &str = "backend_pool_controller_mode";
const PAUSES: &str = "backend_pool_controller_pauses";
const PAUSES_UNREADABLE: &str = "backend_pool_controller_pauses_unreadable";
const PAUSES_FRESH: &str = "backend_pool_controller_pauses_fresh";
const LEADER_WAITS: &str = "backend_pool_controller_leader_waits_for_pauses";
const CONTENTIONS: &str = "backend_pool_controller_contentions_total";
const BLOCKED: &str = "backend_pool_controller_write_breakers_open";
const MAILBOX: &str = "backend_pool_controller_mailbox_waiting";
const PROCESSING_LAG: &str = "backend_pool_controller_processing_lag_seconds";
const CERTIFICATE_ENDS: &str = "backend_pool_controller_admin_certificate_expiration_timestamp_seconds";
const SERVICE_RESOURCES: &str = "backend_pool_controller_service_resources";
const XDS_CONNECTED: &str = "grpc_xds_client_connected";
const XDS_SERVER_FAILURES: &str = "grpc_xds_client_server_failure_total";
const XDS_VALID: &str = "grpc_xds_client_resource_updates_valid_total";
const XDS_INVALID: &str = "grpc_xds_client_resource_updates_invalid_total";
const XDS_RESOURCES: &str = "grpc_xds_client_resources";
const XDS_NACKS: &str = "backend_pool_controller_xds_nacks_total";
const UNMATCHED: &str = "backend_pool_controller_unmatched_answers_total";
const ADMIN_NODES: &str = "backend_pool_controller_admin_state_nodes";
const DRAINING_NODES: &str = "backend_pool_controller_draining_nodes";
const DOWN_ENTRIES: &str = "backend_pool_controller_down_entries";
const ADMIN_OLDEST: &str = "backend_pool_controller_admin_state_oldest_seconds";
const DRAIN_DURATION: &str = "backend_pool_controller_drain_duration_seconds";
const RECONCILED: &str = "backend_pool_controller_reconcile_total";
const RECONCILE_QUEUE: &str = "backend_pool_controller_reconcile_queue_length";
const TAINT_PATCHES: &str = "backend_pool_controller_taint_patches_total";
const ADMIN_RECORDS: &str = "backend_pool_controller_admin_state_records";

/// Upstream's buckets of `op_duration_seconds`, in seconds.
const OP_BUCKETS: [f64; 17] =
    [0.1, 0.2, 0.5, 1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 100.0, 200.0, 300.0, 600.0, 1200.0];
/// Upstream's buckets of `api_request_duration_seconds`, in seconds.
const API_BUCKETS: [f64; 14] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0, 1200.0];
/// Buckets of one hold of the shared Lease, in seconds; a hold ends after at most 60 (W7).
const HOLD_BUCKETS: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0];
/// Buckets of the time from an endpoint change to its write, in seconds.
const PROGRAMMING_BUCKETS: [f64; 14] =
    [0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0];
/// Buckets of the time from a node's signal to the end of the last operation for it, in seconds. An eviction notice
/// comes 30 s before the eviction (N1).
const DRAIN_BUCKETS: [f64; 12] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 600.0];
/// Buckets of one call to ARM, in seconds.
const CALL_BUCKETS: [f64; 11] = [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Lock of a load balancer's lane, by S1's name.
const LANE: &str = "service_reconcile";
/// Request of an attempt to write members, by S0's name.
const UPDATE: &str = "services_local_update_backend_pool";
/// Lock of the shared Lease.
const SHARED_LEASE: &str = "azure_resource_locker";

/// Labels that are the same on every upstream-named series.
#[derive(Clone, Debug)]
pub struct CloudLabels {
    /// The resource group of the load balancers, in lower case.
    pub resource_group: Arc<str>,
    /// The network subscription.
    pub subscription_id: Arc<str>,
}

/// Installs the process's recorder and describes every metric.
///
/// # Errors
/// A recorder is installed already.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    let handle = builder()?.install_recorder()?;
    describe();
    Ok(handle)
}

/// Returns a builder with the buckets of each histogram.
fn builder() -> Result<PrometheusBuilder, BuildError> {
    // S1's lock wait buckets: 1 ms to 8.192 s, each twice the one before.
    let lock_buckets: Vec<f64> = (0..14).map(|power| 0.001 * f64::from(1_u32 << power)).collect();
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(OP_DURATION.to_owned()), &OP_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full(API_DURATION.to_owned()), &API_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full(LOCK_WAIT.to_owned()), &lock_buckets)?
        .set_buckets_for_metric(Matcher::Full(PROGRAMMING.to_owned()), &PROGRAMMING_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full(LEASE_HELD.to_owned()), &HOLD_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full(DRAIN_DURATION.to_owned()), &DRAIN_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full(ARM_CALLS.to_owned()), &CALL_BUCKETS)
}

fn describe() {
    describe_histogram!(
        OP_DURATION,
        Unit::Seconds,
        "Attempts with a terminal outcome, from grant to outcome."
    );
    describe_counter!(OP_FAILURES, Unit::Count, "Attempts whose terminal outcome was a failure.");
    describe_histogram!(API_DURATION, Unit::Seconds, "Requests to ARM that were answered or timed out.");
    describe_counter!(API_ERRORS, Unit::Count, "Requests to ARM that failed.");
    describe_counter!(API_THROTTLED, Unit::Count, "Requests to ARM that were answered with 429.");
    describe_counter!(
        API_RATE_LIMITED,
        Unit::Count,
        "Requests to ARM that waited for a rate limit of the cloud configuration."
    );
    describe_histogram!(
        LOCK_WAIT,
        Unit::Seconds,
        "Time that due work waited for its lane or the shared Lease."
    );
    describe_gauge!(POOLS, Unit::Count, "Pools by state.");
    describe_gauge!(BLOCKED_POOLS, Unit::Count, "Pools that are not written now, by the first reason.");
    describe_gauge!(
        OLDEST,
        Unit::Seconds,
        "Age of the oldest change that waits to be written; 0 when none does."
    );
    describe_gauge!(
        OUT_OF_SYNC,
        Unit::Seconds,
        "Time that the pool that has been out of sync for longest has been so; 0 when none is."
    );
    describe_counter!(ATTEMPTS, Unit::Count, "Attempts by outcome.");
    describe_histogram!(
        PROGRAMMING,
        Unit::Seconds,
        "Endpoint change to the end of the operation that wrote it."
    );
    describe_histogram!(ARM_CALLS, Unit::Seconds, "Calls to ARM by operation and result.");
    describe_counter!(DRIFT, Unit::Count, "Differences that appeared after a level was written.");
    describe_counter!(LOST, Unit::Count, "Writes that ARM reported as done but that had no effect.");
    describe_guards();
    describe_gauge!(NOT_MANAGEABLE, Unit::Count, "Pools whose membership is not written, by reason.");
    describe_gauge!(LANES_BUSY, Unit::Count, "Load balancers with a write in flight.");
    describe_gauge!(LANES_WAITING, Unit::Count, "Pools that are due and not granted.");
    describe_gauge!(
        GATE,
        "Whether the throttle gate of a request class (reads or writes) is closed: 1 or 0."
    );
    describe_gauge!(BUDGET, "Remaining share of the request budget, 0 to 1.");
    describe_sources();
    describe_counter!(EVENTS, Unit::Count, "Kubernetes events by result.");
    describe_leadership();
    describe_counter!(CONTENTIONS, Unit::Count, "Foreign additions undone for the third time or more.");
    describe_gauge!(BLOCKED, Unit::Count, "Load balancers that are blocked after failures, or 1 for all.");
    describe_gauge!(MAILBOX, Unit::Count, "Messages that wait for an actor for longer than a moment.");
    describe_counter!(UNMATCHED, Unit::Count, "Answers without a waiting request.");
    admin::describe();
    xds::describe();
}

/// Describes the metrics of lists and watches.
fn describe_sources() {
    describe_gauge!(FRESH, "Whether a source of facts is connected and current: 1 or 0.");
    describe_gauge!(OBJECTS, Unit::Count, "Objects held in the caches.");
    describe_counter!(UNDECODABLE, Unit::Count, "Objects of the stream that could not be decoded.");
    describe_counter!(
        STALE,
        Unit::Count,
        "Lists and objects refused because they were older than the cache."
    );
    describe_counter!(
        STALE_ACCEPTED,
        Unit::Count,
        "Lists older than the cache, accepted because all lists had been older for minutes."
    );
    describe_counter!(RELISTS, Unit::Count, "Repeated lists, by reason.");
    describe_gauge!(
        PROCESSING_LAG,
        Unit::Seconds,
        "Age of the oldest line that was read from a watch and not processed yet; 0 when none waits."
    );
}

/// Describes the metrics of leadership, of the shared Lease and of the policy.
fn describe_leadership() {
    describe_histogram!(LEASE_HELD, Unit::Seconds, "Duration of each hold of the shared Lease.");
    describe_counter!(
        LOCK_FAILURES,
        Unit::Count,
        "Lock failures of the cloud-controller-manager while the controller held the shared Lease."
    );
    describe_roles();
}

/// Describes the metrics of leadership, the mode, the pauses and the listeners.
fn describe_roles() {
    describe_gauge!(
        CERTIFICATE_ENDS,
        Unit::Seconds,
        "Expiration of the certificate of the admin API with TLS, in seconds since 1970."
    );
    describe_gauge!(LEADING, "Whether this process leads: 1 or 0.");
    describe_gauge!(MODE, "The configured mode: 1 for the one that is set, 0 for the others.");
    describe_gauge!(PAUSES, Unit::Count, "Pauses made by operators, by scope.");
    describe_gauge!(PAUSES_UNREADABLE, Unit::Count, "Pauses that cannot be read.");
    describe_gauge!(PAUSES_FRESH, Unit::Count, "1 while the pauses can be read.");
    describe_gauge!(
        LEADER_WAITS,
        Unit::Count,
        "1 while a term of leadership waits for the pauses to be read."
    );
}

/// Describes the metrics of the guards.
fn describe_guards() {
    describe_gauge!(HELD, Unit::Count, "Pools with a removal held back, by reason.");
    describe_gauge!(
        WOULD_HOLD,
        Unit::Count,
        "Pools with a removal that guards would hold back and only observe, by reason."
    );
    describe_gauge!(
        REMOVALS_STOPPED,
        "Whether all removals are held back because too many pools would lose most members: 1 or 0."
    );
    describe_counter!(SECOND_READS, Unit::Count, "Second reads of endpoints whose removal is in doubt.");
}

/// Sets the number of pools that are not written now, by their first reason, as of this scrape.
pub fn blocked_pools(reasons: impl IntoIterator<Item = Blocked>) {
    let mut counts: BTreeMap<Blocked, u64> = Blocked::ALL.into_iter().map(|why| (why, 0)).collect();
    for why in reasons {
        *counts.entry(why).or_default() += 1;
    }
    for (why, count) in counts {
        gauge!(BLOCKED_POOLS, "reason" => why.as_str()).set(as_f64(count));
    }
}

/// Sets the age of the oldest waiting change, as of this scrape.
pub fn oldest_waiting_change(age: Option<Duration>) {
    gauge!(OLDEST).set(age.unwrap_or_default().as_secs_f64());
}

/// Sets the maximum time for which a pool has been out of sync, as of this scrape.
pub fn longest_out_of_sync(age: Option<Duration>) {
    gauge!(OUT_OF_SYNC).set(age.unwrap_or_default().as_secs_f64());
}

/// Sets the expiry of the TLS certificate of the admin API, in seconds since 1970.
pub fn admin_certificate_expires(at: i64) {
    gauge!(CERTIFICATE_ENDS).set(as_f64(u64::try_from(at).unwrap_or(0)));
}

/// Records a change in the number of deliveries that one sender holds for a mailbox; the gauge is the sum over all
/// senders.
pub(crate) fn mailbox_changed(mailbox: &'static str, before: usize, now: usize) {
    let change = |count: usize| as_f64(u64::try_from(count).unwrap_or(u64::MAX));
    if now > before {
        gauge!(MAILBOX, "actor" => mailbox).increment(change(now - before));
    } else if now < before {
        gauge!(MAILBOX, "actor" => mailbox).decrement(change(before - now));
    }
}

/// Sets the age of the oldest line of a kind's watch that its watcher has not handled.
pub(crate) fn processing_lag(kind: Kind, lag: Duration) {
    gauge!(PROCESSING_LAG, "kind" => kind.resource()).set(lag.as_secs_f64());
}

fn lock_wait(lock: &'static str, caller: Caller, waited: Duration) {
    histogram!(LOCK_WAIT, "lock" => lock, "caller" => caller.as_str()).record(waited.as_secs_f64());
}

/// Returns the name of a call in upstream's metrics.
fn request_of(verb: ArmVerb) -> &'static str {
    match verb {
        ArmVerb::GetLoadBalancer => "load_balancers_get",
        ArmVerb::GetPool => "backend_address_pools_get",
        ArmVerb::PutPool => "backend_address_pools_create_or_update",
        ArmVerb::Poll => "operations_get",
    }
}

fn flag(set: bool) -> f64 {
    f64::from(u8::from(set))
}

/// The metrics actor.
pub struct Recorder {
    handle: PrometheusHandle,
    labels: CloudLabels,
    /// The targets of the xDS servers, in the order of the bootstrap.
    xds_servers: Vec<Arc<str>>,
    pools: BTreeMap<PoolState, i64>,
}

impl Recorder {
    /// Creates an actor that feeds the installed recorder and names xDS servers by these targets.
    #[must_use]
    pub fn new(handle: PrometheusHandle, labels: CloudLabels, xds_servers: Vec<Arc<str>>) -> Recorder {
        let pools = PoolState::ALL.into_iter().map(|state| (state, 0)).collect();
        let printable = |text: &Arc<str>| Arc::from(Printable::line(text).as_str());
        let labels = CloudLabels {
            resource_group: printable(&labels.resource_group),
            subscription_id: printable(&labels.subscription_id),
        };
        let xds_servers = xds_servers.iter().map(printable).collect();
        Recorder { handle, labels, xds_servers, pools }
    }

    /// Creates the series that alerts query, at zero.
    fn create_series(&mut self) {
        for state in PoolState::ALL {
            self.moved(None, Some(state));
            self.moved(Some(state), None);
        }
        for class in GateClass::ALL {
            self.record(Metric::Gate { class, closed: false });
        }
        self.record(Metric::Leading(false));
        self.record(Metric::RemovalBreaker(false));
        self.policy(None, false, [0, 0, 0], [false, false]);
        self.record(Metric::Blocked { scopes: 0 });
        for counted in [DRIFT, LOST, CONTENTIONS, LOCK_FAILURES, SECOND_READS, UNMATCHED] {
            counter!(counted).absolute(0);
        }
        for result in ["posted", "withheld", "dropped"] {
            counter!(EVENTS, "result" => result).absolute(0);
        }
        for mailbox in MAILBOXES {
            gauge!(MAILBOX, "actor" => *mailbox).increment(0.0);
        }
        Kind::ALL.into_iter().for_each(|kind| processing_lag(kind, Duration::ZERO));
        admin::create_series();
        xds::create_series(&self.xds_servers);
    }

    fn record(&mut self, sample: Metric) {
        match sample {
            Metric::Attempt { took, failed } => self.operation(UPDATE, took, failed),
            Metric::AttemptEnded(end) => counter!(ATTEMPTS, "outcome" => end.as_str()).increment(1),
            Metric::NetworkProgramming(took) => histogram!(PROGRAMMING).record(took.as_secs_f64()),
            Metric::ArmCall { verb, took, result } => self.request(verb, took, result),
            Metric::RateLimited(verb) => {
                counter!(API_RATE_LIMITED, &self.upstream(request_of(verb))).increment(1);
            }
            Metric::PoolState { from, to } => self.moved(from, to),
            Metric::Xds(sample) => xds::record(&self.xds_servers, sample),
            Metric::ServiceResources { state, count } => xds::service_resources(state, count),
            Metric::Drift => counter!(DRIFT).increment(1),
            Metric::LostWrite => counter!(LOST).increment(1),
            Metric::Held { reason, pools } => gauge!(HELD, "reason" => reason.as_str()).set(as_f64(pools)),
            Metric::WouldHold { reason, pools } => {
                gauge!(WOULD_HOLD, "reason" => reason.as_str()).set(as_f64(pools));
            }
            Metric::RemovalBreaker(stopped) => gauge!(REMOVALS_STOPPED).set(flag(stopped)),
            Metric::SecondRead => counter!(SECOND_READS).increment(1),
            Metric::NotManageable { reason, pools } => {
                gauge!(NOT_MANAGEABLE, "reason" => reason.0).set(as_f64(pools));
            }
            Metric::LaneWait { caller, waited } => lock_wait(LANE, caller, waited),
            Metric::LeaseWait { caller, waited } => lock_wait(SHARED_LEASE, caller, waited),
            Metric::LeaseHeld(held) => histogram!(LEASE_HELD).record(held.as_secs_f64()),
            Metric::ForeignLockFailures(count) => counter!(LOCK_FAILURES).increment(count),
            Metric::Leading(leading) => gauge!(LEADING).set(flag(leading)),
            Metric::OperatorPolicy { mode, everything, pools, services, unreadable, fresh, leader_waits } => {
                self.policy(Some(mode), everything, [pools, services, unreadable], [fresh, leader_waits]);
            }
            Metric::Contention => counter!(CONTENTIONS).increment(1),
            Metric::Blocked { scopes } => gauge!(BLOCKED).set(as_f64(scopes)),
            Metric::Lanes { busy, waiting } => {
                gauge!(LANES_BUSY).set(as_f64(busy));
                gauge!(LANES_WAITING).set(as_f64(waiting));
            }
            Metric::Gate { class, closed } => gauge!(GATE, "class" => class.as_str()).set(flag(closed)),
            Metric::BudgetLeft { class, share } => gauge!(BUDGET, "class" => class.as_str()).set(share),
            Metric::SourceFresh { kind, fresh } => {
                gauge!(FRESH, "kind" => kind.resource()).set(flag(fresh));
            }
            Metric::CachedObjects { kind, count } => {
                gauge!(OBJECTS, "kind" => kind.resource()).set(as_f64(count))
            }
            Metric::UndecodableObject(kind) => counter!(UNDECODABLE, "kind" => kind.resource()).increment(1),
            Metric::StaleRefused(kind) => counter!(STALE, "kind" => kind.resource()).increment(1),
            Metric::StaleAccepted(kind) => {
                counter!(STALE_ACCEPTED, "kind" => kind.resource()).increment(1);
            }
            Metric::Relist { kind, reason } => {
                counter!(RELISTS, "kind" => kind.resource(), "reason" => reason.as_str()).increment(1);
            }
            Metric::EventDropped => counter!(EVENTS, "result" => "dropped").increment(1),
            Metric::EventPosted => counter!(EVENTS, "result" => "posted").increment(1),
            Metric::EventWithheld => counter!(EVENTS, "result" => "withheld").increment(1),
            Metric::UnmatchedAnswer => counter!(UNMATCHED).increment(1),
            Metric::AdminEnded { down, took, failed } => {
                self.operation(admin::request_of(down), took, failed)
            }
            Metric::AdminNodes { state, nodes } => admin::nodes(state, nodes),
            Metric::DrainingNodes { signal, nodes } => admin::draining(signal, nodes),
            Metric::DownEntries { foreign, entries } => admin::down_entries(foreign, entries),
            Metric::AdminOldest(waited) => admin::oldest(waited),
            Metric::Drained(took) => histogram!(DRAIN_DURATION).record(took.as_secs_f64()),
            Metric::Reconciled(result) => admin::reconciled(result),
            Metric::ReconcileQueue(nodes) => admin::queue(nodes),
            Metric::TaintPatch(result) => admin::taint_patch(result),
            Metric::AdminRecords { kept, unreadable, refused } => admin::records(kept, unreadable, refused),
        }
    }

    /// Records the policy: paused pools, paused Services, unreadable pauses, whether the policy could be read, and
    /// whether a term waits for it.
    fn policy(
        &self,
        set: Option<Mode>,
        everything: bool,
        [pools, services, unreadable]: [u64; 3],
        [fresh, leader_waits]: [bool; 2],
    ) {
        for mode in Mode::ALL {
            gauge!(MODE, "mode" => mode.as_str()).set(flag(Some(mode) == set));
        }
        gauge!(PAUSES, "scope" => "everything").set(flag(everything));
        gauge!(PAUSES, "scope" => "pool").set(as_f64(pools));
        gauge!(PAUSES, "scope" => "service").set(as_f64(services));
        gauge!(PAUSES_UNREADABLE).set(as_f64(unreadable));
        gauge!(PAUSES_FRESH).set(flag(fresh));
        gauge!(LEADER_WAITS).set(flag(leader_waits));
    }

    /// Records a finished attempt, under upstream's names.
    fn operation(&self, request: &'static str, took: Duration, failed: bool) {
        let labels = self.upstream(request);
        histogram!(OP_DURATION, &labels).record(took.as_secs_f64());
        if failed {
            counter!(OP_FAILURES, &labels).increment(1);
        }
    }

    /// Records a call. A call that was sent is also recorded under upstream's names.
    fn request(&self, verb: ArmVerb, took: Duration, result: ArmResult) {
        histogram!(ARM_CALLS, "operation" => verb.as_str(), "result" => result.as_str())
            .record(took.as_secs_f64());
        let labels = self.upstream(request_of(verb));
        match result {
            ArmResult::NotSent => return,
            ArmResult::Ok | ArmResult::NotFound => {}
            ArmResult::Throttled => {
                counter!(API_THROTTLED, &labels).increment(1);
                counter!(API_ERRORS, &labels).increment(1);
            }
            ArmResult::ClientError | ArmResult::ServerError | ArmResult::NoAnswer => {
                counter!(API_ERRORS, &labels).increment(1);
            }
        }
        histogram!(API_DURATION, &labels).record(took.as_secs_f64());
    }

    fn upstream(&self, request: &'static str) -> [(&'static str, String); 4] {
        [
            ("request", request.to_owned()),
            ("resource_group", self.labels.resource_group.to_string()),
            ("subscription_id", self.labels.subscription_id.to_string()),
            ("source", "azure_backend_pool_controller".to_owned()),
        ]
    }

    fn moved(&mut self, from: Option<PoolState>, to: Option<PoolState>) {
        for (state, change) in [(from, -1), (to, 1)] {
            if let Some(state) = state {
                let count = self.pools.entry(state).or_default();
                *count += change;
                gauge!(POOLS, "state" => state.as_str()).set(as_f64(u64::try_from(*count).unwrap_or(0)));
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "no gauge counts anywhere near 2^52 things")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

impl Actor for Recorder {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.create_series();
        ctx.run_interval(UPKEEP, |recorder, _| recorder.handle.run_upkeep());
    }
}

impl Handler<Deliver> for Recorder {
    type Result = ();

    fn handle(&mut self, Deliver(deliveries): Deliver, _: &mut Self::Context) {
        for delivery in deliveries {
            if let Delivery::Metrics(sample) = delivery {
                self.record(sample);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
