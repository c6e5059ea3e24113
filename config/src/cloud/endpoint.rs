//! The Azure clouds: their ARM endpoints, token issuers and token audiences (C3).

use url::{Host, Url};

use crate::document::quoted;
use crate::problem::Mismatch;

/// A known cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cloud {
    /// AzurePublicCloud.
    Public,
    /// AzureChinaCloud.
    China,
    /// AzureUSGovernmentCloud.
    UsGovernment,
}

/// The source of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// The endpoint of a known cloud.
    Known {
        /// The authority host, with a slash at its end.
        authority_host: Url,
        /// The token audience, byte for byte.
        audience: String,
    },
    /// The endpoint that the ARM endpoint's metadata document names at run time.
    Metadata {
        /// The document's address.
        document: Url,
        /// The configured name of the cloud, which selects one of several in the document.
        cloud: String,
        /// The authority host that takes precedence over the document's.
        authority_host: Option<Url>,
    },
}

impl Login {
    /// Returns the OAuth scope if it is already known: the audience with `/.default`.
    pub fn scope(&self) -> Option<String> {
        match self {
            Self::Known { audience, .. } => Some(format!("{audience}/.default")),
            Self::Metadata { .. } => None,
        }
    }

    /// Replaces the authority host.
    pub(crate) fn with_authority(self, host: Url) -> Self {
        match self {
            Self::Known { authority_host: _, audience } => Self::Known { authority_host: host, audience },
            Self::Metadata { document, cloud, authority_host: _ } => {
                Self::Metadata { document, cloud, authority_host: Some(host) }
            }
        }
    }
}

/// The well-known addresses of one cloud: ARM, authority host, audience.
type Addresses = (&'static str, &'static str, &'static str);

const PUBLIC: Addresses = (
    "https://management.azure.com",
    "https://login.microsoftonline.com/",
    "https://management.core.windows.net/",
);
const CHINA: Addresses = (
    "https://management.chinacloudapi.cn",
    "https://login.chinacloudapi.cn/",
    "https://management.core.chinacloudapi.cn",
);
const US_GOVERNMENT: Addresses = (
    "https://management.usgovcloudapi.net",
    "https://login.microsoftonline.us/",
    "https://management.core.usgovcloudapi.net",
);

impl Cloud {
    /// Returns the cloud of this name (case-insensitive); `None` if the name is unknown.
    pub fn named(name: &str) -> Option<Self> {
        match name.to_ascii_uppercase().as_str() {
            "" | "AZURECLOUD" | "AZUREPUBLICCLOUD" => Some(Self::Public),
            "AZURECHINACLOUD" => Some(Self::China),
            "AZUREUSGOVERNMENT" | "AZUREUSGOVERNMENTCLOUD" => Some(Self::UsGovernment),
            _ => None,
        }
    }

    /// Returns the cloud's own ARM endpoint.
    pub fn arm_endpoint(self) -> Url {
        let (arm, _, _) = match self {
            Self::Public => PUBLIC,
            Self::China => CHINA,
            Self::UsGovernment => US_GOVERNMENT,
        };
        well_known(arm)
    }
}

/// Returns the source of tokens for an ARM endpoint: the authority of the known cloud with this endpoint, otherwise the
/// endpoint's metadata document. `cloud` is the configured name of the cloud.
pub(crate) fn login_of(arm: &Url, cloud: &str) -> Login {
    let known =
        [PUBLIC, CHINA, US_GOVERNMENT].into_iter().find(|(address, _, _)| well_known(address) == *arm);
    match known {
        Some((_, authority, audience)) => {
            Login::Known { authority_host: well_known(authority), audience: audience.to_owned() }
        }
        None => {
            let mut metadata = arm.clone();
            let path = format!("{}/metadata/endpoints", arm.path().trim_end_matches('/'));
            metadata.set_path(&path);
            metadata.set_query(Some("api-version=2019-05-01"));
            Login::Metadata { document: metadata, cloud: cloud.to_owned(), authority_host: None }
        }
    }
}

fn well_known(address: &str) -> Url {
    Url::parse(address).expect("the table's addresses are valid")
}

/// Parses an absolute http(s) address; plain http is allowed only to loopback (C3). Errors repeat neither credentials
/// nor query, because either may be a secret.
pub(crate) fn parse_address(text: &str) -> Result<Url, Mismatch> {
    let expected = "an absolute https address";
    let refuse = |found: &str, remedy: &str| {
        let text_or_hidden = if text.contains(['@', '?', '#']) {
            "an address that is not shown here".to_owned()
        } else {
            quoted(text)
        };
        Mismatch {
            found: Some(format!("{text_or_hidden}{found}")),
            expected: expected.to_owned(),
            remedy: remedy.to_owned(),
        }
    };
    let example = "write it like https://management.example.com";
    let url = Url::parse(text).map_err(|error| refuse(&format!(" ({error})"), example))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(refuse(" (neither http nor https)", example));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse(" (with credentials)", "remove user and password from the address"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(refuse(" (with a query or fragment)", "remove everything from `?` or `#` on"));
    }
    if url.scheme() == "http" && !is_loopback(&url) {
        return Err(refuse(" (plain http)", "use https; plain http is allowed to loopback only"));
    }
    Ok(url)
}

/// Returns whether the address can only be this machine: `localhost`, 127.0.0.0/8 or ::1.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        None => false,
    }
}
