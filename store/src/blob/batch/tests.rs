use super::*;
use crate::blob::head::RecordHead;
use arbtest::arbtest;
use ashlar_wire::id::BlobId;

fn salt() -> Salt {
    Salt::new(&[b"test"])
}

fn place() -> BatchPlace {
    BatchPlace { segment: 3, block: 2, sequence: 9, life: 5 }
}

fn record(number: u8, len: u32, kind: EntryKind) -> Record {
    let blob = BlobId::from_bytes([number; 16]);
    let bytes = vec![number; len as usize];
    let sums = ChunkHasher::new(blob).sums(&bytes);
    let head = RecordHead { blob, stamp: 1, len, header: [number; 4].to_vec().into(), sums: sums.clone() };
    let data = if kind == EntryKind::Aligned {
        let mut buf = AlignedBuf::zeroed((len as usize).div_ceil(BLOCK_BYTES));
        buf[..len as usize].copy_from_slice(&bytes);
        RecordData::Blocks(if len > 0 { vec![buf.into()] } else { Vec::new() })
    } else {
        RecordData::Bytes(bytes)
    };
    let entry = LogEntry { blob, stamp: 1, len, header_len: 4, kind, place: Place(0) };
    Record { entry, body: Some(RecordBody { head: head.encode(salt()), sums, data }) }
}

fn removal(number: u8) -> Record {
    Record { entry: LogEntry::removal(BlobId::from_bytes([number; 16])), body: None }
}

/// A segment of 16 blocks with a batch of these records.
fn segment_with(records: &mut [Record]) -> (AlignedBuf, EncodedBatch) {
    let batch = encode_batch(salt(), place(), records);
    let mut segment = AlignedBuf::zeroed(16);
    let mut at = place().block as usize * BLOCK_BYTES;
    for part in &batch.segments {
        segment[at..][..part.bytes().len()].copy_from_slice(part.bytes());
        at += part.bytes().len();
    }
    (segment, batch)
}

fn decode(segment: &[u8]) -> Option<Batch> {
    Batch::decode(salt(), segment, 3, 2)
}

fn is_whole(segment: &[u8]) -> bool {
    decode(segment).is_some_and(|batch| batch.is_whole(salt(), segment, BlobBugs::default()))
}

fn sample() -> Vec<Record> {
    vec![
        record(1, 100, EntryKind::Packed),
        removal(9),
        record(2, 5_000, EntryKind::Aligned),
        record(3, 0, EntryKind::Aligned),
        record(4, 4_096, EntryKind::Aligned),
        record(5, 4_097, EntryKind::Packed),
    ]
}

#[test]
fn golden_bytes() {
    let (segment, batch) = segment_with(&mut [record(1, 100, EntryKind::Packed), removal(9)]);
    assert_eq!(batch.blocks, 1);
    let bytes = &segment[2 * BLOCK_BYTES..];
    let head = b"abat\0\x01\0\0\0\0\0\x03\0\0\0\x02\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x05\0\0\0\x02\0\0\0\x01";
    assert_eq!(&bytes[..40], head);
    assert_eq!(&bytes[40..56], b"\xb9\xb8\x65\x98\x39\xb1\x99\x71\x99\xff\x38\x66\x3d\x17\x23\x29");
    assert_eq!(&bytes[56..64], [0; 8]);
    // Two entries up to byte 144, the head up to 208, then the data.
    assert_eq!(&bytes[64 + 30..64 + 36], b"\x01\0\0\0\x02\x09");
    assert_eq!(&bytes[144..148], b"ablb");
    assert_eq!(&bytes[208..308], [1; 100]);
    assert!(bytes[308..].iter().all(|byte| *byte == 0));
}

#[test]
fn what_is_written_is_read() {
    let mut records = sample();
    let size = records.iter().fold(BatchSize::default(), |size, record| size.with(&record.entry));
    let (segment, batch) = segment_with(&mut records);
    assert!(batch.blocks <= size.blocks(), "{} > {}", batch.blocks, size.blocks());
    let read = decode(&segment).unwrap();
    assert_eq!((read.place, read.blocks), (place(), batch.blocks));
    let entries: Vec<LogEntry> = records.iter().map(|record| record.entry).collect();
    assert_eq!(read.entries, entries);
    assert!(is_whole(&segment));
    for record in &records {
        let span = record.entry.span();
        let data = &segment[span.data..][..record.entry.len as usize];
        assert!(data.iter().all(|byte| *byte == record.entry.blob.as_bytes()[0]));
    }
    let (segment, batch) = segment_with(&mut []);
    assert_eq!((batch.blocks, decode(&segment).unwrap().entries.len(), is_whole(&segment)), (1, 0, true));
}

