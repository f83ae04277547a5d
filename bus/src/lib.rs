//! Who is alive, who is suspect, who owns what, and who was elected.
//!
//! One [`Bus`] is one member's whole state, as a value: packets, time and commands in; packets, durable state and events
//! out. The caller brings the network (best effort datagrams between authenticated servers), the clock and the drive.
//!
//! Invariants:
//! - In a replica group and epoch there is at most one elected primary, whatever is lost, doubled, delayed, replayed or
//!   restarted. (Only [`How::Takeover`](event::How), which asks nobody, can make a second claim, in an epoch of its own kind.)
//! - A member is declared failed only by a voter that has not heard it for the member timeout and has such reports of a
//!   majority of the voters.
//! - What depends on durable state waits for it: votes, claims of one's own, going over to other voters.
//! - A primary takes writes only while it knows that a majority of the voters was in reach less than the member timeout ago.
//! - No change of voters ever lets two majorities decide that have no voter in common.
//! - What all members should agree on is merged by rules that give the same result in any order of news.
//! - A packet that is refused moves no state. Every list, table and packet has a limit.
//! - Traffic and work of a member in the steady state do not grow with the number of members.
//!
//! Deliberately absent: sockets, clocks, threads, chance of its own (a seed comes in), user data and its replication,
//! secrets (the transport authenticates), facts that need one order for all (those are the catalog's).
//!
//! Entry points: [`Bus`], [`Command`], [`Output`], [`Event`], [`Config`]. In reading order, the parts that decide:
//! [`slot`], [`member`], `probe`, `suspicion`, `reach` (is a majority near?), `gossip` and `sync` (what is told, what
//! differs), [`claim`], [`voters`], [`ballot`], [`rank`], [`pubsub`]; the written forms: [`packet`], [`saved`]; the machine
//! that joins them: [`bus`]. [`planted`] names the bugs that the simulator plants.
//!
//! It keeps the contract of the Valkey 9 cluster bus (MEET, FORGET, PFAIL, FAIL, configuration epochs, manual failover,
//! replica migration) and departs from it in how: members are probed as in SWIM and not each by each, suspicion goes to
//! the voters at once, ballots are per replica group and not per cluster, and voters are a set with an epoch.
#![no_std]

extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod ballot;
pub mod bus;
mod chance;
pub mod claim;
pub mod config;
pub mod counters;
pub mod event;
mod fingerprint;
mod gossip;
mod index;
pub mod member;
pub mod packet;
pub mod planted;
mod probe;
pub mod pubsub;
pub mod rank;
mod reach;
pub mod saved;
pub mod slot;
mod suspicion;
mod sync;
pub mod voters;

pub use bus::Bus;
pub use config::{Config, Identity};
pub use counters::Counters;
pub use event::{Command, CommandError, Event, Output, RestoreError, Ticket};
