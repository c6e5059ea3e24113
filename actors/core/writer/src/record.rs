//! The record of a write: the members that it changes, their Services and the reason (E1).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use model::arm::{AdminState, Backend, Entry, PoolFacts};
use model::attempt::MembershipWrite;
use model::write_record::{Trigger, WriteRecord};

use super::plan::PoolChange;

/// Returns the record of a PUT before it is sent. `taken` is the pool's level; `None` if the write only sets the
/// admin states of nodes.
pub(super) fn record(facts: &PoolFacts, change: &PoolChange, taken: Option<&MembershipWrite>) -> WriteRecord {
    let own = taken.filter(|taken| taken.rewrites || !change.keeps_members());
    let mut record = match own {
        Some(taken) => WriteRecord::of(taken.trigger, taken.services.values(), None),
        None => WriteRecord::of(Trigger::NodeAdminState, std::iter::empty(), None),
    };
    for new in &change.edit.add {
        let member = taken.and_then(|taken| taken.level.required.get(&new.ip));
        let name = member.map_or(&new.name, |member| &member.name).shared();
        record.added.push(&name, Some(new.ip.into()));
        if new.admin_state == Some(AdminState::Down) {
            record.down.push(&name, Some(new.ip.into()));
        }
    }
    let named = names(facts);
    for ip in &change.removed {
        let name = named.get(ip).map_or_else(|| Arc::from(""), |entry| Arc::clone(&entry.name));
        record.removed.push(&name, Some(Backend::Address(*ip)));
    }
    for (at, state) in &change.edit.set_admin {
        let Some(entry) = facts.entries.get(*at) else { continue };
        match state {
            AdminState::Down => record.down.push(&entry.name, entry.backend()),
            AdminState::None => record.restored.push(&entry.name, entry.backend()),
            AdminState::Up | AdminState::Unknown => {}
        }
    }
    record
}

/// Returns the first entry of each address.
fn names(facts: &PoolFacts) -> BTreeMap<IpAddr, &Entry> {
    let entries = facts.entries.iter().rev();
    entries.filter_map(|entry| entry.ip.map(|ip| (ip, entry))).collect()
}
