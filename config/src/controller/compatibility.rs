//! `compatibility: upstream` (C2): the values of keys that are not set, so that S0's letter holds. A key that is set
//! stays as it is set; that it departs from S0 is told.

use std::time::Duration;

use super::setting::{GuardsMode, Setting};
use super::{Compatibility, ControllerConfig};
use crate::value::{EffectiveValue, Origin};

/// A key that was set to something else than S0's letter has.
pub(crate) struct Departure {
    /// The key's full path.
    pub(crate) path: &'static str,
    /// What it would be.
    pub(crate) expected: String,
}

/// Gives the settings S0's times and switches where `compatibility: upstream` asks for them; `tick` is S0's, and not
/// capped.
pub(crate) fn imitate(
    settings: &mut ControllerConfig,
    values: &mut [EffectiveValue],
    tick: Duration,
) -> Vec<Departure> {
    match settings.compatibility {
        Compatibility::Default => return Vec::new(),
        Compatibility::Upstream => {}
    }
    let mut profile = Profile { values, departures: Vec::new() };
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
    profile.departures
}

struct Profile<'a> {
    values: &'a mut [EffectiveValue],
    departures: Vec<Departure>,
}

impl Profile<'_> {
    fn set<T: Setting + PartialEq>(&mut self, path: &'static str, setting: &mut T, value: T) {
        let entry = self.values.iter_mut().find(|entry| entry.path == path);
        let entry = entry.expect("every key of the table has an effective value");
        match entry.origin {
            Origin::Default => {
                entry.value = value.show();
                entry.origin = Origin::Compatibility;
                *setting = value;
            }
            Origin::File | Origin::Secret | Origin::Environment(_) | Origin::Compatibility
                if *setting == value => {}
            Origin::File | Origin::Secret | Origin::Environment(_) | Origin::Compatibility => {
                self.departures.push(Departure { path, expected: value.show().yaml() });
            }
        }
    }
}
