//! Model of an area: what each blob is, and what it may be once changes in progress are done.

use std::collections::{BTreeMap, VecDeque};

use ashlar_wire::id::BlobId;

use crate::blob::error::BlobError;
use crate::blob::request::NewBlob;
use crate::buffer::{AlignedBuf, BLOCK_BYTES, Segment};

/// What a blob holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Content {
    /// Names its bytes: no two tags have a word in common at the same place.
    pub(super) tag: u64,
    pub(super) len: u32,
    pub(super) stamp: u64,
}

impl Content {
    pub(super) fn bytes(self) -> Vec<u8> {
        let start = self.tag.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let words = (1..=u64::from(self.len).div_ceil(8)).flat_map(|index| (start ^ (index << 40)).to_be_bytes());
        words.take(self.len as usize).collect()
    }

    pub(super) fn header(self) -> Box<[u8]> {
        let len = if self.tag.is_multiple_of(2) { 16 } else { usize::try_from(self.tag % 513).expect("short") };
        self.tag.to_be_bytes().iter().copied().cycle().take(len).collect()
    }

    /// The put of this content, in one segment or several.
    pub(super) fn put(self, blob: BlobId) -> NewBlob {
        let blocks = NewBlob::blocks_of(self.len);
        let mut buf = AlignedBuf::zeroed(blocks);
        buf.fill(0xcc);
        buf[..self.len as usize].copy_from_slice(&self.bytes());
        let whole = Segment::from(buf);
        let first = if self.tag.is_multiple_of(2) { blocks } else { blocks / 2 };
        let data = vec![whole.part(0, first), whole.part(first, blocks - first)];
        assert!(data.iter().all(|segment| segment.bytes().len() == segment.blocks() * BLOCK_BYTES));
        NewBlob { blob, stamp: self.stamp, header: self.header(), len: self.len, data }
    }

    /// Whether two puts have the same bytes; stamps are not compared.
    fn is_same(self, other: Self) -> bool {
        (self.tag, self.len) == (other.tag, other.len)
    }
}

/// A change of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Put(Content),
    Repair(Content),
    Remove,
}

impl Change {
    /// What it makes of a blob, and its answer.
    pub(super) fn apply(self, held: Option<Content>) -> (Option<Content>, Result<(), BlobError>) {
        match (self, held) {
            (Self::Remove, _) => (None, Ok(())),
            (Self::Put(content) | Self::Repair(content), None) => (Some(content), Ok(())),
            (Self::Put(content) | Self::Repair(content), Some(held)) if !content.is_same(held) => {
                (Some(held), Err(BlobError::Conflict))
            }
            (Self::Put(_), Some(held)) => (Some(held), Ok(())),
            (Self::Repair(content), Some(_)) => (Some(content), Ok(())),
        }
    }
}

/// One blob.
#[derive(Debug, Clone, Default)]
pub(super) struct BlobModel {
    /// What it was since the last comparison, by acknowledged changes; never empty.
    history: Vec<Option<Content>>,
    /// Changes that are not answered.
    pub(super) pending: VecDeque<Change>,
    /// All contents that it ever had.
    pub(super) ever: Vec<Content>,
}

impl BlobModel {
    pub(super) fn now(&self) -> Option<Content> {
        self.history.last().copied().flatten()
    }

    /// How many states it had; what a read may see begins with the last of them.
    pub(super) fn version(&self) -> usize {
        self.history.len().saturating_sub(1)
    }

    /// What it was from a version on.
    pub(super) fn since(&self, version: usize) -> impl Iterator<Item = Option<Content>> {
        let states = self.history.get(version..).unwrap_or_default().to_vec();
        let unknown = self.history.is_empty().then_some(None);
        states.into_iter().chain(unknown)
    }

    pub(super) fn issue(&mut self, change: Change) {
        if let Change::Put(content) | Change::Repair(content) = change {
            self.ever.push(content);
        }
        self.pending.push_back(change);
    }

    /// The oldest change is answered. None if it was refused without effect.
    pub(super) fn acknowledge(&mut self) -> Result<(), BlobError> {
        let change = self.pending.pop_front().expect("a change that is answered was issued");
        let (state, result) = change.apply(self.now());
        if self.history.is_empty() {
            self.history.push(None);
        }
        self.history.push(state);
        result
    }

    /// The oldest change had no effect.
    pub(super) fn refuse(&mut self) {
        self.pending.pop_front().expect("a change that is answered was issued");
    }

    /// What it may be after an end of the process, with the number of changes that took effect.
    pub(super) fn possible(&self) -> Vec<(usize, Option<Content>)> {
        let mut state = self.now();
        let mut all = vec![(0, state)];
        for (index, change) in self.pending.iter().enumerate() {
            (state, _) = change.apply(state);
            all.push((index + 1, state));
        }
        all
    }

    /// What was found is what is.
    pub(super) fn settle(&mut self, state: Option<Content>) {
        self.history = vec![state];
        self.pending.clear();
    }
}

/// All blobs that were ever asked for.
pub(super) type Model = BTreeMap<BlobId, BlobModel>;
