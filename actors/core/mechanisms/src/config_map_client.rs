//! A client for our ConfigMap that reads it and replaces its state with optimistic concurrency
//! (docs/design/model-and-mechanisms.md, A4; G6). It owns the current or next request, the interpretation of answers,
//! and the count of consecutive failures. The machine that uses it interprets the state, decides what to write, and
//! chooses the delay after a failure.
//!
//! One request is in flight at a time. A write names the state that it replaces. If that state was not the newest, or
//! if the answer was lost, the client reads the ConfigMap again.

use std::sync::Arc;
use std::time::Duration;

use model::config_map::{ConfigMapAnswer, ConfigMapAsk, ConfigMapEdit, ConfigMapFacts};
use model::ids::CallId;
use model::machine::Now;
use model::object::{GIVE_UP_AFTER, RequestFailure};

/// The additional delay before the read after a conflict, for each further failure in a row, and its maximum.
const CONFLICT_STEP: Duration = Duration::from_millis(100);
const CONFLICT_MOST: Duration = Duration::from_secs(1);

/// The client. `T` is context of the caller that comes back with the answer to a request.
#[derive(Debug)]
pub struct ConfigMapClient<T> {
    step: Step<T>,
    calls: u64,
    /// Consecutive failed requests.
    failures: u32,
    /// Consecutive writes that conflicted with another client.
    conflicts: u32,
    last_error: Option<Arc<str>>,
}

/// The request in flight, or the next one.
#[derive(Clone, Copy, Debug)]
enum Step<T> {
    /// No request is in flight or planned.
    Idle,
    /// A read is planned.
    Look { at: Now },
    /// A request is in flight.
    Asked { call: CallId, give_up: Now, what: ConfigMapRequest, when: T },
}

/// The purpose of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigMapRequest {
    /// Read the newest state.
    Look,
    /// Replace the state that was read.
    Write,
}

/// The result of an answer.
#[derive(Debug)]
pub enum ConfigMapNews<T> {
    /// The answer matches no request in flight.
    Unmatched,
    /// A state. No request follows until the caller starts one.
    State(ConfigMapRead<T>),
    /// Another client has written first. The next read is planned.
    Forestalled,
    /// The request failed. No request follows until the caller starts one.
    Failed(Failed),
}

/// A state as read, or after a write.
#[derive(Debug)]
pub struct ConfigMapRead<T> {
    /// Id of the request.
    pub call: CallId,
    /// Purpose of the request.
    pub what: ConfigMapRequest,
    /// Context of the request.
    pub when: T,
    /// The state; `None`: the ConfigMap does not exist.
    pub facts: Option<Arc<ConfigMapFacts>>,
}

/// A request that failed, or whose answer was lost. A write may have taken effect nevertheless.
#[derive(Debug)]
pub struct Failed {
    /// Purpose of the request.
    pub what: ConfigMapRequest,
    /// The error.
    pub why: Arc<str>,
    /// True if the request was denied. Permissions do not change within seconds.
    pub denied: bool,
}

impl<T> Default for ConfigMapClient<T> {
    fn default() -> ConfigMapClient<T> {
        ConfigMapClient { step: Step::Idle, calls: 0, failures: 0, conflicts: 0, last_error: None }
    }
}

impl<T: Copy> ConfigMapClient<T> {
    /// Returns true if no request is in flight or planned.
    pub fn is_idle(&self) -> bool {
        match self.step {
            Step::Idle => true,
            Step::Look { .. } | Step::Asked { .. } => false,
        }
    }

    /// The purpose of the request in flight.
    pub fn asked(&self) -> Option<ConfigMapRequest> {
        match self.step {
            Step::Idle | Step::Look { .. } => None,
            Step::Asked { what, .. } => Some(what),
        }
    }

    /// When the next request is due, or when the request in flight times out.
    pub fn deadline(&self) -> Option<Now> {
        match self.step {
            Step::Idle => None,
            Step::Look { at } => Some(at),
            Step::Asked { give_up, .. } => Some(give_up),
        }
    }

    /// The number of requests so far. Later requests have greater ids.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Consecutive failures, as counted by [`ConfigMapClient::put_off`].
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The consecutive failures and conflicts.
    pub fn setbacks(&self) -> u32 {
        self.failures.saturating_add(self.conflicts)
    }

    /// Message of the last failed request; cleared by the next success.
    pub fn last_error(&self) -> Option<&Arc<str>> {
        self.last_error.as_ref()
    }

    /// Cancels the planned request, and ignores the answer to the one in flight.
    pub fn stop(&mut self) {
        self.step = Step::Idle;
    }

    /// Plans the next read. The answer to a request in flight is ignored.
    pub fn look_at(&mut self, at: Now) {
        self.step = Step::Look { at };
    }

