//! Numbers as C's `%g` writes them (so many digits, the shorter of two forms, no zeros at the end), and as `strtod` reads them.

use std::io::Write;

use crate::value::score::parse_freely;

/// Appends a number with up to `digits` digits.
///
/// # Panics
/// `digits` is zero.
pub(crate) fn write_short(value: f64, digits: usize, out: &mut Vec<u8>) {
    assert!(digits > 0, "a number has a digit");
    if value.is_nan() {
        out.extend_from_slice(if value.is_sign_negative() { b"-nan" } else { b"nan" });
        return;
    }
    if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
        return;
    }
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("the form has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    let is_plain = exponent >= -4 && usize::try_from(exponent).is_ok_and(|exponent| exponent < digits)
        || (-4..0).contains(&exponent);
    if is_plain {
        let decimals = i32::try_from(digits).expect("digits are few") - 1 - exponent;
        let decimals = usize::try_from(decimals).expect("the exponent is less than the digits");
        let plain = format!("{value:.decimals$}");
        out.extend_from_slice(without_zeros(&plain).as_bytes());
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        let magnitude = exponent.unsigned_abs();
        write!(out, "{}e{sign}{magnitude:02}", without_zeros(mantissa)).expect("a vector takes all bytes");
    }
}

/// Without zeros behind the point, nor a point that ends it.
fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Reads the number that bytes begin with, and says how long it is; nothing if they begin with none.
pub(crate) fn read_number(bytes: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(bytes.first(), Some(b'-' | b'+')));
    let unsigned = &bytes[sign..];
    let begins = |word: &[u8]| unsigned.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    if begins(b"nan") {
        let value = if bytes[0] == b'-' { -f64::NAN } else { f64::NAN };
        return Some((value, sign + nan_len(unsigned)));
    }
    let len = match unsigned {
        _ if begins(b"infinity") => 8,
        _ if begins(b"inf") => 3,
        [b'0', b'x' | b'X', rest @ ..] => match run(rest, u8::is_ascii_hexdigit, b'p') {
            Some(len) => 2 + len,
            // The zero alone.
            None => 1,
        },
        _ => run(unsigned, u8::is_ascii_digit, b'e')?,
    };
    let len = sign + len;
    Some((parse_freely(&bytes[..len])?, len))
}

/// How long digits with a point and an exponent are; nothing if there is no digit.
fn run(bytes: &[u8], is_digit: fn(&u8) -> bool, mark: u8) -> Option<usize> {
    let count = |bytes: &[u8], is_digit: fn(&u8) -> bool| bytes.iter().take_while(|byte| is_digit(byte)).count();
    let whole = count(bytes, is_digit);
    let mut len = whole;
    let mut digits = whole;
    if bytes.get(len) == Some(&b'.') {
        let fraction = count(&bytes[len + 1..], is_digit);
        digits += fraction;
        len += 1 + fraction;
    }
    if digits == 0 {
        return None;
    }
    if bytes.get(len).is_some_and(|byte| byte.to_ascii_lowercase() == mark) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'-' | b'+')));
        let exponent = count(&bytes[len + 1 + sign..], u8::is_ascii_digit);
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    Some(len)
}

/// `nan`, and letters in brackets behind it.
fn nan_len(bytes: &[u8]) -> usize {
    const NAN: usize = 3;
    let Some(inside) = bytes[NAN..].strip_prefix(b"(") else { return NAN };
    let len = inside.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    if inside.get(len) == Some(&b')') { NAN + len + 2 } else { NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_c_reads() {
        for (text, expected) in [
            ("1", Some((1.0, 1))),
            ("-12.5e3,", Some((-12_500.0, 7))),
            ("1e+", Some((1.0, 1))),
            ("1.e2x", Some((100.0, 4))),
            (".5", Some((0.5, 2))),
            ("+007", Some((7.0, 4))),
            ("0x1F", Some((31.0, 4))),
            ("0x.8p1g", Some((1.0, 6))),
            ("0xg", Some((0.0, 1))),
            ("-infinit", Some((f64::NEG_INFINITY, 4))),
            ("INFINITYx", Some((f64::INFINITY, 8))),
            ("1e999", Some((f64::INFINITY, 5))),
            ("-", None),
            (".", None),
            ("-e5", None),
            ("", None),
        ] {
            assert_eq!(read_number(text.as_bytes()), expected, "{text}");
        }
        for (text, len) in [("nan", 3), ("-NaN(12_a)]", 10), ("nan(", 3)] {
            let read = read_number(text.as_bytes()).unwrap();
            assert!(read.0.is_nan() && read.1 == len, "{text}");
        }
    }

    #[test]
    fn as_c_writes() {
        for (value, digits, text) in [
            (0.0, 14, "0"),
            (-0.0, 14, "-0"),
            (1.0, 14, "1"),
            (0.1, 14, "0.1"),
            (0.1, 17, "0.10000000000000001"),
            (100.5, 14, "100.5"),
            (1e14, 14, "1e+14"),
            (1e13, 14, "10000000000000"),
            (123_456_789_012_345.0, 14, "1.2345678901234e+14"),
            (0.0001, 14, "0.0001"),
            (0.000_01, 14, "1e-05"),
            (-2.5e-300, 14, "-2.5e-300"),
            (9.999_999_999_999_999, 14, "10"),
            (99.5, 1, "1e+02"),
            (9.5, 1, "1e+01"),
            (3.99, 2, "4"),
            (f64::INFINITY, 14, "inf"),
            (f64::NEG_INFINITY, 14, "-inf"),
            (f64::NAN, 14, "nan"),
        ] {
            let mut out = Vec::new();
            write_short(value, digits, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }
}
