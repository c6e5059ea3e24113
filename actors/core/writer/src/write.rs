//! The state of one write: its parts, its phase and the waits of that phase (docs/design/writer.md, W2).
//!
//! [`super::progress`] moves it from phase to phase, and [`super::completion`] ends it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use mechanisms::backoff::Backoff;
use model::arm::{PoolFacts, PoolRead, Provisioning, RetryAfter};
use model::attempt::{MembershipDue, MembershipWrite};
use model::ids::{AttemptId, Etag, Operation, PoolId};
use model::machine::Now;
use model::sample::GateClass;
use model::write_record::WriteRecord;

use super::plan::PoolChange;
use super::{AdminDue, Draining};

/// Time within which a pool must answer a Take.
pub(super) const TAKE_LIMIT: Duration = Duration::from_secs(10);

/// Time for which an operation is polled before the pool itself is read (W2).
const POLL_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Number of consecutive failed polls after which the load balancer is read.
const MAX_FAILED_POLLS: u32 = 3;

/// Time for which an operation is polled before its load balancer is read, and interval between such reads.
const READ_BACK_INTERVAL: Duration = Duration::from_secs(30);

/// Time after which the pool is read while a read of the load balancer has no answer, and interval between such reads.
const READ_BACK_GLANCE: Duration = Duration::from_secs(4);

/// Delays between polls if ARM names none. The last one repeats.
const POLL_DELAYS: Backoff = Backoff(&[
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(5),
]);

/// Bounds of the delay between polls that ARM names.
const POLL_DELAY_BOUNDS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));

/// Shortest time from the acceptance of a PUT to the first glance, and between glances. A glance is an extra read of
/// the pool while ARM asks for a long delay before the next poll.
const GLANCE_INTERVAL: Duration = Duration::from_secs(1);

/// Interval between the glances of all lanes together. Ten a second, with all lanes busy, are three fifths of the
/// default read budget (W9).
const GLANCES_APART: Duration = Duration::from_millis(100);

/// Delays between reads of a pool on which a foreign operation runs. The last one repeats (W2).
pub(super) const FOREIGN_DELAYS: Backoff = Backoff(&[
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(30),
]);

/// Time for which a write waits for a foreign operation (W2).
const FOREIGN_LIMIT: Duration = Duration::from_secs(120);

/// The current write of a lane.
#[derive(Debug)]
pub(super) struct Write {
    /// Id of the write, and of the pool's attempt.
    pub attempt: AttemptId,
    /// The pool.
    pub pool: PoolId,
    /// Time of the grant.
    pub granted: Now,
    /// The membership part.
    pub membership: MembershipPart,
    /// The admin part.
    pub admin: Option<AdminDue>,
    /// Time of the first grant of the admin part. `None`: there is no admin part, or it came without a grant.
    pub admin_granted: Option<Now>,
    /// State that the write keeps while it waits.
    pub history: WriteHistory,
    /// Whether the write still holds its token for a PUT.
    pub token: bool,
    /// The means by which other writers are excluded (W7).
    pub exclusion: Exclusion,
    pub phase: WritePhase,
}

/// The means by which other clients are kept from writing the load balancer at the same time (W7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Exclusion {
    SharedLease,
    /// No means. The write may only set nodes Down, and only while the load balancer is unchanged since a read with
    /// this entity tag showed it at rest. `None`: not read yet.
    AtRest(Option<Etag>),
}

impl Exclusion {
    /// Returns whether a read shows that the load balancer has changed or is not at rest.
    pub(super) fn is_disturbed(&self, read: &PoolRead) -> bool {
        match self {
            Exclusion::SharedLease => false,
            Exclusion::AtRest(tag) => {
                tag.is_none() || *tag != read.etag || read.facts.provisioning != Provisioning::Succeeded
            }
        }
    }
}

/// State of a write that survives its waits.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteHistory {
    /// Number of times that the entity tag changed between GET and PUT (W2).
    pub etag_changes: u32,
    /// The wait for a foreign operation.
    pub wait: Option<Wait>,
    /// Number of client retries of its GET (W4).
    read_retries: u32,
    /// Number of client retries of its PUT, including the GET that each begins with.
    put_retries: u32,
    /// Latest retry time named by a throttled call (W6).
    pub named: Option<Now>,
    /// Whether its PUT met a 429 or a closed gate and will be retried (W6).
    pub put_throttled: bool,
    /// Its PUTs whose answers were lost and that no read has disproved. A GET may show that one of them was carried
    /// out (W4).
    pub unconfirmed_puts: Vec<Arc<Put>>,
}

