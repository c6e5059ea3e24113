//! The jobs of the modelled cloud-controller-manager, one at a time: lock, work, unlock, then write to Kubernetes.
//!
//! Upstream serialises reconciles and drains by `serviceReconcileLock`; here there is one `Job` or none.

use serde_json::Value;

use super::call::{Answer, Call, CallId, CallTarget, Verb};
use super::locker::{Caches, LeaseRequest, Locking, NextStep, Unlocking};
use super::operation::{Http, Operation, Outcome, Turn};
use super::reconcile::{Context, Next, Purpose, Reconcile};
use super::recorder::{EventSpec, Source};
use super::updater::{Drain, GroupReport};
use super::{CallPurpose, Ccm};

pub(super) const JSON: &str = "application/json";
/// User agent by which the modelled ARM recognises its requests.
const AGENT: &str = "kubernetes-cloudprovider/model";

/// The running job.
#[derive(Debug)]
pub(super) struct Job {
    task: Task,
    stage: Stage,
    holds: bool,
    /// True if this job holds the lock longer than necessary.
    lingers: bool,
    /// Number of Azure responses after which the process crashes; at the latest, it crashes instead of unlocking.
    calls_until_crash: Option<u64>,
    result: Result<(), String>,
}

#[derive(Debug)]
enum Task {
    Service(Box<Reconcile>),
    /// `None` until the lock is held: without the lock, the queue is kept.
    Drain(Option<Drain>),
}

#[derive(Debug)]
enum Stage {
    Locking(Locking),
    Working(Operation),
    Lingering(u64),
    Unlocking(Unlocking),
}

impl Job {
    /// Returns the time at which the job continues without an event.
    pub(super) fn wakes(&self) -> Option<u64> {
        match &self.stage {
            Stage::Working(operation) => operation.sleeps_until,
            Stage::Lingering(until) => Some(*until),
            Stage::Locking(_) | Stage::Unlocking(_) => None,
        }
    }

    pub(super) fn holds_lock(&self) -> bool {
        self.holds
    }

    /// Returns whether the job creates or updates the resources of this Service.
    pub(super) fn makes(&self, service: &str) -> bool {
        match &self.task {
            Task::Service(reconcile) => match reconcile.purpose {
                Purpose::Ensure | Purpose::Update => reconcile.key == service,
                Purpose::Delete => false,
            },
            Task::Drain(_) => false,
        }
    }

    pub(super) fn writing(&self) -> Option<&str> {
        match &self.stage {
            Stage::Working(operation) => operation.writes(),
            Stage::Locking(_) | Stage::Lingering(_) | Stage::Unlocking(_) => None,
        }
    }
}

impl Task {
    /// Returns upstream's name for the job in errors.
    fn operation(&self) -> &'static str {
        match self {
            Self::Service(reconcile) => match reconcile.purpose {
                Purpose::Ensure => "EnsureLoadBalancer",
                Purpose::Update => "UpdateLoadBalancer",
                Purpose::Delete => "EnsureLoadBalancerDeleted",
            },
            Self::Drain(_) => "LocalServiceBackendPoolUpdater",
        }
    }
}

impl Ccm {
    /// Starts the next due job, if none is running.
    pub(super) fn start_next(&mut self, calls: &mut Vec<Call>) {
        while self.down_until.is_none() && self.job.is_none() {
            if self.settings.updater && self.next_tick <= self.now {
                // A late tick is followed immediately by one more tick, not by all missed ones.
                let every = self.settings.updater_interval_us.max(1);
                let missed = (self.now - self.next_tick) / every;
                self.next_tick += (missed.max(1)) * every;
                if !self.updater.is_empty() {
                    self.begin(Task::Drain(None), calls);
                }
                continue;
            }
            let Some((key, purpose)) = self.work.next() else { return };
            let Some(service) = self.facts.services.get(&key).cloned() else { continue };
            let placed = self.placed.get(&key);
            let purpose = match (service.leaves(), purpose) {
                (true, _) if placed.is_none() && service.gone => {
                    self.facts.services.remove(&key);
                    continue;
                }
                (true, _) if placed.is_none() && !service.has_finalizer() => continue,
                (true, _) => Purpose::Delete,
                (false, Purpose::Update) => Purpose::Update,
                (false, Purpose::Ensure | Purpose::Delete) => Purpose::Ensure,
            };
            match purpose {
                Purpose::Ensure => {
                    self.report(&service, false, "EnsuringLoadBalancer", "Ensuring load balancer", calls);
                }
                Purpose::Delete => {
                    self.report(&service, false, "DeletingLoadBalancer", "Deleting load balancer", calls);
                }
                Purpose::Update => {}
            }
            let reconcile = Reconcile::new(key.clone(), purpose, service, self.placed.get(&key));
            self.begin(Task::Service(Box::new(reconcile)), calls);
        }
    }

