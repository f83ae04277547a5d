//! Bugs to order. With the feature `proof` a simulator breaks one rule of the members and sees its checkers catch it.
//! Without it nobody can, and every question whether a bug is planted is answered by the compiler.

/// A rule that members break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Planted {
    /// A write is acknowledged when the primary alone has it.
    AcknowledgeOneCopy,
    /// A write is acknowledged when all acting members but one have it.
    AcknowledgeAllButOne,
    /// A backup acknowledges a write before it is durable.
    AcknowledgeBeforeDurable,
    /// Messages of an earlier epoch are taken.
    NoEpochCheck,
    /// A read is served without asking whether the lease holds.
    ReadWithoutLease,
    /// A lease counts from the moment at which its grant arrives.
    LeaseFromAnswer,
    /// A read does not wait for unacknowledged writes that it overlaps.
    ReadUncommitted,
    /// A new primary takes the smallest version of an extent for the right one.
    RollBack,
    /// A new primary serves without making the members equal.
    ServeWithoutMerge,
    /// A new primary does not wait for the lease that it granted to the one before.
    NoWaitForGrant,
    /// A learner is reported caught up before everything has been copied.
    CertifyEarly,
    /// A certified learner's acknowledgement is not waited for until the catalog has added it.
    CertifiedNotRequired,
    /// A write that comes twice is applied twice.
    ApplyDuplicate,
    /// Requests of an older attach generation are served.
    NoGenerationCheck,
    /// Requests that were routed by an older epoch are served.
    NoRouteCheck,
    /// An answer leaves before the promise that it depends on is durable.
    PromiseNotDurable,
    /// A restarted member goes on in the epoch of its earlier life.
    ResumeEpoch,
    /// A backup applies writes in the order in which they arrive.
    ApplyAsArrived,
    /// Writes to a learner's extent that arrive while it is copied are not forwarded.
    ForgetWritesDuringCopy,
    /// A member without its former data takes part as if it had them.
    IgnoreBlank,
    /// Writes are served with fewer members than promised.
    IgnoreMinCopies,
    /// Messages from and for other lives of members are taken.
    IgnoreLives,
    /// A copy that lacked data counts as whole as soon as it is being filled.
    WholeByEntering,
    /// Zeroes are answered and not written, whatever their extent has.
    DiscardUnseen,
    /// A write that looks at its extent first is ordered behind a later one of the same blocks.
    OrderBehind,
    /// A copy of a write is taken behind a later write of its blocks.
    TakeLateCopies,
    /// A change that the drive has no room for counts as done.
    FullCountsAsDone,
    /// A damaged extent is made whole from whatever version another member has.
    MendFromAnyVersion,
    /// Writes of an extent go on while it is made whole.
    WriteWhileMending,
    /// The last copy serves what no other drive may ever have had.
    ServeUnproven,
    /// A learner is not given what the primary has damaged, if it has nothing of it.
    SkipDamagedInFill,
    /// An extent without blocks is dropped before every member has its version.
    DropUnacknowledged,
    /// An extent without blocks is dropped although no other has a greater version.
    DropNewest,
    /// A learner that is whole does not note up to where.
    NoteNothingWhenWhole,
}

#[cfg(any(test, feature = "proof"))]
impl Planted {
    /// All of them.
    pub const ALL: [Self; 34] = [
        Self::AcknowledgeOneCopy,
        Self::AcknowledgeAllButOne,
        Self::AcknowledgeBeforeDurable,
        Self::NoEpochCheck,
        Self::ReadWithoutLease,
        Self::LeaseFromAnswer,
        Self::ReadUncommitted,
        Self::RollBack,
        Self::ServeWithoutMerge,
        Self::NoWaitForGrant,
        Self::CertifyEarly,
        Self::CertifiedNotRequired,
        Self::ApplyDuplicate,
        Self::NoGenerationCheck,
        Self::NoRouteCheck,
        Self::PromiseNotDurable,
        Self::ResumeEpoch,
        Self::ApplyAsArrived,
        Self::ForgetWritesDuringCopy,
        Self::IgnoreBlank,
        Self::IgnoreMinCopies,
        Self::IgnoreLives,
        Self::WholeByEntering,
        Self::DiscardUnseen,
        Self::OrderBehind,
        Self::TakeLateCopies,
        Self::FullCountsAsDone,
        Self::MendFromAnyVersion,
        Self::WriteWhileMending,
        Self::ServeUnproven,
        Self::SkipDamagedInFill,
        Self::DropUnacknowledged,
        Self::DropNewest,
        Self::NoteNothingWhenWhole,
    ];
}

/// The bug that is planted, if any.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bugs {
    #[cfg(any(test, feature = "proof"))]
    planted: Option<Planted>,
}

impl Bugs {
    /// This one, or none.
    #[cfg(any(test, feature = "proof"))]
    #[must_use]
    pub const fn new(planted: Option<Planted>) -> Self {
        Self { planted }
    }

    /// Whether this one is planted.
    #[cfg(any(test, feature = "proof"))]
    #[inline]
    pub(crate) fn has(self, bug: Planted) -> bool {
        self.planted == Some(bug)
    }

    /// Whether this one is planted: never.
    #[cfg(not(any(test, feature = "proof")))]
    #[inline]
    pub(crate) const fn has(self, _: Planted) -> bool {
        false
    }
}
