//! One write on its way: its parts, its phase and the waits of that phase (docs/design/writer.md, W2).
//!
//! How it goes from phase to phase stands in [`super::progress`], how it ends in [`super::ending`].

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use model::arm::{PoolRead, Provisioning, RetryAfter};
use model::attempt::{Due, Taken};
use model::ids::{AttemptId, Etag, Operation, PoolId};
use model::machine::{Now, step_of};
use model::write_record::WriteRecord;

use super::classify::Stage;
use super::plan::Change;
use super::slot::Wait;
use super::{AdminDue, Draining};

/// How long a pool may take to answer a Take.
pub(super) const TAKE_LIMIT: Duration = Duration::from_secs(10);

/// How long an operation is asked about before the pool itself is read (W2).
const POLL_LIMIT: Duration = Duration::from_secs(15 * 60);

/// The load balancer is read after this many failed polls in a row.
const MOST_FAILED_POLLS: u32 = 3;

/// How long an operation is polled before its load balancer is read, and the interval between such reads.
const READ_BACK_EVERY: Duration = Duration::from_secs(30);

/// The delays between polls where ARM names none; the last one repeats.
const POLL_DELAYS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(5)];

/// The least and the most that ARM's own delay between polls may be.
const POLL_DELAY_BOUNDS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));

/// How long after its PUT was accepted, and after each glance that did not settle it, a pool is glanced at at the
/// earliest, where ARM asks for more time than that before the next poll.
const GLANCE_EVERY: Duration = Duration::from_secs(1);

/// How far apart the glances of all lanes together are: ten in a second are three fifths of the reads that are budgeted
/// by default (W9), while every lane is busy all the time.
const GLANCES_APART: Duration = Duration::from_millis(100);

/// The delays between looks at a pool on which a foreign operation runs; the last one repeats (W2).
pub(super) const FOREIGN_DELAYS: [Duration; 4] =
    [Duration::from_secs(5), Duration::from_secs(10), Duration::from_secs(20), Duration::from_secs(30)];

/// How long a foreign operation is waited for (W2).
const FOREIGN_LIMIT: Duration = Duration::from_secs(120);

/// A write under way in a lane.
#[derive(Debug)]
pub(super) struct Write {
    /// Its id; the pool's attempt has the same.
    pub attempt: AttemptId,
    /// What is written.
    pub pool: PoolId,
    /// When the lane was granted.
    pub granted: Now,
    /// The membership part.
    pub membership: Membership,
    /// The admin part.
    pub admin: Option<AdminDue>,
    /// When the lane was granted to the admin part first; `None`: never, for it came with no grant, or there is none.
    pub admin_granted: Option<Now>,
    /// What it has behind it.
    pub course: WriteHistory,
    /// Whether it still holds the token for a PUT.
    pub token: bool,
    /// What keeps others from writing at the same time (W7).
    pub cover: Exclusion,
    /// What it does.
    pub phase: Phase,
}

/// What keeps others from writing a load balancer at the same time as we do (W7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Exclusion {
    /// The shared Lease.
    SharedLease,
    /// Nothing: only a Down goes, and only while the load balancer is as it was when it was seen at rest, with this
    /// entity tag; `None`: it has not been looked at.
    AtRest(Option<Etag>),
}

impl Exclusion {
    /// Whether a read shows that the load balancer is not as it was.
    pub(super) fn is_disturbed(&self, read: &PoolRead) -> bool {
        match self {
            Exclusion::SharedLease => false,
            Exclusion::AtRest(tag) => {
                tag.is_none() || *tag != read.etag || read.facts.provisioning != Provisioning::Succeeded
            }
        }
    }
}

/// What a write has behind it and keeps while it waits.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteHistory {
    /// How often the entity tag had moved between its GET and its PUT (W2).
    pub moved: u32,
    /// The foreign operation that it has waited for.
    pub wait: Option<Wait>,
    /// How many of the client's retries its GET has used (W4).
    read_retries: u32,
    /// The same of its PUT, with the GETs that each of them begins with.
    put_retries: u32,
    /// The latest moment that a throttled call of it has named (W6).
    pub named: Option<Now>,
    /// Whether its PUT has met a 429 or a closed gate and is tried again (W6).
    pub put_throttled: bool,
    /// Its PUTs whose answers were lost and that no look at the pool has disproved: a GET may show that one of them
    /// was carried out (W4).
    pub unsure: Vec<Arc<Put>>,
    /// The generation of the draining set for which the admin state was told what these may have missed.
    pub told: u64,
}

