//! Every error that every call can give, and that a refused call wrote nothing.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::{geometry, kernels_under_test, set, slices_mut};
use crate::{Codec, Error, GeometryError, Plan, PlanCache, ShardSet, Stores};

const LEN: usize = 80;
const OLD: u8 = 0xee;

const COUNT: fn(usize, usize) -> Error = |expected, given| Error::ShardCount { expected, given };
const LENGTH: fn(usize, usize) -> Error = |expected, given| Error::ShardLength { expected, given };

/// The codecs under test, all of 4 + 2 and of a transform's 2 + 2: every kernel.
fn codecs() -> Vec<Codec> {
    let of = |kernel| [(4, 2), (2, 2)].map(|(data, parity)| Codec::with_kernel(geometry(data, parity), kernel));
    kernels_under_test().into_iter().flat_map(of).collect()
}

/// Shards of these lengths. Each holds something.
fn shards(lengths: &[usize]) -> Vec<Vec<u8>> {
    lengths.iter().map(|&len| vec![0x55; len]).collect()
}

/// `count` shards of `LEN` bytes, but for the one at `odd`, whose length is `len`.
fn odd(count: usize, odd: usize, len: usize) -> Vec<usize> {
    (0..count).map(|at| if at == odd { len } else { LEN }).collect()
}

/// Gives `call` inputs and outputs of these lengths and holds it to the error and to leaving the outputs alone.
fn refused(
    inputs: &[usize],
    outputs: &[usize],
    expected: Error,
    call: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> Result<(), Error>,
) {
    let inputs = shards(inputs);
    let before: Vec<Vec<u8>> = outputs.iter().map(|&len| vec![OLD; len]).collect();
    let mut after = before.clone();
    assert_eq!(call(&super::slices(&inputs), &mut slices_mut(&mut after)), Err(expected));
    assert_eq!(after, before, "written although refused: {expected}");
}

#[test]
fn encode() {
    for codec in codecs() {
        let data = codec.geometry().data();
        refused_stripes(data, |data, parity| codec.encode(data, parity, Stores::Streaming));
        let nothing_is_shown = |_: usize, _: &[u8]| panic!("shown although refused");
        refused_stripes(data, |data, parity| codec.encode_tiles(data, parity, data, nothing_is_shown));
    }
}

/// Holds an encoding of so many data shards and two of parity to its errors.
fn refused_stripes(data: usize, encode: impl Fn(&[&[u8]], &mut [&mut [u8]]) -> Result<(), Error>) {
    for wrong in [0, data - 1, data + 1, data + 2] {
        refused(&odd(wrong, 0, LEN), &[LEN; 2], COUNT(data, wrong), &encode);
    }
    for wrong in [0, 1, 3] {
        refused(&odd(data, 0, LEN), &odd(wrong, 0, LEN), COUNT(2, wrong), &encode);
    }
    for len in [0, LEN - 1, LEN + 1] {
        refused(&odd(data, 0, len), &[LEN; 2], LENGTH(len, LEN), &encode);
        refused(&odd(data, data - 1, len), &[LEN; 2], LENGTH(LEN, len), &encode);
        refused(&odd(data, data, LEN), &[len, LEN], LENGTH(LEN, len), &encode);
        refused(&odd(data, data, LEN), &[LEN, len], LENGTH(LEN, len), &encode);
    }
}

#[test]
fn verify() {
    for codec in codecs() {
        let total = codec.geometry().total();
        let verify = |lengths: &[usize]| codec.verify(&super::slices(&shards(lengths)));
        for wrong in [0, total - 2, total - 1, total + 1] {
            assert_eq!(verify(&odd(wrong, 0, LEN)), Err(COUNT(total, wrong)));
        }
        for at in 1..total {
            assert_eq!(verify(&odd(total, at, LEN - 1)), Err(LENGTH(LEN, LEN - 1)));
        }
        assert_eq!(verify(&odd(total, 0, 0)), Err(LENGTH(0, LEN)));
    }
}

