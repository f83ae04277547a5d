//! The collection types.

pub mod list;
pub mod score;
pub mod span;
pub mod stream;
