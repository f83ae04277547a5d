//! The file that holds the key-value engine's users (`aclfile`).

use std::path::PathBuf;

use ashlar_kv::AclFile;

use super::files::{self, Readers};

/// Bytes that such a file may have.
const BYTES_MAX: u64 = 16 << 20;

/// A file with a line for each user.
#[derive(Debug)]
pub struct UsersFile {
    path: PathBuf,
    name: String,
}

impl UsersFile {
    /// The file of that name; it need not be there yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        let name = path.display().to_string();
        Self { path, name }
    }
}

impl AclFile for UsersFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        match files::read_bytes(&self.path, BYTES_MAX) {
            Ok(Some(text)) => Ok(text),
            Ok(None) => Err("No such file or directory".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn write(&self, text: &[u8]) -> Result<(), String> {
        files::write_whole(&self.path, text, Readers::Owner).map_err(|error| {
            tracing::warn!(file = self.name, %error, "users cannot be written");
            error.to_string()
        })
    }
}
