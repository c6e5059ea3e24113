//! Interprets the lines of a stream and the pages of a list.

use std::sync::Arc;

use super::{Line, Out, Phase, Purpose, WatchFailure, WatchUpdate, Watcher};
use model::ids::CallId;
use model::level::Provenance;
use model::machine::Now;
use model::object::ResourceVersion;
use model::sample::{Metric, RelistReason};

impl Watcher {
    pub(super) fn on_opened(&mut self, now: Now, call: CallId, out: &mut Vec<Out>) {
        if self.current() != Some(call) {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
        } else {
            self.follow(now, out);
        }
    }

    /// Enters the stream of the open request; returns false if the request does not stream.
    fn follow(&mut self, now: Now, out: &mut Vec<Out>) -> bool {
        match &mut self.phase {
            Phase::Idle | Phase::Waiting { .. } => return false,
            Phase::Following { last_line_at, .. } => *last_line_at = now,
            Phase::Requested { call, purpose, .. } => {
                if matches!(purpose, Purpose::List { .. }) {
                    return false;
                }
                let (call, purpose) = (*call, purpose.clone());
                self.phase = Phase::Following { call, opened: now, last_line_at: now, lines: false, purpose };
                self.on_connected(now, out);
            }
        }
        true
    }

    /// Reports an open watch: to the Informer if the connection is new, and in the metrics. After a watch that
    /// delivered nothing, it must deliver a line or last for a while before it counts as current.
    fn on_connected(&mut self, now: Now, out: &mut Vec<Out>) {
        let (kind, read) = (self.kind, self.read);
        let Some(Purpose::Watch { again, .. }) = self.purpose_mut() else {
            return;
        };
        if std::mem::take(again) {
            out.push(Out::Seen(kind, read, WatchUpdate::Reconnected));
        }
        if self.deliveries.is_trusted() {
            self.confirm_delivery(now, out);
        }
    }

    /// Handles a line that was read at the time `read`. Returns true for a bookmark.
    pub(super) fn on_line(
        &mut self,
        now: Now,
        call: CallId,
        (read, line): (Now, Line),
        out: &mut Vec<Out>,
    ) -> bool {
        self.read = read;
        if self.dropped_call == Some(call) {
            // The port had read the line before it was notified that this request is over.
            return false;
        }
        if self.current() != Some(call) || !self.follow(now, out) {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return false;
        }
        self.heard_at = Some(now);
        match &line {
            // An error is not about an object.
            Line::Error(_) => {}
            Line::Object(_) | Line::Deleted { .. } | Line::Bookmark { .. } | Line::Undecodable { .. } => {
                self.on_data(now, out);
            }
        }
        match line {
            Line::Error(failure) => {
                let failure = self.classify_error(failure);
                self.fail(now, failure, out);
            }
            Line::Bookmark { resource_version, list_end } => {
                self.backoff.on_progress();
                self.on_bookmark(now, resource_version, list_end, out);
                return true;
            }
            // The line may be any change, including a deletion. Only a list shows the current state.
            Line::Undecodable { key: None, .. }
                if matches!(self.purpose_mut(), Some(Purpose::Watch { .. })) =>
            {
                self.forward(line, out);
                self.relist(now, RelistReason::Broken, out);
            }
            Line::Object(_) | Line::Deleted { .. } | Line::Undecodable { .. } => {
                self.backoff.on_progress();
                self.forward(line, out);
            }
        }
        false
    }

    /// Interprets an ERROR line. Within a streaming list, an error of no other known kind counts as a refusal of
    /// streaming, because its wording differs between versions of the server and of its storage.
    fn classify_error(&mut self, failure: WatchFailure) -> WatchFailure {
        match (failure, self.purpose_mut()) {
            (WatchFailure::Other(message), Some(Purpose::StreamingList { .. })) => {
                WatchFailure::StreamingRefused(message)
            }
            (failure, _) => failure,
        }
    }

    /// Passes a line about an object to the Informer.
    fn forward(&mut self, line: Line, out: &mut Vec<Out>) {
        self.emit_list_began(out);
        let event = match line {
            Line::Object(object) => {
                self.set_version(object.resource_version());
                WatchUpdate::Object(object)
            }
            Line::Deleted { key, owner: _, resource_version } => {
                self.set_version(&resource_version);
                WatchUpdate::Deleted { key, resource_version }
            }
            Line::Undecodable { key, owner, resource_version, error } => {
                if let Some(version) = &resource_version {
                    self.set_version(version);
                }
                out.push(Out::Metric(Metric::UndecodableObject(self.kind)));
                WatchUpdate::Undecodable { key, owner, error, before: None }
            }
            // Bookmarks and errors are about the stream; in a page they have no meaning.
            Line::Bookmark { .. } | Line::Error(_) => return,
        };
        out.push(Out::Seen(self.kind, self.read, event));
    }

