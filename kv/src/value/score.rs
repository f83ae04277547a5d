//! Numbers with a fraction, as text: what scores, weights and distances look like, and what is read as one.
//!
//! Written: an integer up to 2^62 without a fraction; anything else with few digits that are read back as the same number
//! (`digits`), laid out as Valkey does. That differs from C's `%g`: the exponent has no leading zero, and it is used
//! where the plain form would have more than seven zeros, or digits far below the point.
//!
//! Read: what C's `strtod` reads in full, in the C locale: decimal, hexadecimal, `inf` and `infinity`. Not a number is
//! refused everywhere.

use std::io::Write;

mod digits;
mod powers;

use crate::memory::packed::Digits;
use digits::digits_of;

/// The most bytes that [`write_score`] writes.
pub const SCORE_BYTES_MAX: usize = 32;

/// The greatest magnitude that is written as an integer: 2^62.
const INTEGER_MAX: f64 = 4_611_686_018_427_387_904.0;

/// Appends the text of a number.
pub fn write_score(value: f64, out: &mut Vec<u8>) {
    if value.is_nan() {
        out.extend_from_slice(b"nan");
    } else if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
    } else if value == 0.0 {
        out.extend_from_slice(if value.is_sign_negative() { b"-0" } else { b"0" });
    } else if value.abs() <= INTEGER_MAX && value.fract() == 0.0 {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole, and its magnitude below 2^63")]
        let whole = value as i64;
        out.extend_from_slice(Digits::default().write(whole));
    } else {
        if value < 0.0 {
            out.push(b'-');
        }
        let digits = digits_of(value.abs());
        lay_out(digits.as_slice(), digits.last, out);
    }
}

/// Writes digits, the last of which has this power of ten.
fn lay_out(digits: &[u8], last: i32, out: &mut Vec<u8>) {
    let len = i32::try_from(digits.len()).expect("at most 17 digits");
    // The power of ten of the first digit.
    let exponent = last + (len - 1);
    let magnitude = exponent.unsigned_abs();
    if last >= 0 && exponent < len + 7 {
        out.extend_from_slice(digits);
        out.resize(out.len() + last.unsigned_abs() as usize, b'0');
    } else if last < 0 && (last > -7 || magnitude < 4) {
        match usize::try_from(exponent) {
            Ok(whole) => {
                out.extend_from_slice(&digits[..=whole]);
                out.push(b'.');
                out.extend_from_slice(&digits[whole + 1..]);
            }
            Err(_) => {
                out.extend_from_slice(b"0.");
                out.resize(out.len() + magnitude as usize - 1, b'0');
                out.extend_from_slice(digits);
            }
        }
    } else {
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "e{sign}{magnitude}").expect("a vector takes all bytes");
    }
}

/// A score as commands give it: decimal, no space before it, and neither too great nor too near to zero for its kind.
#[must_use]
pub fn parse_score(bytes: &[u8]) -> Option<f64> {
    if is_hexadecimal(bytes) { None } else { parse_number(bytes) }
}

/// A score as the bounds of a range are given: nothing is 0, it ends before a zero byte, and what is too great is infinite.
#[must_use]
pub fn parse_bound(bytes: &[u8]) -> Option<f64> {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    if bytes.is_empty() {
        return Some(0.0);
    }
    if is_hexadecimal(bytes) { None } else { parse_all(bytes).map(|number| number.value) }
}

fn is_hexadecimal(bytes: &[u8]) -> bool {
    let unsigned = bytes.strip_prefix(b"-").or(bytes.strip_prefix(b"+")).unwrap_or(bytes);
    matches!(unsigned, [b'0', b'x' | b'X', ..])
}

/// A decimal or hexadecimal number: no space before it, and neither too great nor too near to zero for its kind.
#[must_use]
pub fn parse_number(bytes: &[u8]) -> Option<f64> {
    let number = parse_all(bytes)?;
    (!number.is_out_of_range).then_some(number.value)
}

/// A decimal or hexadecimal number as C reads it: nothing is 0, spaces may come before it, and what is too great is infinite.
#[must_use]
pub fn parse_freely(bytes: &[u8]) -> Option<f64> {
    if bytes.is_empty() {
        return Some(0.0);
    }
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = bytes.iter().position(|byte| !is_space(byte))?;
    parse_all(&bytes[start..]).map(|number| number.value)
}

