//! The shards that a command holds, and what it does with keys.
//!
//! A command names its keys before it runs. The shards of those keys are locked in the order of their numbers, so that no two
//! commands wait for each other; then the command runs to its end, alone in them. What a command sees honours expiry: a key
//! that has expired is gone, whether it was taken out already or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::access::AccessClock;
use super::record::{Kind, Record};
use super::shard::{Expiry, Removed, Shard};
use super::slot::{SLOTS, Slot};
use crate::ahead::Fetch;
use crate::memory::arena::Handle;
use crate::memory::gauge::Gauge;
use crate::memory::hash_key::HashKey;
use crate::value::{Collection, Object};

/// How long a lock is waited for before it is looked whether its holder is slow.
const PATIENCE: Duration = Duration::from_millis(1);

/// Everything there is, behind locks.
#[derive(Debug)]
pub(crate) struct Keyspace {
    shards: Box<[Mutex<Shard>]>,
    /// A slot's number without so many low bits is that of its shard.
    shift: u32,
    hash_key: Arc<HashKey>,
    databases: usize,
    /// What all shards hold.
    gauge: Arc<Gauge>,
}

/// A key with what is computed of it once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) hash: u64,
    pub(crate) slot: Slot,
}

impl<'a> Key<'a> {
    /// A key of this name.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], hash_key: &HashKey) -> Self {
        Self { bytes, hash: hash_key.hash(bytes), slot: Slot::of(bytes) }
    }
}