    /// Plans a read for now, unless a request is in flight.
    pub fn hurry(&mut self, now: Now) {
        match self.step {
            Step::Idle | Step::Look { .. } => self.look_at(now),
            Step::Asked { .. } => {}
        }
    }

    /// Plans a read for now, in place of a read in flight, whose result would be too old. A write in flight goes on.
    pub fn look_anew(&mut self, now: Now) {
        match self.asked() {
            None | Some(ConfigMapRequest::Look) => self.look_at(now),
            Some(ConfigMapRequest::Write) => {}
        }
    }

    /// Counts a failure and plans the next read after `span`, which depends on earlier failures.
    pub fn put_off(&mut self, now: Now, span: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.look_at(now.plus(span));
    }

    /// Resets the failure count.
    pub fn forget_failures(&mut self) {
        self.failures = 0;
    }

    /// Resets the counts of failures and conflicts, once the state is as desired.
    pub fn forget_setbacks(&mut self) {
        (self.failures, self.conflicts) = (0, 0);
    }

    /// Gives up a request whose answer is overdue.
    pub fn overdue(&mut self, now: Now) -> Option<Failed> {
        match self.step {
            Step::Asked { give_up, what, .. } if give_up <= now => {
                Some(self.fail(what, "no answer in time".into(), false))
            }
            Step::Idle | Step::Look { .. } | Step::Asked { .. } => None,
        }
    }

    /// Returns the planned read, if it is due.
    pub fn look(&mut self, now: Now, when: T) -> Option<(CallId, ConfigMapAsk)> {
        match self.step {
            Step::Look { at } if at <= now => {
                Some((self.ask(now, ConfigMapRequest::Look, when), ConfigMapAsk::Get))
            }
            Step::Idle | Step::Look { .. } | Step::Asked { .. } => None,
        }
    }

    /// Replaces a state that was read, or creates the ConfigMap.
    pub fn write(
        &mut self,
        now: Now,
        when: T,
        seen: Option<Arc<ConfigMapFacts>>,
        edit: ConfigMapEdit,
    ) -> (CallId, ConfigMapAsk) {
        let ask = match seen {
            Some(facts) => ConfigMapAsk::Replace(facts, edit),
            None => ConfigMapAsk::Create(edit),
        };
        (self.ask(now, ConfigMapRequest::Write, when), ask)
    }

    fn ask(&mut self, now: Now, what: ConfigMapRequest, when: T) -> CallId {
        self.calls += 1;
        let call = CallId(self.calls);
        self.step = Step::Asked { call, give_up: now.plus(GIVE_UP_AFTER), what, when };
        call
    }

    /// Handles an answer.
    pub fn on_answer(&mut self, now: Now, call: CallId, answer: ConfigMapAnswer) -> ConfigMapNews<T> {
        let (what, when) = match self.step {
            Step::Asked { call: open, what, when, .. } if open == call => (what, when),
            Step::Idle | Step::Look { .. } | Step::Asked { .. } => return ConfigMapNews::Unmatched,
        };
        let facts = match answer {
            ConfigMapAnswer::Seen(facts) => Some(facts),
            ConfigMapAnswer::Absent => None,
            ConfigMapAnswer::Conflict => {
                let wait = CONFLICT_STEP.saturating_mul(self.setbacks()).min(CONFLICT_MOST);
                self.conflicts = self.conflicts.saturating_add(1);
                self.look_at(now.plus(wait));
                return ConfigMapNews::Forestalled;
            }
            ConfigMapAnswer::Failed(RequestFailure::Other(why)) => {
                return ConfigMapNews::Failed(self.fail(what, why, false));
            }
            ConfigMapAnswer::Failed(RequestFailure::Denied(why)) => {
                return ConfigMapNews::Failed(self.fail(what, why, true));
            }
        };
        self.stop();
        self.last_error = None;
        ConfigMapNews::State(ConfigMapRead { call, what, when, facts })
    }

