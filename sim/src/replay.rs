//! One effect, one truth: `state(live) = state(replay(log)) = state(base + log) = state(replica(stream))`.
//!
//! Random commands of the whole table run on a live engine, in virtual time, with its log in memory and two replicas: one from the
//! beginning on, one with a full synchronisation in the middle, while writes go on. Then the content of all engines is compared
//! ([`ashlar_kv::Content`]): that of an engine that read the log, of one that read base and log, and of the replicas. The engines that repeat
//! have other secrets (so other orders of hash tables), other limits of encodings, and limits for clients that no request of the live
//! engine would pass: none of that may show.
//!
//! In reading order: `choices` (a seed, or a fuzzer's bytes), `table` (the commands as the engine documents them), `grammar` (calls),
//! `life` (acts of one engine), `folder`, `world` (all engines and the comparison), `shrink`, `fault` (planted), `command`.

mod choices;
pub(crate) mod command;
#[cfg(test)]
mod fault;
mod folder;
mod grammar;
mod life;
mod shrink;
mod table;
#[cfg(test)]
mod tests;
mod world;

use choices::Choices;
use life::Life;
pub use table::Table;

/// Requests of a life that follows from bytes, at most.
const REQUESTS_OF_BYTES_MAX: usize = 300;

/// The command table, for [`live_bytes`].
#[must_use]
pub fn table() -> Table {
    world::new_table()
}

/// Lives the life that follows from bytes.
///
/// # Errors
/// What differs, after which commands.
pub fn live_bytes(table: &Table, bytes: &[u8]) -> Result<(), String> {
    let life = Life::draw(table, Choices::Bytes(bytes), REQUESTS_OF_BYTES_MAX);
    world::live(&life).map_err(|(at, why)| {
        let acts: Vec<String> = life.acts.iter().map(|act| format!("  {act}\n")).collect();
        format!("after act {at}: {why}\n{}", acts.concat())
    })
}
