//! How to sign in at ARM, decided once from both files and the environment, in upstream's order (C3): workload
//! identity, managed identity, client secret, client certificate. Obtaining tokens is the ARM client's business.

use std::collections::BTreeMap;
use std::path::PathBuf;

use secrecy::SecretString;
use url::Url;

use crate::cloud::{CloudConfig, Login, is_loopback, is_segment, parse_address};
use crate::controller::IdentityMode;
use crate::document::quoted;
use crate::problem::{Mismatch, Place, Problem};
use crate::value::{EffectiveValue, Origin, Value};

/// A way to sign in, complete.
#[derive(Clone, Debug)]
pub enum Identity {
    /// Not at all; the endpoint is this machine.
    Anonymous,
    /// A projected service account token is exchanged for a token.
    WorkloadIdentity {
        /// The tenant.
        tenant_id: String,
        /// The application or managed identity.
        client_id: String,
        /// The projected token; read anew for every exchange.
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

/// Which managed identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagedIdentity {
    /// The virtual machine's own.
    SystemAssigned,
    /// By client id.
    ClientId(String),
    /// By ARM resource id.
    ResourceId(String),
}

impl Identity {
    /// What the effective configuration calls it.
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

/// What was decided, or why nothing could be.
pub(crate) struct Decision {
    pub(crate) identity: Identity,
    pub(crate) login: Login,
    pub(crate) problems: Vec<Problem>,
    pub(crate) effective: Vec<EffectiveValue>,
}

/// Decides; `mode_place` is where the mode was written, `cloud_file` the cloud configuration's name. With problems the
/// identity must not be used.
pub(crate) fn decide(
    mode: IdentityMode,
    mode_place: &Place,
    cloud_file: &str,
    cloud: &CloudConfig,
    env: &BTreeMap<String, String>,
) -> Decision {
    let place = match mode {
        IdentityMode::Anonymous => mode_place.clone(),
        IdentityMode::WorkloadIdentity | IdentityMode::Auto => Place::File(cloud_file.to_owned()),
    };
    let mut chooser = Chooser { cloud, env, place, problems: Vec::new(), effective: Vec::new() };
    let login = chooser.login();
    let identity = match mode {
        IdentityMode::Anonymous => chooser.anonymous(),
        IdentityMode::WorkloadIdentity => chooser.workload_identity(),
        IdentityMode::Auto => chooser.auto(),
    };
    let Chooser { problems, effective, .. } = chooser;
    Decision { identity, login, problems, effective }
}

struct Chooser<'a> {
    cloud: &'a CloudConfig,
    env: &'a BTreeMap<String, String>,
    place: Place,
    problems: Vec<Problem>,
    effective: Vec<EffectiveValue>,
}

impl Chooser<'_> {
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
        let secret_from_env = self.variable("AZURE_CLIENT_SECRET").map(SecretString::from);
        let origin = origin_of(secret_from_env.is_some(), "AZURE_CLIENT_SECRET");
        if let Some(secret) = secret_from_env.or_else(|| file.aad_client_secret.clone()) {
            self.show("clientSecret", Value::Secret, origin);
            let (tenant_id, client_id) = (self.tenant_id(), self.client_id());
            return Identity::ClientSecret { tenant_id, client_id, secret };
        }
        if let Some(path) = file.aad_client_cert_path.clone() {
            self.show("clientCertificate", Value::Text(path.clone()), Origin::File);
            let (tenant_id, client_id) = (self.tenant_id(), self.client_id());
            let password = file.aad_client_cert_password.clone();
            return Identity::ClientCertificate { tenant_id, client_id, path: path.into(), password };
        }
        let found = match &file.aad_msi_data_plane_identity_path {
            Some(_) => "aadMSIDataPlaneIdentityPath, which this service does not know",
            None => "no credentials in the cloud configuration and the environment",
        };
        let remedy = "set useFederatedWorkloadIdentityExtension, aadClientId and aadFederatedTokenFile in the cloud \
                      configuration; this version uses workload identity alone";
        self.refuse("identity", found, Mismatch::new("a way to sign in at ARM", remedy));
        Identity::Anonymous
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
        let from_env = self.variable("AZURE_FEDERATED_TOKEN_FILE");
        let origin = origin_of(from_env.is_some(), "AZURE_FEDERATED_TOKEN_FILE");
        let token_file = from_env.or_else(|| self.cloud.file().aad_federated_token_file.clone());
        match &token_file {
            Some(path) => self.show("tokenFile", Value::Text(path.clone()), origin),
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

    fn managed_identity(&mut self) -> Identity {
        let id = self.cloud.file().user_assigned_identity_id.clone();
        let origin = if id.is_some() { Origin::File } else { Origin::Default };
        let shown = id.clone().map_or(Value::Absent, Value::Text);
        self.show("userAssignedIdentityID", shown, origin);
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
        let origin = origin_of(from_env.is_some(), "AZURE_TENANT_ID");
        let tenant = from_env.unwrap_or_else(|| self.cloud.tenant_id().to_owned());
        if !is_segment(&tenant) {
            self.problems.push(Problem {
                place: Place::Environment("AZURE_TENANT_ID".to_owned()),
                field: "AZURE_TENANT_ID".to_owned(),
                found: quoted(&tenant),
                expected: "a tenant's id or domain".to_owned(),
                remedy: "write the bare id, not an address".to_owned(),
            });
        }
        self.show("tenantId", Value::Text(tenant.clone()), origin);
        tenant
    }

    fn client_id(&mut self) -> String {
        let from_env = self.variable("AZURE_CLIENT_ID");
        let origin = origin_of(from_env.is_some(), "AZURE_CLIENT_ID");
        match from_env.or_else(|| self.cloud.file().aad_client_id.clone()) {
            Some(client) => {
                self.show("clientId", Value::Text(client.clone()), origin);
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

    /// Where tokens come from; `AZURE_AUTHORITY_HOST` replaces the authority host.
    fn login(&mut self) -> Login {
        let login = self.cloud.login();
        let name = "AZURE_AUTHORITY_HOST";
        let Some(text) = self.variable(name) else {
            return login;
        };
        match parse_address(&text) {
            Ok(host) => {
                self.show(
                    "authorityHost",
                    Value::Text(host.to_string()),
                    Origin::Environment(name.to_owned()),
                );
                with_authority(login, host)
            }
            Err(mismatch) => {
                let Mismatch { found, expected, remedy } = mismatch;
                self.problems.push(Problem {
                    place: Place::Environment(name.to_owned()),
                    field: name.to_owned(),
                    found: found.unwrap_or_default(),
                    expected,
                    remedy,
                });
                login
            }
        }
    }

    /// An environment variable that is set and not empty.
    fn variable(&self, name: &str) -> Option<String> {
        self.env.get(name).filter(|value| !value.is_empty()).cloned()
    }

    fn show(&mut self, path: &str, value: Value, origin: Origin) {
        self.effective.push(EffectiveValue::new(path, value, origin));
    }

    fn refuse(&mut self, field: &str, found: &str, mismatch: Mismatch) {
        let Mismatch { found: _, expected, remedy } = mismatch;
        let (place, field, found) = (self.place.clone(), field.to_owned(), found.to_owned());
        self.problems.push(Problem { place, field, found, expected, remedy });
    }
}

fn origin_of(from_env: bool, name: &str) -> Origin {
    if from_env { Origin::Environment(name.to_owned()) } else { Origin::File }
}

/// A metadata document names its own authority; an explicit one wins when it is asked.
fn with_authority(login: Login, host: Url) -> Login {
    match login {
        Login::Known { authority_host: _, audience } => Login::Known { authority_host: host, audience },
        Login::Metadata { document, authority_host: _ } => {
            Login::Metadata { document, authority_host: Some(host) }
        }
    }
}
