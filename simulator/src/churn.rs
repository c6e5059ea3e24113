//! The changes of pods, and their times. Only the seed determines the n-th change.

use std::collections::BTreeMap;

use crate::random::Random;
use crate::world::{Phase, Pod, World};

/// Percentage of changes that continue a running rollout.
const CARRIED_ON: usize = 66;
/// Percentage of new rollouts that replace a pod; the others scale up or down in equal parts.
const REPLACING: usize = 70;
/// Number of times each Service changes in a burst.
const BURST_CHANGES: u64 = 5;
/// Number of times a Service changes while one of its pods is replaced.
const STEPS_PER_POD: u64 = 3;
/// Number of times a Service changes while all of its pods are replaced at the same time.
const STEPS_OF_ALL: u64 = 4;
/// Duration of a burst, in microseconds.
const BURST_US: u64 = 1_000_000;

/// Pattern of changes of pods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Rolling updates and scaling, one slice write at a time, evenly.
    Churn {
        /// Changes per second.
        rate: f64,
        /// Duration, in microseconds.
        duration_us: u64,
    },
    /// Every Service changes five times within one second, evenly.
    Burst,
    /// A rolling restart of all Services, which begin evenly one after the other. Each Service replaces its pods one by
    /// one, in three steps: a new pod starts; it is ready and an old one terminates; the old one is gone.
    Rollout {
        /// Time in which the Services begin, in microseconds.
        within_us: u64,
        /// Time between two steps of a Service, in microseconds.
        step_us: u64,
    },
    /// A rollout of every Service with the strategy Recreate. The Services begin evenly one after the other, and each
    /// takes four steps: all pods terminate; all are gone; as many new ones start; they are ready.
    Recreate {
        /// Time in which the Services begin, in microseconds.
        within_us: u64,
        /// Time between two steps of a Service, in microseconds.
        step_us: u64,
    },
    /// Nothing changes.
    Still,
}

impl Pattern {
    /// Returns the time in which the changes begin, in microseconds.
    pub(crate) fn length_us(self) -> u64 {
        match self {
            Self::Churn { duration_us, .. } => duration_us,
            Self::Burst => BURST_US,
            Self::Rollout { within_us, .. } | Self::Recreate { within_us, .. } => within_us,
            Self::Still => 0,
        }
    }

    /// Returns the same changes in one `speed`-th of the time.
    #[must_use]
    pub fn faster(self, speed: u32) -> Self {
        let divided = |us: u64| us / u64::from(speed.max(1));
        match self {
            Self::Churn { rate, duration_us } => {
                Self::Churn { rate: rate * f64::from(speed.max(1)), duration_us: divided(duration_us) }
            }
            Self::Rollout { within_us, step_us } => {
                Self::Rollout { within_us: divided(within_us), step_us: divided(step_us) }
            }
            Self::Recreate { within_us, step_us } => {
                Self::Recreate { within_us: divided(within_us), step_us: divided(step_us) }
            }
            Self::Burst | Self::Still => self,
        }
    }
}

/// The changes of a run.
#[derive(Clone, Debug)]
pub struct Churn {
    pattern: Pattern,
    random: Random,
    made: u64,
    rolling: Vec<usize>,
    /// The steps of a rollout with their Services, in the order of time.
    steps: Vec<(u64, usize, u64)>,
    /// Number of future pods of each Service that has none temporarily.
    coming: BTreeMap<usize, usize>,
}

/// One change: the slice to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Index of the Service.
    pub service: usize,
    /// Index of its slice.
    pub slice: usize,
}

impl Churn {
    /// Returns the changes of this pattern and seed.
    #[must_use]
    pub fn new(pattern: Pattern, seed: u64) -> Self {
        // A stream other than that of the plan.
        Self {
            pattern,
            random: Random::new(!seed),
            made: 0,
            rolling: Vec::new(),
            steps: Vec::new(),
            coming: BTreeMap::new(),
        }
    }

