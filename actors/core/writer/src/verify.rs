//! Checks that each write persisted, by reads off the lane (docs/design/writer.md, W2).
//!
//! A write that is missing was *lost* if every entity tag seen since is ours. Otherwise it was *overwritten*.
//! - A tag is **ours** if it came in the answer to a PUT of this process: the PUT of the write itself, or a later one
//!   on the same load balancer. ARM changes the tag when an operation ends, and no answer to a PUT carries that tag.
//!   Therefore the first tag seen after the end of our operation is ours too, unless another PUT of ours was accepted
//!   in between.
//! - A tag is **seen since** if it came in the answer to a read of the load balancer, or of one of its pools, that
//!   was sent at or after the end of the write. A read without a tag proves nothing: the write counts as overwritten,
//!   which is drift and is repaired in the same way.
//!
//! Before a write counts as lost, its load balancer is read once more. If the load balancer was deleted and created
//! again since the write began, it has another `resourceGuid`. Then its first tag is not ours, and nothing was lost.
//!
//! A write counts as lost only if the pool holds what it held before the write, or nothing: ARM leaves one of the two
//! when it loses a write. Any other content comes from another client, and the tag that counts as the last one of our
//! operation may be that client's. Such a write counts as overwritten.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use mechanisms::recheck::Recheck;
use model::arm::{LbFacts, PoolFacts};
use model::attempt::WriteFate;
use model::ids::{AttemptId, Etag, LbName, PoolId, of_balancer};
use model::machine::Now;

/// Times of the reads, from the end of the write (W2).
const READS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// Maximum number of writes that are verified at a time. Beyond that, the oldest are left to the next discovery (D3).
const MAX_VERIFICATIONS: usize = 256;

/// Maximum number of tags kept for one load balancer before obsolete ones are dropped.
const MAX_TAGS: usize = 64;

/// A write that ended and must be verified.
#[derive(Clone, Debug)]
pub(super) struct WrittenPool {
    /// The attempt.
    pub attempt: AttemptId,
    /// Members that must be there.
    pub required: BTreeSet<IpAddr>,
    /// Members that the write removed, and that must not be there.
    pub removed: BTreeSet<IpAddr>,
    /// Members before the write.
    pub before: BTreeSet<IpAddr>,
    /// Entity tag of the answer to its PUT.
    pub etag: Option<Etag>,
    /// Time at which the write began.
    pub began: Now,
}

/// The result of a read that verifies a write.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    /// The fate of the write is known.
    Fate(WriteFate),
    /// The write seems lost. The load balancer must be read.
    SeemsLost,
}

/// Identity of the load balancer behind a name.
#[derive(Clone, Debug)]
struct Identity {
    guid: Arc<str>,
    /// Time at which the read began that found this load balancer in place of another one. `None`: it is the first
    /// one seen.
    replaced: Option<Now>,
}

#[derive(Clone, Debug)]
struct Verification {
    written: WrittenPool,
    /// The reads, from the end of the write.
    reads: Recheck,
    step: VerifyStep,
    /// Result of the last successful read, and the time at which it was sent.
    last: Option<(Arc<PoolFacts>, Now)>,
}

#[derive(Clone, Copy, Debug)]
enum VerifyStep {
    Until(Now),
    Reading,
}

/// Entity tags of one load balancer while a write on it is verified.
#[derive(Clone, Debug, Default)]
struct Tags {
    /// Our tags, and the time at which each was last recorded.
    ours: BTreeMap<Etag, Now>,
    /// Tags seen, and the send time of the latest read that saw each. `None`: a read without a tag.
    seen: BTreeMap<Option<Etag>, Now>,
    /// Time at which an operation of ours ended whose last tag has not been seen yet.
    unseen: Option<Now>,
}

/// All verifications.
#[derive(Clone, Debug, Default)]
pub(super) struct Verifications {
    pending: BTreeMap<PoolId, Verification>,
    ages: BTreeSet<(Now, PoolId)>,
    timers: BTreeSet<(Now, PoolId)>,
    tags: BTreeMap<LbName, Tags>,
    identities: BTreeMap<LbName, Identity>,
}

