//! What an engine calls itself: the run, and the history of its data.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What replicas are told where there is no second history.
pub(crate) const NO_HISTORY: &str = "0000000000000000000000000000000000000000";

/// Names that nobody else has.
#[derive(Debug)]
pub(crate) struct Identity {
    /// Of this run (`run_id`): 40 letters.
    pub(crate) run: String,
    histories: Mutex<Histories>,
}

/// What the data's history is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Histories {
    /// Now (`master_replid`).
    pub(crate) first: String,
    /// What it was called before (`master_replid2`), and the position up to which both are the same.
    pub(crate) second: Option<(String, u64)>,
}

impl Histories {
    /// Whether who has the history of this name up to a position has ours.
    pub(crate) fn has(&self, name: &str, position: u64) -> bool {
        let is_it = |known: &str| known.eq_ignore_ascii_case(name);
        is_it(&self.first) || self.second.as_ref().is_some_and(|(second, end)| is_it(second) && position <= *end)
    }
}

impl Identity {
    /// Names from bytes that nobody else knows.
    pub(crate) fn new(secret: &[u8]) -> Self {
        let name = |purpose: &[u8]| {
            use sha1::Digest;
            let sum: [u8; 20] = sha1::Sha1::new().chain_update(purpose).chain_update(secret).finalize().into();
            sum.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let histories = Histories { first: name(b"history"), second: None };
        Self { run: name(b"run"), histories: Mutex::new(histories) }
    }

    /// What the history is called.
    pub(crate) fn history(&self) -> String {
        self.histories().first.clone()
    }

    /// What it is called and was called.
    pub(crate) fn all_histories(&self) -> Histories {
        self.histories().clone()
    }

    /// What the history up to a position is called as well.
    pub(crate) fn other_name(&self, position: u64) -> Option<String> {
        self.histories().second.as_ref().filter(|(_, end)| *end == position).map(|(name, _)| name.clone())
    }

    /// A new history begins, named by chance.
    pub(crate) fn change_history(&self, draws: [u64; 2]) {
        self.set_history(name_by_chance(draws));
    }

    /// The history is this one, and was never called otherwise.
    pub(crate) fn set_history(&self, name: String) {
        *self.histories() = Histories { first: name, second: None };
    }

    /// The history was called so up to a position, and now has a name by chance.
    pub(crate) fn branch_history(&self, from: &str, position: u64, draws: [u64; 2]) {
        *self.histories() = Histories { first: name_by_chance(draws), second: Some((from.to_owned(), position)) };
    }

    /// Nothing came after the history had got another name at a position: it is called as before, so that whoever has it may go on
    /// there.
    pub(crate) fn join_history(&self, position: u64) {
        let mut histories = self.histories();
        if let Some((name, end)) = histories.second.take_if(|(_, end)| *end == position) {
            let branch = std::mem::replace(&mut histories.first, name);
            histories.second = Some((branch, end));
        }
    }

    /// The history goes on under another name from a position on.
    pub(crate) fn rename_history(&self, name: String, position: u64) {
        let mut histories = self.histories();
        let before = std::mem::replace(&mut histories.first, name);
        histories.second = Some((before, position));
    }

    fn histories(&self) -> MutexGuard<'_, Histories> {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A name that no other history has: 40 letters.
pub(crate) fn name_by_chance([one, two]: [u64; 2]) -> String {
    format!("{one:016x}{two:016x}{:08x}", one.rotate_left(17) >> 32)
}
