//! A small ARM for the writer's tests: pools, one entity tag per load balancer, and operations that take time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use model::arm::{
    AdminState, ArmAnswer, ArmRequest, Document, Edit, Entry, Failure, FailureKind, LbFacts, OperationState,
    PoolFacts, PoolRead, Provisioning, PutAccepted, RetryAfter,
};
use model::ids::{
    Etag, Family, LbName, NetworkId, Operation, PoolId, PoolName, RulePrefix, ServiceKey, ServiceUid,
};
use model::machine::Now;
use pool_testing::facts::pool_at_rest;

/// Returns the address with this last byte.
pub(crate) fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

/// Returns an entry of a pool.
pub(crate) fn entry(name: &str, address: Option<IpAddr>) -> Entry {
    Entry { name: Arc::from(name), ip: address, admin_state: AdminState::None, network: None, instance: None }
}

/// Returns the Service that owns a pool of this name.
pub(crate) fn owner(pool: &PoolId) -> (ServiceUid, ServiceKey) {
    let name = pool.pool.as_str();
    (
        ServiceUid::new(format!("uid-{}-{name}", pool.lb)),
        ServiceKey::new("shop", name.trim_start_matches("shop-")),
    )
}

/// Returns a failure with a status.
pub(crate) fn failed(status: u16, code: &str, retry_after: RetryAfter) -> Arc<Failure> {
    failure(FailureKind::Status(status), code, retry_after)
}

/// Returns a failure of this kind.
pub(crate) fn failure(kind: FailureKind, code: &str, retry_after: RetryAfter) -> Arc<Failure> {
    Arc::new(Failure {
        kind,
        code: (!code.is_empty()).then(|| Arc::from(code)),
        inner_codes: Vec::new(),
        message: Arc::from(""),
        retry_after,
        correlation_id: None,
    })
}

/// Returns the entries that a PUT of this edit would leave in the document.
pub(crate) fn apply(entries: &[Entry], edit: &Edit) -> Vec<Entry> {
    let kept = entries.iter().enumerate().filter(|(at, _)| !edit.remove.contains(at)).map(|(at, entry)| {
        let mut entry = entry.clone();
        if let Some(state) = edit.set_admin.get(&at) {
            entry.admin_state = *state;
        }
        entry
    });
    let added = edit.add.iter().map(|new| Entry {
        name: new.name.shared(),
        ip: Some(new.ip),
        admin_state: new.admin_state.unwrap_or(AdminState::None),
        network: new.network.clone(),
        instance: None,
    });
    kept.chain(added).collect()
}

/// Returns a pool with its own Service. The name of the pool proves ownership.
pub(crate) fn owned_pool(id: &PoolId, entries: Vec<Entry>) -> PoolFacts {
    let (uid, key) = owner(id);
    assert_eq!(key.pool_name(Family::V4), id.pool);
    PoolFacts {
        rules: vec![Arc::from(format!("{}-TCP-80", RulePrefix::of(&uid).as_str()))],
        network: Some(NetworkId::new("vnet")),
        ..pool_at_rest(id.clone(), entries)
    }
}

/// The end of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It is carried out.
    Done,
    /// It is reported as done and was not carried out.
    Lost,
    /// It fails with a conflict.
    Failed,
}

#[derive(Clone, Debug)]
struct Running {
    id: u64,
    pool: PoolName,
    entries: Vec<Entry>,
    ends: Now,
    fate: Fate,
    ours: bool,
}

/// A load balancer: its pools, their common tag, and its operation.
#[derive(Clone, Debug)]
pub(crate) struct FakeLb {
    tag: u64,
    pub pools: BTreeMap<PoolName, PoolFacts>,
    running: Option<Running>,
    ended: BTreeMap<u64, Fate>,
}

/// The small ARM.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeArm {
    pub lbs: BTreeMap<LbName, FakeLb>,
    operations: u64,
    /// Duration of the next operations. Zero: they end immediately.
    pub lasts: Duration,
    /// End of the next operations.
    pub fate: Option<Fate>,
    /// True if the next answers to a PUT name no operation.
    pub mute: bool,
}

