//! Compares random histories of a cache and of watchers that apply all notices with a simple reference model of A88.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::*;
use pool_testing::planted::each_is_found;

/// The numbers of resources and watchers: few, so that they interact.
const KEYS: u8 = 3;
const WATCHERS: u8 = 3;
/// The maximum number of operations in a history.
const LENGTH: usize = 80;
/// The time within which a requested resource is known or late, with any policy.
const BOUND: Duration = Duration::from_secs(30);

type Notices = Vec<Notice<u8, u8, u8>>;

/// An error of the resource itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Invalid,
    /// Only a part is invalid, and the rest is in use.
    PartlyInvalid,
    Deleted,
    Reported(Code),
}

/// One operation.
#[derive(Clone, Debug)]
enum Op {
    Policy(Policy),
    Watch(u8, u8),
    Unwatch(u8, u8),
    Sent(Vec<u8>),
    Ended,
    Received(u8, u8),
    Failed(u8, Fault, u8),
    Lost(u8),
    Answered,
    Wait(u64),
}

/// A bug between the test and the cache, or between the cache and its watchers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plant {
    /// The end of an ambient error is not sent.
    LosesWhatClears,
    /// Every notice is sent twice.
    TellsTwice,
    /// The error is sent before the resource.
    TellsTheErrorFirst,
    /// Late watchers get nothing.
    ForgetsLateWatchers,
    /// Only one watcher of each resource gets notices.
    TellsOneWatcher,
    /// The server features are ignored.
    IgnoresTheFeatures,
    /// Every error that the source reports is a data error.
    TakesTransientErrorsForDataErrors,
    /// A resource that has not arrived can be deleted.
    DeletesWhatHasNotCome,
    /// A repeated error is ignored.
    PassesOverRepeatedErrors,
    /// An unchanged resource is ignored.
    PassesOverUnchangedResources,
    /// Timers run on after the end of the stream.
    RunsTimersWithoutAStream,
    /// Each request restarts the timers.
    ProlongsTimers,
    /// Timers are never started.
    WaitsForEver,
    /// When the source answers again, own errors are not sent again.
    ForgetsOwnErrors,
    /// Resources without a watcher stay.
    KeepsWhatNobodyWatches,
}

impl Plant {
    const ALL: [Plant; 15] = [
        Plant::LosesWhatClears,
        Plant::TellsTwice,
        Plant::TellsTheErrorFirst,
        Plant::ForgetsLateWatchers,
        Plant::TellsOneWatcher,
        Plant::IgnoresTheFeatures,
        Plant::TakesTransientErrorsForDataErrors,
        Plant::DeletesWhatHasNotCome,
        Plant::PassesOverRepeatedErrors,
        Plant::PassesOverUnchangedResources,
        Plant::RunsTimersWithoutAStream,
        Plant::ProlongsTimers,
        Plant::WaitsForEver,
        Plant::ForgetsOwnErrors,
        Plant::KeepsWhatNobodyWatches,
    ];
}

fn policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(ALL_POLICIES.to_vec())
}

fn fault() -> impl Strategy<Value = Fault> {
    let codes = vec![Code::NotFound, Code::PermissionDenied, Code::Unavailable, Code::Internal];
    prop_oneof![
        3 => Just(Fault::Invalid),
        1 => Just(Fault::PartlyInvalid),
        3 => Just(Fault::Deleted),
        4 => prop::sample::select(codes).prop_map(Fault::Reported),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => policy().prop_map(Op::Policy),
        6 => (0..KEYS, 0..WATCHERS).prop_map(|(key, watcher)| Op::Watch(key, watcher)),
        4 => (0..KEYS, 0..WATCHERS).prop_map(|(key, watcher)| Op::Unwatch(key, watcher)),
        4 => prop::collection::vec(0..KEYS, 0..=4).prop_map(Op::Sent),
        2 => Just(Op::Ended),
        5 => (0..KEYS, 0..2_u8).prop_map(|(key, value)| Op::Received(key, value)),
        6 => (0..KEYS, fault(), 0..2_u8).prop_map(|(key, fault, message)| Op::Failed(key, fault, message)),
        3 => (0..2_u8).prop_map(Op::Lost),
        3 => Just(Op::Answered),
        4 => (1..=20_000_u64).prop_map(Op::Wait),
    ]
}

fn histories() -> impl Strategy<Value = (Policy, Vec<Op>)> {
    (policy(), prop::collection::vec(op(), 1..=LENGTH))
}

/// The state of a watcher that follows A88: the resource in use and the known error.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct View {
    value: Option<u8>,
    error: Option<Error>,
}

/// Returns the error as watchers see it.
fn to_text(error: &Error) -> Error {
    Error { rejected: None, ..error.clone() }
}

