//! Tests of leader election on the test's clock: one process alone, and several processes with one Lease.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use model::arm::Document;
use model::ids::{LbName, PoolId, PoolName};
use model::lease::{LeaseEdit, LeaseFacts, LeaseName};
use model::object::{REQUEST_TIMEOUT, RequestFailure, ResourceVersion};

const TIMES: Times = Times::W8;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn at(second: u64) -> Now {
    Now::from_millis(second * 1_000)
}

/// The Lease in the API server.
#[derive(Clone, Debug, Default)]
struct Server {
    lease: Option<Stored>,
    version: u64,
    /// All its states, oldest first.
    history: Vec<Arc<LeaseFacts>>,
    rollbacks: u64,
}

#[derive(Clone, Debug)]
struct Stored {
    holder: Option<Arc<str>>,
    duration: Duration,
    transitions: u64,
    version: u64,
    gates: GateTimes,
    out_of_sync: OutOfSyncTimes,
}

impl Server {
    fn facts(&self) -> Option<Arc<LeaseFacts>> {
        let stored = self.lease.as_ref()?;
        Some(Arc::new(LeaseFacts {
            lease: LeaseName::Own,
            holder: stored.holder.clone(),
            duration: Some(stored.duration),
            renewed_ago: None,
            transitions: stored.transitions,
            version: ResourceVersion(Arc::from(stored.version.to_string())),
            gates: stored.gates,
            out_of_sync: Arc::clone(&stored.out_of_sync),
            document: Document::new(()),
        }))
    }

    fn store(&mut self, edit: &LeaseEdit) {
        self.version += 1_000;
        let before = self.lease.take();
        let (transitions, gates, out_of_sync) =
            before.map_or_else(Default::default, |b| (b.transitions, b.gates, b.out_of_sync));
        self.lease = Some(Stored {
            holder: edit.holder.clone(),
            duration: edit.duration,
            transitions: transitions + u64::from(edit.transition),
            version: self.version,
            gates: edit.gates.unwrap_or(gates),
            out_of_sync: edit.out_of_sync.clone().unwrap_or(out_of_sync),
        });
        self.history.extend(self.facts());
    }

    /// Restores the storage to this state of the Lease; versions continue from there. No version occurs twice, because
    /// a restored Lease almost never gets the same version again.
    fn rollback(&mut self, to: usize) {
        self.history.truncate(to + 1);
        let facts = self.history.last();
        self.lease = facts.map(|facts| Stored {
            holder: facts.holder.clone(),
            duration: facts.duration.unwrap_or_default(),
            transitions: facts.transitions,
            version: facts.version.0.parse().expect("a number"),
            gates: facts.gates,
            out_of_sync: Arc::clone(&facts.out_of_sync),
        });
        self.version = self.lease.as_ref().map_or(0, |stored| stored.version);
        self.rollbacks += 1;
        self.version += self.rollbacks;
    }

    /// Executes a request; returns `None` for a watch if its state is still the newest.
    fn execute(&mut self, request: &LeaseRequest) -> Option<LeaseAnswer> {
        let newest = self.facts();
        Some(match (request, newest) {
            (LeaseRequest::Get, Some(facts)) => LeaseAnswer::Seen(facts),
            (LeaseRequest::Get | LeaseRequest::Replace(..), None) => LeaseAnswer::Absent,
            (LeaseRequest::Create(_), Some(_)) => LeaseAnswer::Conflict,
            (LeaseRequest::Create(edit), None) => {
                self.store(edit);
                LeaseAnswer::Seen(self.facts().expect("it was just stored"))
            }
            (LeaseRequest::Replace(base, edit), Some(facts)) => {
                if base.version != facts.version {
                    return Some(LeaseAnswer::Conflict);
                }
                self.store(edit);
                LeaseAnswer::Seen(self.facts().expect("it was just stored"))
            }
            (LeaseRequest::Watch(..), None) => LeaseAnswer::Absent,
            (LeaseRequest::Watch(version, _), Some(facts)) => {
                if *version == facts.version {
                    return None;
                }
                LeaseAnswer::Seen(facts)
            }
        })
    }
}

/// One process on the test's clock.
struct Drive {
    leader: Leader,
    now: Now,
    requests: VecDeque<(CallId, LeaseRequest)>,
    leadership: Leadership,
    confirms: Vec<(Epoch, bool)>,
    remembered: Vec<GateTimes>,
    out_of_sync: Vec<OutOfSyncTimes>,
    rounds: usize,
    done: bool,
    free: Option<ReleasedLeases>,
    unmatched: usize,
    /// The evidence of a restored storage with which it ended.
    rollback: Option<StorageRollback>,
}

impl Drive {
    fn new(identity: &str, election: LeaderElection) -> Drive {
        let params = Params { identity: Arc::from(identity), election };
        Drive {
            leader: Leader::new(params),
            now: Now::ZERO,
            requests: VecDeque::new(),
            leadership: Leadership::Standby,
            confirms: Vec::new(),
            remembered: Vec::new(),
            out_of_sync: Vec::new(),
            rounds: 0,
            done: false,
            free: None,
            unmatched: 0,
            rollback: None,
        }
    }

    fn elected(identity: &str) -> Drive {
        let mut drive = Drive::new(identity, LeaderElection::Enabled(TIMES));
        drive.send(In::Start);
        drive
    }

    fn receive(&mut self, out: Vec<Out>) {
        self.leader.check().expect("the invariants hold");
        for said in out {
            match said {
                Out::Lease(call, request) => self.requests.push_back((call, request)),
                Out::Confirm { epoch, needs_new_list } => self.confirms.push((epoch, needs_new_list)),
                Out::Leadership(leadership) => self.leadership = leadership,
                Out::RecordedGates(gates) => self.remembered.push(gates),
                Out::OutOfSync(pools) => self.out_of_sync.push(pools),
                Out::StorageRollback(rollback) => {
                    assert!(!self.leads() && self.requests.is_empty() && self.rollback.is_none());
                    self.rollback = Some(rollback);
                }
                Out::StartRound => self.rounds += 1,
                Out::Done(free) => {
                    self.done = true;
                    self.free = Some(free);
                }
                Out::Metric(Metric::UnmatchedAnswer) => self.unmatched += 1,
                Out::View(_) | Out::Metric(_) => {}
            }
        }
    }

