//! The NEON instructions that `neon` uses, modelled in plain Rust after Arm's reference, for tests on other CPUs.
//!
//! None is inlined: unrolled kernels of modelled instructions would take minutes to compile.

#![allow(non_camel_case_types, reason = "the names are Arm's")]

/// Sixteen bytes; lane 0 is the byte at the lowest address.
#[derive(Clone, Copy)]
pub(super) struct uint8x16_t([u8; 16]);

fn lanes(a: uint8x16_t, b: uint8x16_t, join: impl Fn(u8, u8) -> u8) -> uint8x16_t {
    uint8x16_t(core::array::from_fn(|lane| join(a.0[lane], b.0[lane])))
}

/// LD1.
///
/// # Safety
/// `from` is good for reading 16 bytes.
#[inline(never)]
pub(super) unsafe fn vld1q_u8(from: *const u8) -> uint8x16_t {
    // SAFETY: the caller vouches for 16 readable bytes.
    uint8x16_t(unsafe { from.cast::<[u8; 16]>().read_unaligned() })
}

/// ST1.
///
/// # Safety
/// `to` is good for writing 16 bytes.
#[inline(never)]
pub(super) unsafe fn vst1q_u8(to: *mut u8, value: uint8x16_t) {
    // SAFETY: the caller vouches for 16 writable bytes.
    unsafe { to.cast::<[u8; 16]>().write_unaligned(value.0) }
}

/// EOR.
///
/// # Safety
/// None is needed here; the instruction that it models wants NEON.
#[inline(never)]
pub(super) unsafe fn veorq_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
    lanes(a, b, |a, b| a ^ b)
}

/// ORR.
///
/// # Safety
/// None is needed here; the instruction that it models wants NEON.
#[inline(never)]
pub(super) unsafe fn vorrq_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
    lanes(a, b, |a, b| a | b)
}

/// AND.
///
/// # Safety
/// None is needed here; the instruction that it models wants NEON.
#[inline(never)]
pub(super) unsafe fn vandq_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
    lanes(a, b, |a, b| a & b)
}

/// DUP.
///
/// # Safety
/// None is needed here; the instruction that it models wants NEON.
#[inline(never)]
pub(super) unsafe fn vdupq_n_u8(value: u8) -> uint8x16_t {
    uint8x16_t([value; 16])
}

/// USHR: a logical shift of each lane.
///
/// # Safety
/// None is needed here; the instruction that it models wants NEON.
#[inline(never)]
pub(super) unsafe fn vshrq_n_u8<const N: i32>(a: uint8x16_t) -> uint8x16_t {
    lanes(a, a, |a, _| a >> N)
}

/// TBL: an index beyond the table gives zero.
///
/// # Safety
/// None is needed here; the instruction that it models wants NEON.
#[inline(never)]
pub(super) unsafe fn vqtbl1q_u8(table: uint8x16_t, index: uint8x16_t) -> uint8x16_t {
    lanes(index, index, |index, _| table.0.get(usize::from(index)).copied().unwrap_or(0))
}

/// UMAXV.
///
/// # Safety
/// None is needed here; the instruction that it models wants NEON.
#[inline(never)]
pub(super) unsafe fn vmaxvq_u8(a: uint8x16_t) -> u8 {
    a.0.into_iter().fold(0, u8::max)
}
