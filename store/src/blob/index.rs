//! Index of blobs in memory: where each blob lies, which are removed, and how many records of each are on the drive.
//!
//! A tombstone is needed while the drive has a record of its blob: without it the next opening would find that record
//! alone. So records are counted, dead ones too; erasing a segment takes its records off the counts.

use core::mem::size_of;
use std::collections::BTreeMap;

use ashlar_wire::id::BlobId;

use super::entry::{EntryKind, LogEntry, Place};

/// What is known of a blob or a removed blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexEntry {
    stamp: u64,
    len: u32,
    /// The segment with its newest entry.
    pub(super) segment: u32,
    place: Place,
    header_len: u16,
    pub(super) kind: EntryKind,
    /// Records of the blob on the drive. At the greatest value it is not known any more and never falls.
    copies: u8,
}

const _: () = assert!(size_of::<IndexEntry>() == 24);

/// Counts of records stay there until the next opening.
const COPIES_UNKNOWN: u8 = u8::MAX;

impl IndexEntry {
    fn new(entry: &LogEntry, segment: u32, copies: u8) -> Self {
        let LogEntry { stamp, len, header_len, kind, place, .. } = *entry;
        Self { stamp, len, segment, place, header_len, kind, copies }
    }

    /// The entry of the log that it was made from.
    pub(super) const fn log_entry(&self, blob: BlobId) -> LogEntry {
        let Self { stamp, len, place, header_len, kind, .. } = *self;
        LogEntry { blob, stamp, len, header_len, kind, place }
    }

    const fn is_live(&self) -> bool {
        !matches!(self.kind, EntryKind::Removed)
    }

    /// Whether a record of the log is the one in use.
    pub(super) fn is_at(&self, entry: &LogEntry, segment: u32) -> bool {
        (self.segment, self.kind, self.place) == (segment, entry.kind, entry.place)
    }
}

/// Space that is no longer in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Released {
    pub(super) segment: u32,
    pub(super) bytes: u64,
}

/// All blobs and tombstones.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: BTreeMap<BlobId, IndexEntry>,
    live: usize,
    data_bytes: u64,
}

impl Index {
    /// A blob; none for a removed one.
    pub(super) fn live(&self, blob: BlobId) -> Option<IndexEntry> {
        self.entries.get(&blob).copied().filter(IndexEntry::is_live)
    }

    /// A blob or a tombstone.
    pub(super) fn get(&self, blob: BlobId) -> Option<IndexEntry> {
        self.entries.get(&blob).copied()
    }

    /// Blobs and tombstones.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) const fn live_count(&self) -> usize {
        self.live
    }

    pub(super) const fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Blobs behind one, ascending.
    pub(super) fn behind(&self, after: Option<BlobId>) -> impl Iterator<Item = (BlobId, IndexEntry)> {
        use core::ops::Bound;
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = self.entries.range((first, Bound::Unbounded));
        entries.filter(|(_, entry)| entry.is_live()).map(|(blob, entry)| (*blob, *entry))
    }

    /// Entries that are in use in a segment: a look at all of them, for a segment whose summary is damaged.
    pub(super) fn in_segment(&self, segment: u32) -> Vec<LogEntry> {
        let inside = self.entries.iter().filter(|(_, entry)| entry.segment == segment);
        inside.map(|(blob, entry)| entry.log_entry(*blob)).collect()
    }

    fn set(&mut self, blob: BlobId, entry: Option<IndexEntry>) {
        let before = match entry {
            Some(entry) => self.entries.insert(blob, entry),
            None => self.entries.remove(&blob),
        };
        for held in before.iter().filter(|held| held.is_live()) {
            self.live -= 1;
            self.data_bytes -= u64::from(held.len);
        }
        for held in entry.iter().filter(|held| held.is_live()) {
            self.live += 1;
            self.data_bytes += u64::from(held.len);
        }
    }

    /// Follows a durable entry, the newest of its blob. Says which space it frees.
    pub(super) fn apply(&mut self, entry: &LogEntry, segment: u32) -> Option<Released> {
        let held = self.get(entry.blob);
        let copies = held.map_or(0, |held| held.copies).saturating_add(u8::from(entry.is_put()));
        self.set(entry.blob, Some(IndexEntry::new(entry, segment, copies)));
        held.map(|held| Released { segment: held.segment, bytes: held.log_entry(entry.blob).footprint() })
    }

    /// Follows an entry at opening, where segments come in any order: `is_newer` compares the segments of two entries.
    pub(super) fn recover(&mut self, entry: &LogEntry, segment: u32, is_newer: impl Fn(u32) -> bool) {
        let held = self.get(entry.blob);
        let copies = held.map_or(0, |held| held.copies).saturating_add(u8::from(entry.is_put()));
        let found = match held {
            Some(held) if held.segment != segment && !is_newer(held.segment) => IndexEntry { copies, ..held },
            _ => IndexEntry::new(entry, segment, copies),
        };
        self.set(entry.blob, Some(found));
    }

    /// Ends an opening: drops tombstones of which no record is left, and lists the space of everything else.
    pub(super) fn finish_recovery(&mut self) -> impl Iterator<Item = (u32, LogEntry)> {
        self.entries.retain(|_, entry| entry.is_live() || entry.copies > 0);
        self.all()
    }

    /// All blobs and tombstones, with the segments of their newest entries.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, LogEntry)> {
        self.entries.iter().map(|(blob, entry)| (entry.segment, entry.log_entry(*blob)))
    }

    /// A record of a blob was erased. Says which space is free by it: that of a tombstone that is needed no more.
    pub(super) fn forget_copy(&mut self, blob: BlobId) -> Option<Released> {
        let held = self.entries.get_mut(&blob)?;
        if held.copies != COPIES_UNKNOWN {
            held.copies = held.copies.checked_sub(1).expect("a record that is erased was counted");
        }
        let held = *held;
        if held.is_live() {
            assert!(held.copies > 0, "a live blob has a record");
            return None;
        }
        if held.copies > 0 {
            return None;
        }
        self.forget(blob)
    }

    /// Drops a tombstone. Says which space is free by it.
    pub(super) fn forget(&mut self, blob: BlobId) -> Option<Released> {
        let held = self.get(blob).filter(|held| !held.is_live())?;
        self.set(blob, None);
        Some(Released { segment: held.segment, bytes: held.log_entry(blob).footprint() })
    }
}

#[cfg(test)]
mod tests;
