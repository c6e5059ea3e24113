//! The bootstrap in gRPC's JSON: the servers, how to connect to them, and the identity of this client (X2; gRFCs A27,
//! A30, A65, A71, A88, A97).
//!
//! It defines the valid contents and the errors about invalid ones. The driver reads the files that it names, for
//! each stream again. Unknown fields are ignored, as in gRPC.

mod credentials;
mod json;
mod node;
mod target;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::xds::cache::Policy;
use model::xds::stream::Server;
use serde_json::Value;

pub(crate) use credentials::{Channel, TlsFiles};
use json::At;
pub use node::Node;
pub(crate) use node::USER_AGENT;
pub(crate) use target::Target;

/// Size limit of the bootstrap, in bytes.
pub const LARGEST: usize = 1 << 20;

/// The environment variable with the path of the bootstrap.
pub const FILE_VARIABLE: &str = "GRPC_XDS_BOOTSTRAP";

/// The environment variable with the bootstrap itself.
pub const INLINE_VARIABLE: &str = "GRPC_XDS_BOOTSTRAP_CONFIG";

/// Source of the bootstrap.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// This file.
    File(PathBuf),
    /// This text. It may hold secrets in the node's metadata.
    Inline(String),
}

impl Source {
    /// Chooses the configured file, or else the source in gRPC's variables: the file before the text. An empty
    /// variable counts as unset.
    ///
    /// # Errors
    /// There is no source, or the text is not UTF-8.
    pub fn choose(
        configured: Option<&Path>,
        env: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Source, BootstrapError> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        if let Some(path) = configured {
            return Ok(Source::File(path.to_owned()));
        }
        if let Some(path) = set(FILE_VARIABLE) {
            return Ok(Source::File(PathBuf::from(path)));
        }
        let text = set(INLINE_VARIABLE).ok_or(BootstrapError::Missing)?;
        text.into_string().map(Source::Inline).map_err(|_| BootstrapError::NotText)
    }

    fn read(&self) -> Result<String, BootstrapError> {
        match self {
            Source::File(path) => {
                let failed = |source| BootstrapError::Read { path: path.clone(), source };
                let bytes = read_at_most(path, LARGEST).map_err(failed)?.ok_or(BootstrapError::TooLarge)?;
                String::from_utf8(bytes).map_err(|_| BootstrapError::NotText)
            }
            Source::Inline(text) if text.len() > LARGEST => Err(BootstrapError::TooLarge),
            Source::Inline(text) => Ok(text.clone()),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => write!(f, "file {}", path.display()),
            Source::Inline(_) => write!(f, "variable {INLINE_VARIABLE}"),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({self})")
    }
}

/// Reads a file; `None` if it is larger than this many bytes.
fn read_at_most(path: &Path, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let most_and_one = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path)?.take(most_and_one).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() <= most))
}

/// Reasons why a bootstrap cannot be used. Each error requires the operator to act.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// No source is configured.
    #[error(
        "no xDS bootstrap is given: name its file in the configuration, or set {FILE_VARIABLE} to the path of one, or \
         {INLINE_VARIABLE} to its JSON"
    )]
    Missing,
    /// The file cannot be read.
    #[error("xDS bootstrap file {} cannot be read: check its path and its mount", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is larger than [`LARGEST`].
    #[error("xDS bootstrap is larger than {LARGEST} bytes: check that it is the right file, and shorten it")]
    TooLarge,
    /// The file is not UTF-8.
    #[error("xDS bootstrap is not UTF-8: write it as JSON text")]
    NotText,
    /// The file is not JSON.
    #[error("xDS bootstrap is not JSON: correct it at the given position")]
    Syntax {
        /// Position and cause.
        source: serde_json::Error,
    },
    /// A field is missing or invalid.
    #[error("xDS bootstrap: {path}: {fault}")]
    Field {
        /// The path of the field, such as `xds_servers[0].channel_creds`.
        path: String,
        /// The error and its remedy.
        fault: String,
    },
}

/// A valid bootstrap.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    servers: Vec<ServerConfig>,
    node: Node,
    warnings: Vec<String>,
}

/// A server, and how to connect to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ServerConfig {
    /// URI as written in the bootstrap.
    pub uri: Arc<str>,
    /// Address of the server.
    pub target: Target,
    /// Security of the channel.
    pub channel: Channel,
    /// Files of the tokens that each call carries.
    pub tokens: Vec<PathBuf>,
    /// Features of the server.
    pub policy: Policy,
}

impl Bootstrap {
    /// Reads and parses the bootstrap of this source.
    ///
    /// # Errors
    /// The bootstrap cannot be read or is invalid.
    pub fn load(source: &Source) -> Result<Bootstrap, BootstrapError> {
        Bootstrap::parse(&source.read()?)
    }

