//! Levels: what a pool must hold, what it may hold, and whether what was seen is right (docs/design/glossary.md).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::ids::{AddressName, PoolId};
use crate::xds::name::Name;
use crate::xds::remark::Diagnostic;

/// A member that a pool must hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// The name a new address entry gets: the node's name, or for xDS the address itself (W3, X2).
    pub name: AddressName,
    /// Whether the node behind it is Ready; it orders writes (Q3) and is no part of the level's equality.
    pub node_ready: bool,
}

/// A level of a pool: `required` must be in, `tolerated` may stay but is never added, all else must go.
#[derive(Clone, Debug, Default)]
pub struct Level {
    /// Members that must be in.
    pub required: BTreeMap<IpAddr, Member>,
    /// Members that may stay; disjoint from `required`.
    pub tolerated: BTreeSet<IpAddr>,
    /// What of the members that should go stays nevertheless. It judges the effect on the pool, whatever the cause
    /// (G1).
    pub keeps: Keeps,
    /// What is said of the admin states of its members, where the source of the level says anything of them.
    pub states: States,
    /// Addresses of nodes that host endpoints of the other family only. They must go, and the
    /// cloud-controller-manager adds them with each of its writes, which is no contention (D4, W11).
    pub other_family: BTreeSet<IpAddr>,
}

/// What the source of a level says of its members' admin states (X2). Whatever it says, a node that leaves service is
/// Down (N4).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct States {
    /// Tolerated members that take nothing new, and are to be Down while they are in the pool.
    pub down: BTreeSet<IpAddr>,
    /// Required members whose Down is ours by such a word, and is to be taken back.
    pub lifted: BTreeSet<IpAddr>,
}

impl States {
    /// Whether a pool of these members, of which these are Down, is as it is to be.
    #[must_use]
    pub fn are_right(&self, members: &BTreeSet<IpAddr>, down: &BTreeSet<IpAddr>) -> bool {
        self.lifted.is_disjoint(down) && self.down.intersection(members).all(|ip| down.contains(ip))
    }

    /// Which of these members are Down after they were made right.
    #[must_use]
    pub fn made_right(&self, members: &BTreeSet<IpAddr>, down: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        let is_down =
            |ip: &&IpAddr| self.down.contains(*ip) || (down.contains(*ip) && !self.lifted.contains(*ip));
        members.iter().filter(is_down).copied().collect()
    }
}

/// What the source of a pool has said of admin states, for those who decide about nodes that leave service (X2, N4).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceAdminStates {
    /// Addresses that are to be Down while they are in the pool.
    pub down: BTreeSet<IpAddr>,
    /// Addresses whose Down is ours by what the source says or has said; these among them.
    pub ours: BTreeSet<IpAddr>,
}

/// The addresses that the admin state of nodes has a word on (N4).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DrainingAddresses {
    /// Those of nodes that leave service: they stay Down, whatever a source says.
    pub down: BTreeSet<IpAddr>,
    /// Those of nodes that are back, and that are being restored.
    pub restored: BTreeSet<IpAddr>,
    /// Those of nodes that are gone, with the pools in which their Down is ours: where a source still assigns one,
    /// nothing else would take it back.
    pub outlived: BTreeSet<(PoolId, IpAddr)>,
}

/// What of a pool's members that should go stays nevertheless. The order is that of caution: of two, the later holds
/// when levels are united.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Keeps {
    /// Nothing.
    #[default]
    Nothing,
    /// All of it, while nothing is required and nothing tolerated is in the pool: it must not be emptied (G2).
    Last,
    /// All of it: nothing is removed (G4, G6).
    All,
}

impl Level {
    /// Whether a pool with these members is right: required ⊆ observed ⊆ required ∪ tolerated.
    #[must_use]
    pub fn is_right(&self, observed: &BTreeSet<IpAddr>) -> bool {
        self.missing(observed).next().is_none() && self.surplus(observed).next().is_none()
    }