    /// Returns the same changes, planned for a cluster; a rollout makes no change without a plan.
    #[must_use]
    pub fn planned(mut self, world: &World) -> Self {
        match self.pattern {
            Pattern::Rollout { within_us, step_us } => {
                let total = world.services().len() as u64;
                let steps = world.services().iter().enumerate().flat_map(|(index, service)| {
                    let begin = even(within_us, index as u64, total);
                    let count = service.pods.len() as u64 * STEPS_PER_POD;
                    (0..count).map(move |step| (begin.saturating_add(step * step_us), index, step))
                });
                self.steps = steps.collect();
                self.steps.sort_unstable();
            }
            Pattern::Recreate { within_us, step_us } => {
                let total = world.services().len() as u64;
                let steps = world.services().iter().enumerate().flat_map(|(index, service)| {
                    let begin = even(within_us, index as u64, total);
                    // A step changes all slices, and each of them is a change.
                    let slices = service.slices as u64;
                    let at = move |change: u64| begin.saturating_add(change / slices * step_us);
                    (0..STEPS_OF_ALL * slices).map(move |change| (at(change), index, change))
                });
                self.steps = steps.collect();
                self.steps.sort_unstable();
            }
            Pattern::Churn { .. } | Pattern::Burst | Pattern::Still => {}
        }
        self
    }

    /// Returns the total number of changes.
    #[must_use]
    pub fn total(&self, world: &World) -> u64 {
        let services = world.services().len() as u64;
        match self.pattern {
            Pattern::Churn { .. } | Pattern::Burst if services == 0 => 0,
            Pattern::Churn { rate, duration_us } => (rate.max(0.0) * seconds(duration_us)).round() as u64,
            Pattern::Burst => services * BURST_CHANGES,
            Pattern::Rollout { .. } | Pattern::Recreate { .. } => self.steps.len() as u64,
            Pattern::Still => 0,
        }
    }

    /// Returns the number of changes so far.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Returns the time of the next change, in microseconds from the start; `None` if all are made.
    #[must_use]
    pub fn next_due_us(&self, world: &World) -> Option<u64> {
        let total = self.total(world);
        if self.made >= total {
            return None;
        }
        let at = match self.pattern {
            Pattern::Churn { duration_us, .. } => even(duration_us, self.made, total),
            Pattern::Burst => even(BURST_US, self.made, total),
            Pattern::Rollout { .. } | Pattern::Recreate { .. } => self.next_step()?.0,
            Pattern::Still => return None,
        };
        Some(at)
    }

    /// Makes the next change, if there are Services.
    pub fn make(&mut self, world: &mut World) -> Option<Change> {
        let services = world.services().len();
        if services == 0 {
            return None;
        }
        let change = match self.pattern {
            Pattern::Churn { .. } => self.roll(world, services),
            Pattern::Burst => self.jump(world, services),
            Pattern::Rollout { .. } => self.restart(world)?,
            Pattern::Recreate { .. } => self.recreate(world)?,
            Pattern::Still => return None,
        };
        self.made += 1;
        Some(change)
    }

    fn next_step(&self) -> Option<(u64, usize, u64)> {
        self.steps.get(usize::try_from(self.made).ok()?).copied()
    }

    /// Makes the next step of a rolling restart; the oldest pods are replaced first.
    fn restart(&mut self, world: &mut World) -> Option<Change> {
        let (_, service, _) = self.next_step()?;
        if let Some(slice) = world.service_mut(service).advance() {
            return Some(Change { service, slice });
        }
        let serial = world.next_serial();
        let known = &world.services()[service];
        let Some((old, slice)) = known.pods.first().map(|pod| (pod.serial, pod.slice)) else {
            return Some(nothing_of(service));
        };
        let node = world.free_node(service, &mut self.random);
        let pod = Pod { serial, node, slice, phase: Phase::Starting, replaces: Some(old) };
        world.service_mut(service).pods.push(pod);
        Some(Change { service, slice })
    }

