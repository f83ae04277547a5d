//! Any M of the M + K shards give back all others: every pattern where that is feasible, drawn patterns where not.

use alloc::vec;
use alloc::vec::Vec;

use super::definition::Definition;
use super::{Random, geometry, kernels_under_test, set, slices};
use crate::{Codec, ShardSet, Stores};

/// Every geometry up to 8 + 8, every way to lose exactly K shards: 48,602 patterns for each kernel.
#[test]
fn every_pattern_up_to_8_and_8() {
    let mut random = Random(4);
    for (data, parity) in (1..=8).flat_map(|data| (1..=8).map(move |parity| (data, parity))) {
        let shards = Definition::of(data, parity).shards(&random.shards(data, 67));
        let patterns: Vec<u32> =
            (0_u32..1 << (data + parity)).filter(|lost| lost.count_ones() == u32::try_from(parity).unwrap()).collect();
        for kernel in kernels_under_test() {
            let codec = Codec::with_kernel(geometry(data, parity), kernel);
            for pattern in &patterns {
                let lost: Vec<usize> = (0..data + parity).filter(|shard| pattern >> shard & 1 == 1).collect();
                check(&codec, &shards, &lost, &lost, Stores::Cached);
            }
        }
    }
}

/// Geometries up to 64 + 64 and 200 + 56: up to K lost, some of them wanted, in any order.
#[test]
fn drawn_patterns_of_large_geometries() {
    let mut random = Random(5);
    let drawn = (0..40).map(|_| (1 + random.below(64), 1 + random.below(64))).collect::<Vec<_>>();
    for (data, parity) in drawn.into_iter().chain([(64, 64), (200, 56), (255, 1), (1, 255), (128, 128)]) {
        let len = 1 + random.below(200);
        let shards = Definition::of(data, parity).shards(&random.shards(data, len));
        for kernel in kernels_under_test() {
            let codec = Codec::with_kernel(geometry(data, parity), kernel);
            for stores in [Stores::Cached, Stores::Cached, Stores::Streaming, Stores::Streaming] {
                let count = 1 + random.below(parity);
                let lost = random.choose(count, data + parity);
                check(&codec, &shards, &lost, &lost[..1 + random.below(count)], stores);
            }
            let all = random.choose(parity, data + parity);
            check(&codec, &shards, &all, &all, Stores::Cached);
        }
    }
}

/// With these shards lost, those wanted come back as they were.
fn check(codec: &Codec, shards: &[Vec<u8>], lost: &[usize], wanted: &[usize], stores: Stores) {
    let mut present: Vec<Option<&[u8]>> = slices(shards).into_iter().map(Some).collect();
    lost.iter().for_each(|&shard| present[shard] = None);
    let mut outputs = vec![vec![0xee; shards[0].len()]; wanted.len()];
    let mut pairs: Vec<(usize, &mut [u8])> =
        wanted.iter().copied().zip(outputs.iter_mut().map(Vec::as_mut_slice)).collect();
    codec.reconstruct(&present, &mut pairs, stores).unwrap();
    for (&shard, output) in wanted.iter().zip(&outputs) {
        let (geometry, kernel) = (codec.geometry(), codec.kernel());
        assert_eq!(*output, shards[shard], "{geometry} {kernel}: shard {shard} of {wanted:?}, lost are {lost:?}");
    }
}

/// A plan reads M shards, those with the lowest numbers, so that a wrong one beyond them does no harm.
#[test]
fn a_plan_reads_only_its_sources() {
    let mut random = Random(6);
    for kernel in kernels_under_test() {
        for _ in 0..50 {
            let (data, parity) = (1 + random.below(12), 2 + random.below(6));
            let codec = Codec::with_kernel(geometry(data, parity), kernel);
            let lost = random.below(data + parity);
            let mut present = ShardSet::first(data + parity);
            present.remove(lost);
            let plan = codec.plan(present, set(&[lost])).unwrap();
            assert_eq!(plan.sources().iter().collect::<Vec<_>>(), present.iter().take(data).collect::<Vec<_>>());
            assert_eq!(plan.targets(), set(&[lost]));

            let mut shards = Definition::of(data, parity).shards(&random.shards(data, 9));
            let expected = core::mem::take(&mut shards[lost]);
            present.iter().skip(data).for_each(|unread| shards[unread] = vec![0xbb; 500]);
            let mut output = vec![0; 9];
            let others: Vec<Option<&[u8]>> =
                shards.iter().enumerate().map(|(at, shard)| (at != lost).then_some(&**shard)).collect();
            codec.reconstruct(&others, &mut [(lost, &mut output)], Stores::Cached).unwrap();
            assert_eq!(output, expected, "{data}+{parity} {kernel}, {lost} lost");
        }
    }
}

/// Nothing wanted is nothing done, and shards may be empty.
#[test]
fn nothing_to_do() {
    for kernel in kernels_under_test() {
        for (data, parity) in [(4, 4), (3, 2)] {
            let codec = Codec::with_kernel(geometry(data, parity), kernel);
            let shards = vec![vec![]; data + parity];
            check(&codec, &shards, &[0], &[0], Stores::Streaming);
            let shards = vec![vec![7; 100]; data + parity];
            check(&codec, &shards, &[1], &[], Stores::Cached);
        }
    }
}
