//! Names of sources in the configuration (X2).

use std::fmt;
use std::sync::Arc;

/// The source of a pool's members, as configured.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Name {
    /// `eds:<name>`: the endpoints with this name.
    Endpoints(Arc<str>),
    /// `cluster:<name>`: the endpoints of the cluster with this name.
    Cluster(Arc<str>),
}

/// Why a text is not the name of a source.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadName {
    /// An unknown prefix.
    #[error("{0:?} does not begin with eds: or cluster:")]
    Unknown(String),
    /// Nothing follows the prefix.
    #[error("{0:?} names no resource: add its name")]
    Empty(String),
    /// A wildcard follows the prefix.
    #[error("{0:?} names all resources: name one of them")]
    Wildcard(String),
}

impl Name {
    /// Parses a configured name.
    ///
    /// # Errors
    /// The text does not name one source. Control planes interpret an empty name or `*` as all resources.
    pub fn parse(text: &str) -> Result<Name, BadName> {
        let bad = |why: fn(String) -> BadName| Err(why(text.to_owned()));
        let (of, name): (fn(Arc<str>) -> Name, &str) = match text.split_once(':') {
            Some(("eds", name)) => (Name::Endpoints, name),
            Some(("cluster", name)) => (Name::Cluster, name),
            Some(_) | None => return bad(BadName::Unknown),
        };
        match name.trim() {
            "" => bad(BadName::Empty),
            "*" => bad(BadName::Wildcard),
            name => Ok(of(Arc::from(name))),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Endpoints(name) => write!(f, "eds:{name}"),
            Name::Cluster(name) => write!(f, "cluster:{name}"),
        }
    }
}
