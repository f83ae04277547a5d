//! Written form of a client's request to the primary of a placement group, and of its outcome. Version 1.
//!
//! All numbers are big-endian and of fixed length. A request is: version, drive, set, placement group, session, number,
//! floor, generation, epoch, volume, extent, kind, offset, length; behind them the data of a write. An outcome is: version,
//! kind, number; behind them the data of a read. An outcome names an epoch where the other side knows a later
//! configuration: every server learns configurations from the catalog, so they need not travel twice.

use ashlar_placement::map::{GroupId, PgId, SetId};
use ashlar_placement::rule::{Extent, ExtentId};
use ashlar_replica::error::Refusal;
use ashlar_replica::request::{
    Answer, ClientRequest, ClientResult, Content, EXTENT_BYTES_MAX, Generation, Operation, Range, RequestId, Run,
    SessionId,
};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, VolumeId};
use bytes::Bytes;

/// The version that this program speaks.
const VERSION: u8 = 1;
/// Bytes of a request before its data.
pub(super) const REQUEST_HEAD: usize = 1 + 16 + 4 + 4 + 8 + 8 + 8 + 8 + 8 + 16 + 8 + 1 + 4 + 4;
/// Bytes of an outcome before its data.
const OUTCOME_HEAD: usize = 1 + 1 + 8;

const READ: u8 = 0;
const WRITE: u8 = 1;
const ZERO: u8 = 2;

/// A request and the drive that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addressed {
    /// The primary's drive, by the configuration of the request's epoch.
    pub drive: DriveId,
    /// The placement group.
    pub group: GroupId,
    /// The request.
    pub request: ClientRequest,
}

/// What has become of a request at a primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The bytes that were asked for.
    Read(Bytes),
    /// On stable storage at every acting member.
    Written,
    /// The volume was attached elsewhere, by this generation. Never retried.
    Fenced(Generation),
    /// A request that no retry makes right: a mistake of the sender.
    Wrong,
    /// The configuration is of this epoch by now. For a write it is not known whether it will be done: it is sent again with
    /// its number.
    Later(Epoch),
    /// Not now: the members are being made equal, too few act, or a limit is reached.
    Wait,
    /// A drive has no room for what was to be written. Nothing was written; a retry is safe.
    NoSpace,
}

impl From<ClientResult> for Outcome {
    fn from(result: ClientResult) -> Self {
        match result {
            Ok(Answer::Read(data)) => Self::Read(data),
            Ok(Answer::Written) => Self::Written,
            Err(Refusal::Fenced(generation)) => Self::Fenced(generation),
            Err(Refusal::Moved(configuration) | Refusal::Unknown(configuration)) => Self::Later(configuration.epoch),
            Err(Refusal::BadRange | Refusal::OtherGroup | Refusal::GivenUp(_)) => Self::Wrong,
            Err(Refusal::NoSpace) => Self::NoSpace,
            // Requests that a session has too many of become fewer when others are answered.
            Err(
                Refusal::TooFarAhead
                | Refusal::Behind(_)
                | Refusal::NotServing
                | Refusal::TooFewCopies
                | Refusal::Busy
                | Refusal::DriveFailed,
            ) => Self::Wait,
        }
    }
}

/// The bytes are no written form that this program knows: the sender's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl Addressed {
    /// The written form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let ClientRequest { session, request, floor, generation, epoch, extent, operation } = &self.request;
        let (kind, offset, len, data) = match operation {
            Operation::Read(Range { offset, len }) => (READ, *offset, *len, &[][..]),
            Operation::Write(Run { offset, content: Content::Data(data) }) => {
                (WRITE, *offset, u32::try_from(data.len()).unwrap_or(u32::MAX), &data[..])
            }
            Operation::Write(Run { offset, content: Content::Zeroes(len) }) => (ZERO, *offset, *len, &[][..]),
        };
        let mut out = Vec::with_capacity(REQUEST_HEAD + data.len());
        out.push(VERSION);
        out.extend_from_slice(self.drive.as_bytes());
        out.extend_from_slice(&self.group.set.0.to_be_bytes());
        out.extend_from_slice(&self.group.pg.0.to_be_bytes());
        for number in [session.0, request.0, floor.0, generation.0, epoch.0] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(extent.volume.as_bytes());
        out.extend_from_slice(&extent.extent.0.to_be_bytes());
        out.push(kind);
        out.extend_from_slice(&offset.to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(data);
        out
    }

    /// Reads it back. The data of a write share the buffer.
    ///
    /// # Errors
    /// It is no request: too short, too long, or of another version.
    pub fn decode(bytes: Vec<u8>) -> Result<Self, Malformed> {
        let bytes = Bytes::from(bytes);
        let mut reader = Reader(&bytes);
        reader.version()?;
        let drive = DriveId::from_bytes(reader.array()?);
        let group = GroupId { set: SetId(reader.u32()?), pg: PgId(reader.u32()?) };
        let (session, request, floor) = (SessionId(reader.u64()?), RequestId(reader.u64()?), RequestId(reader.u64()?));
        let (generation, epoch) = (Generation(reader.u64()?), Epoch(reader.u64()?));
        let extent = ExtentId { volume: VolumeId::from_bytes(reader.array()?), extent: Extent(reader.u64()?) };
        let [kind] = reader.array()?;
        let (offset, len) = (reader.u32()?, reader.u32()?);
        if len > EXTENT_BYTES_MAX {
            return Err(Malformed);
        }
        let data = bytes.slice_ref(reader.0);
        let operation = match kind {
            READ if data.is_empty() => Operation::Read(Range { offset, len }),
            WRITE if data.len() == len as usize => Operation::Write(Run { offset, content: Content::Data(data) }),
            ZERO if data.is_empty() => Operation::Write(Run { offset, content: Content::Zeroes(len) }),
            _ => return Err(Malformed),
        };
        let request = ClientRequest { session, request, floor, generation, epoch, extent, operation };
        Ok(Self { drive, group, request })
    }
}

