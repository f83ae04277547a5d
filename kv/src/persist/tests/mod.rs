//! The log against a folder that loses power.

mod crash;
mod fixture;
pub(crate) mod folder;
mod keeper;
