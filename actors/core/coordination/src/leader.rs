//! Leader election: owns our own Lease, the terms of leadership, and the time until which a process may write
//! (docs/design/coordination.md, W8).
//!
//! The writer decides what a term means for writes in flight, the Directory what it means for levels. This file holds
//! the machine and its terms; `leader/requests.rs` holds the requests about the Lease, `leader/observed_lease.rs` its
//! known state.

mod observed_lease;
mod requests;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use mechanisms::object_client::ObjectClient;
use mechanisms::published::Published;
use mechanisms::watch_failures::WatchFailures;
use model::ids::{CallId, Epoch};
use model::leadership::Leadership;
use model::lease::{GateTimes, LeaseAnswer, LeaseFacts, LeaseRequest, OutOfSyncTimes};
use model::machine::{Machine, Now, earliest};
use model::object::ResourceVersion;
use model::sample::Metric;
use model::view::LeadershipView;
use observed_lease::ObservedLease;
use requests::LeaseAction;

/// Settings of the Leader, fixed at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// Identity of this process: unique among all replicas and all their restarts.
    pub identity: Arc<str>,
    /// Whether it competes for the Lease.
    pub election: LeaderElection,
}

/// Whether a process competes for leadership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaderElection {
    /// The process does not compete, and acts as the leader without a request about the Lease: a dry run (C4).
    Disabled,
    /// The process competes with these times.
    Enabled(Times),
}

/// The times of the election (W8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// Time for which a hold lasts without a renewal: 45 s.
    pub lease_duration: Duration,
    /// Time after the last successful renewal at which leadership is given up: 30 s.
    pub renew_deadline: Duration,
    /// Time between two tries: 5 s.
    pub retry_period: Duration,
    /// Time after the expiry of a Lease that was not released, in which the last PUT of its holder may still arrive:
    /// 20 s.
    pub settle: Duration,
}

impl Times {
    /// The times of W8.
    pub const W8: Times = Times {
        lease_duration: Duration::from_secs(45),
        renew_deadline: Duration::from_secs(30),
        retry_period: Duration::from_secs(5),
        settle: Duration::from_secs(20),
    };
}

/// Inputs of the Leader.
#[derive(Clone, Debug)]
pub enum In {
    /// The start; a repetition has no effect.
    Start,
    /// The answer to a request about our own Lease.
    Lease(CallId, LeaseAnswer),
    /// The Directory works in this term from now on: it has processed most recent lists of everything (W8).
    Opened(Epoch),
    /// Until when ARM's gates are closed; recorded in the Lease with the next renewal.
    Gates(GateTimes),
    /// The pools that have been out of sync longest; recorded in the Lease with the next renewal.
    OutOfSync(OutOfSyncTimes),
    /// Begin nothing new, and release the Lease when the writer is quiet.
    Shutdown,
    /// After a shutdown, every request that the writer sent is answered. The shared Lease is released or not ours, or
    /// was given up and lapses.
    WriterQuiet {
        /// Whether the shared Lease is released, or not ours.
        shared_is_free: bool,
    },
}

/// Outputs of the Leader.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the kubernetes port: a request about our own Lease.
    Lease(CallId, LeaseRequest),
    /// To the watchers on which levels depend, and to Pauses: read most recent data for this term. The Directory opens
    /// the term when it has them.
    Confirm {
        /// The term.
        epoch: Epoch,
        /// Whether a list that began before this moment does not count, because another process has led before.
        needs_new_list: bool,
    },
    /// To the process: the API server's storage was restored to an earlier state. The process logs this and ends; a new
    /// one lists everything (W8).
    StorageRollback(StorageRollback),
    /// To the writer, the admin state and the event emitter: whether this process may write.
    Leadership(Leadership),
    /// To the writer: the gate times that the predecessor recorded.
    RecordedGates(GateTimes),
    /// To the snapshot: the pools that the predecessor recorded as out of sync.
    OutOfSync(OutOfSyncTimes),
    /// To Discovery: a term has begun; read every load balancer now.
    StartRound,
    /// To the snapshot.
    View(LeadershipView),
    /// To the metrics.
    Metric(Metric),
    /// To the process: after a shutdown, the Lease is released, was not held, or was given up.
    Done(ReleasedLeases),
}

/// The Leases that this process certainly does not hold at its end; the others expire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReleasedLeases {
    /// Our own Lease.
    pub own: bool,
    /// The Lease shared with the cloud-controller-manager.
    pub shared: bool,
}

/// Evidence that the API server's storage was restored: our own Lease is older than before. If both versions are equal,
/// the same version has another content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageRollback {
    /// The newest version that this process has observed.
    pub known: ResourceVersion,
    /// The version that was read afterwards.
    pub read: ResourceVersion,
}

