//! One Ensure, Update or Delete of a Service: the next action on Azure, and the effect of its outcome.
//!
//! `job` locks before, unlocks after, and writes to Kubernetes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::facts::{Facts, Key, Service};
use super::operation::{Action, Client, Outcome};
use super::settings::Settings;
use super::{balancer, pool};
use crate::kube::build::Family;

/// Reason for a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// The nodes changed.
    Update,
    /// The Service changed, or a retry is due.
    Ensure,
    /// The Service is removed.
    Delete,
}

/// Next step.
#[derive(Debug)]
pub(super) enum Next {
    Do(Action),
    Done(Result<(), String>),
}

/// Recently read load balancers, by name, each with the time of its read.
pub(super) type Cache = BTreeMap<String, (u64, Value)>;

/// Context of a program.
pub(super) struct Context<'a> {
    pub(super) now: u64,
    pub(super) facts: &'a Facts,
    pub(super) settings: &'a Settings,
    pub(super) cache: &'a mut Cache,
}

/// One reconcile.
#[derive(Debug)]
pub(super) struct Reconcile {
    /// Key of its Service in the facts and in the queue.
    pub(super) key: Key,
    pub(super) purpose: Purpose,
    pub(super) service: Service,
    /// Load balancers from which the Service must be removed.
    leave: Vec<String>,
    /// Current load balancer.
    name: String,
    /// Its known state; the pools as last written.
    pub(super) balancer: Value,
    state: State,
}

#[derive(Debug)]
enum State {
    Begin,
    Reading,
    Writing,
    Refreshing,
    Filling { left: Vec<Family> },
    Dropping { left: Vec<String> },
}

impl Reconcile {
    /// Creates a reconcile. `placed` is the load balancer with the Service's rules, as far as is known.
    pub(super) fn new(key: Key, purpose: Purpose, service: Service, placed: Option<&String>) -> Self {
        let here = service.balancer.clone();
        let mut leave: Vec<String> =
            placed.filter(|name| !name.eq_ignore_ascii_case(&here)).cloned().into_iter().collect();
        match purpose {
            Purpose::Delete => leave.push(here),
            Purpose::Ensure | Purpose::Update => {}
        }
        let name = String::new();
        Self { key, purpose, service, leave, name, balancer: Value::Null, state: State::Begin }
    }

    /// Returns whether the reconcile removes the Service from `name` instead of adding it.
    fn leaves(&self) -> bool {
        self.service.leaves() || !self.name.eq_ignore_ascii_case(&self.service.balancer)
    }

    pub(super) fn resume(&mut self, outcome: Option<Outcome>, context: &mut Context) -> Next {
        let body = match outcome {
            None => Ok(Value::Null),
            Some(Ok(body)) => Ok(body),
            Some(Err(failure)) => Err(failure),
        };
        match (std::mem::replace(&mut self.state, State::Begin), body) {
            (State::Begin, _) => self.next_balancer(context),
            (State::Reading | State::Refreshing, Ok(body)) => {
                context.cache.insert(self.name.to_lowercase(), (context.now, body.clone()));
                self.read(body, context)
            }
            (State::Reading, Err(failure)) if failure.status == 404 => {
                if self.leaves() {
                    return self.next_balancer(context);
                }
                self.read(balancer::fresh(context.settings, &self.name), context)
            }
            (State::Writing, Ok(_)) => {
                self.forget(context);
                if self.leaves() {
                    return self.drop_pools(context);
                }
                self.state = State::Refreshing;
                Next::Do(Action::get(Client::Balancers, context.settings.balancer(&self.name)))
            }
            (State::Filling { left }, Ok(_)) => {
                self.forget(context);
                self.fill(left, context)
            }
            (State::Dropping { left }, Ok(_)) => {
                self.forget(context);
                self.drop_next(left, context)
            }
            (
                State::Reading
                | State::Writing
                | State::Refreshing
                | State::Filling { .. }
                | State::Dropping { .. },
                Err(failure),
            ) => {
                self.forget(context);
                Next::Done(Err(failure.error_text))
            }
        }
    }

    fn forget(&self, context: &mut Context) {
        context.cache.remove(&self.name.to_lowercase());
    }

    fn next_balancer(&mut self, context: &mut Context) -> Next {
        self.name = match (self.leave.is_empty(), self.purpose) {
            (false, _) => self.leave.remove(0),
            (true, Purpose::Ensure | Purpose::Update)
                if !self.name.eq_ignore_ascii_case(&self.service.balancer) =>
            {
                self.service.balancer.clone()
            }
            (true, Purpose::Ensure | Purpose::Update | Purpose::Delete) => return Next::Done(Ok(())),
        };
        let lifetime = context.settings.cache_us;
        let cached = context.cache.get(&self.name.to_lowercase());
        match cached.filter(|(read, _)| context.now < read.saturating_add(lifetime)) {
            Some((_, body)) => {
                let body = body.clone();
                self.read(body, context)
            }
            None => {
                self.state = State::Reading;
                Next::Do(Action::get(Client::Balancers, context.settings.balancer(&self.name)))
            }
        }
    }

    fn read(&mut self, body: Value, context: &mut Context) -> Next {
        self.balancer = body;
        let dirty = if self.leaves() {
            balancer::unwire(&mut self.balancer, &self.service)
        } else {
            balancer::wire(&mut self.balancer, &self.service, context.settings)
        };
        match (dirty, self.leaves()) {
            (true, _) => {
                let mut body = self.balancer.clone();
                if context.settings.drops_unknown_fields {
                    balancer::keep_known(&mut body);
                }
                self.state = State::Writing;
                Next::Do(Action::put_balancer(context.settings.balancer(&self.name), body))
            }
            (false, true) => self.drop_pools(context),
            (false, false) => self.fill(self.service.families.clone(), context),
        }
    }

    /// Runs EnsureHostsInPool for one family after the other.
    fn fill(&mut self, mut left: Vec<Family>, context: &mut Context) -> Next {
        let hosts = if self.service.local { context.facts.hosts(&self.service.key()) } else { None };
        while let Some(family) = left.pop() {
            let name = self.service.pool(family, &context.settings.cluster_name);
            let Some(found) = balancer::pool(&mut self.balancer, &name) else { continue };
            if pool::is_filled_by_interfaces(found) {
                continue;
            }
            let network = &context.settings.network;
            if pool::ensure_hosts(found, context.facts, family, hosts.as_ref(), network) {
                let mut body = found.clone();
                if context.settings.drops_unknown_fields {
                    pool::keep_known_fields(&mut body);
                }
                self.state = State::Filling { left };
                return Next::Do(Action::put_pool(context.settings.pool(&self.name, &name), body));
            }
        }
        if self.service.local { Next::Done(Ok(())) } else { self.drop_pools(context) }
    }

    /// Deletes the Service's own pools that no rule uses any more.
    fn drop_pools(&mut self, context: &mut Context) -> Next {
        let own = [Family::V4, Family::V6].map(|family| self.service.own_pool(family));
        self.drop_next(balancer::unused_pools(&self.balancer, &own), context)
    }

    fn drop_next(&mut self, mut left: Vec<String>, context: &mut Context) -> Next {
        match left.pop() {
            Some(name) => {
                self.state = State::Dropping { left };
                Next::Do(Action::delete_pool(context.settings.pool(&self.name, &name)))
            }
            None => self.next_balancer(context),
        }
    }
}
