//! Selects new events about evictions: each version of an event counts once, whether a list or a watch delivers it
//! (docs/design/nodes.md, N1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::YOUNG;
use model::ids::{EventKey, NodeName};
use model::machine::Now;
use model::object::{Object, ObjectKey, PreemptionObject, ResourceVersion};
use model::signals::is_failed_query;
use model::watch::WatchUpdate;

/// The existing events, and those that wait for their node.
#[derive(Debug, Default)]
pub(super) struct NoticeEvents {
    /// The newest version of each event.
    known: BTreeMap<EventKey, ResourceVersion>,
    /// Events in the current list.
    listed: Option<BTreeSet<EventKey>>,
    /// Events of nodes that are not known yet.
    kept: BTreeMap<EventKey, NoticeEvent>,
}

/// An event that announces an eviction.
#[derive(Clone, Debug)]
pub(super) struct NoticeEvent {
    /// Time of its arrival.
    pub(super) arrived: Now,
    /// The event.
    pub(super) event: Arc<PreemptionObject>,
}

impl NoticeEvent {
    /// Returns the time at which the event last occurred, or the time of its arrival if the event contains none.
    pub(super) fn at(&self) -> Now {
        self.arrived.minus(self.event.age.unwrap_or_default())
    }

    fn is_young(&self, now: Now) -> bool {
        now.since(self.arrived) <= YOUNG
    }
}

impl NoticeEvents {
    /// Applies an observation of the watch. Returns the notice in it, if it is new.
    pub(super) fn on_seen(&mut self, now: Now, seen: &WatchUpdate) -> Option<NoticeEvent> {
        match seen {
            WatchUpdate::Object(Object::Preemption(event)) => self.on_event(now, event),
            WatchUpdate::ListBegan(_) => {
                self.listed = Some(BTreeSet::new());
                None
            }
            WatchUpdate::ListAborted => {
                self.listed = None;
                None
            }
            WatchUpdate::ListDone { .. } => {
                if let Some(listed) = self.listed.take() {
                    self.known.retain(|key, _| listed.contains(key));
                }
                None
            }
            WatchUpdate::Deleted { key: ObjectKey::Preemption(key), .. } => {
                self.known.remove(key);
                None
            }
            WatchUpdate::Object(Object::Service(_) | Object::Slice(_) | Object::Node(_))
            | WatchUpdate::Deleted {
                key: ObjectKey::Service(_) | ObjectKey::Slice(_) | ObjectKey::Node(_),
                ..
            }
            | WatchUpdate::Undecodable { .. }
            | WatchUpdate::Bookmark(_)
            | WatchUpdate::Reconnected
            | WatchUpdate::AnyList(_) => None,
        }
    }

    fn on_event(&mut self, now: Now, event: &Arc<PreemptionObject>) -> Option<NoticeEvent> {
        let before = self.known.insert(event.key.clone(), event.resource_version.clone());
        if let Some(listed) = &mut self.listed {
            listed.insert(event.key.clone());
        }
        let is_news = before.as_ref() != Some(&event.resource_version);
        let is_notice = is_news && !is_failed_query(&event.message);
        is_notice.then(|| NoticeEvent { arrived: now, event: Arc::clone(event) })
    }

    /// Keeps a notice whose node is not known yet.
    pub(super) fn keep(&mut self, notified: NoticeEvent) {
        self.kept.insert(notified.event.key.clone(), notified);
    }

    /// Returns the kept notices for a node of this name.
    pub(super) fn of(&self, now: Now, name: &NodeName) -> Vec<NoticeEvent> {
        self.kept.values().filter(|kept| kept.event.node == *name && kept.is_young(now)).cloned().collect()
    }

    /// Drops the notices whose node did not become known in time.
    pub(super) fn expire(&mut self, now: Now) -> Vec<NoticeEvent> {
        self.kept.extract_if(.., |_, kept| !kept.is_young(now)).map(|(_, kept)| kept).collect()
    }

    /// Returns the time at which the next kept notice is dropped.
    pub(super) fn deadline(&self) -> Option<Now> {
        let just_after = Duration::from_micros(1);
        self.kept.values().map(|kept| kept.arrived.plus(YOUNG).plus(just_after)).min()
    }

    /// Drops a kept notice whose node is known now.
    pub(super) fn release(&mut self, notified: &NoticeEvent) {
        self.kept.remove(&notified.event.key);
    }
}
