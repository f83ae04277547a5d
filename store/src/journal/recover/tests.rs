use super::*;
use crate::buffer::AlignedBuf;
use crate::journal::batch::{BatchPlace, encode_batch};

const BLOCKS: usize = 8;

fn salt() -> Salt {
    Salt::new(&[b"test"])
}

/// A ring with batches without entries: number, generation, tail and the block where each lies.
fn ring(batches: &[(u64, u64, u64, u32)]) -> AlignedBuf {
    let mut ring = AlignedBuf::zeroed(BLOCKS);
    for (sequence, generation, tail, position) in batches.iter().copied() {
        let place = BatchPlace { sequence: BatchSeq(sequence), generation, tail: BatchSeq(tail), position };
        let batch = encode_batch(salt(), place, [].iter(), &[]);
        ring[position as usize * BLOCK_BYTES..][..batch.len()].copy_from_slice(&batch);
    }
    ring
}

fn recovered(ring: &[u8]) -> Result<RecoveredJournal, OpenError> {
    recover_journal(salt(), ring, Bugs::default())
}

fn places(journal: &RecoveredJournal) -> Vec<(u64, u32)> {
    journal.batches.iter().map(|batch| (batch.sequence.0, batch.position)).collect()
}

#[test]
fn batches_from_the_tail_to_the_newest_are_repeated() {
    // The newest one stands before the others, where the ring began anew.
    let journal = recovered(&ring(&[(3, 1, 1, 5), (4, 1, 3, 6), (5, 2, 4, 0), (6, 2, 4, 1)])).unwrap();
    assert_eq!((places(&journal), journal.generation), (vec![(4, 6), (5, 0), (6, 1)], 3));
    assert!(journal.torn.is_empty());
}

#[test]
fn of_two_batches_of_one_number_that_of_the_later_generation_counts() {
    // The earlier one was left by an opening that did not take it for the newest.
    for (earlier, later) in [(2, 5), (5, 2)] {
        let journal = recovered(&ring(&[(1, 1, 1, 0), (2, 1, 1, earlier), (2, 2, 1, later)])).unwrap();
        assert_eq!((places(&journal), journal.generation), (vec![(1, 0), (2, later)], 3));
    }
}

#[test]
fn a_batch_that_is_missing_is_damage() {
    for (batches, what) in [
        (&[][..], "journal: no batch"),
        (&[(1, 1, 1, 0), (3, 1, 1, 2)], "journal: a batch is missing"),
        (&[(2, 1, 1, 1)], "journal: a batch is missing"),
    ] {
        assert_eq!(recovered(&ring(batches)).unwrap_err(), OpenError::Damaged(what), "{batches:?}");
    }
    assert_eq!(places(&recovered(&ring(&[(1, 1, 1, 0), (3, 1, 3, 2)])).unwrap()), [(3, 2)], "nobody needs the second");
}

#[test]
fn what_was_begun_behind_the_newest_is_named() {
    for (at, torn) in [(2, vec![2]), (0, vec![0]), (4, vec![])] {
        let mut ring = ring(&[(1, 1, 1, 1), (2, 1, 1, at)]);
        // Not all of it was written.
        ring[at as usize * BLOCK_BYTES + 600] ^= 1;
        let journal = recovered(&ring).unwrap();
        assert_eq!((places(&journal), journal.torn), (vec![(1, 1)], torn), "{at}");
    }
}
