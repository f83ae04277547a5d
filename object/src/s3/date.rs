//! Dates of HTTP and S3, written and read: civil time in UTC from milliseconds since 1970.
//!
//! The clock comes in as a number. Years 1970 to 9999; days by Hinnant's algorithm for the proleptic Gregorian calendar.

const DAY_SECONDS: u64 = 86_400;
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// 9999-12-31T23:59:59Z, in seconds.
const SECONDS_MAX: u64 = 253_402_300_799;

/// A point of civil time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Civil {
    days: u64,
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Civil {
    fn of(seconds: u64) -> Self {
        let seconds = seconds.min(SECONDS_MAX);
        let (days, time) = (seconds / DAY_SECONDS, seconds % DAY_SECONDS);
        // Years begin in March here, so that the leap day is the last one.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        Self {
            days,
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * shifted_month + 2) / 5 + 1,
            hour: time / 3_600,
            minute: time / 60 % 60,
            second: time % 60,
        }
    }
}

/// Seconds since 1970 of a point of civil time; nothing if there is no such day or second, or it is before 1970.
fn seconds(year: u64, month: u64, day: u64, hour: u64, minute: u64, second: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (shifted_year / 400, shifted_year % 400);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day.checked_sub(1)?;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    let seconds = days * DAY_SECONDS + hour * 3_600 + minute * 60 + second;
    let civil = Civil::of(seconds);
    (civil.month == month && civil.day == day).then_some(seconds)
}