/// What a command wants to hold.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lock<'a> {
    /// No key.
    Nothing,
    /// The shard of one key.
    Key(Key<'a>),
    /// Those of several slots, in any order.
    Slots(&'a [Slot]),
    /// All.
    Everything,
}

impl Keyspace {
    /// No keys. `shards` is a power of two up to the number of slots.
    ///
    /// # Panics
    /// It is not.
    pub(crate) fn new(hash_key: Arc<HashKey>, shards: usize, databases: usize) -> Self {
        let slots = usize::from(SLOTS);
        assert!(shards.is_power_of_two() && shards <= slots, "slots are cut evenly");
        let run = slots / shards;
        let gauge = Arc::new(Gauge::default());
        let shard = |number: usize| {
            Mutex::new(Shard::new(Arc::clone(&hash_key), Arc::clone(&gauge), number * run, run, databases))
        };
        let shift = run.trailing_zeros();
        Self { shards: (0..shards).map(shard).collect(), shift, hash_key, databases, gauge }
    }

    /// How many databases there are.
    pub(crate) fn databases(&self) -> usize {
        self.databases
    }

    /// How many shards there are.
    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// What all shards hold, and what of it is spare.
    pub(crate) fn gauge(&self) -> &Gauge {
        &self.gauge
    }

    /// A key, ready to be looked for.
    #[inline]
    pub(crate) fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        Key::new(bytes, &self.hash_key)
    }

    /// What hashes are made with, for collections too.
    pub(crate) fn hash_key(&self) -> &HashKey {
        &self.hash_key
    }

    /// The shard of a slot.
    #[inline]
    pub(crate) fn shard_of(&self, slot: Slot) -> usize {
        slot.index() >> self.shift
    }

    /// Locks one shard for work that is no command's: expiry, statistics, snapshots.
    pub(crate) fn shard(&self, number: usize) -> MutexGuard<'_, Shard> {
        // Whoever panics with the lock ends the process: there is no state to mistrust.
        self.shards[number].lock()
    }

    /// The same, unless it is held by others for longer than this.
    pub(crate) fn shard_within(&self, number: usize, span: Duration) -> Option<MutexGuard<'_, Shard>> {
        self.shards[number].try_lock_for(span)
    }

    /// The same, unless whoever holds it is slow.
    pub(crate) fn shard_unless(&self, number: usize, is_slow: &AtomicBool) -> Option<MutexGuard<'_, Shard>> {
        let shard = &self.shards[number];
        if let Some(held) = shard.try_lock() {
            return Some(held);
        }
        loop {
            if is_slow.load(Ordering::Acquire) {
                return None;
            }
            if let Some(held) = shard.try_lock_for(PATIENCE) {
                return Some(held);
            }
        }
    }

    /// Has what leads to keys, and their records, brought near, of shards that nobody holds.
    ///
    /// In three rounds, for each of which the one before has brought the addresses: while one key's line is on its way, those of
    /// the others are asked for.
    pub(crate) fn fetch_ahead(&self, database: usize, keys: &[Option<Key<'_>>], fetch: Fetch) {
        let rounds = [Shard::fetch_index, Shard::fetch_entries, Shard::fetch_record];
        // One key alone has to be waited for at each step: only its record is worth it.
        let first = if keys.len() > 1 { 0 } else { rounds.len() - 1 };
        for round in &rounds[first..] {
            for key in keys.iter().flatten() {
                if let Some(shard) = self.shards[self.shard_of(key.slot)].try_lock() {
                    round(&shard, database, *key, fetch);
                }
            }
        }
    }

    /// The same for members of the collection behind a key, if that is a large one.
    pub(crate) fn fetch_members(&self, database: usize, key: Key<'_>, members: &[Option<&[u8]>], fetch: Fetch) {
        if let Some(shard) = self.shards[self.shard_of(key.slot)].try_lock() {
            shard.fetch_members(database, key, (members, &self.hash_key), fetch);
        }
    }

    /// Locks what a command wants; waits for others.
    pub(crate) fn lock(&self, wanted: Lock<'_>, database: usize, now_ms: i64, access: AccessClock) -> Keys<'_> {
        let held = self.held(wanted, |number| Some(self.shard(number))).expect("no one gives up");
        self.keys(held, wanted, database, now_ms, access)
    }

    /// The same, unless whoever holds one of them is slow.
    pub(crate) fn lock_unless(
        &self,
        wanted: Lock<'_>,
        (database, now_ms): (usize, i64),
        access: AccessClock,
        is_slow: &AtomicBool,
    ) -> Option<Keys<'_>> {
        let held = self.held(wanted, |number| self.shard_unless(number, is_slow))?;
        Some(self.keys(held, wanted, database, now_ms, access))
    }

    fn held<'s>(&'s self, wanted: Lock<'_>, lock: impl Fn(usize) -> Option<MutexGuard<'s, Shard>>) -> Option<Held<'s>> {
        Some(match wanted {
            Lock::Nothing => Held::Nothing,
            Lock::Key(key) => {
                let number = self.shard_of(key.slot);
                Held::One(number, lock(number)?)
            }
            Lock::Slots(slots) => {
                let mut numbers: Vec<usize> = slots.iter().map(|slot| self.shard_of(*slot)).collect();
                numbers.sort_unstable();
                numbers.dedup();
                let locked = numbers.into_iter().map(|number| lock(number).map(|shard| (number, shard)));
                Held::Several(locked.collect::<Option<_>>()?)
            }
            Lock::Everything => Held::All((0..self.shards.len()).map(lock).collect::<Option<_>>()?),
        })
    }

    fn keys<'s>(
        &'s self,
        held: Held<'s>,
        wanted: Lock<'_>,
        database: usize,
        now_ms: i64,
        access: AccessClock,
    ) -> Keys<'s> {
        let named = match wanted {
            Lock::Key(Key { bytes, hash, slot }) => {
                Some(Named { at: bytes.as_ptr().addr(), len: bytes.len(), hash, slot })
            }
            _ => None,
        };
        Keys {
            space: self,
            held,
            named,
            database,
            now_ms,
            access,
            chance: 0,
            expired: Vec::new(),
            manner: Manner::default(),
            noted: Vec::new(),
            told: 0,
        }
    }
}

/// The key that a command named when it locked: what was computed of it then, and where its bytes are.
#[derive(Debug, Clone, Copy)]
struct Named {
    at: usize,
    len: usize,
    hash: u64,
    slot: Slot,
}

