//! What the admin state asks of the writer: which backends are to be Down, which of ours may come back, and what is
//! due in a pool (docs/design/nodes.md, N2, N3, N4).

use std::collections::{BTreeMap, BTreeSet};

use crate::arm::{AdminState, Backend, Entry};
use crate::ids::{NodeUid, PoolId, PoolName};
use crate::machine::Now;

/// A pool's admin state is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdminDue {
    /// Since when.
    pub since: Now,
    /// The generation of the draining set that asks for it.
    pub generation: u64,
    /// Whether a node goes down, or is only restored.
    pub urgency: AdminUrgency,
    /// Whether all of it was asked for before, and has failed or did not last: it has no claim to the reserve (W9).
    pub again: bool,
}

/// How urgent an admin state write is (W1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AdminUrgency {
    /// A node is to be cut out.
    Down,
    /// A node is to be restored.
    Restore,
}

/// The nodes that leave service, as a level (N2).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Draining {
    /// Raised with each change.
    pub generation: u64,
    /// Backends of draining nodes, with the UID of the node.
    pub addresses: BTreeMap<Backend, NodeUid>,
    /// Backends whose Down is ours to take back (N4).
    pub restorable: BTreeSet<Backend>,
    /// The exceptions: Downs of such backends that were there before ours, in these pools (N4). While an exception
    /// lasts, neither its entry nor any of our own is written: a later return could not tell whose Down it is.
    pub foreign: BTreeSet<(PoolId, Backend)>,
    /// Downs that the source of their pool asks for, or may ask for as long as it is not known: whatever becomes of the
    /// node, they are not taken back (X2, X3).
    pub kept: BTreeSet<(PoolId, Backend)>,
    /// Pools in which no admin state is written (N2, `adminState.excludePools`).
    pub excluded: BTreeSet<PoolName>,
}

impl Draining {
    /// The admin state that an entry of this pool must get, if any (N4): a draining backend is Down, a Down of ours on
    /// any other ends, unless the source of the pool asks for it. A state that we do not know is left alone.
    #[must_use]
    pub fn wants(&self, pool: &PoolId, entry: &Entry) -> Option<AdminState> {
        let backend = entry.backend()?;
        self.wants_of(pool, &backend, entry.admin_state)
    }

    /// The same for a backend with this admin state.
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

    /// Whether a backend in this pool that is in service is to be Down.
    #[must_use]
    pub fn would_set(&self, pool: &PoolId, backend: &Backend) -> bool {
        self.wants_of(pool, backend, AdminState::None) == Some(AdminState::Down)
    }

    /// The admin state with which a new entry is made (W3).
    #[must_use]
    pub fn at_birth(&self, pool: &PoolId, backend: &Backend) -> Option<AdminState> {
        self.wants_of(pool, backend, AdminState::None)
    }
}

fn holds(pairs: &BTreeSet<(PoolId, Backend)>, pool: &PoolId, backend: &Backend) -> bool {
    !pairs.is_empty() && pairs.contains(&(pool.clone(), backend.clone()))
}
