//! Log entry: one put, move or removal, as batches and summaries list it.
//!
//! A put and a move have the same form: the blob lies where the entry says, and earlier records of it are dead.

use ashlar_wire::id::BlobId;

use super::head::head_len;
use super::request::HEADER_BYTES_MAX;
use crate::buffer::BLOCK_BYTES;
use crate::cursor::{FieldReader, FieldWriter};

/// Bytes of the written form.
pub(super) const ENTRY_LEN: usize = 40;
/// Heads of blobs start at multiples of so many bytes.
pub(super) const PLACE_BYTES: usize = 16;

/// Sequences and lives are smaller.
pub(super) const SEQUENCE_END: u64 = 1 << 62;

const _: () = assert!(BLOCK_BYTES.is_multiple_of(PLACE_BYTES));

/// Where the head of a blob starts: units of 16 bytes from the start of the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Place(pub(super) u32);

impl Place {
    pub(super) fn at(bytes: usize) -> Self {
        assert!(bytes.is_multiple_of(PLACE_BYTES), "a head starts at a multiple of 16 bytes");
        Self(u32::try_from(bytes / PLACE_BYTES).expect("a segment has a limit"))
    }

    pub(super) const fn bytes(self) -> usize {
        self.0 as usize * PLACE_BYTES
    }
}

/// What an entry does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum EntryKind {
    /// The blob is here, its data right behind its head.
    Packed = 1,
    /// The blob is here, its data at the first block behind its head.
    Aligned = 2,
    /// There is no such blob any more.
    Removed = 3,
}

/// One change of the set of blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogEntry {
    pub(super) blob: BlobId,
    pub(super) stamp: u64,
    /// Bytes of data.
    pub(super) len: u32,
    pub(super) header_len: u16,
    pub(super) kind: EntryKind,
    /// Zero for a removal.
    pub(super) place: Place,
}

/// Where the parts of a record lie, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordSpan {
    pub(super) head: usize,
    pub(super) head_end: usize,
    pub(super) data: usize,
    /// Behind the data and what fills its last block.
    pub(super) end: usize,
}

impl LogEntry {
    pub(super) const fn removal(blob: BlobId) -> Self {
        Self { blob, stamp: 0, len: 0, header_len: 0, kind: EntryKind::Removed, place: Place(0) }
    }

    pub(super) const fn is_put(&self) -> bool {
        !matches!(self.kind, EntryKind::Removed)
    }

    /// Where the record lies if the first free byte is `cursor`. A removal has no record.
    pub(super) const fn span_from(&self, cursor: usize) -> RecordSpan {
        let head = cursor.next_multiple_of(PLACE_BYTES);
        let head_end = head + head_len(self.header_len as usize, self.len);
        let len = self.len as usize;
        match self.kind {
            EntryKind::Packed => RecordSpan { head, head_end, data: head_end, end: head_end + len },
            EntryKind::Aligned => {
                let data = head_end.next_multiple_of(BLOCK_BYTES);
                RecordSpan { head, head_end, data, end: data + len.next_multiple_of(BLOCK_BYTES) }
            }
            EntryKind::Removed => RecordSpan { head: cursor, head_end: cursor, data: cursor, end: cursor },
        }
    }

    /// Where the record lies in its segment.
    pub(super) const fn span(&self) -> RecordSpan {
        self.span_from(self.place.bytes())
    }

    /// Bytes that the entry and its record take in a segment, at most: the record, and the entry in batch and summary.
    pub(super) const fn footprint(&self) -> u64 {
        let span = self.span_from(0);
        (2 * ENTRY_LEN + span.end.next_multiple_of(PLACE_BYTES)) as u64
    }

    pub(super) fn encode(&self, out: &mut FieldWriter<'_>) {
        out.put(self.blob.as_bytes());
        out.u64(self.stamp);
        out.u32(self.len);
        out.u16(self.header_len);
        out.u8(self.kind as u8);
        out.u8(0);
        out.u32(self.place.0);
        out.u32(0);
    }

    /// Reads an entry; none if there is no such entry.
    pub(super) fn decode(fields: &mut FieldReader<'_>) -> Option<Self> {
        let blob = BlobId::from_bytes(fields.array()?);
        let (stamp, len, header_len) = (fields.u64()?, fields.u32()?, fields.u16()?);
        let kind = match fields.u8()? {
            1 => EntryKind::Packed,
            2 => EntryKind::Aligned,
            3 => EntryKind::Removed,
            _ => return None,
        };
        if fields.u8()? != 0 {
            return None;
        }
        let place = Place(fields.u32()?);
        let entry = Self { blob, stamp, len, header_len, kind, place };
        let is_sound = fields.u32()? == 0
            && usize::from(header_len) <= HEADER_BYTES_MAX
            && (entry.is_put() || entry == Self::removal(blob));
        is_sound.then_some(entry)
    }
}

#[cfg(test)]
mod tests;
