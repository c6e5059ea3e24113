//! Checks that property tests find the bugs that are planted for them.

use std::fmt::Debug;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseResult, TestError, TestRng, TestRunner};

/// Plays `cases` histories, the same ones in each run, with each of these bugs.
///
/// # Panics Panics if all histories succeed with one of the bugs: the properties do not find that bug.
pub fn each_is_found<Plant: Copy + Debug, History: Strategy>(
    plants: impl IntoIterator<Item = Plant>,
    cases: u32,
    histories: impl Fn() -> History,
    play: impl Fn(History::Value, Plant) -> TestCaseResult,
) {
    for plant in plants {
        let config = ProptestConfig {
            cases,
            failure_persistence: None,
            max_shrink_iters: 0,
            ..ProptestConfig::default()
        };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let ended = runner.run(&histories(), |history| play(history, plant));
        assert!(matches!(ended, Err(TestError::Fail(..))), "{plant:?} is not found: {ended:?}");
    }
}
