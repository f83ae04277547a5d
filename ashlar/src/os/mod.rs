//! The operating system: sockets, TLS, files, processes, threads, clock. Everything else sees it through seams.
//!
//! Here and in `front` stand the only uses of tokio, `std::net`, `std::fs` and `std::thread`; here stands the only
//! `unsafe` of the program, one operation a block.

pub mod acl_file;
pub mod audit_log;
mod cache;
pub mod catalog_storage;
pub mod clock;
pub mod crew;
pub mod datadir;
pub mod dial;
pub mod disks;
pub mod drive;
mod drive_fronts;
pub mod files;
pub mod fleet;
pub mod heap;
pub mod http;
pub mod kv;
pub mod logs;
pub mod pages;
pub mod poll;
pub mod process;
pub mod random;
pub mod rdb;
pub mod runtime;
pub mod server;
pub mod signals;
pub mod sockets;
mod spin;
pub mod state_writer;
mod stopping;
pub mod terminal;
pub mod throttle;
pub mod tls;
mod turns;
pub mod wakes;
pub mod websocket;
pub mod wire;
pub mod workers;
pub mod yardstick;

use std::io;

/// Runs `future` to its end on a runtime of this thread: for commands that ask or watch servers.
///
/// # Errors
/// The operating system gives no runtime.
pub fn block_on<F: Future>(future: F) -> io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let output = runtime.block_on(future);
    // A name that is still being looked up must not hold up the end.
    runtime.shutdown_background();
    Ok(output)
}
