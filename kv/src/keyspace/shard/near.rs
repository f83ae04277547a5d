//! What leads to a key, brought near before it is looked for.

use super::Shard;
use crate::ahead::Fetch;
use crate::keyspace::Key;
use crate::memory::index::Index;

/// Bytes of a record that are brought near; the processor itself guesses the rest of a longer one.
const RECORD_BYTES_MAX: usize = 1 << 10;

impl Shard {
    /// The index of the key's slot.
    pub(crate) fn fetch_index(&self, database: usize, key: Key<'_>, fetch: Fetch) {
        if let Some(index) = self.index(database, key.slot.index()) {
            fetch(std::ptr::from_ref(index).cast(), size_of::<Index>());
        }
    }

    /// The entries among which the key's is.
    pub(crate) fn fetch_entries(&self, database: usize, key: Key<'_>, fetch: Fetch) {
        let home = self.index(database, key.slot.index()).and_then(|index| index.home(key.hash));
        if let Some((from, bytes)) = home {
            fetch(from, bytes);
        }
    }

    /// The key's record.
    pub(crate) fn fetch_record(&self, database: usize, key: Key<'_>, fetch: Fetch) {
        if let Some(index) = self.index(database, key.slot.index()) {
            index.suspects(key.hash, |handle| {
                let cell = self.arena.cell(handle);
                fetch(cell.as_ptr(), cell.len().min(RECORD_BYTES_MAX));
            });
        }
    }
}
