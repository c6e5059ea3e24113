//! Computes what one PUT must change in a pool, as a pure function of its GET (docs/design/writer.md, W3; N4).
//!
//! The plan covers membership and admin states only. [`model::proof`] decides whether membership may be written at
//! all, and the lane decides when.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use model::arm::{AdminState, Backend, Edit, Entry, EntryNetwork, NewEntry, PoolFacts};
use model::ids::{AddressName, NetworkId};
use model::level::Level;

use super::Draining;

/// Longest name of an address entry that Azure allows, in characters.
pub const NAME_LIMIT: usize = 80;

/// The result of planning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Members and admin states are in sync: no PUT.
    Unchanged,
    /// A PUT with this change.
    Edit(Box<PoolChange>),
}

/// A change of one pool, and its result.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PoolChange {
    /// The edit of the document from the GET.
    pub edit: Edit,
    /// Members after the PUT.
    pub members: BTreeSet<IpAddr>,
    /// Added members.
    pub added: BTreeSet<IpAddr>,
    /// Removed members.
    pub removed: BTreeSet<IpAddr>,
    /// Backends that are not Down any more.
    pub restored: BTreeSet<Backend>,
    /// Whether an admin state changes because of the pool's source. The PUT is then a write of the pool, even if its
    /// members are in sync (X2).
    pub by_source: bool,
}

impl Plan {
    /// Replaces an empty plan by a write of the pool as it is.
    #[must_use]
    pub fn or_as_it_is(self, facts: &PoolFacts) -> Plan {
        match self {
            Plan::Unchanged => {
                Plan::Edit(Box::new(PoolChange { members: facts.members(), ..PoolChange::default() }))
            }
            Plan::Edit(_) => self,
        }
    }
}

impl PoolChange {
    /// Returns whether the change keeps the members, and the admin states that the pool's source sets.
    #[must_use]
    pub fn keeps_members(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && !self.by_source
    }

    /// Returns the pool of the GET, with the entries that this change leaves.
    #[must_use]
    pub fn applied_to(&self, facts: &PoolFacts) -> PoolFacts {
        let kept = facts.entries.iter().enumerate().filter(|(at, _)| !self.edit.remove.contains(at));
        let kept = kept.map(|(at, entry)| {
            let admin_state = self.edit.set_admin.get(&at).copied().unwrap_or(entry.admin_state);
            Entry { admin_state, ..entry.clone() }
        });
        let added = self.edit.add.iter().map(|new| Entry {
            name: Arc::from(new.name.as_str()),
            ip: Some(new.ip),
            admin_state: new.admin_state.unwrap_or(AdminState::None),
            network: new.network.clone(),
            instance: None,
        });
        PoolFacts { entries: kept.chain(added).collect(), ..facts.clone() }
    }
}

/// Plans the change that brings a pool into sync (W3).
///
/// `level` is `None` when only admin states may change. The observed members are then kept (N3). `network` is the
/// virtual network for a pool that names none. Entries without an address and second entries of one address are no
/// reason for a write, but are removed with a write of membership.
#[must_use]
pub fn plan(
    facts: &PoolFacts,
    level: Option<&Level>,
    draining: &Draining,
    network: Option<&NetworkId>,
) -> Plan {
    let mut change = PoolChange { members: facts.members(), ..PoolChange::default() };
    if let Some(level) = level {
        edit_members(facts, level, draining, network, &mut change);
    }
    for (at, entry) in facts.entries.iter().enumerate() {
        if change.edit.remove.contains(&at) {
            continue;
        }
        if let Some(state) = draining.wants(&facts.id, entry) {
            change.edit.set_admin.insert(at, state);
            if state == AdminState::None {
                change.restored.extend(entry.backend());
            }
        } else if let Some(state) = level.and_then(|level| stated(facts, level, entry, draining)) {
            change.edit.set_admin.insert(at, state);
            change.by_source = true;
        }
    }
    if change.edit.is_empty() { Plan::Unchanged } else { Plan::Edit(Box::new(change)) }
}

/// Returns the admin state that the pool's source sets for an entry (X2), unless the admin state of nodes requires
/// one: a draining node stays Down whatever the source sets. In a pool that is excluded from draining (N2), only the
/// source counts.
fn stated(facts: &PoolFacts, level: &Level, entry: &Entry, draining: &Draining) -> Option<AdminState> {
    let ip = entry.ip?;
    let is_draining = || entry.backend().is_some_and(|backend| draining.addresses.contains_key(&backend));
    let leaves = || !draining.excluded.contains(&facts.id.pool) && is_draining();
    match entry.admin_state {
        AdminState::None | AdminState::Up => level.states.down.contains(&ip).then_some(AdminState::Down),
        AdminState::Down => (level.states.lifted.contains(&ip) && !leaves()).then_some(AdminState::None),
        AdminState::Unknown => None,
    }
}

