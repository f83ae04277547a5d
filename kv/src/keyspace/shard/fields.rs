//! Which hashes of a shard have fields that expire, in the order in which the first of each does.
//!
//! An entry stands for each hash that knows itself to be scheduled, under the time that the hash knows, and every hash with
//! fields that expire does. The time may be earlier than its first expiry, when that was put off: then nothing is found at that
//! time and the hash is scheduled anew.

use std::collections::BTreeSet;

use super::{Record, Shard};
use crate::keyspace::Kind;
use crate::keyspace::locked::Key;
use crate::memory::arena::Handle;
use crate::value::Object;
use crate::value::hash::Hash;

/// The hashes with fields that expire.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// When to look at which: Unix milliseconds, database, name.
    entries: BTreeSet<(i64, usize, Box<[u8]>)>,
    /// How many are in each database; of those behind the last that ever had one nothing is said.
    lens: Vec<usize>,
}

impl Schedule {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn insert(&mut self, at_ms: i64, database: usize, name: Box<[u8]>) {
        if self.lens.len() <= database {
            self.lens.resize(database + 1, 0);
        }
        self.lens[database] += usize::from(self.entries.insert((at_ms, database, name)));
    }

    /// # Panics
    /// It is not there.
    fn remove(&mut self, at_ms: i64, database: usize, name: Box<[u8]>) {
        let was_there = self.entries.remove(&(at_ms, database, name));
        assert!(was_there, "a hash that knows itself to be scheduled is");
        self.lens[database] -= 1;
    }

    /// The next, if its time is past.
    fn pop(&mut self, now_ms: i64) -> Option<(usize, Box<[u8]>)> {
        if self.entries.first()?.0 >= now_ms {
            return None;
        }
        let (_, database, name) = self.entries.pop_first()?;
        self.lens[database] -= 1;
        Some((database, name))
    }

    /// A database is emptied.
    pub(super) fn clear(&mut self, database: usize) {
        if let Some(len) = self.lens.get_mut(database).filter(|len| **len > 0) {
            *len = 0;
            self.entries.retain(|(_, scheduled, _)| *scheduled != database);
        }
    }

    /// Two databases are exchanged.
    pub(super) fn swap(&mut self, one: usize, other: usize) {
        if self.entries.is_empty() {
            return;
        }
        let swapped = std::mem::take(&mut self.entries).into_iter().map(|(at, database, name)| {
            let database = match database {
                database if database == one => other,
                database if database == other => one,
                database => database,
            };
            (at, database, name)
        });
        self.entries = swapped.collect();
        let last = one.max(other);
        if self.lens.len() <= last {
            self.lens.resize(last + 1, 0);
        }
        self.lens.swap(one, other);
    }
}

/// Fields that had expired and were taken out of a hash.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reaped {
    pub(crate) database: usize,
    pub(crate) name: Box<[u8]>,
    pub(crate) fields: Vec<Box<[u8]>>,
    /// They were all: the key is gone.
    pub(crate) is_gone: bool,
}

/// The hash in an object, if it is one.
fn hash_of(object: &mut Object) -> Option<&mut Hash> {
    if let Object::Hash(hash) = object { Some(hash) } else { None }
}

impl Shard {
    /// Keys of a database whose fields expire, some of them.
    pub(crate) fn keys_with_expiring_fields(&self, database: usize) -> usize {
        self.schedule.lens.get(database).copied().unwrap_or(0)
    }

    /// Whether there is a hash with fields that expire.
    pub(crate) fn has_expiring_fields(&self) -> bool {
        self.schedule.lens.iter().any(|len| *len > 0)
    }

    /// Fields of a hash may expire earlier than before, or none any more.
    pub(crate) fn schedule_fields(&mut self, database: usize, handle: Handle) {
        let record = Record::of(self.arena.cell(handle));
        if record.kind() != Kind::Hash {
            return;
        }
        let Some(hash) = hash_of(self.objects.get_mut(record.object())) else { return };
        let (next, known) = (hash.next_expiry_ms(), hash.scheduled_ms());
        if next == known || known.zip(next).is_some_and(|(known, next)| known <= next) {
            return;
        }
        hash.set_scheduled(next);
        let name: Box<[u8]> = record.key().into();
        if let Some(known) = known {
            self.schedule.remove(known, database, name.clone());
        }
        if let Some(next) = next {
            self.schedule.insert(next, database, name);
        }
    }

    /// An object leaves its key.
    pub(super) fn unschedule(schedule: &mut Schedule, database: usize, name: &[u8], object: &mut Object) {
        let Some(hash) = hash_of(object) else { return };
        if let Some(known) = hash.scheduled_ms() {
            hash.set_scheduled(None);
            schedule.remove(known, database, name.into());
        }
    }

    /// Takes fields out that have expired, up to so many, and keys that lose their last field by that.
    pub(crate) fn reap_fields(&mut self, now_ms: i64, fields_max: usize) -> Vec<Reaped> {
        let (mut all, mut left) = (Vec::new(), fields_max);
        while left > 0 {
            let Some((database, name)) = self.schedule.pop(now_ms) else { break };
            let key = Key::new(&name, &self.hash_key);
            let handle = self.find(database, key).expect("a hash that is scheduled is there");
            self.save_first(database, handle);
            let number = self.record(handle).object();
            let hash = hash_of(self.objects.get_mut(number)).expect("only hashes are scheduled");
            hash.set_scheduled(None);
            let mut fields = Vec::new();
            left -= hash.reap(now_ms, left, &self.hash_key, |field| fields.push(field.into())).min(left);
            let is_gone = hash.is_empty();
            if is_gone {
                drop(self.remove(database, key));
            } else {
                self.schedule_fields(database, handle);
            }
            if !fields.is_empty() {
                self.counts.expired_fields += fields.len() as u64;
                all.push(Reaped { database, name, fields, is_gone });
            }
        }
        all
    }
}
