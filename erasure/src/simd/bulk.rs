//! Memory that is not in a cache: asked for before it is read, written past the caches.
//!
//! For every kernel alike, because each x86-64 CPU can do both. Elsewhere the intrinsics are not stable: nothing is
//! asked for, and writing is copying.

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{__m128i, _MM_HINT_T1, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_stream_si128};

#[cfg(target_arch = "x86_64")]
use super::vector::LINE_BYTES;

/// A cache line where one begins.
#[cfg(target_arch = "x86_64")]
#[repr(align(64))]
struct Line([u8; LINE_BYTES]);

/// Asks for `bytes` to be brought into the second-level cache, and does not wait.
#[inline]
pub(crate) fn ask_for(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE_BYTES) {
        // SAFETY: a prefetch never faults, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// Writes past the caches. When it is dropped, all that it has written comes before all later stores of this thread.
pub(crate) struct Streamer(());

impl Streamer {
    pub(crate) fn new() -> Self {
        Self(())
    }

    /// Copies `from` to `to`: whole lines past the caches, what stands before and after them through.
    ///
    /// # Panics
    /// If the lengths differ.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn copy(&mut self, from: &[u8], to: &mut [u8]) {
        assert!(from.len() == to.len(), "a copy is as long");
        // SAFETY: a line is any 64 bytes.
        let (head, lines, tail) = unsafe { to.align_to_mut::<Line>() };
        let (from_head, from) = from.split_at(head.len());
        let (from_lines, from_tail) = from.as_chunks::<LINE_BYTES>();
        head.copy_from_slice(from_head);
        for (line, from) in lines.iter_mut().zip(from_lines) {
            stream(from, line);
        }
        tail.copy_from_slice(from_tail);
    }

    /// Copies `from` to `to`.
    ///
    /// # Panics
    /// If the lengths differ.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn copy(&mut self, from: &[u8], to: &mut [u8]) {
        assert!(from.len() == to.len(), "a copy is as long");
        to.copy_from_slice(from);
    }
}

#[cfg(target_arch = "x86_64")]
impl Drop for Streamer {
    fn drop(&mut self) {
        // SAFETY: every x86-64 CPU has it.
        unsafe { _mm_sfence() }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn stream(from: &[u8; LINE_BYTES], to: &mut Line) {
    const REGISTER_BYTES: usize = size_of::<__m128i>();
    let (registers, places) = (from.as_chunks::<REGISTER_BYTES>().0, to.0.as_chunks_mut::<REGISTER_BYTES>().0);
    for (register, place) in registers.iter().zip(places) {
        // SAFETY: every x86-64 CPU has SSE2; a register's bytes are readable at any alignment.
        let value = unsafe { _mm_loadu_si128(register.as_ptr().cast()) };
        // SAFETY: every x86-64 CPU has SSE2; the place is a quarter of a line, so it is aligned and writable.
        unsafe { _mm_stream_si128(place.as_mut_ptr().cast(), value) };
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn copies_at_every_alignment_touch_nothing_else() {
        let from: Vec<u8> = (1..=250).collect();
        for start in 0..130 {
            for len in [0, 1, 15, 16, 63, 64, 65, 127, 128, 200] {
                let mut to = vec![0; 400];
                Streamer::new().copy(&from[start % 50..][..len], &mut to[start..start + len]);
                let mut expected = vec![0; 400];
                expected[start..start + len].copy_from_slice(&from[start % 50..][..len]);
                assert_eq!(to, expected, "{len} at {start}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "a copy is as long")]
    fn a_copy_is_as_long() {
        Streamer::new().copy(&[1, 2, 3], &mut [0; 2]);
    }
}
