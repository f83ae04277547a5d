//! Where the shards of a block lie best in memory, and how partial sums meet.

use crate::Error;

/// A cache line, and the longest register.
const LINE_BYTES: usize = 64;

/// What keeps shards apart whose distance would be a power of two.
const PADDING_BYTES: usize = 3 * LINE_BYTES;

/// Distances below a page do not collide.
const PAGE_BYTES: usize = 4096;

/// The distance in bytes at which shards of `shard_len` bytes should follow each other in one buffer.
///
/// A multiple of 64, so that every shard can be streamed if the first can. Shards at a distance of a power of two would
/// share the same few sets of a cache; padding by three lines doubles the speed of 8+8 on blocks that are in cache.
#[must_use]
pub const fn stride(shard_len: usize) -> usize {
    let lines = shard_len.next_multiple_of(LINE_BYTES);
    if lines >= PAGE_BYTES && lines.is_power_of_two() { lines + PADDING_BYTES } else { lines }
}

/// Adds `part` to `sum`, byte by byte: how the partial sums of several servers meet (see [`crate::Plan::part`]).
///
/// # Errors
/// [`Error::ShardLength`] if they are not equally long.
pub fn add(sum: &mut [u8], part: &[u8]) -> Result<(), Error> {
    if sum.len() != part.len() {
        return Err(Error::ShardLength { expected: sum.len(), given: part.len() });
    }
    sum.iter_mut().zip(part).for_each(|(sum, part)| *sum ^= part);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides() {
        for (shard_len, expected) in [
            (0, 0),
            (1, 64),
            (64, 64),
            (2048, 2048),
            (4095, 4096 + 192),
            (4096, 4096 + 192),
            (4097, 4160),
            (87_382, 87_424),
            (131_072, 131_072 + 192),
        ] {
            assert_eq!(stride(shard_len), expected, "{shard_len}");
        }
    }

    #[test]
    fn sums() {
        let mut sum = [1, 2, 3];
        assert_eq!(add(&mut sum, &[1, 1, 1]), Ok(()));
        assert_eq!(add(&mut sum, &[1]), Err(Error::ShardLength { expected: 3, given: 1 }));
        assert_eq!(sum, [0, 3, 2]);
    }
}
