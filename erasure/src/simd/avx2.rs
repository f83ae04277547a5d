//! AVX2: 32 bytes a register, two shuffles a product.

use core::arch::x86_64::{
    __m256i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_loadu_si256, _mm256_or_si256, _mm256_set1_epi8, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256,
    _mm256_stream_si256, _mm256_testz_si256, _mm256_xor_si256,
};

use super::nibble::Tables;
use super::vector::{Instructions, Vector, Work};

/// A factor's two tables, each in a register.
#[derive(Clone, Copy)]
pub(super) struct Lookup {
    low: __m256i,
    high: __m256i,
}

/// One register; exists only where AVX2 does.
#[derive(Clone, Copy)]
pub(super) struct Ymm(__m256i);

impl Vector for Ymm {
    const BYTES: usize = 32;
    type Factor = Tables;
    type Prepared = Lookup;

    fn factor(element: u8) -> Tables {
        Tables::of(element)
    }

    #[inline(always)]
    unsafe fn prepare(factor: &Tables) -> Lookup {
        // SAFETY: the caller vouches for the instruction set; the table is 16 bytes.
        let low = unsafe { _mm_loadu_si128(factor.low.as_ptr().cast()) };
        // SAFETY: the caller vouches for the instruction set; the table is 16 bytes.
        let high = unsafe { _mm_loadu_si128(factor.high.as_ptr().cast()) };
        // SAFETY: the caller vouches for the instruction set.
        let low = unsafe { _mm256_broadcastsi128_si256(low) };
        // SAFETY: the caller vouches for the instruction set.
        let high = unsafe { _mm256_broadcastsi128_si256(high) };
        Lookup { low, high }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller vouches for the instruction set and for 32 readable bytes.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: `self` exists, so the instruction set does; the caller vouches for 32 writable bytes.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: `self` exists, so the instruction set does; the caller vouches for 32 aligned writable bytes.
        unsafe { _mm256_stream_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    fn fence() {
        // SAFETY: every x86-64 CPU has it.
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    fn prefetch(at: *const u8) {
        // SAFETY: a prefetch never faults, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: `self` exists, so the instruction set does.
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        // SAFETY: `self` exists, so the instruction set does.
        Self(unsafe { _mm256_or_si256(self.0, other.0) })
    }

    #[inline(always)]
    fn multiply(self, by: Lookup) -> Self {
        // SAFETY: `self` exists, so the instruction set does.
        let mask = unsafe { _mm256_set1_epi8(0x0f) };
        // SAFETY: as above.
        let low = unsafe { _mm256_and_si256(self.0, mask) };
        // SAFETY: as above.
        let shifted = unsafe { _mm256_srli_epi64::<4>(self.0) };
        // SAFETY: as above.
        let high = unsafe { _mm256_and_si256(shifted, mask) };
        // SAFETY: as above.
        let low = unsafe { _mm256_shuffle_epi8(by.low, low) };
        // SAFETY: as above.
        let high = unsafe { _mm256_shuffle_epi8(by.high, high) };
        // SAFETY: as above.
        Self(unsafe { _mm256_xor_si256(low, high) })
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        // SAFETY: `self` exists, so the instruction set does.
        let is_zero = unsafe { _mm256_testz_si256(self.0, self.0) };
        is_zero == 1
    }
}

impl Instructions for Ymm {
    const REGISTERS: usize = 16;
    const PRODUCT_REGISTERS: usize = 4;
    const OUTPUTS_MAX: usize = 4;

    #[inline]
    unsafe fn enter<W: Work>(work: W) -> bool {
        #[target_feature(enable = "avx2")]
        fn compiled<W: Work>(work: W) -> bool {
            // SAFETY: this function runs only where the features are; the caller vouches for the rest.
            unsafe { work.run() }
        }
        // SAFETY: the caller vouches for the instruction set.
        unsafe { compiled(work) }
    }
}
