//! Watches a service that writes nothing until it has compared everything once (C4). When that is, and what is missing
//! until then, is decided by [`pool_core::comparison`].

use std::sync::Arc;
use std::time::Duration;

use config::Config;
use model::machine::{Machine as _, earliest};
use pool_core::comparison::{Comparison, End, In, Missing, Out, Params};

use crate::service::Sight;
use crate::wiring::params;

/// How often the published snapshot is looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The most names that one sentence has.
const MAX_NAMES: usize = 10;

/// The wait for everything to be compared, at most `within`; members that may have to go have had `removal_delay` then.
pub(super) fn comparison(config: &Config, removal_delay: Duration, within: Duration) -> Comparison {
    let cluster_name = Arc::from(config.controller.cluster_name.as_str());
    Comparison::new(Params { removal_delay, within, cluster_name, listed: params::sources(config) })
}

/// Shows it what is published until it has ended.
pub(super) async fn until_compared(sight: &Sight, comparison: &mut Comparison) -> End {
    let mut said = Vec::new();
    comparison.step(sight.clock.now(), In::Start, &mut said);
    loop {
        let now = sight.clock.now();
        comparison.step(now, In::Snapshot(sight.published.load_full()), &mut said);
        if let Some(Out::Ended(end)) = said.pop() {
            return end;
        }
        let next = earliest(comparison.deadline(), Some(now.plus(LOOK_EVERY)));
        tokio::time::sleep(next.map_or(LOOK_EVERY, |at| at.since(sight.clock.now()))).await;
    }
}

/// What is missing, as a part of a sentence.
pub(super) fn told(missing: &[Missing]) -> String {
    named(missing.iter().map(ToString::to_string).collect())
}

/// The first names of many.
pub(super) fn named(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}
