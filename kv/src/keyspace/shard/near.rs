//! What leads to a key, brought near before it is looked for.

use super::Shard;
use crate::ahead::{Fetch, REQUESTS_MAX};
use crate::keyspace::{Key, Kind};
use crate::memory::hash_key::HashKey;
use crate::memory::index::Index;
use crate::value::Object;

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

    /// Entries of the collection behind a key, as many as are looked at together: first what a search for them begins with, then they
    /// themselves.
    pub(crate) fn fetch_members(
        &self,
        database: usize,
        key: Key<'_>,
        (members, hash_key): (&[Option<&[u8]>], &HashKey),
        fetch: Fetch,
    ) {
        let record = self.find(database, key).map(|handle| self.record(handle));
        let object =
            record.filter(|record| record.kind() != Kind::String).map(|record| self.objects.get(record.object()));
        let Some(dict) = object.and_then(Object::dict) else { return };
        let (mut hashes, mut count) = ([0; REQUESTS_MAX], 0);
        for (place, member) in hashes.iter_mut().zip(members.iter().flatten()) {
            *place = hash_key.hash(member);
            dict.fetch_home(*place, fetch);
            count += 1;
        }
        hashes[..count].iter().for_each(|hash| dict.fetch_entries(*hash, fetch));
    }
}
