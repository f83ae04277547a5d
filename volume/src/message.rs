//! Written form of what an initiator asks a primary, and of its answer: version 2.
//!
//! Headers of fixed length, big-endian; payloads stand apart, so that nobody copies them. The last field of a header is a
//! checksum of the payload whose salt is the rest of the header: it shows a payload that belongs to another request, and
//! a header that was damaged.
//!
//! A request is recognised by session and number: a repetition has the same, so a server applies a write once however
//! often it comes. Which answers it has to remember says `settled_below`: numbers below it are finished here, and a
//! request below it that comes late is to be refused, not applied over what was written since. (Lee and others, RIFL,
//! 2015.)

use ashlar_placement::map::{GroupId, PgId, SetId};
use ashlar_placement::rule::{Extent, ExtentId};
use ashlar_wire::checksum::{Checksum, Salt, checksum};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, ServerId, VolumeId};

use crate::block::BLOCK_BYTES;

/// The version that this program speaks.
pub const VERSION: u8 = 2;
/// Most bytes of an extent, so an offset or length in it is no greater.
pub const EXTENT_BYTES_MAX: u32 = 1 << 30;
/// Most bytes of one payload.
pub const PAYLOAD_BYTES_MAX: u32 = 4 * 1_024 * 1_024;

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageError {
    /// Another length than a header has.
    Length,
    /// A version that this program does not speak.
    Version(u8),
    /// A field has a value that it cannot have.
    Malformed,
    /// The payload is not the one that belongs to the header, or one of them is damaged.
    Checksum,
}

/// What is done to a range of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Read it: the answer carries the bytes.
    Read,
    /// Write it: the request carries the bytes.
    Write,
    /// Write zeroes; the space may be given back.
    Zero,
    /// Write zeroes and keep the range allocated, so that later writes to it need no space.
    ZeroInPlace,
    /// Its content is no longer needed.
    Discard,
    /// Which blocks are stored: the answer carries a bit for each block, the lowest bit of a byte first. Others read as zeroes.
    Presence,
}

impl Verb {
    const fn number(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
            Self::Zero => 3,
            Self::Discard => 4,
            Self::ZeroInPlace => 5,
            Self::Presence => 6,
        }
    }

    /// Whether it changes what is read later.
    #[must_use]
    pub const fn changes(self) -> bool {
        !matches!(self, Self::Read | Self::Presence)
    }
}

/// One attachment's session of requests. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionId(pub u64);

/// Counts the attachments of a volume: a server that has seen a greater one refuses a smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub u64);

/// Number of a request in its session, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RequestNumber(pub u64);

/// A range of one extent, in whole blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentRange {
    /// The extent.
    pub extent: ExtentId,
    /// First byte in the extent, a multiple of a block.
    pub offset: u32,
    /// Bytes, at least a block and a multiple of it.
    pub len: u32,
}

/// What an initiator asks the primary of a placement group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubrequestHeader {
    /// What to do.
    pub verb: Verb,
    /// In which placement group.
    pub group: GroupId,
    /// Under which of its configurations.
    pub epoch: Epoch,
    /// On which drive of the server.
    pub drive: DriveId,
    /// To which range.
    pub range: ExtentRange,
    /// For which attachment.
    pub generation: Generation,
    /// In which session.
    pub session: SessionId,
    /// Which request of it; the same at a repetition.
    pub number: RequestNumber,
    /// Of this session and placement group, every change with a smaller number is finished.
    pub settled_below: RequestNumber,
}

impl SubrequestHeader {
    /// Bytes of the written form.
    pub const LEN: usize = 108;

    /// The written form, for a payload that goes beside it.
    ///
    /// # Panics
    /// When the payload is not as long as the verb and range say: it comes from this program.
    #[must_use]
    pub fn encode(&self, payload: &[u8]) -> [u8; Self::LEN] {
        assert_eq!(payload.len(), self.payload_len(), "the payload is as long as the range");
        let mut writer = Writer::<{ Self::LEN }>::new();
        writer.put([VERSION, self.verb.number(), 0, 0]);
        writer.put(self.group.set.0.to_be_bytes());
        writer.put(self.group.pg.0.to_be_bytes());
        writer.put(self.range.offset.to_be_bytes());
        writer.put(self.range.len.to_be_bytes());
        writer.put(*self.drive.as_bytes());
        writer.put(*self.range.extent.volume.as_bytes());
        writer.put(self.range.extent.extent.0.to_be_bytes());
        writer.put(self.epoch.0.to_be_bytes());
        writer.put(self.generation.0.to_be_bytes());
        writer.put(self.session.0.to_be_bytes());
        writer.put(self.number.0.to_be_bytes());
        writer.put(self.settled_below.0.to_be_bytes());
        writer.seal(payload)
    }

