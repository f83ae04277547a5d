//! The processor's caches.

#![cfg_attr(
    target_arch = "x86_64",
    allow(unsafe_code, reason = "one instruction that is a hint, with no effect that a program can see")
)]

/// Bytes that come into a cache together.
const LINE_BYTES: usize = 64;

/// Asks for memory to be brought near, where the processor has an instruction for that. It neither waits nor reads: any address
/// may be given.
pub(super) fn fetch_ahead(from: *const u8, bytes: usize) {
    let before = from.addr() % LINE_BYTES;
    let first = from.wrapping_sub(before);
    for line in 0..bytes.saturating_add(before).div_ceil(LINE_BYTES) {
        fetch_line(first.wrapping_add(line * LINE_BYTES));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn fetch_line(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction is a hint. It faults at no address, and changes nothing that a program can read.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn fetch_line(_at: *const u8) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_may_be_given() {
        let bytes = vec![7_u8; 1_000];
        fetch_ahead(bytes.as_ptr(), bytes.len());
        fetch_ahead(std::ptr::null(), 1_000);
        fetch_ahead(std::ptr::dangling::<u8>().wrapping_add(1 << 40), 1);
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
}
