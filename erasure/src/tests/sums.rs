//! What can be split, reordered or done later: parts of a plan, progressive encoding, updates, spans.

use alloc::vec;
use alloc::vec::Vec;

use super::definition::Definition;
use super::{Random, geometry, kernels_under_test, set, slices, slices_mut};
use crate::{Codec, ShardSet, Stores};

/// The sources are dealt out to servers, of which some get none; each sends one sum, and the sums add up to the targets.
#[test]
fn any_split_over_servers_gives_the_targets() {
    let mut random = Random(7);
    for kernel in kernels_under_test() {
        for (data, parity) in [(1, 1), (4, 4), (5, 3), (12, 4), (9, 10), (40, 20)] {
            let shards = Definition::of(data, parity).shards(&random.shards(data, 131));
            let codec = Codec::with_kernel(geometry(data, parity), kernel);
            for servers in [1, 2, 3, 7] {
                let lost = {
                    let count = 1 + random.below(parity);
                    random.choose(count, data + parity)
                };
                let mut present = ShardSet::first(data + parity);
                lost.iter().for_each(|&shard| present.remove(shard));
                let plan = codec.plan(present, set(&lost)).unwrap();

                let mut held = vec![ShardSet::EMPTY; servers];
                // All shards are dealt out, lost ones and those that the plan does not read too.
                (0..data + parity).for_each(|shard| held[random.below(servers)].insert(shard).unwrap());
                let mut sums = vec![vec![0; 131]; lost.len()];
                let mut read = 0;
                for held in held {
                    let part = plan.part(held);
                    assert_eq!(part.targets(), plan.targets());
                    assert!(part.sources().iter().all(|shard| held.contains(shard) && plan.sources().contains(shard)));
                    read += part.sources().len();
                    let sources: Vec<&[u8]> = part.sources().iter().map(|shard| shards[shard].as_slice()).collect();
                    let mut sent = vec![vec![0xee; 131]; lost.len()];
                    part.run(&sources, &mut slices_mut(&mut sent), Stores::Cached).unwrap();
                    sums.iter_mut().zip(&sent).for_each(|(sum, sent)| crate::add(sum, sent).unwrap());
                }
                assert_eq!(read, data, "each source is read by one server");
                let expected: Vec<&Vec<u8>> = plan.targets().iter().map(|shard| &shards[shard]).collect();
                assert_eq!(
                    sums.iter().collect::<Vec<_>>(),
                    expected,
                    "{data}+{parity} {kernel}, {lost:?} over {servers}"
                );
            }
        }
    }
}

/// A part that reads nothing gives zeros and adds nothing.
#[test]
fn a_part_without_sources_is_zero() {
    for kernel in kernels_under_test() {
        let codec = Codec::with_kernel(geometry(4, 2), kernel);
        let part = codec.plan(ShardSet::first(4), set(&[4, 5])).unwrap().part(set(&[5, 77]));
        let mut outputs = vec![vec![0xee; 90]; 2];
        part.add(&[], &mut slices_mut(&mut outputs)).unwrap();
        assert_eq!(outputs, vec![vec![0xee; 90]; 2]);
        part.run(&[], &mut slices_mut(&mut outputs), Stores::Streaming).unwrap();
        assert_eq!(outputs, vec![vec![0; 90]; 2]);
    }
}

#[test]
fn progressive_encoding_in_any_order() {
    let mut random = Random(8);
    for kernel in kernels_under_test() {
        for (data, parity) in [(1, 1), (4, 4), (12, 4), (5, 9), (70, 30)] {
            let shards = Definition::of(data, parity).shards(&random.shards(data, 150));
            let codec = Codec::with_kernel(geometry(data, parity), kernel);
            for _ in 0..4 {
                let mut sums = vec![vec![0; 150]; parity];
                for shard in random.choose(data, data) {
                    codec.add(shard, &shards[shard], &mut slices_mut(&mut sums)).unwrap();
                }
                assert_eq!(sums, shards[data..], "{data}+{parity} {kernel}");
            }
        }
    }
}

/// A stripe that changes shard by shard has the parity that encoding it anew would give.
#[test]
fn updates_equal_encoding_anew() {
    let mut random = Random(9);
    for kernel in kernels_under_test() {
        for (data, parity) in [(1, 1), (4, 4), (12, 4), (5, 9), (30, 20)] {
            let codec = Codec::with_kernel(geometry(data, parity), kernel);
            let mut shards = random.shards(data, 150);
            let mut updated = vec![vec![0; 150]; parity];
            codec.encode(&slices(&shards), &mut slices_mut(&mut updated), Stores::Cached).unwrap();
            for _ in 0..6 {
                let (shard, new) = (random.below(data), random.bytes(150));
                codec.update(shard, &shards[shard], &new, &mut slices_mut(&mut updated)).unwrap();
                shards[shard] = new;
                let mut encoded = vec![vec![0; 150]; parity];
                codec.encode(&slices(&shards), &mut slices_mut(&mut encoded), Stores::Cached).unwrap();
                assert_eq!(updated, encoded, "{data}+{parity} {kernel}");
            }
        }
    }
}

/// Byte `i` of every shard is a codeword: a stripe may be encoded, and decoded, span by span.
#[test]
fn spans_are_stripes() {
    let mut random = Random(10);
    for kernel in kernels_under_test() {
        for (data, parity) in [(4, 4), (5, 3)] {
            let shards = Definition::of(data, parity).shards(&random.shards(data, 500));
            let codec = Codec::with_kernel(geometry(data, parity), kernel);
            for _ in 0..20 {
                let start = random.below(500);
                let end = start + random.below(501 - start);
                let span: Vec<Vec<u8>> = shards.iter().map(|shard| shard[start..end].to_vec()).collect();
                assert_eq!(codec.verify(&slices(&span)), Ok(true));
                let mut output = vec![0; end - start];
                let mut present: Vec<Option<&[u8]>> = span.iter().map(|shard| Some(shard.as_slice())).collect();
                present[1] = None;
                codec.reconstruct(&present, &mut [(1, &mut output)], Stores::Cached).unwrap();
                assert_eq!(output, span[1], "{data}+{parity} {kernel}, {start}..{end}");
            }
        }
    }
}
