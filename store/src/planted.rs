//! Planted bugs, to prove that the crash enumerator finds such. Only the feature `proof` can plant one; without it every
//! question is answered by the compiler.

/// A rule that a store breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// The journal is written without being durable at completion.
    JournalNotDurable,
    /// Requests are answered while their batch is in flight.
    AnswerBeforeDurable,
    /// Data of a large write is not durable before its entry.
    DirectNotDurable,
    /// The entry of a large write is journaled beside its data and not after it.
    JournalBeforeData,
    /// Large writes overwrite live blocks in place.
    OverwriteInPlace,
    /// Large writes go into a slot into which write-back is writing.
    WriteIntoWriteBack,
    /// A discard gives a slot back before it is durable.
    ReuseSlotEarly,
    /// Nothing is synced between the two copies of a page.
    SkipFirstSync,
    /// Nothing is synced between the second copies and the new tail.
    SkipSecondSync,
    /// The tail moves when write-back begins.
    TrimTooEarly,
    /// Space of the journal is reused before the new tail is durable.
    ReuseJournalEarly,
    /// Recovery takes a batch whose data is torn.
    AcceptTornBatch,
    /// Checksums of journal and tables do not bind the drive and its formatting.
    ForgetIdentity,
    /// Recovery takes the end of the valid batches for the end of the journal, whatever is behind.
    IgnoreJournalGap,
}

/// All of them.
pub const BUGS: [Bug; 14] = [
    Bug::JournalNotDurable,
    Bug::AnswerBeforeDurable,
    Bug::DirectNotDurable,
    Bug::JournalBeforeData,
    Bug::OverwriteInPlace,
    Bug::WriteIntoWriteBack,
    Bug::ReuseSlotEarly,
    Bug::SkipFirstSync,
    Bug::SkipSecondSync,
    Bug::TrimTooEarly,
    Bug::ReuseJournalEarly,
    Bug::AcceptTornBatch,
    Bug::ForgetIdentity,
    Bug::IgnoreJournalGap,
];

/// The bug of a store, if it has one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bugs(#[cfg(any(test, feature = "proof"))] Option<Bug>);

impl Bugs {
    /// One bug.
    #[cfg(any(test, feature = "proof"))]
    #[must_use]
    pub const fn plant(bug: Bug) -> Self {
        Self(Some(bug))
    }

    #[cfg(any(test, feature = "proof"))]
    pub(crate) fn has(self, bug: Bug) -> bool {
        self.0 == Some(bug)
    }

    #[cfg(not(any(test, feature = "proof")))]
    #[expect(clippy::unused_self, reason = "the same signature with and without the feature")]
    pub(crate) const fn has(self, _: Bug) -> bool {
        false
    }
}
