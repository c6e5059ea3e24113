//! Counts the lists that are refused because they are older than earlier observations (D6), and decides when the
//! refusals end.
//!
//! A single older list comes from a server that lags behind, and the next one is newer. If all lists are older for
//! minutes, the API server's storage was restored to an earlier state, and our own Lease has not shown it (then
//! `coordination::leader` ends the process). The earlier observations are no longer true. Refusing lists forever
//! would freeze everything until the operator restarts the process. The list that is finally accepted has the
//! provenance of a relist, so that the guards check what it removes.

use std::sync::Arc;
use std::time::Duration;

use super::cache::Cache;
use super::node::ExistingNode;
use model::machine::Now;
use model::object::{Kind, NodeObject, ResourceVersion, ServiceObject, SliceObject};

/// Time, and number in a row, for which older lists are refused.
const REFUSED_FOR: Duration = Duration::from_secs(300);
const REFUSED_IN_A_ROW: u32 = 5;

/// Consecutive refused lists whose versions did not decrease.
#[derive(Default, Debug)]
pub(super) struct Refusals {
    row: Option<Row>,
}

#[derive(Debug)]
struct Row {
    since: Now,
    count: u32,
    newest: ResourceVersion,
}

impl Refusals {
    /// Handles a list with a version older than earlier observations. Returns true if it is refused.
    pub(super) fn refuse(&mut self, now: Now, version: &ResourceVersion) -> bool {
        match &mut self.row {
            Some(row) if !version.is_older_than(&row.newest) => {
                if row.count >= REFUSED_IN_A_ROW && now.since(row.since) >= REFUSED_FOR {
                    return false;
                }
                row.count = row.count.saturating_add(1);
                row.newest = version.clone();
            }
            Some(_) | None => self.row = Some(Row { since: now, count: 1, newest: version.clone() }),
        }
        true
    }

    /// Ends the refusals: an observation is as new as the earlier ones.
    pub(super) fn end(&mut self) {
        self.row = None;
    }
}

impl Cache {
    /// Clears the versions of all objects of a kind, which belong to a discarded history. The next states are accepted
    /// in any case.
    pub(super) fn forget_versions(&mut self, kind: Kind) {
        let none = ResourceVersion::default;
        match kind {
            Kind::Services => {
                for (service, _) in self.entries.values_mut().filter_map(|entry| entry.service.as_mut()) {
                    *service =
                        Arc::new(ServiceObject { resource_version: none(), ..ServiceObject::clone(service) });
                }
            }
            Kind::EndpointSlices => {
                for (key, slice) in &mut self.slices {
                    *slice = Arc::new(SliceObject { resource_version: none(), ..SliceObject::clone(slice) });
                    let entry = slice.service.as_ref().and_then(|service| self.entries.get_mut(service));
                    if let Some(entry) = entry {
                        entry.slices.insert(Arc::clone(&key.name), Arc::clone(slice));
                    }
                }
            }
            Kind::Nodes => {
                let existing = self.nodes.values_mut().filter_map(|node| node.existing.as_mut());
                for ExistingNode { object, .. } in existing {
                    *object = Arc::new(NodeObject { resource_version: none(), ..NodeObject::clone(object) });
                }
            }
            Kind::Preemptions => {}
        }
    }
}
