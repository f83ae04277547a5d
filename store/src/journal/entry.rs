//! One change of one cell: what recovery repeats, and what is applied in memory when its batch is durable.
//!
//! Entries are physical: they name the cell that they change and what it is afterwards. Repeating all entries from the
//! tail on, over pages in any state that they had since then, gives the same state as applying them once.

use ashlar_placement::map::{GroupId, PgId, SetId};
use ashlar_placement::rule::{Extent, ExtentId};
use ashlar_wire::id::VolumeId;
use ashlar_wire::version::Version;

use crate::block::{BlockChecksum, BlockSet};
use crate::cursor::{FieldReader, FieldWriter};
use crate::layout::SlotId;
use crate::page::CellId;
use crate::record::{Key, Value};

/// Where the data of a put is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// In the batch, one block for each of the set, ascending.
    Inline,
    /// In the slot already, durable.
    InSlot,
}

/// What becomes of the blocks that a put does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    /// They stay.
    Keep,
    /// They are absent: the extent is new, or was replaced.
    Clear,
}

/// Blocks of an extent and what they are now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Put {
    pub(crate) cell: CellId,
    pub(crate) id: ExtentId,
    pub(crate) group: GroupId,
    pub(crate) version: Version,
    pub(crate) slot: Option<SlotId>,
    pub(crate) data: Data,
    pub(crate) others: Others,
    pub(crate) blocks: BlockSet,
    /// One for each block of the set, ascending.
    pub(crate) checksums: Vec<BlockChecksum>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Blocks of an extent were written.
    Put(Put),
    /// Blocks of an extent are absent. An extent without blocks has no slot.
    Clear { cell: CellId, id: ExtentId, version: Version, blocks: BlockSet },
    /// A cell of the extent table is empty.
    DropExtent { cell: CellId },
    /// A record has a value.
    PutRecord { cell: u32, key: Key, value: Value },
    /// A cell of the record table is empty.
    DropRecord { cell: u32 },
    /// A volume is deleted.
    PutTombstone { cell: u32, volume: VolumeId },
    /// A cell of the table of deleted volumes is empty.
    DropTombstone { cell: u32 },
}

const NO_SLOT: u32 = u32::MAX;

impl Entry {
    /// Bytes of the written form.
    pub(crate) fn len(&self) -> usize {
        1 + match self {
            Self::Put(put) => 90 + 4 * put.checksums.len(),
            Self::Clear { .. } => 76,
            Self::PutRecord { key, value, .. } => 7 + key.as_bytes().len() + value.as_bytes().len(),
            Self::PutTombstone { .. } => 20,
            Self::DropExtent { .. } | Self::DropRecord { .. } | Self::DropTombstone { .. } => 4,
        }
    }

    /// Blocks of data that stand in the batch for it.
    pub(crate) const fn data_blocks(&self) -> usize {
        match self {
            Self::Put(put) if matches!(put.data, Data::Inline) => put.checksums.len(),
            _ => 0,
        }
    }

    pub(crate) fn encode(&self, out: &mut FieldWriter<'_>) {
        let start = out.position();
        match self {
            Self::Put(put) => encode_put(put, out),
            Self::Clear { cell, id, version, blocks } => {
                out.u8(2);
                out.u32(cell.0);
                encode_id(*id, out);
                out.put(&version.to_bytes());
                out.put(&blocks.to_bytes());
            }
            Self::DropExtent { cell } => encode_drop(3, cell.0, out),
            Self::PutRecord { cell, key, value } => {
                out.u8(4);
                out.u32(*cell);
                out.u8(u8::try_from(key.as_bytes().len()).expect("a key has up to 64 bytes"));
                out.u16(u16::try_from(value.as_bytes().len()).expect("a value has up to 1,024 bytes"));
                out.put(key.as_bytes());
                out.put(value.as_bytes());
            }
            Self::DropRecord { cell } => encode_drop(5, *cell, out),
            Self::PutTombstone { cell, volume } => {
                out.u8(6);
                out.u32(*cell);
                out.put(volume.as_bytes());
            }
            Self::DropTombstone { cell } => encode_drop(7, *cell, out),
        }
        assert!(out.position() - start == self.len(), "an entry has the length that was reserved for it");
    }

    /// Reads the next entry; none if there is no valid one.
    pub(crate) fn decode(fields: &mut FieldReader<'_>) -> Option<Self> {
        Some(match fields.u8()? {
            1 => Self::Put(decode_put(fields)?),
            2 => Self::Clear {
                cell: CellId(fields.u32()?),
                id: decode_id(fields)?,
                version: Version::from_bytes(fields.array()?),
                blocks: BlockSet::from_bytes(&fields.array()?),
            },
            3 => Self::DropExtent { cell: CellId(fields.u32()?) },
            4 => {
                let cell = fields.u32()?;
                let (key_len, value_len) = (usize::from(fields.u8()?), usize::from(fields.u16()?));
                let key = Key::new(fields.take(key_len)?).ok()?;
                Self::PutRecord { cell, key, value: Value::new(fields.take(value_len)?).ok()? }
            }
            5 => Self::DropRecord { cell: fields.u32()? },
            6 => Self::PutTombstone { cell: fields.u32()?, volume: VolumeId::from_bytes(fields.array()?) },
            7 => Self::DropTombstone { cell: fields.u32()? },
            _ => return None,
        })
    }
}

fn encode_drop(tag: u8, cell: u32, out: &mut FieldWriter<'_>) {
    out.u8(tag);
    out.u32(cell);
}

fn encode_id(id: ExtentId, out: &mut FieldWriter<'_>) {
    out.put(id.volume.as_bytes());
    out.u64(id.extent.0);
}

fn decode_id(fields: &mut FieldReader<'_>) -> Option<ExtentId> {
    Some(ExtentId { volume: VolumeId::from_bytes(fields.array()?), extent: Extent(fields.u64()?) })
}

fn encode_put(put: &Put, out: &mut FieldWriter<'_>) {
    out.u8(1);
    out.u8(u8::from(put.data == Data::Inline));
    out.u8(u8::from(put.others == Others::Clear));
    out.u32(put.cell.0);
    encode_id(put.id, out);
    out.u32(put.group.set.0);
    out.u32(put.group.pg.0);
    out.put(&put.version.to_bytes());
    out.u32(put.slot.map_or(NO_SLOT, |slot| slot.0));
    out.put(&put.blocks.to_bytes());
    put.checksums.iter().for_each(|sum| out.u32(sum.0));
}

fn decode_put(fields: &mut FieldReader<'_>) -> Option<Put> {
    let data = match fields.u8()? {
        0 => Data::InSlot,
        1 => Data::Inline,
        _ => return None,
    };
    let others = match fields.u8()? {
        0 => Others::Keep,
        1 => Others::Clear,
        _ => return None,
    };
    let cell = CellId(fields.u32()?);
    let id = decode_id(fields)?;
    let group = GroupId { set: SetId(fields.u32()?), pg: PgId(fields.u32()?) };
    let version = Version::from_bytes(fields.array()?);
    let slot = fields.u32()?;
    let slot = (slot != NO_SLOT).then_some(SlotId(slot));
    let blocks = BlockSet::from_bytes(&fields.array()?);
    let checksums = (0..blocks.len()).map(|_| fields.u32().map(BlockChecksum)).collect::<Option<Vec<_>>>()?;
    // Only a replacement by nothing has no slot.
    if slot.is_some() == blocks.is_empty() || blocks.is_empty() && others == Others::Keep {
        return None;
    }
    Some(Put { cell, id, group, version, slot, data, others, blocks, checksums })
}

#[cfg(test)]
mod tests;
