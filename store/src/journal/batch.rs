//! Batch: the unit of one journal write. A header and entries in whole blocks, then blocks of data.
//!
//! One checksum covers header and entries, another the data. Both bind the drive and its formatting by salt, and
//! position, sequence and generation through the header.

use ashlar_wire::checksum::{Checksum, Running, Salt};

use crate::buffer::{AlignedBuf, BLOCK_BYTES, Segment};
use crate::cursor::{FieldReader, FieldWriter};
use crate::journal::entry::Entry;

/// Most blocks of a batch: a megabyte of data, its entries, and as many small entries as fit beside them.
pub(crate) const BATCH_BLOCKS_MAX: usize = 260;

pub(crate) const HEADER_LEN: usize = 64;
const MAGIC: u32 = u32::from_be_bytes(*b"ajrn");
const BATCH_VERSION: u16 = 1;
const SEQUENCE_AT: usize = 16;
const CHECKSUM_AT: usize = 56;

/// Number of a batch, from 1, one more for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct BatchSeq(pub(crate) u64);

impl BatchSeq {
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// What stands at the head of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) sequence: BatchSeq,
    /// One more at each opening of the drive.
    pub(crate) generation: u64,
    /// The oldest batch that recovery needs; not above `sequence`.
    pub(crate) tail: BatchSeq,
    /// Where it lies in the ring, blocks.
    pub(crate) position: u32,
    pub(crate) meta_blocks: usize,
    pub(crate) data_blocks: usize,
    entries: u32,
    entry_bytes: u32,
    data_checksum: Checksum,
}

impl BatchHeader {
    pub(crate) const fn blocks(&self) -> usize {
        self.meta_blocks + self.data_blocks
    }
}

/// Blocks of a batch with entries of so many bytes and so many blocks of data.
pub(crate) const fn batch_blocks(entry_bytes: usize, data_blocks: usize) -> usize {
    (HEADER_LEN + entry_bytes).div_ceil(BLOCK_BYTES) + data_blocks
}

/// Where a batch stands among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchPlace {
    pub(crate) sequence: BatchSeq,
    pub(crate) generation: u64,
    pub(crate) tail: BatchSeq,
    pub(crate) position: u32,
}

/// The written form of a batch. `data` are the segments of the inline puts, in the order of their entries. This is the
/// one copy that the data of a small write undergoes.
pub(crate) fn encode_batch<'a>(
    salt: Salt,
    place: BatchPlace,
    entries: impl Iterator<Item = &'a Entry> + Clone,
    data: &[Segment],
) -> AlignedBuf {
    let entry_bytes: usize = entries.clone().map(Entry::len).sum();
    let data_blocks: usize = data.iter().map(Segment::blocks).sum();
    let meta_blocks = (HEADER_LEN + entry_bytes).div_ceil(BLOCK_BYTES);
    assert!(meta_blocks + data_blocks <= BATCH_BLOCKS_MAX, "a batch has a limit");
    let mut buf = AlignedBuf::zeroed(meta_blocks + data_blocks);
    let (meta, rest) = buf.split_at_mut(meta_blocks * BLOCK_BYTES);
    let mut at = 0;
    for segment in data {
        rest[at..][..segment.bytes().len()].copy_from_slice(segment.bytes());
        at += segment.bytes().len();
    }
    let mut data_sum = Running::default();
    data_sum.update(rest);
    let mut out = FieldWriter::new(meta);
    out.u32(MAGIC);
    out.u16(BATCH_VERSION);
    out.u16(u16::try_from(meta_blocks).expect("a batch has a limit"));
    out.u32(u32::try_from(data_blocks).expect("a batch has a limit"));
    out.u32(u32::try_from(entries.clone().count()).expect("a batch has a limit"));
    out.u64(place.sequence.0);
    out.u64(place.generation);
    out.u64(place.tail.0);
    out.u32(place.position);
    out.u32(u32::try_from(entry_bytes).expect("a batch has a limit"));
    out.u64(data_sum.checksum(salt).0);
    out.u64(0);
    entries.for_each(|entry| entry.encode(&mut out));
    let sum = meta_checksum(salt, meta);
    meta[CHECKSUM_AT..][..8].copy_from_slice(&sum.0.to_be_bytes());
    buf
}