impl View {
    fn receive_all(&mut self, change: &ResourceChange<u8>) {
        match change {
            ResourceChange::Changed(Ok(cached)) => *self = View { value: Some(cached.value), error: None },
            ResourceChange::Changed(Err(error)) => *self = View { value: None, error: Some(to_text(error)) },
            ResourceChange::Ambient(error) => self.error = error.as_ref().map(to_text),
        }
    }
}

/// The reference state of a watched resource.
#[derive(Clone, Debug)]
struct Account {
    state: ResourceState,
    cached: Option<Cached<u8>>,
    /// Its own most recent error.
    error: Option<Error>,
    /// The newest of its own error and the connectivity error.
    newest: Option<Error>,
    /// Time at which its timer fires, and the state and error that follow.
    timer: Option<(Now, ResourceState, Error)>,
    watchers: BTreeSet<u8>,
}

impl Account {
    fn view(&self) -> View {
        let value = self.cached.as_ref().map(|cached| cached.value);
        View { value, error: self.newest.as_ref().map(to_text) }
    }
}

/// The cache, its watchers, and the reference model.
struct World {
    cache: ResourceCache<u8, u8, u8>,
    plant: Option<Plant>,
    now: Now,
    policy: Policy,
    lost: Option<Error>,
    accounts: BTreeMap<u8, Account>,
    views: BTreeMap<(u8, u8), View>,
    /// Number of operations so far, used as version and wall clock.
    events: u32,
}

impl World {
    fn new(policy: Policy, plant: Option<Plant>) -> World {
        let known = if plant == Some(Plant::IgnoresTheFeatures) { Policy::default() } else { policy };
        World {
            cache: ResourceCache::new(known),
            plant,
            now: Now::ZERO,
            policy,
            lost: None,
            accounts: BTreeMap::new(),
            views: BTreeMap::new(),
            events: 0,
        }
    }

