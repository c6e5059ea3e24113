//! What a `Cluster` means to pools: which endpoints it names, and whether they can be asked for (X2).
//!
//! How a cluster balances, connects and checks health is nothing to a pool, and is not looked at.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::facts::{ClusterFacts, EdsSource};
use super::resource::Faults;

/// The number of the one `DiscoveryType` whose endpoints are asked for.
const EDS: i32 = 3;

/// The name that control planes take for everything there is.
const WILDCARD: &str = "*";

/// A valid cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cluster {
    /// The name by which its endpoints are asked for.
    pub eds_name: Arc<str>,
}

impl Cluster {
    /// What the cluster of this name says; `Err`: what is wrong with it, with the paths of the fields.
    pub(super) fn of(name: &Arc<str>, facts: &ClusterFacts) -> Result<Cluster, String> {
        const REMEDY: &str = "make it EDS, or give the pool a source that names endpoints (eds:…)";
        let mut faults = Faults::default();
        match facts.discovery {
            Some(EDS) => {}
            Some(other) => {
                let known = known_type(other);
                faults.add("type", format_args!("{known} is not supported, only EDS is: {REMEDY}"));
            }
            None => {
                faults.add("cluster_type", format_args!("is not supported, only the type EDS is: {REMEDY}"));
            }
        }
        // What another type says of EDS is not looked at.
        let is_eds = facts.discovery == Some(EDS);
        let mut eds_name = Arc::clone(name);
        match &facts.eds {
            Some(eds) => {
                if is_eds && !is_known_source(eds.source) {
                    let fault = "is neither ads nor self: set it to ads, no other source is read";
                    faults.add("eds_cluster_config.eds_config", fault);
                }
                if eds.service_name == WILDCARD {
                    faults.add(
                        "eds_cluster_config.service_name",
                        "asks for everything there is: name one assignment",
                    );
                } else if !eds.service_name.is_empty() {
                    eds_name = Arc::from(eds.service_name.as_str());
                }
            }
            None if is_eds => {
                faults.add("eds_cluster_config", "is missing: add it, with an eds_config that says ads");
            }
            None => {}
        }
        faults.end(Cluster { eds_name })
    }
}

/// Whether endpoints from there come on the stream that the cluster came on.
fn is_known_source(source: EdsSource) -> bool {
    match source {
        EdsSource::Ads | EdsSource::SameServer => true,
        EdsSource::Other => false,
    }
}

/// The name of a `DiscoveryType`, or its number.
fn known_type(number: i32) -> String {
    let name = match number {
        0 => "STATIC",
        1 => "STRICT_DNS",
        2 => "LOGICAL_DNS",
        4 => "ORIGINAL_DST",
        other => return other.to_string(),
    };
    name.to_owned()
}
