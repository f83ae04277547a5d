//! What happens next: a heap of small keys over a slab of entries.
//!
//! Entries come out by time, and in the order in which they were put in among equal times, so that a run depends on
//! nothing else. The heap moves 16 bytes an entry, whatever an entry holds.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

/// Entries that wait at once. A world that reaches it has run away.
pub(crate) const WAITING_MAX: usize = 1 << SLOT_BITS;

const SLOT_BITS: u32 = 24;

/// The time, then the sequence number above the place in the slab: comparing two keys compares time and sequence.
type Key = (u64, u64);

/// Entries that wait for their time.
#[derive(Debug, Clone)]
pub(crate) struct Queue<T> {
    heap: BinaryHeap<Reverse<Key>>,
    slab: Vec<Option<T>>,
    free: Vec<u32>,
    sequence: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), slab: Vec::new(), free: Vec::new(), sequence: 0 }
    }

    /// Puts `entry` behind all others of that time.
    pub(crate) fn push(&mut self, at_ns: u64, entry: T) {
        let slot = self.free.pop().unwrap_or_else(|| {
            assert!(self.slab.len() < WAITING_MAX, "a world keeps its entries within the queue's limit");
            self.slab.push(None);
            (self.slab.len() - 1) as u32
        });
        self.slab[slot as usize] = Some(entry);
        self.sequence += 1;
        self.heap.push(Reverse((at_ns, self.sequence << SLOT_BITS | u64::from(slot))));
    }

    /// The time of the earliest entry.
    pub(crate) fn next_at_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// The earliest entry and its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        let Reverse((at_ns, key)) = self.heap.pop()?;
        let slot = key & ((1 << SLOT_BITS) - 1);
        self.free.push(slot as u32);
        Some((at_ns, self.slab[slot as usize].take().expect("every key in the heap has an entry")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn time_then_sequence() {
        let mut rng = Rng::new(1);
        let mut queue = Queue::new();
        let mut expected = Vec::new();
        for sequence in 0..1_000 {
            let at_ns = rng.below(50);
            queue.push(at_ns, sequence);
            expected.push((at_ns, sequence));
            if rng.chance(300_000) {
                expected.sort();
                assert_eq!(queue.next_at_ns(), Some(expected[0].0));
                assert_eq!(queue.pop(), Some(expected.remove(0)));
            }
        }
        expected.sort();
        assert!(expected.into_iter().all(|entry| queue.pop() == Some(entry)));
        assert_eq!((queue.next_at_ns(), queue.pop()), (None, None));
    }
}