#[test]
fn add_and_update() {
    for codec in codecs() {
        let total = codec.geometry().data();
        let add = |shard| {
            let codec = &codec;
            move |data: &[&[u8]], parity: &mut [&mut [u8]]| codec.add(shard, data[0], parity)
        };
        let update = |shard| {
            let codec = &codec;
            move |data: &[&[u8]], parity: &mut [&mut [u8]]| codec.update(shard, data[0], data[1], parity)
        };
        for shard in [total, total + 1, 255, 256, usize::MAX] {
            refused(&[LEN], &[LEN; 2], Error::NoSuchShard { shard, total }, add(shard));
            refused(&[LEN; 2], &[LEN; 2], Error::NoSuchShard { shard, total }, update(shard));
        }
        for wrong in [0, 1, 3] {
            refused(&[LEN], &odd(wrong, 0, LEN), COUNT(2, wrong), add(1));
            refused(&[LEN; 2], &odd(wrong, 0, LEN), COUNT(2, wrong), update(1));
        }
        refused(&[3], &[LEN; 2], LENGTH(3, LEN), add(1));
        refused(&[LEN], &[LEN, 3], LENGTH(LEN, 3), add(1));
        refused(&[3, LEN], &[LEN; 2], LENGTH(3, LEN), update(1));
        refused(&[LEN, 3], &[LEN; 2], LENGTH(LEN, 3), update(1));
        refused(&[LEN; 2], &[3, LEN], LENGTH(LEN, 3), update(1));
        refused(&[LEN; 2], &[LEN, 3], LENGTH(LEN, 3), update(1));
    }
}

/// Present shards, wanted ones, and what a plan for them comes to in 4 + 2.
const PLANS: [(&[usize], &[usize], Error); 8] = [
    (&[0, 1, 2], &[3], Error::TooFewShards { needed: 4, present: 3 }),
    (&[], &[3], Error::TooFewShards { needed: 4, present: 0 }),
    (&[5], &[], Error::TooFewShards { needed: 4, present: 1 }),
    (&[0, 1, 2, 3], &[3], Error::NotLost { shard: 3 }),
    (&[0, 1, 2, 3, 4], &[4, 5], Error::NotLost { shard: 4 }),
    (&[0, 1, 2, 3, 6], &[4], Error::NoSuchShard { shard: 6, total: 6 }),
    (&[0, 1, 2, 3], &[255], Error::NoSuchShard { shard: 255, total: 6 }),
    (&[0, 1, 200], &[1], Error::NoSuchShard { shard: 200, total: 6 }),
];

#[test]
fn plan() {
    for kernel in kernels_under_test() {
        let codec = Codec::with_kernel(geometry(4, 2), kernel);
        let mut cache = PlanCache::new(4);
        for (present, wanted, expected) in PLANS {
            assert_eq!(codec.plan(set(present), set(wanted)).map(drop), Err(expected));
            assert_eq!(cache.plan(&codec, set(present), set(wanted)).map(drop), Err(expected));
            assert!(cache.is_empty(), "what is refused is not kept");
        }
    }
}

#[test]
fn runs_of_a_plan() {
    type Run = fn(&Plan, &[&[u8]], &mut [&mut [u8]]) -> Result<(), Error>;
    let runs: [Run; 3] = [
        |plan, sources, targets| plan.run(sources, targets, Stores::Cached),
        |plan, sources, targets| plan.run(sources, targets, Stores::Streaming),
        |plan, sources, targets| plan.add(sources, targets),
    ];
    for kernel in kernels_under_test() {
        let whole = Codec::with_kernel(geometry(4, 2), kernel).plan(ShardSet::first(4), set(&[4, 5])).unwrap();
        let part = whole.part(set(&[0, 3]));
        let empty = whole.part(ShardSet::EMPTY);
        for (plan, sources) in [(&whole, 4), (&part, 2), (&empty, 0)] {
            for run in runs {
                let run = |sources: &[&[u8]], targets: &mut [&mut [u8]]| run(plan, sources, targets);
                refused(&odd(sources + 1, 0, LEN), &[LEN; 2], COUNT(sources, sources + 1), run);
                refused(&odd(sources, 0, LEN), &[LEN], COUNT(2, 1), run);
                refused(&odd(sources, 0, LEN), &[LEN; 3], COUNT(2, 3), run);
                refused(&odd(sources, 0, LEN), &[LEN, 1], LENGTH(LEN, 1), run);
                if sources > 0 {
                    refused(&odd(sources - 1, 0, LEN), &[LEN; 2], COUNT(sources, sources - 1), run);
                    refused(&odd(sources, sources - 1, 1), &[LEN; 2], LENGTH(LEN, 1), run);
                }
            }
        }
    }
}

