//! The field of 256 elements: bytes under exclusive-or and multiplication modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d).
//!
//! Bit `i` of a byte is the coefficient of x^i, and 2 generates every element but zero. This is the field of RAID-6,
//! ISA-L and klauspost/reedsolomon, so shards can be exchanged with them. Everything here is scalar: it prepares
//! factors and is the twin that the kernels are tested against.

/// The field's polynomial without its leading x^8.
const REDUCTION: u8 = 0x1d;

/// Elements other than zero.
const ORDER: usize = 255;

/// `POWERS[i]` is 2^i. It is written twice over, so that a sum of two logarithms needs no reduction.
static POWERS: [u8; 2 * ORDER] = powers();

/// `LOGARITHMS[x]` is the exponent below 255 with 2^exponent = x; that of zero is never read.
static LOGARITHMS: [u8; 256] = logarithms();

/// The product of two elements.
pub(crate) fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    POWERS[usize::from(LOGARITHMS[usize::from(a)]) + usize::from(LOGARITHMS[usize::from(b)])]
}

/// The exponent that gives `element` as a power of 2.
///
/// # Panics
/// For zero, which is no power.
pub(crate) fn logarithm(element: u8) -> usize {
    assert!(element != 0, "zero has no logarithm");
    usize::from(LOGARITHMS[usize::from(element)])
}

/// 2 to the `exponent`.
pub(crate) fn power(exponent: usize) -> u8 {
    POWERS[exponent % ORDER]
}

/// The quotient of two elements.
///
/// # Panics
/// For a divisor of zero.
pub(crate) fn divide(dividend: u8, divisor: u8) -> u8 {
    let log = logarithm(divisor);
    if dividend == 0 { 0 } else { power(logarithm(dividend) + ORDER - log) }
}

/// `element` times x.
pub(crate) const fn double(element: u8) -> u8 {
    (element << 1) ^ if element & 0x80 == 0 { 0 } else { REDUCTION }
}

const fn powers() -> [u8; 2 * ORDER] {
    let mut table = [0; 2 * ORDER];
    let mut element = 1;
    let mut exponent = 0;
    while exponent < table.len() {
        table[exponent] = element;
        element = double(element);
        exponent += 1;
    }
    table
}

#[allow(clippy::cast_possible_truncation, reason = "exponents stay below 255")]
const fn logarithms() -> [u8; 256] {
    let powers = powers();
    let mut table = [0; 256];
    let mut exponent = 0;
    while exponent < ORDER {
        table[powers[exponent] as usize] = exponent as u8;
        exponent += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication as the definition says: shift and add, one bit at a time.
    fn by_definition(mut a: u8, mut b: u8) -> u8 {
        let mut product = 0;
        while b != 0 {
            if b & 1 == 1 {
                product ^= a;
            }
            a = double(a);
            b >>= 1;
        }
        product
    }

    #[test]
    fn products_and_quotients() {
        for a in 0..=255 {
            for b in 0..=255 {
                let product = by_definition(a, b);
                assert_eq!(multiply(a, b), product, "{a} * {b}");
                if b != 0 {
                    assert_eq!(divide(product, b), a, "{product} / {b}");
                }
            }
        }
    }

    #[test]
    fn every_element_but_zero_is_a_power_of_two() {
        let mut seen = [false; 256];
        (0..ORDER).for_each(|exponent| seen[usize::from(power(exponent))] = true);
        assert_eq!(seen.iter().position(|&is_seen| !is_seen), Some(0));
        assert_eq!(seen.iter().filter(|&&is_seen| !is_seen).count(), 1);
    }
}
