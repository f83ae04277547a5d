//! Layout of the area of blobs: superblocks and segments.
//!
//! ```text
//! block 0         superblock
//! 8               segments of equal size
//! last block      superblock again
//! ```
//!
//! The number of segments is fixed at formatting: all space is taken then, so that a put never finds the file system full,
//! and the superblock is never written again, so that it cannot be torn.

use ashlar_wire::checksum::{Salt, checksum};
use ashlar_wire::id::{ClusterId, DriveId, ServerId};

use super::request::BLOB_BYTES_MAX;
use crate::buffer::BLOCK_BYTES;
use crate::cursor::{FieldReader, FieldWriter};
use crate::error::OpenError;

/// The format that this program writes, and the newest that it reads.
pub const BLOB_FORMAT_VERSION: u16 = 1;
/// Blocks of a segment unless chosen otherwise: 32 MiB. The largest blob wastes an eighth of it at most, opening reads two
/// blocks for each, and the newest segment whole.
pub const SEGMENT_BLOCKS: u32 = 8_192;
/// Fewest blocks of a segment.
pub const SEGMENT_BLOCKS_MIN: u32 = 64;
/// Most blocks of a segment: 256 MiB.
pub const SEGMENT_BLOCKS_MAX: u32 = 1 << 16;
/// Fewest segments: three are kept for removals and compaction, and the rest should be worth it.
pub const SEGMENTS_MIN: u32 = 8;
/// Most segments: 32 TiB of the default size.
pub const SEGMENTS_MAX: u32 = 1 << 20;

const MAGIC: &[u8; 8] = b"ashlarbl";
const SEGMENTS_START: u64 = 8;
const CHECKSUM_AT: usize = BLOCK_BYTES - 8;

/// Sizes of a formatted area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobGeometry {
    /// Blocks of the area.
    pub blocks: u64,
    /// Blocks of a segment.
    pub segment_blocks: u32,
    /// Segments.
    pub segments: u32,
}

impl BlobGeometry {
    /// Divides an area of so many bytes into segments of so many blocks, [`SEGMENT_BLOCKS`] as a rule.
    ///
    /// # Errors
    /// [`OpenError::TooSmall`] and [`OpenError::BadLayout`], the caller's.
    pub fn plan(bytes: u64, segment_blocks: u32) -> Result<Self, OpenError> {
        let blocks = bytes / BLOCK_BYTES as u64;
        let smallest = Self { blocks, segment_blocks, segments: SEGMENTS_MIN };
        smallest.check_limits()?;
        if smallest.blocks_min() > blocks {
            return Err(OpenError::TooSmall { bytes, bytes_min: smallest.blocks_min() * BLOCK_BYTES as u64 });
        }
        let segments = (blocks - SEGMENTS_START - 1) / u64::from(segment_blocks);
        let segments = u32::try_from(segments).unwrap_or(u32::MAX).min(SEGMENTS_MAX);
        Ok(Self { segments, ..smallest })
    }

    const fn check_limits(&self) -> Result<(), OpenError> {
        if self.segment_blocks < SEGMENT_BLOCKS_MIN || self.segment_blocks > SEGMENT_BLOCKS_MAX {
            return Err(OpenError::BadLayout("a segment of blobs has 64 to 65,536 blocks"));
        }
        if self.segments < SEGMENTS_MIN || self.segments > SEGMENTS_MAX {
            return Err(OpenError::BadLayout("blobs have 8 to 1,048,576 segments"));
        }
        Ok(())
    }

    /// Blocks that this layout needs.
    const fn blocks_min(&self) -> u64 {
        SEGMENTS_START + self.segments as u64 * self.segment_blocks as u64 + 1
    }

