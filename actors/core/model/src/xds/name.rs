//! The names that configuration gives to sources (X2).

use std::fmt;
use std::sync::Arc;

/// What a pool's members come from, as it is configured.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Name {
    /// `eds:<name>`: the endpoints of this name.
    Endpoints(Arc<str>),
    /// `cluster:<name>`: the endpoints that the cluster of this name means.
    Cluster(Arc<str>),
}

/// Why a text names no source.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadName {
    /// It begins otherwise.
    #[error("{0:?} does not begin with eds: or cluster:")]
    Unknown(String),
    /// Nothing follows.
    #[error("{0:?} names no resource: add its name")]
    Empty(String),
    /// What follows means all that there are.
    #[error("{0:?} names all resources: name one of them")]
    Wildcard(String),
}

impl Name {
    /// Reads what is configured.
    ///
    /// # Errors
    /// The text names no source. Control planes take an empty name or `*` for all resources.
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