impl FakeArm {
    /// Adds an owned pool.
    pub(crate) fn add(&mut self, id: &PoolId, entries: Vec<Entry>) {
        let lb = self.lbs.entry(id.lb.clone()).or_insert_with(|| FakeLb {
            tag: 1,
            pools: BTreeMap::new(),
            running: None,
            ended: BTreeMap::new(),
        });
        lb.pools.insert(id.pool.clone(), owned_pool(id, entries));
    }

    /// Returns whether an operation of the controller runs on a load balancer.
    pub(crate) fn runs_ours(&self, lb: &LbName) -> bool {
        self.lbs[lb].running.as_ref().is_some_and(|running| running.ours)
    }

    /// Returns the time at which the next operation ends.
    pub(crate) fn next_end(&self) -> Option<Now> {
        self.lbs.values().filter_map(|lb| lb.running.as_ref().map(|running| running.ends)).min()
    }

    /// Ends the operations whose time has passed.
    pub(crate) fn advance(&mut self, now: Now) {
        for lb in self.lbs.values_mut() {
            if let Some(running) = lb.running.take_if(|running| running.ends <= now) {
                lb.finish(running);
            }
        }
    }

    /// Writes a pool as another client, or begins to. The write supersedes the current operation.
    pub(crate) fn foreign_write(&mut self, now: Now, id: &PoolId, entries: Vec<Entry>, lasts: Duration) {
        self.write(now, id, entries, lasts, false);
    }

    /// Writes a pool as another process of the controller, or begins to, if no operation runs.
    pub(crate) fn predecessor_write(&mut self, now: Now, id: &PoolId, entries: Vec<Entry>, lasts: Duration) {
        if self.lbs[&id.lb].running.is_none() {
            self.write(now, id, entries, lasts, true);
        }
    }

    fn write(&mut self, now: Now, id: &PoolId, entries: Vec<Entry>, lasts: Duration, ours: bool) {
        self.operations += 1;
        let number = self.operations;
        let lb = self.lbs.get_mut(&id.lb).expect("the load balancer exists");
        if let Some(old) = lb.running.take() {
            lb.ended.insert(old.id, Fate::Failed);
        }
        lb.tag += 1;
        lb.running = Some(Running {
            id: number,
            pool: id.pool.clone(),
            entries,
            ends: now.plus(lasts),
            fate: Fate::Done,
            ours,
        });
        self.advance(now);
    }

    /// Answers a request as ARM would at this time.
    pub(crate) fn handle(&mut self, now: Now, request: &ArmRequest) -> ArmAnswer {
        self.advance(now);
        match request {
            ArmRequest::GetLoadBalancer(lb) => match self.lbs.get(lb) {
                None => ArmAnswer::Failed(failed(404, "ResourceNotFound", RetryAfter::Absent)),
                Some(found) => ArmAnswer::LoadBalancer(Arc::new(LbFacts {
                    lb: lb.clone(),
                    etag: Some(found.etag()),
                    guid: None,
                    provisioning: found.provisioning(),
                    pools: found.pools.values().map(|pool| Arc::new(found.facts(pool))).collect(),
                    rules: Vec::new(),
                })),
            },
            ArmRequest::GetPool(id) => {
                let found = self.lbs.get(&id.lb).and_then(|lb| Some((lb, lb.pools.get(&id.pool)?)));
                match found {
                    None => ArmAnswer::Failed(failed(404, "NotFound", RetryAfter::Absent)),
                    Some((lb, pool)) => ArmAnswer::Pool(lb.read(pool)),
                }
            }
            ArmRequest::PutPool { pool, base, edit, if_match, .. } => {
                self.put(now, pool, base, edit, if_match.as_ref())
            }
            ArmRequest::Poll(operation) => self.poll(operation),
        }
    }

