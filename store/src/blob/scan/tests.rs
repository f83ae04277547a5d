use super::*;
use crate::blob::batch::{BatchPlace, Record, encode_batch};
use crate::buffer::AlignedBuf;
use arbtest::arbtest;
use ashlar_wire::id::BlobId;

fn salt() -> Salt {
    Salt::new(&[b"test"])
}

/// A segment in the making.
struct Segment {
    bytes: AlignedBuf,
    block: u32,
}

impl Segment {
    fn new() -> Self {
        Self { bytes: AlignedBuf::zeroed(16), block: 1 }
    }

    /// Appends a batch that removes the blob of its sequence.
    fn append(&mut self, life: u64, sequence: u64) -> &mut Self {
        let blob = BlobId::from_bytes([u8::try_from(sequence).unwrap(); 16]);
        let place = BatchPlace { segment: 3, block: self.block, sequence, life };
        let batch = encode_batch(salt(), place, &mut [Record { entry: LogEntry::removal(blob), body: None }]);
        let start = self.block as usize * BLOCK_BYTES;
        self.bytes[start..][..BLOCK_BYTES].copy_from_slice(batch.segments[0].bytes());
        self.block += 1;
        self
    }

    fn damage(&mut self, block: usize) -> &mut Self {
        self.bytes[block * BLOCK_BYTES + 20] ^= 1;
        self
    }

    /// Sequences of the batches that are found, the next block and sequence, and whether some are missing.
    fn scan(&self, erased: Option<u64>, life: Option<u64>, lives: &[u64]) -> (Vec<u8>, u32, u64, bool) {
        let task = ScanTask { segment: 3, erased, life };
        let lives = lives.iter().copied().collect();
        let scanned = scan_segment(salt(), task, &lives, &self.bytes, BlobBugs::default());
        let found = scanned.entries.iter().map(|entry| entry.blob.as_bytes()[0]).collect();
        (found, scanned.next_block, scanned.next_sequence, scanned.is_lost)
    }
}

#[test]
fn the_batches_of_a_life_are_found_in_order() {
    let mut segment = Segment::new();
    segment.append(5, 5).append(5, 6).append(5, 7);
    for (erased, life) in [(Some(4), Some(5)), (None, Some(5)), (Some(4), None), (None, None)] {
        assert_eq!(segment.scan(erased, life, &[]), (vec![5, 6, 7], 4, 8, false));
    }
    // It was erased, or another life began.
    assert_eq!(segment.scan(Some(5), None, &[]), (vec![], 1, 0, false));
    assert_eq!(segment.scan(Some(5), Some(9), &[]), (vec![], 1, 9, false));
    assert_eq!(Segment::new().scan(None, Some(9), &[]), (vec![], 1, 9, false));
}

#[test]
fn what_an_earlier_life_left_does_not_count() {
    let mut segment = Segment::new();
    segment.append(2, 2).append(2, 3).append(2, 4);
    segment.block = 1;
    segment.append(9, 9).append(9, 10);
    assert_eq!(segment.scan(None, None, &[]), (vec![9, 10], 3, 11, false));
}

#[test]
fn batches_before_another_one_are_missed_and_the_last_is_not() {
    for (damaged, found, next) in [(1, vec![6, 7], 4), (2, vec![5, 7], 4)] {
        let mut segment = Segment::new();
        segment.append(5, 5).append(5, 6).append(5, 7).damage(damaged);
        assert_eq!(segment.scan(None, Some(5), &[]), (found, next, 8, true), "{damaged}");
    }
    let mut segment = Segment::new();
    segment.append(5, 5).append(5, 6).append(5, 7).damage(3);
    assert_eq!(segment.scan(None, Some(5), &[]), (vec![5, 6], 3, 7, false));
}

#[test]
fn a_sequence_that_went_to_another_segment_does_not_count() {
    let mut segment = Segment::new();
    segment.append(5, 5).append(5, 6).append(5, 7);
    assert_eq!(segment.scan(None, Some(5), &[1, 5, 7]), (vec![5, 6], 3, 7, false));
    assert_eq!(segment.scan(None, None, &[1, 5, 7, 20]), (vec![5, 6], 3, 7, false));
}

#[test]
fn any_segment_can_be_scanned() {
    arbtest(|u| {
        let mut segment = Segment::new();
        for _ in 0..u.int_in_range(0..=14)? {
            let life = u.int_in_range(1..=3)?;
            segment.append(life, life + u.int_in_range(0..=9)?);
        }
        for _ in 0..u.int_in_range(0..=3)? {
            segment.bytes[u.int_in_range(0..=16 * BLOCK_BYTES - 1)?] = u.arbitrary()?;
        }
        let (found, next_block, ..) = segment.scan(u.arbitrary()?, u.arbitrary()?, &[2, 9]);
        assert!((1..=15).contains(&next_block));
        assert!(found.is_sorted());
        Ok(())
    });
}
