//! A map from member to value, both bytes: what large sets, hashes and sorted sets are made of.
//!
//! Each entry is one cell of an [`Arena`], found through an [`Index`]. A handle stays with its entry until that entry is
//! removed or its value becomes so much longer or shorter that it needs another cell ([`Dict::insert`] says).
//!
//! Layout of a cell: flags (1 byte), length of the member, length of the value if there is one, expiry if there is one
//! (8 bytes), member, value. Lengths take a byte each, or four each where one of them needs more. All little-endian.
//!
//! Deliberately absent: the meaning of an expiry (an expired entry is an entry here), and the hash key, which all calls
//! that hash are given, always the same.

use std::collections::BTreeSet;

use crate::ahead::Fetch;
use crate::memory::arena::{Arena, Handle};
use crate::memory::hash_key::HashKey;
use crate::memory::index::{Index, Records};
use crate::value::choose::choose;

/// The entry has an expiry.
const EXPIRES: u8 = 1;
/// Lengths have four bytes.
const WIDE: u8 = 2;
/// The entry has a value that is not empty.
const VALUED: u8 = 4;

/// Different entries are drawn one by one if they are less than one in so many; otherwise all entries are walked.
const DISTINCT_DRAWN_PART: usize = 8;

/// Bytes of an entry that are brought near; the processor itself guesses the rest of a longer one.
const ENTRY_BYTES_NEAR: usize = 1 << 10;

/// The most bytes before the member.
const HEADER_BYTES_MAX: usize = 1 + 4 + 4 + 8;

/// An entry of a [`Dict`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What it is found by.
    pub member: &'a [u8],
    /// What it is found for.
    pub value: &'a [u8],
    /// When it expires, in milliseconds since 1970, if it does.
    pub expiry_ms: Option<i64>,
}

impl<'a> Entry<'a> {
    fn decode(cell: &'a [u8]) -> Self {
        let (flags, mut rest) = (cell[0], &cell[1..]);
        let is_wide = flags & WIDE != 0;
        let member_len = decode_len(&mut rest, is_wide);
        let value_len = if flags & VALUED == 0 { 0 } else { decode_len(&mut rest, is_wide) };
        let expiry_ms = (flags & EXPIRES != 0).then(|| i64::from_le_bytes(*take(&mut rest)));
        let (member, rest) = rest.split_at(member_len);
        Self { member, value: &rest[..value_len], expiry_ms }
    }

    /// The bytes before the member, and how many they are.
    fn header(&self) -> ([u8; HEADER_BYTES_MAX], usize) {
        let mut header = [0; HEADER_BYTES_MAX];
        let mut at = 1;
        let is_wide = self.member.len().max(self.value.len()) > usize::from(u8::MAX);
        let mut put = |bytes: &[u8]| {
            header[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        let lens = [Some(self.member), (!self.value.is_empty()).then_some(self.value)];
        for bytes in lens.into_iter().flatten() {
            let len = u32::try_from(bytes.len()).expect("members and values have at most 2^32 - 1 bytes");
            put(&len.to_le_bytes()[..if is_wide { 4 } else { 1 }]);
        }
        if let Some(expiry_ms) = self.expiry_ms {
            put(&expiry_ms.to_le_bytes());
        }
        header[0] = u8::from(self.expiry_ms.is_some()) * EXPIRES
            + u8::from(is_wide) * WIDE
            + u8::from(!self.value.is_empty()) * VALUED;
        (header, at)
    }
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> &'a [u8; N] {
    let (taken, rest) = bytes.split_first_chunk().expect("a cell holds what its flags say");
    *bytes = rest;
    taken
}

#[inline]
fn decode_len(bytes: &mut &[u8], is_wide: bool) -> usize {
    if is_wide { u32::from_le_bytes(*take(bytes)) as usize } else { usize::from(take::<1>(bytes)[0]) }
}

/// Entries by member. An empty one allocates nothing.
#[derive(Debug, Clone, Default)]
pub struct Dict {
    arena: Arena,
    index: Index,
}

/// What [`Dict::insert`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inserted {
    /// Where the entry is now.
    pub handle: Handle,
    /// Where it was before, if it was there.
    pub before: Option<Handle>,
}

impl Inserted {
    /// Whether the member was not there before.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.before.is_none()
    }
}