#[derive(Debug)]
enum Held<'a> {
    Nothing,
    One(usize, MutexGuard<'a, Shard>),
    /// Sorted by number.
    Several(Vec<(usize, MutexGuard<'a, Shard>)>),
    All(Vec<MutexGuard<'a, Shard>>),
}

impl Held<'_> {
    fn is_nothing(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Several(shards) => shards.is_empty(),
            Self::One(..) | Self::All(_) => false,
        }
    }

    #[inline]
    fn shard(&self, number: usize) -> &Shard {
        match self {
            Self::One(held, shard) if *held == number => shard,
            Self::Several(shards) => shards
                .binary_search_by_key(&number, |(number, _)| *number)
                .map(|at| &*shards[at].1)
                .expect("a command touches the keys that it has named"),
            Self::All(shards) => &shards[number],
            _ => unreachable!("a command touches the keys that it has named"),
        }
    }

    #[inline]
    fn shard_mut(&mut self, number: usize) -> &mut Shard {
        match self {
            Self::One(held, shard) if *held == number => shard,
            Self::Several(shards) => shards
                .binary_search_by_key(&number, |(number, _)| *number)
                .map(|at| &mut *shards[at].1)
                .expect("a command touches the keys that it has named"),
            Self::All(shards) => &mut shards[number],
            _ => unreachable!("a command touches the keys that it has named"),
        }
    }
}

/// The value of a key is of another kind than the command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WrongKind;

/// A key that is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'a> {
    shard: &'a Shard,
    handle: Handle,
}

impl<'a> Found<'a> {
    /// Its kind.
    pub(crate) fn kind(self) -> Kind {
        self.record().kind()
    }

    /// Its record.
    pub(crate) fn record(self) -> Record<'a> {
        self.shard.record(self.handle)
    }

    /// Bytes that it takes, with what is behind it.
    pub(crate) fn bytes(self) -> usize {
        self.shard.bytes_of(self.handle)
    }

    /// The object behind it.
    ///
    /// # Panics
    /// It is a string.
    pub(crate) fn object(self) -> &'a Object {
        self.shard.object(self.handle)
    }
}

/// What a command makes of keys that have expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Expired {
    /// They are taken out.
    #[default]
    TakenOut,
    /// They are not there; who writes takes them out.
    Hidden,
    /// They are not there; nobody writes, and who looks whether they are there leaves them too.
    Kept,
    /// They are there.
    Seen,
}

/// What else a command does with keys that it comes upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Manner {
    pub(crate) expired: Expired,
    /// Keys that are made are noted, and keys that are looked for and not there.
    pub(crate) notes_new: bool,
    pub(crate) notes_missed: bool,
}

/// What was noted of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noted {
    New,
    Missed,
}

/// What a command holds and does with keys. Dropping it unlocks.
#[derive(Debug)]
pub(crate) struct Keys<'a> {
    space: &'a Keyspace,
    held: Held<'a>,
    /// The words of a command stay where they are as long as its keys are locked: the same place is the same key.
    named: Option<Named>,
    database: usize,
    now_ms: i64,
    access: AccessClock,
    chance: u32,
    /// Keys that were found to have expired, and were taken out: database and name.
    pub(crate) expired: Vec<(usize, Box<[u8]>)>,
    manner: Manner,
    /// In the order in which it happened.
    noted: Vec<(Noted, usize, Box<[u8]>)>,
    /// How many of both the log and replicas know of.
    told: usize,
}

impl<'a> Keys<'a> {
    /// Whether no shard is held: whoever wants them all has not to wait for this.
    pub(crate) fn holds_nothing(&self) -> bool {
        self.held.is_nothing()
    }

    /// What is done with keys that are come upon, from now on.
    #[inline]
    pub(crate) fn behave(&mut self, manner: Manner) {
        self.manner = manner;
    }

    /// Whether anything was noted.
    #[inline]
    pub(crate) fn has_noted(&self) -> bool {
        !self.noted.is_empty()
    }

    /// What was noted since the last call.
    pub(crate) fn take_noted(&mut self) -> Vec<(Noted, usize, Box<[u8]>)> {
        std::mem::take(&mut self.noted)
    }

    /// The time that keys are seen to expire by, Unix milliseconds.
    pub(crate) fn seen_ms(&self) -> i64 {
        if self.manner.expired == Expired::Seen { i64::MIN } else { self.now_ms }
    }

    #[cold]
    fn note(&mut self, noted: Noted, database: usize, name: &[u8]) {
        self.noted.push((noted, database, name.into()));
    }

    fn note_new(&mut self, key: Key<'_>, database: usize) {
        if self.manner.notes_new {
            self.note(Noted::New, database, key.bytes);
        }
    }

