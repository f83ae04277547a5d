//! Sums of decimal numbers as C's `long double` makes them on x86-64: 64 bits of mantissa, 17 digits behind the point.
//!
//! INCRBYFLOAT and HINCRBYFLOAT show such sums, so that 0.1 and 0.2 are 0.3, and 5000 and 5.6 are 5005.60000000000000009. Numbers
//! are read, added and written with one rounding each, to the nearest, halves to even. Numbers so small that 17 digits do not
//! show them lose bits that C keeps.

use super::score::parse_number;

/// The most bytes of a number.
const TEXT_BYTES_MAX: usize = 5 * 1_024 - 1;
/// Digits behind the point.
const PLACES: u32 = 17;
const SCALE: u128 = 10_u128.pow(PLACES);
/// Powers of two and of ten that are too great, or too small.
const POWER_MAX: i32 = 16_384;
const POWER_MIN: i32 = -16_446;
const POWER_OF_TEN_MAX: i64 = 5_000;

/// A number with a mantissa of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extended {
    /// Too great, or written so.
    Infinite,
    /// A number.
    Finite(Finite),
}

/// `mantissa * 2^power`; the mantissa's highest bit is set unless it is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finite {
    is_negative: bool,
    mantissa: u64,
    power: i32,
}

impl Extended {
    /// Rounds `bits * 2^power`, of which the lowest bit also stands for all that lies below it.
    fn round(is_negative: bool, bits: u128, power: i32) -> Self {
        if bits == 0 {
            return Self::Finite(Finite { is_negative, mantissa: 0, power: 0 });
        }
        let shift = 64 - bits.leading_zeros().cast_signed();
        let (mut mantissa, mut power) = match u32::try_from(shift) {
            Ok(shift) => (half_even(bits, shift), power + shift.cast_signed()),
            Err(_) => (bits << shift.unsigned_abs(), power + shift),
        };
        if mantissa >> 64 != 0 {
            (mantissa, power) = (mantissa >> 1, power + 1);
        }
        if power + 64 > POWER_MAX {
            return Self::Infinite;
        }
        let mantissa = u64::try_from(mantissa).expect("it was cut to 64 bits");
        Self::Finite(Finite { is_negative, mantissa, power })
    }

    /// Reads what C's `strtold` reads in full; not a number is refused. Hexadecimal numbers only to 53 bits.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (is_negative, unsigned) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        if !matches!(unsigned, [b'0'..=b'9' | b'.', ..]) || matches!(unsigned, [b'0', b'x' | b'X', ..]) {
            return parse_number(text).map(Self::from_f64);
        }
        let end = unsigned.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(unsigned.len());
        let mut power = match unsigned.get(end + 1..) {
            None => 0,
            Some(digits) => parse_power(digits)?,
        };
        let (mut digits, mut count, mut is_fraction) = (Natural::default(), 0, false);
        for byte in &unsigned[..end] {
            match byte {
                b'.' if !is_fraction => is_fraction = true,
                b'0'..=b'9' => {
                    digits.multiply_add(10, u32::from(byte - b'0'));
                    count += 1;
                    power -= i64::from(is_fraction);
                }
                _ => return None,
            }
        }
        if count == 0 {
            return None;
        }
        let is_zero = digits.bits() == 0;
        match Self::from_decimal(is_negative, digits, power) {
            Self::Infinite => None,
            Self::Finite(number) if !is_zero && number.is_vanishing() => None,
            number => Some(number),
        }
    }

    /// Rounds `digits * 10^power`.
    fn from_decimal(is_negative: bool, mut digits: Natural, power: i64) -> Self {
        let digits_len = i64::try_from(digits.bits() / 3).unwrap_or(i64::MAX);
        if digits.bits() == 0 || power < -2 * POWER_OF_TEN_MAX - digits_len {
            return Self::round(is_negative, 0, 0);
        }
        if power > POWER_OF_TEN_MAX {
            return Self::Infinite;
        }
        if power >= 0 {
            (0..power).for_each(|_| digits.multiply_add(10, 0));
            let (bits, shift) = digits.highest();
            return Self::round(is_negative, bits, shift);
        }
        let mut divisor = Natural(vec![1]);
        (0..-power).for_each(|_| divisor.multiply_add(10, 0));
        let (quotient, shift) = digits.divide(divisor);
        Self::round(is_negative, quotient, shift)
    }

    fn from_f64(value: f64) -> Self {
        if value.is_infinite() {
            return Self::Infinite;
        }
        let bits = value.to_bits();
        let exponent = i32::try_from(bits >> 52 & 0x7ff).expect("11 bits");
        let fraction = u128::from(bits & ((1 << 52) - 1));
        let (mantissa, power) = if exponent == 0 { (fraction, -1_074) } else { (fraction | 1 << 52, exponent - 1_075) };
        Self::round(value.is_sign_negative(), mantissa, power)
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let (Self::Finite(left), Self::Finite(right)) = (self, other) else { return Self::Infinite };
        let (large, small) = if left.order() >= right.order() { (left, right) } else { (right, left) };
        if large.mantissa == 0 || small.mantissa == 0 {
            return Self::Finite(large);
        }
        // 62 bits behind the larger one's: what falls off the smaller one's end only matters for rounding.
        let (first, second) = (u128::from(large.mantissa) << 62, u128::from(small.mantissa) << 62);
        let distance = (large.power - small.power).unsigned_abs().min(127);
        let shifted = second >> distance;
        let second = shifted | u128::from(shifted << distance != second);
        let power = large.power - 62;
        if large.is_negative == small.is_negative {
            return Self::round(large.is_negative, first + second, power);
        }
        let is_negative = if first >= second { large.is_negative } else { small.is_negative };
        Self::round(is_negative, first.abs_diff(second), power)
    }
}