impl Verifications {
    /// Starts to verify a write that ended now. It replaces an older verification of the pool.
    pub(super) fn start(&mut self, now: Now, pool: PoolId, written: WrittenPool) {
        self.cancel(&pool);
        let tags = self.tags.entry(pool.lb.clone()).or_default();
        if let Some(etag) = &written.etag {
            tags.ours.insert(etag.clone(), now);
        }
        let reads = Recheck::new(&READS, now);
        let until = reads.at().unwrap_or(now);
        self.ages.insert((now, pool.clone()));
        self.timers.insert((until, pool.clone()));
        let verification = Verification { written, reads, step: VerifyStep::Until(until), last: None };
        self.pending.insert(pool, verification);
        while self.pending.len() > MAX_VERIFICATIONS {
            let Some((_, oldest)) = self.ages.first().cloned() else { break };
            self.cancel(&oldest);
        }
    }

    /// Ends the verification of a pool without a verdict, because the pool is written again. Returns whether there
    /// was one.
    pub(super) fn cancel(&mut self, pool: &PoolId) -> bool {
        let Some(verification) = self.pending.remove(pool) else { return false };
        self.ages.remove(&(verification.reads.since(), pool.clone()));
        if let VerifyStep::Until(until) = verification.step {
            self.timers.remove(&(until, pool.clone()));
        }
        let oldest = self.of_lb(&pool.lb).map(|other| other.reads.since()).min();
        match oldest {
            None => {
                self.tags.remove(&pool.lb);
            }
            Some(oldest) => {
                if let Some(tags) = self.tags.get_mut(&pool.lb).filter(|tags| tags.seen.len() > MAX_TAGS) {
                    tags.seen.retain(|_, began| *began >= oldest);
                    tags.ours.retain(|_, recorded| *recorded >= oldest);
                }
            }
        }
        true
    }

    /// Ends all verifications. The unverified writes are left to Discovery.
    pub(super) fn clear(&mut self) {
        *self = Verifications::default();
    }

