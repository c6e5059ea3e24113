//! The file format of a snapshot: every pool as it was at one moment, for comparison and restore.
//!
//! One JSON object, `schema` and `schemaVersion` first; keys in camelCase:
//! - `schema` is always `azure-backend-pool-controller/pool-snapshot`, `schemaVersion` is 1. A change that a reader may
//!   notice raises the version, and a reader refuses versions that it does not know.
//! - `createdAt` (RFC 3339, our clock), `createdBy` (product and version), `endpoint`, `apiVersion`, `subscription`,
//!   `resourceGroup`: where and how the documents were read.
//! - `filter`: the names that the snapshot was limited to, as they were given; empty lists mean everything.
//! - `absent`: managed load balancers that did not exist.
//! - `loadBalancers`: for each that existed its `name`, `id`, `etag`, `provisioningState`, `readAt` (our clock) and
//!   `pools`. All pools of one load balancer come from one GET, and so from one moment; its `etag` is theirs too.
//! - each pool has `name`, `sha256` (of the bytes of `document`) and `document`: the text of the pool as ARM sent it
//!   within its load balancer, byte for byte, unknown fields included. A tool that formats the file again breaks the
//!   hashes.

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Value of `schema`, which marks a file as a snapshot.
const SCHEMA: &str = "azure-backend-pool-controller/pool-snapshot";
/// Version of the format.
const SCHEMA_VERSION: u32 = 1;

/// The whole file.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::cli) struct Snapshot {
    pub(in crate::cli) schema: String,
    pub(in crate::cli) schema_version: u32,
    pub(in crate::cli) created_at: String,
    pub(in crate::cli) created_by: String,
    pub(in crate::cli) endpoint: String,
    pub(in crate::cli) api_version: String,
    pub(in crate::cli) subscription: String,
    pub(in crate::cli) resource_group: String,
    pub(in crate::cli) filter: Filter,
    pub(in crate::cli) absent: Vec<String>,
    pub(in crate::cli) load_balancers: Vec<Balancer>,
}

/// The load balancers and pools that a snapshot is limited to. Names compare without case; an empty list means all.
#[derive(Serialize, Deserialize, Clone, Default, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::cli) struct Filter {
    pub(in crate::cli) load_balancers: Vec<String>,
    pub(in crate::cli) pools: Vec<String>,
}

/// A load balancer that existed at the time of the snapshot.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::cli) struct Balancer {
    pub(in crate::cli) name: String,
    pub(in crate::cli) id: String,
    pub(in crate::cli) etag: Option<String>,
    pub(in crate::cli) provisioning_state: Option<String>,
    pub(in crate::cli) read_at: String,
    pub(in crate::cli) pools: Vec<Pool>,
}

/// A pool at the time of the snapshot.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::cli) struct Pool {
    pub(in crate::cli) name: String,
    pub(in crate::cli) sha256: String,
    pub(in crate::cli) document: Box<RawValue>,
}

/// The fields that every version of the file has.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SnapshotHeader {
    schema: String,
    schema_version: u32,
}

/// A load balancer as ARM sends it.
#[derive(Deserialize)]
struct Sent {
    id: String,
    #[serde(default)]
    etag: Option<String>,
    properties: SentProperties,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SentProperties {
    #[serde(default)]
    backend_address_pools: Vec<Box<RawValue>>,
    #[serde(default)]
    provisioning_state: Option<String>,
}

/// The name of a pool.
#[derive(Deserialize)]
struct Named {
    name: String,
}

/// The reason why a file cannot be used as a snapshot.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Unusable {
    /// The file is not a snapshot.
    #[error("it is not a snapshot")]
    NoSnapshot(#[source] serde_json::Error),
    /// The file is another kind of document.
    #[error("it is not a snapshot: its schema is {0:?}, expected {SCHEMA:?}")]
    OtherSchema(String),
    /// The file has another version of the format.
    #[error(
        "its schemaVersion is {0}, and this version reads {SCHEMA_VERSION}; use the version that wrote it"
    )]
    OtherVersion(u32),
    /// The hash of a document does not match.
    #[error("the document of {0} is not what its sha256 says: the file was edited or is damaged")]
    Damaged(String),
    /// A document is that of another pool.
    #[error("the document of {0} is that of another pool")]
    Misplaced(String),
    /// A load balancer or pool occurs twice.
    #[error("{0} is in it twice")]
    Repeated(String),
}

impl Filter {
    /// Returns whether the filter includes a load balancer.
    pub(in crate::cli) fn includes_balancer(&self, name: &str) -> bool {
        matches(&self.load_balancers, name)
    }

    /// Returns whether the filter includes a pool.
    pub(in crate::cli) fn includes_pool(&self, name: &str) -> bool {
        matches(&self.pools, name)
    }
}

fn matches(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|listed| listed.eq_ignore_ascii_case(name))
}

impl Balancer {
    /// Parses a load balancer as ARM sent it, limited to the pools of the filter.
    ///
    /// # Errors
    /// The text is not a load balancer.
    pub(in crate::cli) fn read(
        name: &str,
        text: &str,
        read_at: String,
        filter: &Filter,
    ) -> Result<Balancer, serde_json::Error> {
        let Sent { id, etag, properties } = serde_json::from_str(text)?;
        let mut pools = Vec::new();
        for document in properties.backend_address_pools {
            let Named { name } = serde_json::from_str(document.get())?;
            if filter.includes_pool(&name) {
                pools.push(Pool { name, sha256: sha256(document.get().as_bytes()), document });
            }
        }
        let provisioning_state = properties.provisioning_state;
        Ok(Balancer { name: name.to_owned(), id, etag, provisioning_state, read_at, pools })
    }

