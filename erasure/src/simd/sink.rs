//! Where registers come from and what becomes of them: written, streamed, added to what is there, or compared with it.

use super::vector::Vector;

/// How far ahead of the loads bulk work prefetches, in bytes. The hardware's own prefetch stops at each page and must learn
/// each of the shards anew; measured from 0 to 4,096, anything from 512 on is a tenth to a third faster than none.
const PREFETCH_BYTES: usize = 512;

/// One way to finish; a type and not a value, so that each kernel is compiled for each.
pub(super) trait Sink {
    /// The sink that does the same at any alignment.
    type Unaligned: Sink;

    /// Whether the outputs must stand at multiples of a register.
    const IS_ALIGNED: bool = false;

    /// Whether each output should get whole cache lines at a time, even if not all values fit into registers then: parts of
    /// lines that are streamed to many places leave the core one by one, at a quarter of the speed.
    const LINES: bool = false;

    /// Whether finishing the same bytes twice does harm.
    const IS_ONCE: bool = false;

    /// Whether outputs are written at all.
    const WRITES: bool = true;

    /// Reads an input.
    ///
    /// # Safety
    /// The CPU has `V`'s instruction set, and `from` is good for reading `V::BYTES` bytes.
    #[inline(always)]
    unsafe fn get<V: Vector>(from: *const u8) -> V {
        // SAFETY: the caller vouches for `from`.
        unsafe { V::load(from) }
    }

    /// Finishes `value` at `to` and returns what differs, where that is asked.
    ///
    /// # Safety
    /// `to` is good for `V::BYTES` bytes: for writing, for reading, or for both, as the sink says; aligned if
    /// [`Sink::IS_ALIGNED`].
    unsafe fn put<V: Vector>(value: V, to: *mut u8) -> Option<V>;
}

/// Writes through the caches.
pub(super) struct Write;

/// Writes past the caches, and reads what is not in them.
pub(super) struct Stream;

/// Adds to what is there: reads and writes.
pub(super) struct Add;

/// Compares with what is there: only reads.
pub(super) struct Compare;

impl Sink for Write {
    type Unaligned = Self;

    #[inline(always)]
    unsafe fn put<V: Vector>(value: V, to: *mut u8) -> Option<V> {
        // SAFETY: the caller vouches for `to`.
        unsafe { value.store(to) };
        None
    }
}

impl Sink for Stream {
    type Unaligned = Write;
    const IS_ALIGNED: bool = true;
    const LINES: bool = true;

    #[inline(always)]
    unsafe fn get<V: Vector>(from: *const u8) -> V {
        V::prefetch(from.wrapping_add(PREFETCH_BYTES));
        // SAFETY: the caller vouches for `from`.
        unsafe { V::load(from) }
    }

    #[inline(always)]
    unsafe fn put<V: Vector>(value: V, to: *mut u8) -> Option<V> {
        // SAFETY: the caller vouches for `to` and its alignment.
        unsafe { value.stream(to) };
        None
    }
}

impl Sink for Add {
    type Unaligned = Self;
    const IS_ONCE: bool = true;

    #[inline(always)]
    unsafe fn put<V: Vector>(value: V, to: *mut u8) -> Option<V> {
        // SAFETY: the caller vouches for `to`; `value` exists, so the instruction set does.
        let before = unsafe { V::load(to) };
        // SAFETY: the caller vouches for `to`.
        unsafe { before.xor(value).store(to) };
        None
    }
}

impl Sink for Compare {
    type Unaligned = Self;
    const WRITES: bool = false;

    #[inline(always)]
    unsafe fn put<V: Vector>(value: V, to: *mut u8) -> Option<V> {
        // SAFETY: the caller vouches for `to`; `value` exists, so the instruction set does.
        Some(unsafe { V::load(to) }.xor(value))
    }
}
