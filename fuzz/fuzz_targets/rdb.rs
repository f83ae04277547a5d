//! Files of keys from hostile bytes, in chunks: an error, or keys that are written down again and read as the same.
#![no_main]

use ashlar_kv::memory::hash_key::HASH_KEY_BYTES;
use ashlar_kv::rdb::{ImportError, ImportOptions, Imported};
use ashlar_kv::{Engine, EngineConfig, Now};
use ashlar_wire::time::Instant;
use libfuzzer_sys::fuzz_target;

/// What a file may say it is; the input's first byte chooses.
const HEADS: [&[u8]; 4] = [b"REDIS0011", b"VALKEY080", b"REDIS0006", b"REDIS0012"];
/// The end, with the checksum that stands for none.
const END: &[u8] = b"\xff\0\0\0\0\0\0\0\0";

fn now() -> Now {
    Now { unix_us: 1_800_000_000_000_000, instant: Instant::from_nanos(1) }
}

fn engine() -> Engine {
    Engine::new(&EngineConfig { secret: [5; HASH_KEY_BYTES], shards: 4, databases: 2 })
}

fn import(engine: &Engine, file: &[u8], chunk: usize, knows_length: bool) -> Result<Imported, ImportError> {
    let file_bytes = knows_length.then(|| u64::try_from(file.len()).expect("lengths have 64 bits"));
    let mut import = engine.import_rdb(ImportOptions { file_bytes, ..ImportOptions::default() });
    for bytes in file.chunks(chunk) {
        import.handle_bytes(bytes, now())?;
    }
    import.finish()
}

fuzz_target!(|bytes: &[u8]| {
    let [head, chunk, items @ ..] = bytes else { return };
    let file = [HEADS[usize::from(*head) % HEADS.len()], items, END].concat();
    let (first, other) = (engine(), engine());
    let read = import(&first, &file, usize::from(*chunk) + 1, false);
    let again = import(&other, &file, file.len(), true);
    assert_eq!(read.is_ok(), again.is_ok(), "neither the chunks nor knowing the length changes what is read");
    let Ok(read) = read else { return };
    assert_eq!(Ok(&read), again.as_ref());
    let written = first.export_rdb(now());
    let copy = engine();
    let copied = import(&copy, &written, 777, true).expect("what we write we read");
    assert_eq!((copied.keys, copied.expired, copied.empty), (read.keys, 0, 0));
    assert_eq!(copy.export_rdb(now()).len(), written.len(), "and it says the same");
});
