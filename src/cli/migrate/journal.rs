//! Where the journal is stored: in a file, and in the cluster, in ConfigMaps of at most 800 kB each. A first ConfigMap names
//! the parts of the newest version; it is written after them, so a version is there whole or not at all.

use std::collections::BTreeMap;
use std::path::Path;

use actors::kubernetes::Place;
use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use migration::journal::Journal;
use serde_json::json;

use super::Outside;
use crate::cli::deposit::{Existing, Readers, deposit};
use crate::cli::snapshot::format::sha256;
use crate::wiring::params;

/// The most bytes of one part: an object of Kubernetes has at most 1 MiB.
const PART: usize = 800 * 1024;
/// The label of all ConfigMaps of the journal.
const LABEL: &str = "azure-backend-pool-controller/migration-journal";
/// The key of the text.
const KEY: &str = "journal";

/// What a journal is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The migration from Basic to Standard.
    Migration,
    /// The change to pools by address.
    IpPools,
}

/// Where the journal is stored.
pub(super) struct Store<'a> {
    kubernetes: kube::Client,
    own: Place,
    kind: Kind,
    file: &'a Path,
}

impl<'a> Store<'a> {
    /// The places of a journal: this file, and ConfigMaps beside the controller's own Lease.
    pub(super) fn of(outside: &Outside, kind: Kind, file: &'a Path) -> Store<'a> {
        Store { kubernetes: outside.kubernetes.clone(), own: params::leases(&outside.config).own, kind, file }
    }

    /// Stores the journal in both places and reads it back.
    pub(super) async fn write(&self, journal: &Journal) -> anyhow::Result<()> {
        let text = journal.text();
        deposit(self.file, text.as_bytes(), Readers::Owner, Existing::Replaced)?;
        let stored = std::fs::read_to_string(self.file);
        if stored.with_context(|| format!("failed to read {} back", self.file.display()))? != text {
            bail!("{} does not hold what was written to it", self.file.display());
        }
        self.write_parts(&text).await?;
        match self.read_parts().await? {
            Some(stored) if stored == text => Ok(()),
            Some(_) | None => bail!("the ConfigMaps of the journal do not hold what was written to them"),
        }
    }

    /// The stored journal: that of the cluster, or else that of the file.
    pub(super) async fn read(&self) -> anyhow::Result<Option<Journal>> {
        let text = match self.read_parts().await? {
            Some(text) => Some(text),
            None if self.file.exists() => {
                let text = std::fs::read_to_string(self.file);
                Some(text.with_context(|| format!("failed to read {}", self.file.display()))?)
            }
            None => None,
        };
        text.map(|text| Journal::read(&text)).transpose().context("the stored journal cannot be used")
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.kubernetes.clone(), &self.own.namespace)
    }

    fn head(&self) -> String {
        let kind = match self.kind {
            Kind::Migration => "migration",
            Kind::IpPools => "ip-pools",
        };
        format!("{}-{kind}", self.own.name)
    }

    async fn write_parts(&self, text: &str) -> anyhow::Result<()> {
        let (hash, maps) = (sha256(text.as_bytes()), self.maps());
        let version = &hash[..16];
        let parts = parts(text);
        for (number, part) in parts.iter().enumerate() {
            self.put(&format!("{}-{version}-{number}", self.head()), &[(KEY, part)]).await?;
        }
        let count = parts.len().to_string();
        self.put(&self.head(), &[("version", version), ("parts", &count), ("sha256", &hash)]).await?;
        let all =
            maps.list(&ListParams::default().labels(LABEL)).await.context("failed to list the journal")?;
        let head = self.head();
        let is_old = |name: &str| {
            name.strip_prefix(&head).is_some_and(|rest| !rest.is_empty() && !rest.contains(version))
        };
        for old in all.iter().map(kube::ResourceExt::name_any).filter(|name| is_old(name)) {
            let deleted = maps.delete(&old, &DeleteParams::default()).await;
            deleted
                .with_context(|| format!("failed to delete ConfigMap {old}, a part of an older journal"))?;
        }
        Ok(())
    }

    async fn put(&self, name: &str, data: &[(&str, &str)]) -> anyhow::Result<()> {
        let context = || format!("failed to write ConfigMap {}/{name}", self.own.namespace);
        let data: BTreeMap<&str, &str> = data.iter().copied().collect();
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": { "name": name, "namespace": &*self.own.namespace, "labels": { LABEL: "true" } },
        });
        let mut map: ConfigMap = serde_json::from_value(map).with_context(context)?;
        let maps = self.maps();
        match maps.get_opt(name).await.with_context(context)? {
            Some(there) => {
                map.metadata.resource_version = there.resource_version();
                maps.replace(name, &PostParams::default(), &map).await.with_context(context)?;
            }
            None => drop(maps.create(&PostParams::default(), &map).await.with_context(context)?),
        }
        Ok(())
    }

    async fn read_parts(&self) -> anyhow::Result<Option<String>> {
        let maps = self.maps();
        let read = async |name: &str| {
            let context = || format!("failed to read ConfigMap {}/{name}", self.own.namespace);
            anyhow::Ok(maps.get_opt(name).await.with_context(context)?.and_then(|map| map.data))
        };
        let Some(head) = read(&self.head()).await? else { return Ok(None) };
        let value = |key: &str| head.get(key).map(String::as_str).unwrap_or_default();
        let count: usize = value("parts").parse().context("the ConfigMap of the journal is damaged")?;
        let mut text = String::new();
        for number in 0..count {
            let name = format!("{}-{}-{number}", self.head(), value("version"));
            let Some(mut part) = read(&name).await? else {
                bail!(
                    "ConfigMap {}/{name}, a part of the journal, does not exist; pass --journal with its file",
                    self.own.namespace
                )
            };
            text.push_str(&part.remove(KEY).unwrap_or_default());
        }
        if sha256(text.as_bytes()) != value("sha256") {
            bail!(
                "the journal in namespace {} is damaged; delete ConfigMap {} to use its file",
                self.own.namespace,
                self.head()
            );
        }
        Ok(Some(text))
    }
}

/// A text in parts of bounded size.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while rest.len() > PART {
        let (part, more) = rest.split_at(rest.floor_char_boundary(PART));
        parts.push(part);
        rest = more;
    }
    parts.push(rest);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_journal_has_parts_that_fit() {
        let text = format!("x{}", "ü".repeat(PART));
        let parts = parts(&text);
        assert_eq!(parts.len(), 3);
        assert!(parts.iter().all(|part| part.len() <= PART));
        assert_eq!(parts.concat(), text);
    }
}
