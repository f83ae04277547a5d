//! Plain integers: 32 bytes at a time, eight masked sums a product. Runs everywhere, and is the kernels' safe twin.

use super::vector::{Instructions, Vector, Work};
use crate::field::double;

/// Words of one register.
const WORDS: usize = 4;

/// The lowest bit of every byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Bytes that stand for one register.
#[derive(Clone, Copy)]
pub(super) struct Words([u64; WORDS]);

impl Words {
    #[inline(always)]
    fn map(self, change: impl Fn(u64) -> u64) -> Self {
        let mut words = self.0;
        words.iter_mut().for_each(|word| *word = change(*word));
        Self(words)
    }

    #[inline(always)]
    fn zip(self, other: Self, join: impl Fn(u64, u64) -> u64) -> Self {
        let mut words = self.0;
        words.iter_mut().zip(other.0).for_each(|(word, other)| *word = join(*word, other));
        Self(words)
    }
}

impl Vector for Words {
    const BYTES: usize = 8 * WORDS;

    /// The products of the element with each power of x, so with each bit of a byte.
    type Factor = [u8; 8];
    type Prepared = [u8; 8];

    fn factor(element: u8) -> [u8; 8] {
        let mut products = [element; 8];
        for bit in 1..8 {
            products[bit] = double(products[bit - 1]);
        }
        products
    }

    #[inline(always)]
    unsafe fn prepare(factor: &[u8; 8]) -> [u8; 8] {
        *factor
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller vouches for 32 readable bytes.
        Self(unsafe { from.cast::<[u64; WORDS]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller vouches for 32 writable bytes.
        unsafe { to.cast::<[u64; WORDS]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller vouches for 32 writable bytes.
        unsafe { self.store(to) }
    }

    #[inline(always)]
    fn fence() {}

    #[inline(always)]
    fn prefetch(_at: *const u8) {}

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self.zip(other, |a, b| a ^ b)
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    #[inline(always)]
    fn multiply(self, by: [u8; 8]) -> Self {
        let mut sum = Self([0; WORDS]);
        for (bit, product) in by.into_iter().enumerate() {
            // Each byte's bit times 255 is a mask of the whole byte, without a carry into the next.
            let product = u64::from(product).wrapping_mul(ONES);
            sum = sum.xor(self.map(|word| (word >> bit & ONES).wrapping_mul(255) & product));
        }
        sum
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }
}

impl Instructions for Words {
    const REGISTERS: usize = 1;
    const PRODUCT_REGISTERS: usize = 4;
    const OUTPUTS_MAX: usize = 2;

    #[inline]
    unsafe fn enter<W: Work>(work: W) -> bool {
        // SAFETY: there is no instruction set to have; the caller vouches for the rest.
        unsafe { work.run() }
    }
}
