//! A run of slots, in all databases: what one lock guards.
//!
//! Records lie in one arena. For each database there is an index of handles for each slot, and one of the keys that expire.
//! Nothing here knows what time it is: whoever asks decides whether a key that has expired is there.

mod cut;
mod fields;
mod near;
mod pool;

use std::sync::Arc;

use self::cut::Cut;
pub use self::cut::Loss;
pub(crate) use self::cut::Saved;
pub(crate) use self::fields::Reaped;
use self::fields::Schedule;
pub(crate) use self::pool::Choice;
use self::pool::Pool;
use super::locked::Key;
use super::record::{self, Attributes, Kind, Record, record_len};
use crate::memory::arena::{Arena, Handle};
use crate::memory::gauge::{Gauge, Share};
use crate::memory::hash_key::HashKey;
use crate::memory::index::{Index, Records};
use crate::memory::slab::Slab;
use crate::value::Object;

/// What becomes of a key's expiry when its value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// It stays as it is.
    Keep,
    /// None from now on.
    Never,
    /// At this Unix time in milliseconds.
    At(i64),
}

/// What became of keys that were looked for. Counted under the lock, so that no two cores share a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) expired: u64,
    /// Fields of hashes.
    pub(crate) expired_fields: u64,
    /// Changes that commands made, as the one that counted them saw it: in a shard that it held.
    pub(crate) changes: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.hits += more.hits;
        self.misses += more.misses;
        self.expired += more.expired;
        self.expired_fields += more.expired_fields;
        self.changes += more.changes;
    }
}

/// Keys of one database in one shard.
#[derive(Debug)]
struct Database {
    slots: Box<[Index]>,
    /// Those that expire, under the same hashes.
    expiring: Index,
    /// Where the search for expired keys goes on.
    expiry_cursor: u32,
    keys: usize,
    /// Slots with keys.
    slots_used: usize,
}

/// A run of slots, in all databases.
#[derive(Debug)]
pub(crate) struct Shard {
    hash_key: Arc<HashKey>,
    first_slot: usize,
    slots: usize,
    arena: Arena,
    objects: Slab<Object>,
    /// The mark of records that a snapshot has, or that were made after it was begun.
    mark: bool,
    /// A snapshot that is being taken.
    cut: Option<Box<Cut>>,
    /// Keys that were looked for: found, not found, found to have expired.
    pub(crate) counts: Counts,
    /// Hashes with fields that expire.
    schedule: Schedule,
    /// Keys that may go next when memory is full.
    pool: Pool,
    /// What the sum of all shards knows of this one.
    share: Share,
    /// Slots without keys, in all databases that have any.
    slots_spare: usize,
    /// By number; those that never held a key are absent.
    databases: Vec<Option<Box<Database>>>,
}

impl Shard {
    /// No keys. `databases` is how many there are.
    pub(crate) fn new(
        hash_key: Arc<HashKey>,
        gauge: Arc<Gauge>,
        first_slot: usize,
        slots: usize,
        databases: usize,
    ) -> Self {
        let databases = std::iter::repeat_with(|| None).take(databases).collect();
        Self {
            hash_key,
            first_slot,
            slots,
            arena: Arena::new(),
            objects: Slab::default(),
            mark: false,
            cut: None,
            counts: Counts::default(),
            schedule: Schedule::default(),
            pool: Pool::default(),
            share: Share::new(gauge),
            slots_spare: 0,
            databases,
        }
    }

    /// Keys in a database, with those that have expired and were not found yet.
    pub(crate) fn keys(&self, database: usize) -> usize {
        self.databases[database].as_ref().map_or(0, |database| database.keys)
    }

    /// Keys of a database that expire.
    pub(crate) fn keys_expiring(&self, database: usize) -> usize {
        self.databases[database].as_ref().map_or(0, |database| database.expiring.len())
    }

    /// Whether keys expire here, or fields of hashes.
    pub(crate) fn has_expiring(&self) -> bool {
        !self.schedule.is_empty() || (0..self.databases.len()).any(|database| self.keys_expiring(database) > 0)
    }

    /// Keys of one slot of a database.
    pub(crate) fn keys_in_slot(&self, database: usize, slot: usize) -> usize {
        self.index(database, slot).map_or(0, Index::len)
    }

    /// Bytes of all records.
    #[cfg(test)]
    pub(crate) fn record_bytes(&self) -> usize {
        self.arena.bytes_held()
    }

