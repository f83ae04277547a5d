use super::*;
use arbtest::arbtest;

fn sample() -> BlobSuperblock {
    BlobSuperblock {
        cluster: ClusterId::from_bytes(*b"cluster---------"),
        server: ServerId::from_bytes(*b"server----------"),
        drive: DriveId::from_bytes(*b"drive-----------"),
        nonce: *b"nonce-----------",
        geometry: BlobGeometry::plan(600 << 20, SEGMENT_BLOCKS).unwrap(),
    }
}

#[test]
fn golden_bytes() {
    let bytes = sample().encode();
    let head = b"ashlarbl\x00\x01\0\0\0\0\0\0cluster---------server----------drive-----------nonce-----------";
    assert_eq!(&bytes[..head.len()], head);
    assert_eq!(&bytes[80..96], b"\0\0\0\0\0\x02\x58\0\0\0\x20\0\0\0\0\x12");
    assert!(bytes[96..4088].iter().all(|byte| *byte == 0));
    assert_eq!(&bytes[4088..], b"\x99\x89\xa7\x36\xd3\xcd\x94\x9f");
    assert_eq!(BlobSuperblock::decode(&bytes), Ok(sample()));
}

#[test]
fn a_newer_format_and_foreign_bytes_are_told_apart_from_damage() {
    let good = sample().encode();
    let changed = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        BlobSuperblock::decode(&bytes)
    };
    const DAMAGED: OpenError = OpenError::Damaged("superblock of blobs");
    assert_eq!(changed(9, 2), Err(OpenError::NewerFormat(2)));
    assert_eq!(changed(9, 0), Err(DAMAGED));
    assert_eq!(changed(0, 0), Err(OpenError::NotFormatted));
    assert_eq!(BlobSuperblock::decode(&good[..100]), Err(OpenError::NotFormatted));
    for at in (10..BLOCK_BYTES).step_by(7) {
        assert_eq!(changed(at, good[at] ^ 0x40), Err(DAMAGED), "byte {at}");
    }
}

#[test]
fn what_is_decoded_is_encoded_again() {
    arbtest(|u| {
        let mut bytes = sample().encode();
        for _ in 0..u.int_in_range(0..=4)? {
            bytes[u.int_in_range(0..=100)?] = u.arbitrary()?;
        }
        if u.arbitrary()? {
            let sum = checksum(Salt::new(&[b"blob superblock"]), &bytes[..CHECKSUM_AT]);
            bytes[CHECKSUM_AT..].copy_from_slice(&sum.0.to_be_bytes());
        }
        if let Ok(superblock) = BlobSuperblock::decode(&bytes) {
            let again = superblock.encode();
            assert_eq!(BlobSuperblock::decode(&again), Ok(superblock));
            assert_eq!(again[..96], bytes[..96]);
        }
        Ok(())
    });
}

#[test]
fn an_area_is_divided_within_its_limits() {
    let smallest = (8 + 8 * 8_192 + 1) * BLOCK_BYTES as u64;
    let geometry = BlobGeometry::plan(smallest, SEGMENT_BLOCKS).unwrap();
    assert_eq!((geometry.segments, geometry.blob_bytes_max()), (8, 4 << 20));
    assert_eq!(geometry.offset(0, 1), 9 * BLOCK_BYTES as u64);
    assert_eq!(geometry.offset(7, 8_191) + BLOCK_BYTES as u64, geometry.superblock_offsets()[1]);
    let too_small = BlobGeometry::plan(smallest - 1, SEGMENT_BLOCKS);
    assert_eq!(too_small, Err(OpenError::TooSmall { bytes: smallest - 1, bytes_min: smallest }));
    for blocks in [0, 63, SEGMENT_BLOCKS_MAX + 1] {
        assert!(matches!(BlobGeometry::plan(1 << 40, blocks), Err(OpenError::BadLayout(_))));
    }
    // The last block of the area is no segment's.
    let segments = |blocks| BlobGeometry::plan(blocks * BLOCK_BYTES as u64, SEGMENT_BLOCKS).unwrap().segments;
    for number in [9, 10, 1_000] {
        let blocks = 8 + u64::from(number * SEGMENT_BLOCKS) + 1;
        assert_eq!([blocks - 1, blocks].map(segments), [number - 1, number]);
    }
    assert_eq!(BlobGeometry::plan(1 << 50, SEGMENT_BLOCKS).unwrap().segments, SEGMENTS_MAX);
}
