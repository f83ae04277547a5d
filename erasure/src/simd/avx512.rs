//! AVX-512 with GFNI: 64 bytes a register, one instruction a product, a three-way exclusive-or.

use core::arch::x86_64::{
    __m512i, _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_or_si512,
    _mm512_set1_epi64, _mm512_storeu_si512, _mm512_stream_si512, _mm512_ternarylogic_epi64, _mm512_test_epi64_mask,
    _mm512_xor_si512,
};

use super::affine;
use super::vector::{Instructions, Vector, Work};

/// The truth table of an exclusive-or of three bits, as `vpternlog` wants it.
const XOR3: i32 = 0x96;

/// One register; exists only where AVX-512 (F and BW) and GFNI do.
#[derive(Clone, Copy)]
pub(super) struct Zmm(__m512i);

impl Vector for Zmm {
    const BYTES: usize = 64;
    type Factor = u64;
    type Prepared = Self;

    fn factor(element: u8) -> u64 {
        affine::matrix_of(element)
    }

    #[inline(always)]
    unsafe fn prepare(factor: &u64) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        Self(unsafe { _mm512_set1_epi64(factor.cast_signed()) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller vouches for the instruction set and for 64 readable bytes.
        Self(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: `self` exists, so the instruction set does; the caller vouches for 64 writable bytes.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: `self` exists, so the instruction set does; the caller vouches for 64 aligned writable bytes.
        unsafe { _mm512_stream_si512(to.cast(), self.0) }
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
        Self(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn xor3(self, second: Self, third: Self) -> Self {
        // SAFETY: `self` exists, so the instruction set does.
        Self(unsafe { _mm512_ternarylogic_epi64::<XOR3>(self.0, second.0, third.0) })
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        // SAFETY: `self` exists, so the instruction set does.
        Self(unsafe { _mm512_or_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn multiply(self, by: Self) -> Self {
        // SAFETY: `self` exists, so the instruction set does.
        Self(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self.0, by.0) })
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        // SAFETY: `self` exists, so the instruction set does.
        let nonzero_lanes = unsafe { _mm512_test_epi64_mask(self.0, self.0) };
        nonzero_lanes == 0
    }
}

impl Instructions for Zmm {
    const REGISTERS: usize = 32;
    const PRODUCT_REGISTERS: usize = 0;
    const OUTPUTS_MAX: usize = 8;

    #[inline]
    unsafe fn enter<W: Work>(work: W) -> bool {
        #[target_feature(enable = "avx512f,avx512bw,gfni")]
        fn compiled<W: Work>(work: W) -> bool {
            // SAFETY: this function runs only where the features are; the caller vouches for the rest.
            unsafe { work.run() }
        }
        // SAFETY: the caller vouches for the instruction set.
        unsafe { compiled(work) }
    }
}
