//! `compatibility: upstream` (C2): gives keys that are not set the values of S0. A configured key keeps its value, and
//! a deviation from S0 is reported.

use std::time::Duration;

use super::setting::{GuardsMode, Setting};
use super::{Compatibility, ControllerConfig};
use crate::value::{EffectiveValue, Origin};

/// A key that is configured with another value than in S0.
pub(crate) struct Deviation {
    /// The key's full path.
    pub(crate) path: &'static str,
    /// The value in S0.
    pub(crate) expected: String,
}

/// Sets the times and options of S0 if `compatibility` is `upstream`. `tick` is S0's update interval, without an upper
/// limit.
pub(crate) fn apply_upstream_profile(
    settings: &mut ControllerConfig,
    values: &mut [EffectiveValue],
    tick: Duration,
) -> Vec<Deviation> {
    match settings.compatibility {
        Compatibility::Default => return Vec::new(),
        Compatibility::Upstream => {}
    }
    let mut profile = Profile { values, deviations: Vec::new() };
    let batching = &mut settings.batching;
    profile.set("batching.quietPeriod", &mut batching.quiet_period, tick);
    profile.set("batching.maxDelay", &mut batching.max_delay, tick);
    profile.set("batching.minInterval", &mut batching.min_interval, tick);
    profile.set("batching.retryInterval", &mut batching.retry_interval, tick);
    profile.set("members.removalDelay", &mut settings.members.removal_delay, Duration::ZERO);
    profile.set("resync.afterFailure", &mut settings.resync.after_failure, Duration::ZERO);
    profile.set("guards.mode", &mut settings.guards.mode, GuardsMode::Off);
    profile.set("guards.emptyConfirm", &mut settings.guards.empty_confirm, Duration::ZERO);
    profile.set("writer.etagRounds", &mut settings.writer.etag_rounds, 1);
    profile.set("client.retryThrottled", &mut settings.client.retry_throttled, true);
    profile.deviations
}

struct Profile<'a> {
    values: &'a mut [EffectiveValue],
    deviations: Vec<Deviation>,
}

impl Profile<'_> {
    fn set<T: Setting + PartialEq>(&mut self, path: &'static str, setting: &mut T, value: T) {
        let entry = self.values.iter_mut().find(|entry| entry.path == path);
        let entry = entry.expect("every key of the table has an effective value");
        match entry.origin {
            Origin::Default => {
                entry.value = value.to_value();
                entry.origin = Origin::Compatibility;
                *setting = value;
            }
            Origin::File | Origin::Secret | Origin::Environment(_) | Origin::Compatibility
                if *setting == value => {}
            Origin::File | Origin::Secret | Origin::Environment(_) | Origin::Compatibility => {
                self.deviations.push(Deviation { path, expected: value.to_value().yaml() });
            }
        }
    }
}