    fn send(&mut self, input: In) {
        let mut out = Vec::new();
        self.leader.step(self.now, input, &mut out);
        self.receive(out);
    }

    fn at(&mut self, now: Now) {
        while let Some(due) = self.leader.deadline().filter(|due| *due <= now) {
            self.now = self.now.max(due);
            let mut out = Vec::new();
            self.leader.tick(self.now, &mut out);
            self.receive(out);
        }
        self.now = self.now.max(now);
    }

    /// Lets the API server answer all requests, except watches without a change.
    fn served(&mut self, server: &mut Server) {
        let mut waiting = VecDeque::new();
        while let Some((call, request)) = self.requests.pop_front() {
            match server.execute(&request) {
                Some(answer) => self.send(In::Lease(call, answer)),
                None => waiting.push_back((call, request)),
            }
        }
        self.requests = waiting;
    }

    /// Reports that the Directory has opened the newest requested term.
    fn opened(&mut self) {
        if let Some((epoch, _)) = self.confirms.last().copied() {
            self.send(In::Opened(epoch));
        }
    }

    fn leads(&self) -> bool {
        matches!(self.leadership, Leadership::Leading { .. })
    }

    /// Returns the end of its leadership. A process with a quiet writer sends no more requests.
    fn until(&self) -> Option<Now> {
        if matches!(self.leader.shutdown, Shutdown::Releasing { .. }) {
            return None;
        }
        match self.leadership {
            Leadership::Standby => None,
            Leadership::Leading { until, .. } => Some(until),
        }
    }
}

/// Returns a leader in its term, at second 0.
fn leading(identity: &str, server: &mut Server) -> Drive {
    let mut drive = Drive::elected(identity);
    drive.served(server);
    drive.opened();
    assert!(drive.leads());
    drive
}

#[test]
fn w8_a_creator_of_the_lease_leads_immediately() {
    let mut server = Server::default();
    let mut one = Drive::elected("one");
    one.served(&mut server);
    assert_eq!(one.confirms, [(Epoch(1), false)]);
    assert!(!one.leads(), "not before the Directory has opened the term");
    one.opened();
    assert_eq!(one.leadership, Leadership::Leading { epoch: Epoch(1), until: at(45) });
    assert_eq!(one.rounds, 1);
    let lease = server.lease.expect("it was created");
    assert_eq!((lease.holder.as_deref(), lease.duration), (Some("one"), seconds(45)));
}

#[test]
fn w8_a_renewal_extends_leadership_from_its_sending() {
    let mut server = Server::default();
    let mut one = leading("one", &mut server);
    one.at(Now::from_millis(4_999));
    assert!(one.requests.is_empty());
    one.at(at(5));
    assert_eq!(one.requests.len(), 1);
    one.at(at(7));
    one.served(&mut server);
    assert_eq!(one.until(), Some(at(50)), "the answer came at 7 s, the request was sent at 5 s");
    one.at(at(10));
    one.served(&mut server);
    assert_eq!(one.until(), Some(at(55)));
    assert_eq!(one.leadership, Leadership::Leading { epoch: Epoch(1), until: at(55) });
}

#[test]
fn w8_leadership_ends_30_s_after_the_last_successful_renewal() {
    let mut server = Server::default();
    let mut one = leading("one", &mut server);
    one.at(Now::from_millis(29_999));
    assert!(one.leads());
    one.at(at(30));
    assert_eq!(one.leadership, Leadership::Standby);
    // The API server is back, and no other process has led: a new term begins, with most recent lists.
    one.at(at(40));
    one.served(&mut server);
    one.served(&mut server);
    assert_eq!(one.confirms.last(), Some(&(Epoch(2), false)), "no other client has written since");
    one.opened();
    assert!(one.leads());
}

#[test]
fn w8_taking_an_expired_lease_again_lists_again() {
    // Until the Lease expires, no other process can lead. Later, etcd may be restored to the hold that this process
    // knows.
    for (second, relists) in [(44, false), (45, true)] {
        let mut server = Server::default();
        let mut one = leading("one", &mut server);
        one.at(at(second));
        for _ in 0..2 {
            one.served(&mut server);
        }
        assert_eq!(one.confirms.last(), Some(&(Epoch(2), relists)), "at {second} s");
    }
}

#[test]
fn w8_a_watching_standby_takes_over_after_a_release() {
    let mut server = Server::default();
    let mut one = leading("one", &mut server);
    let mut two = Drive::elected("two");
    two.served(&mut server);
    assert!(matches!(two.requests.front(), Some((_, LeaseRequest::Watch(..)))));
    one.send(In::Shutdown);
    assert!(one.leads(), "the process waits for the sent request");
    one.send(In::WriterQuiet { shared_is_free: true });
    one.served(&mut server);
    assert!(one.done && !one.leads());
    assert_eq!(one.free, Some(ReleasedLeases { own: true, shared: true }));
    assert_eq!(server.lease.as_ref().and_then(|lease| lease.holder.clone()), None);
    two.served(&mut server);
    assert_eq!(two.confirms, [(Epoch(2), true)], "another process has led: lists are repeated");
    two.opened();
    assert!(two.leads(), "no wait after a release");
}

#[test]
fn w8_after_a_crash_a_standby_waits_45_s_and_writes_wait_20_s() {
    let mut server = Server::default();
    drop(leading("one", &mut server));
    let mut two = Drive::elected("two");
    two.at(at(3));
    two.served(&mut server);
    two.at(Now::from_millis(47_999));
    two.served(&mut server);
    assert_eq!(server.lease.as_ref().and_then(|lease| lease.holder.as_deref()), Some("one"));
    two.at(at(48));
    two.served(&mut server);
    assert_eq!(server.lease.as_ref().and_then(|lease| lease.holder.as_deref()), Some("two"));
    for second in 49..68 {
        two.at(at(second));
        two.served(&mut server);
        assert!(two.confirms.is_empty(), "at {second} s the last write may still arrive");
    }
    two.at(at(68));
    two.opened();
    assert!(two.leads(), "45 s and 20 s after the last change that it saw: under 75 s");
}

