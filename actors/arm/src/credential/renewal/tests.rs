//! Tokens on the test's clocks: the monotonic clock, and a wall clock that operators set.

use std::collections::BTreeMap;

use azure_core::time::OffsetDateTime;
use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
/// The wall clock at the start.
const NOON: i64 = 1_767_225_600_000_000;

/// The machine, its clocks, and an authority whose answers the test controls.
struct Fixture {
    renewal: Renewal,
    now: Now,
    /// Offset of the wall clock, in seconds.
    set: i64,
    callers: u64,
    requested: Vec<RequestId>,
    /// The request in flight.
    open: Option<RequestId>,
    /// End of the authority's `Retry-After`.
    retry_after_ends: Now,
    /// Arrival of each token, and its lifetime in seconds.
    received_at: BTreeMap<String, (Now, u64)>,
    given: Vec<(Caller, String)>,
    refused: Vec<(Caller, String)>,
    rejected_at: u32,
    given_up: u32,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture {
            renewal: Renewal::default(),
            now: Now::from_millis(5_000),
            set: 0,
            callers: 0,
            requested: Vec::new(),
            open: None,
            retry_after_ends: Now::ZERO,
            received_at: BTreeMap::new(),
            given: Vec::new(),
            refused: Vec::new(),
            rejected_at: 0,
            given_up: 0,
        }
    }

    /// Creates a fixture with a token of this lifetime in seconds.
    fn holding(name: &str, seconds: u64) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.call();
        fixture.brings(name, seconds);
        assert_eq!(fixture.given(), [name]);
        fixture
    }

    fn wall(&self) -> Wall {
        let passed = i64::try_from(self.now.as_micros()).unwrap();
        Wall::from_micros(NOON + passed + self.set * 1_000_000)
    }

    fn handle(&mut self, input: In) {
        let mut out = Vec::new();
        self.renewal.step(self.now, input, &mut out);
        self.receive(out);
    }

    fn receive(&mut self, out: Vec<Out>) {
        for output in out {
            match output {
                Out::RequestToken(request) => {
                    assert_eq!(self.open.replace(request), None, "one request at a time");
                    assert!(self.now >= self.retry_after_ends, "no request during Retry-After");
                    self.requested.push(request);
                }
                Out::GiveUp(request) => {
                    assert_eq!(self.open.take(), Some(request));
                    self.given_up += 1;
                }
                Out::ResetCredential => self.rejected_at += 1,
                Out::Token(caller, token) => self.give(caller, token.token.secret()),
                Out::TokenUnavailable(caller, reason) => self.refused.push((caller, reason.to_string())),
            }
        }
        assert_eq!(self.renewal.check(), Ok(()));
    }

    /// Gives a token to a call, and asserts that it is valid, with any wall clock.
    fn give(&mut self, caller: Caller, token: &str) {
        let (received_at, seconds) = self.received_at[token];
        let left = Duration::from_secs(seconds).saturating_sub(self.now.since(received_at));
        assert!(
            left > USABLE_FOR || self.now.since(received_at) < MIN_REQUEST_INTERVAL,
            "{token} is good for {left:?}"
        );
        self.given.push((caller, token.to_owned()));
    }

    /// Makes a call that needs a token.
    fn call(&mut self) -> &mut Fixture {
        self.callers += 1;
        let (caller, wall) = (Caller(self.callers), self.wall());
        self.handle(In::TokenNeeded { caller, wall });
        self
    }

    /// Answers the last request with this token, with this lifetime in seconds by the wall clock.
    fn brings(&mut self, name: &str, seconds: u64) {
        let (request, wall) = (*self.requested.last().expect("a request"), self.wall());
        let received_at =
            OffsetDateTime::from_unix_timestamp_nanos(i128::from(wall.as_micros()) * 1_000).unwrap();
        let token =
            AccessToken::new(Secret::new(name.to_owned()), received_at + Duration::from_secs(seconds));
        self.received_at.insert(name.to_owned(), (self.now, seconds));
        (self.open, self.retry_after_ends) = (None, Now::ZERO);
        self.handle(In::TokenReceived { request, token, wall });
    }

    /// Fails the last request.
    fn refuses(&mut self, retry_after: Option<Duration>) {
        let request = *self.requested.last().expect("a request");
        self.open = None;
        self.retry_after_ends = self.now.plus(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER));
        self.handle(In::RequestFailed { request, reason: "no".into(), retry_after });
    }

    fn pass(&mut self, span: Duration) -> &mut Fixture {
        let until = self.now.plus(span);
        while let Some(due) = self.renewal.deadline().filter(|due| *due <= until) {
            self.now = due;
            let mut out = Vec::new();
            self.renewal.tick(due, &mut out);
            self.receive(out);
        }
        self.now = until;
        self
    }

    /// Returns the tokens given to calls since the last call of this function.
    fn given(&mut self) -> Vec<String> {
        std::mem::take(&mut self.given).into_iter().map(|(_, token)| token).collect()
    }

    /// Returns the errors given to calls since the last call of this function.
    fn refused(&mut self) -> Vec<String> {
        std::mem::take(&mut self.refused).into_iter().map(|(_, reason)| reason).collect()
    }

    fn requests(&self) -> usize {
        self.requested.len()
    }
}

