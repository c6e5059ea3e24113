//! What is read from the connection of a watch or streaming list, on its way to the machines: the port says when it has
//! read a line, and tells the writer of the change before the machines that take it in can (docs/design/pools.md, Q2;
//! A3).
//!
//! Lines wait in an [`Outbox`](crate::outbox::Outbox) while their watcher is busy: there a newer line about the same
//! object replaces the older one, so that no more lines wait than there are objects.

use std::time::Duration;

use crate::route::Delivery;
use model::ids::{CallId, Family};
use model::machine::Now;
use model::object::Kind;
use sources::watch::{Ask, In, Line};

/// The most deliveries that wait for a watcher before the port reads no further.
pub const MOST_UNREAD: usize = 16_384;

/// The least by which the moments of two lines differ.
const TICK: Duration = Duration::from_micros(1);

/// What is read from one connection.
#[derive(Clone, Debug)]
pub struct Intake {
    kind: Kind,
    call: CallId,
    /// When the last line was read.
    last: Now,
    /// Whether lines tell of changes, and not of a list that has not ended.
    is_live: bool,
}

impl Intake {
    /// Nothing was read of what this request answers.
    #[must_use]
    pub fn new(kind: Kind, call: CallId, ask: &Ask) -> Intake {
        let is_live = match ask {
            Ask::Watch { .. } => true,
            Ask::StreamingList | Ask::List { .. } => false,
        };
        Intake { kind, call, last: Now::ZERO, is_live }
    }

    /// A line was read: says who is told of it. Each has a moment of its own, so that it can be said how far lines were
    /// taken in.
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

    /// Which pools' changes are told, and when each line was read, in microseconds.
    fn read(ask: &Ask, lines: Vec<(u64, Line)>) -> (Vec<PoolName>, Vec<u64>) {
        let mut intake = Intake::new(Kind::EndpointSlices, CallId(1), ask);
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
    fn each_line_has_a_moment_of_its_own() {
        let watch = Ask::Watch { from: ResourceVersion::default() };
        let lines = [5, 5, 5, 6, 100].map(|micros| (micros, bookmark(false)));
        assert_eq!(read(&watch, lines.into()).1, [5, 6, 7, 8, 100]);
    }

    #[test]
    fn changes_are_told_by_the_pool_of_their_service() {
        let watch = Ask::Watch { from: ResourceVersion::default() };
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
        assert_eq!(read(&Ask::StreamingList, lines).0, [PoolName::new("shop-c")]);
    }
}
