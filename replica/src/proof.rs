//! Simulator of placement groups: real members on model drives, a model network, a model catalog and clients.
//!
//! One seed is one history, the same every time. Per seed it draws sizes, clocks, delays, and which faults happen how
//! often: loss, doubling, delay and reordering of messages, partitions of one side, of both, and of two members only,
//! crashes that lose unsynced changes, restarts with an empty drive, pauses, clock drift within the bound, slow drives, full
//! drives, servers that hear of the past first, volumes that are deleted while they are used. Then everything heals, and the
//! groups must serve, take all members back, and make them equal.
//!
//! Verified: per-block linearizability of reads and writes ([`history`]); no acknowledged write lost while one acting member
//! keeps its drive; nothing of a fenced client takes effect; at most one member of a group serves at a time; all members
//! equal at the end; service within a bound after healing; every message survives its written form.
//!
//! Not verified here: the store, the catalog, the transport (models that keep their contracts stand in for them); damaged
//! blocks; clients with overlapping writes of their own outstanding, which the contract excludes.

pub mod catalog;
pub mod chance;
pub mod client;
pub mod history;
pub mod store;
pub mod world;

use alloc::string::String;

pub use world::{Faults, Options, World};

use crate::planted::Planted;

/// What a seed did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The first rule that was broken, in words.
    pub violation: Option<String>,
    /// Writes acknowledged.
    pub writes: u64,
    /// Reads answered.
    pub reads: u64,
    /// Writes refused for want of room, each time that they were sent.
    pub no_space: u64,
    /// Epochs begun, of all groups.
    pub epochs: u64,
    /// Members lost by crashes.
    pub crashes: u64,
    /// Extents without blocks that drives dropped.
    pub drops: u64,
    /// Volumes that were deleted.
    pub deletions: u64,
    /// Copies of extents that were damaged.
    pub damages: u64,
    /// Reads that were refused as no copy of a block was whole.
    pub lost: u64,
    /// Longest time from the end of all faults until every group served, milliseconds.
    pub recovery_ms: u64,
    /// Digest of the whole history: the same for the same seed.
    pub digest: u64,
}

/// Runs one seed, with a bug if one is to be planted.
#[must_use]
pub fn run(seed: u64, planted: Option<Planted>) -> Outcome {
    let mut world = World::new(&Options::draw(seed, planted));
    world.run_swarm();
    world.outcome()
}

/// The first of `seeds` in which a planted bug is caught, with what was seen.
#[must_use]
pub fn hunt(planted: Planted, seeds: core::ops::Range<u64>) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| run(seed, Some(planted)).violation.map(|violation| (seed, violation)))
}

#[cfg(test)]
mod tests;
