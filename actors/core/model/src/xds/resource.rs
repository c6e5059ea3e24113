//! Validation of received resources, and their content for pools (X1, X2).

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::assignment::{Limits, LoadAssignment};
use super::cluster::Cluster;
use super::facts::{Body, Received, ResourceKind};
use super::faults::quoted;

/// The content of a valid resource, reduced to what matters to pools.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResourceValue {
    /// The endpoints that a cluster names.
    Cluster(Cluster),
    /// The assignment of a cluster.
    Endpoints(LoadAssignment),
}

impl ResourceValue {
    /// Returns the kind of the resource.
    #[must_use]
    pub fn kind(&self) -> ResourceKind {
        match self {
            ResourceValue::Cluster(_) => ResourceKind::Cluster,
            ResourceValue::Endpoints(_) => ResourceKind::Endpoints,
        }
    }
}

/// A resource is invalid. It is rejected, and the last valid one stays in use (S2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// Name of the resource; `None` if it is not readable.
    pub name: Option<Arc<str>>,
    /// The faults, each with the path of its field and with a remedy.
    pub message: String,
}

/// Validates a resource from a response for this kind, against Azure's limits. Returns its name and its content (X2).
///
/// # Errors
/// The resource is invalid.
pub fn validate(kind: ResourceKind, received: &Received) -> Result<(Arc<str>, ResourceValue), Invalid> {
    validate_within(kind, received, Limits::AZURE)
}

/// Validates a resource like [`validate`], with other limits.
///
/// # Errors
/// The resource is invalid.
pub fn validate_within(
    kind: ResourceKind,
    received: &Received,
    limits: Limits,
) -> Result<(Arc<str>, ResourceValue), Invalid> {
    // The name in a wrapper is optional.
    let wrapper = received.wrapper.as_deref().filter(|name| !name.is_empty());
    match &received.body {
        Ok(Body::Cluster(facts)) => match kind {
            ResourceKind::Cluster => {
                let name = agreed("name", &facts.name, wrapper)?;
                let value = Cluster::of(&name, facts).map(ResourceValue::Cluster);
                valid(name, value)
            }
            ResourceKind::Endpoints => Err(misplaced(kind, ResourceKind::Cluster.type_url())),
        },
        Ok(Body::Endpoints(facts)) => match kind {
            ResourceKind::Cluster => Err(misplaced(kind, ResourceKind::Endpoints.type_url())),
            ResourceKind::Endpoints => {
                let name = agreed("cluster_name", &facts.cluster_name, wrapper)?;
                let value = LoadAssignment::of(facts, limits).map(ResourceValue::Endpoints);
                valid(name, value)
            }
        },
        Ok(Body::TooLarge { name, fault }) => match kind {
            ResourceKind::Cluster => Err(misplaced(kind, ResourceKind::Endpoints.type_url())),
            ResourceKind::Endpoints => {
                let name = agreed("cluster_name", name, wrapper)?;
                Err(Invalid { name: Some(name), message: format!("endpoints: {fault}") })
            }
        },
        Ok(Body::Other(type_url)) => Err(misplaced(kind, type_url)),
        Err(why) => {
            let kind = kind.resource_type();
            let message = format!("resource: cannot be decoded as {kind}: {}", quoted(why));
            Err(Invalid { name: wrapper.map(Arc::from), message })
        }
    }
}

fn valid(name: Arc<str>, value: Result<ResourceValue, String>) -> Result<(Arc<str>, ResourceValue), Invalid> {
    match value {
        Ok(value) => Ok((name, value)),
        Err(message) => Err(Invalid { name: Some(name), message }),
    }
}

/// Returns the name of a resource. The names in its content and in its wrapper must agree. If they do not, the
/// wrapper's name identifies the watcher.
fn agreed(field: &str, own: &str, wrapper: Option<&str>) -> Result<Arc<str>, Invalid> {
    let refused = |name: Option<&str>, fault: &str| {
        Err(Invalid { name: name.map(Arc::from), message: format!("{field}: {fault}") })
    };
    match wrapper {
        None if own.is_empty() => refused(None, "is empty: set it to the requested name"),
        None => Ok(Arc::from(own)),
        Some(name) if own == name => Ok(Arc::from(own)),
        Some(name) => {
            let (found, name_there) = (quoted(own), quoted(name));
            let fault = format!("{found} is not the name in its wrapper, {name_there}: set both to the same");
            refused(Some(name), &fault)
        }
    }
}

/// Returns an error for a resource of another type. It does not count for any requested resource, whatever its name.
fn misplaced(kind: ResourceKind, type_url: &str) -> Invalid {
    let (found, expected) = (quoted(type_url), kind.type_url());
    let message = format!("type_url: {found} does not belong in this response: send only {expected} in it");
    Invalid { name: None, message }
}
