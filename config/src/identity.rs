//! Selects the way to sign in to ARM from both files and the environment, in upstream's order (C3): workload identity,
//! managed identity, client secret, client certificate. The ARM client obtains the tokens.

use std::collections::BTreeMap;
use std::path::PathBuf;

use secrecy::SecretString;

use crate::cloud::{CloudConfig, Login, is_loopback, is_segment, parse_address};
use crate::controller::IdentityMode;
use crate::document::quoted;
use crate::problem::{Location, Mismatch, Problem};
use crate::value::{EffectiveValue, Origin, Value};

/// A way to sign in, with all its parameters.
#[derive(Clone, Debug)]
pub enum Identity {
    /// No sign-in; the endpoint is on this machine.
    Anonymous,
    /// A projected service account token is exchanged for a token.
    WorkloadIdentity {
        /// The tenant.
        tenant_id: String,
        /// The application or managed identity.
        client_id: String,
        /// The projected token; read again for every exchange.
        token_file: PathBuf,
    },
    /// The virtual machine's managed identity.
    Managed(ManagedIdentity),
    /// An application with a secret.
    ClientSecret {
        /// The tenant.
        tenant_id: String,
        /// The application.
        client_id: String,
        /// The secret.
        secret: SecretString,
    },
    /// An application with a certificate.
    ClientCertificate {
        /// The tenant.
        tenant_id: String,
        /// The application.
        client_id: String,
        /// Certificate and private key.
        path: PathBuf,
        /// The file's password.
        password: Option<SecretString>,
    },
}

/// A managed identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagedIdentity {
    /// The system-assigned identity of the virtual machine.
    SystemAssigned,
    /// A user-assigned identity, by client id.
    ClientId(String),
    /// A user-assigned identity, by ARM resource id.
    ResourceId(String),
}

impl Identity {
    /// Returns the name in the effective configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::WorkloadIdentity { .. } => "workloadIdentity",
            Self::Managed(_) => "managedIdentity",
            Self::ClientSecret { .. } => "clientSecret",
            Self::ClientCertificate { .. } => "clientCertificate",
        }
    }
}

/// The selected identity, and the problems found.
pub(crate) struct Decision {
    pub(crate) identity: Identity,
    pub(crate) login: Login,
    pub(crate) problems: Vec<Problem>,
    pub(crate) effective: Vec<EffectiveValue>,
}

/// Selects the identity. `mode_location` is the location of the mode, `cloud_file` the name of the cloud configuration.
/// If there are problems, the identity must not be used.
pub(crate) fn select(
    mode: IdentityMode,
    mode_location: &Location,
    cloud_file: &str,
    cloud: &CloudConfig,
    env: &BTreeMap<String, String>,
) -> Decision {
    let location = match mode {
        IdentityMode::Anonymous => mode_location.clone(),
        IdentityMode::WorkloadIdentity
        | IdentityMode::ManagedIdentity
        | IdentityMode::ClientSecret
        | IdentityMode::ClientCertificate
        | IdentityMode::Auto => Location::File(cloud_file.to_owned()),
    };
    let mut selector = Selector { cloud, env, location, problems: Vec::new(), effective: Vec::new() };
    let login = selector.login();
    let identity = match mode {
        IdentityMode::Anonymous => selector.anonymous(),
        IdentityMode::WorkloadIdentity => selector.workload_identity(),
        IdentityMode::ManagedIdentity => selector.managed_identity(),
        IdentityMode::ClientSecret => selector.client_secret(),
        IdentityMode::ClientCertificate => selector.client_certificate(),
        IdentityMode::Auto => selector.auto(),
    };
    let identity = selector.apply_network_tenant(identity);
    selector.check_identity_system(&identity);
    selector.check_encryption(&identity, &login);
    let Selector { problems, effective, .. } = selector;
    Decision { identity, login, problems, effective }
}

struct Selector<'a> {
    cloud: &'a CloudConfig,
    env: &'a BTreeMap<String, String>,
    location: Location,
    problems: Vec<Problem>,
    effective: Vec<EffectiveValue>,
}

