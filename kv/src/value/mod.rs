//! The collection types.