    /// The header in `bytes`, if `payload` belongs to it.
    ///
    /// # Errors
    /// The sender's, or damage on the way. Nothing has been done.
    pub fn decode(bytes: &[u8], payload: &[u8]) -> Result<Self, MessageError> {
        let mut reader = Reader::open(bytes, Self::LEN)?;
        let verb = match reader.take() {
            [1, 0, 0] => Verb::Read,
            [2, 0, 0] => Verb::Write,
            [3, 0, 0] => Verb::Zero,
            [4, 0, 0] => Verb::Discard,
            [5, 0, 0] => Verb::ZeroInPlace,
            [6, 0, 0] => Verb::Presence,
            _ => return Err(MessageError::Malformed),
        };
        let group = GroupId { set: SetId(reader.u32()), pg: PgId(reader.u32()) };
        let (offset, len) = (reader.u32(), reader.u32());
        let drive = DriveId::from_bytes(reader.take());
        let extent = ExtentId { volume: VolumeId::from_bytes(reader.take()), extent: Extent(reader.u64()) };
        let header = Self {
            verb,
            group,
            epoch: Epoch(reader.u64()),
            drive,
            range: ExtentRange { extent, offset, len },
            generation: Generation(reader.u64()),
            session: SessionId(reader.u64()),
            number: RequestNumber(reader.u64()),
            settled_below: RequestNumber(reader.u64()),
        };
        let is_in_blocks = len > 0 && offset.is_multiple_of(BLOCK_BYTES) && len.is_multiple_of(BLOCK_BYTES);
        let is_in_extent = offset < EXTENT_BYTES_MAX && len <= EXTENT_BYTES_MAX - offset;
        let is_short = header.payload_len() <= PAYLOAD_BYTES_MAX as usize;
        if !is_in_blocks || !is_in_extent || !is_short || payload.len() != header.payload_len() {
            return Err(MessageError::Malformed);
        }
        reader.check_seal(bytes, payload).map(|()| header)
    }

    /// Bytes that the request carries.
    #[must_use]
    pub const fn payload_len(&self) -> usize {
        match self.verb {
            Verb::Write => self.range.len as usize,
            Verb::Read | Verb::Zero | Verb::ZeroInPlace | Verb::Discard | Verb::Presence => 0,
        }
    }
}

/// Who leads a placement group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupConfig {
    /// Epoch of the configuration.
    pub epoch: Epoch,
    /// The primary's drive.
    pub drive: DriveId,
    /// The server that it is in.
    pub server: ServerId,
}

/// A server's answer, without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    /// Done. A change is durable on every acting copy; a read's bytes are the payload, and so are the bits of a query.
    Done,
    /// Done: the whole range reads as zeroes, or no block of it is stored.
    Zeroes,
    /// The request's epoch is not the server's. If the server knows a newer configuration, it is this.
    OtherEpoch(Option<GroupConfig>),
    /// The drive is not the primary, or may not serve yet. If the server knows who is, it is this.
    NotPrimary(Option<GroupConfig>),
    /// The volume has a newer attachment, or is deleted.
    Fenced,
    /// Too much to do. Not before so many milliseconds again.
    Busy {
        /// Milliseconds.
        retry_after_ms: u32,
    },
    /// No room.
    Full,
    /// No copy is whole.
    Damaged,
    /// The request is below [`SubrequestHeader::settled_below`] of a later one: it was not and will not be applied.
    Settled,
    /// No retry makes the request right: its extent lies in another placement group, or has no such range.
    Wrong,
}

/// What a server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerHeader {
    /// To which request.
    pub number: RequestNumber,
    /// What.
    pub kind: AnswerKind,
    /// Bytes of the payload; only [`AnswerKind::Done`] has any.
    pub payload_len: u32,
}

impl AnswerHeader {
    /// Bytes of the written form.
    pub const LEN: usize = 68;

    /// The written form, for a payload that goes beside it.
    ///
    /// # Panics
    /// When the payload has another length than is said, or goes with an answer that has none: it comes from this program.
    #[must_use]
    pub fn encode(&self, payload: &[u8]) -> [u8; Self::LEN] {
        assert_eq!(payload.len(), self.payload_len as usize, "the payload is as long as is said");
        assert!(payload.is_empty() || self.kind == AnswerKind::Done, "only what is done has a payload");
        let (kind, config, retry_after_ms) = match self.kind {
            AnswerKind::Done => (1, None, 0),
            AnswerKind::Zeroes => (2, None, 0),
            AnswerKind::OtherEpoch(config) => (3, config, 0),
            AnswerKind::NotPrimary(config) => (4, config, 0),
            AnswerKind::Fenced => (5, None, 0),
            AnswerKind::Busy { retry_after_ms } => (6, None, retry_after_ms),
            AnswerKind::Full => (7, None, 0),
            AnswerKind::Damaged => (8, None, 0),
            AnswerKind::Settled => (9, None, 0),
            AnswerKind::Wrong => (10, None, 0),
        };
        let mut writer = Writer::<{ Self::LEN }>::new();
        writer.put([VERSION, kind, u8::from(config.is_some()), 0]);
        writer.put(self.payload_len.to_be_bytes());
        writer.put(self.number.0.to_be_bytes());
        writer.put(config.map_or(0, |config| config.epoch.0).to_be_bytes());
        writer.put(config.map_or([0; 16], |config| *config.drive.as_bytes()));
        writer.put(config.map_or([0; 16], |config| *config.server.as_bytes()));
        writer.put(retry_after_ms.to_be_bytes());
        writer.seal(payload)
    }