    fn emit_list_began(&mut self, out: &mut Vec<Out>) {
        let provenance = if self.listed { Provenance::Relist } else { Provenance::FirstList };
        let (kind, read) = (self.kind, self.read);
        let began = match self.purpose_mut() {
            Some(Purpose::StreamingList { began, .. } | Purpose::List { began, .. }) => began,
            Some(Purpose::Watch { .. }) | None => return,
        };
        if !std::mem::replace(began, true) {
            out.push(Out::Seen(kind, read, WatchUpdate::ListBegan(provenance)));
        }
    }

    /// Sets the version that the running watch is complete up to. The objects of a list are in no order.
    fn set_version(&mut self, version: &ResourceVersion) {
        match self.purpose_mut() {
            Some(Purpose::Watch { from, .. }) if !version.0.is_empty() => *from = version.clone(),
            Some(Purpose::Watch { .. } | Purpose::StreamingList { .. } | Purpose::List { .. }) | None => {}
        }
    }

    fn on_bookmark(&mut self, now: Now, version: ResourceVersion, list_end: bool, out: &mut Vec<Out>) {
        self.emit_list_began(out);
        match self.purpose_mut() {
            Some(Purpose::Watch { .. }) => {
                self.set_version(&version);
                out.push(Out::Seen(self.kind, self.read, WatchUpdate::Bookmark(version)));
            }
            Some(Purpose::StreamingList { .. }) if list_end => {
                if self.end_list(now, &version, out) {
                    if let Phase::Following { opened, lines, purpose, .. } = &mut self.phase {
                        // The following lines belong to the watch.
                        (*opened, *lines) = (now, false);
                        *purpose = Purpose::Watch { from: version, again: false };
                    }
                    self.on_connected(now, out);
                }
            }
            // A bookmark in the middle of a list does not mark a complete version.
            Some(Purpose::StreamingList { .. } | Purpose::List { .. }) | None => {}
        }
    }

    /// Ends the list. Fails if it has no version to continue from.
    fn end_list(&mut self, now: Now, version: &ResourceVersion, out: &mut Vec<Out>) -> bool {
        if version.0.is_empty() {
            self.fail(now, WatchFailure::Other("a list without a resourceVersion".into()), out);
            return false;
        }
        let serves = self.purpose_mut().map(|purpose| purpose.serves()).unwrap_or_default();
        let done = WatchUpdate::ListDone { resource_version: version.clone(), serves };
        out.push(Out::Seen(self.kind, self.read, done));
        self.listed = true;
        self.backoff.on_listed(now);
        true
    }

    pub(super) fn on_page(
        &mut self,
        now: Now,
        call: CallId,
        (items, version, next): (Vec<Line>, ResourceVersion, Option<Arc<str>>),
        out: &mut Vec<Out>,
    ) {
        let page = match self.purpose_mut() {
            Some(Purpose::List { page, .. }) => Some(page.clone()),
            Some(Purpose::StreamingList { .. } | Purpose::Watch { .. }) | None => None,
        };
        let Some(page) = page.filter(|_| self.current() == Some(call)) else {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return;
        };
        let is_empty = items.is_empty();
        self.heard_at = Some(now);
        self.deliveries.on_list(now);
        self.backoff.on_progress();
        self.emit_list_began(out);
        for item in items {
            self.forward(item, out);
        }
        let next = next.filter(|token| !token.is_empty());
        if is_empty && next.is_some() && next == page {
            let reason = "an empty page of the list has its own continue token";
            return self.fail(now, WatchFailure::Other(reason.into()), out);
        }
        match next {
            Some(page) => {
                let serves = self.purpose_mut().map(|purpose| purpose.serves()).unwrap_or_default();
                self.open(now, Purpose::List { page: Some(page), began: true, serves }, out);
            }
            None => {
                if self.end_list(now, &version, out) {
                    self.open(now, Purpose::Watch { from: version, again: false }, out);
                }
            }
        }
    }
}