    /// Bytes of the area.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES as u64
    }

    /// Most bytes of a blob: an eighth of a segment, up to 4 MiB.
    #[must_use]
    pub const fn blob_bytes_max(&self) -> u32 {
        let eighth = self.segment_blocks / 8 * BLOCK_BYTES as u32;
        if eighth < BLOB_BYTES_MAX { eighth } else { BLOB_BYTES_MAX }
    }

    /// Most blocks of one write of the log: a quarter of a segment.
    pub(super) const fn batch_blocks_max(&self) -> u32 {
        self.segment_blocks / 4
    }

    /// Blocks of a segment that can hold batches.
    pub(super) const fn segment_room(&self) -> u32 {
        self.segment_blocks - 2
    }

    /// Byte offsets of the two superblocks.
    pub(super) const fn superblock_offsets(&self) -> [u64; 2] {
        [0, (self.blocks - 1) * BLOCK_BYTES as u64]
    }

    /// Byte offset of a block of a segment. The first block of the segment behind the last is the one behind all segments.
    #[must_use]
    pub fn offset(&self, segment: u32, block: u32) -> u64 {
        assert!(segment <= self.segments && block < self.segment_blocks, "a block lies in the area");
        let start = SEGMENTS_START + u64::from(segment) * u64::from(self.segment_blocks);
        (start + u64::from(block)) * BLOCK_BYTES as u64
    }
}

/// Whose an area of blobs is and how it is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobSuperblock {
    /// Its cluster.
    pub cluster: ClusterId,
    /// The server that formatted it.
    pub server: ServerId,
    /// Its drive.
    pub drive: DriveId,
    /// Chance, from the formatting. It goes into the checksums of everything but data, so that nothing written by an
    /// earlier formatting passes, and nothing that a client can write.
    pub nonce: [u8; 16],
    /// Its sizes.
    pub geometry: BlobGeometry,
}

impl BlobSuperblock {
    /// The written form: one block.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        let mut out = FieldWriter::new(&mut bytes);
        out.put(MAGIC);
        out.u16(BLOB_FORMAT_VERSION);
        out.put(&[0; 6]);
        out.put(self.cluster.as_bytes());
        out.put(self.server.as_bytes());
        out.put(self.drive.as_bytes());
        out.put(&self.nonce);
        out.u64(self.geometry.blocks);
        out.u32(self.geometry.segment_blocks);
        out.u32(self.geometry.segments);
        let sum = checksum(Salt::new(&[b"blob superblock"]), &bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&sum.0.to_be_bytes());
        bytes
    }

    /// Reads one block.
    ///
    /// # Errors
    /// [`OpenError::NotFormatted`], [`OpenError::NewerFormat`], [`OpenError::Damaged`].
    pub fn decode(bytes: &[u8]) -> Result<Self, OpenError> {
        const DAMAGED: OpenError = OpenError::Damaged("superblock of blobs");
        let mut fields = FieldReader::new(bytes);
        if bytes.len() != BLOCK_BYTES || fields.array() != Some(*MAGIC) {
            return Err(OpenError::NotFormatted);
        }
        let version = fields.u16().ok_or(DAMAGED)?;
        let sum = checksum(Salt::new(&[b"blob superblock"]), &bytes[..CHECKSUM_AT]).0.to_be_bytes();
        if version > BLOB_FORMAT_VERSION {
            return Err(OpenError::NewerFormat(version));
        }
        if version != BLOB_FORMAT_VERSION || bytes[CHECKSUM_AT..] != sum || fields.array() != Some([0; 6]) {
            return Err(DAMAGED);
        }
        Self::decode_fields(&mut fields).ok_or(DAMAGED)
    }

    fn decode_fields(fields: &mut FieldReader<'_>) -> Option<Self> {
        let cluster = ClusterId::from_bytes(fields.array()?);
        let server = ServerId::from_bytes(fields.array()?);
        let drive = DriveId::from_bytes(fields.array()?);
        let nonce = fields.array()?;
        let geometry = BlobGeometry { blocks: fields.u64()?, segment_blocks: fields.u32()?, segments: fields.u32()? };
        geometry.check_limits().ok()?;
        let fits = geometry.blocks < 1 << 52 && geometry.blocks_min() <= geometry.blocks;
        fits.then_some(Self { cluster, server, drive, nonce, geometry })
    }

    /// The identity of one kind of written form in this area.
    pub(super) fn salt(&self, form: &[u8]) -> Salt {
        Salt::new(&[form, self.drive.as_bytes(), &self.nonce])
    }
}

#[cfg(test)]
mod tests;
