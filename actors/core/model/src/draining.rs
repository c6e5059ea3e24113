//! The levels between the admin state and the writer (docs/design/nodes.md, N2, N3, N4). Downward: the backends that
//! must be Down, those of ours to restore, and the due write of each pool. Upward: the admin states of each pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::arm::{AdminState, Backend, Entry, Failure, PoolFacts};
use crate::ids::{NodeUid, PoolId, PoolName};
use crate::machine::Now;

/// A due admin state write of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdminDue {
    /// Time since which it has been due.
    pub since: Now,
    /// Generation of the draining set that requires it.
    pub generation: u64,
    /// Its urgency.
    pub urgency: AdminUrgency,
    /// True if all of it was tried before and failed or did not last. It then may not use the reserve (W9).
    pub again: bool,
}

/// The urgency of an admin state write (W1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AdminUrgency {
    /// A node is to be set Down.
    Down,
    /// A node is to be restored.
    Restore,
}

/// The admin states of a pool, as the writer last read or wrote them (N2, N4).
#[derive(Clone, Debug)]
pub struct PoolAdminStates {
    /// The time from which they count: at which the GET began or the PUT was accepted. A later write by another client
    /// is not among them, and shows in any GET that begins later.
    pub at: Now,
    /// The pool as a GET shows it, or as a finished PUT with an admin part left it. `None`: neither is known.
    pub facts: Option<Arc<PoolFacts>>,
    /// Backends that PUTs of older sets may have left in service, although the newest set requires them Down.
    pub in_doubt: BTreeSet<Backend>,
    /// Time of our last PUT to the pool until then, whatever its result.
    pub sent: Option<Now>,
    /// The end of an admin part, if one has ended.
    pub ended: Option<AdminEnd>,
    /// The newest set when its due admin part was withdrawn, if nothing of that part is left in flight.
    pub withdrawn: Option<u64>,
}

/// How the admin part of a pool's slot has ended (N3).
#[derive(Clone, Debug)]
pub struct AdminEnd {
    /// Generation of the set that was applied or, after a failure, required.
    pub generation: u64,
    /// The result.
    pub result: Result<(), AdminError>,
}

/// Why an admin part was not carried out (N3).
#[derive(Clone, Debug)]
pub enum AdminError {
    /// The pool or its load balancer does not exist.
    Absent,
    /// The write failed.
    Failed(Arc<Failure>),
}

/// The nodes that leave service, as a level (N2).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Draining {
    /// A number that rises with each change.
    pub generation: u64,
    /// Backends of draining nodes, with the UID of each node.
    pub addresses: BTreeMap<Backend, NodeUid>,
    /// Backends that are Down by us and may be restored (N4).
    pub restorable: BTreeSet<Backend>,
    /// Exceptions: backends above that were Down in these pools before we acted (N4). While an exception lasts,
    /// neither its entry nor any of our own entries of that node is written. Otherwise a later restore could not tell
    /// whose Down it is.
    pub foreign: BTreeSet<(PoolId, Backend)>,
    /// Downs that the source of the pool requests, or may request while the source is unknown. They are not restored,
    /// whatever happens to the node (X2, X3).
    pub kept: BTreeSet<(PoolId, Backend)>,
    /// Pools in which no admin state is written (N2, `adminState.excludePools`).
    pub excluded: BTreeSet<PoolName>,
}

impl Draining {
    /// Returns the admin state that an entry of this pool must get; `None` leaves it unchanged (N4). A draining
    /// backend becomes Down. Our Down on any other backend ends, unless the source of the pool requests it. An
    /// unknown state is left unchanged.
    #[must_use]
    pub fn wants(&self, pool: &PoolId, entry: &Entry) -> Option<AdminState> {
        let backend = entry.backend()?;
        self.wants_of(pool, &backend, entry.admin_state)
    }

    /// Returns the same as [`Draining::wants`], for a backend with this admin state.
    #[must_use]
    pub fn wants_of(&self, pool: &PoolId, backend: &Backend, state: AdminState) -> Option<AdminState> {
        if self.excluded.contains(&pool.pool) {
            return None;
        }
        let drains = self.addresses.contains_key(backend);
        let comes_back = || self.restorable.contains(backend) && !drains && !holds(&self.kept, pool, backend);
        let wanted = match state {
            AdminState::None | AdminState::Up => drains.then_some(AdminState::Down),
            AdminState::Down => comes_back().then_some(AdminState::None),
            AdminState::Unknown => None,
        };
        wanted.filter(|_| !holds(&self.foreign, pool, backend))
    }

    /// Returns true if a backend of this pool must be Down, or may be restored.
    #[must_use]
    pub fn concerns(&self, pool: &PoolFacts) -> bool {
        let is_named =
            |backend: Backend| self.addresses.contains_key(&backend) || self.restorable.contains(&backend);
        let names_any = !self.addresses.is_empty() || !self.restorable.is_empty();
        names_any
            && !self.excluded.contains(&pool.id.pool)
            && pool.entries.iter().filter_map(Entry::backend).any(is_named)
    }

    /// Returns true if this backend, in service in this pool, must become Down.
    #[must_use]
    pub fn would_set(&self, pool: &PoolId, backend: &Backend) -> bool {
        self.wants_of(pool, backend, AdminState::None) == Some(AdminState::Down)
    }

    /// Returns the admin state of a new entry (W3).
    #[must_use]
    pub fn at_birth(&self, pool: &PoolId, backend: &Backend) -> Option<AdminState> {
        self.wants_of(pool, backend, AdminState::None)
    }
}

fn holds(pairs: &BTreeSet<(PoolId, Backend)>, pool: &PoolId, backend: &Backend) -> bool {
    !pairs.is_empty() && pairs.contains(&(pool.clone(), backend.clone()))
}
