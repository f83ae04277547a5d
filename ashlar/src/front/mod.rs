//! The outer faces of the services: who speaks which protocol to whom. Protocol logic lives in the crates below.

pub mod admin;
pub mod bench;
pub mod nbd;
pub mod resp;
pub mod s3;
