//! Replicated cloud disks: the client side, where a volume is attached.
//!
//! Two protocols as values, without IO. The server side of NBD speaks with a virtual machine or a tool; the initiator turns
//! reads and writes of byte ranges into requests to the servers that hold the volume's extents. Their owner connects
//! them with [`adapter`].
//!
//! Invariants
//! - Each request is answered exactly once, and a read returns what was written by every request that overlaps it and came
//!   before it.
//! - A write that is completed is durable on every acting copy: a primary answers no sooner. So flush has nothing to
//!   do, and every write has what FUA asks for.
//! - A write that is repeated carries the number it had, and nothing that was given up is applied over a later write.
//! - A fenced attachment never succeeds again.
//! - What clients and servers send is compared with limits before it costs memory.
//!
//! Deliberately absent: sockets, clocks, threads; the primary's side; liveness (who leads a placement group comes in as
//! a value, or as a hint of a server); snapshots, encryption and migration; a cache.
//!
//! Entry points: [`nbd::Session`] and [`initiator::Initiator`].
//!
//! In reading order: [`nbd`] (the protocol towards clients), [`block`] (units), [`piece`] (content), [`message`] (the protocol
//! towards servers), [`error`], [`qos`] (how fast a class of volumes is), [`initiator`], [`adapter`] (NBD requests
//! as operations of an initiator).
//!
//! Follows the NBD specification; UCloud's cloud disk in its two layers on the IO path (the client computes the route); Oxide
//! Crucible in ordering overlapping requests where they come in. Departs from Crucible in that clients talk to one
//! primary and not to all copies.

pub mod adapter;
pub mod block;
pub mod error;
pub mod initiator;
pub mod message;
pub mod nbd;
pub mod piece;
pub mod qos;

pub use error::Error;
