//! A pool's entry in its lane, with membership and admin state apart (docs/design/writer.md, W1; N3).

use model::attempt::{MembershipDue, MembershipUrgency};
use model::blocked::{Blocked, BlockedUntil};
use model::ids::AttemptId;
use model::machine::Now;

use super::write::WriteHistory;
use super::{AdminDue, AdminUrgency};

/// The order of grants in a lane (W1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Rank {
    /// No backend serves.
    Revive,
    /// A node must be drained.
    Down,
    /// A required member is missing.
    Add,
    /// Restores and removals.
    RestoreOrRemove,
}

/// The due parts of a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    /// Membership, if due.
    pub membership: Option<MembershipDue>,
    /// Admin state, if due.
    pub admin: Option<AdminDue>,
    /// A write that gave its lane back and will continue.
    pub resume: Option<Resume>,
    /// The wait for Service changes that were read but not processed.
    pub unread: UnreadWait,
}

/// Whether a slot waits for Service changes that were read before its grant and are not processed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum UnreadWait {
    /// No such changes are known.
    #[default]
    NotWaiting,
    /// Waits until this time at most.
    Until(Now),
    /// Has waited for the maximum time.
    Waited,
}

/// A write that gave lane and turn back and will continue (W2, W4).
#[derive(Clone, Debug)]
pub(super) struct Resume {
    /// Its id, which the next grant reuses.
    pub attempt: AttemptId,
    /// Whether the pool has an open attempt with that id, which must be answered.
    pub taken: bool,
    /// Whether membership became due again since that attempt began.
    pub posted: bool,
    /// Time of the first grant of its admin part. `None`: it had none.
    pub admin_granted: Option<Now>,
    /// Time at which it began to wait.
    pub since: Now,
    /// State that the write keeps.
    pub history: WriteHistory,
    /// Reason of the wait.
    pub why: WaitReason,
    /// Earliest time of the next grant. `None`: that time has come.
    pub not_before: Option<Now>,
}

/// Reason for which a write waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WaitReason {
    /// A foreign operation runs on the load balancer (W2).
    ForeignOperation,
    /// ARM or the connection has a problem (W4).
    ClientRetry,
    /// Its next PUT has no token of the cloud configuration's rate limit yet (W9).
    Rate,
}

impl Slot {
    /// Returns whether no part is due.
    pub(super) fn is_empty(&self) -> bool {
        self.membership.is_none() && self.admin.is_none()
    }

    /// Returns the rank of the more urgent part, and the time since which that part is due.
    pub(super) fn rank(&self) -> Option<(Rank, Now)> {
        let membership = self.membership.map(|due| (rank_of_membership(due.urgency), due.since));
        let admin = self.admin.map(|due| (rank_of_admin(due.urgency), due.since));
        [membership, admin].into_iter().flatten().min()
    }

    /// Returns the time since which the older part is due.
    pub(super) fn since(&self) -> Option<Now> {
        [self.membership.map(|due| due.since), self.admin.map(|due| due.since)].into_iter().flatten().min()
    }

