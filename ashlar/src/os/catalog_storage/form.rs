//! The written form of a catalog's log and snapshot on a drive: described in `docs/formats.md`.
//!
//! A log is a head and frames. A frame holds the steps that were written together, and is on the drive before the next one is
//! begun. So at most the last frame can be torn; one that is damaged has whole frames behind it, or cannot be told from a torn one.

use ashlar_catalog::raft::host::LogWrite;
use ashlar_wire::checksum::{Salt, checksum};
use ashlar_wire::id::{ClusterId, ServerId};
use ashlar_wire::pack::{PackError, Reader, write_array_len, write_bin, write_uint};

/// Version of both files.
const VERSION: u32 = 1;
/// Bytes of the head: magic, version, cluster, server, checksum.
pub(super) const HEAD_BYTES: usize = 8 + 4 + 16 + 16 + 8;
/// Bytes before a frame's steps: their length, and the checksum.
pub(super) const FRAME_HEAD_BYTES: usize = 4 + 8;
/// Most bytes of the steps of a frame.
pub(super) const FRAME_BYTES_MAX: usize = 64 << 20;
/// Most bytes of one value of a step.
const VALUE_BYTES_MAX: usize = 32 << 20;

/// Which of the two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Log,
    Snapshot,
}

impl Kind {
    const fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Log => b"ashl-clg",
            Self::Snapshot => b"ashl-csn",
        }
    }
}

/// Whose file it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) cluster: ClusterId,
    pub(super) server: ServerId,
}

/// Why bytes are no such file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bad {
    /// Something else, or damaged at the head.
    Head,
    /// A later form.
    Version(u32),
    /// Of another server or cluster.
    Owner,
    /// Damaged at this byte.
    Damaged(usize),
}

impl Owner {
    fn salt(&self, kind: Kind, offset: usize) -> Salt {
        let offset = (offset as u64).to_be_bytes();
        Salt::new(&[kind.magic(), self.cluster.as_bytes(), self.server.as_bytes(), &offset])
    }

    /// The head of a file.
    pub(super) fn head(&self, kind: Kind) -> Vec<u8> {
        let version = VERSION.to_be_bytes();
        let mut head = [&kind.magic()[..], &version, self.cluster.as_bytes(), self.server.as_bytes()].concat();
        head.extend(checksum(self.salt(kind, 0), &head).0.to_be_bytes());
        head
    }

    /// Checks the head of a file.
    pub(super) fn check_head(&self, kind: Kind, bytes: &[u8]) -> Result<(), Bad> {
        let head = bytes.get(..HEAD_BYTES).ok_or(Bad::Head)?;
        if head[..8] != kind.magic()[..] {
            return Err(Bad::Head);
        }
        let version = u32::from_be_bytes(head[8..12].try_into().map_err(|_| Bad::Head)?);
        if version != VERSION {
            return Err(Bad::Version(version));
        }
        if head[12..28] != self.cluster.as_bytes()[..] || head[28..44] != self.server.as_bytes()[..] {
            return Err(Bad::Owner);
        }
        if head == self.head(kind) { Ok(()) } else { Err(Bad::Head) }
    }

    /// A frame that begins at `offset` of its file.
    pub(super) fn frame(&self, kind: Kind, offset: usize, content: &[u8]) -> Vec<u8> {
        let len = u32::try_from(content.len()).expect("frames are shorter than 4 GiB");
        let sum = checksum(self.salt(kind, offset), content);
        [&len.to_be_bytes()[..], &sum.0.to_be_bytes(), content].concat()
    }

