//! Batch: the unit of one write of the log. A header and entries, then the records, in whole blocks.
//!
//! One checksum covers header and entries. The digest covers the heads and the checksums of the data as it is written, so
//! that a torn batch shows, and one with a blob that was damaged before compaction moved it does not.

use std::sync::Arc;

use ashlar_wire::checksum::{Checksum, Running, Salt};

use super::entry::{ENTRY_LEN, EntryKind, LogEntry, Place, SEQUENCE_END};
use super::head::{ChunkHasher, ChunkSum};
use super::planted::{BlobBug, BlobBugs};
use crate::buffer::{AlignedBuf, BLOCK_BYTES, Segment};
use crate::cursor::{FieldReader, FieldWriter};

pub(super) const HEADER_LEN: usize = 64;
const MAGIC: u32 = u32::from_be_bytes(*b"abat");
const BATCH_VERSION: u16 = 1;
pub(super) const CHECKSUM_AT: usize = 48;

/// Where a batch stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchPlace {
    pub(super) segment: u32,
    /// First block, counted from the start of the segment.
    pub(super) block: u32,
    /// One more for each batch.
    pub(super) sequence: u64,
    /// Sequence of the first batch of the segment since it was erased.
    pub(super) life: u64,
}

/// The data of a record.
#[derive(Debug, Clone)]
pub(super) enum RecordData {
    /// Whole blocks; those of a packed record are copied up to its length.
    Blocks(Vec<Segment>),
    /// Exactly the data of a packed record.
    Bytes(Vec<u8>),
}

/// What is written of a blob.
#[derive(Debug, Clone)]
pub(super) struct RecordBody {
    /// Its head, whole or, when compaction moves damage, whatever is there.
    pub(super) head: Vec<u8>,
    /// Checksums of the data as it is.
    pub(super) sums: Vec<ChunkSum>,
    pub(super) data: RecordData,
}

/// An entry with its record; a removal has none.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) entry: LogEntry,
    pub(super) body: Option<RecordBody>,
}

/// Blocks of a batch while it is put together: an upper bound, as if records started at a block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BatchSize {
    pub(super) entries: usize,
    cursor: usize,
}

impl BatchSize {
    /// The size with one more entry.
    pub(super) const fn with(self, entry: &LogEntry) -> Self {
        Self { entries: self.entries + 1, cursor: entry.span_from(self.cursor).end }
    }

    pub(super) fn blocks(&self) -> u32 {
        let blocks = meta_len(self.entries).div_ceil(BLOCK_BYTES) + self.cursor.div_ceil(BLOCK_BYTES);
        u32::try_from(blocks).expect("a batch has a limit")
    }
}

pub(super) const fn meta_len(entries: usize) -> usize {
    HEADER_LEN + entries * ENTRY_LEN
}

/// A batch ready to be written.
#[derive(Debug)]
pub(super) struct EncodedBatch {
    pub(super) segments: Vec<Segment>,
    pub(super) blocks: u32,
}

/// The written form of a batch. Says in each entry where its record lies. Aligned data is not copied.
pub(super) fn encode_batch(salt: Salt, place: BatchPlace, records: &mut [Record]) -> EncodedBatch {
    let start = place.block as usize * BLOCK_BYTES;
    let mut cursor = meta_len(records.len());
    // Aligned data stands between pieces of our own memory: pairs of where it starts in the batch and its length.
    let mut foreign: Vec<(usize, &[Segment])> = Vec::new();
    let mut foreign_bytes = 0;
    for record in records.iter_mut().filter(|record| record.entry.is_put()) {
        let span = record.entry.span_from(cursor);
        record.entry.place = Place::at(start + span.head);
        cursor = span.end;
    }
    for record in &*records {
        if let Some(RecordBody { data: RecordData::Blocks(blocks), .. }) = &record.body
            && record.entry.kind == EntryKind::Aligned
            && record.entry.len > 0
        {
            foreign.push((record.entry.span().data - start, blocks));
            foreign_bytes += blocks.iter().map(Segment::blocks).sum::<usize>() * BLOCK_BYTES;
        }
    }
    let blocks = cursor.div_ceil(BLOCK_BYTES);
    let mut own = AlignedBuf::zeroed(blocks - foreign_bytes / BLOCK_BYTES);
    let digest = fill_records(salt, records, start, &mut own);
    write_meta(salt, place, records, blocks, digest, &mut own[..meta_len(records.len())]);
    let segments = weave(own, &foreign);
    assert!(segments.iter().map(Segment::blocks).sum::<usize>() == blocks, "a batch is written whole");
    EncodedBatch { segments, blocks: u32::try_from(blocks).expect("a batch has a limit") }
}

/// Copies heads and packed data into our own memory, from which aligned data is left out.
fn fill_records(salt: Salt, records: &[Record], start: usize, own: &mut AlignedBuf) -> Checksum {
    let mut digest = Running::default();
    let mut left_out = 0;
    for record in records {
        let Some(body) = &record.body else { continue };
        let span = record.entry.span();
        assert!(body.head.len() == span.head_end - span.head, "a head has the length that its entry says");
        own[span.head - start - left_out..][..body.head.len()].copy_from_slice(&body.head);
        add_to_digest(&mut digest, &body.head, body.sums.iter().copied());
        let len = record.entry.len as usize;
        let data = &mut own[..];
        match &body.data {
            RecordData::Bytes(bytes) => data[span.data - start - left_out..][..len].copy_from_slice(bytes),
            RecordData::Blocks(_) if record.entry.kind == EntryKind::Aligned => {
                left_out += span.end - span.data;
            }
            RecordData::Blocks(blocks) => {
                let mut out = &mut data[span.data - start - left_out..][..len];
                for segment in blocks {
                    let part = segment.bytes().len().min(out.len());
                    out[..part].copy_from_slice(&segment.bytes()[..part]);
                    out = &mut out[part..];
                }
            }
        }
    }
    digest.checksum(salt)
}

