//! One connection per pair of servers, many calls on it.
//!
//! Calls (one request, one answer, a deadline) and streams (messages both ways under a window of bytes) between servers
//! that have proved to each other that they hold the cluster's secret. Either side calls; either side dials; bulk payloads
//! take connections of their own.
//!
//! Invariants:
//! - A stream that ends in order has been received whole: its end carries the count and a digest of its messages.
//! - Each call ends exactly once, and its error tells whether the request may have run.
//! - Reading never waits for writing, so two servers that both have much to say cannot block each other.
//! - No announced length is believed before it has been compared with a limit; every queue and table has one.
//! - No wall clock, and no clock at all: `now` is an argument, or comes from the [`Runtime`](seam::Runtime).
//!
//! Deliberately absent: sockets, TLS, HTTP and threads (they stand behind [`seam`]), knowledge of what is called, retries of
//! what may have run (unless its [`Method`](handler::Method) says that it is idempotent), membership beyond the addresses that
//! somebody named.
//!
//! Entry points: [`Grid`], [`PeerHandle`], [`handler::Handlers`]. In reading order, the cores without IO: [`frame`],
//! [`message`], [`outbox`], [`mux`], [`liveness`], [`hello`], [`table`], [`breaker`]; what carries them: [`seam`], [`link`],
//! [`inlet`], `dispatch`, `in_place`, `handover`, `calling`, [`driver`], `serve`, `connect`, `keeper`, `peer`, `grid`; what users hold: [`stream`], [`handler`], [`error`],
//! [`status`], [`config`], [`rotation`].
//!
//! It follows the idea of MinIO's internal grid and departs from it at every edge that `sim/tests/edges` names.

mod apart;
pub mod breaker;
mod calling;
pub mod cancel;
pub mod config;
mod connect;
mod dispatch;
pub mod driver;
pub mod error;
pub mod frame;
mod grid;
pub mod handler;
mod handover;
pub mod hello;
mod in_place;
pub mod inlet;
mod keeper;
pub mod link;
pub mod liveness;
pub mod message;
pub mod mux;
pub mod outbox;
mod peer;
mod race;
pub mod rotation;
pub mod seam;
mod serve;
pub mod status;
pub mod stream;
pub mod table;

pub use grid::{CallOptions, Grid, PeerHandle};
