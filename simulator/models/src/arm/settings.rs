//! The settings of the model, each with its unit and its default; plain data that a scenario file can contain.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::access::{Lock, Permission};
use super::durations::{Durations, ScaleSetBlocks};
use super::random::Random;

/// Behaviour of the modelled ARM. Times are microseconds if the name ends in `_us`, seconds if in `_s`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// Seed of all randomness: latencies, GUIDs, outcomes. Default 1.
    pub seed: u64,
    /// The only subscription that exists. Default all zeros.
    pub subscription: String,
    /// The only resource group that exists. Default `rg`.
    pub resource_group: String,
    /// Azure region, part of operation URLs and LB bodies. Default `eastus`.
    pub location: String,
    /// Scheme and authority of absolute URLs in answers. Default `https://management.azure.com`.
    pub endpoint: String,
    /// Latency of reads and polls. Default 20 ms.
    pub get_latency: Latency,
    /// Latency of PUT and DELETE. Default 100 ms.
    pub put_latency: Latency,
    /// Duration of an operation after its answer. With `None`, writes are finished when they are answered. Default
    /// `None`.
    pub operation: Option<Latency>,
    /// `Retry-After` of asynchronous answers and running polls, in seconds; `None` omits the header. Default 10.
    pub operation_retry_after_s: Option<u32>,
    /// Time at which a GET shows the result of a running operation. Default immediately.
    pub visibility: Visibility,
    /// Result of a canceled or failed operation. Default reverted.
    pub unfinished_write: UnfinishedWrite,
    /// True if the end of an operation changes the etag once more, as recordings of Azure show. Default true.
    pub etag_changes_at_end: bool,
    /// Status of a PUT that changes an existing pool asynchronously (for a new pool, the status is always 201). Default
    /// 200.
    pub update_status: u16,
    /// Durations of operations by the type of write. With `None`, [`Settings::operation`] applies to all. Default
    /// `None`.
    pub durations: Option<Durations>,
    /// True if new Basic load balancers and public IPs are refused, as since 2025-09-30. Default true.
    pub basic_retired: bool,
    /// The references of a scale set that prevent the deletion of a load balancer. Default all.
    pub scale_set_blocks: ScaleSetBlocks,
    /// Status of a refusal because a scale set uses the load balancer; reports show 400 and 409. Default 400.
    pub in_use_status: u16,
    /// Maximum number of Standard public IPs of the subscription. Default 1000.
    pub standard_public_ip_limit: u64,
    /// Maximum number of Standard load balancers of the subscription. Default 1000.
    pub standard_load_balancer_limit: u64,
    /// Time for which the private IP of a deleted frontend stays taken, in microseconds. Default 0.
    pub address_hold_us: u64,
    /// True if pools and probes need a frontend in their load balancer, as rules always do; no public source documents
    /// this. Default false.
    pub pools_need_frontend: bool,
    /// Time that `migrateToIpBased` needs for each address after its answer, in microseconds. Default 0.
    pub ip_migration_us: u64,
    /// True if machines without any other outbound path reach the internet, as in virtual networks from before
    /// 2025-09-30. Default false.
    pub default_outbound: bool,
    /// Tags of the resource group. Default none.
    pub group_tags: BTreeMap<String, String>,
    /// Behaviour for a write while another one runs on the same LB. Default `refuse`.
    pub concurrent_write: ConcurrentWrite,
    /// Seconds in a lock refusal, in its message and header. Default 11.
    pub lock_retry_after_s: u32,
    /// True if a lock refusal carries the `Retry-After` header. Default true.
    pub lock_retry_after_header: bool,
    /// Probability in `[0, 1]` that a write reports success and is lost. Default 0.
    pub silent_loss: f64,
    /// Request quotas. With `None`, requests are unlimited. Default `None`.
    pub quotas: Option<Quotas>,
    /// Faults, each with its own count of matching requests. Default none.
    pub faults: Vec<Fault>,
    /// True if `If-Match` is compared. Default true.
    pub enforce_if_match: bool,
    /// True if a request without a bearer token is answered 401. Default false.
    pub require_bearer: bool,
    /// Permissions of the caller. Default everything.
    pub permissions: Vec<Permission>,
    /// Management locks. Default none.
    pub locks: Vec<Lock>,
    /// True if `adminState: Down` resets existing flows, as the description of the API says. Otherwise they end by
    /// themselves, as the documentation says. Default false.
    pub down_resets_flows: bool,
    /// Behaviour for a write of admin states in a NIC-based pool. Default allow.
    pub nic_admin_state: NicAdminState,
    /// Maximum number of addresses in one pool. Default 1000.
    pub max_addresses_per_pool: usize,
    /// Maximum number of items in one page of a list. Default 50.
    pub page_size: usize,
    /// True if addresses carry `id`, `etag`, `type` and `provisioningState`, as in recordings. Default true.
    pub address_resource_fields: bool,
    /// Maximum number of entries in the log; later ones are only counted. Default 1,000,000.
    pub log_capacity: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            subscription: "00000000-0000-0000-0000-000000000000".to_owned(),
            resource_group: "rg".to_owned(),
            location: "eastus".to_owned(),
            endpoint: "https://management.azure.com".to_owned(),
            get_latency: Latency::Fixed { us: 20_000 },
            put_latency: Latency::Fixed { us: 100_000 },
            operation: None,
            operation_retry_after_s: Some(10),
            visibility: Visibility::AtOnce,
            unfinished_write: UnfinishedWrite::Reverted,
            etag_changes_at_end: true,
            update_status: 200,
            durations: None,
            basic_retired: true,
            scale_set_blocks: ScaleSetBlocks::default(),
            in_use_status: 400,
            standard_public_ip_limit: 1000,
            standard_load_balancer_limit: 1000,
            address_hold_us: 0,
            pools_need_frontend: false,
            ip_migration_us: 0,
            default_outbound: false,
            group_tags: BTreeMap::new(),
            concurrent_write: ConcurrentWrite::Refuse,
            lock_retry_after_s: 11,
            lock_retry_after_header: true,
            silent_loss: 0.0,
            quotas: None,
            faults: Vec::new(),
            enforce_if_match: true,
            require_bearer: false,
            permissions: vec![Permission::default()],
            locks: Vec::new(),
            down_resets_flows: false,
            nic_admin_state: NicAdminState::Allow,
            max_addresses_per_pool: 1000,
            page_size: 50,
            address_resource_fields: true,
            log_capacity: 1_000_000,
        }
    }
}

