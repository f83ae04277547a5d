//! Integers as text.

/// The longest decimal form of an `i64`.
pub(crate) const DECIMAL_BYTES_MAX: usize = 20;

/// Reads an integer in its canonical decimal form: no sign `+`, no leading zeros, no spaces; within `i64`.
pub(crate) fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', rest @ ..] if rest.len() < DECIMAL_BYTES_MAX - 1 => {}
        _ => return None,
    }
    let mut value: u64 = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    if negative { 0_i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

/// An integer's decimal form, without a heap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decimal {
    bytes: [u8; DECIMAL_BYTES_MAX],
    start: u8,
}

impl Decimal {
    /// Writes `value`.
    pub(crate) fn new(value: i64) -> Self {
        let mut bytes = [0; DECIMAL_BYTES_MAX];
        let mut at = DECIMAL_BYTES_MAX;
        let mut left = value.unsigned_abs();
        loop {
            at -= 1;
            bytes[at] = b'0' + u8::try_from(left % 10).expect("a digit is below ten");
            left /= 10;
            if left == 0 {
                break;
            }
        }
        if value < 0 {
            at -= 1;
            bytes[at] = b'-';
        }
        Self { bytes, start: u8::try_from(at).expect("there are 20 bytes") }
    }

    /// The text.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[usize::from(self.start)..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_form_is_an_integer() {
        for value in [0, 1, -1, 9, 10, 1_234_567_890, i64::MAX, i64::MIN, i64::MAX - 1] {
            let text = value.to_string();
            assert_eq!(Decimal::new(value).as_bytes(), text.as_bytes());
            assert_eq!(parse_i64(text.as_bytes()), Some(value));
        }
        for text in ["", "-", "+1", "01", "-0", "00", " 1", "1 ", "1a", "9223372036854775808", "-9223372036854775809"] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
    }
}