    fn begin(&mut self, task: Task, calls: &mut Vec<Call>) {
        let (locking, request) = Locking::begin();
        let stage = Stage::Locking(locking);
        self.job =
            Some(Job { task, stage, holds: false, lingers: false, calls_until_crash: None, result: Ok(()) });
        self.send_lease_request(request, calls);
    }

    /// Continues a job whose wait is over.
    pub(super) fn wake_job(&mut self, calls: &mut Vec<Call>) {
        let Some(mut job) = self.job.take_if(|job| job.wakes().is_some_and(|at| at <= self.now)) else {
            return;
        };
        match &mut job.stage {
            Stage::Working(operation) => {
                let turn = operation.awake(self.now, &mut self.gates, &mut self.random);
                self.turn(job, turn, calls);
            }
            Stage::Lingering(_) => self.unlock(job, calls),
            Stage::Locking(_) | Stage::Unlocking(_) => self.job = Some(job),
        }
    }

    pub(super) fn on_answer(&mut self, id: CallId, answer: &Answer, calls: &mut Vec<Call>) {
        match self.flights.remove(&id) {
            None => self.counters.late_answers += 1,
            Some(CallPurpose::Lock) => self.on_lease(answer, calls),
            Some(CallPurpose::Azure) => self.on_azure(answer, calls),
            Some(CallPurpose::Event(series)) => {
                if !answer.is_success() {
                    self.recorder.lost(&series);
                }
            }
            // A refused change is repeated with the node's next change, or at the next check.
            Some(CallPurpose::Taints) => {}
            Some(CallPurpose::Status(key) | CallPurpose::Finalizer(key)) => {
                if !answer.is_success() && answer.status() != 404 {
                    self.failed(&key, Purpose::Ensure, &answer.error_text(), calls);
                }
            }
        }
    }

    fn on_lease(&mut self, answer: &Answer, calls: &mut Vec<Call>) {
        let Some(mut job) = self.job.take() else { return };
        let wall = self.settings.wall_us(self.now);
        match job.stage {
            Stage::Locking(locking) => match locking.answered(&self.settings, wall, answer) {
                NextStep::LeaseRequest(next, request) => {
                    job.stage = Stage::Locking(next);
                    self.job = Some(job);
                    self.send_lease_request(request, calls);
                }
                NextStep::Done(Ok(caches)) => self.on_locked(job, caches, calls),
                NextStep::Done(Err(error_text)) => {
                    self.counters.lock_failures += 1;
                    let operation = job.task.operation();
                    job.result =
                        Err(format!("{operation} failed due to fail to lock azure resources: {error_text}"));
                    self.finish(job, calls);
                }
            },
            Stage::Unlocking(unlocking) => match unlocking.answered(&self.settings, wall, answer) {
                NextStep::LeaseRequest(next, request) => {
                    // From now on, another client can acquire the lock.
                    job.holds = false;
                    job.stage = Stage::Unlocking(next);
                    self.job = Some(job);
                    self.send_lease_request(request, calls);
                }
                NextStep::Done(end) => {
                    if let Err(error_text) = end {
                        let operation = job.task.operation();
                        let error_text = format!(
                            "{operation} failed due to fail to unlock azure resources in \
                             kube-system/{}: {error_text}",
                            self.settings.lease
                        );
                        job.result = match job.result {
                            Ok(()) => Err(error_text),
                            Err(first) => Err(format!("{first}; {error_text}")),
                        };
                    }
                    self.finish(job, calls);
                }
            },
            Stage::Working(_) | Stage::Lingering(_) => self.job = Some(job),
        }
    }