impl WriteHistory {
    /// How often the call that has failed at this step was tried again. A GET that follows a PUT's failure belongs to the
    /// retry of that PUT (W4).
    pub(super) fn retries(&mut self, stage: Stage) -> &mut u32 {
        match stage {
            Stage::Put => &mut self.put_retries,
            Stage::Read | Stage::Poll if self.put_retries > 0 => &mut self.put_retries,
            Stage::Read | Stage::Poll => &mut self.read_retries,
        }
    }

    /// Takes in what a pool at rest holds: a PUT that would have left anything else there was not carried out, or
    /// not for long, and whatever the pool holds later is not its doing.
    pub(super) fn seen(&mut self, members: &BTreeSet<IpAddr>) {
        self.unsure.retain(|put| put.change.members == *members);
    }

    /// The PUT without an answer that the last look at the pool has found carried out.
    pub(super) fn found(&self) -> Option<&Put> {
        self.unsure.last().map(|put| &**put)
    }
}

/// The membership part of a write.
#[derive(Debug)]
pub(super) enum Membership {
    /// It has none, or none any more.
    Not,
    /// The pool was asked for its level.
    Asked(Due),
    /// The pool has an attempt open.
    Taken(Due, Arc<Taken>),
}

/// What a write does.
#[derive(Debug)]
pub(super) enum Phase {
    /// Waits for the pool's level.
    Taking,
    /// Its GET waits for a token or an answer.
    Reading,
    /// Its PUT was sent.
    Putting(Arc<Put>),
    /// Its PUT was accepted and is carried out.
    Polling(Polling),
}

impl Phase {
    /// The word for operators.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Phase::Taking => "taking",
            Phase::Reading => "reading",
            Phase::Putting(_) => "putting",
            Phase::Polling(_) => "polling",
        }
    }
}

/// What a PUT was made of, for judging what is read back.
#[derive(Clone, Debug)]
pub(super) struct Put {
    /// What it changes.
    pub change: Change,
    /// The draining set that it was planned with.
    pub draining: Arc<Draining>,
    /// Whether it leaves restores undone, which do not go without the shared Lease (W7).
    pub leaves_restores: bool,
    /// What it changes and why, for operators.
    pub record: Arc<WriteRecord>,
}

impl Put {
    /// The same PUT after ARM has answered it with this correlation id.
    pub(super) fn answered(&self, correlation_id: Option<Arc<str>>) -> Put {
        let record = WriteRecord { correlation_id, ..(*self.record).clone() };
        Put { record: Arc::new(record), ..self.clone() }
    }
}

/// An accepted PUT whose operation runs.
#[derive(Debug)]
pub(super) struct Polling {
    /// What was sent.
    pub put: Arc<Put>,
    /// How the operation is followed.
    pub follow: Follow,
    /// The entity tag in the answer to the PUT.
    pub etag: Option<Etag>,
    /// When the PUT was accepted.
    pub began: Now,
    /// How often it was asked.
    pub asked: u32,
    /// How many polls in a row have failed since the load balancer was last read.
    failed: u32,
    /// Whether the last response, to a poll or to the PUT, says that the operation is running.
    says_running: bool,
    /// When the load balancer was last read; initially, when the PUT was accepted.
    read_back: Now,
    /// When it is asked next.
    poll_at: Now,
    /// How long it is from one glance to the next.
    glance_every: Duration,
    /// Whether it was ARM that named the delay before the next poll.
    delayed: bool,
    /// What it waits for.
    pub step: PollStep,
}

/// How an operation is followed.
#[derive(Clone, Debug)]
pub(super) enum Follow {
    /// By its URL.
    Url(Operation),
    /// By reads of the pool: the response to the PUT has no URL.
    Pool,
    /// By reads of the load balancer: no poll of the URL can succeed (W5).
    LoadBalancer,
}

