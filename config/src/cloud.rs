//! The cloud configuration (C1): the keys of the cloud-controller-manager's own file that this controller uses, with
//! the same meaning. Other keys are ignored; an invalid value of a key that is read is an error.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use url::Url;

mod balancers;
mod effective;
mod endpoint;
mod fields;
mod file;
mod merge;
mod misspelt;
mod reader;

pub use balancers::BalancerConfiguration;
pub use endpoint::{Cloud, Login, is_loopback};
pub use merge::CloudConfigType;

pub(crate) use endpoint::parse_address;
pub(crate) use file::CloudFile;
pub(crate) use reader::is_segment;

use crate::document::{self, Content, Entry};
use crate::problem::{Location, Problem, WHOLE_FILE, Warning};
use crate::source::{CloudSource, Source};
use file::RateLimitFile;
use reader::Reader;

/// Default retry budget of a change (Q7).
pub const DEFAULT_MAX_RETRIES: u32 = 3;
/// Default interval of the updater; also used for 0.
pub const DEFAULT_UPDATE_INTERVAL: Duration = Duration::from_secs(30);
/// Default number of retries of one ARM call, also used if back-off is disabled (W4).
pub const DEFAULT_CLIENT_RETRIES: u32 = 3;
/// Lowest limit of reads per second (W9).
pub const MIN_READS_PER_SECOND: f64 = 10.0;

/// SKU of the load balancers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadBalancerSku {
    /// Basic: no multiple load balancers.
    Basic,
    /// Standard, the default.
    Standard,
}

/// The way in which backend pools name their members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMembers {
    /// Members by network interface: `nodeIPConfiguration`, the default.
    NodeIpConfiguration,
    /// Members by node IP: `nodeIP`; required for multiple load balancers.
    NodeIp,
    /// Members by Pod IP: `podIP`.
    PodIp,
}

/// Configured token buckets for ARM calls (W9).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Reads per second, at least [`MIN_READS_PER_SECOND`].
    pub reads_per_second: f64,
    /// Burst of reads.
    pub read_burst: u32,
    /// Writes per second, more than 0.
    pub writes_per_second: f64,
    /// Burst of writes.
    pub write_burst: u32,
}

/// A valid cloud configuration.
#[derive(Clone, Debug)]
pub struct CloudConfig {
    file: CloudFile,
    tenant_id: String,
    subscription_id: String,
    resource_group: String,
    arm_endpoint: Url,
    login: Login,
    /// Lower-case paths of the keys that come from the Secret.
    from_secret: BTreeSet<String>,
    cloud: Cloud,
    sku: LoadBalancerSku,
    pool_members: PoolMembers,
    configurations: Vec<BalancerConfiguration>,
    rate_limit: RateLimitFile,
    load_balancer_rate_limit: Option<RateLimitFile>,
    /// Unknown keys that resemble known ones.
    misspelt: Vec<Problem>,
}

impl CloudConfig {
    /// Parses JSON or YAML; `source_name` names the file in error messages. Returns all errors, not only the first.
    pub fn parse(bytes: &[u8], source_name: &str) -> Result<(Self, Vec<Warning>), Vec<Problem>> {
        Self::read(&Source::new(source_name, bytes).into())
    }

    /// Reads the file, the Secret, or both, according to `cloudConfigType`. Returns all errors, not only the first.
    pub fn read(source: &CloudSource) -> Result<(Self, Vec<Warning>), Vec<Problem>> {
        let CloudSource { file, secret } = source;
        let Some(secret) = secret else {
            return Reader::new(file.name(), &entries(file)?).read();
        };
        if file.content().is_none() {
            let entries = merge::overlay(&[], &entries(secret)?, &Arc::from(secret.name()));
            return Reader::new(secret.name(), &entries).with_secret().read();
        }
        let own = entries(file)?;
        match CloudConfigType::of(&own) {
            CloudConfigType::File => Reader::new(file.name(), &own).with_secret().read(),
            CloudConfigType::Secret => {
                let entries = merge::overlay(&[], &entries(secret)?, &Arc::from(secret.name()));
                Reader::new(secret.name(), &entries).with_secret().read()
            }
            CloudConfigType::Merge => {
                let entries = merge::overlay(&own, &entries(secret)?, &Arc::from(secret.name()));
                Reader::new(file.name(), &entries).with_secret().read()
            }
        }
    }

    /// Returns the cloud; an unknown one is treated as public, as in the cloud-controller-manager.
    pub fn cloud(&self) -> Cloud {
        self.cloud
    }

    /// Returns the ARM endpoint: `resourceManagerEndpoint`, else the cloud's own.
    pub fn arm_endpoint(&self) -> &Url {
        &self.arm_endpoint
    }

