//! Asynchronous operations: their state, their end, and their signed poll URL.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use super::path::Target;
use super::random::{Guid, Random};
use super::resource_type::Provider;
use super::store::{Content, LoadBalancerContent};

/// Time for which an ended operation can still be polled, in microseconds (one hour).
const KEPT_US: u64 = 3_600 * 1_000_000;
/// Length of the certificate parameter of a poll URL; Azure's are of this order.
const CERTIFICATE_LENGTH: usize = 480;

/// Name of an operation in error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationName {
    PutPool,
    DeletePool,
    PutLoadBalancer,
    DeleteLoadBalancer,
}

impl OperationName {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::PutPool => "PutLoadBalancerBackendAddressPoolOperation",
            Self::DeletePool => "DeleteLoadBalancerBackendAddressPoolOperation",
            Self::PutLoadBalancer => "PutLoadBalancerOperation",
            Self::DeleteLoadBalancer => "DeleteLoadBalancerOperation",
        }
    }
}

/// The operation on a load balancer, and the effect of its end.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) id: Guid,
    pub(crate) name: OperationName,
    /// Key of the pool that the operation writes; `None` if it writes the load balancer itself.
    pub(crate) pool: Option<String>,
    pub(crate) on_success: Effect,
    pub(crate) on_abort: Effect,
}

/// Effect of the end of an operation on its pool or on the whole load balancer.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Nothing,
    Become(Box<Content>),
    Vanish,
    Replace(Box<LoadBalancerContent>),
}

/// The end of an operation, as its poll shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Succeeded,
    Failed { code: String, message: String },
    Canceled { code: String, message: String },
}

/// The record of one operation, which is kept after the operation ends.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// Key of the load balancer, or key of the resource's id, which begins with a slash.
    pub(crate) owner: String,
    /// Provider: the compute provider's polls return more.
    pub(crate) provider: Provider,
    pub(crate) ends_at: u64,
    /// End of the operation, unless another write interferes.
    pub(crate) planned: End,
    pub(crate) ended: Option<End>,
}

/// All operations that can be polled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Operations {
    records: BTreeMap<Guid, Operation>,
    due: BTreeSet<(u64, Guid)>,
    oldest_first: VecDeque<(u64, Guid)>,
}

impl Operations {
    pub(crate) fn get(&self, id: Guid) -> Option<&Operation> {
        self.records.get(&id)
    }

    pub(crate) fn start(&mut self, id: Guid, operation: Operation, now: u64) {
        while self.oldest_first.front().is_some_and(|(at, _)| at.saturating_add(KEPT_US) < now) {
            if let Some((_, old)) = self.oldest_first.pop_front() {
                self.records.remove(&old);
            }
        }
        if operation.ended.is_none() {
            self.due.insert((operation.ends_at, id));
        }
        self.oldest_first.push_back((operation.ends_at, id));
        self.records.insert(id, operation);
    }

    /// Ends an operation before its time.
    pub(crate) fn end_early(&mut self, id: Guid, end: End) {
        if let Some(operation) = self.records.get_mut(&id) {
            self.due.remove(&(operation.ends_at, id));
            operation.ended = Some(end);
        }
    }

    pub(crate) fn next_end(&self) -> Option<u64> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Ends one due operation, if any, and returns it.
    pub(crate) fn end_due(&mut self, now: u64) -> Option<(Guid, &Operation)> {
        let &(at, id) = self.due.first().filter(|(at, _)| *at <= now)?;
        self.due.remove(&(at, id));
        let operation = self.records.get_mut(&id)?;
        operation.ended = Some(operation.planned.clone());
        Some((id, operation))
    }
}

/// Returns the end of a superseded operation.
pub(crate) fn superseded(earlier: (OperationName, Guid), later: (OperationName, Guid)) -> End {
    End::Canceled {
        code: "CanceledAndSupersededDueToAnotherOperation".to_owned(),
        message: format!(
            "Operation {} ({}) was canceled and superseded by operation {} ({}).",
            earlier.0.text(),
            earlier.1,
            later.0.text(),
            later.1
        ),
    }
}

/// Returns the signed query of an operation's URL, from `api-version` on.
pub(crate) fn signed_query(seed: u64, id: Guid, api_version: &str) -> String {
    let [time, certificate, signature, hash] = signature(seed, id);
    let mut query = String::with_capacity(CERTIFICATE_LENGTH + 500);
    write!(query, "api-version={api_version}&t={time}&c={certificate}&s={signature}&h={hash}")
        .expect("writing to a string cannot fail");
    query
}

/// Returns whether the query of a poll still matches its signature.
pub(crate) fn is_signed(seed: u64, id: Guid, target: &Target) -> bool {
    let expected = signature(seed, id);
    ["t", "c", "s", "h"].iter().zip(&expected).all(|(name, value)| target.query(name) == Some(value))
}

fn signature(seed: u64, id: Guid) -> [String; 4] {
    let mut random = Random::new(seed ^ id.folded());
    let time = format!("639{:015}", random.next_u64() % 1_000_000_000_000_000);
    [time, letters(&mut random, CERTIFICATE_LENGTH), letters(&mut random, 342), letters(&mut random, 43)]
}

fn letters(random: &mut Random, count: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(count);
    let mut bits = 0;
    for at in 0..count {
        if at % 10 == 0 {
            bits = random.next_u64();
        }
        text.push(char::from(ALPHABET[(bits & 63) as usize]));
        bits >>= 6;
    }
    text
}
