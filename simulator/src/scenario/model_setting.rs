//! Settings of ARM that scenarios change, before and during the run.

use simulator_models::arm::{ConcurrentWrite, Fault, FaultEffect, Latency, NicAdminState, Quotas, Settings};
use simulator_models::arm::{UnfinishedWrite, Visibility};

use crate::notation;

/// One setting and its new value.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelSetting {
    /// Latency of reads.
    GetLatency(Latency),
    /// Latency of writes.
    PutLatency(Latency),
    /// Duration of the operations of writes; `None` if writes are complete when they are answered.
    Operation(Option<Latency>),
    /// Retry-After of answers that started an operation, in seconds.
    RetryAfter(u32),
    /// Status of a PUT that changes a pool: 200 or 201.
    UpdateStatus(u16),
    /// Behaviour of a write while another one runs.
    ConcurrentWrite(ConcurrentWrite),
    /// `Retry-After` of a write that finds its load balancer locked.
    LockRetryAfter {
        /// Seconds until the next attempt, in the message.
        seconds: u32,
        /// True if there is also a Retry-After header.
        header: bool,
    },
    /// State of a pool after a canceled or failed operation.
    UnfinishedWrite(UnfinishedWrite),
    /// Time at which reads show the write of a running operation.
    Visibility(Visibility),
    /// True if `adminState: Down` resets existing flows.
    DownResetsFlows(bool),
    /// Azure's treatment of admin states in NIC-based pools.
    NicAdminState(NicAdminState),
    /// The probability that a write reports success and is lost.
    SilentLoss(f64),
    /// The faults, which replace the earlier ones.
    Faults(Vec<Fault>),
    /// The network provider's quota; `None` removes this quota and ARM's own quota.
    Quota(Option<Window>),
    /// ARM's own token buckets.
    Buckets(Buckets),
}

/// Quota of the network provider within one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    writes: u64,
    reads: u64,
    seconds: u64,
}

/// ARM's token buckets, each with its size in requests and its refill in requests per second. Omitted buckets do not
/// change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    reads: Option<(u64, u64)>,
    writes: Option<(u64, u64)>,
    deletes: Option<(u64, u64)>,
}

impl Buckets {
    /// Parses `N writes N/s`, the same for `reads` and `deletes`, or several of them.
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut buckets = Self::default();
        for bucket in words.chunks(3) {
            let [size, verb, refill] = bucket else {
                return Err("N writes N/s, and the same of reads and deletes".to_owned());
            };
            let refill = refill.strip_suffix("/s").ok_or("a refill such as 10/s")?;
            let bucket = Some((number(size)?, number(refill)?));
            match *verb {
                "reads" => buckets.reads = bucket,
                "writes" => buckets.writes = bucket,
                "deletes" => buckets.deletes = bucket,
                _ => return Err("one of reads, writes, deletes".to_owned()),
            }
        }
        Ok(buckets)
    }

    fn faster(self, speed: u32) -> Self {
        let faster = |(size, refill): (u64, u64)| (size, refill * u64::from(speed));
        Self {
            reads: self.reads.map(faster),
            writes: self.writes.map(faster),
            deletes: self.deletes.map(faster),
        }
    }

    /// Applies the buckets. Without a quota of the network provider, that provider has no limit.
    fn turn(self, quotas: Option<Quotas>) -> Quotas {
        let unlimited = Quotas { provider_reads: u64::MAX, provider_writes: u64::MAX, ..Quotas::default() };
        let mut quotas = quotas.unwrap_or(unlimited);
        if let Some((size, refill)) = self.reads {
            (quotas.read_bucket, quotas.read_refill_per_s) = (size, refill);
        }
        if let Some((size, refill)) = self.writes {
            (quotas.write_bucket, quotas.write_refill_per_s) = (size, refill);
        }
        if let Some((size, refill)) = self.deletes {
            (quotas.delete_bucket, quotas.delete_refill_per_s) = (size, refill);
        }
        quotas
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a probability from 0 to 1".to_owned())
}

