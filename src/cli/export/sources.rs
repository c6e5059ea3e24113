//! What control planes say of the pools that are filled from them, as an export has it (X2-X4).

use model::ids::PoolId;
use model::redact::Printable;
use model::xds::source::{Assigned, SourceFact};
use pool_core::comparison::{Comparison, ListedSource};
use serde::Serialize;

/// A source.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
pub(super) struct Source {
    source: String,
    /// What follows for its pools: `unknown` (they are left as they are), `usable`, `dropped` (they are emptied).
    assigned: &'static str,
    /// Why nothing is in use; null: something is, or nothing was heard of it.
    error: Option<String>,
    /// What is wrong beside what is in use.
    ambient_errors: Vec<String>,
    pools: Vec<Listed>,
}

/// A pool that is filled from it.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
struct Listed {
    load_balancer: String,
    backend_pool: String,
}

impl Source {
    /// All of them.
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

    /// Whether nothing was ever known of it.
    pub(super) fn is_unknown(&self) -> bool {
        self.assigned == Assigned::Unknown(None).as_str()
    }

    /// What operators are told of it; nothing where nothing is wrong.
    pub(super) fn text(&self) -> Option<String> {
        let Source { source, error, ambient_errors, .. } = self;
        let said = match (error, self.is_unknown()) {
            (None, true) => "nothing was heard of it: its pools would be left as they are".to_owned(),
            (Some(error), true) => format!("its pools would be left as they are: {error}"),
            (Some(error), false) => format!("its pools would be emptied (fail_on_data_errors): {error}"),
            (None, false) if ambient_errors.is_empty() => return None,
            (None, false) => format!("what was known is used on: {}", ambient_errors.join("; ")),
        };
        let pools: Vec<String> =
            self.pools.iter().map(|pool| format!("{}/{}", pool.load_balancer, pool.backend_pool)).collect();
        let (source, said) = (Printable::line(source), Printable::line(&said));
        Some(format!("\n{source} ({})\n  {said}\n", pools.join(", ")))
    }
}
