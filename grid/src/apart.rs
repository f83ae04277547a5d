//! What is kept apart from the rest of memory.

/// Lines of the cache that nothing else is in: what one thread changes does not take along what others read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);
