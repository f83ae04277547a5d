//! Bugs to order. With the feature `planted` a simulator can break one rule of objects at all servers of its world, and see its checkers
//! catch that. Without the feature nobody can, and every question whether a bug is planted is answered by the compiler.

/// A rule that all servers break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Checks of commits pass, whatever the index has.
    PassChecks,
    /// Commits are acknowledged before they are written.
    ReplyUnwritten,
    /// What a range has is told without a confirmation that this server still owns it.
    TellUnconfirmed,
    /// A commit that may have been carried out is asked for again.
    RepeatCommits,
    /// The shards of what was replaced go at once: nobody who reads it can end.
    DiscardAtOnce,
    /// A shard that nothing refers to goes at once: what is being put has no record yet.
    CollectAtOnce,
    /// A healed record takes the place of whatever has the key by then.
    HealOverNewer,
    /// Shards that are made anew change places.
    HealShifted,
}

#[cfg(feature = "planted")]
impl Planted {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::PassChecks,
        Self::ReplyUnwritten,
        Self::TellUnconfirmed,
        Self::RepeatCommits,
        Self::DiscardAtOnce,
        Self::CollectAtOnce,
        Self::HealOverNewer,
        Self::HealShifted,
    ];
}

#[cfg(feature = "planted")]
thread_local! {
    static BUG: core::cell::Cell<Option<Planted>> = const { core::cell::Cell::new(None) };
}

/// All servers that run on this thread have this bug from now on, or none.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Planted>) {
    BUG.set(bug);
}

/// Whether a bug is planted.
#[cfg(feature = "planted")]
#[must_use]
pub fn has(bug: Planted) -> bool {
    BUG.get() == Some(bug)
}

/// Whether a bug is planted: none is.
#[cfg(not(feature = "planted"))]
#[must_use]
pub const fn has(_bug: Planted) -> bool {
    false
}
