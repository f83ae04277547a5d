//! Ranges of positions as the commands give them: both ends within, and counted from the back where negative.

use std::ops::Range;

/// The position that an index means in a sequence of `len`: -1 is the last. `None` outside.
#[must_use]
pub fn place_of(index: i64, len: usize) -> Option<usize> {
    let from_back = || len.checked_sub(usize::try_from(index.unsigned_abs()).ok()?);
    let place = if index < 0 { from_back()? } else { usize::try_from(index).ok()? };
    (place < len).then_some(place)
}

/// The positions from `start` to `stop` in a sequence of `len`, as far as there are any. Empty is always `0..0`.
#[must_use]
pub fn span(start: i64, stop: i64, len: usize) -> Range<usize> {
    let signed = i64::try_from(len).expect("no sequence in memory is as long as an i64 counts");
    let from_front = |index: i64| if index < 0 { signed.saturating_add(index) } else { index };
    let start = from_front(start).max(0);
    let stop = from_front(stop).min(signed - 1);
    if start > stop {
        return 0..0;
    }
    let place = |index: i64| usize::try_from(index).expect("between 0 and the length");
    place(start)..place(stop) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_within_and_negative_ones_count_from_the_back() {
        for (start, stop, len, expected) in [
            (0, -1, 5, 0..5),
            (1, 2, 5, 1..3),
            (-2, -1, 5, 3..5),
            (-100, 100, 5, 0..5),
            (3, 1, 5, 0..0),
            (5, 9, 5, 0..0),
            (0, -6, 5, 0..0),
            (0, 0, 0, 0..0),
            (i64::MIN, i64::MAX, 5, 0..5),
            (i64::MAX, i64::MIN, 5, 0..0),
        ] {
            assert_eq!(span(start, stop, len), expected, "{start} {stop} of {len}");
        }
    }

    #[test]
    fn an_index_is_a_place_or_outside() {
        for (index, len, expected) in [
            (0, 3, Some(0)),
            (2, 3, Some(2)),
            (3, 3, None),
            (-1, 3, Some(2)),
            (-3, 3, Some(0)),
            (-4, 3, None),
            (0, 0, None),
            (i64::MIN, 3, None),
            (i64::MAX, 3, None),
        ] {
            assert_eq!(place_of(index, len), expected, "{index} of {len}");
        }
    }
}
