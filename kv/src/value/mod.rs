//! The collection types. Nothing here knows a key, a client or a reply.
//!
//! In reading order: [`text`] (bytes that may be kept as a number), [`dict`] (member to value, for large collections),
//! [`choose`] (chance), [`span`] (positions as commands give them), [`score`] (numbers with a fraction), then the types:
//! [`set`], [`hash`], [`list`], [`zset`], [`stream`].

pub mod choose;
pub mod dict;
pub mod hash;
pub mod list;
pub mod score;
pub mod set;
pub mod span;
pub mod stream;
pub mod text;
pub mod zset;
