//! Written form of messages: version 2.
//!
//! A message is a head and a payload. The head has all fields, numbers big-endian and of fixed length; the payload is
//! the data of all runs, one after the other, so that it goes from buffer to socket and back without a copy. Decoding
//! reads a message whole before anything is done with it, compares every count with a limit and with the bytes that are
//! there, and shares the payload's buffer.

use alloc::vec::Vec;

use ashlar_placement::map::{GroupId, PgId, SetId};
use ashlar_placement::rule::{Extent, ExtentId};
use ashlar_wire::checksum::Checksum;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, VolumeId};
use ashlar_wire::version::Version;
use bytes::Bytes;

use super::{Body, Fault, Message, Standing};
use crate::config::{Configuration, EPOCH_MAX, LEARNERS_MAX};
use crate::life::Life;
use crate::members::MEMBERS_MAX;
use crate::request::{
    BLOCK_BYTES, BLOCKS_MAX, Content, Difference, EXTENT_BYTES_MAX, Generation, PAGE_MAX, Page, Room, Run,
};
use crate::stream::{Entry, Progress};

/// Version of the form that this program speaks.
pub const VERSION: u8 = 2;
/// Longest head: a full page.
pub const HEAD_BYTES_MAX: usize = 80 + PAGE_MAX * 40;

/// Why bytes are no message: the sender's fault. No retry helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormError {
    /// A version that this program does not speak.
    Version(u8),
    /// Not a message, or against a limit.
    Malformed,
}

impl core::fmt::Display for FormError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Version(version) => write!(f, "version {version} of replica messages is not known"),
            Self::Malformed => f.write_str("these are not the bytes of a replica message"),
        }
    }
}

impl core::error::Error for FormError {}

/// A message as it travels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The fields.
    pub head: Vec<u8>,
    /// The data, to be sent behind each other.
    pub payload: Vec<Bytes>,
}

struct Writer(Encoded);

impl Writer {
    fn u8(&mut self, value: u8) {
        self.0.head.push(value);
    }

