//! When a token is asked for, who gets which one meanwhile, and for how long it is not asked for again
//! (docs/design/surface.md, C3; W5): a machine. [`Tokens`](super::Tokens) reads the clocks for it and asks.
//!
//! A token is renewed before its end, and no call waits for that: the old one is given out for as long as it is good
//! for another half minute. Without one all calls wait for the same request. What an authority refused is told again,
//! without asking, forever longer: each of many pools would ask again otherwise, and Entra throttles who keeps asking.
//!
//! The end of a token is told by the wall clock. A clock that is set back does not make it longer: its span counts on
//! the monotonic clock too. One that is set forward makes it shorter, which costs a request.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use azure_core::credentials::{AccessToken, Secret};
use model::machine::{Machine, Now, Wall};

/// How long an authority may take to answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// What is told after that time.
const LATE: &str = "no token in time: neither the authority nor the instance metadata service has answered; check \
                    the network, the proxy variables, and cloud or AZURE_AUTHORITY_HOST";
/// A token that is good for no longer than this is renewed.
const RENEWED_BEFORE: Duration = Duration::from_secs(6 * 60);
/// For how long a token must still be good to be given out while it is renewed: a PUT may take 20 s to be answered.
const STILL_GOOD: Duration = Duration::from_secs(30);
/// How long no request follows while there is a token: after a refusal, and after a token that is to be renewed as soon
/// as it comes. A token that is already over by our clock when it comes is used for this long: the clock is wrong, or no
/// end was told.
const REST: Duration = Duration::from_secs(10);
/// How long no request follows a refusal while there is no token: doubling from the first to the second.
const REFUSED_FOR: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// For how long an authority is left alone at most because it has said so (`Retry-After`).
const LEFT_ALONE_AT_MOST: Duration = Duration::from_secs(300);
/// How long after a token that Azure has refused the next one that it refuses is no reason to ask: it is refused for
/// another reason than its age, and each call would cost a token.
const BEGUN_ANEW_FOR: Duration = Duration::from_secs(30);

/// A call that needs a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Caller(pub(super) u64);

/// A request for a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RequestId(u64);

/// What the machine can be told.
#[derive(Clone, Debug)]
pub(super) enum In {
    /// A call needs a token.
    Wanted { caller: Caller, wall: Wall },
    /// A request has brought one.
    Brought { request: RequestId, token: AccessToken, wall: Wall },
    /// A request has brought none: why, and for how long the authority wants to be left alone.
    Refused { request: RequestId, why: Arc<str>, retry_after: Option<Duration> },
    /// Azure has refused this token.
    Rejected(Secret),
}

/// What the machine can say.
#[derive(Clone, Debug)]
pub(super) enum Out {
    /// To the authority.
    Ask(RequestId),
    /// The request is not waited for any longer.
    GiveUp(RequestId),
    /// The next request is made as the first one was, whatever was learnt since.
    BeginAnew,
    /// To a call.
    Give(Caller, AccessToken),
    /// To a call: there is none, and why. This attempt of it is over.
    Refuse(Caller, Arc<str>),
}

/// The token of an identity (C3).
#[derive(Debug, Default)]
pub(super) struct Renewal {
    token: Option<Held>,
    request: Option<Open>,
    /// Who waits for the request.
    waiting: Vec<Caller>,
    /// What the last request said, unless it brought a token.
    refused: Option<Refused>,
    /// When a token that Azure had refused was thrown away.
    begun_anew: Option<Now>,
    requests: u64,
}

/// A token, and how long it is good.
#[derive(Debug)]
struct Held {
    token: AccessToken,
    came: Now,
    /// In microseconds since 1970.
    ends: i128,
    /// How long it was good when it came.
    span: Duration,
}

/// A request that is under way.
#[derive(Clone, Copy, Debug)]
struct Open {
    id: RequestId,
    give_up: Now,
}

/// A request for a token that brought nothing.
#[derive(Debug)]
struct Refused {
    at: Now,
    /// How many there were one after the other.
    times: u32,
    /// Until when the authority wants to be left alone.
    left_alone: Now,
    why: Arc<str>,
}

impl Refused {
    /// The earliest moment of the next request.
    fn rest_ends(&self, has_token: bool) -> Now {
        let (first, longest) = REFUSED_FOR;
        let doubled = first.saturating_mul(1 << self.times.saturating_sub(1).min(6)).min(longest);
        let rest = if has_token { REST } else { doubled };
        self.at.plus(rest).max(self.left_alone)
    }
}

impl Held {
    fn new(now: Now, wall: Wall, token: AccessToken) -> Held {
        let ends = token.expires_on.unix_timestamp_nanos() / 1_000;
        Held { token, came: now, ends, span: span(ends, wall) }
    }

    /// How long it is good by both clocks.
    fn left(&self, now: Now, wall: Wall) -> Duration {
        span(self.ends, wall).min(self.span.saturating_sub(now.since(self.came)))
    }

