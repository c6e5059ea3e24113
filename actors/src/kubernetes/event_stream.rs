//! The stream of events that this process reports. Each event is published once, when the emitter first requests its
//! write, whether or not the write succeeds. Nothing waits for a listener: a slow listener misses events and receives
//! their number.

use std::sync::Arc;

use reporting::events::Event;
use tokio::sync::broadcast::{Receiver, Sender};

/// Maximum number of events that a listener may lag behind.
const MAX_LAG: usize = 256;

/// An event in the stream.
#[derive(Clone, Debug)]
pub struct PublishedEvent {
    /// Number of the event in this process, from 1 without gaps.
    pub id: u64,
    /// Object that the event is attached to.
    pub object: Object,
    /// The event.
    pub event: Arc<Event>,
}

/// The object that an event is attached to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its `apiVersion`.
    pub api_version: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace; `None` for an object without one.
    pub namespace: Option<Arc<str>>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID, if known.
    pub uid: Option<Arc<str>>,
}

/// Subscribes listeners to the stream.
#[derive(Clone, Debug)]
pub struct EventSubscription(Sender<Arc<PublishedEvent>>);

impl EventSubscription {
    /// Receives every event from now on.
    #[must_use]
    pub fn listen(&self) -> Receiver<Arc<PublishedEvent>> {
        self.0.subscribe()
    }
}

/// Publishes events to the listeners.
#[derive(Debug)]
pub struct EventPublisher {
    listeners: Sender<Arc<PublishedEvent>>,
    last: u64,
}

impl EventPublisher {
    /// Creates a stream without events, and its subscription side.
    #[must_use]
    pub fn new() -> (EventPublisher, EventSubscription) {
        let listeners = Sender::new(MAX_LAG);
        let subscription = EventSubscription(listeners.clone());
        (EventPublisher { listeners, last: 0 }, subscription)
    }

    /// Publishes a new event. Repeated posts of the same event (`is_new` is false) are not published.
    pub fn publish(&mut self, object: Object, event: &Arc<Event>) {
        if !event.is_new {
            return;
        }
        self.last += 1;
        // A stream without listeners is not a failure.
        drop(self.listeners.send(Arc::new(PublishedEvent {
            id: self.last,
            object,
            event: Arc::clone(event),
        })));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::machine::Now;
    use model::report::Subject;
    use reporting::events::{EventTarget, Severity};
    use tokio::sync::broadcast::error::{RecvError, TryRecvError};

    use super::*;

    fn object() -> Object {
        let (namespace, name) = (Some("kube-system".into()), "controller-0".into());
        Object { api_version: "v1", kind: "Pod", namespace, name, uid: None }
    }

    fn event(count: u64, is_new: bool) -> Arc<Event> {
        let first = Now::ZERO.plus(Duration::from_secs(1));
        Arc::new(Event {
            subject: Subject::Controller,
            severity: Severity::Warning,
            reason: "BackendPoolWritesBlocked",
            message: "text".into(),
            count,
            first,
            last: first.plus(Duration::from_secs(count)),
            object: EventTarget::New(count),
            is_new,
        })
    }

    #[tokio::test]
    async fn h3_new_events_are_published_and_numbered_without_gaps() {
        let (mut publisher, subscription) = EventPublisher::new();
        publisher.publish(object(), &event(1, true));
        let mut received = subscription.listen();
        publisher.publish(object(), &event(1, false));
        assert!(
            matches!(received.try_recv(), Err(TryRecvError::Empty)),
            "it was published before there was a listener"
        );
        publisher.publish(object(), &event(2, true));
        let event = received.recv().await.expect("the publisher is there");
        assert_eq!((event.id, event.event.count, &event.object), (2, 2, &object()));
    }

    #[tokio::test]
    async fn h3_a_slow_listener_gets_the_number_of_missed_events() {
        let (mut publisher, subscription) = EventPublisher::new();
        let mut received = subscription.listen();
        for count in 1..=300 {
            publisher.publish(object(), &event(count, true));
        }
        assert_eq!(received.recv().await.map(|event| event.id), Err(RecvError::Lagged(44)));
        assert_eq!(received.recv().await.map(|event| event.id), Ok(45));
    }
}
