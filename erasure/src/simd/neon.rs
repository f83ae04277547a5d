//! NEON: 16 bytes a register, two table look-ups a product. Every aarch64 CPU has it.
//!
//! On other CPUs the tests compile this file over a model of the eight instructions that it uses.

#[cfg(target_arch = "aarch64")]
use core::arch::aarch64 as arch;

#[cfg(not(target_arch = "aarch64"))]
use super::neon_model as arch;

use arch::{
    uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vmaxvq_u8, vorrq_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8,
};

use super::nibble::Tables;
use super::vector::{Instructions, Vector, Work};

/// A factor's two tables, each in a register.
#[derive(Clone, Copy)]
pub(super) struct Lookup {
    low: uint8x16_t,
    high: uint8x16_t,
}

/// One register.
#[derive(Clone, Copy)]
pub(super) struct Neon(uint8x16_t);

impl Vector for Neon {
    const BYTES: usize = 16;
    type Factor = Tables;
    type Prepared = Lookup;

    fn factor(element: u8) -> Tables {
        Tables::of(element)
    }

    #[inline(always)]
    unsafe fn prepare(factor: &Tables) -> Lookup {
        // SAFETY: the table is 16 bytes.
        let low = unsafe { vld1q_u8(factor.low.as_ptr()) };
        // SAFETY: the table is 16 bytes.
        let high = unsafe { vld1q_u8(factor.high.as_ptr()) };
        Lookup { low, high }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller vouches for 16 readable bytes.
        Self(unsafe { vld1q_u8(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller vouches for 16 writable bytes.
        unsafe { vst1q_u8(to, self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller vouches for 16 writable bytes.
        unsafe { self.store(to) }
    }

    #[inline(always)]
    fn fence() {}

    #[inline(always)]
    fn prefetch(_at: *const u8) {}

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: NEON is part of the target.
        Self(unsafe { veorq_u8(self.0, other.0) })
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        // SAFETY: NEON is part of the target.
        Self(unsafe { vorrq_u8(self.0, other.0) })
    }

    #[inline(always)]
    fn multiply(self, by: Lookup) -> Self {
        // SAFETY: NEON is part of the target.
        let mask = unsafe { vdupq_n_u8(0x0f) };
        // SAFETY: as above.
        let low = unsafe { vandq_u8(self.0, mask) };
        // SAFETY: as above.
        let high = unsafe { vshrq_n_u8::<4>(self.0) };
        // SAFETY: as above.
        let low = unsafe { vqtbl1q_u8(by.low, low) };
        // SAFETY: as above.
        let high = unsafe { vqtbl1q_u8(by.high, high) };
        // SAFETY: as above.
        Self(unsafe { veorq_u8(low, high) })
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        // SAFETY: NEON is part of the target.
        let greatest = unsafe { vmaxvq_u8(self.0) };
        greatest == 0
    }
}

impl Instructions for Neon {
    const REGISTERS: usize = 32;
    const PRODUCT_REGISTERS: usize = 4;
    const OUTPUTS_MAX: usize = 4;

    #[inline]
    unsafe fn enter<W: Work>(work: W) -> bool {
        // SAFETY: NEON is part of the target; the caller vouches for the rest.
        unsafe { work.run() }
    }
}