impl Dict {
    /// A dict without entries.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Entries.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no entry.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Bytes taken from the allocator, without its own bookkeeping.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        self.arena.bytes_held() + self.index.bytes_held()
    }

    /// Where a member is.
    #[inline]
    #[must_use]
    pub fn find(&self, key: &HashKey, member: &[u8]) -> Option<Handle> {
        self.index.find(key.hash(member), |handle| self.entry(handle).member == member)
    }

    /// Has what a search for this hash begins with brought near.
    pub(crate) fn fetch_home(&self, hash: u64, fetch: Fetch) {
        if let Some((from, bytes)) = self.index.home(hash) {
            fetch(from, bytes);
        }
    }

    /// Has what may be entries with this hash brought near.
    pub(crate) fn fetch_entries(&self, hash: u64, fetch: Fetch) {
        self.index.suspects(hash, |handle| {
            let cell = self.arena.cell(handle);
            fetch(cell.as_ptr(), cell.len().min(ENTRY_BYTES_NEAR));
        });
    }

    /// The entry with this handle.
    ///
    /// # Panics
    /// When there is none; or another entry comes back.
    #[inline]
    #[must_use]
    pub fn entry(&self, handle: Handle) -> Entry<'_> {
        Entry::decode(self.arena.cell(handle))
    }

    /// The entry of a member.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &HashKey, member: &[u8]) -> Option<Entry<'_>> {
        Some(self.entry(self.find(key, member)?))
    }

    /// Whether a member is there.
    #[inline]
    #[must_use]
    pub fn contains(&self, key: &HashKey, member: &[u8]) -> bool {
        self.find(key, member).is_some()
    }

    /// The value of an entry, to change in place.
    ///
    /// # Panics
    /// When there is no entry with this handle; or another entry's value comes back.
    #[must_use]
    pub fn value_mut(&mut self, handle: Handle) -> &mut [u8] {
        let entry = self.entry(handle);
        let (_, header_len) = entry.header();
        let (start, len) = (header_len + entry.member.len(), entry.value.len());
        &mut self.arena.cell_mut(handle)[start..start + len]
    }

    /// Puts an entry in, instead of the one with the same member if there is one. A handle stays the same if flags and
    /// the length of the value do.
    ///
    /// # Panics
    /// When member and value have more than 4 GiB together.
    pub fn insert(&mut self, key: &HashKey, entry: Entry<'_>) -> Inserted {
        let hash = key.hash(entry.member);
        let before = self.index.find(hash, |handle| self.entry(handle).member == entry.member);
        let (header, header_len) = entry.header();
        let len = header_len + entry.member.len() + entry.value.len();
        let handle = match before {
            Some(handle) if self.arena.fits(handle, len) => handle,
            _ => self.arena.alloc(len),
        };
        let (head, rest) = self.arena.cell_mut(handle).split_at_mut(header_len);
        head.copy_from_slice(&header[..header_len]);
        let (member, rest) = rest.split_at_mut(entry.member.len());
        member.copy_from_slice(entry.member);
        rest[..entry.value.len()].copy_from_slice(entry.value);
        match before {
            None => self.index.insert(hash, handle, &Held { arena: &self.arena, key }),
            Some(old) if old != handle => {
                let is_replaced = self.index.replace(hash, old, handle);
                assert!(is_replaced, "the handle was found in the index");
                self.arena.free(old);
            }
            Some(_) => {}
        }
        Inserted { handle, before }
    }

    /// Says when an entry expires, or that it does not. Its new handle, or none if there is no such member.
    pub fn set_expiry(&mut self, key: &HashKey, member: &[u8], expiry_ms: Option<i64>) -> Option<Inserted> {
        let entry = self.get(key, member)?;
        let value = entry.value.to_vec();
        Some(self.insert(key, Entry { member, value: &value, expiry_ms }))
    }

    /// Takes a member out. Its handle, which means nothing any more, if it was there.
    pub fn remove(&mut self, key: &HashKey, member: &[u8]) -> Option<Handle> {
        let Self { arena, index } = self;
        let is = |handle| Entry::decode(arena.cell(handle)).member == member;
        let handle = index.remove(key.hash(member), is, &Held { arena, key })?;
        self.free(handle);
        Some(handle)
    }

    /// Takes out the entry with this handle.
    ///
    /// # Panics
    /// When there is none.
    pub fn remove_handle(&mut self, key: &HashKey, handle: Handle) {
        let Self { arena, index } = self;
        let hash = Held { arena, key }.hash(handle);
        let removed = index.remove(hash, |other| other == handle, &Held { arena, key });
        assert!(removed.is_some(), "an entry that is there is removed");
        self.free(handle);
    }

    fn free(&mut self, handle: Handle) {
        self.arena.free(handle);
        if self.is_empty() {
            self.arena.clear();
        }
    }

    /// Visits entries as [`Index::scan`] does.
    pub fn scan<'a>(&'a self, key: &HashKey, cursor: u32, count: usize, mut visit: impl FnMut(Entry<'a>)) -> u32 {
        self.index.scan(cursor, count, &Held { arena: &self.arena, key }, |handle| visit(self.entry(handle)))
    }

    /// The handle of an entry, each with the same chance, if there is one. `draw` gives evenly spread numbers of 64 bits.
    #[must_use]
    pub fn random(&self, draw: impl FnMut() -> u64) -> Option<Handle> {
        self.index.random(draw)
    }

    /// Shows so many different entries, or all if there are not so many. Each selection has the same chance, but not each
    /// order. `draw` gives evenly spread numbers of 64 bits.
    pub fn random_distinct<'a>(&'a self, count: usize, mut draw: impl FnMut() -> u64, mut show: impl FnMut(Entry<'a>)) {
        if count >= self.len() / DISTINCT_DRAWN_PART {
            choose(self.iter(), self.len(), count, draw, show);
            return;
        }
        let mut drawn = BTreeSet::new();
        while drawn.len() < count {
            let handle = self.random(&mut draw).expect("there are more entries than are wanted");
            if drawn.insert(handle) {
                show(self.entry(handle));
            }
        }
    }

    /// All entries, in no promised order.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.index.iter().map(|handle| self.entry(handle))
    }

    /// All handles, in no promised order.
    pub fn handles(&self) -> impl Iterator<Item = Handle> + '_ {
        self.index.iter()
    }

    /// Forgets all entries and gives all memory back.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The entries, as the index asks about them.
struct Held<'a> {
    arena: &'a Arena,
    key: &'a HashKey,
}

impl Records for Held<'_> {
    fn hash(&self, handle: Handle) -> u64 {
        self.key.hash(Entry::decode(self.arena.cell(handle)).member)
    }

    fn touch(&self, handle: Handle) {
        self.arena.touch(handle);
    }
}

#[cfg(test)]
mod tests;
