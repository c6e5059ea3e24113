//! Cache of verdicts, so that a client that reads often is not reviewed each time. The key is a digest: the cache
//! holds neither the token nor anything that leads back to it.

use std::collections::VecDeque;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use tokio::time::Instant;

use super::Verdict;

/// Lifetime of a verdict: for this time, a client whose permission or token has ended can still read.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// Most cached verdicts. Any client that reaches the listener can cause one with each invented token.
const MOST: usize = 1024;

/// Digest of token, path and verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Question([u8; 32]);

impl Question {
    /// Computes the digest. The length precedes each part, so that different questions never yield the same text.
    pub(super) fn new(token: &str, path: &str, verb: &str) -> Question {
        let mut context = Context::new(&SHA256);
        for part in [verb, path, token] {
            context.update(&part.len().to_be_bytes());
            context.update(part.as_bytes());
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());
        Question(digest)
    }
}

/// A verdict, and the time of its question.
#[derive(Clone, Debug)]
struct Entry {
    question: Question,
    verdict: Verdict,
    asked: Instant,
}

impl Entry {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) < KEPT_FOR
    }
}

/// The verdicts, oldest first.
#[derive(Clone, Default, Debug)]
pub(super) struct VerdictCache(VecDeque<Entry>);

impl VerdictCache {
    /// Returns the verdict on a question, while it is fresh.
    pub(super) fn of(&self, now: Instant, question: Question) -> Option<&Verdict> {
        // The newest are requested again most often.
        let entry = self.0.iter().rev().find(|entry| entry.question == question)?;
        entry.is_fresh(now).then_some(&entry.verdict)
    }

    /// Adds this verdict, which was requested at that time, and drops the expired ones and, if there are too many, the
    /// oldest. A missing answer is not a verdict. A verdict never replaces one that was requested later.
    pub(super) fn with(&self, asked: Instant, question: Question, verdict: &Verdict) -> VerdictCache {
        match verdict {
            Verdict::Allowed(_) | Verdict::Denied(..) | Verdict::Unknown(_) => {}
            Verdict::Unanswered(_) => return self.clone(),
        }
        if self.0.iter().any(|entry| entry.question == question && entry.asked > asked) {
            return self.clone();
        }
        let stays = |entry: &&Entry| entry.is_fresh(asked) && entry.question != question;
        let mut kept: VecDeque<Entry> = self.0.iter().filter(stays).cloned().collect();
        while kept.len() >= MOST {
            kept.pop_front();
        }
        kept.push_back(Entry { question, verdict: verdict.clone(), asked });
        VerdictCache(kept)
    }
}

#[cfg(test)]
mod tests {
    use model::object::RequestFailure;

    use super::*;

    fn question(token: &str) -> Question {
        Question::new(token, "/api/v1/status", "get")
    }

    fn allowed() -> Verdict {
        Verdict::Allowed("alice".into())
    }

    #[tokio::test(start_paused = true)]
    async fn h2_a_verdict_is_kept_for_10_s_and_a_missing_answer_is_not() {
        let begin = Instant::now();
        let unanswered = Verdict::Unanswered(RequestFailure::Other("no answer".into()));
        let denied = Verdict::Denied("bob".into(), "".into());
        let unknown = Verdict::Unknown("".into());
        let verdicts = [("a", allowed()), ("b", denied), ("c", unknown), ("d", unanswered)];
        let kept = verdicts.iter().fold(VerdictCache::default(), |kept, (token, verdict)| {
            kept.with(begin, question(token), verdict)
        });
        let last = begin + KEPT_FOR - Duration::from_millis(1);
        for (token, verdict) in &verdicts[..3] {
            assert_eq!(kept.of(last, question(token)), Some(verdict));
            assert_eq!(kept.of(begin + KEPT_FOR, question(token)), None);
        }
        assert_eq!(kept.of(begin, question("d")), None);
        assert_eq!(kept.of(begin, question("e")), None);
        let later = kept.with(begin + KEPT_FOR, question("e"), &allowed());
        assert_eq!(later.0.len(), 1, "what is not fresh goes");
    }

    #[tokio::test(start_paused = true)]
    async fn h2_the_newest_verdict_counts_and_its_time_begins_anew() {
        let begin = Instant::now();
        let second = begin + KEPT_FOR - Duration::from_secs(1);
        let denied = Verdict::Denied("alice".into(), "".into());
        let kept = VerdictCache::default().with(begin, question("a"), &allowed()).with(
            second,
            question("a"),
            &denied,
        );
        assert_eq!((kept.of(begin + KEPT_FOR, question("a")), kept.0.len()), (Some(&denied), 1));
        let late = kept.with(second - Duration::from_secs(1), question("a"), &allowed());
        assert_eq!(late.of(second, question("a")), Some(&denied), "what was asked for before is older news");
    }

    #[tokio::test(start_paused = true)]
    async fn h2_there_are_no_more_verdicts_than_a_bound_and_the_oldest_go_first() {
        let begin = Instant::now();
        let mut kept = VerdictCache::default();
        for number in 0..=MOST {
            kept = kept.with(begin, question(&number.to_string()), &allowed());
        }
        assert_eq!(kept.0.len(), MOST);
        assert_eq!(kept.of(begin, question("0")), None);
        assert_eq!(kept.of(begin, question("1")), Some(&allowed()));
        assert_eq!(kept.of(begin, question(&MOST.to_string())), Some(&allowed()));
    }

    #[test]
    fn h2_each_part_of_a_question_counts_and_none_runs_into_the_next() {
        let asked = Question::new("token", "/a", "get");
        for other in [
            Question::new("other", "/a", "get"),
            Question::new("token", "/b", "get"),
            Question::new("token", "/a", "post"),
            Question::new("atoken", "/", "get"),
            Question::new("token", "t/a", "ge"),
        ] {
            assert_ne!(asked, other);
        }
        assert_eq!(asked, Question::new("token", "/a", "get"));
    }
}