/// Calls `reconstruct` of 4 + 2 with these shards, of which some are lost, and these wanted ones.
fn reconstruct(codec: &Codec, lengths: &[usize], lost: &[usize], wanted: &[(usize, usize)], expected: Error) {
    let shards = shards(lengths);
    let present: Vec<Option<&[u8]>> =
        shards.iter().enumerate().map(|(at, shard)| (!lost.contains(&at)).then_some(&**shard)).collect();
    let before: Vec<Vec<u8>> = wanted.iter().map(|&(_, len)| vec![OLD; len]).collect();
    let mut after = before.clone();
    let mut pairs: Vec<(usize, &mut [u8])> =
        wanted.iter().map(|&(shard, _)| shard).zip(after.iter_mut().map(Vec::as_mut_slice)).collect();
    assert_eq!(codec.reconstruct(&present, &mut pairs, Stores::Cached), Err(expected));
    assert_eq!(after, before, "written although refused: {expected}");
}

#[test]
fn reconstruction() {
    let wanted = [(1, LEN)];
    for kernel in kernels_under_test() {
        let codec = Codec::with_kernel(geometry(4, 2), kernel);
        for wrong in [0, 4, 5, 7] {
            reconstruct(&codec, &odd(wrong, 0, LEN), &[1], &wanted, COUNT(6, wrong));
        }
        reconstruct(&codec, &[LEN; 6], &[1, 2, 3], &wanted, Error::TooFewShards { needed: 4, present: 3 });
        reconstruct(&codec, &[LEN; 6], &[2], &wanted, Error::NotLost { shard: 1 });
        reconstruct(&codec, &[LEN; 6], &[1], &[(6, LEN)], Error::NoSuchShard { shard: 6, total: 6 });
        reconstruct(&codec, &[LEN; 6], &[1, 2], &[(1, LEN), (1, LEN)], COUNT(2, 1));
        for at in [2, 3, 4] {
            reconstruct(&codec, &odd(6, at, LEN - 1), &[1], &wanted, LENGTH(LEN, LEN - 1));
        }
        reconstruct(&codec, &[LEN; 6], &[1], &[(1, LEN + 1)], LENGTH(LEN, LEN + 1));
        reconstruct(&codec, &[LEN; 6], &[1, 2], &[(2, LEN), (1, 0)], LENGTH(LEN, 0));
    }
}

/// A number beyond every geometry is refused as one beyond this geometry is.
#[test]
fn reconstruction_of_a_number_beyond_all() {
    for kernel in kernels_under_test() {
        let codec = Codec::with_kernel(geometry(4, 2), kernel);
        for shard in [256, usize::MAX] {
            reconstruct(&codec, &[LEN; 6], &[1], &[(shard, LEN)], Error::NoSuchShard { shard, total: 6 });
        }
    }
}

#[test]
fn errors_say_what_is_wrong() {
    for (error, expected) in [
        (COUNT(6, 5), "5 shards given, 6 expected"),
        (LENGTH(64, 63), "a shard of 63 bytes among shards of 64"),
        (Error::NoSuchShard { shard: 6, total: 6 }, "shard 6 does not exist among 6"),
        (Error::TooFewShards { needed: 4, present: 3 }, "3 shards are left, 4 are needed"),
        (Error::NotLost { shard: 1 }, "shard 1 is wanted although it is present"),
    ] {
        assert_eq!(error.to_string(), expected);
    }
    for (error, expected) in [
        (GeometryError::NoData, "a stripe needs at least one data shard"),
        (GeometryError::NoParity, "a stripe needs at least one parity shard"),
        (GeometryError::TooManyShards { total: 257 }, "257 shards, but a stripe has at most 256"),
    ] {
        assert_eq!(error.to_string(), expected);
    }
}