#[test]
fn c3_a_token_is_renewed_in_its_last_six_minutes() {
    let mut fixture = Fixture::holding("old", 3_600);
    fixture.pass(3_239 * SECOND).call();
    assert_eq!((fixture.given(), fixture.requests()), (vec!["old".to_owned()], 1));
    fixture.pass(SECOND).call().call();
    assert_eq!((fixture.given(), fixture.requests()), (vec!["old".to_owned(); 2], 2), "one request");
    fixture.pass(20 * SECOND).call();
    assert_eq!(fixture.given(), ["old"], "for any duration");
    fixture.brings("new", 3_600);
    assert_eq!(fixture.call().given(), ["new"]);
    assert_eq!(fixture.requests(), 2);
}

#[test]
fn c3_a_refused_renewal_is_retried_after_10_s() {
    let mut fixture = Fixture::holding("old", 300);
    fixture.pass(10 * SECOND).call();
    fixture.refuses(None);
    fixture.pass(9 * SECOND).call();
    assert_eq!((fixture.given(), fixture.requests()), (vec!["old".to_owned(); 2], 2));
    fixture.pass(SECOND).call();
    assert_eq!((fixture.given(), fixture.requests()), (vec!["old".to_owned()], 3));
    assert!(fixture.refused().is_empty(), "it is not reported");
}

#[test]
fn c3_an_old_token_is_used_until_its_last_half_minute() {
    let mut fixture = Fixture::holding("old", 300);
    fixture.pass(269 * SECOND).call();
    assert_eq!(fixture.given(), ["old"]);
    fixture.refuses(None);
    fixture.pass(SECOND).call();
    assert!(fixture.given().is_empty());
    assert_eq!(fixture.requests(), 3, "without a token the first refusal counts for one second");
    fixture.refuses(None);
    assert_eq!(fixture.refused(), ["no"]);
}

#[test]
fn c3_without_a_token_a_refusal_is_repeated_and_backs_off() {
    let mut fixture = Fixture::new();
    for (n, rest) in (1..).zip([1, 2, 4, 8, 16, 30, 30, 30]) {
        fixture.call();
        assert_eq!((fixture.requests(), fixture.refused().len()), (n, 0));
        fixture.refuses(None);
        fixture.pass(rest * SECOND - Duration::from_millis(1)).call();
        assert_eq!((fixture.refused(), fixture.requests()), (vec!["no".to_owned(); 2], n), "within {rest} s");
        fixture.pass(Duration::from_millis(1));
    }
}

#[test]
fn c3_retry_after_of_a_token_endpoint_is_capped_at_5_min() {
    for (told, kept) in [(20, 20), (1, 1), (3_600, 300)] {
        let mut fixture = Fixture::new();
        fixture.call();
        fixture.refuses(Some(told * SECOND));
        fixture.pass(kept * SECOND - Duration::from_millis(1)).call();
        assert_eq!((fixture.requests(), fixture.refused().len()), (1, 2), "Retry-After {told}");
        fixture.pass(Duration::from_millis(1)).call();
        assert_eq!(fixture.requests(), 2, "Retry-After {told}");
    }
    // Also while the old token is valid, and when Azure has rejected it in the meantime.
    let mut fixture = Fixture::holding("old", 300);
    fixture.pass(10 * SECOND).call();
    fixture.refuses(Some(60 * SECOND));
    fixture.pass(30 * SECOND).call();
    assert_eq!((fixture.given().len(), fixture.requests()), (2, 2));
    fixture.handle(In::TokenRejected(Secret::new("old")));
    fixture.call();
    assert_eq!((fixture.refused(), fixture.requests()), (vec!["no".to_owned()], 2));
    fixture.pass(30 * SECOND).call();
    assert_eq!(fixture.requests(), 3);
}

