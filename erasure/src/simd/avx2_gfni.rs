//! AVX2 with GFNI: 32 bytes a register, one instruction a product.

use core::arch::x86_64::{
    __m256i, _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256, _mm256_or_si256,
    _mm256_set1_epi64x, _mm256_storeu_si256, _mm256_stream_si256, _mm256_testz_si256, _mm256_xor_si256,
};

use super::affine;
use super::vector::{Instructions, Vector, Work};

/// One register; exists only where AVX2 and GFNI do.
#[derive(Clone, Copy)]
pub(super) struct Ymm(__m256i);

impl Vector for Ymm {
    const BYTES: usize = 32;
    type Factor = u64;
    type Prepared = Self;

    fn factor(element: u8) -> u64 {
        affine::matrix_of(element)
    }

    #[inline(always)]
    unsafe fn prepare(factor: &u64) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        Self(unsafe { _mm256_set1_epi64x(factor.cast_signed()) })
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
    fn multiply(self, by: Self) -> Self {
        // SAFETY: `self` exists, so the instruction set does.
        Self(unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(self.0, by.0) })
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
    const PRODUCT_REGISTERS: usize = 0;
    const OUTPUTS_MAX: usize = 8;

    #[inline]
    unsafe fn enter<W: Work>(work: W) -> bool {
        #[target_feature(enable = "avx2,gfni")]
        fn compiled<W: Work>(work: W) -> bool {
            // SAFETY: this function runs only where the features are; the caller vouches for the rest.
            unsafe { work.run() }
        }
        // SAFETY: the caller vouches for the instruction set.
        unsafe { compiled(work) }
    }
}