#[test]
fn w8_a_take_over_with_a_lost_answer_waits_for_the_last_write() {
    let mut server = Server::default();
    drop(leading("one", &mut server));
    let mut two = Drive::elected("two");
    two.served(&mut server);
    two.at(at(45));
    // An abandoned watch has no answer.
    let (call, request) = two.requests.pop_back().expect("it takes the Lease");
    assert!(matches!(request, LeaseRequest::Replace(..)));
    server.execute(&request);
    two.send(In::Lease(call, LeaseAnswer::Failed(RequestFailure::Other("no answer".into()))));
    two.at(at(50));
    two.served(&mut server);
    two.served(&mut server);
    assert_eq!(server.lease.as_ref().and_then(|lease| lease.holder.as_deref()), Some("two"));
    assert!(two.confirms.is_empty());
    two.at(at(65));
    assert_eq!(two.confirms.len(), 1);
}

#[test]
fn w8_a_shutdown_while_settling_lets_the_lease_expire() {
    let mut server = Server::default();
    drop(leading("one", &mut server));
    let mut two = Drive::elected("two");
    two.served(&mut server);
    two.at(at(45));
    two.served(&mut server);
    two.at(at(50));
    two.served(&mut server);
    two.send(In::Shutdown);
    two.requests.clear();
    two.send(In::WriterQuiet { shared_is_free: true });
    assert!(two.done);
    assert!(two.requests.is_empty(), "no release is in flight: {:?}", two.requests);
    assert_eq!(two.free, Some(ReleasedLeases { own: false, shared: true }));
    assert_eq!(server.lease.as_ref().and_then(|lease| lease.holder.as_deref()), Some("two"));
    let mut three = Drive::elected("three");
    three.served(&mut server);
    assert!(three.confirms.is_empty(), "the last write of the first one may still arrive");
}

#[test]
fn w8_each_term_of_one_holder_has_its_own_number() {
    let mut server = Server::default();
    let mut one = leading("one", &mut server);
    for term in 2..5 {
        one.at(one.now.plus(seconds(31)));
        assert!(!one.leads());
        one.at(one.now.plus(seconds(10)));
        one.served(&mut server);
        one.served(&mut server);
        one.opened();
        assert!(matches!(one.leadership, Leadership::Leading { epoch: Epoch(number), .. } if number == term));
    }
    let mut two = Drive::elected("two");
    one.send(In::Shutdown);
    one.send(In::WriterQuiet { shared_is_free: true });
    one.served(&mut server);
    two.served(&mut server);
    assert_eq!(two.confirms.last(), Some(&(Epoch(5), true)));
}

#[test]
fn w8_a_renewal_that_finds_another_holder_ends_the_term() {
    let mut server = Server::default();
    let mut one = leading("one", &mut server);
    let edit = LeaseEdit {
        holder: Some("two".into()),
        duration: seconds(45),
        acquired: true,
        transition: true,
        previous_holder: None,
        gates: None,
        out_of_sync: None,
    };
    server.store(&edit);
    one.at(at(5));
    one.served(&mut server);
    assert!(!one.leads());
    assert!(matches!(one.requests.front(), Some((_, LeaseRequest::Watch(..)))));
}

#[test]
fn w8_an_emptied_or_deleted_lease_ends_the_term() {
    for delete in [false, true] {
        let mut server = Server::default();
        let mut one = leading("one", &mut server);
        if delete {
            server.lease = None;
        } else {
            let stored = server.lease.as_mut().expect("it exists");
            (stored.holder, stored.version) = (None, 7_000);
            server.version = 7_000;
        }
        one.at(at(5));
        one.served(&mut server);
        assert!(!one.leads(), "another process may have acquired it in the meantime");
        one.served(&mut server);
        one.opened();
        assert_eq!(one.leadership, Leadership::Leading { epoch: Epoch(2), until: at(50) });
        assert_eq!(one.confirms.last(), Some(&(Epoch(2), true)));
    }
}

#[test]
fn w8_an_operator_who_empties_the_lease_does_not_release_it() {
    let mut server = Server::default();
    drop(leading("one", &mut server));
    let mut two = Drive::elected("two");
    two.served(&mut server);
    let stored = server.lease.as_mut().expect("it exists");
    (stored.holder, stored.version) = (None, 7_000);
    server.version = 7_000;
    two.at(at(2));
    two.served(&mut server);
    two.served(&mut server);
    assert_eq!(server.lease.as_ref().and_then(|lease| lease.holder.as_deref()), Some("two"));
    two.at(Now::from_millis(64_999));
    assert!(two.confirms.is_empty(), "the holder may not have seen it, and its last write may still arrive");
}

#[test]
fn w8_an_absurd_lease_duration_is_limited() {
    let mut server = Server::default();
    drop(leading("one", &mut server));
    server.lease.as_mut().expect("it exists").duration = Duration::from_secs(i32::MAX.unsigned_abs().into());
    let mut two = Drive::elected("two");
    two.served(&mut server);
    for minute in 1..17 {
        two.at(at(60 * minute));
        two.served(&mut server);
    }
    assert_eq!(server.lease.as_ref().and_then(|lease| lease.holder.as_deref()), Some("two"));
}

#[test]
fn w8_deleting_the_lease_of_a_holder_is_no_release() {
    let mut server = Server::default();
    drop(leading("one", &mut server));
    let mut two = Drive::elected("two");
    two.served(&mut server);
    server.lease = None;
    two.at(at(2));
    two.served(&mut server);
    two.served(&mut server);
    assert_eq!(server.lease.as_ref().and_then(|lease| lease.holder.as_deref()), Some("two"));
    two.at(Now::from_millis(64_999));
    assert!(two.confirms.is_empty());
}

/// Returns the request in flight.
fn in_flight(drive: &Drive) -> Option<&LeaseRequest> {
    drive.requests.back().map(|(_, request)| request)
}

