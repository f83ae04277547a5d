//! Which instruction sets this CPU and its operating system offer.
//!
//! `std` can tell, but this crate stands without it; and the small crates that can tell without `std` count GFNI as a
//! part of AVX-512, which it is not.

use core::sync::atomic::{AtomicU8, Ordering};

/// What was found, as bits; one asking of the CPU costs tens of microseconds under a hypervisor.
static FOUND: AtomicU8 = AtomicU8::new(0);

const ASKED: u8 = 1;
pub(super) const SSSE3: u8 = 1 << 1;
pub(super) const AVX2: u8 = 1 << 2;
/// F and BW.
pub(super) const AVX512: u8 = 1 << 3;
pub(super) const GFNI: u8 = 1 << 4;

/// Whether all `wanted` are there.
pub(super) fn has(wanted: u8) -> bool {
    let mut found = FOUND.load(Ordering::Relaxed);
    if found & ASKED == 0 {
        found = ask() | ASKED;
        FOUND.store(found, Ordering::Relaxed);
    }
    found & wanted == wanted
}

/// Intel's manual, volume 2A, `CPUID`, and volume 1, chapter 13, for what the operating system saves.
fn ask() -> u8 {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    const OSXSAVE: u32 = 1 << 27;
    const YMM_STATE: u64 = 0b0000_0110;
    const ZMM_STATE: u64 = 0b1110_0110;

    let leaf_max = __cpuid(0).eax;
    let basic = __cpuid(1);
    let (extended_ebx, extended_ecx) = if leaf_max >= 7 {
        let extended = __cpuid_count(7, 0);
        (extended.ebx, extended.ecx)
    } else {
        (0, 0)
    };
    let saved = if basic.ecx & OSXSAVE == 0 { 0 } else { saved_state() };
    let saves = |state: u64| saved & state == state;
    let facts = [
        (SSSE3, basic.ecx & 1 << 9 != 0),
        (AVX2, extended_ebx & 1 << 5 != 0 && saves(YMM_STATE)),
        (AVX512, extended_ebx & 1 << 16 != 0 && extended_ebx & 1 << 30 != 0 && saves(ZMM_STATE)),
        (GFNI, extended_ecx & 1 << 8 != 0),
    ];
    facts.iter().filter(|(_, is_there)| *is_there).fold(0, |found, (bit, _)| found | bit)
}

/// The registers that the operating system saves at a switch of threads.
fn saved_state() -> u64 {
    #[target_feature(enable = "xsave")]
    fn read() -> u64 {
        // SAFETY: register 0 exists wherever `xgetbv` does.
        unsafe { core::arch::x86_64::_xgetbv(0) }
    }
    // SAFETY: the caller saw OSXSAVE, which means that `xgetbv` may be used.
    unsafe { read() }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn agrees_with_the_standard_library() {
        use std::arch::is_x86_feature_detected;
        assert_eq!(has(SSSE3), is_x86_feature_detected!("ssse3"));
        assert_eq!(has(AVX2), is_x86_feature_detected!("avx2"));
        let has_avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        assert_eq!(has(AVX512), has_avx512);
        assert_eq!(has(GFNI), is_x86_feature_detected!("gfni"));
    }
}
