//! Space of the journal ring: which blocks recovery still needs, and where the next batch goes.
//!
//! A batch is contiguous; where it does not fit before the end of the ring it starts at block 0. Two blocks stay free for
//! batches without entries, so that a new tail can always be written, and with it space be regained. (Each such batch takes
//! a block and frees at least one; the second covers the one that a wrap may lose.)

use std::collections::VecDeque;

use crate::journal::batch::BatchSeq;

/// Blocks that are kept for batches with a new tail and without entries.
const RESERVED_BLOCKS: u32 = 2;

/// Whether the blocks that are kept for a new tail may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reserve {
    /// They stay free.
    Keep,
    /// One is used, for the new tail.
    Use,
}

/// A batch that recovery may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LiveBatch {
    pub(crate) sequence: BatchSeq,
    pub(crate) position: u32,
    pub(crate) blocks: u32,
}

/// The ring's free and used space.
#[derive(Debug)]
pub(crate) struct Ring {
    blocks: u32,
    /// From the durable tail on, ascending, never empty.
    live: VecDeque<LiveBatch>,
    /// Behind the newest batch; equal to `blocks` at the end of the ring.
    head: u32,
}

impl Ring {
    /// A ring with these batches, oldest first.
    pub(crate) fn new(blocks: u32, live: VecDeque<LiveBatch>) -> Self {
        let newest = live.back().expect("a formatted journal has a batch");
        let head = newest.position + newest.blocks;
        Self { blocks, live, head }
    }

    /// The number of the next batch.
    pub(crate) fn next_sequence(&self) -> BatchSeq {
        self.newest().sequence.next()
    }

    fn newest(&self) -> LiveBatch {
        *self.live.back().expect("a ring has a live batch")
    }

    fn fit(&self, head: u32, blocks: u32) -> Option<u32> {
        let oldest = self.live.front().expect("a ring has a live batch").position;
        if head > oldest {
            if blocks <= self.blocks - head {
                return Some(head);
            }
            return (blocks < oldest).then_some(0);
        }
        (blocks < oldest - head).then_some(head)
    }

    /// Where a batch of so many blocks can go.
    pub(crate) fn place(&self, blocks: u32, reserve: Reserve) -> Option<u32> {
        let position = self.fit(self.head, blocks)?;
        let fits = reserve == Reserve::Use || self.fit(position + blocks, RESERVED_BLOCKS).is_some();
        fits.then_some(position)
    }

    /// Takes the space of a batch.
    pub(crate) fn push(&mut self, batch: LiveBatch) {
        assert!(batch.sequence == self.next_sequence(), "batches are numbered without a gap");
        let is_free = self.fit(self.head, batch.blocks) == Some(batch.position);
        assert!(is_free, "a batch lies where nothing is that recovery may need");
        self.head = batch.position + batch.blocks;
        self.live.push_back(batch);
    }

    /// Gives back the space before a durable tail.
    pub(crate) fn release_before(&mut self, tail: BatchSeq) {
        assert!(tail <= self.next_sequence(), "a tail is a batch that there is, or the next one");
        while self.live.len() > 1 && self.live[0].sequence < tail {
            self.live.pop_front();
        }
    }

    /// Blocks that are not free, with the gap at the end.
    pub(crate) fn used(&self) -> u32 {
        let oldest = self.live[0].position;
        if self.head > oldest { self.head - oldest } else { self.blocks - oldest + self.head }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(sequence: u64, position: u32, blocks: u32) -> LiveBatch {
        LiveBatch { sequence: BatchSeq(sequence), position, blocks }
    }

    #[test]
    fn batches_wrap_and_two_blocks_stay_free() {
        let mut ring = Ring::new(10, [batch(1, 0, 1)].into());
        assert_eq!(ring.place(9, Reserve::Use), Some(1));
        assert_eq!(ring.place(8, Reserve::Keep), None);
        assert_eq!(ring.place(7, Reserve::Keep), Some(1));
        ring.push(batch(2, 1, 7));
        assert_eq!((ring.place(1, Reserve::Keep), ring.place(1, Reserve::Use)), (None, Some(8)));
        ring.push(batch(3, 8, 2));
        assert_eq!((ring.place(1, Reserve::Use), ring.used()), (None, 10));
        ring.release_before(BatchSeq(3));
        assert_eq!((ring.used(), ring.place(5, Reserve::Keep), ring.place(6, Reserve::Keep)), (2, Some(0), None));
        ring.push(batch(4, 0, 5));
        assert_eq!((ring.place(1, Reserve::Keep), ring.place(1, Reserve::Use)), (None, Some(5)));
    }

    #[test]
    fn no_batch_ever_overlaps_a_live_one() {
        arbtest::arbtest(|u| {
            let mut ring = Ring::new(40, [batch(1, 0, 1)].into());
            for _ in 0..60 {
                let blocks = u.int_in_range(1..=9)?;
                if let Some(position) = ring.place(blocks, Reserve::Keep) {
                    let new = position..position + blocks;
                    assert!(new.end <= 40);
                    assert!(
                        ring.live.iter().all(|old| old.position + old.blocks <= new.start || old.position >= new.end)
                    );
                    ring.push(batch(ring.next_sequence().0, position, blocks));
                } else {
                    // The tail can always be moved, if only by one batch.
                    let position = ring.place(1, Reserve::Use).unwrap();
                    let oldest = ring.live[0].sequence;
                    let sequence = ring.next_sequence();
                    ring.push(LiveBatch { sequence, position, blocks: 1 });
                    ring.release_before(BatchSeq(u.int_in_range(oldest.0 + 1..=sequence.0)?));
                }
            }
            Ok(())
        });
    }
}
