//! Watches a service that writes nothing until it has compared everything once (C4). [`pool_core::comparison`] decides
//! when that is, and what is missing until then.

use std::sync::Arc;
use std::time::Duration;

use config::Config;
use model::machine::{Machine as _, earliest};
use pool_core::comparison::{Comparison, End, In, Missing, Out, Params};

use crate::service::ServiceHandle;
use crate::wiring::params;

/// The interval between reads of the published snapshot.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum number of names in a sentence.
const MAX_NAMES: usize = 10;

/// Returns the state machine that waits until everything was compared, at most `within`. For members that may have to
/// be removed, it also waits until `removal_delay` is over.
pub(super) fn comparison(config: &Config, removal_delay: Duration, within: Duration) -> Comparison {
    let cluster_name = Arc::from(config.controller.cluster_name.as_str());
    Comparison::new(Params { removal_delay, within, cluster_name, listed: params::sources(config) })
}

/// Feeds the published snapshots to the comparison until it has ended.
pub(super) async fn until_compared(service: &ServiceHandle, comparison: &mut Comparison) -> End {
    let mut out = Vec::new();
    comparison.step(service.clock.now(), In::Start, &mut out);
    loop {
        let now = service.clock.now();
        comparison.step(now, In::Snapshot(service.published.load_full()), &mut out);
        if let Some(Out::Ended(end)) = out.pop() {
            return end;
        }
        let next = earliest(comparison.deadline(), Some(now.plus(POLL_INTERVAL)));
        tokio::time::sleep(next.map_or(POLL_INTERVAL, |at| at.since(service.clock.now()))).await;
    }
}

/// Returns what is missing, as a part of a sentence.
pub(super) fn missing_text(missing: &[Missing]) -> String {
    named(missing.iter().map(ToString::to_string).collect())
}

/// Joins the names, at most the first 10 and the number of the others.
pub(super) fn named(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}