    /// Returns the login endpoint that issues tokens for ARM.
    pub fn login(&self) -> Login {
        self.login.clone()
    }

    /// Returns the tenant that credentials belong to.
    pub fn tenant_id(&self) -> &str {
        &self.tenant_id
    }

    /// Returns the cluster's subscription.
    pub fn subscription_id(&self) -> &str {
        &self.subscription_id
    }

    /// Returns the subscription of load balancers and pools.
    pub fn network_subscription(&self) -> &str {
        self.file.network_resource_subscription_id.as_deref().unwrap_or(&self.subscription_id)
    }

    /// Returns the cluster's resource group, lower-cased as upstream does on load.
    pub fn resource_group(&self) -> &str {
        &self.resource_group
    }

    /// Returns the load balancers' resource group: `loadBalancerResourceGroup`, else `resourceGroup`.
    pub fn load_balancer_resource_group(&self) -> &str {
        self.file.load_balancer_resource_group.as_deref().unwrap_or(&self.resource_group)
    }

    /// Returns the region.
    pub fn location(&self) -> Option<&str> {
        self.file.location.as_deref()
    }

    /// Returns the addition to the user agent of ARM calls.
    pub fn user_agent(&self) -> Option<&str> {
        self.file.user_agent.as_deref()
    }

    /// Returns the virtual network's id, which is written to pools without one (W3). Like upstream, it is in the
    /// cluster's subscription.
    pub fn vnet_id(&self) -> Option<String> {
        let vnet = self.file.vnet_name.as_deref()?;
        let group = self.file.vnet_resource_group.as_deref().unwrap_or(&self.resource_group);
        let subscription = &self.subscription_id;
        Some(format!(
            "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network/virtualNetworks/{vnet}"
        ))
    }

    /// Returns the load balancers' SKU.
    pub fn load_balancer_sku(&self) -> LoadBalancerSku {
        self.sku
    }

    /// Returns the way in which backend pools name their members.
    pub fn pool_members(&self) -> PoolMembers {
        self.pool_members
    }

    /// Returns the entries of `multipleStandardLoadBalancerConfigurations`.
    pub fn balancer_configurations(&self) -> &[BalancerConfiguration] {
        &self.configurations
    }

    /// Returns whether Services have pools of their own: SKU standard and at least one configuration.
    pub fn uses_multiple_load_balancers(&self) -> bool {
        match self.sku {
            LoadBalancerSku::Standard => !self.configurations.is_empty(),
            LoadBalancerSku::Basic => false,
        }
    }

