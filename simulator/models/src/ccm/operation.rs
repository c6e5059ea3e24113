//! One action on Azure as in the SDK: tries and their waits, the throttle timers, and polling to the end of the
//! operation. All of this happens under the lock.

use serde_json::Value;

use super::call::{Answer, Verb};
use crate::arm::random::Random;

const SECOND: u64 = 1_000_000;
const MAX_RETRIES: u32 = 3;
/// Above this many seconds a Retry-After ends the tries immediately.
const MAX_RETRY_AFTER_S: u64 = 60;
/// Poll interval without Retry-After, in microseconds.
const POLL_US: u64 = 5 * SECOND;

/// One of upstream's clients; each has its own throttle timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// Load balancers.
    Balancers,
    /// Backend pools.
    Pools,
}

/// One action: a request, and for writes the operation that follows.
#[derive(Clone, Debug)]
pub(super) struct Action {
    pub(super) client: Client,
    pub(super) verb: Verb,
    /// Path without query.
    pub(super) path: String,
    pub(super) if_match: Option<String>,
    pub(super) body: Option<Value>,
}

impl Action {
    pub(super) fn get(client: Client, path: String) -> Self {
        Self { client, verb: Verb::Get, path, if_match: None, body: None }
    }

    /// Creates a PUT of a pool; upstream never sends If-Match with it.
    pub(super) fn put_pool(path: String, body: Value) -> Self {
        Self { client: Client::Pools, verb: Verb::Put, path, if_match: None, body: Some(body) }
    }

    /// Creates a PUT of a load balancer, with If-Match if its body has an etag.
    pub(super) fn put_balancer(path: String, body: Value) -> Self {
        let if_match = body["etag"].as_str().map(str::to_owned);
        Self { client: Client::Balancers, verb: Verb::Put, path, if_match, body: Some(body) }
    }

    pub(super) fn delete_pool(path: String) -> Self {
        Self { client: Client::Pools, verb: Verb::Delete, path, if_match: None, body: None }
    }
}

/// Reason why an action failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// HTTP status; 200, the status of the poll, if the operation failed; 0 without an answer.
    pub(super) status: u16,
    pub(super) error_text: String,
}

/// The final body (null if there is none), or the failure.
pub(super) type Outcome = Result<Value, Failure>;

/// End of a client's refusal to send, by kind of request, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    read: u64,
    write: u64,
}

impl Timers {
    fn of(&mut self, verb: Verb) -> &mut u64 {
        match verb {
            Verb::Get => &mut self.read,
            Verb::Post | Verb::Put | Verb::Patch | Verb::Delete => &mut self.write,
        }
    }
}

/// The timers of both clients.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gates {
    balancers: Timers,
    pools: Timers,
}

impl Gates {
    fn of(&mut self, client: Client) -> &mut Timers {
        match client {
            Client::Balancers => &mut self.balancers,
            Client::Pools => &mut self.pools,
        }
    }
}

/// A request to be sent now.
#[derive(Clone, Debug)]
pub(super) struct Http {
    pub(super) verb: Verb,
    pub(super) path_and_query: String,
    pub(super) if_match: Option<String>,
    pub(super) body: Option<Value>,
}

/// Next step of an action.
#[derive(Debug)]
pub(super) enum Turn {
    Send(Http),
    /// Wait until this time.
    Sleep(u64),
    Done(Outcome),
}

#[derive(Clone, Debug)]
enum Purpose {
    /// The action itself.
    First,
    /// A poll of its operation.
    Poll { url: String },
    /// The GET of the result after a finished PUT.
    Result,
}

/// A running action.
#[derive(Debug)]
pub(super) struct Operation {
    action: Action,
    purpose: Purpose,
    tries: u32,
    /// Time of its next request; `None` while it waits for an answer.
    pub(super) sleeps_until: Option<u64>,
}

impl Operation {
    pub(super) fn new(action: Action, now: u64) -> Self {
        Self { action, purpose: Purpose::First, tries: 0, sleeps_until: Some(now) }
    }

    /// Returns the path that the action writes; `None` for reads.
    pub(super) fn writes(&self) -> Option<&str> {
        match self.action.verb {
            Verb::Get => None,
            Verb::Post | Verb::Put | Verb::Patch | Verb::Delete => Some(&self.action.path),
        }
    }

    fn verb(&self) -> Verb {
        match self.purpose {
            Purpose::First => self.action.verb,
            Purpose::Poll { .. } | Purpose::Result => Verb::Get,
        }
    }

    /// Continues after a wait.
    pub(super) fn awake(&mut self, now: u64, gates: &mut Gates, random: &mut Random) -> Turn {
        let until = *gates.of(self.action.client).of(self.verb());
        if until > now {
            // While a throttle timer runs, a try fails like a refused one, without any HTTP.
            let error_text = format!("throttled, retry after {} s", (until - now) / SECOND);
            return self.again(now, None, Failure { status: 429, error_text }, random);
        }
        self.sleeps_until = None;
        let resource = || format!("{}?api-version=2025-05-01", self.action.path);
        let (path_and_query, if_match, body) = match &self.purpose {
            Purpose::First => (resource(), self.action.if_match.clone(), self.action.body.clone()),
            Purpose::Poll { url } => (url.clone(), None, None),
            Purpose::Result => (resource(), None, None),
        };
        Turn::Send(Http { verb: self.verb(), path_and_query, if_match, body })
    }

