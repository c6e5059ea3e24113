//! Ids of Azure resources. Azure returns ids in varying case, so ids that differ only in case are equal.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The id of a resource, a resource group or a subscription, such as `/subscriptions/s/resourceGroups/g`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ResourceId {
    text: String,
    key: String,
}

impl ResourceId {
    /// Creates the id with this text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> ResourceId {
        let mut text: String = text.into();
        text.truncate(text.trim_end_matches('/').len());
        ResourceId { key: text.to_ascii_lowercase(), text }
    }

    /// Returns the id in its original case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the last segment: the name of the resource.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the segment before the name, in lower case: the type of the resource.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.key.rsplit('/').nth(1).unwrap_or_default()
    }

    /// Returns the id without its last type and name.
    #[must_use]
    pub fn parent(&self) -> Option<ResourceId> {
        let (rest, _) = self.text.rsplit_once('/')?;
        let (parent, _) = rest.rsplit_once('/')?;
        (!parent.is_empty()).then(|| ResourceId::new(parent))
    }

    /// Returns the id of a child.
    #[must_use]
    pub fn child(&self, kind: &str, name: &str) -> ResourceId {
        ResourceId::new(format!("{}/{kind}/{name}", self.text))
    }

    /// Returns the id of a collection of children.
    #[must_use]
    pub fn child_list(&self, kind: &str) -> ResourceId {
        ResourceId::new(format!("{}/{kind}", self.text))
    }

    /// Returns the resource group that holds this resource.
    #[must_use]
    pub fn resource_group(&self) -> Option<ResourceId> {
        let mut segments = self.text.split('/').skip(1);
        let (_, subscription) = (segments.next()?, segments.next()?);
        let (kind, group) = (segments.next()?, segments.next()?);
        kind.eq_ignore_ascii_case("resourceGroups")
            .then(|| ResourceId::new(format!("/subscriptions/{subscription}/resourceGroups/{group}")))
    }

    /// Returns the id up to and including the first segment of this type and its name.
    #[must_use]
    pub fn up_to(&self, kind: &str) -> Option<ResourceId> {
        let begin = self.key.find(&format!("/{}/", kind.to_ascii_lowercase()))? + kind.len() + 2;
        let end = self.text[begin..].find('/').map_or(self.text.len(), |at| begin + at);
        Some(ResourceId::new(&self.text[..end]))
    }

    /// Returns the part that follows the id of `ancestor`; `None` if this id is not below it.
    #[must_use]
    pub fn below(&self, ancestor: &ResourceId) -> Option<&str> {
        let rest = self.key.strip_prefix(&ancestor.key)?;
        rest.starts_with('/').then(|| &self.text[ancestor.text.len()..])
    }
}

impl From<String> for ResourceId {
    fn from(text: String) -> ResourceId {
        ResourceId::new(text)
    }
}

impl From<ResourceId> for String {
    fn from(id: ResourceId) -> String {
        id.text
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for ResourceId {
    fn eq(&self, other: &ResourceId) -> bool {
        self.key == other.key
    }
}

impl Eq for ResourceId {}

impl PartialOrd for ResourceId {
    fn partial_cmp(&self, other: &ResourceId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceId {
    fn cmp(&self, other: &ResourceId) -> Ordering {
        self.key.cmp(&other.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: &str = "/subscriptions/s/resourceGroups/G/providers/Microsoft.Network/loadBalancers/lb/backendAddressPools/p";

    #[test]
    fn ids_that_differ_in_case_are_the_same() {
        assert_eq!(ResourceId::new(POOL), ResourceId::new(POOL.to_ascii_uppercase()));
    }

    #[test]
    fn an_id_has_a_name_a_type_a_parent_and_a_group() {
        let pool = ResourceId::new(POOL);
        let lb = pool.parent().expect("a pool has a parent");
        assert_eq!((pool.name(), pool.kind(), lb.name()), ("p", "backendaddresspools", "lb"));
        assert_eq!(pool.up_to("loadBalancers"), Some(lb.clone()));
        assert_eq!(pool.below(&lb), Some("/backendAddressPools/p"));
        assert_eq!(lb.below(&lb), None);
        assert_eq!(
            pool.resource_group().map(String::from).as_deref(),
            Some("/subscriptions/s/resourceGroups/G")
        );
    }

    #[test]
    fn a_longer_name_is_not_below() {
        let (short, long) = (ResourceId::new("/a/kubernetes"), ResourceId::new("/a/kubernetes-internal/b/c"));
        assert_eq!(long.below(&short), None);
    }
}
