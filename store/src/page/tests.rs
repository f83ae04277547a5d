use super::*;
use arbtest::arbitrary::{Result as AnyResult, Unstructured};
use arbtest::arbtest;

fn salt() -> Salt {
    Salt::new(&[b"test"])
}

fn encode(page: &Page) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    page.encode_into(salt(), &mut bytes);
    bytes
}

fn extent() -> (ExtentInfo, ExtentBlocks) {
    let mut blocks = ExtentBlocks::default();
    blocks.present.insert(1);
    blocks.checksums[1] = BlockChecksum(0x0102_0304);
    let info = ExtentInfo {
        id: ExtentId { volume: VolumeId::from_bytes([0xaa; 16]), extent: Extent(5) },
        group: GroupId { set: SetId(6), pg: PgId(7) },
        version: Version { epoch: ashlar_wire::epoch::Epoch(8), sequence: 9 },
        slot: Some(SlotId(10)),
    };
    (info, blocks)
}

#[test]
fn golden_bytes_of_extents() {
    let page = Page { id: PageId(3), sequence: 0x0b, body: PageBody::Extents([None, Some(extent()), None]) };
    let bytes = encode(&page);
    assert_eq!(&bytes[..24], b"atab\x01\x01\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\x0b");
    assert_eq!(&bytes[24..32], b"\x80\xe1\x88\x91\x16\x10\x1e\x29");
    assert!(bytes[32..64 + CELL_LEN].iter().all(|byte| *byte == 0));
    let cell = &bytes[64 + CELL_LEN..];
    let head = b"\0\0\0\x01\0\0\0\x0a\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\
        \0\0\0\0\0\0\0\x05\0\0\0\x06\0\0\0\x07\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x09\
        \0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
        \0\0\0\0\x01\x02\x03\x04\0\0\0\0";
    assert_eq!(&cell[..head.len()], head);
    assert_eq!(Page::decode(salt(), PageId(3), &bytes), Some(page));
}

#[test]
fn golden_bytes_of_records_and_tombstones() {
    let record = (Key::new(b"key").unwrap(), Value::new(b"value").unwrap());
    let page = Page { id: PageId(1), sequence: 2, body: PageBody::Records([Some(record), None, None]) };
    let bytes = encode(&page);
    assert_eq!(&bytes[..12], b"atab\x02\x01\0\0\0\0\0\x01");
    assert_eq!(&bytes[64..78], b"\x01\x03\0\x05keyvalue\0\0");
    assert_eq!(Page::decode(salt(), PageId(1), &bytes), Some(page));

    let mut volumes = vec![None; TOMBSTONES_PER_PAGE as usize];
    volumes[9] = Some(VolumeId::from_bytes([0xbb; 16]));
    let page = Page { id: PageId(2), sequence: 2, body: PageBody::Tombstones(volumes) };
    let bytes = encode(&page);
    assert_eq!(&bytes[32..36], b"\0\x02\0\0");
    assert_eq!(&bytes[64 + 9 * 16..][..18], b"\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\0\0");
    assert_eq!(Page::decode(salt(), PageId(2), &bytes), Some(page));
}

#[test]
fn every_changed_byte_and_every_other_place_shows() {
    let page = Page { id: PageId(3), sequence: 1, body: PageBody::Extents([Some(extent()), None, None]) };
    let good = encode(&page);
    for at in 0..BLOCK_BYTES {
        let mut bytes = good.clone();
        bytes[at] ^= 0x11;
        assert_eq!(Page::decode(salt(), PageId(3), &bytes), None, "byte {at}");
    }
    assert_eq!(Page::decode(salt(), PageId(4), &good), None);
    assert_eq!(Page::decode(Salt::new(&[b"other"]), PageId(3), &good), None);
    assert_eq!(Page::decode(salt(), PageId(3), &good[..4_000]), None);
}

fn any_body(u: &mut Unstructured<'_>) -> AnyResult<PageBody> {
    Ok(match u.int_in_range(0..=2)? {
        0 => {
            let mut cells = [None, None, None];
            for cell in &mut cells {
                if u.arbitrary()? {
                    let (mut info, mut blocks) = extent();
                    info.id.extent = Extent(u.arbitrary()?);
                    info.version.sequence = u.arbitrary()?;
                    blocks = ExtentBlocks { present: BlockSet::from_bytes(&u.arbitrary()?), ..blocks };
                    blocks.checksums[1] = BlockChecksum(0);
                    for block in blocks.present.iter() {
                        blocks.checksums[block] = BlockChecksum(u.arbitrary()?);
                    }
                    info.slot = (!blocks.present.is_empty()).then_some(SlotId(u.int_in_range(0..=1 << 28)?));
                    *cell = Some((info, blocks));
                }
            }
            PageBody::Extents(cells)
        }
        1 => {
            let mut cells = [None, None, None];
            for cell in &mut cells {
                let (key, value): (&[u8], &[u8]) = (u.arbitrary()?, u.arbitrary()?);
                if let (Ok(key), Ok(value)) = (Key::new(key), Value::new(value)) {
                    *cell = Some((key, value));
                }
            }
            PageBody::Records(cells)
        }
        _ => {
            let mut volumes = vec![None; TOMBSTONES_PER_PAGE as usize];
            volumes[u.int_in_range(0..=251)?] = Some(VolumeId::from_bytes(u.arbitrary()?));
            PageBody::Tombstones(volumes)
        }
    })
}

#[test]
fn pages_survive_the_round_trip() {
    arbtest(|u| {
        let page = Page { id: PageId(u.arbitrary()?), sequence: u.arbitrary()?, body: any_body(u)? };
        let bytes = encode(&page);
        assert_eq!(Page::decode(salt(), page.id, &bytes), Some(page));
        Ok(())
    });
}

#[test]
fn bytes_with_a_right_checksum_decode_to_what_encodes_to_them_or_not_at_all() {
    arbtest(|u| {
        let page = Page { id: PageId(1), sequence: u.arbitrary()?, body: any_body(u)? };
        let mut bytes = encode(&page);
        for _ in 0..u.int_in_range(1..=4)? {
            bytes[u.int_in_range(0..=4_095)?] = u.arbitrary()?;
        }
        let sum = page_checksum(salt(), &bytes);
        bytes[CHECKSUM_AT..][..8].copy_from_slice(&sum.0.to_be_bytes());
        if let Some(page) = Page::decode(salt(), PageId(1), &bytes) {
            assert_eq!(encode(&page), bytes);
        }
        Ok(())
    });
}