/// Answers the watch in flight.
fn awaited(drive: &mut Drive, answer: LeaseAnswer) {
    let (call, request) = drive.requests.pop_back().expect("there is a request");
    assert!(matches!(request, LeaseRequest::Watch(..)), "{request:?}");
    drive.send(In::Lease(call, answer));
}

/// Returns a standby that has observed a renewal of "one" at second 5, and the first state, of second 0.
fn standby(server: &mut Server) -> (Drive, Arc<LeaseFacts>) {
    let mut one = leading("one", server);
    let first = server.facts().expect("the Lease has a holder");
    one.at(at(5));
    one.served(server);
    let mut two = Drive::elected("two");
    two.at(at(5));
    two.served(server);
    (two, first)
}

#[test]
fn w8_an_outdated_state_of_a_watch_extends_no_hold() {
    let mut server = Server::default();
    let (mut two, older) = standby(&mut server);
    for second in [20, 30, 40, 49] {
        two.at(at(second));
        awaited(&mut two, LeaseAnswer::Seen(Arc::clone(&older)));
        assert!(matches!(in_flight(&two), Some(LeaseRequest::Get)), "the Lease is read");
        two.served(&mut server);
    }
    two.at(at(50));
    two.served(&mut server);
    assert_eq!(
        server.lease.as_ref().and_then(|lease| lease.holder.as_deref()),
        Some("two"),
        "45 s after the last change that was seen"
    );
    two.at(at(70));
    two.opened();
    assert!(two.leads(), "the wait is not longer");
}

#[test]
fn w8_an_outdated_release_of_a_watch_frees_no_lease() {
    let mut server = Server::default();
    let (two, first) = standby(&mut server);
    let released = LeaseFacts { holder: None, duration: Some(seconds(1)), ..LeaseFacts::clone(&first) };
    drop(two);
    for old in [LeaseAnswer::Seen(Arc::new(released)), LeaseAnswer::Absent] {
        let mut two = Drive::elected("two");
        two.served(&mut server);
        two.at(at(20));
        awaited(&mut two, old);
        assert!(matches!(in_flight(&two), Some(LeaseRequest::Get)));
        assert_eq!(two.leader.observed.holder().as_deref(), Some("one"));
        // A failed read changes nothing.
        two.at(at(27));
        two.served(&mut server);
        two.served(&mut server);
        assert_eq!(server.lease.as_ref().and_then(|lease| lease.holder.as_deref()), Some("one"));
        assert_eq!(two.leader.observed.quiet_at(), Now::ZERO, "no other client has outlived the holder");
    }
}

#[test]
fn w8_a_state_without_a_numeric_version_is_read_again() {
    let mut server = Server::default();
    let (mut two, first) = standby(&mut server);
    let version = ResourceVersion("later".into());
    two.at(at(20));
    awaited(&mut two, LeaseAnswer::Seen(Arc::new(LeaseFacts { version, ..LeaseFacts::clone(&first) })));
    assert!(matches!(in_flight(&two), Some(LeaseRequest::Get)));
    two.served(&mut server);
    two.at(at(50));
    two.served(&mut server);
    assert_eq!(server.lease.as_ref().and_then(|lease| lease.holder.as_deref()), Some("two"));
}

#[test]
fn w8_a_lagging_watch_is_requested_once_a_second() {
    let mut server = Server::default();
    let (mut two, older) = standby(&mut server);
    let mut looks = 0;
    for tenth in 60..150 {
        two.at(Now::from_millis(tenth * 100));
        match in_flight(&two) {
            Some(LeaseRequest::Watch(..)) => awaited(&mut two, LeaseAnswer::Seen(Arc::clone(&older))),
            Some(LeaseRequest::Get) => {
                looks += 1;
                two.served(&mut server);
            }
            Some(LeaseRequest::Create(_) | LeaseRequest::Replace(..)) | None => {}
        }
    }
    assert!((5..=9).contains(&looks), "{looks} in 9 s");
}

#[test]
fn w8_an_outdated_state_does_not_end_the_holders_term() {
    let mut server = Server::default();
    let (mut two, older) = standby(&mut server);
    let (call, _) = two.requests.back().cloned().expect("it watches for the end of the hold");
    two.at(at(50));
    two.served(&mut server);
    two.at(at(70));
    two.opened();
    assert!(two.leads());
    two.send(In::Lease(call, LeaseAnswer::Seen(older)));
    assert!(two.leads() && two.unmatched == 1, "an earlier watch gets no more answers");
}

#[test]
fn w8_gate_times_are_stored_in_the_lease_for_a_successor() {
    let mut server = Server::default();
    let mut one = leading("one", &mut server);
    let gates = GateTimes { reads_until: None, writes_until: Some(at(500)) };
    one.send(In::Gates(gates));
    one.at(at(5));
    one.served(&mut server);
    one.send(In::Shutdown);
    one.send(In::WriterQuiet { shared_is_free: true });
    one.served(&mut server);
    let mut two = Drive::elected("two");
    two.served(&mut server);
    two.opened();
    assert_eq!(two.remembered, [gates]);
    let mut late = Drive::elected("late");
    late.now = at(501);
    two.send(In::Shutdown);
    two.send(In::WriterQuiet { shared_is_free: true });
    two.served(&mut server);
    late.served(&mut server);
    late.opened();
    assert!(late.leads() && late.remembered.is_empty(), "past times are not stored");
}