    fn miss(&mut self, key: Key<'_>) {
        self.shard_mut(key.slot).counts.misses += 1;
        if self.manner.notes_missed {
            self.note(Noted::Missed, self.database, key.bytes);
        }
    }

    /// How uses are noted.
    pub(crate) fn access(&self) -> AccessClock {
        self.access
    }

    /// Keys expire by this time from now on.
    pub(crate) fn set_now(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
    }

    /// The kind of what is behind a key, unless it has expired; it stays then.
    pub(crate) fn kind(&self, key: Key<'_>) -> Option<Kind> {
        let shard = self.shard(key.slot);
        let record = shard.record(shard.find(self.database, key)?);
        record.is_live(self.seen_ms()).then(|| record.kind())
    }

    /// Keys that were found to be gone since the last call, and that the log and replicas do not know of.
    pub(crate) fn take_untold(&mut self) -> Vec<(usize, Box<[u8]>)> {
        let untold = self.expired[self.told..].to_vec();
        self.told = self.expired.len();
        untold
    }

    /// Everybody knows of all keys that were found to be gone.
    pub(crate) fn forget_gone(&mut self) {
        self.expired.clear();
        self.told = 0;
    }

    /// The time that keys expire by, Unix milliseconds.
    pub(crate) fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// The database that keys are looked for in.
    pub(crate) fn database(&self) -> usize {
        self.database
    }

    /// How many databases there are.
    pub(crate) fn databases(&self) -> usize {
        self.space.databases()
    }

    /// Looks in another database from now on.
    pub(crate) fn select(&mut self, database: usize) {
        self.database = database;
    }

