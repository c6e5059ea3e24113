//! ARM's knobs as scenarios turn them, before the run and while it goes on.

use simulator_models::arm::{ConcurrentWrite, Fault, FaultEffect, Latency, Quotas, Settings};
use simulator_models::arm::{UnfinishedWrite, Visibility};

use crate::notation;

/// One knob and its new position.
#[derive(Clone, Debug, PartialEq)]
pub enum Knob {
    /// How long reads take.
    GetLatency(Latency),
    /// How long writes take to be answered.
    PutLatency(Latency),
    /// How long the operations of writes run; nothing: writes are finished when they are answered.
    Operation(Option<Latency>),
    /// Retry-After of answers that started an operation, in seconds.
    RetryAfter(u32),
    /// Status of a PUT that changes a pool.
    UpdateStatus(u16),
    /// What happens to a write while another one runs.
    ConcurrentWrite(ConcurrentWrite),
    /// What a canceled or failed operation leaves behind.
    UnfinishedWrite(UnfinishedWrite),
    /// When reads show what a running operation writes.
    Visibility(Visibility),
    /// The probability that a write reports success and is lost.
    SilentLoss(f64),
    /// The faults, in place of those before.
    Faults(Vec<Fault>),
    /// The quotas; nothing: none.
    Quotas(Option<Quotas>),
}

impl Knob {
    /// Reads what stands behind `arm`.
    ///
    /// # Errors
    /// What was expected instead.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let latency = |text: &str| notation::latency(text).map_err(|bad| bad.to_string());
        match words {
            ["get-latency", time] => latency(time).map(Self::GetLatency),
            ["put-latency", time] => latency(time).map(Self::PutLatency),
            ["operation", "none"] => Ok(Self::Operation(None)),
            ["operation", time] => latency(time).map(|time| Self::Operation(Some(time))),
            ["retry-after", seconds] => number(seconds).map(Self::RetryAfter),
            ["update-status", status] => number(status).map(Self::UpdateStatus),
            ["concurrent-write", "refuse"] => Ok(Self::ConcurrentWrite(ConcurrentWrite::Refuse)),
            ["concurrent-write", "supersede"] => Ok(Self::ConcurrentWrite(ConcurrentWrite::Supersede)),
            ["unfinished-write", "reverted"] => Ok(Self::UnfinishedWrite(UnfinishedWrite::Reverted)),
            ["unfinished-write", "kept"] => Ok(Self::UnfinishedWrite(UnfinishedWrite::Kept)),
            ["visible", "at-once"] => Ok(Self::Visibility(Visibility::AtOnce)),
            ["visible", "at-end"] => Ok(Self::Visibility(Visibility::AtEnd)),
            ["silent-loss", share] => {
                let share: Option<f64> = share.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                share.map(Self::SilentLoss).ok_or_else(|| "a probability from 0 to 1".to_owned())
            }
            ["faults", "none"] => Ok(Self::Faults(Vec::new())),
            ["faults", faults @ ..] if !faults.is_empty() => {
                let faults = faults.iter().map(|text| notation::fault(text));
                faults.collect::<Result<_, _>>().map(Self::Faults).map_err(|bad| bad.to_string())
            }
            ["quota", "none"] => Ok(Self::Quotas(None)),
            ["quota", writes, "writes", reads, "reads", "in", time] => {
                let window = notation::duration(time).map_err(|bad| bad.to_string())?;
                Ok(Self::Quotas(Some(Quotas {
                    provider_writes: number(writes)?,
                    provider_reads: number(reads)?,
                    provider_window_s: window.as_secs().max(1),
                    ..Quotas::default()
                })))
            }
            _ => Err("a knob of ARM: get-latency, put-latency, operation, retry-after, update-status, \
                      concurrent-write, unfinished-write, visible, silent-loss, faults or quota, with its words"
                .to_owned()),
        }
    }

    /// Turns it.
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
            Self::SilentLoss(share) => settings.silent_loss = share,
            Self::Faults(faults) => settings.faults = faults,
            Self::Quotas(quotas) => settings.quotas = quotas,
        }
    }

    /// The same knob of a story that runs `speed` times as fast.
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
            Self::Quotas(quotas) => Self::Quotas(quotas.map(|quotas| denser(quotas, speed))),
            Self::UpdateStatus(_)
            | Self::ConcurrentWrite(_)
            | Self::UnfinishedWrite(_)
            | Self::Visibility(_)
            | Self::SilentLoss(_) => self,
        }
    }
}

/// All of ARM's times, divided.
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

/// Retry-After is a whole number of seconds, so it is rounded up.
fn sooner(fault: Fault, speed: u32) -> Fault {
    let effect = match fault.effect {
        FaultEffect::Delay { us } => FaultEffect::Delay { us: us / u64::from(speed) },
        FaultEffect::Answer(mut answer) => {
            let seconds: Option<u32> = answer.retry_after.as_deref().and_then(|text| text.parse().ok());
            if let Some(seconds) = seconds {
                answer.retry_after = Some(seconds.div_ceil(speed).to_string());
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
