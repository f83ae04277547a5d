//! The collection types. Nothing here knows a key, a client or a reply.

pub mod dict;
pub mod list;
pub mod score;
pub mod span;
pub mod stream;
pub mod zset;
