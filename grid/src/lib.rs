//! One connection per pair of servers, many calls on it.

pub mod breaker;
pub mod cancel;
pub mod config;
mod connect;
pub mod driver;
pub mod error;
pub mod frame;
mod grid;
pub mod handler;
pub mod hello;
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
