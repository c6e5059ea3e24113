//! Which events about evictions are new: each version of an event counts once, whether a list or a watch delivers it
//! (docs/design/nodes.md, N1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::YOUNG;
use model::ids::{EventKey, NodeName};
use model::machine::Now;
use model::object::{Object, ObjectKey, PreemptionObject, ResourceVersion};
use model::signals::is_failed_query;
use model::watch::Seen;

/// The events that exist, and those that wait for their node.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// The newest state of each.
    known: BTreeMap<EventKey, ResourceVersion>,
    /// What the list under way has held.
    listed: Option<BTreeSet<EventKey>>,
    /// Those of nodes that are not known yet.
    kept: BTreeMap<EventKey, Notified>,
}

/// An event that says that its node is evicted.
#[derive(Clone, Debug)]
pub(super) struct Notified {
    /// When it came.
    pub(super) arrived: Now,
    /// What it says.
    pub(super) event: Arc<PreemptionObject>,
}

impl Notified {
    /// When it was seen last, as far as it says so.
    pub(super) fn at(&self) -> Now {
        self.arrived.minus(self.event.age.unwrap_or_default())
    }

    fn is_young(&self, now: Now) -> bool {
        now.since(self.arrived) <= YOUNG
    }
}

impl Events {
    /// Takes in what the watcher saw; the notice in it, if it is one and is news.
    pub(super) fn on_seen(&mut self, now: Now, seen: &Seen) -> Option<Notified> {
        match seen {
            Seen::Object(Object::Preemption(event)) => self.on_event(now, event),
            Seen::ListBegan(_) => {
                self.listed = Some(BTreeSet::new());
                None
            }
            Seen::ListAborted => {
                self.listed = None;
                None
            }
            Seen::ListDone { .. } => {
                if let Some(listed) = self.listed.take() {
                    self.known.retain(|key, _| listed.contains(key));
                }
                None
            }
            Seen::Deleted { key: ObjectKey::Preemption(key), .. } => {
                self.known.remove(key);
                None
            }
            Seen::Object(Object::Service(_) | Object::Slice(_) | Object::Node(_))
            | Seen::Deleted {
                key: ObjectKey::Service(_) | ObjectKey::Slice(_) | ObjectKey::Node(_), ..
            }
            | Seen::Undecodable { .. }
            | Seen::Bookmark(_)
            | Seen::Reconnected
            | Seen::AnyList(_) => None,
        }
    }

    fn on_event(&mut self, now: Now, event: &Arc<PreemptionObject>) -> Option<Notified> {
        let before = self.known.insert(event.key.clone(), event.resource_version.clone());
        if let Some(listed) = &mut self.listed {
            listed.insert(event.key.clone());
        }
        let is_news = before.as_ref() != Some(&event.resource_version);
        let is_notice = is_news && !is_failed_query(&event.message);
        is_notice.then(|| Notified { arrived: now, event: Arc::clone(event) })
    }

    /// Keeps one whose node is not known yet.
    pub(super) fn keep(&mut self, notified: Notified) {
        self.kept.insert(notified.event.key.clone(), notified);
    }

    /// Those that are kept for a node of this name.
    pub(super) fn of(&self, now: Now, name: &NodeName) -> Vec<Notified> {
        self.kept.values().filter(|kept| kept.event.node == *name && kept.is_young(now)).cloned().collect()
    }

    /// Drops those whose node has not become known in time.
    pub(super) fn expire(&mut self, now: Now) -> Vec<Notified> {
        self.kept.extract_if(.., |_, kept| !kept.is_young(now)).map(|(_, kept)| kept).collect()
    }

    /// When the next of them is dropped.
    pub(super) fn deadline(&self) -> Option<Now> {
        let just_after = Duration::from_micros(1);
        self.kept.values().map(|kept| kept.arrived.plus(YOUNG).plus(just_after)).min()
    }

    /// The node of one that was kept is known now.
    pub(super) fn release(&mut self, notified: &Notified) {
        self.kept.remove(&notified.event.key);
    }
}
