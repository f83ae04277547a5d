//! The collection types.

pub mod list;
pub mod span;