/// Time that the process waits, after the writer has become quiet, for the release of the Lease.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// The election of the one process that may write (W8).
#[derive(Debug)]
pub struct Leader {
    params: Params,
    phase: Phase,
    /// Start of the phase.
    since: Now,
    /// The present term, or the last one.
    epoch: Epoch,
    /// When the last successful renewal was sent; `None`: the Lease is not ours.
    renewed: Option<Now>,
    client: ObjectClient<LeaseFacts, LeaseAction>,
    /// Whether the next request is a read, whatever the known state.
    must_read: bool,
    /// Whether a take that is in flight, or whose answer was lost, may have made the Lease ours.
    may_become_ours: bool,
    /// Number of terms that this process has won.
    terms: u64,
    /// Whether no other process can have held the Lease since this process opened a term: in every observation since
    /// then the Lease was ours, was not restored to an older state, and had not expired. After an expiry, etcd may be
    /// restored to the hold that this process knows, whichever process has held the Lease in the meantime.
    confirmed: bool,
    /// When the hold of the last term expires or has expired, by the clock of this process.
    expires: Now,
    observed: ObservedLease,
    /// The newest gate times, to be recorded in the Lease.
    gates: GateTimes,
    /// The newest out-of-sync pools, to be recorded in the Lease.
    out_of_sync: OutOfSyncTimes,
    shutdown: Shutdown,
    watch_failures: WatchFailures,
    published: Published<LeadershipView>,
}

/// Progress of a term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Not started.
    Idle,
    /// The Lease is not ours.
    Standby,
    /// Won; the last writes of predecessors that did not release the Lease may arrive until this moment.
    Settling { until: Now },
    /// Won; reading most recent data.
    Confirming,
    /// This process may write.
    Leading,
    /// Ended, after a shutdown or because the API server's storage was restored.
    Done,
}

/// Progress of a shutdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shutdown {
    /// No shutdown.
    Not,
    /// The writer waits for the answers to its requests.
    Begun,
    /// The Lease is being released, until this moment at the latest.
    Releasing { until: Now, shared_is_free: bool },
}

impl Leader {
    /// Creates a Leader that has not started.
    #[must_use]
    pub fn new(params: Params) -> Leader {
        Leader {
            observed: ObservedLease::new(Arc::clone(&params.identity)),
            params,
            phase: Phase::Idle,
            since: Now::ZERO,
            epoch: Epoch::default(),
            renewed: None,
            client: ObjectClient::default(),
            must_read: false,
            may_become_ours: false,
            terms: 0,
            confirmed: false,
            expires: Now::ZERO,
            gates: GateTimes::default(),
            out_of_sync: OutOfSyncTimes::default(),
            shutdown: Shutdown::Not,
            watch_failures: WatchFailures::default(),
            published: Published::default(),
        }
    }

    fn enter(&mut self, now: Now, phase: Phase, out: &mut Vec<Out>) {
        if self.phase == phase {
            return;
        }
        let led = self.phase == Phase::Leading;
        self.phase = phase;
        self.since = now;
        let leads = phase == Phase::Leading;
        if led != leads {
            out.push(Out::Metric(Metric::Leading(leads)));
        }
        if led {
            out.push(Out::Leadership(Leadership::Standby));
        }
    }

    fn on_start(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.phase != Phase::Idle {
            return;
        }
        match self.params.election {
            LeaderElection::Disabled => {
                self.epoch = Epoch(1);
                self.enter(now, Phase::Confirming, out);
                out.push(Out::Confirm { epoch: self.epoch, needs_new_list: false });
            }
            LeaderElection::Enabled(_) => {
                out.push(Out::Metric(Metric::Leading(false)));
                self.enter(now, Phase::Standby, out);
                self.read_at(now);
            }
        }
    }

    /// Begins a term: the Lease has become ours with a request that was sent at `sent`.
    fn begin_term(&mut self, now: Now, sent: Now, out: &mut Vec<Out>) {
        self.confirmed &= now < self.expires;
        self.renewed = Some(sent);
        self.terms += 1;
        self.epoch = Epoch(self.epoch.0.max(self.observed.transitions()) + 1);
        let until = self.observed.quiet_at();
        if until > now {
            self.enter(now, Phase::Settling { until }, out);
        } else {
            self.confirm(now, out);
        }
    }

    fn confirm(&mut self, now: Now, out: &mut Vec<Out>) {
        self.enter(now, Phase::Confirming, out);
        // If no other process has led since our data were confirmed, no write of another leader is missing from them.
        let needs_new_list = !self.confirmed && (self.observed.had_other_writer() || self.terms > 1);
        out.push(Out::Confirm { epoch: self.epoch, needs_new_list });
    }

