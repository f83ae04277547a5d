//! An attached volume at one server: reads and writes of any bytes become requests to primaries of placement groups.
//!
//! A range is cut at extents; each piece goes straight to the server that has the primary by the catalog's configuration, and
//! again, with the same number, until an outcome is known: a guest waits through a failover and gets no error. Only fencing ends
//! an attachment, and only a full drive refuses a write. Writes that do not cover whole blocks read the blocks at their edges first; overlapping writes run one after
//! the other (`ranges`).
//!
//! Durable on return: a write or zeroing is on stable storage at every acting copy. So a flush has nothing to do.

use core::pin::Pin;
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_grid::seam::BoxFuture;
use ashlar_placement::map::GroupId;
use ashlar_placement::rule::{ExtentId, ExtentSize};
use ashlar_replica::request::{
    BLOCK_BYTES, ClientRequest, Content, EXTENT_BYTES_MAX, Generation, Operation, Range, RequestId, Run, SessionId,
};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, ServerId, VolumeId};
use ashlar_wire::time::Instant;
use bytes::Bytes;

use super::form::{Addressed, Outcome};
use super::ranges::Ranges;
use crate::together;

/// Pause before a request is sent again, at first and at most. It doubles.
const RETRY: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(200));
/// Longest range of one call.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// The primary of an extent's placement group, as the catalog has it now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Primary {
    /// The placement group.
    pub group: GroupId,
    /// The epoch of its configuration.
    pub epoch: Epoch,
    /// The primary's drive.
    pub drive: DriveId,
    /// The drive's server.
    pub server: ServerId,
}

/// What an attachment needs of its server. Five methods.
pub trait Fabric: Send + Sync + 'static {
    /// Monotonic time.
    fn now(&self) -> Instant;

    /// Completes at `at` or a little later.
    fn sleep_until(&self, at: Instant) -> BoxFuture<()>;

    /// The primary of the placement group that has this extent; nothing while this server does not know it.
    fn primary(&self, extent: ExtentId) -> Option<Primary>;

    /// Sends a request to a server and waits for its outcome; nothing if it is not known.
    fn ask(&self, server: ServerId, request: &Addressed) -> BoxFuture<Option<Outcome>>;

    /// Whether the server stops: then nothing is tried again.
    fn is_over(&self) -> bool;
}

/// Why a request failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The caller's: the range is not within the volume, or longer than [`REQUEST_BYTES_MAX`].
    OutOfRange,
    /// The volume is attached elsewhere by now. It stays so.
    Fenced,
    /// A drive has no room for what was to be written. Safe to retry, after something was discarded or drives were added.
    NoSpace,
    /// This server stops. Safe to retry at another one.
    Stopping,
    /// Ours: a primary could not make sense of a request. A retry will not help.
    Internal,
}

/// Numbers of requests that are not answered.
#[derive(Debug, Default)]
struct Numbers {
    last: u64,
    outstanding: BTreeSet<u64>,
}

/// A volume that is attached here.
pub struct Attachment {
    fabric: Arc<dyn Fabric>,
    volume: VolumeId,
    extent_size: ExtentSize,
    size: u64,
    session: SessionId,
    generation: Generation,
    numbers: Mutex<Numbers>,
    ranges: Ranges,
}

/// One piece of a range, within one extent, of whole blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    extent: ExtentId,
    range: Range,
}

/// A number that is outstanding until this is dropped.
struct Numbered<'a> {
    numbers: &'a Mutex<Numbers>,
    number: u64,
}

impl Drop for Numbered<'_> {
    fn drop(&mut self) {
        lock(self.numbers).outstanding.remove(&self.number);
    }
}

