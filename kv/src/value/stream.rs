//! Streams: entries by ascending id, and groups of consumers that share them.
//!
//! [`Stream`] has two parts that are used side by side: the [`Log`] of entries and the [`Group`]s by name. A group never
//! changes the log; what it does with entries takes the log as an argument.
//!
//! Not here: keys, replies, blocking, the parsing of options. An empty stream is a value like any other.

use std::collections::BTreeMap;
use std::fmt;

use crate::memory::packed::Digits;

mod group;
mod log;
mod node;

pub use group::{AutoClaimed, Claim, Claimed, Consumer, ConsumerId, Group, Pending};
pub use log::{ENTRY_BYTES_MAX, Keep, Log, NodeLimits, NotAppended, NotSet};
pub(crate) use node::Node;
pub use node::{Entry, Fields};

/// The id of an entry: a time in milliseconds, and a number among those of that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct StreamId {
    /// Milliseconds.
    pub ms: u64,
    /// Counts from 0 within one millisecond.
    pub seq: u64,
}

impl StreamId {
    /// The lowest, which no entry has.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// The greatest.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// An id by its parts.
    #[must_use]
    pub const fn new(ms: u64, seq: u64) -> Self {
        Self { ms, seq }
    }

    /// The next greater, if there is one.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { ms: self.ms, seq }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The next smaller, if there is one.
    #[must_use]
    pub fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { ms: self.ms, seq }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// Reads `ms-seq`, or `ms` alone with the number given for it.
    #[must_use]
    pub fn parse(bytes: &[u8], seq_if_missing: u64) -> Option<Self> {
        let mut parts = bytes.splitn(2, |byte| *byte == b'-');
        let ms = parse_number(parts.next()?)?;
        let seq = parts.next().map_or(Some(seq_if_missing), parse_number)?;
        Some(Self { ms, seq })
    }

    /// The id as it is written in requests and replies: `ms-seq`.
    #[must_use]
    pub fn text(self) -> IdText {
        let mut text = IdText { bytes: [0; ID_TEXT_BYTES_MAX], start: ID_TEXT_BYTES_MAX };
        text.put(Digits::default().write_unsigned(self.seq));
        text.put(b"-");
        text.put(Digits::default().write_unsigned(self.ms));
        text
    }

    /// 16 bytes in which ids have the order of their values.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    /// The id with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let half = |start: usize| {
            let half = bytes[start..].first_chunk().expect("there are eight bytes from 0 and from 8");
            u64::from_be_bytes(*half)
        };
        Self { ms: half(0), seq: half(8) }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// The most bytes of an id's text: two numbers of 20 digits and what stands between them.
const ID_TEXT_BYTES_MAX: usize = 41;

/// An id as text, without a heap.
#[derive(Debug, Clone, Copy)]
pub struct IdText {
    /// Filled from the end.
    bytes: [u8; ID_TEXT_BYTES_MAX],
    start: usize,
}

impl IdText {
    /// The text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn put(&mut self, piece: &[u8]) {
        let end = self.start;
        self.start -= piece.len();
        self.bytes[self.start..end].copy_from_slice(piece);
    }
}

fn parse_number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

/// The id that a new entry shall have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewId {
    /// The time now, or what follows the last if that is later.
    Auto,
    /// This time, with the next number of it.
    AutoSeq {
        /// Milliseconds.
        ms: u64,
    },
    /// This.
    Given(StreamId),
}

impl NewId {
    /// Reads `*`, `ms-*`, `ms-seq` or `ms`, which stands for `ms-0`.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes {
            b"*" => Some(Self::Auto),
            [ms @ .., b'-', b'*'] => Some(Self::AutoSeq { ms: parse_number(ms)? }),
            _ => StreamId::parse(bytes, 0).map(Self::Given),
        }
    }
}

/// A stream.
#[derive(Debug, Clone, Default)]
pub struct Stream {
    /// Its entries.
    pub log: Log,
    /// Its groups by name.
    pub groups: BTreeMap<Box<[u8]>, Group>,
}

impl Stream {
    /// A stream without entries and groups.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The name that `OBJECT ENCODING` gives the form.
    #[must_use]
    pub const fn encoding(&self) -> &'static str {
        "stream"
    }

    /// Adds a group that has been given everything up to an id. False if there is one of this name.
    pub fn create_group(&mut self, name: &[u8], last_id: StreamId, entries_read: Option<u64>) -> bool {
        if self.groups.contains_key(name) {
            return false;
        }
        self.groups.insert(name.into(), Group::new(last_id, entries_read));
        true
    }

    /// How many pieces of memory it has: nodes of entries, and groups.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.log.node_count() + self.groups.len()
    }

    /// About how many bytes of memory are held, this value itself aside: trees are reckoned as if two thirds full. Looks at
    /// every node and group.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        let groups = self.groups.iter().map(|(name, group)| name.len() + size_of::<Group>() + group.bytes_held());
        self.log.bytes_held() + groups.sum::<usize>()
    }
}

/// About what a tree of so many entries of a size takes.
const fn tree_bytes(len: usize, entry_bytes: usize) -> usize {
    len * entry_bytes * 3 / 2
}

#[cfg(test)]
mod tests;