    /// Returns whether this process may write.
    fn is_leading(&self) -> bool {
        self.phase == Phase::Leading
    }

    fn on_opened(&mut self, now: Now, epoch: Epoch, out: &mut Vec<Out>) {
        if self.phase != Phase::Confirming || epoch != self.epoch || self.shutdown != Shutdown::Not {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return;
        }
        let noted = self.observed.gates();
        let later = |at: Option<Now>| at.filter(|at| *at > now);
        let remembered =
            GateTimes { reads_until: later(noted.reads_until), writes_until: later(noted.writes_until) };
        if remembered != GateTimes::default() {
            out.push(Out::RecordedGates(remembered));
        }
        // Renewals keep the recorded times until the snapshot has compared them with this process's own.
        self.out_of_sync = self.observed.out_of_sync();
        out.push(Out::OutOfSync(Arc::clone(&self.out_of_sync)));
        self.confirmed = true;
        self.enter(now, Phase::Leading, out);
        self.send_leadership(out);
        out.push(Out::StartRound);
    }

    /// Returns until when leadership is certain (W8); [`Now::NEVER`] if there is no other replica.
    fn until(&self) -> Now {
        match self.params.election {
            LeaderElection::Disabled => Now::NEVER,
            LeaderElection::Enabled(times) => {
                self.renewed.map_or(Now::ZERO, |sent| sent.plus(times.lease_duration))
            }
        }
    }

    fn send_leadership(&self, out: &mut Vec<Out>) {
        if self.phase == Phase::Leading {
            out.push(Out::Leadership(Leadership::Leading { epoch: self.epoch, until: self.until() }));
        }
    }

    /// Gives up the term: the Lease is not ours any more, or may not be.
    fn end_term(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.renewed.is_some() {
            self.expires = self.until();
        }
        self.renewed = None;
        match self.phase {
            Phase::Settling { .. } | Phase::Confirming | Phase::Leading => {
                self.enter(now, Phase::Standby, out);
            }
            Phase::Idle | Phase::Standby | Phase::Done => {}
        }
    }

    /// Ends the process, as in a crash, because the API server's storage was restored to an earlier state or
    /// replaced. The facts that this process knows may never have existed there. The Lease stays as it is, and a new
    /// process waits until a hold in it has ended.
    fn on_rollback(&mut self, now: Now, rollback: StorageRollback, out: &mut Vec<Out>) {
        self.client.set_error("the API server's storage was restored to an earlier state");
        self.end_term(now, out);
        self.client.stop();
        match self.shutdown {
            Shutdown::Not => {
                self.enter(now, Phase::Done, out);
                out.push(Out::StorageRollback(rollback));
            }
            // The process ends anyway.
            Shutdown::Begun | Shutdown::Releasing { .. } => {}
        }
    }

    fn on_shutdown(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.shutdown != Shutdown::Not || self.phase == Phase::Done {
            return;
        }
        self.shutdown = Shutdown::Begun;
        match self.phase {
            // This term has begun no writes, and will begin none.
            Phase::Settling { .. } | Phase::Confirming => self.enter(now, Phase::Standby, out),
            Phase::Idle | Phase::Standby | Phase::Leading | Phase::Done => {}
        }
    }

    fn on_writer_quiet(&mut self, now: Now, shared_is_free: bool, out: &mut Vec<Out>) {
        match self.shutdown {
            Shutdown::Begun => {
                self.shutdown = Shutdown::Releasing { until: now.plus(RELEASE_TIMEOUT), shared_is_free };
            }
            Shutdown::Not | Shutdown::Releasing { .. } => out.push(Out::Metric(Metric::UnmatchedAnswer)),
        }
    }

    /// Returns whether a process that shuts down has nothing left to do.
    fn is_over(&self, now: Now) -> bool {
        match self.shutdown {
            Shutdown::Not | Shutdown::Begun => false,
            Shutdown::Releasing { until, .. } => {
                // A release signals that all writes have ended. Late PUTs of a predecessor that did not release may
                // still arrive, so the Lease is left to expire.
                let held_too_early = self.renewed.is_some() && self.observed.quiet_at() > now;
                until <= now || held_too_early || (self.renewed.is_none() && !self.may_become_ours)
            }
        }
    }

