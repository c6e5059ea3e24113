//! The taints and messages that announce that a node leaves service (docs/design/nodes.md, N1).

use std::collections::BTreeSet;

use crate::machine::Wall;
use crate::object::Taint;

/// Key of the taint of a node that is out of service for good.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Key of the taint of a node whose virtual machine is shut down.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// Key of the taint of a node that is being evicted.
pub const DRAINING: &str = "cloudprovider.azure.microsoft.com/draining";
/// The value of that taint.
pub const SPOT_EVICTION: &str = "spot-eviction";
/// The effect of that taint when this controller sets it.
pub const EFFECT: &str = "NoSchedule";

/// Why a node leaves service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Signal {
    /// [`OUT_OF_SERVICE`].
    OutOfService,
    /// [`SHUTDOWN`].
    Shutdown,
    /// [`DRAINING`].
    SpotEviction,
    /// A notice that its virtual machine will be taken away, before any taint announces it.
    Notice,
}

impl Signal {
    /// Every signal.
    pub const ALL: [Signal; 4] =
        [Signal::OutOfService, Signal::Shutdown, Signal::SpotEviction, Signal::Notice];

    /// Returns the value in events, metrics and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Signal::OutOfService => "out-of-service",
            Signal::Shutdown => "shutdown",
            Signal::SpotEviction => "spot-eviction",
            Signal::Notice => "notice",
        }
    }
}

/// Returns the signals among a node's taints, whatever their effects.
#[must_use]
pub fn of_taints(taints: &[Taint]) -> BTreeSet<Signal> {
    let signal = |taint: &Taint| match &*taint.key {
        OUT_OF_SERVICE => Some(Signal::OutOfService),
        SHUTDOWN => Some(Signal::Shutdown),
        _ if says_evicted(taint) => Some(Signal::SpotEviction),
        _ => None,
    };
    taints.iter().filter_map(signal).collect()
}

/// Returns true if a taint marks its node as evicted, whatever its effect.
#[must_use]
pub fn says_evicted(taint: &Taint) -> bool {
    &*taint.key == DRAINING && &*taint.value == SPOT_EVICTION
}

/// Returns true if a message announces that the virtual machine will be taken away, and no other scheduled event.
#[must_use]
pub fn says_preempt(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["preempt scheduled", "preempt started"].iter().any(|words| message.contains(words))
}

/// Returns true if a message reports that the metadata service could not be queried. It is not a notice, whatever the
/// reason of the Event.
#[must_use]
pub fn is_failed_query(message: &str) -> bool {
    let words = ["imds query failed", "exit code", "timed out after"];
    let lower = message.to_ascii_lowercase();
    !says_preempt(message) && words.iter().any(|words| lower.contains(words))
}

/// Returns the earliest time of the event in a message: the first RFC 1123 date in it, as in
/// `Wed, 26 Feb 2025 10:13:13 GMT`.
#[must_use]
pub fn not_before(message: &str) -> Option<Wall> {
    let words: Vec<&str> = message.split_ascii_whitespace().collect();
    words.windows(5).find_map(|words| {
        let [day, month, year, time, zone] = words else { return None };
        let is_gmt = zone.strip_prefix("GMT").is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
        if is_gmt { moment(day, month, year, time) } else { None }
    })
}

fn moment(day: &str, month: &str, year: &str, time: &str) -> Option<Wall> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))?;
    let (day, year) = (number(day, 1..=31)?, number(year, 1970..=9999)?);
    let mut parts = time.split(':');
    let (hour, minute) = (number(parts.next()?, 0..=23)?, number(parts.next()?, 0..=59)?);
    let second = number(parts.next()?, 0..=60)?;
    if parts.next().is_some() {
        return None;
    }
    let days = days_before(year, i64::try_from(month).ok()?) + day - 1;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(Wall::from_micros(seconds * 1_000_000))
}

fn number(text: &str, within: std::ops::RangeInclusive<i64>) -> Option<i64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && within.contains(number))
}

