//! Marks of a segment: its first block says whether it is used, its last one ends the summary.
//!
//! A mark has 48 bytes, so that the sector with it is old or new after a crash. Both marks are written when a segment is
//! erased, and either of them proves it: rot of one brings nothing back. The first mark is written again with the first
//! batch of the segment, the last one with the summary.
//!
//! The summary has the entries of all batches. It stands at the end of the segment: the last block has the mark and the
//! first entries, the others stand in the blocks before it.

use ashlar_wire::checksum::{Checksum, Running, Salt, checksum};

use super::entry::{ENTRY_LEN, LogEntry, SEQUENCE_END};
use crate::buffer::{AlignedBuf, BLOCK_BYTES};
use crate::cursor::{FieldReader, FieldWriter};

const MAGIC: u32 = u32::from_be_bytes(*b"asgm");
const MARK_VERSION: u16 = 1;
pub(super) const CHECKSUM_AT: usize = 40;
/// Where entries begin in the last block of a segment.
pub(super) const ENTRIES_AT: usize = 64;
/// Entries in the last block of a segment.
pub(super) const LAST_BLOCK_ENTRIES: usize = (BLOCK_BYTES - ENTRIES_AT) / ENTRY_LEN;

/// What a mark says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// Nothing in the segment of this life, or an earlier one, counts.
    Free {
        /// Zero for a segment that was never used.
        life: u64,
    },
    /// The segment is used. In its first block.
    Used {
        /// Sequence of its first batch.
        life: u64,
    },
    /// The segment is full and has a summary. In its last block.
    Sealed(Seal),
}

/// What the mark of a summary says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seal {
    /// Sequence of the first batch.
    pub(super) life: u64,
    /// Sequence of the last batch.
    pub(super) last: u64,
    /// Entries of the summary.
    pub(super) entries: u32,
    /// Checksum of the entries.
    sum: Checksum,
}

impl Mark {
    /// Writes the mark at the start of a block of zeroes.
    pub(super) fn encode_into(&self, salt: Salt, segment: u32, block: &mut [u8]) {
        let mut out = FieldWriter::new(block);
        out.u32(MAGIC);
        out.u16(MARK_VERSION);
        let (state, seal) = match *self {
            Self::Free { life } => (1, Seal { life, last: 0, entries: 0, sum: Checksum(0) }),
            Self::Used { life } => (2, Seal { life, last: 0, entries: 0, sum: Checksum(0) }),
            Self::Sealed(seal) => (3, seal),
        };
        out.u8(state);
        out.u8(0);
        out.u32(segment);
        out.u32(seal.entries);
        out.u64(seal.life);
        out.u64(seal.last);
        out.u64(seal.sum.0);
        let sum = checksum(salt, &block[..CHECKSUM_AT]);
        block[CHECKSUM_AT..][..8].copy_from_slice(&sum.0.to_be_bytes());
    }

    /// One block with a mark.
    pub(super) fn encode(&self, salt: Salt, segment: u32) -> AlignedBuf {
        let mut block = AlignedBuf::zeroed(1);
        self.encode_into(salt, segment, &mut block);
        block
    }

    /// Reads the mark of a segment; none if there is none.
    pub(super) fn decode(salt: Salt, segment: u32, block: &[u8]) -> Option<Self> {
        let mut fields = FieldReader::new(block);
        if fields.u32()? != MAGIC || fields.u16()? != MARK_VERSION {
            return None;
        }
        let (state, zero) = (fields.u8()?, fields.u8()?);
        let (own_segment, entries) = (fields.u32()?, fields.u32()?);
        let (life, last, sum) = (fields.u64()?, fields.u64()?, Checksum(fields.u64()?));
        if fields.u64()? != checksum(salt, &block[..CHECKSUM_AT]).0 || own_segment != segment || zero != 0 {
            return None;
        }
        let seal = Seal { life, last, entries, sum };
        if life.max(last) >= SEQUENCE_END {
            return None;
        }
        let is_bare = last == 0 && entries == 0 && sum.0 == 0;
        match state {
            1 if is_bare => Some(Self::Free { life }),
            2 if is_bare && life > 0 => Some(Self::Used { life }),
            3 if life > 0 && last >= life => Some(Self::Sealed(seal)),
            _ => None,
        }
    }
}

/// Blocks of a summary of so many entries, the last block of the segment among them.
pub(super) fn summary_blocks(entries: usize) -> u32 {
    let bytes = entries.saturating_sub(LAST_BLOCK_ENTRIES) * ENTRY_LEN;
    u32::try_from(1 + bytes.div_ceil(BLOCK_BYTES)).expect("a segment has a limit")
}

/// The written form of a summary.
pub(super) fn encode_summary(salt: Salt, segment: u32, life: u64, last: u64, entries: &[LogEntry]) -> AlignedBuf {
    let blocks = summary_blocks(entries.len()) as usize;
    let mut buf = AlignedBuf::zeroed(blocks);
    let (rest, end) = buf.split_at_mut((blocks - 1) * BLOCK_BYTES);
    let (in_end, in_rest) = entries.split_at(entries.len().min(LAST_BLOCK_ENTRIES));
    let mut out = FieldWriter::new(&mut end[ENTRIES_AT..]);
    in_end.iter().for_each(|entry| entry.encode(&mut out));
    let mut out = FieldWriter::new(rest);
    in_rest.iter().for_each(|entry| entry.encode(&mut out));
    let mut sum = Running::default();
    sum.update(&end[ENTRIES_AT..][..in_end.len() * ENTRY_LEN]);
    sum.update(&rest[..in_rest.len() * ENTRY_LEN]);
    let entries = u32::try_from(entries.len()).expect("a segment has a limit");
    Mark::Sealed(Seal { life, last, entries, sum: sum.checksum(salt) }).encode_into(salt, segment, end);
    buf
}

/// Reads the entries of a summary from the last blocks of its segment, as many as [`summary_blocks`] says; none if they
/// are not those that were written.
pub(super) fn decode_summary(salt: Salt, seal: &Seal, segment_blocks: u32, blocks: &[u8]) -> Option<Vec<LogEntry>> {
    let count = seal.entries as usize;
    let (rest, end) = blocks.split_at_checked(blocks.len().checked_sub(BLOCK_BYTES)?)?;
    let in_end = end.get(ENTRIES_AT..)?.get(..count.min(LAST_BLOCK_ENTRIES) * ENTRY_LEN)?;
    let in_rest = rest.get(..count.saturating_sub(LAST_BLOCK_ENTRIES) * ENTRY_LEN)?;
    let mut sum = Running::default();
    sum.update(in_end);
    sum.update(in_rest);
    if sum.checksum(salt) != seal.sum {
        return None;
    }
    let entries = in_end.chunks_exact(ENTRY_LEN).chain(in_rest.chunks_exact(ENTRY_LEN));
    let entries = entries.map(|bytes| LogEntry::decode(&mut FieldReader::new(bytes))).collect::<Option<Vec<_>>>()?;
    let is_inside = |entry: &LogEntry| {
        let span = entry.span();
        !entry.is_put() || span.head >= BLOCK_BYTES && span.end <= (segment_blocks as usize - 1) * BLOCK_BYTES
    };
    entries.iter().all(is_inside).then_some(entries)
}

#[cfg(test)]
mod tests;