impl WriteHistory {
    /// Returns the retry count of a failed GET or PUT. A GET that follows a failed PUT belongs to the retry of that
    /// PUT (W4).
    pub(super) fn retries(&mut self, verb: GateClass) -> &mut u32 {
        match verb {
            GateClass::Reads if self.put_retries == 0 => &mut self.read_retries,
            GateClass::Reads | GateClass::Writes => &mut self.put_retries,
        }
    }

    /// Drops the unconfirmed PUTs whose result differs from the members of the pool at rest. These PUTs were not
    /// carried out, or did not persist.
    pub(super) fn seen(&mut self, members: &BTreeSet<IpAddr>) {
        self.unconfirmed_puts.retain(|put| put.change.members == *members);
    }

    /// Returns the PUT with a lost answer that the last read found carried out.
    pub(super) fn found(&self) -> Option<&Put> {
        self.unconfirmed_puts.last().map(|put| &**put)
    }
}

/// A write's wait for a foreign operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    /// Time at which the write first met it.
    pub since: Now,
    /// Number of reads that showed it.
    pub times: u32,
}

/// The membership part of a write.
#[derive(Debug)]
pub(super) enum MembershipPart {
    /// There is none, or none any more.
    Absent,
    /// The pool was asked for its level.
    Requested(MembershipDue),
    /// The pool has an attempt open.
    Taken(MembershipDue, Arc<MembershipWrite>),
}

/// The phase of a write.
#[derive(Debug)]
pub(super) enum WritePhase {
    /// Waits for the pool's level.
    Taking,
    /// Waits for a token for its GET, or for the answer.
    Reading,
    /// Its PUT was sent.
    Putting(Arc<Put>),
    /// Its PUT was accepted and the operation runs.
    Polling(Polling),
}

impl WritePhase {
    /// Returns the name of the phase for operators.
    pub(super) fn label(&self) -> &'static str {
        match self {
            WritePhase::Taking => "taking",
            WritePhase::Reading => "reading",
            WritePhase::Putting(_) => "putting",
            WritePhase::Polling(_) => "polling",
        }
    }
}

/// The contents of a PUT, to compare with later reads.
#[derive(Clone, Debug)]
pub(super) struct Put {
    /// The change.
    pub change: PoolChange,
    /// The pool as the PUT leaves it.
    pub leaves: Arc<PoolFacts>,
    /// The draining set of its plan.
    pub draining: Arc<Draining>,
    /// Whether it omits restores, because they need the shared Lease (W7).
    pub leaves_restores: bool,
    /// The change and its reason, for operators.
    pub record: Arc<WriteRecord>,
}

impl Put {
    /// Adds the correlation id of ARM's answer.
    pub(super) fn answered(&mut self, correlation_id: Option<Arc<str>>) {
        Arc::make_mut(&mut self.record).correlation_id = correlation_id;
    }
}

/// An accepted PUT whose operation runs.
#[derive(Debug)]
pub(super) struct Polling {
    /// The PUT.
    pub put: Arc<Put>,
    /// The way to follow the operation.
    pub follow: PollTarget,
    /// Entity tag of the answer to the PUT.
    pub etag: Option<Etag>,
    /// Time of acceptance.
    pub began: Now,
    /// Number of polls.
    pub asked: u32,
    /// Number of consecutive failed polls since the load balancer was last read.
    failed: u32,
    /// Whether the last answer, to a poll or to the PUT, reports the operation as running.
    says_running: bool,
    /// Time of the last read of the load balancer. Initially, the time of acceptance.
    read_back: Now,
    /// Time of the next poll.
    poll_at: Now,
    /// Interval between glances.
    glance_every: Duration,
    /// Whether ARM named the delay before the next poll.
    delayed: bool,
    pub step: PollStep,
}

/// The way to follow an operation.
#[derive(Clone, Debug)]
pub(super) enum PollTarget {
    /// By polls of its URL.
    Url(Operation),
    /// By reads of the pool, because the answer to the PUT has no URL.
    Pool,
    /// By reads of the load balancer, because no poll of the URL can succeed (W5).
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
    Polling,
    /// The answer to a read of the load balancer, or the time of a glance.
    ReadingBack(Now),
    /// The answer to the last read, after the time for polling has run out.
    LastRead,
}