#[test]
fn c3_many_calls_without_a_token_share_one_request() {
    let mut fixture = Fixture::new();
    for _ in 0..100 {
        fixture.call();
    }
    assert_eq!((fixture.requests(), fixture.given().len()), (1, 0));
    fixture.brings("token", 3_600);
    assert_eq!(fixture.given(), vec!["token"; 100]);
    let mut fixture = Fixture::new();
    for _ in 0..100 {
        fixture.call();
    }
    fixture.refuses(None);
    assert_eq!((fixture.requests(), fixture.refused()), (1, vec!["no".to_owned(); 100]));
}

#[test]
fn c3_a_token_request_times_out_after_30_s() {
    let mut fixture = Fixture::new();
    fixture.call().pass(29 * SECOND).call();
    assert!(fixture.refused().is_empty());
    let late = *fixture.requested.last().unwrap();
    fixture.pass(SECOND);
    assert_eq!(fixture.given_up, 1);
    let told = fixture.refused();
    assert!(told.len() == 2 && told.iter().all(|reason| reason.contains("no token in time")), "{told:?}");
    fixture.pass(SECOND).call();
    assert_eq!(fixture.requests(), 2);
    fixture.handle(In::RequestFailed { request: late, reason: "late".into(), retry_after: None });
    assert!(fixture.refused().is_empty(), "the answer to an abandoned request is ignored");
    fixture.brings("token", 3_600);
    assert_eq!(fixture.given(), ["token"]);
}

#[test]
fn c3_setting_the_clock_back_extends_no_token() {
    let mut fixture = Fixture::holding("old", 3_600);
    fixture.set = -86_400;
    fixture.pass(3_240 * SECOND).call();
    assert_eq!((fixture.given(), fixture.requests()), (vec!["old".to_owned()], 2));
    fixture.refuses(None);
    fixture.pass(331 * SECOND).call();
    assert!(fixture.given().is_empty(), "it has expired");
    // A later token is valid for its stated lifetime.
    fixture.brings("new", 3_600);
    assert_eq!(fixture.given(), ["new"]);
    assert_eq!(fixture.pass(3_000 * SECOND).call().given(), ["new"]);
    assert_eq!(fixture.requests(), 3);
}

#[test]
fn c3_a_clock_jump_ends_tokens_early_but_no_wait() {
    let mut fixture = Fixture::holding("old", 3_600);
    fixture.pass(60 * SECOND);
    fixture.set = 3_400;
    fixture.call();
    assert_eq!((fixture.given(), fixture.requests()), (vec!["old".to_owned()], 2), "renewed");
    fixture.refuses(None);
    fixture.set = 3_500;
    fixture.call();
    assert_eq!((fixture.given(), fixture.requests()), (vec!["old".to_owned()], 2));
    fixture.set = 0;
    assert_eq!(fixture.pass(60 * SECOND).call().given(), ["old"], "after the correction it is valid again");
    assert_eq!(fixture.requests(), 2);
    fixture.set = 86_400;
    fixture.call();
    assert_eq!((fixture.given().len(), fixture.requests()), (0, 3));
    fixture.brings("new", 3_600);
    assert_eq!(fixture.given(), ["new"]);
}

#[test]
fn c3_a_token_expired_by_our_clock_is_used_for_10_s() {
    let mut fixture = Fixture::holding("first", 0);
    for _ in 0..20 {
        fixture.call();
    }
    assert_eq!((fixture.given(), fixture.requests()), (vec!["first".to_owned(); 20], 1));
    fixture.pass(10 * SECOND).call();
    assert_eq!((fixture.given().len(), fixture.requests()), (0, 2));
    fixture.brings("second", 0);
    assert_eq!(fixture.given(), ["second"]);
}

#[test]
fn c3_an_expiring_token_is_not_requested_by_each_call() {
    let mut fixture = Fixture::holding("short", 200);
    fixture.call().pass(9 * SECOND).call();
    assert_eq!(fixture.requests(), 1);
    fixture.pass(SECOND).call();
    assert_eq!(fixture.requests(), 2);
}

