use super::*;
use crate::blob::entry::{EntryKind, Place};
use arbtest::arbtest;
use ashlar_wire::id::BlobId;

const BLOCKS: u32 = 64;

fn salt() -> Salt {
    Salt::new(&[b"test"])
}

fn entries(count: usize) -> Vec<LogEntry> {
    let entry = |number: usize| LogEntry {
        blob: BlobId::from_bytes([u8::try_from(number % 251).unwrap(); 16]),
        stamp: number as u64,
        len: 10,
        header_len: 2,
        kind: EntryKind::Packed,
        place: Place(256 + u32::try_from(number).unwrap()),
    };
    (0..count).map(entry).collect()
}

#[test]
fn golden_bytes() {
    let golden = |mark: Mark| mark.encode(salt(), 3)[..48].to_vec();
    let free = golden(Mark::Free { life: 7 });
    assert_eq!(&free[..40], b"asgm\0\x01\x01\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(&free[40..], b"\x56\x73\x4f\xff\x15\xce\x7f\xa1");
    let used = golden(Mark::Used { life: 8 });
    assert_eq!(&used[..24], b"asgm\0\x01\x02\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\x08");
    let summary = encode_summary(salt(), 3, 8, 9, &entries(2));
    assert_eq!(summary.blocks(), 1);
    assert_eq!(&summary[..32], b"asgm\0\x01\x03\0\0\0\0\x03\0\0\0\x02\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x09");
    assert_eq!(&summary[32..48], b"\x00\x3d\xbe\x7a\x68\x66\xda\xb0\xd3\xd2\x83\x71\xe3\x35\x8a\x7a");
    assert_eq!(
        &summary[104..104 + 24],
        b"\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\0\0\0\0\0\0\0\x01"
    );
}

#[test]
fn marks_are_read_and_every_changed_byte_shows() {
    for mark in [Mark::Free { life: 0 }, Mark::Free { life: 7 }, Mark::Used { life: 7 }] {
        let good = mark.encode(salt(), 3);
        assert_eq!(Mark::decode(salt(), 3, &good), Some(mark));
        assert_eq!(Mark::decode(salt(), 4, &good), None);
        assert_eq!(Mark::decode(Salt::new(&[b"other"]), 3, &good), None);
        for at in 0..48 {
            let mut bytes = AlignedBuf::copy_of(&good);
            bytes[at] ^= 4;
            assert_eq!(Mark::decode(salt(), 3, &bytes), None, "byte {at}");
        }
    }
}

#[test]
fn summaries_of_every_length_are_read() {
    for count in [0, 1, 99, 100, 101, 202, 203, 1_000] {
        let entries = entries(count);
        let blocks = encode_summary(salt(), 3, 8, 9, &entries);
        assert_eq!(blocks.blocks(), summary_blocks(count) as usize, "{count}");
        let end = blocks.block(blocks.blocks() - 1);
        let Some(Mark::Sealed(seal)) = Mark::decode(salt(), 3, end) else { panic!("a summary has a mark") };
        assert_eq!((seal.life, seal.last, seal.entries as usize), (8, 9, count));
        assert_eq!(decode_summary(salt(), &seal, BLOCKS, &blocks), Some(entries));
        if count > 0 {
            for at in [if count > 100 { 10 } else { 64 }, blocks.len() - BLOCK_BYTES + 64 + 39] {
                let mut changed = AlignedBuf::copy_of(&blocks);
                changed[at] ^= 4;
                assert_eq!(decode_summary(salt(), &seal, BLOCKS, &changed), None, "{count}: byte {at}");
            }
        }
        assert_eq!(decode_summary(salt(), &seal, BLOCKS, &[]), None);
    }
    assert_eq!([100, 101, 202, 203].map(summary_blocks), [1, 2, 2, 3]);
}

#[test]
fn summaries_with_a_right_checksum_never_lead_outside() {
    arbtest(|u| {
        let mut blocks = encode_summary(salt(), 3, 8, 9, &entries(5));
        for _ in 0..u.int_in_range(1..=4)? {
            blocks[ENTRIES_AT + u.int_in_range(0..=5 * ENTRY_LEN - 1)?] = u.arbitrary()?;
        }
        let mut sum = Running::default();
        sum.update(&blocks[ENTRIES_AT..][..5 * ENTRY_LEN]);
        let seal = Seal { life: 8, last: 9, entries: 5, sum: sum.checksum(salt()) };
        for entry in decode_summary(salt(), &seal, BLOCKS, &blocks).unwrap_or_default() {
            assert!(!entry.is_put() || entry.span().end <= (BLOCKS as usize - 1) * BLOCK_BYTES);
        }
        Ok(())
    });
}
