//! Copies of data that a new primary's dump would replace although the new primary may lack a part of them.
//!
//! A node that was primary, was cut off and is followed by another now may have acknowledged writes that its successor never got.
//! Before the successor's dump replaces its data, they are written to a dump of their own (`diverged-TIME.rdb`). The thread that
//! takes snapshots does that; the link to the primary waits for it, and is given up if it fails: nothing is replaced then.
//!
//! Only a node of a cluster keeps data aside: elsewhere an operator has said REPLICAOF. A copy is not kept where the primary says that
//! its history contains the position of the data here (`REPLCONF ASHLAR-HAS`), nor where there are no keys, nor where the data are
//! another shard's: a replica that goes over to a new shard leaves a copy behind that its former primary has.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ashlar_wire::time::Instant;

use super::role::CopyStatus;
use crate::cluster::map::Name;
use crate::engine::Engine;

/// A copy that was kept aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptCopy {
    /// Its file, in the engine's directory.
    pub file: String,
    /// Its bytes.
    pub bytes: u64,
    /// When it was taken, Unix seconds.
    pub unix_s: i64,
}

/// How far keeping the present data aside is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    None,
    Wanted,
    Running,
    /// The data of this count of changes are on files.
    Done(u64),
    Failed(String),
}

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    /// Copies on files, oldest first.
    copies: Vec<KeptCopy>,
    /// Copies that were removed because there were too many, since the process started.
    removed: u64,
    /// Why the last attempt failed, unless one has succeeded since.
    refusal: Option<String>,
    /// The data of this count of changes are a current copy of another shard's.
    elsewhere: Option<u64>,
}

/// Copies of one engine.
#[derive(Debug, Default)]
pub struct Aside(Mutex<State>);

/// What is told of copies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct AsideView {
    pub(crate) copies: Vec<KeptCopy>,
    pub(crate) removed: u64,
    pub(crate) refusal: Option<String>,
}

impl Aside {
    /// These copies are in the directory, oldest first.
    pub fn note_copies(&self, copies: Vec<KeptCopy>) {
        self.lock().copies = copies;
    }

    /// Whether the data are to be kept aside now. It counts as begun.
    pub fn next(&self) -> bool {
        let mut state = self.lock();
        let is_wanted = state.stage == Stage::Wanted;
        if is_wanted {
            state.stage = Stage::Running;
        }
        is_wanted
    }

    /// What was begun has ended: the data of a count of changes are on files, and so many older copies were removed; or why not.
    pub fn end(&self, result: Result<(u64, u64), String>) {
        let mut state = self.lock();
        match result {
            Ok((changes, removed)) => {
                state.removed += removed;
                (state.stage, state.refusal) = (Stage::Done(changes), None);
            }
            Err(why) => (state.stage, state.refusal) = (Stage::Failed(why.clone()), Some(why)),
        }
    }

    fn view(&self) -> AsideView {
        let State { copies, removed, refusal, .. } = &*self.lock();
        AsideView { copies: copies.clone(), removed: *removed, refusal: refusal.clone() }
    }

    /// Whether the link has to wait.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self.lock().stage, Stage::Wanted | Stage::Running)
    }

    /// Why the data could not be kept aside, if they could not. It is told once.
    pub(super) fn take_failure(&self) -> Option<String> {
        let mut state = self.lock();
        match core::mem::take(&mut state.stage) {
            Stage::Failed(why) => Some(why),
            other => {
                state.stage = other;
                None
            }
        }
    }

    /// The data of this count of changes are a current copy of a shard that this node leaves: its primary has them.
    fn note_elsewhere(&self, changes: Option<u64>) {
        self.lock().elsewhere = changes;
    }

    /// Asks for a copy of the data of this count of changes, unless they are on files or elsewhere. Says whether it is made.
    fn want(&self, changes: u64) -> bool {
        let mut state = self.lock();
        let is_kept = state.elsewhere == Some(changes) || state.stage == Stage::Done(changes);
        if !is_kept && !matches!(state.stage, Stage::Wanted | Stage::Running) {
            state.stage = Stage::Wanted;
        }
        !is_kept
    }

    /// The data have been replaced.
    pub(super) fn forget(&self) {
        self.lock().stage = Stage::None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Data that were kept aside.
    pub fn aside(&self) -> &Aside {
        &self.aside
    }

    /// What is told of them.
    pub(crate) fn aside_view(&self) -> AsideView {
        self.aside.view()
    }

    /// How many copies are kept aside; 0 for none.
    #[must_use]
    pub fn diverged_copies_max(&self) -> usize {
        self.settings().replication.diverged_max
    }

    /// A dump is about to replace the data, of a primary that says whether it contains them. Asks for a copy if they might be lost.
    pub(crate) fn consider_aside(&self, is_contained: bool) {
        let is_kept = self.cluster().is_some() && self.diverged_copies_max() > 0;
        if is_kept
            && !is_contained
            && !self.replication.is_torn()
            && !self.is_empty()
            && self.aside.want(self.changes())
        {
            self.rest.end();
            tracing::warn!(
                "the primary may lack writes that are here: they are kept aside before its data replace them"
            );
        }
    }

    /// This node is about to follow the primary of a shard.
    pub(super) fn consider_leaving(&self, shard: Name, now: Instant) {
        let left = self.role.view().copy.and_then(|copy| copy.shard).filter(|left| *left != shard);
        let is_current = left.is_some_and(|left| self.copy_status_of(left, now) == CopyStatus::Current);
        self.aside.note_elsewhere(is_current.then(|| self.changes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_copy_for_the_same_data() {
        let aside = Aside::default();
        assert!(!aside.next() && !aside.is_pending());
        aside.want(7);
        assert!(aside.is_pending() && aside.next() && !aside.next() && aside.is_pending());
        aside.end(Err("the drive is full".to_owned()));
        assert_eq!(aside.take_failure().as_deref(), Some("the drive is full"));
        assert_eq!((aside.take_failure(), aside.is_pending()), (None, false));
        assert!(aside.view().refusal.is_some());
        aside.want(7);
        assert!(aside.next());
        aside.end(Ok((7, 2)));
        aside.want(7);
        assert!(!aside.next(), "it is on files already");
        aside.note_elsewhere(Some(8));
        assert!(!aside.want(8) && !aside.next(), "the shard that is left has them");
        aside.note_elsewhere(None);
        assert!(aside.want(8) && aside.next(), "these are other data");
        assert_eq!((aside.view().removed, aside.view().refusal), (2, None));
    }
}