    fn of_lb<'a>(&'a self, lb: &'a LbName) -> impl Iterator<Item = &'a Verification> + 'a {
        of_balancer(&self.pending, lb).map(|(_, verification)| verification)
    }

    /// Records the entity tag of an answer to one of our PUTs.
    pub(super) fn add_own_tag(&mut self, now: Now, lb: &LbName, etag: Option<&Etag>) {
        if let Some(tags) = self.tags.get_mut(lb) {
            tags.unseen = None;
            if let Some(etag) = etag {
                tags.ours.insert(etag.clone(), now);
            }
        }
    }

    /// Records that one of our operations ended: ARM gave the load balancer a tag that we have not seen.
    pub(super) fn operation_ended(&mut self, now: Now, lb: &LbName) {
        if let Some(tags) = self.tags.get_mut(lb) {
            tags.unseen = Some(now);
        }
    }

    /// Records the tag in the answer to a read that was sent at `began`.
    pub(super) fn observe_tag(&mut self, began: Now, lb: &LbName, etag: Option<&Etag>) {
        if let Some(tags) = self.tags.get_mut(lb) {
            if let (Some(ended), Some(etag)) = (tags.unseen, etag)
                && began >= ended
            {
                tags.unseen = None;
                tags.ours.insert(etag.clone(), began);
            }
            let youngest = tags.seen.entry(etag.cloned()).or_insert(began);
            *youngest = began.max(*youngest);
        }
    }

    /// Records the `resourceGuid` in the answer to a read that was sent at `began`.
    pub(super) fn observe_guid(&mut self, began: Now, lb: &LbName, guid: Option<&Arc<str>>) {
        let Some(guid) = guid else { return };
        let known = self.identities.get(lb);
        if known.is_none_or(|known| known.guid != *guid) {
            let replaced = known.map(|_| began);
            self.identities.insert(lb.clone(), Identity { guid: Arc::clone(guid), replaced });
        }
    }

    /// Takes the pools whose next read is due.
    pub(super) fn due(&mut self, now: Now) -> Vec<(PoolId, AttemptId)> {
        let mut due = Vec::new();
        while let Some((_, pool)) = self.timers.first().filter(|(at, _)| *at <= now).cloned() {
            self.timers.pop_first();
            if let Some(verification) = self.pending.get_mut(&pool) {
                verification.step = VerifyStep::Reading;
                due.push((pool, verification.written.attempt));
            }
        }
        due
    }

    /// Returns the time of the next read.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Returns whether the answer to this read is still needed.
    pub(super) fn needs(&self, pool: &PoolId, attempt: AttemptId) -> bool {
        self.pending.get(pool).is_some_and(|verification| verification.written.attempt == attempt)
    }

    /// Applies a read. `None`: the read failed. Returns the verdict, if there is one.
    pub(super) fn answered(
        &mut self,
        now: Now,
        pool: &PoolId,
        attempt: AttemptId,
        seen: Option<(Arc<PoolFacts>, Now)>,
    ) -> Option<Verdict> {
        let verification = self.pending.get_mut(pool).filter(|found| found.written.attempt == attempt)?;
        if let Some((facts, began)) = seen {
            if verification.written.is_in(&facts.members()) {
                self.cancel(pool);
                return Some(Verdict::Fate(WriteFate::Persisted(attempt)));
            }
            verification.last = Some((facts, began));
        }
        verification.reads.advance();
        if let Some(at) = verification.reads.at() {
            let until = at.max(now);
            verification.step = VerifyStep::Until(until);
            self.timers.insert((until, pool.clone()));
            return None;
        }
        let Some((facts, began)) = verification.last.clone() else {
            self.cancel(pool);
            return None;
        };
        if self.seems_lost(pool, &facts) {
            return Some(Verdict::SeemsLost);
        }
        self.cancel(pool);
        Some(Verdict::Fate(WriteFate::Overwritten { attempt, facts, began }))
    }

    /// Applies the read of the load balancer of a write that seems lost. `None`: the read failed. Returns the fate,
    /// if the pool is there.
    pub(super) fn confirmed(
        &mut self,
        pool: &PoolId,
        attempt: AttemptId,
        seen: Option<(Arc<LbFacts>, Now)>,
    ) -> Option<WriteFate> {
        let verification = self.pending.get(pool).filter(|found| found.written.attempt == attempt)?;
        let found = seen.and_then(|(lb, began)| {
            Some((Arc::clone(lb.pools.iter().find(|seen| seen.id == *pool)?), began))
        });
        let began_writing = verification.written.began;
        let is_in = found.as_ref().is_some_and(|(facts, _)| verification.written.is_in(&facts.members()));
        let replaced = self.identities.get(&pool.lb).and_then(|identity| identity.replaced);
        let is_another = replaced.is_some_and(|at| at >= began_writing);
        let lost = !is_another && found.as_ref().is_some_and(|(facts, _)| self.seems_lost(pool, facts));
        self.cancel(pool);
        let (facts, began) = found?;
        Some(if is_in {
            WriteFate::Persisted(attempt)
        } else if lost {
            WriteFate::Lost { attempt, facts, began }
        } else {
            WriteFate::Overwritten { attempt, facts, began }
        })
    }

    /// Returns whether the pool holds what it held before the write, or nothing, and all tags since are ours.
    fn seems_lost(&self, pool: &PoolId, facts: &PoolFacts) -> bool {
        let members = facts.members();
        self.pending.get(pool).is_some_and(|verification| {
            let is_as_before = members.is_empty() || members == verification.written.before;
            is_as_before && self.only_ours_since(&pool.lb, verification.reads.since())
        })
    }

    fn only_ours_since(&self, lb: &LbName, ended: Now) -> bool {
        self.tags.get(lb).is_some_and(|tags| {
            tags.seen
                .iter()
                .filter(|(_, began)| **began >= ended)
                .all(|(etag, _)| etag.as_ref().is_some_and(|etag| tags.ours.contains_key(etag)))
        })
    }

    /// Checks that every verification is in the orders, and that tags are kept only for verifications.
    pub(super) fn is_consistent(&self) -> bool {
        self.pending.len() == self.ages.len()
            && self.pending.len() <= MAX_VERIFICATIONS
            && self.timers.len() <= self.pending.len()
            && self.tags.keys().all(|lb| self.of_lb(lb).next().is_some())
            && self.pending.keys().all(|pool| self.tags.contains_key(&pool.lb))
    }
}