/// What polling waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum PollStep {
    /// The time of the next poll, glance, or read of the load balancer.
    Until(Now),
    /// The answer to a glance, or the time of the next step.
    Glancing,
    /// The answer to a poll, or the time to read the load balancer.
    Asked,
    /// The answer to a read of the load balancer.
    ReadingBack,
    /// The answer to the last look, after the time for polling has run out.
    LastLook,
}

impl Polling {
    /// Begins to poll an accepted PUT, while so many lanes are busy.
    pub(super) fn new(
        now: Now,
        put: Arc<Put>,
        operation: Option<Operation>,
        etag: Option<Etag>,
        header: RetryAfter,
        busy: usize,
    ) -> Polling {
        let step = PollStep::Until(now);
        let busy = u32::try_from(busy).unwrap_or(u32::MAX);
        let glance_every = GLANCE_EVERY.max(GLANCES_APART.saturating_mul(busy));
        let mut polling = Polling {
            put,
            follow: operation.map_or(Follow::Pool, Follow::Url),
            etag,
            began: now,
            asked: 0,
            failed: 0,
            says_running: true,
            read_back: now,
            poll_at: now,
            glance_every,
            delayed: false,
            step,
        };
        polling.wait(now, header);
        polling
    }

    /// The operation is reported as running: waits before the next poll.
    pub(super) fn on_running(&mut self, now: Now, header: RetryAfter) {
        self.failed = 0;
        self.says_running = true;
        self.wait(now, header);
    }

    /// Waits for the answer to a poll.
    pub(super) fn ask(&mut self) {
        self.says_running = false;
        self.step = PollStep::Asked;
    }

    /// A poll has failed: waits before the next one, or reads the load balancer at once after the last of several. A
    /// throttled poll is not counted (W2).
    pub(super) fn poll_failed(&mut self, now: Now, header: RetryAfter, is_throttled: bool) {
        self.failed = self.failed.saturating_add(u32::from(!is_throttled));
        self.wait(now, header);
        if self.is_read_back_due(now) {
            self.step = PollStep::Until(now);
        }
    }

    /// The load balancer was read, and the operation is not settled: continues.
    pub(super) fn keep_polling(&mut self, now: Now) {
        self.failed = 0;
        self.read_back = now;
        match self.follow {
            Follow::Url(_) | Follow::Pool => {
                self.poll_at = self.poll_at.max(now);
                self.wait_for_glance(now);
            }
            Follow::LoadBalancer => self.wait(now, RetryAfter::Absent),
        }
    }

    /// Whether a pool at rest that is not as required settles the operation: not while it is reported as running.
    pub(super) fn may_have_ended(&self) -> bool {
        !self.says_running
    }

    /// The latest time of the next read of the load balancer.
    fn read_back_at(&self) -> Now {
        self.read_back.plus(READ_BACK_EVERY)
    }

    /// Whether the load balancer is due to be read.
    pub(super) fn is_read_back_due(&self, now: Now) -> bool {
        let instead_of_poll = match self.follow {
            Follow::Url(_) | Follow::Pool => false,
            Follow::LoadBalancer => self.is_to_be_asked(now),
        };
        instead_of_poll || self.failed >= MOST_FAILED_POLLS || now >= self.read_back_at()
    }

    /// Waits before the next poll: as long as ARM says within bounds, else 1, 2, 4, 5, 5 … s (W2).
    pub(super) fn wait(&mut self, now: Now, header: RetryAfter) {
        let (least, most) = POLL_DELAY_BOUNDS;
        let named = match header {
            RetryAfter::In(span) => Some(span.clamp(least, most)),
            RetryAfter::Absent | RetryAfter::Invalid => None,
        };
        self.delayed = named.is_some();
        let delay = named.unwrap_or_else(|| step_of(&POLL_DELAYS, self.asked));
        self.asked = self.asked.saturating_add(1);
        self.poll_at = now.plus(delay).min(self.began.plus(POLL_LIMIT)).max(now);
        self.wait_for_glance(now);
    }

    /// Waits for the next glance, where ARM has named a delay and there is time for one before the next poll. Where polls
    /// read the pool there is nothing more to be seen.
    pub(super) fn wait_for_glance(&mut self, now: Now) {
        let glance_at = now.plus(self.glance_every);
        let follows_url = matches!(self.follow, Follow::Url(_));
        let glances = self.delayed && follows_url && glance_at < self.poll_at;
        self.step =
            PollStep::Until(if glances { glance_at.min(self.read_back_at()) } else { self.next_at() });
    }

