//! Serial number and expiry of an X.509 certificate (RFC 5280), read from its DER form.
//!
//! A walk over the first fields of the certificate, which stand before everything that is optional but the version. Nothing
//! is verified: rustls does that, and what it takes is shown here. Other fields are not looked at.

use ashlar_kv::Certificate;

/// Tags of DER that the walk meets.
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// The version stands in a field of its own, if it is written down.
const VERSION: u8 = 0xa0;

/// What is shown of a certificate; `None` if it is none.
pub(super) fn read(der: &[u8]) -> Option<Certificate> {
    let (whole, _) = take(der, SEQUENCE)?;
    let (fields, _) = take(whole, SEQUENCE)?;
    let fields = take(fields, VERSION).map_or(fields, |(_version, rest)| rest);
    let (serial, fields) = take(fields, INTEGER)?;
    let (_algorithm, fields) = take(fields, SEQUENCE)?;
    let (_issuer, fields) = take(fields, SEQUENCE)?;
    let (validity, _) = take(fields, SEQUENCE)?;
    let (_begin, end) = take_time(validity)?;
    let (expires_s, _) = take_time(end)?;
    Some(Certificate { serial: hexadecimal(serial), expires_s })
}

/// A number without the byte that only says that it is positive.
fn hexadecimal(number: &[u8]) -> String {
    let number = number.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(number);
    number.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// The content of the first field, which must have this tag, and what follows the field.
fn take(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (len, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if len.len() > 4 {
            return None;
        }
        (len.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
    };
    if found == tag { rest.split_at_checked(len) } else { None }
}

/// A point of time as seconds since 1970, and what follows it.
fn take_time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (text, rest) = take(bytes, UTC_TIME).or_else(|| take(bytes, GENERALIZED_TIME))?;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let (year, parts) = match (is_number, text.len()) {
        (true, 12) => {
            // Two digits are a year from 1950 to 2049.
            let year: i64 = text[..2].parse().ok()?;
            (if year < 50 { 2_000 + year } else { 1_900 + year }, &text[2..])
        }
        (true, 14) => (text[..4].parse().ok()?, &text[4..]),
        _ => return None,
    };
    let part = |at: usize| parts[at..at + 2].parse::<i64>().ok();
    let (month, day, hour, minute, second) = (part(0)?, part(2)?, part(4)?, part(6)?, part(8)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    Some((((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second, rest))
}

/// Days since 1970 of a day of the Gregorian calendar. Years begin in March here, so that a leap day is a year's last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    const DAYS_TO_1970: i64 = 719_468;
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day
        - 1
        - DAYS_TO_1970
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SerialNumber, date_time_ymd};

    use super::*;

    #[test]
    fn serial_and_expiry_are_those_of_the_certificate() {
        for (serial, shown, (year, month, day), expires_s) in [
            (&[1][..], "01", (2030, 1, 1), 1_893_456_000),
            (&[0xab, 0xcd], "ABCD", (2024, 2, 29), 1_709_164_800),
            (&[0x7f, 0, 1], "7F0001", (2049, 12, 31), 2_524_521_600),
            (&[0xff; 16], "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", (2050, 1, 1), 2_524_608_000),
            (&[0x12, 0x34], "1234", (2100, 3, 1), 4_107_542_400),
        ] {
            let mut params = CertificateParams::new(["name".to_owned()]).unwrap();
            params.serial_number = Some(SerialNumber::from_slice(serial));
            params.not_after = date_time_ymd(year, month, day);
            let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let expected = Certificate { serial: shown.to_owned(), expires_s };
            assert_eq!(read(made.der()), Some(expected), "{shown}");
        }
    }

    #[test]
    fn what_is_no_certificate_is_none() {
        let made =
            CertificateParams::new(["name".to_owned()]).unwrap().self_signed(&KeyPair::generate().unwrap()).unwrap();
        let expected = read(made.der());
        assert!(expected.is_some());
        for len in 0..made.der().len() {
            // What follows the expiry is not looked at, but the lengths around it must be right.
            assert_eq!(read(&made.der()[..len]), None, "{len}");
        }
        for at in 0..made.der().len() {
            let mut broken = made.der().to_vec();
            broken[at] ^= 0x80;
            // Whatever it says, it comes back.
            let _ = read(&broken);
        }
    }
}
