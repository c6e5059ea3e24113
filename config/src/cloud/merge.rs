//! The cloud configuration of a Secret laid over that of a file, as the cloud-controller-manager does it (C1): each key
//! that the Secret has wins, maps are merged key by key, lists are replaced as a whole. Null sets nothing.

use std::sync::Arc;

use crate::document::{Content, Entry, Node};

/// What counts where there are both a file and a Secret: `cloudConfigType` of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudConfigType {
    /// The file alone.
    File,
    /// The Secret alone.
    Secret,
    /// The file, and over it what the Secret sets; the default.
    Merge,
}

impl CloudConfigType {
    /// The type of that name (case-insensitive).
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "file" => Some(Self::File),
            "secret" => Some(Self::Secret),
            "" | "merge" => Some(Self::Merge),
            _ => None,
        }
    }

    /// The type that a file's keys ask for; a wrong one is told when the file is read.
    pub(crate) fn of(entries: &[Entry]) -> Self {
        let entry = entries.iter().find(|entry| entry.key.eq_ignore_ascii_case("cloudConfigType"));
        let name = entry.and_then(|entry| entry.value.text()).unwrap_or_default();
        Self::named(name).unwrap_or(Self::Merge)
    }
}

/// The keys of `file` with those of `secret` over them; what is not the file's knows the document `name`.
pub(crate) fn overlay(file: &[Entry], secret: &[Entry], name: &Arc<str>) -> Vec<Entry> {
    let set: Vec<Entry> =
        secret.iter().filter(|entry| !entry.value.is_null()).map(|entry| marked(entry, name)).collect();
    let same = |left: &Entry, right: &Entry| left.key.eq_ignore_ascii_case(&right.key);
    let mut merged = Vec::new();
    for entry in file {
        match set.iter().find(|own| same(own, entry)) {
            None => merged.push(entry.clone()),
            Some(own) => {
                if let (Content::Map(below), Content::Map(above)) = (&entry.value.content, &own.value.content)
                {
                    let content = Content::Map(overlay(below, above, name));
                    merged.push(Entry { value: Node { content, ..entry.value }, ..entry.clone() });
                }
            }
        }
    }
    let is_merged = |own: &Entry| {
        let is_map = |entry: &Entry| matches!(entry.value.content, Content::Map(_));
        is_map(own) && file.iter().any(|entry| same(own, entry) && is_map(entry))
    };
    merged.extend(set.into_iter().filter(|own| !is_merged(own)));
    merged
}

/// The entry, with the document it comes from, at every depth.
fn marked(entry: &Entry, name: &Arc<str>) -> Entry {
    let value = marked_node(&entry.value, name);
    Entry { key: entry.key.clone(), line: entry.line, document: Some(Arc::clone(name)), value }
}

fn marked_node(node: &Node, name: &Arc<str>) -> Node {
    let content = match &node.content {
        Content::Map(entries) => Content::Map(entries.iter().map(|entry| marked(entry, name)).collect()),
        Content::List(items) => Content::List(items.iter().map(|item| marked_node(item, name)).collect()),
        Content::Scalar { .. } => node.content.clone(),
    };
    Node { line: node.line, content }
}
