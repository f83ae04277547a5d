use super::*;
use arbtest::arbtest;

fn sample() -> Superblock {
    let options = LayoutOptions { journal_blocks: 1_040, records_max: 9, tombstones_max: 100 };
    Superblock {
        cluster: ClusterId::from_bytes(*b"cluster---------"),
        server: ServerId::from_bytes(*b"server----------"),
        drive: DriveId::from_bytes(*b"drive-----------"),
        nonce: *b"nonce-----------",
        geometry: Geometry::plan(64 << 20, options).unwrap(),
    }
}

#[test]
fn golden_bytes() {
    let bytes = sample().encode();
    let head = b"ashlarst\x00\x01\0\0\0\0\0\0cluster---------server----------drive-----------nonce-----------";
    assert_eq!(&bytes[..head.len()], head);
    let sizes = b"\0\0\0\0\0\0\x40\0\0\0\x04\x10\0\0\0\x3a\0\0\0\x51\0\0\0\x09\0\0\0\x64";
    assert_eq!(&bytes[80..108], sizes);
    assert!(bytes[108..4088].iter().all(|byte| *byte == 0));
    assert_eq!(&bytes[4088..], b"\x99\xf8\xa0\x09\x06\xd8\x0a\xff");
    assert_eq!(Superblock::decode(&bytes), Ok(sample()));
}

#[test]
fn a_newer_format_and_foreign_bytes_are_told_apart_from_damage() {
    let good = sample().encode();
    let changed = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        Superblock::decode(&bytes)
    };
    assert_eq!(changed(9, 2), Err(OpenError::NewerFormat(2)));
    assert_eq!(changed(9, 0), Err(OpenError::Damaged("superblock")));
    assert_eq!(changed(0, 0), Err(OpenError::NotFormatted));
    assert_eq!(Superblock::decode(&good[..100]), Err(OpenError::NotFormatted));
    for at in (10..BLOCK_BYTES).step_by(7) {
        assert_eq!(changed(at, good[at] ^ 0x40), Err(OpenError::Damaged("superblock")), "byte {at}");
    }
}

#[test]
fn what_is_decoded_is_encoded_again() {
    arbtest(|u| {
        let mut bytes = sample().encode();
        for _ in 0..u.int_in_range(0..=4)? {
            bytes[u.int_in_range(0..=4_095)?] = u.arbitrary()?;
        }
        if u.arbitrary()? {
            let sum = checksum(Salt::new(&[b"superblock"]), &bytes[..CHECKSUM_AT]);
            bytes[CHECKSUM_AT..].copy_from_slice(&sum.0.to_be_bytes());
        }
        if let Ok(superblock) = Superblock::decode(&bytes) {
            let again = superblock.encode();
            // Bytes behind the last field are written as zeroes and not looked at otherwise.
            assert_eq!(Superblock::decode(&again), Ok(superblock));
            assert_eq!(again[..108], bytes[..108]);
        }
        Ok(())
    });
}

#[test]
fn regions_lie_behind_one_another() {
    for bytes in [8_u64 << 20, 64 << 20, 1 << 30, (1 << 40) + 12_345, 200 << 40] {
        let geometry = Geometry::plan(bytes, LayoutOptions { journal_blocks: 1_040, ..LayoutOptions::default() });
        if bytes == 8 << 20 {
            assert!(matches!(geometry, Err(OpenError::TooSmall { bytes_min, .. }) if bytes_min > bytes));
            continue;
        }
        let geometry = geometry.unwrap();
        let last_page = PageId(geometry.pages() - 1);
        let places = [
            geometry.journal_offset(0),
            geometry.journal_offset(geometry.journal_blocks - 1),
            geometry.page_offset(PageId(0), 0),
            geometry.page_offset(last_page, 0),
            geometry.page_offset(PageId(0), 1),
            geometry.page_offset(last_page, 1),
            geometry.slot_offset(SlotId(0), 0),
            geometry.slot_offset(SlotId(geometry.slots - 1), 255),
            geometry.superblock_offsets()[1],
        ];
        assert!(places.is_sorted_by(|one, next| one < next), "{places:?}");
        assert!(geometry.slot_offset(SlotId(0), 0).is_multiple_of(1 << 20));
        assert!(places[8] + 4_096 <= bytes);
        // Tables take less than 0.4 % and no slot that would fit is left out.
        let unused = places[8] - places[7] - 4_096;
        assert!(unused < (1 << 20) + (1 << 15), "{unused} bytes are not used of {bytes}");
    }
}

#[test]
fn impossible_layouts_are_refused() {
    let good = LayoutOptions::default();
    for options in [
        LayoutOptions { journal_blocks: 1_039, ..good },
        LayoutOptions { journal_blocks: JOURNAL_BLOCKS_MAX + 1, ..good },
        LayoutOptions { records_max: 0, ..good },
        LayoutOptions { records_max: TABLE_ENTRIES_MAX + 1, ..good },
        LayoutOptions { tombstones_max: 0, ..good },
        LayoutOptions { tombstones_max: TABLE_ENTRIES_MAX + 1, ..good },
    ] {
        assert!(matches!(Geometry::plan(1 << 40, options), Err(OpenError::BadLayout(_))), "{options:?}");
    }
}

#[test]
fn the_limits_of_a_layout_belong_to_it() {
    let plan = |journal_blocks, records_max, tombstones_max| {
        Geometry::plan(1 << 40, LayoutOptions { journal_blocks, records_max, tombstones_max }).is_ok()
    };
    for [least, most] in [
        [JOURNAL_BLOCKS_MIN, JOURNAL_BLOCKS_MAX].map(|limit| (limit, 9, 9)),
        [1, TABLE_ENTRIES_MAX].map(|limit| (JOURNAL_BLOCKS_MIN, limit, 9)),
        [1, TABLE_ENTRIES_MAX].map(|limit| (JOURNAL_BLOCKS_MIN, 9, limit)),
    ] {
        assert!(plan(least.0, least.1, least.2) && plan(most.0, most.1, most.2), "{least:?} {most:?}");
    }
}
