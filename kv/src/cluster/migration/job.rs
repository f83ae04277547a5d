//! One migration, as `CLUSTER GETSLOTMIGRATIONS` shows it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::table::SlotTable;
use crate::cluster::map::{Name, SlotRange};
use crate::time::Now;

/// Letters of a message that are kept.
const MESSAGE_LETTERS_MAX: usize = 400;

/// Which way slots go, as this node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// They come.
    Import,
    /// They leave.
    Export,
}

/// How far a migration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The source has no connection yet.
    Connecting,
    /// The source waits for the answer to its password.
    Authenticating,
    /// The source waits for the target's consent.
    Establishing,
    /// Keys are being copied: the source's word, and the target's.
    Copying,
    Receiving,
    /// All keys were copied, and changes follow.
    Streaming,
    /// So few changes are left that writes can be held soon.
    Pausing,
    /// Writes are held, and the target takes the rest.
    Paused,
    /// The target has all and waits for leave to take the slots.
    Complete,
    /// The target may take the slots: whether it has is decided elsewhere.
    Granted,
    /// An import has come to nothing, and its keys are being removed.
    CleaningUp,
    /// The slots are the target's.
    Success,
    /// A client has called it off.
    Cancelled,
    /// It has come to nothing.
    Failed,
}

impl Stage {
    /// As clients read it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Authenticating => "reading-auth-response",
            Self::Establishing => "reading-establish-response",
            Self::Copying => "snapshotting",
            Self::Receiving => "receiving-snapshot",
            Self::Streaming => "replicating",
            Self::Pausing => "waiting-to-pause",
            Self::Paused => "failover-paused",
            Self::Complete => "failover-requested",
            Self::Granted => "failover-granted",
            Self::CleaningUp => "cleaning-up",
            Self::Success => "success",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    /// Whether nothing is left to do.
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::Success | Self::Cancelled | Self::Failed)
    }

    /// Whether slots may still change hands by it.
    pub(crate) const fn is_under_way(self) -> bool {
        !self.is_over() && !matches!(self, Self::CleaningUp)
    }
}

/// What changes of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) stage: Stage,
    pub(crate) message: String,
    /// When the stage last changed, and when the other end was last heard of, Unix seconds.
    pub(crate) updated_s: i64,
    pub(crate) heard_s: i64,
    /// Bytes that wait to be sent.
    pub(crate) left_bytes: u64,
}

/// A migration.
#[derive(Debug)]
pub(crate) struct Job {
    /// Nobody else has it.
    pub(crate) name: Name,
    pub(crate) operation: Operation,
    /// As they were asked for.
    pub(crate) ranges: Vec<SlotRange>,
    pub(crate) slots: SlotTable,
    pub(crate) source: Name,
    pub(crate) target: Name,
    /// Unix seconds.
    pub(crate) created_s: i64,
    progress: Mutex<Progress>,
}

impl Job {
    pub(crate) fn new(
        operation: Operation,
        name: Name,
        ranges: Vec<SlotRange>,
        (source, target): (Name, Name),
        now: Now,
    ) -> Self {
        let (slots, now_s) = (SlotTable::of(&ranges), now.unix_ms().div_euclid(1_000));
        let stage = if operation == Operation::Import { Stage::Receiving } else { Stage::Connecting };
        let message = String::new();
        let progress = Progress { stage, message, updated_s: now_s, heard_s: now_s, left_bytes: 0 };
        Self { name, operation, ranges, slots, source, target, created_s: now_s, progress: Mutex::new(progress) }
    }

    pub(crate) fn progress(&self) -> Progress {
        self.lock().clone()
    }

    pub(crate) fn stage(&self) -> Stage {
        self.lock().stage
    }

    /// Goes on to another stage, unless it is over. Says whether it did.
    pub(crate) fn enter(&self, stage: Stage, now: Now) -> bool {
        let mut progress = self.lock();
        if !progress.stage.is_under_way() {
            return false;
        }
        if progress.stage != stage {
            (progress.stage, progress.updated_s) = (stage, now.unix_ms().div_euclid(1_000));
        }
        true
    }

    /// Comes to an end, unless it has. Imports that have come to nothing leave keys, which are removed first. Says whether it did.
    pub(crate) fn end(&self, stage: Stage, message: &str, now: Now) -> bool {
        let mut progress = self.lock();
        if !progress.stage.is_under_way() {
            return false;
        }
        let leaves_keys = self.operation == Operation::Import && stage != Stage::Success;
        progress.stage = if leaves_keys { Stage::CleaningUp } else { stage };
        progress.updated_s = now.unix_ms().div_euclid(1_000);
        progress.message = message.chars().filter(|letter| !letter.is_control()).take(MESSAGE_LETTERS_MAX).collect();
        tracing::info!(name = %self.name, stage = stage.word(), message, "a migration of slots has ended");
        true
    }

    /// A client calls it off. Once the target may take the slots nobody can: false then, and if it is over.
    pub(crate) fn cancel(&self, now: Now) -> bool {
        let mut progress = self.lock();
        let may_end = progress.stage.is_under_way() && progress.stage != Stage::Granted;
        if may_end {
            (progress.stage, progress.updated_s) = (Stage::Cancelled, now.unix_ms().div_euclid(1_000));
        }
        may_end
    }

    /// The keys of an import that came to nothing are gone.
    pub(crate) fn note_clean(&self, now: Now) {
        let mut progress = self.lock();
        if progress.stage == Stage::CleaningUp {
            (progress.stage, progress.updated_s) = (Stage::Failed, now.unix_ms().div_euclid(1_000));
        }
    }

    /// The other end was heard of.
    pub(crate) fn note_heard(&self, now: Now) {
        self.lock().heard_s = now.unix_ms().div_euclid(1_000);
    }

    pub(crate) fn note_left(&self, bytes: u64) {
        self.lock().left_bytes = bytes;
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
