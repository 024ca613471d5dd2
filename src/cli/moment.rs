//! Moments as people write them: RFC 3339 in UTC, and unix milliseconds.

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// A moment in UTC: `2026-11-30T21:50:25.120Z`.
pub(super) fn show(ms: i64) -> String {
    let (days, rest) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    let (year, month, day) = date(days);
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, milli) = (rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Unix milliseconds of `2026-11-30T21:50:25Z`, with a fraction and an offset as RFC 3339 allows, of a date alone, or of
/// unix milliseconds.
///
/// # Errors
/// What is wanted.
pub(super) fn read(text: &str) -> Result<i64, String> {
    const WANTED: &str = "write 2026-11-30T21:50:25Z, 2026-11-30T21:50:25.120+01:00, 2026-11-30, or unix milliseconds";
    if let Ok(ms) = text.parse::<i64>() {
        return if ms < 0 {
            Err(WANTED.to_owned())
        } else {
            Ok(ms)
        };
    }
    parse(text).ok_or_else(|| WANTED.to_owned())
}

fn parse(text: &str) -> Option<i64> {
    let (day, time) = match text.split_once(['T', 't', ' ']) {
        Some((day, time)) => (day, Some(time)),
        None => (text, None),
    };
    let mut parts = day.split('-').map(number);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let days = days(year, month, day);
    if parts.next().is_some() || year > 9999 || date(days) != (year, month, day) {
        return None;
    }
    let time_ms = time.map_or(Some(0), time_of_day)?;
    Some(days * DAY_MS + time_ms).filter(|ms| *ms >= 0)
}

fn time_of_day(text: &str) -> Option<i64> {
    let (clock, offset_min) = match text.strip_suffix(['Z', 'z']) {
        Some(clock) => (clock, 0),
        None => {
            let at = text.rfind(['+', '-'])?;
            let (clock, offset) = text.split_at(at);
            let (hours, minutes) = offset[1..].split_once(':')?;
            let (hours, minutes) = (number(hours)?, number(minutes)?);
            let sign = if offset.starts_with('-') { -1 } else { 1 };
            (hours < 24 && minutes < 60).then_some((clock, sign * (hours * 60 + minutes)))?
        }
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    number(fraction)?;
    let milli = number(&format!("{fraction:0<3}")[..3])?;
    let mut parts = clock.split(':').map(number);
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    let fits = parts.next().is_none() && hour < 24 && minute < 60 && second < 60;
    let ms = ((hour * 60 + minute - offset_min) * 60 + second) * 1000 + milli;
    fits.then_some(ms)
}

fn number(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Days since 1970-01-01 of a date of the Gregorian calendar. The year begins in March, so that the leap day is last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The other way round.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_back() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_796_075_425_120, "2026-11-30T21:50:25.120Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(show(ms), text);
            assert_eq!(read(text), Ok(ms));
        }
        // Each day of two centuries.
        for day in 0..73_000 {
            let (y, m, d) = date(day);
            assert_eq!(days(y, m, d), day);
        }
    }

    #[test]
    fn offsets_fractions_and_plain_days_are_understood() {
        assert_eq!(read("1970-01-01T01:00:00+01:00"), Ok(0));
        assert_eq!(read("1970-01-01t00:00:00.1234z"), Ok(123));
        assert_eq!(read("1970-01-02"), Ok(DAY_MS));
        assert_eq!(read("1700000000000"), Ok(1_700_000_000_000));
        for bad in [
            "",
            "-5",
            "2026-13-01",
            "2026-02-30",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "1969-12-31",
            "yesterday",
            "2026-01-01T00:00:00.xZ",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
