//! Table pages: the durable state of extents, records and deleted volumes, outside the journal.
//!
//! A page is one block with a checksum of its own and exists twice. The copies are written one after the other, with a
//! sync between them, the one that the page was read from last: so at any time at least one of them is whole, also when a
//! crash follows a crash, and a copy that rots is repaired from the other. The journal is trimmed only after both are durable, so it does not matter which of them recovery starts from.
//!
//! A page has three cells of extents, or three of records, or 252 of deleted volumes. What a cell holds is replaced in
//! place; which cell an extent has does not change while it exists.

use ashlar_placement::map::{GroupId, PgId, SetId};
use ashlar_placement::rule::{Extent, ExtentId};
use ashlar_wire::checksum::{Checksum, Running, Salt};
use ashlar_wire::id::VolumeId;
use ashlar_wire::version::Version;

use crate::block::{BlockChecksum, BlockSet, EXTENT_BLOCKS};
use crate::buffer::BLOCK_BYTES;
use crate::cursor::{FieldReader, FieldWriter};
use crate::layout::SlotId;
use crate::record::{Key, Value};

/// Extents of a page.
pub(crate) const EXTENTS_PER_PAGE: u32 = 3;
/// Records of a page.
pub(crate) const RECORDS_PER_PAGE: u32 = 3;
/// Deleted volumes of a page.
pub(crate) const TOMBSTONES_PER_PAGE: u32 = 252;

const MAGIC: u32 = u32::from_be_bytes(*b"atab");
const PAGE_VERSION: u8 = 1;
const HEADER_LEN: usize = 64;
const CELL_LEN: usize = 1_344;
const CHECKSUM_AT: usize = 24;
const NO_SLOT: u32 = u32::MAX;

const _: () = assert!(HEADER_LEN + 3 * CELL_LEN == BLOCK_BYTES);
const _: () = assert!(HEADER_LEN + TOMBSTONES_PER_PAGE as usize * VolumeId::LEN == BLOCK_BYTES);

/// One page of the tables, from 0: extents first, then records, then deleted volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PageId(pub(crate) u32);

/// One cell of the extent table, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CellId(pub(crate) u32);

impl CellId {
    pub(crate) const fn page(self) -> PageId {
        PageId(self.0 / EXTENTS_PER_PAGE)
    }

    pub(crate) const fn index_in_page(self) -> usize {
        (self.0 % EXTENTS_PER_PAGE) as usize
    }
}

/// What is known of an extent without its blocks; kept in memory for every extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExtentInfo {
    pub(crate) id: ExtentId,
    pub(crate) group: GroupId,
    pub(crate) version: Version,
    /// Where its data lies; none if no block is present.
    pub(crate) slot: Option<SlotId>,
}

/// Which blocks an extent has, and their checksums; zero for absent blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExtentBlocks {
    pub(crate) present: BlockSet,
    pub(crate) checksums: Box<[BlockChecksum; EXTENT_BLOCKS]>,
}

impl Default for ExtentBlocks {
    fn default() -> Self {
        Self { present: BlockSet::EMPTY, checksums: Box::new([BlockChecksum(0); EXTENT_BLOCKS]) }
    }
}

/// What a page holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PageBody {
    Extents([Option<(ExtentInfo, ExtentBlocks)>; EXTENTS_PER_PAGE as usize]),
    Records([Option<(Key, Value)>; RECORDS_PER_PAGE as usize]),
    Tombstones(Vec<Option<VolumeId>>),
}

/// A page and the number of its write, which rises by one with each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) id: PageId,
    pub(crate) sequence: u64,
    pub(crate) body: PageBody,
}

impl Page {
    /// The written form, into one block of zeroes.
    pub(crate) fn encode_into(&self, salt: Salt, bytes: &mut [u8]) {
        let mut out = FieldWriter::new(&mut bytes[..HEADER_LEN]);
        out.u32(MAGIC);
        let kind = match self.body {
            PageBody::Extents(_) => 1,
            PageBody::Records(_) => 2,
            PageBody::Tombstones(_) => 3,
        };
        out.u8(kind);
        out.u8(PAGE_VERSION);
        out.u16(0);
        out.u32(self.id.0);
        out.u32(0);
        out.u64(self.sequence);
        match &self.body {
            PageBody::Extents(cells) => {
                for (cell, out) in cells.iter().zip(bytes[HEADER_LEN..].chunks_exact_mut(CELL_LEN)) {
                    cell.iter().for_each(|(info, blocks)| encode_extent(info, blocks, out));
                }
            }
            PageBody::Records(cells) => {
                for (cell, out) in cells.iter().zip(bytes[HEADER_LEN..].chunks_exact_mut(CELL_LEN)) {
                    cell.iter().for_each(|(key, value)| encode_record(key, value, out));
                }
            }
            PageBody::Tombstones(volumes) => encode_tombstones(volumes, bytes),
        }
        let sum = page_checksum(salt, bytes);
        bytes[CHECKSUM_AT..][..8].copy_from_slice(&sum.0.to_be_bytes());
    }

