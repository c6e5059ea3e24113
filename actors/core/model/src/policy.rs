//! What operators wish of the whole service: its mode, and what they have paused (docs/design/sources.md, D1; G6).
//!
//! Plain data, always sent as a whole: the receiver replaces what it received before. Where it is kept, and who may
//! change it, is decided elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::assignment::PausedBy;
use crate::ids::{PoolId, ServiceKey};
use crate::machine::Wall;
use crate::operator_request::Scope;

/// How much the service may do (G6). The order is that of freedom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Mode {
    /// Reads and our own Lease only: no ARM write, shared Lease, taint, Service or Node event.
    Observe,
    /// No member is removed from any pool; admin state as in [`Mode::Enforce`].
    AddOnly,
    /// Everything.
    #[default]
    Enforce,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 3] = [Mode::Observe, Mode::AddOnly, Mode::Enforce];

    /// The word for configuration, metrics and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Observe => "observe",
            Mode::AddOnly => "add-only",
            Mode::Enforce => "enforce",
        }
    }
}

/// A pause that the operator has made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pause {
    /// Since when, as it was noted; `None`: it was noted without a time that can be read.
    pub since: Option<Wall>,
    /// Who made it, as the API server knows them; `None`: it was noted without a name.
    pub by: Option<Arc<str>>,
    /// Why, in their words.
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
    /// Pauses of single Services, in all their pools. The annotation of a Service is another way to the same, and not
    /// among these.
    pub services: BTreeMap<ServiceKey, Pause>,
    /// Whether the admin state is switched off by a note in our ConfigMap (key `admin-state.off`): ours are taken back and
    /// nothing is begun (N4, uninstall).
    pub admin_state_off: bool,
}

impl OperatorPolicy {
    /// Every pause, with what it is of.
    pub fn pauses(&self) -> impl Iterator<Item = (Scope, &Pause)> {
        listed(&self.everything, &self.pools, &self.services)
    }

    /// Whether nothing at all may be written: observed, or everything paused (G6).
    #[must_use]
    pub fn only_observes(&self) -> bool {
        self.stopped_by().is_some()
    }

    /// What keeps everything from being written, first of all the mode (G6).
    #[must_use]
    pub fn stopped_by(&self) -> Option<PausedBy> {
        let observed = (self.mode == Mode::Observe).then_some(PausedBy::Mode);
        observed.or_else(|| self.everything.is_some().then_some(PausedBy::Everything))
    }

    /// The pause behind one of the things that keep this pool from being written; `None`: it is no person's, or over.
    #[must_use]
    pub fn pause_of(&self, pool: &PoolId, by: &PausedBy) -> Option<&Pause> {
        match by {
            PausedBy::Everything => self.everything.as_ref(),
            PausedBy::Pool => self.pools.get(pool),
            PausedBy::Service(key) => self.services.get(key),
            PausedBy::Mode | PausedBy::NoPin | PausedBy::Annotation(_) => None,
        }
    }
}

/// All of these pauses, with what each is of.
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
