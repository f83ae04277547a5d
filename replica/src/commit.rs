//! Commit rule: up to which position enough members have a log, and how many members know of everything committed.
//!
//! Placement groups commit when all members have a write, key-value shards when a majority has it. Both ask the same
//! two questions, and the answers fit together: every group that may answer the second one has a member in common with
//! every group that answered the first.

use alloc::vec::Vec;

use crate::members::Members;

/// How many members must have something before it is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Every member.
    All,
    /// More than half.
    Majority,
}

impl Rule {
    /// Members of a set of `len` that commit together. At least 1.
    #[must_use]
    pub const fn writers(self, len: usize) -> usize {
        match self {
            Self::All if len == 0 => 1,
            Self::All => len,
            Self::Majority => len / 2 + 1,
        }
    }

    /// Members of a set of `len` among whom there is one of every group of [`writers`](Self::writers).
    #[must_use]
    pub const fn readers(self, len: usize) -> usize {
        // An empty set never commits, so that no reader of it exists is right.
        if len == 0 { 1 } else { len + 1 - self.writers(len) }
    }

    /// The greatest position that is committed, if each member has the log up to `position`. In both sets, during a
    /// change. 0 in an empty set.
    pub fn committed<N: Copy + Ord>(self, members: &Members<N>, position: impl Fn(N) -> u64) -> u64 {
        let of_set = |set: &[N]| {
            let mut positions: Vec<u64> = set.iter().map(|name| position(*name)).collect();
            positions.sort_unstable_by(|one, other| other.cmp(one));
            positions.get(self.writers(set.len()) - 1).copied().unwrap_or(0)
        };
        members.sets().map(of_set).min().unwrap_or(0)
    }

    /// Whether those that `agree` include a member of every group that could have committed something.
    pub fn is_covered<N: Copy + Ord>(self, members: &Members<N>, agree: impl Fn(N) -> bool) -> bool {
        members.sets().all(|set| set.iter().filter(|name| agree(**name)).count() >= self.readers(set.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn readers_meet_writers_in_every_set() {
        for rule in [Rule::All, Rule::Majority] {
            for len in 1..=7 {
                assert_eq!(rule.writers(len) + rule.readers(len), len + 1, "{rule:?} of {len}");
            }
        }
        assert_eq!([1, 2, 3, 4, 5].map(|len| Rule::Majority.readers(len)), [1, 1, 2, 2, 3]);
    }

    #[test]
    fn what_is_committed() {
        let positions = [0, 10, 20, 30, 40];
        let at = |name: usize| positions[name];
        let three = Members::new(vec![1, 2, 3]).unwrap();
        let joint = three.towards(vec![3, 4]).unwrap();
        let cases = [(Rule::All, &three, 10), (Rule::Majority, &three, 20), (Rule::All, &joint, 10)];
        for (rule, members, expected) in cases {
            assert_eq!(rule.committed(members, at), expected, "{rule:?}");
        }
        assert_eq!(Rule::Majority.committed(&joint, at), 20, "the present set decides");
        let other = Members::new(vec![3, 4]).unwrap().towards(vec![1, 2, 3]).unwrap();
        assert_eq!(Rule::Majority.committed(&other, at), 20, "the next set decides");
        let nobody = Members::new(vec![]).unwrap();
        assert_eq!((Rule::All.committed(&nobody, at), Rule::Majority.committed(&nobody, at)), (0, 0));
    }

    #[test]
    fn who_covers_a_change() {
        let joint = Members::new(vec![1, 2, 3]).unwrap().towards(vec![3, 4, 5]).unwrap();
        let agree = |names: &'static [usize]| move |name: usize| names.contains(&name);
        assert!(Rule::Majority.is_covered(&joint, agree(&[1, 3, 4])));
        assert!(!Rule::Majority.is_covered(&joint, agree(&[1, 2, 4])));
        assert!(Rule::All.is_covered(&joint, agree(&[3])));
        assert!(!Rule::All.is_covered(&joint, agree(&[1])));
    }
}