    /// Returns the name of the slot's rank, or of the reason for its wait, for operators.
    pub(super) fn label(&self) -> &'static str {
        if self.is_retried() {
            return "waiting to retry";
        }
        let membership = self.membership.map(|due| (rank_of_membership(due.urgency), due.urgency.as_str()));
        let admin = self.admin.map(|due| match due.urgency {
            AdminUrgency::Down => (Rank::Down, "down"),
            AdminUrgency::Restore => (Rank::RestoreOrRemove, "restore"),
        });
        [membership, admin]
            .into_iter()
            .flatten()
            .min_by_key(|(rank, _)| *rank)
            .map_or("none", |(_, word)| word)
    }

    /// Returns the earliest time of a grant, if that is after the last tick. Unprocessed changes never delay a Down
    /// (N3).
    pub(super) fn deferred(&self) -> Option<Now> {
        let resumes = self.resume.as_ref().and_then(|resume| resume.not_before);
        let read = match self.unread {
            UnreadWait::Until(until) if self.admin.is_none() => Some(until),
            UnreadWait::Until(_) | UnreadWait::NotWaiting | UnreadWait::Waited => None,
        };
        resumes.max(read)
    }

    /// Returns why the slot cannot be granted yet.
    pub(super) fn blocked(&self) -> Option<BlockedUntil> {
        let until = self.deferred()?;
        let resume = self.resume.as_ref().filter(|resume| resume.not_before == Some(until));
        let why = match resume.map(|resume| resume.why) {
            Some(WaitReason::ForeignOperation) => Blocked::LaneLocked,
            Some(WaitReason::ClientRetry) => Blocked::Interval,
            Some(WaitReason::Rate) => Blocked::Budget,
            None => Blocked::Window,
        };
        Some(why.until(until))
    }

    /// Waits for an unprocessed Service change, until this time at most.
    pub(super) fn wait_for_unread(&mut self, until: Now) {
        match self.unread {
            UnreadWait::NotWaiting if self.membership.is_some() => self.unread = UnreadWait::Until(until),
            UnreadWait::NotWaiting | UnreadWait::Until(_) | UnreadWait::Waited => {}
        }
    }

    /// Ends the wait for unprocessed changes.
    pub(super) fn end_unread_wait(&mut self) {
        match self.unread {
            UnreadWait::Until(_) => self.unread = UnreadWait::NotWaiting,
            UnreadWait::NotWaiting | UnreadWait::Waited => {}
        }
    }

    /// Ends the waits whose time has come.
    pub(super) fn wake(&mut self, now: Now) {
        if let Some(resume) = &mut self.resume {
            resume.not_before.take_if(|at| *at <= now);
        }
        match self.unread {
            UnreadWait::Until(until) if until <= now => self.unread = UnreadWait::Waited,
            UnreadWait::Until(_) | UnreadWait::NotWaiting | UnreadWait::Waited => {}
        }
    }

    /// Returns whether the slot waits for a client retry.
    fn is_retried(&self) -> bool {
        self.resume.as_ref().is_some_and(|resume| match resume.why {
            WaitReason::ForeignOperation | WaitReason::Rate => false,
            WaitReason::ClientRetry => true,
        })
    }

    /// Makes membership due, or changes its urgency. Membership does not wait for the retry of an admin part.
    pub(super) fn membership_due(&mut self, due: MembershipDue) {
        if self.membership.is_none() {
            self.retry_at_next_grant();
        }
        if let Some(resume) = &mut self.resume {
            resume.posted = true;
        }
        self.membership = Some(due);
    }

    /// Removes membership. A pool with a waiting attempt answers the next Take with `None` instead.
    pub(super) fn withdraw(&mut self) {
        match &mut self.resume {
            Some(resume) if resume.taken => resume.posted = false,
            Some(_) | None => self.membership = None,
        }
    }

    /// Puts back a write that gives up its lane. Parts that became due meanwhile do not wait for it: like a part that
    /// becomes due later, they bring the client's next try forward.
    pub(super) fn put_back(
        &mut self,
        membership: Option<MembershipDue>,
        admin: Option<AdminDue>,
        resume: Resume,
    ) {
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
            self.membership = Some(MembershipDue { since: latest.since.min(due.since), ..latest });
        }
        if let Some(due) = admin {
            self.return_admin(due);
        }
        if !self.is_empty() {
            self.resume = Some(Resume { posted, ..resume });
        }
        if newer {
            self.retry_at_next_grant();
        }
    }

    /// Takes everything out for a grant. Membership that became due apart from the open attempt stays.
    pub(super) fn take_granted(&mut self) -> Slot {
        let granted = std::mem::take(self);
        if granted.resume.as_ref().is_some_and(|resume| resume.taken && resume.posted) {
            self.membership = granted.membership;
        }
        granted
    }

    /// Ends the wait of the slot's write. Returns the attempt that must be answered.
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
            AdminUrgency::Down if self.admin.is_none() => self.retry_at_next_grant(),
            AdminUrgency::Down | AdminUrgency::Restore => {}
        }
        self.admin = Some(due);
    }

    /// Takes out the admin part and its history. If the pool has an open attempt, takes out the write as for a full
    /// grant.
    pub(super) fn take_down(&mut self) -> Slot {
        if self.resume.as_ref().is_some_and(|resume| resume.taken) {
            return self.take_granted();
        }
        let (admin, resume) = (self.admin.take(), self.resume.take());
        Slot { membership: None, admin, resume, unread: UnreadWait::NotWaiting }
    }

    /// Moves the client's next try to the next grant, together with the newly due part.
    fn retry_at_next_grant(&mut self) {
        if self.is_retried()
            && let Some(resume) = &mut self.resume
        {
            resume.not_before = None;
        }
    }

    /// Makes an admin part due again that was not carried out, unless a newer one is due.
    pub(super) fn return_admin(&mut self, due: AdminDue) {
        self.admin = Some(match self.admin {
            None => due,
            Some(newer) => AdminDue { since: newer.since.min(due.since), ..newer },
        });
    }
}

fn rank_of_membership(urgency: MembershipUrgency) -> Rank {
    match urgency {
        MembershipUrgency::Revive => Rank::Revive,
        MembershipUrgency::Add => Rank::Add,
        MembershipUrgency::Remove => Rank::RestoreOrRemove,
    }
}

fn rank_of_admin(urgency: AdminUrgency) -> Rank {
    match urgency {
        AdminUrgency::Down => Rank::Down,
        AdminUrgency::Restore => Rank::RestoreOrRemove,
    }
}
