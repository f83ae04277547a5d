//! The log against a folder that loses power.

mod crash;
pub(crate) mod folder;
mod keeper;
