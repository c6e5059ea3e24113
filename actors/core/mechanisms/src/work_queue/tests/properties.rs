//! Compares random histories of a queue with a simple reference model.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::*;
use pool_testing::planted::each_is_found;

/// The number of items: small, so that their runs overlap.
const ITEMS: u8 = 5;
/// The maximum number of operations in a history.
const LENGTH: usize = 120;
/// The longest requested delay, in milliseconds.
const MAX_WAIT: u64 = 500;
/// The refill time of one token, in microseconds.
const TOKEN: i64 = 100_000;
const BURST: u32 = 3;
/// The maximum of an item's own delay.
const CAP: Duration = Duration::from_millis(300);
/// Maximum time until every item has run without new additions: the longest delay, and a token for each retry.
const BOUND: Duration = Duration::from_millis(MAX_WAIT + 100 * LENGTH as u64);

const PARAMS: Params =
    Params { base: Duration::from_millis(5), max_backoff: CAP, per_second: 10, burst: BURST };

/// One operation; items in work are chosen by number.
#[derive(Clone, Debug)]
enum Op {
    Add(u8),
    AddAfter(u8, u64),
    AddRateLimited(u8),
    Forget(u8),
    Retire(u8),
    Take,
    Finish(usize, Result<Done, Failed>),
    Done(usize),
    Wait(u64),
}

/// A bug between the history and the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plant {
    /// An item that is added during its work does not run again.
    LosesAdditionsDuringWork,
    /// An item that is added during its work runs again immediately.
    RunsConcurrently,
    /// The second item is taken instead of the first.
    TakesSecondItem,
    /// Of two due times, the one requested first counts.
    KeepsLaterTime,
    /// Success does not reset the failure count.
    KeepsFailures,
    /// Errors are retried without the limiter.
    SkipsLimiter,
    /// Retired items stay.
    KeepsRetiredItems,
}

impl Plant {
    const ALL: [Plant; 7] = [
        Plant::LosesAdditionsDuringWork,
        Plant::RunsConcurrently,
        Plant::TakesSecondItem,
        Plant::KeepsLaterTime,
        Plant::KeepsFailures,
        Plant::SkipsLimiter,
        Plant::KeepsRetiredItems,
    ];
}