fn edit_members(
    facts: &PoolFacts,
    level: &Level,
    draining: &Draining,
    network: Option<&NetworkId>,
    change: &mut PoolChange,
) {
    let observed = facts.members();
    if level.is_in_sync(&observed) {
        return;
    }
    change.removed = level.surplus(&observed).copied().collect();
    change.added = level.missing(&observed).copied().collect();
    change.members = observed.difference(&change.removed).chain(&change.added).copied().collect();

    let mut kept: BTreeSet<IpAddr> = BTreeSet::new();
    let mut names = Names::default();
    for (at, entry) in facts.entries.iter().enumerate() {
        let stays = entry.ip.is_some_and(|ip| !change.removed.contains(&ip) && kept.insert(ip));
        if stays {
            names.take(&entry.name);
        } else {
            change.edit.remove.insert(at);
        }
    }
    for ip in &change.added {
        let wanted = level.required.get(ip).map_or("", |member| member.name.as_str());
        change.edit.add.push(NewEntry {
            name: names.choose(wanted, *ip),
            ip: *ip,
            network: network_of(facts, *ip),
            admin_state: draining.at_birth(&facts.id, &(*ip).into()),
        });
    }
    let is_named = facts.network.is_some() || facts.entries.iter().any(|entry| entry.network.is_some());
    if !is_named && !change.edit.add.is_empty() {
        change.edit.pool_network = network.cloned();
    }
}

/// Returns how a new entry names its network: as the existing entries do. If they have several subnets, the subnet of
/// the nearest address is used.
fn network_of(facts: &PoolFacts, ip: IpAddr) -> Option<Arc<EntryNetwork>> {
    let named =
        || facts.entries.iter().filter_map(|entry| entry.network.as_ref().map(|named| (entry, named)));
    let is_subnet = |(_, named): &(&Entry, &Arc<EntryNetwork>)| match &***named {
        EntryNetwork::Subnet(_) => true,
        EntryNetwork::VirtualNetwork(_) => false,
    };
    let nearest =
        named().filter(is_subnet).max_by_key(|(entry, _)| entry.ip.map(|other| shared_bits(ip, other)));
    let at_address = || if facts.network.is_some() { None } else { named().next() };
    nearest.or_else(at_address).map(|(_, named)| Arc::clone(named))
}

/// Returns how many leading bits two addresses share, and 0 if their families differ.
fn shared_bits(a: IpAddr, b: IpAddr) -> u32 {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => 0,
    }
}

/// The names in use in a pool. Azure compares them without case.
#[derive(Default)]
struct Names {
    folded: BTreeSet<String>,
}

impl Names {
    fn take(&mut self, name: &str) -> bool {
        self.folded.insert(name.to_ascii_lowercase())
    }

    /// Returns a free and valid name: the wanted one, else with the address, else with a number as well.
    fn choose(&mut self, wanted: &str, ip: IpAddr) -> AddressName {
        let plain = valid(wanted, "");
        if !plain.is_empty() && plain == wanted && self.take(&plain) {
            return AddressName::new(plain);
        }
        let address: String =
            ip.to_string().chars().map(|c| if c == '.' || c == ':' { '-' } else { c }).collect();
        let address = address.trim_matches('-');
        let stem = if plain.is_empty() { "ip" } else { wanted };
        let mut name = valid(stem, &format!("-{address}"));
        let mut count = 1;
        while !self.take(&name) {
            count += 1;
            name = valid(stem, &format!("-{address}-{count}"));
        }
        AddressName::new(name)
    }
}

/// Returns the text with a suffix, in Azure's alphabet and length: a word character first, then word characters, dots
/// and dashes, at most 80, and no dot or dash last. Empty if nothing of the text is left.
fn valid(text: &str, suffix: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let clean: String = text
        .chars()
        .map(|c| if is_word(c) || c == '.' || c == '-' { c } else { '-' })
        .skip_while(|c| !is_word(*c))
        .take(NAME_LIMIT.saturating_sub(suffix.len()))
        .collect();
    let stem = clean.trim_end_matches(|c: char| !is_word(c));
    if stem.is_empty() { String::new() } else { format!("{stem}{suffix}") }
}

#[cfg(test)]
mod tests;
