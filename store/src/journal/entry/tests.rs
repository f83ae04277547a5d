use super::*;
use arbtest::arbtest;
use ashlar_wire::epoch::Epoch;

fn bytes_of(entry: &Entry) -> Vec<u8> {
    let mut bytes = vec![0; entry.len()];
    entry.encode(&mut FieldWriter::new(&mut bytes));
    bytes
}

fn sample_put() -> Put {
    let mut blocks = BlockSet::EMPTY;
    blocks.insert(0);
    blocks.insert(9);
    Put {
        cell: CellId(1),
        id: ExtentId { volume: VolumeId::from_bytes([0xaa; 16]), extent: Extent(2) },
        group: GroupId { set: SetId(3), pg: PgId(4) },
        version: Version { epoch: Epoch(5), sequence: 6 },
        slot: Some(SlotId(7)),
        data: Data::Inline,
        others: Others::Clear,
        blocks,
        checksums: vec![BlockChecksum(8), BlockChecksum(9)],
    }
}

#[test]
fn golden_bytes() {
    let id = sample_put().id;
    let version = sample_put().version;
    let mut blocks = BlockSet::EMPTY;
    blocks.insert(0);
    let volume = VolumeId::from_bytes([0xbb; 16]);
    let key = Key::new(b"k").unwrap();
    let value = Value::new(b"vv").unwrap();
    let cases: [(Entry, &[u8]); 7] = [
        (
            Entry::Put(sample_put()),
            b"\x01\x01\x01\0\0\0\x01\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\
              \0\0\0\0\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\x07\
              \0\0\0\0\0\0\x02\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x08\0\0\0\x09",
        ),
        (
            Entry::Clear { cell: CellId(1), id, version, blocks },
            b"\x02\0\0\0\x01\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\
              \0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06\
              \0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ),
        (Entry::DropExtent { cell: CellId(1) }, b"\x03\0\0\0\x01"),
        (Entry::PutRecord { cell: 2, key, value }, b"\x04\0\0\0\x02\x01\0\x02kvv"),
        (Entry::DropRecord { cell: 3 }, b"\x05\0\0\0\x03"),
        (
            Entry::PutTombstone { cell: 4, volume },
            b"\x06\0\0\0\x04\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb\xbb",
        ),
        (Entry::DropTombstone { cell: 5 }, b"\x07\0\0\0\x05"),
    ];
    for (entry, golden) in cases {
        assert_eq!(bytes_of(&entry), golden, "{entry:?}");
        assert_eq!(Entry::decode(&mut FieldReader::new(golden)), Some(entry.clone()));
        for len in 0..golden.len() {
            assert_eq!(Entry::decode(&mut FieldReader::new(&golden[..len])), None, "{entry:?} cut at {len}");
        }
    }
}

#[test]
fn impossible_puts_are_refused() {
    let mut bytes = bytes_of(&Entry::Put(sample_put()));
    let decode = |bytes: &[u8]| Entry::decode(&mut FieldReader::new(bytes));
    for (at, value) in [(0, 0), (0, 8), (1, 2), (2, 2)] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        assert_eq!(decode(&bytes), None, "byte {at} is {value}");
    }
    // Blocks without a slot.
    bytes[55..59].fill(0xff);
    assert_eq!(decode(&bytes), None);
}

#[test]
fn what_is_decoded_is_encoded_again() {
    arbtest(|u| {
        let mut bytes: Vec<u8> = u.arbitrary()?;
        if u.arbitrary()? {
            bytes = bytes_of(&Entry::Put(sample_put()));
            let at = u.int_in_range(0..=bytes.len() - 1)?;
            bytes[at] = u.arbitrary()?;
        }
        if let Some(entry) = Entry::decode(&mut FieldReader::new(&bytes)) {
            let again = bytes_of(&entry);
            assert_eq!(again[..], bytes[..again.len()]);
        }
        Ok(())
    });
}
