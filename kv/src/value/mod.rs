//! The collection types: what is behind a key that is no string. Nothing here knows a key, a client or a reply.

pub mod dict;
pub mod list;
pub(crate) mod object;
pub mod score;
pub mod span;
pub mod stream;

pub(crate) use object::{Collection, Object};