fn meta_checksum(salt: Salt, meta: &[u8]) -> Checksum {
    let mut running = Running::default();
    running.update(&meta[..CHECKSUM_AT]);
    running.update(&meta[CHECKSUM_AT + 8..]);
    running.checksum(salt)
}

/// Reads the header at a block of the ring; none if no batch begins there. Its entries are whole then; its data may not
/// be: see [`data_is_whole`].
pub(crate) fn decode_header(salt: Salt, ring: &[u8], position: u32) -> Option<BatchHeader> {
    let bytes = ring.get(position as usize * BLOCK_BYTES..)?;
    let mut fields = FieldReader::new(bytes);
    if fields.u32()? != MAGIC || fields.u16()? != BATCH_VERSION {
        return None;
    }
    let (meta_blocks, data_blocks) = (usize::from(fields.u16()?), fields.u32()? as usize);
    let entries = fields.u32()?;
    let (sequence, generation, tail) = (BatchSeq(fields.u64()?), fields.u64()?, BatchSeq(fields.u64()?));
    let (own_position, entry_bytes) = (fields.u32()?, fields.u32()?);
    let data_checksum = Checksum(fields.u64()?);
    let sum = fields.u64()?;
    let sizes_ok = meta_blocks == (HEADER_LEN + entry_bytes as usize).div_ceil(BLOCK_BYTES)
        && meta_blocks <= BATCH_BLOCKS_MAX
        && data_blocks <= BATCH_BLOCKS_MAX - meta_blocks
        && bytes.len() >= (meta_blocks + data_blocks) * BLOCK_BYTES;
    if !sizes_ok || own_position != position || tail > sequence {
        return None;
    }
    if meta_checksum(salt, &bytes[..meta_blocks * BLOCK_BYTES]).0 != sum {
        return None;
    }
    Some(BatchHeader {
        sequence,
        generation,
        tail,
        position,
        meta_blocks,
        data_blocks,
        entries,
        entry_bytes,
        data_checksum,
    })
}

/// The number of a batch whose write was begun at a block of the ring, as far as its first sector tells; the rest may be missing.
pub(crate) fn begun_sequence(ring: &[u8], position: u32) -> Option<BatchSeq> {
    let mut fields = FieldReader::new(ring.get(position as usize * BLOCK_BYTES..)?);
    let is_batch = fields.u32()? == MAGIC;
    fields.take(SEQUENCE_AT - 4)?;
    fields.u64().map(BatchSeq).filter(|_| is_batch)
}

/// Whether the data behind a batch's entries is what was written with them.
pub(crate) fn data_is_whole(salt: Salt, ring: &[u8], header: &BatchHeader) -> bool {
    let start = (header.position as usize + header.meta_blocks) * BLOCK_BYTES;
    let mut running = Running::default();
    running.update(&ring[start..][..header.data_blocks * BLOCK_BYTES]);
    running.checksum(salt) == header.data_checksum
}

/// Reads the entries of a batch, each with the ring's block in which its data starts; none if they are not valid, which
/// a right checksum rules out unless another program wrote it.
pub(crate) fn decode_entries(ring: &[u8], header: &BatchHeader) -> Option<Vec<(Entry, usize)>> {
    let start = header.position as usize * BLOCK_BYTES;
    let bytes = &ring[start + HEADER_LEN..][..header.entry_bytes as usize];
    let mut fields = FieldReader::new(bytes);
    let mut data_at = header.position as usize + header.meta_blocks;
    let data_end = data_at + header.data_blocks;
    let mut entries = Vec::new();
    for _ in 0..header.entries {
        let entry = Entry::decode(&mut fields)?;
        let blocks = entry.data_blocks();
        entries.push((entry, data_at));
        data_at += blocks;
    }
    (fields.take(1).is_none() && data_at == data_end).then_some(entries)
}

#[cfg(test)]
mod tests;
