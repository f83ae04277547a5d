//! Golden mappings, and how evenly they spread.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::*;

fn volume(number: u8) -> VolumeName {
    VolumeName::new(VolumeId::from_bytes([number; 16]))
}

fn pg(number: u8, extent: u64, pgs: u32) -> u32 {
    Mapping::Shuffled.choose_pg(volume(number), Extent(extent), pgs).0
}

#[test]
fn extent_sizes() {
    for bytes in [0, 1, 65_535, 65_537, 32 << 10, 3 << 20, 2 << 30, u64::MAX] {
        assert_eq!(ExtentSize::new(bytes), Err(Error::BadExtentSize(bytes)));
    }
    for log2 in 16..=30 {
        assert_eq!(ExtentSize::new(1 << log2).unwrap().bytes(), 1 << log2);
    }
    assert_eq!(ExtentSize::DEFAULT.split((7 << 20) + 5), (Extent(7), 5));
    assert_eq!(ExtentSize::MAX.split(u64::MAX), (Extent(u64::MAX >> 30), (1 << 30) - 1));
}

/// Where data lives must never change between versions.
#[test]
fn golden_mappings() {
    let cases: [(u8, u64, u32, u32); 8] = [
        (1, 0, 100_000, 45_440),
        (1, 1, 100_000, 75_075),
        (1, 100_000, 100_000, 43_242),
        (2, 0, 100_000, 52_786),
        (2, 1 << 40, 100_000, 98_415),
        (2, u64::MAX, 1 << 20, 440_278),
        (3, 12_345, 4_096, 1_812),
        (3, 12_345, 1, 0),
    ];
    for (volume, extent, pgs, expected) in cases {
        assert_eq!(pg(volume, extent, pgs), expected, "{volume} {extent} {pgs}");
    }
    assert_eq!(choose_pg(b"a block", 100_000), PgId(15_720));
}

#[test]
fn each_round_gives_every_placement_group_one_extent() {
    for pgs in (1..70).chain([127, 128, 129, 1_000, 4_096, 4_097]) {
        for round in 0..3_u64 {
            let first = round * u64::from(pgs);
            let seen: BTreeSet<u32> = (first..first + u64::from(pgs)).map(|extent| pg(1, extent, pgs)).collect();
            assert_eq!(seen, (0..pgs).collect(), "round {round} of {pgs}");
        }
    }
}

/// How often the most used of `pgs` is used.
fn most(pgs: u32, used: impl Iterator<Item = u32>) -> u32 {
    let mut counts = vec![0; usize::try_from(pgs).unwrap()];
    used.for_each(|pg| counts[usize::try_from(pg).unwrap()] += 1);
    counts.into_iter().max().unwrap()
}

/// Extents at a regular distance, as a guest's stripes and inode tables are: no placement group gets many. Eight on
/// average; by chance the most used of a thousand has about 20.
#[test]
fn strides_do_not_meet() {
    for pgs in [1_000, 1_024] {
        for stride in [2, 8, 64, 100, 250, 512, 1_000, 1_024, 4_096, 1 << 20] {
            let most = most(pgs, (0..8 * u64::from(pgs)).map(|step| pg(4, step * stride, pgs)));
            assert!(most <= 30, "{most} at a distance of {stride} in {pgs}");
        }
    }
}

#[test]
fn volumes_do_not_go_in_step() {
    let pgs = 1_000;
    // The first extent of many volumes.
    let most = most(pgs, (0..250).map(|number| pg(number, 0, pgs)));
    assert!(most <= 5, "{most}");
    // Two volumes read side by side, and one against itself a round later.
    let meets = |other: &dyn Fn(u64) -> u32| (0..1_000).filter(|extent| pg(1, *extent, pgs) == other(*extent)).count();
    assert!(meets(&|extent| pg(2, extent, pgs)) < 10);
    assert!(meets(&|extent| pg(1, extent + 1_000, pgs)) < 10);
    // Nor is one the other shifted.
    let distances: BTreeSet<u32> =
        (0..1_000).map(|extent| (pg(1, extent, pgs) + pgs - pg(2, extent, pgs)) % pgs).collect();
    assert!(distances.len() > 500, "{}", distances.len());
    let steps: Vec<u32> = (1..1_000).map(|extent| (pg(1, extent, pgs) + pgs - pg(1, extent - 1, pgs)) % pgs).collect();
    assert!(steps.iter().collect::<BTreeSet<_>>().len() > 500, "neighbours are unrelated");
}

#[test]
fn keys_spread() {
    let most = most(1_000, (0..8_000_u32).map(|key| choose_pg(&key.to_be_bytes(), 1_000).0));
    assert!(most <= 24, "{most}");
    assert_eq!(choose_pg(b"anything", 1), PgId(0));
}
