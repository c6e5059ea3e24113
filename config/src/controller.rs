//! controller.yaml (C1): this product's own settings. Each key is declared once, in the table below; reading, defaults,
//! range checks, environment overrides, suggestions for misspelt keys, the effective configuration and the reference
//! configuration follow from it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

mod api_version;
mod compatibility;
mod key;
mod pools;
mod reader;
mod reference;
mod schema;
mod setting;

pub use api_version::ApiVersion;
pub use key::{DefaultValue, Key, Section, environment_name};
pub use pools::ListedPool;
pub use reference::reference;
pub use schema::schema;
pub use setting::{
    Compatibility, Fraction, GuardsMode, IdentityMode, IpFamily, LogFormat, LogLevel, MembersAdd, Mode,
    ObjectName,
};

pub(crate) use compatibility::{Departure, imitate};
pub(crate) use reader::{MAX_RETRY_INTERVAL, Reader};

use crate::selector::LabelSelector;
use setting::{AnyValue, Listen, Names, Setting};

/// Declares the configuration's structs and the table of its keys. What a section stands `within` is a section that has
/// no keys of its own, and no struct.
macro_rules! settings {
    (
        $(#[doc = $about:literal])+
        $root:ident {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $ty:ty = $path:literal, $rule:expr, $default:expr, since $since:literal;
            )+
        }
        $(
            $( within $(#[doc = $heading_doc:literal])+ $heading:literal; )?
            $(#[doc = $section_doc:literal])+
            $section:ident: $struct:ident = $section_path:literal {
                $(
                    $(#[doc = $inner_doc:literal])+
                    $inner:ident: $inner_ty:ty =
                        $inner_path:literal, $inner_rule:expr, $inner_default:expr, since $inner_since:literal;
                )+
            }
        )+
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq)]
        pub struct $root {
            $( $(#[doc = $doc])+ pub $field: $ty, )+
            $( $(#[doc = $section_doc])+ pub $section: $struct, )+
        }

        $(
            $(#[doc = $section_doc])+
            #[derive(Clone, Debug, PartialEq)]
            pub struct $struct {
                $( $(#[doc = $inner_doc])+ pub $inner: $inner_ty, )+
            }
        )+

        /// Every key of controller.yaml, in the order of the reference configuration.
        pub const KEYS: &[Key] = &[
            $( Key {
                path: $path,
                doc: &[$($doc),+],
                expected: || <$ty as Setting>::expected(&$rule),
                schema: || <$ty as Setting>::schema(&$rule),
                default: $default,
                since: $since,
            }, )+
            $($( Key {
                path: concat!($section_path, ".", $inner_path),
                doc: &[$($inner_doc),+],
                expected: || <$inner_ty as Setting>::expected(&$inner_rule),
                schema: || <$inner_ty as Setting>::schema(&$inner_rule),
                default: $inner_default,
                since: $inner_since,
            }, )+)+
        ];

        /// Every section of controller.yaml, in the order of the reference configuration.
        pub const SECTIONS: &[Section] = &[
            $(
                $( Section { path: $heading, doc: &[$($heading_doc),+] }, )?
                Section { path: $section_path, doc: &[$($section_doc),+] },
            )+
        ];

        impl $root {
            /// Reads every key once, in the order of the table.
            pub(crate) fn read(reader: &mut Reader<'_>) -> Self {
                Self {
                    $( $field: reader.setting($path, &$rule), )+
                    $( $section: $struct {
                        $( $inner: reader.setting(concat!($section_path, ".", $inner_path), &$inner_rule), )+
                    }, )+
                }
            }
        }
    };
}

use DefaultValue::{Fixed, UpdateInterval};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

settings! {
    /// The settings of controller.yaml, all present and in range.
    ControllerConfig {
        /// The cluster's name, as the cloud-controller-manager has it (`--cluster-name`). It names the cluster's own
        /// backend pools, which are never written, and the load balancer where there is only one.
        cluster_name: String = "clusterName", 80, Fixed("kubernetes"), since "0.1.0";
        /// How to sign in at ARM: as the cloud configuration and the environment say (auto), not at all (anonymous,
        /// only to a loopback endpoint), or in one way whatever they say: with the projected service account token
        /// (workloadIdentity), as the virtual machine's managed identity (managedIdentity), or as an application with
        /// its secret (clientSecret) or certificate (clientCertificate).
        identity: IdentityMode = "identity", AnyValue, Fixed("auto"), since "0.1.0";
        /// How much the service may do: nothing but look (observe), everything but removing members (add-only), or all
        /// (enforce).
        mode: Mode = "mode", AnyValue, Fixed("enforce"), since "0.1.0";
        /// Whose times and precautions hold where a key below is not set: this service's own (default), or, as far as it
        /// has words for them, those of the cloud-controller-manager's updater (upstream).
        compatibility: Compatibility = "compatibility", AnyValue, Fixed("default"), since "0.1.0";
        /// The backend pools that are filled from an xDS control plane, for load-balancing rules that belong to no
        /// Kubernetes Service; [] is none. In one line, as an environment variable has it:
        /// `[{loadBalancer: kubernetes, backendPool: web, source: "eds:web"}]`. The keys of each:
        /// - `loadBalancer`: the load balancer's name.
        /// - `backendPool`: the pool's name; not that of a Service's pool, which the cloud-controller-manager writes too.
        /// - `source`: where its members come from: `eds:<name>`, the endpoints of this name, or `cluster:<name>`, those that
        ///   the cluster of this name means.
        /// - `family`: IPv4 or IPv6, whichever addresses its members have; where it is left out, IPv6 if the pool's name
        ///   ends with -ipv6, else IPv4.
        pools: Vec<ListedPool> = "pools", AnyValue, Fixed("[]"), since "0.1.0";
    }
    /// Which Services take part.
    services: Services = "services" {
        /// Only Services with these labels; "" is all.
        selector: LabelSelector = "selector", AnyValue, Fixed(""), since "0.1.0";
        /// Only Services in these namespaces; [] is all.
        namespaces: Vec<String> = "namespaces", Names::Namespaces, Fixed("[]"), since "0.1.0";
    }
    within
    /// What pools' members are learned from.
    "sources";
    /// The cluster's API server, which says what endpoints Services have.
    sources_kubernetes: SourcesKubernetes = "sources.kubernetes" {
        /// Whether a data error makes the members go that were known before it: an EndpointSlice that cannot be decoded then
        /// has no endpoints, and a Service whose EndpointSlices have all vanished, or may not be listed any more, has none.
        /// If not, what was known stays: of a slice until it can be decoded again, of slices that have all vanished until a
        /// second read says the same.
        fail_on_data_errors: bool = "failOnDataErrors", AnyValue, Fixed("false"), since "0.1.0";
    }
    /// The xDS control plane that fills the backend pools of `pools`. Without such pools nothing of this is looked at.
    xds: Xds = "xds" {
        /// gRPC's bootstrap file, which says where the control plane is and how to sign in there; "" is what the environment
        /// says, as with every gRPC client: the file that GRPC_XDS_BOOTSTRAP names, else GRPC_XDS_BOOTSTRAP_CONFIG itself.
        bootstrap: Option<PathBuf> = "bootstrap", AnyValue, Fixed(""), since "0.1.0";
        /// For how long endpoints of a better priority must have been usable before a pool goes back to them.
        failback: Duration = "failback", secs(0)..=secs(600), Fixed("30s"), since "0.1.0";
    }
    /// Finding out which load balancer and pools each Service uses.
    discovery: Discovery = "discovery" {
        /// How often every load balancer is read, which is also the check for drift.
        interval: Duration = "interval", secs(5)..=secs(3_600), Fixed("60s"), since "0.1.0";
    }
    /// Which nodes are members of a pool.
    members: Members = "members" {
        /// Which endpoints add their node: all that are not terminating (hosted), or those that are serving or ready.
        add: MembersAdd = "add", AnyValue, Fixed("hosted"), since "0.1.0";
        /// How long a node stays a member after its last endpoint has gone, so that connections drain.
        removal_delay: Duration = "removalDelay", secs(0)..=secs(600), Fixed("30s"), since "0.1.0";
    }
    /// When the changes of a pool are written.
    batching: Batching = "batching" {
        /// A change waits until nothing more has changed for this long.
        quiet_period: Duration = "quietPeriod", ms(0)..=secs(60), Fixed("500ms"), since "0.1.0";
        /// A change does not wait longer than this for quiet.
        max_delay: Duration = "maxDelay", ms(0)..=secs(300), Fixed("2s"), since "0.1.0";
        /// The least time between two writes of one pool.
        min_interval: Duration = "minInterval", ms(0)..=secs(60), Fixed("5s"), since "0.1.0";
        /// The least time between a failed write of a pool and the next.
        retry_interval: Duration = "retryInterval", ms(100)..=secs(60), UpdateInterval, since "0.1.0";
    }
    /// Comparing pools again.
    resync: Resync = "resync" {
        /// How long after a reported failure a pool is compared again, doubling up to 10m; 0s never.
        after_failure: Duration = "afterFailure", secs(0)..=secs(600), Fixed("1m"), since "0.1.0";
    }
    /// Protection against sources that lose data.
    guards: Guards = "guards" {
        /// Whether removals that may come from a broken source are held back (enforce), only shown and told (observe), or
        /// not judged (off).
        mode: GuardsMode = "mode", AnyValue, Fixed("enforce"), since "0.1.0";
        /// The part of a pool of 3 or more members that may go with a new list before that is read a second time.
        max_removal_fraction: Fraction = "maxRemovalFraction", AnyValue, Fixed("0.5"), since "0.1.0";
        /// How long the source has to say that a Service has no endpoints before its last member is removed; not asked
        /// for where mode is off, except with compatibility: upstream.
        empty_confirm: Duration = "emptyConfirm", secs(0)..=secs(3_600), Fixed("60s"), since "0.1.0";
    }
    /// Writing to Azure.
    writer: Writer = "writer" {
        /// How many load balancers are written at the same time; the writes of one are always serial.
        max_concurrent_load_balancers: u32 = "maxConcurrentLoadBalancers", 1..=1_024, Fixed("64"), since "0.1.0";
        /// Whether a write fails when another client has changed the load balancer since it was read.
        if_match: bool = "ifMatch", AnyValue, Fixed("true"), since "0.1.0";
        /// How often one write reads again and starts again after such a failure.
        etag_rounds: u32 = "etagRounds", 1..=10, Fixed("3"), since "0.1.0";
    }
    /// Sending requests to ARM.
    client: Client = "client" {
        /// The version of the network API. Sovereign clouds can lag behind the public cloud: if yours refuses this version,
        /// name the newest that its error lists.
        api_version: ApiVersion = "apiVersion", AnyValue, Fixed("2025-05-01"), since "0.1.0";
        /// Whether a throttled request (HTTP 429) is sent again within the same attempt.
        retry_throttled: bool = "retryThrottled", AnyValue, Fixed("false"), since "0.1.0";
    }
    /// Cutting nodes that leave service out of traffic, by the admin state of their entries in backend pools. Whether that
    /// is done at all is said by enableLoadBalancerAdminState of the cloud configuration.
    admin_state: AdminState = "adminState" {
        /// Backend pools of these names are left as they are, on every load balancer; [] is none.
        exclude_pools: Vec<String> =
            "excludePools", Names::BackendPools, Fixed("[aksOutboundBackendPool]"), since "0.1.0";
        /// The most that a node waits for its next try after failures of its own, which begins with 5ms and doubles.
        max_backoff: Duration = "maxBackoff", secs(1)..=secs(1_020), Fixed("15s"), since "0.1.0";
    }
    /// The migration from Basic to Standard load balancers, for clusters that still have Basic ones.
    migration: Migration = "migration" {
        /// Whether the controller migrates once per start, before it takes part in the election of the leader. Off by
        /// default, because the outage then begins at an unattended restart. Only with mode enforce;
        /// docs/migration.md says what must be done before.
        on_startup: bool = "onStartup", AnyValue, Fixed("false"), since "0.1.0";
        /// What the migration may change, as with `--accept` of migrate-basic-lb: public IPv6 addresses, names of scale
        /// sets whose instances have public addresses of their own, and no-outbound; [] is nothing.
        accept: Vec<String> = "accept", Names::Accepted, Fixed("[]"), since "0.1.0";
    }
    /// Our own Lease, by which the replicas agree on the one that writes.
    leader_election: LeaderElection = "leaderElection" {
        /// The Lease's namespace; all replicas of one cluster have the same, in whatever namespace they run.
        namespace: ObjectName = "namespace", AnyValue, Fixed("kube-system"), since "0.1.0";
        /// The Lease's name; all replicas of one cluster have the same.
        name: ObjectName = "name", AnyValue, Fixed("azure-backend-pool-controller"), since "0.1.0";
    }
    /// The Lease that the cloud-controller-manager takes for its own writes, and we for ours.
    lease: Lease = "lease" {
        /// Its namespace; change it only together with that of the cloud-controller-manager.
        namespace: ObjectName = "namespace", AnyValue, Fixed("kube-system"), since "0.1.0";
        /// Its name; change it only together with that of the cloud-controller-manager.
        name: ObjectName = "name", AnyValue, Fixed("aks-managed-resource-locker"), since "0.1.0";
        /// For how long after it was taken writes may start, counted from the request for it; the answer may take 5 s.
        max_hold: Duration = "maxHold", secs(6)..=secs(30), Fixed("20s"), since "0.1.0";
        /// How long it is left to others at least, where another holder was seen within the last hour.
        min_off: Duration = "minOff", secs(0)..=secs(60), Fixed("5s"), since "0.1.0";
        /// Whether a node that must go may be taken out of service without it after 2 s.
        bypass_for_drain: bool = "bypassForDrain", AnyValue, Fixed("false"), since "0.1.0";
    }
    /// How many ARM calls this service may make. Azure allows 1000 writes and 10000 reads in 5 minutes to everything
    /// in a subscription and region together.
    budget: Budget = "budget" {
        /// Writes in 5 minutes, over time; as many may be saved up in quiet times and spent at once.
        writes_per_5_minutes: u32 = "writesPer5Minutes", 10..=1_000_000, Fixed("500"), since "0.1.0";
        /// Reads in 5 minutes, over time; as many may be saved up in quiet times and spent at once.
        reads_per_5_minutes: u32 = "readsPer5Minutes", 10..=10_000_000, Fixed("5000"), since "0.1.0";
    }
    /// Listeners.
    http: Http = "http" {
        /// Health and metrics, without authentication.
        health_listen: SocketAddr = "healthListen", Listen::Anywhere, Fixed("0.0.0.0:8080"), since "0.1.0";
        /// The admin API for operators on this machine or with a port-forward; reading is open there.
        admin_listen: SocketAddr = "adminListen", Listen::Loopback, Fixed("127.0.0.1:8081"), since "0.1.0";
        /// The admin API with TLS, where certificate and key are set below; each request needs a token of the cluster.
        admin_tls_listen: SocketAddr = "adminTlsListen", Listen::Anywhere, Fixed("0.0.0.0:8443"), since "0.1.0";
        /// What the control plane has sent, by CSDS (gRPC, plain text), without authentication; open where `pools` names any.
        csds_listen: SocketAddr = "csdsListen", Listen::Loopback, Fixed("127.0.0.1:18000"), since "0.1.0";
    }
    /// The certificate of the admin API with TLS. Both files are read again every 10s, and used once they have changed.
    http_tls: HttpTls = "http.tls" {
        /// The certificate in PEM, followed by those of the authorities between it and the root; "" opens no listener.
        certificate: Option<PathBuf> = "certificate", AnyValue, Fixed(""), since "0.1.0";
        /// The certificate's private key in PEM, not encrypted; set with the certificate.
        key: Option<PathBuf> = "key", AnyValue, Fixed(""), since "0.1.0";
    }
    /// Logging.
    log: Log = "log" {
        /// One JSON object per line (json), or lines for operators (text).
        format: LogFormat = "format", AnyValue, Fixed("json"), since "0.1.0";
        /// The least important lines that are written.
        level: LogLevel = "level", AnyValue, Fixed("info"), since "0.1.0";
    }
}