impl Polling {
    /// Starts to poll an accepted PUT. `busy` is the number of busy lanes.
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
        let glance_every = GLANCE_INTERVAL.max(GLANCES_APART.saturating_mul(busy));
        let mut polling = Polling {
            put,
            follow: operation.map_or(PollTarget::Pool, PollTarget::Url),
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

    /// Schedules the next poll after an answer that the operation is running.
    pub(super) fn on_running(&mut self, now: Now, header: RetryAfter) {
        self.failed = 0;
        self.says_running = true;
        self.wait(now, header);
    }

    /// Starts to wait for the answer to a poll.
    pub(super) fn begin_poll(&mut self) {
        self.says_running = false;
        self.step = PollStep::Polling;
    }

    /// Schedules the next poll after a failed one. After several failures, the load balancer is read at once. A
    /// throttled poll does not count (W2).
    pub(super) fn poll_failed(&mut self, now: Now, header: RetryAfter, is_throttled: bool) {
        self.failed = self.failed.saturating_add(u32::from(!is_throttled));
        self.wait(now, header);
        if self.is_read_back_due(now) {
            self.step = PollStep::Until(now);
        }
    }

    /// Starts to wait for the answer to a read of the load balancer, until the next glance.
    pub(super) fn wait_for_read_back(&mut self, now: Now) {
        let glance_at = now.plus(READ_BACK_GLANCE).min(self.began.plus(POLL_LIMIT));
        self.step = PollStep::ReadingBack(glance_at);
    }

    /// Returns whether the pool must be read because the load balancer cannot be. Where polls already read the pool,
    /// a glance would show nothing new.
    pub(super) fn glances_instead(&self) -> bool {
        match self.follow {
            PollTarget::Url(_) | PollTarget::LoadBalancer => true,
            PollTarget::Pool => false,
        }
    }

    /// Starts a glance. A poll that is already due follows it.
    pub(super) fn glance_before_poll(&mut self, now: Now) {
        self.poll_at = self.poll_at.max(now.plus(GLANCE_INTERVAL));
        self.step = PollStep::Glancing;
    }

    /// Continues to poll after a read of the load balancer that did not settle the operation.
    pub(super) fn keep_polling(&mut self, now: Now) {
        self.failed = 0;
        self.read_back = now;
        match self.follow {
            PollTarget::Url(_) | PollTarget::Pool => {
                self.poll_at = self.poll_at.max(now);
                self.wait_for_glance(now);
            }
            PollTarget::LoadBalancer => self.wait(now, RetryAfter::Absent),
        }
    }

    /// Returns whether a pool at rest that is not as required settles the operation. It does not while the operation
    /// is reported as running.
    pub(super) fn may_have_ended(&self) -> bool {
        !self.says_running
    }

    /// Returns the latest time of the next read of the load balancer.
    fn read_back_at(&self) -> Now {
        self.read_back.plus(READ_BACK_INTERVAL)
    }

    /// Returns whether a read of the load balancer is due.
    pub(super) fn is_read_back_due(&self, now: Now) -> bool {
        let instead_of_poll = match self.follow {
            PollTarget::Url(_) | PollTarget::Pool => false,
            PollTarget::LoadBalancer => self.is_poll_due(now),
        };
        instead_of_poll || self.failed >= MAX_FAILED_POLLS || now >= self.read_back_at()
    }

    /// Schedules the next poll: as long as ARM says, within bounds, else 1, 2, 4, 5, 5 … s (W2).
    pub(super) fn wait(&mut self, now: Now, header: RetryAfter) {
        let (least, most) = POLL_DELAY_BOUNDS;
        let named = match header {
            RetryAfter::In(span) => Some(span.clamp(least, most)),
            RetryAfter::Absent | RetryAfter::Invalid => None,
        };
        self.delayed = named.is_some();
        let delay = named.unwrap_or_else(|| POLL_DELAYS.delay(self.asked));
        self.asked = self.asked.saturating_add(1);
        self.poll_at = now.plus(delay).min(self.began.plus(POLL_LIMIT)).max(now);
        self.wait_for_glance(now);
    }

    /// Schedules the next glance if ARM named a delay and there is time before the next poll. Where polls already
    /// read the pool, a glance would show nothing new.
    pub(super) fn wait_for_glance(&mut self, now: Now) {
        let glance_at = now.plus(self.glance_every);
        let follows_url = matches!(self.follow, PollTarget::Url(_));
        let glances = self.delayed && follows_url && glance_at < self.poll_at;
        self.step =
            PollStep::Until(if glances { glance_at.min(self.read_back_at()) } else { self.next_at() });
    }

    /// Waits for the next poll or read of the load balancer, without a glance.
    pub(super) fn wait_for_poll(&mut self) {
        self.step = PollStep::Until(self.next_at());
    }

    /// Returns the time of the next poll or read of the load balancer.
    fn next_at(&self) -> Now {
        self.poll_at.min(self.read_back_at())
    }

    /// Returns whether a poll is due, and not only a glance.
    pub(super) fn is_poll_due(&self, now: Now) -> bool {
        now >= self.poll_at
    }

    /// Switches from polling to reads of the load balancer: the operation's URL is useless (W5).
    pub(super) fn give_up_url(&mut self, now: Now) {
        self.follow = PollTarget::LoadBalancer;
        self.poll_at = now;
        self.wait_for_poll();
    }

    /// Returns whether the time for polling has run out.
    pub(super) fn is_overdue(&self, now: Now) -> bool {
        now >= self.began.plus(POLL_LIMIT)
    }
}

impl Wait {
    /// Records that a foreign operation runs. Returns the time of the next read, or `None` after the limit of W2.
    pub(super) fn again(wait: Option<Wait>, now: Now) -> (Wait, Option<Now>) {
        let wait = wait.unwrap_or(Wait { since: now, times: 0 });
        let limit = wait.since.plus(FOREIGN_LIMIT);
        let next = now.plus(FOREIGN_DELAYS.delay(wait.times)).min(limit);
        let wait = Wait { times: wait.times.saturating_add(1), ..wait };
        (wait, (now < limit).then_some(next))
    }
}

impl Write {
    /// Returns the time of the next change without input. [`super::in_flight`] watches the answers to its calls.
    pub(super) fn deadline(&self) -> Option<Now> {
        match &self.phase {
            WritePhase::Taking => Some(self.granted.plus(TAKE_LIMIT)),
            WritePhase::Reading | WritePhase::Putting(_) => None,
            WritePhase::Polling(polling) => match polling.step {
                PollStep::Until(until) => Some(until),
                PollStep::Glancing => Some(polling.next_at()),
                PollStep::Polling => Some(polling.read_back_at()),
                PollStep::ReadingBack(glance_at) => Some(glance_at),
                PollStep::LastRead => None,
            },
        }
    }

