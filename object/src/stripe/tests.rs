use ashlar_wire::id::DriveId;

use super::*;

fn spread(data: u8, parity: u8) -> Spread {
    Spread { parity, drives: (0..data + parity).map(|drive| DriveId::from_bytes([drive; 16])).collect() }
}

#[test]
fn any_shards_that_are_enough_give_the_block_back() {
    let codecs = Codecs::default();
    for (data, parity) in [(1, 0), (1, 1), (2, 1), (3, 2), (12, 4)] {
        let spread = spread(data, parity);
        for len in [1, 5, 4_096, 100_003] {
            let block: Vec<u8> = (0..len).map(|at| u8::try_from(at % 253).unwrap()).collect();
            let shards = codecs.encode(&spread, block.clone());
            assert_eq!(shards.len(), usize::from(data + parity));
            for first in 0..shards.len() {
                let mut left: Vec<Option<Bytes>> = shards.iter().cloned().map(Some).collect();
                (0..usize::from(parity)).for_each(|lost| left[(first + lost) % shards.len()] = None);
                let whole = codecs.decode(&spread, left).unwrap().concat();
                assert!(whole[..len] == block, "{data} + {parity}, {len} bytes, from shard {first} on");
            }
            let mut few: Vec<Option<Bytes>> = shards.iter().cloned().map(Some).collect();
            (0..=usize::from(parity)).for_each(|lost| few[lost] = None);
            assert_eq!(codecs.decode(&spread, few), None);
        }
    }
}

#[test]
fn two_halves_are_not_both_enough() {
    assert_eq!(
        [(1, 0), (2, 0), (1, 1), (2, 1), (2, 2), (12, 4)].map(|(data, parity)| quorum(&spread(data, parity))),
        [1, 2, 2, 2, 3, 12]
    );
}

#[test]
fn a_shard_of_another_length_is_none() {
    let data = |len: usize| ShardReply::Data(Bytes::from(vec![7; len]));
    assert_eq!(whole(data(3), 3), Some(Bytes::from_static(&[7; 3])));
    for reply in [data(2), data(4), ShardReply::Missing, ShardReply::Damaged, ShardReply::Unavailable] {
        assert_eq!(whole(reply.clone(), 3), None, "{reply:?}");
    }
}