impl Outcome {
    /// Appends the written form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, number, data) = match self {
            Self::Read(data) => (0, 0, &data[..]),
            Self::Written => (1, 0, &[][..]),
            Self::Fenced(generation) => (2, generation.0, &[][..]),
            Self::Wrong => (3, 0, &[][..]),
            Self::Later(epoch) => (4, epoch.0, &[][..]),
            Self::Wait => (5, 0, &[][..]),
            Self::NoSpace => (6, 0, &[][..]),
        };
        out.reserve(OUTCOME_HEAD + data.len());
        out.extend_from_slice(&[VERSION, kind]);
        out.extend_from_slice(&u64::to_be_bytes(number));
        out.extend_from_slice(data);
    }

    /// Reads it back. The data of a read share the buffer.
    ///
    /// # Errors
    /// It is no outcome, or one of another version.
    pub fn decode(bytes: Vec<u8>) -> Result<Self, Malformed> {
        let bytes = Bytes::from(bytes);
        let mut reader = Reader(&bytes);
        reader.version()?;
        let [kind] = reader.array()?;
        let number = reader.u64()?;
        let data = bytes.slice_ref(reader.0);
        match kind {
            0 if number == 0 => Ok(Self::Read(data)),
            _ if !data.is_empty() => Err(Malformed),
            1 if number == 0 => Ok(Self::Written),
            2 => Ok(Self::Fenced(Generation(number))),
            3 if number == 0 => Ok(Self::Wrong),
            4 => Ok(Self::Later(Epoch(number))),
            5 if number == 0 => Ok(Self::Wait),
            6 if number == 0 => Ok(Self::NoSpace),
            _ => Err(Malformed),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*array)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    fn version(&mut self) -> Result<(), Malformed> {
        let [version] = self.array()?;
        if version == VERSION { Ok(()) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addressed(operation: Operation) -> Addressed {
        Addressed {
            drive: DriveId::from_bytes([0xd1; 16]),
            group: GroupId { set: SetId(1), pg: PgId(0x0203) },
            request: ClientRequest {
                session: SessionId(4),
                request: RequestId(5),
                floor: RequestId(3),
                generation: Generation(6),
                epoch: Epoch(7),
                extent: ExtentId { volume: VolumeId::from_bytes([0xee; 16]), extent: Extent(8) },
                operation,
            },
        }
    }

    #[test]
    fn golden_bytes() {
        let write = Operation::Write(Run { offset: 4_096, content: Content::Data(Bytes::from_static(b"data")) });
        let golden =
            b"\x01\xd1\xd1\xd1\xd1\xd1\xd1\xd1\xd1\xd1\xd1\xd1\xd1\xd1\xd1\xd1\xd1\x00\x00\x00\x01\x00\x00\x02\x03\
            \x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x03\
            \x00\x00\x00\x00\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00\x07\
            \xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\x00\x00\x00\x00\x00\x00\x00\x08\
            \x01\x00\x00\x10\x00\x00\x00\x00\x04data";
        assert_eq!(addressed(write).encode(), golden);
        let mut outcome = Vec::new();
        Outcome::Later(Epoch(9)).encode(&mut outcome);
        assert_eq!(outcome, b"\x01\x04\x00\x00\x00\x00\x00\x00\x00\x09");
    }

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_not() {
        let operations = [
            Operation::Read(Range { offset: 0, len: 8_192 }),
            Operation::Write(Run { offset: 4_096, content: Content::Data(Bytes::from(vec![7; 4_096])) }),
            Operation::Write(Run { offset: 4_096, content: Content::Zeroes(1 << 20) }),
        ];
        for operation in operations {
            let addressed = addressed(operation);
            let bytes = addressed.encode();
            assert_eq!(Addressed::decode(bytes.clone()), Ok(addressed));
            for end in [0, 1, REQUEST_HEAD - 1, bytes.len() - 1] {
                assert_eq!(Addressed::decode(bytes[..end].to_vec()), Err(Malformed), "cut at {end}");
            }
            assert_eq!(Addressed::decode([&bytes[..], &[0]].concat()), Err(Malformed));
            assert_eq!(Addressed::decode([&[2], &bytes[1..]].concat()), Err(Malformed), "another version");
        }
        let outcomes = [
            Outcome::Read(Bytes::from_static(b"bytes")),
            Outcome::Read(Bytes::new()),
            Outcome::Written,
            Outcome::Fenced(Generation(3)),
            Outcome::Wrong,
            Outcome::Later(Epoch(4)),
            Outcome::Wait,
            Outcome::NoSpace,
        ];
        for outcome in outcomes {
            let mut bytes = Vec::new();
            outcome.encode(&mut bytes);
            assert_eq!(Outcome::decode(bytes.clone()), Ok(outcome));
            assert_eq!(Outcome::decode(bytes[..OUTCOME_HEAD - 1].to_vec()), Err(Malformed));
        }
        assert_eq!(Outcome::decode(vec![VERSION, 7, 0, 0, 0, 0, 0, 0, 0, 0]), Err(Malformed));
    }
}
