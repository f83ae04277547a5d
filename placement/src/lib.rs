//! A pure function from (map, key) to an ordered list of drives, and from two maps to a plan of moves.
//!
//! Clients and servers compute where data lives from the same few kilobytes; nobody looks up an extent or an object.
//!
//! Invariants
//! - The same map and key give the same drives on every machine and in every version. Integers only; golden values in
//!   the tests. A change of one would move the data of every cluster.
//! - No two seats of a placement group share a conflict domain, ever. Where that cannot be, there is no map.
//! - Each drive is within 1 % of what its weight is due, or at the nearest whole number of seats, as far as the conflict
//!   rule leaves room for it ([`domains`]).
//! - A drive that leaves moves what it held and little else; a drive that comes moves what it takes.
//! - Nothing is kept for an extent.
//!
//! Deliberately absent: time, chance and liveness. Who is out is said by the map; who is primary now, by the catalog;
//! when and how fast data moves, by the owners of the data. Placement groups are never split or merged.
//!
//! The way of a read: [`part::Volume::locate`] (offset to set and extent), [`part::Volume::route`] (extent to placement
//! group to drives, in a [`choose::PgTable`]). The way of a change: [`map::Map::new`] (the new drives),
//! [`balance::balance`] (the map that moves least), [`plan::plan_moves`] (what to copy where, in which order).
//!
//! In reading order: [`map`] (drives and where they stand), [`domains`] (what must not fail together, and what each drive
//! is due), `draw` (the arithmetic of a draw), [`choose`] (the drives of a placement group), [`balance`] (even filling,
//! few moves), [`rule`] (extent to placement group), [`part`] (volumes across sets), [`plan`] (moves), [`error`].
//!
//! Follows UCloud's cloud disk (the rule R) and Ceph's CRUSH with `upmap` (computed placement, and exceptions to it).
//! Departs from both in that the exceptions carry the history: `docs/decisions/0009`.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod balance;
pub mod choose;
pub mod domains;
mod draw;
pub mod error;
pub mod map;
pub mod part;
pub mod plan;
pub mod rule;
#[cfg(test)]
mod sample;

pub use error::Error;
