use arbtest::arbtest;

use super::*;

fn changes() -> Vec<Logged> {
    vec![
        Logged { change: Change { key: b"a".to_vec(), value: Some(Bytes::from_static(b"xy")) }, version: 7 },
        Logged { change: Change { key: b"bc".to_vec(), value: None }, version: 8 },
    ]
}

#[test]
fn golden_bytes() {
    let head = Head { stream: StreamId([0x11; 16]), area: Area::Second, version_min: 0x0102 }.encode();
    assert_eq!(head.len(), BLOCK);
    assert_eq!(head[..8], *b"ASHLIDH1");
    assert_eq!(head[8..24], [0x11; 16]);
    assert_eq!(head[24..33], [1, 0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(head[33..41], HEAD_SUM);
    assert!(head[41..].iter().all(|byte| *byte == 0));
    let batch = encode_batch(StreamId([0x22; 16]), 5, &changes());
    assert_eq!(batch.len(), BLOCK);
    assert_eq!(batch[..8], *b"ASHLIDB1");
    assert_eq!(batch[8..24], [0x22; 16]);
    assert_eq!(batch[24..40], [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 31, 0, 0, 0, 2]);
    assert_eq!(batch[40..48], BATCH_SUM);
    let body =
        [0, 1, b'a', 0, 0, 0, 0, 0, 0, 0, 7, 1, 0, 0, 0, 2, b'x', b'y', 0, 2, b'b', b'c', 0, 0, 0, 0, 0, 0, 0, 8, 0];
    assert_eq!(batch[48..79], body);
    assert!(batch[79..].iter().all(|byte| *byte == 0));
}

const HEAD_SUM: [u8; 8] = [52, 11, 117, 61, 60, 146, 180, 223];
const BATCH_SUM: [u8; 8] = [226, 240, 187, 239, 197, 192, 121, 184];

#[test]
fn a_batch_is_taken_by_its_stream_and_number_only() {
    let (stream, other) = (StreamId([1; 16]), StreamId([2; 16]));
    let batch = encode_batch(stream, 3, &changes());
    assert_eq!(decode_batch(&batch, stream, 3), Ok(Some((changes(), BLOCK))));
    assert_eq!(decode_batch(&batch, stream, 4), Ok(None));
    assert_eq!(decode_batch(&batch, other, 3), Ok(None));
    assert_eq!(decode_batch(&batch.slice(..40), stream, 3), Ok(None));
    for at in 0..79 {
        let mut flipped = batch.to_vec();
        flipped[at] ^= 0x40;
        assert_eq!(decode_batch(&Bytes::from(flipped), stream, 3), Ok(None), "byte {at}");
    }
}

#[test]
fn a_head_is_whole_or_refused() {
    let head = Head { stream: StreamId([9; 16]), area: Area::First, version_min: 44 };
    let block = Bytes::from(head.encode());
    assert_eq!(Head::decode(&block), Ok(Some(head)));
    assert_eq!(Head::decode(&Bytes::from(vec![0; BLOCK])), Ok(None));
    for at in 0..41 {
        let mut flipped = block.to_vec();
        flipped[at] ^= 1;
        assert_eq!(Head::decode(&Bytes::from(flipped)), Err(Malformed), "byte {at}");
    }
}

#[test]
fn any_bytes_are_refused_or_read() {
    arbtest(|u| {
        let bytes = Bytes::from(u.arbitrary::<Vec<u8>>()?);
        let _ = decode_batch(&bytes, StreamId([0; 16]), 0);
        let mut block = bytes.to_vec();
        block.resize(BLOCK, 0);
        let _ = Head::decode(&Bytes::from(block));
        Ok(())
    });
}

#[test]
fn extents_lie_at_their_numbers_and_batches_in_whole_blocks() {
    let places = [
        (Place::Head, 0),
        (Place::Extent(Area::First, 0), 1),
        (Place::Extent(Area::First, 7), 8),
        (Place::Extent(Area::Second, 0), 1 + (1 << 20)),
        (Place::Extent(Area::Second, 7), 8 + (1 << 20)),
    ];
    for (place, number) in places {
        assert_eq!(place.extent(), number, "{place:?}");
    }
    let lengths =
        changes().iter().map(|logged| logged_bytes(&logged.change.key, logged.change.value.as_ref())).collect();
    assert_eq!((lengths, BATCH_HEAD + BATCH_BYTES_MAX), (vec![18, 13], EXTENT_BYTES));
    let stream = StreamId([1; 16]);
    for len in [0, BLOCK - BATCH_HEAD - 16, BLOCK - BATCH_HEAD - 15, 3 * BLOCK, VALUE_BYTES_MAX] {
        let change = Change { key: b"k".to_vec(), value: Some(Bytes::from(vec![7; len])) };
        let logged = vec![Logged { change, version: 1 }];
        let batch = encode_batch(stream, 0, &logged);
        assert_eq!(batch.len(), (BATCH_HEAD + 16 + len).div_ceil(BLOCK) * BLOCK);
        let behind = Bytes::from([&batch[..], &[9; BLOCK]].concat());
        assert_eq!(decode_batch(&behind, stream, 0), Ok(Some((logged, batch.len()))));
    }
}