    fn on_locked(&mut self, mut job: Job, caches: Caches, calls: &mut Vec<Call>) {
        self.counters.holds += 1;
        match caches {
            Caches::Rebuild => {
                self.counters.cache_rebuilds += 1;
                self.cache.clear();
            }
            Caches::Keep => {}
        }
        job.holds = true;
        job.lingers = self.random.next_u64() % 1_000 < self.settings.linger_per_mille;
        let dies = self.random.next_u64() % 1_000 < self.settings.crash_per_mille;
        let after = self.random.next_u64() % 6;
        job.calls_until_crash = dies.then_some(after);
        match &mut job.task {
            Task::Drain(drain) => {
                self.counters.drains += 1;
                *drain = Some(self.updater.drain(&mut self.random));
            }
            Task::Service(reconcile) => match reconcile.purpose {
                // Half-created resources of a deleted Service must be cleaned up as well.
                Purpose::Ensure => {
                    let Reconcile { key, service, .. } = &**reconcile;
                    self.placed.entry(key.clone()).or_insert_with(|| service.balancer.clone());
                }
                Purpose::Update | Purpose::Delete => {}
            },
        }
        self.resume_task(job, None, calls);
    }

    fn on_azure(&mut self, answer: &Answer, calls: &mut Vec<Call>) {
        let Some(mut job) = self.job.take() else { return };
        if job.calls_until_crash == Some(0) {
            self.kill(self.settings.down_us);
            return;
        }
        job.calls_until_crash = job.calls_until_crash.map(|left| left - 1);
        match &mut job.stage {
            Stage::Working(operation) => {
                let turn = operation.answered(self.now, answer, &mut self.gates, &mut self.random);
                self.turn(job, turn, calls);
            }
            Stage::Locking(_) | Stage::Lingering(_) | Stage::Unlocking(_) => self.job = Some(job),
        }
    }

    fn turn(&mut self, job: Job, turn: Turn, calls: &mut Vec<Call>) {
        match turn {
            Turn::Send(http) => {
                self.job = Some(job);
                self.send_azure_request(http, calls);
            }
            Turn::Sleep(until) => {
                self.job = Some(job);
                if until <= self.now {
                    self.wake_job(calls);
                }
            }
            Turn::Done(outcome) => self.resume_task(job, Some(outcome), calls),
        }
    }

    /// Passes the outcome of the last action to the task, and starts the next action.
    fn resume_task(&mut self, mut job: Job, outcome: Option<Outcome>, calls: &mut Vec<Call>) {
        let mut context =
            Context { now: self.now, facts: &self.facts, settings: &self.settings, cache: &mut self.cache };
        let (next, reports) = match &mut job.task {
            Task::Service(reconcile) => (reconcile.resume(outcome, &mut context), Vec::new()),
            Task::Drain(Some(drain)) => {
                let next = drain.resume(outcome, &mut context);
                (next, std::mem::take(&mut drain.reports))
            }
            Task::Drain(None) => (Next::Done(Ok(())), Vec::new()),
        };
        self.record_reports(reports, calls);
        match next {
            Next::Do(action) => {
                let mut operation = Operation::new(action, self.now);
                self.counters.writes += u64::from(operation.writes().is_some());
                let turn = operation.awake(self.now, &mut self.gates, &mut self.random);
                job.stage = Stage::Working(operation);
                self.turn(job, turn, calls);
            }
            Next::Done(result) => {
                job.result = result;
                if job.result.is_ok() {
                    self.record_result(&mut job.task);
                }
                if job.lingers {
                    job.stage = Stage::Lingering(self.now.saturating_add(self.settings.linger_us));
                    self.job = Some(job);
                } else {
                    self.unlock(job, calls);
                }
            }
        }
    }

