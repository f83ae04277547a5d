use super::*;
use arbtest::arbtest;
use std::collections::BTreeSet;

fn salt() -> Salt {
    Salt::new(&[b"test"])
}

fn sample() -> RecordHead {
    let blob = BlobId::from_bytes(*b"blob------------");
    let sums = ChunkHasher::new(blob).sums(&[5; 5_000]);
    RecordHead { blob, stamp: 7, len: 5_000, header: b"header---".to_vec().into(), sums }
}

#[test]
fn golden_bytes() {
    let bytes = sample().encode(salt());
    assert_eq!(bytes.len(), head_len(9, 5_000));
    let golden = b"ablb\0\x01\0\x09\0\0\x13\x88\0\0\0\0blob------------\0\0\0\0\0\0\0\x07";
    assert_eq!(&bytes[..40], golden);
    assert_eq!(&bytes[40..48], b"\x72\x92\x01\x7c\xc6\xd1\xd7\xf2");
    assert_eq!(&bytes[48..64], b"header---\0\0\0\0\0\0\0");
    assert_eq!(&bytes[64..], b"\xfc\x56\xdc\xaf\x8d\x09\x80\xb0\x4a\x86\x22\x71\x2a\x10\xc5\xf7");
    assert_eq!(RecordHead::decode(salt(), &bytes), Some(sample()));
    assert_eq!(RecordHead::decode(Salt::new(&[b"other"]), &bytes), None);
}

#[test]
fn every_changed_byte_shows() {
    let good = sample().encode(salt());
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        assert_eq!(RecordHead::decode(salt(), &bytes), None, "byte {at}");
    }
    assert_eq!(RecordHead::decode(salt(), &good[..good.len() - 1]), None);
}

#[test]
fn what_is_decoded_is_encoded_again() {
    arbtest(|u| {
        let mut bytes = sample().encode(salt());
        for _ in 0..u.int_in_range(1..=6)? {
            let at = u.int_in_range(0..=bytes.len() - 1)?;
            bytes[at] = u.arbitrary()?;
        }
        let sum = head_checksum(salt(), &bytes);
        bytes[CHECKSUM_AT..][..8].copy_from_slice(&sum.0.to_be_bytes());
        if let Some(head) = RecordHead::decode(salt(), &bytes) {
            // The length of the header may be another one that takes as many bytes.
            assert_eq!(head.encode(salt()), bytes);
        }
        Ok(())
    });
}

#[test]
fn a_checksum_binds_blob_and_place() {
    let bytes = [5; CHUNK_BYTES];
    let hasher = |number: u8| ChunkHasher::new(BlobId::from_bytes([number; 16]));
    assert_eq!(hasher(1).sum(3, &bytes), ChunkSum(0x062f_b9b8_ac5e_a868));
    let mut seen = BTreeSet::new();
    for number in 1..=3 {
        seen.extend((0..1_024).map(|chunk| hasher(number).sum(chunk, &bytes).0));
    }
    assert_eq!(seen.len(), 3 * 1_024);
}