    /// Returns the level from the pool.
    pub(super) fn taken(&self) -> Option<&Arc<MembershipWrite>> {
        match &self.membership {
            MembershipPart::Absent | MembershipPart::Requested(_) => None,
            MembershipPart::Taken(_, taken) => Some(taken),
        }
    }

    /// Returns whether the write must rewrite a pool that is in sync, and none of its PUTs may have been carried out.
    pub(super) fn rewrites(&self) -> bool {
        self.taken().is_some_and(|taken| taken.rewrites) && self.history.unconfirmed_puts.is_empty()
    }

    /// Returns the time since which the membership of the pool is due.
    pub(super) fn due(&self) -> Option<MembershipDue> {
        match &self.membership {
            MembershipPart::Absent => None,
            MembershipPart::Requested(due) | MembershipPart::Taken(due, _) => Some(*due),
        }
    }

    /// Returns the PUTs of the write that may run, or may have been carried out.
    pub(super) fn puts(&self) -> impl Iterator<Item = &Arc<Put>> {
        let open = match &self.phase {
            WritePhase::Taking | WritePhase::Reading => None,
            WritePhase::Putting(put) => Some(put),
            WritePhase::Polling(polling) => Some(&polling.put),
        };
        self.history.unconfirmed_puts.iter().chain(open)
    }

    /// Returns whether the write goes without the shared Lease.
    pub(super) fn bypasses(&self) -> bool {
        match self.exclusion {
            Exclusion::SharedLease => false,
            Exclusion::AtRest(_) => true,
        }
    }

    /// Returns whether only an admin part is left.
    pub(super) fn is_admin_only(&self) -> bool {
        match &self.membership {
            MembershipPart::Absent => self.admin.is_some(),
            MembershipPart::Requested(_) | MembershipPart::Taken(..) => false,
        }
    }

    /// Returns whether any part is left.
    pub(super) fn has_parts(&self) -> bool {
        match &self.membership {
            MembershipPart::Absent => self.admin.is_some(),
            MembershipPart::Requested(_) | MembershipPart::Taken(..) => true,
        }
    }
}
