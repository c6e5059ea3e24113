//! A client for one Kubernetes object, which it reads and replaces with optimistic concurrency
//! (docs/design/model-and-mechanisms.md, A4). It owns the request in flight or the time of the next one, the
//! interpretation of answers, the last error, and the counts of consecutive failures and conflicts. The machine that
//! uses it interprets the state, decides what to write, and chooses the delay after a failure.
//!
//! One request is in flight at a time. A write names the state that it replaces. After a conflict, the next read is
//! planned.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use model::ids::CallId;
use model::lease::{LeaseFacts, LeaseRequest, WATCH_MARGIN};
use model::machine::Now;
use model::object::{ApiObject, GIVE_UP_AFTER, ObjectAnswer, ObjectRequest, RequestFailure, ResourceVersion};

/// The additional delay before the read after a conflict, for each further failure in a row, and its maximum.
const CONFLICT_STEP: Duration = Duration::from_millis(100);
const CONFLICT_MOST: Duration = Duration::from_secs(1);

/// The answer to a request.
#[derive(Debug)]
pub enum Reply<F> {
    /// The state as read, or after the write; `None`: the object does not exist.
    State(Option<Arc<F>>),
    /// Another client has written first.
    Conflict,
    /// The object did not change during the watch.
    Unchanged,
    /// The request failed, or its answer was lost. A write may have taken effect nevertheless.
    Failed(RequestFailure),
}

impl<F> From<ObjectAnswer<F>> for Reply<F> {
    fn from(answer: ObjectAnswer<F>) -> Reply<F> {
        match answer {
            ObjectAnswer::Seen(state) => Reply::State(Some(state)),
            ObjectAnswer::Absent => Reply::State(None),
            ObjectAnswer::Conflict => Reply::Conflict,
            ObjectAnswer::Unchanged => Reply::Unchanged,
            ObjectAnswer::Failed(failure) => Reply::Failed(failure),
        }
    }
}

/// The client of an object with the state `F`. `T` is context of the caller that comes back with the answer to a
/// request.
#[derive(Debug)]
pub struct ObjectClient<F, T> {
    step: Step<T>,
    calls: u64,
    /// Consecutive failed requests.
    failures: u32,
    /// Consecutive writes that conflicted with another client.
    conflicts: u32,
    last_error: Option<Arc<str>>,
    object: PhantomData<F>,
}

/// The request in flight, or the time of the next one.
#[derive(Clone, Copy, Debug)]
enum Step<T> {
    /// No request is in flight or planned.
    Idle,
    /// A request is planned.
    Planned { at: Now },
    /// A request is in flight.
    InFlight { request: SentRequest<T>, give_up: Now },
}

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
pub struct SentRequest<T> {
    /// Its id.
    pub call: CallId,
    /// Whether it writes. Otherwise it reads or watches.
    pub writes: bool,
    /// When it was sent.
    pub sent: Now,
    /// Context of the caller.
    pub context: T,
}

impl<F, T> Default for ObjectClient<F, T> {
    fn default() -> ObjectClient<F, T> {
        ObjectClient {
            step: Step::Idle,
            calls: 0,
            failures: 0,
            conflicts: 0,
            last_error: None,
            object: PhantomData,
        }
    }
}

impl<F: ApiObject, T: Copy> ObjectClient<F, T> {
    /// Returns true if no request is in flight or planned.
    pub fn is_idle(&self) -> bool {
        match self.step {
            Step::Idle => true,
            Step::Planned { .. } | Step::InFlight { .. } => false,
        }
    }

    /// Returns the request in flight.
    pub fn in_flight(&self) -> Option<SentRequest<T>> {
        match self.step {
            Step::Idle | Step::Planned { .. } => None,
            Step::InFlight { request, .. } => Some(request),
        }
    }

    /// Returns when the next request is due, or when the request in flight times out.
    pub fn deadline(&self) -> Option<Now> {
        match self.step {
            Step::Idle => None,
            Step::Planned { at } => Some(at),
            Step::InFlight { give_up, .. } => Some(give_up),
        }
    }

