//! controller.yaml (C1): the controller's own settings. Each key is declared once, in the table below; reading, defaults,
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

pub(crate) use compatibility::{Deviation, apply_upstream_profile};
pub(crate) use reader::{MAX_RETRY_INTERVAL, Reader};

use crate::selector::LabelSelector;
use setting::{AnyValue, Listen, Names, Setting};

/// Declares the configuration's structs and the table of its keys. A section that is declared with `within` is nested in
/// another section, which has no keys of its own and no struct.
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
        /// The cluster's name, the same as `--cluster-name` of the cloud-controller-manager. It names the cluster's own
        /// backend pools, which are never written, and the load balancer if there is only one.
        cluster_name: String = "clusterName", 80, Fixed("kubernetes"), since "0.1.0";
        /// How to sign in to ARM: auto follows the cloud configuration and the environment; anonymous does not sign in,
        /// and needs a loopback endpoint. The others use one way regardless of the cloud configuration: the projected
        /// service account token (workloadIdentity), the virtual machine's managed identity (managedIdentity), or an
        /// application with its secret (clientSecret) or certificate (clientCertificate).
        identity: IdentityMode = "identity", AnyValue, Fixed("auto"), since "0.1.0";
        /// The actions that the controller may take: only reading (observe), all except removing members (add-only), or
        /// all (enforce).
        mode: Mode = "mode", AnyValue, Fixed("enforce"), since "0.1.0";
        /// The times and precautions of keys below that are not set: those of this controller (default), or, as far as
        /// there are keys for them, those of the cloud-controller-manager's updater (upstream).
        compatibility: Compatibility = "compatibility", AnyValue, Fixed("default"), since "0.1.0";
        /// The backend pools that are filled from an xDS control plane, for load-balancing rules that belong to no
        /// Kubernetes Service; [] means none. In one line, as in an environment variable:
        /// `[{loadBalancer: kubernetes, backendPool: web, source: "eds:web"}]`. The keys of each:
        /// - `loadBalancer`: the load balancer's name.
        /// - `backendPool`: the pool's name; not that of a Service's pool, which the cloud-controller-manager writes too.
        /// - `source`: the source of its members: `eds:<name>`, the endpoints of this name, or `cluster:<name>`, those that
        ///   the cluster of this name refers to.
        /// - `family`: IPv4 or IPv6, the addresses of its members; by default, IPv6 if the pool's name ends with -ipv6,
        ///   else IPv4.
        pools: Vec<ListedPool> = "pools", AnyValue, Fixed("[]"), since "0.1.0";
    }
    /// The Services that the controller manages.
    services: Services = "services" {
        /// Only Services with these labels; "" means all.
        selector: LabelSelector = "selector", AnyValue, Fixed(""), since "0.1.0";
        /// Only Services in these namespaces; [] means all.
        namespaces: Vec<String> = "namespaces", Names::Namespaces, Fixed("[]"), since "0.1.0";
    }
    within
    /// The sources of pool members.
    "sources";
    /// The cluster's API server, which has the endpoints of Services.
    sources_kubernetes: SourcesKubernetes = "sources.kubernetes" {
        /// Whether a data error removes the previously known members. If true, an EndpointSlice that cannot be decoded has no
        /// endpoints, and neither has a Service whose EndpointSlices have all vanished or may no longer be listed. If false, the
        /// last known endpoints stay in use: those of a slice until it can be decoded again, those of vanished slices until a
        /// second read confirms it.
        fail_on_data_errors: bool = "failOnDataErrors", AnyValue, Fixed("false"), since "0.1.0";
    }
    /// The xDS control plane that fills the backend pools of `pools`. Without such pools, this section has no effect.
    xds: Xds = "xds" {
        /// gRPC's bootstrap file, with the addresses and credentials of the control plane. With "", the environment decides, as
        /// in every gRPC client: the file that GRPC_XDS_BOOTSTRAP names, else the content of GRPC_XDS_BOOTSTRAP_CONFIG.
        bootstrap: Option<PathBuf> = "bootstrap", AnyValue, Fixed(""), since "0.1.0";
        /// Time that endpoints of a better priority must be usable before a pool returns to them.
        failback: Duration = "failback", secs(0)..=secs(600), Fixed("30s"), since "0.1.0";
    }
    /// Discovery of the load balancer and pools that each Service uses.
    discovery: Discovery = "discovery" {
        /// Interval between reads of every load balancer, which also detect drift.
        interval: Duration = "interval", secs(5)..=secs(3_600), Fixed("60s"), since "0.1.0";
    }
    /// The nodes that are members of a pool.
    members: Members = "members" {
        /// The endpoints that add their node: all that are not terminating (hosted), or those that are serving or ready.
        add: MembersAdd = "add", AnyValue, Fixed("hosted"), since "0.1.0";
        /// Time that a node stays a member after its last endpoint has gone, so that connections drain.
        removal_delay: Duration = "removalDelay", secs(0)..=secs(600), Fixed("30s"), since "0.1.0";
    }
    /// Batching of the changes of a pool.
    batching: Batching = "batching" {
        /// A change waits until there is no further change for this time.
        quiet_period: Duration = "quietPeriod", ms(0)..=secs(60), Fixed("500ms"), since "0.1.0";
        /// Maximum time that a change waits for the quiet period.
        max_delay: Duration = "maxDelay", ms(0)..=secs(300), Fixed("2s"), since "0.1.0";
        /// Minimum time between two writes of one pool.
        min_interval: Duration = "minInterval", ms(0)..=secs(60), Fixed("5s"), since "0.1.0";
        /// Minimum time between a failed write of a pool and the next.
        retry_interval: Duration = "retryInterval", ms(100)..=secs(60), UpdateInterval, since "0.1.0";
    }
    /// Repeated comparison of pools.
    resync: Resync = "resync" {
        /// Time after which a pool is compared again after a reported failure, doubling up to 10m; 0s means never.
        after_failure: Duration = "afterFailure", secs(0)..=secs(600), Fixed("1m"), since "0.1.0";
    }
    /// Guards against sources that lose data.
    guards: Guards = "guards" {
        /// Removals that may come from a broken source are held back (enforce), carried out and reported (observe), or not
        /// checked (off).
        mode: GuardsMode = "mode", AnyValue, Fixed("enforce"), since "0.1.0";
        /// Fraction of a pool of 3 or more members that a new list may remove before the list is read a second time.
        max_removal_fraction: Fraction = "maxRemovalFraction", AnyValue, Fixed("0.5"), since "0.1.0";
        /// Time that a Service must have no endpoints before its last member is removed. Ignored if mode is off, except with
        /// compatibility: upstream.
        empty_confirm: Duration = "emptyConfirm", secs(0)..=secs(3_600), Fixed("60s"), since "0.1.0";
    }
    /// Writing to Azure.
    writer: Writer = "writer" {
        /// Maximum number of load balancers that are written at the same time; writes of one load balancer are always serial.
        max_concurrent_load_balancers: u32 = "maxConcurrentLoadBalancers", 1..=1_024, Fixed("64"), since "0.1.0";
        /// Whether a write fails when another client has changed the load balancer since it was read.
        if_match: bool = "ifMatch", AnyValue, Fixed("true"), since "0.1.0";
        /// Maximum number of times that one write reads again and restarts after such a failure.
        etag_rounds: u32 = "etagRounds", 1..=10, Fixed("3"), since "0.1.0";
    }
    /// Sending requests to ARM.
    client: Client = "client" {
        /// The version of the network API. Sovereign clouds can lag behind the public cloud: if yours refuses this version, set
        /// the newest one that its error lists.
        api_version: ApiVersion = "apiVersion", AnyValue, Fixed("2025-05-01"), since "0.1.0";
        /// Whether a throttled request (HTTP 429) is sent again within the same attempt.
        retry_throttled: bool = "retryThrottled", AnyValue, Fixed("false"), since "0.1.0";
    }
    /// Taking nodes that leave service out of traffic, by the admin state of their entries in backend pools. This can be
    /// switched off by enableLoadBalancerAdminState of the cloud configuration.
    admin_state: AdminState = "adminState" {
        /// Backend pools with these names are not changed, on any load balancer; [] means none.
        exclude_pools: Vec<String> =
            "excludePools", Names::BackendPools, Fixed("[aksOutboundBackendPool]"), since "0.1.0";
        /// Maximum wait of a node between retries after its own failures; the wait starts at 5ms and doubles.
        max_backoff: Duration = "maxBackoff", secs(1)..=secs(1_020), Fixed("15s"), since "0.1.0";
    }
    /// The migration from Basic to Standard load balancers, for clusters that still have Basic ones.
    migration: Migration = "migration" {
        /// Whether the controller migrates once per start, before it takes part in leader election. Off by default, because the
        /// outage would begin at an unattended restart. Only with mode enforce; docs/migration.md lists the preparations.
        on_startup: bool = "onStartup", AnyValue, Fixed("false"), since "0.1.0";
        /// Changes that the migration may make, as with `--accept` of migrate-basic-lb: public IPv6 addresses, names of scale
        /// sets whose instances have public addresses of their own, and no-outbound; [] means none.
        accept: Vec<String> = "accept", Names::Accepted, Fixed("[]"), since "0.1.0";
    }
    /// The controller's own Lease, by which the replicas elect the one that writes.
    leader_election: LeaderElection = "leaderElection" {
        /// The Lease's namespace; the same for all replicas of one cluster, even if they run in other namespaces.
        namespace: ObjectName = "namespace", AnyValue, Fixed("kube-system"), since "0.1.0";
        /// The Lease's name; the same for all replicas of one cluster.
        name: ObjectName = "name", AnyValue, Fixed("azure-backend-pool-controller"), since "0.1.0";
    }
    /// The Lease that the cloud-controller-manager and this controller take for their writes.
    lease: Lease = "lease" {
        /// Its namespace; change it only together with that of the cloud-controller-manager.
        namespace: ObjectName = "namespace", AnyValue, Fixed("kube-system"), since "0.1.0";
        /// Its name; change it only together with that of the cloud-controller-manager.
        name: ObjectName = "name", AnyValue, Fixed("aks-managed-resource-locker"), since "0.1.0";
        /// Time after taking the Lease during which writes may start, counted from the request, whose answer may take 5 s.
        max_hold: Duration = "maxHold", secs(6)..=secs(30), Fixed("20s"), since "0.1.0";
        /// Minimum time that it is left to other clients after a hold, if another holder was seen within the last hour.
        min_cooldown: Duration = "minCooldown", secs(0)..=secs(60), Fixed("5s"), since "0.1.0";
        /// Whether a node that leaves service may be taken out of traffic without the Lease after 2 s.
        bypass_for_drain: bool = "bypassForDrain", AnyValue, Fixed("false"), since "0.1.0";
    }
    /// Limits of ARM calls. Azure allows 1000 writes and 10000 reads in 5 minutes for all clients of a subscription and
    /// region together.
    budget: Budget = "budget" {
        /// Average writes in 5 minutes; a burst may have as many if there were no writes before.
        writes_per_5_minutes: u32 = "writesPer5Minutes", 10..=1_000_000, Fixed("500"), since "0.1.0";
        /// Average reads in 5 minutes; a burst may have as many if there were no reads before.
        reads_per_5_minutes: u32 = "readsPer5Minutes", 10..=10_000_000, Fixed("5000"), since "0.1.0";
    }
    /// Listeners.
    http: Http = "http" {
        /// Health and metrics, without authentication.
        health_listen: SocketAddr = "healthListen", Listen::Anywhere, Fixed("0.0.0.0:8080"), since "0.1.0";
        /// The admin API for operators on this machine or with a port-forward; reading needs no token there.
        admin_listen: SocketAddr = "adminListen", Listen::Loopback, Fixed("127.0.0.1:8081"), since "0.1.0";
        /// The admin API with TLS, if certificate and key are set below; each request needs a token of the cluster.
        admin_tls_listen: SocketAddr = "adminTlsListen", Listen::Anywhere, Fixed("0.0.0.0:8443"), since "0.1.0";
        /// The state of xDS resources by CSDS (gRPC, plain text), without authentication; open if `pools` is not empty.
        csds_listen: SocketAddr = "csdsListen", Listen::Loopback, Fixed("127.0.0.1:18000"), since "0.1.0";
    }
    /// The certificate of the admin API with TLS. Both files are read every 10s; changes take effect for new connections.
    http_tls: HttpTls = "http.tls" {
        /// The certificate in PEM, followed by the intermediate certificates; "" opens no listener.
        certificate: Option<PathBuf> = "certificate", AnyValue, Fixed(""), since "0.1.0";
        /// The certificate's private key in PEM, not encrypted; set with the certificate.
        key: Option<PathBuf> = "key", AnyValue, Fixed(""), since "0.1.0";
    }
    /// Logging.
    log: Log = "log" {
        /// One JSON object per line (json), or text lines for operators (text).
        format: LogFormat = "format", AnyValue, Fixed("json"), since "0.1.0";
        /// The minimum level of lines that are written.
        level: LogLevel = "level", AnyValue, Fixed("info"), since "0.1.0";
    }
}