    fn record_reports(&mut self, reports: Vec<GroupReport>, calls: &mut Vec<Call>) {
        for report in reports {
            let (key, warning, reason, message) = match report {
                GroupReport::Updated(key) => {
                    let message = "Load balancer backend pool updated successfully".to_owned();
                    (key, false, "LoadBalancerBackendPoolUpdated", message)
                }
                GroupReport::Failed(key, error_text) => {
                    self.counters.dropped += 1;
                    (key, true, "LoadBalancerBackendPoolUpdateFailed", error_text)
                }
            };
            // A deleted Service gets no event.
            if let Some(service) = self.facts.services.get(&key).cloned() {
                let spec = EventSpec { source: Source::Provider, warning, reason, message };
                self.post(&service, spec, calls);
            }
        }
    }

    /// Updates the caches after a successful reconcile; still under the lock.
    fn record_result(&mut self, task: &mut Task) {
        match task {
            Task::Service(reconcile) => {
                let Reconcile { key, purpose, service, balancer, .. } = &mut **reconcile;
                match purpose {
                    Purpose::Ensure | Purpose::Update => {
                        let moved = self.placed.insert(key.clone(), service.balancer.clone());
                        if moved.is_some_and(|old| !old.eq_ignore_ascii_case(&service.balancer)) {
                            self.updater.forget_changes(key);
                        }
                        self.updater.reconciled(service, balancer, &self.facts);
                    }
                    Purpose::Delete => {
                        self.placed.remove(key);
                        self.updater.forget(key);
                    }
                }
            }
            Task::Drain(_) => {}
        }
    }

    fn unlock(&mut self, mut job: Job, calls: &mut Vec<Call>) {
        if job.calls_until_crash.is_some() {
            self.kill(self.settings.down_us);
            return;
        }
        let (unlocking, request) = Unlocking::begin();
        job.stage = Stage::Unlocking(unlocking);
        self.job = Some(job);
        self.send_lease_request(request, calls);
    }

    /// Ends a job after the lock is released, or if it was never acquired.
    fn finish(&mut self, job: Job, calls: &mut Vec<Call>) {
        let Job { task, result, .. } = job;
        let reconcile = match task {
            Task::Service(reconcile) => reconcile,
            // The updater ignores the result of its unlock.
            Task::Drain(_) => return,
        };
        let Reconcile { key, purpose, service, .. } = *reconcile;
        match result {
            Ok(()) => {
                self.counters.reconciled += 1;
                self.work.succeeded(&key);
                self.on_reconciled(&key, purpose, &service, calls);
            }
            Err(error_text) => {
                self.counters.failed += 1;
                self.failed(&key, purpose, &error_text, calls);
            }
        }
    }

    fn send_lease_request(&mut self, request: LeaseRequest, calls: &mut Vec<Call>) {
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases".to_owned();
        let path = if request.create { leases } else { format!("{leases}/{}", self.settings.lease) };
        let body = request.body.map(|body| (JSON, body));
        self.send_kubernetes_request(CallPurpose::Lock, request.verb, path, body, calls);
    }

    fn send_azure_request(&mut self, http: Http, calls: &mut Vec<Call>) {
        let Http { verb, path_and_query, if_match, body } = http;
        let mut headers = vec![("user-agent".to_owned(), AGENT.to_owned())];
        headers.extend(if_match.map(|tag| ("if-match".to_owned(), tag)));
        if body.is_some() {
            headers.push(("content-type".to_owned(), JSON.to_owned()));
        }
        let id = self.next_id(CallPurpose::Azure);
        calls.push(Call { id, side: CallTarget::Arm, verb, path_and_query, headers, body });
    }

    pub(super) fn send_kubernetes_request(
        &mut self,
        flight: CallPurpose,
        verb: Verb,
        path_and_query: String,
        body: Option<(&str, Value)>,
        calls: &mut Vec<Call>,
    ) {
        if self.down_until.is_some() {
            return;
        }
        let id = self.next_id(flight);
        let (content, body) = body.unzip();
        let headers = content.into_iter().map(|kind| ("content-type".to_owned(), kind.to_owned())).collect();
        calls.push(Call { id, side: CallTarget::Kubernetes, verb, path_and_query, headers, body });
    }

    fn next_id(&mut self, flight: CallPurpose) -> CallId {
        self.calls += 1;
        let id = CallId(self.calls);
        self.flights.insert(id, flight);
        id
    }
}
