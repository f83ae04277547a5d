//! Commands.

pub(crate) mod introspect;
pub(crate) mod spec;