#[test]
fn w5_a_rejected_token_is_never_used_again() {
    let mut fixture = Fixture::holding("old", 3_600);
    fixture.handle(In::TokenRejected(Secret::new("old")));
    fixture.call();
    assert_eq!((fixture.rejected_at, fixture.requests(), fixture.given().len()), (1, 2, 0));
    fixture.refuses(None);
    fixture.pass(SECOND).call();
    fixture.brings("new", 3_600);
    assert_eq!(fixture.given(), ["new"]);
    fixture.handle(In::TokenRejected(Secret::new("old")));
    assert_eq!(
        (fixture.call().given(), fixture.requests()),
        (vec!["new".to_owned()], 3),
        "it expired long ago"
    );
}

#[test]
fn w5_tokens_refused_in_turn_are_renewed_once_in_30_s() {
    let mut fixture = Fixture::holding("one", 3_600);
    fixture.handle(In::TokenRejected(Secret::new("one")));
    fixture.call();
    fixture.brings("two", 3_600);
    for _ in 0..20 {
        fixture.handle(In::TokenRejected(Secret::new("two")));
        fixture.call();
    }
    assert_eq!((fixture.given(), fixture.requests()), (vec!["two".to_owned(); 21], 2));
    fixture.pass(30 * SECOND);
    fixture.handle(In::TokenRejected(Secret::new("two")));
    fixture.call();
    assert_eq!((fixture.given().len(), fixture.requests()), (0, 3));
}

#[derive(Clone, Debug)]
enum Step {
    Call,
    Brings(u64),
    Refuses(Option<u64>),
    Pass(u64),
    Set(i64),
    Reject,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Call),
        2 => prop_oneof![Just(0), 1_u64..600, 3_000_u64..4_000].prop_map(Step::Brings),
        2 => proptest::option::of(0_u64..4_000).prop_map(Step::Refuses),
        3 => prop_oneof![0_u64..20, 100_u64..4_000].prop_map(Step::Pass),
        1 => (-100_000_i64..100_000).prop_map(Step::Set),
        1 => Just(Step::Reject),
    ];
    proptest::collection::vec(step, 0..80)
}

proptest! {
    /// Safety: one request at a time, and none during the authority's `Retry-After`. No call gets a token that has
    /// expired by the monotonic clock, or one that Azure has rejected, unless that was within half a minute of another
    /// rejection. Liveness: each call is answered within half a minute. After a failure, the authority gets a request
    /// within five and a half minutes.
    #[test]
    fn c3_each_call_is_answered_in_time_by_one_request_at_a_time(steps in steps()) {
        let mut fixture = Fixture::new();
        for step in steps {
            match step {
                Step::Call => { fixture.call(); }
                Step::Brings(seconds) if fixture.open.is_some() => {
                    let name = format!("token-{}", fixture.requests());
                    fixture.brings(&name, seconds);
                }
                Step::Refuses(retry_after) if fixture.open.is_some() => fixture.refuses(retry_after.map(Duration::from_secs)),
                Step::Brings(_) | Step::Refuses(_) => {}
                Step::Pass(seconds) => { fixture.pass(Duration::from_secs(seconds)); }
                Step::Set(seconds) => fixture.set = seconds,
                Step::Reject => {
                    let last = fixture.renewal.token.as_ref().map(|held| held.token.token.secret().to_owned());
                    let again = fixture.renewal.rejected_at.is_some_and(|at| fixture.now.since(at) < REJECTION_PAUSE);
                    if let Some(last) = last {
                        fixture.handle(In::TokenRejected(Secret::new(last.clone())));
                        fixture.given.clear();
                        fixture.call();
                        prop_assert!(again || fixture.given.iter().all(|(_, token)| *token != last));
                    }
                }
            }
            let answered = fixture.given.len() + fixture.refused.len();
            prop_assert!(answered <= usize::try_from(fixture.callers).unwrap());
        }
        fixture.pass(REQUEST_TIMEOUT);
        prop_assert!(fixture.renewal.waiting.is_empty(), "{:?} wait", fixture.renewal.waiting);
        fixture.pass(MAX_RETRY_AFTER).call();
        if fixture.open.is_some() {
            fixture.brings("last", 3_600);
        }
        prop_assert!(fixture.call().given().len() >= 2);
    }
}

#[test]
fn c1_inputs_and_outputs_can_be_logged_without_a_token() {
    let wall = Wall::from_micros(0);
    let token = AccessToken::new("planted-token", OffsetDateTime::UNIX_EPOCH);
    let told = [
        In::TokenRejected(token.token.clone()),
        In::TokenReceived { request: RequestId(1), token: token.clone(), wall },
    ];
    let output = [Out::Token(Caller(1), token)];
    assert!(!format!("{told:?} {output:?}").contains("planted"), "{told:?} {output:?}");
}