/// Returns the number of days from 1970-01-01 to the first of a month; months count from 0.
fn days_before(year: i64, month: i64) -> i64 {
    // This year begins in March, so that a leap day is the last day of a year.
    let year = if month < 2 { year - 1 } else { year };
    let months = (month + 10) % 12;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (months * 306 + 5) / 10;
    days - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint { key: key.into(), value: value.into(), effect: effect.into() }
    }

    #[test]
    fn n1_each_of_the_three_taints_is_a_signal_with_any_effect() {
        for effect in ["NoSchedule", "NoExecute", "PreferNoSchedule", ""] {
            let of = |key: &str, value: &str| of_taints(&[taint(key, value, effect)]);
            assert_eq!(of(OUT_OF_SERVICE, ""), [Signal::OutOfService].into());
            assert_eq!(of(OUT_OF_SERVICE, "nodeshutdown"), [Signal::OutOfService].into());
            assert_eq!(of(SHUTDOWN, ""), [Signal::Shutdown].into());
            assert_eq!(of(DRAINING, SPOT_EVICTION), [Signal::SpotEviction].into());
            assert_eq!(of(DRAINING, "maintenance"), [].into(), "by key and value");
        }
        let all = [taint(DRAINING, SPOT_EVICTION, ""), taint(SHUTDOWN, "", ""), taint(SHUTDOWN, "", "x")];
        assert_eq!(of_taints(&all), [Signal::Shutdown, Signal::SpotEviction].into());
    }

    #[test]
    fn n1_cordon_and_drain_are_no_signals() {
        let others = [
            "node.kubernetes.io/unschedulable",
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
            "ToBeDeletedByClusterAutoscaler",
            "remediator.kubernetes.azure.com/unschedulable",
            "kubernetes.azure.com/scalesetpriority",
        ];
        let taints = others.map(|key| taint(key, SPOT_EVICTION, "NoSchedule"));
        assert_eq!(of_taints(&taints), [].into());
    }

    /// Messages observed on nodes.
    const NOTICE: &str = "Preempt Scheduled: Wed, 26 Feb 2025 10:13:13 GMT. DurationInSeconds: -1.  For more \
                          information, see https://aka.ms/aks/scheduledevents.";

    #[test]
    fn n1_a_failed_metadata_query_is_no_notice() {
        let failed = [
            "IMDS query failed, exit code: 28 / Connection timed out after 24 seconds.",
            "IMDS query failed, exit code: 7",
            "imds query failed",
            "curl: (28) Operation timed out after 24001 milliseconds",
        ];
        assert!(failed.iter().all(|message| is_failed_query(message) && !says_preempt(message)));
        let notices = [NOTICE, "Preempt Started", "Preempt Scheduled: soon; an earlier IMDS query failed"];
        assert!(notices.iter().all(|message| !is_failed_query(message) && says_preempt(message)));
    }

    #[test]
    fn n1_freeze_reboot_redeploy_and_terminate_do_not_mean_eviction() {
        for event in ["Freeze", "Reboot", "Redeploy", "Terminate"] {
            let message = NOTICE.replace("Preempt", event);
            assert!(!says_preempt(&message), "{message}");
        }
    }

    #[test]
    fn n1_the_date_of_a_notice_is_read() {
        let seconds = |message: &str| not_before(message).map(|wall| wall.as_micros() / 1_000_000);
        assert_eq!(seconds(NOTICE), Some(1_740_564_793));
        assert_eq!(
            seconds("Preempt Scheduled: Sat, 01 Aug 2026 05:41:02 GMT. … EventId: 7"),
            Some(1_785_562_862)
        );
        assert_eq!(seconds("Thu, 1 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds("Thu, 29 Feb 2024 23:59:59 GMT"), Some(1_709_251_199));
        let none = [
            "Preempt Scheduled: soon",
            "Wed, 32 Feb 2025 10:13:13 GMT",
            "Wed, 26 Foo 2025 10:13:13 GMT",
            "Wed, 26 Feb 2025 10:13 GMT",
            "Wed, 26 Feb 2025 10:13:13:1 GMT",
            "Wed, 26 Feb 2025 10:13:13 CET",
            "Wed, +6 Feb 2025 10:13:13 GMT",
            "",
        ];
        assert!(none.iter().all(|message| seconds(message).is_none()));
    }
}