    /// Does everything that is due now; the last part of every step and tick.
    fn process_due(&mut self, now: Now, out: &mut Vec<Out>) {
        if let LeaderElection::Enabled(times) = self.params.election {
            if self.renewed.is_some_and(|sent| sent.plus(times.renew_deadline) <= now) {
                if self.client.last_error().is_none() {
                    self.client.set_error("the Lease could not be renewed in time");
                }
                self.end_term(now, out);
            }
            if let Phase::Settling { until } = self.phase
                && until <= now
            {
                self.confirm(now, out);
            }
            // A process that ends without a release must not have requested one in the same step.
            if !self.is_over(now) {
                self.send_due(now, times, out);
            }
        }
        if let Shutdown::Releasing { shared_is_free: shared, .. } = self.shutdown
            && self.phase != Phase::Done
            && self.is_over(now)
        {
            // A term that ended for lack of a renewal leaves the Lease in our name.
            let own = self.observed.ours().is_none() && !self.may_become_ours;
            (self.renewed, self.may_become_ours) = (None, false);
            self.client.stop();
            self.enter(now, Phase::Done, out);
            out.push(Out::Done(ReleasedLeases { own, shared }));
        }
        self.publish_view(out);
        let broken = self.check().err();
        assert!(broken.is_none(), "invariant W8 violated: {}", broken.unwrap_or_default());
    }

    /// Checks the invariants that hold between any two steps.
    ///
    /// # Errors
    /// Returns the broken invariant.
    fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let elected = matches!(self.params.election, LeaderElection::Enabled(_));
        match self.phase {
            Phase::Settling { .. } | Phase::Confirming | Phase::Leading => {
                rule(!elected || self.renewed.is_some(), "a term without the Lease")?;
            }
            Phase::Idle | Phase::Standby | Phase::Done => {
                let ends = self.shutdown != Shutdown::Not;
                rule(ends || self.renewed.is_none(), "the Lease without a term")?;
            }
        }
        let at_work = !matches!(self.phase, Phase::Idle | Phase::Done);
        let idle = self.client.is_idle();
        rule(
            !elected || !at_work || self.shutdown != Shutdown::Not || !idle,
            "nothing is asked and nothing will be",
        )
    }

    fn publish_view(&mut self, out: &mut Vec<Out>) {
        let elected = matches!(self.params.election, LeaderElection::Enabled(_));
        let role = match (self.phase, self.shutdown) {
            (Phase::Idle, _) => return,
            (Phase::Done, _) | (_, Shutdown::Begun | Shutdown::Releasing { .. }) => "stopping",
            (Phase::Standby, Shutdown::Not) => "standby",
            (Phase::Settling { .. }, Shutdown::Not) => "settling",
            (Phase::Confirming, Shutdown::Not) => "confirming",
            (Phase::Leading, Shutdown::Not) if elected => "leader",
            (Phase::Leading, Shutdown::Not) => "alone",
        };
        let leads = elected && self.phase == Phase::Leading;
        let view = LeadershipView {
            identity: Arc::clone(&self.params.identity),
            role,
            holder: self.observed.holder(),
            epoch: self.epoch,
            since: self.since,
            until: leads.then(|| self.until()),
            last_error: self.client.last_error().cloned().or_else(|| self.watch_failures.shown()),
        };
        out.extend(self.published.update(view).map(Out::View));
    }
}

impl Machine for Leader {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match input {
            In::Start => self.on_start(now, out),
            In::Lease(call, answer) => match self.params.election {
                LeaderElection::Disabled => out.push(Out::Metric(Metric::UnmatchedAnswer)),
                LeaderElection::Enabled(times) => self.on_answer(now, call, answer, times, out),
            },
            In::Opened(epoch) => self.on_opened(now, epoch, out),
            In::Gates(gates) => self.gates = gates,
            In::OutOfSync(pools) => self.out_of_sync = pools,
            In::Shutdown => self.on_shutdown(now, out),
            In::WriterQuiet { shared_is_free } => self.on_writer_quiet(now, shared_is_free, out),
        }
        self.process_due(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        if matches!(self.phase, Phase::Idle | Phase::Done) {
            return None;
        }
        let shutdown = match self.shutdown {
            Shutdown::Not | Shutdown::Begun => None,
            Shutdown::Releasing { until, .. } => Some(until),
        };
        let LeaderElection::Enabled(times) = self.params.election else { return shutdown };
        let loss = self.renewed.map(|sent| sent.plus(times.renew_deadline));
        let settled = match self.phase {
            Phase::Settling { until } => Some(until),
            Phase::Idle | Phase::Standby | Phase::Confirming | Phase::Leading | Phase::Done => None,
        };
        earliest(earliest(loss, settled), earliest(shutdown, self.request_deadline(times)))
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        if !matches!(self.phase, Phase::Idle | Phase::Done) {
            self.process_due(now, out);
        }
    }
}
