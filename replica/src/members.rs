//! Members of a replicated thing, and those that they change to.
//!
//! While the members change, both the present and the next set have to agree (joint consensus, Ongaro 2014). A
//! placement group adds a learner that way: from its certification on it is in the next set, so that its
//! acknowledgement counts before the catalog has added it. Key-value majorities change one member at a time that way.

use alloc::vec::Vec;

/// Most members of one set.
pub const MEMBERS_MAX: usize = 7;

/// The present set and the next one, if there is one. No name stands twice in a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members<N> {
    now: Vec<N>,
    next: Option<Vec<N>>,
}

/// A set has too many members, or one of them twice: the caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadSet;

impl<N: Copy + Ord> Members<N> {
    /// These, and no change.
    ///
    /// # Errors
    /// [`BadSet`]: more than [`MEMBERS_MAX`], or a name twice.
    pub fn new(now: Vec<N>) -> Result<Self, BadSet> {
        check(&now)?;
        Ok(Self { now, next: None })
    }

    /// The same members, on their way to `next`. A change that was under way is replaced.
    ///
    /// # Errors
    /// [`BadSet`]: more than [`MEMBERS_MAX`], or a name twice.
    pub fn towards(&self, next: Vec<N>) -> Result<Self, BadSet> {
        check(&next)?;
        Ok(Self { now: self.now.clone(), next: Some(next) })
    }

    /// The change is done: the next set is the present one. Nothing if there was no change.
    #[must_use]
    pub fn settled(&self) -> Option<Self> {
        self.next.clone().map(|now| Self { now, next: None })
    }

    /// The sets that have to agree: one, or two during a change.
    pub fn sets(&self) -> impl Iterator<Item = &[N]> {
        core::iter::once(self.now.as_slice()).chain(self.next.as_deref())
    }

    /// Every member of either set, once.
    #[must_use]
    pub fn all(&self) -> Vec<N> {
        let mut all = self.now.clone();
        all.extend(self.next.iter().flatten().filter(|name| !self.now.contains(name)));
        all
    }

    /// Whether it is in either set.
    #[must_use]
    pub fn has(&self, name: N) -> bool {
        self.sets().any(|set| set.contains(&name))
    }

    /// Fewest copies that something has which all members of either set hold.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.sets().map(<[N]>::len).min().unwrap_or(0)
    }
}

fn check<N: Copy + Ord>(set: &[N]) -> Result<(), BadSet> {
    let is_twice = (1..set.len()).any(|at| set[..at].contains(&set[at]));
    if set.len() > MEMBERS_MAX || is_twice { Err(BadSet) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_change_has_both_sets_until_it_is_settled() {
        let three = Members::new(vec![1, 2, 3]).unwrap();
        let joint = three.towards(vec![2, 3, 4, 5]).unwrap();
        assert_eq!(joint.all(), [1, 2, 3, 4, 5]);
        assert_eq!((joint.copies(), joint.has(1), joint.has(5), joint.has(6)), (3, true, true, false));
        assert_eq!(joint.settled().unwrap().all(), [2, 3, 4, 5]);
        assert_eq!(three.settled(), None);
        assert_eq!(Members::<u8>::new(vec![]).unwrap().copies(), 0);
    }

    #[test]
    fn a_set_has_a_limit_and_no_name_twice() {
        assert!(Members::new((0..MEMBERS_MAX).collect()).is_ok());
        assert_eq!(Members::new((0..=MEMBERS_MAX).collect()), Err(BadSet));
        assert_eq!(Members::new(vec![1, 2, 1]), Err(BadSet));
        assert_eq!(Members::new(vec![1]).unwrap().towards(vec![2, 2]), Err(BadSet));
    }
}