    /// The content of the frame that begins at `offset`; `None` if none is whole there.
    pub(super) fn read_frame<'a>(&self, kind: Kind, bytes: &'a [u8], offset: usize) -> Option<&'a [u8]> {
        let (len, rest) = bytes.get(offset..)?.split_first_chunk::<4>()?;
        let (sum, rest) = rest.split_first_chunk::<8>()?;
        let content = rest.get(..u32::from_be_bytes(*len) as usize)?;
        (checksum(self.salt(kind, offset), content).0 == u64::from_be_bytes(*sum)).then_some(content)
    }

    /// The steps of a log, and how long its whole frames are.
    pub(super) fn read_log(&self, bytes: &[u8]) -> Result<(Vec<LogWrite>, usize), Bad> {
        self.check_head(Kind::Log, bytes)?;
        let (mut steps, mut offset) = (Vec::new(), HEAD_BYTES);
        while let Some(content) = self.read_frame(Kind::Log, bytes, offset) {
            steps.extend(decode_steps(content).map_err(|_| Bad::Damaged(offset))?);
            offset += FRAME_HEAD_BYTES + content.len();
        }
        // A frame is begun only when the one before is on the drive: with a whole one behind, this one was whole once.
        let has_later = (offset + 1..bytes.len()).any(|later| self.read_frame(Kind::Log, bytes, later).is_some());
        if has_later { Err(Bad::Damaged(offset)) } else { Ok((steps, offset)) }
    }

    /// The file of a snapshot.
    pub(super) fn write_snapshot(&self, snapshot: &[u8]) -> Vec<u8> {
        let mut bytes = self.head(Kind::Snapshot);
        bytes.extend(self.frame(Kind::Snapshot, HEAD_BYTES, snapshot));
        bytes
    }

    /// The snapshot of a file.
    pub(super) fn read_snapshot(&self, bytes: &[u8]) -> Result<Vec<u8>, Bad> {
        self.check_head(Kind::Snapshot, bytes)?;
        let content = self.read_frame(Kind::Snapshot, bytes, HEAD_BYTES).ok_or(Bad::Damaged(HEAD_BYTES))?;
        let is_whole = bytes.len() == HEAD_BYTES + FRAME_HEAD_BYTES + content.len();
        if is_whole { Ok(content.to_vec()) } else { Err(Bad::Damaged(HEAD_BYTES)) }
    }
}

/// Appends a step.
pub(super) fn encode_step(step: &LogWrite, out: &mut Vec<u8>) {
    write_array_len(out, 5);
    write_uint(out, u64::from(step.truncate_from.is_some()));
    write_uint(out, step.truncate_from.unwrap_or_default());
    write_uint(out, step.append.len() as u64);
    for (index, bytes) in &step.append {
        write_uint(out, *index);
        write_bin(out, bytes);
    }
    let purge = step.purge.as_ref();
    write_uint(out, purge.map_or(0, |(upto, _)| *upto));
    for value in [purge.map(|(_, purged)| purged), step.vote.as_ref(), step.committed.as_ref()] {
        write_uint(out, u64::from(value.is_some()));
        write_bin(out, value.map_or(&[], Vec::as_slice));
    }
}

fn decode_steps(bytes: &[u8]) -> Result<Vec<LogWrite>, PackError> {
    let mut from = Reader::new(bytes);
    let mut steps = Vec::new();
    while !from.remaining().is_empty() {
        if from.read_array_len()? != 5 {
            return Err(PackError::Malformed);
        }
        let truncates = from.read_uint()? == 1;
        let truncate_from = Some(from.read_uint()?).filter(|_| truncates);
        let mut append = Vec::new();
        for _ in 0..from.read_uint()? {
            append.push((from.read_uint()?, from.read_bin(VALUE_BYTES_MAX)?.to_vec()));
        }
        let upto = from.read_uint()?;
        let mut value = || -> Result<Option<Vec<u8>>, PackError> {
            let is_there = from.read_uint()? == 1;
            Ok(Some(from.read_bin(VALUE_BYTES_MAX)?.to_vec()).filter(|_| is_there))
        };
        let purge = value()?.map(|purged| (upto, purged));
        steps.push(LogWrite { truncate_from, append, purge, vote: value()?, committed: value()? });
    }
    Ok(steps)
}
