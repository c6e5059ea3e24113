//! Cache of verdicts, so that a client that reads often is not reviewed each time. The key is a digest: the cache
//! holds neither the token nor anything that leads back to it.

use std::collections::VecDeque;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use tokio::time::Instant;

use super::Verdict;

/// Lifetime of a verdict: for this time, a client whose permission or token has ended can still read.
const LIFETIME: Duration = Duration::from_secs(10);
/// Maximum cached verdicts. Any client that reaches the listener can cause one with each invented token.
const MAX_ENTRIES: usize = 1024;

/// Digest of token, path and verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CacheKey([u8; 32]);

impl CacheKey {
    /// Computes the digest. The length precedes each part, so that different requests never yield the same text.
    pub(super) fn new(token: &str, path: &str, verb: &str) -> CacheKey {
        let mut context = Context::new(&SHA256);
        for part in [verb, path, token] {
            context.update(&part.len().to_be_bytes());
            context.update(part.as_bytes());
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());
        CacheKey(digest)
    }
}

/// A verdict, and the time at which it was requested.
#[derive(Clone, Debug)]
struct Entry {
    key: CacheKey,
    verdict: Verdict,
    requested: Instant,
}

impl Entry {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.requested) < LIFETIME
    }
}

/// The verdicts, oldest first.
#[derive(Clone, Default, Debug)]
pub(super) struct VerdictCache(VecDeque<Entry>);

impl VerdictCache {
    /// Returns the verdict for a key while it is fresh.
    pub(super) fn of(&self, now: Instant, key: CacheKey) -> Option<&Verdict> {
        // The newest are requested again most often.
        let entry = self.0.iter().rev().find(|entry| entry.key == key)?;
        entry.is_fresh(now).then_some(&entry.verdict)
    }

    /// Adds this verdict, which was requested at that time, and drops the expired ones and, if there are too many, the
    /// oldest. A missing answer is not a verdict. A verdict never replaces one that was requested later.
    pub(super) fn with(&self, requested: Instant, key: CacheKey, verdict: &Verdict) -> VerdictCache {
        match verdict {
            Verdict::Allowed(_) | Verdict::Denied(..) | Verdict::Unknown(_) => {}
            Verdict::Unanswered(_) => return self.clone(),
        }
        if self.0.iter().any(|entry| entry.key == key && entry.requested > requested) {
            return self.clone();
        }
        let is_kept = |entry: &&Entry| entry.is_fresh(requested) && entry.key != key;
        let mut entries: VecDeque<Entry> = self.0.iter().filter(is_kept).cloned().collect();
        while entries.len() >= MAX_ENTRIES {
            entries.pop_front();
        }
        entries.push_back(Entry { key, verdict: verdict.clone(), requested });
        VerdictCache(entries)
    }
}

#[cfg(test)]
mod tests {
    use model::object::RequestFailure;

    use super::*;

    fn key(token: &str) -> CacheKey {
        CacheKey::new(token, "/api/v1/status", "get")
    }

    fn allowed() -> Verdict {
        Verdict::Allowed("alice".into())
    }

    #[tokio::test(start_paused = true)]
    async fn h2_a_verdict_is_cached_for_10_s_and_a_missing_answer_is_not() {
        let start = Instant::now();
        let unanswered = Verdict::Unanswered(RequestFailure::Other("no answer".into()));
        let denied = Verdict::Denied("bob".into(), "".into());
        let unknown = Verdict::Unknown("".into());
        let verdicts = [("a", allowed()), ("b", denied), ("c", unknown), ("d", unanswered)];
        let entries = verdicts.iter().fold(VerdictCache::default(), |entries, (token, verdict)| {
            entries.with(start, key(token), verdict)
        });
        let last = start + LIFETIME - Duration::from_millis(1);
        for (token, verdict) in &verdicts[..3] {
            assert_eq!(entries.of(last, key(token)), Some(verdict));
            assert_eq!(entries.of(start + LIFETIME, key(token)), None);
        }
        assert_eq!(entries.of(start, key("d")), None);
        assert_eq!(entries.of(start, key("e")), None);
        let later = entries.with(start + LIFETIME, key("e"), &allowed());
        assert_eq!(later.0.len(), 1, "expired verdicts are dropped");
    }

    #[tokio::test(start_paused = true)]
    async fn h2_the_newest_verdict_counts_and_restarts_its_lifetime() {
        let start = Instant::now();
        let second = start + LIFETIME - Duration::from_secs(1);
        let denied = Verdict::Denied("alice".into(), "".into());
        let entries =
            VerdictCache::default().with(start, key("a"), &allowed()).with(second, key("a"), &denied);
        assert_eq!((entries.of(start + LIFETIME, key("a")), entries.0.len()), (Some(&denied), 1));
        let late = entries.with(second - Duration::from_secs(1), key("a"), &allowed());
        assert_eq!(
            late.of(second, key("a")),
            Some(&denied),
            "a verdict that was requested earlier is ignored"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn h2_the_cache_is_bounded_and_the_oldest_verdicts_go_first() {
        let start = Instant::now();
        let mut entries = VerdictCache::default();
        for number in 0..=MAX_ENTRIES {
            entries = entries.with(start, key(&number.to_string()), &allowed());
        }
        assert_eq!(entries.0.len(), MAX_ENTRIES);
        assert_eq!(entries.of(start, key("0")), None);
        assert_eq!(entries.of(start, key("1")), Some(&allowed()));
        assert_eq!(entries.of(start, key(&MAX_ENTRIES.to_string())), Some(&allowed()));
    }

    #[test]
    fn h2_each_part_of_a_key_counts_and_none_runs_into_the_next() {
        let requested = CacheKey::new("token", "/a", "get");
        for other in [
            CacheKey::new("other", "/a", "get"),
            CacheKey::new("token", "/b", "get"),
            CacheKey::new("token", "/a", "post"),
            CacheKey::new("atoken", "/", "get"),
            CacheKey::new("token", "t/a", "ge"),
        ] {
            assert_ne!(requested, other);
        }
        assert_eq!(requested, CacheKey::new("token", "/a", "get"));
    }
}