    /// Returns every load balancer that may hold pools of this cluster, each also with `-internal`, spelled as
    /// configured and without repetition; Azure compares them case-insensitively.
    pub fn managed_load_balancers(&self, cluster_name: &str) -> Vec<String> {
        let single = self.file.load_balancer_name.as_deref().unwrap_or(cluster_name);
        let public: Vec<&str> = if self.uses_multiple_load_balancers() {
            self.configurations.iter().map(|entry| entry.name.as_str()).collect()
        } else {
            vec![single]
        };
        let mut names: Vec<String> = Vec::new();
        for name in public {
            for name in [name.to_owned(), format!("{name}-internal")] {
                if !names.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
                    names.push(name);
                }
            }
        }
        names
    }

    /// Returns upstream's update interval, `loadBalancerBackendPoolUpdateIntervalInSeconds`; 30 s if absent or 0 (S0).
    pub fn update_interval(&self) -> Duration {
        match self.file.update_interval.and_then(|seconds| u64::try_from(seconds).ok()) {
            None | Some(0) => DEFAULT_UPDATE_INTERVAL,
            Some(seconds) => Duration::from_secs(seconds),
        }
    }

    /// Returns the retry budget of a change (Q7): 3 if absent, 0 if negative.
    pub fn max_retries(&self) -> u32 {
        match self.configured_max_retries() {
            None => DEFAULT_MAX_RETRIES,
            Some(count) => u32::try_from(count.max(0)).unwrap_or(u32::MAX),
        }
    }

    /// Returns the retry budget as written, under either key; `None` when absent or null (Q7).
    pub fn configured_max_retries(&self) -> Option<i64> {
        self.file.update_max_retries.or(self.file.update_retry_count)
    }

    /// Returns the retries of one ARM call (W4): `cloudProviderBackoffRetries` if back-off is enabled and it is above
    /// 0.
    pub fn client_retries(&self) -> u32 {
        match (self.file.cloud_provider_backoff, self.file.cloud_provider_backoff_retries) {
            (Some(true), Some(retries)) if retries > 0 => u32::try_from(retries).unwrap_or(u32::MAX),
            _ => DEFAULT_CLIENT_RETRIES,
        }
    }

    /// Returns the configured reads per second, if a limit is enabled and it is below [`MIN_READS_PER_SECOND`].
    pub(crate) fn reads_below_floor(&self) -> Option<f64> {
        self.configured_reads_per_second().filter(|reads| *reads < MIN_READS_PER_SECOND)
    }

    /// Returns the configured reads per second, if a limit is enabled.
    fn configured_reads_per_second(&self) -> Option<f64> {
        let general = &self.rate_limit;
        let own = self.load_balancer_rate_limit.as_ref().unwrap_or(general);
        (own.enabled == Some(true)).then(|| decimal(own.qps).or(decimal(general.qps)).unwrap_or(1.0))
    }

    /// Returns the limit of load balancer calls, if one is enabled (W9): `loadBalancerRateLimit`, else the general
    /// keys.
    pub fn rate_limit(&self) -> Option<RateLimit> {
        let reads_per_second = self.configured_reads_per_second()?.max(MIN_READS_PER_SECOND);
        let general = &self.rate_limit;
        let own = self.load_balancer_rate_limit.as_ref().unwrap_or(general);
        let whole = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok()).filter(|v| *v > 0);
        let reads = decimal(general.qps).unwrap_or(1.0);
        let burst = whole(general.bucket).unwrap_or(5);
        let writes = decimal(general.qps_write).unwrap_or(reads);
        let write_burst = whole(general.bucket_write).unwrap_or(burst);
        Some(RateLimit {
            reads_per_second,
            read_burst: whole(own.bucket).unwrap_or(burst),
            writes_per_second: decimal(own.qps_write).unwrap_or(writes),
            write_burst: whole(own.bucket_write).unwrap_or(write_burst),
        })
    }

    /// Returns whether admin states are written (S1, N4).
    pub fn admin_state_enabled(&self) -> bool {
        self.file.enable_load_balancer_admin_state.unwrap_or(true)
    }

    /// Returns whether control-plane nodes are excluded from pools (D5).
    pub fn excludes_control_plane(&self) -> bool {
        self.file.exclude_master_from_standard_lb.unwrap_or(true)
    }

    /// Returns the unknown keys that resemble known ones. They are warnings unless the file also has an error.
    pub(crate) fn misspelt(&self) -> &[Problem] {
        &self.misspelt
    }

    /// Returns the keys with their values as configured.
    pub(crate) fn file(&self) -> &CloudFile {
        &self.file
    }
}

/// Returns the keys of one document.
fn entries(source: &Source) -> Result<Vec<Entry>, Vec<Problem>> {
    let file_problem = |found: String, remedy: &str| {
        vec![Problem {
            location: Location::File(source.name().to_owned()),
            field: WHOLE_FILE.to_owned(),
            found,
            expected: "a map with the cloud-controller-manager's keys".to_owned(),
            remedy: remedy.to_owned(),
        }]
    };
    let remedy = "name the file that the cloud-controller-manager reads (azure.json)";
    let Some(bytes) = source.content() else {
        return Err(vec![Problem {
            expected: "the cloud-controller-manager's configuration".to_owned(),
            ..file_problem("nothing".to_owned(), "give the file with --cloud-config").remove(0)
        }]);
    };
    let root = document::parse(source.name(), bytes).map_err(|problem| vec![*problem])?;
    match root.map(|node| (node.describe_hidden(), node.content)) {
        Some((_, Content::Map(entries))) => Ok(entries),
        Some((found, Content::Scalar { .. } | Content::List(_))) => Err(file_problem(found, remedy)),
        None => Err(file_problem("nothing".to_owned(), remedy)),
    }
}

/// Returns whether the Secret is read in addition to this file: not with `cloudConfigType: file`. An unreadable file is
/// reported later.
pub fn is_secret_used(file: &Source) -> bool {
    match entries(file).map(|entries| CloudConfigType::of(&entries)) {
        Ok(CloudConfigType::File) => false,
        Ok(CloudConfigType::Secret | CloudConfigType::Merge) | Err(_) => true,
    }
}

/// Returns the rate if it is positive.
fn decimal(value: Option<f64>) -> Option<f64> {
    value.filter(|value| *value > 0.0)
}

const MAX_RETRIES: &str = "loadBalancerBackendPoolUpdateMaxRetries";
const RETRY_COUNT: &str = "loadBalancerBackendPoolUpdateRetryCount";
const LOAD_BALANCER_RATE_LIMIT: &str = "loadBalancerRateLimit";
const NODE_IP_CONFIGURATION: &str = "nodeIPConfiguration";
const NODE_IP: &str = "nodeIP";
const POD_IP: &str = "podIP";
