//! Stores the journal in a file and in the cluster, in ConfigMaps of at most 800 KiB each. The head, a ConfigMap that
//! names the parts of the newest version, is written after them, so a version is complete or absent. Before the first
//! version it names no parts, so parts without a head mean that another client deleted the head.

use std::collections::BTreeMap;
use std::path::Path;

use actors::kubernetes::NamespacedName;
use anyhow::{Context as _, anyhow, bail};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use migration::journal::Journal;
use serde_json::json;

use super::Environment;
use crate::cli::atomic_file::{Existing, Readers, write_atomically};
use crate::cli::snapshot::format::sha256;
use crate::wiring::params;

/// The maximum size of one part in bytes: a Kubernetes object has at most 1 MiB.
const PART: usize = 800 * 1024;
/// Label of all ConfigMaps of the journal.
const LABEL: &str = "azure-backend-pool-controller/migration-journal";
/// Key of a part's text.
const KEY: &str = "journal";

/// The kind of change that a journal records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The migration from Basic to Standard.
    Migration,
    /// The migration of pools from NIC-based to IP-based.
    IpPools,
}

/// The storage of a journal.
pub(super) struct Store<'a> {
    kubernetes: kube::Client,
    own: NamespacedName,
    kind: Kind,
    /// The file, if there is one.
    file: Option<&'a Path>,
}

impl<'a> Store<'a> {
    /// Returns the storage of a journal: this file, if there is one, and ConfigMaps in the namespace of the
    /// controller's own Lease.
    pub(super) fn of(environment: &Environment, kind: Kind, file: Option<&'a Path>) -> Store<'a> {
        Store {
            kubernetes: environment.kubernetes.clone(),
            own: params::leases(&environment.config).own,
            kind,
            file,
        }
    }

    /// Stores the journal in the file and in the cluster, and verifies both by reading them back.
    pub(super) async fn write(&self, journal: &Journal) -> anyhow::Result<()> {
        let text = journal.text();
        if let Some(file) = self.file {
            write_atomically(file, text.as_bytes(), Readers::Owner, Existing::Replace)?;
            let stored = std::fs::read_to_string(file);
            if stored.with_context(|| format!("failed to read {} back", file.display()))? != text {
                bail!("{} does not hold what was written to it", file.display());
            }
        }
        self.write_parts(&text).await?;
        match self.read_parts().await? {
            Some(stored) if stored == text => Ok(()),
            Some(_) | None => bail!("the ConfigMaps of the journal do not hold what was written to them"),
        }
    }

    /// Reads the journal from the cluster, or else from the file.
    pub(super) async fn read(&self) -> anyhow::Result<Option<Journal>> {
        if let Some(text) = self.read_parts().await? {
            let journal = Journal::read(&text).with_context(|| {
                format!(
                    "the journal in ConfigMap {} cannot be used; delete that ConfigMap, and pass the file of \
                     the journal with --journal",
                    self.head_name()
                )
            });
            return journal.map(Some);
        }
        match self.file {
            Some(file) if file.exists() => {
                let text = std::fs::read_to_string(file);
                let text = text.with_context(|| format!("failed to read {}", file.display()))?;
                let journal = Journal::read(&text).with_context(|| {
                    format!(
                        "the journal in {} cannot be used; if no migration has begun, delete the file, or name another one \
                         with --journal",
                        file.display()
                    )
                });
                journal.map(Some)
            }
            Some(_) | None => {
                self.require_no_parts().await?;
                Ok(None)
            }
        }
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.kubernetes.clone(), &self.own.namespace)
    }

    /// Returns the name of the head.
    fn head(&self) -> String {
        let kind = match self.kind {
            Kind::Migration => "migration",
            Kind::IpPools => "ip-pools",
        };
        format!("{}-{kind}", self.own.name)
    }

    /// Returns the namespace and name of the head.
    pub(super) fn head_name(&self) -> String {
        format!("{}/{}", self.own.namespace, self.head())
    }

