//! The collection types. Nothing here knows a key, a client or a reply.
//!
//! In reading order: [`dict`] (member to value, for large collections).

pub mod dict;
