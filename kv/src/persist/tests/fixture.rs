//! A log as this format was first written, in the repository: every later version reads it.

use std::sync::Arc;

use super::folder::MemoryFolder;
use crate::engine::{Engine, EngineConfig};
use crate::memory::hash_key::HASH_KEY_BYTES;
use crate::persist::Keeper;
use crate::persist::log::LogError;
use crate::tests::Talk;

/// Base, a closed segment, and an open one that ends with a mark.
const FILES: [(&str, &[u8]); 4] = [
    ("manifest", include_bytes!("../../../tests/data/log-1/manifest")),
    ("base-5.rdb", include_bytes!("../../../tests/data/log-1/base-5.rdb")),
    ("log-2", include_bytes!("../../../tests/data/log-1/log-2")),
    ("log-4", include_bytes!("../../../tests/data/log-1/log-4")),
];

fn folder() -> MemoryFolder {
    let folder = MemoryFolder::default();
    FILES.into_iter().for_each(|(name, bytes)| folder.set_bytes(name, bytes.to_vec()));
    folder
}

fn recover(folder: MemoryFolder, settings: &[(&str, &str)]) -> Result<Talk, LogError> {
    let engine = Arc::new(Engine::new(&EngineConfig { secret: [8; HASH_KEY_BYTES], shards: 4, databases: 16 }));
    settings.iter().for_each(|(name, value)| engine.configure(name, value).expect("it is a parameter"));
    let now = Talk::new().now();
    Keeper::recover(Arc::clone(&engine), folder, [9; 16], Box::new(|| {}), now)?;
    Ok(Talk::with(engine))
}

#[test]
fn a_log_of_the_first_format_is_read() {
    let mut talk = recover(folder(), &[]).unwrap();
    for (line, reply) in [
        ("GET in-base", "\"1\""),
        ("PEXPIRETIME in-base", "1900000000000"),
        ("LRANGE list 0 -1", "[\"a\" \"b\" \"c\"]"),
        ("XLEN stream", "2"),
        ("XPENDING stream group", "[1 \"1-1\" \"1-1\" [[\"reader\" \"1\"]]]"),
        ("HGETALL hash", "[\"field\" \"value\"]"),
        ("ZSCORE set member", "\"2.5\""),
        ("STRLEN long", "1200000"),
        ("SELECT 3", "OK"),
        ("GET other", "\"database\""),
        ("DBSIZE", "1"),
        ("SELECT 0", "OK"),
        ("DBSIZE", "6"),
    ] {
        assert_eq!(talk.say(0, line), reply, "{line}");
    }
}

#[test]
fn no_limit_of_clients_keeps_a_log_from_being_read() {
    let mut talk = recover(folder(), &[("proto-max-bulk-len", "1mb"), ("maxmemory", "1")]).unwrap();
    assert_eq!(talk.say(0, "STRLEN long"), "1200000");
}

#[test]
fn what_is_refused_is_not_called_damaged() {
    let engine = Arc::new(Engine::new(&EngineConfig { secret: [8; HASH_KEY_BYTES], shards: 4, databases: 2 }));
    let now = Talk::new().now();
    let error = Keeper::recover(engine, folder(), [9; 16], Box::new(|| {}), now).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, LogError::NotApplied { .. }), "{text}");
    assert!(text.contains("is intact") && text.contains("database 3: `databases` must be greater"), "{text}");
    // The same record with another byte is damaged.
    let folder = folder();
    let mut bytes = folder.bytes("log-2");
    let at = bytes.windows(8).position(|word| word == b"database").unwrap();
    bytes[at] ^= 1;
    folder.set_bytes("log-2", bytes);
    assert!(matches!(recover(folder, &[]).err(), Some(LogError::Damaged { .. })));
}