    /// Handles the answer to its request.
    pub(super) fn answered(
        &mut self,
        now: u64,
        answer: &Answer,
        gates: &mut Gates,
        random: &mut Random,
    ) -> Turn {
        let retry_after = answer.header("retry-after").and_then(|text| text.parse::<u64>().ok());
        let failure = |code: &str| Failure {
            status: answer.status(),
            error_text: self.error_text(answer.status(), code),
        };
        match answer.status() {
            429 => {
                let given = answer.header("retry-after").is_some_and(|text| !text.is_empty());
                let timer = gates.of(self.action.client).of(self.verb());
                match (given, retry_after) {
                    (false, _) => *timer = now,
                    (true, Some(seconds)) if seconds > 0 => {
                        *timer = now.saturating_add(seconds.saturating_mul(SECOND));
                    }
                    (true, Some(_) | None) => {}
                }
                let failure = failure(&code_of(answer));
                // Upstream loses the header before its retry policy can read it.
                self.again(now, None, failure, random)
            }
            0 | 408 | 500 | 502 | 503 | 504 => {
                let failure = failure(&code_of(answer));
                match retry_after {
                    Some(seconds) if seconds > MAX_RETRY_AFTER_S => Turn::Done(Err(failure)),
                    Some(_) | None => self.again(now, retry_after, failure, random),
                }
            }
            200..300 => self.succeeded(now, answer, retry_after),
            _ => Turn::Done(Err(failure(&code_of(answer)))),
        }
    }

    fn again(&mut self, now: u64, retry_after_s: Option<u64>, failure: Failure, random: &mut Random) -> Turn {
        self.tries += 1;
        if self.tries > MAX_RETRIES {
            return Turn::Done(Err(failure));
        }
        let delay = match retry_after_s {
            Some(seconds) if seconds > 0 => seconds * SECOND,
            Some(_) | None => {
                let jitter = 800 + random.next_u64() % 500;
                ((1 << self.tries) - 1) * 5 * SECOND / 1_000 * jitter
            }
        };
        self.sleep(now.saturating_add(delay))
    }

    fn sleep(&mut self, until: u64) -> Turn {
        self.sleeps_until = Some(until);
        Turn::Sleep(until)
    }

    fn succeeded(&mut self, now: u64, answer: &Answer, retry_after_s: Option<u64>) -> Turn {
        self.tries = 0;
        let pause = retry_after_s.map(|seconds| seconds.saturating_mul(SECOND));
        match (&self.purpose, self.action.verb) {
            (Purpose::First, Verb::Put | Verb::Delete | Verb::Post | Verb::Patch) => {
                match answer.header("azure-asyncoperation") {
                    Some(url) => {
                        self.purpose = Purpose::Poll { url: without_authority(url).to_owned() };
                        self.sleep(now.saturating_add(pause.unwrap_or(0)))
                    }
                    None => Turn::Done(Ok(answer.object().unwrap_or_default())),
                }
            }
            (Purpose::First, Verb::Get) | (Purpose::Result, _) => match answer.object() {
                Some(body) => Turn::Done(Ok(body)),
                None => {
                    let error_text = self.error_text(answer.status(), "the body cannot be decoded");
                    Turn::Done(Err(Failure { status: answer.status(), error_text }))
                }
            },
            (Purpose::Poll { .. }, verb) => {
                let body = answer.object().unwrap_or_default();
                match (body["status"].as_str().unwrap_or_default(), verb) {
                    ("Succeeded", Verb::Put | Verb::Patch) => {
                        self.purpose = Purpose::Result;
                        self.sleep(now)
                    }
                    ("Succeeded", Verb::Get | Verb::Post | Verb::Delete) => Turn::Done(Ok(Value::Null)),
                    ("", _) => {
                        let error_text = self.error_text(answer.status(), "the poll has no status");
                        Turn::Done(Err(Failure { status: answer.status(), error_text }))
                    }
                    ("Failed" | "Canceled", _) => {
                        let error_text = self.error_text(answer.status(), &code_of(answer));
                        Turn::Done(Err(Failure { status: answer.status(), error_text }))
                    }
                    (_, _) => self.sleep(now.saturating_add(pause.filter(|us| *us > 0).unwrap_or(POLL_US))),
                }
            }
        }
    }

    fn error_text(&self, status: u16, code: &str) -> String {
        let Action { verb, path, .. } = &self.action;
        format!("{} {path}: RESPONSE {status}: ERROR CODE: {code}", verb.word())
    }
}

/// Returns the innermost code in the body.
fn code_of(answer: &Answer) -> String {
    let body = answer.object().unwrap_or_default();
    let error = &body["error"];
    let code = [&error["details"][0]["code"], &error["code"], &body["code"]];
    code.into_iter().find_map(Value::as_str).unwrap_or("Unavailable").to_owned()
}

/// Returns the path and query of a poll URL. Poll URLs are absolute; the driver knows the address of ARM.
fn without_authority(url: &str) -> &str {
    match url.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |start| &rest[start..]),
        None => url,
    }
}
