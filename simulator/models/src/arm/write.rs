//! PUT and DELETE of a pool. `lock` decides which write may proceed, and how operations end.

use super::answer::Answer;
use super::durations::TimedWrite;
use super::lock::Start;
use super::operation::{self, Effect, End, Operation, OperationName, Running};
use super::random::Guid;
use super::render::{self, PoolView, State};
use super::resource_type::Provider;
use super::settings::{Latency, OperationFailure, UnfinishedWrite, Visibility};
use super::store::{Content, LastWrite, LoadBalancer, Pool, Sku, key};
use super::validate::Checked;
use super::{ArmModel, Call};

/// A planned unsuccessful end of an operation: kind, error code, error message.
pub(super) type PlannedFailure = Option<(OperationFailure, String, String)>;

/// One write of a pool, after all checks.
pub(super) struct PoolWrite<'a> {
    pub(super) load_balancer: &'a str,
    pub(super) pool: &'a str,
    pub(super) content: Content,
    pub(super) now: u64,
    pub(super) answered_at: u64,
    pub(super) planned_failure: PlannedFailure,
    pub(super) api_version: &'a str,
    /// True if another client writes.
    pub(super) foreign: bool,
}

impl ArmModel {
    pub(super) fn put_pool(
        &mut self,
        call: &Call,
        lb_name: &str,
        pool: &str,
        planned_failure: PlannedFailure,
    ) -> Answer {
        let lb_key = key(lb_name);
        let Some(lb) = self.balancers.get(&lb_key) else {
            return parent_not_found(lb_name);
        };
        let client_request_id = call.request.header("x-ms-client-request-id");
        if let Some(answer) = client_request_id.and_then(|id| lb.remembered(id)) {
            self.journal.counters.replayed += 1;
            return answer.clone();
        }
        let existing = lb.pools.get(&key(pool));
        let id = pool_id(lb, existing.map_or(pool, |pool| &pool.name));
        if let Some(given) = self.mismatched_etag(call, lb, existing.is_some()) {
            self.journal.counters.etag_mismatches += 1;
            return Answer::etag_mismatch(&given, lb.etag, &id);
        }
        let checked = Checked { pool_name: pool, pool_id: &id, existing, settings: &self.settings };
        let content = match checked.read(&call.request.body) {
            Ok(content) => content,
            Err(refusal) => return refusal,
        };
        if lb.sku == Sku::Basic && content.addresses.iter().any(|one| one.text("ipAddress").is_some()) {
            return super::frontend::ip_members_on_basic(&lb.id);
        }
        let answer = self.write_pool(PoolWrite {
            load_balancer: &lb_key,
            pool,
            content,
            now: call.now,
            answered_at: call.answered_at,
            planned_failure,
            api_version: call.target.query("api-version").unwrap_or_default(),
            foreign: call.is_foreign(),
        });
        let accepted = client_request_id.filter(|_| answer.status < 300);
        if let Some((id, lb)) = accepted.zip(self.balancers.get_mut(&lb_key)) {
            lb.remember(id, answer.clone());
        }
        answer
    }

    pub(super) fn delete_pool(
        &mut self,
        call: &Call,
        lb: &str,
        pool: &str,
        planned_failure: PlannedFailure,
    ) -> Answer {
        let (lb_key, pool_key) = (key(lb), key(pool));
        let Some(found) = self.balancers.get(&lb_key) else {
            return parent_not_found(lb);
        };
        let Some(existing) = found.pools.get(&pool_key) else {
            return Answer::empty(204);
        };
        if let Some(given) = self.mismatched_etag(call, found, true) {
            self.journal.counters.etag_mismatches += 1;
            return Answer::etag_mismatch(&given, found.etag, &pool_id(found, pool));
        }
        if let Some(rule) = existing.rules.first() {
            let (pool, rule) =
                (pool_id(found, pool), render::child_id(&found.id, "loadBalancingRules", rule));
            let message = format!("Resource {pool} referenced by resource {rule} was not found.");
            return Answer::provider(400, "InvalidResourceReference", &message);
        }
        let id = self.identities.guid();
        if let Err(refusal) = self.claim(&lb_key, (OperationName::DeletePool, id), call.now) {
            return refusal;
        }
        self.journal.counters.applied += 1;
        let etag = self.identities.guid();
        let Some(lb) = self.balancers.get_mut(&lb_key) else {
            return parent_not_found(lb);
        };
        lb.etag = etag;
        let Some(duration) = self.settings.time_of(TimedWrite::LoadBalancer(lb.sku)) else {
            lb.pools.remove(&pool_key);
            lb.busy_until = call.answered_at;
            return Answer::empty(200);
        };
        let running = Running {
            id,
            name: OperationName::DeletePool,
            pool: Some(pool_key),
            on_success: Effect::Vanish,
            on_abort: Effect::Nothing,
        };
        let ends_at = self.operation_end(call.answered_at, duration);
        self.start(Start { load_balancer: &lb_key, id, running, ends_at, planned_failure }, call.now);
        let version = call.target.query("api-version").unwrap_or_default();
        let location = self.operation_url(Provider::Network, "operationResults", id, version);
        self.asynchronous(Answer::empty(202), id, version).with("Location", location)
    }