impl Selector<'_> {
    fn auto(&mut self) -> Identity {
        let cloud = self.cloud;
        let file = cloud.file();
        let federated = file.use_federated_workload_identity_extension == Some(true);
        if federated || self.variable("AZURE_FEDERATED_TOKEN_FILE").is_some() {
            return self.workload_identity();
        }
        if file.use_managed_identity_extension == Some(true) {
            return self.managed_identity();
        }
        if file.aad_client_secret.is_some() || self.variable("AZURE_CLIENT_SECRET").is_some() {
            return self.client_secret();
        }
        if file.aad_client_cert_path.is_some() {
            return self.client_certificate();
        }
        let found = match &file.aad_msi_data_plane_identity_path {
            Some(_) => "aadMSIDataPlaneIdentityPath, which this controller does not support",
            None => "no credentials in the cloud configuration and the environment",
        };
        let remedy = "set useFederatedWorkloadIdentityExtension, useManagedIdentityExtension, or aadClientId with \
                      aadClientSecret or aadClientCertPath";
        self.refuse("identity", found, Mismatch::new("a way to sign in at ARM", remedy));
        Identity::Anonymous
    }

    fn client_secret(&mut self) -> Identity {
        let from_env = self.variable("AZURE_CLIENT_SECRET").map(SecretString::from);
        let origin = self.origin_of(from_env.is_some(), "AZURE_CLIENT_SECRET", "aadClientSecret");
        let secret = from_env.or_else(|| self.cloud.file().aad_client_secret.clone());
        if secret.is_some() {
            self.record("clientSecret", Value::Secret, origin);
        } else {
            let remedy = "set AZURE_CLIENT_SECRET or aadClientSecret, or write another identity";
            self.refuse("aadClientSecret", "nothing", Mismatch::new("the application's secret", remedy));
        }
        let (tenant_id, client_id) = (self.tenant_id(), self.client_id());
        Identity::ClientSecret { tenant_id, client_id, secret: secret.unwrap_or_default() }
    }

    fn client_certificate(&mut self) -> Identity {
        let path = self.cloud.file().aad_client_cert_path.clone();
        match &path {
            Some(path) => {
                let origin = self.origin_of(false, "", "aadClientCertPath");
                self.record("clientCertificate", Value::Text(path.clone()), origin);
            }
            None => {
                let remedy = "set aadClientCertPath to a PKCS#12 or PEM file, or write another identity";
                let mismatch = Mismatch::new("the path of certificate and key", remedy);
                self.refuse("aadClientCertPath", "nothing", mismatch);
            }
        }
        let password = self.cloud.file().aad_client_cert_password.clone();
        if password.is_some() {
            let origin = self.origin_of(false, "", "aadClientCertPassword");
            self.record("clientCertificatePassword", Value::Secret, origin);
        }
        let (tenant_id, client_id) = (self.tenant_id(), self.client_id());
        Identity::ClientCertificate { tenant_id, client_id, path: path.unwrap_or_default().into(), password }
    }

    /// Applies the tenant of the load balancers if it is not that of the identity. Upstream signs in there with the
    /// same application and its secret or certificate. For a managed identity, upstream reads a token from a key vault;
    /// this controller does not.
    fn apply_network_tenant(&mut self, mut identity: Identity) -> Identity {
        let key = "networkResourceTenantID";
        let Some(network) = self.cloud.file().network_resource_tenant_id.clone() else { return identity };
        let (name, is_own_tenant) = (identity.name(), |own: &str| network.eq_ignore_ascii_case(own));
        let own = match &mut identity {
            Identity::Anonymous => return identity,
            Identity::ClientSecret { tenant_id, .. } | Identity::ClientCertificate { tenant_id, .. } => {
                if !is_own_tenant(tenant_id) {
                    self.effective.retain(|entry| entry.path != "tenantId");
                    let origin = self.origin_of(false, "", key);
                    self.record("tenantId", Value::Text(network.clone()), origin);
                    self.check_tenant(&Origin::File, key, &network);
                    *tenant_id = network;
                }
                return identity;
            }
            Identity::WorkloadIdentity { tenant_id, .. } => tenant_id.as_str(),
            Identity::Managed(_) => self.cloud.tenant_id(),
        };
        if !is_own_tenant(own) {
            let found = format!("{} with the identity {name}", quoted(&network));
            let remedy =
                "sign in with aadClientId and aadClientSecret or aadClientCertPath, or remove the key";
            let expected = "the tenant of the identity, because only a client secret or certificate works in another tenant";
            self.refuse(key, &found, Mismatch::new(expected, remedy));
        }
        identity
    }

    /// Refuses AD FS, whose token requests differ from those of Entra ID.
    fn check_identity_system(&mut self, identity: &Identity) {
        let uses_authority = match identity {
            Identity::Anonymous | Identity::Managed(_) => false,
            Identity::WorkloadIdentity { .. }
            | Identity::ClientSecret { .. }
            | Identity::ClientCertificate { .. } => true,
        };
        let system = self.cloud.file().identity_system.clone().unwrap_or_default();
        if uses_authority && system.eq_ignore_ascii_case("adfs") {
            let remedy =
                "remove the key, or use a managed identity; only Entra ID gives tokens to this controller";
            self.refuse("identitySystem", &quoted(&system), Mismatch::new("azure_ad", remedy));
        }
    }

    fn anonymous(&mut self) -> Identity {
        let endpoint = self.cloud.arm_endpoint();
        if !is_loopback(endpoint) {
            let found = format!("anonymous with the ARM endpoint {endpoint}");
            let remedy =
                "write auto, or point resourceManagerEndpoint of the cloud configuration to loopback";
            self.refuse("identity", &found, Mismatch::new("anonymous with a loopback endpoint only", remedy));
        }
        Identity::Anonymous
    }

    fn workload_identity(&mut self) -> Identity {
        self.check_identity_binding();
        let from_env = self.variable("AZURE_FEDERATED_TOKEN_FILE");
        let origin =
            self.origin_of(from_env.is_some(), "AZURE_FEDERATED_TOKEN_FILE", "aadFederatedTokenFile");
        let token_file = from_env.or_else(|| self.cloud.file().aad_federated_token_file.clone());
        match &token_file {
            Some(path) => self.record("tokenFile", Value::Text(path.clone()), origin),
            None => {
                let remedy =
                    "set AZURE_FEDERATED_TOKEN_FILE or aadFederatedTokenFile, or write another identity";
                let mismatch = Mismatch::new("the projected token's path for workload identity", remedy);
                self.refuse("aadFederatedTokenFile", "nothing", mismatch);
            }
        }
        let (tenant_id, client_id) = (self.tenant_id(), self.client_id());
        Identity::WorkloadIdentity { tenant_id, client_id, token_file: token_file.unwrap_or_default().into() }
    }

    /// Refuses an AKS identity binding, with which Entra ID trusts a proxy of the cluster and no service account
    /// tokens.
    fn check_identity_binding(&mut self) {
        let name = "AZURE_KUBERNETES_TOKEN_PROXY";
        if self.variable(name).is_none() {
            return;
        }
        self.problems.push(Problem {
            location: Location::Environment(name.to_owned()),
            field: name.to_owned(),
            found: "an AKS identity binding".to_owned(),
            expected: "workload identity without a token proxy, which this controller cannot use".to_owned(),
            remedy: "remove the annotation azure.workload.identity/use-identity-binding from its Pods, and create a \
                     federated credential for its service account at the managed identity"
                .to_owned(),
        });
    }

    fn managed_identity(&mut self) -> Identity {
        let id = self.cloud.file().user_assigned_identity_id.clone();
        let origin = match &id {
            Some(_) => self.origin_of(false, "", "userAssignedIdentityID"),
            None => Origin::Default,
        };
        let value = id.clone().map_or(Value::Absent, Value::Text);
        self.record("userAssignedIdentityID", value, origin);
        Identity::Managed(match id {
            None => ManagedIdentity::SystemAssigned,
            Some(id) if id.to_ascii_lowercase().contains("/subscriptions/") => {
                ManagedIdentity::ResourceId(id)
            }
            Some(id) => ManagedIdentity::ClientId(id),
        })
    }

    fn tenant_id(&mut self) -> String {
        let from_env = self.variable("AZURE_TENANT_ID");
        let origin = self.origin_of(from_env.is_some(), "AZURE_TENANT_ID", "tenantId");
        let tenant = from_env.unwrap_or_else(|| self.cloud.tenant_id().to_owned());
        self.check_tenant(&origin, "tenantId", &tenant);
        self.record("tenantId", Value::Text(tenant.clone()), origin);
        tenant
    }

    /// Requires https for endpoints that receive secrets or tokens, even on this machine: the client refuses plain
    /// http.
    fn check_encryption(&mut self, identity: &Identity, login: &Login) {
        let (sends_token, sends_secret) = match identity {
            Identity::Anonymous => (false, false),
            Identity::Managed(_) => (true, false),
            Identity::WorkloadIdentity { .. }
            | Identity::ClientSecret { .. }
            | Identity::ClientCertificate { .. } => (true, true),
        };
        let endpoint = self.cloud.arm_endpoint();
        if sends_token && endpoint.scheme() != "https" {
            let found = quoted(endpoint.as_str());
            let remedy = "use https, or, for a simulation, write identity: anonymous into controller.yaml";
            let expected = format!("https, because the identity {} sends tokens there", identity.name());
            self.refuse("resourceManagerEndpoint", &found, Mismatch::new(expected, remedy));
        }
        let authority = match login {
            Login::Known { authority_host, .. } => Some(authority_host),
            Login::Metadata { authority_host, .. } => authority_host.as_ref(),
        };
        if let Some(host) = authority.filter(|host| sends_secret && host.scheme() != "https") {
            let found = quoted(host.as_str());
            let mismatch = Mismatch::new("an absolute https address", "use https");
            self.refuse("AZURE_AUTHORITY_HOST", &found, mismatch);
        }
    }

    /// Checks a tenant, which becomes a part of the URL of token requests.
    fn check_tenant(&mut self, origin: &Origin, key: &str, tenant: &str) {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        if is_segment(tenant) && tenant.chars().all(is_valid) {
            return;
        }
        let (location, field) = match origin {
            Origin::Environment(name) => (Location::Environment(name.clone()), name.as_str()),
            Origin::File | Origin::Secret | Origin::Default | Origin::Compatibility => {
                (self.location.clone(), key)
            }
        };
        self.problems.push(Problem {
            location,
            field: field.to_owned(),
            found: quoted(tenant),
            expected: "a tenant's id or domain".to_owned(),
            remedy: "write the bare id, not an address".to_owned(),
        });
    }

    fn client_id(&mut self) -> String {
        let from_env = self.variable("AZURE_CLIENT_ID");
        let origin = self.origin_of(from_env.is_some(), "AZURE_CLIENT_ID", "aadClientId");
        match from_env.or_else(|| self.cloud.file().aad_client_id.clone()) {
            Some(client) => {
                self.record("clientId", Value::Text(client.clone()), origin);
                client
            }
            None => {
                let mismatch =
                    Mismatch::new("the application that signs in", "set AZURE_CLIENT_ID or aadClientId");
                self.refuse("aadClientId", "nothing", mismatch);
                String::new()
            }
        }
    }

    /// Returns the source of tokens; `AZURE_AUTHORITY_HOST` replaces the authority host.
    fn login(&mut self) -> Login {
        let login = self.cloud.login();
        let name = "AZURE_AUTHORITY_HOST";
        let Some(text) = self.variable(name) else {
            return login;
        };
        match parse_address(&text) {
            Ok(host) => {
                self.record(
                    "authorityHost",
                    Value::Text(host.to_string()),
                    Origin::Environment(name.to_owned()),
                );
                login.with_authority(host)
            }
            Err(mismatch) => {
                let Mismatch { found, expected, remedy } = mismatch;
                self.problems.push(Problem {
                    location: Location::Environment(name.to_owned()),
                    field: name.to_owned(),
                    found: found.unwrap_or_default(),
                    expected,
                    remedy,
                });
                login
            }
        }
    }

    /// Returns the origin of a value: this variable, or this key of the cloud configuration.
    fn origin_of(&self, from_env: bool, name: &str, key: &str) -> Origin {
        if from_env { Origin::Environment(name.to_owned()) } else { self.cloud.origin(key, true) }
    }

    /// Returns an environment variable that is set and not empty.
    fn variable(&self, name: &str) -> Option<String> {
        self.env.get(name).filter(|value| !value.is_empty()).cloned()
    }

    fn record(&mut self, path: &str, value: Value, origin: Origin) {
        self.effective.push(EffectiveValue::new(path, value, origin));
    }

    fn refuse(&mut self, field: &str, found: &str, mismatch: Mismatch) {
        let Mismatch { found: _, expected, remedy } = mismatch;
        let (location, field, found) = (self.location.clone(), field.to_owned(), found.to_owned());
        self.problems.push(Problem { location, field, found, expected, remedy });
    }
}
