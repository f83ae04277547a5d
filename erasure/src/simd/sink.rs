//! What becomes of a computed register: written, streamed, added to what is there, or compared with it.

use super::vector::Vector;

/// One way to finish; a type and not a value, so that each kernel is compiled for each.
pub(super) trait Sink {
    /// The sink that does the same at any alignment.
    type Unaligned: Sink;

    /// Whether the outputs must stand at multiples of a register.
    const IS_ALIGNED: bool = false;

    /// Whether finishing the same bytes twice does harm.
    const IS_ONCE: bool = false;

    /// Whether outputs are written at all.
    const WRITES: bool = true;

    /// Finishes `value` at `to` and returns what differs, where that is asked.
    ///
    /// # Safety
    /// `to` is good for `V::BYTES` bytes: for writing, for reading, or for both, as the sink says; aligned if
    /// [`Sink::IS_ALIGNED`].
    unsafe fn put<V: Vector>(value: V, to: *mut u8) -> Option<V>;
}

/// Writes through the caches.
pub(super) struct Write;

/// Writes past the caches.
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
