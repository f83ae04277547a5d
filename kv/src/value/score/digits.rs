//! The digits of a number, few enough and read back as the same number.
//!
//! This is Grisu2 (Loitsch, "Printing floating-point numbers quickly and accurately with integers", 2010): the number and
//! the ends of the interval that is read back as it are multiplied by a power of ten to 64 bits, and digits of the upper end
//! are taken until what is left is within the interval. For three numbers of a thousand it gives a digit more than is
//! needed. Valkey prints scores so; a method without that flaw would print others.

use super::powers::{FIRST, POWERS, STEP};

/// The most digits that come out.
pub(super) const DIGITS_MAX: usize = 17;

/// Exponents of the scaled number: so that its whole part has at most ten digits.
const EXPONENT_MIN: i32 = -60;
const EXPONENT_MAX: i32 = -32;

/// Bits of a number's fraction.
const FRACTION_BITS: u32 = 52;

/// A number: 64 bits, times two to an exponent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scaled {
    bits: u64,
    exponent: i32,
}

impl Scaled {
    pub(super) const fn new(bits: u64, exponent: i32) -> Self {
        Self { bits, exponent }
    }

    /// The bits and exponent of a number greater than zero.
    fn of(value: f64) -> Self {
        let bits = value.to_bits();
        let fraction = bits & ((1 << FRACTION_BITS) - 1);
        let biased = i32::try_from(bits >> FRACTION_BITS).expect("a positive number has eleven bits of exponent");
        if biased == 0 { Self::new(fraction, -1074) } else { Self::new(fraction | 1 << FRACTION_BITS, biased - 1075) }
    }

    /// The same number with its top bit set.
    const fn normalized(self) -> Self {
        let shift = self.bits.leading_zeros();
        Self::new(self.bits << shift, self.exponent - shift.cast_signed())
    }

    /// The product, to the nearest 64 bits.
    fn times(self, other: Self) -> Self {
        let product = u128::from(self.bits) * u128::from(other.bits);
        let rounded = (product + (1 << 63)) >> 64;
        let bits = u64::try_from(rounded).expect("a product of 128 bits less its lower half");
        Self::new(bits, self.exponent + other.exponent + 64)
    }
}

/// Digits, and the power of ten of the last.
pub(super) struct Digits {
    bytes: [u8; DIGITS_MAX + 1],
    len: usize,
    pub(super) last: i32,
}

impl Digits {
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Adds a digit, unless it would be a zero before all others.
    fn push(&mut self, digit: u64) {
        if digit > 0 || self.len > 0 {
            self.bytes[self.len] = b'0' + digit.to_le_bytes()[0];
            self.len += 1;
        }
    }

    /// Lowers the last digit while that leads nearer to the number. All in the same unit: `rest` is what is left of the
    /// upper end, `width` the interval, `unit` one of the last digit, and `target` where the number is below the upper end.
    fn approach(&mut self, mut rest: u64, width: u64, unit: u64, target: u64) {
        while rest < target && width - rest >= unit && (rest + unit < target || target - rest > rest + unit - target) {
            self.bytes[self.len - 1] -= 1;
            rest += unit;
        }
    }
}

/// The digits of a number greater than zero.
pub(super) fn digits_of(value: f64) -> Digits {
    let number = Scaled::of(value);
    let upper = Scaled::new((number.bits << 1) + 1, number.exponent - 1).normalized();
    // Below a power of two, numbers lie half as far apart.
    let shift = if number.bits == 1 << FRACTION_BITS { 2 } else { 1 };
    let lower = Scaled::new((number.bits << shift) - 1, number.exponent - shift);
    let lower = Scaled::new(lower.bits << (lower.exponent - upper.exponent), upper.exponent);
    let (power, exponent) = power_for(upper.exponent);
    let [number, mut upper, mut lower] = [number.normalized(), upper, lower].map(|scaled| scaled.times(power));
    // The product may be off by one: what is surely within the interval.
    upper.bits -= 1;
    lower.bits += 1;
    generate(number, upper, lower, -exponent)
}

/// A power of ten that brings an exponent into range, and which it is.
fn power_for(exponent: i32) -> (Scaled, i32) {
    // The logarithm of two to the base of ten; one way to choose where two powers would do.
    let guess = -f64::from(exponent + 87) * std::f64::consts::LOG10_2;
    // Truncated on purpose: the loop puts it right.
    let mut place = (guess as i32 - FIRST) / STEP;
    loop {
        let power = POWERS[usize::try_from(place).expect("the table covers all numbers")];
        let result = exponent + power.exponent + 64;
        if result < EXPONENT_MIN {
            place += 1;
        } else if result > EXPONENT_MAX {
            place -= 1;
        } else {
            return (power, FIRST + place * STEP);
        }
    }
}

/// Takes digits of the upper end until the rest is within the interval.
fn generate(number: Scaled, upper: Scaled, lower: Scaled, exponent: i32) -> Digits {
    let mut digits = Digits { bytes: [0; DIGITS_MAX + 1], len: 0, last: exponent };
    let point = upper.exponent.unsigned_abs();
    let one = 1_u64 << point;
    let target = upper.bits - number.bits;
    let mut width = upper.bits - lower.bits;
    let (mut whole, mut fraction) = (upper.bits >> point, upper.bits & (one - 1));
    let mut unit = 1_000_000_000;
    for left in (0..10).rev() {
        digits.push(whole / unit);
        whole %= unit;
        let rest = (whole << point) + fraction;
        if rest <= width {
            digits.last += left;
            digits.approach(rest, width, unit << point, target);
            return digits;
        }
        unit /= 10;
    }
    let mut scale = 1;
    loop {
        fraction *= 10;
        width *= 10;
        scale *= 10;
        digits.last -= 1;
        digits.push(fraction >> point);
        fraction &= one - 1;
        if fraction < width {
            digits.approach(fraction, width, one, target.wrapping_mul(scale));
            return digits;
        }
    }
}
