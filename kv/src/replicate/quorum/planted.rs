//! Bugs to order. With the feature `planted` a simulator can break one rule of this mode at all nodes of its world, and see its checkers
//! catch that. Without the feature nobody can, and every question whether a bug is planted is answered by the compiler.

/// A rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Planted {
    /// Half of the members count as a majority.
    HalfIsEnough,
    /// What an earlier term has appended counts as committed without a record of the present term behind it.
    CommitEarlierTerm,
    /// A new primary serves without having asked anybody.
    SkipTakeOver,
    /// It asks, but does not take over what another has more.
    KeepOwnData,
    /// A member that was restarted answers with what it has.
    BlankAnswers,
    /// Promises are forgotten with the process.
    ForgetPromise,
    /// A member goes on with the stream of a primary after it has promised a later term.
    KeepLink,
    /// A member takes the stream of an earlier term than it has promised.
    FollowEarlierTerm,
    /// Replies of reads do not wait for anything that was said after them.
    ReadsDoNotWait,
    /// No reply waits.
    NothingWaits,
    /// While members change, only the next ones have to agree.
    NextIsEnough,
    /// A primary that was restarted has the term of its former life.
    SameLife,
    /// A dump does not tell the term of its data.
    DumpWithoutTerm,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::HalfIsEnough,
        Self::CommitEarlierTerm,
        Self::SkipTakeOver,
        Self::KeepOwnData,
        Self::BlankAnswers,
        Self::ForgetPromise,
        Self::KeepLink,
        Self::FollowEarlierTerm,
        Self::ReadsDoNotWait,
        Self::NothingWaits,
        Self::NextIsEnough,
        Self::SameLife,
        Self::DumpWithoutTerm,
    ];
}

#[cfg(feature = "planted")]
thread_local! {
    static BUG: core::cell::Cell<Option<Planted>> = const { core::cell::Cell::new(None) };
}

/// All engines that run on this thread have this bug from now on, or none.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Planted>) {
    BUG.set(bug);
}

/// Whether a bug is planted.
#[cfg(feature = "planted")]
pub(crate) fn has(bug: Planted) -> bool {
    BUG.get() == Some(bug)
}

/// Whether a bug is planted: none is.
#[cfg(not(feature = "planted"))]
#[inline]
pub(crate) const fn has(_bug: Planted) -> bool {
    false
}
