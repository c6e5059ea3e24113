//! The settings of the model, each with its unit and its default.

/// Behaviour of the modelled cloud-controller-manager. Times are microseconds if the name ends in `_us`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Seed of all its randomness: jitter, order of drains, phase of its timers, crashes. Default 1.
    pub seed: u64,
    /// Wall-clock seconds since 1970 at `now` = 0, as in the cluster. Default as `kube::Settings`.
    pub epoch_s: u64,
    /// Offset of its own wall clock: ahead, or, if negative, behind. Default 0.
    pub skew_us: i64,
    /// Subscription of the load balancers. Default all zeros.
    pub subscription: String,
    /// Resource group of the load balancers. Default `rg`.
    pub resource_group: String,
    /// Azure region of load balancers that it creates. Default `eastus`.
    pub location: String,
    /// `clusterName`, which is also the name of the pool of Services that are not local. Default `kubernetes`.
    pub cluster_name: String,
    /// Id of the virtual network that the manager writes into pools without one.
    pub network: String,
    /// Identity in the shared Lease. Default `cloud-controller-manager`.
    pub holder: String,
    /// Name of the shared Lease in `kube-system`. Default `aks-managed-resource-locker`.
    pub lease: String,
    /// `leaseDurationSeconds` of a Lease that the manager creates. Default 900.
    pub lease_duration_s: u64,
    /// True if the updater of local Services runs. Default true.
    pub updater: bool,
    /// `loadBalancerBackendPoolUpdateIntervalInSeconds`. Default 30 s.
    pub updater_interval_us: u64,
    /// Period with which changed nodes are applied to the pools of all Services. Default 100 s.
    pub node_sync_us: u64,
    /// Period with which every Service is reconciled without a change; `None` disables this. Default `None`.
    pub resync_us: Option<u64>,
    /// Period of the check for nodes with stopped machines, which are tainted (`--node-monitor-period`: 5 s). `None`
    /// disables checks and taints. Default `None`.
    pub lifecycle_us: Option<u64>,
    /// Delay of the first retry of a failed Service; doubles. Default 5 s.
    pub retry_us: u64,
    /// Maximum delay of a retry. Default 5 min.
    pub max_retry_us: u64,
    /// Time for which a read load balancer is cached. With 0, it is read for each reconcile, as upstream lists before
    /// each one; older releases cached it for 120 s. Default 0.
    pub cache_us: u64,
    /// Probability, in thousandths, that a hold of the lock lasts `linger_us` longer. Default 0.
    pub linger_per_mille: u64,
    /// Additional time of a long hold. Default 0.
    pub linger_us: u64,
    /// Probability, in thousandths, that the process crashes while it holds the lock. Default 0.
    pub crash_per_mille: u64,
    /// Downtime after such a crash. Default 15 s.
    pub down_us: u64,
    /// True if the manager writes back only the fields that its SDK types have. Default true.
    pub drops_unknown_fields: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let subscription = "00000000-0000-0000-0000-000000000000".to_owned();
        let group = format!("/subscriptions/{subscription}/resourceGroups/rg");
        Self {
            seed: 1,
            epoch_s: 1_795_132_800,
            skew_us: 0,
            subscription,
            resource_group: "rg".to_owned(),
            location: "eastus".to_owned(),
            cluster_name: "kubernetes".to_owned(),
            network: format!("{group}/providers/Microsoft.Network/virtualNetworks/vnet"),
            holder: "cloud-controller-manager".to_owned(),
            lease: "aks-managed-resource-locker".to_owned(),
            lease_duration_s: 900,
            updater: true,
            updater_interval_us: 30_000_000,
            node_sync_us: 100_000_000,
            resync_us: None,
            lifecycle_us: None,
            retry_us: 5_000_000,
            max_retry_us: 300_000_000,
            cache_us: 0,
            linger_per_mille: 0,
            linger_us: 0,
            crash_per_mille: 0,
            down_us: 15_000_000,
            drops_unknown_fields: true,
        }
    }
}

impl Settings {
    /// Returns the manager's wall clock at `now_us`, in microseconds since 1970.
    pub(super) fn wall_us(&self, now_us: u64) -> u64 {
        let true_time = self.epoch_s.saturating_mul(1_000_000).saturating_add(now_us);
        true_time.saturating_add_signed(self.skew_us)
    }

    /// Returns the id of a load balancer, which is also its path.
    pub(super) fn balancer(&self, name: &str) -> String {
        let Self { subscription, resource_group, .. } = self;
        let group = format!("/subscriptions/{subscription}/resourceGroups/{resource_group}");
        format!("{group}/providers/Microsoft.Network/loadBalancers/{name}")
    }

    /// Returns the id of a pool, which is also its path.
    pub(super) fn pool(&self, balancer: &str, name: &str) -> String {
        format!("{}/backendAddressPools/{name}", self.balancer(balancer))
    }
}
