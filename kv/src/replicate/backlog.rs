//! The newest part of the stream, in memory: what replicas have not taken yet, and what one that comes back may have missed.
//!
//! Bytes lie in chunks of one length, so that old ones go without the others being moved and any place is found by division.

use std::collections::VecDeque;

/// Bytes of a chunk. The backlog is longer than it must be by less than one.
const CHUNK_BYTES: usize = 16 << 10;

/// Bytes of the stream from some place on.
#[derive(Debug)]
pub(super) struct Backlog {
    /// Position of the first byte.
    first: u64,
    /// All full but the last.
    chunks: VecDeque<Vec<u8>>,
}

impl Backlog {
    /// Nothing yet; the next byte is at this position.
    pub(super) fn new(position: u64) -> Self {
        Self { first: position, chunks: VecDeque::new() }
    }

    /// Position of the first byte that is there.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Bytes that are there.
    pub(super) fn len(&self) -> u64 {
        let full = self.chunks.len().saturating_sub(1) * CHUNK_BYTES;
        (full + self.chunks.back().map_or(0, Vec::len)) as u64
    }

    /// Memory that it takes, bytes.
    pub(super) fn memory(&self) -> u64 {
        (self.chunks.len() * CHUNK_BYTES) as u64
    }

    /// Position behind the last byte.
    pub(super) fn end(&self) -> u64 {
        self.first + self.len()
    }

    /// Appends bytes.
    pub(super) fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let has_room = self.chunks.back().is_some_and(|chunk| chunk.len() < CHUNK_BYTES);
            if !has_room {
                self.chunks.push_back(Vec::with_capacity(CHUNK_BYTES));
            }
            let chunk = self.chunks.back_mut().expect("there is one with room");
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - chunk.len()));
            chunk.extend_from_slice(now);
            bytes = later;
        }
    }

    /// Appends to `out` what is there from a position on, up to so many bytes. Returns how many.
    ///
    /// # Panics
    /// The position is not there any more.
    pub(super) fn read(&self, position: u64, bytes_max: usize, out: &mut Vec<u8>) -> usize {
        let skipped = position.checked_sub(self.first).expect("what a replica still needs is kept");
        let skipped = usize::try_from(skipped).expect("lengths in memory fit a word");
        let (mut number, mut at, mut left) = (skipped / CHUNK_BYTES, skipped % CHUNK_BYTES, bytes_max);
        while let Some(chunk) = self.chunks.get(number).filter(|_| left > 0) {
            let end = chunk.len().min(at.saturating_add(left));
            out.extend_from_slice(&chunk[at..end]);
            left -= end - at;
            (number, at) = (number + 1, 0);
        }
        bytes_max - left
    }

    /// Forgets chunks that lie before a position as a whole.
    pub(super) fn trim(&mut self, position: u64) {
        while self.chunks.len() > 1 && self.first + CHUNK_BYTES as u64 <= position {
            self.chunks.pop_front();
            self.first += CHUNK_BYTES as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The byte at a position.
    fn byte(position: u64) -> u8 {
        (position % 251) as u8
    }

    #[test]
    fn what_was_appended_is_read_from_any_place() {
        let mut backlog = Backlog::new(1_000);
        let mut end = 1_000;
        for len in [0, 1, 5, CHUNK_BYTES, CHUNK_BYTES - 7, 3 * CHUNK_BYTES + 1] {
            let bytes: Vec<u8> = (end..end + len as u64).map(byte).collect();
            backlog.append(&bytes);
            end += len as u64;
            assert_eq!((backlog.end(), backlog.len()), (end, end - 1_000));
        }
        for position in [1_000, 1_001, 1_000 + CHUNK_BYTES as u64, end - 1, end] {
            for max in [0, 1, CHUNK_BYTES, usize::MAX] {
                let mut out = Vec::new();
                let count = backlog.read(position, max, &mut out);
                assert_eq!(count, out.len());
                assert_eq!(count as u64, (end - position).min(max as u64), "{position} {max}");
                assert!(out.iter().zip(position..).all(|(found, at)| *found == byte(at)));
            }
        }
    }

    #[test]
    fn old_chunks_go_and_the_rest_stays_where_it_is() {
        let mut backlog = Backlog::new(0);
        let bytes: Vec<u8> = (0..4 * CHUNK_BYTES as u64 + 3).map(byte).collect();
        backlog.append(&bytes);
        backlog.trim(CHUNK_BYTES as u64 - 1);
        assert_eq!(backlog.first(), 0, "a part of the first is still needed");
        backlog.trim(2 * CHUNK_BYTES as u64 + 5);
        assert_eq!((backlog.first(), backlog.end()), (2 * CHUNK_BYTES as u64, bytes.len() as u64));
        let mut out = Vec::new();
        backlog.read(3 * CHUNK_BYTES as u64, 2, &mut out);
        assert_eq!(out, [byte(3 * CHUNK_BYTES as u64), byte(3 * CHUNK_BYTES as u64 + 1)]);
        backlog.trim(u64::MAX);
        assert_eq!(backlog.len(), 3, "the last is kept, since it is written to");
    }
}