    /// Reads one block; none if it is no whole page with this number.
    pub(crate) fn decode(salt: Salt, id: PageId, bytes: &[u8]) -> Option<Self> {
        let mut fields = FieldReader::new(bytes);
        let magic_ok = bytes.len() == BLOCK_BYTES && fields.u32()? == MAGIC;
        let (kind, version) = (fields.u8()?, fields.u8()?);
        if !magic_ok || version != PAGE_VERSION || fields.u16()? != 0 || fields.u32()? != id.0 || fields.u32()? != 0 {
            return None;
        }
        let sequence = fields.u64()?;
        if fields.u64()? != page_checksum(salt, bytes).0 {
            return None;
        }
        let cells: Vec<&[u8]> = bytes[HEADER_LEN..].chunks_exact(CELL_LEN).collect();
        let body = match kind {
            1 => PageBody::Extents([decode_extent(cells[0])?, decode_extent(cells[1])?, decode_extent(cells[2])?]),
            2 => PageBody::Records([decode_record(cells[0])?, decode_record(cells[1])?, decode_record(cells[2])?]),
            3 => PageBody::Tombstones(decode_tombstones(bytes)?),
            _ => return None,
        };
        let header_ok = kind == 3 || fields.take(32)?.iter().all(|byte| *byte == 0);
        header_ok.then_some(Self { id, sequence, body })
    }
}

/// Over the whole block without the checksum itself.
fn page_checksum(salt: Salt, bytes: &[u8]) -> Checksum {
    let mut running = Running::default();
    running.update(&bytes[..CHECKSUM_AT]);
    running.update(&bytes[CHECKSUM_AT + 8..]);
    running.checksum(salt)
}

fn encode_extent(info: &ExtentInfo, blocks: &ExtentBlocks, bytes: &mut [u8]) {
    let mut out = FieldWriter::new(bytes);
    out.u32(1);
    out.u32(info.slot.map_or(NO_SLOT, |slot| slot.0));
    out.put(info.id.volume.as_bytes());
    out.u64(info.id.extent.0);
    out.u32(info.group.set.0);
    out.u32(info.group.pg.0);
    out.put(&info.version.to_bytes());
    out.put(&blocks.present.to_bytes());
    blocks.checksums.iter().for_each(|sum| out.u32(sum.0));
}

/// Outer none: no cell. Inner none: an empty one.
#[expect(clippy::option_option, reason = "whether the bytes are a cell, and whether the cell is empty")]
fn decode_extent(bytes: &[u8]) -> Option<Option<(ExtentInfo, ExtentBlocks)>> {
    let mut fields = FieldReader::new(bytes);
    match fields.u32()? {
        0 => return fields.rest_is_zero().then_some(None),
        1 => {}
        _ => return None,
    }
    let slot = fields.u32()?;
    let id = ExtentId { volume: VolumeId::from_bytes(fields.array()?), extent: Extent(fields.u64()?) };
    let group = GroupId { set: SetId(fields.u32()?), pg: PgId(fields.u32()?) };
    let version = Version::from_bytes(fields.array()?);
    let mut blocks = ExtentBlocks { present: BlockSet::from_bytes(&fields.array()?), ..ExtentBlocks::default() };
    for block in 0..EXTENT_BLOCKS {
        let sum = fields.u32()?;
        if sum != 0 && !blocks.present.contains(block) {
            return None;
        }
        blocks.checksums[block] = BlockChecksum(sum);
    }
    let slot = (slot != NO_SLOT).then_some(SlotId(slot));
    let fits = slot.is_some() != blocks.present.is_empty() && fields.rest_is_zero();
    fits.then_some(Some((ExtentInfo { id, group, version, slot }, blocks)))
}

fn encode_record(key: &Key, value: &Value, bytes: &mut [u8]) {
    let mut out = FieldWriter::new(bytes);
    let (key, value) = (key.as_bytes(), value.as_bytes());
    out.u8(1);
    out.u8(u8::try_from(key.len()).expect("a key has up to 64 bytes"));
    out.u16(u16::try_from(value.len()).expect("a value has up to 1,024 bytes"));
    out.put(key);
    out.put(value);
}

#[expect(clippy::option_option, reason = "whether the bytes are a cell, and whether the cell is empty")]
fn decode_record(bytes: &[u8]) -> Option<Option<(Key, Value)>> {
    let mut fields = FieldReader::new(bytes);
    match fields.u8()? {
        0 => return fields.rest_is_zero().then_some(None),
        1 => {}
        _ => return None,
    }
    let (key_len, value_len) = (usize::from(fields.u8()?), usize::from(fields.u16()?));
    let key = Key::new(fields.take(key_len)?).ok()?;
    let value = Value::new(fields.take(value_len)?).ok()?;
    fields.rest_is_zero().then_some(Some((key, value)))
}

fn encode_tombstones(volumes: &[Option<VolumeId>], bytes: &mut [u8]) {
    assert!(volumes.len() == TOMBSTONES_PER_PAGE as usize, "a page has all its cells");
    let (header, cells) = bytes.split_at_mut(HEADER_LEN);
    for (index, (volume, out)) in volumes.iter().zip(cells.chunks_exact_mut(VolumeId::LEN)).enumerate() {
        if let Some(volume) = volume {
            header[32 + index / 8] |= 1 << (index % 8);
            out.copy_from_slice(volume.as_bytes());
        }
    }
}

fn decode_tombstones(bytes: &[u8]) -> Option<Vec<Option<VolumeId>>> {
    let (header, cells) = bytes.split_at(HEADER_LEN);
    // The last four bits have no cell.
    if header[63] >> 4 != 0 {
        return None;
    }
    let mut volumes = Vec::with_capacity(TOMBSTONES_PER_PAGE as usize);
    for (index, cell) in cells.chunks_exact(VolumeId::LEN).enumerate() {
        let is_used = header[32 + index / 8] & (1 << (index % 8)) != 0;
        let id: [u8; VolumeId::LEN] = cell.try_into().ok()?;
        if !is_used && id != [0; VolumeId::LEN] {
            return None;
        }
        volumes.push(is_used.then(|| VolumeId::from_bytes(id)));
    }
    Some(volumes)
}

#[cfg(test)]
mod tests;