    fn u32(&mut self, value: u32) {
        self.0.head.extend_from_slice(&value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.head.extend_from_slice(&value.to_be_bytes());
    }

    fn count(&mut self, len: usize) {
        self.u32(u32::try_from(len).expect("lists keep their limits, which are far below 2^32"));
    }

    fn version(&mut self, version: Version) {
        self.0.head.extend_from_slice(&version.to_bytes());
    }

    fn progress(&mut self, progress: Progress) {
        self.u64(progress.received);
        self.u64(progress.durable);
    }

    fn room(&mut self, room: Room) {
        self.u8(u8::from(room == Room::Low));
    }

    fn extent(&mut self, id: ExtentId) {
        self.0.head.extend_from_slice(id.volume.as_bytes());
        self.u64(id.extent.0);
    }

    fn after(&mut self, after: Option<ExtentId>) {
        self.u8(u8::from(after.is_some()));
        self.extent(after.unwrap_or_default());
    }

    fn drives(&mut self, drives: &[DriveId]) {
        self.u8(u8::try_from(drives.len()).expect("a configuration has few members"));
        drives.iter().for_each(|drive| self.0.head.extend_from_slice(drive.as_bytes()));
    }

    fn configuration(&mut self, configuration: &Configuration) {
        self.u64(configuration.epoch.0);
        self.drives(&configuration.acting);
        self.0.head.extend_from_slice(configuration.primary.as_bytes());
        self.drives(&configuration.learners);
        self.u8(configuration.min_copies);
    }

    fn sums(&mut self, sums: &[Checksum]) {
        self.count(sums.len());
        sums.iter().for_each(|sum| self.u64(sum.0));
    }

    fn run(&mut self, run: &Run) {
        self.u32(run.offset);
        self.u32(run.content.len());
        match &run.content {
            Content::Data(data) => {
                self.u8(1);
                self.0.payload.push(data.clone());
            }
            Content::Zeroes(_) => self.u8(0),
            Content::Lost(sums) => {
                self.u8(2);
                for sum in sums {
                    self.u8(u8::from(sum.is_some()));
                    self.u32(sum.unwrap_or(0));
                }
            }
        }
    }

    fn runs(&mut self, runs: &[Run]) {
        self.count(runs.len());
        runs.iter().for_each(|run| self.run(run));
    }

    fn entry(&mut self, entry: &Entry) {
        match entry {
            Entry::Write { version, generation, extent, run } => {
                self.u8(1);
                self.version(*version);
                self.u64(generation.0);
                self.extent(*extent);
                self.run(run);
            }
            Entry::Patch { version, extent, runs } => {
                self.u8(2);
                self.version(*version);
                self.extent(*extent);
                self.runs(runs);
            }
            Entry::Whole => self.u8(3),
        }
    }

    fn page(&mut self, page: &Page) {
        self.version(page.newest);
        self.u8(u8::from(page.has_more));
        self.count(page.entries.len());
        for (extent, version) in &page.entries {
            self.extent(*extent);
            self.version(*version);
        }
    }

    fn body(&mut self, body: &Body) {
        match body {
            Body::Adopt(configuration) | Body::Newer(configuration) => self.configuration(configuration),
            Body::Adopted(Standing { clean, newest, is_partial, room }) => {
                self.version(*clean);
                self.version(*newest);
                self.u8(u8::from(*is_partial));
                self.room(*room);
            }
            Body::Lease { nonce, clean } => {
                self.u64(*nonce);
                self.version(*clean);
            }
            Body::Leased { nonce, progress, room } => {
                self.u64(*nonce);
                self.progress(*progress);
                self.room(*room);
            }
            Body::Applied(progress) => self.progress(*progress),
            Body::Apply { index, clean, entry } => {
                self.u64(*index);
                self.version(*clean);
                self.entry(entry);
            }
            Body::List { above, after } => {
                self.version(*above);
                self.after(*after);
            }
            Body::Listed { after, page } => {
                self.after(*after);
                self.page(page);
            }
            Body::Inquire { extent } | Body::Damaged { extent } => self.extent(*extent),
            Body::Checksums { extent, sums } | Body::Fetch { extent, sums } => {
                self.extent(*extent);
                self.sums(sums);
            }
            Body::Fetched { extent, difference } => {
                self.extent(*extent);
                self.version(difference.version);
                self.runs(&difference.runs);
            }
            Body::Failed(fault) => self.u8(*fault as u8 + 1),
        }
    }
}

const fn kind(body: &Body) -> u8 {
    match body {
        Body::Adopt(_) => 1,
        Body::Adopted(_) => 2,
        Body::Newer(_) => 3,
        Body::Lease { .. } => 4,
        Body::Leased { .. } => 5,
        Body::Apply { .. } => 6,
        Body::Applied(_) => 7,
        Body::List { .. } => 8,
        Body::Listed { .. } => 9,
        Body::Inquire { .. } => 10,
        Body::Checksums { .. } => 11,
        Body::Fetch { .. } => 12,
        Body::Fetched { .. } => 13,
        Body::Failed(_) => 14,
        Body::Damaged { .. } => 15,
    }
}

/// The written form of a message. Its payload shares the message's buffers.
#[must_use]
pub fn encode(message: &Message) -> Encoded {
    let mut writer = Writer(Encoded { head: Vec::with_capacity(64), payload: Vec::new() });
    writer.u8(VERSION);
    writer.u8(kind(&message.body));
    writer.u32(message.group.set.0);
    writer.u32(message.group.pg.0);
    writer.u64(message.epoch.0);
    writer.u64(message.from.number());
    writer.u64(message.to.map_or(0, Life::number));
    writer.body(&message.body);
    writer.0
}

struct Input<'a> {
    head: &'a [u8],
    payload: Bytes,
    group: GroupId,
}

type Read<T> = Result<T, FormError>;

