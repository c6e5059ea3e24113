//! The plan of a migration: the steps in order, the duration of the outage, the irreversible changes, and the findings
//! that must be resolved first. It is a pure function of the inventory.

mod azure_rules;
mod blocker;
mod cluster_rules;
mod ip_pools;
mod steps;
mod text;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::inventory::Inventory;
use crate::journal::Journal;
use crate::work::Work;

pub use blocker::{Blocker, Reason};
pub use ip_pools::PoolsPlan;
pub use steps::{Outage, Step};

/// The word by which the operator accepts that no outbound path was found.
pub const NO_OUTBOUND: &str = "no-outbound";

/// Consequences that the operator has accepted by name: public addresses that will change, as text, and
/// [`NO_OUTBOUND`].
pub type Accepted = BTreeSet<String>;

/// The version of the JSON format of plans.
const SCHEMA_VERSION: u32 = 1;

/// A Basic load balancer, and the Standard load balancer that replaces it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replacement {
    /// The id of the Basic load balancer.
    pub basic: String,
    /// The id of the Standard load balancer; `None` if the Basic one has no frontends and is not replaced.
    pub standard: Option<String>,
    /// The addresses of its frontends.
    pub addresses: Vec<String>,
}

/// The plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The version of the JSON format.
    pub schema_version: u32,
    /// The digest of the inventory.
    pub digest: String,
    /// Consequences that the operator has accepted.
    pub accepted: Accepted,
    /// The load balancers.
    pub load_balancers: Vec<Replacement>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Time for which the frontends have no path to a node.
    pub outage: Outage,
    /// Changes that cannot be undone.
    pub irreversible: Vec<String>,
    /// Findings to resolve before the migration can begin.
    pub blockers: Vec<Blocker>,
    /// Further notices for the operator.
    pub notices: Vec<String>,
}

impl Plan {
    /// Returns the plan that follows from an inventory.
    #[must_use]
    pub fn of(inventory: &Inventory, accepted: &Accepted) -> Plan {
        let work = Work::of(inventory);
        let mut findings = Findings::default();
        if work.basic.is_empty() {
            azure_rules::check_scope(inventory, &mut findings);
        } else {
            cluster_rules::check(inventory, &work, accepted, &mut findings);
            azure_rules::check(inventory, &work, accepted, &mut findings);
        }
        findings.blockers.sort();
        findings.blockers.dedup();
        Plan {
            schema_version: SCHEMA_VERSION,
            digest: inventory.digest(),
            accepted: accepted.clone(),
            load_balancers: steps::replacements(inventory, &work),
            steps: steps::steps(&work),
            outage: steps::outage(&work),
            irreversible: steps::irreversible(&work),
            blockers: findings.blockers,
            notices: findings.notices,
        }
    }

    /// Returns the plan with a blocker: the migration of this journal has begun and has not ended.
    #[must_use]
    pub fn blocked_by_unfinished(mut self, journal: &Journal, stored_in: &str) -> Plan {
        let finding = format!("a migration, with digest {}, has begun and not ended", journal.digest);
        let remedy = "apply its plan again, or run `migrate-basic-lb apply --unattended`: it continues there";
        let object = format!("ConfigMap {stored_in}");
        let blocker = Blocker { reason: Reason::Unfinished, object, finding, remedy: remedy.to_owned() };
        self.blockers.insert(0, blocker);
        self
    }

    /// Returns whether this version of the program can read the plan.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.schema_version == SCHEMA_VERSION
    }

    /// Returns whether there is nothing to migrate.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.load_balancers.is_empty()
    }
}

/// Findings of the checks.
#[derive(Default)]
struct Findings {
    blockers: Vec<Blocker>,
    notices: Vec<String>,
}

impl Findings {
    fn block(
        &mut self,
        reason: Reason,
        object: impl ToString,
        finding: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let (object, finding, remedy) = (object.to_string(), finding.into(), remedy.into());
        self.blockers.push(Blocker { reason, object, finding, remedy });
    }

    fn add_notice(&mut self, text: impl Into<String>) {
        self.notices.push(text.into());
    }
}