    /// Returns whether no operation was running on the load balancer.
    pub(in crate::cli) fn is_idle(&self) -> bool {
        self.provisioning_state.as_deref().is_none_or(|state| state.eq_ignore_ascii_case("Succeeded"))
    }
}

impl Snapshot {
    /// Returns an empty snapshot.
    pub(in crate::cli) fn begun(created_at: String, filter: Filter) -> Snapshot {
        Snapshot {
            schema: SCHEMA.to_owned(),
            schema_version: SCHEMA_VERSION,
            created_at,
            created_by: concat!("azure-backend-pool-controller ", env!("CARGO_PKG_VERSION")).to_owned(),
            endpoint: String::new(),
            api_version: String::new(),
            subscription: String::new(),
            resource_group: String::new(),
            filter,
            absent: Vec::new(),
            load_balancers: Vec::new(),
        }
    }

    /// Returns the number of pools.
    pub(in crate::cli) fn count(&self) -> usize {
        self.load_balancers.iter().map(|lb| lb.pools.len()).sum()
    }

    /// Returns the text of the file.
    pub(in crate::cli) fn text(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("it has texts and documents alone");
        text + "\n"
    }

    /// Parses a file and verifies that every document is the one that was stored.
    ///
    /// # Errors
    /// The file is not a snapshot of this version, or was changed.
    pub(in crate::cli) fn read(text: &str) -> Result<Snapshot, Unusable> {
        let head: SnapshotHeader = serde_json::from_str(text).map_err(Unusable::NoSnapshot)?;
        if head.schema != SCHEMA {
            return Err(Unusable::OtherSchema(head.schema));
        }
        if head.schema_version != SCHEMA_VERSION {
            return Err(Unusable::OtherVersion(head.schema_version));
        }
        let snapshot: Snapshot = serde_json::from_str(text).map_err(Unusable::NoSnapshot)?;
        let mut names = std::collections::BTreeSet::new();
        for lb in &snapshot.load_balancers {
            if !names.insert(lb.name.to_lowercase()) {
                return Err(Unusable::Repeated(lb.name.clone()));
            }
            for pool in &lb.pools {
                let name = format!("{}/{}", lb.name, pool.name);
                if sha256(pool.document.get().as_bytes()) != pool.sha256 {
                    return Err(Unusable::Damaged(name));
                }
                let inner: Named = serde_json::from_str(pool.document.get()).map_err(Unusable::NoSnapshot)?;
                if inner.name != pool.name {
                    return Err(Unusable::Misplaced(name));
                }
                if !names.insert(name.to_lowercase()) {
                    return Err(Unusable::Repeated(name));
                }
            }
        }
        Ok(snapshot)
    }
}

/// Returns the SHA-256 of some bytes, in hexadecimal.
pub(in crate::cli) fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document with unusual spaces, a number that no float can represent, and an unknown field.
    const DOCUMENT: &str = r#"{ "name":"shop-web",  "future":{"n":12345678901234567890.10}, "properties":{"loadBalancerBackendAddresses":[]} }"#;

    fn snapshot() -> Snapshot {
        let text = format!(
            r#"{{"sku":{{}},"sku":{{}},"id":"/lb","etag":"W/\"1\"","properties":{{"backendAddressPools":[{DOCUMENT},
                {{"name":"Other","properties":{{}}}}],"provisioningState":"Succeeded"}}}}"#
        );
        let filter = Filter { pools: vec!["SHOP-web".to_owned()], ..Filter::default() };
        let lb = Balancer::read("kubernetes", &text, "2026-01-01T00:00:00Z".to_owned(), &filter);
        let mut snapshot = Snapshot::begun("2026-01-01T00:00:00Z".to_owned(), filter);
        snapshot.load_balancers.push(lb.expect("a load balancer"));
        snapshot
    }

    #[test]
    fn w3_a_document_is_stored_and_read_again_byte_for_byte() {
        let written = snapshot();
        assert_eq!(written.count(), 1, "the filter knows no case");
        let read = Snapshot::read(&written.text()).expect("its own file");
        assert_eq!(read.load_balancers[0].pools[0].document.get(), DOCUMENT);
        assert_eq!(read.text(), written.text());
        assert_eq!(read.load_balancers[0].etag.as_deref(), Some("W/\"1\""));
    }

    #[test]
    fn an_edited_or_foreign_file_is_refused_with_the_reason() {
        let text = snapshot().text();
        for (from, to, expected) in [
            ("12345678901234567890.10", "12345678901234567890.1", "kubernetes/shop-web is not what"),
            ("pool-snapshot", "report", "its schema is"),
            ("\"schemaVersion\": 1", "\"schemaVersion\": 2", "its schemaVersion is 2"),
            ("\"name\": \"shop-web\"", "\"name\": \"shop-api\"", "that of another pool"),
            ("\"absent\": []", "\"absent\": [], \"more\": 1", "it is not a snapshot"),
            ("{", "[", "it is not a snapshot"),
        ] {
            assert!(text.contains(from), "{from}");
            let refused = Snapshot::read(&text.replacen(from, to, 1)).expect_err(from);
            assert!(refused.to_string().contains(expected), "{from}: {refused}");
        }
        let mut twice = snapshot();
        twice.load_balancers.extend(snapshot().load_balancers);
        assert!(matches!(Snapshot::read(&twice.text()), Err(Unusable::Repeated(_))));
    }

    #[test]
    fn the_hash_is_sha_256() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b""), empty);
    }
}