#[test]
fn pools_out_of_sync_are_stored_in_the_lease_for_a_successor() {
    let mut server = Server::default();
    let mut one = leading("one", &mut server);
    let pool = PoolId::new(LbName::new("lb"), PoolName::new("shop-web"));
    let late: OutOfSyncTimes = Arc::new([(pool, at(3))].into());
    one.send(In::OutOfSync(Arc::clone(&late)));
    one.at(at(5));
    one.served(&mut server);
    one.send(In::Shutdown);
    one.send(In::WriterQuiet { shared_is_free: true });
    one.served(&mut server);
    let mut two = Drive::elected("two");
    two.send(In::OutOfSync(Arc::default()));
    two.served(&mut server);
    two.opened();
    assert_eq!(two.out_of_sync, [Arc::clone(&late)], "a standby's data is not stored before the term");
    two.at(at(20));
    two.served(&mut server);
    assert_eq!(server.facts().expect("a Lease").out_of_sync, late, "nor after the start of the term");
    two.send(In::OutOfSync(Arc::default()));
    two.at(at(30));
    two.served(&mut server);
    assert!(server.facts().expect("a Lease").out_of_sync.is_empty(), "the leader's data is stored");
    // Data of an earlier term ends too.
    two.send(In::Shutdown);
    two.send(In::WriterQuiet { shared_is_free: true });
    two.served(&mut server);
    let mut three = Drive::elected("three");
    three.served(&mut server);
    three.opened();
    assert_eq!(three.out_of_sync, [OutOfSyncTimes::default()]);
}

#[test]
fn w8_a_shutdown_acquires_no_lease_and_releases_a_pending_one() {
    let mut server = Server::default();
    let mut one = Drive::elected("one");
    let (call, request) = one.requests.pop_front().expect("it looks");
    one.send(In::Lease(call, server.execute(&request).expect("an answer")));
    let (call, request) = one.requests.pop_front().expect("it takes");
    one.send(In::Shutdown);
    one.send(In::WriterQuiet { shared_is_free: true });
    assert!(!one.done, "the process may hold the Lease");
    one.send(In::Lease(call, server.execute(&request).expect("an answer")));
    one.served(&mut server);
    assert!(one.done && one.confirms.is_empty());
    assert_eq!(server.lease.and_then(|lease| lease.holder), None);
}

#[test]
fn w8_a_shutdown_waits_at_most_3_s_for_the_lease_to_be_released() {
    let mut server = Server::default();
    let mut one = leading("one", &mut server);
    one.send(In::Shutdown);
    one.send(In::WriterQuiet { shared_is_free: true });
    one.at(Now::from_millis(2_999));
    assert!(!one.done);
    one.at(at(3));
    assert!(one.done && !one.leads());
    assert_eq!(one.free, Some(ReleasedLeases { own: false, shared: true }), "it lapses");
    assert_eq!(one.leader.deadline(), None);
}

#[test]
fn w8_a_lease_lost_without_renewals_is_not_reported_as_free() {
    let mut server = Server::default();
    let mut one = leading("one", &mut server);
    one.at(at(25));
    one.send(In::Shutdown);
    one.at(Now::from_millis(29_000));
    one.send(In::WriterQuiet { shared_is_free: true });
    one.at(at(32));
    assert!(one.done && !one.leads());
    assert_eq!(one.free, Some(ReleasedLeases { own: false, shared: true }));
    assert_eq!(server.lease.and_then(|lease| lease.holder).as_deref(), Some("one"), "the Lease is not free");
}

#[test]
fn w8_a_shutdown_of_a_standby_sends_no_request() {
    let mut server = Server::default();
    drop(leading("one", &mut server));
    let mut two = Drive::elected("two");
    two.served(&mut server);
    two.send(In::Shutdown);
    two.send(In::WriterQuiet { shared_is_free: false });
    assert!(two.done);
    assert_eq!(
        two.free,
        Some(ReleasedLeases { own: true, shared: false }),
        "the writer's message is forwarded"
    );
}

#[test]
fn c4_a_dry_run_leads_without_a_lease() {
    let mut alone = Drive::new("alone", LeaderElection::Disabled);
    alone.send(In::Start);
    assert_eq!(alone.confirms, [(Epoch(1), false)]);
    alone.opened();
    assert_eq!(alone.leadership, Leadership::Leading { epoch: Epoch(1), until: Now::NEVER });
    alone.at(at(1_000));
    assert!(alone.requests.is_empty());
    alone.send(In::Shutdown);
    alone.send(In::WriterQuiet { shared_is_free: true });
    assert!(alone.done);
}

#[test]
fn a3_unexpected_answers_change_nothing() {
    let mut server = Server::default();
    let mut one = leading("one", &mut server);
    one.send(In::Lease(CallId(99), LeaseAnswer::Absent));
    one.send(In::Opened(Epoch(7)));
    one.send(In::WriterQuiet { shared_is_free: true });
    assert_eq!(one.unmatched, 3);
    assert!(one.leads() && !one.done);
}

/// Returns a leader that has renewed the Lease twice, so that there are three states, at second 10.
fn renewed_twice(server: &mut Server) -> Drive {
    let mut one = leading("one", server);
    for second in [5, 10] {
        one.at(at(second));
        one.served(server);
    }
    assert_eq!(server.history.len(), 3);
    one
}

/// Returns the versions that prove that the storage was restored.
fn proof(known: u64, read: u64) -> Option<StorageRollback> {
    let version = |number: u64| ResourceVersion(Arc::from(number.to_string()));
    Some(StorageRollback { known: version(known), read: version(read) })
}

#[test]
fn w8_a_leader_ends_when_it_reads_an_older_lease() {
    let mut server = Server::default();
    let mut one = renewed_twice(&mut server);
    server.rollback(0);
    one.at(at(15));
    // The renewal gets a conflict, as if another client had been faster. Then the process reads the Lease.
    one.served(&mut server);
    assert_eq!(one.rollback, proof(3_000, 1_000));
    assert!(!one.leads(), "it does not write data of the other history");
    one.at(at(500));
    assert!(one.requests.is_empty() && one.leader.deadline().is_none() && one.confirms.len() == 1);
    let lease = server.lease.clone().expect("the Lease stays as it is");
    assert_eq!((lease.holder.as_deref(), lease.version), (Some("one"), 1_000));
}

#[test]
fn w8_a_process_after_a_rollback_waits_for_the_last_hold() {
    let mut server = Server::default();
    let _gone = renewed_twice(&mut server);
    server.rollback(0);
    let mut fresh = Drive::elected("fresh");
    fresh.served(&mut server);
    for second in 1..65 {
        fresh.at(at(second));
        fresh.served(&mut server);
        assert!(fresh.confirms.is_empty(), "at {second} s");
    }
    fresh.at(at(65));
    assert_eq!((fresh.confirms, fresh.rollback), (vec![(Epoch(2), true)], None));
}

