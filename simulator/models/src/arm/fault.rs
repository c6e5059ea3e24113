//! Which planned faults strike a request.

use super::journal::Kind;
use super::settings::{BadEnd, Fault, FaultAnswer, FaultEffect, FaultTarget, Settings};
use super::store::key;

/// The faults' own counters, in the order of the settings.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    counted: Vec<Counted>,
}

#[derive(Clone, Debug)]
struct Counted {
    fault: Fault,
    load_balancer: Option<String>,
    matched: u64,
    struck: u64,
}

/// What the faults together do to one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strike {
    pub(crate) delay_us: u64,
    pub(crate) before: Option<Before>,
    pub(crate) after: Option<After>,
    pub(crate) bad_end: Option<(BadEnd, String, String)>,
}

/// What keeps the request from being applied.
#[derive(Clone, Debug)]
pub(crate) enum Before {
    Refuse,
    Answer(FaultAnswer),
}

/// What happens to the answer of an applied request.
#[derive(Clone, Debug)]
pub(crate) enum After {
    Lose,
    Answer(FaultAnswer),
}

impl Faults {
    pub(crate) fn new(settings: &Settings) -> Self {
        let counted = settings.faults.iter().map(|fault| Counted {
            fault: fault.clone(),
            load_balancer: fault.load_balancer.as_deref().map(key),
            matched: 0,
            struck: 0,
        });
        Self { counted: counted.collect() }
    }

    /// Counts the request in every fault that matches it; of two effects of one sort the first listed wins.
    pub(crate) fn strike(&mut self, kind: Kind, load_balancer: Option<&str>) -> Strike {
        let mut strike = Strike::default();
        for counted in &mut self.counted {
            if !counted.matches(kind, load_balancer) {
                continue;
            }
            match counted.fault.effect.clone() {
                FaultEffect::Delay { us } => strike.delay_us = strike.delay_us.saturating_add(us),
                FaultEffect::Refuse => strike.before = strike.before.or(Some(Before::Refuse)),
                FaultEffect::Answer(answer) => strike.before = strike.before.or(Some(Before::Answer(answer))),
                FaultEffect::LoseAnswer => strike.after = strike.after.or(Some(After::Lose)),
                FaultEffect::AnswerAfterApplying(answer) => {
                    strike.after = strike.after.or(Some(After::Answer(answer)));
                }
                FaultEffect::FailOperation { end, code, message } => {
                    strike.bad_end = strike.bad_end.or(Some((end, code, message)));
                }
            }
        }
        strike
    }
}

impl Counted {
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
        if !strikes || self.fault.limit.is_some_and(|limit| self.struck >= limit) {
            return false;
        }
        self.struck += 1;
        true
    }
}
