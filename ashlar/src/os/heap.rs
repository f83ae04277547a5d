//! The program's allocator: the system's, with a count of the bytes in use.
//!
//! Each thread counts for itself and adds to the total when it has come to `BATCH_BYTES`, so that threads that allocate hardly
//! ever share a cache line, and whoever reads the total reads one. It is wrong by at most that much a thread, by less while
//! somebody follows it. What is counted is what the system's allocator takes for a request, its own head and rounding included, as
//! far as both are known.
//!
//! How many allocations there were is counted only while `ashlar bench` wants to know.

#![allow(
    unsafe_code,
    reason = "the trait of allocators is unsafe: every call is passed on, with a safe twin in the tests"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// The system's allocator with counters in front.
struct Counted;

/// How much a thread allocates or frees before the total knows.
const BATCH_BYTES: i64 = 16 << 10;
/// The same while something follows the total closely, as what is evicted does: the tick, on a thread of its own, would take
/// out keys for what a worker has freed and not told.
const FOLLOWED_BATCH_BYTES: i64 = 1 << 10;
/// What the system's allocator keeps before each allocation, what it rounds to, and the least that it gives, bytes.
const HEAD_BYTES: usize = 8;
const ROUND_BYTES: usize = 16;
const LEAST_BYTES: usize = 32;

/// A cache line of its own: what is changed often must not take along what every allocation reads.
#[repr(align(128))]
struct Lone<T>(T);

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
/// How many follow the total closely.
static FOLLOWERS: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: Lone<AtomicU64> = Lone(AtomicU64::new(0));
/// Bytes in use, but for what threads have not told yet.
static LIVE_BYTES: Lone<AtomicI64> = Lone(AtomicI64::new(0));

thread_local! {
    /// What this thread has not told the total: needs no destructor, so it is there as long as the thread allocates.
    static UNTOLD: Cell<i64> = const { Cell::new(0) };
    static STAGE: Cell<Stage> = const { Cell::new(Stage::New) };
    /// Tells the rest when the thread ends.
    static LAST_WORDS: LastWords = const { LastWords };
}

/// How far a thread is with its counting.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has counted nothing.
    New,
    /// The rest will be told when it ends.
    Counting,
    /// It is ending: everything is told at once.
    Ending,
}

struct LastWords;

impl Drop for LastWords {
    fn drop(&mut self) {
        STAGE.set(Stage::Ending);
        LIVE_BYTES.0.fetch_add(UNTOLD.take(), Ordering::Relaxed);
    }
}

#[global_allocator]
static HEAP: Counted = Counted;

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapCounts {
    /// Allocations while they were counted; growing one in place or by moving counts as one.
    pub allocations: u64,
    /// Bytes in use.
    pub live_bytes: i64,
}

/// Starts or stops counting allocations, for the whole process.
pub fn count(on: bool) {
    IS_COUNTING.store(on, Ordering::Relaxed);
}

/// One more follows the total closely, or one less: each that begins has to end.
pub fn follow(begins: bool) {
    if begins {
        FOLLOWERS.fetch_add(1, Ordering::Relaxed);
    } else {
        FOLLOWERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The counters, as they stand.
#[must_use]
pub fn counts() -> HeapCounts {
    let live_bytes = LIVE_BYTES.0.load(Ordering::Relaxed) + UNTOLD.get();
    HeapCounts { allocations: ALLOCATIONS.0.load(Ordering::Relaxed), live_bytes }
}

/// Bytes in use.
#[must_use]
pub fn live_bytes() -> u64 {
    u64::try_from(counts().live_bytes).unwrap_or(0)
}

/// Gives memory back to the operating system that is not in use; no effect where the system's allocator cannot.
pub fn purge() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: touches nothing but what the allocator itself has free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// What the system's allocator takes for a request of so many bytes.
#[inline]
fn taken(bytes: usize) -> i64 {
    let rounded = bytes.saturating_add(HEAD_BYTES + ROUND_BYTES - 1) & !(ROUND_BYTES - 1);
    i64::try_from(rounded.max(LEAST_BYTES)).unwrap_or(i64::MAX)
}

#[inline]
fn note(allocations: u64, change: i64) {
    let untold = UNTOLD.get() + change;
    UNTOLD.set(untold);
    let kept_max = if FOLLOWERS.load(Ordering::Relaxed) == 0 { BATCH_BYTES } else { FOLLOWED_BATCH_BYTES };
    if untold.abs() >= kept_max || STAGE.get() != Stage::Counting {
        tell();
    }
    if IS_COUNTING.load(Ordering::Relaxed) {
        ALLOCATIONS.0.fetch_add(allocations, Ordering::Relaxed);
    }
}

#[cold]
fn tell() {
    LIVE_BYTES.0.fetch_add(UNTOLD.take(), Ordering::Relaxed);
    if STAGE.get() == Stage::New {
        // Before the guard is made: making it may allocate.
        STAGE.set(Stage::Counting);
        LAST_WORDS.try_with(|_| ()).ok();
    }
}

// SAFETY: every call goes unchanged to the system's allocator, whose promises are therefore ours; the counters are
// atomics and allocate nothing.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, taken(layout.size()));
        // SAFETY: the caller keeps the same contract towards us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(0, -taken(layout.size()));
        // SAFETY: the caller keeps the same contract towards us, and `pointer` came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, taken(layout.size()));
        // SAFETY: the caller keeps the same contract towards us.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(1, taken(size) - taken(layout.size()));
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

    #[test]
    fn sizes_are_those_of_the_system() {
        for (bytes, expected) in [(0, 32), (1, 32), (24, 32), (25, 48), (40, 48), (41, 64), (1_000, 1_008)] {
            assert_eq!(taken(bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn what_a_thread_keeps_to_itself_while_somebody_follows_is_less_than_a_kibibyte() {
        follow(true);
        let mut kept: Vec<Vec<u8>> = Vec::with_capacity(1_000);
        for len in (1..=1_000).rev() {
            kept.push(vec![1; len % 300]);
            assert!(UNTOLD.get().abs() < 1 << 10, "{} bytes are not told", UNTOLD.get());
        }
        while kept.pop().is_some() {
            assert!(UNTOLD.get().abs() < 1 << 10, "{} bytes are not told", UNTOLD.get());
        }
        follow(false);
    }

    #[test]
    fn threads_that_end_have_told_everything() {
        let spawn = |_| std::thread::Builder::new().spawn(|| vec![1_u8; 1 << 20]).unwrap();
        let kept: Vec<_> = (0..64).map(spawn).collect();
        let before = LIVE_BYTES.0.load(Ordering::Relaxed);
        let kept: Vec<Vec<u8>> = kept.into_iter().filter_map(|thread| thread.join().ok()).collect();
        let held = LIVE_BYTES.0.load(Ordering::Relaxed);
        drop(kept);
        assert!(held > 32 << 20, "all of it was counted, {before} of it before the threads were joined");
        assert!(held - LIVE_BYTES.0.load(Ordering::Relaxed) > 32 << 20);
    }
}
