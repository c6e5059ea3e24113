//! Watches: their start, their lines, and their end.
//!
//! A watch is a cursor into the history of its kind plus a queue of other lines (initial events, bookmarks, inserted
//! bytes). The caller polls; nothing here waits.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};

use super::KubeModel;
use super::faults::StreamingLists;
use super::reads::state_of;
use super::request::{Query, Target, WatchId};
use super::resource::{Facts, Resource};
use super::selector::Selector;
use super::status::Failure;
use super::store::{Change, Event, Snapshot};

/// One open (or ended and not yet closed) watch.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    resource: Resource,
    namespace: Option<String>,
    selector: Selector,
    /// Last resourceVersion that was sent.
    cursor: u64,
    queue: VecDeque<Arc<[u8]>>,
    /// Time of the next bookmark; `None` without `allowWatchBookmarks`.
    bookmark_at_us: Option<u64>,
    ends_at_us: u64,
    ended: bool,
}

impl Watch {
    pub fn queue_raw(&mut self, bytes: &[u8]) {
        self.queue.push_back(bytes.into());
    }

    /// Breaks the connection: lines that were not fetched are lost.
    pub fn break_off(&mut self) {
        self.queue.clear();
        self.ended = true;
    }

    fn fail(&mut self, failure: &Failure) {
        self.queue.push_back(line(&json!({"type": "ERROR", "object": failure.body()})));
        self.ended = true;
    }

    fn sees(&self, event: &Event) -> Option<Arc<[u8]>> {
        let (namespace, name) = &event.key;
        if self.namespace.as_ref().is_some_and(|wanted| wanted != namespace) {
            return None;
        }
        let matches = |object: &Snapshot| self.selector.matches(name, namespace, object);
        if self.selector.selects_all() {
            return Some(self.written(event));
        }
        let Some(before) = &event.before else {
            return matches(&event.now).then(|| self.written(event));
        };
        let is = event.change != Change::Deleted && matches(&event.now);
        match (matches(before), is) {
            (false, false) => None,
            (false, true) => Some(event.now.line_as(Change::Added, self.resource)),
            (true, true) => Some(event.now.line_as(Change::Modified, self.resource)),
            (true, false) if event.change == Change::Deleted => Some(self.written(event)),
            (true, false) => Some(left(before, self.resource, event.rv)),
        }
    }

    /// Returns the original line of a write.
    fn written(&self, event: &Event) -> Arc<[u8]> {
        if self.resource.is_stored_as_itself() {
            event.now.line()
        } else {
            event.now.line_as(event.change, self.resource)
        }
    }

    fn next_bookmark(&self, now_us: u64, every_us: u64) -> u64 {
        let regular = now_us.saturating_add(every_us);
        let last = self.ends_at_us.saturating_sub(2_000_000);
        if last > now_us { regular.min(last) } else { regular }
    }
}

/// Returns the line about an object that no longer matches: its last matching version, deleted at the resourceVersion
/// of the change.
fn left(before: &Snapshot, resource: Resource, rv: u64) -> Arc<[u8]> {
    let mut object = before.value_as(resource);
    object["metadata"]["resourceVersion"] = rv.to_string().into();
    line(&json!({"type": "DELETED", "object": object}))
}

fn line(value: &Value) -> Arc<[u8]> {
    let mut bytes = value.to_string().into_bytes();
    bytes.push(b'\n');
    bytes.into()
}

fn bookmark(facts: &Facts, rv: u64, initial_events_end: bool) -> Arc<[u8]> {
    let annotations =
        if initial_events_end { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
    let text = format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{}\"metadata\":{{\"resourceVersion\":\"{rv}\"{annotations}}}{}}}}}\n",
        facts.head(),
        facts.bookmark_rest
    );
    text.into_bytes().into()
}