    /// Lists the names of all parts in the cluster, of any version.
    async fn stored_parts(&self) -> anyhow::Result<Vec<String>> {
        let all = self.maps().list(&ListParams::default().labels(LABEL)).await;
        let all = all.context("failed to list the ConfigMaps of the journal")?;
        let prefix = format!("{}-", self.head());
        Ok(all.iter().map(kube::ResourceExt::name_any).filter(|name| name.starts_with(&prefix)).collect())
    }

    /// Fails if there are parts without a head: a migration has begun, and another client has deleted the head.
    async fn require_no_parts(&self) -> anyhow::Result<()> {
        let parts = self.stored_parts().await?;
        if parts.is_empty() || self.get(&self.head()).await?.is_some() {
            return Ok(());
        }
        bail!(
            "ConfigMap {}/{} of the journal does not exist, but parts of it do ({}); pass the file of the journal with \
             --journal, or delete these ConfigMaps if no migration has begun",
            self.own.namespace,
            self.head(),
            parts.join(", ")
        )
    }

    async fn write_parts(&self, text: &str) -> anyhow::Result<()> {
        let (hash, head) = (sha256(text.as_bytes()), self.head());
        let version = &hash[..16];
        let parts = parts(text);
        if self.get(&head).await?.is_none() {
            self.put(&head, &[("parts", "0")]).await?;
        }
        for (number, part) in parts.iter().enumerate() {
            self.put(&format!("{head}-{version}-{number}"), &[(KEY, part)]).await?;
        }
        let count = parts.len().to_string();
        self.put(&head, &[("version", version), ("parts", &count), ("sha256", &hash)]).await?;
        let stored = self.stored_parts().await?;
        let is_old = |name: &&String| !name[head.len()..].contains(version);
        for old in stored.iter().filter(is_old) {
            let deleted = self.maps().delete(old, &DeleteParams::default()).await;
            deleted
                .with_context(|| format!("failed to delete ConfigMap {old}, a part of an older journal"))?;
        }
        Ok(())
    }

    /// Returns the data of a ConfigMap; `None` if it does not exist.
    async fn get(&self, name: &str) -> anyhow::Result<Option<BTreeMap<String, String>>> {
        let map = self.maps().get_opt(name).await;
        let map = map.with_context(|| format!("failed to read ConfigMap {}/{name}", self.own.namespace))?;
        Ok(map.map(|map| map.data.unwrap_or_default()))
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
            Some(existing) => {
                map.metadata.resource_version = existing.resource_version();
                maps.replace(name, &PostParams::default(), &map).await.with_context(context)?;
            }
            None => drop(maps.create(&PostParams::default(), &map).await.with_context(context)?),
        }
        Ok(())
    }

    async fn read_parts(&self) -> anyhow::Result<Option<String>> {
        let Some(head) = self.get(&self.head()).await? else { return Ok(None) };
        let value = |key: &str| head.get(key).map(String::as_str).unwrap_or_default();
        let damaged = |what: String| {
            let (namespace, head) = (&self.own.namespace, self.head());
            anyhow!(
                "{what}; delete ConfigMap {namespace}/{head}, and pass the file of the journal with --journal"
            )
        };
        let count: usize = value("parts").parse().map_err(|_| {
            damaged(format!("ConfigMap {}/{} of the journal is damaged", self.own.namespace, self.head()))
        })?;
        if count == 0 {
            return Ok(None);
        }
        let mut text = String::new();
        for number in 0..count {
            let name = format!("{}-{}-{number}", self.head(), value("version"));
            let Some(mut part) = self.get(&name).await? else {
                return Err(damaged(format!(
                    "ConfigMap {}/{name}, a part of the journal, does not exist",
                    self.own.namespace
                )));
            };
            text.push_str(&part.remove(KEY).unwrap_or_default());
        }
        if sha256(text.as_bytes()) != value("sha256") {
            return Err(damaged(format!("the journal in namespace {} is damaged", self.own.namespace)));
        }
        Ok(Some(text))
    }
}

/// Splits a text into parts of at most [`PART`] bytes.
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
