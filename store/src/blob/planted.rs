//! Planted bugs of blobs, to prove that the crash enumerator finds such. Only the feature `proof` can plant one; without it
//! every question is answered by the compiler.

/// A rule that blobs break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlobBug {
    /// Batches are written without being durable at completion.
    BatchNotDurable,
    /// Changes are answered while their batch is in flight.
    AnswerBeforeDurable,
    /// Opening takes a last batch whose records are torn.
    AcceptTornBatch,
    /// Opening takes batches that were in a segment before it was erased.
    AcceptOldLife,
    /// Opening does not sync what it found.
    SkipOpeningSync,
    /// Opening takes what it reads last, not what was written last.
    IgnoreOrder,
    /// Opening does not report missing batches.
    IgnoreGap,
    /// A batch overwrites the last one after opening.
    OverwriteLastBatch,
    /// A segment is erased before what was moved out of it is durable.
    EraseBeforeMoved,
    /// A segment is erased before a change that makes a move needless is durable.
    EraseBeforeSuperseded,
    /// A segment is used again while its erasure is in flight.
    ReuseBeforeErased,
    /// A segment is erased while it is being read.
    EraseWhileRead,
    /// Compaction leaves tombstones behind.
    DropTombstone,
    /// A tombstone is forgotten when one of several records that it covers is erased.
    ForgetCopies,
    /// Compaction moves a blob that was removed meanwhile.
    MoveAfterRemoval,
    /// A read takes whatever blob it finds.
    IgnoreHead,
    /// Checksums of batches, heads and marks do not bind the formatting.
    ForgetFormatting,
    /// Data is returned without being verified.
    SkipVerification,
    /// Removals and compaction have no room of their own.
    NoReserve,
    /// Nothing is written behind the last batch.
    SkipSeal,
}

/// All of them.
pub const BLOB_BUGS: [BlobBug; 20] = [
    BlobBug::BatchNotDurable,
    BlobBug::AnswerBeforeDurable,
    BlobBug::AcceptTornBatch,
    BlobBug::AcceptOldLife,
    BlobBug::SkipOpeningSync,
    BlobBug::IgnoreOrder,
    BlobBug::IgnoreGap,
    BlobBug::OverwriteLastBatch,
    BlobBug::EraseBeforeMoved,
    BlobBug::EraseBeforeSuperseded,
    BlobBug::ReuseBeforeErased,
    BlobBug::EraseWhileRead,
    BlobBug::DropTombstone,
    BlobBug::ForgetCopies,
    BlobBug::MoveAfterRemoval,
    BlobBug::IgnoreHead,
    BlobBug::ForgetFormatting,
    BlobBug::SkipVerification,
    BlobBug::NoReserve,
    BlobBug::SkipSeal,
];

/// The bug of an area of blobs, if it has one.
#[derive(Debug, Clone, Copy, Default)]
pub struct BlobBugs(#[cfg(any(test, feature = "proof"))] Option<BlobBug>);

impl BlobBugs {
    /// One bug.
    #[cfg(any(test, feature = "proof"))]
    #[must_use]
    pub const fn plant(bug: BlobBug) -> Self {
        Self(Some(bug))
    }

    #[cfg(any(test, feature = "proof"))]
    pub(super) fn has(self, bug: BlobBug) -> bool {
        self.0 == Some(bug)
    }

    #[cfg(not(any(test, feature = "proof")))]
    #[expect(clippy::unused_self, reason = "the same signature with and without the feature")]
    pub(super) const fn has(self, _: BlobBug) -> bool {
        false
    }
}
