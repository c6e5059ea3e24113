//! Checks the difference between the local clock and that of a server, by the `Date` of its answer.

use std::time::Duration;

use jiff::Timestamp;

use super::finding::{Check, Findings};

/// Differences above this are a risk: other clients consider a hold of the shared Lease expired after 60 s, of which
/// writes may use 35 s (W7).
const MAX_DIFFERENCE: Duration = Duration::from_secs(5);

/// Times at which a request was sent and its answer received, by the local clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub(super) sent: Timestamp,
    pub(super) received: Timestamp,
}

impl Exchange {
    /// Returns the minimum difference between the clocks, and whether the server's clock is ahead. The date has whole
    /// seconds, and the server read its clock at some time during the exchange.
    fn difference(self, date: Timestamp) -> (Duration, bool) {
        let ahead = span(self.received, date);
        let behind = span(date.saturating_add(jiff::SignedDuration::from_secs(1)).unwrap_or(date), self.sent);
        if ahead > behind { (ahead, true) } else { (behind, false) }
    }
}

/// Returns the time from the first to the second time; zero if the second is earlier.
fn span(first: Timestamp, second: Timestamp) -> Duration {
    first.duration_until(second).try_into().unwrap_or_default()
}

/// Reports the difference between a server's clock and the local one.
pub(super) fn check_clock(
    check: Check,
    server: &str,
    exchange: Exchange,
    date: Option<Timestamp>,
    means: &str,
    findings: &mut Findings,
) {
    let Some(date) = date else {
        let remedy = "compare the clocks manually; usually, a proxy in between removes the header";
        return findings.warning(check, format!("{server} does not send its time"), means, remedy);
    };
    let (difference, ahead) = exchange.difference(date);
    let direction = if ahead { "ahead of" } else { "behind" };
    if difference > MAX_DIFFERENCE {
        let what =
            format!("the clock of {server} is {:.1} s {direction} the local one", difference.as_secs_f64());
        findings.warning(check, what, means, "synchronize all nodes with the same time source (chrony, NTP)");
    } else {
        findings.ok(
            check,
            format!("the clocks of {server} and here agree within {} s", MAX_DIFFERENCE.as_secs()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(sent_s: i64, received_s: i64, date_s: i64) -> (u64, bool) {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let (difference, ahead) =
            Exchange { sent: at(sent_s), received: at(received_s) }.difference(at(date_s));
        (difference.as_secs(), ahead)
    }

    #[test]
    fn w7_slow_answers_and_whole_seconds_are_no_clock_difference() {
        assert_eq!(difference(100, 110, 100).0, 0, "read at the beginning");
        assert_eq!(difference(100, 110, 110).0, 0, "read at the end");
        assert_eq!(difference(100, 100, 99).0, 0, "the rest of a second");
        assert_eq!(difference(100, 101, 108), (7, true));
        assert_eq!(difference(100, 101, 90), (9, false));
    }
}