    fn has(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    fn version(&self) -> Arc<str> {
        Arc::from(self.events.to_string())
    }

    fn wall(&self) -> Wall {
        Wall::from_micros(i64::from(self.events))
    }

    fn apply(&mut self, op: Op) -> TestCaseResult {
        self.events += 1;
        let mut notices = Vec::new();
        match op {
            Op::Policy(policy) => {
                self.policy = policy;
                if !self.has(Plant::IgnoresTheFeatures) {
                    self.cache.set_policy(policy);
                }
            }
            Op::Watch(key, watcher) => self.watch(key, watcher, &mut notices),
            Op::Unwatch(key, watcher) => self.unwatch(key, watcher)?,
            Op::Sent(keys) => self.send(&keys),
            Op::Ended => self.end(),
            Op::Received(key, value) => self.receive(key, value, &mut notices),
            Op::Failed(key, fault, message) => self.fail(key, fault, message, &mut notices),
            Op::Lost(message) => self.lose_connection(message, &mut notices),
            Op::Answered => self.answer(&mut notices),
            Op::Wait(wait) => self.wait(Duration::from_millis(wait), &mut notices),
        }
        self.receive_all(notices)?;
        self.check_state()
    }

    fn watch(&mut self, key: u8, watcher: u8, notices: &mut Notices) {
        self.cache.watch(key, watcher, notices);
        if self.has(Plant::ForgetsLateWatchers) {
            notices.clear();
        }
        let account = self.accounts.entry(key).or_insert_with(|| Account {
            state: ResourceState::Requested,
            cached: None,
            error: None,
            newest: self.lost.clone(),
            timer: None,
            watchers: BTreeSet::new(),
        });
        account.watchers.insert(watcher);
        self.views.entry((key, watcher)).or_default();
    }

    fn unwatch(&mut self, key: u8, watcher: u8) -> TestCaseResult {
        let watchers = self.accounts.get(&key).map(|account| account.watchers.clone()).unwrap_or_default();
        let is_last = watchers.contains(&watcher) && watchers.len() == 1;
        if is_last && self.has(Plant::KeepsWhatNobodyWatches) {
            self.cache.watch(key, WATCHERS, &mut Vec::new());
        }
        let was_last = self.cache.unwatch(&key, &watcher);
        self.views.remove(&(key, watcher));
        if is_last {
            self.accounts.remove(&key);
        } else if let Some(account) = self.accounts.get_mut(&key) {
            account.watchers.remove(&watcher);
        }
        prop_assert_eq!(was_last, is_last, "whether {} was the last watcher of {}", watcher, key);
        Ok(())
    }

    fn send(&mut self, keys: &[u8]) {
        if self.has(Plant::ProlongsTimers) {
            self.cache.stop_timers();
        }
        if !self.has(Plant::WaitsForEver) {
            self.cache.sent(self.now, keys);
        }
        let timer = if self.policy.timer_is_transient {
            let fires = self.now.plus(Duration::from_secs(30));
            (fires, ResourceState::Timeout, error(Reason::Timer, Code::Unavailable, LATE))
        } else {
            let fires = self.now.plus(Duration::from_secs(15));
            (fires, ResourceState::DoesNotExist, error(Reason::Timer, Code::NotFound, MISSING))
        };
        for key in keys {
            if let Some(account) = self.accounts.get_mut(key)
                && account.cached.is_none()
                && account.timer.is_none()
            {
                account.timer = Some(timer.clone());
            }
        }
    }

    fn end(&mut self) {
        if !self.has(Plant::RunsTimersWithoutAStream) {
            self.cache.stop_timers();
        }
        self.accounts.values_mut().for_each(|account| account.timer = None);
    }

    fn receive(&mut self, key: u8, value: u8, notices: &mut Notices) {
        let cached = Cached {
            value,
            raw: None,
            version: self.version(),
            updated: self.wall(),
            provenance: Provenance::Watch,
        };
        let account = self.accounts.get_mut(&key);
        let known = account.as_ref().and_then(|account| account.cached.as_ref()).map(|cached| cached.value);
        if known != Some(value) || self.plant != Some(Plant::PassesOverUnchangedResources) {
            self.cache.received(key, cached.clone(), notices);
        }
        if let Some(account) = account {
            account.state = ResourceState::Acked;
            account.cached = Some(cached);
            account.error = None;
            account.newest = self.lost.clone();
            account.timer = None;
        }
    }

    fn fault(&self, fault: Fault, message: u8) -> Error {
        let words = ["bad", "worse"][usize::from(message)];
        let error = match fault {
            Fault::Invalid | Fault::PartlyInvalid => nack(words),
            Fault::Deleted => deletion(),
            Fault::Reported(code) => reported(code, words),
        };
        let rejected = Rejected { version: self.version(), at: self.wall(), raw: None };
        Error { rejected: Some(rejected), ..error }
    }

    fn fail(&mut self, key: u8, fault: Fault, message: u8, notices: &mut Notices) {
        let error = self.fault(fault, message);
        self.pass_on(key, fault, &error, notices);
        let Some(account) = self.accounts.get_mut(&key) else { return };
        let (state, is_data) = match fault {
            Fault::Invalid => (ResourceState::Nacked, true),
            Fault::PartlyInvalid => (ResourceState::Nacked, false),
            Fault::Deleted if account.cached.is_none() => return,
            Fault::Deleted => (ResourceState::DoesNotExist, true),
            Fault::Reported(code) => {
                (ResourceState::ReceivedError, code == Code::NotFound || code == Code::PermissionDenied)
            }
        };
        if is_data && self.policy.fail_on_data_errors {
            account.cached = None;
        }
        account.state = state;
        account.error = Some(error.clone());
        account.newest = Some(error);
        account.timer = None;
    }

    /// Drives the cache with a fault.
    fn pass_on(&mut self, key: u8, fault: Fault, error: &Error, notices: &mut Notices) {
        let account = self.accounts.get(&key);
        let known = account.and_then(|account| account.error.as_ref());
        let repeats = known.is_some_and(|known| known.is_same_as(error));
        if repeats && self.has(Plant::PassesOverRepeatedErrors) {
            return;
        }
        let has_come = account.is_some_and(|account| account.cached.is_some());
        let error = error.clone();
        match fault {
            Fault::Invalid => self.cache.invalid(key, error, notices),
            Fault::PartlyInvalid => self.cache.partly_invalid(key, error, notices),
            Fault::Deleted if !has_come && self.has(Plant::DeletesWhatHasNotCome) => {
                let cached = Cached {
                    value: 0,
                    raw: None,
                    version: self.version(),
                    updated: self.wall(),
                    provenance: Provenance::Watch,
                };
                self.cache.received(key, cached, notices);
                self.cache.deleted(key, error, notices);
            }
            Fault::Deleted => self.cache.deleted(key, error, notices),
            Fault::Reported(_) if self.has(Plant::TakesTransientErrorsForDataErrors) => {
                self.cache.reported(key, Error { code: Code::NotFound, ..error }, notices);
            }
            Fault::Reported(_) => self.cache.reported(key, error, notices),
        }
    }

    fn lose_connection(&mut self, message: u8, notices: &mut Notices) {
        let words = ["connection refused", "no such host"][usize::from(message)];
        let error = error(Reason::Connectivity, Code::Unavailable, words);
        self.cache.connectivity(error.clone(), notices);
        self.accounts.values_mut().for_each(|account| account.newest = Some(error.clone()));
        self.lost = Some(error);
    }

    fn answer(&mut self, notices: &mut Notices) {
        self.cache.connected(notices);
        if self.has(Plant::ForgetsOwnErrors) {
            notices.retain(|notice| notice.change == ResourceChange::Ambient(None));
        }
        if self.lost.take().is_some() {
            self.accounts.values_mut().for_each(|account| account.newest = account.error.clone());
        }
    }

    fn wait(&mut self, wait: Duration, notices: &mut Notices) {
        self.now = self.now.plus(wait);
        self.cache.tick(self.now, notices);
        for account in self.accounts.values_mut() {
            let Some((fires, state, error)) = account.timer.take() else { continue };
            if fires > self.now {
                account.timer = Some((fires, state, error));
                continue;
            }
            account.state = state;
            account.error = Some(error.clone());
            account.newest = Some(error);
        }
    }

    /// Applies the planted bug to notices on their way to the watchers.
    fn on_the_way(&self, mut notices: Notices) -> Notices {
        if self.has(Plant::LosesWhatClears) {
            notices.retain(|notice| notice.change != ResourceChange::Ambient(None));
        }
        if self.has(Plant::TellsTwice) {
            notices = notices.into_iter().flat_map(|notice| [notice.clone(), notice]).collect();
        }
        if self.has(Plant::TellsTheErrorFirst) {
            notices.reverse();
        }
        if self.has(Plant::TellsOneWatcher) {
            notices.retain(|notice| {
                let account = self.accounts.get(&notice.key);
                account.is_some_and(|account| account.watchers.first() == Some(&notice.watcher))
            });
        }
        notices
    }

    fn receive_all(&mut self, notices: Notices) -> TestCaseResult {
        for notice in self.on_the_way(notices) {
            let Some(view) = self.views.get_mut(&(notice.key, notice.watcher)) else {
                return Err(TestCaseError::fail(format!("without a watcher it is told {notice:?}")));
            };
            let before = view.clone();
            let is_ambient = matches!(notice.change, ResourceChange::Ambient(Some(_)));
            prop_assert!(before.value.is_some() || !is_ambient, "ambient of what? {:?}", notice);
            view.receive_all(&notice.change);
            prop_assert!(*view != before, "it is known: {:?}", notice);
        }
        Ok(())
    }

    /// Compares the observable state of the cache and its watchers with the reference model.
    fn check_state(&self) -> TestCaseResult {
        prop_assert!(self.cache.is_sound(), "{:?}", self.cache);
        let timers = self.accounts.values().filter_map(|account| account.timer.as_ref());
        prop_assert_eq!(self.cache.deadline(), timers.map(|(fires, _, _)| *fires).min());
        prop_assert_eq!(self.cache.connectivity_error(), self.lost.as_ref());
        let listed: Vec<Listed<'_, u8, u8>> = self.cache.entries().collect();
        let expected: Vec<Listed<'_, u8, u8>> = self
            .accounts
            .iter()
            .map(|(key, account)| Listed {
                key,
                state: account.state,
                cached: account.cached.as_ref(),
                error: account.error.as_ref(),
                watchers: account.watchers.len(),
            })
            .collect();
        prop_assert_eq!(listed, expected);
        let watched = u64::try_from(self.accounts.len()).expect("few");
        prop_assert_eq!(self.cache.states_count().into_values().sum::<u64>(), watched);
        for ((key, watcher), view) in &self.views {
            let expected = self.accounts.get(key).map(Account::view);
            prop_assert_eq!(Some(view), expected.as_ref(), "watcher {} of {}", watcher, key);
        }
        Ok(())
    }

    /// Requests everything on a live stream that delivers nothing, and checks that no resource waits longer than its
    /// timer.
    fn calm(&mut self) -> TestCaseResult {
        self.apply(Op::Sent((0..KEYS).collect()))?;
        let until = self.now.plus(BOUND);
        for _ in 0..KEYS {
            let Some(due) = self.cache.deadline() else { break };
            prop_assert!(due > self.now && due <= until, "it waits until {:?}", due);
            let wait = due.since(self.now).as_micros().div_ceil(1_000);
            self.apply(Op::Wait(u64::try_from(wait).expect("short")))?;
        }
        let waits = self.cache.entries().any(|entry| entry.state == ResourceState::Requested);
        prop_assert!(!waits && self.cache.deadline().is_none(), "it waits forever: {:?}", self.cache);
        Ok(())
    }
}

fn play((policy, ops): (Policy, Vec<Op>), plant: Option<Plant>) -> TestCaseResult {
    let mut world = World::new(policy, plant);
    for op in ops {
        world.apply(op)?;
    }
    world.calm()
}

proptest! {
    #[test]
    fn x1_a88_watchers_agree_with_the_cache_and_no_wait_is_endless(
        history in histories(),
    ) {
        play(history, None)?;
    }
}

#[test]
fn each_planted_bug_is_found() {
    each_is_found(Plant::ALL, 500, histories, |history, plant| play(history, Some(plant)));
}
