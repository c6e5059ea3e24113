//! Writes that wait without lane and turn. The state of the attempt stays in its pool's slot until the next grant
//! (docs/design/writer.md, W2, W4, W9). They wait for a foreign operation, a client retry, or a rate limit of the
//! cloud configuration.

use std::sync::Arc;
use std::time::Duration;

use mechanisms::backoff::Backoff;
use model::arm::{FailureKind, PoolRead, RetryAfter};
use model::attempt::Outcome;
use model::ids::{AttemptId, LbName, PoolId};
use model::machine::Now;
use model::sample::GateClass;

use super::classify::{FailedCall, FailedPut, FailureClass};
use super::completion::WriteEnd;
use super::lane::LaneState;
use super::slot::{Resume, WaitReason};
use super::write::{Exclusion, MembershipPart, Wait, Write, WritePhase};
use super::{Out, Writer};

/// Delays before client retries, without jitter. The last one repeats (W4).
const RETRY_DELAYS: Backoff =
    Backoff(&[Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(35)]);

/// Largest jitter of a delay, up or down, in thousandths.
const JITTER: u64 = 200;

/// Returns the delay before the next client retry: as long as ARM says, up to a minute, else longer each time.
///
/// Writes that failed together must not retry together. The attempt's number changes the delay by up to a fifth,
/// always in the same way.
fn retry_delay(attempt: AttemptId, tried: u32, header: RetryAfter) -> Duration {
    if let Some(named) = header.before_next_try() {
        return named;
    }
    let delay = RETRY_DELAYS.delay(tried);
    let share = 1_000 - JITTER + scattered(attempt.n ^ u64::from(tried).rotate_right(8)) % (2 * JITTER + 1);
    Duration::from_micros(u64::try_from(delay.as_micros()).unwrap_or(u64::MAX) / 1_000 * share)
}

