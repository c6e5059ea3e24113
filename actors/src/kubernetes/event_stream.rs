//! The stream of events that this process reports. Each event is passed on once, when the emitter first requests its
//! write, whether or not the write succeeds. Nothing waits for a listener: a slow one misses events and receives
//! their number.

use std::sync::Arc;

use reporting::events::Event;
use tokio::sync::broadcast::{Receiver, Sender};

/// How many events a listener may lag behind.
const BEHIND: usize = 256;

/// An event in the stream.
#[derive(Clone, Debug)]
pub struct Telling {
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
pub struct Tellings(Sender<Arc<Telling>>);

impl Tellings {
    /// Receives every event from now on.
    #[must_use]
    pub fn listen(&self) -> Receiver<Arc<Telling>> {
        self.0.subscribe()
    }
}

/// Passes events to the listeners.
#[derive(Debug)]
pub struct Teller {
    listeners: Sender<Arc<Telling>>,
    last: u64,
}

impl Teller {
    /// Creates a stream without events, and its subscription side.
    #[must_use]
    pub fn new() -> (Teller, Tellings) {
        let listeners = Sender::new(BEHIND);
        let tellings = Tellings(listeners.clone());
        (Teller { listeners, last: 0 }, tellings)
    }

    /// Passes on a new event. The emitter writes others again if the API server did not accept them.
    pub fn tell(&mut self, object: Object, event: &Arc<Event>) {
        if !event.is_news {
            return;
        }
        self.last += 1;
        // A stream without listeners is not a failure.
        drop(self.listeners.send(Arc::new(Telling { id: self.last, object, event: Arc::clone(event) })));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::machine::Now;
    use model::report::Subject;
    use reporting::events::{Place, Severity};
    use tokio::sync::broadcast::error::{RecvError, TryRecvError};

    use super::*;

    fn object() -> Object {
        let (namespace, name) = (Some("kube-system".into()), "controller-0".into());
        Object { api_version: "v1", kind: "Pod", namespace, name, uid: None }
    }

    fn event(count: u64, is_news: bool) -> Arc<Event> {
        let first = Now::ZERO.plus(Duration::from_secs(1));
        Arc::new(Event {
            subject: Subject::Controller,
            severity: Severity::Warning,
            reason: "BackendPoolWritesBlocked",
            message: "text".into(),
            count,
            first,
            last: first.plus(Duration::from_secs(count)),
            place: Place::New(count),
            is_news,
        })
    }

    #[tokio::test]
    async fn h3_news_is_told_and_numbered_without_gaps() {
        let (mut teller, tellings) = Teller::new();
        teller.tell(object(), &event(1, true));
        let mut heard = tellings.listen();
        teller.tell(object(), &event(1, false));
        assert!(
            matches!(heard.try_recv(), Err(TryRecvError::Empty)),
            "it was told before there was a listener"
        );
        teller.tell(object(), &event(2, true));
        let telling = heard.recv().await.expect("the teller is there");
        assert_eq!((telling.id, telling.event.count, &telling.object), (2, 2, &object()));
    }

    #[tokio::test]
    async fn h3_who_is_slow_holds_nobody_up_and_is_told_how_many_were_missed() {
        let (mut teller, tellings) = Teller::new();
        let mut heard = tellings.listen();
        for count in 1..=300 {
            teller.tell(object(), &event(count, true));
        }
        assert_eq!(heard.recv().await.map(|telling| telling.id), Err(RecvError::Lagged(44)));
        assert_eq!(heard.recv().await.map(|telling| telling.id), Ok(45));
    }
}
