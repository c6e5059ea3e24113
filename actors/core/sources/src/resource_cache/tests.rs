//! Drives a cache on the test's clock, in place of an xDS client.

mod errors;
mod properties;
mod rows;
mod states;
mod timers;
mod watchers;

use super::*;
use model::level::Provenance;
use model::machine::Wall;
use model::xds::cache::Rejected;
use model::xds::facts::Code;
use model::xds::facts::Raw;
use std::sync::Arc;
use std::time::Duration;

/// The resource that most tests use.
const WEB: &str = "web";

/// The default of gRPC.
const KEEP: Policy = Policy { fail_on_data_errors: false, timer_is_transient: false };
/// `fail_on_data_errors`.
const DROP: Policy = Policy { fail_on_data_errors: true, timer_is_transient: false };
/// `resource_timer_is_transient_error`.
const SLOW: Policy = Policy { fail_on_data_errors: false, timer_is_transient: true };
/// Every combination of server features.
const ALL_POLICIES: [Policy; 4] =
    [KEEP, DROP, SLOW, Policy { fail_on_data_errors: true, timer_is_transient: true }];

/// No notices.
const NOTHING: [&str; 0] = [];

/// The messages of an expired timer, as an error and as shown to operators.
const MISSING: &str = "does not exist: was not received within 15 s of the request";
const LATE: &str = "was not received within 30 s of the request";

fn at(millis: u64) -> Now {
    Now::from_millis(millis)
}

fn error(reason: Reason, code: Code, message: &str) -> Error {
    Error { reason, code, message: Arc::from(message), rejected: None }
}

fn nack(message: &str) -> Error {
    error(Reason::Nack, Code::InvalidArgument, message)
}

fn deletion() -> Error {
    error(Reason::Deleted, Code::NotFound, "was deleted")
}

fn reported(code: Code, message: &str) -> Error {
    error(Reason::Reported, code, message)
}

/// Returns the error in the form for this version.
fn in_version(error: Error, version: &str, at: i64) -> Error {
    let rejected = Rejected { version: Arc::from(version), at: Wall::from_micros(at), raw: None };
    Error { rejected: Some(rejected), ..error }
}

fn good(value: u32, version: &str, at: i64) -> Cached<u32> {
    Cached {
        value,
        raw: None,
        version: Arc::from(version),
        updated: Wall::from_micros(at),
        provenance: Provenance::Watch,
    }
}

/// Returns a change in short.
fn brief(change: &ResourceChange<u32>) -> String {
    let text = |error: &Error| format!("{} {}", error.code.as_str(), error.message);
    match change {
        ResourceChange::Changed(Ok(cached)) => format!("value {}", cached.value),
        ResourceChange::Changed(Err(error)) => format!("error {}", text(error)),
        ResourceChange::Ambient(Some(error)) => format!("ambient {}", text(error)),
        ResourceChange::Ambient(None) => String::from("clear"),
    }
}

/// A cache, and its notices since the last check.
struct Fixture {
    cache: ResourceCache<&'static str, u32, u8>,
    out: Vec<Notice<&'static str, u32, u8>>,
}

impl Fixture {
    fn new(policy: Policy) -> Fixture {
        Fixture { cache: ResourceCache::new(policy), out: Vec::new() }
    }

    /// Creates a fixture in which watcher 1 watches `web`, which was requested at 0 s.
    fn requested(policy: Policy) -> Fixture {
        let mut fixture = Fixture::new(policy);
        fixture.watch(WEB, 1);
        fixture.send(0, &[WEB]);
        assert_eq!(fixture.notices(), NOTHING);
        fixture
    }

    /// Creates the same after the resource has arrived with the value 7 in version "1".
    fn cached(policy: Policy) -> Fixture {
        let mut fixture = Fixture::requested(policy);
        fixture.receive(7, "1");
        assert_eq!(fixture.notices(), ["value 7"]);
        fixture
    }

    fn watch(&mut self, key: &'static str, watcher: u8) {
        self.cache.watch(key, watcher, &mut self.out);
    }

    fn send(&mut self, millis: u64, keys: &[&'static str]) {
        self.cache.sent(at(millis), keys);
    }

    fn receive(&mut self, value: u32, version: &str) {
        self.cache.received(WEB, good(value, version, 0), &mut self.out);
    }

    fn nack(&mut self, message: &str) {
        self.cache.invalid(WEB, nack(message), &mut self.out);
    }

    fn delete(&mut self) {
        self.cache.deleted(WEB, deletion(), &mut self.out);
    }

    fn report(&mut self, code: Code, message: &str) {
        self.cache.reported(WEB, reported(code, message), &mut self.out);
    }

    fn lose_connection(&mut self, message: &str) {
        let error = error(Reason::Connectivity, Code::Unavailable, message);
        self.cache.connectivity(error, &mut self.out);
    }

    fn reconnect(&mut self) {
        self.cache.connected(&mut self.out);
    }

    fn tick(&mut self, millis: u64) {
        self.cache.tick(at(millis), &mut self.out);
    }

    /// Returns the notices to watcher 1 of `web`; no other watcher may have any.
    fn notices(&mut self) -> Vec<String> {
        assert!(self.cache.is_sound(), "{:?}", self.cache);
        let change = |notice: Notice<&'static str, u32, u8>| {
            assert_eq!((notice.key, notice.watcher), (WEB, 1));
            brief(&notice.change)
        };
        std::mem::take(&mut self.out).into_iter().map(change).collect()
    }

    /// Returns the notices to all watchers.
    fn all_notices(&mut self) -> Vec<String> {
        assert!(self.cache.is_sound(), "{:?}", self.cache);
        let notices = std::mem::take(&mut self.out).into_iter();
        notices
            .map(|notice| format!("{} {}: {}", notice.key, notice.watcher, brief(&notice.change)))
            .collect()
    }

    fn web(&self) -> Listed<'_, &'static str, u32> {
        self.cache.get(&WEB).expect("it is watched")
    }

    /// Returns the metric label of `web`, which also shows whether a resource is cached.
    fn state(&self) -> &'static str {
        self.web().cache_state().as_str()
    }

    /// Returns the resource in use.
    fn value(&self) -> Option<u32> {
        self.web().cached.map(|cached| cached.value)
    }

    /// Returns the entry's own error.
    fn error(&self) -> Option<Error> {
        self.web().error.cloned()
    }
}
