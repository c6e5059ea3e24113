//! The meaning of a `Cluster` for pools: the endpoints that it names, and whether they can be requested (X2).
//!
//! Load balancing, connections and health checks of a cluster do not matter to a pool and are ignored.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::facts::{ClusterFacts, EdsSource};
use super::faults::Faults;

/// The number of the only supported `DiscoveryType`.
const EDS: i32 = 3;

/// The name that control planes interpret as all resources.
const WILDCARD: &str = "*";

/// The longest name under which endpoints are requested, in bytes: each request repeats it.
const MAX_NAME: usize = 4 << 10;

/// A valid cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cluster {
    /// The name under which its endpoints are requested.
    pub eds_name: Arc<str>,
}

impl Cluster {
    /// Validates the cluster `name`, or returns the errors with the paths of the fields.
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
        // The EDS fields of a cluster of another type are ignored.
        let is_eds = facts.discovery == Some(EDS);
        let mut eds_name = Arc::clone(name);
        match &facts.eds {
            Some(eds) => {
                if is_eds && !is_known_source(eds.source) {
                    let fault = "is neither ads nor self: set it to ads, no other source is read";
                    faults.add("eds_cluster_config.eds_config", fault);
                }
                if eds.service_name == WILDCARD {
                    faults.add("eds_cluster_config.service_name", "requests all assignments: name one");
                } else if eds.service_name.len() > MAX_NAME {
                    let length = eds.service_name.len();
                    faults.add(
                        "eds_cluster_config.service_name",
                        format_args!(
                            "has {length} bytes, and at most {MAX_NAME} are read: use a shorter name"
                        ),
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

/// Returns true if endpoints from this source arrive on the same stream as the cluster.
fn is_known_source(source: EdsSource) -> bool {
    match source {
        EdsSource::Ads | EdsSource::SameServer => true,
        EdsSource::Other => false,
    }
}

/// Returns the name of a `DiscoveryType`, or its number.
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