    /// Waits for the next poll or read of the load balancer, without a glance.
    pub(super) fn wait_for_poll(&mut self) {
        self.step = PollStep::Until(self.next_at());
    }

    /// When the next poll or read of the load balancer is due.
    fn next_at(&self) -> Now {
        self.poll_at.min(self.read_back_at())
    }

    /// Whether it is time to ask, and not only to glance.
    pub(super) fn is_to_be_asked(&self, now: Now) -> bool {
        now >= self.poll_at
    }

    /// From now on, reads the load balancer instead of polling: the operation's URL is useless (W5).
    pub(super) fn give_up_url(&mut self, now: Now) {
        self.follow = Follow::LoadBalancer;
        self.poll_at = now;
        self.wait_for_poll();
    }

    /// Whether only the last look is left.
    pub(super) fn is_overdue(&self, now: Now) -> bool {
        now >= self.began.plus(POLL_LIMIT)
    }
}

impl Wait {
    /// Notes that a foreign operation runs; gives the moment of the next look, or `None` when it has been waited
    /// for long enough (W2).
    pub(super) fn again(wait: Option<Wait>, now: Now) -> (Wait, Option<Now>) {
        let wait = wait.unwrap_or(Wait { since: now, times: 0 });
        let limit = wait.since.plus(FOREIGN_LIMIT);
        let next = now.plus(step_of(&FOREIGN_DELAYS, wait.times)).min(limit);
        let wait = Wait { times: wait.times.saturating_add(1), ..wait };
        (wait, (now < limit).then_some(next))
    }
}

impl Write {
    /// The next moment at which time alone changes something; the answers to its calls are watched elsewhere.
    pub(super) fn deadline(&self) -> Option<Now> {
        match &self.phase {
            Phase::Taking => Some(self.granted.plus(TAKE_LIMIT)),
            Phase::Reading | Phase::Putting(_) => None,
            Phase::Polling(polling) => match polling.step {
                PollStep::Until(until) => Some(until),
                PollStep::Glancing => Some(polling.next_at()),
                PollStep::Asked => Some(polling.read_back_at()),
                PollStep::ReadingBack | PollStep::LastLook => None,
            },
        }
    }

    /// The level that its pool brought.
    pub(super) fn taken(&self) -> Option<&Arc<Taken>> {
        match &self.membership {
            Membership::Not | Membership::Asked(_) => None,
            Membership::Taken(_, taken) => Some(taken),
        }
    }

    /// Whether its pool is written although it is right, and no PUT for that may have been carried out yet.
    pub(super) fn rewrites(&self) -> bool {
        self.taken().is_some_and(|taken| taken.rewrites) && self.course.unsure.is_empty()
    }

    /// The moment its membership has been due since.
    pub(super) fn due(&self) -> Option<Due> {
        match &self.membership {
            Membership::Not => None,
            Membership::Asked(due) | Membership::Taken(due, _) => Some(*due),
        }
    }

    /// Its PUTs that may be carried out, or may have been.
    pub(super) fn puts(&self) -> impl Iterator<Item = &Arc<Put>> {
        let open = match &self.phase {
            Phase::Taking | Phase::Reading => None,
            Phase::Putting(put) => Some(put),
            Phase::Polling(polling) => Some(&polling.put),
        };
        self.course.unsure.iter().chain(open)
    }

    /// Whether it goes without the shared Lease.
    pub(super) fn bypasses(&self) -> bool {
        match self.cover {
            Exclusion::SharedLease => false,
            Exclusion::AtRest(_) => true,
        }
    }

    /// Whether all that is left of it is an admin part.
    pub(super) fn is_admin_alone(&self) -> bool {
        match &self.membership {
            Membership::Not => self.admin.is_some(),
            Membership::Asked(_) | Membership::Taken(..) => false,
        }
    }

    /// Whether a part of it is left that is waited for.
    pub(super) fn is_wanted(&self) -> bool {
        match &self.membership {
            Membership::Not => self.admin.is_some(),
            Membership::Asked(_) | Membership::Taken(..) => true,
        }
    }
}
