//! The plan of the conversion of pools from interfaces to addresses.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::text::list;
use super::{Blocker, Findings, Reason, azure_rules};
use crate::inventory::{Inventory, Membership, Scope};
use crate::json::is_basic;
use crate::work::Work;

/// The planned changes, and the findings to resolve first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolsPlan {
    /// The digest of the inventory.
    pub digest: String,
    /// The pools whose members are interfaces, by id.
    pub pools: Vec<String>,
    /// The nodes that are detached once their pools have their addresses, by id.
    pub nodes: Vec<String>,
    /// Findings to resolve first.
    pub blockers: Vec<Blocker>,
    /// Further notices for the operator.
    pub notices: Vec<String>,
}

impl PoolsPlan {
    /// Returns the plan that follows from an inventory.
    #[must_use]
    pub fn of(inventory: &Inventory) -> PoolsPlan {
        let (work, scope) = (Work::of(inventory), Scope::of(inventory));
        let mut findings = Findings::default();
        let basic = inventory.of_kind("loadbalancers").filter(|(_, body)| is_basic(body));
        for (lb, _) in basic {
            let remedy = "run migrate-basic-lb plan first";
            findings.block(Reason::MixedSku, lb, "it is Basic, and pools by address need Standard", remedy);
        }
        if !work.pools.is_empty() {
            if inventory.cluster.membership != Membership::NodeIp {
                findings.block(
                    Reason::Configuration,
                    "loadBalancerBackendPoolConfigurationType",
                    "the cloud configuration does not say `nodeIP`: the cloud-controller-manager would change the pools back",
                    "set it to nodeIP in the cloud configuration",
                );
            }
            azure_rules::check_nodes(inventory, &scope, &mut findings);
            findings.add_notice(
                "How flows and outbound traffic behave while Azure changes a pool is not documented: plan for an interruption.",
            );
        }
        findings.blockers.sort();
        let pools = work.removed_references().pools;
        let nodes = work.members.keys().filter(|_| !work.pools.is_empty());
        PoolsPlan {
            digest: inventory.digest(),
            pools: pools.iter().map(ToString::to_string).collect(),
            nodes: nodes.map(ToString::to_string).collect(),
            blockers: findings.blockers,
            notices: findings.notices,
        }
    }
}

impl fmt::Display for PoolsPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pools.is_empty() {
            writeln!(f, "No pool names its members by interface: there is nothing to change.")?;
        }
        list(f, "Pools that get members by address", &self.pools)?;
        list(f, "Nodes that are detached from these pools afterwards", &self.nodes)?;
        list(f, "Notices", &self.notices)?;
        let blockers = self.blockers.iter();
        let blockers: Vec<String> =
            blockers.map(|it| format!("{}: {}; remedy: {}", it.object, it.finding, it.remedy)).collect();
        list(f, "Blockers", &blockers)
    }
}