#[test]
fn w8_a_standby_ends_too_when_it_reads_an_older_lease() {
    let mut server = Server::default();
    let _one = renewed_twice(&mut server);
    let mut two = Drive::elected("two");
    two.served(&mut server);
    server.rollback(1);
    let (call, request) = two.requests.pop_front().expect("it awaits");
    assert!(matches!(request, LeaseRequest::Watch(..)));
    two.send(In::Lease(call, LeaseAnswer::Failed(RequestFailure::Other("broken".into()))));
    two.at(at(5));
    two.served(&mut server);
    assert_eq!(two.rollback, proof(3_000, 2_000));
    assert!(!two.leads() && two.confirms.is_empty());
}

#[test]
fn w8_a_lease_with_a_newer_version_proves_no_rollback() {
    let mut server = Server::default();
    let one = renewed_twice(&mut server);
    let mut two = Drive::elected("two");
    two.served(&mut server);
    server.rollback(0);
    drop(one);
    // Another process leads, and renews, before the standby reads.
    let mut fresh = Drive::elected("fresh");
    for second in 0..=80 {
        fresh.at(at(second));
        fresh.served(&mut server);
        fresh.opened();
    }
    assert!(fresh.leads());
    let (call, _) = two.requests.pop_front().expect("it awaits");
    two.send(In::Lease(call, LeaseAnswer::Failed(RequestFailure::Other("broken".into()))));
    two.at(at(80));
    two.served(&mut server);
    assert!(two.rollback.is_none() && !two.leads(), "it continues, and lists again for its own term");
}

#[test]
fn w8_another_state_of_the_same_version_proves_a_rollback() {
    let mut server = Server::default();
    let one = renewed_twice(&mut server);
    let mut two = Drive::elected("two");
    two.served(&mut server);
    let known = server.version;
    server.rollback(0);
    server.version = known - 1_000;
    drop(one);
    let mut fresh = Drive::elected("fresh");
    for second in 0..=45 {
        fresh.at(at(second));
        fresh.served(&mut server);
    }
    assert_eq!(server.version, known, "the new term's Lease has the earlier version");
    let (call, _) = two.requests.pop_front().expect("it awaits");
    two.send(In::Lease(call, LeaseAnswer::Failed(RequestFailure::Other("broken".into()))));
    two.at(at(45));
    two.served(&mut server);
    assert_eq!(two.rollback, proof(known, known));
}

#[test]
fn w8_a_state_from_a_watch_proves_no_rollback() {
    let mut server = Server::default();
    let _one = renewed_twice(&mut server);
    let mut two = Drive::elected("two");
    two.served(&mut server);
    let (call, _) = two.requests.pop_front().expect("it awaits");
    two.send(In::Lease(call, LeaseAnswer::Seen(Arc::clone(&server.history[0]))));
    two.at(at(5));
    two.served(&mut server);
    assert_eq!(two.rollback, None, "the server lagged behind");
}

#[test]
fn w8_a_recreated_lease_proves_a_rollback_if_it_is_older() {
    for (version, proves) in [(500, true), (7_000, false)] {
        let mut server = Server::default();
        let mut one = renewed_twice(&mut server);
        (server.lease, server.version) = (None, version);
        one.at(at(15));
        one.served(&mut server);
        assert_eq!(one.rollback.is_some(), proves, "the operator may have deleted it");
        let last = if proves { (Epoch(1), false) } else { (Epoch(2), true) };
        assert_eq!(one.confirms.last(), Some(&last));
    }
}

#[test]
fn w8_a_shutdown_does_not_release_a_restored_lease() {
    let mut server = Server::default();
    let mut one = renewed_twice(&mut server);
    one.send(In::Shutdown);
    server.rollback(0);
    one.at(at(15));
    one.served(&mut server);
    assert!(!one.leads() && one.rollback.is_none() && !one.done, "the process waits for the writer");
    one.send(In::WriterQuiet { shared_is_free: true });
    assert_eq!(one.free, Some(ReleasedLeases { own: false, shared: true }));
    assert_eq!(server.lease.and_then(|lease| lease.holder).as_deref(), Some("one"));
}

/// An event in a simulation of several processes.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// This many milliseconds pass.
    Pass(u64),
    /// The API server executes the oldest request of a process; the flag says whether the answer arrives.
    Serve(usize, bool),
    /// The oldest request of a process is lost before it arrives.
    Lose(usize),
    /// A lagging API server answers the watch of a process with an earlier state, this many versions ago, or with a
    /// deletion if there is none.
    Lag(usize, usize),
    /// The Directory of a process opens its term.
    Open(usize),
    /// A process freezes, or continues.
    Stop(usize, bool),
    /// A process shuts down.
    End(usize),
    /// A process crashes, and another one starts in its place.
    Crash(usize),
    /// No request of this process, or of none, reaches the API server from now on.
    Cut(Option<usize>),
    /// The API server is down for 41 s, and its storage is restored to an earlier state, this many versions ago.
    StorageRollback(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let process = || 0..3_usize;
    prop_oneof![
        8 => (1..9_000_u64).prop_map(Event::Pass),
        1 => (9_000..90_000_u64).prop_map(Event::Pass),
        20 => (process(), prop::bool::weighted(0.9)).prop_map(|(who, answered)| Event::Serve(who, answered)),
        2 => process().prop_map(Event::Lose),
        3 => (process(), 0..6_usize).prop_map(|(who, behind)| Event::Lag(who, behind)),
        10 => process().prop_map(Event::Open),
        1 => (process(), any::<bool>()).prop_map(|(who, stop)| Event::Stop(who, stop)),
        1 => process().prop_map(Event::End),
        1 => process().prop_map(Event::Crash),
        2 => prop::option::of(process()).prop_map(Event::Cut),
        1 => (0..8_usize).prop_map(Event::StorageRollback),
    ]
}

