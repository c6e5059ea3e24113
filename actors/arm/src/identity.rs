//! As whom we call, and where tokens come from (C3).

use std::path::PathBuf;

use azure_core::credentials::Secret;
use url::Url;

/// As whom we call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Identity {
    /// Without a token; to loopback only.
    Anonymous,
    /// With a token had for the Kubernetes service account token in a file.
    WorkloadIdentity {
        /// The tenant (directory) id.
        tenant: String,
        /// The client (application) id.
        client_id: String,
        /// Where the service account token is kept; it is read again for every token.
        token_file: PathBuf,
    },
    /// With a token of the managed identity of the machine we run on.
    Managed(ManagedIdentity),
    /// With a token had for an application's secret.
    ClientSecret {
        /// The tenant (directory) id.
        tenant: String,
        /// The client (application) id.
        client_id: String,
        /// The secret.
        secret: Secret,
    },
    /// With a token had for an application's certificate.
    ClientCertificate {
        /// The tenant (directory) id.
        tenant: String,
        /// The client (application) id.
        client_id: String,
        /// A PKCS#12 or PEM file with certificate and RSA key; it is read again for every token.
        path: PathBuf,
        /// The password of a PKCS#12 file.
        password: Option<Secret>,
    },
}

/// Which managed identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ManagedIdentity {
    /// The machine's own.
    SystemAssigned,
    /// The user-assigned one with this client id.
    ClientId(String),
    /// The user-assigned one with this ARM resource id.
    ResourceId(String),
}

/// Where tokens come from, and what they are for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Login {
    /// Known beforehand.
    Known {
        /// Who gives the tokens, such as `https://login.microsoftonline.com`.
        authority_host: String,
        /// What they are asked for, such as `https://management.azure.com`; `/.default` is put after it as it stands.
        audience: String,
    },
    /// As the ARM endpoint's metadata document says; it is read before the first token is asked for.
    Metadata {
        /// The document's address, on the ARM endpoint.
        document: Url,
        /// The cloud's name; it chooses among several in the document.
        cloud: String,
        /// Who gives the tokens, whatever the document says.
        authority_host: Option<String>,
    },
}

impl Identity {
    /// Whether it asks the authority host for its tokens.
    pub(crate) fn asks_authority(&self) -> bool {
        match self {
            Identity::Anonymous | Identity::Managed(_) => false,
            Identity::WorkloadIdentity { .. }
            | Identity::ClientSecret { .. }
            | Identity::ClientCertificate { .. } => true,
        }
    }

    /// What operators call it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Identity::Anonymous => "no identity",
            Identity::WorkloadIdentity { .. } => "the workload identity",
            Identity::Managed(_) => "the managed identity",
            Identity::ClientSecret { .. } => "the client secret",
            Identity::ClientCertificate { .. } => "the client certificate",
        }
    }
}
