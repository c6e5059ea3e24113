//! Levels: the members that a pool must hold and may hold, and whether an observed pool is in sync
//! (docs/design/glossary.md).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::ids::{AddressName, PoolId};
use crate::xds::diagnostic::Diagnostic;
use crate::xds::name::Name;

/// A member that a pool must hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Name of a new address entry: the node's name, or for xDS the address itself (W3, X2).
    pub name: AddressName,
    /// True if the node behind it is Ready. It affects the order of writes (Q3) and not the equality of levels.
    pub node_ready: bool,
}

/// The level of a pool: it must hold the `required` members, it may keep the `tolerated` ones, and all others must go.
/// Tolerated members are never added.
#[derive(Clone, Debug, Default)]
pub struct Level {
    /// Members that the pool must hold.
    pub required: BTreeMap<IpAddr, Member>,
    /// Members that may stay; disjoint from `required`.
    pub tolerated: BTreeSet<IpAddr>,
    /// Which surplus members stay nevertheless. It depends on the effect on the pool, whatever the cause (G1).
    pub keeps: SurplusPolicy,
    /// Admin states that the source of the level requests for its members, if it requests any.
    pub states: States,
    /// Addresses of nodes whose endpoints are all of the other family. They must go. The cloud-controller-manager adds
    /// them with each of its writes, which does not count as contention (D4, W11).
    pub other_family: BTreeSet<IpAddr>,
}

/// Admin states that the source of a level requests (X2). A node that leaves service is Down in any case (N4).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct States {
    /// Tolerated members that get no new connections: Down while they are in the pool.
    pub down: BTreeSet<IpAddr>,
    /// Required members that we have set Down because the source requested it, and that are now restored.
    pub lifted: BTreeSet<IpAddr>,
}

impl States {
    /// Returns true if a pool with these members, of which `down` are Down, has the requested admin states.
    #[must_use]
    pub fn are_in_sync(&self, members: &BTreeSet<IpAddr>, down: &BTreeSet<IpAddr>) -> bool {
        self.lifted.is_disjoint(down) && self.down.intersection(members).all(|ip| down.contains(ip))
    }

    /// Returns the members that are Down once the requested admin states are written.
    #[must_use]
    pub fn down_when_applied(&self, members: &BTreeSet<IpAddr>, down: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        let is_down =
            |ip: &&IpAddr| self.down.contains(*ip) || (down.contains(*ip) && !self.lifted.contains(*ip));
        members.iter().filter(is_down).copied().collect()
    }
}

/// The admin states that the source of a pool has requested, for the machine that handles nodes that leave service
/// (X2, N4).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceAdminStates {
    /// Addresses that are Down while they are in the pool.
    pub down: BTreeSet<IpAddr>,
    /// Addresses whose Down is ours by a current or earlier request of the source; includes `down`.
    pub ours: BTreeSet<IpAddr>,
}

/// The addresses whose admin state depends on nodes that leave service (N4).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DrainingAddresses {
    /// Addresses of nodes that leave service. They stay Down, whatever the source requests.
    pub down: BTreeSet<IpAddr>,
    /// Addresses of nodes that are back in service and are being restored.
    pub restored: BTreeSet<IpAddr>,
    /// Addresses of nodes that no longer exist, with the pools in which their Down is ours. If a source still assigns
    /// such an address, nothing else restores it.
    pub outlived: BTreeSet<(PoolId, IpAddr)>,
}

/// Which surplus members of a pool stay nevertheless. The variants are ordered by caution: uniting two levels takes
/// the later one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum SurplusPolicy {
    /// No surplus member stays.
    #[default]
    RemoveAll,
    /// All surplus members stay while no required and no tolerated member is in the pool: it must not be emptied (G2).
    KeepLast,
    /// All surplus members stay: nothing is removed (G4, G6).
    KeepAll,
}

impl Level {
    /// Returns true if the membership is in sync: required ⊆ observed ⊆ required ∪ tolerated.
    #[must_use]
    pub fn is_in_sync(&self, observed: &BTreeSet<IpAddr>) -> bool {
        self.missing(observed).next().is_none() && self.surplus(observed).next().is_none()
    }

