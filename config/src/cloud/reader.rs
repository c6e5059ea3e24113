//! Reads and checks the cloud configuration: invalid values become problems, and probable mistakes become warnings.

use std::collections::BTreeSet;

use url::Url;

use super::fields::Fields;
use super::file::{CloudFile, RateLimitFile};
use super::{
    Cloud, CloudConfig, CloudConfigType, LOAD_BALANCER_RATE_LIMIT, LoadBalancerSku, Login, MAX_RETRIES,
    MIN_READS_PER_SECOND, NODE_IP, NODE_IP_CONFIGURATION, POD_IP, PoolMembers, RETRY_COUNT, balancers,
    endpoint, misspelt,
};
use crate::document::{self, Content, Entry};
use crate::problem::{Mismatch, Problem, Warning};

/// The cloud that is refused: its network API (2018-11-01) has neither IP-based backend pools nor the SKU standard.
const AZURE_STACK: &str = "AzureStackCloud";

/// Reads text that becomes one segment of an ARM path.
pub(super) fn resource_name(fields: &mut Fields<'_>, key: &str) -> Option<String> {
    let name = fields.text(key);
    check_segment(fields, key, name.as_deref());
    name
}

/// Returns whether text can be one segment of an address.
pub(crate) fn is_segment(text: &str) -> bool {
    let is_invalid = |c: char| c.is_whitespace() || c.is_control() || "/\\?#%&<>\"'".contains(c);
    !text.contains(is_invalid) && text.chars().count() <= 90 && !text.trim_matches('.').is_empty()
}

/// Refuses text that cannot be one segment of an ARM path.
fn check_segment(fields: &mut Fields<'_>, key: &str, name: Option<&str>) {
    if name.is_some_and(|name| !is_segment(name)) {
        let expected = "a name without slashes, spaces and other special characters, at most 90 long";
        fields.refuse(key, Mismatch::new(expected, "write the bare name, not an id or address"));
    }
}