impl WrittenPool {
    fn is_in(&self, members: &BTreeSet<IpAddr>) -> bool {
        self.required.is_subset(members) && self.removed.is_disjoint(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::arm::{AdminState, Entry};
    use model::ids::{Epoch, PoolName};
    use pool_testing::facts::pool_at_rest;

    const ATTEMPT: AttemptId = AttemptId { epoch: Epoch(1), n: 7 };

    fn pool(lb: &str, pool: &str) -> PoolId {
        PoolId::new(LbName::new(lb), PoolName::new(pool))
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn facts(members: &[u8]) -> Arc<PoolFacts> {
        let entry = |last: &u8| Entry {
            name: "n".into(),
            ip: Some(ip(*last)),
            admin_state: AdminState::None,
            network: None,
            instance: None,
        };
        Arc::new(pool_at_rest(pool("lb", "a"), members.iter().map(entry).collect()))
    }

    fn written() -> WrittenPool {
        WrittenPool {
            attempt: ATTEMPT,
            required: BTreeSet::from([ip(1)]),
            removed: BTreeSet::from([ip(2)]),
            before: BTreeSet::from([ip(1), ip(2)]),
            etag: Some(Etag::new("W/1")),
            began: Now::ZERO,
        }
    }

    /// Returns the fate of one write whose three reads see these members and tags, on the same load balancer.
    fn verdict(reads: [Option<(&[u8], &str)>; 3]) -> (Vec<u64>, Option<WriteFate>) {
        let mut all = Verifications::default();
        all.observe_guid(Now::ZERO, &LbName::new("lb"), Some(&"first".into()));
        verdict_of(&mut all, reads, "first")
    }

    fn verdict_of(
        all: &mut Verifications,
        reads: [Option<(&[u8], &str)>; 3],
        guid: &str,
    ) -> (Vec<u64>, Option<WriteFate>) {
        let id = pool("lb", "a");
        all.start(Now::from_millis(1_000), id.clone(), written());
        let mut at = Vec::new();
        for read in reads {
            let now = all.deadline().expect("a read is due");
            at.push(now.as_micros() / 1_000);
            assert_eq!(all.due(now), [(id.clone(), ATTEMPT)]);
            if let Some((_, etag)) = read {
                let etag = Etag::new(etag);
                all.observe_tag(now, &id.lb, Some(&etag));
            }
            let seen = read.map(|(members, _)| (facts(members), now));
            let verdict = all.answered(now, &id, ATTEMPT, seen.clone());
            assert!(all.is_consistent());
            match verdict {
                Some(Verdict::Fate(fate)) => return (at, Some(fate)),
                Some(Verdict::SeemsLost) => {
                    all.observe_guid(now, &id.lb, Some(&guid.into()));
                    let pools = reads.iter().rev().flatten().next().map(|(members, _)| facts(members));
                    let lb = LbFacts {
                        lb: id.lb.clone(),
                        etag: None,
                        guid: Some(guid.into()),
                        provisioning: model::arm::Provisioning::Succeeded,
                        pools: pools.into_iter().collect(),
                        rules: Vec::new(),
                    };
                    return (at, all.confirmed(&id, ATTEMPT, Some((Arc::new(lb), now))));
                }
                None => {}
            }
        }
        assert!(all.deadline().is_none() && !all.needs(&id, ATTEMPT));
        (at, None)
    }

    #[test]
    fn a_load_balancer_that_was_created_again_has_lost_no_write() {
        let gone: Option<(&[u8], &str)> = Some((&[], "W/1"));
        let mut all = Verifications::default();
        all.observe_guid(Now::ZERO, &LbName::new("lb"), Some(&"first".into()));
        let (_, verdict) = verdict_of(&mut all, [gone; 3], "second");
        assert!(matches!(verdict, Some(WriteFate::Overwritten { .. })), "{verdict:?}");
        let (_, verdict) = verdict_of(&mut all, [gone; 3], "second");
        assert!(
            matches!(verdict, Some(WriteFate::Overwritten { .. })),
            "it was replaced after that write began"
        );
    }

    #[test]
    fn a_write_that_seems_lost_and_cannot_be_confirmed_has_no_verdict() {
        let mut all = Verifications::default();
        let id = pool("lb", "a");
        all.start(Now::from_millis(1_000), id.clone(), written());
        for _ in 0..3 {
            let now = all.deadline().expect("a read is due");
            all.due(now);
            all.observe_tag(now, &id.lb, Some(&Etag::new("W/1")));
            all.answered(now, &id, ATTEMPT, Some((facts(&[]), now)));
        }
        assert!(all.needs(&id, ATTEMPT));
        assert!(all.confirmed(&id, ATTEMPT, None).is_none());
        assert!(!all.needs(&id, ATTEMPT) && all.is_consistent());
    }

    #[test]
    fn w2_verification_stops_at_the_first_read_that_shows_the_write() {
        let (at, verdict) = verdict([Some((&[2], "W/1")), Some((&[1, 3], "W/1")), None]);
        assert_eq!(at, [2_000, 3_000]);
        assert!(matches!(verdict, Some(WriteFate::Persisted(ATTEMPT))));
    }

    #[test]
    fn w2_a_write_that_is_missing_under_our_own_tag_is_lost() {
        let (at, verdict) = verdict([Some((&[], "W/1")), Some((&[], "W/1")), Some((&[], "W/1"))]);
        assert_eq!(at, [2_000, 3_000, 5_000]);
        assert!(matches!(verdict, Some(WriteFate::Lost { began, .. }) if began == Now::from_millis(5_000)));
    }

    #[test]
    fn w2_a_removed_member_that_is_back_counts_as_a_missing_one() {
        let back: Option<(&[u8], &str)> = Some((&[1, 2], "W/1"));
        assert!(matches!(verdict([back, back, back]).1, Some(WriteFate::Lost { .. })));
    }

    #[test]
    fn w2_members_that_were_never_there_before_make_it_drift() {
        let third: Option<(&[u8], &str)> = Some((&[7], "W/1"));
        assert!(matches!(verdict([third, third, third]).1, Some(WriteFate::Overwritten { .. })));
    }

    #[test]
    fn w2_one_foreign_tag_makes_it_drift() {
        let (_, verdict) = verdict([Some((&[], "W/1")), Some((&[], "W/9")), Some((&[], "W/1"))]);
        assert!(matches!(verdict, Some(WriteFate::Overwritten { .. })));
    }

    #[test]
    fn w2_a_failed_read_counts_as_none_and_without_any_is_no_verdict() {
        assert!(matches!(verdict([None, Some((&[], "W/1")), None]).1, Some(WriteFate::Lost { .. })));
        assert!(verdict([None, None, None]).1.is_none());
    }

    #[test]
    fn w2_the_tag_at_the_end_of_an_operation_is_ours() {
        for (later, lost) in [("W/2", true), ("W/3", false)] {
            let mut all = Verifications::default();
            let id = pool("lb", "a");
            all.start(Now::from_millis(1_000), id.clone(), written());
            all.operation_ended(Now::from_millis(1_000), &id.lb);
            all.observe_tag(Now::from_millis(900), &id.lb, Some(&Etag::new("W/1")));
            all.observe_tag(Now::from_millis(2_000), &id.lb, Some(&Etag::new("W/2")));
            all.observe_tag(Now::from_millis(3_000), &id.lb, Some(&Etag::new(later)));
            assert_eq!(all.only_ours_since(&id.lb, Now::from_millis(1_000)), lost);
        }
    }

    #[test]
    fn w2_the_tag_is_in_doubt_once_another_put_was_accepted() {
        let mut all = Verifications::default();
        let id = pool("lb", "a");
        all.start(Now::from_millis(1_000), id.clone(), written());
        all.operation_ended(Now::from_millis(1_000), &id.lb);
        all.add_own_tag(Now::from_millis(1_500), &id.lb, Some(&Etag::new("W/2")));
        all.observe_tag(Now::from_millis(2_000), &id.lb, Some(&Etag::new("W/9")));
        assert!(!all.only_ours_since(&id.lb, Now::from_millis(1_000)));
    }

    #[test]
    fn w2_a_tag_read_before_the_write_ended_is_not_held_against_it() {
        let mut all = Verifications::default();
        let id = pool("lb", "a");
        all.start(
            Now::from_millis(0),
            pool("LB", "other"),
            WrittenPool { required: BTreeSet::new(), ..written() },
        );
        all.observe_tag(Now::from_millis(900), &id.lb, Some(&Etag::new("W/old")));
        all.start(Now::from_millis(1_000), id.clone(), written());
        assert!(all.only_ours_since(&id.lb, Now::from_millis(1_000)));
        all.observe_tag(Now::from_millis(1_000), &id.lb, None);
        assert!(!all.only_ours_since(&id.lb, Now::from_millis(1_000)), "a read without a tag is in doubt");
    }

    #[test]
    fn w2_at_most_256_writes_are_verified_and_the_oldest_give_way() {
        let mut all = Verifications::default();
        for n in 0..300 {
            all.start(Now::from_millis(n), pool("lb", &format!("p{n}")), written());
            assert!(all.is_consistent());
        }
        assert!(!all.needs(&pool("lb", "p43"), ATTEMPT));
        assert!(all.needs(&pool("lb", "p44"), ATTEMPT));
    }

    #[test]
    fn w2_the_memory_of_tags_is_bounded_by_open_verifications() {
        let mut all = Verifications::default();
        for n in 0..2_000_u64 {
            let now = Now::from_millis(n * 1_000);
            let tag = Etag::new(format!("W/{n}"));
            all.start(
                now,
                pool("lb", &format!("p{}", n % 3)),
                WrittenPool { etag: Some(tag.clone()), ..written() },
            );
            all.observe_tag(now, &LbName::new("lb"), Some(&tag));
        }
        let tags = &all.tags[&LbName::new("lb")];
        assert!(tags.seen.len() <= MAX_TAGS + 1 && tags.ours.len() <= MAX_TAGS + 3);
    }
}
