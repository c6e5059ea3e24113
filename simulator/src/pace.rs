//! Keys of controller.yaml from flags and scenarios, and their times, which a faster scenario divides.

use std::time::Duration;

use serde_json::{Value, json};

use crate::notation;

/// The controller's times that a faster scenario divides: key, default, and minimum of the key, both in milliseconds.
/// The times of the two Leases are not among them, because other processes depend on them.
pub const TIMES: [(&str, u64, u64); 10] = [
    ("discovery.interval", 60_000, 5_000),
    ("members.removalDelay", 30_000, 0),
    ("batching.quietPeriod", 500, 0),
    ("batching.maxDelay", 2_000, 0),
    ("batching.minInterval", 5_000, 0),
    ("batching.retryInterval", 30_000, 100),
    ("resync.afterFailure", 60_000, 0),
    ("guards.emptyConfirm", 60_000, 0),
    ("adminState.maxBackoff", 15_000, 1_000),
    ("xds.failback", 30_000, 0),
];

/// Sets a key, given as a dotted path. Values are text, unless they are numbers, `true` or `false`.
pub(crate) fn set(controller: &mut Value, key: &str, value: &str) {
    let value = match (value.parse::<u64>(), value.parse::<bool>()) {
        (Ok(number), _) => json!(number),
        (Err(_), Ok(truth)) => json!(truth),
        (Err(_), Err(_)) => json!(value),
    };
    *setting(controller, key) = value;
}

fn setting<'a>(controller: &'a mut Value, key: &str) -> &'a mut Value {
    let mut at = controller;
    for part in key.split('.') {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[part];
    }
    at
}

/// Returns the controller's `members.removalDelay` with these keys.
pub(crate) fn removal_delay(controller: &Value) -> Duration {
    let set = controller["members"]["removalDelay"].as_str();
    if let Some(set) = set.and_then(|text| notation::duration(text).ok()) {
        return set;
    }
    let default = TIMES.into_iter().find(|(key, ..)| *key == "members.removalDelay");
    match (controller["compatibility"].as_str(), default) {
        (Some("upstream"), _) | (_, None) => Duration::ZERO,
        (_, Some((_, ms, _))) => Duration::from_millis(ms),
    }
}

/// Divides every time, also defaults.
pub(crate) fn faster(controller: &mut Value, speed: u32) {
    for (key, default_ms, least_ms) in TIMES {
        let at = setting(controller, key);
        let set = at.as_str().and_then(|text| notation::duration(text).ok());
        let ms = set.map_or(default_ms, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        *at = format!("{}ms", (ms / u64::from(speed.max(1))).max(least_ms.min(ms))).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z2_a_faster_scenario_divides_times_down_to_the_minimum() {
        let mut controller = json!({});
        set(&mut controller, "members.removalDelay", "9s");
        set(&mut controller, "writer.etagRounds", "2");
        set(&mut controller, "guards.emptyConfirm", "0s");
        faster(&mut controller, 10);
        assert_eq!(controller["members"]["removalDelay"], "900ms");
        assert_eq!(controller["batching"]["quietPeriod"], "50ms");
        assert_eq!(controller["discovery"]["interval"], "6000ms");
        assert_eq!(controller["guards"]["emptyConfirm"], "0ms");
        assert_eq!(controller["writer"]["etagRounds"], 2);
        faster(&mut controller, 1000);
        assert_eq!(controller["discovery"]["interval"], "5000ms", "the minimum of the key");
        assert_eq!(controller["batching"]["retryInterval"], "100ms");
    }

    #[test]
    fn z2_the_removal_delay_is_that_of_the_controller() {
        let cases = [
            (json!({}), 30),
            (json!({"members": {"removalDelay": "5s"}}), 5),
            (json!({"compatibility": "upstream"}), 0),
            (json!({"compatibility": "upstream", "members": {"removalDelay": "5s"}}), 5),
        ];
        for (controller, seconds) in cases {
            assert_eq!(removal_delay(&controller), Duration::from_secs(seconds), "{controller}");
        }
    }
}