/// Reads one file; collects problems and warnings.
pub(super) struct Reader<'a> {
    file_name: &'a str,
    entries: &'a [Entry],
    has_secret: bool,
    problems: Vec<Problem>,
    warnings: Vec<Warning>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file_name: &'a str, entries: &'a [Entry]) -> Self {
        let (problems, warnings) = (Vec::new(), Vec::new());
        Self { file_name, entries, has_secret: false, problems, warnings }
    }

    /// Records that there is a Secret in addition to the file.
    pub(super) fn with_secret(self) -> Self {
        Self { has_secret: true, ..self }
    }

    fn fields(&mut self) -> Fields<'_> {
        Fields::new(self.file_name, "", self.entries, &mut self.problems)
    }

    fn warn(&mut self, key: &str, message: String) {
        let location = self.fields().location(key);
        self.warnings.push(Warning { location, field: key.to_owned(), message });
    }

    pub(super) fn read(mut self) -> Result<(CloudConfig, Vec<Warning>), Vec<Problem>> {
        let file = CloudFile::read(&mut self.fields());
        let rate_limit = self.rate_limit_file(None);
        let load_balancer_rate_limit = self
            .fields()
            .map(LOAD_BALANCER_RATE_LIMIT)
            .map(<[Entry]>::to_vec)
            .map(|entries| self.rate_limit_file(Some(&entries)));
        let items = self.fields().list(balancers::KEY).map(<[document::Node]>::to_vec).unwrap_or_default();
        let document = self.fields().document(balancers::KEY).to_owned();
        let configurations = balancers::read(&document, &items, &mut self.problems);
        let misspelt = misspelt::keys(self.file_name, self.entries);
        self.check_type(&file);
        self.check_names(&file);
        self.check_numbers(&file);
        let (cloud, arm_endpoint, login) = self.endpoint(&file);
        let sku = self.sku(&file);
        let pool_members = self.pool_members(&file);
        let config = CloudConfig {
            tenant_id: self.required("tenantId", file.tenant_id.as_deref()),
            subscription_id: self.required("subscriptionId", file.subscription_id.as_deref()),
            resource_group: self.required("resourceGroup", file.resource_group.as_deref()).to_lowercase(),
            from_secret: from_secret("", self.entries),
            file,
            arm_endpoint,
            login,
            cloud,
            sku,
            pool_members,
            configurations,
            rate_limit,
            load_balancer_rate_limit,
            misspelt,
        };
        self.check_modes(&config);
        if self.problems.is_empty() {
            self.warnings.extend(config.misspelt.iter().map(misspelt::warning));
            Ok((config, self.warnings))
        } else {
            self.problems.extend(config.misspelt);
            Err(self.problems)
        }
    }

    fn required(&mut self, key: &str, value: Option<&str>) -> String {
        let mut fields = self.fields();
        if value.is_none() && !fields.is_refused(key) {
            fields.refuse(key, Mismatch::new("a value", "add the key; there is no default for it"));
        }
        value.unwrap_or_default().to_owned()
    }

    fn rate_limit_file(&mut self, nested: Option<&[Entry]>) -> RateLimitFile {
        let prefix = nested.map(|_| format!("{LOAD_BALANCER_RATE_LIMIT}.")).unwrap_or_default();
        let entries = nested.unwrap_or(self.entries);
        let mut fields = Fields::new(self.file_name, prefix, entries, &mut self.problems);
        let limit = RateLimitFile::read(&mut fields);
        let buckets = [
            ("cloudProviderRateLimitBucket", limit.bucket),
            ("cloudProviderRateLimitBucketWrite", limit.bucket_write),
        ];
        for (key, value) in buckets {
            if value.is_some_and(|value| u32::try_from(value).is_err()) {
                let expected = format!("a number between 0 and {}", u32::MAX);
                fields.refuse(
                    key,
                    Mismatch::new(expected, "write the maximum burst of calls, or 0 for the default"),
                );
            }
        }
        limit
    }

    fn check_names(&mut self, file: &CloudFile) {
        let names = [
            ("tenantId", &file.tenant_id),
            ("networkResourceTenantID", &file.network_resource_tenant_id),
            ("subscriptionId", &file.subscription_id),
            ("networkResourceSubscriptionID", &file.network_resource_subscription_id),
            ("resourceGroup", &file.resource_group),
            ("vnetName", &file.vnet_name),
            ("vnetResourceGroup", &file.vnet_resource_group),
            ("loadBalancerName", &file.load_balancer_name),
            ("loadBalancerResourceGroup", &file.load_balancer_resource_group),
        ];
        for (key, name) in names {
            check_segment(&mut self.fields(), key, name.as_deref());
        }
        let printable = |text: &String| text.chars().all(|c| c.is_ascii_graphic() || c == ' ');
        if !file.user_agent.as_ref().is_none_or(printable) {
            let mismatch = Mismatch::new("printable ASCII text", "remove all other characters");
            self.fields().refuse("userAgent", mismatch);
        }
    }

    fn check_numbers(&mut self, file: &CloudFile) {
        if file.update_interval.is_some_and(|seconds| seconds < 0) {
            let mismatch = Mismatch::new("0 or more seconds", "write 0 for the default of 30 seconds");
            self.fields().refuse("loadBalancerBackendPoolUpdateIntervalInSeconds", mismatch);
        }
        let counts = [(MAX_RETRIES, file.update_max_retries), (RETRY_COUNT, file.update_retry_count)];
        for (key, count) in counts {
            if count.is_some_and(|count| count > u32::MAX.into()) {
                let mismatch = Mismatch::new(format!("at most {}", u32::MAX), "write a smaller number");
                self.fields().refuse(key, mismatch);
            }
            if count.is_some_and(|count| count < 0) {
                self.warn(key, "a negative count means 0: failed changes are not retried".to_owned());
            }
        }
        if file.update_retry_count.is_some() {
            let message = match file.update_max_retries {
                Some(_) => format!("ignored, because {MAX_RETRIES} is given too; remove this older name"),
                None => format!("this is an older name; write {MAX_RETRIES}"),
            };
            self.warn(RETRY_COUNT, message);
        }
    }

    /// Checks `cloudConfigType`, and that the Secret it requires is there.
    fn check_type(&mut self, file: &CloudFile) {
        let key = "cloudConfigType";
        match file.cloud_config_type.as_deref().map(CloudConfigType::named) {
            None | Some(Some(CloudConfigType::File | CloudConfigType::Merge)) => {}
            Some(Some(CloudConfigType::Secret)) if self.has_secret => {}
            Some(Some(CloudConfigType::Secret)) => {
                let message = "the Secret is not read; pass --cloud-config-secret if this file is incomplete";
                self.warn(key, message.to_owned());
            }
            Some(None) => {
                let mismatch = Mismatch::new("file, secret or merge", "write merge, or remove the key");
                self.fields().refuse(key, mismatch);
            }
        }
    }

    /// Returns the cloud, its ARM endpoint, and the source of tokens for it.
    fn endpoint(&mut self, file: &CloudFile) -> (Cloud, Url, Login) {
        let name = file.cloud.as_deref().unwrap_or_default();
        let is_called_azure_stack = name.eq_ignore_ascii_case(AZURE_STACK);
        if is_called_azure_stack && file.disable_azure_stack_cloud != Some(true) {
            let expected =
                "a cloud whose backend pools can list IP addresses; the network API of Azure Stack cannot";
            let remedy = "on Azure Stack, leave the backend pools to the cloud-controller-manager and uninstall this controller";
            self.fields().refuse("cloud", Mismatch::new(expected, remedy));
            let arm = Cloud::Public.arm_endpoint();
            let login = endpoint::login_of(&arm, name);
            return (Cloud::Public, arm, login);
        }
        if is_called_azure_stack && file.resource_manager_endpoint.is_none() {
            let expected =
                "the address of ARM, because cloud is AzureStackCloud and disableAzureStackCloud is true";
            let remedy = "write it like https://management.example.com, or name the cloud in cloud";
            self.fields().refuse("resourceManagerEndpoint", Mismatch::new(expected, remedy));
        }
        let cloud = Cloud::named(name).unwrap_or_else(|| {
            if !is_called_azure_stack {
                let message =
                    format!("{} is not a known cloud; AzurePublicCloud is used", document::quoted(name));
                self.warn("cloud", message);
            }
            Cloud::Public
        });
        let custom = file.resource_manager_endpoint.as_deref().map(endpoint::parse_address).transpose();
        let arm = custom.unwrap_or_else(|mismatch| {
            self.fields().refuse("resourceManagerEndpoint", mismatch);
            None
        });
        let arm = arm.unwrap_or_else(|| cloud.arm_endpoint());
        let login = endpoint::login_of(&arm, name);
        (cloud, arm, login)
    }

    fn sku(&mut self, file: &CloudFile) -> LoadBalancerSku {
        match file.load_balancer_sku.as_deref().map(str::to_ascii_lowercase).as_deref() {
            None | Some("standard") => LoadBalancerSku::Standard,
            Some("basic") => LoadBalancerSku::Basic,
            Some(_) => {
                let mismatch = Mismatch::new("standard or basic", "write standard");
                self.fields().refuse("loadBalancerSku", mismatch);
                LoadBalancerSku::Standard
            }
        }
    }

    fn pool_members(&mut self, file: &CloudFile) -> PoolMembers {
        let written =
            file.load_balancer_backend_pool_configuration_type.as_deref().unwrap_or(NODE_IP_CONFIGURATION);
        let known = [
            (NODE_IP_CONFIGURATION, PoolMembers::NodeIpConfiguration),
            (NODE_IP, PoolMembers::NodeIp),
            (POD_IP, PoolMembers::PodIp),
        ];
        match known.iter().find(|(name, _)| name.eq_ignore_ascii_case(written)) {
            Some((_, members)) => *members,
            None => {
                let expected = format!("{NODE_IP_CONFIGURATION}, {NODE_IP} or {POD_IP}");
                let mismatch = Mismatch::new(expected, format!("write {NODE_IP}"));
                self.fields().refuse("loadBalancerBackendPoolConfigurationType", mismatch);
                PoolMembers::NodeIp
            }
        }
    }

    /// Checks combinations of keys.
    fn check_modes(&mut self, config: &CloudConfig) {
        let pool_type = "loadBalancerBackendPoolConfigurationType";
        match config.pool_members {
            PoolMembers::NodeIpConfiguration | PoolMembers::PodIp
                if config.uses_multiple_load_balancers() =>
            {
                let expected = format!("{NODE_IP}, because {} is given", balancers::KEY);
                let mismatch = Mismatch::new(expected, format!("write {NODE_IP}"));
                self.fields().refuse(pool_type, mismatch);
            }
            PoolMembers::NodeIpConfiguration | PoolMembers::PodIp | PoolMembers::NodeIp => {}
        }
        if !config.configurations.is_empty() && !config.uses_multiple_load_balancers() {
            self.warn("loadBalancerSku", format!("{} is used only with SKU standard", balancers::KEY));
        }
        if !config.uses_multiple_load_balancers() {
            let effect = if config.admin_state_enabled() {
                "only nodes that leave service are taken out of traffic (enableLoadBalancerAdminState)"
            } else {
                "with enableLoadBalancerAdminState false, this controller does nothing"
            };
            let message = format!(
                "without it and SKU standard no Service has a backend pool of its own, and no members are written; \
                 {effect}"
            );
            self.warn(balancers::KEY, message);
        }
        if let Some(configured) = config.reads_below_floor() {
            let message = format!(
                "{configured} reads per second are too few for this controller, which may make up to \
                 {MIN_READS_PER_SECOND}"
            );
            let custom = config.load_balancer_rate_limit.is_some();
            self.warn(if custom { LOAD_BALANCER_RATE_LIMIT } else { "cloudProviderRateLimit" }, message);
        }
        if config.vnet_id().is_none() {
            let message = "absent: members cannot be added to a pool without a virtual network of its own";
            self.warn("vnetName", message.to_owned());
        }
    }
}

/// Returns the lower-case paths of the keys that the Secret sets.
fn from_secret(prefix: &str, entries: &[Entry]) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for entry in entries {
        let path = format!("{prefix}{}", entry.key.to_ascii_lowercase());
        if let Content::Map(below) = &entry.value.content {
            paths.extend(from_secret(&format!("{path}."), below));
        }
        if entry.document.is_some() {
            paths.insert(path);
        }
    }
    paths
}
