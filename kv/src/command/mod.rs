//! Commands.
pub(crate) mod spec;