    /// Returns the number of requests so far. Later requests have greater ids.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Returns the number of consecutive failures, as counted by [`ObjectClient::put_off`].
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the number of consecutive conflicts.
    pub fn conflicts(&self) -> u32 {
        self.conflicts
    }

    /// Returns the message of the last failed request; cleared by the next success.
    pub fn last_error(&self) -> Option<&Arc<str>> {
        self.last_error.as_ref()
    }

    /// Records an error that the caller found; cleared by the next success.
    pub fn set_error(&mut self, why: &str) {
        self.last_error = Some(why.into());
    }

    /// Cancels the planned request, and ignores the answer to the one in flight.
    pub fn stop(&mut self) {
        self.step = Step::Idle;
    }

    /// Plans the next request. The answer to a request in flight is ignored.
    pub fn plan(&mut self, at: Now) {
        self.step = Step::Planned { at };
    }

    /// Plans a request for now, unless one is in flight.
    pub fn hurry(&mut self, now: Now) {
        match self.step {
            Step::Idle | Step::Planned { .. } => self.plan(now),
            Step::InFlight { .. } => {}
        }
    }

    /// Plans a read for now, in place of a read in flight, whose result would be too old. A write in flight
    /// continues.
    pub fn reread(&mut self, now: Now) {
        if self.in_flight().is_none_or(|request| !request.writes) {
            self.plan(now);
        }
    }

    /// Counts a failure and plans the next request after `span`, which depends on earlier failures.
    pub fn put_off(&mut self, now: Now, span: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.plan(now.plus(span));
    }

    /// Resets the failure count.
    pub fn forget_failures(&mut self) {
        self.failures = 0;
    }

    /// Resets the counts of failures and conflicts, once the state is as desired.
    pub fn forget_setbacks(&mut self) {
        (self.failures, self.conflicts) = (0, 0);
    }

    /// Returns true if a planned request is due.
    pub fn is_due(&self, now: Now) -> bool {
        match self.step {
            Step::Planned { at } => at <= now,
            Step::Idle | Step::InFlight { .. } => false,
        }
    }

    /// Reads the object.
    pub fn read(&mut self, now: Now, context: T) -> (CallId, ObjectRequest<F>) {
        (self.send(now, false, context, GIVE_UP_AFTER), ObjectRequest::Get)
    }

    /// Replaces a state that was read, or creates the object.
    pub fn write(
        &mut self,
        now: Now,
        context: T,
        state: Option<Arc<F>>,
        edit: F::Edit,
    ) -> (CallId, ObjectRequest<F>) {
        let ask = match state {
            Some(state) => ObjectRequest::Replace(state, edit),
            None => ObjectRequest::Create(edit),
        };
        (self.send(now, true, context, GIVE_UP_AFTER), ask)
    }

    fn send(&mut self, now: Now, writes: bool, context: T, within: Duration) -> CallId {
        self.calls += 1;
        let request = SentRequest { call: CallId(self.calls), writes, sent: now, context };
        self.step = Step::InFlight { request, give_up: now.plus(within) };
        request.call
    }

    /// Gives up a request whose answer is overdue.
    pub fn take_overdue(&mut self, now: Now) -> Option<(SentRequest<T>, RequestFailure)> {
        match self.step {
            Step::InFlight { request, give_up } if give_up <= now => {
                let failure = RequestFailure::Other("no answer in time".into());
                self.fail(&failure);
                Some((request, failure))
            }
            Step::Idle | Step::Planned { .. } | Step::InFlight { .. } => None,
        }
    }

    /// Handles an answer. Returns the request and its result, or `None` if the answer matches no request in flight.
    /// After a conflict or a watch without a change, the next request is planned; otherwise, the caller plans it.
    pub fn on_answer(
        &mut self,
        now: Now,
        call: CallId,
        answer: ObjectAnswer<F>,
    ) -> Option<(SentRequest<T>, Reply<F>)> {
        let request = self.in_flight().filter(|request| request.call == call)?;
        let reply = Reply::from(answer);
        match &reply {
            Reply::State(_) => {
                self.stop();
                self.last_error = None;
            }
            Reply::Conflict => {
                let setbacks = self.failures.saturating_add(self.conflicts);
                let wait = CONFLICT_STEP.saturating_mul(setbacks).min(CONFLICT_MOST);
                self.conflicts = self.conflicts.saturating_add(1);
                self.plan(now.plus(wait));
            }
            Reply::Unchanged => self.plan(now),
            Reply::Failed(failure) => self.fail(failure),
        }
        Some((request, reply))
    }

