//! Head of a blob: who it is, what it says about itself, and a checksum for each 4 KiB of its data.
//!
//! The head describes itself, so that blobs can be found without any index. It does not say where it lies: compaction
//! moves it as it is.

use ashlar_wire::checksum::{Checksum, Running, Salt, checksum};
use ashlar_wire::id::BlobId;

use super::request::HEADER_BYTES_MAX;
use crate::buffer::BLOCK_BYTES;
use crate::cursor::{FieldReader, FieldWriter};

const MAGIC: u32 = u32::from_be_bytes(*b"ablb");
const HEAD_VERSION: u16 = 1;
const FIXED_LEN: usize = 48;
const CHECKSUM_AT: usize = 40;
const SUM_LEN: usize = 8;

/// Bytes of data that one checksum covers; the last chunk of a blob may be shorter.
pub(super) const CHUNK_BYTES: usize = BLOCK_BYTES;

/// Chunks of a blob.
pub(super) const fn chunks_of(len: u32) -> usize {
    (len as usize).div_ceil(CHUNK_BYTES)
}

/// Bytes of the head of a blob with a header and data of these lengths.
pub(super) const fn head_len(header_len: usize, len: u32) -> usize {
    FIXED_LEN + header_len.next_multiple_of(SUM_LEN) + SUM_LEN * chunks_of(len)
}

/// The checksum of one chunk of a blob at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkSum(pub(super) u64);

/// Computes checksums of the chunks of one blob.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkHasher(Salt);

impl ChunkHasher {
    pub(super) fn new(blob: BlobId) -> Self {
        Self(Salt::new(&[b"blob", blob.as_bytes()]))
    }

    /// XXH3-64 under the blob's salt, mixed with the chunk's number by the 64-bit golden ratio.
    pub(super) fn sum(self, chunk: usize, bytes: &[u8]) -> ChunkSum {
        let place = (chunk as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ChunkSum(checksum(self.0, bytes).0 ^ place)
    }

    /// The checksums of all chunks of some data.
    pub(super) fn sums(self, data: &[u8]) -> Vec<ChunkSum> {
        data.chunks(CHUNK_BYTES).enumerate().map(|(chunk, bytes)| self.sum(chunk, bytes)).collect()
    }
}

/// A head as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordHead {
    pub(super) blob: BlobId,
    pub(super) stamp: u64,
    pub(super) len: u32,
    pub(super) header: Box<[u8]>,
    /// One for each chunk.
    pub(super) sums: Vec<ChunkSum>,
}

impl RecordHead {
    /// The written form.
    ///
    /// # Panics
    /// When the header is too long or there are not as many checksums as chunks.
    pub(super) fn encode(&self, salt: Salt) -> Vec<u8> {
        assert!(self.header.len() <= HEADER_BYTES_MAX && self.sums.len() == chunks_of(self.len), "a head is sound");
        let mut bytes = vec![0; head_len(self.header.len(), self.len)];
        let mut out = FieldWriter::new(&mut bytes);
        out.u32(MAGIC);
        out.u16(HEAD_VERSION);
        out.u16(u16::try_from(self.header.len()).expect("a header has a limit"));
        out.u32(self.len);
        out.u32(0);
        out.put(self.blob.as_bytes());
        out.u64(self.stamp);
        out.u64(0);
        out.put(&self.header);
        out.put(&[0; SUM_LEN][..self.header.len().next_multiple_of(SUM_LEN) - self.header.len()]);
        self.sums.iter().for_each(|sum| out.u64(sum.0));
        let sum = head_checksum(salt, &bytes);
        bytes[CHECKSUM_AT..][..8].copy_from_slice(&sum.0.to_be_bytes());
        bytes
    }

    /// Reads a head; none if these bytes are not exactly one.
    pub(super) fn decode(salt: Salt, bytes: &[u8]) -> Option<Self> {
        let mut fields = FieldReader::new(bytes);
        if fields.u32()? != MAGIC || fields.u16()? != HEAD_VERSION {
            return None;
        }
        let header_len = usize::from(fields.u16()?);
        let (len, zero) = (fields.u32()?, fields.u32()?);
        let blob = BlobId::from_bytes(fields.array()?);
        let (stamp, sum) = (fields.u64()?, fields.u64()?);
        let is_sound = zero == 0 && header_len <= HEADER_BYTES_MAX && bytes.len() == head_len(header_len, len);
        if !is_sound || head_checksum(salt, bytes).0 != sum {
            return None;
        }
        let header = fields.take(header_len)?.into();
        let padding = fields.take(header_len.next_multiple_of(SUM_LEN) - header_len)?;
        if padding.iter().any(|byte| *byte != 0) {
            return None;
        }
        let sums = (0..chunks_of(len)).map(|_| fields.u64().map(ChunkSum)).collect::<Option<_>>()?;
        Some(Self { blob, stamp, len, header, sums })
    }
}

fn head_checksum(salt: Salt, bytes: &[u8]) -> Checksum {
    let mut running = Running::default();
    running.update(&bytes[..CHECKSUM_AT]);
    running.update(&bytes[CHECKSUM_AT + 8..]);
    running.checksum(salt)
}

#[cfg(test)]
mod tests;