    fn put(
        &mut self,
        now: Now,
        id: &PoolId,
        base: &Document,
        edit: &Edit,
        if_match: Option<&Etag>,
    ) -> ArmAnswer {
        let (lasts, fate, mute) = (self.lasts, self.fate.unwrap_or(Fate::Done), self.mute);
        let Some(lb) = self.lbs.get_mut(&id.lb).filter(|lb| lb.pools.contains_key(&id.pool)) else {
            return ArmAnswer::Failed(failed(404, "NotFound", RetryAfter::Absent));
        };
        if lb.running.is_some() {
            let header = RetryAfter::In(Duration::from_secs(2));
            return ArmAnswer::Failed(failed(429, "RetryableError", header));
        }
        if if_match.is_some_and(|tag| *tag != lb.etag()) {
            return ArmAnswer::Failed(failed(412, "PreconditionFailed", RetryAfter::Absent));
        }
        self.operations += 1;
        lb.tag += 1;
        let before: &Vec<Entry> = base.get().expect("the document is ours");
        let running = Running {
            id: self.operations,
            pool: id.pool.clone(),
            entries: apply(before, edit),
            ends: now.plus(lasts),
            fate,
            ours: true,
        };
        let operation = Operation::new(format!("https://arm/{}/operations/{}", id.lb, running.id));
        if lasts.is_zero() {
            lb.finish(running);
        } else {
            lb.running = Some(running);
        }
        ArmAnswer::Put(PutAccepted {
            provisioning: lb.provisioning(),
            operation: (!mute).then_some(operation),
            retry_after: RetryAfter::Absent,
            etag: Some(lb.etag()),
            correlation_id: None,
        })
    }

    fn poll(&self, operation: &Operation) -> ArmAnswer {
        let mut parts = operation.as_str().rsplit('/');
        let number: Option<u64> = parts.next().and_then(|number| number.parse().ok());
        let lb = parts.nth(1).and_then(|name| self.lbs.get(&LbName::new(name)));
        let (Some(number), Some(lb)) = (number, lb) else {
            return ArmAnswer::Failed(failed(404, "NotFound", RetryAfter::Absent));
        };
        ArmAnswer::Operation(match lb.ended.get(&number) {
            None => OperationState::Running { retry_after: RetryAfter::Absent },
            Some(Fate::Done | Fate::Lost) => OperationState::Succeeded,
            Some(Fate::Failed) => {
                let code = "AnotherOperationInProgress";
                OperationState::Failed(failure(FailureKind::Operation, code, RetryAfter::Absent))
            }
        })
    }

    /// Returns the entries of a pool.
    pub(crate) fn entries(&self, id: &PoolId) -> &[Entry] {
        &self.lbs[&id.lb].pools[&id.pool].entries
    }
}

impl FakeLb {
    fn etag(&self) -> Etag {
        Etag::new(format!("W/\"{}\"", self.tag))
    }

    /// Returns the provisioning state of the load balancer, which shows any operation.
    fn provisioning(&self) -> Provisioning {
        if self.running.is_some() { Provisioning::Updating } else { Provisioning::Succeeded }
    }

    /// Returns the facts about a pool, which shows only operations on itself.
    fn facts(&self, pool: &PoolFacts) -> PoolFacts {
        let updating = self.running.as_ref().is_some_and(|running| running.pool == pool.id.pool);
        let provisioning = if updating { Provisioning::Updating } else { Provisioning::Succeeded };
        PoolFacts { etag: Some(self.etag()), provisioning, ..pool.clone() }
    }

    fn finish(&mut self, running: Running) {
        if running.fate == Fate::Done
            && let Some(pool) = self.pools.get_mut(&running.pool)
        {
            pool.entries = running.entries;
        }
        self.ended.insert(running.id, running.fate);
    }

    fn read(&self, pool: &PoolFacts) -> PoolRead {
        let facts = self.facts(pool);
        let document = Document::new(facts.entries.clone());
        PoolRead { facts: Arc::new(facts), document, etag: Some(self.etag()) }
    }
}