    fn fail(&mut self, failure: &RequestFailure) {
        self.stop();
        self.last_error = Some(failure.clone().into_why());
    }
}

impl<T: Copy> ObjectClient<LeaseFacts, T> {
    /// Waits for a state that is newer than this version, for at most `span`.
    pub fn watch(
        &mut self,
        now: Now,
        context: T,
        version: &ResourceVersion,
        span: Duration,
    ) -> (CallId, LeaseRequest) {
        let within = span.saturating_add(WATCH_MARGIN);
        (self.send(now, false, context, within), LeaseRequest::Watch(version.clone(), span))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use model::arm::Document;
    use model::config_map::{ConfigMapAnswer, ConfigMapEdit, ConfigMapFacts, ConfigMapRequest};
    use model::lease::{GateTimes, LeaseAnswer, LeaseName};
    use model::machine::Wall;

    type Client = ObjectClient<ConfigMapFacts, u8>;

    fn at(ms: u64) -> Now {
        Now::from_millis(ms)
    }

    fn config_map() -> Arc<ConfigMapFacts> {
        Arc::new(ConfigMapFacts {
            data: BTreeMap::new(),
            binary: BTreeSet::new(),
            read: Wall::default(),
            version: ResourceVersion("1".into()),
            document: Document::new(()),
        })
    }

    fn lease() -> Arc<LeaseFacts> {
        Arc::new(LeaseFacts {
            lease: LeaseName::Own,
            holder: None,
            duration: None,
            renewed_ago: None,
            transitions: 0,
            version: ResourceVersion("7".into()),
            gates: GateTimes::default(),
            out_of_sync: Arc::default(),
            document: Document::new(()),
        })
    }

    /// Returns a client that has sent a read at this time.
    fn reading(now: Now) -> (Client, CallId) {
        let mut client = Client::default();
        client.plan(now);
        assert!(client.is_due(now));
        let (call, ask) = client.read(now, 7);
        assert!(matches!(ask, ConfigMapRequest::Get) && !client.is_due(now));
        (client, call)
    }

    /// Returns the state in an answer.
    fn state(
        client: &mut Client,
        now: Now,
        call: CallId,
        answer: ConfigMapAnswer,
    ) -> Option<Arc<ConfigMapFacts>> {
        let Some((_, Reply::State(state))) = client.on_answer(now, call, answer) else { panic!("a state") };
        state
    }

    /// Returns whether the request in flight writes.
    fn writes(client: &Client) -> Option<bool> {
        client.in_flight().map(|request| request.writes)
    }

    #[test]
    fn a4_a_write_names_the_state_it_replaces_or_creates_the_object() {
        let (mut client, call) = reading(at(3));
        let request = client.in_flight().expect("a request");
        assert_eq!((request.writes, request.sent, request.context), (false, at(3), 7));
        let read = state(&mut client, at(4), call, ConfigMapAnswer::Seen(config_map()));
        assert!(client.is_idle());
        let (_, ask) = client.write(at(4), 8, read, ConfigMapEdit::default());
        assert!(matches!(ask, ConfigMapRequest::Replace(base, _) if &*base.version.0 == "1"));
        assert_eq!(writes(&client), Some(true));

        let (mut client, call) = reading(at(0));
        let read = state(&mut client, at(1), call, ConfigMapAnswer::Absent);
        let (_, ask) = client.write(at(1), 8, read, ConfigMapEdit::default());
        assert!(matches!(ask, ConfigMapRequest::Create(_)));
    }

    #[test]
    fn a3_an_answer_without_an_open_request_is_ignored() {
        let (mut client, call) = reading(at(0));
        let other = CallId(call.0 + 1);
        assert!(client.on_answer(at(1), other, ConfigMapAnswer::Absent).is_none());
        client.reread(at(2));
        assert!(client.on_answer(at(3), call, ConfigMapAnswer::Absent).is_none());
        assert_eq!(client.deadline(), Some(at(2)));
    }

    #[test]
    fn a3_a_caller_that_needs_a_newer_state_causes_a_new_read() {
        let (mut client, _) = reading(at(0));
        client.hurry(at(5));
        assert_eq!(writes(&client), Some(false), "an urgent request waits for its answer");
        client.reread(at(5));
        assert_eq!((writes(&client), client.deadline()), (None, Some(at(5))));
        let (write, _) = client.write(at(6), 0, None, ConfigMapEdit::default());
        client.reread(at(7));
        assert_eq!(writes(&client), Some(true));
        assert!(state(&mut client, at(8), write, ConfigMapAnswer::Absent).is_none());
    }

    #[test]
    fn a4_only_the_first_read_after_conflicts_is_immediate() {
        let mut client = Client::default();
        for (before, wait) in (0..).zip([0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000, 1_000]) {
            assert_eq!(client.conflicts(), before);
            let (call, _) = client.write(at(50), 0, None, ConfigMapEdit::default());
            assert!(matches!(
                client.on_answer(at(50), call, ConfigMapAnswer::Conflict),
                Some((_, Reply::Conflict))
            ));
            assert_eq!(client.deadline(), Some(at(50 + wait)));
        }
        client.forget_setbacks();
        let (call, _) = client.write(at(60), 0, None, ConfigMapEdit::default());
        client.on_answer(at(60), call, ConfigMapAnswer::Conflict);
        assert_eq!(client.deadline(), Some(at(60)));
    }

    #[test]
    fn a3_an_unanswered_request_is_an_error_until_the_next_state() {
        let (mut client, call) = reading(at(0));
        let over = at(0).plus(GIVE_UP_AFTER);
        assert!(client.take_overdue(at(1)).is_none());
        assert_eq!(client.deadline(), Some(over));
        let (request, failure) = client.take_overdue(over).expect("its time is over");
        assert_eq!((request.call, request.writes), (call, false));
        assert_eq!(failure, RequestFailure::Other("no answer in time".into()));
        client.put_off(over, Duration::from_secs(1));
        assert_eq!((client.failures(), client.last_error().map(|it| &**it)), (1, Some("no answer in time")));
        let again = over.plus(Duration::from_secs(1));
        let (call, _) = client.read(again, 0);
        let denied = ConfigMapAnswer::Failed(RequestFailure::Denied("no".into()));
        assert!(matches!(
            client.on_answer(again, call, denied),
            Some((_, Reply::Failed(RequestFailure::Denied(_))))
        ));
        assert_eq!(client.last_error().map(|it| &**it), Some("no"));
        let (call, _) = client.read(again, 0);
        client.on_answer(again, call, ConfigMapAnswer::Absent);
        assert_eq!((client.last_error(), client.failures()), (None, 1), "the caller resets failures");
    }

    #[test]
    fn w8_a_watch_may_outlast_a_request_and_end_unchanged() {
        let mut client: ObjectClient<LeaseFacts, ()> = ObjectClient::default();
        let span = Duration::from_secs(60);
        let (call, ask) = client.watch(at(0), (), &lease().version, span);
        assert!(matches!(ask, LeaseRequest::Watch(version, wait) if &*version.0 == "7" && wait == span));
        assert_eq!(client.deadline(), Some(at(0).plus(span).plus(WATCH_MARGIN)));
        client.set_error("an earlier failure");
        let unchanged = client.on_answer(at(5), call, LeaseAnswer::Unchanged);
        assert!(matches!(unchanged, Some((_, Reply::Unchanged))));
        assert_eq!((client.deadline(), client.last_error().is_some()), (Some(at(5)), true));
        let (call, _) = client.watch(at(5), (), &lease().version, span);
        let seen = client.on_answer(at(6), call, LeaseAnswer::Seen(lease()));
        assert!(matches!(seen, Some((_, Reply::State(Some(_))))));
        assert!(client.is_idle() && client.last_error().is_none());
    }
}
