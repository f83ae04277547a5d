//! The files and payloads in which Redis and Valkey keep keys: read, every form there has been; written, as Valkey 8 and 9 do.
//!
//! Sans-IO. What is written goes to a growing buffer that the caller empties; what is read comes in chunks of any size.
//!
//! | for | there is |
//! |---|---|
//! | one key in a file or a log | `Encoder::entry` |
//! | a whole file | `writer::Writer`: `begin`, then `library`, `database`, `entry` as often as wanted, `end`; `take` between them |
//! | a file in chunks | `reader::Reader`: `feed` a chunk, then `next` until it gives nothing; every `Entry` holds one key, decoded |
//! | one value, for DUMP and RESTORE | `payload::encode`, `payload::decode_value` |
//! | a file into an engine | [`crate::Engine::import_rdb`] |
//! | all keys of an engine into bytes | [`crate::Engine::export_rdb`]; with all shards held, `export::export` |
//! | `DEBUG RELOAD` | [`crate::Engine::reload`]; with all shards held, `export::reload` |
//!
//! `export::value_of` and `export::attributes_of` make of a record what the writer takes; `export::with_facts` gives what a file says
//! of itself. Whoever writes while keys change takes `Version::Valkey80` if a hash may come to have a field that expires.
//!
//! **Versions.** Written is version 11 (`REDIS0011`: Redis 7.2, Valkey 7.2 to 8.1), which everything of today reads. A hash with a
//! field that expires has no form there: it is type 22 of version 80 (`VALKEY080`, Valkey 9), and a file that has one says so.
//! Read are all versions up to 11, `VALKEY080`, and files of Redis 7.4 and later (12 to 79), as far as they hold no type that
//! came after hashes with expiring fields.
//!
//! **What is read is not trusted.** Every length is checked against what is there before memory is taken for it, every packed
//! form is walked to its end, and duplicates, wrong orders and contradictions are refused ([`Damage`]). A file's checksum tells
//! whether it is what was written; without it (a file may have none) a flipped bit can still be a valid other value.
//!
//! In reading order: `code` (the numbers), `crc`, `lzf`, `encode` and `listpack` (values to bytes), `writer`; then `source` (bytes to
//! words), `sequence` (packed forms), `decode` (bytes to values), `shape` (where an item ends), `reader`, `import`.
//!
//! Not here: files themselves, Lua (a library is its text), values of modules, which are refused by name.

mod code;
mod crc;
mod decode;
mod encode;
pub(crate) mod export;
mod import;
mod listpack;
mod lzf;
pub(crate) mod payload;
pub(crate) mod reader;
mod sequence;
mod shape;
mod source;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

pub(crate) use decode::{Decoded, Rules};
pub(crate) use encode::{Encoder, Value};
pub(crate) use export::{attributes_of, with_facts};
pub(crate) use import::Loader;
pub use import::{Import, ImportCause, ImportError, ImportOptions, Imported};
pub(crate) use payload::VersionCheck;
pub use source::{Damage, MODULE_NAME_BYTES};
pub(crate) use writer::{Version, Writer};