    /// Bytes of what leads to the records of a database: its keys' tables, and that of those that expire. Visits every slot.
    pub(crate) fn index_bytes(&self, database: usize) -> (usize, usize) {
        let Some(database) = &self.databases[database] else { return (0, 0) };
        let tables: usize = database.slots.iter().map(Index::bytes_held).sum();
        (tables + database.slots_used * size_of::<Index>(), database.expiring.bytes_held())
    }

    /// Places, taken or not, in the tables of a database: of its keys, and of those that expire. Visits every slot.
    pub(crate) fn index_places(&self, database: usize) -> (usize, usize) {
        let Some(database) = &self.databases[database] else { return (0, 0) };
        (database.slots.iter().map(Index::places).sum(), database.expiring.places())
    }

    /// Bytes that a key and what is behind it take, with their part of the tables.
    pub(crate) fn bytes_of(&self, handle: Handle) -> usize {
        /// A handle and a tag, in a table that is three quarters full.
        const ENTRY_BYTES: usize = 7;
        let record = self.record(handle);
        let entries = 1 + usize::from(record.expires());
        let object = (record.kind() != Kind::String).then(|| {
            let object = self.objects.get(record.object());
            size_of::<Option<Object>>() + object.bytes_held()
        });
        self.arena.cell_len(handle) + entries * ENTRY_BYTES + object.unwrap_or(0)
    }

    /// Tells the sum of all shards what this one holds, and what of it is spare.
    #[inline]
    fn weigh(&mut self) {
        let (used, spare) = self.bytes();
        self.share.tell(used, spare);
    }

    /// The same, however little has changed: for when memory is nearly full.
    pub(crate) fn weigh_exactly(&mut self) {
        let (used, spare) = self.bytes();
        self.share.add(used, spare);
    }

    /// Bytes of records, and bytes that hold nothing.
    #[inline]
    fn bytes(&self) -> (usize, usize) {
        let tables = self.slots_spare * size_of::<Index>();
        (self.arena.bytes_used(), self.arena.bytes_spare() + self.objects.bytes_spare() + tables)
    }

    #[inline]
    fn index(&self, database: usize, slot: usize) -> Option<&Index> {
        Some(&self.databases[database].as_ref()?.slots[slot - self.first_slot])
    }

    /// The record of a key, whether it has expired or not.
    #[inline]
    pub(crate) fn find(&self, database: usize, key: Key<'_>) -> Option<Handle> {
        let index = self.index(database, key.slot.index())?;
        index.find(key.hash, |handle| record::is_of(self.arena.cell(handle), key.bytes))
    }

