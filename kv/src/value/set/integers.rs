//! A small set of integers: sorted, each in as few bytes as the widest needs. Plays the part of Valkey's intset.

/// Sorted integers without repetition.
#[derive(Debug, Clone, Default)]
pub(super) struct Integers {
    /// Little-endian, ascending.
    bytes: Vec<u8>,
    width: Width,
}

/// How many bytes each integer has. The widest integer that was ever in decides: a set does not become narrower.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Width {
    #[default]
    Two,
    Four,
    Eight,
}

impl Width {
    fn of(value: i64) -> Self {
        if i16::try_from(value).is_ok() {
            Self::Two
        } else if i32::try_from(value).is_ok() {
            Self::Four
        } else {
            Self::Eight
        }
    }

    const fn bytes(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    fn decode(self, bytes: &[u8]) -> i64 {
        let whole = "an integer has all its bytes";
        match self {
            Self::Two => i64::from(i16::from_le_bytes(bytes.try_into().expect(whole))),
            Self::Four => i64::from(i32::from_le_bytes(bytes.try_into().expect(whole))),
            Self::Eight => i64::from_le_bytes(bytes.try_into().expect(whole)),
        }
    }
}

impl Integers {
    /// Integers as a dump has them: little-endian, ascending, each of so many bytes. `None` if they are not.
    pub(super) fn from_bytes(width: usize, bytes: &[u8]) -> Option<Self> {
        let width = [Width::Two, Width::Four, Width::Eight].into_iter().find(|known| known.bytes() == width)?;
        let integers = Self { bytes: bytes.to_vec(), width };
        let is_whole = bytes.len().is_multiple_of(width.bytes());
        (is_whole && integers.iter().is_sorted_by(|one, next| one < next)).then_some(integers)
    }

    /// How many bytes each has, and all of them.
    pub(super) fn as_bytes(&self) -> (usize, &[u8]) {
        (self.width.bytes(), &self.bytes)
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() / self.width.bytes()
    }

    pub(super) fn bytes_held(&self) -> usize {
        self.bytes.capacity()
    }

    /// The integer with so many smaller ones.
    pub(super) fn nth(&self, rank: usize) -> i64 {
        let width = self.width.bytes();
        self.width.decode(&self.bytes[rank * width..][..width])
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + '_ {
        self.bytes.chunks_exact(self.width.bytes()).map(|bytes| self.width.decode(bytes))
    }

    /// Where an integer is, or where it would be.
    fn search(&self, value: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.nth(middle).cmp(&value) {
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    pub(super) fn contains(&self, value: i64) -> bool {
        self.search(value).is_ok()
    }

    /// Whether it was not there before.
    pub(super) fn insert(&mut self, value: i64) -> bool {
        let Err(rank) = self.search(value) else { return false };
        self.widen(Width::of(value));
        let width = self.width.bytes();
        let at = rank * width;
        if self.bytes.len() + width > self.bytes.capacity() {
            // An eighth more than is needed.
            self.bytes.reserve_exact((width + self.bytes.len() / 8).next_multiple_of(8));
        }
        let end = self.bytes.len();
        self.bytes.resize(end + width, 0);
        self.bytes.copy_within(at..end, at + width);
        self.bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        true
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, value: i64) -> bool {
        let Ok(rank) = self.search(value) else { return false };
        self.remove_nth(rank);
        true
    }

    pub(super) fn remove_nth(&mut self, rank: usize) {
        let width = self.width.bytes();
        self.bytes.drain(rank * width..(rank + 1) * width);
        if self.bytes.len() < self.bytes.capacity() / 2 {
            self.bytes.shrink_to(self.bytes.len() + self.bytes.len() / 8);
        }
    }

    fn widen(&mut self, width: Width) {
        if width > self.width {
            let bytes = self.iter().flat_map(|value| value.to_le_bytes().into_iter().take(width.bytes())).collect();
            (self.bytes, self.width) = (bytes, width);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::memory::draws::Draws;

    #[test]
    fn random_steps_against_a_model() {
        for limits in [vec![100], vec![100, 40_000], vec![100, 100_000, i64::MAX]] {
            let (mut draws, mut integers, mut model) = (Draws(1), Integers::default(), BTreeSet::new());
            for _ in 0..5_000 {
                let limit = limits[draws.below(limits.len())];
                let value = (draws.next().cast_signed() % limit) / 7 * 7;
                match draws.below(3) {
                    0 => assert_eq!(integers.remove(value), model.remove(&value)),
                    _ => assert_eq!(integers.insert(value), model.insert(value)),
                }
                assert!(integers.contains(value) == model.contains(&value));
                assert_eq!(integers.len(), model.len());
            }
            assert!(integers.iter().eq(model.iter().copied()));
            assert!((0..integers.len()).map(|rank| integers.nth(rank)).eq(model.iter().copied()));
        }
    }

    #[test]
    fn as_narrow_as_the_widest_allows() {
        let mut integers = Integers::default();
        for (value, bytes) in [(1, 2), (i64::from(i16::MIN), 4), (40_000, 12), (i64::MIN, 32), (i64::MAX, 40)] {
            assert!(integers.insert(value));
            assert!(!integers.insert(value));
            assert_eq!(integers.bytes.len(), bytes, "after {value}");
        }
        assert!(integers.iter().eq([i64::MIN, i64::from(i16::MIN), 1, 40_000, i64::MAX]));
    }
}
