//! Numbers as C's `%g` writes them: so many digits, the shorter of two forms, no zeros at the end.

use std::io::Write;

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

#[cfg(test)]
mod tests {
    use super::*;

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
