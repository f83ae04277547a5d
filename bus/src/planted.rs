//! Bugs to order. With the feature `planted` a simulator can break one rule of one member and see its checkers catch it.
//! Without the feature nobody can, and every question whether a bug is planted is answered by the compiler.

/// A rule of the bus that one member breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Planted {
    /// Votes for every candidate, however often it has voted in the epoch.
    VoteTwice,
    /// The saved record leaves out the votes.
    ForgetVotes,
    /// Half of the voters count as a majority.
    QuorumOffByOne,
    /// Votes in epochs that are over.
    AcceptOldEpoch,
    /// Its own suspicion is enough for a failure.
    FailWithoutQuorum,
    /// Suspicions of others are not counted.
    LoseSuspicion,
    /// A claim with a smaller epoch replaces one with a greater.
    StaleClaimWins,
    /// What depends on durable state is sent before it is durable.
    SkipPersistWait,
    /// Packets of other clusters are taken.
    IgnoreCluster,
    /// Votes are kept for all groups together by epoch alone, and the greatest epoch is forgotten per group.
    VoteWithoutGroup,
    /// A failure is never cleared.
    NeverClearFailure,
    /// An answer is taken without having been asked for, and however often it comes.
    AcceptReplay,
    /// Packets of earlier lives are taken.
    AcceptEarlierLife,
    /// Elections do not ask whether the primary has failed: a replica stands as soon as it suspects its primary itself, and
    /// voters vote for it.
    VoteWithoutFailure,
    /// Writes are taken without a majority of the voters.
    WriteWithoutQuorum,
    /// Only the new set of voters is asked while a change is under way.
    SkipOldVoters,
    /// A forgotten member is let in again at once.
    IgnoreKeepOut,
    /// A primary goes on although a greater claim was heard.
    NeverStepDown,
    /// Differences between members are never looked for.
    NoSync,
    /// Votes are counted and not voters, and a new attempt has the epoch of the one before: who is asked again and again makes
    /// a majority.
    CountVoteTwice,
    /// A record that fails its checksum is restored all the same.
    RestoreDamage,
    /// A voter takes another's word for a silence: it neither probes the member itself nor counts from its own last sign of
    /// life.
    SuspectUnprobed,
    /// A voter that has lost its memory votes all the same.
    VoteWithoutMemory,
    /// The saved record leaves out who is kept out.
    ForgetKeepOuts,
    /// A replica stands whatever it has of its group's data.
    StandWithoutCopy,
    /// A replica stands however old its copy is.
    StandStale,
}

#[cfg(feature = "planted")]
impl Planted {
    /// All of them.
    pub const ALL: [Self; 26] = [
        Self::VoteTwice,
        Self::ForgetVotes,
        Self::QuorumOffByOne,
        Self::AcceptOldEpoch,
        Self::FailWithoutQuorum,
        Self::LoseSuspicion,
        Self::StaleClaimWins,
        Self::SkipPersistWait,
        Self::IgnoreCluster,
        Self::VoteWithoutGroup,
        Self::NeverClearFailure,
        Self::AcceptReplay,
        Self::AcceptEarlierLife,
        Self::VoteWithoutFailure,
        Self::WriteWithoutQuorum,
        Self::SkipOldVoters,
        Self::IgnoreKeepOut,
        Self::NeverStepDown,
        Self::NoSync,
        Self::CountVoteTwice,
        Self::RestoreDamage,
        Self::SuspectUnprobed,
        Self::VoteWithoutMemory,
        Self::ForgetKeepOuts,
        Self::StandWithoutCopy,
        Self::StandStale,
    ];
}

/// The bug that is planted in a member, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Bugs {
    #[cfg(feature = "planted")]
    pub(crate) planted: Option<Planted>,
}

impl Bugs {
    /// Whether this one is planted.
    #[cfg(feature = "planted")]
    #[inline]
    pub(crate) fn has(self, bug: Planted) -> bool {
        self.planted == Some(bug)
    }

    /// Whether this one is planted: never.
    #[cfg(not(feature = "planted"))]
    #[inline]
    pub(crate) const fn has(self, _: Planted) -> bool {
        false
    }
}
