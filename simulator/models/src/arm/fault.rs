//! The choice of planned faults that affect a request.

use super::journal::Kind;
use super::settings::{Fault, FaultAnswer, FaultEffect, FaultTarget, OperationFailure, Settings};
use super::store::key;

/// Counters of the faults, in the order of the settings.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    counted: Vec<CountedFault>,
    /// Number of times each fault has taken effect since the model began; faults that are no longer planned stay.
    effects: Vec<(Fault, u64)>,
}

#[derive(Clone, Debug)]
struct CountedFault {
    fault: Fault,
    load_balancer: Option<String>,
    matched: u64,
    hits: u64,
}

/// Combined effect of the faults on one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct CombinedFault {
    pub(crate) delay_us: u64,
    pub(crate) before: Option<SkipReason>,
    pub(crate) after: Option<ResponseFault>,
    pub(crate) planned_failure: Option<(OperationFailure, String, String)>,
    /// The fault that makes the operation fail. It takes effect only if an operation starts.
    pub(crate) failure_fault: Option<usize>,
}

/// Reason why the request is not applied.
#[derive(Clone, Debug)]
pub(crate) enum SkipReason {
    Refuse,
    Answer(FaultAnswer),
}

/// Fate of the answer of an applied request.
#[derive(Clone, Debug)]
pub(crate) enum ResponseFault {
    Lose,
    Answer(FaultAnswer),
}

impl Faults {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { counted: CountedFault::all(settings), effects: Vec::new() }
    }

    /// Replaces the planned faults with the faults in these settings. Their counters start at 0.
    pub(crate) fn plan(&mut self, settings: &Settings) {
        self.counted = CountedFault::all(settings);
    }

    /// Returns the number of times each fault has taken effect.
    pub(crate) fn effects(&self) -> &[(Fault, u64)] {
        &self.effects
    }

    /// Counts the request in every fault that matches it. If two faults have the same kind of effect, the first listed
    /// one wins. Effects before a request is applied win over those after it. Winners take effect.
    pub(crate) fn combined(&mut self, kind: Kind, load_balancer: Option<&str>) -> CombinedFault {
        let (mut before, mut after, mut planned_failure) = (None, None, None);
        let (mut delay_us, mut won) = (0_u64, Vec::new());
        for (index, counted) in self.counted.iter_mut().enumerate() {
            if !counted.matches(kind, load_balancer) {
                continue;
            }
            match counted.fault.effect.clone() {
                FaultEffect::Delay { us } => {
                    delay_us = delay_us.saturating_add(us);
                    won.push(index);
                }
                FaultEffect::Refuse => before = before.or(Some((index, SkipReason::Refuse))),
                FaultEffect::Answer(answer) => before = before.or(Some((index, SkipReason::Answer(answer)))),
                FaultEffect::LoseAnswer => after = after.or(Some((index, ResponseFault::Lose))),
                FaultEffect::AnswerAfterApplying(answer) => {
                    after = after.or(Some((index, ResponseFault::Answer(answer))));
                }
                FaultEffect::FailOperation { end, code, message } => {
                    planned_failure = planned_failure.or(Some((index, (end, code, message))));
                }
            }
        }
        won.extend(match (&before, &after) {
            (Some((index, _)), _) | (None, Some((index, _))) => Some(*index),
            (None, None) => None,
        });
        for index in won {
            self.took_effect(index);
        }
        let (failure_fault, planned_failure) = planned_failure.unzip();
        let (before, after) = (before.map(|(_, before)| before), after.map(|(_, after)| after));
        CombinedFault { delay_us, before, after, planned_failure, failure_fault }
    }

    /// Records that a fault, by its index in the settings, has taken effect.
    pub(crate) fn took_effect(&mut self, index: usize) {
        let Some(CountedFault { fault, .. }) = self.counted.get(index) else { return };
        match self.effects.iter_mut().find(|(known, _)| known == fault) {
            Some((_, times)) => *times += 1,
            None => self.effects.push((fault.clone(), 1)),
        }
    }
}

impl CountedFault {
    fn all(settings: &Settings) -> Vec<Self> {
        let counted = settings.faults.iter().map(|fault| Self {
            fault: fault.clone(),
            load_balancer: fault.load_balancer.as_deref().map(key),
            matched: 0,
            hits: 0,
        });
        counted.collect()
    }

    fn matches(&mut self, kind: Kind, load_balancer: Option<&str>) -> bool {
        let targeted = match self.fault.target {
            FaultTarget::PoolPut => kind == Kind::PoolPut,
            FaultTarget::PoolDelete => kind == Kind::PoolDelete,
            FaultTarget::PoolGet => kind == Kind::PoolGet || kind == Kind::PoolList,
            FaultTarget::LoadBalancerGet => kind == Kind::LoadBalancerGet || kind == Kind::LoadBalancerList,
            FaultTarget::Poll => kind == Kind::Poll,
            FaultTarget::Any => true,
        };
        let about = self.load_balancer.is_none() || self.load_balancer == load_balancer.map(key);
        if !targeted || !about {
            return false;
        }
        self.matched += 1;
        let every = self.fault.every;
        let strikes = every > 0 && self.matched.is_multiple_of(every);
        if !strikes || self.fault.limit.is_some_and(|limit| self.hits >= limit) {
            return false;
        }
        self.hits += 1;
        true
    }
}
