//! A pure function from (map, key) to an ordered list of drives, and from two maps to a plan of moves.
#![no_std]

extern crate alloc;

pub mod balance;
pub mod choose;
pub mod domains;
mod draw;
pub mod error;
pub mod map;
pub mod part;
pub mod plan;
pub mod rule;

pub use error::Error;
