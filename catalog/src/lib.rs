//! The few facts all servers must agree on: servers, drives, sets, placement groups, volumes, names.
//!
//! Invariants
//! - The state is a pure function of the commands that were applied, in their order: equal commands make equal bytes.
//! - A change is applied as a whole or refused as a whole. A refused one leaves no trace.
//! - A proposal that is sent again is applied once, or refused as too old to be told from a repeated one.
//! - A placement group's acting list is never empty, has no two members in one conflict domain, and holds its primary.
//!   It changes only with its epoch, by compare-and-set, to a subset of itself and of learners that are certified.
//! - Each attachment of a volume has a generation of its own. A deleted volume's id is not used again while a drive may
//!   hold something of it.
//! - Everything has a limit; 64 MiB for all of it.
//! - An acknowledged proposal is durable at a majority of voters, and part of every later version.
//!
//! Deliberately absent: whatever is written for each request (objects, extents, keys, usage), and liveness. Who is alive
//! is for the bus; a planner takes it as an argument. Sockets, files, clocks, threads and a runtime: the program brings
//! them through two seams ([`raft::host`]). Drives do not change servers, and a set's number of placement
//! groups and of seats is fixed.
//!
//! The way of a change: [`raft::catalog::Catalog::propose`], [`change::Command`], [`state::State::apply`],
//! [`feed::Feed`]. The way of a failure:
//! [`plan::failure::plan_failure`], then [`plan::failure::plan_return`] and [`plan::failure::plan_promotion`]. The way
//! of new drives: [`plan::placement::plan_target`], [`plan::failure::plan_learners`], and [`plan::failure::plan_settled`] where the map changes while
//! they are filled.
//!
//! In reading order: [`server`], [`set`], [`volume`], [`record`] (the facts), [`change`] (what may happen to them),
//! `table` (rows with cheap copies), `codec` (one description, two written forms), [`state`] (the state machine),
//! [`feed`] (following it), [`plan`] (what should be proposed), [`error`], [`raft`] (the group that agrees), `proof`
//! (whole groups under faults, with the feature of that name).
//!
//! Follows Vertical Paxos and PacificA: a small consistent group decides who holds data, and the data itself never
//! passes through it. Raft is openraft's (`docs/decisions/0023`).
#![forbid(unsafe_code)]

pub mod change;
mod codec;
pub mod error;
pub mod feed;
pub mod plan;
#[cfg(any(test, feature = "proof"))]
pub mod proof;
pub mod raft;
pub mod record;
#[cfg(test)]
mod sample;
pub mod server;
pub mod set;
pub mod state;
mod table;
pub mod volume;