    fn fail(&mut self, what: ConfigMapRequest, why: Arc<str>, denied: bool) -> Failed {
        self.stop();
        self.last_error = Some(Arc::clone(&why));
        Failed { what, why, denied }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use model::arm::Document;
    use model::machine::Wall;
    use model::object::ResourceVersion;

    fn at(ms: u64) -> Now {
        Now::from_millis(ms)
    }

    fn facts() -> Arc<ConfigMapFacts> {
        Arc::new(ConfigMapFacts {
            data: BTreeMap::new(),
            binary: BTreeSet::new(),
            read: Wall::default(),
            version: ResourceVersion("1".into()),
            document: Document::new(()),
        })
    }

    /// A client that has sent a read at this time.
    fn looking(now: Now) -> (ConfigMapClient<u8>, CallId) {
        let mut client = ConfigMapClient::default();
        client.look_at(now);
        let (call, ask) = client.look(now, 7).expect("it is due");
        assert!(matches!(ask, ConfigMapAsk::Get));
        (client, call)
    }

    #[test]
    fn a4_a_write_names_the_state_it_replaces_or_creates_the_object() {
        let (mut client, call) = looking(at(0));
        let ConfigMapNews::State(read) = client.on_answer(at(1), call, ConfigMapAnswer::Seen(facts())) else {
            panic!("a state")
        };
        assert_eq!((read.what, read.when, client.is_idle()), (ConfigMapRequest::Look, 7, true));
        let (_, ask) = client.write(at(1), 8, read.facts, ConfigMapEdit::default());
        assert!(matches!(ask, ConfigMapAsk::Replace(base, _) if &*base.version.0 == "1"));
        assert_eq!(client.asked(), Some(ConfigMapRequest::Write));

        let (mut client, call) = looking(at(0));
        let ConfigMapNews::State(read) = client.on_answer(at(1), call, ConfigMapAnswer::Absent) else {
            panic!("a state")
        };
        let (_, ask) = client.write(at(1), 8, read.facts, ConfigMapEdit::default());
        assert!(matches!(ask, ConfigMapAsk::Create(_)));
    }

    #[test]
    fn a3_an_answer_to_a_request_that_is_not_under_way_means_nothing() {
        let (mut client, call) = looking(at(0));
        let other = CallId(call.0 + 1);
        assert!(matches!(client.on_answer(at(1), other, ConfigMapAnswer::Absent), ConfigMapNews::Unmatched));
        client.look_anew(at(2));
        assert!(matches!(client.on_answer(at(3), call, ConfigMapAnswer::Absent), ConfigMapNews::Unmatched));
        assert_eq!(client.deadline(), Some(at(2)));
    }

    #[test]
    fn a3_a_caller_that_needs_a_newer_state_causes_a_new_read() {
        let (mut client, _) = looking(at(0));
        client.hurry(at(5));
        assert_eq!(client.asked(), Some(ConfigMapRequest::Look), "an urgent request waits for its answer");
        client.look_anew(at(5));
        assert_eq!((client.asked(), client.deadline()), (None, Some(at(5))));
        let (write, _) = client.write(at(6), 0, None, ConfigMapEdit::default());
        client.look_anew(at(7));
        assert_eq!(client.asked(), Some(ConfigMapRequest::Write));
        assert!(matches!(client.on_answer(at(8), write, ConfigMapAnswer::Absent), ConfigMapNews::State(_)));
    }

    #[test]
    fn a4_the_read_after_a_conflict_is_immediate_and_later_up_to_1_s_apart() {
        let mut client: ConfigMapClient<()> = ConfigMapClient::default();
        for wait in [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000, 1_000] {
            let (call, _) = client.write(at(50), (), None, ConfigMapEdit::default());
            assert!(matches!(
                client.on_answer(at(50), call, ConfigMapAnswer::Conflict),
                ConfigMapNews::Forestalled
            ));
            assert_eq!(client.deadline(), Some(at(50 + wait)));
        }
        client.forget_setbacks();
        let (call, _) = client.write(at(60), (), None, ConfigMapEdit::default());
        client.on_answer(at(60), call, ConfigMapAnswer::Conflict);
        assert_eq!(client.deadline(), Some(at(60)));
    }

    #[test]
    fn a3_an_unanswered_request_is_an_error_until_a_state_is_seen() {
        let (mut client, _) = looking(at(0));
        let over = at(0).plus(GIVE_UP_AFTER);
        assert!(client.overdue(at(1)).is_none());
        assert_eq!(client.deadline(), Some(over));
        let failed = client.overdue(over).expect("its time is over");
        assert_eq!(
            (failed.what, &*failed.why, failed.denied),
            (ConfigMapRequest::Look, "no answer in time", false)
        );
        client.put_off(over, Duration::from_secs(1));
        assert_eq!((client.failures(), client.last_error().map(|it| &**it)), (1, Some("no answer in time")));
        let again = over.plus(Duration::from_secs(1));
        let (call, _) = client.look(again, 0).expect("it is due");
        let denied = ConfigMapAnswer::Failed(RequestFailure::Denied("no".into()));
        assert!(matches!(
            client.on_answer(again, call, denied),
            ConfigMapNews::Failed(Failed { denied: true, .. })
        ));
        client.look_at(again);
        let (call, _) = client.look(again, 0).expect("it is due");
        client.on_answer(again, call, ConfigMapAnswer::Absent);
        assert_eq!((client.last_error(), client.failures()), (None, 1), "the keeper forgets failures");
    }
}
