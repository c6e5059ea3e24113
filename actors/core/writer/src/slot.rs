//! A pool's place in its lane: what of it is due, membership and admin state apart (docs/design/writer.md, W1; N3).

use model::attempt::{Class, Due};
use model::ids::AttemptId;
use model::machine::Now;

use super::write::WriteHistory;
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
    /// Whether it waits for changes of its Services that were read and not taken in.
    pub unread: Unread,
}

/// Whether a slot waits until all changes of its Services are taken in that were read before its grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Unread {
    /// It does not: there are none that are known.
    #[default]
    Nothing,
    /// It does, until this moment at most.
    Until(Now),
    /// It has waited for as long as it may.
    Waited,
}

/// A write that gave lane and turn back and goes on later (W2, W4).
#[derive(Clone, Debug)]
pub(super) struct Resume {
    /// Its id, which the next grant carries again.
    pub attempt: AttemptId,
    /// Whether the pool has an attempt open under that id, which must be answered.
    pub taken: bool,
    /// Whether the pool has posted its membership since that attempt began, so that it is due apart from it.
    pub posted: bool,
    /// When its admin part was granted first; `None`: it had none.
    pub admin_granted: Option<Now>,
    /// When it began to wait.
    pub since: Now,
    /// What it has behind it.
    pub course: WriteHistory,
    /// What it waits for.
    pub why: Why,
    /// Not before this moment; `None`: the time has come.
    pub not_before: Option<Now>,
}

/// Why a write waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// A foreign operation runs on the load balancer (W2).
    ForeignOperation,
    /// ARM or the way to it is in trouble (W4).
    ClientRetry,
    /// Its next PUT has no token of the cloud configuration's rate yet (W9).
    Rate,
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

    /// The word for its place in the order, or for what it waits for.
    pub(super) fn word(&self) -> &'static str {
        if self.is_retried() {
            return "waiting to retry";
        }
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

    /// When it may be granted, if that lies in the future of the last tick. Nothing that is read keeps a node from being
    /// cut out (N3).
    pub(super) fn deferred(&self) -> Option<Now> {
        let resumes = self.resume.as_ref().and_then(|resume| resume.not_before);
        let read = match self.unread {
            Unread::Until(until) if self.admin.is_none() => Some(until),
            Unread::Until(_) | Unread::Nothing | Unread::Waited => None,
        };
        resumes.max(read)
    }

    /// A change of one of its Services was read: it waits for that, but for no longer than until this moment.
    pub(super) fn wait_for_unread(&mut self, until: Now) {
        match self.unread {
            Unread::Nothing if self.membership.is_some() => self.unread = Unread::Until(until),
            Unread::Nothing | Unread::Until(_) | Unread::Waited => {}
        }
    }

    /// All that was read of its Services was taken in.
    pub(super) fn all_is_read(&mut self) {
        match self.unread {
            Unread::Until(_) => self.unread = Unread::Nothing,
            Unread::Nothing | Unread::Waited => {}
        }
    }

    /// Ends the waits whose time has come.
    pub(super) fn wake(&mut self, now: Now) {
        if let Some(resume) = &mut self.resume {
            resume.not_before.take_if(|at| *at <= now);
        }
        match self.unread {
            Unread::Until(until) if until <= now => self.unread = Unread::Waited,
            Unread::Until(_) | Unread::Nothing | Unread::Waited => {}
        }
    }

    /// Whether it waits for one of the client's retries.
    fn is_retried(&self) -> bool {
        self.resume.as_ref().is_some_and(|resume| match resume.why {
            Why::ForeignOperation | Why::Rate => false,
            Why::ClientRetry => true,
        })
    }

    /// Makes membership due, or due in another class. It does not wait for the retry of an admin part.
    pub(super) fn membership_due(&mut self, due: Due) {
        if self.membership.is_none() {
            self.hasten();
        }
        if let Some(resume) = &mut self.resume {
            resume.posted = true;
        }
        self.membership = Some(due);
    }

    /// Membership is no longer due. A pool whose attempt waits answers the next Take with Nothing.
    pub(super) fn withdraw(&mut self) {
        match &mut self.resume {
            Some(resume) if resume.taken => resume.posted = false,
            Some(_) | None => self.membership = None,
        }
    }

    /// Puts a write back that gives its lane up. What came due while it was under way does not wait with it: a part
    /// that was no part of it hastens the client's next try, as one that comes due later does.
    pub(super) fn put_back(&mut self, membership: Option<Due>, admin: Option<AdminDue>, resume: Resume) {
        let newer = match (membership, self.membership) {
            (None, Some(_)) => true,
            (Some(_) | None, None) | (Some(_), Some(_)) => false,
        } || match (admin, self.admin) {
            (None, Some(due)) => due.urgency == AdminUrgency::Down,
            (Some(_) | None, None) | (Some(_), Some(_)) => false,
        };
        let posted = self.membership.is_some();
        if let Some(due) = membership {
            let latest = self.membership.unwrap_or(due);
            self.membership = Some(Due { since: latest.since.min(due.since), ..latest });
        }
        if let Some(due) = admin {
            self.return_admin(due);
        }
        if !self.is_empty() {
            self.resume = Some(Resume { posted, ..resume });
        }
        if newer {
            self.hasten();
        }
    }

    /// Takes all of it out for a grant; what the pool has posted apart from the attempt that goes on stays.
    pub(super) fn take_granted(&mut self) -> Slot {
        let granted = std::mem::take(self);
        if granted.resume.as_ref().is_some_and(|resume| resume.taken && resume.posted) {
            self.membership = granted.membership;
        }
        granted
    }

    /// Ends the wait of its write; gives the attempt that the pool must be answered.
    pub(super) fn interrupt(&mut self) -> Option<AttemptId> {
        let resume = self.resume.take().filter(|resume| resume.taken)?;
        if !resume.posted {
            self.membership = None;
        }
        Some(resume.attempt)
    }

    /// Makes an admin part due. A Down does not wait for the retry of a membership write (N3).
    pub(super) fn admin_due(&mut self, due: AdminDue) {
        match due.urgency {
            AdminUrgency::Down if self.admin.is_none() => self.hasten(),
            AdminUrgency::Down | AdminUrgency::Restore => {}
        }
        self.admin = Some(due);
    }

    /// Takes out the admin part alone, with what it has behind it; a pool whose attempt is already open goes with it.
    pub(super) fn take_down(&mut self) -> Slot {
        if self.resume.as_ref().is_some_and(|resume| resume.taken) {
            return self.take_granted();
        }
        let (admin, resume) = (self.admin.take(), self.resume.take());
        Slot { membership: None, admin, resume, unread: Unread::Nothing }
    }

    /// Makes the client's next try at the next grant, together with the part that has come due.
    fn hasten(&mut self) {
        if self.is_retried()
            && let Some(resume) = &mut self.resume
        {
            resume.not_before = None;
        }
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