impl Finite {
    /// Whether C has no number so near to zero.
    fn is_vanishing(self) -> bool {
        self.mantissa == 0 || self.power + 63 < POWER_MIN
    }

    /// By magnitude, roughly: zero is least.
    fn order(self) -> (bool, i32) {
        (self.mantissa != 0, self.power)
    }

    /// With up to 17 digits behind the point, without zeros at the end.
    #[must_use]
    pub fn text(self) -> String {
        let sign = if self.is_negative { "-" } else { "" };
        let (whole, fraction) = match u32::try_from(self.power) {
            Ok(power) => (Natural::from_bits(self.mantissa, power).decimal(), 0),
            Err(_) => {
                let scaled = half_even(u128::from(self.mantissa) * SCALE, self.power.unsigned_abs());
                ((scaled / SCALE).to_string(), scaled % SCALE)
            }
        };
        match fraction {
            0 if whole == "0" => whole,
            0 => format!("{sign}{whole}"),
            _ => {
                let digits = format!("{fraction:017}");
                format!("{sign}{whole}.{}", digits.trim_end_matches('0'))
            }
        }
    }
}

/// Takes low bits away, rounding to the nearest, halves to even.
fn half_even(bits: u128, shift: u32) -> u128 {
    if shift == 0 {
        return bits;
    }
    if shift > 127 {
        return 0;
    }
    let (kept, lost, half) = (bits >> shift, bits & ((1 << shift) - 1), 1 << (shift - 1));
    kept + u128::from(lost > half || lost == half && kept & 1 == 1)
}

/// An exponent of ten, kept to what still makes a difference.
fn parse_power(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let mut power = 0_i64;
    for byte in digits {
        let digit = char::from(*byte).to_digit(10)?;
        power = (power * 10 + i64::from(digit)).min(1 << 40);
    }
    (!digits.is_empty()).then_some(if is_negative { -power } else { power })
}

/// A natural number of any size, lowest limb first; the highest limb is not zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Natural(Vec<u32>);