fn lock(numbers: &Mutex<Numbers>) -> MutexGuard<'_, Numbers> {
    numbers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Attachment {
    /// The volume of `size` bytes, attached by this generation. `session` is drawn by chance.
    ///
    /// # Panics
    /// Extents are longer than a replica's: the catalog creates no such volume.
    #[must_use]
    pub fn new(
        fabric: Arc<dyn Fabric>,
        (volume, extent_size, size): (VolumeId, ExtentSize, u64),
        generation: Generation,
        session: SessionId,
    ) -> Self {
        assert!(extent_size.bytes() <= EXTENT_BYTES_MAX.into(), "an extent is replicated as a whole");
        Self {
            fabric,
            volume,
            extent_size,
            size,
            session,
            generation,
            numbers: Mutex::default(),
            ranges: Ranges::default(),
        }
    }

    /// Which volume.
    #[must_use]
    pub const fn volume(&self) -> VolumeId {
        self.volume
    }

    /// The attachment's generation.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Bytes of the volume.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Reads any bytes. A byte that was never written is zero.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn read(&self, offset: u64, len: u32) -> Result<Bytes, Failure> {
        self.check(offset, len)?;
        let (begin, end) = (offset / BLOCK * BLOCK, (offset + u64::from(len)).next_multiple_of(BLOCK));
        let blocks = self.read_blocks(begin, end).await?;
        let skipped = usize::try_from(offset - begin).expect("less than a block");
        Ok(blocks.slice(skipped..skipped + len as usize))
    }

    /// Writes any bytes. On return they are on stable storage at every acting copy.
    ///
    /// # Errors
    /// See [`Failure`]; after [`Failure::Stopping`] it is not known whether they were written.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), Failure> {
        let len = u32::try_from(data.len()).map_err(|_| Failure::OutOfRange)?;
        self.check(offset, len)?;
        if data.is_empty() {
            return Ok(());
        }
        let (begin, end) = (offset / BLOCK * BLOCK, (offset + u64::from(len)).next_multiple_of(BLOCK));
        let _held = self.ranges.hold(begin..end).await;
        let whole = if (begin, end - begin) == (offset, len.into()) {
            data
        } else {
            self.widen(offset, &data, begin, end).await?
        };
        let runs = self.pieces(begin, end).map(|piece| {
            let at = usize::try_from(self.offset_of(piece) - begin).expect("within the request");
            (piece, Content::Data(whole.slice(at..at + piece.range.len as usize)))
        });
        self.write_all(runs.collect()).await
    }

    /// Makes bytes zero; they may take no space any more. Durable as a write is.
    ///
    /// # Errors
    /// As [`Attachment::write`].
    pub async fn zero(&self, offset: u64, len: u32) -> Result<(), Failure> {
        self.check(offset, len)?;
        let end = offset + u64::from(len);
        let (first, last) = (offset.next_multiple_of(BLOCK), end / BLOCK * BLOCK);
        if first >= last {
            return self.write(offset, Bytes::from(vec![0; len as usize])).await;
        }
        for (from, to) in [(offset, first), (last, end)] {
            let edge = usize::try_from(to - from).expect("less than a block");
            self.write(from, Bytes::from(vec![0; edge])).await?;
        }
        let _held = self.ranges.hold(first..last).await;
        let runs = self.pieces(first, last).map(|piece| (piece, Content::Zeroes(piece.range.len)));
        self.write_all(runs.collect()).await
    }

    fn check(&self, offset: u64, len: u32) -> Result<(), Failure> {
        let end = offset.checked_add(len.into());
        let is_within = len <= REQUEST_BYTES_MAX && end.is_some_and(|end| end <= self.size);
        if is_within { Ok(()) } else { Err(Failure::OutOfRange) }
    }

    /// The data with the blocks around them, of which the first and the last are read.
    async fn widen(&self, offset: u64, data: &[u8], begin: u64, end: u64) -> Result<Bytes, Failure> {
        let len = usize::try_from(end - begin).expect("within the request");
        let at = usize::try_from(offset - begin).expect("less than a block");
        let mut whole = vec![0; len];
        let (first, last) = (begin + BLOCK, end - BLOCK);
        let is_head_cut = offset != begin;
        if is_head_cut {
            whole[..BLOCK as usize].copy_from_slice(&self.read_blocks(begin, first).await?);
        }
        let is_tail_cut = offset + data.len() as u64 != end;
        if is_tail_cut && !(is_head_cut && last == begin) {
            whole[len - BLOCK as usize..].copy_from_slice(&self.read_blocks(last, end).await?);
        }
        whole[at..at + data.len()].copy_from_slice(data);
        Ok(Bytes::from(whole))
    }

    /// Reads whole blocks; those behind the end of the volume are zeroes in its last extent.
    async fn read_blocks(&self, begin: u64, end: u64) -> Result<Bytes, Failure> {
        let reads = self.pieces(begin, end).map(|piece| -> Pin<Box<dyn Future<Output = _> + Send + '_>> {
            Box::pin(self.request(piece.extent, Operation::Read(piece.range)))
        });
        let mut parts = Vec::new();
        for (piece, outcome) in self.pieces(begin, end).zip(together::all(reads.collect()).await) {
            let Outcome::Read(data) = outcome? else { return Err(Failure::Internal) };
            if data.len() != piece.range.len as usize {
                return Err(Failure::Internal);
            }
            parts.push(data);
        }
        Ok(if parts.len() == 1 { parts.swap_remove(0) } else { Bytes::from(parts.concat()) })
    }

    async fn write_all(&self, runs: Vec<(Piece, Content)>) -> Result<(), Failure> {
        let writes = runs.into_iter().map(|(piece, content)| -> Pin<Box<dyn Future<Output = _> + Send + '_>> {
            let run = Run { offset: piece.range.offset, content };
            Box::pin(self.request(piece.extent, Operation::Write(run)))
        });
        for outcome in together::all(writes.collect()).await {
            if outcome? != Outcome::Written {
                return Err(Failure::Internal);
            }
        }
        Ok(())
    }

    /// The pieces of a range of whole blocks.
    fn pieces(&self, begin: u64, end: u64) -> impl Iterator<Item = Piece> {
        let (volume, size) = (self.volume, self.extent_size);
        let mut at = begin;
        core::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (extent, offset) = size.split(at);
            let len = (size.bytes() - u64::from(offset)).min(end - at);
            at += len;
            let len = u32::try_from(len).expect("an extent is at most 1 MiB");
            Some(Piece { extent: ExtentId { volume, extent }, range: Range { offset, len } })
        })
    }

    fn offset_of(&self, piece: Piece) -> u64 {
        piece.extent.extent.0 * self.extent_size.bytes() + u64::from(piece.range.offset)
    }

    fn begin(&self) -> Numbered<'_> {
        let mut numbers = lock(&self.numbers);
        numbers.last += 1;
        let number = numbers.last;
        numbers.outstanding.insert(number);
        drop(numbers);
        Numbered { numbers: &self.numbers, number }
    }

    /// One request to the primary of an extent, until its outcome is known.
    async fn request(&self, extent: ExtentId, operation: Operation) -> Result<Outcome, Failure> {
        let numbered = self.begin();
        let mut pause = RETRY.0;
        let mut later = Epoch::ZERO;
        loop {
            let primary = self.fabric.primary(extent).filter(|primary| primary.epoch >= later);
            if let Some(Primary { group, epoch, drive, server }) = primary {
                let floor = lock(&self.numbers).outstanding.first().copied().unwrap_or(numbered.number);
                let request = ClientRequest {
                    session: self.session,
                    request: RequestId(numbered.number),
                    floor: RequestId(floor),
                    generation: self.generation,
                    epoch,
                    extent,
                    operation: operation.clone(),
                };
                match self.fabric.ask(server, &Addressed { drive, group, request }).await {
                    Some(outcome @ (Outcome::Read(_) | Outcome::Written)) => return Ok(outcome),
                    Some(Outcome::Fenced(_)) => return Err(Failure::Fenced),
                    Some(Outcome::NoSpace) => return Err(Failure::NoSpace),
                    Some(Outcome::Wrong) => return Err(Failure::Internal),
                    // The catalog's word for that epoch is on its way here.
                    Some(Outcome::Later(epoch)) => later = later.max(epoch),
                    Some(Outcome::Wait) | None => {}
                }
            }
            if self.fabric.is_over() {
                return Err(Failure::Stopping);
            }
            self.fabric.sleep_until(self.fabric.now() + pause).await;
            pause = (pause * 2).min(RETRY.1);
        }
    }
}

#[cfg(test)]
mod tests;