struct Number {
    value: f64,
    /// The value is infinite or zero and what was written is not.
    is_out_of_range: bool,
}

fn parse_all(bytes: &[u8]) -> Option<Number> {
    let (is_negative, unsigned) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, bytes),
    };
    let mut number = match unsigned {
        [b'0', b'x' | b'X', rest @ ..] => parse_hexadecimal(rest)?,
        [b'0'..=b'9' | b'.', ..] => parse_decimal(unsigned)?,
        _ if unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity") => {
            Number { value: f64::INFINITY, is_out_of_range: false }
        }
        _ => return None,
    };
    if is_negative {
        number.value = -number.value;
    }
    Some(number)
}

fn parse_decimal(bytes: &[u8]) -> Option<Number> {
    let value: f64 = std::str::from_utf8(bytes).ok()?.parse().ok()?;
    let mantissa = bytes.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or_default();
    let is_zero = mantissa.iter().all(|byte| matches!(byte, b'0' | b'.'));
    Some(Number { value, is_out_of_range: value.is_infinite() || (value == 0.0 && !is_zero) })
}

/// Reads what follows `0x`: digits with a point, and an exponent of two.
fn parse_hexadecimal(bytes: &[u8]) -> Option<Number> {
    let mantissa_len = bytes.iter().position(|byte| matches!(byte, b'p' | b'P')).unwrap_or(bytes.len());
    let (mantissa, power) = bytes.split_at(mantissa_len);
    let mut exponent = match power {
        [] => 0,
        [_, power @ ..] => parse_power(power)?,
    };
    let (mut bits, mut digits, mut is_fraction) = (0_u64, 0, false);
    for byte in mantissa {
        if *byte == b'.' && !is_fraction {
            is_fraction = true;
            continue;
        }
        let digit = char::from(*byte).to_digit(16)?;
        digits += 1;
        if bits >> 58 == 0 {
            bits = bits << 4 | u64::from(digit);
            exponent -= if is_fraction { 4 } else { 0 };
        } else {
            // What is below the bits kept only matters for rounding: whether it is zero.
            bits |= u64::from(digit != 0);
            exponent += if is_fraction { 0 } else { 4 };
        }
    }
    if digits == 0 {
        return None;
    }
    // Rounds to the nearest, as reading a number does.
    let mut value = bits as f64;
    while exponent != 0 && value != 0.0 && value.is_finite() {
        let step = exponent.clamp(-512, 512);
        value *= 2.0_f64.powi(i32::try_from(step).expect("clamped to few bits"));
        exponent -= step;
    }
    Some(Number { value, is_out_of_range: value.is_infinite() || (value == 0.0 && bits != 0) })
}