struct World {
    server: Server,
    now: Now,
    processes: Vec<(Drive, bool)>,
    started: usize,
    /// The process whose requests do not reach the API server.
    cut: Option<usize>,
    /// Time until which the last PUT of a crashed process may arrive.
    last_put_until: Now,
}

impl World {
    fn new() -> World {
        let mut world = World {
            server: Server::default(),
            now: Now::ZERO,
            processes: Vec::new(),
            started: 0,
            cut: None,
            last_put_until: Now::ZERO,
        };
        for _ in 0..3 {
            let process = world.start();
            world.processes.push((process, false));
        }
        world
    }

    fn start(&mut self) -> Drive {
        self.started += 1;
        let mut drive = Drive::new(&format!("process-{}", self.started), LeaderElection::Enabled(TIMES));
        drive.now = self.now;
        drive.send(In::Start);
        drive
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Pass(millis) => {
                let end = self.now.plus(Duration::from_millis(millis));
                while self.now < end {
                    self.now = self.now.plus(Duration::from_millis(500)).min(end);
                    for (drive, stopped) in &mut self.processes {
                        if !*stopped {
                            drive.at(self.now);
                        }
                    }
                    self.check();
                }
            }
            Event::Serve(who, _) if self.cut == Some(who) => {}
            Event::Cut(who) => self.cut = who,
            Event::StorageRollback(back) => self.rollback(back),
            Event::Serve(who, answered) => {
                let (drive, stopped) = &mut self.processes[who];
                let Some((call, request)) = drive.requests.pop_front() else { return };
                match self.server.execute(&request) {
                    None => drive.requests.push_back((call, request)),
                    Some(answer) if answered && !*stopped => drive.send(In::Lease(call, answer)),
                    Some(_) => {}
                }
            }
            Event::Lose(who) => {
                self.processes[who].0.requests.pop_front();
            }
            Event::Lag(who, _) if self.cut == Some(who) => {}
            Event::Lag(who, behind) => {
                let (drive, stopped) = &mut self.processes[who];
                let waits = matches!(drive.requests.front(), Some((_, LeaseRequest::Watch(..))));
                if let Some((call, _)) = drive.requests.pop_front_if(|_| waits && !*stopped) {
                    let old = self.server.history.iter().rev().nth(behind).cloned();
                    drive.send(In::Lease(call, old.map_or(LeaseAnswer::Absent, LeaseAnswer::Seen)));
                }
            }
            Event::Open(who) => {
                let (drive, stopped) = &mut self.processes[who];
                if !*stopped {
                    drive.opened();
                }
            }
            Event::Stop(who, stop) => {
                let (drive, stopped) = &mut self.processes[who];
                if std::mem::replace(stopped, stop) && !stop {
                    // It continues at the current time, and does everything that became due.
                    drive.now = self.now;
                    drive.at(self.now);
                }
            }
            Event::End(who) => {
                let (drive, stopped) = &mut self.processes[who];
                if !*stopped {
                    drive.send(In::Shutdown);
                    drive.send(In::WriterQuiet { shared_is_free: true });
                }
            }
            Event::Crash(who) => {
                let fresh = self.start();
                let (gone, _) = std::mem::replace(&mut self.processes[who], (fresh, false));
                self.note_danger(&gone);
            }
        }
        self.restart_ended();
        self.check();
    }

    /// Stops the API server for a while, and restores its storage.
    fn rollback(&mut self, back: usize) {
        self.apply(Event::Pass(41_000));
        self.processes.iter_mut().for_each(|(drive, _)| drive.requests.clear());
        if let Some(to) = self.server.history.len().checked_sub(1 + back) {
            self.server.rollback(to);
        }
    }

    /// Restarts each process that ended because the storage was restored, as the kubelet does.
    fn restart_ended(&mut self) {
        for who in 0..self.processes.len() {
            if self.processes[who].0.rollback.is_some() {
                assert!(self.server.rollbacks > 0, "the storage was not restored");
                self.processes[who] = (self.start(), false);
            }
        }
    }

    fn note_danger(&mut self, drive: &Drive) {
        if let Some(until) = drive.until() {
            let last_sent = until.minus(seconds(25)).min(self.now);
            self.last_put_until = self.last_put_until.max(last_sent.plus(TIMES.settle));
        }
    }

    /// Checks safety: two processes never send PUTs at the same time, nor one while another's last PUT may still
    /// arrive.
    fn check(&mut self) {
        let may_send =
            |drive: &Drive| drive.until().is_some_and(|until| self.now <= until.minus(seconds(25)));
        let sending: Vec<&str> = self
            .processes
            .iter()
            .filter(|(drive, _)| may_send(drive))
            .map(|(drive, _)| &*drive.leader.params.identity)
            .collect();
        assert!(sending.len() <= 1, "at {:?} {sending:?} may send", self.now);
        if let [one] = sending[..] {
            assert!(
                self.last_put_until <= self.now,
                "{one} sends while a crashed process's PUT may still arrive"
            );
            for (drive, _) in &self.processes {
                let other = &*drive.leader.params.identity;
                let last = drive.until().map(|until| until.minus(seconds(25)).plus(TIMES.settle));
                assert!(other == one || last.is_none_or(|last| last <= self.now), "{one} and {other}");
            }
        }
    }
}

proptest! {
    #[test]
    fn w8_at_most_one_process_may_write_and_eventually_one_does(
        events in prop::collection::vec(event(), 1..250),
    ) {
        let mut world = World::new();
        for event in events {
            world.apply(event);
        }
        // Liveness: all continue, the API server answers everything, and a replica leads within 45 + 20 + 15 s.
        world.apply(Event::Cut(None));
        for who in 0..3 {
            world.apply(Event::Stop(who, false));
            if world.processes[who].0.leader.shutdown != Shutdown::Not {
                world.apply(Event::Crash(who));
            }
        }
        for _ in 0..(TIMES.lease_duration + TIMES.settle + seconds(15)).as_secs() {
            for who in 0..3 {
                for _ in 0..4 {
                    world.apply(Event::Serve(who, true));
                }
                world.apply(Event::Open(who));
            }
            world.apply(Event::Pass(1_000));
        }
        let leaders = world.processes.iter().filter(|(drive, _)| drive.leads()).count();
        prop_assert_eq!(leaders, 1, "{:?}", world.processes.iter().map(|(d, _)| &d.leader).collect::<Vec<_>>());
    }
}