/// A distribution of latencies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Latency {
    /// Constant.
    Fixed {
        /// Microseconds.
        us: u64,
    },
    /// Lognormal, given by two of its quantiles; draws end at ten times the 95th percentile.
    LogNormal {
        /// Median in microseconds.
        median_us: u64,
        /// 95th percentile in microseconds.
        p95_us: u64,
    },
}

impl Latency {
    pub(crate) fn draw(self, random: &mut Random) -> u64 {
        match self {
            Self::Fixed { us } => us,
            Self::LogNormal { median_us, p95_us } => {
                let median = median_us.max(1) as f64;
                let p95 = p95_us.max(median_us).max(1);
                let sigma = (p95 as f64 / median).ln() / 1.644_853_6;
                let drawn = median * (sigma * random.normal()).exp();
                (drawn as u64).min(p95.saturating_mul(10))
            }
        }
    }
}

/// Time at which reads show the result of a running operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Visibility {
    /// Reads show the new members while the pool still reports Updating.
    AtOnce,
    /// Reads show the old members until the operation ends.
    AtEnd,
}

/// Contents of the pool after a canceled or failed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UnfinishedWrite {
    /// The pool before the write.
    Reverted,
    /// The pool that the write requested.
    Kept,
}

/// Behaviour for a write of an admin state in a NIC-based pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NicAdminState {
    /// The write takes effect, as the documentation states for existing pools.
    Allow,
    /// The write is answered 400, with Azure's code and text for a change of the members of such a pool. It is an
    /// assumption that Azure answers an admin state in this way.
    Refuse,
}

/// Behaviour for a write while another one runs on the same load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ConcurrentWrite {
    /// The later write is answered 429 RetryableError.
    Refuse,
    /// The later write is accepted; the earlier operation ends Canceled.
    Supersede,
    /// Either of the two, at random.
    Mixed {
        /// Probability in `[0, 1]` of superseding.
        supersede: f64,
    },
}

