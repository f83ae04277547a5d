//! The collection types: what is behind a key that is no string. Nothing here knows a key, a client or a reply.
//!
//! In reading order: `object` (one of all), [`text`] (bytes that may be kept as a number), [`dict`] (member to value, for large
//! collections), [`choose`] (chance), [`score`] and [`span`] (numbers and ranges as commands give them), then the types: [`set`],
//! [`hash`], [`list`], [`zset`], [`stream`].

pub mod choose;
pub mod dict;
pub mod extended;
pub mod geo;
pub mod hash;
pub mod hll;
pub mod list;
pub(crate) mod object;
pub mod score;
pub mod set;
pub mod span;
pub mod stream;
pub mod text;
pub mod zset;

pub(crate) use object::{Collection, Object};