#[test]
fn a4_a_shutdown_before_the_start_ends_immediately() {
    let mut drive = Drive::new("a", LeaderElection::Enabled(TIMES));
    drive.send(In::Shutdown);
    drive.send(In::WriterQuiet { shared_is_free: true });
    assert!(drive.done);
    drive.send(In::Start);
    assert!(drive.requests.is_empty());
}

#[test]
fn w8_lost_renewals_pause_writes_and_then_end_the_term() {
    let mut server = Server::default();
    let mut one = leading("one", &mut server);
    let (mut sent, mut in_flight, mut stood_by) = (Vec::new(), Vec::new(), None);
    for second in 1..=40 {
        one.at(at(second));
        // The port reports a request without an answer.
        for (call, since) in std::mem::take(&mut in_flight) {
            if at(since).plus(REQUEST_TIMEOUT) > one.now {
                in_flight.push((call, since));
                continue;
            }
            one.send(In::Lease(call, LeaseAnswer::Failed(RequestFailure::Other("no answer".into()))));
            one.at(at(second));
        }
        sent.extend(one.requests.drain(..).map(|(call, _)| {
            in_flight.push((call, second));
            second
        }));
        stood_by = stood_by.or((!one.leads()).then_some(second));
    }
    assert_eq!((&sent[..5], stood_by), (&[5, 10, 15, 20, 25][..], Some(30)));
    // A PUT needs 25 s of the 45 s: it may start until second 20.
    assert_eq!(one.unmatched, 0, "no answer arrives after the time-out");
}

#[test]
fn w8_a_term_after_another_leader_begins_with_most_recent_data() {
    let mut server = Server::default();
    let mut one = leading("one", &mut server);
    // The process is disconnected and stops leading.
    one.at(at(31));
    assert!(!one.leads());
    one.requests.clear();
    // Another process leads meanwhile, and shuts down.
    let mut two = Drive::elected("two");
    for second in [0, 46, 70] {
        two.at(at(second));
        two.served(&mut server);
    }
    two.opened();
    assert!(two.leads());
    two.send(In::Shutdown);
    two.send(In::WriterQuiet { shared_is_free: true });
    two.served(&mut server);
    assert!(two.done);
    // The first process is back; the answer to its acquisition is lost, so that it finds itself as the holder.
    let mut lost = false;
    for second in 100..120 {
        one.at(at(second));
        while let Some((call, request)) = one.requests.pop_front() {
            let Some(answer) = server.execute(&request) else { continue };
            let loses = !lost && matches!(request, LeaseRequest::Replace(..));
            lost |= loses;
            let failure = || LeaseAnswer::Failed(RequestFailure::Other("lost".into()));
            one.send(In::Lease(call, if loses { failure() } else { answer }));
        }
    }
    assert!(lost && one.confirms.len() == 2, "{:?}", one.confirms);
    assert!(one.confirms[1].1, "lists from before the disconnection lack the writes of process two");
}

#[test]
fn w8_repeated_conflicts_are_retried_slowly() {
    for leads in [false, true] {
        let mut server = Server::default();
        let mut one = if leads { leading("one", &mut server) } else { Drive::elected("one") };
        let mut requests = 0;
        for second in 0..20 {
            one.at(at(second));
            while let Some((call, request)) = one.requests.pop_front() {
                requests += 1;
                assert!(requests < 100, "a storm of requests");
                let answer = match request {
                    LeaseRequest::Replace(..) | LeaseRequest::Create(_) => Some(LeaseAnswer::Conflict),
                    LeaseRequest::Get | LeaseRequest::Watch(..) => server.execute(&request),
                };
                let Some(answer) = answer else { continue };
                one.send(In::Lease(call, answer));
            }
        }
        assert!(requests <= 45, "{requests} in 20 s");
    }
}

#[test]
fn w8_a_lost_race_is_read_immediately_after_a_successful_write() {
    let mut server = Server::default();
    let mut one = leading("one", &mut server);
    for second in [5, 10, 15] {
        one.at(at(second));
        let (call, request) = one.requests.pop_front().expect("it renews");
        assert!(matches!(request, LeaseRequest::Replace(..)));
        one.send(In::Lease(call, LeaseAnswer::Conflict));
        one.at(at(second));
        assert!(matches!(one.requests.front(), Some((_, LeaseRequest::Get))), "at second {second}");
        one.served(&mut server);
        assert_eq!(one.until(), Some(at(second + 45)), "it was renewed");
    }
}

#[test]
fn w8_failed_watches_are_shown_and_a_read_finds_a_release() {
    let mut server = Server::default();
    let mut one = leading("one", &mut server);
    let mut two = Drive::elected("two");
    two.served(&mut server);
    let error = |drive: &Drive| drive.leader.published.last().and_then(|view| view.last_error.clone());
    for second in [5, 10, 15] {
        let failed = RequestFailure::Other("the watch ended without a line".into());
        awaited(&mut two, LeaseAnswer::Failed(failed));
        one.at(at(second));
        one.served(&mut server);
        two.at(at(second));
        two.served(&mut server);
        let shown = error(&two);
        assert_eq!(shown.as_deref(), (second > 5).then_some("the watch ended without a line"), "{second}");
    }
    one.send(In::Shutdown);
    one.send(In::WriterQuiet { shared_is_free: true });
    one.served(&mut server);
    let failed = RequestFailure::Other("the watch ended without a line".into());
    awaited(&mut two, LeaseAnswer::Failed(failed));
    two.at(at(20));
    two.served(&mut server);
    assert_eq!(server.lease.as_ref().and_then(|lease| lease.holder.as_deref()), Some("two"));
    assert_eq!(error(&two), None, "the holder does not watch the Lease");
}