    /// A record.
    #[inline]
    pub(crate) fn record(&self, handle: Handle) -> Record<'_> {
        Record::of(self.arena.cell(handle))
    }

    /// Notes when a key was used.
    #[inline]
    pub(crate) fn set_access(&mut self, handle: Handle, access: u32) {
        record::set_access(self.arena.cell_mut(handle), access);
    }

    /// The object behind a key.
    pub(crate) fn object(&self, handle: Handle) -> &Object {
        self.objects.get(self.record(handle).object())
    }

    /// The object behind a record of this shard.
    ///
    /// # Panics
    /// It is a string.
    pub(crate) fn object_of(&self, record: Record<'_>) -> &Object {
        self.objects.get(record.object())
    }

    /// The object behind a key, to change.
    pub(crate) fn object_mut(&mut self, database: usize, handle: Handle) -> &mut Object {
        self.save_first(database, handle);
        let number = self.record(handle).object();
        self.objects.get_mut(number)
    }

    /// A string's bytes, to change in place; it counts as changed in place from now on.
    pub(crate) fn string_mut(&mut self, database: usize, handle: Handle) -> &mut [u8] {
        self.save_first(database, handle);
        let cell = self.arena.cell_mut(handle);
        record::set_raw(cell);
        record::value_mut(cell)
    }

    /// Writes a string; the key may exist or not, with any value.
    pub(crate) fn put_string(
        &mut self,
        database: usize,
        key: Key<'_>,
        value: &[u8],
        is_raw: bool,
        expiry: Expiry,
        access: u32,
    ) {
        let found = self.find(database, key);
        self.put_string_at(database, (key, found), value, is_raw, expiry, access);
    }

    /// The same where it is known where the key is, if it is there.
    #[inline]
    pub(crate) fn put_string_at(
        &mut self,
        database: usize,
        (key, found): (Key<'_>, Option<Handle>),
        value: &[u8],
        is_raw: bool,
        expiry: Expiry,
        access: u32,
    ) {
        let attributes = self.attributes(found, Kind::String, is_raw, expiry, access);
        self.drop_object(database, found);
        let handle = self.place(database, key, found, attributes, value.len());
        record::value_mut(self.arena.cell_mut(handle)).copy_from_slice(value);
    }

    /// Makes a string longer or shorter, keeping what it has; new bytes are zero. It counts as changed in place.
    ///
    /// Returns where it is now, since it may have moved.
    pub(crate) fn resize_string(&mut self, database: usize, key: Key<'_>, handle: Handle, len: usize) -> Handle {
        self.save_first(database, handle);
        let record = self.record(handle);
        let attributes = Attributes { is_raw: true, ..record.attributes() };
        let (old_len, expires) = (record.value().len(), record.expires());
        let is_same_head = record::is_wide(key.bytes.len(), old_len) == record::is_wide(key.bytes.len(), len);
        let new_len = record_len(key.bytes.len(), len, expires);
        if is_same_head {
            let moved = self.arena.resize(handle, new_len);
            self.note_moved(database, key, handle, moved, expires);
            let value = record::write(self.arena.cell_mut(moved), attributes, self.mark, key.bytes, len);
            if len > old_len {
                value[old_len..].fill(0);
            }
            self.weigh();
            return moved;
        }
        let mut value = record.value()[..old_len.min(len)].to_vec();
        value.resize(len, 0);
        let moved = self.place(database, key, Some(handle), attributes, len);
        record::value_mut(self.arena.cell_mut(moved)).copy_from_slice(&value);
        moved
    }

    /// Puts an object behind a key; the key may exist or not, with any value.
    pub(crate) fn put_object(
        &mut self,
        database: usize,
        key: Key<'_>,
        kind: Kind,
        object: Object,
        expiry: Expiry,
        access: u32,
    ) -> Handle {
        let found = self.find(database, key);
        let attributes = self.attributes(found, kind, false, expiry, access);
        self.drop_object(database, found);
        let mut object = object;
        if let Object::Hash(hash) = &mut object {
            // A copy of one that was scheduled.
            hash.set_scheduled(None);
        }
        let number = self.objects.insert(object).to_le_bytes();
        let handle = self.place(database, key, found, attributes, number.len());
        record::value_mut(self.arena.cell_mut(handle)).copy_from_slice(&number);
        self.schedule_fields(database, handle);
        handle
    }

    /// Changes when a key expires, if at all.
    pub(crate) fn set_expiry(&mut self, database: usize, key: Key<'_>, handle: Handle, expiry: Option<i64>) {
        self.save_first(database, handle);
        let record = self.record(handle);
        match (record.expires(), expiry) {
            (true, Some(expiry)) => record::set_expiry(self.arena.cell_mut(handle), expiry),
            (false, None) => {}
            _ => {
                let attributes = Attributes { expiry, ..record.attributes() };
                let value = record.value().to_vec();
                let handle = self.place(database, key, Some(handle), attributes, value.len());
                record::value_mut(self.arena.cell_mut(handle)).copy_from_slice(&value);
            }
        }
    }

    /// Takes a key out, with what is behind it. Large objects are handed to the caller, to be dropped without the lock.
    pub(crate) fn remove(&mut self, database: usize, key: Key<'_>) -> Option<Removed> {
        if self.cut.is_some()
            && let Some(handle) = self.find(database, key)
        {
            self.save_first(database, handle);
        }
        let Self { databases, arena, hash_key, objects, first_slot, slots_spare, schedule, .. } = self;
        let number = database;
        let database = databases[database].as_mut()?;
        let held = Held { arena, hash_key };
        let index = &mut database.slots[key.slot.index() - *first_slot];
        let handle = index.remove(key.hash, |handle| record::is_of(arena.cell(handle), key.bytes), &held)?;
        database.keys -= 1;
        database.slots_used -= usize::from(index.is_empty());
        *slots_spare += usize::from(index.is_empty());
        let record = Record::of(arena.cell(handle));
        let kind = record.kind();
        if record.expires() {
            database.expiring.remove(key.hash, |other| other == handle, &held);
        }
        let mut object = (kind != Kind::String).then(|| objects.remove(record.object()));
        object.iter_mut().for_each(|object| Self::unschedule(schedule, number, key.bytes, object));
        arena.free(handle);
        self.weigh();
        Some(Removed { kind, object })
    }

    /// Takes all keys of a database out. What was behind them is returned, to be dropped without the lock.
    pub(crate) fn flush(&mut self, database: usize) -> Option<Flushed> {
        let taken = self.databases[database].take()?;
        self.schedule.clear(database);
        self.slots_spare -= taken.slots.len() - taken.slots_used;
        self.lose_cut(Loss::Flushed);
        let mut objects = Vec::new();
        if self.databases.iter().all(Option::is_none) {
            let all = (std::mem::take(&mut self.arena), std::mem::take(&mut self.objects));
            self.weigh();
            return Some(Flushed { keys: taken.keys, _database: taken, _objects: objects, _all: Some(all) });
        }
        for handle in taken.slots.iter().flat_map(Index::iter) {
            let record = Record::of(self.arena.cell(handle));
            if record.kind() != Kind::String {
                objects.push(self.objects.remove(record.object()));
            }
            self.arena.free(handle);
        }
        self.weigh();
        Some(Flushed { keys: taken.keys, _database: taken, _objects: objects, _all: None })
    }

    /// Exchanges two databases.
    pub(crate) fn swap(&mut self, one: usize, other: usize) {
        if self.databases[one].is_some() || self.databases[other].is_some() {
            self.lose_cut(Loss::Flushed);
        }
        self.schedule.swap(one, other);
        self.databases.swap(one, other);
        // Where the walk has been there are other records now: those have the wrong mark still.
        self.move_cut((0, 0, 0));
    }

    /// Visits keys of a slot from a cursor on, at least `count` if so many are left. Returns the next cursor; 0 at the end.
    pub(crate) fn scan_slot(
        &self,
        database: usize,
        slot: usize,
        cursor: u32,
        count: usize,
        mut visit: impl FnMut(Record<'_>),
    ) -> u32 {
        let Some(index) = self.index(database, slot) else { return 0 };
        index.scan(cursor, count, &self.held(), |handle| visit(self.record(handle)))
    }

    /// Visits all keys of a database.
    pub(crate) fn each(&self, database: usize, mut visit: impl FnMut(Record<'_>)) {
        let Some(database) = &self.databases[database] else { return };
        database.slots.iter().flat_map(Index::iter).for_each(|handle| visit(self.record(handle)));
    }

    /// Looks at some keys of each database that expire, from where it stopped, and takes out those that have. Returns them.
    pub(crate) fn expire_some(&mut self, now_ms: i64, count: usize) -> Vec<(usize, Box<[u8]>)> {
        let mut all = Vec::new();
        for number in 0..self.databases.len() {
            let Some(database) = &self.databases[number] else { continue };
            let mut found: Vec<Box<[u8]>> = Vec::new();
            let cursor = self.scan_expiring(number, database.expiry_cursor, count, |record| {
                if record.expiry().is_some_and(|at| at <= now_ms) {
                    found.push(record.key().into());
                }
            });
            for name in found {
                let key = Key::new(&name, &self.hash_key);
                drop(self.remove(number, key));
                self.counts.expired += 1;
                all.push((number, name));
            }
            if let Some(database) = &mut self.databases[number] {
                database.expiry_cursor = cursor;
            }
        }
        all
    }

    /// Visits keys that expire, from a cursor on.
    pub(crate) fn scan_expiring(
        &self,
        database: usize,
        cursor: u32,
        count: usize,
        mut visit: impl FnMut(Record<'_>),
    ) -> u32 {
        let Some(database) = &self.databases[database] else { return 0 };
        database.expiring.scan(cursor, count, &self.held(), |handle| visit(self.record(handle)))
    }

    /// A key at random; of those that expire if `expiring`. Every slot counts by its keys.
    pub(crate) fn random(&self, database: usize, expiring: bool, mut draw: impl FnMut() -> u64) -> Option<Record<'_>> {
        let database = self.databases[database].as_ref()?;
        if expiring {
            return database.expiring.random(draw).map(|handle| self.record(handle));
        }
        let keys = u64::try_from(database.keys).ok().filter(|keys| *keys > 0)?;
        let mut left = usize::try_from(draw() % keys).ok()?;
        for index in &database.slots {
            if left < index.len() {
                return index.random(draw).map(|handle| self.record(handle));
            }
            left -= index.len();
        }
        None
    }

    fn held(&self) -> Held<'_> {
        Held { arena: &self.arena, hash_key: &self.hash_key }
    }

    fn attributes(&self, found: Option<Handle>, kind: Kind, is_raw: bool, expiry: Expiry, access: u32) -> Attributes {
        let expiry = match expiry {
            Expiry::Keep => found.and_then(|handle| self.record(handle).expiry()),
            Expiry::Never => None,
            Expiry::At(at) => Some(at),
        };
        Attributes { kind, is_raw, expiry, access }
    }

    /// What is behind a key is about to be replaced.
    fn drop_object(&mut self, database: usize, found: Option<Handle>) {
        let Some(handle) = found else { return };
        self.save_first(database, handle);
        let record = Record::of(self.arena.cell(handle));
        if record.kind() != Kind::String {
            let mut object = self.objects.remove(record.object());
            Self::unschedule(&mut self.schedule, database, record.key(), &mut object);
        }
    }

    /// Makes room for a record of a key, in its present cell if that fits, and enters it into the indexes. The value's bytes
    /// are to be written by the caller.
    fn place(
        &mut self,
        number: usize,
        key: Key<'_>,
        found: Option<Handle>,
        attributes: Attributes,
        value_len: usize,
    ) -> Handle {
        let len = record_len(key.bytes.len(), value_len, attributes.expiry.is_some());
        let Some(old) = found else {
            let handle = self.arena.alloc(len);
            record::write(self.arena.cell_mut(handle), attributes, self.mark, key.bytes, value_len);
            self.enter(number, key, handle, attributes.expiry.is_some());
            self.weigh();
            return handle;
        };
        let expired_before = self.record(old).expires();
        let handle = if self.arena.fits(old, len) { old } else { self.arena.alloc(len) };
        record::write(self.arena.cell_mut(handle), attributes, self.mark, key.bytes, value_len);
        let (arena, hash_key) = (&self.arena, &self.hash_key);
        let database = self.databases[number].as_mut().expect("the key was found in it");
        if handle != old {
            let was = database.slots[key.slot.index() - self.first_slot].replace(key.hash, old, handle);
            assert!(was, "the key was found in its slot");
        }
        let held = Held { arena, hash_key };
        match (expired_before, attributes.expiry.is_some()) {
            (true, true) if handle != old => {
                database.expiring.replace(key.hash, old, handle);
            }
            (true, false) => {
                database.expiring.remove(key.hash, |other| other == old, &held);
            }
            (false, true) => database.expiring.insert(key.hash, handle, &held),
            _ => {}
        }
        if handle != old {
            self.arena.free(old);
            self.weigh();
        }
        handle
    }

    fn enter(&mut self, number: usize, key: Key<'_>, handle: Handle, expires: bool) {
        let Self { databases, arena, hash_key, slots, first_slot, slots_spare, .. } = self;
        let held = Held { arena, hash_key };
        let database = databases[number].get_or_insert_with(|| {
            *slots_spare += *slots;
            let slots = std::iter::repeat_with(Index::new).take(*slots).collect();
            Box::new(Database { slots, expiring: Index::new(), expiry_cursor: 0, keys: 0, slots_used: 0 })
        });
        let index = &mut database.slots[key.slot.index() - *first_slot];
        database.slots_used += usize::from(index.is_empty());
        *slots_spare -= usize::from(index.is_empty());
        index.insert(key.hash, handle, &held);
        database.keys += 1;
        if expires {
            database.expiring.insert(key.hash, handle, &held);
        }
    }

    fn note_moved(&mut self, number: usize, key: Key<'_>, old: Handle, new: Handle, expires: bool) {
        if old == new {
            return;
        }
        let database = self.databases[number].as_mut().expect("the key was found in it");
        let was = database.slots[key.slot.index() - self.first_slot].replace(key.hash, old, new);
        assert!(was, "the key was found in its slot");
        if expires {
            database.expiring.replace(key.hash, old, new);
        }
    }
}

/// The records of a shard, as its indexes ask about them.
#[derive(Clone, Copy)]
struct Held<'a> {
    arena: &'a Arena,
    hash_key: &'a HashKey,
}

impl Records for Held<'_> {
    fn hash(&self, handle: Handle) -> u64 {
        self.hash_key.hash(Record::of(self.arena.cell(handle)).key())
    }

    fn touch(&self, handle: Handle) {
        self.arena.touch(handle);
    }
}

/// A database that was taken out, with all that was in it.
#[derive(Debug)]
pub(crate) struct Flushed {
    pub(crate) keys: usize,
    _database: Box<Database>,
    _objects: Vec<Object>,
    /// Records and objects of the whole shard, if nothing else was in it.
    _all: Option<(Arena, Slab<Object>)>,
}

/// What was behind a key that was taken out.
#[derive(Debug)]
pub(crate) struct Removed {
    pub(crate) kind: Kind,
    /// Nothing if it was a string.
    pub(crate) object: Option<Object>,
}