    /// Parses a bootstrap.
    ///
    /// # Errors
    /// It is not JSON, or a field is missing or has the wrong type.
    pub fn parse(text: &str) -> Result<Bootstrap, BootstrapError> {
        let value: Value = serde_json::from_str(text).map_err(|source| BootstrapError::Syntax { source })?;
        let root = At::root(&value);
        let mut warnings = Vec::new();
        let remedy = "is missing: list at least one server with server_uri and channel_creds";
        let servers = root.required("xds_servers", remedy)?.items()?;
        if servers.is_empty() {
            return Err(root.fault_of("xds_servers", remedy.replace("is missing", "is empty")));
        }
        let servers = servers.iter().map(|server| ServerConfig::of(server, &mut warnings));
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        let node = Node::of(&root)?;
        if node.id().is_empty() {
            warnings.push(
                "node.id is missing: most control planes need one; set it to the id that yours expects"
                    .to_owned(),
            );
        }
        warn_of_authorities(&root, &mut warnings)?;
        Ok(Bootstrap { servers, node, warnings })
    }

    /// Returns the servers for the client's machine, in order of preference (A71).
    #[must_use]
    pub fn servers(&self) -> Vec<Server> {
        let server = |config: &ServerConfig| Server { uri: Arc::clone(&config.uri), policy: config.policy };
        self.servers.iter().map(server).collect()
    }

    /// Returns the servers and how to connect to them.
    pub(crate) fn configs(&self) -> &[ServerConfig] {
        &self.servers
    }

    /// Returns the node's id; empty if the bootstrap has none. Texts without an error have it instead (X4).
    #[must_use]
    pub fn node_id(&self) -> &str {
        self.node.id()
    }

    /// Returns the node of this client, with this version.
    #[must_use]
    pub fn node(&self, version: &str) -> Node {
        self.node.of_version(version)
    }

    /// Returns the fields that have no effect, or not the effect that may be expected; each for one log line at
    /// startup.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl ServerConfig {
    fn of(server: &At<'_>, warnings: &mut Vec<String>) -> Result<ServerConfig, BootstrapError> {
        let uri = server.required("server_uri", "is missing: give the server as host:port")?;
        let target = Target::parse(uri.text()?).map_err(|fault| uri.fault(fault))?;
        let channel = Channel::of(server)?;
        match (&target, &channel) {
            (Target::Unix(_), Channel::Tls(_)) => {
                let fault =
                    "a unix socket is reached without TLS: use channel_creds of type insecure, or host:port";
                return Err(uri.fault(fault));
            }
            (Target::Unix(_) | Target::Tcp { .. }, Channel::Insecure)
            | (Target::Tcp { .. }, Channel::Tls(_)) => {}
        }
        let tokens = credentials::tokens_of(server)?;
        if channel == Channel::Insecure && !tokens.is_empty() {
            let fault = "a token is never sent over an insecure channel: use channel_creds of type tls, or remove \
                         call_creds";
            return Err(server.fault_of("call_creds", fault));
        }
        let policy = policy_of(server, warnings)?;
        Ok(ServerConfig { uri: Arc::from(uri.text()?), target, channel, tokens, policy })
    }
}

/// Reads the features of a server (A88). Only two of them matter; the others may have any type.
fn policy_of(server: &At<'_>, warnings: &mut Vec<String>) -> Result<Policy, BootstrapError> {
    let mut policy = Policy::default();
    let Some(features) = server.field("server_features")? else { return Ok(policy) };
    let path = features.path().to_owned();
    for feature in features.items()? {
        match feature.value().as_str().unwrap_or_default() {
            "fail_on_data_errors" => policy.fail_on_data_errors = true,
            "resource_timer_is_transient_error" => policy.timer_is_transient = true,
            "ignore_resource_deletion" => warnings.push(format!(
                "{path}: ignore_resource_deletion is deprecated and has no effect: a deleted resource stays in use \
                 unless fail_on_data_errors is set"
            )),
            "resource_timer_is_transient_failure" => warnings.push(format!(
                "{path}: resource_timer_is_transient_failure has no effect: write resource_timer_is_transient_error"
            )),
            _ => {}
        }
    }
    Ok(policy)
}

/// Warns that the servers of authorities (A47) are not used.
fn warn_of_authorities(root: &At<'_>, warnings: &mut Vec<String>) -> Result<(), BootstrapError> {
    let Some(authorities) = root.field("authorities")? else { return Ok(()) };
    let fields = authorities.fields()?;
    let has_servers = |authority: &&Value| authority.get("xds_servers").is_some_and(|list| !list.is_null());
    let count = fields.values().filter(has_servers).count();
    if count > 0 {
        warnings.push(format!(
            "authorities: the xds_servers of {count} of them are not used: all resources are requested from the \
             top-level xds_servers"
        ));
    }
    Ok(())
}
