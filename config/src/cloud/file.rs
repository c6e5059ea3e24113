//! The keys of the cloud configuration that the product reads, each declared once: reading, re-serialisation and the
//! effective configuration follow from the list. Values are as written; `super` gives them their meaning.

use secrecy::SecretString;

use super::fields::Fields;
use crate::value::{Show, Value};

/// Declares a struct of optional keys, its reader, and what of it may be shown.
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
            /// Reads every key; absent and null keys stay `None`, wrong ones become problems.
            pub(crate) fn read(fields: &mut Fields<'_>) -> Self {
                Self { $( $field: fields.$reader($key), )+ }
            }

            /// Every key in the order of the declaration with the value that was written, secrets hidden.
            pub(crate) fn shown(&self) -> Vec<(&'static str, Option<Value>)> {
                vec![ $( ($key, self.$field.as_ref().map(Show::show)), )+ ]
            }
        }
    };
}

cloud_keys! {
    /// The keys at the top of the file.
    CloudFile {
        /// The cloud's name, `AzurePublicCloud` when absent.
        cloud: String = text("cloud"),
        /// What counts of this file where the configuration stands in a Secret too, `merge` when absent.
        cloud_config_type: String = text("cloudConfigType"),
        /// The ARM endpoint, when it is not the cloud's own.
        resource_manager_endpoint: String = text("resourceManagerEndpoint"),
        /// Whether `cloud: AzureStackCloud` only stands for a `resourceManagerEndpoint` of another cloud.
        disable_azure_stack_cloud: bool = switch("disableAzureStackCloud"),
        /// The tenant that credentials belong to.
        tenant_id: String = text("tenantId"),
        /// The tenant of the load balancers, when it is another.
        network_resource_tenant_id: String = text("networkResourceTenantID"),
        /// Who gives tokens on Azure Stack: Entra ID, or AD FS.
        identity_system: String = text("identitySystem"),
        /// The cluster's subscription.
        subscription_id: String = text("subscriptionId"),
        /// The subscription of load balancers, when it is another.
        network_resource_subscription_id: String = text("networkResourceSubscriptionID"),
        /// Added to the user agent of ARM calls.
        user_agent: String = text("userAgent"),
        /// The application that signs in.
        aad_client_id: String = text("aadClientId"),
        /// Its secret.
        aad_client_secret: SecretString = secret("aadClientSecret"),
        /// Its certificate with the private key.
        aad_client_cert_path: String = text("aadClientCertPath"),
        /// The password of that file.
        aad_client_cert_password: SecretString = secret("aadClientCertPassword"),
        /// The projected service account token.
        aad_federated_token_file: String = text("aadFederatedTokenFile"),
        /// Whether to sign in with that token.
        use_federated_workload_identity_extension: bool = switch("useFederatedWorkloadIdentityExtension"),
        /// Whether to sign in as the virtual machine's managed identity.
        use_managed_identity_extension: bool = switch("useManagedIdentityExtension"),
        /// Which managed identity: a client id or a resource id.
        user_assigned_identity_id: String = text("userAssignedIdentityID"),
        /// A way to sign in that this product does not know.
        aad_msi_data_plane_identity_path: String = text("aadMSIDataPlaneIdentityPath"),
        /// The cluster's resource group.
        resource_group: String = text("resourceGroup"),
        /// The region.
        location: String = text("location"),
        /// The virtual network of the nodes.
        vnet_name: String = text("vnetName"),
        /// Its resource group, when it is another.
        vnet_resource_group: String = text("vnetResourceGroup"),
        /// The load balancers' SKU, `standard` when absent.
        load_balancer_sku: String = text("loadBalancerSku"),
        /// The name that replaces the cluster's name for the one load balancer.
        load_balancer_name: String = text("loadBalancerName"),
        /// The load balancers' resource group, when it is another.
        load_balancer_resource_group: String = text("loadBalancerResourceGroup"),
        /// How pools name their members, `nodeIPConfiguration` when absent.
        load_balancer_backend_pool_configuration_type: String = text("loadBalancerBackendPoolConfigurationType"),
        /// The updater's tick in seconds, 0 for 30.
        update_interval: i64 = whole("loadBalancerBackendPoolUpdateIntervalInSeconds"),
        /// Q7: absent 3, 0 none, negative 0.
        update_max_retries: i64 = whole("loadBalancerBackendPoolUpdateMaxRetries"),
        /// Q7: the older name of the key above.
        update_retry_count: i64 = whole("loadBalancerBackendPoolUpdateRetryCount"),
        /// Whether the next key counts.
        cloud_provider_backoff: bool = switch("cloudProviderBackoff"),
        /// W4: the retries of one ARM call.
        cloud_provider_backoff_retries: i64 = whole("cloudProviderBackoffRetries"),
        /// Read for its type only: the delays are W4's.
        cloud_provider_backoff_duration: i64 = whole("cloudProviderBackoffDuration"),
        /// Read for its type only.
        cloud_provider_backoff_exponent: f64 = decimal("cloudProviderBackoffExponent"),
        /// Read for its type only.
        cloud_provider_backoff_jitter: f64 = decimal("cloudProviderBackoffJitter"),
        /// S1: whether admin states are written, true when absent.
        enable_load_balancer_admin_state: bool = switch("enableLoadBalancerAdminState"),
        /// D5: whether control-plane nodes are left out of pools, true when absent.
        exclude_master_from_standard_lb: bool = switch("excludeMasterFromStandardLB"),
    }
}

cloud_keys! {
    /// A rate limit, at the top of the file or under `loadBalancerRateLimit`.
    RateLimitFile {
        /// Whether calls are limited.
        enabled: bool = switch("cloudProviderRateLimit"),
        /// Reads per second.
        qps: f64 = decimal("cloudProviderRateLimitQPS"),
        /// Reads at once.
        bucket: i64 = whole("cloudProviderRateLimitBucket"),
        /// Writes per second.
        qps_write: f64 = decimal("cloudProviderRateLimitQPSWrite"),
        /// Writes at once.
        bucket_write: i64 = whole("cloudProviderRateLimitBucketWrite"),
    }
}