fn write_meta(salt: Salt, place: BatchPlace, records: &[Record], blocks: usize, digest: Checksum, meta: &mut [u8]) {
    let mut out = FieldWriter::new(meta);
    out.u32(MAGIC);
    out.u16(BATCH_VERSION);
    out.u16(0);
    out.u32(place.segment);
    out.u32(place.block);
    out.u64(place.sequence);
    out.u64(place.life);
    out.u32(u32::try_from(records.len()).expect("a batch has a limit"));
    out.u32(u32::try_from(blocks).expect("a batch has a limit"));
    out.u64(digest.0);
    out.u64(0);
    out.u64(0);
    records.iter().for_each(|record| record.entry.encode(&mut out));
    let sum = meta_checksum(salt, meta);
    meta[CHECKSUM_AT..][..8].copy_from_slice(&sum.0.to_be_bytes());
}

/// Our own blocks with the aligned data between them.
fn weave(own: AlignedBuf, foreign: &[(usize, &[Segment])]) -> Vec<Segment> {
    let own = Arc::new(own);
    let (mut segments, mut at, mut own_at) = (Vec::new(), 0, 0);
    for (start, data) in foreign {
        let before = start / BLOCK_BYTES - at;
        if before > 0 {
            segments.push(Segment::new(Arc::clone(&own), own_at, before));
        }
        segments.extend(data.iter().filter(|segment| segment.blocks() > 0).cloned());
        at += before + data.iter().map(Segment::blocks).sum::<usize>();
        own_at += before;
    }
    if own_at < own.blocks() {
        let count = own.blocks() - own_at;
        segments.push(Segment::new(own, own_at, count));
    }
    segments
}

fn add_to_digest(digest: &mut Running, head: &[u8], sums: impl IntoIterator<Item = ChunkSum>) {
    digest.update(head);
    sums.into_iter().for_each(|sum| digest.update(&sum.0.to_be_bytes()));
}

pub(super) fn meta_checksum(salt: Salt, meta: &[u8]) -> Checksum {
    let mut running = Running::default();
    running.update(&meta[..CHECKSUM_AT]);
    running.update(&meta[CHECKSUM_AT + 8..]);
    running.checksum(salt)
}

/// A batch as it was read. Its entries are whole; its records may not be: see [`Batch::is_whole`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) place: BatchPlace,
    pub(super) blocks: u32,
    pub(super) entries: Vec<LogEntry>,
    digest: Checksum,
}

impl Batch {
    /// Reads the batch that begins at a block of a segment; none if no batch does.
    pub(super) fn decode(salt: Salt, segment: &[u8], number: u32, block: u32) -> Option<Self> {
        let bytes = segment.get(block as usize * BLOCK_BYTES..)?;
        let mut fields = FieldReader::new(bytes);
        if fields.u32()? != MAGIC || fields.u16()? != BATCH_VERSION || fields.u16()? != 0 {
            return None;
        }
        let (own_segment, own_block, sequence, life) = (fields.u32()?, fields.u32()?, fields.u64()?, fields.u64()?);
        let (count, blocks) = (fields.u32()? as usize, fields.u32()?);
        let (digest, sum) = (Checksum(fields.u64()?), fields.u64()?);
        let len = (blocks as usize).checked_mul(BLOCK_BYTES)?;
        let is_sound = (own_segment, own_block) == (number, block)
            && (1..=sequence).contains(&life)
            && sequence < SEQUENCE_END
            && fields.u64()? == 0
            && len <= bytes.len()
            && count <= len / ENTRY_LEN
            && meta_len(count) <= len;
        if !is_sound || meta_checksum(salt, &bytes[..meta_len(count)]).0 != sum {
            return None;
        }
        let entries = (0..count).map(|_| LogEntry::decode(&mut fields)).collect::<Option<Vec<_>>>()?;
        let first = block as usize * BLOCK_BYTES + meta_len(count);
        let end = (block as usize * BLOCK_BYTES) + len;
        let is_inside = |entry: &LogEntry| !entry.is_put() || entry.place.bytes() >= first && entry.span().end <= end;
        let place = BatchPlace { segment: number, block, sequence, life };
        entries.iter().all(is_inside).then_some(Self { place, blocks, entries, digest })
    }

    /// Whether the records are what was written with the entries.
    pub(super) fn is_whole(&self, salt: Salt, segment: &[u8], bugs: BlobBugs) -> bool {
        let mut digest = Running::default();
        for entry in self.entries.iter().filter(|entry| entry.is_put()) {
            let span = entry.span();
            let data = &segment[span.data..][..entry.len as usize];
            add_to_digest(&mut digest, &segment[span.head..span.head_end], ChunkHasher::new(entry.blob).sums(data));
        }
        digest.checksum(salt) == self.digest || bugs.has(BlobBug::AcceptTornBatch)
    }
}

#[cfg(test)]
mod tests;
