//! A pool's place in its lane: what of it is due, membership and admin state apart (design.md W1, N3).

use crate::ids::AttemptId;
use crate::machine::Now;
use crate::queue::{Class, Due};

use super::{AdminDue, AdminUrgency};

/// The order in which a lane grants (W1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Rank {
    /// Nothing serves.
    Revive,
    /// A node is to be cut out.
    Down,
    /// A required member is missing.
    Add,
    /// Restores and removals.
    Rest,
}

/// A pool's waiting parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    /// Membership is due.
    pub membership: Option<Due>,
    /// Admin state is due.
    pub admin: Option<AdminDue>,
    /// A write of the pool that gave its lane back and goes on later.
    pub resume: Option<Resume>,
}

/// A write that gave lane and turn back because a foreign operation runs (W2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Resume {
    /// Its id, which the next grant carries again.
    pub attempt: AttemptId,
    /// Whether the pool has an attempt open under that id, which must be answered.
    pub taken: bool,
    /// The rounds that entity tags have cost it.
    pub rounds: u32,
    /// How long it has waited.
    pub wait: Wait,
    /// Not before this moment; `None`: the time has come.
    pub not_before: Option<Now>,
}

/// How long a write has met a foreign operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    /// When it first did.
    pub since: Now,
    /// How often it did.
    pub times: u32,
}

impl Slot {
    /// Whether nothing of it is due.
    pub(super) fn is_empty(&self) -> bool {
        self.membership.is_none() && self.admin.is_none()
    }

    /// Its place in the order: the more urgent of its parts, and since when that has been due.
    pub(super) fn rank(&self) -> Option<(Rank, Now)> {
        let membership = self.membership.map(|due| (of_class(due.class), due.since));
        let admin = self.admin.map(|due| (of_urgency(due.urgency), due.since));
        [membership, admin].into_iter().flatten().min()
    }

    /// Since when the older of its parts has been due.
    pub(super) fn since(&self) -> Option<Now> {
        [self.membership.map(|due| due.since), self.admin.map(|due| due.since)].into_iter().flatten().min()
    }

    /// The word for its place in the order.
    pub(super) fn word(&self) -> &'static str {
        let membership = self.membership.map(|due| (of_class(due.class), due.class.as_str()));
        let admin = self.admin.map(|due| match due.urgency {
            AdminUrgency::Down => (Rank::Down, "down"),
            AdminUrgency::Restore => (Rank::Rest, "restore"),
        });
        [membership, admin]
            .into_iter()
            .flatten()
            .min_by_key(|(rank, _)| *rank)
            .map_or("none", |(_, word)| word)
    }

    /// When it may be granted, if that lies in the future of the last tick.
    pub(super) fn deferred(&self) -> Option<Now> {
        self.resume.and_then(|resume| resume.not_before)
    }

    /// Takes back an admin part that was not carried out; a newer one that came meanwhile stands.
    pub(super) fn return_admin(&mut self, due: AdminDue) {
        self.admin = Some(match self.admin {
            None => due,
            Some(newer) => AdminDue { since: newer.since.min(due.since), ..newer },
        });
    }
}

fn of_class(class: Class) -> Rank {
    match class {
        Class::Revive => Rank::Revive,
        Class::Add => Rank::Add,
        Class::Remove => Rank::Rest,
    }
}

fn of_urgency(urgency: AdminUrgency) -> Rank {
    match urgency {
        AdminUrgency::Down => Rank::Down,
        AdminUrgency::Restore => Rank::Rest,
    }
}