impl KubeModel {
    pub(super) fn open_watch(
        &mut self,
        target: &Target,
        query: &Query,
        now_us: u64,
    ) -> Result<WatchId, Failure> {
        let facts = target.resource.facts();
        let streaming = query.flag("sendInitialEvents");
        check_options(query, self.faults.streaming)?;
        let selector = Selector::parse(query, target.resource)?;
        let rv = query.number("resourceVersion")?;
        let timeout_us = match query.number("timeoutSeconds")? {
            None | Some(0) => self.default_timeout(),
            Some(seconds) => seconds.saturating_mul(1_000_000),
        };
        let mut watch = Watch {
            resource: target.resource,
            namespace: target.namespace.clone(),
            selector,
            cursor: rv.unwrap_or(0),
            queue: VecDeque::new(),
            bookmark_at_us: None,
            ends_at_us: now_us.saturating_add(timeout_us),
            ended: false,
        };
        let bookmarks = query.flag("allowWatchBookmarks");
        if bookmarks {
            watch.bookmark_at_us = Some(watch.next_bookmark(now_us, self.settings.bookmark_every_us));
        }
        let visible = self.store.visible(now_us, self.faults.lag_us);
        let quiet = query.has("sendInitialEvents") && !streaming;
        let oldest = self.store.horizon.max(self.store.table(target.resource).retained_from);
        if streaming && self.faults.streaming == StreamingLists::RefusedByErrorEvent {
            watch.fail(&Failure::internal(NO_PROGRESS));
        } else if streaming {
            let from = match rv {
                None => self.store.rv,
                Some(rv) if rv > self.store.rv => return Err(Failure::too_large_version(rv, self.store.rv)),
                Some(rv) => visible.max(rv),
            };
            self.queue_state(&mut watch, from)?;
            if bookmarks {
                watch.queue.push_back(bookmark(facts, from, true));
            }
        } else if rv.unwrap_or(0) == 0 {
            let from = if rv.is_none() { self.store.rv } else { visible };
            watch.cursor = from;
            if !quiet {
                self.queue_state(&mut watch, from)?;
            }
        } else if watch.cursor < oldest {
            self.fault_effects.expired += 1;
            watch.fail(&Failure::expired(watch.cursor, oldest));
        }
        match self.faults.watches_last_us {
            Some(0) => watch.break_off(),
            Some(lasts_us) => watch.ends_at_us = watch.ends_at_us.min(now_us.saturating_add(lasts_us)),
            None => {}
        }
        let id = WatchId(self.next_watch);
        self.next_watch += 1;
        self.watches.insert(id, watch);
        self.changed();
        Ok(id)
    }

    fn queue_state(&mut self, watch: &mut Watch, rv: u64) -> Result<(), Failure> {
        let state = state_of(&self.store, watch.resource, watch.namespace.as_deref(), &watch.selector, rv)
            .ok_or_else(|| Failure::expired(rv, self.store.horizon))?;
        if self.faults.hidden.contains(&watch.resource) {
            *self.fault_effects.hidden.entry(watch.resource).or_default() += 1;
        } else {
            let resource = watch.resource;
            watch.queue.extend(state.into_iter().map(|(_, object)| object.line_as(Change::Added, resource)));
        }
        watch.cursor = rv;
        Ok(())
    }

    /// Returns between one and two times the configured minimum, as the real server spreads its watches.
    fn default_timeout(&mut self) -> u64 {
        let least = self.settings.watch_timeout_us;
        let spread = self.numbers.next() % least.max(1);
        least.saturating_add(spread)
    }

