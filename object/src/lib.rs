//! S3 objects over erasure-coded shards.
//!
//! [`api`] is what a protocol's front asks for, and what it is answered: buckets, objects, multipart uploads.
#![forbid(unsafe_code)]

pub mod api;
