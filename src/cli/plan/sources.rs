//! The xDS sources of pools in a plan (X2-X4).

use model::ids::PoolId;
use model::redact::Printable;
use model::xds::cache::Reason;
use model::xds::source::{Assigned, SourceFact};
use pool_core::comparison::{Comparison, ListedSource};
use serde::Serialize;

/// An xDS source.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Source {
    pub(in crate::cli) source: String,
    /// The state of its assignment: `unknown` (its pools are left as they are), `usable`, `dropped` (they are emptied).
    assigned: &'static str,
    /// The error because of which no assignment is in use; null: one is in use, or the source never sent anything.
    error: Option<String>,
    /// Errors while an assignment is in use.
    ambient_errors: Vec<String>,
    pools: Vec<Listed>,
    /// The kind of the first error.
    #[serde(skip)]
    pub(in crate::cli) reason: Option<Reason>,
}

/// A pool of an xDS source.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
struct Listed {
    load_balancer: String,
    backend_pool: String,
}

impl Source {
    /// Returns the sources of all pools.
    pub(super) fn all(comparison: &Comparison) -> Vec<Source> {
        comparison.sources().iter().map(Source::of).collect()
    }

    fn of(source: &ListedSource<'_>) -> Source {
        let assigned = source.fact.map_or(&Assigned::Unknown(None), |fact| &fact.assigned);
        let error = source.fact.and_then(SourceFact::error);
        let ambient = source.fact.map_or(&[][..], SourceFact::ambient);
        let listed =
            |id: &&PoolId| Listed { load_balancer: id.lb.to_string(), backend_pool: id.pool.to_string() };
        Source {
            source: source.name.to_string(),
            assigned: assigned.as_str(),
            error: error.map(ToString::to_string),
            ambient_errors: ambient.iter().map(ToString::to_string).collect(),
            pools: source.pools.iter().map(listed).collect(),
            reason: error.or(ambient.first()).map(|fault| fault.reason),
        }
    }

    /// Returns whether the source never sent anything.
    pub(super) fn is_unknown(&self) -> bool {
        self.assigned == Assigned::Unknown(None).as_str()
    }

    /// Returns the error of the source and its effect on its pools; `None` if it has no error.
    pub(in crate::cli) fn problem(&self) -> Option<(String, &'static str)> {
        Some(match (&self.error, self.is_unknown()) {
            (None, false) if self.ambient_errors.is_empty() => return None,
            (None, false) => (self.ambient_errors.join("; "), "the last assignment stays in use"),
            (Some(error), false) => (error.clone(), "its pools would be emptied (fail_on_data_errors)"),
            (error, true) => {
                let error = error.as_deref().unwrap_or("nothing was received from it");
                (error.to_owned(), "its pools would be left as they are")
            }
        })
    }

    /// Returns whether an assignment is in use.
    pub(in crate::cli) fn is_used(&self) -> bool {
        !self.is_unknown() && self.error.is_none()
    }

    /// Returns the names of the pools.
    pub(in crate::cli) fn pool_names(&self) -> Vec<String> {
        self.pools.iter().map(|pool| format!("{}/{}", pool.load_balancer, pool.backend_pool)).collect()
    }

    /// Returns the text about the source; `None` if it has no error.
    pub(super) fn text(&self) -> Option<String> {
        let (error, effect) = self.problem()?;
        let (source, error) = (Printable::line(&self.source), Printable::line(&error));
        Some(format!("\n{source} ({})\n  {effect}: {error}\n", self.pool_names().join(", ")))
    }
}
