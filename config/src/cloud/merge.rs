//! Merges the cloud configuration of a Secret into that of a file, as the cloud-controller-manager does (C1): keys of
//! the Secret take precedence, maps are merged key by key, and lists are replaced. Null sets nothing.

use std::sync::Arc;

use crate::document::{Content, Entry, Node};

/// Precedence if there are both a file and a Secret: `cloudConfigType` of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudConfigType {
    /// Only the file is used.
    File,
    /// Only the Secret is used.
    Secret,
    /// The Secret is merged into the file; the default.
    Merge,
}

impl CloudConfigType {
    /// Returns the type of that name (case-insensitive).
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "file" => Some(Self::File),
            "secret" => Some(Self::Secret),
            "" | "merge" => Some(Self::Merge),
            _ => None,
        }
    }

    /// Returns the type that a file configures; an invalid one is reported when the file is read.
    pub(crate) fn of(entries: &[Entry]) -> Self {
        let entry = entries.iter().find(|entry| entry.key.eq_ignore_ascii_case("cloudConfigType"));
        let name = entry.and_then(|entry| entry.value.text()).unwrap_or_default();
        Self::named(name).unwrap_or(Self::Merge)
    }
}

/// Returns the keys of `file` merged with those of `secret`, which are marked with the document `name`.
pub(crate) fn overlay(file: &[Entry], secret: &[Entry], name: &Arc<str>) -> Vec<Entry> {
    let secret_keys: Vec<Entry> = secret
        .iter()
        .filter(|entry| !entry.value.is_null())
        .map(|entry| with_document(entry, name))
        .collect();
    let same = |left: &Entry, right: &Entry| left.key.eq_ignore_ascii_case(&right.key);
    let mut merged = Vec::new();
    for entry in file {
        match secret_keys.iter().find(|from_secret| same(from_secret, entry)) {
            None => merged.push(entry.clone()),
            Some(from_secret) => {
                if let (Content::Map(below), Content::Map(above)) =
                    (&entry.value.content, &from_secret.value.content)
                {
                    let content = Content::Map(overlay(below, above, name));
                    merged.push(Entry { value: Node { content, ..entry.value }, ..entry.clone() });
                }
            }
        }
    }
    let is_merged = |from_secret: &Entry| {
        let is_map = |entry: &Entry| matches!(entry.value.content, Content::Map(_));
        is_map(from_secret) && file.iter().any(|entry| same(from_secret, entry) && is_map(entry))
    };
    merged.extend(secret_keys.into_iter().filter(|from_secret| !is_merged(from_secret)));
    merged
}

/// Marks an entry, at every depth, with the document that it comes from.
fn with_document(entry: &Entry, name: &Arc<str>) -> Entry {
    let value = node_with_document(&entry.value, name);
    Entry { key: entry.key.clone(), line: entry.line, document: Some(Arc::clone(name)), value }
}

fn node_with_document(node: &Node, name: &Arc<str>) -> Node {
    let content = match &node.content {
        Content::Map(entries) => {
            Content::Map(entries.iter().map(|entry| with_document(entry, name)).collect())
        }
        Content::List(items) => {
            Content::List(items.iter().map(|item| node_with_document(item, name)).collect())
        }
        Content::Scalar { .. } => node.content.clone(),
    };
    Node { line: node.line, content }
}
