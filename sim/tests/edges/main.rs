//! What the grid promises at its edges, each shown by the test of that name.
//!
//! The real grid runs on the simulator: every test is one small world of servers, a fault or an abuse, and the promise,
//! in virtual time. `rig` holds the servers and their handlers, `rogue` a peer that says what it likes, `methods` what
//! is called. Not here: real sockets, TLS, and what memory costs in bytes.

mod admission;
mod calls;
mod hostile;
mod leaks;
mod lifecycle;
mod liveness;
mod methods;
mod pressure;
mod rig;
mod rogue;
mod rotation;
mod streams;