impl Natural {
    fn from_bits(bits: u64, shift: u32) -> Self {
        let mut limbs = vec![0; shift as usize / 32];
        let shifted = (u128::from(bits) << (shift % 32)).to_le_bytes();
        limbs.extend(shifted.as_chunks::<4>().0.iter().map(|limb| u32::from_le_bytes(*limb)));
        let mut number = Self(limbs);
        number.trim();
        number
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn bits(&self) -> usize {
        self.0.last().map_or(0, |limb| self.0.len() * 32 - limb.leading_zeros() as usize)
    }

    fn multiply_add(&mut self, factor: u32, more: u32) {
        let mut carry = u64::from(more);
        for limb in &mut self.0 {
            let sum = u64::from(*limb) * u64::from(factor) + carry;
            let [low, high] = halves(sum);
            (*limb, carry) = (low, u64::from(high));
        }
        self.0.extend(u32::try_from(carry).ok().filter(|carry| *carry > 0));
    }

    fn shift_left(&mut self, bits: usize) {
        let (limbs, factor) = (bits / 32, 1_u32 << (bits % 32));
        self.multiply_add(factor, 0);
        self.0.splice(0..0, std::iter::repeat_n(0, limbs));
        self.trim();
    }

    /// The highest bits, up to 127, the lowest of which also stands for those cut off; and how many those were.
    fn highest(&self) -> (u128, i32) {
        let limbs = self.0.len().min(3);
        let (low, high) = self.0.split_at(self.0.len() - limbs);
        let bits = high.iter().rev().fold(0, |bits, limb| bits << 32 | u128::from(*limb));
        let shift = i32::try_from(low.len() * 32).expect("numbers have few limbs");
        (bits << 1 | u128::from(low.iter().any(|limb| *limb != 0)), shift - 1)
    }

    fn is_below(&self, other: &Self) -> bool {
        (self.0.len(), self.0.iter().rev().collect::<Vec<_>>()) < (other.0.len(), other.0.iter().rev().collect())
    }

    fn subtract(&mut self, other: &Self) {
        let mut borrow = 0;
        for (at, limb) in self.0.iter_mut().enumerate() {
            let less = u64::from(other.0.get(at).copied().unwrap_or(0)) + borrow;
            let sum = (1 << 32) + u64::from(*limb) - less;
            let [low, high] = halves(sum);
            (*limb, borrow) = (low, 1 - u64::from(high));
        }
        self.trim();
    }

    /// The first 100 bits of a quotient, the lowest of which also stands for the rest; and the power of two they are to be taken by.
    fn divide(mut self, mut divisor: Self) -> (u128, i32) {
        const BITS: i32 = 100;
        let distance = self.bits().abs_diff(divisor.bits());
        let shift = i32::try_from(distance).expect("numbers have few limbs");
        let is_longer = self.bits() > divisor.bits();
        if is_longer { &mut divisor } else { &mut self }.shift_left(distance);
        let mut quotient = 0_u128;
        for _ in 0..BITS {
            let is_one = !self.is_below(&divisor);
            quotient = quotient << 1 | u128::from(is_one);
            if is_one {
                self.subtract(&divisor);
            }
            self.shift_left(1);
        }
        let power = if is_longer { shift } else { -shift } - (BITS - 1);
        (quotient << 1 | u128::from(!self.0.is_empty()), power - 1)
    }

    fn decimal(mut self) -> String {
        const GROUP: u64 = 1_000_000_000;
        let mut groups = Vec::new();
        while !self.0.is_empty() {
            let mut rest = 0;
            for limb in self.0.iter_mut().rev() {
                let value = rest << 32 | u64::from(*limb);
                *limb = u32::try_from(value / GROUP).expect("the rest is below the divisor");
                rest = value % GROUP;
            }
            self.trim();
            groups.push(rest);
        }
        let Some(first) = groups.pop() else { return "0".into() };
        groups.iter().rev().fold(first.to_string(), |text, group| text + &format!("{group:09}"))
    }
}

/// The low and the high half.
fn halves(value: u64) -> [u32; 2] {
    let bytes = value.to_le_bytes();
    let (halves, _) = bytes.as_chunks::<4>();
    [u32::from_le_bytes(halves[0]), u32::from_le_bytes(halves[1])]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(left: &str, right: &str) -> Option<String> {
        let parse = |text: &str| Extended::parse(text.as_bytes());
        match parse(left)?.plus(parse(right)?) {
            Extended::Finite(sum) => Some(sum.text()),
            Extended::Infinite => Some("inf".into()),
        }
    }

    #[test]
    fn sums_as_valkey_shows_them() {
        for (left, right, expected) in [
            ("0", "0.1", "0.1"),
            ("0.1", "0.2", "0.3"),
            ("10.5", "0.1", "10.6"),
            ("5.6", "5.0e3", "5005.60000000000000009"),
            ("3", "-3", "0"),
            ("-0.5", "0.25", "-0.25"),
            ("1e17", "1", "100000000000000001"),
            ("1e30", "1", "1000000000000000000024696061952"),
            ("0x10", ".5", "16.5"),
            ("inf", "1", "inf"),
            ("1e4932", "1e4932", "inf"),
        ] {
            assert_eq!(sum(left, right).as_deref(), Some(expected), "{left} + {right}");
        }
        for text in ["", ".", "-", "1e", "1.2.3", "1x", " 1", "nan", "1e5000", "1e-5000"] {
            assert_eq!(Extended::parse(text.as_bytes()), None, "{text}");
        }
    }
}
