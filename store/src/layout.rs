//! Layout of a drive: where superblocks, journal, tables and data slots lie.
//!
//! ```text
//! block 0         superblock
//! 8               journal ring
//! 8 + J           tables, first copy: pages of extents, records, deleted volumes
//! 8 + J + P       tables, second copy
//! multiple of 256 data slots of 1 MiB
//! last block      superblock again
//! ```
//!
//! The superblock is written at formatting and never again, so it cannot be torn.

use core::ops::Range;

use ashlar_wire::checksum::{Salt, checksum};
use ashlar_wire::id::{ClusterId, DriveId, ServerId};

use crate::block::EXTENT_BLOCKS;
use crate::buffer::BLOCK_BYTES;
use crate::cursor::{FieldReader, FieldWriter};
use crate::error::OpenError;
use crate::page::{EXTENTS_PER_PAGE, PageId, RECORDS_PER_PAGE, TOMBSTONES_PER_PAGE};

/// The format that this program writes, and the newest that it reads.
pub const FORMAT_VERSION: u16 = 1;
/// Fewest blocks of a journal: four batches of the largest size.
pub const JOURNAL_BLOCKS_MIN: u32 = 1_040;
/// Most blocks of a journal, 1 GiB: all of it is read at opening.
pub const JOURNAL_BLOCKS_MAX: u32 = 1 << 18;
/// Most records, and most deleted volumes: all of them are kept in memory.
pub const TABLE_ENTRIES_MAX: u32 = 1 << 16;
/// Most data slots: 256 TiB.
pub const SLOTS_MAX: u32 = 1 << 28;

const MAGIC: &[u8; 8] = b"ashlarst";
const JOURNAL_START: u64 = 8;
const CHECKSUM_AT: usize = BLOCK_BYTES - 8;

/// One data slot, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId(pub(crate) u32);

/// What is chosen when a drive is formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayoutOptions {
    /// Blocks of the journal. It bounds the memory of what is not yet written back, and the time of recovery.
    pub journal_blocks: u32,
    /// Most records.
    pub records_max: u32,
    /// Most deleted volumes that are remembered.
    pub tombstones_max: u32,
}

impl Default for LayoutOptions {
    /// A journal of 64 MiB, 4,096 records and 4,032 deleted volumes.
    fn default() -> Self {
        Self { journal_blocks: 16_384, records_max: 4_096, tombstones_max: 4_032 }
    }
}

/// Sizes of a formatted drive's regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks of the drive.
    pub blocks: u64,
    /// Blocks of the journal.
    pub journal_blocks: u32,
    /// Data slots.
    pub slots: u32,
    /// Extents that can have a version, with or without data: an eighth and 16 more than slots.
    pub cells: u32,
    /// Most records.
    pub records_max: u32,
    /// Most deleted volumes that are remembered.
    pub tombstones_max: u32,
}

impl Geometry {
    /// Divides a drive of so many bytes.
    ///
    /// # Errors
    /// [`OpenError::TooSmall`] and [`OpenError::BadLayout`], the caller's.
    pub fn plan(bytes: u64, options: LayoutOptions) -> Result<Self, OpenError> {
        let LayoutOptions { journal_blocks, records_max, tombstones_max } = options;
        let mut geometry = Self {
            blocks: bytes / BLOCK_BYTES as u64,
            journal_blocks,
            slots: 1,
            cells: 0,
            records_max,
            tombstones_max,
        };
        geometry.cells = cells_of(1);
        geometry.check_limits()?;
        if geometry.blocks_min() > geometry.blocks {
            return Err(OpenError::TooSmall { bytes, bytes_min: geometry.blocks_min() * BLOCK_BYTES as u64 });
        }
        // The greatest number of slots that fits, by bisection: tables grow with slots.
        let (mut low, mut high) = (1, SLOTS_MAX);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            let tried = Self { slots: middle, cells: cells_of(middle), ..geometry };
            if tried.blocks_min() <= geometry.blocks { low = middle } else { high = middle - 1 }
        }
        Ok(Self { slots: low, cells: cells_of(low), ..geometry })
    }

    const fn check_limits(&self) -> Result<(), OpenError> {
        if self.journal_blocks < JOURNAL_BLOCKS_MIN || self.journal_blocks > JOURNAL_BLOCKS_MAX {
            return Err(OpenError::BadLayout("a journal has 1,040 to 262,144 blocks"));
        }
        let (records, tombstones) = (self.records_max, self.tombstones_max);
        if records == 0 || records > TABLE_ENTRIES_MAX || tombstones == 0 || tombstones > TABLE_ENTRIES_MAX {
            return Err(OpenError::BadLayout("a drive has 1 to 65,536 records and deleted volumes"));
        }
        if self.slots == 0 || self.slots > SLOTS_MAX || self.cells != cells_of(self.slots) {
            return Err(OpenError::BadLayout("slots and cells do not fit together"));
        }
        Ok(())
    }

    /// Blocks that this layout needs.
    fn blocks_min(&self) -> u64 {
        self.slots_start() + u64::from(self.slots) * EXTENT_BLOCKS as u64 + 1
    }

    /// Bytes of the drive.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES as u64
    }

    pub(crate) const fn extent_pages(&self) -> u32 {
        self.cells.div_ceil(EXTENTS_PER_PAGE)
    }

    pub(crate) const fn record_pages(&self) -> u32 {
        self.records_max.div_ceil(RECORDS_PER_PAGE)
    }

    /// Pages of all tables.
    pub(crate) const fn pages(&self) -> u32 {
        self.extent_pages() + self.record_pages() + self.tombstones_max.div_ceil(TOMBSTONES_PER_PAGE)
    }

    /// Blocks where data slots lie.
    #[must_use]
    pub const fn slot_blocks(&self) -> Range<u64> {
        let start = self.slots_start();
        start..start + self.slots as u64 * EXTENT_BLOCKS as u64
    }

    const fn slots_start(&self) -> u64 {
        let tables_end = JOURNAL_START + self.journal_blocks as u64 + 2 * self.pages() as u64;
        tables_end.next_multiple_of(EXTENT_BLOCKS as u64)
    }

    /// Byte offsets of the two superblocks.
    pub(crate) const fn superblock_offsets(&self) -> [u64; 2] {
        [0, (self.blocks - 1) * BLOCK_BYTES as u64]
    }

    /// Byte offset of a block of the journal.
    pub(crate) fn journal_offset(&self, position: u32) -> u64 {
        assert!(position < self.journal_blocks, "a journal position lies in the ring");
        (JOURNAL_START + u64::from(position)) * BLOCK_BYTES as u64
    }

    /// Byte offset of a copy of a table page.
    pub(crate) fn page_offset(&self, page: PageId, copy: usize) -> u64 {
        assert!(page.0 < self.pages() && copy < 2, "a page is one of the tables'");
        let start = JOURNAL_START + u64::from(self.journal_blocks) + copy as u64 * u64::from(self.pages());
        (start + u64::from(page.0)) * BLOCK_BYTES as u64
    }

    /// Byte offset of a block of a data slot.
    pub(crate) fn slot_offset(&self, slot: SlotId, block: usize) -> u64 {
        assert!(slot.0 < self.slots && block < EXTENT_BLOCKS, "a slot lies on the drive");
        (self.slots_start() + u64::from(slot.0) * EXTENT_BLOCKS as u64 + block as u64) * BLOCK_BYTES as u64
    }
}