fn result() -> impl Strategy<Value = Result<Done, Failed>> {
    let after = (0..=MAX_WAIT).prop_map(|wait| Done::RequeueAfter(millis(wait)));
    prop_oneof![
        4 => Just(ERROR),
        1 => after.clone().prop_map(|asked| Err(Failed { asked })),
        4 => Just(Ok(Done::Success)),
        2 => Just(Ok(Done::Requeue)),
        2 => after.prop_map(Ok),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let wait = prop_oneof![1 => Just(0_u64), 9 => 1..=MAX_WAIT];
    prop_oneof![
        8 => (0..ITEMS).prop_map(Op::Add),
        4 => (0..ITEMS, wait).prop_map(|(item, wait)| Op::AddAfter(item, wait)),
        2 => (0..ITEMS).prop_map(Op::AddRateLimited),
        1 => (0..ITEMS).prop_map(Op::Forget),
        1 => (0..ITEMS).prop_map(Op::Retire),
        12 => Just(Op::Take),
        8 => (any::<usize>(), result()).prop_map(|(n, result)| Op::Finish(n, result)),
        1 => any::<usize>().prop_map(Op::Done),
        6 => (1..=MAX_WAIT).prop_map(Op::Wait),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..=LENGTH)
}

/// The queue, its workers, and the reference model.
struct World {
    queue: WorkQueue<u8>,
    plant: Option<Plant>,
    now: Now,
    /// The items that must run, by the order in which they became ready; an item in work becomes ready when its work
    /// ends.
    wanted: BTreeMap<u8, u64>,
    /// The items in work, and whether each was retired since.
    work: BTreeMap<u8, bool>,
    /// The delayed items: due time and order.
    due: BTreeMap<u8, (Now, u64)>,
    failures: BTreeMap<u8, u32>,
    /// The refill time of the last token taken, in microseconds.
    token: i64,
    order: u64,
}

impl World {
    fn new(plant: Option<Plant>) -> World {
        World {
            queue: WorkQueue::new(PARAMS),
            plant,
            now: Now::ZERO,
            wanted: BTreeMap::new(),
            work: BTreeMap::new(),
            due: BTreeMap::new(),
            failures: BTreeMap::new(),
            token: -TOKEN * i64::from(BURST),
            order: 0,
        }
    }

    fn has(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    fn number(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    fn want(&mut self, item: u8) {
        let order = self.number();
        self.wanted.entry(item).or_insert(order);
    }

    fn want_after(&mut self, item: u8, wait: Duration) {
        let at = self.now.plus(wait);
        if wait.is_zero() {
            self.want(item);
        } else if self.due.get(&item).is_none_or(|(known, _)| *known > at) {
            let order = self.number();
            self.due.insert(item, (at, order));
        }
    }

    /// Returns the delay that the limiter imposes on the item. Tokens are refilled at regular intervals, and those of
    /// the burst are in the past.
    fn limited(&mut self, item: u8) -> Duration {
        let now = i64::try_from(self.now.as_micros()).expect("small");
        let failures = self.failures.entry(item).or_default();
        let own = Duration::from_millis(5_u64.saturating_mul(2_u64.saturating_pow(*failures))).min(CAP);
        *failures += 1;
        self.token = self.token.max(now - TOKEN * i64::from(BURST)) + TOKEN;
        own.max(Duration::from_micros(u64::try_from(self.token - now).unwrap_or(0)))
    }

    /// Marks the items that have become due as ready.
    fn ripen(&mut self) {
        let mut ripe: Vec<(Now, u64, u8)> =
            self.due.iter().map(|(item, (at, order))| (*at, *order, *item)).collect();
        ripe.retain(|(at, _, _)| *at <= self.now);
        ripe.sort_unstable();
        for (_, _, item) in ripe {
            self.due.remove(&item);
            self.want(item);
        }
    }

    fn apply(&mut self, op: Op) -> TestCaseResult {
        self.ripen();
        match op {
            Op::Add(item) => self.add(item),
            Op::AddAfter(item, wait) => {
                let later = self.due.contains_key(&item) && wait > 0;
                if !(later && self.has(Plant::KeepsLaterTime)) {
                    self.queue.add_after(self.now, item, millis(wait));
                }
                self.want_after(item, millis(wait));
            }
            Op::AddRateLimited(item) => {
                self.queue.add_rate_limited(self.now, item);
                let wait = self.limited(item);
                self.want_after(item, wait);
            }
            Op::Forget(item) => {
                self.queue.forget(&item);
                self.failures.remove(&item);
            }
            Op::Retire(item) => self.retire(item),
            Op::Take => {
                self.take()?;
            }
            Op::Finish(n, result) => {
                if let Some(item) = self.in_work(n) {
                    self.finish(item, result);
                }
            }
            Op::Done(n) => {
                if let Some(item) = self.in_work(n) {
                    self.queue.done(self.now, &item);
                    self.end(item);
                }
            }
            Op::Wait(wait) => {
                // The queue is not notified that time has passed: the next operation finds the items that have become
                // due.
                self.now = self.now.plus(millis(wait));
                return Ok(());
            }
        }
        self.check_state()
    }

    fn in_work(&self, n: usize) -> Option<u8> {
        self.work.keys().nth(n.checked_rem(self.work.len())?).copied()
    }

    fn add(&mut self, item: u8) {
        let in_work = self.work.contains_key(&item);
        if in_work && self.has(Plant::RunsConcurrently) {
            self.queue.done(self.now, &item);
        }
        if !(in_work && self.has(Plant::LosesAdditionsDuringWork)) {
            self.queue.add(self.now, item);
        }
        self.want(item);
    }

    fn retire(&mut self, item: u8) {
        if !self.has(Plant::KeepsRetiredItems) {
            self.queue.retire(&item);
        }
        self.wanted.remove(&item);
        self.due.remove(&item);
        self.failures.remove(&item);
        if let Some(retired) = self.work.get_mut(&item) {
            *retired = true;
        }
    }

    fn take(&mut self) -> Result<Option<u8>, TestCaseError> {
        let free = self.wanted.iter().filter(|(item, _)| !self.work.contains_key(*item));
        let expected = free.min_by_key(|(_, order)| **order).map(|(item, _)| *item);
        prop_assert_eq!(self.queue.is_ready(self.now), expected.is_some());
        let taken = self.taken();
        if let Some(item) = taken {
            let before = self.work.insert(item, false);
            prop_assert!(before.is_none(), "{} is worked on twice at the same time", item);
            self.wanted.remove(&item);
        }
        prop_assert_eq!(taken, expected, "not the item that became ready first");
        Ok(taken)
    }

    fn taken(&mut self) -> Option<u8> {
        let first = self.queue.take(self.now)?;
        let second = if self.has(Plant::TakesSecondItem) { self.queue.take(self.now) } else { None };
        if second.is_some() {
            self.queue.done(self.now, &first);
            self.queue.add(self.now, first);
        }
        second.or(Some(first))
    }

    fn finish(&mut self, item: u8, result: Result<Done, Failed>) {
        if result == Ok(Done::Success) && self.has(Plant::KeepsFailures) {
            self.queue.done(self.now, &item);
        } else if result.is_err() && self.has(Plant::SkipsLimiter) {
            self.queue.finish(self.now, &item, Ok(Done::RequeueAfter(millis(1))));
        } else {
            self.queue.finish(self.now, &item, result);
        }
        if self.work.get(&item) == Some(&false) {
            match result {
                Err(_) | Ok(Done::Requeue) => {
                    let wait = self.limited(item);
                    self.want_after(item, wait);
                }
                Ok(Done::Success) => {
                    self.failures.remove(&item);
                }
                Ok(Done::RequeueAfter(wait)) => {
                    self.failures.remove(&item);
                    if !wait.is_zero() {
                        self.want_after(item, wait);
                    }
                }
            }
        }
        self.end(item);
    }

    fn end(&mut self, item: u8) {
        self.work.remove(&item);
        if self.wanted.remove(&item).is_some() {
            self.want(item);
        }
    }

    /// Compares the observable state of the queue with the reference model.
    fn check_state(&mut self) -> TestCaseResult {
        self.queue.tick(self.now);
        prop_assert_eq!(self.queue.check(), Ok(()));
        prop_assert_eq!(self.queue.deadline(), self.due.values().map(|(at, _)| *at).min());
        for item in 0..ITEMS {
            let failures = self.failures.get(&item).copied().unwrap_or_default();
            prop_assert_eq!(self.queue.requeues(&item), failures, "the failures of {}", item);
        }
        let at_rest = self.wanted.is_empty() && self.work.is_empty() && self.due.is_empty();
        prop_assert_eq!(self.queue.is_idle(), at_rest && self.failures.is_empty(), "{:?}", self.queue);
        Ok(())
    }

    /// Ends additions and failures: asserts that every item runs and that the queue becomes idle.
    fn run_to_idle(&mut self) -> TestCaseResult {
        let until = self.now.plus(BOUND);
        self.ripen();
        let work: Vec<u8> = self.work.keys().copied().collect();
        work.into_iter().for_each(|item| self.finish(item, Ok(Done::Success)));
        loop {
            self.ripen();
            while let Some(item) = self.take()? {
                self.finish(item, Ok(Done::Success));
                self.check_state()?;
            }
            let Some(due) = self.queue.deadline() else { break };
            prop_assert!(due > self.now && due <= until, "it waits until {:?}", due);
            self.now = due;
        }
        let left = (&self.wanted, &self.due);
        prop_assert!(self.wanted.is_empty() && self.due.is_empty(), "left undone: {:?}", left);
        // Work that ended without a result leaves failure counts; work that finally succeeds leaves none.
        for item in 0..ITEMS {
            self.add(item);
            let taken = self.take()?;
            prop_assert_eq!(taken, Some(item));
            self.finish(item, Ok(Done::Success));
        }
        self.check_state()?;
        prop_assert!(self.queue.is_idle(), "the queue is not empty: {:?}", self.queue);
        Ok(())
    }
}

fn play(ops: Vec<Op>, plant: Option<Plant>) -> TestCaseResult {
    let mut world = World::new(plant);
    for op in ops {
        world.apply(op)?;
    }
    world.run_to_idle()
}

proptest! {
    #[test]
    fn s4_items_run_one_at_a_time_in_order_in_bounded_time(
        ops in ops(),
    ) {
        play(ops, None)?;
    }
}

#[test]
fn each_planted_bug_is_found() {
    each_is_found(Plant::ALL, 500, ops, |ops, plant| play(ops, Some(plant)));
}