    /// Writes a pool that has passed all checks of its request.
    pub(super) fn write_pool(&mut self, write: PoolWrite) -> Answer {
        let pool_key = key(write.pool);
        let Some(lb) = self.balancers.get(write.load_balancer) else {
            return parent_not_found(write.load_balancer);
        };
        if is_there(lb, &pool_key, &write.content) {
            self.journal.counters.unchanged += 1;
            return self.unchanged(&write, &pool_key);
        }
        let id = self.identities.guid();
        if let Err(refusal) = self.claim(write.load_balancer, (OperationName::PutPool, id), write.now) {
            return refusal;
        }
        self.journal.counters.applied += 1;
        let etag = self.identities.guid();
        let Some(lb) = self.balancers.get_mut(write.load_balancer) else {
            return parent_not_found(write.load_balancer);
        };
        lb.etag = etag;
        let created = !lb.pools.contains_key(&pool_key);
        let pool =
            lb.pools.entry(pool_key.clone()).or_insert_with(|| Pool::new(write.pool, Content::default()));
        let lost = pool.content.addresses != write.content.addresses
            && self.outcomes.chance(self.settings.silent_loss);
        self.journal.counters.silently_lost += u64::from(lost);
        let duration = self.settings.time_of(TimedWrite::LoadBalancer(lb.sku));
        let taken = if write.foreign && !lost { omitted(&pool.content, &write.content) } else { Vec::new() };
        self.journal.record_taken(write.load_balancer, &pool_key, taken);
        match duration {
            None => self.apply_at_once(write, &pool_key, created, lost),
            Some(duration) => self.apply_by_operation(write, &pool_key, created, lost, (id, duration)),
        }
    }

    fn apply_at_once(&mut self, write: PoolWrite, pool_key: &str, created: bool, lost: bool) -> Answer {
        let status = if created { 201 } else { 200 };
        let body = self.pool_body(write.load_balancer, pool_key, &write.content, State::Succeeded);
        if let Some(lb) = self.balancers.get_mut(write.load_balancer) {
            lb.busy_until = write.answered_at;
            lb.last_write = LastWrite::Succeeded;
            if let Some(pool) = lb.pools.get_mut(pool_key).filter(|_| !lost) {
                pool.content = write.content;
                pool.last_write = LastWrite::Succeeded;
            }
        }
        Answer::json(status, body)
    }

    fn apply_by_operation(
        &mut self,
        write: PoolWrite,
        pool_key: &str,
        created: bool,
        lost: bool,
        (id, duration): (Guid, Latency),
    ) -> Answer {
        let status = if created { 201 } else { self.settings.update_status };
        let write_stays = match self.settings.unfinished_write {
            UnfinishedWrite::Kept => true,
            UnfinishedWrite::Reverted => false,
        };
        let goal = write.content;
        let Some(lb) = self.balancers.get_mut(write.load_balancer) else {
            return parent_not_found(write.load_balancer);
        };
        let Some(pool) = lb.pools.get_mut(pool_key) else {
            return Answer::not_found(write.pool);
        };
        let (on_success, on_abort) = match self.settings.visibility {
            Visibility::AtOnce => {
                let before = Box::new(std::mem::replace(&mut pool.content, goal.clone()));
                let success = if lost { Effect::Become(before.clone()) } else { Effect::Nothing };
                let abort = if write_stays {
                    Effect::Nothing
                } else if created {
                    Effect::Vanish
                } else {
                    Effect::Become(before)
                };
                (success, abort)
            }
            Visibility::AtEnd => {
                let success = if lost { Effect::Nothing } else { Effect::Become(Box::new(goal.clone())) };
                let abort = if write_stays {
                    Effect::Become(Box::new(goal.clone()))
                } else if created {
                    Effect::Vanish
                } else {
                    Effect::Nothing
                };
                (success, abort)
            }
        };
        let pool = Some(pool_key.to_owned());
        let running = Running { id, name: OperationName::PutPool, pool, on_success, on_abort };
        let ends_at = self.operation_end(write.answered_at, duration);
        let load_balancer = write.load_balancer;
        self.start(
            Start { load_balancer, id, running, ends_at, planned_failure: write.planned_failure },
            write.now,
        );
        let body = self.pool_body(load_balancer, pool_key, &goal, State::Updating);
        self.asynchronous(Answer::json(status, body), id, write.api_version)
    }

