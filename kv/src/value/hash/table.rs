//! A large hash, or one with fields that expire.

use std::collections::BTreeSet;

use super::Expiry;
use crate::memory::arena::Handle;
use crate::memory::hash_key::HashKey;
use crate::value::choose::choose;
use crate::value::dict::{Dict, Entry};

/// Entries tried before those that have not expired are counted off.
const RANDOM_TRIES_MAX: usize = 64;

/// About what an expiry takes in its order, in bytes: a tree of nodes that are two thirds full.
const EXPIRY_BYTES: usize = 26;

/// Fields in a dict, and the order in which they expire.
#[derive(Debug, Clone)]
pub(super) struct Table {
    dict: Dict,
    /// Exactly the entries of `dict` that have an expiry.
    expiries: BTreeSet<(i64, Handle)>,
    /// When the owner has it on its list to look for expired fields.
    scheduled_ms: Option<i64>,
}

fn has_expired(entry: &Entry<'_>, now_ms: i64) -> bool {
    entry.expiry_ms.is_some_and(|expiry_ms| expiry_ms < now_ms)
}

impl Table {
    /// A table of fields that do not expire.
    pub(super) const fn new(dict: Dict) -> Self {
        Self { dict, expiries: BTreeSet::new(), scheduled_ms: None }
    }

    pub(super) const fn dict(&self) -> &Dict {
        &self.dict
    }

    pub(super) fn bytes_held(&self) -> usize {
        self.dict.bytes_held() + self.expiries.len() * EXPIRY_BYTES
    }

    pub(super) fn expiring_len(&self) -> usize {
        self.expiries.len()
    }

    pub(super) fn next_expiry_ms(&self) -> Option<i64> {
        self.expiries.first().map(|(expiry_ms, _)| *expiry_ms)
    }

    pub(super) const fn scheduled_ms(&self) -> Option<i64> {
        self.scheduled_ms
    }

    pub(super) const fn set_scheduled(&mut self, at_ms: Option<i64>) {
        self.scheduled_ms = at_ms;
    }

    pub(super) fn expired_len(&self, now_ms: i64) -> usize {
        self.expiries.iter().take_while(|(expiry_ms, _)| *expiry_ms < now_ms).count()
    }

    fn has_any_expired(&self, now_ms: i64) -> bool {
        self.next_expiry_ms().is_some_and(|expiry_ms| expiry_ms < now_ms)
    }

    pub(super) fn get(&self, name: &[u8], now_ms: i64, key: &HashKey) -> Option<Entry<'_>> {
        self.dict.get(key, name).filter(|entry| !has_expired(entry, now_ms))
    }

    /// Whether the field was not there before.
    pub(super) fn set(&mut self, name: &[u8], value: &[u8], expiry: Expiry, now_ms: i64, key: &HashKey) -> bool {
        if self.expiries.is_empty() && !matches!(expiry, Expiry::At(_)) {
            return self.dict.insert(key, Entry { member: name, value, expiry_ms: None }).is_new();
        }
        let before = self.get(name, now_ms, key);
        let (is_new, kept) = (before.is_none(), before.and_then(|entry| entry.expiry_ms));
        let expiry_ms = match expiry {
            Expiry::Never => None,
            Expiry::Kept => kept,
            Expiry::At(expiry_ms) => Some(expiry_ms),
        };
        self.forget_expiry(name, key);
        let inserted = self.dict.insert(key, Entry { member: name, value, expiry_ms });
        self.expiries.extend(expiry_ms.map(|expiry_ms| (expiry_ms, inserted.handle)));
        is_new
    }

    /// Whether the field was there.
    pub(super) fn remove(&mut self, name: &[u8], now_ms: i64, key: &HashKey) -> bool {
        if self.expiries.is_empty() {
            return self.dict.remove(key, name).is_some();
        }
        if self.get(name, now_ms, key).is_none() {
            // One that has expired stays for whoever tells replicas of it.
            return false;
        }
        self.forget_expiry(name, key);
        self.dict.remove(key, name);
        true
    }

    pub(super) fn set_expiry(&mut self, name: &[u8], expiry_ms: Option<i64>, key: &HashKey) {
        self.forget_expiry(name, key);
        let changed = self.dict.set_expiry(key, name, expiry_ms);
        self.expiries.extend(expiry_ms.zip(changed).map(|(expiry_ms, changed)| (expiry_ms, changed.handle)));
    }

    /// Takes a field out of the order. Its entry still has the expiry, and is to be replaced or removed.
    fn forget_expiry(&mut self, name: &[u8], key: &HashKey) {
        let handle = self.dict.find(key, name);
        if let Some((handle, expiry_ms)) = handle.and_then(|handle| Some((handle, self.dict.entry(handle).expiry_ms?)))
        {
            let was_there = self.expiries.remove(&(expiry_ms, handle));
            assert!(was_there, "every expiry is in the order");
        }
    }

    pub(super) fn reap(&mut self, now_ms: i64, fields_max: usize, key: &HashKey, mut show: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        while count < fields_max && self.has_any_expired(now_ms) {
            let (_, handle) = self.expiries.pop_first().expect("a field has expired");
            show(self.dict.entry(handle).member);
            self.dict.remove_handle(key, handle);
            count += 1;
        }
        count
    }

    pub(super) fn iter(&self, now_ms: i64) -> impl Iterator<Item = Entry<'_>> {
        self.dict.iter().filter(move |entry| !has_expired(entry, now_ms))
    }

    pub(super) fn scan<'a>(
        &'a self,
        cursor: u32,
        count: usize,
        now_ms: i64,
        key: &HashKey,
        mut visit: impl FnMut(Entry<'a>),
    ) -> u32 {
        self.dict.scan(key, cursor, count, |entry| {
            if !has_expired(&entry, now_ms) {
                visit(entry);
            }
        })
    }

    pub(super) fn random(&self, now_ms: i64, mut draw: impl FnMut() -> u64) -> Option<Entry<'_>> {
        for _ in 0..RANDOM_TRIES_MAX {
            let entry = self.dict.entry(self.dict.random(&mut draw)?);
            if !has_expired(&entry, now_ms) {
                return Some(entry);
            }
        }
        let mut found = None;
        self.random_distinct(1, now_ms, draw, |entry| found = Some(entry));
        found
    }

    pub(super) fn random_distinct<'a>(
        &'a self,
        count: usize,
        now_ms: i64,
        draw: impl FnMut() -> u64,
        show: impl FnMut(Entry<'a>),
    ) {
        if self.has_any_expired(now_ms) {
            let live = self.dict.len() - self.expired_len(now_ms);
            choose(self.iter(now_ms), live, count, draw, show);
        } else {
            self.dict.random_distinct(count, draw, show);
        }
    }
}
