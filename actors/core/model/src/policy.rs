//! The operator's policy for the whole service: the mode and the pauses (docs/design/sources.md, D1; G6).
//!
//! Plain data that is always sent as a whole; the receiver replaces the previous policy. Other modules store it and
//! decide who may change it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::assignment::PausedBy;
use crate::ids::{PoolId, ServiceKey};
use crate::machine::Wall;
use crate::operator_request::Scope;

/// What the service may do (G6), ordered from least to most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Mode {
    /// Only reads and our own Lease: no ARM write, shared Lease, taint, or event on a Service or Node.
    Observe,
    /// No member is removed from any pool; admin state as in [`Mode::Enforce`].
    AddOnly,
    /// All writes.
    #[default]
    Enforce,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 3] = [Mode::Observe, Mode::AddOnly, Mode::Enforce];

    /// Returns the value in configuration, metrics and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Observe => "observe",
            Mode::AddOnly => "add-only",
            Mode::Enforce => "enforce",
        }
    }
}

/// A pause by the operator.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pause {
    /// Time when it was made; `None`: it was stored without a readable time.
    pub since: Option<Wall>,
    /// The operator, as the API server identifies them; `None`: it was stored without a name.
    pub by: Option<Arc<str>>,
    /// The reason that the operator gave.
    pub reason: Option<Arc<str>>,
}

/// The mode and all pauses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OperatorPolicy {
    /// The configured mode.
    pub mode: Mode,
    /// The pause of everything.
    pub everything: Option<Pause>,
    /// Pauses of single pools.
    pub pools: BTreeMap<PoolId, Pause>,
    /// Pauses of single Services, in all their pools. The pause annotation of a Service has the same effect and is not
    /// included here.
    pub services: BTreeMap<ServiceKey, Pause>,
    /// True if the key `admin-state.off` of our ConfigMap switches the admin state off: our Downs are removed, and no
    /// new ones are set (N4, uninstall).
    pub admin_state_off: bool,
}

impl OperatorPolicy {
    /// Returns every pause with its scope.
    pub fn pauses(&self) -> impl Iterator<Item = (Scope, &Pause)> {
        listed(&self.everything, &self.pools, &self.services)
    }

    /// Returns true if nothing may be written: the mode only observes, or everything is paused (G6).
    #[must_use]
    pub fn only_observes(&self) -> bool {
        self.stopped_by().is_some()
    }

    /// Returns the reason why nothing may be written; the mode takes precedence (G6).
    #[must_use]
    pub fn stopped_by(&self) -> Option<PausedBy> {
        let observed = (self.mode == Mode::Observe).then_some(PausedBy::Mode);
        observed.or_else(|| self.everything.is_some().then_some(PausedBy::Everything))
    }

    /// Returns the pause behind one of the reasons why this pool is not written; `None`: no operator made it, or it
    /// is over.
    #[must_use]
    pub fn pause_of(&self, pool: &PoolId, by: &PausedBy) -> Option<&Pause> {
        match by {
            PausedBy::Everything => self.everything.as_ref(),
            PausedBy::Pool => self.pools.get(pool),
            PausedBy::Service(key) => self.services.get(key),
            PausedBy::Mode | PausedBy::NotInRestore | PausedBy::Annotation(_) => None,
        }
    }
}

/// Returns the given pauses, each with its scope.
pub fn listed<'a>(
    everything: &'a Option<Pause>,
    pools: &'a BTreeMap<PoolId, Pause>,
    services: &'a BTreeMap<ServiceKey, Pause>,
) -> impl Iterator<Item = (Scope, &'a Pause)> {
    let everything = everything.iter().map(|pause| (Scope::Everything, pause));
    let pools = pools.iter().map(|(pool, pause)| (Scope::Pool(pool.clone()), pause));
    let services = services.iter().map(|(key, pause)| (Scope::Service(key.clone()), pause));
    everything.chain(pools).chain(services)
}
