//! Multiplication by a constant as two tables of 16 bytes, the form that byte shuffles multiply by.
//!
//! A byte is the sum of its nibbles, so a product is the sum of two looked-up products (Plank, Greenan, Miller:
//! "Screaming fast Galois field arithmetic using Intel SIMD instructions", FAST 2013).

use crate::field::multiply;

/// The products of one element with every low and every high nibble.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct Tables {
    /// `low[n]` is the element times `n`.
    pub(super) low: [u8; 16],
    /// `high[n]` is the element times `16 n`.
    pub(super) high: [u8; 16],
}

impl Tables {
    /// The tables of `element`.
    pub(super) fn of(element: u8) -> Self {
        let mut tables = Self { low: [0; 16], high: [0; 16] };
        for (nibble, (low, high)) in (0..16).zip(tables.low.iter_mut().zip(&mut tables.high)) {
            *low = multiply(element, nibble);
            *high = multiply(element, nibble << 4);
        }
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lookups_make_the_product() {
        for element in 0..=255 {
            let tables = Tables::of(element);
            for byte in 0..=255 {
                let sum = tables.low[usize::from(byte & 15)] ^ tables.high[usize::from(byte >> 4)];
                assert_eq!(sum, multiply(element, byte), "{element} * {byte}");
            }
        }
    }
}
