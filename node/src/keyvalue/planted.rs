//! Bugs to order. With the feature `planted` a simulator can break one rule of the glue between bus and engines at all servers of its world,
//! and see its checkers catch that. Without the feature nobody can, and every question whether a bug is planted is answered by the compiler.

/// A rule that all servers break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// An engine serves what it is assigned without asking the members of the shard.
    ServeUnasked,
    /// A server's lives have the same terms.
    OneTermForAllLives,
    /// After too few answers nobody is asked again.
    AskOnce,
    /// Answers of members are lost.
    LoseAnswers,
    /// A promise is answered without being asked of the engine.
    PromiseUnkept,
    /// The end of a server is told to an engine's task with one notification only.
    EndToldOnce,
    /// Only the first engine of a server hears of a new assignment.
    WakeFirstOnly,
    /// An engine keeps the cluster that it was told of first.
    KeepMap,
    /// An engine that is primary now goes on following.
    FollowOn,
    /// An engine whose part has gone to another server looks for no other.
    NoReconcile,
    /// A replica does not dial its primary again after the link broke.
    FollowOnce,
    /// Orders of clients are done as soon as the bus has taken them.
    DoneAtOnce,
}

#[cfg(feature = "planted")]
impl Planted {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::ServeUnasked,
        Self::OneTermForAllLives,
        Self::AskOnce,
        Self::LoseAnswers,
        Self::PromiseUnkept,
        Self::EndToldOnce,
        Self::WakeFirstOnly,
        Self::KeepMap,
        Self::FollowOn,
        Self::NoReconcile,
        Self::FollowOnce,
        Self::DoneAtOnce,
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
pub(super) fn has(bug: Planted) -> bool {
    BUG.get() == Some(bug)
}

/// Whether a bug is planted: none is.
#[cfg(not(feature = "planted"))]
#[inline]
pub(super) const fn has(_bug: Planted) -> bool {
    false
}
