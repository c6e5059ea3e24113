//! The difference between our clock and that of a server, by the `Date` of its answer.

use std::time::Duration;

use jiff::Timestamp;

use super::finding::{Check, Findings};

/// A difference that is a risk (W7 gives back what the other end may think expired after 60 s, of which writes may use 35).
const TOO_FAR: Duration = Duration::from_secs(5);

/// When a request went off and when its answer was there, by our clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub(super) sent: Timestamp,
    pub(super) received: Timestamp,
}

impl Exchange {
    /// How far the server's clock is off for certain, and whether it is ahead: it told whole seconds, at some moment of the
    /// exchange.
    fn off(self, date: Timestamp) -> (Duration, bool) {
        let ahead = span(self.received, date);
        let behind = span(date.saturating_add(jiff::SignedDuration::from_secs(1)).unwrap_or(date), self.sent);
        if ahead > behind { (ahead, true) } else { (behind, false) }
    }
}

/// How much later the second is.
fn span(first: Timestamp, second: Timestamp) -> Duration {
    first.duration_until(second).try_into().unwrap_or_default()
}

/// Judges a server's date.
pub(super) fn judge(
    check: Check,
    server: &str,
    exchange: Exchange,
    date: Option<Timestamp>,
    means: &str,
    findings: &mut Findings,
) {
    let Some(date) = date else {
        let remedy =
            "compare the clocks by hand; most often a proxy stands between that leaves the header out";
        return findings.warning(check, format!("{server} does not tell its time"), means, remedy);
    };
    let (off, ahead) = exchange.off(date);
    let side = if ahead { "ahead of" } else { "behind" };
    if off > TOO_FAR {
        let what = format!("{server}'s clock is {:.1} s {side} ours", off.as_secs_f64());
        findings.warning(
            check,
            what,
            means,
            "let all nodes take their time from the same source (chrony, NTP)",
        );
    } else {
        findings.ok(check, format!("{server}'s clock and ours agree within {} s", TOO_FAR.as_secs()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn off(sent_s: i64, received_s: i64, date_s: i64) -> (u64, bool) {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let (off, ahead) = Exchange { sent: at(sent_s), received: at(received_s) }.off(at(date_s));
        (off.as_secs(), ahead)
    }

    #[test]
    fn w7_a_slow_answer_and_whole_seconds_are_no_difference_of_clocks() {
        assert_eq!(off(100, 110, 100).0, 0, "read at the beginning");
        assert_eq!(off(100, 110, 110).0, 0, "read at the end");
        assert_eq!(off(100, 100, 99).0, 0, "the rest of a second");
        assert_eq!(off(100, 101, 108), (7, true));
        assert_eq!(off(100, 101, 90), (9, false));
    }
}
