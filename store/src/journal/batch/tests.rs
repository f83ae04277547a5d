use super::*;
use crate::layout::SlotId;
use crate::page::CellId;
use crate::record::{Key, Value};
use arbtest::arbtest;

fn salt() -> Salt {
    Salt::new(&[b"test"])
}

fn place() -> BatchPlace {
    BatchPlace { sequence: BatchSeq(5), generation: 6, tail: BatchSeq(4), position: 1 }
}

/// A ring of four blocks with one batch in it at block 1.
fn ring_with(entries: &[Entry], data: &[Segment]) -> AlignedBuf {
    let batch = encode_batch(salt(), place(), entries.iter(), data);
    let mut ring = AlignedBuf::zeroed(4);
    ring[BLOCK_BYTES..][..batch.len()].copy_from_slice(&batch);
    ring
}

fn inline_put() -> Entry {
    let mut blocks = crate::block::BlockSet::EMPTY;
    blocks.insert(3);
    Entry::Put(crate::journal::entry::Put {
        cell: CellId(0),
        id: ashlar_placement::rule::ExtentId::default(),
        group: ashlar_placement::map::GroupId::default(),
        version: ashlar_wire::version::Version::ZERO,
        slot: Some(SlotId(1)),
        data: crate::journal::entry::Data::Inline,
        others: crate::journal::entry::Others::Keep,
        blocks,
        checksums: vec![crate::block::BlockChecksum(1)],
    })
}

fn sample() -> AlignedBuf {
    let mut data = AlignedBuf::zeroed(1);
    data.fill(0xdd);
    ring_with(&[Entry::DropRecord { cell: 9 }, inline_put()], &[data.into()])
}

#[test]
fn golden_bytes() {
    let ring = sample();
    let golden = b"ajrn\0\x01\0\x01\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x04\0\0\0\x01\0\0\0\x64";
    assert_eq!(&ring[BLOCK_BYTES..][..golden.len()], golden);
    assert_eq!(&ring[BLOCK_BYTES + 48..][..16], b"\x77\x9b\x28\x5b\x66\xb2\x9d\x20\xe5\x7a\x36\xff\x9f\xb9\x20\x01");
    assert_eq!(&ring[BLOCK_BYTES + 64..][..5], b"\x05\0\0\0\x09");
    assert_eq!(&ring[2 * BLOCK_BYTES..][..2], b"\xdd\xdd");
    let header = decode_header(salt(), &ring, 1).unwrap();
    assert!(data_is_whole(salt(), &ring, &header));
    let entries = decode_entries(&ring, &header).unwrap();
    assert_eq!(entries, [(Entry::DropRecord { cell: 9 }, 2), (inline_put(), 2)]);
}

#[test]
fn every_changed_byte_and_every_other_place_shows() {
    let good = sample();
    for at in BLOCK_BYTES..3 * BLOCK_BYTES {
        let mut ring = AlignedBuf::copy_of(&good);
        ring[at] ^= 0x80;
        let header = decode_header(salt(), &ring, 1);
        assert!(header.is_none_or(|header| !data_is_whole(salt(), &ring, &header)), "byte {at}");
    }
    assert!(decode_header(Salt::new(&[b"other"]), &good, 1).is_none());
    let mut moved = AlignedBuf::zeroed(4);
    moved[..3 * BLOCK_BYTES].copy_from_slice(&good[BLOCK_BYTES..]);
    assert!(decode_header(salt(), &moved, 0).is_none());
    assert!(decode_header(salt(), &good, 9).is_none());
}

#[test]
fn headers_with_a_right_checksum_never_lead_outside() {
    arbtest(|u| {
        let mut ring = sample();
        for _ in 0..u.int_in_range(1..=6)? {
            ring[BLOCK_BYTES + u.int_in_range(0..=170)?] = u.arbitrary()?;
        }
        let sum = meta_checksum(salt(), &ring[BLOCK_BYTES..2 * BLOCK_BYTES]);
        ring[BLOCK_BYTES + CHECKSUM_AT..][..8].copy_from_slice(&sum.0.to_be_bytes());
        if let Some(header) = decode_header(salt(), &ring, 1) {
            let _ = data_is_whole(salt(), &ring, &header);
            if let Some(entries) = decode_entries(&ring, &header) {
                let again: usize = entries.iter().map(|(entry, _)| entry.len()).sum();
                assert_eq!(again, header.entry_bytes as usize);
            }
        }
        Ok(())
    });
}

#[test]
fn many_entries_take_more_than_a_block() {
    let key = Key::new(&[7; 64]).unwrap();
    let value = Value::new(&[8; 1_024]).unwrap();
    let entries = vec![Entry::PutRecord { cell: 1, key, value }; 5];
    let ring = ring_with(&entries, &[]);
    let header = decode_header(salt(), &ring, 1).unwrap();
    assert_eq!((header.meta_blocks, header.data_blocks), (2, 0));
    let found: Vec<Entry> = decode_entries(&ring, &header).unwrap().into_iter().map(|(entry, _)| entry).collect();
    assert_eq!(found, entries);
}