/// `2013-05-24T00:00:00.000Z`, as in XML.
#[must_use]
pub fn iso8601(ms: u64) -> String {
    let Civil { year, month, day, hour, minute, second, .. } = Civil::of(ms / 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
}

/// `Fri, 24 May 2013 00:00:00 GMT`, as in headers.
#[must_use]
pub fn http_date(ms: u64) -> String {
    let Civil { days, year, month, day, hour, minute, second } = Civil::of(ms / 1_000);
    let weekday = WEEKDAYS[(days % 7) as usize];
    let month = MONTHS[month as usize - 1];
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// `20130524T000000Z`, as in signatures.
#[must_use]
pub fn amz_date(ms: u64) -> String {
    let Civil { year, month, day, hour, minute, second, .. } = Civil::of(ms / 1_000);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Seconds since 1970 of a date as [`amz_date`] writes it.
#[must_use]
pub fn parse_amz_date(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    if bytes.len() != 16 || bytes[8] != b'T' || bytes[15] != b'Z' {
        return None;
    }
    let number = |from: usize, len: usize| digits(bytes.get(from..from + len)?);
    seconds(number(0, 4)?, number(4, 2)?, number(6, 2)?, number(9, 2)?, number(11, 2)?, number(13, 2)?)
}

/// Milliseconds since 1970 of a date as [`iso8601`] writes it; also with any fraction of a second or none, and with the time
/// zone as hours and minutes. What is finer than a millisecond is cut off.
#[must_use]
pub fn parse_iso8601(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let form = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if !text.is_ascii() || bytes.len() < 20 || form.iter().any(|&(at, byte)| bytes[at] != byte) {
        return None;
    }
    let number = |from: usize, len: usize| digits(&bytes[from..from + len]);
    let whole = seconds(number(0, 4)?, number(5, 2)?, number(8, 2)?, number(11, 2)?, number(14, 2)?, number(17, 2)?)?;
    let (fraction, zone) = match text[19..].strip_prefix('.') {
        None => ("", &text[19..]),
        Some(rest) => rest.split_at(rest.find(|char: char| !char.is_ascii_digit())?),
    };
    if zone.len() + fraction.len() == text.len() - 20 && fraction.is_empty() {
        return None;
    }
    let ms = (0..3).try_fold(0, |ms, at| Some(ms * 10 + digits(fraction.get(at..=at).unwrap_or("0").as_bytes())?))?;
    let ahead = match zone.as_bytes() {
        b"Z" => return Some(whole * 1_000 + ms),
        [b'+' | b'-', _, _, b':', _, _] => (digits(&zone.as_bytes()[1..3])?, digits(&zone.as_bytes()[4..6])?),
        _ => return None,
    };
    let (hours, minutes) = ahead;
    let span = (hours * 60 + minutes) * 60;
    let utc = if zone.starts_with('+') { whole.checked_sub(span)? } else { whole + span };
    (hours < 24 && minutes < 60 && utc <= SECONDS_MAX).then_some(utc * 1_000 + ms)
}

/// Seconds since 1970 of a date as [`http_date`] writes it, or as mail does with `+0000` or `-0000`. The day of the week is not looked at.
#[must_use]
pub fn parse_http_date(text: &str) -> Option<u64> {
    let (_, rest) = text.trim().split_once(", ")?;
    let bytes = rest.as_bytes();
    let form = [(2, b' '), (6, b' '), (11, b' '), (14, b':'), (17, b':'), (20, b' ')];
    let is_utc = bytes.len() > 21 && matches!(&bytes[21..], b"GMT" | b"UTC" | b"+0000" | b"-0000");
    if !is_utc || form.iter().any(|&(at, byte)| bytes[at] != byte) {
        return None;
    }
    let number = |from: usize, len: usize| digits(&bytes[from..from + len]);
    let month = MONTHS.iter().position(|name| name.as_bytes() == &bytes[3..6])? as u64 + 1;
    seconds(number(7, 4)?, month, number(0, 2)?, number(12, 2)?, number(15, 2)?, number(18, 2)?)
}

fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written() {
        let ms = 1_369_353_600_123;
        assert_eq!(iso8601(ms), "2013-05-24T00:00:00.123Z");
        assert_eq!(http_date(ms), "Fri, 24 May 2013 00:00:00 GMT");
        assert_eq!(amz_date(ms), "20130524T000000Z");
        assert_eq!(http_date(951_782_400_000), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(iso8601(u64::MAX), "9999-12-31T23:59:59.615Z");
    }

    #[test]
    fn read() {
        assert_eq!(parse_amz_date("20130524T000000Z"), Some(1_369_353_600));
        assert_eq!(parse_http_date("Fri, 24 May 2013 00:00:00 GMT"), Some(1_369_353_600));
        for zone in ["UTC", "+0000", "-0000"] {
            assert_eq!(parse_http_date(&format!("Fri, 24 May 2013 00:00:00 {zone}")), Some(1_369_353_600));
        }
        for wrong in [
            "",
            "2013-05-24",
            "20130229T000000Z",
            "20131301T000000Z",
            "20130001T000000Z",
            "20130500T000000Z",
            "20130524T240000Z",
            "20130524T006000Z",
            "20130524T000060Z",
            "20130524 000000Z",
            "20130524T000000z",
            "19691231T235959Z",
            "00000101T000000Z",
        ] {
            assert_eq!(parse_amz_date(wrong), None, "{wrong}");
        }
        assert_eq!(parse_amz_date("20130524T235959Z"), Some(1_369_439_999));
        let ms = 1_369_353_600_000;
        for (text, expected) in [
            ("2013-05-24T00:00:00Z", ms),
            ("2013-05-24T00:00:00.5Z", ms + 500),
            ("2013-05-24T00:00:00.1239876Z", ms + 123),
            ("2013-05-24T02:30:00+02:30", ms),
            ("2013-05-23T23:00:00.007-01:00", ms + 7),
        ] {
            assert_eq!(parse_iso8601(text), Some(expected), "{text}");
        }
        for wrong in [
            "",
            "2013-05-24",
            "2013-05-24T00:00:00",
            "2013-05-24T00:00:00.Z",
            "2013-05-24T00:00:00.5",
            "2013-05-24 00:00:00Z",
            "2013-02-29T00:00:00Z",
            "2013-05-24T00:00:00+0230",
            "2013-05-24T00:00:00+24:00",
            "2013-05-24T00:00:00+01:60",
            "1970-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-00:01",
            "2013-05-24T00:00:00Zä",
        ] {
            assert_eq!(parse_iso8601(wrong), None, "{wrong}");
        }
        for wrong in ["24 May 2013 00:00:00 GMT", "Fri, 31 Apr 2013 00:00:00 GMT", "Fri, 24 May 2013 00:00:00 +0100"] {
            assert_eq!(parse_http_date(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn days_follow_each_other_as_in_the_calendar() {
        let mut days = 0;
        for year in 1970..2405 {
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let lengths = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            for (month, length) in (1..).zip(lengths) {
                for day in 1..=length {
                    let expected = Civil { days, year, month, day, hour: 7, minute: 8, second: 9 };
                    let point = days * 86_400 + 7 * 3_600 + 8 * 60 + 9;
                    assert_eq!(Civil::of(point), expected);
                    assert_eq!(seconds(year, month, day, 7, 8, 9), Some(point), "{expected:?}");
                    days += 1;
                }
                assert_eq!(seconds(year, month, length + 1, 7, 8, 9), None, "{year} {month}");
            }
        }
    }

    #[test]
    fn every_second_comes_back_and_any_text_is_read_or_refused() {
        arbtest::arbtest(|u| {
            let seconds = u.int_in_range(0..=SECONDS_MAX)?;
            assert_eq!(parse_amz_date(&amz_date(seconds * 1_000)), Some(seconds));
            assert_eq!(parse_http_date(&http_date(seconds * 1_000)), Some(seconds));
            let ms = seconds * 1_000 + u.int_in_range(0..=999)?;
            assert_eq!(parse_iso8601(&iso8601(ms)), Some(ms));
            let text: String = u.arbitrary()?;
            assert!(parse_iso8601(&text).is_none_or(|ms| ms / 1_000 <= SECONDS_MAX));
            if let Some(seconds) = parse_amz_date(&text) {
                assert_eq!(amz_date(seconds * 1_000), text);
            }
            assert!(parse_http_date(&text).is_none_or(|seconds| seconds <= SECONDS_MAX));
            Ok(())
        });
    }
}
