//! Chance: some of many, each selection with the same chance.

use crate::memory::index::below;

/// Shows `count` of the first `len` items, or all if there are not so many, in their order. Each selection has the same
/// chance (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S). `draw` gives evenly spread numbers of 64 bits.
pub fn choose<T>(
    items: impl Iterator<Item = T>,
    len: usize,
    count: usize,
    mut draw: impl FnMut() -> u64,
    mut show: impl FnMut(T),
) {
    let mut wanted = count.min(len);
    for (seen, item) in items.take(len).enumerate() {
        if wanted == 0 {
            return;
        }
        if below(draw(), len - seen) < wanted {
            wanted -= 1;
            show(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::draws::{Draws, assert_even};

    #[test]
    fn every_selection_has_the_same_chance() {
        let mut draws = Draws(1);
        let mut counts = [0; 10];
        for _ in 0..10_000 {
            let mut pair = Vec::new();
            choose(0..5, 5, 2, || draws.next(), |item| pair.push(item));
            // Pairs of five: 01 02 03 04 12 13 14 23 24 34.
            counts[[0, 3, 5, 6][pair[0]] + pair[1] - 1] += 1;
        }
        assert_even(&counts);
    }

    #[test]
    fn as_many_as_there_are() {
        for (len, count, expected) in [(0, 3, 0), (3, 0, 0), (3, 3, 3), (3, 9, 3), (3, usize::MAX, 3)] {
            let mut shown = 0;
            choose(0..len, len, count, || u64::MAX, |_| shown += 1);
            assert_eq!(shown, expected, "{count} of {len}");
        }
    }
}
