//! The log against a folder that loses power, and what it begins with.

mod crash;
mod fixture;
pub(crate) mod folder;
mod keeper;
mod snapshot;