    /// Returns the answer to a PUT of the current state: success, with the URL of an operation.
    fn unchanged(&mut self, write: &PoolWrite, pool_key: &str) -> Answer {
        let body = self.pool_body(write.load_balancer, pool_key, &write.content, State::Succeeded);
        let answer = Answer::json(200, body);
        if self.settings.time_of(TimedWrite::LoadBalancer(Sku::Standard)).is_none() {
            return answer;
        }
        self.with_ended_operation(
            answer,
            write.load_balancer,
            Provider::Network,
            (write.now, write.api_version),
        )
    }

    /// Adds the URL of an operation that has ended already, as Azure does for a write that changes nothing.
    pub(super) fn with_ended_operation(
        &mut self,
        answer: Answer,
        owner: &str,
        provider: Provider,
        (now, api_version): (u64, &str),
    ) -> Answer {
        let id = self.identities.guid();
        let operation = Operation {
            owner: owner.to_owned(),
            provider,
            ends_at: now,
            planned: End::Succeeded,
            ended: Some(End::Succeeded),
        };
        self.operations.start(id, operation, now);
        self.asynchronous_of(provider, answer, id, api_version)
    }

    pub(super) fn asynchronous(&self, answer: Answer, id: Guid, api_version: &str) -> Answer {
        self.asynchronous_of(Provider::Network, answer, id, api_version)
    }

    pub(super) fn asynchronous_of(
        &self,
        provider: Provider,
        mut answer: Answer,
        id: Guid,
        api_version: &str,
    ) -> Answer {
        answer.operation = Some(id);
        let url = self.operation_url(provider, "operations", id, api_version);
        let answer = answer.with("Azure-AsyncOperation", url).with("Azure-AsyncNotification", "Enabled");
        match self.settings.operation_retry_after_s {
            Some(seconds) => answer.with("Retry-After", seconds.to_string()),
            None => answer,
        }
    }

    pub(super) fn operation_url(
        &self,
        provider: Provider,
        kind: &str,
        id: Guid,
        api_version: &str,
    ) -> String {
        let super::Settings { endpoint, subscription, location, seed, .. } = &self.settings;
        let query = operation::signed_query(*seed, id, api_version);
        let provider = format!("providers/{}/locations", provider.name());
        format!("{endpoint}/subscriptions/{subscription}/{provider}/{location}/{kind}/{id}?{query}")
    }

    fn pool_body(&self, lb_key: &str, pool_key: &str, content: &Content, state: State) -> Vec<u8> {
        let lb = self.balancers.get(lb_key);
        let found = lb.and_then(|lb| lb.pools.get(pool_key).map(|pool| (lb, pool)));
        let settings = &self.settings;
        found.map_or_else(Vec::new, |(lb, pool)| {
            render::text(&PoolView { lb, pool, content, state, settings })
        })
    }

    /// Returns the normalised `If-Match` of a request, if it does not match.
    pub(super) fn mismatched_etag(&self, call: &Call, lb: &LoadBalancer, exists: bool) -> Option<String> {
        let given = call.request.header("If-Match").filter(|_| self.settings.enforce_if_match)?.trim();
        if given == "*" && exists {
            return None;
        }
        let given = if given.starts_with("W/") {
            given.to_owned()
        } else {
            format!("W/\"{}\"", given.trim_matches('"'))
        };
        (!exists || given != format!("W/\"{}\"", lb.etag)).then_some(given)
    }
}

/// Returns whether a write would change nothing. While an operation writes the pool, every write is a change, and so
/// is one after a failed operation on the load balancer.
fn is_there(lb: &LoadBalancer, pool_key: &str, content: &Content) -> bool {
    let being_written = lb.running.as_ref().is_some_and(|running| running.pool.as_deref() == Some(pool_key));
    let at_rest = !being_written && lb.last_write == LastWrite::Succeeded;
    let pool = lb.pools.get(pool_key).filter(|_| at_rest);
    pool.is_some_and(|pool| pool.last_write == LastWrite::Succeeded && pool.content == *content)
}

/// Returns the IPs that are in `before` and not in `after`.
fn omitted(before: &Content, after: &Content) -> Vec<String> {
    let stays = |ip: &str| after.addresses.iter().any(|address| address.text("ipAddress") == Some(ip));
    let ips = before.addresses.iter().filter_map(|address| address.text("ipAddress"));
    ips.filter(|ip| !stays(ip)).map(str::to_owned).collect()
}

fn pool_id(lb: &LoadBalancer, pool: &str) -> String {
    render::child_id(&lb.id, "backendAddressPools", pool)
}

pub(super) fn parent_not_found(name: &str) -> Answer {
    let message = format!(
        "Can not perform requested operation on nested resource. Parent resource '{name}' not found."
    );
    Answer::gateway(404, "ParentResourceNotFound", &message)
}
