//! Journal: what was changed and is not yet in its place, in a ring of batches.
//!
//! A batch holds the entries of all requests that gathered while the batch before it was written (group commit), with
//! the data of small writes behind them. One batch is in flight at a time, so at most one can be torn, and it was never
//! acknowledged. Each batch names the oldest one that recovery still needs, its tail; what lies before a durable tail
//! may be overwritten.

pub(crate) mod batch;
pub(crate) mod entry;
pub(crate) mod recover;
pub(crate) mod ring;