    /// Whether it may be given out.
    fn is_good(&self, now: Now, wall: Wall) -> bool {
        self.left(now, wall) > STILL_GOOD || now.since(self.came) < REST
    }
}

/// From a moment of the wall clock to an end in microseconds; nothing when that is over.
fn span(ends: i128, wall: Wall) -> Duration {
    let micros = (ends - i128::from(wall.as_micros())).max(0);
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

impl Renewal {
    fn on_wanted(&mut self, now: Now, wall: Wall, caller: Caller, out: &mut Vec<Out>) {
        let left = self.token.as_ref().map_or(Duration::ZERO, |held| held.left(now, wall));
        let good = self.token.as_ref().filter(|held| held.is_good(now, wall));
        if let Some(held) = good {
            out.push(Out::Give(caller, held.token.clone()));
        }
        let has_token = good.is_some();
        if left <= RENEWED_BEFORE && self.request.is_none() && now >= self.asks_again(has_token) {
            self.ask(now, out);
        }
        match (&self.request, &self.refused) {
            _ if has_token => {}
            (None, Some(refused)) => out.push(Out::Refuse(caller, Arc::clone(&refused.why))),
            (Some(_), _) | (None, None) => self.waiting.push(caller),
        }
    }

    /// The earliest moment of the next request.
    fn asks_again(&self, has_token: bool) -> Now {
        let after_token = self.token.as_ref().map_or(Now::ZERO, |held| held.came.plus(REST));
        let after_refusal = self.refused.as_ref().map_or(Now::ZERO, |it| it.rest_ends(has_token));
        after_token.max(after_refusal)
    }

    fn ask(&mut self, now: Now, out: &mut Vec<Out>) {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.request = Some(Open { id, give_up: now.plus(ANSWERED_WITHIN) });
        out.push(Out::Ask(id));
    }

    fn on_brought(&mut self, now: Now, wall: Wall, token: AccessToken, out: &mut Vec<Out>) {
        let callers = std::mem::take(&mut self.waiting);
        out.extend(callers.into_iter().map(|caller| Out::Give(caller, token.clone())));
        self.token = Some(Held::new(now, wall, token));
        self.refused = None;
    }

    fn on_refused(&mut self, now: Now, why: Arc<str>, retry_after: Option<Duration>, out: &mut Vec<Out>) {
        let callers = std::mem::take(&mut self.waiting);
        out.extend(callers.into_iter().map(|caller| Out::Refuse(caller, Arc::clone(&why))));
        let times = self.refused.as_ref().map_or(0, |before| before.times).saturating_add(1);
        let left_alone = now.plus(retry_after.unwrap_or_default().min(LEFT_ALONE_AT_MOST));
        self.refused = Some(Refused { at: now, times, left_alone, why });
    }

    /// Throws the token away that Azure has refused, unless another one has come since, or one was thrown away a moment
    /// ago. An authority that wants to be left alone is left alone all the same.
    fn on_rejected(&mut self, now: Now, rejected: &Secret, out: &mut Vec<Out>) {
        let is_last = self.token.as_ref().is_some_and(|held| held.token.token.secret() == rejected.secret());
        if !is_last || self.begun_anew.is_some_and(|at| now.since(at) < BEGUN_ANEW_FOR) {
            return;
        }
        self.token = None;
        self.refused.take_if(|refused| refused.left_alone <= now);
        self.begun_anew = Some(now);
        out.push(Out::BeginAnew);
    }

    /// Takes the request that is under way, if it is this one.
    fn close(&mut self, request: RequestId) -> bool {
        self.request.take_if(|open| open.id == request).is_some()
    }

    /// The invariants that hold between any two steps.
    ///
    /// # Errors
    /// The one that does not hold.
    fn check(&self) -> Result<(), &'static str> {
        if self.waiting.is_empty() || self.request.is_some() {
            Ok(())
        } else {
            Err("a call waits for nothing")
        }
    }
}

impl Machine for Renewal {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match input {
            In::Wanted { caller, wall } => self.on_wanted(now, wall, caller, out),
            In::Brought { request, token, wall } => {
                if self.close(request) {
                    self.on_brought(now, wall, token, out);
                }
            }
            In::Refused { request, why, retry_after } => {
                if self.close(request) {
                    self.on_refused(now, why, retry_after, out);
                }
            }
            In::Rejected(token) => self.on_rejected(now, &token, out),
        }
        debug_assert!(self.check().is_ok(), "{:?}", self.check());
    }

    fn deadline(&self) -> Option<Now> {
        self.request.map(|open| open.give_up)
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        if let Some(open) = self.request.take_if(|open| open.give_up <= now) {
            out.push(Out::GiveUp(open.id));
            self.on_refused(now, LATE.into(), None, out);
        }
        debug_assert!(self.check().is_ok(), "{:?}", self.check());
    }
}
