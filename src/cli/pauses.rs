//! Pauses that operators have made, in words.

use jiff::Timestamp;
use model::policy::Pause;
use model::redact::Printable;

/// Since when, by whom and why.
pub(super) fn words(pause: &Pause) -> String {
    let Pause { since, by, reason } = pause;
    let since = since.and_then(|at| Timestamp::from_microsecond(at.as_micros()).ok());
    let since = since.map_or_else(|| "an unknown time".to_owned(), |time| format!("{time:.0}"));
    let by = by.as_deref().unwrap_or("an unnamed operator");
    let words = format!("since {since} by {by}, {}", reason.as_deref().unwrap_or("without a reason"));
    Printable::line(&words).to_string()
}
