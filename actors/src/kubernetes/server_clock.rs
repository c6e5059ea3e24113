//! The API server's clock. Times in objects are compared with it, so that a wrong clock on this machine has no effect
//! (docs/design/nodes.md, N1).

use http::HeaderMap;
use http::header::DATE;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};

/// Smaller differences are not corrected: a `Date` has whole seconds, and the server writes it before it sends the
/// answer.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

/// The difference between the API server's clock and ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerClock {
    ahead: SignedDuration,
}

impl ServerClock {
    /// Reads the clock from the `Date` of an answer that arrived at `wall` by our clock. Without a valid `Date`, the
    /// clocks are assumed to be equal.
    pub(super) fn of(headers: &HeaderMap, wall: Timestamp) -> ServerClock {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
        let ahead = date.map_or(SignedDuration::ZERO, |date| date.duration_since(wall));
        ServerClock { ahead: if ahead.abs() <= TOLERANCE { SignedDuration::ZERO } else { ahead } }
    }

    /// Returns the API server's time for the time `wall` of our clock.
    pub(super) fn at(self, wall: Timestamp) -> Timestamp {
        wall.saturating_add(self.ahead).unwrap_or(wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_an_answer_sets_the_clock() {
        let wall: Timestamp = "2026-01-02T03:04:05.4Z".parse().expect("a time");
        let at = |date: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(DATE, date.parse().expect("a header"));
            ServerClock::of(&headers, wall).at(wall).to_string()
        };
        assert_eq!(at("Fri, 02 Jan 2026 03:04:04 GMT"), wall.to_string(), "within the tolerance");
        assert_eq!(at("Fri, 02 Jan 2026 03:14:05 GMT"), "2026-01-02T03:14:05Z");
        assert_eq!(at("Fri, 02 Jan 2026 02:04:05 GMT"), "2026-01-02T02:04:05Z");
        assert_eq!(at("yesterday"), wall.to_string());
        assert_eq!(ServerClock::of(&HeaderMap::new(), wall).at(wall), wall);
    }
}