    /// Returns the next change of a Service whose pods are all replaced. The first change of a step applies it, and the
    /// others write the other slices.
    fn recreate(&mut self, world: &mut World) -> Option<Change> {
        let (_, service, change) = self.next_step()?;
        let slices = world.services()[service].slices as u64;
        let (step, slice) = (change / slices, usize::try_from(change % slices).unwrap_or(0));
        let pods = world.services()[service].pods.clone();
        match (slice, step) {
            (0, 0) => {
                for pod in &mut world.service_mut(service).pods {
                    pod.phase = Phase::Terminating;
                }
            }
            (0, 1) => {
                let many = pods.len();
                world.service_mut(service).pods.clear();
                self.coming.insert(service, many);
            }
            (0, 2) => {
                for number in 0..self.coming.remove(&service).unwrap_or(0) {
                    let slice = number % world.services()[service].slices;
                    self.start(world, service, slice, None);
                }
            }
            (0, _) => {
                for pod in &mut world.service_mut(service).pods {
                    pod.phase = Phase::Ready;
                }
            }
            (1.., _) => {}
        }
        Some(Change { service, slice })
    }

    /// Continues a rollout, or begins one.
    fn roll(&mut self, world: &mut World, services: usize) -> Change {
        let carry_on = !self.rolling.is_empty() && self.random.percent(CARRIED_ON);
        let service = if carry_on {
            self.rolling[self.random.below(self.rolling.len())]
        } else {
            self.random.below(services)
        };
        let slice = match world.service_mut(service).advance() {
            Some(slice) => slice,
            None => self.begin(world, service),
        };
        self.rolling.retain(|known| *known != service);
        if world.services()[service].is_changing() {
            self.rolling.push(service);
        }
        Change { service, slice }
    }

    fn begin(&mut self, world: &mut World, service: usize) -> usize {
        let known = &world.services()[service];
        let (pods, slices) = (known.pods.len(), known.slices);
        if pods == 0 {
            return nothing_of(service).slice;
        }
        let most = world.size().endpoints * 2;
        let replace = self.random.percent(REPLACING);
        let shrink = (self.random.percent(50) || pods >= most) && pods > 1;
        let chosen = self.random.below(pods);
        if replace {
            let old = &world.services()[service].pods[chosen];
            let (slice, serial) = (old.slice, old.serial);
            return self.start(world, service, slice, Some(serial));
        }
        if shrink {
            let pod = &mut world.service_mut(service).pods[chosen];
            pod.phase = Phase::Terminating;
            return pod.slice;
        }
        let slice = self.random.below(slices);
        self.start(world, service, slice, None)
    }

    fn start(&mut self, world: &mut World, service: usize, slice: usize, replaces: Option<u64>) -> usize {
        let serial = world.next_serial();
        let node = world.free_node(service, &mut self.random);
        let pod = Pod { serial, node, slice, phase: Phase::Starting, replaces };
        world.service_mut(service).pods.push(pod);
        slice
    }

    /// Moves a ready pod to another node in one step.
    fn jump(&mut self, world: &mut World, services: usize) -> Change {
        let turn = usize::try_from(self.made).unwrap_or(usize::MAX);
        let service = turn % services;
        let serial = world.next_serial();
        let node = world.free_node(service, &mut self.random);
        let pods = &mut world.service_mut(service).pods;
        let count = pods.len();
        if count == 0 {
            return nothing_of(service);
        }
        let pod = &mut pods[turn / services % count];
        *pod = Pod { serial, node, slice: pod.slice, phase: Phase::Ready, replaces: None };
        Change { service, slice: pod.slice }
    }
}

/// Returns a change that writes a Service without pods unchanged.
fn nothing_of(service: usize) -> Change {
    Change { service, slice: 0 }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn even(within_us: u64, index: u64, total: u64) -> u64 {
    let at = u128::from(within_us) * u128::from(index) / u128::from(total.max(1));
    u64::try_from(at).unwrap_or(u64::MAX)
}