impl ModelSetting {
    /// Parses the words after `arm`.
    ///
    /// # Errors
    /// What was expected instead.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let latency = |text: &str| notation::latency(text).map_err(String::from);
        match words {
            ["get-latency", time] => latency(time).map(Self::GetLatency),
            ["put-latency", time] => latency(time).map(Self::PutLatency),
            ["operation", "none"] => Ok(Self::Operation(None)),
            ["operation", time] => latency(time).map(|time| Self::Operation(Some(time))),
            ["retry-after", seconds] => number(seconds).map(Self::RetryAfter),
            ["update-status", "200"] => Ok(Self::UpdateStatus(200)),
            ["update-status", "201"] => Ok(Self::UpdateStatus(201)),
            ["update-status", _] => Err("200 or 201, the statuses of a PUT that changes a pool".to_owned()),
            ["nic-admin-state", "allow"] => Ok(Self::NicAdminState(NicAdminState::Allow)),
            ["nic-admin-state", "refuse"] => Ok(Self::NicAdminState(NicAdminState::Refuse)),
            ["concurrent-write", "refuse"] => Ok(Self::ConcurrentWrite(ConcurrentWrite::Refuse)),
            ["concurrent-write", "supersede"] => Ok(Self::ConcurrentWrite(ConcurrentWrite::Supersede)),
            ["concurrent-write", "supersede", part] => {
                share(part).map(|supersede| Self::ConcurrentWrite(ConcurrentWrite::Mixed { supersede }))
            }
            ["lock-retry-after", seconds] => {
                number(seconds).map(|seconds| Self::LockRetryAfter { seconds, header: true })
            }
            ["lock-retry-after", seconds, "no-header"] => {
                number(seconds).map(|seconds| Self::LockRetryAfter { seconds, header: false })
            }
            ["unfinished-write", "reverted"] => Ok(Self::UnfinishedWrite(UnfinishedWrite::Reverted)),
            ["unfinished-write", "kept"] => Ok(Self::UnfinishedWrite(UnfinishedWrite::Kept)),
            ["visible", "at-once"] => Ok(Self::Visibility(Visibility::AtOnce)),
            ["visible", "at-end"] => Ok(Self::Visibility(Visibility::AtEnd)),
            ["down", "resets-flows"] => Ok(Self::DownResetsFlows(true)),
            ["down", "keeps-flows"] => Ok(Self::DownResetsFlows(false)),
            ["silent-loss", part] => share(part).map(Self::SilentLoss),
            ["fault", "none"] => Ok(Self::Faults(Vec::new())),
            ["fault", faults @ ..] => {
                let faults = faults.split(|word| *word == "and").map(|words| notation::fault(&words.join(" ")));
                Ok(Self::Faults(faults.collect::<Result<_, _>>()?))
            }
            ["quota", "none"] => Ok(Self::Quota(None)),
            ["quota", writes, "writes", reads, "reads", "in", time] => {
                let window = notation::duration(time)?;
                let (writes, reads) = (number(writes)?, number(reads)?);
                Ok(Self::Quota(Some(Window { writes, reads, seconds: window.as_secs().max(1) })))
            }
            ["buckets", buckets @ ..] if !buckets.is_empty() => Buckets::parse(buckets).map(Self::Buckets),
            _ => Err("a setting of ARM: get-latency, put-latency, operation, retry-after, update-status, \
                      concurrent-write, lock-retry-after, unfinished-write, visible, down, nic-admin-state, silent-loss, \
                      fault, quota or buckets, with its arguments"
                .to_owned()),
        }
    }

    /// Applies the setting.
    pub fn turn(self, settings: &mut Settings) {
        match self {
            Self::GetLatency(latency) => settings.get_latency = latency,
            Self::PutLatency(latency) => settings.put_latency = latency,
            Self::Operation(operation) => settings.operation = operation,
            Self::RetryAfter(seconds) => settings.operation_retry_after_s = Some(seconds),
            Self::UpdateStatus(status) => settings.update_status = status,
            Self::ConcurrentWrite(how) => settings.concurrent_write = how,
            Self::UnfinishedWrite(left) => settings.unfinished_write = left,
            Self::Visibility(visibility) => settings.visibility = visibility,
            Self::DownResetsFlows(resets) => settings.down_resets_flows = resets,
            Self::NicAdminState(how) => settings.nic_admin_state = how,
            Self::SilentLoss(share) => settings.silent_loss = share,
            Self::Faults(faults) => settings.faults = faults,
            Self::LockRetryAfter { seconds, header } => {
                (settings.lock_retry_after_s, settings.lock_retry_after_header) = (seconds, header);
            }
            Self::Quota(None) => settings.quotas = None,
            Self::Quota(Some(Window { writes, reads, seconds })) => {
                settings.quotas = Some(Quotas {
                    provider_writes: writes,
                    provider_reads: reads,
                    provider_window_s: seconds,
                    ..settings.quotas.unwrap_or_default()
                });
            }
            Self::Buckets(buckets) => settings.quotas = Some(buckets.turn(settings.quotas)),
        }
    }

    /// Returns the same setting in a scenario that runs `speed` times as fast.
    #[must_use]
    pub fn faster(self, speed: u32) -> Self {
        match self {
            Self::GetLatency(latency) => Self::GetLatency(shorter(latency, speed)),
            Self::PutLatency(latency) => Self::PutLatency(shorter(latency, speed)),
            Self::Operation(operation) => {
                Self::Operation(operation.map(|operation| shorter(operation, speed)))
            }
            Self::RetryAfter(seconds) => Self::RetryAfter(seconds.div_ceil(speed)),
            Self::Faults(faults) => Self::Faults(faults.into_iter().map(|one| sooner(one, speed)).collect()),
            Self::LockRetryAfter { seconds, header } => {
                Self::LockRetryAfter { seconds: seconds.div_ceil(speed), header }
            }
            Self::Quota(window) => Self::Quota(window.map(|window| {
                let seconds = (window.seconds / u64::from(speed)).max(1);
                Window { seconds, ..window }
            })),
            Self::Buckets(buckets) => Self::Buckets(buckets.faster(speed)),
            Self::UpdateStatus(_)
            | Self::ConcurrentWrite(_)
            | Self::UnfinishedWrite(_)
            | Self::Visibility(_)
            | Self::DownResetsFlows(_)
            | Self::NicAdminState(_)
            | Self::SilentLoss(_) => self,
        }
    }
}