/// An exponent of two, kept to what still makes a difference.
fn parse_power(bytes: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, bytes),
    };
    if digits.is_empty() {
        return None;
    }
    let mut power = 0_i64;
    for byte in digits {
        let digit = char::from(*byte).to_digit(10)?;
        power = (power * 10 + i64::from(digit)).min(1 << 40);
    }
    Some(if is_negative { -power } else { power })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::draws::Draws;

    fn text(value: f64) -> String {
        let mut out = Vec::new();
        write_score(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_written_as_valkey_writes_them() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.0, "-1"),
            (1.5, "1.5"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (3.0e-3, "0.003"),
            (0.000_001, "0.000001"),
            (0.000_001_5, "1.5e-6"),
            (0.000_000_1, "1e-7"),
            (1.234_567_89e-3, "0.00123456789"),
            (1.234_567_89e-4, "1.23456789e-4"),
            (123_456.789, "123456.789"),
            (123_456.789_012_345, "1.23456789012345e+5"),
            (1_234.567_890_123_4, "1234.5678901234"),
            (17_179_869_184.0, "17179869184"),
            (4_611_686_018_427_387_904.0, "4611686018427387904"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (9.223_372_036_854_776e18, "9223372036854776000"),
            (1e19, "1e+19"),
            (1e21, "1e+21"),
            (-1.7e308, "-1.7e+308"),
            (1.797_693_134_862_315_7e308, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (1e-10, "1e-10"),
            (0.1 + 0.2, "0.30000000000000004"),
            // One that shortest digits would write as 3.029679789522013e-4.
            (3.029_679_789_522_013e-4, "3.0296797895220133e-4"),
            (1.0 / 3.0, "0.3333333333333333"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (-f64::NAN, "nan"),
        ] {
            assert_eq!(text(value), expected);
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut draws = Draws(1);
        let mut longer = 0;
        for _ in 0..100_000 {
            let value = f64::from_bits(draws.next());
            let written = text(value);
            assert!(written.len() <= SCORE_BYTES_MAX);
            let digits = |text: &str| {
                let mantissa = text.split('e').next().unwrap();
                mantissa.replace(['.', '-'], "").trim_matches('0').len()
            };
            longer += usize::from(digits(&written) > digits(&format!("{value:e}")));
            if !value.is_nan() {
                assert_eq!(parse_score(written.as_bytes()).unwrap().to_bits(), value.to_bits(), "{written}");
            }
        }
        assert!(longer < 500, "{longer} of 100,000 have a digit more than they need");
    }

    #[test]
    fn numbers_are_read_as_strtod_reads_them() {
        for (written, expected) in [
            ("1", Some(1.0)),
            ("+1", Some(1.0)),
            ("1.", Some(1.0)),
            (".5", Some(0.5)),
            ("-.5e1", Some(-5.0)),
            ("1e5", Some(100_000.0)),
            ("1E+5", Some(100_000.0)),
            ("inf", Some(f64::INFINITY)),
            ("+INF", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("0x10", Some(16.0)),
            ("-0X1.8p1", Some(-3.0)),
            ("0x.8", Some(0.5)),
            ("0x1p-1074", Some(5e-324)),
            ("0x1fffffffffffff8", Some(144_115_188_075_855_864.0)),
            ("0x123456789abcdef0123", Some(f64::from_bits(0x4472_3456_789a_bcdf))),
            // Half way to the next number, and a little more.
            ("0x1000000000000080000000001", Some(f64::from_bits(0x45f0_0000_0000_0001))),
            ("0e999", Some(0.0)),
            ("4.9e-324", Some(5e-324)),
            ("", None),
            (".", None),
            ("-", None),
            ("e5", None),
            ("1e", None),
            ("1e+", None),
            ("0x", None),
            ("0x.", None),
            ("0x1p", None),
            ("0xg", None),
            ("nan", None),
            ("-nan", None),
            ("infx", None),
            (" 1", None),
            ("1 ", None),
            ("1\0", None),
            ("--1", None),
            ("1_0", None),
            ("1,5", None),
            ("1e400", None),
            ("-1e400", None),
            ("1e-400", None),
            ("0x1p1024", None),
            ("0x1p-9999999999999999999999", None),
        ] {
            assert_eq!(parse_number(written.as_bytes()), expected, "{written}");
            let decimal = expected.filter(|_| !written.contains(['x', 'X']));
            assert_eq!(parse_score(written.as_bytes()), decimal, "{written}");
        }
    }

    #[test]
    fn bounds_are_read_more_freely() {
        for (written, expected) in [
            ("", Some(0.0)),
            (" \t\n1", Some(1.0)),
            ("1e400", Some(f64::INFINITY)),
            ("-1e400", Some(f64::NEG_INFINITY)),
            ("1e-400", Some(0.0)),
            (" ", None),
            ("1 ", None),
            ("nan", None),
            ("(1", None),
        ] {
            assert_eq!(parse_freely(written.as_bytes()), expected, "{written:?}");
        }
        for (written, expected) in [
            ("", Some(0.0)),
            ("1\0x", Some(1.0)),
            ("+1", Some(1.0)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("1e400", Some(f64::INFINITY)),
            ("1e-400", Some(0.0)),
            ("0x10", None),
            ("-0X1p3", None),
            (" 1", None),
            ("1 ", None),
            ("nan", None),
        ] {
            assert_eq!(parse_bound(written.as_bytes()), expected, "{written:?}");
        }
    }
}
