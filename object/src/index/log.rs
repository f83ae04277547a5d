//! Log of a range: batches of changes in streams, and the head that names the current stream. Written form, version 1.
//!
//! A stream is a sequence of extents that are filled one behind the other. It begins with all keys as they were, and goes
//! on with every change. When a stream has grown to several times what it holds, a new one is written beside it in the
//! other area, and the head is changed to name it. The head is one block, so it changes at once.
//!
//! A batch begins at a multiple of [`BLOCK`] and lies in one extent, so the replica protocol writes it as a whole or not at
//! all. It names its stream by a number drawn by chance and its place in it: what an earlier stream left in the area is
//! never taken for a batch of this one.

use ashlar_wire::checksum::{Salt, checksum};
use bytes::Bytes;

use super::key::INDEX_KEY_BYTES_MAX;
use super::request::{Change, VALUE_BYTES_MAX};
use crate::cursor::{Cursor, Malformed, Put};

/// Unit of places in an extent.
pub const BLOCK: usize = 4_096;
/// Bytes of an extent.
pub const EXTENT_BYTES: usize = 1 << 20;
/// Extents of an area.
pub const AREA_EXTENTS_MAX: u32 = 1 << 20;
/// Bytes of a batch before its changes.
pub const BATCH_HEAD: usize = 8 + 16 + 8 + 4 + 4 + 8;
/// Bytes of the changes of a batch.
pub const BATCH_BYTES_MAX: usize = EXTENT_BYTES - BATCH_HEAD;

const BATCH_MAGIC: &[u8; 8] = b"ASHLIDB1";
const HEAD_MAGIC: &[u8; 8] = b"ASHLIDH1";

/// Names a stream; drawn by chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamId(pub [u8; 16]);

/// One of the two areas of extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// The first one, where the first stream of a range lies.
    First,
    /// The other one.
    Second,
}

impl Area {
    /// The other area.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::First => 0,
            Self::Second => 1,
        }
    }
}

/// A place of a range on its placement group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The block with the head.
    Head,
    /// An extent of an area.
    Extent(Area, u32),
}

impl Place {
    /// Number of the extent within the range: 0 is the head's, then the two areas.
    #[must_use]
    pub const fn extent(self) -> u64 {
        match self {
            Self::Head => 0,
            Self::Extent(area, number) => 1 + (area.number() as u64) * (AREA_EXTENTS_MAX as u64) + number as u64,
        }
    }
}

/// The head: which stream is the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The stream.
    pub stream: StreamId,
    /// Where it lies.
    pub area: Area,
    /// Every version that was given before the stream became the current one is smaller.
    pub version_min: u64,
}

fn sum(parts: &[&[u8]], body: &[u8]) -> u64 {
    checksum(Salt::new(parts), body).0
}

impl Head {
    /// Its block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK);
        out.extend_from_slice(HEAD_MAGIC);
        out.extend_from_slice(&self.stream.0);
        out.put_u8(self.area.number());
        out.put_u64(self.version_min);
        let sum = sum(&[HEAD_MAGIC], &out);
        out.put_u64(sum);
        out.resize(BLOCK, 0);
        out
    }

    /// Reads it back: nothing from a block of zeroes, where no range was ever written.
    ///
    /// # Errors
    /// [`Malformed`]: a newer program wrote it, or something else did.
    pub fn decode(block: &Bytes) -> Result<Option<Self>, Malformed> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let mut from = Cursor(block.clone());
        let magic: [u8; 8] = from.array()?;
        let (stream, area, version_min) = (StreamId(from.array()?), from.u8()?, from.u64()?);
        let is_whole = magic == *HEAD_MAGIC && from.u64()? == sum(&[HEAD_MAGIC], &block[..33]);
        let area = match area {
            0 if is_whole => Area::First,
            1 if is_whole => Area::Second,
            _ => return Err(Malformed),
        };
        Ok(Some(Self { stream, area, version_min }))
    }
}

/// One change in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// What changes.
    pub change: Change,
    /// The version of the value.
    pub version: u64,
}

/// Bytes that a change takes in a batch.
#[must_use]
pub fn logged_bytes(key: &[u8], value: Option<&Bytes>) -> usize {
    2 + key.len() + 8 + 1 + value.map_or(0, |value| 4 + value.len())
}

/// A batch as it is written: whole blocks.
#[must_use]
pub fn encode_batch(stream: StreamId, sequence: u64, changes: &[Logged]) -> Bytes {
    let mut body = Vec::new();
    for Logged { change, version } in changes {
        body.put_short(&change.key);
        body.put_u64(*version);
        match &change.value {
            None => body.put_u8(0),
            Some(value) => {
                body.put_u8(1);
                body.put_long(value);
            }
        }
    }
    assert!(body.len() <= BATCH_BYTES_MAX, "a batch lies in one extent: its writer counts");
    let len = u32::try_from(body.len()).expect("less than an extent");
    let count = u32::try_from(changes.len()).expect("less than an extent");
    let mut out = Vec::with_capacity((BATCH_HEAD + body.len()).next_multiple_of(BLOCK));
    out.extend_from_slice(BATCH_MAGIC);
    out.extend_from_slice(&stream.0);
    out.put_u64(sequence);
    out.put_u32(len);
    out.put_u32(count);
    let sum = sum(&[&out], &body);
    out.put_u64(sum);
    out.extend_from_slice(&body);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    Bytes::from(out)
}

/// Takes the batch at the beginning of `bytes` if it is the one of this stream and number: its changes, and how many bytes
/// its blocks have. Nothing if another one, or none, stands there.
///
/// # Errors
/// [`Malformed`]: it is that batch, whole by its checksum, and makes no sense. A newer program wrote it.
pub fn decode_batch(bytes: &Bytes, stream: StreamId, sequence: u64) -> Result<Option<(Vec<Logged>, usize)>, Malformed> {
    let mut from = Cursor(bytes.clone());
    let Ok(head) = from.bytes(BATCH_HEAD) else { return Ok(None) };
    let mut fields = Cursor(head.slice(8..));
    let (of, number) = (StreamId(fields.array()?), fields.u64()?);
    let (len, count, expected) = (fields.u32()?, fields.u32()?, fields.u64()?);
    if head[..8] != *BATCH_MAGIC || of != stream || number != sequence {
        return Ok(None);
    }
    let Ok(body) = from.bytes(usize::try_from(len).map_err(|_| Malformed)?) else { return Ok(None) };
    if sum(&[&head[..40]], &body) != expected {
        return Ok(None);
    }
    let mut body = Cursor(body);
    let changes = (0..count).map(|_| {
        let key = body.short(INDEX_KEY_BYTES_MAX)?.to_vec();
        let version = body.u64()?;
        let value = match body.u8()? {
            0 => None,
            1 => Some(body.long(VALUE_BYTES_MAX)?),
            _ => return Err(Malformed),
        };
        Ok(Logged { change: Change { key, value }, version })
    });
    let changes: Vec<Logged> = changes.collect::<Result<_, _>>()?;
    body.end()?;
    let blocks = (BATCH_HEAD + usize::try_from(len).expect("it was taken")).next_multiple_of(BLOCK);
    Ok(Some((changes, blocks)))
}

#[cfg(test)]
mod tests;