    /// Returns the required members that are missing from the pool.
    pub fn missing<'a>(&'a self, observed: &'a BTreeSet<IpAddr>) -> impl Iterator<Item = &'a IpAddr> + 'a {
        self.required.keys().filter(move |ip| !observed.contains(ip))
    }

    /// Returns the members of the pool that must go.
    pub fn surplus<'a>(&'a self, observed: &'a BTreeSet<IpAddr>) -> impl Iterator<Item = &'a IpAddr> + 'a {
        let would_empty = self.required.is_empty() && !observed.iter().any(|ip| self.tolerated.contains(ip));
        let keeps = match self.keeps {
            SurplusPolicy::RemoveAll => false,
            SurplusPolicy::KeepLast => would_empty,
            SurplusPolicy::KeepAll => true,
        };
        observed.iter().filter(move |ip| !keeps && !self.allows(ip))
    }

    /// Returns true if the address may be in the pool.
    #[must_use]
    pub fn allows(&self, ip: &IpAddr) -> bool {
        self.required.contains_key(ip) || self.tolerated.contains(ip)
    }

    /// Returns true if both levels have the same members under the same names. The readiness of nodes does not count.
    #[must_use]
    pub fn same_members(&self, other: &Level) -> bool {
        self.tolerated == other.tolerated
            && self.keeps == other.keeps
            && self.states == other.states
            && self.required.len() == other.required.len()
            && self
                .required
                .iter()
                .zip(&other.required)
                .all(|((a, left), (b, right))| a == b && left.name == right.name)
    }

    /// Unites this level with another one: a member that either requires is required, and one that either allows is
    /// allowed.
    pub fn unite(&mut self, other: &Level) {
        self.keeps = self.keeps.max(other.keeps);
        self.states.down.extend(&other.states.down);
        self.states.lifted.extend(&other.states.lifted);
        for (ip, member) in &other.required {
            self.tolerated.remove(ip);
            self.required.entry(*ip).or_insert_with(|| member.clone());
        }
        for ip in &other.tolerated {
            if !self.required.contains_key(ip) {
                self.tolerated.insert(*ip);
            }
        }
    }

    /// Returns true if the level requires and tolerates no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.required.is_empty() && self.tolerated.is_empty()
    }

    /// Checks the invariant of every level: no address is both required and tolerated.
    #[must_use]
    pub fn is_disjoint(&self) -> bool {
        self.tolerated.iter().all(|ip| !self.required.contains_key(ip))
    }

    /// Checks the invariant of the requested admin states: only tolerated members are Down, and only required members
    /// are restored.
    #[must_use]
    pub fn has_sound_states(&self) -> bool {
        self.states.down.is_subset(&self.tolerated)
            && self.states.lifted.iter().all(|ip| self.required.contains_key(ip))
    }
}

/// How a fact arrived (G1). The variants are ordered by doubt: joining two facts takes the later one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Provenance {
    /// A change on a running watch.
    #[default]
    Watch,
    /// A watch that was re-established without a new list.
    Reconnect,
    /// A list made because a watch could not continue.
    Relist,
    /// The first list after the start of the process.
    FirstList,
}

impl Provenance {
    /// Returns the value in the admin API and in exports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Provenance::Watch => "watch",
            Provenance::Reconnect => "reconnect",
            Provenance::Relist => "relist",
            Provenance::FirstList => "first_list",
        }
    }
}

/// The source of a pool's level (A2). A pool has exactly one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Source {
    /// Services and EndpointSlices of this cluster.
    #[default]
    Kubernetes,
    /// An xDS resource.
    Xds {
        /// The configured name.
        name: Name,
        /// A text for every event, error and status of the pool: the error of the resource in use, or else the id by
        /// which the control plane identifies us (X4).
        note: Arc<str>,
        /// Diagnostics about how the members were chosen.
        diagnostics: BTreeSet<Diagnostic>,
    },
}

impl Source {
    /// Returns the text for all events, errors and statuses of the pool, if it is not empty (X4).
    #[must_use]
    pub fn note(&self) -> Option<&Arc<str>> {
        match self {
            Source::Kubernetes => None,
            Source::Xds { note, .. } => Some(note),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(last: &[u8]) -> BTreeSet<IpAddr> {
        last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect()
    }

    fn level(required: &[u8], tolerated: &[u8], keeps: SurplusPolicy) -> Level {
        let member = Member { name: AddressName::new("n"), node_ready: true };
        let required = ips(required).into_iter().map(|ip| (ip, member.clone())).collect();
        Level { required, tolerated: ips(tolerated), keeps, ..Level::default() }
    }

    #[test]
    fn g2_unwanted_members_stay_only_in_an_otherwise_empty_pool() {
        let surplus =
            |level: &Level, observed: &[u8]| level.surplus(&ips(observed)).copied().collect::<BTreeSet<_>>();
        assert_eq!(surplus(&level(&[], &[], SurplusPolicy::KeepLast), &[1, 2]), ips(&[]));
        assert_eq!(
            surplus(&level(&[], &[3], SurplusPolicy::KeepLast), &[1, 2]),
            ips(&[]),
            "tolerated members are never added"
        );
        assert_eq!(surplus(&level(&[], &[2], SurplusPolicy::KeepLast), &[1, 2]), ips(&[1]));
        assert_eq!(
            surplus(&level(&[3], &[], SurplusPolicy::KeepLast), &[1, 2]),
            ips(&[1, 2]),
            "a member comes in its place"
        );
        assert_eq!(surplus(&level(&[], &[], SurplusPolicy::RemoveAll), &[1, 2]), ips(&[1, 2]));
        assert!(level(&[], &[], SurplusPolicy::KeepLast).is_in_sync(&ips(&[1])));
        let kept = level(&[3], &[1], SurplusPolicy::KeepAll);
        assert_eq!(surplus(&kept, &[1, 2, 3]), ips(&[]), "nothing is removed at all");
        assert!(!kept.is_in_sync(&ips(&[1, 2])), "what is missing is added all the same");
    }

    #[test]
    fn a_united_level_allows_and_keeps_what_either_does() {
        let mut both = level(&[1], &[2], SurplusPolicy::RemoveAll);
        both.unite(&level(&[2], &[1, 3], SurplusPolicy::KeepLast));
        assert!(both.same_members(&level(&[1, 2], &[3], SurplusPolicy::KeepLast)) && both.is_disjoint());
    }
}
