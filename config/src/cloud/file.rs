//! The keys of the cloud configuration that this controller reads, each declared once: reading, re-serialisation and
//! the effective configuration follow from the list. Values are as written; `super` interprets them.

use secrecy::SecretString;

use super::fields::Fields;
use crate::value::{ToValue, Value};

/// Declares a struct of optional keys, its reader, and its values without secrets.
macro_rules! cloud_keys {
    (
        $(#[doc = $about:literal])+
        $name:ident {
            $( $(#[doc = $doc:literal])+ $field:ident: $ty:ty = $reader:ident($key:literal), )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, Default)]
        pub(crate) struct $name {
            $( $(#[doc = $doc])+ pub(crate) $field: Option<$ty>, )+
        }

        impl $name {
            /// Reads every key; absent and null keys stay `None`, invalid ones become problems.
            pub(crate) fn read(fields: &mut Fields<'_>) -> Self {
                Self { $( $field: fields.$reader($key), )+ }
            }

            /// Returns every key in the order of declaration with its configured value, secrets hidden.
            pub(crate) fn values(&self) -> Vec<(&'static str, Option<Value>)> {
                vec![ $( ($key, self.$field.as_ref().map(ToValue::to_value)), )+ ]
            }
        }
    };
}

cloud_keys! {
    /// The keys at the top of the file.
    CloudFile {
        /// The cloud's name, `AzurePublicCloud` when absent.
        cloud: String = text("cloud"),
        /// Precedence of this file and the Secret, `merge` when absent.
        cloud_config_type: String = text("cloudConfigType"),
        /// The ARM endpoint, when it is not the cloud's own.
        resource_manager_endpoint: String = text("resourceManagerEndpoint"),
        /// Whether `cloud: AzureStackCloud` only means that `resourceManagerEndpoint` is of another cloud.
        disable_azure_stack_cloud: bool = boolean("disableAzureStackCloud"),
        /// The tenant that credentials belong to.
        tenant_id: String = text("tenantId"),
        /// The tenant of the load balancers, if it is a different one.
        network_resource_tenant_id: String = text("networkResourceTenantID"),
        /// The token issuer on Azure Stack: Entra ID or AD FS.
        identity_system: String = text("identitySystem"),
        /// The cluster's subscription.
        subscription_id: String = text("subscriptionId"),
        /// The subscription of load balancers, if it is a different one.
        network_resource_subscription_id: String = text("networkResourceSubscriptionID"),
        /// Added to the user agent of ARM calls.
        user_agent: String = text("userAgent"),
        /// The client (application) id of the service principal.
        aad_client_id: String = text("aadClientId"),
        /// The secret of that application.
        aad_client_secret: SecretString = secret("aadClientSecret"),
        /// The path of that application's certificate with the private key.
        aad_client_cert_path: String = text("aadClientCertPath"),
        /// The password of that file.
        aad_client_cert_password: SecretString = secret("aadClientCertPassword"),
        /// The projected service account token.
        aad_federated_token_file: String = text("aadFederatedTokenFile"),
        /// Whether to sign in with that token.
        use_federated_workload_identity_extension: bool = boolean("useFederatedWorkloadIdentityExtension"),
        /// Whether to sign in as the virtual machine's managed identity.
        use_managed_identity_extension: bool = boolean("useManagedIdentityExtension"),
        /// Which managed identity: a client id or a resource id.
        user_assigned_identity_id: String = text("userAssignedIdentityID"),
        /// A way to sign in that this controller does not support.
        aad_msi_data_plane_identity_path: String = text("aadMSIDataPlaneIdentityPath"),
        /// The cluster's resource group.
        resource_group: String = text("resourceGroup"),
        /// The region.
        location: String = text("location"),
        /// The virtual network of the nodes.
        vnet_name: String = text("vnetName"),
        /// Its resource group, if it is a different one.
        vnet_resource_group: String = text("vnetResourceGroup"),
        /// The load balancers' SKU, `standard` when absent.
        load_balancer_sku: String = text("loadBalancerSku"),
        /// The name that replaces the cluster's name for the one load balancer.
        load_balancer_name: String = text("loadBalancerName"),
        /// The load balancers' resource group, if it is a different one.
        load_balancer_resource_group: String = text("loadBalancerResourceGroup"),
        /// Whether pool members are network interfaces or IP addresses, `nodeIPConfiguration` when absent.
        load_balancer_backend_pool_configuration_type: String = text("loadBalancerBackendPoolConfigurationType"),
        /// The updater's interval in seconds; 0 means 30.
        update_interval: i64 = integer("loadBalancerBackendPoolUpdateIntervalInSeconds"),
        /// Q7: the retry budget of a change; 3 when absent, 0 when negative.
        update_max_retries: i64 = integer("loadBalancerBackendPoolUpdateMaxRetries"),
        /// Q7: the older name of the key above.
        update_retry_count: i64 = integer("loadBalancerBackendPoolUpdateRetryCount"),
        /// Whether the next key is used.
        cloud_provider_backoff: bool = boolean("cloudProviderBackoff"),
        /// W4: the retries of one ARM call.
        cloud_provider_backoff_retries: i64 = integer("cloudProviderBackoffRetries"),
        /// Validated but not used: the delays are fixed (W4).
        cloud_provider_backoff_duration: i64 = integer("cloudProviderBackoffDuration"),
        /// Validated but not used.
        cloud_provider_backoff_exponent: f64 = decimal("cloudProviderBackoffExponent"),
        /// Validated but not used.
        cloud_provider_backoff_jitter: f64 = decimal("cloudProviderBackoffJitter"),
        /// S1: whether admin states are written, true when absent.
        enable_load_balancer_admin_state: bool = boolean("enableLoadBalancerAdminState"),
        /// D5: whether control-plane nodes are excluded from pools, true when absent.
        exclude_master_from_standard_lb: bool = boolean("excludeMasterFromStandardLB"),
    }
}

cloud_keys! {
    /// A rate limit, at the top of the file or under `loadBalancerRateLimit`.
    RateLimitFile {
        /// Whether calls are limited.
        enabled: bool = boolean("cloudProviderRateLimit"),
        /// Reads per second.
        qps: f64 = decimal("cloudProviderRateLimitQPS"),
        /// Burst of reads.
        bucket: i64 = integer("cloudProviderRateLimitBucket"),
        /// Writes per second.
        qps_write: f64 = decimal("cloudProviderRateLimitQPSWrite"),
        /// Burst of writes.
        bucket_write: i64 = integer("cloudProviderRateLimitBucketWrite"),
    }
}