    /// The required members that are not in the pool.
    pub fn missing<'a>(&'a self, observed: &'a BTreeSet<IpAddr>) -> impl Iterator<Item = &'a IpAddr> + 'a {
        self.required.keys().filter(move |ip| !observed.contains(ip))
    }

    /// The members in the pool that must go.
    pub fn surplus<'a>(&'a self, observed: &'a BTreeSet<IpAddr>) -> impl Iterator<Item = &'a IpAddr> + 'a {
        let would_empty = self.required.is_empty() && !observed.iter().any(|ip| self.tolerated.contains(ip));
        let keeps = match self.keeps {
            Keeps::Nothing => false,
            Keeps::Last => would_empty,
            Keeps::All => true,
        };
        observed.iter().filter(move |ip| !keeps && !self.allows(ip))
    }

    /// Whether a member may be in the pool.
    #[must_use]
    pub fn allows(&self, ip: &IpAddr) -> bool {
        self.required.contains_key(ip) || self.tolerated.contains(ip)
    }

    /// Whether two levels ask for the same members under the same names; node readiness does not count.
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

    /// Adds another level: a member required by either is required, one allowed by either is allowed.
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

    /// Whether nothing is required and nothing tolerated.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.required.is_empty() && self.tolerated.is_empty()
    }

    /// The invariant of every level: no address is required and tolerated at once.
    #[must_use]
    pub fn is_disjoint(&self) -> bool {
        self.tolerated.iter().all(|ip| !self.required.contains_key(ip))
    }

    /// The invariant of what is said of admin states: only what may stay and is not required is to be Down, and only
    /// what is required comes back.
    #[must_use]
    pub fn has_sound_states(&self) -> bool {
        self.states.down.is_subset(&self.tolerated)
            && self.states.lifted.iter().all(|ip| self.required.contains_key(ip))
    }
}

/// How a fact reached us (G1). The order is that of doubt: the later variant wins when two are joined.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Provenance {
    /// A change seen on a running watch.
    #[default]
    Watch,
    /// A watch that was re-established without a new list.
    Reconnect,
    /// A list made because a watch could not go on.
    Relist,
    /// The first list after the start of the process.
    FirstList,
}

impl Provenance {
    /// The word for the admin API and exports.
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

/// The one source that a pool's level comes from (A2).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Source {
    /// Services and EndpointSlices of this cluster.
    #[default]
    Kubernetes,
    /// An xDS resource.
    Xds {
        /// Its name in the configuration.
        name: Name,
        /// What goes with every event, error and status of the pool: what is wrong with the resource though it is in
        /// use, or else by which id the control plane knows us (X4).
        note: Arc<str>,
        /// What there is to know of how members were chosen.
        remarks: BTreeSet<Diagnostic>,
    },
}

impl Source {
    /// What goes with all that operators are told of the pool, if anything does (X4).
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

    fn level(required: &[u8], tolerated: &[u8], keeps: Keeps) -> Level {
        let member = Member { name: AddressName::new("n"), node_ready: true };
        let required = ips(required).into_iter().map(|ip| (ip, member.clone())).collect();
        Level { required, tolerated: ips(tolerated), keeps, ..Level::default() }
    }

    #[test]
    fn g2_what_should_go_stays_only_where_the_pool_would_be_empty_without_it() {
        let surplus =
            |level: &Level, observed: &[u8]| level.surplus(&ips(observed)).copied().collect::<BTreeSet<_>>();
        assert_eq!(surplus(&level(&[], &[], Keeps::Last), &[1, 2]), ips(&[]));
        assert_eq!(
            surplus(&level(&[], &[3], Keeps::Last), &[1, 2]),
            ips(&[]),
            "tolerated members are never added"
        );
        assert_eq!(surplus(&level(&[], &[2], Keeps::Last), &[1, 2]), ips(&[1]));
        assert_eq!(
            surplus(&level(&[3], &[], Keeps::Last), &[1, 2]),
            ips(&[1, 2]),
            "a member comes in its place"
        );
        assert_eq!(surplus(&level(&[], &[], Keeps::Nothing), &[1, 2]), ips(&[1, 2]));
        assert!(level(&[], &[], Keeps::Last).is_right(&ips(&[1])));
        let kept = level(&[3], &[1], Keeps::All);
        assert_eq!(surplus(&kept, &[1, 2, 3]), ips(&[]), "nothing is removed at all");
        assert!(!kept.is_right(&ips(&[1, 2])), "what is missing is added all the same");
    }

    #[test]
    fn a_united_level_allows_what_either_allows_and_keeps_what_either_keeps() {
        let mut both = level(&[1], &[2], Keeps::Nothing);
        both.unite(&level(&[2], &[1, 3], Keeps::Last));
        assert!(both.same_members(&level(&[1, 2], &[3], Keeps::Last)) && both.is_disjoint());
    }
}
