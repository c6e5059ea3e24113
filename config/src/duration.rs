//! Durations with their unit in the value: `500ms`, `2s`, `10m`, `1h`, `1m30s`.

use std::time::Duration;

/// The units, largest first, with their length in milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A text that is not a duration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is not a duration such as 500ms, 2s or 1m30s")]
pub struct InvalidDuration(String);

/// Parses a duration: whole numbers with the units `h`, `m`, `s` and `ms`, larger units first and each at most once.
///
/// # Errors
/// Any other text, and one that exceeds the range of milliseconds in 64 bits.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    parse(text).ok_or_else(|| InvalidDuration(text.to_owned()))
}

/// Parses a duration as [`parse_duration`] does; `None` if the text is invalid.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = 0_u64;
    let mut last = None;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let rank = UNITS.iter().position(|(name, _)| *name == unit)?;
        if last.is_some_and(|last| rank <= last) {
            return None;
        }
        let amount = number.parse::<u64>().ok()?.checked_mul(UNITS[rank].1)?;
        total = total.checked_add(amount)?;
        last = Some(rank);
        rest = tail;
    }
    last.map(|_| Duration::from_millis(total))
}

/// Renders a duration as in a configuration, in the largest unit that expresses it exactly; in whole milliseconds.
///
/// # Panics
/// Never: every number of whole milliseconds is a multiple of the unit `ms`.
#[must_use]
pub fn render(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "0s".to_owned();
    }
    let (unit, length) =
        UNITS.iter().find(|(_, length)| millis.is_multiple_of(*length)).expect("one millisecond divides all");
    format!("{}{unit}", millis / length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c1_durations_are_whole_numbers_with_units() {
        let rows = [
            ("500ms", Some(500)),
            ("2s", Some(2_000)),
            ("10m", Some(600_000)),
            ("1h", Some(3_600_000)),
            ("1m30s", Some(90_000)),
            ("1h1m1s1ms", Some(3_661_001)),
            ("0s", Some(0)),
            ("", None),
            ("5", None),
            ("s", None),
            ("1.5s", None),
            ("-1s", None),
            ("1 s", None),
            ("1S", None),
            ("1d", None),
            ("1s1s", None),
            ("1s1m", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
            ("5124095576030h60m", None),
        ];
        for (text, millis) in rows {
            assert_eq!(parse(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn c1_a_rendered_duration_reads_back_as_itself() {
        for millis in [0, 1, 999, 1_000, 1_500, 60_000, 90_000, 3_600_000, 5_400_000] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse(&render(duration)), Some(duration), "{millis} ms");
        }
        assert_eq!(render(Duration::from_secs(60)), "1m");
    }
}
