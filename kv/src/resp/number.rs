//! Integers as text.

/// The longest decimal form of an `i64`.
pub(crate) const DECIMAL_BYTES_MAX: usize = 20;

pub(crate) use crate::memory::packed::parse_integer as parse_i64;

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