/// Request quotas: ARM's token buckets and the network resource provider's windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Quotas {
    /// Bucket of GETs, in requests. Default 250.
    pub read_bucket: u64,
    /// Refill of the bucket of GETs, in requests per second. Default 25.
    pub read_refill_per_s: u64,
    /// Bucket of PUTs. Default 200.
    pub write_bucket: u64,
    /// Refill of the bucket of PUTs, per second. Default 10.
    pub write_refill_per_s: u64,
    /// Bucket of DELETEs. Default 200.
    pub delete_bucket: u64,
    /// Refill of the bucket of DELETEs, per second. Default 10.
    pub delete_refill_per_s: u64,
    /// Maximum number of reads in one window of the network resource provider. Default 10,000.
    pub provider_reads: u64,
    /// Maximum number of writes and deletes in one such window. Default 1,000.
    pub provider_writes: u64,
    /// Length of such a window in seconds. Default 300.
    pub provider_window_s: u64,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            read_bucket: 250,
            read_refill_per_s: 25,
            write_bucket: 200,
            write_refill_per_s: 10,
            delete_bucket: 200,
            delete_refill_per_s: 10,
            provider_reads: 10_000,
            provider_writes: 1_000,
            provider_window_s: 300,
        }
    }
}

/// One planned fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Fault {
    /// Requests that it counts.
    pub target: FaultTarget,
    /// The fault affects every n-th request (1 = all; 0 = never).
    pub every: u64,
    /// Maximum number of affected requests; `None` if there is no limit.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Load balancer whose requests the fault counts; `None` for all requests.
    #[serde(default)]
    pub load_balancer: Option<String>,
    /// Effect.
    pub effect: FaultEffect,
}

impl Fault {
    /// Creates a fault that answers every n-th pool PUT with an error, before applying it.
    pub fn every_nth_put(every: u64, status: u16, code: &str, retry_after: Option<&str>) -> Self {
        let answer = FaultAnswer {
            status,
            code: code.to_owned(),
            message: "A planned fault.".to_owned(),
            retry_after: retry_after.map(str::to_owned),
            body: FaultBody::Standard,
        };
        let effect = FaultEffect::Answer(answer);
        Self { target: FaultTarget::PoolPut, every, limit: None, load_balancer: None, effect }
    }
}

/// Requests that a fault counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FaultTarget {
    /// PUT of a pool.
    PoolPut,
    /// DELETE of a pool.
    PoolDelete,
    /// GET of a pool or of a list of pools.
    PoolGet,
    /// GET of a load balancer or of a list of them.
    LoadBalancerGet,
    /// GET of an operation.
    Poll,
    /// Every request.
    Any,
}

/// Effect of a fault on a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum FaultEffect {
    /// Answers with an error; nothing is applied.
    Answer(FaultAnswer),
    /// Applies the request and then answers with an error.
    AnswerAfterApplying(FaultAnswer),
    /// Applies the request and drops the connection without an answer.
    LoseAnswer,
    /// Drops the connection; nothing is applied.
    Refuse,
    /// Adds to the latency.
    Delay {
        /// Microseconds.
        us: u64,
    },
    /// The operation that the write starts fails or is canceled. No effect on synchronous writes.
    FailOperation {
        /// End of the operation.
        end: OperationFailure,
        /// The error code in the poll.
        code: String,
        /// The error message in the poll.
        message: String,
    },
}

/// Unsuccessful end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OperationFailure {
    /// Status `Failed`.
    Failed,
    /// Status `Canceled`.
    Canceled,
}

/// The answer of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct FaultAnswer {
    /// HTTP status.
    pub status: u16,
    /// Error code in the body.
    pub code: String,
    /// Error message in the body.
    pub message: String,
    /// Value of `Retry-After`: seconds, an HTTP date, or an invalid text. `None` omits the header.
    #[serde(default)]
    pub retry_after: Option<String>,
    /// The shape of the body.
    pub body: FaultBody,
}

/// The shape of an error body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FaultBody {
    /// `{"error":{"code","message"}}`.
    Standard,
    /// `{"Error":{"Code","Message","Details":[…],"InnerError"}}`, as the network gateway writes it.
    PascalCase,
    /// `{"code","message"}` without an envelope.
    Bare,
    /// An HTML page.
    Html,
    /// Empty.
    Empty,
    /// The 429 of the gateway in front of the resource provider: with the gateway's header, and without the remaining
    /// quota (of a resource group or a role assignment that has not reached every region yet).
    Gateway,
}