/// Divides all of ARM's times.
pub(super) fn faster(settings: &mut Settings, speed: u32) {
    settings.get_latency = shorter(settings.get_latency, speed);
    settings.put_latency = shorter(settings.put_latency, speed);
    settings.operation = settings.operation.map(|operation| shorter(operation, speed));
    settings.operation_retry_after_s = settings.operation_retry_after_s.map(|s| s.div_ceil(speed));
    settings.lock_retry_after_s = settings.lock_retry_after_s.div_ceil(speed);
    settings.quotas = settings.quotas.map(|quotas| denser(quotas, speed));
    settings.faults = settings.faults.drain(..).map(|one| sooner(one, speed)).collect();
}

fn shorter(latency: Latency, speed: u32) -> Latency {
    let speed = u64::from(speed);
    match latency {
        Latency::Fixed { us } => Latency::Fixed { us: us / speed },
        Latency::LogNormal { median_us, p95_us } => {
            Latency::LogNormal { median_us: median_us / speed, p95_us: p95_us / speed }
        }
    }
}

/// Divides the times of a fault. Retry-After is a whole number of seconds, so it is rounded up.
fn sooner(fault: Fault, speed: u32) -> Fault {
    let effect = match fault.effect {
        FaultEffect::Delay { us } => FaultEffect::Delay { us: us / u64::from(speed) },
        FaultEffect::Answer(mut answer) => {
            if let Some(text) = &mut answer.retry_after {
                let (form, number) =
                    if text.starts_with("date+") { text.split_at(5) } else { ("", text.as_str()) };
                if let Ok(seconds) = number.parse::<u32>() {
                    *text = format!("{form}{}", seconds.div_ceil(speed));
                }
            }
            FaultEffect::Answer(answer)
        }
        other @ (FaultEffect::AnswerAfterApplying(_)
        | FaultEffect::LoseAnswer
        | FaultEffect::Refuse
        | FaultEffect::FailOperation { .. }) => other,
    };
    Fault { effect, ..fault }
}

fn denser(quotas: Quotas, speed: u32) -> Quotas {
    let speed = u64::from(speed);
    Quotas {
        read_refill_per_s: quotas.read_refill_per_s * speed,
        write_refill_per_s: quotas.write_refill_per_s * speed,
        delete_refill_per_s: quotas.delete_refill_per_s * speed,
        provider_window_s: (quotas.provider_window_s / speed).max(1),
        ..quotas
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "a whole number".to_owned())
}
