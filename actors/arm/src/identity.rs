//! The identity that calls use, and the source of its tokens (C3).

use std::path::PathBuf;

use azure_core::credentials::Secret;
use url::Url;

/// The identity that calls use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Identity {
    /// No token; for loopback only.
    Anonymous,
    /// A token in exchange for the Kubernetes service account token in a file.
    WorkloadIdentity {
        /// The tenant (directory) id.
        tenant: String,
        /// The client (application) id.
        client_id: String,
        /// File with the service account token; read again for every token.
        token_file: PathBuf,
    },
    /// A token of the managed identity of this machine.
    Managed(ManagedIdentity),
    /// A token for an application's secret.
    ClientSecret {
        /// The tenant (directory) id.
        tenant: String,
        /// The client (application) id.
        client_id: String,
        /// The secret.
        secret: Secret,
    },
    /// A token for an application's certificate.
    ClientCertificate {
        /// The tenant (directory) id.
        tenant: String,
        /// The client (application) id.
        client_id: String,
        /// A PKCS#12 or PEM file with certificate and RSA key; read again for every token.
        path: PathBuf,
        /// The password of a PKCS#12 file.
        password: Option<Secret>,
    },
}

/// The managed identity to use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ManagedIdentity {
    /// The machine's own.
    SystemAssigned,
    /// The user-assigned one with this client id.
    ClientId(String),
    /// The user-assigned one with this ARM resource id.
    ResourceId(String),
}

/// Source and audience of tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Login {
    /// Known in advance.
    Known {
        /// The authority, such as `https://login.microsoftonline.com`.
        authority_host: String,
        /// The audience, such as `https://management.azure.com`; `/.default` is appended to it unchanged.
        audience: String,
    },
    /// From the ARM endpoint's metadata document, which is read before the first token request.
    Metadata {
        /// URL of the document, on the ARM endpoint.
        document: Url,
        /// Name of the cloud, which selects one of several in the document.
        cloud: String,
        /// The authority, instead of the one in the document.
        authority_host: Option<String>,
    },
}

impl Identity {
    /// Returns whether the identity gets its tokens from the authority host.
    pub(crate) fn uses_authority(&self) -> bool {
        match self {
            Identity::Anonymous | Identity::Managed(_) => false,
            Identity::WorkloadIdentity { .. }
            | Identity::ClientSecret { .. }
            | Identity::ClientCertificate { .. } => true,
        }
    }

    /// Returns the display name of the identity.
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
