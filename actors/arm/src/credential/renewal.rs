//! The machine that decides when to request a token, which token calls get in the meantime, and how long to pause
//! between requests (docs/design/surface.md, C3; W5). [`Tokens`](super::Tokens) reads the clocks for it and requests
//! tokens.
//!
//! A token is renewed before its end without delaying calls: the old one is used while it is valid for another half
//! minute. Without a token, all calls wait for the same request. A refusal is repeated to calls without a new
//! request, for increasing periods: otherwise each of many pools would request a token, and Entra throttles frequent
//! requests.
//!
//! The end of a token is measured by the wall clock. A clock that is set back does not extend it: its lifetime counts
//! on the monotonic clock too. A clock that is set forward shortens it, which costs a request.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use azure_core::credentials::{AccessToken, Secret};
use model::machine::{Machine, Now, Wall};

/// Time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Error after the time limit.
const TIMEOUT_MESSAGE: &str = "no token in time: neither the authority nor the instance metadata service has answered; check \
                    the network, the proxy variables, and cloud or AZURE_AUTHORITY_HOST";
/// Remaining lifetime at which a token is renewed.
const RENEW_BEFORE_EXPIRY: Duration = Duration::from_secs(6 * 60);
/// Remaining lifetime that a token needs to be used while it is renewed: a PUT may take 20 s to be answered.
const USABLE_FOR: Duration = Duration::from_secs(30);
/// Minimum interval between requests while there is a token: after a refusal, and after a token that is due for renewal
/// on arrival. A token that has already expired by the local clock on arrival is used for this long, because the clock
/// is wrong or the expiry was missing.
const MIN_REQUEST_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after a refusal while there is no token: doubles from the first to the second.
const REFUSAL_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Maximum `Retry-After` of an authority that is respected.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// Time after a rejected token in which another rejection does not cause a request: Azure rejects tokens for a reason
/// other than their age, and each call would cost a token.
const REJECTION_PAUSE: Duration = Duration::from_secs(30);

/// A call that needs a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Caller(pub(super) u64);

/// A request for a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RequestId(u64);

/// Input of the machine.
#[derive(Clone, Debug)]
pub(super) enum In {
    /// A call needs a token.
    TokenNeeded { caller: Caller, wall: Wall },
    /// A request has returned a token.
    TokenReceived { request: RequestId, token: AccessToken, wall: Wall },
    /// A request has failed, with the reason and the authority's `Retry-After`.
    RequestFailed { request: RequestId, reason: Arc<str>, retry_after: Option<Duration> },
    /// Azure has rejected this token.
    TokenRejected(Secret),
}

/// Output of the machine.
#[derive(Clone, Debug)]
pub(super) enum Out {
    /// To the authority: request a token.
    RequestToken(RequestId),
    /// Stop waiting for the request.
    GiveUp(RequestId),
    /// Make the next request with a new credential, without learnt state.
    ResetCredential,
    /// To a call: its token.
    Token(Caller, AccessToken),
    /// To a call: there is no token, with the reason. This attempt of the call has failed.
    TokenUnavailable(Caller, Arc<str>),
}

/// The token of an identity (C3).
#[derive(Debug, Default)]
pub(super) struct Renewal {
    token: Option<CurrentToken>,
    request: Option<PendingRequest>,
    /// Callers that wait for the request.
    waiting: Vec<Caller>,
    /// Last failed request, unless a token has come since.
    refused: Option<FailedRequest>,
    /// Time at which a rejected token was dropped.
    rejected_at: Option<Now>,
    requests: u64,
}

/// A token and its lifetime.
#[derive(Debug)]
struct CurrentToken {
    token: AccessToken,
    received_at: Now,
    /// Expiry in microseconds since 1970.
    ends: i128,
    /// Lifetime on arrival.
    span: Duration,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    id: RequestId,
    give_up: Now,
}

/// A failed request.
#[derive(Debug)]
struct FailedRequest {
    at: Now,
    /// Failures in a row.
    times: u32,
    /// End of the authority's `Retry-After`.
    retry_after_ends: Now,
    reason: Arc<str>,
}

impl FailedRequest {
    /// Returns the earliest time of the next request.
    fn pause_ends(&self, has_token: bool) -> Now {
        let (first, longest) = REFUSAL_PAUSE;
        let doubled = first.saturating_mul(1 << self.times.saturating_sub(1).min(6)).min(longest);
        let rest = if has_token { MIN_REQUEST_INTERVAL } else { doubled };
        self.at.plus(rest).max(self.retry_after_ends)
    }
}

impl CurrentToken {
    fn new(now: Now, wall: Wall, token: AccessToken) -> CurrentToken {
        let ends = token.expires_on.unix_timestamp_nanos() / 1_000;
        CurrentToken { token, received_at: now, ends, span: span(ends, wall) }
    }

