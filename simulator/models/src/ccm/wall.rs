//! Kubernetes' MicroTime: formatted with microseconds and `Z`, parsed with any fraction and offset.

use crate::kube::rfc3339;

/// Formats microseconds since 1970 as a MicroTime.
pub(super) fn micro_time(wall_us: u64) -> String {
    let seconds = rfc3339(wall_us / 1_000_000);
    format!("{}.{:06}Z", seconds.trim_end_matches('Z'), wall_us % 1_000_000)
}

/// Formats microseconds since 1970 as a Time.
pub(super) fn time(wall_us: u64) -> String {
    rfc3339(wall_us / 1_000_000)
}

/// Parses a MicroTime or Time; digits beyond microseconds are dropped.
pub(super) fn read(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once(['T', 't'])?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let zone_at = rest.rfind(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at(zone_at);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut clock = clock.split(':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let in_range = (1970..10_000).contains(&year) && (1..13).contains(&month) && (1..32).contains(&day);
    if !in_range || !(0..24).contains(&hour) || !(0..60).contains(&minute) || !(0..61).contains(&second) {
        return None;
    }
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let micros: i64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset(zone)?;
    u64::try_from(seconds * 1_000_000 + micros).ok()
}

/// Returns the UTC offset of a zone, in seconds.
fn offset(zone: &str) -> Option<i64> {
    let sign = match zone.chars().next()? {
        'Z' | 'z' => return (zone.len() == 1).then_some(0),
        '-' => -1,
        _ => 1,
    };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    ((0..24).contains(&hours) && (0..60).contains(&minutes)).then_some(sign * (hours * 3_600 + minutes * 60))
}

/// Returns the days since 1970 of a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::{micro_time, read};

    #[test]
    fn z1_a_micro_time_is_read_back_as_it_was_written() {
        for wall in [0, 951_782_400_000_001, 1_795_132_800_123_456, 4_102_444_799_999_999] {
            assert_eq!(read(&micro_time(wall)), Some(wall), "{}", micro_time(wall));
        }
        assert_eq!(micro_time(1_795_132_800_000_007), "2026-11-20T00:00:00.000007Z");
    }

    #[test]
    fn z1_a_micro_time_may_have_any_fraction_and_offset() {
        let noon = read("2026-11-20T12:00:00Z");
        assert_eq!(noon, Some(1_795_176_000_000_000));
        assert_eq!(read("2026-11-20T14:30:00.000000+02:30"), noon);
        assert_eq!(read("2026-11-20T11:00:00-01:00"), noon);
        assert_eq!(read("2026-11-20T12:00:00.1234567Z"), noon.map(|us| us + 123_456));
        for text in
            ["", "T", "2026-11-20", "2026-11-20T12:00:00", "2026-13-20T12:00:00Z", "2026-11-20T12:00:00.-1Z"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
