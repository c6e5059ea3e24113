//! Routes lines from the connection of a watch or streaming list to the machines. The port reports when it reads a
//! line; the writer receives the change before the machines that apply it can (docs/design/pools.md, Q2; A3).
//!
//! Lines wait in an [`Outbox`](crate::outbox::Outbox) while their watcher is busy. There, a newer line about the same
//! object replaces the older one, so that at most one line per object waits.

use std::time::Duration;

use crate::route::Delivery;
use model::ids::{CallId, Family};
use model::machine::Now;
use model::object::Kind;
use sources::watch::{In, Line, WatchRequest};

/// Maximum number of deliveries that wait for a watcher before the port stops reading.
pub const MAX_UNREAD: usize = 16_384;

/// Smallest difference between the times of two lines.
const TICK: Duration = Duration::from_micros(1);

/// State of reading one connection.
#[derive(Clone, Debug)]
pub struct Intake {
    kind: Kind,
    call: CallId,
    /// Time of the last line.
    last: Now,
    /// Whether lines are changes, and not part of an incomplete list.
    is_live: bool,
}

impl Intake {
    /// Creates the state before the first line of an answer.
    #[must_use]
    pub fn new(kind: Kind, call: CallId, request: &WatchRequest) -> Intake {
        let is_live = match request {
            WatchRequest::Watch { .. } => true,
            WatchRequest::StreamingList | WatchRequest::List { .. } => false,
        };
        Intake { kind, call, last: Now::ZERO, is_live }
    }

    /// Handles one line and delivers it to its receivers. Each line gets a distinct time, so that machines can report
    /// up to which line they have applied.
    pub fn read(&mut self, now: Now, line: Line, deliver: &mut impl FnMut(Delivery)) {
        self.last = now.max(self.last.plus(TICK));
        let changes = match self.kind {
            Kind::EndpointSlices => line.service().filter(|_| self.is_live),
            Kind::Services | Kind::Nodes | Kind::Preemptions => None,
        };
        if let Some(service) = changes {
            let pool = service.pool_name(Family::V4);
            deliver(Delivery::Writer(writer::In::Unread(pool, self.last)));
        }
        self.is_live |= matches!(line, Line::Bookmark { list_end: true, .. });
        deliver(Delivery::Watcher(self.kind, In::Line { call: self.call, read: self.last, line }));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use model::ids::{PoolName, ServiceKey, SliceKey};
    use model::object::{AddressType, Object, ResourceVersion, SliceObject};

    fn slice(service: Option<&str>) -> Line {
        Line::Object(Object::Slice(Arc::new(SliceObject {
            key: SliceKey { namespace: "shop".into(), name: "a".into() },
            service: service.map(|name| ServiceKey::new("Shop", name)),
            resource_version: ResourceVersion::default(),
            address_type: AddressType::Unset,
            endpoints: Vec::new(),
            trigger_age: None,
        })))
    }

    fn bookmark(list_end: bool) -> Line {
        Line::Bookmark { resource_version: ResourceVersion::default(), list_end }
    }

    /// Returns the pools whose changes are delivered to the writer, and the time of each line in microseconds.
    fn read(request: &WatchRequest, lines: Vec<(u64, Line)>) -> (Vec<PoolName>, Vec<u64>) {
        let mut intake = Intake::new(Kind::EndpointSlices, CallId(1), request);
        let (mut unread, mut reads) = (Vec::new(), Vec::new());
        for (micros, line) in lines {
            intake.read(Now::from_micros(micros), line, &mut |delivery| {
                if let Delivery::Writer(writer::In::Unread(pool, read)) = delivery {
                    unread.push((pool, read.as_micros()));
                } else if let Delivery::Watcher(Kind::EndpointSlices, In::Line { read, .. }) = delivery {
                    reads.push(read.as_micros());
                }
            });
        }
        assert!(unread.iter().all(|(_, read)| reads.contains(read)), "each is told of under the same moment");
        (unread.into_iter().map(|(pool, _)| pool).collect(), reads)
    }

    #[test]
    fn each_line_has_its_own_time() {
        let watch = WatchRequest::Watch { from: ResourceVersion::default() };
        let lines = [5, 5, 5, 6, 100].map(|micros| (micros, bookmark(false)));
        assert_eq!(read(&watch, lines.into()).1, [5, 6, 7, 8, 100]);
    }

    #[test]
    fn changes_are_reported_with_the_pool_of_their_service() {
        let watch = WatchRequest::Watch { from: ResourceVersion::default() };
        let lines = vec![(1, slice(Some("Web"))), (2, slice(None)), (3, slice(Some("api")))];
        assert_eq!(read(&watch, lines).0, [PoolName::new("shop-web"), PoolName::new("shop-api")]);
    }

    #[test]
    fn the_objects_of_a_list_are_no_changes() {
        let lines = vec![
            (1, slice(Some("a"))),
            (2, bookmark(false)),
            (3, slice(Some("b"))),
            (4, bookmark(true)),
            (5, slice(Some("c"))),
        ];
        assert_eq!(read(&WatchRequest::StreamingList, lines).0, [PoolName::new("shop-c")]);
    }
}