const fn cells_of(slots: u32) -> u32 {
    slots + slots / 8 + 16
}

/// Who a drive is and how it is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Its cluster.
    pub cluster: ClusterId,
    /// The server that formatted it.
    pub server: ServerId,
    /// Its own id.
    pub drive: DriveId,
    /// Chance, from the formatting. It goes into the checksums of journal and tables, so that nothing written by an
    /// earlier formatting passes, and nothing that a client can write.
    pub nonce: [u8; 16],
    /// Its regions.
    pub geometry: Geometry,
}

impl Superblock {
    /// The written form: one block.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        let mut out = FieldWriter::new(&mut bytes);
        out.put(MAGIC);
        out.u16(FORMAT_VERSION);
        out.put(&[0; 6]);
        out.put(self.cluster.as_bytes());
        out.put(self.server.as_bytes());
        out.put(self.drive.as_bytes());
        out.put(&self.nonce);
        let Geometry { blocks, journal_blocks, slots, cells, records_max, tombstones_max } = self.geometry;
        out.u64(blocks);
        [journal_blocks, slots, cells, records_max, tombstones_max].iter().for_each(|value| out.u32(*value));
        let sum = checksum(Salt::new(&[b"superblock"]), &bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&sum.0.to_be_bytes());
        bytes
    }

    /// Reads one block.
    ///
    /// # Errors
    /// [`OpenError::NotFormatted`], [`OpenError::NewerFormat`], [`OpenError::Damaged`].
    pub fn decode(bytes: &[u8]) -> Result<Self, OpenError> {
        const DAMAGED: OpenError = OpenError::Damaged("superblock");
        let mut fields = FieldReader::new(bytes);
        if bytes.len() != BLOCK_BYTES || fields.array() != Some(*MAGIC) {
            return Err(OpenError::NotFormatted);
        }
        let version = fields.u16().ok_or(DAMAGED)?;
        let sum = checksum(Salt::new(&[b"superblock"]), &bytes[..CHECKSUM_AT]).0.to_be_bytes();
        if version > FORMAT_VERSION {
            return Err(OpenError::NewerFormat(version));
        }
        if version != FORMAT_VERSION || bytes[CHECKSUM_AT..] != sum || fields.array() != Some([0; 6]) {
            return Err(DAMAGED);
        }
        Self::decode_fields(&mut fields).ok_or(DAMAGED)
    }

    fn decode_fields(fields: &mut FieldReader<'_>) -> Option<Self> {
        let cluster = ClusterId::from_bytes(fields.array()?);
        let server = ServerId::from_bytes(fields.array()?);
        let drive = DriveId::from_bytes(fields.array()?);
        let nonce = fields.array()?;
        let geometry = Geometry {
            blocks: fields.u64()?,
            journal_blocks: fields.u32()?,
            slots: fields.u32()?,
            cells: fields.u32()?,
            records_max: fields.u32()?,
            tombstones_max: fields.u32()?,
        };
        geometry.check_limits().ok()?;
        let fits = geometry.blocks < 1 << 52 && geometry.blocks_min() <= geometry.blocks;
        fits.then_some(Self { cluster, server, drive, nonce, geometry })
    }

    /// The identity of one kind of written form on this drive.
    pub(crate) fn salt(&self, form: &[u8]) -> Salt {
        Salt::new(&[form, self.drive.as_bytes(), &self.nonce])
    }
}

#[cfg(test)]
mod tests;
