//! The program's allocator: the system's, which can be asked to count.
//!
//! Counting costs one relaxed load per allocation while it is off. `ashlar bench` turns it on to state allocations per
//! call and bytes per idle peer; nothing else does.

#![allow(
    unsafe_code,
    reason = "the trait of allocators is unsafe: every call is passed on, with a safe twin in the tests"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// The system's allocator with counters in front.
struct Counted;

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

#[global_allocator]
static HEAP: Counted = Counted;

/// What was counted since counting began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapCounts {
    /// Allocations; growing one in place or by moving counts as one.
    pub allocations: u64,
    /// Bytes allocated less bytes freed; negative when more of what was there before is gone.
    pub live_bytes: i64,
}

/// Starts or stops counting, for the whole process.
pub fn count(on: bool) {
    IS_COUNTING.store(on, Ordering::Relaxed);
}

/// The counters, as they stand.
#[must_use]
pub fn counts() -> HeapCounts {
    HeapCounts { allocations: ALLOCATIONS.load(Ordering::Relaxed), live_bytes: LIVE_BYTES.load(Ordering::Relaxed) }
}

fn note(allocations: u64, added: usize, removed: usize) {
    if IS_COUNTING.load(Ordering::Relaxed) {
        ALLOCATIONS.fetch_add(allocations, Ordering::Relaxed);
        let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        LIVE_BYTES.fetch_add(signed(added) - signed(removed), Ordering::Relaxed);
    }
}

// SAFETY: every call goes unchanged to the system's allocator, whose promises are therefore ours; the counters are
// atomics and allocate nothing.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size(), 0);
        // SAFETY: the caller keeps the same contract towards us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(0, 0, layout.size());
        // SAFETY: the caller keeps the same contract towards us, and `pointer` came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size(), 0);
        // SAFETY: the caller keeps the same contract towards us.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(1, size, layout.size());
        // SAFETY: the caller keeps the same contract towards us, and `pointer` came from the system's allocator.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The safe twin: what a vector says about itself.
    #[test]
    fn counts_what_a_vector_takes() {
        count(true);
        let before = counts();
        // Far more than the tests beside this one can free meanwhile; it is never touched.
        let vector: Vec<u8> = Vec::with_capacity(256 << 20);
        let during = counts();
        assert!(during.allocations > before.allocations);
        assert!(during.live_bytes - before.live_bytes >= 128 << 20);
        drop(vector);
        count(false);
    }
}
