//! Assignments while pre-images are restored: of pools with a pre-image, and of those that stay as they are
//! (docs/design/surface.md, commands).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::guard_inputs::part;
use super::pool_inputs::PoolInputs;
use model::assignment::{Assignment, Share};
use model::ids::{AddressName, PoolId, ServiceUid};
use model::level::{Level, Member, Provenance, Source, SurplusPolicy};
use model::pins::{Pin, Pins};
use model::services::ServiceFact;

/// Returns a pool's assignment while pre-images are restored. A pool with a pin must hold exactly the members of the
/// pin; any other pool keeps its members. The endpoints matter only for a pin that would leave a Service without
/// members: they decide whether the pin applies.
pub(super) fn assignment(id: &PoolId, inputs: &PoolInputs<'_>, pins: &Pins) -> Assignment {
    let parts = || inputs.owners.values().map(|fact| part(fact, inputs.family));
    let asked: BTreeSet<IpAddr> = parts().flat_map(|part| part.required.keys().copied()).collect();
    let level = match pins.of(id, inputs.family) {
        Some(pin) if would_be_unserved(pin, &asked) => untouched(),
        Some(pin) => level(pin, parts().any(|part| part.endpoints > 0)),
        None => untouched(),
    };
    let required: BTreeSet<IpAddr> = level.required.keys().copied().collect();
    // Slice events do not matter here, so the revision does not change.
    let share = |fact: &ServiceFact| Share {
        key: fact.key.clone(),
        revision: 0,
        required: required.clone(),
        tolerated: BTreeSet::new(),
        triggered: None,
        read: None,
    };
    let services: BTreeMap<ServiceUid, Share> =
        inputs.owners.iter().map(|(uid, fact)| (uid.clone(), share(fact))).collect();
    Assignment {
        epoch: inputs.term.epoch,
        opened: inputs.term.opened,
        pool: id.clone(),
        family: inputs.family,
        source: Source::Kubernetes,
        services,
        level,
        provenance: Provenance::Watch,
        paused: inputs.paused.clone(),
        held: None,
        would_hold: None,
        overruled: Some(asked),
    }
}

/// Returns the level of a pool that keeps its members.
fn untouched() -> Level {
    Level { keeps: SurplusPolicy::KeepAll, ..Level::default() }
}

/// Returns whether a pool with these members would hold none of those that endpoints require. A Service with local
/// endpoints only would then get no traffic. Returns false if the operator allowed that (G2).
fn would_be_unserved(pin: &Pin, asked: &BTreeSet<IpAddr>) -> bool {
    let serves = asked.iter().any(|ip| pin.members.contains_key(ip));
    !pin.allow_unserved && !pin.members.is_empty() && !asked.is_empty() && !serves
}

fn level(pin: &Pin, has_endpoints: bool) -> Level {
    let member = |name: &AddressName| Member { name: name.clone(), node_ready: true };
    let would_empty = pin.members.is_empty() && has_endpoints && !pin.allow_empty;
    Level {
        required: pin.members.iter().map(|(ip, name)| (*ip, member(name))).collect(),
        tolerated: BTreeSet::new(),
        keeps: if would_empty { SurplusPolicy::KeepLast } else { SurplusPolicy::RemoveAll },
        ..Level::default()
    }
}