    /// A key, ready to be looked for.
    #[inline]
    pub(crate) fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        match self.named {
            Some(Named { at, len, hash, slot }) if (at, len) == (bytes.as_ptr().addr(), bytes.len()) => {
                Key { bytes, hash, slot }
            }
            _ => self.space.key(bytes),
        }
    }

    /// The shards that are held, by number.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &Shard> {
        (0..self.space.shards()).map(|number| self.held.shard(number))
    }

    /// A shard that is held.
    #[inline]
    pub(crate) fn shard(&self, slot: Slot) -> &Shard {
        self.held.shard(self.space.shard_of(slot))
    }

    /// A shard that is held, to change.
    #[inline]
    pub(crate) fn shard_mut(&mut self, slot: Slot) -> &mut Shard {
        self.held.shard_mut(self.space.shard_of(slot))
    }

    /// A shard that is held, by number.
    pub(crate) fn shard_at(&mut self, number: usize) -> &mut Shard {
        self.held.shard_mut(number)
    }

    /// Counts changes in one of the shards that are held. Says whether there was one.
    pub(crate) fn count_changes(&mut self, changes: u64) -> bool {
        let shard = match &mut self.held {
            Held::Nothing => return false,
            Held::One(_, shard) => shard,
            Held::Several(shards) => match shards.first_mut() {
                Some((_, shard)) => shard,
                None => return false,
            },
            Held::All(shards) => &mut shards[0],
        };
        shard.counts.changes += changes;
        true
    }

    /// Where a key is, if it has not expired; one that has is taken out.
    #[inline]
    fn live(&mut self, key: Key<'_>) -> Option<Handle> {
        let (database, now_ms) = (self.database, self.seen_ms());
        let shard = self.shard_mut(key.slot);
        let handle = shard.find(database, key)?;
        let record = shard.record(handle);
        if record.is_live(now_ms) {
            return Some(handle);
        }
        drop(shard.remove(database, key));
        shard.counts.expired += 1;
        self.expired.push((database, key.bytes.into()));
        None
    }

    /// The same for who only reads.
    #[inline]
    fn visible(&mut self, key: Key<'_>) -> Option<Handle> {
        if !matches!(self.manner.expired, Expired::Hidden | Expired::Kept) {
            return self.live(key);
        }
        let shard = self.shard(key.slot);
        shard.find(self.database, key).filter(|handle| shard.record(*handle).is_live(self.now_ms))
    }

    /// Looks for a key to read its value: it counts as used, and as a hit or a miss.
    #[inline]
    pub(crate) fn read(&mut self, key: Key<'_>) -> Option<Found<'_>> {
        let Some(handle) = self.visible(key) else {
            self.miss(key);
            return None;
        };
        self.shard_mut(key.slot).counts.hits += 1;
        Some(self.used(key, handle))
    }

    #[inline]
    fn used(&mut self, key: Key<'_>, handle: Handle) -> Found<'_> {
        let access = self.access;
        self.chance = self.chance.wrapping_mul(0x9e37_79b1).wrapping_add(low_half(key.hash) | 1);
        let chance = self.chance;
        let shard = self.shard_mut(key.slot);
        let noted = access.used(shard.record(handle).access(), || chance);
        shard.set_access(handle, noted);
        Found { shard, handle }
    }

    /// Looks for a key without its being used.
    pub(crate) fn peek(&mut self, key: Key<'_>) -> Option<Found<'_>> {
        let handle = self.visible(key)?;
        Some(Found { shard: self.shard(key.slot), handle })
    }

    /// Whether a key is there, which counts as a hit or a miss, but not as its being used.
    pub(crate) fn looked_for(&mut self, key: Key<'_>) -> bool {
        let is_there = self.visible(key).is_some();
        if is_there {
            self.shard_mut(key.slot).counts.hits += 1;
        } else {
            self.miss(key);
        }
        is_there
    }

    /// Whether uses of keys are not noted from now on.
    #[inline]
    pub(crate) fn keep_access(&mut self, is_kept: bool) {
        self.access.is_kept = is_kept;
    }

    /// Looks for a key as it lies there, expired or not.
    pub(crate) fn look(&self, key: Key<'_>) -> Option<Found<'_>> {
        let shard = self.shard(key.slot);
        shard.find(self.database, key).map(|handle| Found { shard, handle })
    }

    /// Whether a key is there.
    pub(crate) fn contains(&mut self, key: Key<'_>) -> bool {
        match self.manner.expired {
            Expired::Kept => self.visible(key).is_some(),
            _ => self.live(key).is_some(),
        }
    }

    /// Reads a string.
    ///
    /// # Errors
    /// The key has a value of another kind.
    #[inline]
    pub(crate) fn string(&mut self, key: Key<'_>) -> Result<Option<&[u8]>, WrongKind> {
        match self.read(key) {
            None => Ok(None),
            Some(found) if found.kind() == Kind::String => Ok(Some(found.record().value())),
            Some(_) => Err(WrongKind),
        }
    }

    /// Reads a string that is to be changed: neither hit nor miss.
    ///
    /// # Errors
    /// The key has a value of another kind.
    pub(crate) fn string_for_change(&mut self, key: Key<'_>) -> Result<Option<&[u8]>, WrongKind> {
        match self.peek(key) {
            None => Ok(None),
            Some(found) if found.kind() == Kind::String => Ok(Some(found.record().value())),
            Some(_) => Err(WrongKind),
        }
    }

    /// Writes a string; the key may exist or not, with any value.
    #[inline]
    pub(crate) fn put_string(&mut self, key: Key<'_>, value: &[u8], expiry: Expiry) {
        let (database, first) = (self.database, self.access.first());
        // A key that has expired must not hand its expiry on to what replaces it.
        let found = self.live(key);
        if found.is_none() {
            self.note_new(key, database);
        }
        self.shard_mut(key.slot).put_string_at(database, (key, found), value, false, expiry, first);
    }

    /// Makes a string exactly `len` bytes long, with zeros where nothing was, and gives it to `change`. The key is made if it
    /// is not there. What it expires at stays.
    ///
    /// # Errors
    /// The key has a value of another kind.
    pub(crate) fn change_string<R>(
        &mut self,
        key: Key<'_>,
        len: impl FnOnce(usize) -> usize,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, WrongKind> {
        let (database, first) = (self.database, self.access.first());
        let found = self.live(key);
        if found.is_none() {
            self.note_new(key, database);
        }
        let shard = self.shard_mut(key.slot);
        let handle = match found {
            Some(handle) if shard.record(handle).kind() != Kind::String => return Err(WrongKind),
            Some(handle) => handle,
            None => {
                shard.put_string(database, key, b"", true, Expiry::Never, first);
                shard.find(database, key).expect("it was just put there")
            }
        };
        let old_len = shard.record(handle).value().len();
        let handle = match len(old_len) {
            len if len == old_len => handle,
            len => shard.resize_string(database, key, handle, len),
        };
        Ok(change(shard.string_mut(database, handle)))
    }

    /// Reads a collection.
    ///
    /// # Errors
    /// The key has a value of another kind.
    pub(crate) fn get<T: Collection>(&mut self, key: Key<'_>) -> Result<Option<&T>, WrongKind> {
        match self.read(key) {
            None => Ok(None),
            Some(found) if found.kind() == T::KIND => T::of(found.object()).ok_or(WrongKind).map(Some),
            Some(_) => Err(WrongKind),
        }
    }

    /// A collection that was read before, to see it beside others: neither a use nor a look at the clock.
    pub(crate) fn view<T: Collection>(&self, key: Key<'_>) -> Option<&T> {
        let shard = self.shard(key.slot);
        let handle = shard.find(self.database, key)?;
        if shard.record(handle).kind() == T::KIND { T::of(shard.object(handle)) } else { None }
    }

    /// A collection, to change. Whoever empties it calls [`Keys::remove_if_empty`].
    ///
    /// # Errors
    /// The key has a value of another kind.
    pub(crate) fn get_mut<T: Collection>(&mut self, key: Key<'_>) -> Result<Option<&mut T>, WrongKind> {
        let Some(handle) = self.live(key) else { return Ok(None) };
        let database = self.database;
        let access = self.access.used(self.shard(key.slot).record(handle).access(), || low_half(key.hash));
        let shard = self.shard_mut(key.slot);
        shard.set_access(handle, access);
        if shard.record(handle).kind() != T::KIND {
            return Err(WrongKind);
        }
        T::of_mut(shard.object_mut(database, handle)).ok_or(WrongKind).map(Some)
    }

    /// A collection, to change; made by `new` if the key is not there.
    ///
    /// # Errors
    /// The key has a value of another kind.
    pub(crate) fn get_or_insert<T: Collection>(
        &mut self,
        key: Key<'_>,
        new: impl FnOnce() -> T,
    ) -> Result<&mut T, WrongKind> {
        if self.live(key).is_none() {
            self.put(key, new(), Expiry::Never);
        }
        self.get_mut(key).map(|found| found.expect("it was made if it was not there"))
    }

    /// Puts a collection behind a key; the key may exist or not, with any value.
    pub(crate) fn put<T: Collection>(&mut self, key: Key<'_>, value: T, expiry: Expiry) {
        self.put_object(key, T::KIND, value.into_object(), expiry);
    }

    /// Puts an object behind a key; the key may exist or not, with any value.
    pub(crate) fn put_object(&mut self, key: Key<'_>, kind: Kind, object: Object, expiry: Expiry) {
        let (database, first) = (self.database, self.access.first());
        self.make_way(key);
        self.shard_mut(key.slot).put_object(database, key, kind, object, expiry, first);
    }

    /// Takes a key out if its collection has become empty. Says whether it did.
    pub(crate) fn remove_if_empty<T: Collection>(&mut self, key: Key<'_>) -> bool {
        let is_empty = match self.peek(key) {
            Some(found) if found.kind() == T::KIND => T::of(found.object()).is_some_and(T::is_empty),
            _ => false,
        };
        is_empty && self.remove(key).is_some()
    }

    /// Takes a key out that a command has let expire.
    pub(crate) fn remove_expired(&mut self, key: Key<'_>) {
        self.remove(key);
        self.shard_mut(key.slot).counts.expired += 1;
    }

    /// Counts fields of a hash that a command has let expire, or has found to have expired.
    pub(crate) fn count_expired_fields(&mut self, key: Key<'_>, fields: usize) {
        self.shard_mut(key.slot).counts.expired_fields += fields as u64;
    }

    /// Takes a key out.
    pub(crate) fn remove(&mut self, key: Key<'_>) -> Option<Removed> {
        self.live(key)?;
        let database = self.database;
        self.shard_mut(key.slot).remove(database, key)
    }

    /// Gives what is behind a key to the same key of another database. Says whether it did: not if that has the key.
    pub(crate) fn move_to(&mut self, key: Key<'_>, target: usize) -> bool {
        let source = std::mem::replace(&mut self.database, target);
        let is_there = self.contains(key);
        self.database = source;
        let Some(handle) = self.live(key).filter(|_| !is_there) else { return false };
        self.note_new(key, target);
        let shard = self.shard_mut(key.slot);
        let record = shard.record(handle);
        let (expiry, is_raw, access) =
            (record.expiry().map_or(Expiry::Never, Expiry::At), record.is_raw(), record.access());
        let text = (record.kind() == Kind::String).then(|| record.value().to_vec());
        let removed = shard.remove(source, key).expect("it was just found");
        match (text, removed.object) {
            (Some(text), _) => shard.put_string(target, key, &text, is_raw, expiry, access),
            (None, Some(object)) => drop(shard.put_object(target, key, removed.kind, object, expiry, access)),
            (None, None) => unreachable!("what is no string has an object"),
        }
        true
    }

    /// Gives what is behind one key to another, with its expiry, whatever that one has. Says whether there was anything.
    pub(crate) fn rename(&mut self, from: Key<'_>, to: Key<'_>) -> bool {
        let Some(handle) = self.live(from) else { return false };
        let record = self.shard(from.slot).record(handle);
        let (expiry, is_raw) = (record.expiry().map_or(Expiry::Never, Expiry::At), record.is_raw());
        let text = (record.kind() == Kind::String).then(|| record.value().to_vec());
        let removed = self.remove(from).expect("it was just found");
        let (database, first) = (self.database, self.access.first());
        // The other key goes, and comes again.
        self.live(to);
        self.note_new(to, database);
        match (text, removed.object) {
            (Some(text), _) => self.shard_mut(to.slot).put_string(database, to, &text, is_raw, expiry, first),
            (None, Some(object)) => {
                self.shard_mut(to.slot).put_object(database, to, removed.kind, object, expiry, first);
            }
            (None, None) => unreachable!("what is no string has an object"),
        }
        true
    }

    /// Gives a copy of what is behind a key, with its expiry, to a key of another database or the same, whatever that one has.
    /// Says whether there was anything.
    pub(crate) fn copy(&mut self, from: Key<'_>, to: Key<'_>, target: usize) -> bool {
        let Some(handle) = self.live(from) else { return false };
        // The command has taken out what was there.
        self.note_new(to, target);
        let (first, shard) = (self.access.first(), self.shard(from.slot));
        let record = shard.record(handle);
        let (kind, is_raw) = (record.kind(), record.is_raw());
        let expiry = record.expiry().map_or(Expiry::Never, Expiry::At);
        if kind == Kind::String {
            let text = record.value().to_vec();
            self.shard_mut(to.slot).put_string(target, to, &text, is_raw, expiry, first);
        } else {
            let object = shard.object(handle).clone();
            self.shard_mut(to.slot).put_object(target, to, kind, object, expiry, first);
        }
        true
    }

    /// When a key expires: nothing if it is not there, `Some(None)` if it never does.
    #[expect(clippy::option_option, reason = "absent and never are two answers of one question")]
    pub(crate) fn expiry(&mut self, key: Key<'_>) -> Option<Option<i64>> {
        self.peek(key).map(|found| found.record().expiry())
    }

    /// Changes when a key expires, if at all. Says whether the key is there.
    pub(crate) fn set_expiry(&mut self, key: Key<'_>, expiry: Option<i64>) -> bool {
        let Some(handle) = self.live(key) else { return false };
        let database = self.database;
        self.shard_mut(key.slot).set_expiry(database, key, handle, expiry);
        true
    }

    /// Notes when a key was used, or how often, instead of what would be noted by itself.
    pub(crate) fn set_access(&mut self, key: Key<'_>, access: u32) {
        if let Some(handle) = self.live(key) {
            self.shard_mut(key.slot).set_access(handle, access);
        }
    }

    /// Fields of a hash may expire earlier than before, or none any more.
    pub(crate) fn schedule_fields(&mut self, key: Key<'_>) {
        let database = self.database;
        let shard = self.shard_mut(key.slot);
        if let Some(handle) = shard.find(database, key) {
            shard.schedule_fields(database, handle);
        }
    }

    /// A value is put behind a key: one that has expired must not hand its expiry on, and one that is not there is new.
    #[inline]
    fn make_way(&mut self, key: Key<'_>) {
        if self.live(key).is_none() {
            self.note_new(key, self.database);
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
const fn low_half(hash: u64) -> u32 {
    hash as u32
}
