//! The header `Retry-After` (W6): a duration, or a date relative to the answer's own `Date`.

use std::time::Duration;

use azure_core::http::headers::{HeaderName, Headers, RETRY_AFTER};
use azure_core::time::{OffsetDateTime, parse_rfc7231};
use model::arm::RetryAfter;

const DATE: HeaderName = HeaderName::from_static("date");

/// Reads the header. An empty one counts as absent; zero, the past and anything unreadable are invalid.
pub(crate) fn retry_after(headers: &Headers) -> RetryAfter {
    against(headers, OffsetDateTime::now_utc)
}

/// Reads the header with this wall clock instead of a missing `Date`.
pub(super) fn against(headers: &Headers, wall: impl FnOnce() -> OffsetDateTime) -> RetryAfter {
    let text = headers.get_optional_str(&RETRY_AFTER).unwrap_or_default().trim();
    if text.is_empty() {
        return RetryAfter::Absent;
    }
    let span = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let Ok(until) = parse_rfc7231(text) else { return RetryAfter::Invalid };
            let date = headers.get_optional_str(&DATE).and_then(|date| parse_rfc7231(date.trim()).ok());
            let span = until - date.unwrap_or_else(wall);
            if span.is_negative() { Duration::ZERO } else { span.unsigned_abs() }
        }
    };
    if span.is_zero() { RetryAfter::Invalid } else { RetryAfter::In(span) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:50:07 GMT";

    fn read(value: Option<&'static str>, date: Option<&'static str>) -> RetryAfter {
        let mut headers = Headers::new();
        if let Some(value) = value {
            headers.insert(RETRY_AFTER, value);
        }
        if let Some(date) = date {
            headers.insert(DATE, date);
        }
        against(&headers, || parse_rfc7231(DAY).expect("a date"))
    }

    #[test]
    fn w6_retry_after_is_a_duration_a_date_or_invalid() {
        let seconds = |n| RetryAfter::In(Duration::from_secs(n));
        assert_eq!(read(None, None), RetryAfter::Absent);
        assert_eq!(read(Some("  "), None), RetryAfter::Absent);
        assert_eq!(read(Some(" 17 "), None), seconds(17));
        assert_eq!(read(Some(LATER), Some("Sun, 06 Nov 1994 08:50:00 GMT")), seconds(7));
        assert_eq!(read(Some(LATER), None), seconds(30), "the wall clock stands in for a missing Date");
        assert_eq!(read(Some(LATER), Some("yesterday")), seconds(30));
        for invalid in ["0", "-5", "1.5", "soon", "99999999999999999999999", DAY, "Sun, 06 Nov 1994"] {
            assert_eq!(read(Some(invalid), Some(LATER)), RetryAfter::Invalid, "{invalid}");
        }
    }

    #[test]
    fn the_longest_duration_does_not_overflow() {
        assert_eq!(read(Some("18446744073709551615"), None), RetryAfter::In(Duration::from_secs(u64::MAX)));
        assert!(matches!(
            read(Some("Fri, 31 Dec 9999 23:59:59 GMT"), Some("Sat, 01 Jan 0000 00:00:00 GMT")),
            RetryAfter::In(_)
        ));
    }
}
