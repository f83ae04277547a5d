//! In-memory directory of an append log.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_kv::persist::{Folder, Syncer};

/// A directory in memory. Clones share it; [`MemoryFolder::copy`] does not.
#[derive(Debug, Clone, Default)]
pub(super) struct MemoryFolder(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl MemoryFolder {
    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy, as a restart would find the directory now.
    pub(super) fn copy(&self) -> Self {
        Self(Arc::new(Mutex::new(self.files().clone())))
    }
}

impl Folder for MemoryFolder {
    fn read_at(&mut self, name: &str, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let files = self.files();
        let file = files.get(name).ok_or(io::ErrorKind::NotFound)?;
        let rest = usize::try_from(at).ok().and_then(|at| file.get(at..)).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.files().entry(name.to_owned()).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn syncer(&mut self, name: &str) -> Syncer {
        let is_there = self.files().contains_key(name);
        Box::new(move || if is_there { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) })
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.files().insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn others(&mut self, names: &[&str], remove: bool) -> io::Result<usize> {
        let mut files = self.files();
        let before = files.len();
        let count = files.keys().filter(|name| !names.contains(&name.as_str())).count();
        if remove {
            files.retain(|name, _| names.contains(&name.as_str()));
            debug_assert_eq!(files.len() + count, before, "only the others are removed");
        }
        Ok(count)
    }
}
