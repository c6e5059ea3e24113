//! Request quotas: ARM's token buckets per request class, and the network resource provider's windows.

use super::answer::Answer;
use super::settings::Quotas;

const MICRO: u64 = 1_000_000;

/// Error code of a refusal by the network resource provider.
pub(crate) const BY_PROVIDER: &str = "ResourceRequestsThrottled";

/// Classes of requests with separate budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Read,
    Write,
    Delete,
}

impl Verb {
    pub(crate) fn remaining_header(self) -> &'static str {
        match self {
            Self::Read => "x-ms-ratelimit-remaining-subscription-reads",
            Self::Write => "x-ms-ratelimit-remaining-subscription-writes",
            Self::Delete => "x-ms-ratelimit-remaining-subscription-deletes",
        }
    }

    pub(crate) fn global_header(self) -> &'static str {
        match self {
            Self::Read => "x-ms-ratelimit-remaining-subscription-global-reads",
            Self::Write => "x-ms-ratelimit-remaining-subscription-global-writes",
            Self::Delete => "x-ms-ratelimit-remaining-subscription-global-deletes",
        }
    }

    /// Returns the header value without a modelled quota: the first value in recordings of real ARM.
    fn unlimited(self) -> u64 {
        match self {
            Self::Read => 16_499,
            Self::Write | Self::Delete => 11_999,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
        }
    }
}

/// All budgets of the subscription in this region.
#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    limits: Option<Limits>,
}

#[derive(Clone, Debug)]
struct Limits {
    quotas: Quotas,
    reads: Bucket,
    writes: Bucket,
    deletes: Bucket,
    window: u64,
    provider_reads: u64,
    provider_writes: u64,
}

/// Tokens in millionths, so that refilling is exact in whole microseconds.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    capacity: u64,
    refill_per_s: u64,
    tokens: u64,
    filled_at: u64,
}

impl Bucket {
    fn new(capacity: u64, refill_per_s: u64) -> Self {
        let capacity = capacity.saturating_mul(MICRO);
        Self { capacity, refill_per_s, tokens: capacity, filled_at: 0 }
    }

    /// Takes one token; returns the number left, or the seconds until the next one.
    fn take(&mut self, now: u64) -> Result<u64, u64> {
        let refill = now.saturating_sub(self.filled_at).saturating_mul(self.refill_per_s);
        self.tokens = self.tokens.saturating_add(refill).min(self.capacity);
        self.filled_at = now;
        match self.tokens.checked_sub(MICRO) {
            Some(left) => {
                self.tokens = left;
                Ok(left / MICRO)
            }
            None => Err((MICRO - self.tokens).div_ceil(self.refill_per_s.max(1)).div_ceil(MICRO).max(1)),
        }
    }
}

impl Throttle {
    pub(crate) fn new(quotas: Option<Quotas>) -> Self {
        let limits = quotas.map(|quotas| Limits {
            quotas,
            reads: Bucket::new(quotas.read_bucket, quotas.read_refill_per_s),
            writes: Bucket::new(quotas.write_bucket, quotas.write_refill_per_s),
            deletes: Bucket::new(quotas.delete_bucket, quotas.delete_refill_per_s),
            window: 0,
            provider_reads: 0,
            provider_writes: 0,
        });
        Self { limits }
    }

    /// Admits one request and returns the remaining ARM budget, or refuses the request.
    pub(crate) fn admit(&mut self, verb: Verb, now: u64, subscription: &str) -> Result<u64, Answer> {
        match &mut self.limits {
            None => Ok(verb.unlimited()),
            Some(limits) => limits.admit(verb, now, subscription),
        }
    }
}

impl Limits {
    fn admit(&mut self, verb: Verb, now: u64, subscription: &str) -> Result<u64, Answer> {
        let bucket = match verb {
            Verb::Read => &mut self.reads,
            Verb::Write => &mut self.writes,
            Verb::Delete => &mut self.deletes,
        };
        let left = bucket.take(now).map_err(|seconds| {
            let (class, verb) = (verb, verb.word());
            let message = format!(
                "Number of '{verb}' requests for subscription '{subscription}' exceeded. Please try again after '{seconds}' seconds after additional tokens are available. Refer to https://aka.ms/arm-throttling for additional information."
            );
            Answer::throttled(true, "SubscriptionRequestsThrottled", &message, seconds)
                .with(class.remaining_header(), "0")
        })?;
        let length = self.quotas.provider_window_s.max(1).saturating_mul(MICRO);
        if now / length != self.window {
            self.window = now / length;
            self.provider_reads = 0;
            self.provider_writes = 0;
        }
        let (used, limit) = match verb {
            Verb::Read => (&mut self.provider_reads, self.quotas.provider_reads),
            Verb::Write | Verb::Delete => (&mut self.provider_writes, self.quotas.provider_writes),
        };
        if *used < limit {
            *used += 1;
            return Ok(left);
        }
        let seconds = (length - now % length).div_ceil(MICRO);
        let interval = self.quotas.provider_window_s;
        let (hours, minutes, rest) = (interval / 3600, interval / 60 % 60, interval % 60);
        let message = format!(
            "Number of requests for Microsoft.Network exceeded the limit of '{limit}' for time interval '{hours:02}:{minutes:02}:{rest:02}'. Please try again after '{seconds}' seconds."
        );
        // The remaining ARM budget shows which quota was exhausted: ARM's quota only if nothing remains. No recording
        // has a header with the provider's remaining quota.
        Err(Answer::throttled(false, BY_PROVIDER, &message, seconds)
            .with(verb.remaining_header(), left.to_string()))
    }
}
