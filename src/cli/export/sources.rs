//! The xDS sources of pools in an export (X2-X4).

use model::ids::PoolId;
use model::redact::Printable;
use model::xds::source::{Assigned, SourceFact};
use pool_core::comparison::{Comparison, ListedSource};
use serde::Serialize;

/// An xDS source.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
pub(super) struct Source {
    source: String,
    /// The state of its assignment: `unknown` (its pools are left as they are), `usable`, `dropped` (they are emptied).
    assigned: &'static str,
    /// The error because of which no assignment is in use; null: one is in use, or the source never sent anything.
    error: Option<String>,
    /// Errors while an assignment is in use.
    ambient_errors: Vec<String>,
    pools: Vec<Listed>,
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
        let ambient = source.fact.map_or(&[][..], SourceFact::ambient);
        let listed =
            |id: &&PoolId| Listed { load_balancer: id.lb.to_string(), backend_pool: id.pool.to_string() };
        Source {
            source: source.name.to_string(),
            assigned: assigned.as_str(),
            error: source.fact.and_then(|fact| fact.error()).map(ToString::to_string),
            ambient_errors: ambient.iter().map(ToString::to_string).collect(),
            pools: source.pools.iter().map(listed).collect(),
        }
    }

    /// Returns whether the source never sent anything.
    pub(super) fn is_unknown(&self) -> bool {
        self.assigned == Assigned::Unknown(None).as_str()
    }

    /// Returns the text about the source; `None` if it has no error.
    pub(super) fn text(&self) -> Option<String> {
        let Source { source, error, ambient_errors, .. } = self;
        let text = match (error, self.is_unknown()) {
            (None, true) => "nothing was received from it: its pools would be left as they are".to_owned(),
            (Some(error), true) => format!("its pools would be left as they are: {error}"),
            (Some(error), false) => format!("its pools would be emptied (fail_on_data_errors): {error}"),
            (None, false) if ambient_errors.is_empty() => return None,
            (None, false) => format!("the last assignment stays in use: {}", ambient_errors.join("; ")),
        };
        let pools: Vec<String> =
            self.pools.iter().map(|pool| format!("{}/{}", pool.load_balancer, pool.backend_pool)).collect();
        let (source, text) = (Printable::line(source), Printable::line(&text));
        Some(format!("\n{source} ({})\n  {text}\n", pools.join(", ")))
    }
}
