//! RDB files of Redis and Valkey, read into the key-value engine before it serves.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ashlar_kv::Engine;
use ashlar_kv::rdb::{ImportOptions, Imported};

use super::clock;
use crate::failure::Failure;

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Reads a file into an engine. Keys that have expired are left out.
///
/// # Errors
/// The file cannot be read, or is damaged: then the engine has a part of its keys, and must not serve. Retry safe with a new
/// engine once the cause is gone.
pub fn import(engine: &Engine, path: &Path) -> Result<Imported, Failure> {
    import_with(engine, path, ImportOptions::default())
}

/// The same with options.
///
/// # Errors
/// As [`import`].
pub fn import_with(engine: &Engine, path: &Path, options: ImportOptions) -> Result<Imported, Failure> {
    let cannot_read = |error: io::Error| {
        Failure::world(format!("cannot read `{}`: {error}", path.display()), "give an RDB file that this user may read")
    };
    let is_damaged = |error| {
        Failure::usage(
            format!("`{}` cannot be imported: {error}", path.display()),
            "let the server that wrote it save again; what was read so far is not kept",
        )
    };
    let mut file = File::open(path).map_err(cannot_read)?;
    let file_bytes = Some(file.metadata().map_err(cannot_read)?.len());
    let mut import = engine.import_rdb(ImportOptions { file_bytes, ..options });
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return import.finish().map_err(is_damaged),
            Ok(len) => import.handle_bytes(&chunk[..len], clock::now_both()).map_err(is_damaged)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(cannot_read(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use ashlar_kv::EngineConfig;

    use super::*;
    use crate::failure::Fault;
    use crate::os::random;

    #[test]
    fn what_is_no_file_of_keys_is_refused() {
        let engine = Engine::new(&EngineConfig { secret: random::bytes(), shards: 1, databases: 1 });
        let missing = import(&engine, Path::new("/no/such/file.rdb")).unwrap_err();
        assert_eq!(missing.fault, Fault::World);
        let other = import(&engine, Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))).unwrap_err();
        assert_eq!(other.fault, Fault::Usage);
        assert!(other.what.ends_with("at byte 0: this is no RDB file"), "{other}");
    }
}
