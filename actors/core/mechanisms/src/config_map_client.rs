//! One keeper's errand at our ConfigMap: it is looked at, and a state that is not as it should be is replaced
//! (docs/design/model-and-mechanisms.md, A4; G6). It owns the request that is under way or the next one, what answers
//! mean for it, and what went wrong in a row. What a state means, what is to be written, and how long is waited after a
//! failure is the keeper's business.
//!
//! One request is under way at a time. A write names the state that it replaces; where that was no longer the newest, or
//! the answer was lost, the ConfigMap is looked at again.

use std::sync::Arc;
use std::time::Duration;

use model::config_map::{ConfigMapAnswer, ConfigMapAsk, ConfigMapEdit, ConfigMapFacts};
use model::ids::CallId;
use model::machine::Now;
use model::object::{GIVE_UP_AFTER, RequestFailure};

/// By how much each further failure in a row puts off the look after a conflict, and by how much at most.
const CONFLICT_STEP: Duration = Duration::from_millis(100);
const CONFLICT_MOST: Duration = Duration::from_secs(1);

/// The errand. `T` is what was true when a request was made and is asked for with its answer.
#[derive(Debug)]
pub struct ConfigMapClient<T> {
    step: Step<T>,
    calls: u64,
    /// Requests that failed one after another.
    failures: u32,
    /// Writes that another client forestalled.
    conflicts: u32,
    last_error: Option<Arc<str>>,
}

/// The request that is under way, or the next one.
#[derive(Clone, Copy, Debug)]
enum Step<T> {
    /// Nothing is asked, and nothing will be.
    Idle,
    /// The ConfigMap is looked at.
    Look { at: Now },
    /// A request was sent.
    Asked { call: CallId, give_up: Now, what: ConfigMapRequest, when: T },
}

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigMapRequest {
    /// To see the newest state.
    Look,
    /// To replace the state that was seen.
    Write,
}

/// What an answer means.
#[derive(Debug)]
pub enum ConfigMapNews<T> {
    /// Nothing: it answers no request that is under way.
    Unmatched,
    /// A state was seen. Nothing more is asked until the keeper says so.
    State(ConfigMapRead<T>),
    /// Another client has written first: the next look is set.
    Forestalled,
    /// The request failed. Nothing more is asked until the keeper says so.
    Failed(Failed),
}

/// A state as it was read, or as it was after a write.
#[derive(Debug)]
pub struct ConfigMapRead<T> {
    /// The request that brought it.
    pub call: CallId,
    /// What that was for.
    pub what: ConfigMapRequest,
    /// What was true when it was made.
    pub when: T,
    /// The state; `None`: there is no ConfigMap.
    pub facts: Option<Arc<ConfigMapFacts>>,
}

/// A request that failed, or whose answer was lost: a write may have been carried out all the same.
#[derive(Debug)]
pub struct Failed {
    /// What it was for.
    pub what: ConfigMapRequest,
    /// What was said.
    pub why: Arc<str>,
    /// Whether the request was denied: rights do not change within seconds.
    pub denied: bool,
}

impl<T> Default for ConfigMapClient<T> {
    fn default() -> ConfigMapClient<T> {
        ConfigMapClient { step: Step::Idle, calls: 0, failures: 0, conflicts: 0, last_error: None }
    }
}

impl<T: Copy> ConfigMapClient<T> {
    /// Whether nothing is asked and nothing will be.
    pub fn is_idle(&self) -> bool {
        match self.step {
            Step::Idle => true,
            Step::Look { .. } | Step::Asked { .. } => false,
        }
    }

    /// What the request under way is for.
    pub fn asked(&self) -> Option<ConfigMapRequest> {
        match self.step {
            Step::Idle | Step::Look { .. } => None,
            Step::Asked { what, .. } => Some(what),
        }
    }

    /// When the next request is made, or the one under way is given up.
    pub fn deadline(&self) -> Option<Now> {
        match self.step {
            Step::Idle => None,
            Step::Look { at } => Some(at),
            Step::Asked { give_up, .. } => Some(give_up),
        }
    }

    /// How many requests were made: later ones have greater ids.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Requests that failed one after another, as the keeper counts them.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The failures and the writes that another client forestalled.
    pub fn setbacks(&self) -> u32 {
        self.failures.saturating_add(self.conflicts)
    }

    /// What the last failed request said, until a state is seen.
    pub fn last_error(&self) -> Option<&Arc<str>> {
        self.last_error.as_ref()
    }

    /// Nothing more is asked.
    pub fn stop(&mut self) {
        self.step = Step::Idle;
    }

    /// The next look is then; the answer to a request that is under way does not count any more.
    pub fn look_at(&mut self, at: Now) {
        self.step = Step::Look { at };
    }

    /// The next look is now, unless a request is under way: its answer brings the next step.
    pub fn hurry(&mut self, now: Now) {
        match self.step {
            Step::Idle | Step::Look { .. } => self.look_at(now),
            Step::Asked { .. } => {}
        }
    }

    /// The next look is now, and so is one that is under way: what it brings is too old. A write must not be given up.
    pub fn look_anew(&mut self, now: Now) {
        match self.asked() {
            None | Some(ConfigMapRequest::Look) => self.look_at(now),
            Some(ConfigMapRequest::Write) => {}
        }
    }

    /// The next look comes after this span, which follows from what went wrong before; that counts one more.
    pub fn put_off(&mut self, now: Now, span: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.look_at(now.plus(span));
    }

    /// What failed before does not matter any more.
    pub fn forget_failures(&mut self) {
        self.failures = 0;
    }

    /// Everything is as it should be: what went wrong before does not matter any more.
    pub fn forget_setbacks(&mut self) {
        (self.failures, self.conflicts) = (0, 0);
    }

