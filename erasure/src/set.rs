//! A set of shard numbers.

use core::fmt;

use crate::{Error, SHARDS_MAX};

const WORD_BITS: usize = 64;

/// Which shards of a stripe: numbers below [`SHARDS_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ShardSet([u64; SHARDS_MAX / WORD_BITS]);

impl ShardSet {
    /// No shard.
    pub const EMPTY: Self = Self([0; SHARDS_MAX / WORD_BITS]);

    /// The set of these shards.
    ///
    /// # Errors
    /// [`Error::NoSuchShard`] for a number of [`SHARDS_MAX`] or more.
    pub fn of(shards: &[usize]) -> Result<Self, Error> {
        let mut set = Self::EMPTY;
        shards.iter().try_for_each(|&shard| set.insert(shard))?;
        Ok(set)
    }

    /// All shards below `total`; at most [`SHARDS_MAX`].
    #[must_use]
    pub fn first(total: usize) -> Self {
        let mut set = Self::EMPTY;
        (0..total.min(SHARDS_MAX)).for_each(|shard| set.put(shard));
        set
    }

    /// Adds a shard.
    ///
    /// # Errors
    /// [`Error::NoSuchShard`] for a number of [`SHARDS_MAX`] or more.
    pub fn insert(&mut self, shard: usize) -> Result<(), Error> {
        if shard >= SHARDS_MAX {
            return Err(Error::NoSuchShard { shard, total: SHARDS_MAX });
        }
        self.put(shard);
        Ok(())
    }

    /// Takes a shard out; one that is not in changes nothing.
    pub fn remove(&mut self, shard: usize) {
        if let Some(word) = self.0.get_mut(shard / WORD_BITS) {
            *word &= !(1 << (shard % WORD_BITS));
        }
    }

    /// Whether the shard is in.
    #[must_use]
    pub fn contains(&self, shard: usize) -> bool {
        self.0.get(shard / WORD_BITS).is_some_and(|word| word >> (shard % WORD_BITS) & 1 == 1)
    }

    /// How many shards are in.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no shard is in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// The shards' numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        self.0.into_iter().enumerate().flat_map(|(index, word)| {
            let lower_cleared = |&word: &u64| Some(word & word.wrapping_sub(1)).filter(|&word| word != 0);
            let words = core::iter::successors(Some(word).filter(|&word| word != 0), lower_cleared);
            words.map(move |word| index * WORD_BITS + word.trailing_zeros() as usize)
        })
    }

    fn put(&mut self, shard: usize) {
        self.0[shard / WORD_BITS] |= 1 << (shard % WORD_BITS);
    }
}

impl fmt::Debug for ShardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn numbers_in_and_out() {
        let mut set = ShardSet::of(&[255, 0, 64, 63]).expect("all below 256");
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 255]);
        assert_eq!((set.len(), set.contains(64), set.contains(65), set.contains(256)), (4, true, false, false));
        [0, 63, 64, 255, 256, 7].into_iter().for_each(|shard| set.remove(shard));
        assert!(set.is_empty());
        assert_eq!(ShardSet::of(&[256]), Err(Error::NoSuchShard { shard: 256, total: 256 }));
        assert_eq!(ShardSet::first(usize::MAX).len(), 256);
    }
}