    /// The header in `bytes`, if `payload` belongs to it.
    ///
    /// # Errors
    /// The sender's, or damage on the way: nothing is known of the request.
    pub fn decode(bytes: &[u8], payload: &[u8]) -> Result<Self, MessageError> {
        let mut reader = Reader::open(bytes, Self::LEN)?;
        let [kind, has_config, zero] = reader.take();
        let (payload_len, number) = (reader.u32(), RequestNumber(reader.u64()));
        let epoch = Epoch(reader.u64());
        let (drive, server) = (DriveId::from_bytes(reader.take()), ServerId::from_bytes(reader.take()));
        let retry_after_ms = reader.u32();
        let config = match has_config {
            1 => Some(GroupConfig { epoch, drive, server }),
            _ => None,
        };
        let kind = match kind {
            1 => AnswerKind::Done,
            2 => AnswerKind::Zeroes,
            3 => AnswerKind::OtherEpoch(config),
            4 => AnswerKind::NotPrimary(config),
            5 => AnswerKind::Fenced,
            6 => AnswerKind::Busy { retry_after_ms },
            7 => AnswerKind::Full,
            8 => AnswerKind::Damaged,
            9 => AnswerKind::Settled,
            10 => AnswerKind::Wrong,
            _ => return Err(MessageError::Malformed),
        };
        let header = Self { number, kind, payload_len };
        let is_short = payload_len <= PAYLOAD_BYTES_MAX && payload.len() == payload_len as usize;
        let has_right_payload = payload.is_empty() || kind == AnswerKind::Done;
        if zero != 0 || !is_short || !has_right_payload {
            return Err(MessageError::Malformed);
        }
        reader.check_seal(bytes, payload)?;
        // One written form for each answer: what it does not have is zero.
        let is_canonical = header.encode(payload) == bytes;
        if is_canonical { Ok(header) } else { Err(MessageError::Malformed) }
    }
}

/// Writes the fields of a header of `N` bytes.
struct Writer<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

/// Bytes of the checksum at the end of a header.
const SEAL_BYTES: usize = 8;

/// The checksum of a payload under the identity of its header, which is its bytes up to the checksum.
fn seal(head: &[u8], payload: &[u8]) -> Checksum {
    checksum(Salt::new(&[head]), payload)
}

impl<const N: usize> Writer<N> {
    const fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }

    fn put<const M: usize>(&mut self, field: [u8; M]) {
        self.bytes[self.at..self.at + M].copy_from_slice(&field);
        self.at += M;
    }

    fn seal(mut self, payload: &[u8]) -> [u8; N] {
        assert_eq!(self.at + SEAL_BYTES, N, "the fields fill the header");
        let checksum = seal(&self.bytes[..self.at], payload);
        self.put(checksum.0.to_be_bytes());
        self.bytes
    }
}

/// Reads the fields of a header.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Checks the length and the version, so that every field is there.
    const fn open(bytes: &'a [u8], len: usize) -> Result<Self, MessageError> {
        if bytes.len() != len {
            return Err(MessageError::Length);
        }
        match bytes {
            [VERSION, rest @ ..] => Ok(Self(rest)),
            [version, ..] => Err(MessageError::Version(*version)),
            [] => Err(MessageError::Length),
        }
    }

    fn take<const M: usize>(&mut self) -> [u8; M] {
        let (field, rest) = self.0.split_first_chunk().expect("a header has a fixed length");
        self.0 = rest;
        *field
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }

    fn check_seal(mut self, bytes: &[u8], payload: &[u8]) -> Result<(), MessageError> {
        let head = &bytes[..bytes.len() - SEAL_BYTES];
        let is_right = Checksum(self.u64()) == seal(head, payload);
        assert!(self.0.is_empty(), "the checksum is the last field");
        if is_right { Ok(()) } else { Err(MessageError::Checksum) }
    }
}

#[cfg(test)]
mod tests;
