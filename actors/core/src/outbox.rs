//! The deliveries that wait on one edge, from one sender to one address (docs/design/model-and-mechanisms.md, A3).

use mechanisms::outbox::{Coalesce, FactOrder};

use crate::route::{Delivery, FactKey};

/// The deliveries that wait on one edge, where newer facts replace older ones.
pub type Outbox = mechanisms::outbox::CoalescingQueue<Delivery>;

impl Coalesce for Delivery {
    type Key = FactKey;

    fn fact(&self) -> Option<FactKey> {
        Delivery::fact(self)
    }

    fn absorb(&mut self, older: &Delivery) {
        Delivery::absorb(self, older);
    }

    fn place(key: &FactKey) -> FactOrder {
        match key {
            FactKey::Object(_) | FactKey::ReadUpTo => FactOrder::Last,
            // A withdrawn admin part has no generation: the writer answers with the generation of its newest set.
            // Therefore the message about it must not move in front of the set from which it follows (N3).
            FactKey::Draining => FactOrder::Barrier,
            FactKey::Service(_)
            | FactKey::Assignment(_)
            | FactKey::Observation(_)
            | FactKey::Members(_)
            | FactKey::SourceAdminStates(_)
            | FactKey::DrainingAddresses
            | FactKey::Lb(_)
            | FactKey::Source(_)
            | FactKey::MembershipDue(_)
            | FactKey::AdminDue(_)
            | FactKey::Node(_)
            | FactKey::Leadership
            | FactKey::GateTimes
            | FactKey::OutOfSync
            | FactKey::OperatorPolicy
            | FactKey::AwaitingIngress
            | FactKey::Gates
            | FactKey::PoolView(_)
            | FactKey::RefusedView(_)
            | FactKey::ServiceView(_)
            | FactKey::LaneView(_)
            | FactKey::GateView(_)
            | FactKey::SourceView(_)
            | FactKey::LbView(_)
            | FactKey::LeadershipView
            | FactKey::PolicyView
            | FactKey::SharedLeaseView
            | FactKey::GuardsView
            | FactKey::NodeView(_)
            | FactKey::AdminView
            | FactKey::XdsView
            | FactKey::Unread(_)
            | FactKey::Snapshot => FactOrder::SameAsOlder,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use model::draining::Draining;
    use model::ids::{CallId, EventKey, LbName, NodeName, PoolId, PoolName, ServiceUid, SliceKey};
    use model::level::Provenance;
    use model::machine::Now;
    use model::object::{
        AddressType, Kind, Object, ObjectKey, Owner, PreemptionObject, ResourceVersion, SliceObject,
    };
    use model::watch::WatchUpdate;
    use model::xds::name::Name;
    use model::xds::source::{Assigned, Note, SourceFact};
    use pools::{directory, discovery};
    use sources::watch::Line;
    use sources::{informer, watch};

    fn service(uid: &str) -> Delivery {
        Delivery::Discovery(discovery::In::Service(ServiceUid::new(uid), None))
    }

    fn source(provenance: Provenance) -> Delivery {
        let (assigned, note) = (Assigned::Usable(Arc::default()), Note::Node("us".into()));
        let name = Name::parse("eds:a").expect("a source");
        Delivery::Directory(directory::In::Source(name, SourceFact { assigned, provenance, note }))
    }

    fn request() -> Delivery {
        let pool = PoolId::new(LbName::new("lb"), PoolName::new("pool"));
        Delivery::Discovery(discovery::In::Missing(pool))
    }

    #[test]
    fn a3_a_newer_fact_replaces_an_older_one() {
        let mut outbox = Outbox::default();
        outbox.push(service("a"));
        outbox.push(service("b"));
        outbox.push(service("a"));
        assert_eq!(outbox.len(), 2);
        assert_eq!(outbox.take(1)[0].fact(), Some(FactKey::Service(ServiceUid::new("a"))));
        outbox.push(service("a"));
        assert_eq!(outbox.len(), 2, "what was taken is no longer replaced");
    }

    #[test]
    fn a3_no_fact_moves_across_a_request() {
        let mut outbox = Outbox::default();
        outbox.push(service("a"));
        outbox.push(request());
        outbox.push(service("a"));
        let facts: Vec<bool> = outbox.take(9).iter().map(|d| d.fact().is_some()).collect();
        assert_eq!(facts, [true, false, true]);
        assert!(outbox.is_empty());
    }

    fn due(pool: &str) -> Delivery {
        let pool = PoolId::new(LbName::new("lb"), PoolName::new(pool));
        Delivery::Writer(writer::In::AdminDue(pool, None))
    }

    fn draining(generation: u64) -> Delivery {
        Delivery::Writer(writer::In::Draining(Arc::new(Draining { generation, ..Draining::default() })))
    }

    #[test]
    fn n2_one_draining_set_waits_before_its_dependents() {
        let mut outbox = Outbox::default();
        outbox.push(due("a"));
        for generation in 1..1_000 {
            outbox.push(draining(generation));
            outbox.push(due("a"));
            outbox.push(due("b"));
        }
        let text_of = |delivery: &Delivery| {
            if let Delivery::Writer(writer::In::AdminDue(pool, None)) = delivery {
                return pool.pool.to_string();
            }
            let Delivery::Writer(writer::In::Draining(set)) = delivery else { panic!("{delivery:?}") };
            set.generation.to_string()
        };
        let waiting: Vec<String> = outbox.take(9).iter().map(text_of).collect();
        assert_eq!(waiting, ["a", "999", "a", "b"], "of what waited before the set nothing newer is due");
    }

    fn seen(seen: WatchUpdate) -> Delivery {
        Delivery::Informer(informer::In::Seen(Kind::EndpointSlices, Now::ZERO, seen))
    }

    fn slice(name: &str, version: u64, age: Option<u64>) -> WatchUpdate {
        WatchUpdate::Object(Object::Slice(Arc::new(SliceObject {
            key: SliceKey { namespace: "shop".into(), name: name.into() },
            service: None,
            resource_version: ResourceVersion(version.to_string().into()),
            address_type: AddressType::Unset,
            endpoints: Vec::new(),
            trigger_age: age.map(Duration::from_secs),
        })))
    }

    fn gone(name: &str, version: u64) -> WatchUpdate {
        let key = ObjectKey::Slice(SliceKey { namespace: "shop".into(), name: name.into() });
        WatchUpdate::Deleted { key, resource_version: ResourceVersion(version.to_string().into()) }
    }

    fn bad(name: &str) -> WatchUpdate {
        let key = ObjectKey::Slice(SliceKey { namespace: "shop".into(), name: name.into() });
        WatchUpdate::Undecodable { key: Some(key), owner: Owner::Nobody, error: "bad".into(), before: None }
    }

    /// Returns the waiting deliveries, as text.
    fn waiting_texts(outbox: &mut Outbox) -> Vec<String> {
        fn text_of(seen: &WatchUpdate) -> String {
            match seen {
                WatchUpdate::Object(object) => {
                    let version = &object.resource_version().0;
                    let Object::Slice(slice) = object else { panic!("no slice: {object:?}") };
                    let age = slice.trigger_age.map_or(String::new(), |age| format!(" {age:?}"));
                    format!("{} {version}{age}", slice.key.name)
                }
                WatchUpdate::Deleted { resource_version, .. } => format!("gone {}", resource_version.0),
                WatchUpdate::Undecodable { before, .. } => {
                    format!("bad after {}", before.as_deref().map_or(String::new(), text_of))
                }
                WatchUpdate::Bookmark(_) => "bookmark".to_owned(),
                WatchUpdate::ListBegan(_)
                | WatchUpdate::ListDone { .. }
                | WatchUpdate::ListAborted
                | WatchUpdate::Reconnected
                | WatchUpdate::AnyList(_) => panic!("{seen:?}"),
            }
        }
        let word_of = |delivery: &Delivery| {
            let Delivery::Informer(informer::In::Seen(_, _, seen)) = delivery else { panic!("{delivery:?}") };
            text_of(seen)
        };
        outbox.take(99).iter().map(word_of).collect()
    }

    #[test]
    fn a3_only_the_newest_state_of_an_object_waits() {
        let mut outbox = Outbox::default();
        for version in (1..1_000).step_by(3) {
            outbox.push(seen(slice("a", version, None)));
            outbox.push(seen(slice("b", version + 1, None)));
            outbox.push(seen(gone("a", version + 2)));
        }
        assert_eq!(waiting_texts(&mut outbox), ["b 998", "gone 999"]);
        outbox.push(seen(slice("a", 1_000, None)));
        outbox.push(seen(WatchUpdate::Bookmark(ResourceVersion::default())));
        outbox.push(seen(slice("a", 1_001, None)));
        assert_eq!(
            waiting_texts(&mut outbox),
            ["a 1000", "bookmark", "a 1001"],
            "none moves across a bookmark"
        );
    }

    #[test]
    fn a3_the_newest_state_of_an_object_keeps_the_oldest_trigger() {
        let mut outbox = Outbox::default();
        for (version, age) in [(1, Some(3)), (2, Some(9)), (3, None), (4, Some(1))] {
            outbox.push(seen(slice("a", version, age)));
        }
        assert_eq!(waiting_texts(&mut outbox), ["a 4 9s"]);
    }

    fn line(kind: Kind, read: u64, line: Line) -> Delivery {
        Delivery::Watcher(kind, watch::In::Line { call: CallId(1), read: Now::from_millis(read), line })
    }

    fn slice_line(name: &str, version: u64, age: Option<u64>) -> Line {
        let WatchUpdate::Object(object) = slice(name, version, age) else { unreachable!("it is one") };
        Line::Object(object)
    }

    fn gone_line(name: &str, version: u64) -> Line {
        let WatchUpdate::Deleted { key, resource_version } = gone(name, version) else {
            unreachable!("it is one")
        };
        Line::Deleted { key, owner: Owner::Nobody, resource_version }
    }

    /// Returns the waiting lines, as text.
    fn lines(outbox: &mut Outbox) -> Vec<String> {
        let text_of = |delivery: &Delivery| {
            let Delivery::Watcher(_, watch::In::Line { read, line, .. }) = delivery else {
                panic!("{delivery:?}")
            };
            let read = read.as_micros() / 1_000;
            match line {
                Line::Object(Object::Slice(slice)) => {
                    let age = slice.trigger_age.map_or(String::new(), |age| format!(" {age:?}"));
                    format!("{} {}{age} at {read}", slice.key.name, slice.resource_version.0)
                }
                Line::Object(Object::Preemption(event)) => {
                    format!("notice {} {} at {read}", event.key.name, event.resource_version.0)
                }
                Line::Deleted { resource_version, .. } => format!("gone {} at {read}", resource_version.0),
                Line::Undecodable { .. } => format!("bad at {read}"),
                Line::Bookmark { .. } => format!("bookmark at {read}"),
                Line::Object(_) | Line::Error(_) => panic!("{line:?}"),
            }
        };
        outbox.take(99).iter().map(text_of).collect()
    }

    #[test]
    fn a3_only_the_newest_unread_line_of_an_object_waits() {
        let kind = Kind::EndpointSlices;
        let mut outbox = Outbox::default();
        for n in (1..3_000).step_by(3) {
            outbox.push(line(kind, n, slice_line("a", n, None)));
            outbox.push(line(kind, n + 1, slice_line("b", n + 1, None)));
            outbox.push(line(kind, n + 2, gone_line("a", n + 2)));
        }
        assert_eq!(lines(&mut outbox), ["b 2999 at 2999", "gone 3000 at 3000"], "in the order of reading");
        outbox.push(line(kind, 1, slice_line("a", 1, None)));
        let bookmark = Line::Bookmark { resource_version: ResourceVersion::default(), list_end: false };
        outbox.push(line(kind, 2, bookmark));
        outbox.push(line(kind, 3, slice_line("a", 2, None)));
        let bad = Line::Undecodable {
            key: None,
            owner: Owner::Nobody,
            resource_version: None,
            error: "bad".into(),
        };
        outbox.push(line(kind, 4, bad));
        outbox.push(line(kind, 5, slice_line("a", 3, None)));
        let expected = ["a 1 at 1", "bookmark at 2", "a 2 at 3", "bad at 4", "a 3 at 5"];
        assert_eq!(lines(&mut outbox), expected, "none moves across what is about no object");
    }

    #[test]
    fn a3_the_age_of_the_oldest_trigger_grows_while_lines_wait() {
        let mut outbox = Outbox::default();
        outbox.push(line(Kind::EndpointSlices, 1_000, slice_line("a", 1, Some(3))));
        outbox.push(line(Kind::EndpointSlices, 3_000, slice_line("a", 2, Some(4))));
        outbox.push(line(Kind::EndpointSlices, 4_000, slice_line("a", 3, None)));
        assert_eq!(lines(&mut outbox), ["a 3 6s at 4000"]);
    }

    fn notice(name: &str, version: u64) -> Object {
        Object::Preemption(Arc::new(PreemptionObject {
            key: EventKey { namespace: "default".into(), name: name.into() },
            resource_version: ResourceVersion(version.to_string().into()),
            node: NodeName::new("n1"),
            uid: None,
            at: None,
            age: None,
            not_before: None,
            message: "Preempt Scheduled: soon".into(),
        }))
    }

    #[test]
    fn n1_a_notice_waits_once_although_its_event_is_deleted() {
        let mut outbox = Outbox::default();
        for version in (1..1_000).step_by(2) {
            let object = notice("a", version);
            let gone = Line::Deleted {
                key: object.key(),
                owner: Owner::Nobody,
                resource_version: ResourceVersion((version + 1).to_string().into()),
            };
            outbox.push(line(Kind::Preemptions, version, Line::Object(object)));
            outbox.push(line(Kind::Preemptions, version, gone));
        }
        outbox.push(line(Kind::Preemptions, 1_001, Line::Object(notice("b", 1_001))));
        assert_eq!(lines(&mut outbox), ["notice a 999 at 999", "notice b 1001 at 1001"]);
    }

    #[test]
    fn n1_a_seen_notice_outlasts_its_event() {
        let object = notice("a", 1);
        let unreadable = |key| WatchUpdate::Undecodable {
            key: Some(key),
            owner: Owner::Nobody,
            error: "bad".into(),
            before: None,
        };
        let gone = WatchUpdate::Deleted { key: object.key(), resource_version: ResourceVersion("2".into()) };
        for later in [gone, unreadable(object.key())] {
            let mut outbox = Outbox::default();
            for seen in [WatchUpdate::Object(object.clone()), later] {
                outbox.push(Delivery::AdminState(nodes::In::Preemption(seen)));
            }
            let waiting = outbox.take(9);
            assert!(
                matches!(&waiting[..], [Delivery::AdminState(nodes::In::Preemption(WatchUpdate::Object(_)))]),
                "{waiting:?}"
            );
        }
    }

    #[test]
    fn q2_the_read_position_is_delivered_after_the_read_lines() {
        let mut outbox = Outbox::default();
        let up_to = |read| Delivery::Directory(directory::In::ReadUpTo(Now::from_millis(read)));
        outbox.push(up_to(1));
        outbox.push(source(Provenance::Watch));
        outbox.push(up_to(2));
        let waiting = outbox.take(9);
        let expected = Now::from_millis(2);
        assert!(
            matches!(&waiting[..], [_, Delivery::Directory(directory::In::ReadUpTo(read))] if *read == expected),
            "{waiting:?}"
        );
    }

    #[test]
    fn d6_an_undecodable_state_keeps_the_last_good_one() {
        let mut outbox = Outbox::default();
        for first in [slice("a", 1, Some(3)), gone("a", 1)] {
            outbox.push(seen(first));
            outbox.push(seen(bad("a")));
            outbox.push(seen(bad("a")));
        }
        assert_eq!(waiting_texts(&mut outbox), ["bad after gone 1"]);
        outbox.push(seen(slice("a", 2, Some(3))));
        outbox.push(seen(bad("a")));
        assert_eq!(waiting_texts(&mut outbox), ["bad after a 2 3s"]);
        outbox.push(seen(slice("a", 2, Some(3))));
        outbox.push(seen(bad("a")));
        outbox.push(seen(slice("a", 3, None)));
        assert_eq!(waiting_texts(&mut outbox), ["a 3 3s"]);
    }

    #[test]
    fn g1_a_newer_fact_about_a_source_keeps_the_doubt_of_the_older() {
        let mut outbox = Outbox::default();
        outbox.push(source(Provenance::Relist));
        outbox.push(source(Provenance::Watch));
        let waiting = outbox.take(9);
        let [Delivery::Directory(directory::In::Source(_, fact))] = &waiting[..] else {
            panic!("{waiting:?}");
        };
        assert_eq!(fact.provenance, Provenance::Relist);
    }
}