/// Spreads numbers, so that neighbours lie far apart (the finaliser of SplitMix64).
fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Writer {
    /// Gives lane and turn back while a foreign operation runs. The write continues later under its id (W2).
    pub(super) fn wait_for_foreign(&mut self, now: Now, lb: &LbName, out: &mut Vec<Out>) {
        let Some(write) = self.open_write_mut(lb) else { return };
        let (wait, next) = Wait::again(write.history.wait, now);
        write.history.wait = Some(wait);
        match next {
            Some(not_before) => self.set_aside(now, lb, not_before, WaitReason::ForeignOperation),
            None => {
                let message = "another operation on the load balancer did not end within two minutes";
                let failed = FailedCall::ours(FailureKind::Operation, message);
                self.end(now, lb, WriteEnd::retriable(failed), out);
            }
        }
    }

    /// Retries a write later after a problem of ARM or the connection. The GET and the PUT are counted apart, and
    /// after the last retry of one of them the failure is terminal (W4, S0). During shutdown there are no retries. A
    /// write with only an admin part ends: the queue of nodes, which cannot wait as long, decides when to try it
    /// again (N3).
    pub(super) fn retry_later(
        &mut self,
        now: Now,
        lb: &LbName,
        verb: GateClass,
        failed: FailedCall,
        out: &mut Vec<Out>,
    ) {
        let most = self.params.client_retries;
        let Some(write) = self.open_write_mut(lb) else { return };
        let (attempt, tried) = (write.attempt, *write.history.retries(verb));
        if write.is_admin_only() {
            self.end(now, lb, WriteEnd::retriable(failed), out);
            return;
        }
        if tried >= most || !write.has_parts() {
            self.end(now, lb, WriteEnd::Terminal(failed), out);
            return;
        }
        if !self.is_current(attempt) {
            self.end(now, lb, WriteEnd::Interrupted, out);
            return;
        }
        let Some(write) = self.open_write_mut(lb) else { return };
        *write.history.retries(verb) += 1;
        match &write.phase {
            WritePhase::Putting(put) if failed.put != FailedPut::Refused => {
                write.history.unconfirmed_puts.push(Arc::clone(put));
                self.send_in_doubt(now, lb, out);
            }
            WritePhase::Taking | WritePhase::Reading | WritePhase::Putting(_) | WritePhase::Polling(_) => {}
        }
        let not_before = now.plus(retry_delay(attempt, tried, failed.failure.retry_after));
        self.set_aside(now, lb, not_before, WaitReason::ClientRetry);
    }

    /// Retries a throttled write later, as S0's client does: after the same delay as for any other problem,
    /// regardless of ARM's time. Each try counts, even if a closed gate keeps it from ARM (W6). Returns whether it
    /// does. The write ends instead after the last retry, without retries, and if the lane is locked for longer than
    /// the delay.
    pub(super) fn wait_for_throttle(&mut self, now: Now, lb: &LbName, verb: GateClass) -> bool {
        let Some(lane) = self.lanes.get_mut(lb) else { return false };
        let Some(write) = &mut lane.write else { return false };
        let (attempt, tried) = (write.attempt, *write.history.retries(verb));
        let not_before = now.plus(retry_delay(attempt, tried, RetryAfter::Absent));
        let locked = matches!(lane.closed, LaneState::Until(until) if until > not_before);
        if write.is_admin_only()
            || locked
            || tried >= self.params.client_retries
            || !write.has_parts()
            || !self.is_current(attempt)
        {
            return false;
        }
        let Some(write) = self.open_write_mut(lb) else { return false };
        *write.history.retries(verb) += 1;
        write.history.put_throttled = verb == GateClass::Writes;
        self.set_aside(now, lb, not_before, WaitReason::ClientRetry);
        true
    }

    /// Puts a write back into its pool's slot, and frees lane and turn. The next grant reuses its id.
    pub(super) fn set_aside(&mut self, now: Now, lb: &LbName, not_before: Now, why: WaitReason) {
        let Some(write) = self.take_write(now, lb) else { return };
        let Some(lane) = self.lanes.get_mut(lb) else { return };
        let due = write.due();
        let resume = Resume {
            attempt: write.attempt,
            taken: due.is_some(),
            posted: false,
            admin_granted: write.admin_granted,
            since: now,
            history: write.history,
            why,
            not_before: Some(not_before),
        };
        lane.edit(&write.pool.pool, |slot| slot.put_back(due, write.admin, resume));
    }

    /// Counts a probe of a lane in doubt as a try of the pool's own write, once the wait of that write is over. The
    /// lane grants nothing meanwhile, so that the write has an end however long the doubt lasts (W4).
    pub(super) fn count_probe_as_try(
        &mut self,
        now: Now,
        pool: &PoolId,
        read: Result<PoolRead, FailedCall>,
        out: &mut Vec<Out>,
    ) {
        let ends = match &read {
            Ok(_) => true,
            Err(failed) => match failed.class {
                FailureClass::ClientRetry
                | FailureClass::Terminal
                | FailureClass::Absent
                | FailureClass::Stale
                | FailureClass::Retriable => true,
                FailureClass::EtagRound
                | FailureClass::Throttled(_)
                | FailureClass::NotGranted
                | FailureClass::GateClosed => false,
            },
        };
        if !ends || !self.wake_in_doubt(now, pool) {
            return;
        }
        match read {
            Ok(_) => self.wait_for_foreign(now, &pool.lb, out),
            Err(failed) => self.fail(now, &pool.lb, GateClass::Reads, failed, out),
        }
    }

    /// Takes a waiting write out of its slot when its time has come, as if it had been granted and its GET sent.
    fn wake_in_doubt(&mut self, now: Now, pool: &PoolId) -> bool {
        let Some(lane) = self.lanes.get_mut(&pool.lb).filter(|lane| lane.write.is_none()) else {
            return false;
        };
        let mut woken = None;
        lane.edit(&pool.pool, |slot| {
            let ready = |resume: &Resume| resume.not_before.is_none_or(|at| at <= now);
            if !slot.resume.as_ref().is_some_and(ready) {
                return;
            }
            // Membership that is not part of the write stays in the slot.
            let apart = slot.membership.filter(|_| slot.resume.as_ref().is_some_and(|resume| !resume.taken));
            let granted = slot.take_granted();
            let Some(resume) = granted.resume else { return };
            slot.membership = slot.membership.or(apart);
            let due = granted.membership.filter(|_| resume.taken);
            woken = Some(Write {
                attempt: resume.attempt,
                pool: pool.clone(),
                granted: now,
                membership: due.map_or(MembershipPart::Absent, MembershipPart::Requested),
                admin: granted.admin,
                admin_granted: resume.admin_granted,
                history: resume.history,
                token: false,
                exclusion: Exclusion::SharedLease,
                phase: WritePhase::Reading,
            });
        });
        lane.write = woken;
        lane.write.is_some()
    }

    /// Ends the waits of a lane: attempts are answered, and admin parts stay due (W8).
    pub(super) fn interrupt_resumes(&mut self, lb: &LbName, out: &mut Vec<Out>) {
        let Some(lane) = self.lanes.get_mut(lb) else { return };
        for pool in lane.paused() {
            let mut ended = None;
            lane.edit(&pool, |slot| ended = slot.interrupt());
            if let Some(attempt) = ended {
                out.push(Out::Finished(PoolId::new(lb.clone(), pool), attempt, Outcome::Interrupted));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ids::Epoch;

    #[test]
    fn w4_delays_are_5_15_and_35_s_within_a_fifth_and_fixed_per_attempt() {
        for (tried, seconds) in [(0, 5_u64), (1, 15), (2, 35), (3, 35), (u32::MAX, 35)] {
            let of = |n| retry_delay(AttemptId { epoch: Epoch(1), n }, tried, RetryAfter::Absent);
            let all: Vec<Duration> = (0..1_000).map(of).collect();
            let (least, most) = (all.iter().min().expect("many"), all.iter().max().expect("many"));
            let bound = |per_mille| Duration::from_millis(seconds * per_mille);
            assert!(bound(800) <= *least && *least < bound(820), "{least:?}");
            assert!(bound(1_180) < *most && *most <= bound(1_200), "{most:?}");
            assert_eq!(all, (0..1_000).map(of).collect::<Vec<_>>());
        }
    }

    #[test]
    fn w4_neighbouring_attempts_are_not_tried_again_together() {
        let of = |n| retry_delay(AttemptId { epoch: Epoch(1), n }, 0, RetryAfter::Absent);
        let different: std::collections::BTreeSet<Duration> = (0..100).map(of).collect();
        assert!(different.len() > 50, "{}", different.len());
    }

    #[test]
    fn w4_a_retry_after_is_kept_to_up_to_60_seconds() {
        let of = |header| retry_delay(AttemptId { epoch: Epoch(1), n: 1 }, 0, header).as_secs();
        assert_eq!(of(RetryAfter::In(Duration::from_secs(1))), 1);
        assert_eq!(of(RetryAfter::In(Duration::from_secs(59))), 59);
        assert_eq!(of(RetryAfter::In(Duration::MAX)), 60);
        assert!((4..=6).contains(&of(RetryAfter::Invalid)));
    }
}
