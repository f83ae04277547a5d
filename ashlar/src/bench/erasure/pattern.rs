//! The bytes of data shards: chance that can be computed again, so that what was rebuilt is compared with what was
//! meant, and not with what happens to be in memory.

use ashlar_erasure::{Geometry, ShardSet};

use crate::bench::load::Dice;

/// What outputs hold before they are timed: a case that does nothing shows.
pub const POISON: u8 = 0xa5;

const WORD_BYTES: usize = 8;
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// Fills shard `shard` of block `block`.
pub fn fill(block: usize, shard: usize, bytes: &mut [u8]) {
    for (index, word) in bytes.chunks_mut(WORD_BYTES).enumerate() {
        let value = word_at(block, shard, index);
        word.copy_from_slice(&value[..word.len()]);
    }
}

/// Where `bytes` first differ from shard `shard` of block `block`.
#[must_use]
pub fn first_difference(block: usize, shard: usize, bytes: &[u8]) -> Option<usize> {
    bytes.chunks(WORD_BYTES).enumerate().find_map(|(index, word)| {
        let expected = word_at(block, shard, index);
        let at = word.iter().zip(expected).position(|(&byte, expected)| byte != expected)?;
        Some(index * WORD_BYTES + at)
    })
}

/// Which `count` shards of block `block` are lost: any of M + K, the same in every run.
///
/// # Panics
/// If a geometry of more shards than a set holds could exist.
#[must_use]
pub fn lost(geometry: Geometry, block: usize, count: usize) -> ShardSet {
    let mut shards: Vec<usize> = (0..geometry.total()).collect();
    let mut dice = Dice::new(seed(block, count));
    for at in 0..count {
        let other = at + dice.below(shards.len() - at);
        shards.swap(at, other);
    }
    ShardSet::of(&shards[..count]).expect("the shards of a geometry fit a set")
}

/// The output function of SplitMix64 (Steele, Lea, Flood 2014) over a counter.
fn word_at(block: usize, shard: usize, index: usize) -> [u8; WORD_BYTES] {
    mix(seed(block, shard).wrapping_add((index as u64).wrapping_mul(GOLDEN_RATIO))).to_le_bytes()
}

fn seed(block: usize, part: usize) -> u64 {
    mix(mix(block as u64) ^ part as u64)
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_again_and_shows_every_difference() {
        for len in [0, 1, 7, 8, 100] {
            let mut bytes = vec![0; len];
            fill(3, 1, &mut bytes);
            assert_eq!(first_difference(3, 1, &bytes), None);
            for at in 0..len {
                bytes[at] ^= 0x10;
                assert_eq!(first_difference(3, 1, &bytes), Some(at));
                bytes[at] ^= 0x10;
            }
            if len > 0 {
                assert!(first_difference(3, 2, &bytes).is_some() && first_difference(4, 1, &bytes).is_some());
            }
        }
    }

    #[test]
    fn every_shard_is_lost_in_some_block() {
        let geometry = Geometry::new(12, 4).unwrap();
        let mut seen = ShardSet::EMPTY;
        for block in 0..200 {
            for count in 1..=4 {
                let lost = lost(geometry, block, count);
                assert_eq!(lost.len(), count);
                lost.iter().for_each(|shard| seen.insert(shard).unwrap());
            }
        }
        assert_eq!(seen, ShardSet::first(16));
    }
}
