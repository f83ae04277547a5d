//! One order of writes for a placement group on all its drives.
//!
//! One [`Member`] is one drive's share of one placement group, as a value: configurations, requests of clients, messages,
//! completions of the local store and time in; messages, requests to the store, replies and reports out. The catalog
//! alone decides who is a member; members ask it for changes ([`Report`]).
//!
//! Invariants:
//! - I1: A write is acknowledged only after every acting member has it on stable storage, and a learner that was reported
//!   caught up too; and only while there are at least `min_copies` acting members.
//! - I2: A configuration changes by compare-and-set on its epoch. Acting members are a subset of the former ones, and
//!   learners that the primary of that epoch reported caught up.
//! - I3: A member answers only for its own epoch, which it has promised durably before the first answer. It never goes on
//!   in an epoch of an earlier life: a restarted member asks for a new one. Within an epoch one life of each member is
//!   listened to, and a copy that was not filled to its end says so in its own record: see [`life`].
//! - I4: A primary serves reads only under a lease from all other acting members, checked again before the reply. A new
//!   primary waits until every lease that it granted itself is over. Since all granted it, one of them is enough.
//! - I5: The reply to a read waits for every unacknowledged write that the read overlaps.
//! - I6: In a new epoch nothing is served before the acting members are equal in every extent that may differ. An extent
//!   goes forward to the greatest version, never back in place.
//! - Everything has a limit: see the constants ending in `_MAX`.
//!
//! Why that is safe: the members of any epoch are members or certified learners of every earlier epoch whose primary can
//! still serve, because only a primary adds, and it fences the epochs before its own first. So all of them have every
//! acknowledged write, and each has granted the lease that an earlier primary would need.
//!
//! Deliberately absent: clocks, sockets, drives, threads; chance, but for the number of a life, which comes in;
//! membership and failure detection beyond a silent member; extents above 1 MiB (a longer one is cut by its user);
//! snapshots; repair of a damaged extent in place (its member is reported, and returns as a learner).
//!
//! Entry points: [`Member`], [`Configuration`], [`Output`]. In reading order: the values [`promise`], [`members`],
//! [`commit`], which serve key-value majorities too; [`config`], [`request`], [`message`], [`record`], [`life`],
//! [`error`]; the parts
//! `session`, `lease`, [`stream`], `walk`; then `backup`, `primary`, and the machine that joins them, [`member`].
//! [`planted`] names the bugs that the simulator plants; `proof` is the simulator.
//!
//! It follows PacificA (Lin and others 2008) with leases of Gray and Cheriton and the numbered streams of Viewstamped
//! Replication. It departs from PacificA in three things: versions and not a log decide what differs between members; a
//! learner counts from its certification on; and a restarted member always needs a new epoch.
#![no_std]

extern crate alloc;

#[cfg(test)]
extern crate std;

mod backup;
pub mod commit;
pub mod config;
mod core_state;
pub mod error;
mod lease;
pub mod life;
pub mod member;
pub mod members;
pub mod message;
pub mod planted;
mod primary;
pub mod promise;
#[cfg(any(test, feature = "proof"))]
pub mod proof;
pub mod record;
pub mod request;
mod session;
pub mod stream;
mod walk;

pub use config::{Configuration, Settings};
pub use error::{Error, Refusal};
pub use life::Life;
pub use member::{Member, Output, Report};
pub use message::Message;