#[test]
fn every_torn_part_and_every_other_place_shows() {
    let mut records = sample();
    let (good, batch) = segment_with(&mut records);
    let covered = |at: usize| {
        let meta = 2 * BLOCK_BYTES..2 * BLOCK_BYTES + meta_len(records.len());
        let spans = records.iter().filter(|record| record.entry.is_put()).map(|record| record.entry.span());
        let mut parts = spans
            .zip(records.iter().filter(|record| record.entry.is_put()))
            .flat_map(|(span, record)| [span.head..span.head_end, span.data..span.data + record.entry.len as usize]);
        meta.contains(&at) || parts.any(|part| part.contains(&at))
    };
    for at in 2 * BLOCK_BYTES..(2 + batch.blocks as usize) * BLOCK_BYTES {
        let mut segment = AlignedBuf::copy_of(&good);
        segment[at] ^= 0x80;
        assert_eq!(is_whole(&segment), !covered(at), "byte {at}");
    }
    assert_eq!(Batch::decode(Salt::new(&[b"other"]), &good, 3, 2), None);
    assert_eq!(Batch::decode(salt(), &good, 4, 2), None);
    let mut moved = AlignedBuf::zeroed(16);
    moved[BLOCK_BYTES..].copy_from_slice(&good[..15 * BLOCK_BYTES]);
    assert_eq!(Batch::decode(salt(), &moved, 3, 3), None);
    assert_eq!(Batch::decode(salt(), &good, 3, 99), None);
    // The end of the segment cuts the batch.
    assert_eq!(decode(&good[..(1 + batch.blocks as usize) * BLOCK_BYTES]), None);
}

#[test]
fn damage_that_is_moved_is_no_torn_batch() {
    let mut damaged = record(1, 9_000, EntryKind::Aligned);
    let body = damaged.body.as_mut().unwrap();
    body.head[50] ^= 1;
    let mut bytes = vec![1; 9_000];
    bytes[5_000] = 0;
    body.sums = ChunkHasher::new(damaged.entry.blob).sums(&bytes);
    let mut buf = AlignedBuf::zeroed(3);
    buf[..9_000].copy_from_slice(&bytes);
    body.data = RecordData::Blocks(vec![buf.into()]);
    let (segment, _) = segment_with(&mut [damaged]);
    assert!(is_whole(&segment));
}

#[test]
fn batches_with_a_right_checksum_never_lead_outside() {
    arbtest(|u| {
        let (mut segment, _) = segment_with(&mut sample());
        for _ in 0..u.int_in_range(1..=6)? {
            segment[2 * BLOCK_BYTES + u.int_in_range(0..=310)?] = u.arbitrary()?;
        }
        let count = u32::from_be_bytes(segment[2 * BLOCK_BYTES + 32..][..4].try_into().unwrap()) as usize;
        if let Some(meta) = segment[2 * BLOCK_BYTES..].get(..meta_len(count.min(1_000))) {
            let sum = meta_checksum(salt(), meta);
            segment[2 * BLOCK_BYTES + CHECKSUM_AT..][..8].copy_from_slice(&sum.0.to_be_bytes());
        }
        if let Some(batch) = decode(&segment) {
            let _ = batch.is_whole(salt(), &segment, BlobBugs::default());
            assert_eq!((batch.place.segment, batch.place.block), (3, 2));
        }
        Ok(())
    });
}

#[test]
fn the_size_of_a_batch_is_never_below_what_it_takes() {
    arbtest(|u| {
        let mut records = Vec::new();
        for number in 0..u.int_in_range(0..=12)? {
            records.push(match u.int_in_range(0..=2)? {
                0 => removal(number),
                1 => record(number, u.int_in_range(0..=9_000)?, EntryKind::Packed),
                _ => record(number, u.int_in_range(0..=9_000)?, EntryKind::Aligned),
            });
        }
        let size = records.iter().fold(BatchSize::default(), |size, record| size.with(&record.entry));
        let batch = encode_batch(salt(), place(), &mut records);
        assert!(batch.blocks <= size.blocks().max(1));
        Ok(())
    });
}