    /// Returns the lines of a watch at `now_us`, each with its line end, oldest first.
    pub fn poll_watch(&mut self, id: WatchId, now_us: u64) -> Vec<Arc<[u8]>> {
        let visible = self.store.visible(now_us, self.faults.lag_us);
        let Some(watch) = self.watches.get_mut(&id) else {
            return Vec::new();
        };
        let mut lines: Vec<Arc<[u8]>> = watch.queue.drain(..).collect();
        if watch.ended {
            return lines;
        }
        let table = self.store.table(watch.resource);
        if watch.cursor < table.retained_from {
            // Too slow for the history: the real server drops such a watcher, and a new watch gets 410.
            watch.break_off();
            self.changed();
            return lines;
        }
        let visible_events = table.after(watch.cursor).take_while(|event| event.rv <= visible);
        lines.extend(visible_events.filter_map(|event| watch.sees(event)));
        watch.cursor = watch.cursor.max(visible);
        if watch.bookmark_at_us.is_some_and(|at| at <= now_us) {
            lines.push(bookmark(watch.resource.facts(), watch.cursor, false));
            watch.bookmark_at_us = Some(watch.next_bookmark(now_us, self.settings.bookmark_every_us));
        }
        if watch.ends_at_us <= now_us {
            watch.ended = true;
            self.changed();
        }
        lines
    }

    /// Returns whether a watch has ended and has nothing left to fetch. A closed or unknown watch has ended.
    pub fn watch_ended(&self, id: WatchId) -> bool {
        self.watches.get(&id).is_none_or(|watch| watch.ended && watch.queue.is_empty())
    }

    /// Returns the time of the next line or end without a write; `now_us` if lines are waiting, `None` after the end.
    pub fn watch_deadline(&self, id: WatchId, now_us: u64) -> Option<u64> {
        let watch = self.watches.get(&id)?;
        if !watch.queue.is_empty() {
            return Some(now_us);
        }
        if watch.ended {
            return None;
        }
        let lag_us = self.faults.lag_us;
        let visible = self.store.visible(now_us, lag_us);
        let table = self.store.table(watch.resource);
        if table.after(watch.cursor).next().is_some_and(|event| event.rv <= visible) {
            return Some(now_us);
        }
        let lagged = self.store.next_visible_at(watch.resource, now_us, lag_us);
        [Some(watch.ends_at_us), watch.bookmark_at_us, lagged].into_iter().flatten().min()
    }

    /// Closes a watch whose client has disconnected.
    pub fn close_watch(&mut self, id: WatchId) {
        self.watches.remove(&id);
        self.changed();
    }

    /// Returns the running watches, with their targets.
    pub fn open_watches(&self) -> Vec<(WatchId, Resource, Option<String>)> {
        let running = self.watches.iter().filter(|(_, watch)| !watch.ended);
        running.map(|(id, watch)| (*id, watch.resource, watch.namespace.clone())).collect()
    }

    pub(super) fn end_all_watches(&mut self) {
        for watch in self.watches.values_mut() {
            watch.break_off();
        }
        self.changed();
    }
}

const NO_PROGRESS: &str = "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled";

fn check_options(query: &Query, streaming: StreamingLists) -> Result<(), Failure> {
    let given = query.has("sendInitialEvents");
    let matching = query.text("resourceVersionMatch");
    match streaming {
        StreamingLists::RefusedAsBadRequest if given => {
            return Err(Failure::bad_request("sendInitialEvents is not supported"));
        }
        StreamingLists::RefusedAsInvalid if given => {
            let detail = "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
            return Err(Failure::invalid_options("sendInitialEvents", detail));
        }
        StreamingLists::Served
        | StreamingLists::RefusedByErrorEvent
        | StreamingLists::RefusedAsInvalid
        | StreamingLists::RefusedAsBadRequest => {}
    }
    let field = "resourceVersionMatch";
    match (given, matching) {
        (true, "NotOlderThan") | (false, "") => Ok(()),
        (true, "") => {
            let detail = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            Err(Failure::invalid_options(field, detail))
        }
        (true, _) => {
            Err(Failure::invalid_options(field, "Unsupported value: supported values: \"NotOlderThan\""))
        }
        (false, _) => {
            let detail =
                "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            Err(Failure::invalid_options(field, detail))
        }
    }
}