    /// Gives up a request whose answer never came.
    pub fn overdue(&mut self, now: Now) -> Option<Failed> {
        match self.step {
            Step::Asked { give_up, what, .. } if give_up <= now => {
                Some(self.fail(what, "no answer in time".into(), false))
            }
            Step::Idle | Step::Look { .. } | Step::Asked { .. } => None,
        }
    }

    /// Looks, when that is due.
    pub fn look(&mut self, now: Now, when: T) -> Option<(CallId, ConfigMapAsk)> {
        match self.step {
            Step::Look { at } if at <= now => {
                Some((self.ask(now, ConfigMapRequest::Look, when), ConfigMapAsk::Get))
            }
            Step::Idle | Step::Look { .. } | Step::Asked { .. } => None,
        }
    }

    /// Replaces a state that was seen.
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

    /// Takes in an answer.
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

    /// One that has looked at this moment.
    fn looking(now: Now) -> (ConfigMapClient<u8>, CallId) {
        let mut errand = ConfigMapClient::default();
        errand.look_at(now);
        let (call, ask) = errand.look(now, 7).expect("it is due");
        assert!(matches!(ask, ConfigMapAsk::Get));
        (errand, call)
    }

    #[test]
    fn a4_a_write_names_the_state_it_replaces_or_creates_the_object() {
        let (mut errand, call) = looking(at(0));
        let ConfigMapNews::State(sight) = errand.on_answer(at(1), call, ConfigMapAnswer::Seen(facts()))
        else {
            panic!("a state")
        };
        assert_eq!((sight.what, sight.when, errand.is_idle()), (ConfigMapRequest::Look, 7, true));
        let (_, ask) = errand.write(at(1), 8, sight.facts, ConfigMapEdit::default());
        assert!(matches!(ask, ConfigMapAsk::Replace(base, _) if &*base.version.0 == "1"));
        assert_eq!(errand.asked(), Some(ConfigMapRequest::Write));

        let (mut errand, call) = looking(at(0));
        let ConfigMapNews::State(sight) = errand.on_answer(at(1), call, ConfigMapAnswer::Absent) else {
            panic!("a state")
        };
        let (_, ask) = errand.write(at(1), 8, sight.facts, ConfigMapEdit::default());
        assert!(matches!(ask, ConfigMapAsk::Create(_)));
    }

    #[test]
    fn a3_an_answer_to_a_request_that_is_not_under_way_means_nothing() {
        let (mut errand, call) = looking(at(0));
        let other = CallId(call.0 + 1);
        assert!(matches!(errand.on_answer(at(1), other, ConfigMapAnswer::Absent), ConfigMapNews::Unmatched));
        errand.look_anew(at(2));
        assert!(matches!(errand.on_answer(at(3), call, ConfigMapAnswer::Absent), ConfigMapNews::Unmatched));
        assert_eq!(errand.deadline(), Some(at(2)));
    }

    #[test]
    fn a3_a_caller_that_needs_a_newer_state_causes_a_new_read() {
        let (mut errand, _) = looking(at(0));
        errand.hurry(at(5));
        assert_eq!(errand.asked(), Some(ConfigMapRequest::Look), "an urgent request waits for its answer");
        errand.look_anew(at(5));
        assert_eq!((errand.asked(), errand.deadline()), (None, Some(at(5))));
        let (write, _) = errand.write(at(6), 0, None, ConfigMapEdit::default());
        errand.look_anew(at(7));
        assert_eq!(errand.asked(), Some(ConfigMapRequest::Write));
        assert!(matches!(errand.on_answer(at(8), write, ConfigMapAnswer::Absent), ConfigMapNews::State(_)));
    }

    #[test]
    fn a4_the_read_after_a_conflict_is_immediate_and_later_up_to_1_s_apart() {
        let mut errand: ConfigMapClient<()> = ConfigMapClient::default();
        for wait in [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000, 1_000] {
            let (call, _) = errand.write(at(50), (), None, ConfigMapEdit::default());
            assert!(matches!(
                errand.on_answer(at(50), call, ConfigMapAnswer::Conflict),
                ConfigMapNews::Forestalled
            ));
            assert_eq!(errand.deadline(), Some(at(50 + wait)));
        }
        errand.forget_setbacks();
        let (call, _) = errand.write(at(60), (), None, ConfigMapEdit::default());
        errand.on_answer(at(60), call, ConfigMapAnswer::Conflict);
        assert_eq!(errand.deadline(), Some(at(60)));
    }

    #[test]
    fn a3_an_unanswered_request_is_an_error_until_a_state_is_seen() {
        let (mut errand, _) = looking(at(0));
        let over = at(0).plus(GIVE_UP_AFTER);
        assert!(errand.overdue(at(1)).is_none());
        assert_eq!(errand.deadline(), Some(over));
        let failed = errand.overdue(over).expect("its time is over");
        assert_eq!(
            (failed.what, &*failed.why, failed.denied),
            (ConfigMapRequest::Look, "no answer in time", false)
        );
        errand.put_off(over, Duration::from_secs(1));
        assert_eq!((errand.failures(), errand.last_error().map(|it| &**it)), (1, Some("no answer in time")));
        let again = over.plus(Duration::from_secs(1));
        let (call, _) = errand.look(again, 0).expect("it is due");
        let denied = ConfigMapAnswer::Failed(RequestFailure::Denied("no".into()));
        assert!(matches!(
            errand.on_answer(again, call, denied),
            ConfigMapNews::Failed(Failed { denied: true, .. })
        ));
        errand.look_at(again);
        let (call, _) = errand.look(again, 0).expect("it is due");
        errand.on_answer(again, call, ConfigMapAnswer::Absent);
        assert_eq!((errand.last_error(), errand.failures()), (None, 1), "the keeper forgets failures");
    }
}