    /// Returns the remaining lifetime, the shorter of both clocks.
    fn left(&self, now: Now, wall: Wall) -> Duration {
        span(self.ends, wall).min(self.span.saturating_sub(now.since(self.received_at)))
    }

    /// Returns whether a call may use it.
    fn is_usable(&self, now: Now, wall: Wall) -> bool {
        self.left(now, wall) > USABLE_FOR || now.since(self.received_at) < MIN_REQUEST_INTERVAL
    }
}

/// Returns the time from a wall time to an expiry in microseconds; zero if that has passed.
fn span(ends: i128, wall: Wall) -> Duration {
    let micros = (ends - i128::from(wall.as_micros())).max(0);
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

impl Renewal {
    fn on_token_needed(&mut self, now: Now, wall: Wall, caller: Caller, out: &mut Vec<Out>) {
        let left = self.token.as_ref().map_or(Duration::ZERO, |held| held.left(now, wall));
        let good = self.token.as_ref().filter(|held| held.is_usable(now, wall));
        if let Some(held) = good {
            out.push(Out::Token(caller, held.token.clone()));
        }
        let has_token = good.is_some();
        if left <= RENEW_BEFORE_EXPIRY && self.request.is_none() && now >= self.next_request(has_token) {
            self.request_token(now, out);
        }
        match (&self.request, &self.refused) {
            _ if has_token => {}
            (None, Some(refused)) => out.push(Out::TokenUnavailable(caller, Arc::clone(&refused.reason))),
            (Some(_), _) | (None, None) => self.waiting.push(caller),
        }
    }

    /// Returns the earliest time of the next request.
    fn next_request(&self, has_token: bool) -> Now {
        let after_token =
            self.token.as_ref().map_or(Now::ZERO, |held| held.received_at.plus(MIN_REQUEST_INTERVAL));
        let after_refusal = self.refused.as_ref().map_or(Now::ZERO, |it| it.pause_ends(has_token));
        after_token.max(after_refusal)
    }

    fn request_token(&mut self, now: Now, out: &mut Vec<Out>) {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.request = Some(PendingRequest { id, give_up: now.plus(REQUEST_TIMEOUT) });
        out.push(Out::RequestToken(id));
    }

    fn on_token_received(&mut self, now: Now, wall: Wall, token: AccessToken, out: &mut Vec<Out>) {
        let callers = std::mem::take(&mut self.waiting);
        out.extend(callers.into_iter().map(|caller| Out::Token(caller, token.clone())));
        self.token = Some(CurrentToken::new(now, wall, token));
        self.refused = None;
    }

    fn on_refused(&mut self, now: Now, reason: Arc<str>, retry_after: Option<Duration>, out: &mut Vec<Out>) {
        let callers = std::mem::take(&mut self.waiting);
        out.extend(callers.into_iter().map(|caller| Out::TokenUnavailable(caller, Arc::clone(&reason))));
        let times = self.refused.as_ref().map_or(0, |before| before.times).saturating_add(1);
        let retry_after_ends = now.plus(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER));
        self.refused = Some(FailedRequest { at: now, times, retry_after_ends, reason });
    }

    /// Drops the token that Azure has rejected, unless another one has come since, or a token was dropped within
    /// [`REJECTION_PAUSE`]. The authority's `Retry-After` still counts.
    fn on_rejected(&mut self, now: Now, rejected: &Secret, out: &mut Vec<Out>) {
        let is_last = self.token.as_ref().is_some_and(|held| held.token.token.secret() == rejected.secret());
        if !is_last || self.rejected_at.is_some_and(|at| now.since(at) < REJECTION_PAUSE) {
            return;
        }
        self.token = None;
        self.refused.take_if(|refused| refused.retry_after_ends <= now);
        self.rejected_at = Some(now);
        out.push(Out::ResetCredential);
    }

    /// Removes the request in flight, if it is this one.
    fn close(&mut self, request: RequestId) -> bool {
        self.request.take_if(|open| open.id == request).is_some()
    }

    /// Checks the invariants between two steps.
    ///
    /// # Errors
    /// The violated invariant.
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
            In::TokenNeeded { caller, wall } => self.on_token_needed(now, wall, caller, out),
            In::TokenReceived { request, token, wall } => {
                if self.close(request) {
                    self.on_token_received(now, wall, token, out);
                }
            }
            In::RequestFailed { request, reason, retry_after } => {
                if self.close(request) {
                    self.on_refused(now, reason, retry_after, out);
                }
            }
            In::TokenRejected(token) => self.on_rejected(now, &token, out),
        }
        debug_assert!(self.check().is_ok(), "{:?}", self.check());
    }

    fn deadline(&self) -> Option<Now> {
        self.request.map(|open| open.give_up)
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        if let Some(open) = self.request.take_if(|open| open.give_up <= now) {
            out.push(Out::GiveUp(open.id));
            self.on_refused(now, TIMEOUT_MESSAGE.into(), None, out);
        }
        debug_assert!(self.check().is_ok(), "{:?}", self.check());
    }
}
