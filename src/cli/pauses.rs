//! Texts about pauses.

use jiff::Timestamp;
use model::policy::Pause;
use model::redact::Printable;

/// Returns since when something is paused, by whom and why, as a part of a sentence.
pub(super) fn describe_pause(pause: &Pause) -> String {
    let Pause { since, by, reason } = pause;
    let since = since.and_then(|at| Timestamp::from_microsecond(at.as_micros()).ok());
    let since = since.map_or_else(|| "an unknown time".to_owned(), |time| format!("{time:.0}"));
    let by = by.as_deref().unwrap_or("an unnamed operator");
    let text = format!("since {since} by {by}, {}", reason.as_deref().unwrap_or("without a reason"));
    Printable::line(&text).to_string()
}
