//! SSSE3: 16 bytes a register, two shuffles a product.

use core::arch::x86_64::{
    __m128i, _MM_HINT_T0, _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128,
    _mm_prefetch, _mm_set1_epi8, _mm_setzero_si128, _mm_sfence, _mm_shuffle_epi8, _mm_srli_epi64, _mm_storeu_si128,
    _mm_stream_si128, _mm_xor_si128,
};

use super::nibble::Tables;
use super::vector::{Instructions, Vector, Work};

/// A factor's two tables, each in a register.
#[derive(Clone, Copy)]
pub(super) struct Lookup {
    low: __m128i,
    high: __m128i,
}

/// One register; exists only where SSSE3 does.
#[derive(Clone, Copy)]
pub(super) struct Xmm(__m128i);

impl Vector for Xmm {
    const BYTES: usize = 16;
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
        Lookup { low, high }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller vouches for the instruction set and for 16 readable bytes.
        Self(unsafe { _mm_loadu_si128(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: `self` exists, so the instruction set does; the caller vouches for 16 writable bytes.
        unsafe { _mm_storeu_si128(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: `self` exists, so the instruction set does; the caller vouches for 16 aligned writable bytes.
        unsafe { _mm_stream_si128(to.cast(), self.0) }
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
        Self(unsafe { _mm_xor_si128(self.0, other.0) })
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        // SAFETY: `self` exists, so the instruction set does.
        Self(unsafe { _mm_or_si128(self.0, other.0) })
    }

    #[inline(always)]
    fn multiply(self, by: Lookup) -> Self {
        // SAFETY: `self` exists, so the instruction set does.
        let mask = unsafe { _mm_set1_epi8(0x0f) };
        // SAFETY: as above.
        let low = unsafe { _mm_and_si128(self.0, mask) };
        // SAFETY: as above.
        let shifted = unsafe { _mm_srli_epi64::<4>(self.0) };
        // SAFETY: as above.
        let high = unsafe { _mm_and_si128(shifted, mask) };
        // SAFETY: as above.
        let low = unsafe { _mm_shuffle_epi8(by.low, low) };
        // SAFETY: as above.
        let high = unsafe { _mm_shuffle_epi8(by.high, high) };
        // SAFETY: as above.
        Self(unsafe { _mm_xor_si128(low, high) })
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        // SAFETY: `self` exists, so the instruction set does, and it includes SSE2.
        let zero = unsafe { _mm_setzero_si128() };
        // SAFETY: as above.
        let equal = unsafe { _mm_cmpeq_epi8(self.0, zero) };
        // SAFETY: as above.
        let mask = unsafe { _mm_movemask_epi8(equal) };
        mask == 0xffff
    }
}

impl Instructions for Xmm {
    const REGISTERS: usize = 16;
    const PRODUCT_REGISTERS: usize = 4;
    const OUTPUTS_MAX: usize = 4;

    #[inline]
    unsafe fn enter<W: Work>(work: W) -> bool {
        #[target_feature(enable = "ssse3")]
        fn compiled<W: Work>(work: W) -> bool {
            // SAFETY: this function runs only where the features are; the caller vouches for the rest.
            unsafe { work.run() }
        }
        // SAFETY: the caller vouches for the instruction set.
        unsafe { compiled(work) }
    }
}