impl Input<'_> {
    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (taken, rest) = self.head.split_first_chunk::<N>().ok_or(FormError::Malformed)?;
        self.head = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Read<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn flag(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FormError::Malformed),
        }
    }

    fn u32(&mut self) -> Read<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Read<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn count(&mut self, max: usize) -> Read<usize> {
        usize::try_from(self.u32()?).ok().filter(|count| *count <= max).ok_or(FormError::Malformed)
    }

    /// A list of at most `max`. Its elements are read one by one, so a count allocates nothing that is not there.
    fn list<T>(&mut self, len: usize, read: impl Fn(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        (0..len).map(|_| read(self)).collect()
    }

    fn epoch(&mut self) -> Read<Epoch> {
        let epoch = Epoch(self.u64()?);
        if epoch <= EPOCH_MAX { Ok(epoch) } else { Err(FormError::Malformed) }
    }

    /// A life, or none.
    fn life(&mut self) -> Read<Option<Life>> {
        let number = self.u64()?;
        Ok((number > 0).then(|| Life::drawn(number)))
    }

    fn version(&mut self) -> Read<Version> {
        let version = Version::from_bytes(self.array()?);
        if version.epoch <= EPOCH_MAX { Ok(version) } else { Err(FormError::Malformed) }
    }

    fn progress(&mut self) -> Read<Progress> {
        let (received, durable) = (self.u64()?, self.u64()?);
        if durable <= received { Ok(Progress { received, durable }) } else { Err(FormError::Malformed) }
    }

    fn room(&mut self) -> Read<Room> {
        Ok(if self.flag()? { Room::Low } else { Room::Enough })
    }

    fn extent(&mut self) -> Read<ExtentId> {
        Ok(ExtentId { volume: VolumeId::from_bytes(self.array()?), extent: Extent(self.u64()?) })
    }

    fn after(&mut self) -> Read<Option<ExtentId>> {
        let (is_some, extent) = (self.flag()?, self.extent()?);
        match is_some {
            true => Ok(Some(extent)),
            false if extent == ExtentId::default() => Ok(None),
            false => Err(FormError::Malformed),
        }
    }

    fn drives(&mut self, max: usize) -> Read<Vec<DriveId>> {
        let len = usize::from(self.u8()?);
        if len > max {
            return Err(FormError::Malformed);
        }
        self.list(len, |input| input.array().map(DriveId::from_bytes))
    }

    fn configuration(&mut self) -> Read<Configuration> {
        let group = self.group;
        let configuration = Configuration {
            group,
            epoch: self.epoch()?,
            acting: self.drives(MEMBERS_MAX)?,
            primary: DriveId::from_bytes(self.array()?),
            learners: self.drives(LEARNERS_MAX)?,
            min_copies: self.u8()?,
        };
        if configuration.is_valid() { Ok(configuration) } else { Err(FormError::Malformed) }
    }

    fn sums(&mut self) -> Read<Vec<Checksum>> {
        let len = self.count(BLOCKS_MAX)?;
        self.list(len, |input| input.u64().map(Checksum))
    }

    fn run(&mut self) -> Read<Run> {
        let (offset, len) = (self.u32()?, self.u32()?);
        let bytes = usize::try_from(len).map_err(|_| FormError::Malformed)?;
        let content = match self.u8()? {
            0 => Content::Zeroes(len),
            1 if bytes <= self.payload.len() => Content::Data(self.payload.split_to(bytes)),
            2 if len % BLOCK_BYTES == 0 && len <= EXTENT_BYTES_MAX => {
                Content::Lost(self.list(bytes / BLOCK_BYTES as usize, Self::lost_sum)?)
            }
            _ => return Err(FormError::Malformed),
        };
        let run = Run { offset, content };
        if run.range().is_valid() { Ok(run) } else { Err(FormError::Malformed) }
    }

    fn lost_sum(&mut self) -> Read<Option<u32>> {
        match (self.u8()?, self.u32()?) {
            (1, sum) => Ok(Some(sum)),
            (0, 0) => Ok(None),
            _ => Err(FormError::Malformed),
        }
    }

    fn runs(&mut self) -> Read<Vec<Run>> {
        let len = self.count(BLOCKS_MAX)?;
        self.list(len, Self::run)
    }

    fn entry(&mut self) -> Read<Entry> {
        match self.u8()? {
            1 => Ok(Entry::Write {
                version: self.version()?,
                generation: Generation(self.u64()?),
                extent: self.extent()?,
                run: self.run()?,
            }),
            2 => Ok(Entry::Patch { version: self.version()?, extent: self.extent()?, runs: self.runs()? }),
            3 => Ok(Entry::Whole),
            _ => Err(FormError::Malformed),
        }
    }

    fn page(&mut self) -> Read<Page> {
        let (newest, has_more) = (self.version()?, self.flag()?);
        let len = self.count(PAGE_MAX)?;
        let entries = self.list(len, |input| Ok((input.extent()?, input.version()?)))?;
        let is_ascending = entries.is_sorted_by(|(one, _), (other, _)| one < other);
        if is_ascending && !(has_more && entries.is_empty()) {
            Ok(Page { entries, has_more, newest })
        } else {
            Err(FormError::Malformed)
        }
    }

    fn fault(&mut self) -> Read<Fault> {
        let faults = [Fault::Silent, Fault::Lags, Fault::DriveFailed, Fault::DriveFull, Fault::Damaged, Fault::Blank];
        let number = usize::from(self.u8()?);
        number.checked_sub(1).and_then(|at| faults.get(at)).copied().ok_or(FormError::Malformed)
    }

    fn body(&mut self, kind: u8) -> Read<Body> {
        Ok(match kind {
            1 => Body::Adopt(self.configuration()?),
            2 => {
                let (clean, newest, is_partial) = (self.version()?, self.version()?, self.flag()?);
                Body::Adopted(Standing { clean, newest, is_partial, room: self.room()? })
            }
            3 => Body::Newer(self.configuration()?),
            4 => Body::Lease { nonce: self.u64()?, clean: self.version()? },
            5 => Body::Leased { nonce: self.u64()?, progress: self.progress()?, room: self.room()? },
            6 => Body::Apply { index: self.u64()?, clean: self.version()?, entry: self.entry()? },
            7 => Body::Applied(self.progress()?),
            8 => Body::List { above: self.version()?, after: self.after()? },
            9 => Body::Listed { after: self.after()?, page: self.page()? },
            10 => Body::Inquire { extent: self.extent()? },
            11 => Body::Checksums { extent: self.extent()?, sums: self.sums()? },
            12 => Body::Fetch { extent: self.extent()?, sums: self.sums()? },
            13 => {
                let extent = self.extent()?;
                let difference = Difference { version: self.version()?, runs: self.runs()? };
                Body::Fetched { extent, difference }
            }
            14 => Body::Failed(self.fault()?),
            15 => Body::Damaged { extent: self.extent()? },
            _ => return Err(FormError::Malformed),
        })
    }
}

/// The message with this written form. Its data share the buffer of `payload`.
///
/// # Errors
/// The sender's fault, see [`FormError`].
pub fn decode(head: &[u8], payload: Bytes) -> Result<Message, FormError> {
    if head.len() > HEAD_BYTES_MAX {
        return Err(FormError::Malformed);
    }
    let mut input = Input { head, payload, group: GroupId::default() };
    let version = input.u8()?;
    if version != VERSION {
        return Err(FormError::Version(version));
    }
    let kind = input.u8()?;
    input.group = GroupId { set: SetId(input.u32()?), pg: PgId(input.u32()?) };
    let epoch = input.epoch()?;
    let from = input.life()?.ok_or(FormError::Malformed)?;
    let to = input.life()?;
    let body = input.body(kind)?;
    if !input.head.is_empty() || !input.payload.is_empty() {
        return Err(FormError::Malformed);
    }
    Ok(Message { group: input.group, epoch, from, to, body })
}

#[cfg(test)]
mod tests;
